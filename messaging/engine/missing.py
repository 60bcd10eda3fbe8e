"""Finds what was claimed for a worker and did not come: its attempts that have no outcome and are not in its hands.

The store has their octets, so the worker sends exactly what was claimed, as the same attempt: a hand-over that is lost
uses up no retry.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from messaging import profile, storage
from messaging.choices import Outcome
from messaging.claim import Job, JobKind, parcel
from messaging.engine import preparing
from messaging.engine.preparing import stored_octets
from messaging.models import Message, Payload, Signal, Transmission
from messaging.protocol.envelope import Pieces
from partners import registry
from partners.terms import Terms
from rmhub import clock

log = logging.getLogger(__name__)

# A hand-over that is older than this counts as lost.
MISSING_AFTER = timedelta(seconds=1.5)
# One that may be sent only once is looked for so long: as long as its worker certainly knows whether it has had it.
ONCE_FOR = timedelta(seconds=30)

# The worker's own attempts that have no outcome, by the partial index `transmission_claimed`, and whether their message
# or signal still waits for it.
_MINE = """
SELECT t.id, CASE WHEN t.signal_id IS NULL
    THEN EXISTS (SELECT FROM messaging_message m
        WHERE m.id = t.message_id AND m.state = 'sending' AND m.attempts = t.number)
    ELSE EXISTS (SELECT FROM messaging_signal s
        WHERE s.id = t.signal_id AND s.state = 'sending' AND s.sends + s.attempts = t.number) END
FROM messaging_transmission t
WHERE t.worker = %s AND t.outcome = 'on_the_wire' AND t.started_at < %s AND t.id <> ALL(%s) LIMIT 500
"""


def missing(worker: int, held: Collection[uuid.UUID]) -> list[Job]:
    """The attempts that were claimed for this worker and are not in its hands (`held`), with the octets of the store.

    What cannot be read any more is left to the end of its lease.
    """
    now = clock.now()
    with connection.cursor() as cursor:
        cursor.execute(_MINE, [worker, now - MISSING_AFTER, list(held)])
        found = dict(cursor.fetchall())
    if not found:
        return []
    wanted = [key for key, waits in found.items() if waits]
    # Answered, skipped or stopped meanwhile: nobody waits for these.
    Transmission.objects.filter(pk__in=found.keys() - set(wanted), outcome=Outcome.ON_THE_WIRE).update(
        outcome=Outcome.LOST,
        cause="worker_lost",
        detail="It did not reach the worker that it was claimed for, and was not needed any more.",
        finished_at=now,
    )
    attempts = Transmission.objects.filter(pk__in=wanted, outcome=Outcome.ON_THE_WIRE).select_related("signal")
    jobs = list(of_store(list(attempts), now))
    log.warning("hand-overs were lost", extra={"action": "hand_over_lost", "attempts": len(jobs)})
    return jobs


def of_store(attempts: Sequence[Transmission], now: datetime) -> Iterator[Job]:
    """What these attempts send, made of the rows."""
    versions = registry.current()
    keys = [attempt.message_id for attempt in attempts if attempt.message_id]
    messages = Message.objects.in_bulk(keys)
    payloads = Payload.of_messages(keys)
    fields = _fields(messages.values())
    for attempt in attempts:
        about: Message | Signal | None = attempt.signal or messages.get(attempt.message_id)
        if about is None or about.agreement_version_id is None:
            continue
        terms = versions.version(about.agreement_version_id)
        kind = JobKind.SIGNAL if isinstance(about, Signal) else kind_of(about, terms)
        if kind is JobKind.UNRELIABLE and attempt.started_at < now - ONCE_FOR:
            continue
        if isinstance(about, Signal):
            body: bytes | Pieces = bytes(about.body)
            more = preparing.fields_of_signal(about, terms)
        else:
            try:
                body = stored_octets(about, payloads[about.pk])
            except storage.PayloadMissing:
                continue
            more = fields[about.pk]
        yield Job(
            kind=kind,
            transmission_id=attempt.pk,
            transport=terms.transport,
            parcel=parcel(terms, attempt.address, about.content_type, body, now, attempt=attempt.public_id, **more),
            version_id=terms.version_id,
            pair_id=attempt.pair_id,
            message_id=attempt.message_id,
            signal_id=attempt.signal_id,
            about_id=attempt.signal.about_id if attempt.signal is not None else None,
            number=attempt.number,
        )


def _fields(messages: Iterable[Message]) -> dict[uuid.UUID, dict[str, Any]]:
    """Fields of the Parcel of each message whose agreement is known."""
    versions = registry.current()
    by_profile: dict[profile.Profile, dict[uuid.UUID, tuple[Message, Terms]]] = defaultdict(dict)
    for message in messages:
        if message.agreement_version_id is not None:
            terms = versions.version(message.agreement_version_id)
            by_profile[profile.of(terms)][message.pk] = (message, terms)
    return {key: fields for speaks, mine in by_profile.items() for key, fields in speaks.fields_of(mine).items()}


def kind_of(message: Message, terms: Terms) -> JobKind:
    """Which kind of work the transmissions of a message are."""
    if profile.of(terms).moves(message):
        return JobKind.OWN
    return JobKind.PAIR if message.sequence_number is not None else JobKind.UNRELIABLE
