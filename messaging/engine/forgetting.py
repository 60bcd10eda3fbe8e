"""Makes and drops the days of what is remembered: remembered requests (spec 2) and the document history (spec 4).

A day is a partition, and forgetting it is detaching a table: it costs the same for a thousand ids and for ten million.
The table's files are removed after that, when nobody can be waiting for them any more.
There is no default partition, so whoever writes a row of a new day calls `ensure_days` before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum

from django.db import OperationalError, connection, transaction
from django.db.models import F, Max, QuerySet

from messaging import profile
from messaging.models import MemoryEpoch, Trigger
from messaging.protocol.errors import RmhubError
from partners.choices import VersionState
from partners.models import DAY, AgreementVersion

log = logging.getLogger(__name__)


class Table(StrEnum):
    """The partitioned tables; the value is the parent's name."""

    REQUESTS = "messaging_rememberedrequest"  # by the UTC day of the first-instance time
    HISTORY = "messaging_documentcompleted"  # by the UTC day through which it is kept


REQUESTS, HISTORY = Table.REQUESTS, Table.HISTORY
DAYS_AHEAD = 2

_LOCK = 0x524D4844  # key of the advisory lock under which days are made and dropped
# Dropping needs the parent for itself for a moment, and everybody else queues behind whoever waits for that.
_PATIENCE_MS = 200
_MAX_DROPS = 50  # in one round
_GONE = "_gone"  # end of the name of a table that is forgotten and not removed yet

# Days that are there, as far as this process knows. Entered when the transaction that saw them is committed.
_known: set[tuple[Table, date]] = set()


class Forgotten(RmhubError):
    """The day was dropped before: what would be written into it could be a repeat of something forgotten."""

    def __init__(self, day: date) -> None:
        super().__init__(f"Ids first sent on {day} are forgotten.")
        self.day = day


def day_of(instant: datetime) -> date:
    """The UTC day that an instant lies in."""
    return instant.astimezone(UTC).date()


def knows(table: Table, day: date) -> bool:
    """Whether this process knows that the day is there."""
    return (table, day) in _known


def ensure_days(table: Table, days: Iterable[date]) -> None:
    """Makes the partitions of these days where they are missing; call before locking rows.

    Works in a transaction of its own or within the caller's. Raises Forgotten for a day of requests that was dropped.
    """
    missing = {day for day in days if (table, day) not in _known}
    if missing:
        with transaction.atomic():
            _ensure(table, missing)


def ensure_ahead(now: datetime) -> None:
    """Makes the days that will be written to soon, so that nobody has to make them while a partner waits."""
    today = day_of(now)
    ensure_days(REQUESTS, [today + timedelta(days=ahead) for ahead in range(DAYS_AHEAD + 1)])
    lives = Trigger.objects.order_by().values_list("history_ttl", flat=True).distinct()
    ensure_days(
        HISTORY,
        {day_of(now + timedelta(seconds=ttl, days=ahead)) for ttl in lives for ahead in range(1, DAYS_AHEAD + 1)},
    )


def drop_due(now: datetime) -> int:
    """Forgets the days that nobody may need any more, and removes them. Returns how many were forgotten."""
    forgotten = forget_due(now)
    remove_forgotten()
    return forgotten


def forget_due(now: datetime) -> int:
    """Takes the days away that nobody may need any more. Returns how many; what is busy or undecided waits.

    Through when requests are forgotten is stored in the transaction that takes them away (protocols 2.5).
    """
    forgotten = 0
    today = day_of(now)
    kept_for = requests_kept_for()
    for table in Table:
        for day, name in _partitions(table)[:_MAX_DROPS]:
            ended = datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC)
            if table is REQUESTS and ended + kept_for > now:
                break
            if table is HISTORY and day >= today:
                break
            forgotten += _forget(table, name, ended)
    return forgotten


