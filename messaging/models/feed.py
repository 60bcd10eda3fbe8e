"""The event feed as the hub's own readers and the API's page it: in the order of commits, with nothing passed over.

Numbers of rows are given before the commit, so a reader that remembers the last number would miss whatever commits
late. The feed is therefore ordered by (transaction, number) and ends before the oldest transaction that is still open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from messaging.models.bulk import read
from messaging.models.record import Event

LAST_ID = (1 << 63) - 1  # behind every event of its transaction


@dataclass(frozen=True, order=True, slots=True)
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


# A snapshot knows the transactions of the whole server. Those that are seen to run in another database cannot write
# events here and are passed over; without that, one in another database (a second hub, a dump) would hold up the feed.
# The second column says that what holds the feed up has ended since the snapshot: in whose database is not known.
HORIZON = (
    "WITH now AS MATERIALIZED (SELECT pg_current_snapshot() AS snapshot), held AS ("
    " SELECT min(x::text::bigint) AS number FROM now, pg_snapshot_xip(snapshot) AS x WHERE NOT EXISTS ("
    "   SELECT FROM pg_stat_activity AS a WHERE a.backend_xid = x::xid AND a.datname <> current_database()"
    " ))"
    " SELECT coalesce(number, pg_snapshot_xmax(snapshot)::text::bigint), number IS NOT NULL AND NOT EXISTS ("
    "   SELECT FROM pg_stat_activity AS a WHERE a.backend_xid = number::text::xid8::xid"
    " ) FROM now, held"
)


def horizon() -> int:
    """The first transaction that may still be under way: all before it are committed or gone."""
    with connection.cursor() as cursor:
        for _ in range(3):  # a prepared transaction, which nobody runs, would hold it up for ever
            cursor.execute(HORIZON)
            number, ended = cursor.fetchone()
            if not ended:
                break
            cursor.execute("SELECT pg_stat_clear_snapshot()")  # a transaction of ours goes on seeing who ran before
    return int(number)


def latest() -> Position:
    """The present end of the feed: what commits from now on comes behind it."""
    return Position(horizon() - 1, LAST_ID)


def is_ahead(place: Position) -> bool:
    """Whether the server has not given out its number yet: the database was restored to another server."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint <= %s", [place.xid])
        return bool(cursor.fetchone()[0])


def rows_behind(after: Position, most: int) -> list[Event]:
    """The first committed events behind a position, of all types."""
    return read(
        Event,
        "SELECT * FROM messaging_event WHERE (xid, id) > (%s, %s) AND xid < %s ORDER BY xid, id LIMIT %s",
        [after.xid, after.id, horizon(), most],
    )


def read_all(*, after: Position, limit: int) -> FeedPage:
    """The committed events behind `after`, for readers inside the hub. Nothing is passed over, nothing comes twice."""
    rows = rows_behind(after, limit + 1)
    more, rows = len(rows) > limit, rows[:limit]
    return FeedPage(rows, Position(rows[-1].xid, rows[-1].pk) if rows else after, more)


def first_unread(after: Position) -> datetime | None:
    """When the first event behind a position happened, whether or not the feed goes so far yet; None without one."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT at FROM messaging_event WHERE (xid, id) > (%s, %s) ORDER BY xid, id LIMIT 1", [after.xid, after.id]
        )
        row = cursor.fetchone()
    return row[0] if row is not None else None


def read_types(*, after: Position, types: Sequence[str], limit: int) -> FeedPage:
    """The same for a reader of rare types: the database passes over the others.

    Takes as long as there are events behind `after`, so that it is for readers who come often.
    """
    end_before = horizon()
    rows = read(
        Event,
        "SELECT * FROM messaging_event WHERE (xid, id) > (%s, %s) AND xid < %s AND type = ANY(%s)"
        " ORDER BY xid, id LIMIT %s",
        [after.xid, after.id, end_before, list(types), limit + 1],
    )
    if len(rows) > limit:
        rows = rows[:limit]
        return FeedPage(rows, Position(rows[-1].xid, rows[-1].pk), more=True)
    # All that is committed was seen. A horizon may stand still, or be behind what a page of another reader saw.
    end = Position(end_before - 1, LAST_ID)
    return FeedPage(rows, end if (end.xid, end.id) > (after.xid, after.id) else after, more=False)
