"""What partners send: stored, recognised or refused, and acknowledged only once it is committed."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from datetime import UTC, datetime
from unittest import mock

import pytest
from django.db import IntegrityError, connection

from messaging.choices import Direction, SignalKind
from messaging.engine import preparing
from messaging.entrance import reading
from messaging.entrance.refusals import Arrival
from messaging.journal.audit import Actor
from messaging.models import Event, Incident, Message, MessageIdentity, Payload, Rejection, Signal, Transmission
from messaging.pairs.services import operating
from messaging.profiles import acknowledging
from messaging.profiles.ebxml import accepting, receiving
from messaging.protocol.envelope import MessageType, Semantics
from messaging.transports import Parcel, Receipt
from partners import registry, services
from partners.models import Agreement
from rmhub.clock import frozen
from tests.messaging.factories import TAKEN, PartnerSide, decoded, link, partner_side, submit, work
from tests.messaging.wire import edited, items, post
from tests.partners.factories import make_agreement, make_endpoint, make_party

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
WAIT = 120.0


def acks() -> list[Signal]:
    return list(Signal.objects.filter(direction=Direction.OUT, kind=SignalKind.ACKNOWLEDGEMENT).order_by("id"))


def acks_sent() -> list[bytes]:
    """Octets of all acknowledgements that are due now, as they go out."""
    sent: list[bytes] = []
    with link() as wire:
        while work():
            pass
        sent += [parcel.body for parcel in wire.of(MessageType.ACKNOWLEDGEMENT)]
    return sent


def test_a_message_is_stored_with_all_that_came(woken: list[str]) -> None:
    partner = partner_side()
    arrival = partner.message(1, "m1@p", content=b"<Order\xff/>", ref_to_message_id="earlier@us")
    with frozen(AT):
        assert partner.send(arrival) == 204
    message = Message.objects.get()
    assert (message.direction, message.state, message.semantics) == ("in", "received", "OnceAndOnlyOnce")
    assert (message.message_id, message.sequence_number, message.ref_to_message_id) == ("m1@p", 1, "earlier@us")
    assert (message.position, message.completed_at, message.content_type) == (1, AT, arrival.content_type)
    assert message.digest == hashlib.sha256(arrival.body).hexdigest()
    [payload] = message.payloads.all()
    assert (bytes(payload.content or b""), payload.label, payload.in_frame) == (b"<Order\xff/>", "Order", False)
    assert preparing.stored_body(message, [payload]) == arrival.body, "the exact octets, payloads stored once"
    pair = partner.inbound
    assert (pair.last_sequence, pair.last_message_id, pair.done, pair.last_success_at) == (1, "m1@p", 1, AT)
    identity = MessageIdentity.objects.get()
    assert (identity.scope_id, identity.message_id, identity.stored_id) == (
        partner.terms.partner_id, "m1@p", message.pk,
    )  # fmt: skip
    assert Event.objects.get().type == "message.received"
    assert woken == ["messaging.send_due"]


def test_a_payload_in_another_encoding_comes_out_decoded_and_the_octets_stay() -> None:
    partner = partner_side()
    plain = partner.message(1, content=b"QUJDRA==")
    arrival = edited(plain, ("\r\n\r\nQUJDRA==", "\r\nContent-Transfer-Encoding: base64\r\n\r\nQUJDRA=="))
    assert partner.send(arrival) == 204
    message = Message.objects.get()
    [payload] = message.payloads.all()
    assert (bytes(payload.content or b""), payload.in_frame) == (b"ABCD", True)
    assert preparing.stored_body(message, [payload]) == arrival.body


def test_a_large_payload_goes_to_a_file_and_the_octets_come_back(settings) -> None:
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 1000
    partner = partner_side()
    arrival = partner.message(1, content=bytes(range(256)) * 1000)
    assert partner.send(arrival) == 204
    message, payload = Message.objects.get(), Payload.objects.get()
    assert (payload.content, payload.size) == (None, 256_000)
    assert preparing.stored_body(message, [payload]) == arrival.body


def test_every_receipt_earns_an_acknowledgement_with_the_same_octets() -> None:
    partner = partner_side()
    arrival = partner.message(1)
    assert [partner.send(arrival) for _ in range(3)] == [204] * 3
    assert Message.objects.get().copies == 2
    [ack] = acks()
    assert ack.owed == 3
    sent = acks_sent()
    assert len(sent) == 3
    assert len(set(sent)) == 1
    partner.send(arrival)
    assert acks_sent() == sent[:1], "the same octets, however late the repeat comes"
    pair = partner.inbound
    assert (pair.done, pair.duplicates, Message.objects.count()) == (1, 3, 1)
    assert Event.objects.filter(type="message.duplicate").count() == 3


def test_a_repeat_while_its_acknowledgement_is_on_the_wire_earns_one_more() -> None:
    partner = partner_side()
    arrival = partner.message(1)
    partner.send(arrival)

    def answer(parcel: Parcel) -> Receipt:
        if len(wire.parcels) == 1:
            partner.send(arrival)
            partner.send(arrival)
        return TAKEN

    with link(answer) as wire:
        while work():
            pass
    assert len(wire.parcels) == 3
    assert len({parcel.body for parcel in wire.parcels}) == 1
    [ack] = acks()
    assert (ack.state, ack.owed, ack.sends) == ("sent", 0, 3)


def test_repeats_in_one_group_are_one_message() -> None:
    """Two copies that are processed in the same transaction: the second sees the first although it is not committed."""
    partner = partner_side()
    first, second = items(partner, partner.message(1, "m1@p"), partner.message(1, "m1@p"))
    accepting.accept([first, second, second])
    assert (Message.objects.count(), acks()[0].owed, partner.inbound.duplicates) == (1, 3, 2)


def test_a_group_keeps_its_order() -> None:
    partner = partner_side()
    arrivals = [partner.message(number, f"m{number}@p") for number in (1, 2, 3, 2, 5, 4)]
    accepting.accept(items(partner, *arrivals))
    stored = Message.objects.order_by("position").values_list("message_id", flat=True)
    assert list(stored) == ["m1@p", "m2@p", "m3@p", "m4@p"]
    assert list(Rejection.objects.values_list("message_id", flat=True)) == ["m5@p"]
    assert partner.inbound.last_sequence == 4


def test_an_acknowledgement_goes_to_the_address_of_the_agreement_and_nowhere_else() -> None:
    """Where a message says that answers should go is its sender's word: it is never posted to."""
    partner = partner_side(make_agreement(partner_uri="https://msh.partner.example/ebxml"))
    evil = edited(partner.message(1), ("<ErrorURI>https://msh.partner", "<ErrorURI>https://evil"))
    partner.send(evil)
    partner.send(edited(partner.message(7), ("<ErrorURI>https://msh.partner", "<ErrorURI>https://evil")))
    with link() as wire:
        work()
    assert {parcel.address for parcel in wire.parcels} == {"https://msh.partner.example/ebxml"}
    assert len(wire.parcels) == 2


