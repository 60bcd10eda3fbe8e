"""Transactional streams as people look at them: what is sent under, and how far each sender is (spec 3)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import QuerySet

from messaging import profile
from messaging.choices import Direction, MessageState
from messaging.models import IncomingStream, Message, OutgoingStream, Pair
from messaging.protocol.pair_state import Flow, Gate
from messaging.protocol.streams.envelope import split_id
from partners.terms import Terms

# Without an acknowledgement and under a number.
IN_FLIGHT = (MessageState.SENDING, MessageState.AWAITING_ACK, MessageState.RETRYING)
_MOST_SOURCES = 50
_MOST = 10_000  # nobody reads an exact number beyond this


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The stream that a pair sends under. Times are instants, `waits` seconds.

    `next_resend_at`: when all that is unacknowledged goes out again; None when nothing is, or the pair is held.
    `confirming` stops at 10,000.
    """

    stream: OutgoingStream
    in_flight: int
    window: int
    lanes: int
    waits: tuple[int, ...]
    next_resend_at: datetime | None
    oldest: Message | None
    confirming: int

    @property
    def tx_sequence_id(self) -> int:
        return int(self.stream.tx_sequence_id)

    @property
    def ordinal(self) -> int:
        """How many streams came before under the same time stamp."""
        return split_id(self.tx_sequence_id)[1]


@dataclass(frozen=True, slots=True)
class StreamState:
    """All that a pair's page shows of streams; `applies` is False for a pair that has none."""

    outgoing: Outgoing | None = None
    incoming: list[IncomingStream] = field(default_factory=list)
    more_sources: bool = False
    applies: bool = False


def stream_state(pair: Pair, terms: Terms | None) -> StreamState:
    """Of one pair; at most three queries for a pair of the profile `stream`, none for others."""
    if terms is None or not profile.carried(pair, terms).windowed:
        return StreamState()
    if pair.direction == Direction.IN:
        rows = list(incoming(pair.pk)[: _MOST_SOURCES + 1])
        return StreamState(incoming=rows[:_MOST_SOURCES], more_sources=len(rows) > _MOST_SOURCES, applies=True)
    stream = OutgoingStream.objects.filter(pair=pair.pk).first()
    return StreamState(outgoing=_outgoing(pair, stream, terms) if stream is not None else None, applies=True)


def incoming(pair_id: uuid.UUID) -> QuerySet[IncomingStream]:
    """How far each sender of an inbound pair is, the one that sent last first."""
    return IncomingStream.objects.filter(pair=pair_id).order_by("-last_access_at", "id")


def flight(pair_id: uuid.UUID) -> QuerySet[Message]:
    """The messages of a pair that went out under a number and are not acknowledged, in the order of the stream."""
    found = Message.objects.filter(
        pair=pair_id, direction=Direction.OUT, state__in=IN_FLIGHT, tx_sequence_id__isnull=False
    )
    return found.defer("wire_frame").order_by("tx_sequence_id", "sequence_number")


def _outgoing(pair: Pair, stream: OutgoingStream, terms: Terms) -> Outgoing:
    unacknowledged = list(flight(stream.pair_id)[: terms.max_in_flight])
    waits = terms.resend_schedule
    resend_at = None
    runs = pair.gate == Gate.OPEN and pair.flow != Flow.SUSPENDED and stream.last_ack_at is not None
    # While all of it is on the wire nobody could have acknowledged it.
    if runs and any(row.state != MessageState.SENDING for row in unacknowledged):
        assert stream.last_ack_at is not None
        resend_at = stream.last_ack_at + timedelta(seconds=waits[min(stream.resend_index, len(waits) - 1)])
    confirming = 0
    if terms.final_receipt:
        confirming = Message.objects.filter(pair=pair.pk, state=MessageState.CONFIRMING)[:_MOST].count()
    return Outgoing(
        stream=stream,
        in_flight=len(unacknowledged),
        window=terms.max_in_flight,
        lanes=terms.stream_lanes,
        waits=waits,
        next_resend_at=resend_at,
        oldest=unacknowledged[0] if unacknowledged else None,
        confirming=confirming,
    )
