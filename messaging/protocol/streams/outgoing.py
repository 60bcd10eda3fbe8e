"""The sender of one stream (protocols 3.4; [MS-MQQB] 3.1.1.6, 3.1.5.8, 3.1.6.5, 3.1.7.1.3).

`step(state, event, now, policy)` is a pure function; `TABLE` is every move that exists. A window of messages is in
flight; an order acknowledgement takes all up to its number out of it; without one everything in it goes out again, in
order. A message that left the flight for another reason leaves a hole in the numbers, which the next one's `previous`
bridges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from messaging.protocol.errors import IllegalTransition
from messaging.protocol.streams import moves
from messaging.protocol.streams.envelope import first_id
from messaging.protocol.streams.flight import (
    RESEND_SCHEDULE,
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
    next_due,
    resend_at,
    room,
)

__all__ = [
    "RESEND_SCHEDULE",
    "Act",
    "Do",
    "Event",
    "Flow",
    "InFlight",
    "Kind",
    "Outgoing",
    "Place",
    "Policy",
    "Step",
    "expired",
    "new_stream",
    "next_due",
    "refusal",
    "resend_at",
    "room",
    "step",
]

Apply = Callable[[Outgoing, Event, datetime, Policy], Step]


def new_stream(now: datetime, last: int = 0) -> Outgoing:
    """The sender of a pair that has none yet. `last`: the highest stream id that it may have used (M39)."""
    return Outgoing(first_id(now, last))


@dataclass(frozen=True, slots=True)
class Move:
    """One cell of the table: how it is done, where it may lead and where it comes from."""

    apply: Apply
    targets: frozenset[Flow]
    source: str = ""


_F, _K = Flow, Kind


def _to(apply: Apply, *targets: Flow, source: str = "") -> Move:
    return Move(apply, frozenset(targets), source)


# Every state has a row and every row says what each event does; an event that is not in a row is refused.
TABLE: Mapping[Flow, Mapping[Kind, Move]] = {
    _F.RUNNING: {
        _K.QUEUED: _to(moves.queue, _F.RUNNING),
        _K.DISCARDED: _to(moves.discard, _F.RUNNING, source="protocols 3.4; M29"),
        _K.DUE: _to(moves.due, _F.RUNNING, _F.SUSPENDED, source="[MS-MQQB] 3.1.6.5; M28, M31"),
        _K.START: _to(moves.start, _F.RUNNING, source="[MS-MQQB] 3.1.5.8.1; M37"),
        _K.SENT: _to(moves.sent, _F.RUNNING),
        _K.NOT_TAKEN: _to(moves.not_taken, _F.RUNNING, source="spec 1, 4.2"),
        _K.TRANSPORT_FAILED: _to(moves.transport_failed, _F.RUNNING, source="spec 1, 2.5.4"),
        _K.LEASE_OVER: _to(moves.transport_failed, _F.RUNNING, source="spec 1, 2.5.4"),
        _K.ACKNOWLEDGED: _to(moves.acknowledged, _F.RUNNING, source="protocols 3.4; M25, M26, M27, M32"),
        _K.EXPIRED: _to(moves.expire, _F.RUNNING, source="protocols 3.4; M28"),
        _K.DROPPED: _to(moves.drop, _F.RUNNING, source="protocols 3.3; M33"),
        _K.FORGOTTEN: _to(moves.forgotten, _F.RUNNING, source="protocols 3.4; M39"),
        _K.SUSPEND: _to(moves.suspend, _F.SUSPENDED, source="spec 1, 2.1.4.3"),
        _K.RETRY_NOW: _to(moves.retry_now, _F.RUNNING),
        _K.SKIP: _to(moves.skip, _F.RUNNING),
        _K.RESTART: _to(moves.restart, _F.RUNNING, source="protocols 3.4; M39"),
    },
    _F.SUSPENDED: {
        _K.QUEUED: _to(moves.queue, _F.SUSPENDED),
        _K.DISCARDED: _to(moves.discard, _F.SUSPENDED),
        _K.DUE: _to(moves.stay, _F.SUSPENDED),
        _K.START: _to(moves.start, _F.SUSPENDED),  # there is no room
        _K.SENT: _to(moves.sent, _F.SUSPENDED),
        _K.NOT_TAKEN: _to(moves.transport_failed, _F.SUSPENDED),
        _K.TRANSPORT_FAILED: _to(moves.transport_failed, _F.SUSPENDED),
        _K.LEASE_OVER: _to(moves.transport_failed, _F.SUSPENDED),
        # The receiver has it after all. The incident stays a person's to close, so the pair stays suspended.
        _K.ACKNOWLEDGED: _to(moves.acknowledged, _F.SUSPENDED),
        _K.EXPIRED: _to(moves.expire, _F.SUSPENDED),
        _K.DROPPED: _to(moves.drop, _F.SUSPENDED),
        _K.FORGOTTEN: _to(moves.forgotten, _F.SUSPENDED, source="protocols 3.4; M39"),
        _K.SUSPEND: _to(moves.stay, _F.SUSPENDED),
        _K.RESUME: _to(moves.resume, _F.RUNNING, source="spec 1, 2.1.4.3"),
        _K.SKIP: _to(moves.skip, _F.RUNNING),
        _K.RESTART: _to(moves.restart, _F.RUNNING, source="protocols 3.4; M39"),
    },
}

# What only people do. SUSPEND is the machine's too, so it is never an error.
VERBS = frozenset({_K.RESUME, _K.RETRY_NOW, _K.SKIP, _K.RESTART})


def refusal(state: Outgoing, kind: Kind, policy: Policy, numbers: tuple[int, ...] = ()) -> str | None:
    """Why a person cannot do this now, in words for that person; None when it can be done."""
    on_wire = [row for row in state.flight if row.place is Place.ON_WIRE]
    if kind is _K.RESUME:
        return None if state.flow is _F.SUSPENDED else "The pair is not suspended."
    if kind is _K.SUSPEND:
        return "The pair is suspended already." if state.flow is _F.SUSPENDED else None
    if kind is _K.RESTART:
        if state.flight and state.flow is _F.RUNNING:
            return "Messages are with the receiver; wait for its answer, or until the pair gives up."
        return "An attempt is on the wire; wait for its outcome." if on_wire else None
    if kind not in VERBS:
        return None
    if kind is _K.RETRY_NOW and state.flow is _F.SUSPENDED:
        return "The pair is suspended; resume it."
    if not state.flight:
        return "No message is in flight."
    if kind is _K.SKIP:
        wanted = numbers or (state.flight[0].number,)
        if any(row.number in wanted for row in on_wire):
            return "An attempt is on the wire; wait for its outcome."
        known = {row.number for row in state.flight}
        return None if known.issuperset(wanted) else "The message is not in flight."
    if len(on_wire) == len(state.flight):
        return "An attempt is on the wire; wait for its outcome."
    if state.resend_index >= policy.retries and any(row.place is Place.WAITING for row in state.flight):
        return "All retries are used; the pair suspends when this wait is over. Resume gives it a new budget."
    return None


def step(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """The sender after `event`.

    Raises IllegalTransition, with the state unchanged, for a verb of people that `refusal` has words for; ValueError
    for more new messages than there is `room` for.
    """
    why = refusal(state, event.kind, policy, event.numbers) if event.kind in VERBS else None
    if why is not None:
        raise IllegalTransition(state.flow, event.kind, why)
    return TABLE[state.flow][event.kind].apply(state, event, now, policy)
