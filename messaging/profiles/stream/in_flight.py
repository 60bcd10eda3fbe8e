"""Messages of a pair's stream that are in flight: rows to the core's values, under the pair's lock.

`load`, then any number of `advance` (the core's steps, in memory), then `saving.finish`, which writes everything.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection

from messaging.choices import MessageState
from messaging.engine.snapshots import stream_policy
from messaging.models import Message, OutgoingStream, Pair
from messaging.profile import of, terms_in_force
from messaging.protocol.messages import Happened
from messaging.protocol.pair_state import Flow as PairFlow
from messaging.protocol.pair_state import Gate
from messaging.protocol.streams.outgoing import Act, Do, Flow, InFlight, Kind, Outgoing, Place, Policy, new_stream, step
from messaging.protocol.streams.outgoing import Event as StreamEvent
from partners import registry
from partners.terms import Terms

PLACES = {
    MessageState.SENDING.value: Place.ON_WIRE,
    MessageState.AWAITING_ACK.value: Place.WAITING,
    MessageState.RETRYING.value: Place.TO_RESEND,
}
_IN_FLIGHT = (
    "SELECT pair_id, id, message_id, sequence_number, previous_number, state, due_at, expires_at, attempts, cause,"
    " cause_detail, agreement_version_id, forwarded_from_id FROM messaging_message"
    " WHERE pair_id = ANY(%s) AND direction = 'out'"
    " AND state IN ('sending', 'awaiting_ack', 'retrying') AND tx_sequence_id IS NOT NULL"
    " ORDER BY pair_id, tx_sequence_id, sequence_number"
)

_STREAMS = "SELECT * FROM messaging_outgoingstream WHERE pair_id = ANY(%s)"


@dataclass(slots=True)
class Row:
    """What a stream needs to know of one message in flight."""

    pk: uuid.UUID
    message_id: str
    number: int
    previous: int
    state: str
    due_at: datetime | None
    expires_at: datetime | None
    attempts: int
    cause: str
    detail: str
    version_id: uuid.UUID
    came_as: uuid.UUID | None = None  # of one that is passed on
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """How a message leaves the flight without an order acknowledgement; `kind` of its event, `data` beside its cause.

    `incident`: somebody has to look at it.
    """

    happened: Happened
    kind: str
    cause: str = ""
    detail: str = ""
    incident: bool = False
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Flight:
    """One locked pair with its stream. `acts` gathers what the core asked for, but transmissions."""

    pair: Pair
    stream: OutgoingStream
    made: bool
    terms: Terms
    policy: Policy
    state: Outgoing
    rows: dict[int, Row]
    acts: list[Act] = field(default_factory=list)
    endings: dict[int, Ending] = field(default_factory=dict)
    buried: list[tuple[Ending, Row]] = field(default_factory=list)  # of the queue: they never got a number
    detail: str = ""  # of the pair's cause, when it gets one
    about: uuid.UUID | None = None  # the message for which it stopped
    patient: bool = False  # slots that are about to come free are waited for
    turned: bool = False  # the stream's row has other values than the database

    def advance(self, event: StreamEvent, now: datetime) -> tuple[Act, ...]:
        """One step of the core, in memory. Raises IllegalTransition for a verb of people that is refused now."""
        moved = step(self.state, event, now, self.policy)
        self.state = moved.state
        self.acts += [act for act in moved.acts if act.do is not Do.TRANSMIT]
        return moved.acts

    def end(self, ending: Ending, now: datetime, *numbers: int, bridge: bool = False) -> None:
        """Takes messages out of the flight. `bridge`: what follows them goes out again at once, leading past them."""
        self.endings |= dict.fromkeys(numbers, ending)
        self.advance(StreamEvent(kind=Kind.DROPPED, numbers=numbers, bridge=bridge), now)

    def bury(self, ending: Ending, message: Message, now: datetime) -> None:
        """Takes a message out of the queue."""
        row = Row(
            pk=message.pk,
            message_id=message.message_id,
            number=0,
            previous=0,
            state=message.state,
            due_at=None,
            expires_at=message.expires_at,
            attempts=message.attempts,
            cause=ending.cause,
            detail=ending.detail,
            version_id=message.agreement_version_id,
            came_as=message.forwarded_from_id,
        )
        self.buried.append((ending, row))
        self.advance(StreamEvent(kind=Kind.DISCARDED, count=1), now)


def load(
    pairs: Iterable[Pair], now: datetime, heads: Mapping[uuid.UUID, Terms] | None = None
) -> dict[uuid.UUID, Flight]:
    """The flights of locked pairs, by pair: of those that have messages of a stream in flight, and of those that
    `heads` names with the terms of what they send next. Two queries.
    """
    heads = heads or {}
    known = {pair.pk: pair for pair in pairs}
    rows: dict[uuid.UUID, dict[int, Row]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_IN_FLIGHT, [list(known)])
        for pair_id, *found in cursor.fetchall():
            row = _row(found)
            rows.setdefault(pair_id, {})[row.number] = row
    wanted = rows.keys() | (heads.keys() & known.keys())
    streams = {found.pair_id: found for found in OutgoingStream.objects.raw(_STREAMS, [list(wanted)])} if wanted else {}
    return {
        pair_id: _flight(known[pair_id], streams.get(pair_id), rows.get(pair_id, {}), heads.get(pair_id), now)
        for pair_id in wanted
    }


def _row(found: Sequence[Any]) -> Row:
    pk, message_id, number, previous, state, due_at, expires_at, attempts, cause, detail, version_id, came_as = found
    if previous is None:
        previous = number - 1
    return Row(
        pk, message_id, number, previous, state, due_at, expires_at, attempts, cause, detail, version_id, came_as
    )


def _flight(
    pair: Pair, stream: OutgoingStream | None, rows: dict[int, Row], head: Terms | None, now: datetime
) -> Flight:
    made = stream is None
    if stream is None:
        begun = new_stream(now)
        stream = OutgoingStream(
            pair=pair, source=str(pair.pk), tx_sequence_id=begun.tx_sequence_id, next_number=1, started_at=now
        )
    terms = head or _terms(pair, rows)
    state = Outgoing(
        tx_sequence_id=int(stream.tx_sequence_id),
        next_number=stream.next_number,
        acked=stream.acked_number,
        resend_index=stream.resend_index,
        waiting_since=stream.last_ack_at,
        flow=Flow.SUSPENDED if pair.flow == PairFlow.SUSPENDED else Flow.RUNNING,
        open=pair.gate == Gate.OPEN,
        queued=pair.queued,
        transport_attempts=pair.transport_attempts,
        holding_since=pair.holding_since,
        cause=pair.cause,
        flight=tuple(_in_flight(row) for row in rows.values()),
    )
    return Flight(pair, stream, made, terms, stream_policy(terms, probing=pair.probing), state, rows)


def _terms(pair: Pair, rows: Mapping[int, Row]) -> Terms:
    """Those in force say how the stream is paced; without any, those of its newest message."""
    found = terms_in_force(pair)
    if found is not None and of(found).windowed:
        return found
    newest = rows[max(rows)]
    return registry.current().version(newest.version_id)


def _in_flight(row: Row) -> InFlight:
    place = PLACES[row.state]
    # What waits for an acknowledgement has its expiry there, so that a claim finds it then.
    due_at = None if place is Place.WAITING else row.due_at
    return InFlight(row.number, row.previous, place, due_at, row.expires_at, row.attempts)
