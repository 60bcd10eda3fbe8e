"""What the terms of an agreement do to acceptance and numbering, through the HTTP entrance: E11, E12, E33 and E34.

And what a sender's restart, its repeats and a person's verbs do to the rows of one pair.

MessageIds of ebXML messages are kept permanently: they carry no first-instance time that a window could go by.

A RoutingHeader without ErrorURI (spec 1, 2.2.2): never written, and taken from others at both ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from messaging.choices import Direction, SignalKind, SignalState
from messaging.entrance.refusals import Arrival
from messaging.journal.audit import Actor
from messaging.models import Delivery, Incident, Message, MessageIdentity, Pair, Rejection, Signal
from messaging.pairs.services import operating
from messaging.profiles.ebxml import accepting
from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import MessageType
from messaging.protocol.errors import EncodeError, ErrorCode
from messaging.protocol.pair_state import Flow
from partners.models import DAY, AgreementVersion
from partners.services import version_validate
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.documents import make_queue
from tests.messaging.deliveries.stage import make_trigger
from tests.messaging.factories import REFUSED, TAKEN, Link, PartnerSide, decoded, link, partner_side, submit, work
from tests.messaging.wire import edited, items, post
from tests.partners.factories import make_agreement, make_endpoint, make_party

pytestmark = pytest.mark.django_db

OPERATOR = Actor("olivia", "console")


@pytest.fixture
def wire() -> Iterator[Link]:
    with link() as made:
        yield made


def received() -> list[str]:
    incoming = Message.objects.filter(direction=Direction.IN).order_by("position")
    return list(incoming.values_list("message_id", flat=True))


def answers(wire: Link) -> list[tuple[MessageType, str, str]]:
    """Type, the message it is about and the error code of all that went out to the partner until now."""
    while work():
        pass
    said = [decoded(parcel) for parcel in wire.parcels]
    wire.parcels.clear()
    return [(one.message_type, one.ref_to_message_id, one.error.code if one.error else "") for one in said]


def after_three(**terms: object) -> PartnerSide:
    """A partner whose messages a, b and c came in as 1, 2 and 3."""
    partner = partner_side(**terms)
    for number, message_id in enumerate("abc", start=1):
        assert post(partner.message(number, f"{message_id}@p")).status_code == 204
    return partner


@pytest.mark.parametrize(("strict", "case"), [(True, "E34"), (True, "E12-strict"), (False, "E12")])
def test_an_old_number_of_a_known_id(strict: bool, case: str, wire: Link) -> None:
    """By the letter of 5.2 (4) it is an error; else the id says that it is a repeat. Neither is delivered again."""
    make_trigger(kind="pull")
    partner = after_three(strict_sequence=strict)
    answers(wire)
    assert post(partner.message(2, "b@p")).status_code == 204
    if strict:
        assert answers(wire) == [(MessageType.ERROR, "b@p", ErrorCode.INVALID_SEQUENCE_NUMBER)]
    else:
        assert answers(wire) == [(MessageType.ACKNOWLEDGEMENT, "b@p", "")]
    assert received() == ["a@p", "b@p", "c@p"]
    assert Delivery.objects.count() == 3
    assert (partner.inbound.last_sequence, partner.inbound.last_message_id) == (3, "c@p")
    assert post(partner.message(4, "d@p")).status_code == 204
    assert answers(wire) == [(MessageType.ACKNOWLEDGEMENT, "d@p", "")]


@pytest.mark.parametrize("forgotten", [False, True], ids=["E10", "E11"])
def test_e11_an_old_number_one_is_new_where_nothing_is_remembered(forgotten: bool, wire: Link) -> None:
    """The hole of 5.2 (3), which the letter leaves open: only the memory of ids closes it, and there is no switch for
    that; a store that has lost an id, as a restored one may, shows what it is for.
    """
    partner = after_three(strict_sequence=True)
    answers(wire)
    if forgotten:
        MessageIdentity.objects.filter(message_id="a@p").delete()
    assert post(partner.message(1, "a@p")).status_code == 204
    assert answers(wire) == [(MessageType.ACKNOWLEDGEMENT, "a@p", "")]
    assert received() == ["a@p", "b@p", "c@p", *["a@p"] * forgotten]
    assert partner.inbound.last_sequence == (1 if forgotten else 3)


def three_agreements() -> list[AgreementVersion]:
    """Of one Sender-Receiver pair: the same two parties, the same two endpoints."""
    ours, theirs = make_party(own=True), make_party()
    own, far = make_endpoint(ours), make_endpoint(theirs)
    return [make_agreement(own_party=ours, partner=theirs, own_endpoint=own, partner_endpoint=far) for _ in range(3)]


def test_e33_numbers_go_by_pair_and_not_by_agreement(wire: Link) -> None:
    sides = [partner_side(version) for version in three_agreements()]
    assert len({side.outbound.pk for side in sides}) == len({side.inbound.pk for side in sides}) == 1
    for side in sides:
        submit(side)
    for side in sides:
        work()
        assert post(side.acknowledgement(wire.last)).status_code == 204
    sent = [(decoded(parcel).agreement_id, decoded(parcel).hop.sequence_number) for parcel in wire.parcels]
    assert sent == [(side.terms.tpa_id, number) for number, side in enumerate(sides, start=1)]
    # And what comes in: the partner counts on over its three agreements, too.
    wire.parcels.clear()
    for number, side in enumerate(sides, start=1):
        assert post(side.message(number, f"m{number}@p")).status_code == 204
    assert received() == ["m1@p", "m2@p", "m3@p"]
    assert post(sides[0].message(1, "again@p")).status_code == 204  # a new start, not the first of this agreement
    assert post(sides[1].message(3, "gap@p")).status_code == 204
    assert answers(wire)[-1] == (MessageType.ERROR, "gap@p", ErrorCode.INVALID_SEQUENCE_NUMBER)
    assert Pair.objects.filter(direction=Direction.IN).count() == 1


# --- a sender that restarts, within one group of arrivals ---


def test_a_stray_copy_after_a_restart_in_the_same_group_does_not_restart_it_again() -> None:
    """c restarts the sequence as number 1 and d is number 2; a further copy of c is a repeat, and e follows d."""
    partner = after_three()
    again = partner.message(1, "c@p")
    accepting.accept(items(partner, again, partner.message(2, "d@p"), again))
    assert (partner.inbound.last_sequence, partner.inbound.last_message_id) == (2, "d@p")
    assert post(partner.message(3, "e@p")).status_code == 204
    assert received() == ["a@p", "b@p", "c@p", "d@p", "e@p"]
    assert (partner.inbound.rejected, Incident.objects.count()) == (0, 0)


# --- an acknowledgement that could not be sent ---


def test_a_repeat_gives_its_acknowledgement_a_new_budget_of_attempts(time: FrozenClock) -> None:
    """The first was given up; the copy's must not be given up at its first attempt."""
    partner = partner_side(transport_retries=2)
    arrival = partner.message(1, "a@p")
    post(arrival)
    with link(REFUSED) as wire:
        for _ in range(10):
            work()
            time.move(3600)
        assert len(wire.parcels) == 3
        [ack] = Signal.objects.filter(kind=SignalKind.ACKNOWLEDGEMENT)
        assert (ack.state, ack.owed) == (SignalState.FAILED, 0)
        post(arrival)
        for _ in range(2):
            work()
            time.move(3600)
        ack.refresh_from_db()
        assert (len(wire.parcels), ack.state, ack.owed) == (5, SignalState.PENDING, 1)
    with link(TAKEN) as wire:
        work()
    ack.refresh_from_db()
    assert (len(wire.parcels), ack.state) == (1, SignalState.SENT)


