"""What a partner says of messages that it has nothing to say of, or says in an unusual place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from messaging.choices import MessageState, SignalKind, SignalState
from messaging.models import Incident, Message, Pair, Signal
from messaging.profiles.ebms2.answered import entity_of
from messaging.protocol.codecs import ebms2
from messaging.protocol.envelope import Acknowledgment, ErrorInfo
from messaging.protocol.errors import ErrorCode, Severity
from messaging.transports import Parcel, Receipt
from partners import registry
from rmhub import clock
from tests.messaging.factories import link, partner_side, submit, work
from tests.messaging.profiles.ebms2.partner import RELIABLE, Ebms2Side, decoded, ebms2_side
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("word", ["acknowledging", "refusing"])
@pytest.mark.parametrize("reliable_beside", [False, True], ids=["alone", "beside"])
def test_what_is_said_of_a_message_that_is_sent_once_moves_nothing(word: str, reliable_beside: bool) -> None:
    """It comes while the message is on the wire, before its outcome is recorded."""
    side = ebms2_side()
    if reliable_beside:
        submit(side)
        with link():
            work()
    once = submit(side, semantics="BestEffort")

    def early(parcel: Parcel) -> Receipt:
        # What nobody asked for may come all the same.
        asking = side.arrival(replace(decoded(parcel), ebms=RELIABLE, semantics=RELIABLE.semantics))
        assert side.bring(getattr(side, word)(asking)).status == 204
        return Receipt(ok=True, status=204)

    with link(early):
        work()
    once.refresh_from_db()
    assert (once.state, side.outbound.out_now) == (MessageState.SENT, int(reliable_beside))
    kept = Signal.objects.get(about=once)
    assert (kept.state, kept.note) == (SignalState.IGNORED, "the message waits for no acknowledgement of ebXML 2.0")
    assert not Incident.objects.exists()


@pytest.mark.parametrize("profile", ["ebxml", "stream", "repeatable"])
def test_ebxml_2_moves_no_message_of_another_profile(profile: str) -> None:
    side = partner_side(profile=profile)
    message = submit(side)
    Message.objects.filter(pk=message.pk).update(state=MessageState.SENDING)
    partner = Ebms2Side(side.terms, side.presented)
    named = partner.envelope(message.message_id)
    assert partner.bring(partner.acknowledging(partner.arrival(named))).status == 204
    message.refresh_from_db()
    assert message.state == MessageState.SENDING
    assert Signal.objects.get(about=message).state == SignalState.IGNORED


def test_a_response_acknowledges_nothing_of_another_agreement() -> None:
    other = partner_side()
    other.send(other.message(1, "m1@partner.example"))
    version = make_agreement(
        own_party=other.inbound.own_party,
        partner=other.inbound.partner,
        profile="ebms2",
        sync_reply="signalsAndResponse",
        retries=3,
        retry_interval=300,
    )
    registry.reset()
    side = Ebms2Side(registry.current().version(version.pk), other.presented)
    with link() as wire:
        work()
        submit(side, ref_to_message_id="m1@partner.example")
        # A worker waits a moment for whoever might wait for it.
        Pair.objects.filter(pk=side.outbound.pk).update(due_at=clock.now())
        work()
    said = decoded(wire.last)
    assert said.ref_to_message_id == "m1@partner.example"
    assert said.ebms is not None and said.ebms.acknowledgments == ()


def test_what_a_business_message_says_of_ours_is_kept_as_what_it_is() -> None:
    """One row for each word, which names our message, whatever the header refers to; without the documents."""
    side = ebms2_side()
    taken, refused = submit(side), submit(side)
    with link():
        work()
    error = ErrorInfo(ErrorCode.DELIVERY_FAILURE, Severity.ERROR, "Not today.")
    said = replace(RELIABLE, acknowledgments=(Acknowledgment(taken.message_id, clock.now()),), errors=(error,))
    carrier = side.envelope("m1@partner.example", ebms=said, ref_to_message_id=refused.message_id)
    assert side.bring(carrier).status == 204
    rows = {row.about_id: row for row in Signal.objects.filter(direction="in")}
    assert rows[taken.pk].kind == SignalKind.ACKNOWLEDGEMENT
    assert rows[taken.pk].ref_to_message_id == taken.message_id
    assert (rows[taken.pk].error_code, rows[taken.pk].error_description) == ("", "")
    assert rows[refused.pk].kind == SignalKind.ERROR
    assert (rows[refused.pk].error_code, rows[refused.pk].error_description) == ("DeliveryFailure", "Not today.")
    for row in rows.values():
        read = ebms2.decode(row.content_type, bytes(row.body)).ebms
        assert read is not None and read.acknowledgments[0].ref_to_message_id == taken.message_id
        assert b"<Order" not in bytes(row.body)
    assert Message.objects.filter(direction="in", message_id="m1@partner.example").exists()


@pytest.mark.parametrize(("said", "read"), [("text/xml", "text/xml"), ("text/xml;\x00a=1", ""), ("text/xml\r", "")])
def test_a_type_of_a_response_that_no_column_takes_is_none(said: str, read: Any) -> None:
    receipt = Receipt(ok=True, status=200, response=b"HTTP 200\r\n\r\n<x/>", headers=(("Content-Type", said),))
    assert entity_of(receipt) == (read, b"<x/>")
