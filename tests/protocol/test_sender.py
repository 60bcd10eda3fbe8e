"""The sender of one pair: the cases E21 to E27 on the pure machine, with a clock that the test sets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.pair_state import Act, Event, Flow, Gate, Kind, PairState, SenderPolicy
from messaging.protocol.sender import next_sequence, step

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
POLICY = SenderPolicy(
    timeout=30, retries=3, retry_interval=10, transport_retries=2, transport_retry_interval=4, lease=60
)
TRANSMITS = {Act.PREPARE_NEXT, Act.TRANSMIT}


@dataclass
class Sender:
    """A pair, a clock in seconds, and what went out: (second, message, number)."""

    policy: SenderPolicy = POLICY
    state: PairState = field(default_factory=PairState)
    seconds: float = 0
    sent: list[tuple[float, str, int]] = field(default_factory=list)
    messages: int = 0

    def __call__(self, kind: Kind, **event: object) -> tuple[Act, ...]:
        """One event, now. Numbered messages are m1, m2 ..."""
        now = START + timedelta(seconds=self.seconds)
        result = step(self.state, Event(kind, **event), now, self.policy)
        self.state = result.state
        if Act.PREPARE_NEXT in result.acts:
            self.messages += 1
            self.state = replace(self.state, in_flight=f"m{self.messages}")
        if TRANSMITS & set(result.acts):
            self.sent.append((self.seconds, self.state.in_flight, self.state.last_sequence))
        return result.acts

    @property
    def due(self) -> float | None:
        """When the pair is due, in seconds."""
        return None if self.state.due_at is None else (self.state.due_at - START).total_seconds()

    def pass_to_due(self) -> tuple[Act, ...]:
        """Time passes until the pair is due, and the timer goes off."""
        assert self.due is not None
        self.seconds = max(self.seconds, self.due)
        return self(Kind.DUE)

    def hand_over(self) -> None:
        """Sends what is due, and the transport takes it."""
        assert TRANSMITS & set(self.pass_to_due())
        self(Kind.SENT)


def sender(queued: int = 1, **policy: object) -> Sender:
    """A pair with messages in its queue."""
    made = Sender(replace(POLICY, **policy))
    for _ in range(queued):
        made(Kind.QUEUED)
    return made


def in_flight(queued: int = 0, **policy: object) -> Sender:
    """A pair with its first message handed over and `queued` behind it."""
    made = sender(1 + queued, **policy)
    made.hand_over()
    return made


def suspended(queued: int = 0, **policy: object) -> Sender:
    """A pair that gave up waiting for its first message's acknowledgement."""
    made = in_flight(queued, **policy)
    while made.state.flow is not Flow.SUSPENDED:
        if TRANSMITS & set(made.pass_to_due()):
            made(Kind.SENT)
    return made


# --- one message ---


def test_a_message_is_numbered_when_it_is_first_prepared() -> None:
    pair = sender()
    assert pair.due == 0
    assert pair(Kind.DUE) == (Act.PREPARE_NEXT,)
    assert pair.state == PairState(
        flow=Flow.SENDING, in_flight="m1", last_sequence=1, due_at=START + timedelta(seconds=60)
    )
    pair(Kind.SENT)
    assert (pair.state.flow, pair.due) == (Flow.AWAITING_ACK, 30)
    assert pair(Kind.ACKNOWLEDGED) == (Act.COMPLETE,)
    assert pair.state == PairState(last_sequence=1)


def test_numbers_run_on_and_start_again_after_999_999_999() -> None:
    assert [next_sequence(last) for last in (0, 1, 998, MAX_SEQUENCE_NUMBER - 1, MAX_SEQUENCE_NUMBER)] == [
        1,
        2,
        999,
        MAX_SEQUENCE_NUMBER,
        1,
    ]
    pair = sender(3)
    pair.state = replace(pair.state, last_sequence=MAX_SEQUENCE_NUMBER - 1)
    for _ in range(3):
        pair.hand_over()
        pair(Kind.ACKNOWLEDGED)
    assert [number for _, _, number in pair.sent] == [MAX_SEQUENCE_NUMBER, 1, 2]


