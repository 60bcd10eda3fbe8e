"""From the message store to the lake: every change once, while traffic goes on.

Rows carry the transaction that wrote them last (`xid`). A batch takes up the transactions from where the lake ends to
the first that may still be under way, so nothing that commits late is passed over. It is read in one snapshot and
becomes part of the lake in one transaction with the new end (`manifest.commit`). A batch that reaches the present also
brings what its snapshot saw of later transactions, in files that the next one replaces: so the lake is the store as it
was at one moment, and no row is missing because it was being changed just then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.csv as csv
from django.db import connection

from messaging.models import LakeFile, LakeState
from messaging.models.feed import HORIZON
from messaging.pipeline import manifest
from messaging.pipeline.manifest import LakeMoved
from messaging.pipeline.parts import Parts, Step, arrow_schema
from messaging.pipeline.schemas import ENTITIES, Entity
from rmhub import clock
from rmhub.postgresql.base import Lock, give_back

if TYPE_CHECKING:
    from messaging.pipeline.driver import Context

BATCH_ROWS = 500_000
SNAPSHOTS = 10  # that are taken at most until one is held up by nothing that is over
PARSED = 4 * 1024 * 1024  # bytes of CSV that become rows at once
STEPS = (
    "state_read",
    "snapshot_taken",
    "rows_read",
    "file_opened",
    "rows_written",
    "file_synchronised",
    "file_renamed",
    "files_complete",
    "committed",
)

Progress = Callable[[str, int, int], None]
Connection = psycopg.Connection[Any]
CHANGING = tuple(entity for entity in ENTITIES.values() if entity.day)
LISTS = tuple(entity for entity in ENTITIES.values() if not entity.day)


@dataclass(frozen=True, slots=True)
class ExtractResult:
    """What was taken up. `through` and `as_of` are the lake's, also where another extract was faster."""

    generation: int
    through: int
    as_of: datetime
    batches: int
    rows: dict[str, int]
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Batch:
    """What one batch reads: transactions from `begin` to before `end`; `last` when it reaches the present."""

    begin: int
    end: int
    last: bool


def run(context: Context) -> None:
    """The job EXTRACT. Many small files of past days are put together when that is worth starting Spark for."""
    result = extract(context.progress)
    from messaging.pipeline import parts

    compacted = parts.when_useful(context)
    swept = manifest.sweep()
    context.succeed(
        rows=sum(result.rows.values()),
        data_as_of=result.as_of,
        generation=result.generation,
        through_xid=result.through,
        batches=result.batches,
        entities=result.rows,
        files=result.files,
        bytes=result.bytes,
        days_compacted=compacted,
        files_deleted=swept,
    )


def extract(progress: Progress, *, batch_rows: int = BATCH_ROWS, step: Step = lambda name: None) -> ExtractResult:
    """Brings the lake up to the present. May run twice at once, and may die anywhere: run it again.

    `progress(what, rows done, rows in total as far as known)`; what it raises ends the extract, and the batches that
    were complete stay. `step` is called with names of STEPS as they are passed (tests). Raises DatabaseError, OSError,
    LakeUnusable.
    """
    asked = clock.now()
    rows = dict.fromkeys(ENTITIES, 0)
    files: list[LakeFile] = []
    batches = 0
    cuts = Cuts(batch_rows)
    with _reader() as (reader, writing):
        total = -1
        while True:
            step("state_read")
            writing.check()  # else files that are not entered yet may be swept, once they are an hour old
            reached = False
            with contextlib.suppress(LakeMoved):
                state = _of_this_database(reader, manifest.state(), look_at_files=not batches)
                if total < 0:
                    total = _estimate(reader, state.extracted_through)
                tell = _teller(progress, sum(rows.values()), total)
                written, reached = _batch(reader, state, cuts, tell, step)
                batches += 1
                files += written
                for file in written:
                    rows[file.entity] += file.rows
            now = manifest.state()
            # Where another extract was faster, what it brought may be enough.
            if now.extracted_at is not None and (reached or now.extracted_at >= asked):
                break
    size = sum(file.bytes for file in files)
    return ExtractResult(now.generation, now.extracted_through, now.extracted_at, batches, rows, len(files), size)


