"""Writes the lake's Parquet files (rows in, a file for each day out, in bounded memory), and compacts them later."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from messaging.models import LakeFile
from messaging.pipeline import manifest
from messaging.pipeline.manifest import LakeMoved
from messaging.pipeline.schemas import ENTITIES, VERSION, Entity
from messaging.storage import synchronise
from rmhub import clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from messaging.pipeline.driver import Context


ROW_GROUP = 131_072  # rows
BUFFERED = 48 * 1024 * 1024  # bytes of all days that wait to be written
OPEN_FILES = 32
_TYPES = {"string": pa.string(), "long": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}

Step = Callable[[str], None]


def arrow_schema(entity: Entity) -> pa.Schema:
    """The entity's columns as Arrow types, with what the file is in the metadata."""
    columns = [pa.field(column.name, _TYPES[column.type]) for column in entity.columns]
    return pa.schema(columns, metadata={"rmhub.entity": entity.name, "rmhub.schema_version": str(VERSION)})


def describe(path: Path, entity: Entity, day: date | None, from_xid: int, to_xid: int) -> LakeFile:
    """What the books will say of a file that is complete, from its own footer; it is not entered yet."""
    metadata = pq.read_metadata(path)
    least: datetime | None = None
    most: datetime | None = None
    if entity.day and metadata.num_rows:
        index = metadata.schema.names.index(entity.day)
        for number in range(metadata.num_row_groups):
            statistics = metadata.row_group(number).column(index).statistics
            low, high = statistics.min.astimezone(UTC), statistics.max.astimezone(UTC)
            least, most = min(least or low, low), max(most or high, high)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return LakeFile(
        entity=entity.name,
        day=day,
        path=str(path.relative_to(manifest.root())),
        rows=metadata.num_rows,
        bytes=path.stat().st_size,
        sha256=digest,
        from_xid=from_xid,
        to_xid=to_xid,
        min_at=least,
        max_at=most,
    )


@dataclass(slots=True)
class _Open:
    """A file that is being written, below a name that says so."""

    day: date | None
    path: Path
    temporary: Path
    writer: pq.ParquetWriter


@dataclass(slots=True)
class Parts:
    """The files of one statement. `add` rows in any order, then `close`; what `close` returns is complete and on disk.

    Rows wait until a day has a row group, or all days together reach the limit: then the largest days are written. Of
    the open files the one that was used least lately is completed when there are too many, so a day may get several.
    """

    entity: Entity
    generation: int
    from_xid: int
    to_xid: int
    step: Step
    done: list[LakeFile] = field(default_factory=list)
    _waiting: dict[date | None, list[pa.Table]] = field(default_factory=dict)
    _bytes: dict[date | None, int] = field(default_factory=dict)
    _rows: dict[date | None, int] = field(default_factory=dict)
    _open: OrderedDict[date | None, _Open] = field(default_factory=OrderedDict)

    def add(self, rows: pa.Table) -> None:
        for day, part in _by_day(rows, self.entity.day):
            self._waiting.setdefault(day, []).append(part)
            self._bytes[day] = self._bytes.get(day, 0) + part.nbytes
            self._rows[day] = self._rows.get(day, 0) + part.num_rows
            if self._rows[day] >= ROW_GROUP:
                self._write(day)
        while sum(self._bytes.values()) > BUFFERED:
            self._write(max(self._bytes, key=lambda day: self._bytes[day]))

    def close(self) -> list[LakeFile]:
        for day in list(self._waiting):
            self._write(day)
        while self._open:
            self._complete()
        return self.done

    def discard(self) -> None:
        """Removes everything that was written: it will not be entered."""
        for file in self._open.values():
            file.writer.close()
            file.temporary.unlink(missing_ok=True)
        self._open.clear()
        for entered in self.done:
            (manifest.root() / entered.path).unlink(missing_ok=True)

    def _write(self, day: date | None) -> None:
        rows = pa.concat_tables(self._waiting.pop(day)).combine_chunks()
        del self._bytes[day], self._rows[day]
        if day not in self._open:
            if len(self._open) >= OPEN_FILES:
                self._complete()
            self._open[day] = self._begin(day)
            self.step("file_opened")
        self._open.move_to_end(day)
        self._open[day].writer.write_table(rows, row_group_size=ROW_GROUP)
        self.step("rows_written")

    def _begin(self, day: date | None) -> _Open:
        place = manifest.root() / manifest.folder(self.generation, self.entity.name, day)
        place.mkdir(parents=True, exist_ok=True)
        end = "open" if self.to_xid == manifest.OPEN_END else self.to_xid
        name = f"{self.from_xid}-{end}-{uuid.uuid4().hex[:12]}.parquet"
        temporary = place / f".{name}.part"
        writer = pq.ParquetWriter(temporary, arrow_schema(self.entity), compression="zstd", version="2.6")
        return _Open(day, place / name, temporary, writer)

    def _complete(self) -> None:
        """Completes the file that was used least lately: on disk first, then under its name."""
        _, file = self._open.popitem(last=False)
        file.writer.close()
        synchronise(file.temporary)
        self.step("file_synchronised")
        os.rename(file.temporary, file.path)
        synchronise(file.path.parent)
        self.step("file_renamed")
        self.done.append(describe(file.path, self.entity, file.day, self.from_xid, self.to_xid))