def test_a_repeat_while_attempts_fail_gives_a_new_budget_too(time: FrozenClock) -> None:
    partner = partner_side(transport_retries=2)
    arrival = partner.message(1, "a@p")
    post(arrival)
    with link(REFUSED) as wire:
        for _ in range(2):
            work()
            time.move(3600)
        post(arrival)
        for _ in range(2):
            work()
            time.move(3600)
        assert len(wire.parcels) == 4
    [ack] = Signal.objects.filter(kind=SignalKind.ACKNOWLEDGEMENT)
    assert (ack.state, ack.owed) == (SignalState.PENDING, 2)


# --- what the end of one message leaves to the next ---


def test_the_pauses_of_one_message_are_not_those_of_the_next(time: FrozenClock, wire: Link) -> None:
    """The ceiling of pauses is an alarm about one message that does not get through."""
    partner = partner_side(transient_ceiling=300, retry_interval=10)
    submit(partner)
    submit(partner)
    work()
    post(partner.error(wire.last, ErrorCode.TRANSIENT_ERROR, min_retry_secs=200))
    time.move(200)
    work()
    post(partner.acknowledgement(wire.last))
    assert partner.outbound.holding_since is None
    time.move(200)
    work()
    post(partner.error(wire.last, ErrorCode.TRANSIENT_ERROR, min_retry_secs=200))
    assert partner.outbound.flow == Flow.HOLDING
    assert Incident.objects.count() == 0
    time.move(200)
    work()
    post(partner.error(wire.last, ErrorCode.TRANSIENT_ERROR, min_retry_secs=200))
    assert Incident.objects.count() == 1, "and this message has been paused for too long by now"


