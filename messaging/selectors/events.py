"""The event feed, and the history of one message or pair.

Numbers of rows are given before the commit, so a reader that remembers the last number would miss whatever commits
late. The feed is therefore ordered by (transaction, number) and ends before the oldest transaction that is still open.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.models import QuerySet

from messaging.models import Event

# Far more than one page: how many rows a look at rare types may pass over before it answers with a new position.
_SCAN = 10_000


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the feed: everything up to and with (`xid`, `id`) was seen."""

    xid: int = 0
    id: int = 0


OLDEST = Position()


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Events in the feed's order; where the next page begins (also when there are none); whether it has any yet."""

    events: list[Event]
    position: Position
    more: bool


def feed(*, after: Position, limit: int, types: Sequence[str] = ()) -> FeedPage:
    """The committed events behind `after`. Nothing is ever passed over, and nothing comes twice."""
    horizon = _horizon()
    rows = list(
        Event.objects.raw(
            "SELECT * FROM messaging_event WHERE (xid, id) > (%s, %s) AND xid < %s ORDER BY xid, id LIMIT %s",
            [after.xid, after.id, horizon, _SCAN + 1 if types else limit + 1],
        )
    )
    scanned, more = (_SCAN, len(rows) > _SCAN) if types else (limit, len(rows) > limit)
    rows = rows[:scanned]
    chosen = [row for row in rows if row.type in types] if types else rows
    if len(chosen) > limit:
        chosen, more = chosen[:limit], True
        last = Position(chosen[-1].xid, chosen[-1].pk)
    elif rows:
        last = Position(rows[-1].xid, rows[-1].pk)
    else:
        last = after
    return FeedPage(chosen, last, more)


def latest() -> Position:
    """The present end of the feed: what commits from now on comes behind it."""
    return Position(_horizon() - 1, (1 << 63) - 1)


def of_message(message_id: uuid.UUID) -> QuerySet[Event]:
    """A message's history, oldest first (by "id")."""
    return Event.objects.filter(message=message_id).order_by("id")


def of_pair(pair_id: uuid.UUID) -> QuerySet[Event]:
    """What happened to the pair itself (not to its messages), newest first (by "-id")."""
    return Event.objects.filter(pair=pair_id, message__isnull=True).order_by("-id")


# A snapshot knows the transactions of the whole server. Those that are seen to run in another database cannot write
# events here and are passed over; without that, a slow one next door (a second hub, a dump) would hold up the feed.
HORIZON = (
    "WITH now AS MATERIALIZED (SELECT pg_current_snapshot() AS snapshot)"
    " SELECT coalesce((SELECT min(x::text::bigint) FROM pg_snapshot_xip(snapshot) AS x WHERE NOT EXISTS ("
    "   SELECT FROM pg_stat_activity AS a WHERE a.backend_xid = x::xid AND a.datname <> current_database()"
    " )), pg_snapshot_xmax(snapshot)::text::bigint) FROM now"
)


def _horizon() -> int:
    """The first transaction that may still be under way: all before it are committed or gone."""
    with connection.cursor() as cursor:
        cursor.execute(HORIZON)
        row = cursor.fetchone()
    return int(row[0])
