"""What became of transmissions of a stream: the third step, after claim and talk.

That the partner took the bytes says nothing about their place in the stream; its order acknowledgement does.

Ends of life (protocols 3.4): of a message that was never sent, of one that may have arrived, of a lease, of the wait
for a final receipt.

What people do to a stream and its messages. `operating` has the records of it: audit entry, events, incidents.

New streams after the database became an older one (`engine.memory`).

A restored database has numbers before it that the partner has accepted already. Under them it would discard messages,
and acknowledge them. So every stream that goes out begins anew, and what was in flight is numbered again under its old
MessageIds, by which the partner finds repeats.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction

from messaging import dispatch
from messaging.choices import MessageState
from messaging.claim import Claim, Job
from messaging.journal import events, incidents
from messaging.models import Event, Message, OutgoingStream, Pair
from messaging.models.bulk import bulk_set, read
from messaging.profiles.repeatable.repeating import pairs_if_free
from messaging.profiles.stream import in_flight
from messaging.profiles.stream.in_flight import Ending, Flight, Row
from messaging.protocol.messages import Happened, move_stream
from messaging.protocol.pair_state import Kind as Verb
from messaging.protocol.streams.envelope import first_id
from messaging.protocol.streams.final import UNCONFIRMED
from messaging.protocol.streams.outgoing import Event as StreamEvent
from messaging.protocol.streams.outgoing import Kind, expired
from messaging.transports import Receipt
from partners import registry
from partners.terms import Terms
from rmhub import clock


def record(
    outcomes: Sequence[tuple[Job, Receipt]], pairs: Mapping[uuid.UUID, Pair], now: datetime, written: list[Event]
) -> dict[uuid.UUID, str]:
    """Moves messages and their locked pairs. Returns the transmissions that moved something, each with its cause.

    An outcome that comes after its lease ran out, or after an order acknowledgement overtook it, moves nothing.
    """
    wanted = {job.pair_id for job, _ in outcomes}
    found = in_flight.load((pair for pair in pairs.values() if pair.pk in wanted), now)
    for loaded in found.values():
        loaded.patient = True
    rows = {row.pk: (flight, row) for flight in found.values() for row in flight.rows.values()}
    moved: dict[uuid.UUID, str] = {}
    troubles: list[tuple[Pair, Job, Receipt]] = []
    for job, receipt in outcomes:
        flight, row = rows.get(job.message_id, (None, None)) if job.message_id else (None, None)
        if flight is None or row is None or row.state != MessageState.SENDING or row.attempts != job.number:
            continue
        moved[job.transmission_id] = _record(flight, row, receipt, now)
        if receipt.permanent:
            troubles.append((flight.pair, job, receipt))
    written += in_flight.finish(found.values(), now)
    for pair, job, receipt in troubles:
        # It is tried again all the same, but a person should see it at once.
        _, opened = incidents.incident_open(
            pair=pair, cause=receipt.cause, now=now, detail=receipt.detail, message_pk=job.message_id
        )
        written += opened
    return moved


def _record(flight: Flight, row: Row, receipt: Receipt, now: datetime) -> str:
    """One outcome that counts. Returns the transmission's cause code."""
    if receipt.ok:
        row.cause = row.detail = ""
        flight.advance(StreamEvent(kind=Kind.SENT, number=row.number), now)
        return ""
    # 503 with a time: what comes before it is not there yet. Without one it may be a proxy with nothing behind it.
    patience = receipt.status == 429 or (receipt.status == 503 and receipt.retry_after is not None)
    kind, cause = (Kind.NOT_TAKEN, "not_taken_now") if patience else (Kind.TRANSPORT_FAILED, receipt.cause)
    row.cause, row.detail, flight.detail = cause, receipt.detail, receipt.detail
    flight.advance(StreamEvent(kind=kind, number=row.number, cause=cause, retry_after=receipt.retry_after), now)
    if flight.pair.probing and kind is Kind.TRANSPORT_FAILED:
        flight.advance(StreamEvent(kind=Kind.SUSPEND, cause=cause), now)
    return cause


