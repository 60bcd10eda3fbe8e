"""The sender of one repeatable request: spec 2, and its readers' question what to do when the window is over.

A pure machine over one message: `begin` before each attempt, `step` with what came of it, `expire` when its time is
over. The same id and first-instance time go out each time, and never after the receiver may have forgotten them: from
then on a person decides, because only a person can find out (spec 2, comments; conformance G31, G32).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum

from messaging.protocol.service_ends import ACCESS_REFUSED, NOTHING_SENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the agreement says. `initial`, `maximum` (waits between attempts) and `lease` in seconds.

    `window`: how long the receiver remembers ids. `skew`: how much earlier than its end the repeats stop.
    """

    window: timedelta
    skew: timedelta = timedelta(0)
    initial: float
    factor: float = 2.0
    maximum: float
    lease: float


class Reached(IntEnum):
    """How far a copy can have got. Of several the furthest counts."""

    NOWHERE = 0  # no server of the partner has answered
    LOG_IN = 1  # answered, and our credential was refused
    ENTRANCE = 2  # answered, and turned away for another reason that lies in the configuration
    SERVICE = 3  # it may have been executed


@dataclass(frozen=True, slots=True)
class State:
    """What is known of one message. `attempts`: begun so far. `reached`: how far the furthest of them can have got."""

    attempts: int = 0
    first_sent: datetime | None = None
    reached: Reached = Reached.NOWHERE


class Reply(StrEnum):
    """What an attempt came to."""

    DONE = "done"
    BUSY = "busy"  # not now; or the first copy is still in work
    LOST = "lost"  # no answer, or one that says nothing: it may have been executed
    NOT_SENT = "not_sent"  # the connection never came up
    OUTSIDE_WINDOW = "outside_window"
    REFUSED = "refused"  # this message will never be taken
    ENDED_IN_ERROR = "ended_in_error"  # executed once, and the outcome is an error
    ACCESS_REFUSED = "access_refused"  # our credential is not accepted, nor would it be with the next message
    CONFIGURATION_WRONG = "configuration_wrong"  # the configuration is wrong, so the next message would fare no better


_NOT_NOW = frozenset({408, 409, 425, 429, 503})
_NEVER = frozenset({400, 422})
_CLOSED = frozenset({404, 405, 413, 415, 501})
# Where an attempt that did not reach the partner says so.
_NEVER_LEFT = NOTHING_SENT | {"window_over"}


def classify(status: int | None, result: str, cause: str) -> Reply:
    """What an HTTP answer means.

    `status` None: no answer, for `cause` (docs/causes.md). `result`: `codecs.repeatable.read_result`; "accepted"
    says that the answer is the outcome of the one execution, "rejected" that nothing was executed.
    """
    if status is None:
        return Reply.NOT_SENT if cause in _NEVER_LEFT else Reply.LOST
    if 200 <= status < 300:
        # Without the header it was somebody else who spoke, a log-in page on the way; with "rejected" it contradicts
        # itself. Either is asked again.
        return Reply.DONE if result == "accepted" else Reply.LOST
    if status == 412:
        return Reply.OUTSIDE_WINDOW
    if status in _NOT_NOW:
        return Reply.BUSY
    if status >= 400 and result == "accepted":
        return Reply.ENDED_IN_ERROR
    if status in ACCESS_REFUSED:
        return Reply.ACCESS_REFUSED
    if status in _CLOSED or 300 <= status < 400:
        return Reply.CONFIGURATION_WRONG
    if 400 <= status < 500:
        # Without the header it was no server of repeatable requests that spoke.
        return Reply.REFUSED if status in _NEVER or result == "rejected" else Reply.CONFIGURATION_WRONG
    return Reply.LOST


class Act(StrEnum):
    """What to do with the message."""

    SEND = "send"  # put it on the wire; due_at is the lease's end
    COMPLETE = "complete"
    AWAIT = "await"  # the partner has it; its acknowledgement comes by itself, or not until due_at (profile ebms2)
    RETRY = "retry"  # again at due_at
    IN_DOUBT = "in_doubt"  # never again by the machine: a person decides
    FAIL = "fail"
    HOLD = "hold"  # suspend the pair; the message goes on when the pair does, until its window is over


@dataclass(frozen=True, slots=True)
class Step:
    """The new state and what follows. `cause` (docs/causes.md) is "" where that of the transmission stands."""

    state: State
    act: Act
    due_at: datetime | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Consequence:
    """One row: what a reply leads to, how far it says that the copy can have got, and where that is said."""

    act: Act
    source: str
    reached: Reached = Reached.NOWHERE
    cause: str = ""


