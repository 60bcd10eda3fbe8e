"""Traffic by hour as the dashboard and the API show it: from `TrafficHour`, a few thousand rows, never the store."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.core.cache import cache
from django.db import connection
from django.db.models import Max, QuerySet

from messaging.models import Pair, TrafficCursor, TrafficHour
from messaging.models.traffic import LATENCY_EDGES, no_latencies
from partners import visibility

HOURS = 24
TOP = 20
TREND = 14  # days: as long as hours are kept
# The dashboard is asked for every few seconds, by everybody.
_KEPT_SECONDS = 10
_HOUR = timedelta(hours=1)
_BUCKETS = len(LATENCY_EDGES) + 1
_LATENCIES = ", ".join(f"sum(t.latencies[{number}])" for number in range(1, _BUCKETS + 1))
_SUMS = f"""
SELECT p.partner_id, y.name, t.hour, sum(t.accepted), sum(t.delivered), sum(t.received), sum(t.failed),
    ARRAY[{_LATENCIES}]
FROM messaging_traffichour t JOIN messaging_pair p ON p.id = t.pair_id JOIN partners_party y ON y.id = p.partner_id
WHERE t.hour >= %s AND t.hour <= %s AND (%s::uuid[] IS NULL OR p.partner_id = ANY(%s::uuid[]))
GROUP BY 1, 2, 3
"""  # noqa: S608  (constants)

_DAYS = f"""
SELECT date_trunc('day', t.hour, 'UTC'), sum(t.accepted), sum(t.delivered), sum(t.received), sum(t.failed),
    ARRAY[{_LATENCIES}]
FROM messaging_traffichour t JOIN messaging_pair p ON p.id = t.pair_id
WHERE p.partner_id = %s AND t.hour >= %s AND t.hour <= %s
GROUP BY 1
"""  # noqa: S608  (constants)


@dataclass(slots=True)
class Hour:
    """What happened within one hour; `at` is its beginning, UTC."""

    at: datetime
    accepted: int = 0
    delivered: int = 0
    received: int = 0
    failed: int = 0
    latencies: list[int] = field(default_factory=no_latencies)

    @property
    def volume(self) -> int:
        """Documents that got through, both ways."""
        return self.delivered + self.received

    @property
    def success(self) -> float | None:
        """Per cent of what ended outbound; None when nothing ended."""
        return percent(self.delivered, self.failed)

    @property
    def p95(self) -> float | None:
        """Seconds; None without an acknowledgement."""
        return quantile(self.latencies, 0.95)


@dataclass(frozen=True, slots=True)
class PartnerHours:
    """One partner's hours, oldest first."""

    partner_id: uuid.UUID
    name: str
    hours: list[Hour]

    @property
    def public_id(self) -> str:
        return f"par_{self.partner_id.hex}"

    @property
    def volume(self) -> int:
        return sum(hour.volume for hour in self.hours)


@dataclass(frozen=True, slots=True)
class Traffic:
    """The last 24 hours, the running one included. `counted_at`: what happened before is counted (None: not yet)."""

    begin: datetime
    hours: list[Hour]
    partners: list[PartnerHours]
    counted_at: datetime | None

    @property
    def delivered(self) -> int:
        return sum(hour.delivered for hour in self.hours)

    @property
    def failed(self) -> int:
        return sum(hour.failed for hour in self.hours)

    @property
    def success(self) -> float | None:
        """Per cent of what ended outbound in these hours."""
        return percent(self.delivered, self.failed)

    @property
    def p95(self) -> float | None:
        """Seconds from the first send to the acknowledgement that 95 % stayed below, by the histogram."""
        return quantile(_added(hour.latencies for hour in self.hours), 0.95)

    def per_minute(self, now: datetime) -> float:
        """Delivered a minute, over the running hour and the one before it."""
        begin = self.hours[-1].at - _HOUR
        return sum(hour.delivered for hour in self.hours[-2:]) / max(1.0, (now - begin).total_seconds() / 60)


@dataclass(frozen=True, slots=True)
class PartnerTraffic:
    """What one partner's pairs did in the last `TREND` days, by day (UTC), the running one included. `last_at`:
    when the last message got through.
    """

    days: list[Hour]
    last_at: datetime | None

    @property
    def volume(self) -> int:
        return sum(day.volume for day in self.days)

    @property
    def delivered(self) -> int:
        return sum(day.delivered for day in self.days)

    @property
    def received(self) -> int:
        return sum(day.received for day in self.days)

    @property
    def failed(self) -> int:
        return sum(day.failed for day in self.days)

    @property
    def success(self) -> float | None:
        """Per cent of what ended outbound."""
        return percent(self.delivered, self.failed)

    @property
    def p50(self) -> float | None:
        """Seconds from the first send to the acknowledgement that half of them stayed below, by the histogram."""
        return quantile(_added(day.latencies for day in self.days), 0.5)

    @property
    def p95(self) -> float | None:
        return quantile(_added(day.latencies for day in self.days), 0.95)


