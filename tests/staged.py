"""A scene that many tests begin with: built once in a process, and put back into the database for each of them.

`staged(build, time)` returns what `build(time)` returned when it ran first. Then rows, files and clock were written
down; from the second time on they are put back, with a twentieth of the statements. Rows that were there before are
left alone, unless the scene changed them.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.db import connection
from psycopg import sql

from messaging import servers
from messaging.access.services import tokens
from messaging.engine import attributes, circuits, forgetting, memory, pairs, schemas, subscriptions
from messaging.entrance import authentication
from messaging.overview.selectors import health
from partners import registry
from rmhub import clock
from rmhub.clock import FrozenClock

Value = TypeVar("Value")
_FOLDERS = ("RMHUB_STORE_DIR", "RMHUB_LAKE_DIR", "RMHUB_ARCHIVE_DIR")
_TABLES = """
SELECT c.oid::regclass::text, array_agg(a.attname::text ORDER BY a.attnum)
    FILTER (WHERE a.attgenerated = '' AND NOT a.attisdropped),
    (SELECT min(k.attname::text) FROM pg_index i JOIN pg_attribute k ON k.attrelid = c.oid AND k.attnum = i.indkey[0]
     WHERE i.indrelid = c.oid AND i.indisprimary AND i.indnkeyatts = 1)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace
GROUP BY c.oid ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class _Part:
    """What a scene wrote to one table."""

    table: str
    columns: list[str]
    key: str | None
    changed: list[str]  # keys of rows that were there before
    rows: bytes


@dataclass(frozen=True, slots=True)
class _Stage:
    value: Any
    moved: timedelta
    parts: list[_Part]
    days: dict[forgetting.Table, list[date]]
    files: Path


_stages: dict[object, _Stage] = {}
_kept = tempfile.TemporaryDirectory(prefix="rmhub-stages-")


def forget_all() -> None:
    """What this process remembers of the database is read again."""
    registry.reset()
    pairs.reset()
    authentication.reset()
    tokens.patience.reset()
    circuits.forget()
    health.forget()
    servers.reset()
    subscriptions.current.forget()
    attributes.known.forget()
    schemas.known.forget()
    memory.reset()
    forgetting.reset()


def staged(build: Callable[..., Value], time: FrozenClock | None = None) -> Value:
    """What `build` makes, as it is after it; `time`, which it is given, is moved as `build` moved it."""
    known = _stages.get(build)
    start = clock.now()
    if known is not None:
        _put_back(known)
        if time is not None:
            time.move(known.moved.total_seconds())
        forget_all()
        return copy.deepcopy(known.value)
    before = _rows()
    value = build(time) if time is not None else build()
    parts = _changes(before)
    tables = (forgetting.REQUESTS, forgetting.HISTORY)
    days = {table: [day for day, _ in forgetting._partitions(table)] for table in tables}
    files = Path(tempfile.mkdtemp(dir=_kept.name))
    for name in _FOLDERS:
        if Path(getattr(settings, name)).exists():
            shutil.copytree(getattr(settings, name), files / name)
    _stages[build] = _Stage(copy.deepcopy(value), clock.now() - start, parts, days, files)
    return value


def _rows() -> dict[str, dict[str, str]]:
    """Table -> key of a row (the row itself where the key has more columns than one) -> its digest."""
    found = {}
    with connection.cursor() as cursor:
        cursor.execute(_TABLES)
        for table, _, key in cursor.fetchall():
            named = sql.SQL("t.{}::text").format(sql.Identifier(key)) if key else sql.SQL("t::text")
            query = sql.SQL("SELECT {}, md5(t::text) FROM {} t").format(named, sql.SQL(table))
            cursor.execute(query)
            found[table] = dict(cursor.fetchall())
    return found


def _changes(before: dict[str, dict[str, str]]) -> list[_Part]:
    parts = []
    with connection.cursor() as cursor:
        cursor.execute(_TABLES)
        tables = {table: (columns, key) for table, columns, key in cursor.fetchall()}
        for table, rows in _rows().items():
            columns, key = tables[table]
            new = [one for one, digest in rows.items() if before[table].get(one) != digest]
            if not new:
                continue
            named = sql.SQL("t.{}::text").format(sql.Identifier(key)) if key else sql.SQL("t::text")
            copied = sql.SQL("COPY (SELECT {} FROM {} t WHERE {} = ANY({})) TO STDOUT").format(
                sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(table), named, sql.Literal(new)
            )
            with cursor.copy(copied) as out:
                content = b"".join(bytes(piece) for piece in out)
            parts.append(_Part(table, columns, key, [one for one in new if one in before[table]], content))
    return parts


def _put_back(stage: _Stage) -> None:
    for name in _FOLDERS:
        if (stage.files / name).exists():
            shutil.copytree(stage.files / name, getattr(settings, name), dirs_exist_ok=True)
    forgetting.reset()
    for days_of, days in stage.days.items():
        forgetting.ensure_days(days_of, days)
    with connection.cursor() as cursor:
        for part in stage.parts:
            table = sql.SQL(part.table)
            if part.changed and part.key:
                key = sql.Identifier(part.key)
                gone = sql.SQL("DELETE FROM {} t WHERE t.{}::text = ANY({})")
                cursor.execute(gone.format(table, key, sql.Literal(part.changed)))
            columns = sql.SQL(", ").join(map(sql.Identifier, part.columns))
            with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(table, columns)) as into:
                into.write(part.rows)
