"""How each event changes the sender of a stream; `outgoing.TABLE` says when (protocols 3.4)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from messaging.protocol.streams.envelope import FIRST_NUMBER, NO_PREVIOUS, first_id, next_id
from messaging.protocol.streams.flight import (
    Act,
    Do,
    Event,
    Flow,
    InFlight,
    Kind,
    Outgoing,
    Place,
    Policy,
    Step,
    expired,
    free_slots,
    next_due,
    number_space_is_used_up,
    resend_at,
    room,
    seconds,
)

SHORTEST_PAUSE = 1.0  # seconds; a receiver that says "now" would be asked without a break

Flight = tuple[InFlight, ...]


def _row(state: Outgoing, number: int) -> InFlight | None:
    """The message on the wire under `number`. None for one that is not (any more): its outcome comes too late."""
    return next((row for row in state.flight if row.number == number and row.place is Place.ON_WIRE), None)


def _put(state: Outgoing, changed: InFlight) -> Flight:
    return tuple(changed if row.number == changed.number else row for row in state.flight)


def _without(state: Outgoing, numbers: Collection[int]) -> Flight:
    return tuple(row for row in state.flight if row.number not in numbers)


def _again(flight: Flight, now: datetime, after: int = 0) -> Flight:
    """All that is not on the wire goes out again, as soon as may be; `after`: only what has a higher number."""
    return tuple(
        row if row.place is Place.ON_WIRE or row.number <= after else replace(row, place=Place.TO_RESEND, due_at=now)
        for row in flight
    )


def _settled(state: Outgoing) -> tuple[Outgoing, tuple[Act, ...]]:
    """What an empty flight leads to: the wait ends, and with an empty queue so does the stream (M27)."""
    if state.flight:
        return state, ()
    state = replace(state, resend_index=0, waiting_since=None, transport_attempts=0, holding_since=None)
    if state.queued or state.next_number == FIRST_NUMBER:
        return state, ()
    return _next_stream(state)


def _next_stream(state: Outgoing) -> tuple[Outgoing, tuple[Act, ...]]:
    following = replace(state, tx_sequence_id=next_id(state.tx_sequence_id), next_number=FIRST_NUMBER, acked=0)
    return following, (Act(Do.NEW_STREAM),)


def _wake(state: Outgoing, now: datetime, policy: Policy) -> tuple[Act, ...]:
    due = next_due(state, now, policy)
    return (Act(Do.WAKE),) if due is not None and due <= now else ()


def _left(state: Outgoing, flight: Flight, do: Do, now: datetime, policy: Policy) -> Step:
    """Messages left the flight, to `flight`, without an acknowledgement."""
    there = {row.number for row in flight}
    acts = tuple(Act(do, row.number) for row in state.flight if row.number not in there)
    after, ending = _settled(replace(state, flight=flight))
    return Step(after, (*ending, *acts, *_wake(after, now, policy)))


def stay(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    return Step(state)


def queue(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    queued = replace(state, queued=state.queued + 1)
    return Step(queued, _wake(queued, now, policy))


def discard(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """M29: what leaves the queue before its first send has used no number."""
    after, ending = _settled(replace(state, queued=max(0, state.queued - event.count)))
    return Step(after, ending)


def due(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """Ends lives that are over, then the wait for an acknowledgement if it is, then sends again what has to be."""
    if not state.open:
        return Step(state)
    if state.flight and state.waiting_since is None:
        state = replace(state, waiting_since=now)
    gone = {row.number for row in state.flight if row.place is not Place.ON_WIRE and expired(row.expires_at, now)}
    acts: tuple[Act, ...] = tuple(Act(Do.EXPIRE, number) for number in sorted(gone))
    if gone:
        state, ending = _settled(replace(state, flight=_without(state, gone)))
        acts = (*ending, *acts)
    timeout = resend_at(state, policy)
    if timeout is not None and timeout <= now:
        if state.resend_index >= policy.retries:
            cause = state.cause or "stream_unacknowledged"
            given_up = suspend(state, Event(kind=Kind.SUSPEND, cause=cause), now, policy)
            return Step(given_up.state, (*acts, *given_up.acts))
        state = replace(_resend_all(state, now), resend_index=state.resend_index + 1)
    state, sending = _transmit(state, now, policy, event.limit)
    return Step(state, (*acts, *sending))


def _resend_all(state: Outgoing, now: datetime) -> Outgoing:
    """Transactional Ack Wait timer ([MS-MQQB] 3.1.6.5): all that is unacknowledged, in order. It waits anew."""
    return replace(state, flight=_again(state.flight, now), waiting_since=now, transport_attempts=0)


def _transmit(state: Outgoing, now: datetime, policy: Policy, limit: int | None) -> tuple[Outgoing, tuple[Act, ...]]:
    """As many of those to be sent again as slots are free, in order, each bridged to the one before it that is there.

    The first that is not due yet holds back those behind it: they would only arrive early.
    """
    slots = free_slots(state, policy)
    slots = slots if limit is None else min(slots, limit)
    flight: list[InFlight] = []
    acts: list[Act] = []
    blocked = False
    previous = NO_PREVIOUS
    for row in state.flight:
        if row.place is Place.TO_RESEND and not blocked:
            blocked = len(acts) >= slots or (row.due_at is not None and row.due_at > now)
            if not blocked:
                row = InFlight(
                    row.number,
                    previous,
                    Place.ON_WIRE,
                    now + seconds(policy.lease),
                    row.expires_at,
                    row.attempts + 1,
                )
                acts.append(Act(Do.TRANSMIT, row.number, previous, request_receipt=True))
        flight.append(row)
        previous = row.number
    return replace(state, flight=tuple(flight)), tuple(acts)


def start(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """First sends: the next numbers, each with the number before it as `previous`, or bridged if that one is gone."""
    if event.count > room(state, policy):
        raise ValueError(f"{event.count} messages cannot be put in flight, only {room(state, policy)}")
    if not event.count:
        return Step(state)
    acts: list[Act] = []
    if number_space_is_used_up(state):
        state, ending = _next_stream(state)
        acts += ending
    flight = list(state.flight)
    number = state.next_number
    left = state.queued
    half = max(1, policy.window // 2)
    for index in range(event.count):
        before = flight[-1].number if flight else NO_PREVIOUS
        previous = number - 1 if number - 1 in (before, state.acked) else before
        left -= 1
        expires_at = event.expires[index] if index < len(event.expires) else None
        flight.append(InFlight(number, previous, Place.ON_WIRE, now + seconds(policy.lease), expires_at))
        asks = number == FIRST_NUMBER or number % half == 0 or left == 0
        acts.append(Act(Do.TRANSMIT, number, previous, first=True, request_receipt=asks))
        number += 1
    waiting_since = (state.waiting_since if state.flight else None) or now
    started = replace(state, flight=tuple(flight), next_number=number, queued=left, waiting_since=waiting_since)
    return Step(started, tuple(acts))


def sent(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """Handed over (HTTP 2xx). That says nothing about its place in the sequence: the order acknowledgement does."""
    row = _row(state, event.number)
    if row is None:
        return Step(state)
    after = replace(
        state,
        flight=_put(state, replace(row, place=Place.WAITING, due_at=None)),
        transport_attempts=0,
        holding_since=None,
        cause="" if state.flow is Flow.RUNNING else state.cause,
    )
    timer = resend_at(after, policy)
    if timer is not None and timer <= now and resend_at(state, policy) is None:
        # The hand-over itself took that long; the receiver gets its time all the same.
        after = replace(after, waiting_since=now)
    return Step(after, _wake(after, now, policy))


def not_taken(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """The receiver says "not now": what it follows is not there yet, or, for the first in flight, a pause is wanted.

    Such a pause is no silence, so the wait for an acknowledgement begins anew (spec 1, 4.2: Retries are not used up).
    """
    row = _row(state, event.number)
    if row is None:
        return Step(state)
    wait = policy.transport_retry_interval if event.retry_after is None else event.retry_after
    due_at = now + seconds(max(wait, SHORTEST_PAUSE))
    after = replace(state, flight=_put(state, replace(row, place=Place.TO_RESEND, due_at=due_at)))
    if row.number != state.flight[0].number:
        return Step(after)
    since = state.holding_since or now
    after = replace(after, holding_since=since, waiting_since=now, cause=event.cause or "not_taken_now")
    return Step(after, (Act(Do.ALERT),) if due_at - since > seconds(policy.transient_ceiling) else ())


def transport_failed(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """Transport recovery (spec 1, 2.5.4), then the stream's resend timer. Failures at one time are one trouble."""
    row = _row(state, event.number)
    if row is None:
        return Step(state)
    attempts = state.transport_attempts
    others = (other.due_at for other in state.flight if other.place is Place.TO_RESEND)
    due_at = next((moment for moment in others if attempts and moment is not None and moment > now), None)
    if due_at is None and policy.recovers(attempts):
        attempts += 1
        due_at = now if event.kind is Kind.LEASE_OVER else now + seconds(policy.transport_retry_interval)
    after = replace(
        state,
        flight=_put(state, replace(row, place=Place.TO_RESEND, due_at=now)),
        transport_attempts=attempts,
        cause=event.cause or "worker_lost" if state.flow is Flow.RUNNING else state.cause,
    )
    if due_at is None:
        due_at = max(resend_at(after, policy) or now, now)
    after = replace(after, flight=_put(after, replace(row, place=Place.TO_RESEND, due_at=due_at)))
    return Step(after, _wake(after, now, policy))