def _by_day(rows: pa.Table, column: str) -> list[tuple[date | None, pa.Table]]:
    if not rows.num_rows:
        return []
    if not column:
        return [(None, rows)]
    days = rows[column].cast(pa.date32())
    found = pc.unique(days).to_pylist()
    if len(found) == 1:
        return [(found[0], rows)]
    return [(day, rows.filter(pc.equal(days, pa.scalar(day, pa.date32())))) for day in found]


# --- Puts the many small files of past days together: one file a day and entity, each row once, sorted for reading.
#
# The new files hold the same rows as those they replace, less the versions that later ones have outdated. Readers
# that have begun go on with the old files, which stay for a while.

SMALL = 8  # files of one day and entity that are worth putting together
WORTH = 40  # files too many for which an extract starts Spark of its own accord
FILE_ROWS = 4_000_000
_ORDER = {
    "events": ("pair_id", "at", "id"),
    "messages": ("pair_id", "position", "id"),
    "transmissions": ("pair_id", "started_at", "id"),
    "signals": ("pair_id", "created_at", "id"),
    "deliveries": ("pair_id", "created_at", "id"),
}


@dataclass(frozen=True, slots=True)
class Day:
    """The files of one past day of one entity."""

    entity: Entity
    day: date
    files: tuple[LakeFile, ...]


@dataclass(frozen=True, slots=True)
class Compacted:
    days: int
    files_before: int
    files_after: int
    rows_before: int
    rows_after: int


def run_compaction(context: Context) -> None:
    """The job COMPACT: every past day that has more than one file of an entity."""
    result = compact(context.session(), waiting(least=2), context.progress)
    swept = manifest.sweep()
    context.succeed(
        rows=result.rows_after,
        days=result.days,
        files_before=result.files_before,
        files_after=result.files_after,
        rows_before=result.rows_before,
        files_deleted=swept,
    )


def when_useful(context: Context) -> int:
    """Called after an extract. Returns how many days were compacted: none while few files could be saved."""
    days = waiting(least=SMALL)
    if sum(len(day.files) - 1 for day in days) < WORTH:
        return 0
    return compact(context.session(), days, context.progress).days


def waiting(*, least: int) -> list[Day]:
    """Past days (UTC; today's and yesterday's still grow) with at least so many files of an entity, oldest first."""
    state = manifest.state()
    before = clock.now().astimezone(UTC).date() - timedelta(days=1)
    rows = LakeFile.objects.filter(
        generation=state.generation, replaced_at__isnull=True, day__lt=before, to_xid__lte=state.extracted_through
    ).order_by("day", "entity", "id")
    days: dict[tuple[str, date], list[LakeFile]] = {}
    for row in rows:
        assert row.day is not None
        days.setdefault((row.entity, row.day), []).append(row)
    return [Day(ENTITIES[name], day, tuple(files)) for (name, day), files in days.items() if len(files) >= least]


def compact(session: SparkSession, days: list[Day], progress: Any, *, step: Step = lambda name: None) -> Compacted:
    """Compacts each day in a transaction of its own. One that somebody else has compacted meanwhile is left alone."""
    done = before = after = rows_before = rows_after = 0
    with manifest.writing() as writing:
        for number, day in enumerate(days):
            writing.check()
            progress(f"Compact: {day.entity.name} of {day.day:%Y-%m-%d}", number, len(days))
            files = _write(session, day)
            step("files_complete")
            try:
                manifest.swap(day.files[0].generation, day.files, files)
            except LakeMoved:
                for file in files:
                    (manifest.root() / file.path).unlink(missing_ok=True)
                continue
            step("swapped")
            done += 1
            before, after = before + len(day.files), after + len(files)
            rows_before += sum(file.rows for file in day.files)
            rows_after += sum(file.rows for file in files)
    return Compacted(done, before, after, rows_before, rows_after)


def _write(session: SparkSession, day: Day) -> list[LakeFile]:
    """The day's rows as new files of the lake that are on disk and not entered yet."""
    from messaging.pipeline.submitted import latest, of_files  # needs Spark, which most extracts do not

    entity = day.entity
    paths = [str(manifest.root().resolve() / file.path) for file in day.files]
    rows = of_files(session, entity, paths, entity.column_names)
    if entity.changes:
        rows = latest(rows)
    count = sum(file.rows for file in day.files)
    rows = rows.repartitionByRange(1 + count // FILE_ROWS, *_ORDER[entity.name])
    rows = rows.sortWithinPartitions(*_ORDER[entity.name])
    place = manifest.folder(day.files[0].generation, entity.name, day.day)
    begin, end = min(file.from_xid for file in day.files), max(file.to_xid for file in day.files)
    folder = manifest.root().resolve() / place / f".compact-{uuid.uuid4().hex[:12]}"
    # What other tools can read; the default is a form of its own.
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    try:
        rows.write.option("compression", "zstd").parquet(str(folder))
        return [_move(path, entity, day.day, begin, end) for path in sorted(folder.glob("part-*.parquet"))]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _move(written: Path, entity: Entity, day: date, begin: int, end: int) -> LakeFile:
    path = written.parent.parent / f"{begin}-{end}-{uuid.uuid4().hex[:12]}.parquet"
    synchronise(written)
    os.rename(written, path)
    synchronise(path.parent)
    return describe(manifest.root() / path.relative_to(manifest.root().resolve()), entity, day, begin, end)
