"""The sender of one pair: spec 1, sections 2.1.3, 2.1.4, 2.5.4 and 4.2.

`step(state, event, now, policy)` is a pure function; `TABLE` is every move that exists.
One reliable message at a time is with the receiver (2.1.3); the next waits in the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.pair_state import Act, Event, Flow, Gate, Kind, PairState, SenderPolicy, Step

Apply = Callable[[PairState, Event, datetime, SenderPolicy], Step]


@dataclass(frozen=True, slots=True)
class Move:
    """One cell of the table: how it is done and where it may lead (for tests and diagrams)."""

    apply: Apply
    targets: frozenset[Flow] = field(default_factory=frozenset)
    source: str = ""


def next_sequence(last: int) -> int:
    """The number after `last`: 1 first, 1 again after 999,999,999 (spec 1, 2.2.2 a and b)."""
    return 1 if last >= MAX_SEQUENCE_NUMBER else last + 1


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def _stay(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    return Step(state)


def _queue(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """A message was submitted. Only an idle pair has something to do about it at once."""
    queued = replace(state, queued=state.queued + 1)
    if state.flow is Flow.IDLE and state.due_at is None:
        return Step(replace(queued, due_at=now), (Act.WAKE,))
    return Step(queued)


def _idle(state: PairState, now: datetime) -> PairState:
    """Nothing in flight; the next message is due at once."""
    return replace(
        state,
        flow=Flow.IDLE,
        in_flight="",
        retries=0,
        transport_attempts=0,
        holding_since=None,
        cause="",
        due_at=now if state.queued else None,
    )


def _start_next(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """2.1.3 (1), (2): number the head of the queue and send it. The caller puts its key in `in_flight`."""
    if not state.queued:
        return Step(replace(state, due_at=None))
    started = replace(
        state,
        flow=Flow.SENDING,
        queued=state.queued - 1,
        last_sequence=next_sequence(state.last_sequence),
        due_at=now + _seconds(policy.lease),
    )
    return Step(started, (Act.PREPARE_NEXT,))


def _transmit(state: PairState, now: datetime, policy: SenderPolicy) -> Step:
    return Step(replace(state, flow=Flow.SENDING, due_at=now + _seconds(policy.lease)), (Act.TRANSMIT,))


def _resend(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """Transport recovery, a pause that the receiver asked for, or a resume is over: same bytes again."""
    if state.flow is Flow.HOLDING:
        state = replace(state, transport_attempts=0)
    return _transmit(state, now, policy)


def _handed_over(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """Table 2-1: Timeout runs after the first send, RetryInterval after each retry (ruling C11)."""
    wait = policy.timeout if state.retries == 0 else policy.retry_interval
    # What went wrong before this send is over. If anything is wrong from here on, it is that no answer comes.
    cause = "ack_timeout" if state.cause else ""
    return Step(replace(state, flow=Flow.AWAITING_ACK, transport_attempts=0, due_at=now + _seconds(wait), cause=cause))


def _transport_failed(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """2.5.4: transport recovery first, with a counter of its own; then it counts as a send without an answer.

    Of a probe nothing is recovered, unless it is our own worker that died.
    """
    if policy.probe and not event.at_once:
        return _suspend(state, event, now, policy)
    if policy.recovers(state.transport_attempts):
        wait = 0 if event.at_once else policy.transport_retry_interval
        waiting = replace(
            state,
            flow=Flow.RESEND_WAIT,
            transport_attempts=state.transport_attempts + 1,
            due_at=now + _seconds(wait),
            cause=event.cause,
        )
        return Step(waiting, (Act.WAKE,) if event.at_once else ())
    unanswered = replace(
        state,
        flow=Flow.AWAITING_ACK,
        transport_attempts=0,
        due_at=now + _seconds(policy.retry_interval),
        cause=event.cause,
    )
    return Step(unanswered)


def _lease_ran_out(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """The worker died between claim and record: the bytes may have gone out or not. Same bytes, again."""
    lost = Event(Kind.TRANSPORT_FAILED, cause=event.cause or "worker_lost", at_once=True)
    return _transport_failed(state, lost, now, policy)


def _came_back(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """A mail that was handed over bounced. The mail system's own recovery is over, so it is a send without an answer.

    A Timeout that is longer than the RetryInterval is not waited for (2.5.4). The retry that follows is one of Retries.
    """
    retry_at = now if policy.probe else now + _seconds(policy.retry_interval)
    due_at = min(state.due_at, retry_at) if state.due_at else retry_at
    return Step(replace(state, due_at=due_at, cause=event.cause or state.cause))


def _no_answer(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """2.1.4.2 and 2.1.4.3: retry while Retries last, then suspend and report."""
    if state.retries < policy.retries:
        return _transmit(replace(state, retries=state.retries + 1), now, policy)
    return _suspend(replace(state, cause=state.cause or "ack_timeout"), Event(Kind.SUSPEND), now, policy)


def _retry_now(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """A person uses the next retry early; the budget is not reset."""
    if state.flow is Flow.AWAITING_ACK:
        if state.retries >= policy.retries:
            raise IllegalTransition(
                state.flow,
                event.kind,
                "All retries are used; the pair suspends when this wait is over. Resume gives it a new budget.",
            )
        state = replace(state, retries=state.retries + 1)
    return Step(replace(state, flow=Flow.RESEND_WAIT, due_at=now), (Act.WAKE,))


def _acknowledged(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """2.1.3 (5): complete; the next may go."""
    idle = _idle(state, now)
    return Step(idle, (Act.COMPLETE, Act.WAKE) if idle.due_at else (Act.COMPLETE,))


def _late_acknowledgement(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """The receiver has it after all. The incident stays a person's to close, so the pair stays suspended."""
    if not state.in_flight:
        return Step(state)
    return Step(replace(state, in_flight="", retries=0, transport_attempts=0), (Act.COMPLETE,))