def of_partner(party_id: uuid.UUID, now: datetime) -> PartnerTraffic:
    """What the pairs of one partner, which the caller may see, did lately. The database adds up the days."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    days = {today - timedelta(days=number): Hour(today - timedelta(days=number)) for number in range(TREND)}
    with connection.cursor() as cursor:
        cursor.execute(_DAYS, [party_id, min(days), now])
        for at, accepted, delivered, received, failed, latencies in cursor:
            found = [int(count or 0) for count in latencies]
            days[at.astimezone(UTC)] = Hour(at, accepted, delivered, received, failed, found)
    return PartnerTraffic([days[at] for at in sorted(days)], last_traffic([party_id]).get(party_id))


def last_traffic(party_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, datetime]:
    """When the last message got through in either direction, by partner; without those who had none. One query."""
    rows = Pair.objects.filter(partner__in=list(party_ids), last_success_at__isnull=False).order_by()
    return dict(rows.values_list("partner").annotate(last=Max("last_success_at")))


def traffic(now: datetime) -> Traffic:
    """The last 24 hours of all partners that may be seen. One query, or none when it was asked a moment ago."""
    allowed = visibility.visible()
    named = "all" if allowed is None else str(hash(allowed))
    key = f"traffic:{connection.settings_dict['NAME']}:{named}:{int(now.timestamp()) // _KEPT_SECONDS}"
    known: Traffic | None = cache.get(key)
    if known is None:
        known = _read(now, allowed)
        cache.set(key, known, _KEPT_SECONDS)
    return known


def traffic_hours(
    *,
    pair_id: uuid.UUID | None = None,
    partner: uuid.UUID | None = None,
    hour_gte: datetime | None = None,
    hour_lt: datetime | None = None,
) -> QuerySet[TrafficHour]:
    """Rows by pair and hour, with their pairs. Not ordered; pages by ("-hour", "-id")."""
    found = visibility.limit(TrafficHour.objects.select_related("pair__partner"), "pair__partner")
    wanted = {"pair": pair_id, "pair__partner": partner, "hour__gte": hour_gte, "hour__lt": hour_lt}
    return found.filter(**{name: value for name, value in wanted.items() if value is not None})


def quantile(latencies: Sequence[int], share: float) -> float | None:
    """The value that this share stays below, as far as the buckets tell; the last bucket's is its lower edge."""
    total = sum(latencies)
    if not total:
        return None
    wanted, below, low = share * total, 0, 0.0
    for number, count in enumerate(latencies):
        if number == len(LATENCY_EDGES):
            break
        high = float(LATENCY_EDGES[number])
        if below + count >= wanted:
            return low + (high - low) * (wanted - below) / count
        below, low = below + count, high
    return low


def percent(good: int, bad: int) -> float | None:
    """None when there is nothing to divide."""
    return 100 * good / (good + bad) if good + bad else None


def _read(now: datetime, allowed: frozenset[uuid.UUID] | None) -> Traffic:
    last = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    begin = last - (HOURS - 1) * _HOUR
    times = [begin + number * _HOUR for number in range(HOURS)]
    place = {at: number for number, at in enumerate(times)}
    whole = [Hour(at) for at in times]
    found: dict[uuid.UUID, PartnerHours] = {}
    keys = None if allowed is None else list(allowed)
    with connection.cursor() as cursor:
        cursor.execute(_SUMS, [begin, last, keys, keys])
        for partner_id, name, at, accepted, delivered, received, failed, latencies in cursor:
            row = found.setdefault(partner_id, PartnerHours(partner_id, name, [Hour(one) for one in times]))
            buckets = [int(count or 0) for count in latencies]
            for hour in (whole[place[at]], row.hours[place[at]]):
                hour.accepted += accepted
                hour.delivered += delivered
                hour.received += received
                hour.failed += failed
                hour.latencies = _added((hour.latencies, buckets))
    busiest = sorted(found.values(), key=lambda one: (-one.volume, one.name))[:TOP]
    counted_at = TrafficCursor.objects.filter(pk=1).values_list("counted_at", flat=True).first()
    return Traffic(begin, whole, busiest, counted_at)


def _added(histograms: Iterable[Sequence[int]]) -> list[int]:
    total = no_latencies()
    for one in histograms:
        total = [have + more for have, more in zip(total, one, strict=True)]
    return total
