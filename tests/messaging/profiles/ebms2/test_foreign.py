"""Messages of other implementations, replayed: to our entrance, and as what comes of messages of ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from messaging.choices import Direction, MessageState, SignalKind, SignalState
from messaging.entrance.refusals import Arrival
from messaging.models import Message, Payload, Rejection, Signal
from messaging.protocol.codecs.ebms2 import decode
from messaging.protocol.codecs.mail import entity, read_mail
from messaging.protocol.envelope import Envelope, PartyId
from tests.messaging.factories import SERVICE, link, partner_side, submit, work
from tests.messaging.profiles.ebms2.partner import Ebms2Side
from tests.partners.factories import make_agreement, make_party
from tests.protocol.codecs.ebms2_samples import FIXTURES, ORDER_PART, enclose, filled

pytestmark = pytest.mark.django_db


def of_hermes() -> tuple[str, bytes]:
    head, _, body = (FIXTURES / "hermes-test2.msg").read_bytes().partition(b"\n\n")
    return head.decode().partition("Content-Type: ")[2].partition("\n")[0], body


def of_nav_by_http() -> tuple[str, bytes]:
    boundary = "------=_part_c2a3282c_e754_4193_9fb5_e8a469941f97"
    return f'multipart/related; boundary="{boundary}"', (FIXTURES / "nav-http-request.mime").read_bytes()


def of_nav_by_mail() -> tuple[str, bytes]:
    content_type, body = entity(read_mail((FIXTURES / "nav-smtp-delivered.msg").read_bytes()))
    return content_type, body[:]


def of_ebms_core() -> tuple[str, bytes]:
    return "text/xml", filled("ebms-core-EbMSMessage.xml")


def of_ebms_core_with_attachments() -> tuple[str, bytes]:
    return enclose(filled("ebms-core-EbMSMessageWithAttachments.xml"), ORDER_PART)


def partner_of(parties: tuple[PartyId, ...], us: tuple[PartyId, ...], tpa_id: str, service: str) -> Ebms2Side:
    """Whoever wrote a message, as a partner with the agreement that the message names."""
    version = make_agreement(
        partner=make_party(identifiers=[(one.context, one.value) for one in parties]),
        own_party=make_party(own=True, identifiers=[(one.context, one.value) for one in us]),
        tpa_id=tpa_id,
        allowed=[(service, "*", "both")],
        profile="ebms2",
        retries=3,
        retry_interval=300,
    )
    side = partner_side(version)
    return Ebms2Side(side.terms, side.presented)


def sender_of(envelope: Envelope) -> Ebms2Side:
    return partner_of(envelope.from_parties, envelope.to_parties, envelope.agreement_id, envelope.service)


@pytest.mark.parametrize(
    "message",
    [of_hermes, of_nav_by_http, of_ebms_core, of_ebms_core_with_attachments],
    ids=lambda one: one.__name__,
)
def test_a_message_of_theirs_is_stored_as_it_is_and_acknowledged_if_it_asks(
    message: Callable[[], tuple[str, bytes]],
) -> None:
    content_type, body = message()
    envelope = decode(content_type, body)
    assert envelope.ebms is not None
    side = sender_of(envelope)
    arrival = Arrival(content_type, body, side.presented, "192.0.2.7")
    for _ in range(2):
        side.bring(arrival)
    stored = list(Message.objects.filter(direction=Direction.IN))
    assert [one.message_id for one in stored] == [envelope.message_id], "the agreement says once"
    payloads = Payload.objects.filter(message=stored[0]).order_by("number")
    assert [bytes(one.content) for one in payloads] == [one.content[:] for one in envelope.payloads]
    signals = Signal.objects.filter(direction=Direction.OUT, kind=SignalKind.ACKNOWLEDGEMENT)
    assert signals.count() == bool(envelope.ebms.ack_requests)


def test_who_wants_a_signed_acknowledgement_without_an_agreement_on_it_is_told() -> None:
    content_type, body = of_nav_by_mail()
    side = sender_of(decode(content_type, body))
    side.bring(Arrival(content_type, body, side.presented, "192.0.2.7"))
    assert not Message.objects.exists()
    assert Rejection.objects.get().reason == Signal.objects.get().error_code == "NotSupported"


def test_an_acknowledgement_of_theirs_ends_a_message_of_ours() -> None:
    """As it came from Norway: bare XML, a second PartyId, a signature that nobody agreed upon here."""
    body = (FIXTURES / "nav-acknowledgment.xml").read_bytes()
    said = decode("text/xml", body)
    side = partner_of(said.from_parties, said.to_parties, said.agreement_id, SERVICE)
    message = submit(side, message_id=said.ref_to_message_id)
    with link():
        work()
    side.bring(Arrival("text/xml", body, side.presented, "192.0.2.7"))
    message.refresh_from_db()
    assert message.state == MessageState.DELIVERED
    assert Signal.objects.get(about=message).state == SignalState.MATCHED


def test_an_error_of_theirs_stops_the_pair_and_says_why() -> None:
    body = (FIXTURES / "nav-messageerror.xml").read_bytes()
    said = decode("text/xml", body)
    side = partner_of(said.from_parties, said.to_parties, said.agreement_id, SERVICE)
    message = submit(side, message_id=said.ref_to_message_id)
    with link():
        work()
    side.bring(Arrival("text/xml", body, side.presented, "192.0.2.7"))
    message.refresh_from_db()
    assert (message.state, side.outbound.flow) == (MessageState.RETRYING, "suspended")
    assert message.cause == "ebms_error_value_not_recognized"
    assert "invalid CpaId" in message.cause_detail


def test_a_ping_of_theirs_gets_a_pong() -> None:
    body = filled("ebms-core-EbMSPing.xml")
    side = sender_of(decode("text/xml", body))
    side.bring(Arrival("text/xml", body, side.presented, "192.0.2.7"))
    assert Signal.objects.get(direction=Direction.OUT).kind == SignalKind.PONG
