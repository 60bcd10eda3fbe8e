"""What the sender of a stream knows, and what can be read off it without changing anything (protocols 3.2, 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from messaging.protocol.pair_state import TransportRecovery
from messaging.protocol.streams.envelope import FIRST_NUMBER, LAST_NUMBER

# ResendTimerTable, seconds; the last entry repeats (SeqResend13/46/79/10Time).
RESEND_SCHEDULE: tuple[float, ...] = (30, 30, 30, 300, 300, 300, 1800, 1800, 1800, 21_600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(TransportRecovery):
    """What the agreement says; times in seconds.

    `window`: messages without an order acknowledgement at once; `concurrency`: how many of them on the wire at once.
    `retries`: resends without progress before the pair is suspended. `transient_ceiling` is that of `protocol.sender`;
    `lease` bounds one transmission.
    """

    window: int = 64
    concurrency: int = 8
    resend_schedule: tuple[float, ...] = RESEND_SCHEDULE
    retries: int = 12
    transient_ceiling: float = 86_400.0
    lease: float = 120.0


class Flow(StrEnum):
    """Whether the pair goes on by itself."""

    RUNNING = "running"
    SUSPENDED = "suspended"  # gave up or was stopped: a person decides


class Place(StrEnum):
    """Where one message in flight is."""

    ON_WIRE = "on_wire"  # claimed by a worker; due_at is the lease's end
    WAITING = "waiting"  # handed over, waits for its order acknowledgement
    TO_RESEND = "to_resend"  # goes out again at due_at, as soon as a slot on the wire is free


@dataclass(frozen=True, slots=True)
class InFlight:
    """A message with a number that no order acknowledgement covers yet. `previous`: what its last copy said.

    `attempts`: transmissions that were begun. `expires_at`: end of its life, None for never.
    """

    number: int
    previous: int
    place: Place
    due_at: datetime | None = None
    expires_at: datetime | None = None
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The sender of one pair. `flight`: its messages in flight, in the order of their numbers.

    `next_number` is OutgoingTxSequenceNumber; `acked` the highest number that an order acknowledgement named.
    `resend_index`: resends since there was progress. `waiting_since`: when the wait for an order acknowledgement was
    last begun anew. `queued`: messages that have no number yet. `open`: no person holds the pair.
    """

    tx_sequence_id: int
    next_number: int = FIRST_NUMBER
    acked: int = 0
    resend_index: int = 0
    waiting_since: datetime | None = None
    flow: Flow = Flow.RUNNING
    open: bool = True
    queued: int = 0
    transport_attempts: int = 0
    holding_since: datetime | None = None
    cause: str = ""
    flight: tuple[InFlight, ...] = ()


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def expired(expires_at: datetime | None, now: datetime) -> bool:
    """Whether a message's life is over, so that it is never sent (again)."""
    return expires_at is not None and now >= expires_at


def free_slots(state: Outgoing, policy: Policy) -> int:
    """How many more messages may be on the wire."""
    return max(0, policy.concurrency - sum(row.place is Place.ON_WIRE for row in state.flight))


def first_to_resend(state: Outgoing) -> InFlight | None:
    """The message that goes out before all others: nothing overtakes it on purpose."""
    return next((row for row in state.flight if row.place is Place.TO_RESEND), None)


def number_space_is_used_up(state: Outgoing) -> bool:
    """Numbers do not wrap: a new stream begins instead, when everything before it is settled (protocols 3.4)."""
    return state.next_number > LAST_NUMBER


def room(state: Outgoing, policy: Policy, limit: int | None = None) -> int:
    """How many new messages may be put in flight now (M37). `limit`: no more than that many.

    None while something has to be sent again: it would only overtake it.
    """
    if state.flow is Flow.SUSPENDED or not state.open or first_to_resend(state) is not None:
        return 0
    left = LAST_NUMBER - state.next_number + 1
    if number_space_is_used_up(state):
        left = 0 if state.flight else LAST_NUMBER
    most = min(state.queued, policy.window - len(state.flight), free_slots(state, policy), left)
    return max(0, most if limit is None else min(most, limit))


def resend_at(state: Outgoing, policy: Policy) -> datetime | None:
    """When the Transactional Ack Wait timer ends (M31); None while it does not run.

    It does not end while all that is in flight is on the wire: nobody could have acknowledged that.
    """
    if state.waiting_since is None or all(row.place is Place.ON_WIRE for row in state.flight):
        return None
    wait = policy.resend_schedule[min(state.resend_index, len(policy.resend_schedule) - 1)]
    return state.waiting_since + seconds(wait)


def next_due(state: Outgoing, now: datetime, policy: Policy) -> datetime | None:
    """When to look at the pair again: something may be sent, or the resend timer ends. None: only an event changes it.

    Leases are not in it: each is its own message's timer.
    """
    if state.flow is Flow.SUSPENDED or not state.open:
        return None
    if room(state, policy):
        return now
    moments = [resend_at(state, policy)]
    waiting = first_to_resend(state)
    if waiting is not None and free_slots(state, policy):
        moments.append(waiting.due_at)
    return min((moment for moment in moments if moment is not None), default=None)


class Kind(StrEnum):
    """What can happen to a stream's sender."""

    QUEUED = "queued"
    DUE = "due"
    START = "start"
    SENT = "sent"
    NOT_TAKEN = "not_taken"
    TRANSPORT_FAILED = "transport_failed"
    LEASE_OVER = "lease_over"
    ACKNOWLEDGED = "acknowledged"
    EXPIRED = "expired"
    DROPPED = "dropped"
    DISCARDED = "discarded"
    SUSPEND = "suspend"
    RESUME = "resume"
    RETRY_NOW = "retry_now"
    SKIP = "skip"
    RESTART = "restart"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened.

    `number`: of the message whose transmission ended; of the order acknowledgement, with its `tx_sequence_id`.
    `numbers`: of the messages that leave the flight. `cause`: stable code (docs/causes.md). `retry_after`: seconds
    that the receiver asks for. `limit` (DUE): transmissions at most. `count`: messages to START, or DISCARDED from
    the queue; `expires` (START): their ends of life. `bridge` (DROPPED): the receiver never counted them.
    """

    kind: Kind
    number: int = 0
    numbers: tuple[int, ...] = ()
    tx_sequence_id: int = 0
    cause: str = ""
    retry_after: float | None = None
    limit: int | None = None
    count: int = 0
    expires: tuple[datetime | None, ...] = ()
    bridge: bool = False


class Do(StrEnum):
    """What the caller has to do after a step, in this order."""

    NEW_STREAM = "new_stream"  # the state's id is new; numbers begin again
    TRANSMIT = "transmit"  # put it on the wire under `number`, with `previous`
    COMPLETE = "complete"  # an order acknowledgement covers it
    EXPIRE = "expire"  # its life is over and it was sent: nobody knows whether it was received
    DROP = "drop"  # it leaves the flight
    REQUEUE = "requeue"  # back to the head of the queue, without its number
    GIVE_UP = "give_up"  # the pair is suspended: tell people
    ALERT = "alert"  # the receiver has asked for pauses for longer than the ceiling; nothing stops
    WAKE = "wake"  # something may be due now


@dataclass(frozen=True, slots=True)
class Act:
    """One thing to do. `first`: the next message of the queue gets this number; otherwise it has it already.

    `request_receipt`: ask for the order acknowledgement at once.
    """

    do: Do
    number: int = 0
    previous: int = 0
    first: bool = False
    request_receipt: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The new state and what follows from it."""

    state: Outgoing
    acts: tuple[Act, ...] = ()
