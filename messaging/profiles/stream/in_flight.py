"""Messages of a pair's stream that are in flight: rows to the core's values and back, under the pair's lock.

`load`, then any number of `advance` (the core's steps, in memory), then `finish`, which writes everything: rows first,
incidents last, because claims that hold rows of messages open incidents too (see `recording.record`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby

from django.db import connection

from messaging.choices import MessageState
from messaging.engine import circuits, pairs
from messaging.engine.snapshots import REPEATABLE_FIELDS, stream_policy
from messaging.journal import events, incidents
from messaging.models import Event, Message, OutgoingStream, Pair
from messaging.models.bulk import bulk_insert, bulk_set, read
from messaging.profile import of, terms_in_force
from messaging.protocol.messages import Happened, move_stream
from messaging.protocol.pair_state import Flow as PairFlow
from messaging.protocol.pair_state import Gate
from messaging.protocol.streams.final import confirmation_due
from messaging.protocol.streams.outgoing import (
    Act,
    Do,
    Flow,
    InFlight,
    Kind,
    Outgoing,
    Place,
    Policy,
    new_stream,
    next_due,
    room,
    step,
)
from messaging.protocol.streams.outgoing import Event as StreamEvent
from messaging.routing.services import upstream
from partners import registry
from partners.terms import Terms

PLACES = {
    MessageState.SENDING.value: Place.ON_WIRE,
    MessageState.AWAITING_ACK.value: Place.WAITING,
    MessageState.RETRYING.value: Place.TO_RESEND,
}
_IN_FLIGHT = (
    "SELECT pair_id, id, message_id, sequence_number, COALESCE(previous_number, sequence_number - 1), state, due_at,"
    " expires_at, attempts, cause, cause_detail, agreement_version_id, forwarded_from_id FROM messaging_message"
    " WHERE pair_id = ANY(%s) AND direction = 'out'"
    " AND standing = 'open' AND state <> 'queued' AND tx_sequence_id IS NOT NULL"
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
    traceparent: str = ""  # of the order acknowledgement that moved it (`messaging.tracing`)

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
            row = Row(*found)
            rows.setdefault(pair_id, {})[row.number] = row
    wanted = rows.keys() | (heads.keys() & known.keys())
    streams = {found.pair_id: found for found in read(OutgoingStream, _STREAMS, [list(wanted)])} if wanted else {}
    return {
        pair_id: _flight(known[pair_id], streams.get(pair_id), rows.get(pair_id, {}), heads.get(pair_id), now)
        for pair_id in wanted
    }


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


STREAM_FIELDS = ("tx_sequence_id", "next_number", "acked_number", "resend_index", "started_at", "last_ack_at")
ROW_FIELDS = ("state", "due_at", "cause", "cause_detail", "completed_at")
UNACKNOWLEDGED = "stream_unacknowledged"
# So long what came free is waited for, so that one claim serves several.
SOON = timedelta(milliseconds=20)
WORTH_IT = 4  # a claim for that part of the slots
_STATES = {place: MessageState(state) for state, place in PLACES.items()}
_MOVES = {
    Place.ON_WIRE: Happened.TRANSMITTED,
    Place.WAITING: Happened.HANDED_OVER,
    Place.TO_RESEND: Happened.WILL_RETRY,
}


def finish(flights: Iterable[Flight], now: datetime) -> list[Event]:
    """Writes rows, pairs and streams, then incidents; returns the events. The pairs are due as the core says."""
    all_of = list(flights)
    written: list[Event] = []
    later: list[tuple[Flight, Ending, Sequence[Row]]] = []
    changed: list[Message] = []
    ended_rows: list[Row] = []
    requeued: list[uuid.UUID] = []
    for flight in all_of:
        left, ended = _left(flight)
        for row, happened in left:
            row.state = move_stream(row.state, happened)
            changed.append(_ended(row, happened, now))
            ended_rows.append(row)
            if happened is Happened.REQUEUED:
                requeued.append(row.pk)
        delivered = [row for row, happened in left if happened in (Happened.ACKNOWLEDGED, Happened.STORED)]
        written += _delivered(flight, delivered, now)
        later += [(flight, ending, rows) for ending, rows in ended]
        for ending, group in groupby(flight.buried, lambda one: one[0]):
            buried = [row for _, row in group]
            for row in buried:
                row.state = move_stream(row.state, ending.happened)
                changed.append(_ended(row, ending.happened, now))
                ended_rows.append(row)
            later.append((flight, ending, buried))
        changed += _moved(flight)
    bulk_set(changed, ROW_FIELDS)
    upstream.onward_ended([(row.came_as, row.state) for row in ended_rows], now)
    if requeued:
        _without_numbers(requeued)
    for flight in all_of:
        written += _apply(flight, now)
    for flight, ending, rows in later:
        written += _tell(flight.pair, ending, rows, now)
    for flight in all_of:
        written += _consequences(flight, now)
    bulk_insert([flight.stream for flight in all_of if flight.made])
    bulk_set([flight.stream for flight in all_of if flight.turned and not flight.made], STREAM_FIELDS)
    bulk_set([flight.pair for flight in all_of], REPEATABLE_FIELDS)
    for flight in all_of:
        flight.made = flight.turned = False
        for done in (flight.acts, flight.endings, flight.buried):
            done.clear()
    return written


def _left(flight: Flight) -> tuple[list[tuple[Row, Happened]], list[tuple[Ending, list[Row]]]]:
    """The rows that are no longer in flight, each with what happened; and the endings that have to be told."""
    left: list[tuple[Row, Happened]] = []
    ended: dict[int, tuple[Ending, list[Row]]] = {}
    for act in flight.acts:
        row = flight.rows.get(act.number)
        if row is None:
            continue
        if act.do is Do.COMPLETE:
            awaits_more = registry.current().version(row.version_id).final_receipt
            left.append((row, Happened.STORED if awaits_more else Happened.ACKNOWLEDGED))
        elif act.do is Do.REQUEUE:
            left.append((row, Happened.REQUEUED))
        elif act.do in (Do.EXPIRE, Do.DROP):
            ending = EXPIRED if act.do is Do.EXPIRE else flight.endings[row.number]
            left.append((row, ending.happened))
            row.cause, row.detail = ending.cause, ending.detail or _sent(row)
            if ending.happened is not Happened.ACKNOWLEDGED:  # that is told with what an order acknowledgement ends
                ended.setdefault(id(ending), (ending, []))[1].append(row)
        else:
            continue
        del flight.rows[act.number]
    return left, list(ended.values())


EXPIRED = Ending(Happened.DOUBTED, "message.in_doubt", "expired_unconfirmed", incident=True)


def _sent(row: Row) -> str:
    times = "once" if row.attempts == 1 else f"{row.attempts} times"
    until = f"; its life ended at {row.expires_at:%Y-%m-%d %H:%M:%S} UTC" if row.expires_at else ""
    return f"Sent {times} under number {row.number}{until}."


def _ended(row: Row, happened: Happened, now: datetime) -> Message:
    """The row as it is stored, out of the flight."""
    good = happened in (Happened.ACKNOWLEDGED, Happened.STORED, Happened.REQUEUED)
    over = happened not in (Happened.STORED, Happened.REQUEUED, Happened.DOUBTED)
    due_at = None
    if happened is Happened.STORED:
        within = timedelta(seconds=registry.current().version(row.version_id).final_receipt_within)
        due_at = confirmation_due(now, within)
    return Message(
        pk=row.pk,
        state=row.state,
        due_at=due_at,
        cause="" if good else row.cause,
        cause_detail="" if good else row.detail,
        completed_at=now if over else None,
    )


def _delivered(flight: Flight, rows: Sequence[Row], now: datetime) -> list[Event]:
    done = [row for row in rows if row.state == MessageState.DELIVERED]
    if rows:
        flight.pair.last_success_at = now
        if flight.pair.probing:
            flight.pair.probing = False
            flight.policy = stream_policy(flight.terms)
    flight.pair.done += len(done)
    said = [(row, {"attempts": row.attempts}) for row in done]
    return [_event("message.delivered", flight.pair, row, data, now, flight.traceparent) for row, data in said]


def _event(kind: str, pair: Pair, row: Row, data: Mapping[str, object], now: datetime, traceparent: str = "") -> Event:
    message = Message(
        pk=row.pk,
        message_id=row.message_id,
        agreement_version_id=row.version_id,
        sequence_number=row.number or None,
    )
    return events.event(kind, now, pair=pair, message=message, data=data, traceparent=traceparent)


def _moved(flight: Flight) -> list[Message]:
    """The rows that are still in flight and have another place, or another time."""
    found = []
    for under_way in flight.state.flight:
        row = flight.rows[under_way.number]
        state, due_at = _STATES[under_way.place], under_way.due_at
        if under_way.place is Place.WAITING:
            due_at = under_way.expires_at
        if not row.changed and row.state == state and row.due_at == due_at:
            continue
        if row.state != state:
            row.state = move_stream(row.state, _MOVES[under_way.place])
        row.due_at = due_at
        found.append(Message(pk=row.pk, state=row.state, due_at=due_at, cause=row.cause, cause_detail=row.detail))
    return found


def _without_numbers(keys: list[uuid.UUID]) -> None:
    """Back in the queue, at their old places: numbers and octets are made anew. What was sent is remembered."""
    Message.objects.filter(pk__in=keys).update(
        sequence_number=None, tx_sequence_id=None, previous_number=None, wire_frame=None, content_type="", digest=""
    )


def _apply(flight: Flight, now: datetime) -> list[Event]:
    """The core's state into the rows of pair and stream."""
    pair, stream, state = flight.pair, flight.stream, flight.state
    flow = PairFlow.SUSPENDED if state.flow is Flow.SUSPENDED else PairFlow.IDLE
    if pair.flow != flow:
        pair.changed_at = now
        pair.version += 1
    healed = pair.cause if pair.cause and not state.cause else ""
    pair.flow = flow.value
    pair.queued = state.queued
    pair.out_now = len(state.flight)
    used, pair.retries = pair.retries, state.resend_index
    told = circuits.told(pair, used, flight.policy.retries, now)
    pair.transport_attempts = state.transport_attempts
    pair.holding_since = state.holding_since
    pair.cause = state.cause
    pair.cause_detail = (flight.detail or pair.cause_detail)[:2000] if state.cause else ""
    # Behind a closed gate no claim looks; when a person opens it, the time is there.
    pair.due_at = next_due(replace(state, open=True), now, flight.policy)
    if flight.patient and pair.due_at == now and _fills_soon(flight):
        pair.due_at = now + SOON
    began = stream.started_at if int(stream.tx_sequence_id) == state.tx_sequence_id else now
    values = (state.tx_sequence_id, state.next_number, state.acked, state.resend_index, began, state.waiting_since)
    for name, value in zip(STREAM_FIELDS, values, strict=True):
        if getattr(stream, name) != value:
            setattr(stream, name, value)
            flight.turned = True
    if not healed or flow is PairFlow.SUSPENDED:
        return told
    resolution = "The partner acknowledges the stream again."
    return told + incidents.incidents_resolve_for_pair(
        pair=pair, now=now, by="system", resolution=resolution, causes=(healed, UNACKNOWLEDGED)
    )


