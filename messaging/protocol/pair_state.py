"""What the sender of one pair is and what can happen to it; `sender.TABLE` says what follows (spec 1, 2.1.3, 2.1.4).

The gate is a person's hold on the pair, apart from the flow: while it is not OPEN
nothing is transmitted, but answers are still taken (see `GATES`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Self

from messaging.protocol.errors import IllegalTransition


class Flow(StrEnum):
    """Where the pair's one message in flight stands."""

    IDLE = "idle"  # nothing in flight
    SENDING = "sending"  # claimed by a worker, on the wire; due_at is the lease's end
    AWAITING_ACK = "awaiting_ack"  # handed over; due_at is Timeout or RetryInterval from the send
    RESEND_WAIT = "resend_wait"  # transport recovery or a person's resume: resends at due_at, Retries untouched
    HOLDING = "holding"  # the receiver asked for a pause (Transient Error); due_at ends it
    SUSPENDED = "suspended"  # gave up or was refused: a person decides


class Gate(StrEnum):
    """A person's hold on the pair."""

    OPEN = "open"
    PAUSED = "paused"
    DISABLED = "disabled"


class Kind(StrEnum):
    """What can happen to a pair."""

    QUEUED = "queued"
    DUE = "due"
    SENT = "sent"
    TRANSPORT_FAILED = "transport_failed"
    ACKNOWLEDGED = "acknowledged"
    ERROR = "error"
    TRANSIENT_ERROR = "transient_error"
    RESUME = "resume"
    RETRY_NOW = "retry_now"
    SKIP = "skip"
    RESTART = "restart"
    SUSPEND = "suspend"
    FORGOTTEN = "forgotten"


class Act(StrEnum):
    """What the caller has to do after a step, in this order."""

    PREPARE_NEXT = "prepare_next"  # number and encode the head of the queue, then transmit it
    TRANSMIT = "transmit"  # put the stored bytes of the message in flight on the wire
    COMPLETE = "complete"  # the message in flight is acknowledged
    DROP = "drop"  # the message in flight is skipped by a person
    RESEND = "resend"  # the message in flight waits for its next attempt, whatever was known of the last one
    REQUEUE = "requeue"  # the message in flight goes back to the head of the queue, without its number
    GIVE_UP = "give_up"  # tell From-Party and administrator (2.1.4.3): incident
    ALERT = "alert"  # transient errors hold the pair for longer than the ceiling: incident, nothing stops
    WAKE = "wake"  # something may be due now


@dataclass(frozen=True, slots=True)
class PairState:
    """State of one outbound pair.

    `in_flight`: key of the message with the receiver. `retries`: Retries used for it;
    `transport_attempts`: transport recoveries since the last RM-level send. `queued`: messages
    waiting behind it. `last_sequence`: the number given last, 0 = the next is 1.
    """

    flow: Flow = Flow.IDLE
    gate: Gate = Gate.OPEN
    in_flight: str = ""
    retries: int = 0
    transport_attempts: int = 0
    queued: int = 0
    last_sequence: int = 0
    due_at: datetime | None = None
    holding_since: datetime | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportRecovery:
    """Further attempts below reliable messaging, seconds apart (spec 1, 2.5.4)."""

    transport_retries: int = 2
    transport_retry_interval: float = 10

    def recovers(self, attempts: int) -> bool:
        """Whether another attempt is made after so many of recovery."""
        return attempts < self.transport_retries

    def unrecovered(self) -> Self:
        """The same without transport recovery."""
        return replace(self, transport_retries=0)


@dataclass(frozen=True, slots=True)
class SenderPolicy(TransportRecovery):
    """TPA parameters, seconds (spec 1, table 2-1 and 2.5.4; `lease` and `transient_ceiling` are ours).

    `probe`: the pair was resumed with one message first, and the first failure of that one suspends it again.
    """

    timeout: float
    retries: int
    retry_interval: float
    transient_ceiling: float = 86_400
    lease: float = 120
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    `cause`: stable code (docs/causes.md). `min_retry_secs`: of a Transient Error, None = not named (4.2).
    `at_once`: transport recovery may resend without waiting (our own worker died, the partner is not to blame).
    """

    kind: Kind
    cause: str = ""
    min_retry_secs: int | None = None
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The new state and what follows from it."""

    state: PairState
    acts: tuple[Act, ...] = ()


class GateVerb(StrEnum):
    """What people do to the gate."""

    PAUSE = "pause"
    RELEASE = "release"
    DISABLE = "disable"
    ENABLE = "enable"


GATES: Mapping[Gate, Mapping[GateVerb, Gate]] = {
    Gate.OPEN: {GateVerb.PAUSE: Gate.PAUSED, GateVerb.DISABLE: Gate.DISABLED},
    Gate.PAUSED: {GateVerb.RELEASE: Gate.OPEN, GateVerb.DISABLE: Gate.DISABLED},
    Gate.DISABLED: {GateVerb.ENABLE: Gate.OPEN},
}


def move_gate(gate: Gate, verb: GateVerb) -> Gate:
    """The gate after `verb`. Raises IllegalTransition for a move that is not in `GATES`."""
    target = GATES[gate].get(verb)
    if target is None:
        raise IllegalTransition(gate, verb, f"A pair that is {gate} cannot be {verb}d.")
    return target
