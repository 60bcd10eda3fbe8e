"""Puts the many small files of past days together: one file a day and entity, each row once, sorted for reading.

The new files hold the same rows as those they replace, less the versions that later ones have outdated. Readers that
have begun go on with the old files, which stay for a while.
"""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from messaging.models import LakeFile
from messaging.pipeline import manifest
from messaging.pipeline.manifest import LakeMoved
from messaging.pipeline.parts import Step, describe, synchronise
from messaging.pipeline.schemas import ENTITIES, Entity
from rmhub import clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from messaging.pipeline.driver import Context

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


def run(context: Context) -> None:
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
