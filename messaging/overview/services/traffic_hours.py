"""Counts what happens, by pair and hour and altogether, from the event feed: each event once, whatever dies when.

The counts and the place in the feed up to which they go are written in one transaction. Screens read these rows, and
never count messages.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db import connection, transaction

from messaging.models import Event, Message, TrafficCursor, TrafficHour, feed
from messaging.models.feed import Position
from messaging.models.traffic import COUNTED, LATENCY_EDGES, no_latencies
from messaging.reports.services.live_watch import first_after
from messaging.sla.services import counting
from partners import registry
from rmhub import clock

KEEP = timedelta(days=14)
BEGIN = timedelta(hours=48)  # how far back the first look goes
_AT_ONCE = 5_000
_ROUNDS = 20
_COLUMNS = ("accepted", "delivered", "received", "failed", "duplicates")
_COUNTED = {kind: name for name in _COLUMNS for kind in COUNTED[name]}
_UPSERT = """
INSERT INTO messaging_traffichour AS t (pair_id, hour, accepted, delivered, received, failed, duplicates, latencies)
SELECT pair_id, hour, accepted, delivered, received, failed, duplicates, latencies::int[]
FROM unnest(%s::uuid[], %s::timestamptz[], %s::int[], %s::int[], %s::int[], %s::int[], %s::int[], %s::text[])
    AS f(pair_id, hour, accepted, delivered, received, failed, duplicates, latencies)
ORDER BY pair_id, hour
ON CONFLICT (hour, pair_id) DO UPDATE SET
    accepted = t.accepted + excluded.accepted, delivered = t.delivered + excluded.delivered,
    received = t.received + excluded.received, failed = t.failed + excluded.failed,
    duplicates = t.duplicates + excluded.duplicates,
    latencies = ARRAY(SELECT coalesce(a, 0) + coalesce(b, 0)
        FROM unnest(t.latencies, excluded.latencies) WITH ORDINALITY AS s(a, b, n) ORDER BY n)
"""
_TOTAL = """
INSERT INTO messaging_eventtotal AS t (type, profile, number, seconds, latencies)
SELECT type, profile, number, seconds, latencies::bigint[]
FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::float8[], %s::text[])
    AS f(type, profile, number, seconds, latencies)
ORDER BY type, profile
ON CONFLICT (type, profile) DO UPDATE SET
    number = t.number + excluded.number, seconds = t.seconds + excluded.seconds,
    latencies = ARRAY(SELECT coalesce(a, 0) + coalesce(b, 0)
        FROM unnest(t.latencies, excluded.latencies) WITH ORDINALITY AS s(a, b, n) ORDER BY n)
"""


@dataclass(slots=True)
class _Total:
    """What comes to one row of all."""

    number: int = 0
    seconds: float = 0.0
    latencies: list[int] = field(default_factory=no_latencies)


@dataclass(slots=True)
class _Hour:
    """What comes to one row."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COLUMNS, 0))
    latencies: list[int] = field(default_factory=no_latencies)


def count_due() -> int:
    """Counts what has happened since the last look. Returns how many events were read. One process at a time."""
    read = 0
    for _ in range(_ROUNDS):
        count, more = _count_once()
        read += count
        if not more:
            break
    return read


def hour_of(at: datetime) -> datetime:
    """The beginning of its hour, UTC."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _count_once() -> tuple[int, bool]:
    now = clock.now()
    with transaction.atomic():
        cursor = TrafficCursor.objects.select_for_update(skip_locked=True).filter(pk=1).first()
        if cursor is None:
            if TrafficCursor.objects.exists():
                return 0, False  # another process is at it
            _begin(now)
            return 0, True
        place = Position(cursor.xid, cursor.event_id)
        if feed.is_ahead(place):
            place = Position(first_after(now))
        page = feed.read_all(after=place, limit=_AT_ONCE)
        _add(page.events)
        counting.count(page.events)
        if cursor.counted_at is None or hour_of(cursor.counted_at) != hour_of(now):
            TrafficHour.objects.filter(hour__lt=now - KEEP).delete()
            counting.forget(now)
        cursor.xid, cursor.event_id, cursor.counted_at = page.position.xid, page.position.id, now
        cursor.through = feed.first_unread(page.position) or now
        cursor.save()
    return len(page.events), page.more


def _begin(now: datetime) -> None:
    """The first look: of a store that is older than this only the last days are counted."""
    TrafficCursor.objects.bulk_create(
        [TrafficCursor(id=1, xid=first_after(now - BEGIN), event_id=0)], ignore_conflicts=True
    )


def _add(events: Sequence[Event]) -> None:
    messages = {
        pk: (version, sent)
        for pk, version, sent in Message.objects.filter(
            pk__in={event.message_id for event in events if event.message_id}
        ).values_list("pk", "agreement_version_id", "first_sent_at")
    }
    versions = registry.current()
    hours: dict[tuple[uuid.UUID, datetime], _Hour] = {}
    totals: dict[tuple[str, str], _Total] = {}
    for event in events:
        version, sent = messages.get(event.message_id, (None, None)) if event.message_id else (None, None)
        total = totals.setdefault((event.type, versions.version(version).profile if version else ""), _Total())
        total.number += 1
        took = max(0.0, (event.at - sent).total_seconds()) if sent and event.type == "message.delivered" else None
        if took is not None:
            total.seconds += took
            total.latencies[bisect_left(LATENCY_EDGES, took)] += 1
        if event.type in _COUNTED and event.pair_id is not None:
            hour = hours.setdefault((event.pair_id, hour_of(event.at)), _Hour())
            hour.counts[_COUNTED[event.type]] += 1
            if took is not None:
                hour.latencies[bisect_left(LATENCY_EDGES, took)] += 1
    with connection.cursor() as sql:
        if hours:
            keys = sorted(hours)  # in one order, so that two writers never wait for each other
            counts = [[hours[key].counts[name] for key in keys] for name in _COLUMNS]
            latencies = [_array(hours[key].latencies) for key in keys]
            sql.execute(_UPSERT, [[key[0] for key in keys], [key[1] for key in keys], *counts, latencies])
        if totals:
            names = sorted(totals)
            found = [totals[name] for name in names]
            sql.execute(
                _TOTAL,
                [
                    *([kind for kind, _ in names], [spoken for _, spoken in names]),
                    *([one.number for one in found], [one.seconds for one in found]),
                    [_array(one.latencies) for one in found],
                ],
            )


def _array(values: Sequence[int]) -> str:
    """As PostgreSQL writes one: psycopg cannot send a list of lists of different meaning."""
    return "{" + ",".join(map(str, values)) + "}"
