"""The last hour as the live watch counted it: by pair, beside what is usual, and whether the counts are current."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, TypedDict

from django.conf import settings
from django.db.models import Case, Exists, IntegerField, OuterRef, Q, QuerySet, Value, When

from messaging import anomalies
from messaging.anomalies import Usual
from messaging.choices import Direction, IncidentState
from messaging.journal.wording import span
from messaging.models import Incident, LiveMinute, LiveState, Pair
from messaging.models.pipeline import pasts, window_of
from partners.visibility import limit

HOUR = timedelta(hours=1)
# Counts that are older were not kept up: the watch's own rounds are 30 seconds apart.
STALE = timedelta(minutes=2)
_USUAL_KEPT = timedelta(minutes=10)
_usual: dict[uuid.UUID, tuple[datetime, Usual]] = {}

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    class _Calm(TypedDict):
        calm: int

    WatchedPair = WithAnnotations[Pair, _Calm]


class WatchState(StrEnum):
    """What to think of the counts."""

    LIVE = "live"
    STALE = "stale"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Watch:
    """Whether the live watch counts. `as_of`: all that was committed before is counted (None: it never ran).

    `begin` and `end`: the hour that is shown, the minute of `as_of` included.
    """

    state: WatchState
    sentence: str
    as_of: datetime | None
    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class MinuteCount:
    """One minute of a pair. `volume`: messages that were delivered (outbound), or that came (inbound)."""

    at: datetime
    volume: int = 0
    failures: int = 0
    acks: int = 0
    ack_seconds: float = 0.0

    @property
    def latency(self) -> float | None:
        """Mean seconds to an acknowledgement; None without one."""
        return self.ack_seconds / self.acks if self.acks else None


@dataclass(frozen=True, slots=True)
class PairHour:
    """One pair's last hour: every minute of it, the sums, what is usual, and the watch's incidents."""

    pair: Pair
    minutes: tuple[MinuteCount, ...]
    accepted: int
    volume: int
    failures: int
    acks: int
    latency: float | None
    longest: float | None
    usual: Usual
    incidents: list[Incident] = field(default_factory=list)

    @property
    def failure_rate(self) -> float | None:
        """Share of what failed among what ended; None when nothing ended."""
        # What is refused on an inbound pair is no part of its volume.
        ended = self.volume + self.failures
        return self.failures / ended if ended else None


def watch(now: datetime) -> Watch:
    """Whether the counts are current."""
    as_of = LiveState.objects.order_by("-applied_at").values_list("applied_at", flat=True).first()
    edge = (as_of or now).replace(second=0, microsecond=0) + timedelta(minutes=1)
    how = "set RMHUB_PIPELINE_LIVE=1 and start the hub again, or run manage.py pipeline live"
    if as_of is not None and as_of >= now - STALE:
        state, sentence = WatchState.LIVE, "Every event is counted within seconds."
    elif settings.RMHUB_PIPELINE_LIVE:
        state = WatchState.STALE
        sentence = (
            "The live watch is switched on, but has counted nothing yet: it starts, or it cannot. See the hub's log."
            if as_of is None
            else f"The live watch is {span((now - as_of).total_seconds())} behind: it starts, or catches up, or has "
            "stopped, or a transaction is open for so long. No anomaly is raised meanwhile. See the hub's log."
        )
    else:
        state = WatchState.OFF
        sentence = f"The live watch is off, so nobody looks for anomalies. To switch it on, {how}."
    return Watch(state, sentence, as_of, edge - HOUR, edge)


def pairs(shown: Watch) -> QuerySet[WatchedPair]:
    """Pairs with traffic in the hour, or with an anomaly. Pages by ("calm", "code"): anomalies first."""
    minutes = LiveMinute.objects.filter(pair=OuterRef("pk"), minute__gte=shown.begin, minute__lt=shown.end)
    alarms = Incident.objects.filter(pair=OuterRef("pk"), cause__in=anomalies.CAUSES).exclude(
        state=IncidentState.RESOLVED
    )
    found = limit(Pair.objects.select_related("partner"), "partner").filter(Q(Exists(minutes)) | Q(Exists(alarms)))
    return found.annotate(calm=Case(When(Exists(alarms), then=Value(0)), default=Value(1), output_field=IntegerField()))


def hours(chosen: Sequence[Pair], shown: Watch) -> list[PairHour]:
    """The last hour of these pairs, in their order."""
    keys = [pair.pk for pair in chosen]
    rows: dict[uuid.UUID, dict[datetime, LiveMinute]] = {}
    for row in LiveMinute.objects.filter(pair__in=keys, minute__gte=shown.begin, minute__lt=shown.end):
        rows.setdefault(row.pair_id, {})[row.minute] = row
    raised: dict[uuid.UUID | None, list[Incident]] = {}
    unresolved = Incident.objects.filter(pair__in=keys, cause__in=anomalies.CAUSES).exclude(
        state=IncidentState.RESOLVED
    )
    for incident in unresolved.order_by("number"):
        raised.setdefault(incident.pair_id, []).append(incident)
    usual = _usual_of(keys, window_of(shown.end) - anomalies.WINDOW)
    return [
        _hour(pair, shown, rows.get(pair.pk, {}), usual.get(pair.pk, anomalies.UNKNOWN), raised.get(pair.pk, []))
        for pair in chosen
    ]


def _hour(pair: Pair, shown: Watch, rows: dict[datetime, LiveMinute], usual: Usual, raised: list[Incident]) -> PairHour:
    minutes = []
    for number in range(60):
        at = shown.begin + timedelta(minutes=number)
        row = rows.get(at)
        if row is None:
            minutes.append(MinuteCount(at))
            continue
        volume = row.delivered if pair.direction == Direction.OUT else row.received
        failures = row.failed + row.retried + row.rejected
        minutes.append(MinuteCount(at, volume, failures, row.acks, row.ack_seconds))
    acks = sum(minute.acks for minute in minutes)
    return PairHour(
        pair=pair,
        minutes=tuple(minutes),
        accepted=sum(row.accepted for row in rows.values()),
        volume=sum(minute.volume for minute in minutes),
        failures=sum(minute.failures for minute in minutes),
        acks=acks,
        latency=sum(minute.ack_seconds for minute in minutes) / acks if acks else None,
        longest=max((row.ack_longest for row in rows.values() if row.acks), default=None),
        usual=usual,
        incidents=raised,
    )


def _usual_of(keys: Sequence[uuid.UUID], before: datetime) -> dict[uuid.UUID, Usual]:
    """What is usual, read anew every ten minutes: a week of minutes is much for a page that refreshes itself."""
    old = [key for key in keys if key not in _usual or not timedelta() <= before - _usual[key][0] < _USUAL_KEPT]
    if old:
        found = pasts(old, before)
        if len(_usual) > 10_000:
            _usual.clear()
        _usual.update({key: (before, found.get(key, anomalies.UNKNOWN)) for key in old})
    return {key: _usual[key][1] for key in keys if key in _usual}
