"""Claiming what is due: once, in order, the same bytes; and nothing that goes wrong with one stalls another."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection, transaction

from messaging import storage
from messaging.engine.claiming import Job, JobKind, claim_due
from messaging.engine.recording import record
from messaging.journal.audit import Actor
from messaging.models import Event, Incident, Message, Pair, Payload, Signal, Transmission
from messaging.pairs.services import operating
from messaging.protocol.codecs.entity_file import name_of
from messaging.protocol.envelope import MessageType
from partners import registry, services
from partners.models import Agreement, Credential
from rmhub.clock import FrozenClock, frozen
from tests.messaging.factories import REFUSED, TAKEN, PartnerSide, decoded, link, partner_side, submit, work
from tests.partners.factories import make_agreement, make_outbound_credential

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = Actor("ann")
WAIT = 120.0
LEASE = 10 + 30 + 15  # connect and read timeout of an endpoint, and what is allowed beside them


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    with frozen(AT) as clock:
        yield clock


def claimed_pairs(limit: int = 64) -> list[Job]:
    return [job for job in claim_due(limit=limit) if job.kind is JobKind.PAIR]


def disable(partner: PartnerSide) -> Agreement:
    agreement = Agreement.objects.get(pk=partner.terms.agreement_id)
    services.agreement_disable(agreement=agreement)
    registry.reset()
    return agreement


def test_a_claim_prepares_the_message_once_and_for_all(time: FrozenClock) -> None:
    partner = partner_side()
    make_outbound_credential(Agreement.objects.get().partner, username="hub", secret="secret")
    message = submit(partner, b"<Order n='1'/>")
    [job] = claim_due(limit=10)
    message.refresh_from_db()
    assert (message.state, message.sequence_number, message.attempts, message.first_sent_at) == ("sending", 1, 1, AT)
    assert message.digest == hashlib.sha256(job.parcel.body).hexdigest()
    assert (job.transport, job.parcel.address) == ("http", partner.terms.partner_address)
    assert job.parcel.name == name_of("message", message.message_id), "what its file is called, whatever carries it"
    assert job.parcel.content_type == message.content_type
    assert job.parcel.authorization.startswith("Basic ")
    assert (job.parcel.connect_timeout, job.parcel.read_timeout) == (10, 30)
    envelope = decoded(job.parcel)
    assert (envelope.defects, envelope.message_id, envelope.hop.sequence_number) == ((), message.message_id, 1)
    pair = partner.outbound
    assert (pair.flow, pair.in_flight_id, pair.transmission_id) == ("sending", message.pk, job.transmission_id)
    assert (pair.queued, pair.last_sequence, pair.due_at) == (0, 1, AT + timedelta(seconds=LEASE))
    transmission = Transmission.objects.get()
    assert (transmission.pk, transmission.number, transmission.outcome) == (job.transmission_id, 1, "on_the_wire")
    assert (transmission.address, transmission.started_at) == (partner.terms.partner_address, AT)


def test_one_message_of_a_pair_is_in_flight_and_the_next_waits() -> None:
    """Invariant 2."""
    partner, other = partner_side(), partner_side()
    first, second = submit(partner), submit(partner)
    elsewhere = submit(other)
    assert {job.message_id for job in claim_due(limit=10)} == {first.pk, elsewhere.pk}
    assert claim_due(limit=10) == []
    second.refresh_from_db()
    assert (second.state, second.sequence_number) == ("queued", None)


def test_a_limit_leaves_the_rest_for_the_next_claim() -> None:
    partners = [partner_side() for _ in range(3)]
    for partner in partners:
        submit(partner)
    assert [len(claim_due(limit=2)) for _ in range(3)] == [2, 1, 0]


def test_every_repeat_sends_exactly_the_same_bytes(time: FrozenClock) -> None:
    """Invariant 3, through every way in which a message goes out again."""
    partner = partner_side(timeout=30, retries=2, retry_interval=10, transport_retries=1, transport_retry_interval=5)
    message = submit(partner, bytes(range(256)))
    sent: list[bytes] = []
    with link() as wire:
        work()
        wire.answer = REFUSED
        for seconds in (30, 5, 10, 10, 5):
            time.move(seconds)
            work()
        wire.answer = TAKEN
        while partner.outbound.flow != "suspended":
            time.move(100)
            work()
        operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason="try again")
        work()
        partner.send(partner.error(wire.last, "TransientError", min_retry_secs=7))
        time.move(7)
        work()
        sent += [parcel.body for parcel in wire.parcels]
    assert len(sent) >= 6
    assert len(set(sent)) == 1
    message.refresh_from_db()
    assert message.digest == hashlib.sha256(sent[0]).hexdigest()
    assert list(Transmission.objects.values_list("number", flat=True)) == list(range(1, len(sent) + 1))
    assert Event.objects.filter(type="message.retrying").count() == len(sent) - 1


def test_a_new_version_of_the_agreement_changes_nothing_of_what_is_in_flight(time: FrozenClock) -> None:
    partner = partner_side(make_agreement(write_namespace=True, timeout=30))
    message = submit(partner)
    with link() as wire:
        work()
        version = services.version_new(agreement=Agreement.objects.get())
        services.version_activate(version=services.version_edit(version=version, write_namespace=False))
        registry.reset()
        time.move(30)
        work()
    assert len({parcel.body for parcel in wire.parcels}) == 1
    partner.send(partner.acknowledgement(wire.last))
    message.refresh_from_db()
    assert message.state == "delivered"


def test_the_end_of_a_lease_sends_the_same_bytes_again_and_calls_the_old_attempt_lost(time: FrozenClock) -> None:
    partner = partner_side()
    message = submit(partner)
    [dead] = claim_due(limit=10)
    time.move(LEASE - 1)
    assert claim_due(limit=10) == []
    time.move(1)
    again = claimed_pairs() + claimed_pairs()
    [job] = again
    assert job.parcel.body == dead.parcel.body
    assert job.transmission_id != dead.transmission_id
    first, second = Transmission.objects.order_by("id")
    assert (first.outcome, first.cause, second.outcome) == ("lost", "worker_lost", "on_the_wire")
    message.refresh_from_db()
    assert (message.attempts, message.digest) == (2, hashlib.sha256(job.parcel.body).hexdigest())
    pair = partner.outbound
    assert (pair.flow, pair.retries, pair.transport_attempts) == ("sending", 0, 1)
    assert record([(job, TAKEN)]) == [True]


def test_an_outcome_that_comes_after_its_lease_moves_nothing(time: FrozenClock) -> None:
    partner = partner_side()
    message = submit(partner)
    [stale] = claim_due(limit=10)
    time.move(LEASE)
    [job] = claimed_pairs() + claimed_pairs()
    before = Pair.objects.filter(pk=partner.outbound.pk).values().get()
    assert [record([(stale, receipt)]) for receipt in (TAKEN, REFUSED)] == [[False], [False]]
    assert Pair.objects.filter(pk=partner.outbound.pk).values().get() == before
    message.refresh_from_db()
    assert message.state == "sending"
    assert Transmission.objects.get(pk=stale.transmission_id).outcome == "failed", "what became of it is noted"
    assert Transmission.objects.get(pk=job.transmission_id).outcome == "on_the_wire"
    assert record([(job, TAKEN)]) == [True]


def test_workers_that_keep_dying_use_up_the_retries_and_then_a_person_is_told(time: FrozenClock) -> None:
    partner = partner_side(timeout=30, retries=1, retry_interval=10, transport_retries=1)
    submit(partner)
    for _ in range(20):
        claim_due(limit=10)
        time.move(LEASE)
    pair = partner.outbound
    assert (pair.flow, pair.cause) == ("suspended", "worker_lost")
    assert Incident.objects.get().cause == "worker_lost"
    assert Transmission.objects.exclude(outcome="lost").count() == 0


# ---- what cannot be sent ----


@pytest.fixture
def in_files(settings) -> Path:
    settings.RMHUB_INLINE_PAYLOAD_BYTES = 0
    return settings.RMHUB_STORE_DIR


def poison(store: Path, message: Message, how: str) -> None:
    path = store / Payload.objects.get(message=message).stored_as
    if how == "missing":
        path.unlink()
    elif how == "unreadable":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(b"something else")


@pytest.mark.parametrize("how", ["missing", "unreadable", "damaged"])
def test_a_payload_that_is_gone_suspends_its_pair_and_no_other(in_files: Path, how: str) -> None:
    poisoned, healthy = partner_side(), partner_side()
    message, other = submit(poisoned, b"<a/>"), submit(healthy, b"<b/>")
    poison(in_files, message, how)
    assert [job.message_id for job in claim_due(limit=10)] == [other.pk]
    pair = poisoned.outbound
    assert (pair.flow, pair.cause, pair.queued, pair.in_flight_id) == ("suspended", "payload_missing", 1, None)
    assert Payload.objects.get(message=message).stored_as in pair.cause_detail
    assert (pair.last_sequence, pair.due_at) == (0, None), "no number is used up"
    incident = Incident.objects.get()
    assert (incident.cause, incident.pair_id, incident.message_id) == ("payload_missing", pair.pk, message.pk)
    message.refresh_from_db()
    assert (message.state, message.sequence_number, message.attempts) == ("queued", None, 0)
    assert claim_due(limit=10) == []


def test_while_the_folder_of_the_store_cannot_be_read_nothing_is_given_up(in_files: Path) -> None:
    partner = partner_side()
    message = submit(partner, b"<a/>")
    in_files.rename(in_files.with_suffix(".away"))
    in_files.write_text("in its place")
    with pytest.raises(storage.StoreUnavailable):
        claim_due(limit=10)
    in_files.unlink()
    in_files.with_suffix(".away").rename(in_files)
    assert [job.message_id for job in claim_due(limit=10)] == [message.pk]


def test_when_the_store_is_mended_the_message_goes_out_as_number_1(in_files: Path) -> None:
    partner = partner_side()
    message = submit(partner, b"<a/>")
    path = in_files / Payload.objects.get().stored_as
    path.rename(path.with_suffix(".away"))
    claim_due(limit=10)
    path.with_suffix(".away").rename(path)
    operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason="restored the folder")
    [job] = claim_due(limit=10)
    assert (job.message_id, decoded(job.parcel).hop.sequence_number) == (message.pk, 1)


def test_or_a_person_cancels_it_and_the_next_goes_out_as_number_1(in_files: Path) -> None:
    partner = partner_side()
    message, following = submit(partner, b"<a/>"), submit(partner, b"<b/>")
    poison(in_files, message, "missing")
    claim_due(limit=10)
    operating.message_cancel(message_id=message.pk, actor=ANN, reason="file is lost")
    operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason="cancelled it")
    [job] = claim_due(limit=10)
    assert (job.message_id, decoded(job.parcel).hop.sequence_number) == (following.pk, 1)


def test_a_payload_that_is_gone_before_a_repeat_suspends_with_the_message_in_flight(
    in_files: Path, time: FrozenClock
) -> None:
    partner = partner_side(timeout=30)
    message = submit(partner, b"<a/>")
    with link():
        work()
    poison(in_files, message, "damaged")
    time.move(30)
    assert claim_due(limit=10) == []
    pair = partner.outbound
    assert (pair.flow, pair.cause, pair.in_flight_id) == ("suspended", "payload_missing", message.pk)
    message.refresh_from_db()
    assert (message.state, message.cause) == ("failed", "payload_missing")


def test_a_message_that_has_no_wire_form_suspends_its_pair_and_no_other() -> None:
    """Submission refuses such; a row of an older version may still be there."""
    poisoned, healthy = partner_side(), partner_side()
    message, other = submit(poisoned), submit(healthy)
    Message.objects.filter(pk=message.pk).update(conversation_id="two\nlines")
    assert [job.message_id for job in claim_due(limit=10)] == [other.pk]
    pair = poisoned.outbound
    assert (pair.flow, pair.cause) == ("suspended", "payload_invalid")
    assert "two" in pair.cause_detail
    assert Incident.objects.get().message_id == message.pk


def test_a_frame_that_does_not_fit_its_payloads_suspends_its_pair_and_no_other(time: FrozenClock) -> None:
    """A row that a bad restore has torn apart: the octets cannot be put together, which is no reason to stand still."""
    poisoned, healthy = partner_side(timeout=30), partner_side(timeout=30)
    message, other = submit(poisoned), submit(healthy)
    with link():
        work()
    Payload.objects.filter(message=message).delete()
    time.move(30)
    assert [job.message_id for job in claim_due(limit=10)] == [other.pk]
    pair = poisoned.outbound
    assert (pair.flow, pair.cause) == ("suspended", "payload_missing")


def test_octets_that_are_not_those_that_were_sent_are_not_sent(time: FrozenClock) -> None:
    """A retransmission that differs is worse than none (invariant 3)."""
    partner = partner_side(timeout=30)
    message = submit(partner, b"<a/>")
    with link():
        work()
    Payload.objects.filter(message=message).update(content=b"<b/>")
    time.move(30)
    assert claim_due(limit=10) == []
    assert partner.outbound.cause == "payload_missing"


def test_a_credential_that_cannot_be_read_holds_up_nobody() -> None:
    partner = partner_side()
    make_outbound_credential(Agreement.objects.get().partner)
    Credential.objects.filter(direction="outbound").update(secret_encrypted=b"rubbish")
    registry.reset()
    submit(partner)
    [job] = claim_due(limit=10)
    assert job.parcel.authorization == ""


def test_an_agreement_that_is_disabled_stops_its_pair_before_the_next_message(time: FrozenClock) -> None:
    partner, healthy = partner_side(), partner_side()
    message, other = submit(partner), submit(healthy)
    agreement = disable(partner)
    assert [job.message_id for job in claim_due(limit=10)] == [other.pk]
    pair = partner.outbound
    assert (pair.flow, pair.cause, pair.queued) == ("suspended", "agreement_disabled", 1)
    assert (Incident.objects.get().cause, Incident.objects.get().message_id) == ("agreement_disabled", message.pk)
    message.refresh_from_db()
    assert message.state == "queued"
    services.agreement_enable(agreement=agreement)
    registry.reset()
    operating.pair_resume(pair_id=pair.pk, actor=ANN, reason="enabled again")
    [job] = claim_due(limit=10)
    assert (job.message_id, decoded(job.parcel).hop.sequence_number) == (message.pk, 1)


def test_a_queue_that_is_shorter_than_its_count_sends_nothing_and_mends_the_count() -> None:
    partner = partner_side()
    message = submit(partner)
    Message.objects.filter(pk=message.pk).update(state="cancelled")
    assert claim_due(limit=10) == []
    assert (partner.outbound.queued, partner.outbound.due_at, partner.outbound.flow) == (0, None, "idle")


# ---- unreliable messages ----


@pytest.mark.parametrize("semantics", ["BestEffort", "AtMostOnce"])
def test_an_unreliable_message_goes_out_once_without_a_number(semantics: str, time: FrozenClock) -> None:
    partner = partner_side()
    message = submit(partner, semantics=semantics)
    with link() as wire:
        work()
        time.move(100_000)
        work()
    assert len(wire.parcels) == 1
    envelope = decoded(wire.last)
    assert (envelope.semantics, envelope.hop.sequence_number, envelope.defects) == ("BestEffort", None, ())
    message.refresh_from_db()
    assert (message.state, message.due_at, message.completed_at) == ("sent", None, AT)
    assert partner.outbound.flow == "idle"
    assert Event.objects.filter(type="message.sent").count() == 1


@pytest.mark.parametrize(("semantics", "told"), [("AtMostOnce", 1), ("BestEffort", 0)])
def test_when_it_fails_it_has_failed_and_only_at_most_once_is_told(
    semantics: str, told: int, time: FrozenClock
) -> None:
    """Spec 1, 3.1.2: the sending party can detect it; 3.1.3: it can not."""
    partner = partner_side()
    message = submit(partner, semantics=semantics)
    with link(REFUSED) as wire:
        work()
        time.move(100_000)
        work()
    assert len(wire.parcels) == 1
    message.refresh_from_db()
    assert (message.state, message.cause, message.due_at) == ("failed", "connect_refused", None)
    assert Event.objects.filter(type="message.failed").count() == told
    assert not Incident.objects.exists()


@pytest.mark.parametrize(("semantics", "told"), [("AtMostOnce", 1), ("BestEffort", 0)])
def test_when_its_worker_dies_it_has_failed_for_nobody_knows(semantics: str, told: int, time: FrozenClock) -> None:
    partner = partner_side()
    message = submit(partner, semantics=semantics)
    [job] = claim_due(limit=10)
    assert job.kind is JobKind.UNRELIABLE
    time.move(LEASE)
    assert claim_due(limit=10) == []
    message.refresh_from_db()
    assert (message.state, message.cause) == ("failed", "worker_lost")
    assert Transmission.objects.get().outcome == "lost"
    assert Event.objects.filter(type="message.failed").count() == told
    assert record([(job, TAKEN)]) == [False], "an outcome that comes after all is noted at its transmission"
    message.refresh_from_db()
    assert (message.state, Transmission.objects.get().outcome) == ("failed", "sent")


def test_an_unreliable_message_does_not_wait_for_the_reliable_one_in_flight() -> None:
    partner = partner_side()
    reliable, plain = submit(partner), submit(partner, semantics="BestEffort")
    assert {job.message_id for job in claim_due(limit=10)} == {reliable.pk, plain.pk}


def test_an_unreliable_message_goes_out_on_a_suspended_pair_too() -> None:
    """Suspension is about the reliable message in flight (spec 1, 2.1.4.3)."""
    partner = partner_side()
    submit(partner)
    Pair.objects.filter(pk=partner.outbound.pk).update(flow="suspended", due_at=None, cause="ack_timeout")
    plain = submit(partner, semantics="BestEffort")
    assert [job.message_id for job in claim_due(limit=10)] == [plain.pk]


@pytest.mark.parametrize("how", ["missing", "invalid"])
def test_an_unreliable_message_that_cannot_be_sent_fails_alone_and_somebody_is_told(in_files: Path, how: str) -> None:
    """Not the network lost it but we: that is no best effort."""
    partner = partner_side()
    message, other = submit(partner, b"<a/>", semantics="BestEffort"), submit(partner, b"<b/>", semantics="BestEffort")
    if how == "missing":
        poison(in_files, message, "missing")
    else:
        Message.objects.filter(pk=message.pk).update(conversation_id="two\nlines")
    assert [job.message_id for job in claim_due(limit=10)] == [other.pk]
    message.refresh_from_db()
    assert (message.state, message.cause) == ("failed", f"payload_{how}")
    assert Event.objects.get(type="message.failed").message_id == message.pk
    assert not Transmission.objects.filter(message=message).exists()


def test_an_unreliable_message_of_a_disabled_agreement_is_not_sent() -> None:
    partner = partner_side()
    message = submit(partner, semantics="BestEffort")
    disable(partner)
    assert claim_due(limit=10) == []
    message.refresh_from_db()
    assert (message.state, message.cause) == ("failed", "agreement_disabled")
    assert Event.objects.filter(type="message.failed").count() == 1


# ---- acknowledgements and error messages of ours ----


def test_an_acknowledgement_that_cannot_be_sent_is_tried_again_and_then_left_to_the_partner(time: FrozenClock) -> None:
    partner = partner_side(transport_retry_interval=10)
    arrival = partner.message(1)
    partner.send(arrival)
    with link(REFUSED) as wire:
        for _ in range(10):
            work()
            time.move(10)
    assert len(wire.parcels) == 3
    signal = Signal.objects.get()
    assert (signal.state, signal.due_at, signal.owed, signal.note) == ("failed", None, 0, "Connection refused.")
    partner.send(arrival)
    with link() as wire:
        work()
    assert len(wire.parcels) == 1
    signal.refresh_from_db()
    assert (signal.state, signal.sends) == ("sent", 1)


def test_the_end_of_a_lease_sends_an_acknowledgement_again(time: FrozenClock) -> None:
    partner = partner_side()
    partner.send(partner.message(1))
    [dead] = claim_due(limit=10)
    assert dead.kind is JobKind.SIGNAL
    time.move(LEASE - 1)
    assert claim_due(limit=10) == []
    time.move(1)
    [job] = claim_due(limit=10)
    assert job.parcel.body == dead.parcel.body
    first, second = Transmission.objects.order_by("id")
    assert (first.outcome, first.cause, second.outcome) == ("lost", "worker_lost", "on_the_wire")
    assert record([(dead, TAKEN)]) == [False], "a stale outcome moves nothing"
    assert Signal.objects.get().state == "sending"
    assert record([(job, TAKEN)]) == [True]
    assert (Signal.objects.get().state, Signal.objects.get().sends) == ("sent", 1)


def test_a_pause_holds_messages_and_not_answers() -> None:
    """The partner waits for them, and its own messages are none of ours to hold."""
    partner = partner_side()
    submit(partner)
    operating.pair_pause(pair_id=partner.outbound.pk, actor=ANN, reason="their request")
    partner.send(partner.message(1))
    with link() as wire:
        work()
    assert [decoded(parcel).message_type for parcel in wire.parcels] == [MessageType.ACKNOWLEDGEMENT]


# ---- real threads, real commits ----


@pytest.mark.django_db(transaction=True)
def test_workers_that_claim_at_once_claim_each_transmission_once() -> None:
    partners = [partner_side() for _ in range(12)]
    for partner in partners:
        submit(partner)
        submit(partner)
        submit(partner, semantics="BestEffort")
        partner.send(partner.message(1))
    jobs: list[Job] = []
    start = threading.Barrier(6)

    def run() -> None:
        try:
            start.wait(WAIT)
            for _ in range(6):
                jobs.extend(claim_due(limit=3))
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    jobs += claim_due(limit=64)
    assert len(jobs) == len({job.transmission_id for job in jobs}) == 36
    assert len({job.pair_id for job in jobs if job.kind is JobKind.PAIR}) == 12
    assert len({job.signal_id for job in jobs if job.signal_id}) == 12
    assert set(Transmission.objects.values_list("id", flat=True)) == {job.transmission_id for job in jobs}


@pytest.mark.django_db(transaction=True)
def test_a_pair_that_somebody_holds_is_passed_over_and_not_waited_for() -> None:
    held, free = partner_side(), partner_side()
    submit(held)
    message = submit(free)
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Pair.objects.select_for_update().get(pk=held.outbound.pk)
                holding.set()
                done.wait(WAIT)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(WAIT)
    assert [job.message_id for job in claim_due(limit=10)] == [message.pk]
    done.set()
    thread.join(WAIT)
    assert len(claim_due(limit=10)) == 1
