"""Final acknowledgements: what became of a message beyond "it arrived in order" ([MS-MQQB] 2.2.5; protocols 3.1, 3.3).

An order acknowledgement says that everything up to a number is stored. A final acknowledgement is about one message: it
was taken from its queue, or it will never be. Also here: the short memory that keeps messages outside of any stream
from being taken twice (M41).

When an order acknowledgement is due: the Order Ack Send Timer (spec 3, 3.1.5.8.6; [MS-MQQB] 3.1.2.7, 3.1.6.9).

Acknowledgements are cumulative, so they wait a little for more to acknowledge; but a steady stream must not put them
off for ever. The timer is two instants that are stored; nothing sleeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from messaging.protocol.messages import State
from messaging.protocol.streams.acceptance import Incoming
from messaging.protocol.streams.envelope import FIRST_NUMBER

NORMAL = 0x0000
ORDER_ACK = 0x00FF
ACK_RECEIVE = 0x4000

_NEGATIVE = 0x8000  # this bit says "not", whatever the rest says ([MS-MQMQ] 2.2.18.1.6)


@dataclass(frozen=True, slots=True)
class FinalClass:
    """One message class. `sequenced`: the receiver's counters moved for the message, so what follows it fits as it is;
    otherwise what follows has to be bridged.
    """

    code: int
    name: str
    positive: bool
    sequenced: bool
    meaning: str


_ALL = (
    FinalClass(ACK_RECEIVE, "ack_receive", True, True, "the application took it"),
    FinalClass(0x8000, "bad_dst_q", False, False, "the receiver has no such destination"),
    FinalClass(0x8001, "deleted", False, True, "it was deleted before the application took it"),
    FinalClass(0x8002, "reach_queue_timeout", False, False, "its time was over before it arrived"),
    FinalClass(0x8003, "q_exceed_quota", False, True, "the destination was full"),
    FinalClass(0x8004, "access_denied", False, False, "the sender may not use the destination"),
    FinalClass(0x8005, "hop_count_exceeded", False, False, "it passed through too many hops"),
    FinalClass(0x8006, "bad_signature", False, False, "its signature does not fit"),
    FinalClass(0x8007, "bad_encryption", False, False, "it cannot be decrypted"),
    FinalClass(0x8009, "not_transactional_q", False, False, "the destination takes no streams"),
    FinalClass(0x800A, "not_transactional_msg", False, False, "the destination takes streams only"),
    FinalClass(0xC000, "q_deleted", False, True, "its destination was deleted with it"),
    FinalClass(0xC001, "q_purged", False, True, "its destination was emptied"),
    FinalClass(0xC002, "receive_timeout", False, True, "the application did not take it in time"),
    FinalClass(0xC004, "receive_rejected", False, True, "the application refused it"),
)
CLASSES: Mapping[int, FinalClass] = {row.code: row for row in _ALL}


def class_of(code: int) -> FinalClass | None:
    """The row of a class; one for any other refusal; None for what is no final acknowledgement."""
    known = CLASSES.get(code)
    if known is None and code & _NEGATIVE:
        return FinalClass(code, "other", False, False, f"it was refused with class 0x{code:04X}")
    return known


class Reason(StrEnum):
    """Why a receiver has something final to say."""

    BAD_DESTINATION = "bad_destination"
    NOT_TRANSACTIONAL = "not_transactional"
    OUTSIDE_STREAM = "outside_stream"
    ACCESS_DENIED = "access_denied"
    HOP_COUNT = "hop_count"
    QUOTA = "quota"
    PROCESSED = "processed"
    REJECTED = "rejected"
    DELETED = "deleted"
    PURGED = "purged"
    RECEIVE_TIMEOUT = "receive_timeout"


@dataclass(frozen=True, slots=True)
class Owing:
    """One row: the class, whether the sequence advances all the same, and whether it is told unasked."""

    code: int
    advances: bool
    always: bool
    source: str


OWING: Mapping[Reason, Owing] = {
    # Refused before the rules of acceptance see it: the counters don't move.
    Reason.BAD_DESTINATION: Owing(0x8000, False, True, "protocols 3.3"),
    Reason.NOT_TRANSACTIONAL: Owing(0x8009, False, True, "protocols 3.3; M33"),
    Reason.OUTSIDE_STREAM: Owing(0x800A, False, True, "[MC-MQSRM] 3.1.5.1.3"),
    Reason.ACCESS_DENIED: Owing(0x8004, False, True, "protocols 3.3"),
    Reason.HOP_COUNT: Owing(0x8005, False, True, "[MS-MQMQ] 2.2.18.1.6"),
    # Refused after them: it counts as received, and is never taken when it comes again.
    Reason.QUOTA: Owing(0x8003, True, True, "protocols 3.3; M34"),
    # Left its queue.
    Reason.PROCESSED: Owing(ACK_RECEIVE, True, False, "[MS-MQQB] 2.2.5; M35"),
    Reason.REJECTED: Owing(0xC004, True, False, "[MS-MQQB] 2.2.5"),
    Reason.DELETED: Owing(0x8001, True, False, "[MS-MQQB] 2.2.5"),
    Reason.PURGED: Owing(0xC001, True, False, "[MS-MQQB] 2.2.5"),
    Reason.RECEIVE_TIMEOUT: Owing(0xC002, True, False, "[MS-MQQB] 2.2.5"),
}


def owed(reason: Reason, *, positive: bool, negative: bool) -> FinalClass | None:
    """What the receiver tells the sender; None when that was not asked for.

    `positive`, `negative`: the kinds that the message, or the agreement, asks for. What is refused is always told,
    since the sender has to bridge it.
    """
    row = OWING[reason]
    answer = CLASSES[row.code]
    wanted = positive if answer.positive else negative
    return answer if row.always or wanted else None


def advances(reason: Reason) -> bool:
    """Whether the sequence moves past the message: False when it was refused before the rules of acceptance."""
    return OWING[reason].advances


@dataclass(frozen=True, slots=True)
class Consequence:
    """What the sender's message becomes: DELIVERED or FAILED, with its cause (docs/causes.md).

    `bridge`: the receiver's counters never moved for it, so what follows is sent again, bridged.
    """

    state: State
    cause: str = ""
    bridge: bool = False


UNCONFIRMED = "unconfirmed"  # cause of a message whose final acknowledgement never came (M36)

# Where a final acknowledgement still changes something. What has failed is refused already, or never went out.
_IN_FLIGHT = frozenset({State.SENDING, State.AWAITING_ACK, State.RETRYING})
_UNSETTLED = frozenset({*_IN_FLIGHT, State.CONFIRMING, State.IN_DOUBT})


def consequence(code: int, state: str) -> Consequence | None:
    """What a final acknowledgement of class `code` makes of a message that is in `state`; None: nothing (M33 to M35).

    A refusal also ends a message that an order acknowledgement had completed, when both are true: it arrived, and was
    then refused. Raises ValueError for a state that is no message's.
    """
    row = class_of(code)
    present = State(state)
    if row is None:
        return None
    if row.positive:
        return Consequence(State.DELIVERED) if present in _UNSETTLED else None
    if present in _UNSETTLED or (present is State.DELIVERED and row.sequenced):
        return Consequence(State.FAILED, f"final_{row.name}", bridge=present in _IN_FLIGHT and not row.sequenced)
    return None


def confirmation_due(acknowledged_at: datetime, within: timedelta) -> datetime:
    """Until when a final acknowledgement may come; from then on the message is in doubt, `UNCONFIRMED` (M36)."""
    return acknowledged_at + within


# Messages outside of a stream ([MS-MQQB] 3.1.1.3, MessageIDHistory; protocols 3.2).
HISTORY_LIFE = timedelta(minutes=30)


def seen_before(seen_at: datetime | None, now: datetime) -> bool:
    """Whether a message outside of any stream is a repeat. `seen_at`: when its id was last seen, None if never.

    Either way the caller keeps `now` as the id's new time: a repeat refreshes it (M41).
    """
    return seen_at is not None and now - seen_at <= HISTORY_LIFE


@dataclass(frozen=True, slots=True)
class Timing:
    """OrderAckTimeout and MaximumOrderAckDelay (protocols 3.2)."""

    order_ack_timeout: timedelta = timedelta(milliseconds=500)
    max_order_ack_delay: timedelta = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Timer:
    """`due_at`: when the timer ends, None while it is inactive. `last_sent_at`: LastOrderAckSendTime, None before the
    first.
    """

    due_at: datetime | None = None
    last_sent_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class OrderAck:
    """All messages of the stream up to `number` are stored ([MS-MQQB] 2.2.4; its Class is 0x00FF)."""

    tx_sequence_id: int
    number: int

    @property
    def previous(self) -> int:
        """TxPreviousSequenceNumber: always the number before ([MS-MQQB] 2.2.4.1; M24)."""
        return self.number - 1


@dataclass(frozen=True, slots=True)
class Due:
    """The timer after it was looked at, and what to send now, if anything."""

    timer: Timer
    order_ack: OrderAck | None = None


def on_message(timer: Timer, now: datetime, timing: Timing, *, requested: bool = False) -> Timer:
    """The timer after a message of the stream, accepted or not. `requested`: it asks for its receipt at once.

    Inactive: started. Active and the last acknowledgement is younger than MaximumOrderAckDelay: restarted. Active and
    it is older, or there was none: left alone (M21, M22). Nor does a message restart a timer that has run out, for its
    acknowledgement is about to be sent.
    """
    if timer.due_at is not None and timer.due_at <= now:
        return timer
    if requested:
        return replace(timer, due_at=now)
    if timer.due_at is not None and not _sent_lately(timer, now, timing):
        return timer
    return replace(timer, due_at=now + timing.order_ack_timeout)


def _sent_lately(timer: Timer, now: datetime, timing: Timing) -> bool:
    return timer.last_sent_at is not None and now - timer.last_sent_at < timing.max_order_ack_delay


def on_due(timer: Timer, now: datetime, incoming: Incoming, *, open: bool = True) -> Due:
    """What follows when the timer may have run out. `open`: there is a way to send it; False is M23's closed session.

    It says what is accepted now: the id is the incoming one ([MS-MQQB] 2.2.4.1 over 3.1.7.17). While nothing is
    accepted there is nothing to say, since numbers begin with 1 (protocols 3.3).
    """
    if timer.due_at is None or timer.due_at > now:
        return Due(timer)
    off = replace(timer, due_at=None)
    if not open or incoming.number < FIRST_NUMBER:
        return Due(off)
    return Due(replace(off, last_sent_at=now), OrderAck(incoming.tx_sequence_id, incoming.number))