def _fills_soon(flight: Flight) -> bool:
    """One claim for several free slots costs little more than one for one: while others are on the wire, a few are not
    worth it. Their outcomes make the pair due at once; if those take long, the sweep does.
    """
    state, policy = flight.state, flight.policy
    free = room(state, policy)
    on_wire = any(under_way.place is Place.ON_WIRE for under_way in state.flight)
    return on_wire and 0 < free < min(policy.concurrency // WORTH_IT, state.queued)


def _tell(pair: Pair, ending: Ending, rows: Sequence[Row], now: datetime) -> list[Event]:
    written = [
        _event(
            ending.kind,
            pair,
            row,
            {
                **({"cause": row.cause, "detail": row.detail} if row.cause else {}),
                "attempts": row.attempts,
                **ending.data,
            },
            now,
        )
        for row in rows
    ]
    if ending.incident:
        detail = rows[-1].detail if len(rows) == 1 else f"{len(rows)} messages. {rows[-1].detail}"
        _, opened = incidents.incident_open(
            pair=pair, cause=ending.cause, now=now, detail=detail, message_pk=rows[-1].pk
        )
        written += opened
    return written


def _consequences(flight: Flight, now: datetime) -> list[Event]:
    written: list[Event] = []
    asked = {act.do for act in flight.acts}
    if Do.GIVE_UP in asked:
        oldest = flight.rows[min(flight.rows)].pk if flight.rows else None
        about = flight.about or oldest
        written += pairs.give_up(flight.pair, Message(pk=about) if about else None, now)
    if Do.ALERT in asked:
        _, opened = incidents.incident_open(
            pair=flight.pair, cause="transient_ceiling", now=now, detail=flight.pair.cause_detail
        )
        written += opened
    return written
