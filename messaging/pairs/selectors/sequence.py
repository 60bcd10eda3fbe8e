"""The numbers of a pair as a strip: what is delivered, what blocks, what waits; gaps, and dropped copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from messaging import profile
from messaging.choices import Direction, MessageState
from messaging.models import Message, Pair
from messaging.pairs.selectors import pairs
from messaging.pairs.selectors.streams import StreamState, flight
from messaging.protocol.pair_state import Flow
from messaging.protocol.sender import next_sequence
from partners.terms import Terms

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
    "delivered": ("D", "delivered"),
    "blocking": ("X", "blocks the others"),
    "flying": ("→", "on its way"),
    "waiting": ("w", "waits"),
    "dropped": ("–", "taken out"),
    "doubt": ("?", "in doubt"),
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


@dataclass(frozen=True, slots=True)
class Sequence:
    """`applies`: the pair has sequence numbers. `next_number`: given, or expected, next. `acknowledged`: the highest
    number known to have arrived in this sequence; 0 = none. `gaps`: (first, last) numbers between the shown messages
    that no message has. `waiting`: how many wait in all. `duplicates`, `refused`: since the pair exists.
    """

    applies: bool
    next_number: int = 1
    acknowledged: int = 0
    cells: list[Cell] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
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
    gaps = _gaps([cell.number for cell in done])
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
            gaps.append((previous + 1, number - 1))
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


def _gaps(numbers: list[int]) -> list[tuple[int, int]]:
    """Numbers that were passed over between one message and the next; a restart at 1 is none."""
    found = []
    for before, number in pairwise(numbers):
        if number > before + 1:
            found.append((before + 1, number - 1))
    return found
