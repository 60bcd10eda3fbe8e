"""How far back the receiver of repeatable requests remembers, and what a request meets there: spec 2.

Ids are forgotten, so a request is refused when its first-instance time lies where ids may be missing. That check
comes before the look-up: the outcome must not depend on when what is too old was swept away (protocols 2.4, 2.5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered. Every id with a first-instance time from the `horizon` on is there.

    `window`: how long ids are kept. `skew`: how far ahead of ours a sender's clock may be. `memory_start`: since when
    nothing was lost. `forgotten_through`: ids before it were swept (a larger window does not bring them back).
    `heartbeat`: the latest time that this memory has seen. All instants have a zone.
    """

    window: timedelta
    skew: timedelta
    memory_start: datetime
    forgotten_through: datetime
    heartbeat: datetime


def horizon(memory: Memory, now: datetime) -> datetime:
    """The earliest first-instance time that is accepted. It never moves back, also when the clock does (X12)."""
    return max(max(now, memory.heartbeat) - memory.window, memory.memory_start, memory.forgotten_through)


def start_after_loss(now: datetime, heartbeat: datetime, skew: timedelta) -> datetime:
    """`memory_start` after ids were lost. `heartbeat`: the latest time that is known from before the loss.

    What was accepted before may be stamped `skew` ahead of a clock that stood at `heartbeat`; that instant itself is no
    longer remembered (protocols 2.5).
    """
    return max(now, heartbeat) + skew + timedelta.resolution


class Refusal(StrEnum):
    """Why a first-instance time is refused: with 412, whatever is remembered of the id (protocols 2.3)."""

    OUTSIDE_MEMORY_WINDOW = "outside-memory-window"
    FIRST_SENT_IN_FUTURE = "first-sent-in-future"


def refusal(memory: Memory, first_sent: datetime, now: datetime) -> Refusal | None:
    """Whether a first-instance time lies outside what is remembered. Both limits themselves are inside (G06, G08)."""
    if first_sent < horizon(memory, now):
        return Refusal.OUTSIDE_MEMORY_WINDOW
    if first_sent > now + memory.skew:
        return Refusal.FIRST_SENT_IN_FUTURE
    return None


class State(StrEnum):
    """What a remembered request has come to."""

    RUNNING = "running"
    ANSWERED = "answered"
    ACCEPTED = "accepted"
    IN_DOUBT = "in_doubt"
    FORGOTTEN = "forgotten"  # at its sender's request: its answer is gone, its id is not


@dataclass(frozen=True, slots=True)
class Stored:
    """What is remembered under a request's id. `lease_alive`: somebody is still working on it (state running)."""

    state: str
    lease_alive: bool
    first_sent: datetime | None
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came. `first_sent` is None for one that only carries an Idempotency-Key."""

    first_sent: datetime | None
    fingerprint: str


class Verdict(StrEnum):
    """What becomes of a request."""

    EXECUTE = "execute"
    REPLAY = "replay"  # the stored answer, once more
    BUSY = "busy"  # the first copy is still being worked on
    DOUBT = "doubt"  # whether the first copy was executed is not known
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict; `code` and `status` (HTTP) say why a request is neither executed nor replayed."""

    verdict: Verdict
    code: str = ""
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One row for an id that is remembered: its source, when it applies (request, stored, by key), what then."""

    source: str
    applies: Callable[[Received, Stored, bool], bool]
    decision: Decision


RULES: tuple[Rule, ...] = (
    # First, because there is nothing left to compare with.
    Rule(
        "conformance G28",
        lambda r, s, key: s.state == State.FORGOTTEN,
        Decision(Verdict.REFUSE, "forgotten-by-request", 412),
    ),
    Rule(
        "protocols 2.4; G14",
        lambda r, s, key: not key and r.first_sent != s.first_sent,
        Decision(Verdict.REFUSE, "first-sent-differs", 400),
    ),
    Rule(
        "Idempotency-Key draft; G13",
        lambda r, s, key: key and r.fingerprint != s.fingerprint,
        Decision(Verdict.REFUSE, "content-differs", 422),
    ),
    Rule(
        "Repeatable Requests, server behaviour; G13, G15",
        lambda r, s, key: r.fingerprint != s.fingerprint,
        Decision(Verdict.REFUSE, "content-differs", 400),
    ),
    Rule(
        "spec 2, synchronous; G02, G30",
        lambda r, s, key: s.state in (State.ANSWERED, State.ACCEPTED),
        Decision(Verdict.REPLAY),
    ),
    Rule(
        "protocols 2.4; G18",
        lambda r, s, key: s.state == State.RUNNING and s.lease_alive,
        Decision(Verdict.BUSY, "in-work", 409),
    ),
    Rule("protocols 2.4; G22", lambda r, s, key: True, Decision(Verdict.DOUBT, "in-doubt", 412)),
)


def decide(memory: Memory, request: Received, stored: Stored | None, now: datetime, by_key: bool = False) -> Decision:
    """What a request meets: the window first, then the first of `RULES` that applies to what is remembered of its id.

    `by_key`: the request carries an Idempotency-Key, so no first-instance time, and no window protects it.
    Raises ValueError for a request that has neither, and for a stored state that is not a `State`.
    """
    if not by_key:
        if request.first_sent is None:
            raise ValueError("a request without a first-instance time is identified by key")
        refused = refusal(memory, request.first_sent, now)
        if refused is not None:
            return Decision(Verdict.REFUSE, refused.value, 412)
    if stored is None:
        return Decision(Verdict.EXECUTE)
    State(stored.state)
    for rule in RULES:
        if rule.applies(request, stored, by_key):
            return rule.decision
    raise AssertionError("the last rule always applies")
