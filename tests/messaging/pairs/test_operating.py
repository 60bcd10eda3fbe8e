"""What people do to pairs and messages: each verb where it is allowed, with a reason, and in the audit log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from messaging.choices import Interface
from messaging.engine.claiming import claim_due
from messaging.exceptions import ApplicationError, InvalidSubmission, NotFound, Stale, UnderWay, WrongState
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Event, Incident, Message, Pair
from messaging.pairs.services import operating
from messaging.transports import Parcel
from partners import registry, services
from partners.models import Agreement
from rmhub.clock import FrozenClock, frozen
from rmhub.ids import uuid7
from tests.messaging.factories import REFUSED, TAKEN, PartnerSide, decoded, link, partner_side, submit, work

pytestmark = pytest.mark.django_db

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
ANN = Actor("ann", Interface.CONSOLE, "192.0.2.9", "req-1")
WHY = "their server was down"
WAIT = 120.0


@pytest.fixture(autouse=True)
def time() -> Iterator[FrozenClock]:
    with frozen(AT) as clock:
        yield clock


@pytest.fixture
def partner() -> PartnerSide:
    return partner_side(timeout=30, retries=1, retry_interval=10, transport_retries=1, transport_retry_interval=5)


def sent(partner: PartnerSide, **fields: object) -> Message:
    """A message that waits for its answer."""
    message = submit(partner, **fields)
    with link():
        work()
    return message


def suspended(partner: PartnerSide, time: FrozenClock) -> Message:
    message = sent(partner)
    with link():
        while partner.outbound.flow != "suspended":
            time.move(30)
            work()
    return message


def refused_number(partner: PartnerSide) -> Message:
    """Three messages were taken; of the fourth the partner says that its number is wrong: it has lost its state."""
    for _ in range(3):
        sent_and_taken(partner)
    message = submit(partner)
    with link() as wire:
        work()
    partner.send(partner.error(wire.last, "InvalidSequenceNumber"))
    assert partner.outbound.flow == "suspended"
    return message


def sent_and_taken(partner: PartnerSide) -> None:
    submit(partner)
    with link() as wire:
        work()
    partner.send(partner.acknowledgement(wire.last))


def transmitted() -> list[Parcel]:
    with link() as wire:
        work()
    return wire.parcels


def number_of(parcel: Parcel) -> int | None:
    return decoded(parcel).hop.sequence_number


def audited(verb: str) -> AuditEntry:
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.actor, entry.interface, entry.address, entry.request_id, entry.reason, entry.at) == (
        verb, "ann", "console", "192.0.2.9", "req-1", WHY, entry.at,
    )  # fmt: skip
    return entry


# ---- resume ----


def test_resume_sends_the_uncompleted_message_again_with_a_new_budget(
    partner: PartnerSide, time: FrozenClock, woken: list[str], django_capture_on_commit_callbacks
) -> None:
    message = suspended(partner, time)
    submit(partner)
    version = partner.outbound.version
    with django_capture_on_commit_callbacks(execute=True):
        pair = operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    assert woken == ["messaging.send_due"]
    assert pair.version > version
    stored = partner.outbound
    assert (stored.flow, stored.retries, stored.cause, stored.cause_detail) == ("resend_wait", 0, "", "")
    message.refresh_from_db()
    assert message.state == "retrying"
    [parcel] = transmitted()
    assert (decoded(parcel).message_id, number_of(parcel)) == (message.message_id, 1)
    assert Incident.objects.get().state == "resolved"
    assert Incident.objects.get().resolution == WHY
    assert Event.objects.filter(type="pair.resumed").count() == 1
    entry = audited("pair.resume")
    assert (entry.before["flow"], entry.after["flow"]) == ("suspended", "resend_wait")
    assert (entry.before["cause"], entry.after["cause"]) == ("ack_timeout", "")
    assert (entry.before["retries"], entry.after["retries"]) == (1, 0)
    assert entry.before["in_flight"] == entry.after["in_flight"] == message.public_id


def test_after_a_resume_the_whole_schedule_runs_once_more(partner: PartnerSide, time: FrozenClock) -> None:
    suspended(partner, time)
    operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    sends = 0
    with link() as wire:
        while partner.outbound.flow != "suspended":
            work()
            time.move(30)
        sends = len(wire.parcels)
    assert sends == 2
    assert Incident.objects.filter(state="open").count() == 1


# ---- retry now ----


def test_retry_now_uses_the_next_attempt_early(partner: PartnerSide) -> None:
    message = sent(partner)
    operating.pair_retry_now(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    assert (partner.outbound.retries, partner.outbound.due_at) == (1, AT)
    [parcel] = transmitted()
    message.refresh_from_db()
    assert (decoded(parcel).message_id, message.attempts, message.state) == (message.message_id, 2, "awaiting_ack")
    entry = audited("pair.retry_now")
    assert (entry.before["flow"], entry.after["flow"]) == ("awaiting_ack", "resend_wait")
    with pytest.raises(WrongState, match="All retries are used"):
        operating.pair_retry_now(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)


def test_retry_now_ends_a_pause_that_the_partner_asked_for(partner: PartnerSide) -> None:
    submit(partner)
    with link() as wire:
        work()
    partner.send(partner.error(wire.last, "TransientError", min_retry_secs=86_400))
    operating.pair_retry_now(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    assert len(transmitted()) == 1
    assert partner.outbound.retries == 0


def test_retry_now_after_a_transport_failure_keeps_its_cause(partner: PartnerSide) -> None:
    submit(partner)
    with link(REFUSED):
        work()
    operating.pair_retry_now(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    assert (partner.outbound.cause, partner.outbound.due_at) == ("connect_refused", AT)


# ---- skip ----


def test_skip_goes_on_with_the_next_as_number_1_and_the_receiver_takes_it(
    partner: PartnerSide, time: FrozenClock
) -> None:
    """Invariant 9: nobody knows whether the skipped number was taken, so the sequence restarts."""
    for _ in range(3):
        sent_and_taken(partner)
    message = suspended(partner, time)
    following = submit(partner)
    operating.pair_skip_head(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    message.refresh_from_db()
    assert (message.state, message.completed_at) == ("skipped", time.move(0))
    [parcel] = transmitted()
    assert (decoded(parcel).message_id, number_of(parcel)) == (following.message_id, 1)
    assert Incident.objects.get().state == "resolved"
    assert {"message.skipped", "pair.resumed"} <= set(Event.objects.values_list("type", flat=True))
    entry = audited("pair.skip_head")
    assert entry.before["message"] == entry.before["in_flight"] == message.public_id
    assert (entry.before["last_sequence"], entry.after["last_sequence"], entry.after["in_flight"]) == (4, 0, None)

    # The other hub, whichever number it took last, takes number 1 as new.
    for taken in (3, 4):
        other = partner_side()
        for number in range(1, taken + 1):
            other.send(other.message(number))
        other.send(other.message(1, "after the skip@p"))
        assert Message.objects.filter(message_id="after the skip@p", pair=other.inbound).exists()
        assert other.inbound.last_sequence == 1


def test_a_late_acknowledgement_of_a_skipped_message_moves_nothing(partner: PartnerSide) -> None:
    submit(partner)
    with link() as wire:
        work()
    following = submit(partner)
    operating.pair_skip_head(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    partner.send(partner.acknowledgement(wire.last))
    following.refresh_from_db()
    assert (following.state, partner.outbound.flow) == ("queued", "idle")
    assert number_of(transmitted()[0]) == 1


# ---- restart of the sequence ----


def test_restart_sends_the_refused_message_as_number_1(partner: PartnerSide) -> None:
    message, following = refused_number(partner), submit(partner)
    old_digest = Message.objects.get(pk=message.pk).digest
    operating.pair_restart_sequence(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    message.refresh_from_db()
    assert (message.state, message.sequence_number, message.wire_frame, message.digest) == ("queued", None, None, "")
    assert partner.outbound.queued == 2
    [parcel] = transmitted()
    assert (decoded(parcel).message_id, number_of(parcel)) == (message.message_id, 1)
    message.refresh_from_db()
    assert message.digest != old_digest
    partner.send(partner.acknowledgement(parcel))
    [parcel] = transmitted()
    assert (decoded(parcel).message_id, number_of(parcel)) == (following.message_id, 2)
    assert Incident.objects.get().state == "resolved"
    entry = audited("pair.restart_sequence")
    assert (entry.before["last_sequence"], entry.after["last_sequence"]) == (4, 0)


def test_restart_of_an_idle_pair_numbers_the_next_message_1(partner: PartnerSide) -> None:
    for _ in range(2):
        sent_and_taken(partner)
    operating.pair_restart_sequence(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    submit(partner)
    assert [number_of(parcel) for parcel in transmitted()] == [1]


# ---- pause and release ----


def test_a_pause_holds_both_kinds_and_a_release_sends_them(
    partner: PartnerSide, time: FrozenClock, woken: list[str], django_capture_on_commit_callbacks
) -> None:
    pair = operating.pair_pause(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    assert pair.gate == "paused"
    reliable, plain = submit(partner), submit(partner, semantics="BestEffort")
    for _ in range(3):
        assert transmitted() == []
        time.move(1)
    with django_capture_on_commit_callbacks(execute=True):
        operating.pair_release(pair_id=pair.pk, actor=ANN, reason=WHY)
    assert woken == ["messaging.send_due"]
    assert {decoded(parcel).message_id for parcel in transmitted()} == {reliable.message_id, plain.message_id}
    assert set(Event.objects.values_list("type", flat=True)) >= {"pair.paused", "pair.released"}
    paused, released = AuditEntry.objects.order_by("id")
    assert (paused.verb, paused.before["gate"], paused.after["gate"]) == ("pair.pause", "open", "paused")
    assert (released.verb, released.before["gate"], released.after["gate"]) == ("pair.release", "paused", "open")


def test_a_pause_holds_retries_and_timeouts_too(partner: PartnerSide, time: FrozenClock) -> None:
    message = sent(partner)
    operating.pair_pause(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    time.move(10_000)
    assert transmitted() == []
    assert partner.outbound.flow == "awaiting_ack", "nobody gives up while it is held"
    operating.pair_release(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    [parcel] = transmitted()
    assert decoded(parcel).message_id == message.message_id


def test_a_suspended_pair_may_be_paused_and_resumed_and_sends_only_when_it_is_released(
    partner: PartnerSide, time: FrozenClock
) -> None:
    suspended(partner, time)
    operating.pair_pause(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    assert transmitted() == []
    operating.pair_release(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    assert len(transmitted()) == 1


# ---- expected number of an inbound pair ----


def test_expect_sets_the_number_that_is_taken_next(partner: PartnerSide) -> None:
    partner.send(partner.message(1))
    partner.send(partner.message(41))
    assert Incident.objects.get().cause == "out_of_sequence"
    operating.pair_expect_sequence(pair_id=partner.inbound.pk, expected=41, actor=ANN, reason=WHY)
    assert Incident.objects.get().state == "resolved"
    partner.send(partner.message(41, "m41@p"))
    assert (partner.inbound.last_sequence, partner.inbound.last_message_id) == (41, "m41@p")
    entry = audited("pair.expect_sequence")
    assert (entry.before["last_sequence"], entry.after["last_sequence"]) == (1, 40)


@pytest.mark.parametrize("expected", [0, -1, 1_000_000_000])
def test_expect_takes_numbers_that_exist(partner: PartnerSide, expected: int) -> None:
    with pytest.raises(InvalidSubmission, match="expected"):
        operating.pair_expect_sequence(pair_id=partner.inbound.pk, expected=expected, actor=ANN, reason=WHY)


def test_expect_the_last_number_and_the_first(partner: PartnerSide) -> None:
    operating.pair_expect_sequence(pair_id=partner.inbound.pk, expected=999_999_999, actor=ANN, reason=WHY)
    partner.send(partner.message(999_999_999))
    partner.send(partner.message(1))
    assert (partner.inbound.last_sequence, Message.objects.count()) == (1, 2)
    operating.pair_expect_sequence(pair_id=partner.inbound.pk, expected=1, actor=ANN, reason=WHY)
    assert partner.inbound.last_sequence == 0


# ---- cancel ----


def test_cancel_takes_a_waiting_message_out_of_the_queue_and_leaves_no_gap(partner: PartnerSide) -> None:
    sent_and_taken(partner)
    first, second, third = (submit(partner) for _ in range(3))
    operating.message_cancel(message_id=second.pk, actor=ANN, reason=WHY)
    second.refresh_from_db()
    assert (second.state, second.completed_at, partner.outbound.queued) == ("cancelled", AT, 2)
    entry = audited("message.cancel")
    assert (entry.object_type, entry.object_id) == ("message", second.public_id)
    assert (entry.before["state"], entry.after["state"]) == ("queued", "cancelled")
    assert Event.objects.get(type="message.cancelled").message_id == second.pk
    numbers = []
    for message in (first, third):
        [parcel] = transmitted()
        assert decoded(parcel).message_id == message.message_id
        numbers.append(number_of(parcel))
        partner.send(partner.acknowledgement(parcel))
    assert numbers == [2, 3]
    assert transmitted() == []


def test_cancel_of_the_only_message_leaves_an_idle_pair(partner: PartnerSide) -> None:
    message = submit(partner)
    operating.message_cancel(message_id=message.pk, actor=ANN, reason=WHY)
    assert transmitted() == []
    assert (partner.outbound.flow, partner.outbound.queued, partner.outbound.due_at) == ("idle", 0, None)
    following = submit(partner)
    [parcel] = transmitted()
    assert (decoded(parcel).message_id, number_of(parcel)) == (following.message_id, 1)


def test_cancel_of_the_message_in_flight_is_a_skip(partner: PartnerSide, time: FrozenClock) -> None:
    sent_and_taken(partner)
    message, following = suspended(partner, time), submit(partner)
    operating.message_cancel(message_id=message.pk, actor=ANN, reason=WHY)
    message.refresh_from_db()
    assert (message.state, message.completed_at) == ("cancelled", time.move(0))
    [parcel] = transmitted()
    assert (decoded(parcel).message_id, number_of(parcel)) == (following.message_id, 1)
    assert Event.objects.filter(type="message.cancelled").count() == 1
    assert audited("message.cancel").before["message"] == message.public_id


def test_cancel_of_one_that_waits_never_becomes_a_skip(partner: PartnerSide, time: FrozenClock) -> None:
    """Whoever saw it wait has not agreed to restart the sequence: nothing is changed, and nothing written down."""
    sent_and_taken(partner)
    message = sent(partner)
    for state in ("awaiting_ack", "failed"):
        if state == "failed":
            with link():
                for _ in range(4):
                    time.move(30)
                    work()
        assert Message.objects.get(pk=message.pk).state == state
        before = Pair.objects.filter(pk=partner.outbound.pk).values().get()
        with pytest.raises(UnderWay, match="the partner may have it") as refused:
            operating.message_cancel(message_id=message.pk, actor=ANN, reason=WHY, only_waiting=True)
        assert refused.value.state == state
        assert Pair.objects.filter(pk=partner.outbound.pk).values().get() == before
        assert Message.objects.get(pk=message.pk).state == state
    assert not AuditEntry.objects.exists() and not Event.objects.filter(type="message.cancelled").exists()
    waiting = submit(partner)
    operating.message_cancel(message_id=waiting.pk, actor=ANN, reason=WHY, only_waiting=True)
    assert Message.objects.get(pk=waiting.pk).state == "cancelled"


def test_what_is_on_the_wire_or_done_is_told_before_that_it_does_not_wait(partner: PartnerSide) -> None:
    on_the_wire = submit(partner)
    claim_due(limit=10)
    with pytest.raises(WrongState, match="on the wire") as refused:
        operating.message_cancel(message_id=on_the_wire.pk, actor=ANN, reason=WHY, only_waiting=True)
    assert not isinstance(refused.value, UnderWay)


def test_cancel_of_what_changed_since_it_was_looked_at(partner: PartnerSide, time: FrozenClock) -> None:
    message = sent(partner)
    seen = partner.outbound.version
    operating.pair_pause(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    with pytest.raises(Stale, match="Look again"):
        operating.message_cancel(message_id=message.pk, actor=ANN, reason=WHY, expected_version=seen)
    operating.message_cancel(message_id=message.pk, actor=ANN, reason=WHY, expected_version=partner.outbound.version)
    assert Message.objects.get(pk=message.pk).state == "cancelled"


def test_cancel_on_the_wire_is_too_late(partner: PartnerSide) -> None:
    message = submit(partner)
    claim_due(limit=10)
    with pytest.raises(WrongState, match="on the wire"):
        operating.message_cancel(message_id=message.pk, actor=ANN, reason=WHY)
    message.refresh_from_db()
    assert (message.state, partner.outbound.flow) == ("sending", "sending")


def test_cancel_of_an_unreliable_message_that_waits(partner: PartnerSide) -> None:
    operating.pair_pause(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    waiting, message = submit(partner), submit(partner, semantics="BestEffort")
    operating.message_cancel(message_id=message.pk, actor=ANN, reason=WHY)
    message.refresh_from_db()
    assert (message.state, message.due_at) == ("cancelled", None)
    operating.pair_release(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    assert [decoded(parcel).message_id for parcel in transmitted()] == [waiting.message_id]


@pytest.mark.parametrize("state", ["delivered", "skipped", "cancelled", "sent", "failed", "sending"])
def test_cancel_of_what_is_done_is_refused_and_changes_nothing(partner: PartnerSide, state: str) -> None:
    """Whatever its semantics: a failed best-effort message is done, and was never in the pair's queue."""
    if state == "delivered":
        sent_and_taken(partner)
    elif state in ("skipped", "cancelled"):
        message = sent(partner)
        if state == "skipped":
            operating.pair_skip_head(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
        else:
            operating.message_cancel(message_id=message.pk, actor=ANN, reason=WHY)
    elif state == "sending":
        submit(partner, semantics="AtMostOnce")
        claim_due(limit=10)
    else:
        submit(partner, semantics="AtMostOnce")
        with link(REFUSED if state == "failed" else TAKEN):
            work()
    message = Message.objects.get()
    assert message.state == state
    waiting = submit(partner)
    AuditEntry.objects.all().delete()
    with pytest.raises(WrongState):
        operating.message_cancel(message_id=message.pk, actor=ANN, reason=WHY)
    message.refresh_from_db()
    assert (message.state, partner.outbound.queued) == (state, 1)
    assert not AuditEntry.objects.exists()
    waiting.refresh_from_db()
    assert waiting.state == "queued"


def test_cancel_of_what_was_received_or_does_not_exist(partner: PartnerSide) -> None:
    partner.send(partner.message(1))
    for message_id in (Message.objects.get().pk, uuid7()):
        with pytest.raises(NotFound, match="no outbound message"):
            operating.message_cancel(message_id=message_id, actor=ANN, reason=WHY)


# ---- what all verbs have in common ----

VERBS = sorted(operating.VERBS)


@pytest.mark.parametrize("reason", ["", "  \t ", "no"])
def test_every_verb_needs_a_reason(partner: PartnerSide, reason: str) -> None:
    before = Pair.objects.filter(pk=partner.outbound.pk).values().get()
    for verb in VERBS:
        with pytest.raises(InvalidSubmission, match="reason"):
            operating.VERBS[verb](pair_id=partner.outbound.pk, actor=ANN, reason=reason)
    assert Pair.objects.filter(pk=partner.outbound.pk).values().get() == before
    assert not AuditEntry.objects.exists()


def test_the_other_verbs_need_one_too(partner: PartnerSide) -> None:
    with pytest.raises(InvalidSubmission, match="reason"):
        operating.pair_expect_sequence(pair_id=partner.inbound.pk, expected=5, actor=ANN, reason="")
    with pytest.raises(InvalidSubmission, match="reason"):
        operating.message_cancel(message_id=submit(partner).pk, actor=ANN, reason="")


def test_who_looked_at_an_older_state_is_told_so(partner: PartnerSide) -> None:
    seen = partner.outbound.version
    operating.pair_pause(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    for verb in VERBS:
        with pytest.raises(Stale) as refused:
            operating.VERBS[verb](pair_id=partner.outbound.pk, actor=ANN, reason=WHY, expected_version=seen)
        assert refused.value.version == partner.outbound.version > seen
    with pytest.raises(Stale):
        operating.pair_expect_sequence(
            pair_id=partner.inbound.pk, expected=2, actor=ANN, reason=WHY, expected_version=seen + 7
        )


def test_the_version_that_was_seen_is_taken(partner: PartnerSide) -> None:
    pair = operating.pair_pause(
        pair_id=partner.outbound.pk, actor=ANN, reason=WHY, expected_version=partner.outbound.version
    )
    assert operating.pair_release(pair_id=pair.pk, actor=ANN, reason=WHY, expected_version=pair.version).gate == "open"


def test_traffic_does_not_make_what_a_person_saw_stale(partner: PartnerSide) -> None:
    seen = partner.outbound.version
    sent_and_taken(partner)
    sent(partner)
    assert partner.outbound.version == seen
    operating.pair_retry_now(pair_id=partner.outbound.pk, actor=ANN, reason=WHY, expected_version=seen)


def test_but_a_suspension_does(partner: PartnerSide, time: FrozenClock) -> None:
    seen = partner.outbound.version
    suspended(partner, time)
    assert partner.outbound.version > seen


def test_a_pair_that_does_not_exist() -> None:
    for verb in VERBS:
        with pytest.raises(NotFound, match="pair_"):
            operating.VERBS[verb](pair_id=uuid7(), actor=ANN, reason=WHY)


def test_an_inbound_pair_is_the_partners_to_drive(partner: PartnerSide) -> None:
    for verb in sorted(set(VERBS) - {"clear-resync", "hand-on"}):  # which inbound ones have
        with pytest.raises(WrongState, match="inbound"):
            operating.VERBS[verb](pair_id=partner.inbound.pk, actor=ANN, reason=WHY)


def test_and_an_outbound_one_expects_no_numbers(partner: PartnerSide) -> None:
    with pytest.raises(WrongState, match="inbound"):
        operating.pair_expect_sequence(pair_id=partner.outbound.pk, expected=5, actor=ANN, reason=WHY)


def state_idle(partner: PartnerSide, time: FrozenClock) -> None:
    assert partner.outbound.flow == "idle"


def state_queued(partner: PartnerSide, time: FrozenClock) -> None:
    submit(partner)


def state_sending(partner: PartnerSide, time: FrozenClock) -> None:
    submit(partner)
    claim_due(limit=10)


def state_awaiting_ack(partner: PartnerSide, time: FrozenClock) -> None:
    sent(partner)


def state_resend_wait(partner: PartnerSide, time: FrozenClock) -> None:
    submit(partner)
    with link(REFUSED):
        work()


def state_holding(partner: PartnerSide, time: FrozenClock) -> None:
    submit(partner)
    with link() as wire:
        work()
    partner.send(partner.error(wire.last, "TransientError", min_retry_secs=60))


def state_suspended(partner: PartnerSide, time: FrozenClock) -> None:
    suspended(partner, time)


def state_suspended_with_nothing_in_flight(partner: PartnerSide, time: FrozenClock) -> None:
    message = submit(partner)
    Message.objects.filter(pk=message.pk).update(conversation_id="two\nlines")
    claim_due(limit=10)
    assert (partner.outbound.flow, partner.outbound.in_flight_id) == ("suspended", None)


def state_paused(partner: PartnerSide, time: FrozenClock) -> None:
    sent(partner)
    operating.pair_pause(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)


STATES: dict[str, tuple[Callable[[PartnerSide, FrozenClock], None], set[str]]] = {
    "idle": (state_idle, {"restart-sequence", "pause"}),
    "queued": (state_queued, {"restart-sequence", "pause"}),
    "sending": (state_sending, {"pause"}),
    "awaiting_ack": (state_awaiting_ack, {"retry-now", "skip-head", "pause"}),
    "resend_wait": (state_resend_wait, {"retry-now", "skip-head", "pause"}),
    "holding": (state_holding, {"retry-now", "skip-head", "pause"}),
    "suspended": (state_suspended, {"resume", "skip-head", "restart-sequence", "pause"}),
    "suspended, none in flight": (state_suspended_with_nothing_in_flight, {"resume", "restart-sequence", "pause"}),
    "paused": (state_paused, {"retry-now", "skip-head", "release"}),
}


@pytest.mark.parametrize("state", STATES)
def test_what_is_offered_is_what_is_allowed(partner: PartnerSide, time: FrozenClock, state: str) -> None:
    """Screens and the API offer `allowed_verbs`: each of them works, every other one is refused and changes nothing."""
    reach, expected = STATES[state]
    reach(partner, time)
    pair = partner.outbound
    assert set(operating.allowed_verbs(pair)) == expected
    before = Pair.objects.filter(pk=pair.pk).values().get()
    AuditEntry.objects.all().delete()
    for verb in set(VERBS) - expected:
        with pytest.raises(WrongState) as refused:
            operating.VERBS[verb](pair_id=pair.pk, actor=ANN, reason=WHY)
        assert str(refused.value)
        assert set(refused.value.allowed) in (expected, set())
    assert Pair.objects.filter(pk=pair.pk).values().get() == before
    assert not AuditEntry.objects.exists()
    for verb in expected:
        undo = transaction.savepoint()
        operating.VERBS[verb](pair_id=pair.pk, actor=ANN, reason=WHY)
        assert AuditEntry.objects.count() == 1
        work_once_more(partner, time)
        transaction.savepoint_rollback(undo)


def work_once_more(partner: PartnerSide, time: FrozenClock) -> None:
    """Whatever a person did, the worker goes on from there without a hitch."""
    with link():
        for _ in range(4):
            work()
            time.move(20)
    time.move(-80)


def test_a_pair_without_an_agreement_in_force_says_why_it_cannot_go_on(partner: PartnerSide) -> None:
    submit(partner)
    agreement = Agreement.objects.get()
    services.agreement_disable(agreement=agreement)
    registry.reset()
    claim_due(limit=10)
    assert partner.outbound.cause == "agreement_disabled"
    with pytest.raises(WrongState) as refused:
        operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    assert refused.value.code == "agreement_missing"
    assert partner.outbound.flow == "suspended"


def test_an_action_that_fails_leaves_nothing_half_done(partner: PartnerSide, time: FrozenClock, monkeypatch) -> None:
    suspended(partner, time)
    before = Pair.objects.filter(pk=partner.outbound.pk).values().get()

    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no audit, no action")

    monkeypatch.setattr("messaging.journal.audit.record", fail)
    with pytest.raises(RuntimeError):
        operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    assert Pair.objects.filter(pk=partner.outbound.pk).values().get() == before
    assert Incident.objects.get().state == "open"


@pytest.mark.django_db(transaction=True)
def test_two_people_at_once_one_acts_and_the_other_hears_of_it(partner: PartnerSide, time: FrozenClock) -> None:
    message = suspended(partner, time)
    seen = partner.outbound
    results: list[object] = []
    start = threading.Barrier(4)

    def run(verb: str) -> None:
        try:
            start.wait(WAIT)
            results.append(operating.VERBS[verb](pair_id=seen.pk, actor=ANN, reason=WHY, expected_version=seen.version))
        except ApplicationError as error:
            results.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(verb,)) for verb in ("resume", "skip-head") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert sorted(type(result).__name__ for result in results) == ["Pair", "Stale", "Stale", "Stale"]
    assert AuditEntry.objects.count() == 1
    message.refresh_from_db()
    assert message.state in ("retrying", "skipped")


def test_when_it_changed_is_when_it_was_suspended_or_held(partner: PartnerSide, time: FrozenClock) -> None:
    suspended(partner, time)
    since = partner.outbound.changed_at
    assert since is not None and since > AT
    time.move(3600)
    submit(partner)
    assert partner.outbound.changed_at == since
    operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
    assert partner.outbound.changed_at == since + timedelta(seconds=3600)
