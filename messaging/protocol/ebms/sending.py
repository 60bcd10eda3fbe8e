"""The sender of one reliable message: ebXML Messaging 2.0, sections 6.5 and 6.6.

A pure machine over one message: `begin` before each attempt, `step` with what came of it, `wait_over` when nobody has
answered in time. The same octets go out each time; never after the end of the TimeToLive, nor after the receiver may
have forgotten the MessageId (PersistDuration): from then on a person decides, as with a repeatable request, whose ends
these are (`protocol.repeating.ENDS`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from messaging.protocol.codecs.ebms2_lexical import MAX_ORDER
from messaging.protocol.envelope import MessageOrder
from messaging.protocol.errors import ErrorCode
from messaging.protocol.repeating import ENDS, Act, Reached
from messaging.protocol.service_ends import ACCESS_REFUSED, NOTHING_SENT

NO_ANSWER = "ack_timeout"
_OVER = timedelta(milliseconds=1)  # then the time of a message is over


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the agreement says. `retry_interval` and `lease` in seconds; `persist`: how long the receiver remembers ids
    (PersistDuration).
    """

    retries: int
    retry_interval: float
    persist: timedelta
    lease: float


@dataclass(frozen=True, slots=True)
class State:
    """What is known of one message. `attempts`: since somebody let it go, begun so far. `expires`: the end of its
    TimeToLive, or of the time for which its id is remembered, whichever comes first; None before the first attempt.
    `reached`: how far the furthest attempt can have got.
    """

    attempts: int = 0
    expires: datetime | None = None
    reached: Reached = Reached.NOWHERE


class Reply(StrEnum):
    """What an attempt came to, without what an ebXML message in the answer says."""

    TAKEN = "taken"
    BUSY = "busy"  # not now
    LOST = "lost"  # no answer, or one that says nothing: it may have been received
    NOT_SENT = "not_sent"  # the connection never came up
    ACCESS_REFUSED = "access_refused"
    TURNED_AWAY = "turned_away"  # the address or the message is wrong there, and so would the next one be


@dataclass(frozen=True, slots=True)
class Consequence:
    """One row: what a reply leads to, how far it says that the copy can have got, and where that is said."""

    act: Act
    source: str
    reached: Reached


STEPS: Mapping[Reply, Consequence] = {
    Reply.TAKEN: Consequence(Act.AWAIT, "6.5.4, B.2.3", Reached.SERVICE),
    Reply.BUSY: Consequence(Act.RETRY, "B.2.3; RFC 9110, 10.2.3", Reached.SERVICE),
    Reply.LOST: Consequence(Act.RETRY, "6.5.4", Reached.SERVICE),
    Reply.NOT_SENT: Consequence(Act.RETRY, "6.5.4", Reached.NOWHERE),
    Reply.ACCESS_REFUSED: Consequence(Act.HOLD, "B.2.4", Reached.LOG_IN),
    Reply.TURNED_AWAY: Consequence(Act.HOLD, "B.2.3", Reached.ENTRANCE),
}
_NOT_NOW = frozenset({408, 425, 429, 503})


def classify(status: int | None, cause: str) -> Reply:
    """What the status of an HTTP answer means; `status` None: no answer, for `cause` (docs/causes.md)."""
    if status is None:
        return Reply.NOT_SENT if cause in NOTHING_SENT | {"window_over"} else Reply.LOST
    if 200 <= status < 300:
        return Reply.TAKEN
    if status in _NOT_NOW:
        return Reply.BUSY
    if status in ACCESS_REFUSED:
        return Reply.ACCESS_REFUSED
    return Reply.TURNED_AWAY if 300 <= status < 500 else Reply.LOST


# Errors that say something of the agreement, so that the next message would fare no better: the pair stops until a
# person has looked. Of others the message fails, and the next goes out.
OF_THE_AGREEMENT = frozenset(
    {
        ErrorCode.SECURITY_FAILURE,
        ErrorCode.VALUE_NOT_RECOGNIZED,
        ErrorCode.NOT_SUPPORTED,
        ErrorCode.INCONSISTENT,
    }
)


def refused(code: ErrorCode | str) -> Act:
    """What an Error of the partner about a message of ours leads to (4.2.3.4)."""
    return Act.HOLD if code in OF_THE_AGREEMENT else Act.FAIL


@dataclass(frozen=True, slots=True)
class Step:
    """The new state and what follows. `cause` (docs/causes.md) is "" where that of the transmission stands."""

    state: State
    act: Act
    due_at: datetime | None = None
    cause: str = ""


def begin(state: State, now: datetime, policy: Policy, time_to_live: datetime | None = None) -> Step:
    """One more attempt: SEND until the lease's end, or what `expire` says when its time is over.

    `time_to_live`: its end, looked at by the first attempt.
    """
    expires = state.expires
    if expires is None:
        expires = now + policy.persist
        if time_to_live is not None:
            expires = min(expires, time_to_live)
    if now > expires:
        return expire(state)
    started = replace(state, attempts=state.attempts + 1, expires=expires)
    return Step(started, Act.SEND, now + timedelta(seconds=policy.lease))


def expire(state: State) -> Step:
    """Its time is over: what follows says `ENDS`."""
    act, cause = ENDS[state.reached]
    return Step(state, act, cause=cause)


def step(state: State, reply: Reply, now: datetime, policy: Policy, retry_after: float | None = None) -> Step:
    """What follows from a reply: RetryInterval is waited for, whether the partner took it or not (6.5.4).

    `retry_after`: seconds that the partner asks for, which count when they are longer. Raises ValueError for a message
    that was never begun.
    """
    if state.expires is None:
        raise ValueError("a message that was never begun has no reply")
    row = STEPS[reply]
    known = replace(state, reached=max(state.reached, row.reached))
    if row.act is Act.HOLD:
        return Step(known, Act.HOLD)
    wait = max(policy.retry_interval, retry_after or 0.0)
    # One that nobody answers is still answered until its time is over; it only goes out no more.
    return Step(known, row.act, min(now + timedelta(seconds=wait), state.expires + _OVER))


def wait_over(state: State, now: datetime, policy: Policy) -> Step:
    """Nobody has answered in time: once more while Retries last (6.5.4), then the pair stops and a person is told
    (6.5.7).
    """
    if state.attempts > policy.retries and state.expires is not None and now <= state.expires:
        return Step(state, Act.HOLD, cause=NO_ANSWER)
    return begin(state, now, policy)


def place(last: int | None, under_way: Callable[[], bool]) -> MessageOrder | None:
    """Return the place of the next message of a conversation; None: it has to wait for it (9.1).

    `last`: the number that was given last, None where the next one begins anew. `under_way`: whether anything of the
    conversation is. A beginning (Reset) waits until all before it has come to its end, and is acknowledged before
    anything follows: so no number of before it can be taken for one of after it.
    """
    if last is not None and 0 < last < MAX_ORDER:
        return MessageOrder(last + 1)
    if under_way():
        return None
    return MessageOrder(1) if last == 0 else MessageOrder(0, reset=True)