def test_only_an_idle_pair_is_woken_by_a_submission() -> None:
    pair = Sender()
    assert pair(Kind.QUEUED) == (Act.WAKE,)
    assert pair(Kind.QUEUED) == ()
    pair.hand_over()
    assert pair(Kind.QUEUED) == ()
    assert pair.state.queued == 2


def test_a_timer_with_an_empty_queue_does_nothing() -> None:
    pair = sender()
    pair.state = replace(pair.state, queued=0)  # the message was cancelled meanwhile
    assert pair(Kind.DUE) == ()
    assert pair.state == PairState()


# --- E21 to E27 ---


def test_e21_one_send_three_retries_then_suspended() -> None:
    pair = suspended()
    assert pair.sent == [(0, "m1", 1), (30, "m1", 1), (40, "m1", 1), (50, "m1", 1)]
    assert pair.seconds == 60
    assert (pair.state.flow, pair.state.cause, pair.due) == (Flow.SUSPENDED, "ack_timeout", None)


def test_e21_giving_up_is_reported() -> None:
    pair = in_flight(retries=0)
    assert pair.pass_to_due() == (Act.GIVE_UP,)
    assert (pair.seconds, len(pair.sent)) == (30, 1)


def test_e22_resumed_with_the_counter_at_zero_and_the_same_message() -> None:
    pair = suspended(queued=2)
    pair.seconds = 1000
    assert pair(Kind.RESUME) == (Act.WAKE,)
    assert (pair.state.flow, pair.state.retries, pair.due, pair.state.cause) == (Flow.RESEND_WAIT, 0, 1000, "")
    pair.sent.clear()
    assert pair(Kind.DUE) == (Act.TRANSMIT,), "stored octets, not newly prepared ones"
    pair(Kind.SENT)
    assert pair.due == 1030, "Timeout again, as after a first send"
    while pair.state.flow is not Flow.SUSPENDED:
        if TRANSMITS & set(pair.pass_to_due()):
            pair(Kind.SENT)
    assert pair.sent == [(1000, "m1", 1), (1030, "m1", 1), (1040, "m1", 1), (1050, "m1", 1)]
    assert pair.state.queued == 2


def test_e23_the_next_waits_for_the_acknowledgement() -> None:
    pair = in_flight()
    pair(Kind.QUEUED)
    pair.pass_to_due()
    assert {message for _, message, _ in pair.sent} == {"m1"}
    assert pair(Kind.ACKNOWLEDGED) == (Act.COMPLETE, Act.WAKE)
    assert pair.due == pair.seconds
    pair.hand_over()
    assert pair.sent[-1][1:] == ("m2", 2)


def test_e24_an_acknowledgement_when_nothing_is_in_flight_is_discarded() -> None:
    pair = in_flight()
    pair(Kind.ACKNOWLEDGED)
    before = pair.state
    assert pair(Kind.ACKNOWLEDGED) == ()
    assert pair.state == before


def test_e25_a_transient_error_holds_the_pair_for_min_retry_secs() -> None:
    pair = in_flight(queued=1)
    pair.seconds = 5
    assert pair(Kind.TRANSIENT_ERROR, min_retry_secs=120) == ()
    assert (pair.state.flow, pair.due, pair.state.cause) == (Flow.HOLDING, 125, "transient_error")
    assert pair.pass_to_due() == (Act.TRANSMIT,)
    assert pair.sent[-1] == (125, "m1", 1)
    assert pair.state.retries == 0, "the pause does not use up Retries"


def test_e26_a_transient_error_without_a_time_holds_for_retry_interval() -> None:
    pair = in_flight()
    pair(Kind.TRANSIENT_ERROR)
    assert pair.due == 10


def test_e26_zero_seconds_are_a_time() -> None:
    pair = in_flight()
    pair(Kind.TRANSIENT_ERROR, min_retry_secs=0)
    assert pair.due == 0


def test_e27_a_sender_that_forgot_its_numbers_starts_at_1() -> None:
    pair = sender(2)
    pair.hand_over()
    pair(Kind.ACKNOWLEDGED)
    assert pair(Kind.RESTART) == (Act.WAKE,)
    pair.hand_over()
    assert pair.sent[-1][1:] == ("m2", 1)


# --- transport recovery (2.5.4) ---