def test_a_resumed_pair_has_all_of_its_transport_recovery(time: FrozenClock, wire: Link) -> None:
    partner = partner_side(transport_retries=2, transport_retry_interval=5, timeout=600)
    submit(partner)
    wire.answer = REFUSED
    for _ in range(2):
        work()
        time.move(5)
    assert (partner.outbound.flow, partner.outbound.transport_attempts) == (Flow.RESEND_WAIT, 2)
    post(partner.error(wire.last))
    assert partner.outbound.flow == Flow.SUSPENDED
    operating.pair_resume(pair_id=partner.outbound.pk, actor=OPERATOR, reason="It is up again.")
    for expected in (1, 2):
        work()
        assert (partner.outbound.flow, partner.outbound.transport_attempts) == (Flow.RESEND_WAIT, expected)
        time.move(5)
    work()
    assert partner.outbound.flow == Flow.AWAITING_ACK


@pytest.mark.parametrize("number", [1, 3], ids=["as number 1", "as the next number"])
@pytest.mark.parametrize("days", [8, 500])
def test_e31_a_copy_of_an_old_id_is_a_repeat_however_old_it_is(number: int, days: int) -> None:
    with clock.frozen(datetime(2026, 3, 1, 12, tzinfo=UTC)) as time:
        make_queue()
        partner = partner_side(memory_window=7 * DAY)
        assert [partner.send(partner.message(at, name)) for at, name in ((1, "a@p"), (2, "b@p"))] == [204] * 2
        Message.objects.filter(message_id="a@p").delete()  # purged long ago: its id outlives it
        Delivery.objects.filter(message__message_id="a@p").delete()
        time.move(days * DAY)
        assert partner.send(partner.message(number, "a@p")) == 204
        assert list(Message.objects.values_list("message_id", flat=True)) == ["b@p"]
        assert Delivery.objects.count() == 1
        # As the next number it is that of a sender who numbers anew what it had sent; its next document counts on.
        assert partner.inbound.last_sequence == (2 if number == 1 else 3)
        assert partner.send(partner.message(partner.inbound.last_sequence + 1, "c@p")) == 204
        assert Signal.objects.filter(kind="ack", ref_to_message_id="a@p").exists()
        assert MessageIdentity.objects.filter(direction="in").count() == 3


@pytest.mark.parametrize("profile", ["ebxml", "stream"])
def test_e31_a_window_that_would_say_nothing_is_told(profile: str) -> None:
    version = make_agreement(profile=profile, memory_window=7 * DAY)
    (told,) = [one for one in version_validate(version=version) if one.code == "memory_window_unused"]
    assert "kept permanently" in told.sentence
    usual = make_agreement(profile=profile)
    assert not [one for one in version_validate(version=usual) if one.code == "memory_window_unused"]


@pytest.fixture
def partner() -> PartnerSide:
    return partner_side()


def _without(partner: PartnerSide, arrival: Arrival) -> Arrival:
    uri = partner.terms.partner_error_uri
    assert uri
    return edited(arrival, (f"    <ErrorURI>{uri}</ErrorURI>\r\n", ""))


def test_e32_a_message_is_taken_and_acknowledged_and_errors_go_to_the_agreements_address(partner: PartnerSide) -> None:
    assert partner.send(_without(partner, partner.message(1, "a@p"))) == 204
    assert partner.send(_without(partner, partner.message(7, "b@p"))) == 204
    assert [message.message_id for message in Message.objects.all()] == ["a@p"]
    assert Rejection.objects.get().reason == "InvalidSequenceNumber"
    with link() as wire:
        work()
    answers = {decoded(parcel).ref_to_message_id: parcel for parcel in wire.parcels}
    assert answers["a@p"].address == partner.terms.partner_address
    assert answers["b@p"].address == partner.terms.partner_error_address


def test_e32_an_answer_without_one_counts_too(partner: PartnerSide) -> None:
    message = submit(partner)
    with link() as wire:
        work()
    assert partner.send(_without(partner, partner.acknowledgement(wire.last))) == 204
    assert Signal.objects.get(direction="in").state == "matched"
    assert Message.objects.get(pk=message.pk).state == "delivered"


def test_e32_whatever_we_send_has_one(partner: PartnerSide) -> None:
    submit(partner)
    partner.send(_without(partner, partner.message(1)))
    partner.send(_without(partner, partner.message(7)))
    with link() as wire:
        work()
    sent = [decoded(parcel) for parcel in wire.parcels]
    assert {str(envelope.message_type) for envelope in sent} == {"Normal", "Acknowledgement", "Error"}
    assert {envelope.hop.error_uri for envelope in sent} == {partner.terms.own_error_uri}
    bare = replace(sent[0], routing=(replace(sent[0].hop, error_uri=""),))
    with pytest.raises(EncodeError, match="ErrorURI"):
        ebxml.encode(bare)