def test_a_sequence_that_was_set_by_hand_is_taken_from_there() -> None:
    partner = partner_side()
    pair = partner.inbound
    operating.pair_expect_sequence(pair_id=pair.pk, expected=500, actor=Actor("ann"), reason="state was lost")
    assert partner.send(partner.message(500)) == 204
    assert (partner.inbound.last_sequence, Message.objects.count()) == (500, 1)


def test_another_message_under_a_number_that_is_taken_is_refused_aloud() -> None:
    partner = partner_side()
    for number in (1, 2):
        partner.send(partner.message(number))
    partner.send(partner.message(2, "other@p"))
    assert Rejection.objects.get().reason == "Inconsistent"
    assert Incident.objects.get().cause == "sequence_taken_by_other_message"
    assert [signal.kind for signal in Signal.objects.filter(message_id__startswith="err")] == ["error"]
    assert not Message.objects.filter(message_id="other@p").exists()


def test_numbers_of_a_partner_that_starts_again_at_1() -> None:
    partner = partner_side()
    first = partner.message(1, "old@p")
    for arrival in (first, partner.message(2), partner.message(3)):
        partner.send(arrival)
    assert partner.send(partner.message(1, "new@p")) == 204
    assert partner.inbound.last_sequence == 1
    partner.send(first)  # a stray copy of the old number 1
    assert (Message.objects.count(), partner.inbound.last_message_id) == (4, "new@p")
    assert Message.objects.get(message_id="old@p").copies == 1


def test_best_effort_messages_are_checked_for_repeats_only_where_agreed() -> None:
    loose, strict = partner_side(), partner_side(detect_repeats=True)
    for partner in (loose, strict):
        arrival = partner.message(None, "be@p", semantics=Semantics.BEST_EFFORT)
        assert [partner.send(arrival), partner.send(arrival)] == [204, 204]
    assert Message.objects.filter(pair=loose.inbound).count() == 2
    assert Message.objects.filter(pair=strict.inbound).count() == 1
    assert not Signal.objects.exists()