def test_transport_recovery_comes_first_and_leaves_retries_alone() -> None:
    pair = sender()
    attempts = []
    for _ in range(3):
        pair.pass_to_due()
        pair(Kind.TRANSPORT_FAILED, cause="connect_refused")
        attempts.append((pair.state.flow, pair.state.transport_attempts, pair.state.retries, pair.due))
    assert attempts == [
        (Flow.RESEND_WAIT, 1, 0, 4),
        (Flow.RESEND_WAIT, 2, 0, 8),
        (Flow.AWAITING_ACK, 0, 0, 18),  # now it counts as a send without an answer
    ]
    pair.pass_to_due()
    assert (pair.state.flow, pair.state.retries) == (Flow.SENDING, 1)


def test_a_dead_partner_is_tried_so_often_and_no_more() -> None:
    pair = sender()
    while pair.state.flow is not Flow.SUSPENDED:
        if TRANSMITS & set(pair.pass_to_due()):
            pair(Kind.TRANSPORT_FAILED, cause="connect_refused")
    assert [second for second, _, _ in pair.sent] == [0, 4, 8, 18, 22, 26, 36, 40, 44, 54, 58, 62]
    assert (pair.seconds, pair.state.cause) == (72, "connect_refused")
    assert len(pair.sent) == (1 + POLICY.retries) * (1 + POLICY.transport_retries)


def test_each_send_has_a_transport_recovery_of_its_own() -> None:
    pair = sender()
    pair.pass_to_due()
    pair(Kind.TRANSPORT_FAILED)
    pair.hand_over()
    assert pair.state.transport_attempts == 0


def test_the_cause_of_giving_up_is_what_was_wrong_last() -> None:
    """A partner that could not be reached once, and then takes every copy and never answers, has no network problem."""
    pair = sender()
    pair.pass_to_due()
    pair(Kind.TRANSPORT_FAILED, cause="connect_refused")
    while pair.state.flow is not Flow.SUSPENDED:
        if TRANSMITS & set(pair.pass_to_due()):
            pair(Kind.SENT)
    assert pair.state.cause == "ack_timeout"


def test_a_worker_that_died_is_replaced_at_once() -> None:
    pair = sender()
    pair(Kind.DUE)
    assert pair.pass_to_due() == (Act.WAKE,)
    assert (pair.seconds, pair.due) == (60, 60)
    assert (pair.state.flow, pair.state.transport_attempts, pair.state.cause) == (Flow.RESEND_WAIT, 1, "worker_lost")
    assert pair(Kind.DUE) == (Act.TRANSMIT,), "the number was given, so the octets are stored"


def test_workers_that_die_again_and_again_use_up_transport_recovery() -> None:
    pair = sender()
    pair.pass_to_due()
    for _ in range(POLICY.transport_retries):
        pair.pass_to_due()  # the lease
        pair.pass_to_due()  # the resend
    assert pair.pass_to_due() == ()
    assert (pair.state.flow, pair.due) == (Flow.AWAITING_ACK, pair.seconds + 10)


# --- answers ---


@pytest.mark.parametrize("kind", [Kind.SENT, Kind.TRANSPORT_FAILED])
def test_an_answer_may_overtake_the_record_of_our_own_attempt(kind: Kind) -> None:
    pair = sender()
    pair(Kind.DUE)
    assert pair(Kind.ACKNOWLEDGED) == (Act.COMPLETE,)
    before = pair.state
    assert pair(kind) == ()
    assert pair.state == before


def test_an_error_stops_the_retries_and_suspends() -> None:
    pair = in_flight(queued=1)
    assert pair(Kind.ERROR, cause="ebms_error_invalid_sequence_number") == (Act.GIVE_UP,)
    assert pair.state.cause == "ebms_error_invalid_sequence_number"
    assert (pair.state.flow, pair.state.in_flight, pair.due) == (Flow.SUSPENDED, "m1", None)


def test_transient_errors_are_obeyed_as_often_as_they_come_and_reported_once_it_takes_too_long() -> None:
    pair = in_flight(transient_ceiling=300)
    acts = []
    for _ in range(4):
        acts.append(pair(Kind.TRANSIENT_ERROR, min_retry_secs=100))
        pair.pass_to_due()
        pair(Kind.SENT)
    assert acts == [(), (), (), (Act.ALERT,)]
    assert (pair.state.flow, pair.state.retries) == (Flow.AWAITING_ACK, 0)


