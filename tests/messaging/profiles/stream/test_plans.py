"""What runs for every group of a stream costs the same however much is stored: index scans only."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from messaging.claim import Claim
from messaging.models import Delivery, IncomingStream, Message, MessageIdentity, Pair, Signal
from messaging.profiles.stream import accepting, receipts
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.stage import make_trigger
from tests.messaging.full_store import BIG, multiply
from tests.messaging.profiles.stream.partner import items, stream_side
from tests.plans import Plans

pytestmark = pytest.mark.django_db
PLANS = Plans([model._meta.db_table for model in (*BIG, IncomingStream)])
scans = PLANS.faults
# What is sent is in engine/test_plans.py.
ROOMS = tuple(f"messaging/profiles/stream/{name}.py" for name in ("accepting", "receipts", "storing"))


def test_acceptance_and_order_acks_look_at_what_they_need(time: FrozenClock) -> None:
    make_trigger(kind="pull")
    partner = stream_side(inbound_quota=100, final_receipt=True)
    partner.send(partner.message(1, requested=True))
    done = {"due_at": "NULL", "state": "'completed'", "message_id": "gen_random_uuid()"}
    multiply(Pair, sender_uri="'urn:' || n", code="'pair ' || n")
    multiply(Delivery, **done)
    multiply(Message, message_id="'m' || n", wire_frame="NULL")
    multiply(MessageIdentity, message_id="'m' || n")
    multiply(IncomingStream, source="'s' || n", order_ack_due_at="NULL")
    multiply(Signal, about_id="gen_random_uuid()", message_id="'s' || n", due_at="NULL", state="'sent'", kind="'final'")
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM messaging_incomingstream")
        assert cursor.fetchone()[0] > 20_000
    group = items(partner, *(partner.message(number) for number in (2, 3, 4, 3)))
    assert scans(lambda: accepting.accept(group)) == []
    outside = partner.message(None, "outside@p")
    assert scans(lambda: [accepting.accept(items(partner, outside)) for _ in range(2)]) == []
    came = Message.objects.filter(direction="in", tx_sequence_id__isnull=False).order_by("-id")
    keys = list(came.values_list("pk", flat=True)[:4])
    with transaction.atomic():
        assert scans(lambda: receipts.owe(keys, clock.now())) == []
    claim = Claim(time.move(1), 64)
    assert scans(lambda: receipts.claim(claim)) == []
    assert Signal.objects.filter(state="pending", kind="ack").count() == 2
    assert "\n".join(PLANS.missing(*ROOMS)) == ""