def test_at_most_once_is_never_taken_twice() -> None:
    partner = partner_side(semantics="AtMostOnce", retries=0)
    arrival = partner.message(None, "amo@p", semantics=Semantics.BEST_EFFORT)
    assert [partner.send(arrival), partner.send(arrival)] == [204, 204]
    assert Message.objects.count() == 1


def test_a_reliable_repeat_of_a_message_that_came_unreliably_is_acknowledged_too() -> None:
    """Every receipt of a reliable message is acknowledged (invariant 5), whatever its first copy said of itself."""
    partner = partner_side(detect_repeats=True)
    partner.send(partner.message(None, "m@p", semantics=Semantics.BEST_EFFORT))
    partner.send(partner.message(1, "m@p"))
    assert Message.objects.count() == 1
    [ack] = acks()
    assert (ack.ref_to_message_id, ack.owed, ack.about_id) == ("m@p", 1, Message.objects.get().pk)
    partner.send(partner.message(1, "m@p"))
    assert len(acks_sent()) == 2


def test_two_partners_may_use_the_same_ids_and_numbers() -> None:
    first, second = partner_side(), partner_side()
    for partner in (first, second):
        partner.send(partner.message(1, "same@x"))
    assert Message.objects.filter(message_id="same@x").count() == 2


def test_a_message_of_a_new_version_of_its_agreement_goes_on_with_the_numbers() -> None:
    partner = partner_side()
    partner.send(partner.message(1))
    agreement = Agreement.objects.get(pk=partner.terms.agreement_id)
    services.version_activate(version=services.version_new(agreement=agreement))
    registry.reset()
    assert partner.send(partner.message(2)) == 204
    assert partner.inbound.last_sequence == 2
    versions = Message.objects.order_by("id").values_list("agreement_version__number", flat=True)
    assert list(versions) == [1, 2]


@pytest.mark.parametrize("uri", ["http://[::1]:8000/ebxml/msh", "http://127.0.0.1:8000/msh", "https://a_b.example/~x"])
def test_our_own_uri_may_have_any_form_of_host(uri: str) -> None:
    """Ids of our acknowledgements are made from it, and must be ones that the writer writes."""
    partner = partner_side(make_agreement(own_uri=uri))
    assert partner.send(partner.message(1)) == 204
    assert partner.send(partner.message(9)) == 204
    with link() as wire:
        work()
    assert {decoded(parcel).message_type for parcel in wire.parcels} == {MessageType.ACKNOWLEDGEMENT, MessageType.ERROR}
    submit(partner)
    with link() as wire:
        work()
    assert decoded(wire.last).defects == ()


def test_an_id_that_another_process_stored_meanwhile_is_looked_up_again() -> None:
    """Between our look and our insert, a message with the same id may be committed on another pair of that partner."""
    partner = partner_side()
    partner.send(partner.message(1, "m@p"))
    look_up, looks = acknowledging.look_up, []

    def blind(normals, batch, profile) -> None:
        looks.append(len(normals))
        if len(looks) > 1:
            look_up(normals, batch, profile)

    with mock.patch.object(acknowledging, "look_up", blind):
        assert partner.send(partner.message(2, "m@p")) == 204
    assert len(looks) == 2
    assert (Message.objects.count(), Message.objects.get().copies) == (1, 1)


def test_an_insert_that_fails_twice_is_not_swallowed() -> None:
    partner = partner_side()
    with mock.patch.object(accepting, "_write", side_effect=IntegrityError("again")):
        assert post(partner.message(1)).status_code == 503


# ---- real threads, real commits ----


def at_once(partner: PartnerSide, arrivals: list[Arrival]) -> list[int]:
    statuses: list[int] = []
    start = threading.Barrier(len(arrivals))

    def run(arrival: Arrival) -> None:
        try:
            start.wait(WAIT)
            statuses.append(partner.send(arrival))
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(arrival,)) for arrival in arrivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    return statuses


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("grouped", [True, False], ids=["in one process", "as in many processes"])
def test_copies_that_come_at_once_are_stored_once_and_each_is_acknowledged(grouped: bool) -> None:
    partner = partner_side()
    arrival = partner.message(1)
    alone = receiving.GroupCommit(accepting.accept, limit=1)
    direct = mock.Mock(submit=lambda item: accepting.accept([item])[0])
    with mock.patch.object(receiving, "_group", alone if grouped else direct):
        assert at_once(partner, [arrival] * 12) == [204] * 12
    message = Message.objects.get()
    assert (message.copies, acks()[0].owed, partner.inbound.duplicates) == (11, 12, 11)
    assert len(acks_sent()) == 12