def _suspend(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """2.1.4.3: stop sending to this receiver and report. What is submitted meanwhile waits."""
    stopped = replace(
        state, flow=Flow.SUSPENDED, due_at=None, holding_since=None, cause=event.cause or state.cause or "suspended"
    )
    return Step(stopped, (Act.GIVE_UP,))


def _hold(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """4.2: pause for MinRetrySecs, else RetryInterval; as often as the receiver says; Retries untouched."""
    wait = policy.retry_interval if event.min_retry_secs is None else event.min_retry_secs
    since = state.holding_since or now
    until = now + _seconds(wait)
    over_ceiling = until - since > _seconds(policy.transient_ceiling)
    held = replace(state, flow=Flow.HOLDING, due_at=until, holding_since=since, cause=event.cause or "transient_error")
    return Step(held, (Act.ALERT,) if over_ceiling else ())


def _resume(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """2.1.4.3, last paragraph: retry counter to zero, restart from the uncompleted message."""
    if not state.in_flight:
        return Step(_idle(state, now), (Act.WAKE,))
    resumed = replace(state, flow=Flow.RESEND_WAIT, retries=0, transport_attempts=0, due_at=now, cause="")
    return Step(resumed, (Act.WAKE,))


def _skip(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """Nobody knows whether the skipped number was taken, so the sequence restarts at 1 (2.2.2 c; invariant 9)."""
    if not state.in_flight:
        raise IllegalTransition(state.flow, event.kind, "No message is in flight, so there is nothing to skip.")
    idle = replace(_idle(state, now), last_sequence=0)
    return Step(idle, (Act.DROP, Act.WAKE))


def _restart(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """A person's answer to InvalidSequenceNumber: forget the numbers, send the same MessageId as number 1 (2.2.2 c)."""
    if not state.in_flight:
        return Step(replace(_idle(state, now), last_sequence=0), (Act.WAKE,))
    idle = replace(_idle(replace(state, queued=state.queued + 1), now), last_sequence=0)
    return Step(idle, (Act.REQUEUE, Act.WAKE))


def _forgotten(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """The sender lost its memory: numbers that it does not know may be taken, so the sequence restarts at 1 (2.2.2 c).

    What is in flight keeps its number, under which the receiver has it or nothing, and is asked about at once: how
    often it was sent since, and what was answered, is forgotten too. A person's decision and a pause stay.
    """
    restarted = replace(state, last_sequence=0)
    if state.flow in (Flow.IDLE, Flow.HOLDING, Flow.SUSPENDED):
        return Step(restarted)
    again = replace(restarted, flow=Flow.RESEND_WAIT, retries=0, transport_attempts=0, due_at=now)
    return Step(again, (Act.RESEND, Act.WAKE))


_F, _K = Flow, Kind


def _to(apply: Apply, *targets: Flow, source: str = "") -> Move:
    return Move(apply, frozenset(targets), source)


_SUSPEND = _to(_suspend, _F.SUSPENDED, source="2.1.4.3")
_ERROR = _to(_suspend, _F.SUSPENDED, source="2.1.4.2")
_ACK = _to(_acknowledged, _F.IDLE, source="2.1.3 (5)")
_HOLD = _to(_hold, _F.HOLDING, source="4.2")
_SKIP = _to(_skip, _F.IDLE, source="2.2.2 c")
_RETRY_NOW = _to(_retry_now, _F.RESEND_WAIT)
_FORGET_AND_ASK = _to(_forgotten, _F.RESEND_WAIT, source="2.2.2 c")


def _keep(flow: Flow, source: str = "") -> Move:
    return Move(_stay, frozenset({flow}), source)


# Every state has a row and every row says what each event does; an event that is not in a row is refused.
TABLE: Mapping[Flow, Mapping[Kind, Move]] = {
    _F.IDLE: {
        _K.QUEUED: _to(_queue, _F.IDLE),
        _K.DUE: _to(_start_next, _F.IDLE, _F.SENDING, source="2.1.3 (1)"),
        # Answers to nothing: repeats, or those of a message that is done (5.1 (10)).
        _K.SENT: _keep(_F.IDLE),
        _K.TRANSPORT_FAILED: _keep(_F.IDLE),
        _K.ACKNOWLEDGED: _keep(_F.IDLE, "5.1 (10)"),
        _K.ERROR: _keep(_F.IDLE),
        _K.TRANSIENT_ERROR: _keep(_F.IDLE),
        _K.RESTART: _to(_restart, _F.IDLE, source="2.2.2 c"),
        _K.SUSPEND: _SUSPEND,
        _K.FORGOTTEN: _to(_forgotten, _F.IDLE, source="2.2.2 c"),
    },
    _F.SENDING: {
        _K.QUEUED: _to(_queue, _F.SENDING),
        _K.DUE: _to(_lease_ran_out, _F.RESEND_WAIT, _F.AWAITING_ACK, source="2.5.4"),
        _K.SENT: _to(_handed_over, _F.AWAITING_ACK, source="table 2-1"),
        _K.TRANSPORT_FAILED: _to(_transport_failed, _F.RESEND_WAIT, _F.AWAITING_ACK, _F.SUSPENDED, source="2.5.4"),
        # An answer may overtake the record of our own attempt.
        _K.ACKNOWLEDGED: _ACK,
        _K.ERROR: _ERROR,
        _K.TRANSIENT_ERROR: _HOLD,
        _K.SUSPEND: _SUSPEND,
        _K.FORGOTTEN: _FORGET_AND_ASK,
    },
    _F.AWAITING_ACK: {
        _K.QUEUED: _to(_queue, _F.AWAITING_ACK),
        _K.DUE: _to(_no_answer, _F.SENDING, _F.SUSPENDED, source="2.1.4.2, 2.1.4.3"),
        _K.SENT: _keep(_F.AWAITING_ACK),
        _K.TRANSPORT_FAILED: _to(_came_back, _F.AWAITING_ACK, source="2.5.4"),
        _K.ACKNOWLEDGED: _ACK,
        _K.ERROR: _ERROR,
        _K.TRANSIENT_ERROR: _HOLD,
        _K.RETRY_NOW: _RETRY_NOW,
        _K.SKIP: _SKIP,
        _K.SUSPEND: _SUSPEND,
        _K.FORGOTTEN: _FORGET_AND_ASK,
    },
    _F.RESEND_WAIT: {
        _K.QUEUED: _to(_queue, _F.RESEND_WAIT),
        _K.DUE: _to(_resend, _F.SENDING, source="2.5.4"),
        _K.SENT: _keep(_F.RESEND_WAIT),
        _K.TRANSPORT_FAILED: _keep(_F.RESEND_WAIT),
        _K.ACKNOWLEDGED: _ACK,
        _K.ERROR: _ERROR,
        _K.TRANSIENT_ERROR: _HOLD,
        _K.RETRY_NOW: _RETRY_NOW,
        _K.SKIP: _SKIP,
        _K.SUSPEND: _SUSPEND,
        _K.FORGOTTEN: _FORGET_AND_ASK,
    },
    _F.HOLDING: {
        _K.QUEUED: _to(_queue, _F.HOLDING),
        _K.DUE: _to(_resend, _F.SENDING, source="4.2"),
        _K.SENT: _keep(_F.HOLDING),
        _K.TRANSPORT_FAILED: _keep(_F.HOLDING),
        _K.ACKNOWLEDGED: _ACK,
        _K.ERROR: _ERROR,
        _K.TRANSIENT_ERROR: _HOLD,
        _K.RETRY_NOW: _RETRY_NOW,
        _K.SKIP: _SKIP,
        _K.SUSPEND: _SUSPEND,
        _K.FORGOTTEN: _to(_forgotten, _F.HOLDING, source="2.2.2 c"),
    },
    _F.SUSPENDED: {
        _K.QUEUED: _to(_queue, _F.SUSPENDED),
        _K.DUE: _keep(_F.SUSPENDED),
        _K.SENT: _keep(_F.SUSPENDED),
        _K.TRANSPORT_FAILED: _keep(_F.SUSPENDED),
        _K.ACKNOWLEDGED: _to(_late_acknowledgement, _F.SUSPENDED),
        _K.ERROR: _keep(_F.SUSPENDED),
        _K.TRANSIENT_ERROR: _keep(_F.SUSPENDED),
        _K.RESUME: _to(_resume, _F.RESEND_WAIT, _F.IDLE, source="2.1.4.3"),
        _K.SKIP: _SKIP,
        _K.RESTART: _to(_restart, _F.IDLE, source="2.2.2 c"),
        _K.FORGOTTEN: _to(_forgotten, _F.SUSPENDED, source="2.2.2 c"),
    },
}

# Why the cells that are missing above are refused, in words for a person.
REFUSALS: Mapping[tuple[Flow, Kind], str] = {
    (_F.IDLE, _K.RESUME): "The pair is not suspended.",
    (_F.IDLE, _K.RETRY_NOW): "No message is in flight.",
    (_F.IDLE, _K.SKIP): "No message is in flight.",
    (_F.SENDING, _K.RESUME): "The pair is not suspended.",
    (_F.SENDING, _K.RETRY_NOW): "An attempt is on the wire; wait for its outcome.",
    (_F.SENDING, _K.SKIP): "An attempt is on the wire; wait for its outcome.",
    (_F.SENDING, _K.RESTART): "An attempt is on the wire; wait for its outcome.",
    (_F.AWAITING_ACK, _K.RESUME): "The pair is not suspended.",
    (_F.AWAITING_ACK, _K.RESTART): "A message is with the receiver; wait for its answer, or until the pair gives up.",
    (_F.RESEND_WAIT, _K.RESUME): "The pair is not suspended.",
    (_F.RESEND_WAIT, _K.RESTART): "A message is with the receiver; wait for its answer, or until the pair gives up.",
    (_F.HOLDING, _K.RESUME): "The pair is not suspended.",
    (_F.HOLDING, _K.RESTART): "A message is with the receiver; wait for its answer, or until the pair gives up.",
    (_F.SUSPENDED, _K.RETRY_NOW): "The pair is suspended; resume it.",
    (_F.SUSPENDED, _K.SUSPEND): "The pair is suspended already.",
}

FINAL: frozenset[Flow] = frozenset({Flow.IDLE})


def step(state: PairState, event: Event, now: datetime, policy: SenderPolicy) -> Step:
    """The pair after `event`.

    Raises IllegalTransition, with the state unchanged, for a move that is not in `TABLE`
    (verbs of people only: whatever the wire or a timer brings has a cell in every row).
    """
    move = TABLE[state.flow].get(event.kind)
    if move is None:
        raise IllegalTransition(state.flow, event.kind, REFUSALS[(state.flow, event.kind)])
    if event.kind is Kind.DUE and state.gate is not Gate.OPEN:
        return Step(state)  # what is due waits until the gate opens
    return move.apply(state, event, now, policy)


def allowed(flow: Flow) -> frozenset[Kind]:
    """Events that have a cell in this state's row."""
    return frozenset(TABLE[flow])