def remove_forgotten() -> int:
    """Removes the tables of forgotten days, also those of a round that ended too early. Returns how many went.

    Nothing refers to them any more: how long the file system takes holds nobody up.
    """
    removed = 0
    with connection.cursor() as cursor:
        for table in Table:
            cursor.execute(
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE %s", [f"{table}_%{_GONE}"]
            )
            for (name,) in cursor.fetchall():
                cursor.execute(f"DROP TABLE IF EXISTS {name}")
                removed += 1
    return removed


def requests_kept_for() -> timedelta:
    """How long after its first-instance time an id is kept: the longest memory window and clock skew together.

    Of all agreements that are or may come into force again: ids belong to their sender, not to an agreement.
    """
    longest = remembered().aggregate(longest=Max(F("memory_window") + F("clock_skew")))["longest"]
    return timedelta(seconds=longest if longest is not None else DAY)


def remembered() -> QuerySet[AgreementVersion]:
    """Finds the agreements whose requests are remembered, those that may come into force again too."""
    return AgreementVersion.objects.filter(
        profile__in=profile.names(lambda one: one.answered_at_once),
        state__in=(VersionState.ACTIVE, VersionState.DISABLED),
    )


def _ensure(table: Table, days: set[date]) -> None:
    with connection.cursor() as cursor:
        names = {f"{table}_{day:%Y%m%d}": day for day in days}
        cursor.execute("SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NULL", [list(names)])
        if missing := sorted(row[0] for row in cursor.fetchall()):
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            forgotten = MemoryEpoch.objects.values_list("forgotten_through", flat=True).first()
            for name in missing:
                day = names[name]
                if table is REQUESTS and forgotten is not None and day < day_of(forgotten):
                    raise Forgotten(day)
                cursor.execute("SELECT to_regclass(%s) IS NULL", [name])
                if cursor.fetchone()[0]:
                    # Attached, and not created as a partition: that would lock the parent against all readers.
                    cursor.execute(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)")
                    cursor.execute(
                        f"ALTER TABLE {table} ATTACH PARTITION {name}"
                        f" FOR VALUES FROM ('{day}') TO ('{day + timedelta(days=1)}')"
                    )
    transaction.on_commit(lambda: _known.update((table, day) for day in days))


def _partitions(table: Table) -> list[tuple[date, str]]:
    """The days that are there, the oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = %s::text::regclass ORDER BY c.relname",
            [str(table)],
        )
        names = [row[0] for row in cursor.fetchall()]
    return [(datetime.strptime(name.rpartition("_")[2], "%Y%m%d").date(), name) for name in names]


def _forget(table: Table, name: str, ended: datetime) -> bool:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {_PATIENCE_MS}")
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
            cursor.execute(f"LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE")
            cursor.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
            if table is REQUESTS:
                cursor.execute(UNDECIDED.format(name))
                undecided = cursor.fetchone()[0]
                if undecided:
                    log.warning(
                        "requests that nobody has decided are older than the memory window; their day is kept",
                        extra={"action": "day_kept", "table": name, "requests": undecided},
                    )
                    return False
                moved = MemoryEpoch.objects.filter(forgotten_through__lt=ended).update(forgotten_through=ended)
                if not moved and not MemoryEpoch.objects.exists():
                    return False  # nowhere to store it: the next heartbeat makes the row
            cursor.execute(f"ALTER TABLE {table} DETACH PARTITION {name}")
            cursor.execute(f"ALTER TABLE {name} RENAME TO {name}{_GONE}")
            cursor.execute("SET LOCAL lock_timeout TO DEFAULT")
    except OperationalError as error:
        log.info("a day is in use and dropped later", extra={"action": "day_busy", "table": name, "error": str(error)})
        return False
    return True


UNDECIDED = "SELECT count(*) FROM {} WHERE state IN ('running', 'in_doubt')"


def reset() -> None:
    """Forgets which days were seen (tests)."""
    _known.clear()