@pytest.mark.django_db(transaction=True)
def test_the_same_id_on_two_pairs_of_a_partner_at_once_is_stored_once() -> None:
    """Only the unique index stands between two pairs: whoever loses looks again."""
    agreement = make_agreement().agreement
    first = partner_side(make_agreement(own_party=agreement.own_party, partner=agreement.partner))
    second = partner_side(make_agreement(own_party=agreement.own_party, partner=agreement.partner))
    direct = mock.Mock(submit=lambda item: accepting.accept([item])[0])
    for number in range(1, 6):
        arrivals = [p.message(number, f"m{number}@p") for p in (first, second) for _ in range(2)]
        with mock.patch.object(receiving, "_group", direct):
            assert at_once(first, arrivals) == [204] * 4
        assert Message.objects.filter(message_id=f"m{number}@p").count() == 1


@pytest.mark.django_db(transaction=True)
def test_nothing_is_acknowledged_before_the_commit(commit_fails, woken: list[str]) -> None:
    """Invariant 1, at the moment at which it counts: all is written, and the commit fails."""
    partner = partner_side()
    with commit_fails(Message):
        answer = post(partner.message(1, "m@p"))
    assert (answer.status_code, answer.content, answer["Retry-After"]) == (503, b"", str(reading.SOON))
    assert not Message.objects.exists()
    assert not Signal.objects.exists()
    assert not Event.objects.exists()
    assert (partner.inbound.last_sequence, woken) == (0, [])
    with link() as wire:
        assert work() == []
    assert wire.parcels == []
    assert post(partner.message(1, "m@p")).status_code == 204
    assert (len(acks_sent()), Transmission.objects.count()) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_when_it_is_answered_everybody_else_can_see_it() -> None:
    partner = partner_side()
    seen: list[int] = []

    def look() -> None:
        seen.append(Message.objects.count())
        connection.close()

    def wake(task: str) -> None:
        look_from_outside()

    def look_from_outside() -> None:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(WAIT)

    with mock.patch("messaging.dispatch.wake", wake):
        assert post(partner.message(1)).status_code == 204
    look_from_outside()
    assert seen == [1, 1], "already when the worker is woken, and when the partner is answered"


@pytest.mark.django_db(transaction=True)
def test_many_partners_at_once_each_in_their_order() -> None:
    partners = [partner_side() for _ in range(4)]

    def conversation(partner: PartnerSide) -> None:
        try:
            for number in range(1, 11):
                assert partner.send(partner.message(number)) == 204
        finally:
            connection.close()

    threads = [threading.Thread(target=conversation, args=(partner,)) for partner in partners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    for partner in partners:
        stored = Message.objects.filter(pair=partner.inbound).order_by("position")
        assert [(m.position, m.sequence_number) for m in stored] == [(n, n) for n in range(1, 11)]
        assert partner.inbound.done == 10


def test_arrivals_may_be_cut_and_cleaned_for_the_log() -> None:
    partner = partner_side()
    odd = replace(partner.message(1), remote_address="f" * 500)
    odd = edited(odd, ("<MessageId>", "<MessageId>" + "i" * 600))
    assert partner.send(odd) == 204
    rejection = Rejection.objects.get()
    assert (len(rejection.remote_address), len(rejection.message_id)) == (64, 512)


def test_two_parties_of_ours_may_talk_through_one_hub() -> None:
    """Divisions: what the one sends is stored as sent, and must not be taken for known when the other receives it."""
    here, there = make_party(own=True), make_party(own=True)
    here_msh, there_msh = make_endpoint(here), make_endpoint(there)
    sender = partner_side(make_agreement(own_endpoint=here_msh, partner_endpoint=there_msh, tpa_id="tpa:here"))
    receiver = partner_side(make_agreement(own_endpoint=there_msh, partner_endpoint=here_msh, tpa_id="tpa:there"))
    message = submit(sender, message_id="m@here")
    with link() as wire:
        work()
    arrival = Arrival(wire.last.content_type, wire.last.body, receiver.presented)
    assert receiver.send(edited(arrival, ("tpa:here", "tpa:there"))) == 204
    received = Message.objects.get(direction="in")
    assert (received.message_id, received.sequence_number) == ("m@here", 1)
    with link() as wire:
        work()
    ack = Arrival(wire.last.content_type, wire.last.body, sender.presented)
    assert sender.send(edited(ack, ("tpa:there", "tpa:here"))) == 204
    message.refresh_from_db()
    assert message.state == "delivered"