STEPS: Mapping[Reply, Consequence] = {
    Reply.DONE: Consequence(Act.COMPLETE, "Repeatable Requests, accepted"),
    Reply.BUSY: Consequence(Act.RETRY, "protocols 2.3, still running; RFC 9110, 10.2.3", Reached.SERVICE),
    Reply.LOST: Consequence(Act.RETRY, "spec 2, synchronous", Reached.SERVICE),
    Reply.NOT_SENT: Consequence(Act.RETRY, "spec 2, repeat intervals"),
    Reply.OUTSIDE_WINDOW: Consequence(Act.IN_DOUBT, "spec 2, comments; G32", cause="outside_memory_window"),
    Reply.REFUSED: Consequence(Act.FAIL, "Repeatable Requests, rejected", cause="request_refused"),
    Reply.ENDED_IN_ERROR: Consequence(Act.FAIL, "Repeatable Requests, accepted", cause="executed_with_error"),
    Reply.ACCESS_REFUSED: Consequence(Act.HOLD, "protocols 2.3 and 2.4, 401", Reached.LOG_IN),
    Reply.CONFIGURATION_WRONG: Consequence(Act.HOLD, "protocols 2.3, 501", Reached.ENTRANCE),
}
# What follows when the window is over. A receiver authenticates, and looks at the address, before anything is executed
# (protocols 2.4), so only what may have got further is in doubt.
ENDS: Mapping[Reached, tuple[Act, str]] = {
    Reached.NOWHERE: (Act.FAIL, "never_sent"),
    Reached.LOG_IN: (Act.FAIL, "access_refused"),
    Reached.ENTRANCE: (Act.FAIL, "turned_away"),
    Reached.SERVICE: (Act.IN_DOUBT, "outcome_unknown"),
}


def reached(status: int | None, cause: str) -> Reached:
    """How far an attempt can have got that ended with this HTTP status, or for this cause without one."""
    return STEPS[classify(status, "", cause)].reached


def deadline(first_sent: datetime, policy: Policy) -> datetime:
    """After this instant the message is never sent again."""
    return first_sent + policy.window - policy.skew


def begin(state: State, now: datetime, policy: Policy) -> Step:
    """One more attempt: SEND, or what `expire` says when its time is over.

    The first attempt fixes the first-instance time, in the whole seconds that the wire has.
    """
    first_sent = state.first_sent or now.replace(microsecond=0)
    if now > deadline(first_sent, policy):
        return expire(state)
    started = replace(state, attempts=state.attempts + 1, first_sent=first_sent)
    return Step(started, Act.SEND, now + timedelta(seconds=policy.lease))


def expire(state: State) -> Step:
    """The window is over: what follows says `ENDS`."""
    act, cause = ENDS[state.reached]
    return Step(state, act, cause=cause)


def delay(attempts: int, policy: Policy, jitter: float, retry_after: float | None = None) -> float:
    """Seconds to wait after that many attempts.

    Exponential, at most `maximum`; `jitter` (0 to 1) takes off up to half of it. A longer Retry-After wins.
    """
    try:
        wish = min(policy.initial * policy.factor ** max(attempts - 1, 0), policy.maximum)
    except OverflowError:
        wish = policy.maximum
    return max(wish * (0.5 + 0.5 * jitter), retry_after or 0.0)


def step(
    state: State, reply: Reply, now: datetime, policy: Policy, jitter: float, retry_after: float | None = None
) -> Step:
    """What follows from a reply. `jitter`: 0 to 1; `retry_after`: seconds that the receiver asks for.

    A worker that died between `begin` and here leaves LOST. Raises ValueError for a message that was never begun.
    """
    if state.first_sent is None:
        raise ValueError("a message that was never begun has no reply")
    row = STEPS[reply]
    known = replace(state, reached=max(state.reached, row.reached))
    if row.act is Act.RETRY:
        wait = delay(state.attempts, policy, jitter, retry_after)
        if wait > (deadline(state.first_sent, policy) - now).total_seconds():
            return expire(known)
        return Step(known, Act.RETRY, now + timedelta(seconds=wait))
    if reply is Reply.REFUSED and state.reached is Reached.SERVICE:
        # This copy was not executed, but an earlier one may have been.
        return expire(known)
    return Step(known, row.act, cause=row.cause)