def test_a_pause_that_lasts_longer_than_the_ceiling_is_reported_at_once() -> None:
    """A partner that asks for a year would otherwise hold the pair for a year, and nobody would know."""
    pair = in_flight(transient_ceiling=300)
    assert pair(Kind.TRANSIENT_ERROR, min_retry_secs=999_999_999) == (Act.ALERT,)
    assert pair.state.flow is Flow.HOLDING


def test_transport_recovery_starts_anew_after_a_pause() -> None:
    pair = sender()
    pair.pass_to_due()
    pair(Kind.TRANSPORT_FAILED)
    pair(Kind.TRANSIENT_ERROR)
    pair.pass_to_due()
    assert pair.state.transport_attempts == 0


def test_a_late_acknowledgement_completes_the_message_and_leaves_the_pair_to_a_person() -> None:
    pair = suspended(queued=1)
    assert pair(Kind.ACKNOWLEDGED) == (Act.COMPLETE,)
    assert (pair.state.flow, pair.state.in_flight, pair.due) == (Flow.SUSPENDED, "", None)
    assert pair(Kind.ACKNOWLEDGED) == ()
    assert pair(Kind.RESUME) == (Act.WAKE,)
    pair.hand_over()
    assert pair.sent[-1][1:] == ("m2", 2)


# --- people ---


@pytest.mark.parametrize("stop", [in_flight, suspended])
def test_after_a_skip_the_sequence_starts_at_1(stop) -> None:
    """Invariant 9: nobody can know whether the skipped number was taken (2.2.2 c)."""
    pair = stop(queued=1)
    assert pair(Kind.SKIP) == (Act.DROP, Act.WAKE)
    assert (pair.state.flow, pair.state.in_flight, pair.state.retries, pair.state.queued) == (Flow.IDLE, "", 0, 1)
    pair.hand_over()
    assert pair.sent[-1][1:] == ("m2", 1)


def test_a_restart_sends_the_refused_message_again_as_number_1() -> None:
    pair = in_flight(queued=1)
    pair(Kind.ERROR, cause="ebms_error_invalid_sequence_number")
    assert pair(Kind.RESTART) == (Act.REQUEUE, Act.WAKE)
    assert (pair.state.queued, pair.state.in_flight, pair.state.last_sequence) == (2, "", 0)
    assert pair.pass_to_due() == (Act.PREPARE_NEXT,), "a new number is in new octets"
    assert pair.sent[-1][2] == 1


def test_retry_now_uses_a_retry_early() -> None:
    pair = in_flight()
    pair.seconds = 5
    assert pair(Kind.RETRY_NOW) == (Act.WAKE,)
    assert (pair.state.flow, pair.state.retries, pair.due) == (Flow.RESEND_WAIT, 1, 5)
    assert pair(Kind.DUE) == (Act.TRANSMIT,)
    pair(Kind.SENT)
    assert pair.due == 15, "RetryInterval, as after any retry"


def test_retry_now_does_not_stretch_the_budget() -> None:
    pair = in_flight(retries=1)
    pair(Kind.RETRY_NOW)
    pair.hand_over()
    before = pair.state
    with pytest.raises(IllegalTransition, match="All retries are used"):
        pair(Kind.RETRY_NOW)
    assert pair.state == before


def test_there_is_nothing_to_skip_once_a_late_acknowledgement_came() -> None:
    pair = suspended()
    pair(Kind.ACKNOWLEDGED)
    before = pair.state
    with pytest.raises(IllegalTransition, match="nothing to skip"):
        pair(Kind.SKIP)
    assert pair.state == before


@pytest.mark.parametrize("gate", [Gate.PAUSED, Gate.DISABLED])
@pytest.mark.parametrize("stop", [sender, in_flight])
def test_behind_a_closed_gate_timers_send_nothing_and_answers_are_taken(stop, gate: Gate) -> None:
    pair = stop()
    pair.state = replace(pair.state, gate=gate)
    before = pair.state
    assert pair.pass_to_due() == ()
    assert pair.state == before
    if before.in_flight:
        assert pair(Kind.ACKNOWLEDGED) == (Act.COMPLETE,)
    pair(Kind.QUEUED)
    pair.state = replace(pair.state, gate=Gate.OPEN)
    assert pair.pass_to_due() == (Act.PREPARE_NEXT,)
