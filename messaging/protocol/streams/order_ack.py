"""When an order acknowledgement is due: the Order Ack Send Timer (spec 3, 3.1.5.8.6; [MS-MQQB] 3.1.2.7, 3.1.6.9).

Acknowledgements are cumulative, so they wait a little for more to acknowledge; but a steady stream must not put them
off for ever. The timer is two instants that are stored; nothing sleeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from messaging.protocol.streams.acceptance import Incoming
from messaging.protocol.streams.numbers import FIRST_NUMBER


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