@contextlib.contextmanager
def _reader() -> Iterator[tuple[Connection, Lock]]:
    """A connection of its own that only reads, and says to everybody else that files are being written."""
    wrapper = connection.copy()
    try:
        wrapper.ensure_connection()
        reader = wrapper.connection
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.read_only = True
        # Rows as text in one form, whatever the server's settings; and no more of its cores than one.
        reader.execute("SET TimeZone TO 'UTC'; SET DateStyle TO 'ISO, YMD'; SET client_encoding TO 'UTF8'")
        reader.execute("SET max_parallel_workers_per_gather TO 0; SET jit TO off; SET statement_timeout TO 0")
        # As `manifest.writing` says it, by a lock of this session: it is nobody else's, and saves a connection.
        reader.execute("SELECT pg_advisory_lock_shared(%s)", [manifest.LOCK])
        yield reader, Lock(reader)
    finally:
        if wrapper.connection is not None:
            with contextlib.suppress(psycopg.Error):  # free now, and not when the server notices that this one is gone
                wrapper.connection.execute("SELECT pg_advisory_unlock_all()")
            wrapper.connection.close()  # it is not as others want theirs
        wrapper.close()


def _of_this_database(reader: Connection, state: LakeState, *, look_at_files: bool) -> LakeState:
    """The state, of a new generation when the lake is not one of this database as it is now. Raises LakeMoved."""
    with reader.cursor() as cursor:
        source = manifest.source(cursor)
        cursor.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        (newest,) = cursor.fetchone() or (0,)
    if not state.source and not state.extracted_through:
        return manifest.adopt(state, source)
    # Numbers that this server has not given out yet: it is not as far as the one that the lake was read from.
    if state.source != source or newest < state.extracted_through:
        return manifest.begin_again(state, source)
    if look_at_files and manifest.gone(state.generation):
        return manifest.begin_again(state, source)
    return state


def _batch(
    reader: Connection, state: LakeState, cuts: Cuts, tell: Callable[[str, int], None], step: Step
) -> tuple[list[LakeFile], bool]:
    """Reads and enters one batch. Returns its files and whether it reached the present. Raises LakeMoved."""
    give_back()  # this takes long, and whoever says that the run lives needs one
    as_of = clock.now()
    parts: list[Parts] = []
    files: list[LakeFile] = []

    def read(entity: Entity, begin: int, end: int, where: str) -> None:
        part = Parts(entity, state.generation, begin, end, step)
        parts.append(part)
        _stream(reader, entity, where, part, tell, step)
        files.extend(part.close())

    try:
        with _snapshot(reader) as horizon:
            batch = _range(reader, state.extracted_through, horizon, cuts)
            step("snapshot_taken")
            for entity in CHANGING:
                if batch.begin < batch.end:
                    read(entity, batch.begin, batch.end, f"t.xid >= {batch.begin} AND t.xid < {batch.end}")
                if batch.last:
                    read(entity, batch.end, manifest.OPEN_END, f"t.xid >= {batch.end}")
            for entity in LISTS if batch.last else ():
                read(entity, 0, batch.end, "true")
        step("files_complete")
    except Exception:
        _discard(parts)
        raise
    try:
        manifest.commit(
            state,
            to_xid=batch.end,
            files=files,
            as_of=as_of if batch.last else None,
            lists=[entity.name for entity in LISTS],
        )
    except LakeMoved:
        _discard(parts)
        raise
    step("committed")
    return files, batch.last


@contextlib.contextmanager
def _snapshot(reader: Connection) -> Iterator[int]:
    """One snapshot for all that is read of a batch, and its first transaction that may be under way.

    Another one when that has ended meanwhile: what lies behind it would have to be read again next time.
    """
    for tries_left in range(SNAPSHOTS - 1, -1, -1):
        with reader.transaction():
            # The first statement: this is the snapshot that the rows are read in.
            horizon, ended = reader.execute(HORIZON).fetchone() or (0, False)
            if ended and tries_left:
                continue
            yield horizon
            return


