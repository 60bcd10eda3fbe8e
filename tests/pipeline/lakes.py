"""The store and the lake side by side, for the tests of the lake: both as plain rows, read without the code under test.

`store(entity)` asks the database; `lake(entity)` reads the files that the manifest names, by the rules that the
documentation gives to other tools. `Writer` is a connection of its own: its transactions stay open until a test ends
them.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
from django.conf import settings
from django.db import connection

from messaging.models import LakeFile, LakeState, Message
from messaging.pipeline import schemas
from messaging.pipeline.extract import ExtractResult, extract, select
from messaging.pipeline.schemas import ENTITIES, Entity

T = datetime(2026, 3, 10, 12, tzinfo=UTC)
OPEN_END = 2**63 - 1
# What an event says of its message is as of its extract; the message goes on.
JOINED = ("first_sent_at", "message_created_at")

Row = dict[str, Any]


def quiet(what: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


def run(**options: Any) -> ExtractResult:
    return extract(quiet, **options)


def store(entity: Entity) -> dict[Any, Row]:
    """The rows of the database, by id."""
    with connection.cursor() as cursor:
        cursor.execute(select(entity, "true"))
        rows = [dict(zip(entity.column_names, _plain(row), strict=True)) for row in cursor.fetchall()]
    return {row["id"]: row for row in rows}


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(str(value) if isinstance(value, uuid.UUID) else value for value in row)


def lake(entity: Entity) -> dict[Any, Row]:
    """The rows of the lake, by id. An event that is there twice is an error."""
    state = LakeState.objects.get()
    rows: list[Row] = []
    for file in LakeFile.objects.filter(generation=state.generation, replaced_at__isnull=True, entity=entity.name):
        path = Path(settings.RMHUB_LAKE_DIR) / file.path
        # One file: a path with `day=` in it would otherwise bring a column of that name.
        part = pq.ParquetFile(path).read().to_pylist()
        assert len(part) == file.rows and path.stat().st_size == file.bytes
        if entity.day:
            times = [row[entity.day] for row in part]
            assert {time.date() for time in times} == {file.day}
            assert (min(times), max(times)) == (file.min_at, file.max_at)
            if file.to_xid == OPEN_END and not entity.changes:
                part = [row for row in part if row["xid"] >= state.extracted_through]
        if file.unique_keys and entity.changes:
            assert len({row["id"] for row in part}) == len(part)
        rows += part
    if not entity.changes:
        assert not [key for key, count in Counter(row["id"] for row in rows).items() if count > 1]
        return {row["id"]: row for row in rows}
    return {row["id"]: row for row in sorted(rows, key=lambda row: row["xid"])}


def assert_equal() -> None:
    """The lake is the store, in every entity and column."""
    for entity in ENTITIES.values():
        ours, theirs = lake(entity), store(entity)
        if entity is schemas.EVENTS:
            for row in (*ours.values(), *theirs.values()):
                for name in JOINED:
                    row.pop(name)
        assert ours == theirs, entity.name


def on_disk() -> set[str]:
    """The Parquet files of generations that are complete, relative to the lake's folder."""
    base = Path(settings.RMHUB_LAKE_DIR)
    return {str(path.relative_to(base)) for path in base.glob("g*/**/*") if path.is_file() and path.name[0] != "."}


def entered() -> set[str]:
    return set(LakeFile.objects.values_list("path", flat=True))


class Writer:
    """A second application at the database. What it writes is a copy of `pattern`, or an event without a message."""

    def __init__(self, raw: psycopg.Connection[Any], pattern: Message) -> None:
        self.raw = raw
        self.pattern = pattern
        own = ("id", "xid", "created_at", "position")
        columns = [f.column for f in Message._meta.concrete_fields if f.column not in own and not f.generated]
        self._columns = ", ".join(columns)

    def event(self, count: int = 1, at: datetime = T, kind: str = "message.retrying") -> None:
        self.raw.execute(
            "INSERT INTO messaging_event (at, type, pair_id, data)"
            " SELECT %s + n * interval '1 millisecond', %s, %s, jsonb_build_object('sequence_number', n)"
            " FROM generate_series(1, %s) AS n",
            [at, kind, self.pattern.pair_id, count],
        )

    def message(self, at: datetime = T) -> uuid.UUID:
        """A copy of the pattern, with its event."""
        key = uuid.uuid4()
        self.raw.execute(
            f"INSERT INTO messaging_message (id, created_at, position, {self._columns})"
            f" SELECT %s, %s, %s, {self._columns} FROM messaging_message WHERE id = %s",
            [key, at, key.int % 1000, self.pattern.pk],
        )
        self.raw.execute(
            "INSERT INTO messaging_event (at, type, pair_id, message_id, data)"
            " VALUES (%s, 'message.accepted', %s, %s, '{}')",
            [at, self.pattern.pair_id, key],
        )
        return key

    def change(self, key: uuid.UUID, state: str) -> None:
        self.raw.execute("UPDATE messaging_message SET state = %s, attempts = attempts + 1 WHERE id = %s", [state, key])
        self.raw.execute(
            "INSERT INTO messaging_event (at, type, pair_id, message_id, data)"
            " VALUES (%s, 'message.sent', %s, %s, '{}')",
            [T + timedelta(seconds=1), self.pattern.pair_id, key],
        )

    def commit(self) -> None:
        self.raw.commit()

    def rollback(self) -> None:
        self.raw.rollback()


@contextmanager
def writer(pattern: Message) -> Iterator[Writer]:
    wrapper = connection.copy()
    wrapper.ensure_connection()
    raw = wrapper.connection
    raw.autocommit = False
    try:
        yield Writer(raw, pattern)
    finally:
        raw.rollback()
        wrapper.close()