LOOKED_BACK = timedelta(hours=1)
_DEAD = Ending(
    Happened.GAVE_UP,
    "message.failed",
    "expired",
    "Its life ended before it could be sent.",
    incident=True,
    data={"class": "reach_queue_timeout"},
)
_RESTARTED = Ending(
    Happened.DOUBTED,
    "message.in_doubt",
    "expired_unconfirmed",
    "It was sent under a stream that was restarted, and its life ended before it was sent again.",
    incident=True,
)


def living(flight: Flight, queue: Iterable[Message], now: datetime) -> Iterator[Message]:
    """Those of the head of the queue that may still be sent; the others leave it and use no number (M29)."""
    for message in queue:
        if expired(message.expires_at, now):
            flight.bury(_RESTARTED if message.first_sent_at else _DEAD, message, now)
        else:
            yield message


def end_due(messages: Sequence[Message], claim: Claim) -> None:
    """Messages of streams whose own timer has run out: a lease, a life, or the wait for a final receipt.

    A pair's lock comes before a message's everywhere else, so here it is only tried: the messages of a pair that
    somebody holds stay due, for the next claim.
    """
    now = claim.now
    pairs = pairs_if_free(message.pair_id for message in messages)
    found = in_flight.load(pairs.values(), now)
    unconfirmed: list[Message] = []
    for message in messages:
        flight = found.get(message.pair_id)
        if message.pair_id not in pairs:
            continue
        if message.state == MessageState.CONFIRMING:
            unconfirmed.append(message)
        elif flight is None or message.sequence_number not in flight.rows:
            continue
        elif message.state == MessageState.SENDING:
            flight.rows[message.sequence_number].cause = "worker_lost"
            flight.advance(StreamEvent(kind=Kind.LEASE_OVER, number=message.sequence_number, cause="worker_lost"), now)
        elif expired(message.expires_at, now):
            flight.advance(StreamEvent(kind=Kind.EXPIRED, numbers=(message.sequence_number,)), now)
    for message in unconfirmed:
        message.state = move_stream(message.state, Happened.DOUBTED)
        message.cause, message.due_at = UNCONFIRMED, None
        message.cause_detail = "The partner's queue has it, and no final receipt came in the time that is agreed."
    bulk_set(unconfirmed, ("state", "cause", "cause_detail", "due_at"))
    claim.written += in_flight.finish(found.values(), now)
    for message in unconfirmed:
        pair, detail = pairs[message.pair_id], message.cause_detail
        data = {"cause": UNCONFIRMED, "detail": detail, "attempts": message.attempts}
        claim.written.append(events.event("message.in_doubt", now, pair=pair, message=message, data=data))
        _, opened = incidents.incident_open(pair=pair, cause=UNCONFIRMED, now=now, detail=detail, message_pk=message.pk)
        claim.written += opened
    if any(pair.due_at is not None and pair.due_at <= now for pair in pairs.values()):
        dispatch.wake_on_commit(dispatch.SEND)


def expire_waiting() -> int:
    """Dead letters among what waits on pairs that are shut or stuck: their applications are told when it happens.

    Returns how many. What is missed here (nobody looked for an hour) is found when its turn to be sent comes.
    """
    now = clock.now()
    rows = read(
        Message,
        "SELECT id, pair_id FROM messaging_message WHERE expires_at > %s AND expires_at <= %s AND state = 'queued'"
        " AND direction = 'out' ORDER BY expires_at LIMIT 5000",
        [now - LOOKED_BACK, now],
    )
    by_pair: dict[uuid.UUID, list[uuid.UUID]] = {}
    for row in rows:
        by_pair.setdefault(row.pair_id, []).append(row.pk)
    return sum(_expire_waiting(pair_id, keys, now) for pair_id, keys in by_pair.items())