def acknowledged(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """Cumulative: everything up to the number is stored there (M25).

    One of another stream is stale and says nothing about this one (M26); nor does one of a number never given.
    """
    if event.tx_sequence_id != state.tx_sequence_id or not state.acked < event.number < state.next_number:
        return Step(state)
    acts = tuple(Act(Do.COMPLETE, row.number) for row in state.flight if row.number <= event.number)
    progress = replace(
        state,
        flight=tuple(row for row in state.flight if row.number > event.number),
        acked=event.number,
        resend_index=0,
        waiting_since=now,
        holding_since=None,
        cause="" if state.flow is Flow.RUNNING else state.cause,
    )
    after, ending = _settled(progress)
    return Step(after, (*ending, *acts, *_wake(after, now, policy)))


def expire(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """M28. What is on the wire keeps its place until that ends."""
    gone = {row.number for row in state.flight if row.number in event.numbers and row.place is not Place.ON_WIRE}
    return _left(state, _without(state, gone), Do.EXPIRE, now, policy)


def drop(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """M33: what the receiver never counted is bridged at once, since what follows was refused for its sake."""
    flight = _without(state, event.numbers)
    if event.bridge and event.numbers and len(flight) < len(state.flight):
        flight = _again(flight, now, min(event.numbers))
    return _left(state, flight, Do.DROP, now, policy)


def suspend(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """Spec 1, 2.1.4.3: stop sending to this receiver and report. What is submitted meanwhile waits."""
    cause = event.cause or state.cause or "suspended"
    return Step(replace(state, flow=Flow.SUSPENDED, cause=cause, holding_since=None), (Act(Do.GIVE_UP),))


def _running(state: Outgoing, now: datetime) -> Outgoing:
    """Goes on with a new budget, from the first message that is not acknowledged."""
    waiting_since = now if state.flight else None
    return replace(
        _resend_all(state, now),
        flow=Flow.RUNNING,
        resend_index=0,
        cause="",
        holding_since=None,
        waiting_since=waiting_since,
    )


def resume(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    return Step(_running(state, now), (Act(Do.WAKE),))


def retry_now(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """A person uses the next resend early; the budget is not reset."""
    used = any(row.place is Place.WAITING for row in state.flight)
    resent = replace(_resend_all(state, now), resend_index=state.resend_index + used)
    return Step(resent, (Act(Do.WAKE),))


def skip(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """A person gives up a message in flight; what follows bridges it."""
    running = _running(replace(state, flight=_without(state, _skipped(state, event))), now)
    after, ending = _settled(running)
    acts = tuple(Act(Do.DROP, number) for number in _skipped(state, event))
    return Step(after, (*ending, *acts, Act(Do.WAKE)))


def _skipped(state: Outgoing, event: Event) -> tuple[int, ...]:
    return event.numbers or tuple(row.number for row in state.flight[:1])


def restart(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """A new stream for all that is not acknowledged: same MessageIds, new numbers, so that repeats are still found."""
    acts = tuple(Act(Do.REQUEUE, row.number) for row in state.flight)
    fresh = Outgoing(first_id(now, state.tx_sequence_id), open=state.open, queued=state.queued + len(state.flight))
    return Step(fresh, (Act(Do.NEW_STREAM), *acts, Act(Do.WAKE)))


def forgotten(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """What was sent lately is no longer known (a restored database), so numbers may be used that the receiver has seen.

    It would discard them and acknowledge them all the same. A new stream is above all that may have been before; what
    is on the wire is taken back too, for its attempt belongs to a time that is gone.
    """
    again = restart(state, event, now, policy)
    return Step(replace(again.state, flow=state.flow, cause=state.cause), again.acts)
