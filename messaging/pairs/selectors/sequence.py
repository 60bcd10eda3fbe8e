"""The numbers of a pair as a strip: what is delivered, what blocks, what waits; gaps, and dropped copies."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from django.db.models import QuerySet

from messaging import profile
from messaging.choices import Direction, MessageState
from messaging.models import IncomingStream, Message, OutgoingStream, Pair
from messaging.models.message import IN_FLIGHT
from messaging.pairs.selectors import pairs
from messaging.protocol.pair_state import Flow, Gate
from messaging.protocol.sender import next_sequence
from messaging.protocol.streams.envelope import split_id
from partners.terms import Terms
from rmhub.language import gettext_lazy

_SHOWN = 8  # cells on each side
_DONE = {
    MessageState.DELIVERED: "delivered",
    MessageState.RECEIVED: "delivered",
    MessageState.CONFIRMING: "delivered",
    MessageState.SENT: "delivered",
    MessageState.SKIPPED: "dropped",
    MessageState.CANCELLED: "dropped",
    MessageState.IN_DOUBT: "doubt",
    MessageState.FAILED: "blocking",
}
WORDS = {
    "delivered": ("D", gettext_lazy("delivered")),
    "blocking": ("X", gettext_lazy("blocks the others")),
    "flying": ("→", gettext_lazy("on its way")),
    "waiting": ("w", gettext_lazy("waits")),
    "dropped": ("–", gettext_lazy("removed")),
    "doubt": ("?", gettext_lazy("in doubt")),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the strip. `number`: its sequence number; of one that waits, the number that it will get if nothing
    is taken out before it. `what`: a key of `WORDS`. `message`: public id.
    """

    number: int
    what: str
    message: str = ""
    name: str = ""

    @property
    def sign(self) -> str:
        return WORDS[self.what][0]

    @property
    def word(self) -> str:
        return WORDS[self.what][1]


class Gap(NamedTuple):
    """Numbers between the messages that are shown, which no message has."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """`applies`: the pair has sequence numbers. `next_number`: given, or expected, next. `acknowledged`: the highest
    number known to have arrived in this sequence; 0 = none. `waiting`: how many wait in all. `duplicates`, `refused`:
    since the pair exists.
    """

    applies: bool
    next_number: int = 1
    acknowledged: int = 0
    cells: list[Cell] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    waiting: int = 0
    last_waiting: int = 0
    duplicates: int = 0
    refused: int = 0


def sequence(pair: Pair, terms: Terms | None, streams: StreamState) -> Sequence:
    """The strip of a pair; at most three queries. Repeatable requests and transactions have no numbers."""
    speaks = profile.carried(pair, terms)
    if not (speaks.numbered or speaks.windowed):
        return Sequence(False, duplicates=pair.duplicates, refused=pair.rejected)
    if speaks.windowed:
        return _of_stream(pair, streams)
    before = Message.objects.filter(pair=pair, sequence_number__isnull=False).order_by("-id")
    if pair.in_flight_id is not None:
        before = before.exclude(pk=pair.in_flight_id)
    done = [_cell(message) for message in list(before.defer("wire_frame")[:_SHOWN])[::-1]]
    cells = list(done)
    # Numbers that were passed over between one message and the next; a restart at 1 is none.
    numbers = pairwise(cell.number for cell in done)
    gaps = [Gap(before + 1, number - 1) for before, number in numbers if number > before + 1]
    if pair.direction == Direction.IN:
        return Sequence(
            True,
            next_number=next_sequence(pair.last_sequence),
            acknowledged=pair.last_sequence,
            cells=cells,
            gaps=gaps,
            duplicates=pair.duplicates,
            refused=pair.rejected,
        )
    number = pair.last_sequence
    if pair.in_flight is not None and pair.in_flight.sequence_number is not None:
        number = pair.in_flight.sequence_number
        stuck = pair.flow == Flow.SUSPENDED or pair.retries > 0 or bool(pair.cause)
        cells.append(_cell(pair.in_flight, "blocking" if stuck else "flying"))
    acknowledged = next((cell.number for cell in reversed(done) if cell.what == "delivered"), 0)
    following = number
    for message in pairs.queue(pair.pk)[:_SHOWN]:
        following = next_sequence(following)
        cells.append(Cell(following, "waiting", message.public_id, message.action))
    return Sequence(
        True,
        next_number=next_sequence(pair.last_sequence),
        acknowledged=acknowledged if acknowledged <= number else 0,
        cells=cells,
        gaps=gaps,
        waiting=pair.queued,
        last_waiting=number + pair.queued if pair.queued else 0,
        duplicates=pair.duplicates,
        refused=pair.rejected,
    )


def _of_stream(pair: Pair, streams: StreamState) -> Sequence:
    out = streams.outgoing
    if pair.direction == Direction.IN:
        newest = streams.incoming[0] if streams.incoming else None
        last = newest.number if newest is not None else 0
        refused = sum(row.reject_count for row in streams.incoming)
        return Sequence(True, last + 1, last, duplicates=pair.duplicates, refused=refused or pair.rejected)
    if out is None:
        return Sequence(True, waiting=pair.queued)
    flying = list(flight(pair.pk)[:_SHOWN])
    stuck = pair.flow == Flow.SUSPENDED or pair.retries > 0
    cells = [_cell(message, "blocking" if stuck and at == 0 else "flying") for at, message in enumerate(flying)]
    gaps = []
    for message in flying:
        previous, number = message.previous_number, message.sequence_number
        if previous is not None and number is not None and 0 < previous < number - 1:
            gaps.append(Gap(previous + 1, number - 1))
    acked = int(out.stream.acked_number)
    head = [Cell(acked, "delivered")] if acked else []
    following = int(out.stream.next_number)
    for message in pairs.queue(pair.pk)[:_SHOWN]:
        cells.append(Cell(following, "waiting", message.public_id, message.action))
        following += 1
    return Sequence(
        True,
        next_number=int(out.stream.next_number),
        acknowledged=acked,
        cells=[*head, *cells],
        gaps=gaps,
        waiting=pair.queued,
        last_waiting=int(out.stream.next_number) + pair.queued - 1 if pair.queued else 0,
        duplicates=pair.duplicates,
        refused=pair.rejected,
    )


def _cell(message: Message, what: str = "") -> Cell:
    state = MessageState(message.state)
    chosen = what or _DONE.get(state, "flying")
    return Cell(int(message.sequence_number or 0), chosen, message.public_id, message.action)


# --- transactional streams: what is sent under, and how far each sender is (spec 3) ---

# Without an acknowledgement and under a number.
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
    concurrency: int
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
        concurrency=terms.stream_concurrency,
        waits=waits,
        next_resend_at=resend_at,
        oldest=unacknowledged[0] if unacknowledged else None,
        confirming=confirming,
    )