def _expire_waiting(pair_id: uuid.UUID, keys: list[uuid.UUID], now: datetime) -> int:
    with transaction.atomic():
        pair = Pair.locked([pair_id])[pair_id]
        waiting = Message.objects.filter(pk__in=keys, state=MessageState.QUEUED, due_at__isnull=True)
        queue = list(waiting.order_by("position"))
        if not queue:
            return 0
        terms = registry.current().version(queue[0].agreement_version_id)
        flight = in_flight.load([pair], now, {pair_id: terms})[pair_id]
        left = len(list(living(flight, queue, now)))
        events.write(in_flight.finish([flight], now))
    return len(queue) - left


_KINDS: Mapping[Verb, Kind] = {
    Verb.RESUME: Kind.RESUME,
    Verb.RETRY_NOW: Kind.RETRY_NOW,
    Verb.SKIP: Kind.SKIP,
    Verb.RESTART: Kind.RESTART,
}


def act(pair: Pair, verb: Verb, terms: Terms, reason: str, now: datetime) -> tuple[list[Event], str]:
    """One verb on a locked pair; returns the events, and the MessageId of what was skipped.

    resume, retry now: everything that is not on the wire goes out again, in order. skip: the first message in flight is
    given up and bridged; the pair goes on. restart: a new stream id, and what is not acknowledged gets new numbers
    under it, with its old MessageIds. Raises IllegalTransition.
    """
    flight = in_flight.load([pair], now, {pair.pk: terms})[pair.pk]
    skipped = ""
    if verb is Verb.SKIP and flight.state.flight:
        number = flight.state.flight[0].number
        flight.endings[number] = Ending(Happened.SKIPPED, "message.skipped", data={"reason": reason})
        skipped = flight.rows[number].message_id
    flight.advance(StreamEvent(kind=_KINDS[verb]), now)
    return in_flight.finish([flight], now), skipped


def cancel(pair: Pair, message: Message, terms: Terms, reason: str, now: datetime) -> list[Event]:
    """Takes back a message that waits, or one in flight that is not on the wire, which what follows it bridges.

    Call with both locked; saves both. Raises IllegalTransition.
    """
    flight = in_flight.load([pair], now, {pair.pk: terms})[pair.pk]
    ending = Ending(Happened.CANCELLED, "message.cancelled", data={"reason": reason})
    move_stream(message.state, Happened.CANCELLED)  # refused before anything is changed
    if message.state == MessageState.QUEUED:
        flight.bury(ending, message, now)
    else:
        assert message.sequence_number is not None
        flight.end(ending, now, message.sequence_number, bridge=True)
    written = in_flight.finish([flight], now)
    message.refresh_from_db(fields=["state", "due_at", "completed_at", "cause", "cause_detail"])
    return written


def begin_anew(now: datetime) -> int:
    """Gives every outgoing stream a new id; returns how many there are. Call inside a transaction."""
    streams = {found.pair_id: found for found in OutgoingStream.objects.all()}
    pairs = Pair.locked(streams)
    found = in_flight.load(pairs.values(), now)
    for flight in found.values():
        for row in flight.rows.values():
            if row.state == MessageState.SENDING:
                row.state = move_stream(row.state, Happened.WILL_RETRY)
        flight.advance(StreamEvent(kind=Kind.FORGOTTEN), now)
    events.write(in_flight.finish(found.values(), now))
    empty = [stream for pair_id, stream in streams.items() if pair_id not in found]
    for stream in empty:
        # Numeric columns come back as Decimal.
        stream.tx_sequence_id = first_id(now, int(stream.tx_sequence_id))
        stream.next_number, stream.acked_number, stream.resend_index = 1, 0, 0
        stream.started_at, stream.last_ack_at = now, None
    bulk_set(empty, in_flight.STREAM_FIELDS)
    return len(streams)
