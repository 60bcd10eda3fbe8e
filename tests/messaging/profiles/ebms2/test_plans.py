"""What runs for every group of ebXML 2.0 messages costs the same however much is stored: index scans only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from messaging.models import Delivery, Message, MessageIdentity, OrderedConversation, Pair, Signal
from messaging.profiles.ebms2 import accepting, answered
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.stage import make_trigger
from tests.messaging.factories import link, submit, work
from tests.messaging.full_store import BIG, multiply
from tests.messaging.profiles.ebms2.partner import decoded, ebms2_side, items
from tests.plans import Plans

pytestmark = pytest.mark.django_db
PLANS = Plans([model._meta.db_table for model in (*BIG, OrderedConversation)])
scans = PLANS.faults
ROOMS = ("messaging/profiles/ebms2", "messaging/profiles/acknowledging.py")


def test_what_comes_and_what_is_acknowledged_look_at_what_they_need(
    time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_trigger(kind="pull")
    partner = ebms2_side(message_order=True, retries=3, retry_interval=60)
    partner.bring(partner.ordered(0, "m0"))
    sent = [submit(partner, conversation_id="ours") for _ in range(2)]
    with link() as wire:
        work()
    done = {"due_at": "NULL", "state": "'completed'", "message_id": "gen_random_uuid()"}
    multiply(Pair, sender_uri="'urn:' || n", code="'pair ' || n")
    multiply(Delivery, **done)
    multiply(Message, message_id="'m' || n", wire_frame="NULL")
    multiply(MessageIdentity, message_id="'m' || n")
    multiply(OrderedConversation, conversation_id="'c' || n", gap_since="NULL")
    multiply(Signal, about_id="gen_random_uuid()", message_id="'s' || n", due_at="NULL", state="'sent'")
    group = items(partner, *(partner.ordered(number, f"m{number}") for number in (3, 1, 2, 1)))
    assert scans(lambda: accepting.accept(group)) == []
    # The next of our conversation goes out when its beginning is acknowledged, again when that is not.
    [first] = [parcel for parcel in wire.parcels if decoded(parcel).message_id == sent[0].message_id]
    assert scans(lambda: partner.bring(partner.acknowledging(first))) == []
    signing = replace(partner.terms, signatures="receipts")
    monkeypatch.setattr(answered, "_terms", lambda message: signing)
    assert scans(lambda: answered.read_frames(sent)) == []
    monkeypatch.undo()
    with link():
        scans(work)  # what it claims by is judged in engine/test_plans.py
        time.move(61)
        scans(work)
    assert "\n".join(PLANS.missing(*ROOMS)) == ""