def _range(reader: Connection, begin: int, horizon: int, cuts: Cuts) -> _Batch:
    """Where the batch ends: before the first transaction that may be under way, or where it is large enough."""
    # One of another database may be passed over by one extract and not by the next.
    horizon = max(horizon, begin)
    with reader.cursor() as cursor:
        end = cuts.after(begin, horizon, cursor)
    return _Batch(begin, end, end == horizon)


class Cuts:
    """Where the transactions that are to be read are cut into batches: about `rows` rows of a table in each.

    Found once for all batches of an extract, because the index on `xid` knows ranges of pages and no order. Rows that
    are changed meanwhile move behind the last of them. A transaction that wrote more rows is a batch of its own.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._known: list[int] = []

    def after(self, begin: int, horizon: int, cursor: psycopg.Cursor[Any]) -> int:
        """The first cut behind `begin`, at most `horizon`."""
        if not self._known or self._known[-1] <= begin:
            found: set[int] = set()
            for entity in CHANGING:
                cursor.execute(CUTS.format(table=table_of(entity)), [begin, horizon, self._rows])
                found.update(number for (number,) in cursor.fetchall())
            self._known = sorted(number for number in found if number > begin)
        return min((number for number in self._known if number > begin), default=horizon)


CUTS = """
SELECT xid FROM (
    SELECT xid, row_number() OVER (ORDER BY xid) - 1 AS number FROM {table} WHERE xid >= %s AND xid < %s
) AS numbered WHERE number > 0 AND number %% %s = 0
"""


def table_of(entity: Entity) -> str:
    """The table that has the entity's `xid`."""
    return entity.source.split(" ", 1)[0]


def select(entity: Entity, where: str) -> str:
    """The statement that reads the entity's rows (`t` is its table in `where`)."""
    columns = ", ".join(f"{column.expression} AS {column.name}" for column in entity.columns)
    return f"SELECT {columns} FROM {entity.source} WHERE {where}"  # noqa: S608  (the names are those of schemas.py)


def _stream(
    reader: Connection, entity: Entity, where: str, parts: Parts, tell: Callable[[str, int], None], step: Step
) -> None:
    """Rows from the server to the files. Never more in memory than a few megabytes of text and what `parts` holds."""
    waiting = bytearray()
    with reader.cursor() as cursor, cursor.copy(f"COPY ({select(entity, where)}) TO STDOUT (FORMAT csv)") as copy:
        while data := copy.read():  # one row
            waiting += data
            if len(waiting) >= PARSED:
                _add(waiting, entity, parts, tell, step)
                waiting = bytearray()
    if waiting:
        _add(waiting, entity, parts, tell, step)


def _add(text: bytearray, entity: Entity, parts: Parts, tell: Callable[[str, int], None], step: Step) -> None:
    rows = parse(text, entity)
    step("rows_read")
    parts.add(rows)
    tell(entity.name, rows.num_rows)


def parse(text: bytes | bytearray, entity: Entity) -> pa.Table:
    """Whole rows of PostgreSQL's CSV as a table: an empty field is null, an empty string is in quotes."""
    schema = arrow_schema(entity)
    return csv.read_csv(
        pa.BufferReader(bytes(text)),
        read_options=csv.ReadOptions(column_names=schema.names, use_threads=False, block_size=len(text) + 1),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types={field.name: field.type for field in schema},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ).cast(schema)


def _discard(parts: list[Parts]) -> None:
    for part in parts:
        part.discard()


def _estimate(reader: Connection, begin: int) -> int:
    """About how many rows there are to read, from the planner's statistics: costs nothing."""
    total = 0
    with reader.cursor() as cursor:
        for entity in CHANGING:
            cursor.execute(f"EXPLAIN (FORMAT JSON) SELECT FROM {table_of(entity)} WHERE xid >= {begin:d}")
            row = cursor.fetchone()
            total += int(row[0][0]["Plan"]["Plan Rows"]) if row else 0
    return total


def _teller(progress: Progress, before: int, total: int) -> Callable[[str, int], None]:
    """Adds up rows and tells them; the total is never less than what was read."""
    done = before

    def tell(what: str, rows: int) -> None:
        nonlocal done
        done += rows
        progress(f"Extract: {what}", done, max(done, total))

    return tell
