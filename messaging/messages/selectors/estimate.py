"""About how many messages a search has: by the hourly counters where they know it, else by the planner's statistics.

The planner guesses from a sample that may be hours old, and is wrong by a factor where traffic has changed since; the
counters (`TrafficHour`) count every event, and are what the dashboard says.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from django.db.models import F, QuerySet, Sum

from messaging.choices import Direction
from messaging.messages.selectors import messages
from messaging.messages.selectors.messages import MessageFilters
from messaging.models import TrafficHour
from partners.visibility import limit
from rmhub import clock

_HOUR = timedelta(hours=1)
_COUNTED = timedelta(days=14)  # as long as `overview.services.traffic_hours` keeps its rows


def estimate(filters: MessageFilters) -> int:
    """About how many; nothing is counted one by one."""
    return _counted(filters, clock.now()) or messages.estimate(filters)


def _counted(filters: MessageFilters, now: datetime) -> int:
    """By the counters; 0 when they do not know: another filter than time, pair, partner and direction, or long ago."""
    begin = filters.created_gte
    by_hour = MessageFilters(
        pair_id=filters.pair_id,
        partner_id=filters.partner_id,
        partner_ids=filters.partner_ids,
        direction=filters.direction,
    )
    if begin is None or begin < now - _COUNTED:
        return 0
    if replace(filters, created_gte=None, created_lt=None) != by_hour:
        return 0
    end = min(filters.created_lt or now, now)
    sums = _rows(filters, begin, end).values_list("hour").annotate(number=_number(filters.direction)).order_by()
    total: float = sum(number * _share(hour, begin, end, now) for hour, number in sums)
    return round(total)


def _rows(filters: MessageFilters, begin: datetime, end: datetime) -> QuerySet[TrafficHour]:
    found = limit(TrafficHour.objects.filter(hour__gt=begin - _HOUR, hour__lt=end), "pair__partner")
    if filters.pair_id is not None:
        found = found.filter(pair=filters.pair_id)
    if filters.partner_id is not None:
        found = found.filter(pair__partner=filters.partner_id)
    return found.filter(pair__partner__in=filters.partner_ids) if filters.partner_ids else found


def _number(direction: str) -> Sum:
    if direction == Direction.OUT:
        return Sum("accepted")
    if direction == Direction.IN:
        return Sum("received")
    return Sum(F("accepted") + F("received"))


def _share(hour: datetime, begin: datetime, end: datetime, now: datetime) -> float:
    """How much of what an hour counted lies in the range, if it came evenly."""
    whole = (min(hour + _HOUR, now) - hour).total_seconds()
    part = (min(hour + _HOUR, end) - max(hour, begin)).total_seconds()
    return max(0.0, min(1.0, part / whole)) if whole > 0 else 0.0
