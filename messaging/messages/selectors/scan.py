"""Walking the message store by id: from the index of each range, and no further than a request may take.

Ids are UUIDv7: they are in the order of time, so that a time is a bound on ids and thereby on their index.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from messaging.keyset import Page, Place, floor_id
from messaging.models import Message

# What no index serves is looked for among so many messages a request; the next page goes on from there.
SCANNED = 30_000
# An id is made a moment before its row's created_at is set, and the row waits for its pair's lock in between; and the
# clocks of two machines differ a little.
_BEFORE, _AFTER = timedelta(hours=1), timedelta(minutes=10)


def before(at: datetime) -> uuid.UUID:
    """An id that is not greater than those of messages that were created at `at` or later."""
    return _floor(at, -_BEFORE)


def after(at: datetime) -> uuid.UUID:
    """An id that is greater than those of messages that were created before `at`."""
    return _floor(at, _AFTER)


def _floor(at: datetime, slack: timedelta) -> uuid.UUID:
    try:
        return floor_id(at + slack)
    except OverflowError:
        return floor_id(at)


def probed(
    queryset: QuerySet[Message], ranges: Sequence[Q], *, newest_first: bool, limit: int, place: Place | None
) -> QuerySet[Message]:
    """The first rows of each range from its own index; the page is among them.

    `pair_id IN (...) ORDER BY id LIMIT` has no such plan: PostgreSQL would walk all messages, or sort the pairs'.
    """
    direction = "-id" if newest_first else "id"
    if place is not None:
        queryset = queryset.filter(**{_beyond(newest_first): place.values[0]})
    probes = [queryset.filter(one).order_by(direction).values_list("id", flat=True)[: limit + 1] for one in ranges]
    ids = list(probes[0].union(*probes[1:], all=True).order_by(direction)[: limit + 1])
    return Message.objects.filter(pk__in=ids)


def end(within: Q, ranges: Sequence[Q], *, newest_first: bool, place: Place | None) -> uuid.UUID | None:
    """The id up to which rows are looked through this time; None when that is all of them.

    Found in the index alone. Of several ranges each has its share, and the nearest end counts for all.
    """
    rows = Message.objects.filter(within)
    if place is not None:
        rows = rows.filter(**{_beyond(newest_first): place.values[0]})
    share = max(1, SCANNED // max(1, len(ranges)))
    ids = [rows.filter(one).order_by("-id" if newest_first else "id").values_list("id", flat=True) for one in ranges]
    # Skipping is bounded: at most SCANNED entries of an index.
    ends = [one[share : share + 1] for one in ids]
    found = list(ends[0].union(*ends[1:], all=True)) if len(ends) > 1 else [key for one in ends for key in one]
    if not found:
        return None
    return max(found) if newest_first else min(found)


def going_on(found: Page[Message], ended: Place, *, came_from: Place | None) -> Page[Message]:
    """The page of a scan that ended early: its neighbour in the direction of the scan begins where the scan ended.

    A page without rows has the way back nevertheless: to the row from which the scan set out.
    """
    following, previous = found.following, found.previous
    if ended.backwards:
        if following is None and came_from is not None:
            following = Place((_next_to(came_from, 1),))
        return Page(found.rows, following, previous or ended)
    if previous is None and came_from is not None:
        previous = Place((_next_to(came_from, -1),), backwards=True)
    return Page(found.rows, following or ended, previous)


def _next_to(place: Place, by: int) -> uuid.UUID:
    key: uuid.UUID = place.values[0]
    return uuid.UUID(int=min(max(key.int + by, 0), (1 << 128) - 1))


def _beyond(newest_first: bool) -> str:
    return "id__lt" if newest_first else "id__gt"
