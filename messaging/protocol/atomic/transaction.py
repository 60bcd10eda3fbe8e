"""A transaction as its coordinator sees it, what can happen to it, and what has to be done then (spec 5).

Values only: `coordinator.step` says how one leads to the next.

When a message of a transaction that nobody has answered goes out again (spec 5, WS-AT; protocols.md 5.5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Seat, Vote

# Stable codes of what a person has to look at (docs/causes.md).
HEURISTIC_OUTCOME = "heuristic_outcome"  # somebody did the opposite of the outcome, and says so
PEER_REFUSED = "transaction_peer_refused"  # a fault answers what a participant in that state has to take


@dataclass(frozen=True, slots=True)
class Partaker:
    """One relationship of a transaction: a participant, or an initiator (`Protocol.COMPLETION`).

    `local`: work of the coordinator itself. It gets no messages; its vote is `Kind.DECIDED` or `Kind.REFUSED`.
    Who is forgotten stays, in seat NONE: what it still sends finds the None column of its own protocol.
    """

    key: str
    protocol: Protocol
    seat: Seat = Seat.ACTIVE
    vote: Vote | None = None
    local: bool = False

    @property
    def votes(self) -> bool:
        """True for a participant that is asked to prepare."""
        return self.protocol is not Protocol.COMPLETION and not self.local


@dataclass(frozen=True, slots=True)
class Transaction:
    """`subordinate`: a superior decides. `decided`: the commit record exists. `settled`: a person decided here, while
    the superior's outcome was in doubt (COMMITTED or ABORTED). `version` of WS-Coordination: 2004/10 or 2006/06.
    """

    phase: Phase = Phase.ACTIVE
    partakers: tuple[Partaker, ...] = ()
    subordinate: bool = False
    decided: bool = False
    settled: Phase | None = None
    version: str = "2006/06"

    def partaker(self, key: str) -> Partaker | None:
        return next((one for one in self.partakers if one.key == key), None)

    def put(self, changed: Partaker) -> Transaction:
        rows = tuple(changed if one.key == changed.key else one for one in self.partakers)
        return replace(self, partakers=rows)


class Kind(StrEnum):
    """What can happen to a transaction."""

    ENLIST = "enlist"
    RECEIVED = "received"
    FAULT_RECEIVED = "fault_received"
    COMMIT_ASKED = "commit_asked"
    ROLLBACK_ASKED = "rollback_asked"
    EXPIRED = "expired"
    DECIDED = "decided"  # the commit record is written and what this hub does itself is done, in this transaction
    REFUSED = "refused"  # what this hub does itself, or the commit record, failed
    SUPERIOR_PREPARE = "superior_prepare"
    SUPERIOR_COMMIT = "superior_commit"
    SUPERIOR_ROLLBACK = "superior_rollback"
    SUPERIOR_FAULT = "superior_fault"
    SETTLED = "settled"  # a person decides for a superior that cannot be reached
    FORGOTTEN = "forgotten"  # a person gives up on a partaker
    RESEND = "resend"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `key`: the partaker that it came from or is about.

    `protocol` and `local`: of ENLIST. `outcome`: of SETTLED, COMMITTED or ABORTED.
    """

    kind: Kind
    key: str = ""
    note: Note | None = None
    fault: FaultCode | None = None
    protocol: Protocol | None = None
    local: bool = False
    outcome: Phase | None = None


class ActKind(StrEnum):
    """What the caller has to do after a step."""

    SEND = "send"  # `note` to the partaker; `awaits`: again and again until a STOP
    FAULT = "fault"  # answer the message at hand with `fault`
    ANSWER = "answer"  # `note` to somebody whom no transaction knows
    DECIDE = "decide"  # all votes are in: local work and the commit record, then DECIDED or REFUSED
    VOTE = "vote"  # `note` to the superior
    OUTCOME = "outcome"  # `note` to an initiator
    FORGET = "forget"  # the partaker's relationship ends
    END = "end"  # the transaction is over
    DOUBT = "doubt"  # a person has to look at it
    STOP = "stop"  # what awaits an answer of the partaker needs none any more
    REMARK = "remark"  # worth a note; other acts do the work
    IGNORE = "ignore"  # nothing is done


@dataclass(frozen=True, slots=True)
class Act:
    """One thing to do. An empty `key` means the superior, or whoever sent the message at hand."""

    kind: ActKind
    key: str = ""
    note: Note | None = None
    fault: FaultCode | None = None
    reason: str = ""
    cause: str = ""
    awaits: bool = False


Acts = tuple[Act, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """The transaction after an event, and what follows from it, in the order in which it has to be done."""

    transaction: Transaction
    acts: Acts = ()


GROWTH = 1.4


def wait(attempt: int, first: float, most: float) -> float:
    """Seconds from attempt number `attempt` (1, 2 ...) to the next: `first`, then `GROWTH` times as long each time, up
    to `most`. Raises ValueError for an attempt before the first, or when no time would pass.
    """
    if attempt < 1 or first <= 0:
        raise ValueError(f"attempt {attempt} with a first wait of {first} s: both begin at 1")
    most = max(first, most)
    seconds = float(first)
    for _ in range(attempt - 1):
        seconds *= GROWTH
        if seconds >= most:
            return float(most)
    return min(seconds, float(most))


def patience(retries: int, first: float, most: float) -> float:
    """Seconds from the first attempt until the last of `retries` repeats has had its time to be answered: whoever has
    not answered by then counts as silent. Raises ValueError like `wait`.
    """
    return sum(wait(attempt, first, most) for attempt in range(1, retries + 2))
