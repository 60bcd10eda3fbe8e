"""Ends of life (protocols 3.4): of a message that was never sent, of one that may have arrived, of a lease, of the wait
for a final receipt.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from django.db import transaction

from messaging import dispatch
from messaging.choices import MessageState
from messaging.engine.parcels import Claim
from messaging.journal import events, incidents
from messaging.models import Message, Pair
from messaging.models.bulk import bulk_set
from messaging.profiles.stream import flights, landing
from messaging.profiles.stream.flights import Ending, Flight
from messaging.protocol.messages import Happened, move_stream
from messaging.protocol.streams.final import UNCONFIRMED
from messaging.protocol.streams.outgoing import Event, Kind, expired
from partners import registry
from rmhub import clock

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
    pairs = _pairs_if_free(message.pair_id for message in messages)
    found = flights.load(pairs.values(), now)
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
            flight.advance(Event(kind=Kind.LEASE_OVER, number=message.sequence_number, cause="worker_lost"), now)
        elif expired(message.expires_at, now):
            flight.advance(Event(kind=Kind.EXPIRED, numbers=(message.sequence_number,)), now)
    for message in unconfirmed:
        message.state = move_stream(message.state, Happened.DOUBTED)
        message.cause, message.due_at = UNCONFIRMED, None
        message.cause_detail = "The partner's queue has it, and no final receipt came in the time that is agreed."
    bulk_set(unconfirmed, ("state", "cause", "cause_detail", "due_at"))
    claim.written += landing.finish(found.values(), now)
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
    rows = Message.objects.raw(
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
        flight = flights.load([pair], now, {pair_id: terms})[pair_id]
        left = len(list(living(flight, queue, now)))
        events.write(landing.finish([flight], now))
    return len(queue) - left


def _pairs_if_free(pair_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Pair]:
    rows = Pair.objects.raw(
        "SELECT * FROM messaging_pair WHERE id = ANY(%s) ORDER BY id FOR UPDATE SKIP LOCKED", [list(set(pair_ids))]
    )
    return {pair.pk: pair for pair in rows}
