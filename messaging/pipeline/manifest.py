"""The lake's books: how far it is, which files count, and what may be deleted.

The lake is the set of files that have a row here and were not replaced. A batch of an extract becomes part of it in one
transaction, which also moves `LakeState` by compare-and-set: of two extracts that began at the same place one wins.
Imports neither Arrow nor Spark.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, Sum

from messaging.exceptions import ApplicationError
from messaging.models import ArchivedMessage, LakeFile, LakeState, PipelineRun
from messaging.pipeline.schemas import ENTITIES, VERSION, Entity
from messaging.report_choices import RunState
from rmhub import clock
from rmhub.postgresql.base import Lock, locked

# Key of the advisory lock: whoever writes files holds it shared, whoever deletes files needs it alone.
LOCK = 0x524D4C4B
KEPT = timedelta(hours=1)
# `to_xid` of files with rows of transactions that the lake has not reached: the next extract brings them again.
OPEN_END = (1 << 63) - 1
_GENERATION = "g"  # folders of generations are `g1`, `g2`, ...; other folders of the lake are not ours


class LakeMoved(Exception):
    """Somebody else has moved the lake since it was looked at: what was prepared does not fit any more."""


class LakeUnusable(ApplicationError):
    """The lake cannot be read or gone on with. The sentence says why, and what to do."""

    code = "lake_unusable"


@dataclass(frozen=True, slots=True)
class Contents:
    """The lake at one moment. `through`: all transactions below are in; `as_of`: all that committed before is in."""

    generation: int
    through: int
    as_of: datetime
    files: tuple[LakeFile, ...] = field(repr=False)

    @property
    def lineage(self) -> dict[str, Any]:
        """Which lake it is, as JSON."""
        return {"generation": self.generation, "through_xid": self.through, "as_of": self.as_of.isoformat()}

    def parts(
        self, entity: Entity, begin: datetime | None, end: datetime | None
    ) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """The entity's files of a range by how `submitted.frame` reads them; and how many, with their rows and bytes.

        Lists are whole. While an extract of several batches is under way, it may have passed rows that the last one had
        brought ahead: those count where the batch has put them.
        """
        first = begin.astimezone(UTC).date() if begin else date.min
        last = (end - timedelta(microseconds=1)).astimezone(UTC).date() if end else date.max
        files = [
            file
            for file in self.files
            if file.entity == entity.name and (file.day is None or first <= file.day <= last)
        ]

        def several(file: LakeFile) -> bool:
            """Whether rows of the file may be in another one, too."""
            if entity.changes:
                return not file.unique_keys
            return file.to_xid == OPEN_END and file.from_xid < self.through

        groups = (
            ([file for file in files if not several(file)], False, None),
            ([file for file in files if several(file)], entity.changes, None if entity.changes else self.through),
        )
        found = [
            {"files": [file.path for file in group], "latest": latest, "from_xid": xid}
            for group, latest, xid in groups
            if group
        ]
        sizes = {"rows": sum(file.rows for file in files), "bytes": sum(file.bytes for file in files)}
        return found, {"files": len(files), **sizes}


@contextmanager
def writing() -> Iterator[Lock]:
    """For whoever writes files: nobody deletes those without a row meanwhile."""
    with locked(LOCK, shared=True) as lock:
        assert lock is not None
        yield lock


def root() -> Path:
    return Path(settings.RMHUB_LAKE_DIR)


def folder(generation: int, entity: str, day: date | None) -> Path:
    """Where files of this entity and day lie, relative to the lake's folder."""
    path = Path(f"{_GENERATION}{generation}", entity)
    return path / f"day={day:%Y-%m-%d}" if day else path


def state() -> LakeState:
    """The row, made when there is none yet."""
    row = LakeState.objects.filter(pk=1).first()
    if row is None:
        LakeState.objects.bulk_create([LakeState(pk=1)], ignore_conflicts=True)
        row = LakeState.objects.get(pk=1)
    return row


def source(cursor: Any) -> str:
    """Names the database whose transaction numbers the lake goes by: server and database."""
    cursor.execute(
        "SELECT (SELECT system_identifier FROM pg_control_system())::text || '/' ||"
        " (SELECT oid FROM pg_database WHERE datname = current_database())::text"
    )
    return str(cursor.fetchone()[0])


def commit(
    seen: LakeState, *, to_xid: int, files: Sequence[LakeFile], as_of: datetime | None, lists: Sequence[str] = ()
) -> LakeState:
    """Enters a batch that goes from `seen.extracted_through` to `to_xid`. Returns the new state.

    `as_of` is given for a batch that reached the present. It brings the rows from `to_xid` on that its snapshot saw
    (in files with an open end), which replace those of the last time, and all `lists` anew.
    Raises LakeMoved when the lake is not where it was seen; then nothing has changed.
    """
    now = clock.now()
    with transaction.atomic():
        moved = LakeState.objects.filter(
            Q(extracted_at=seen.extracted_at) if seen.extracted_at else Q(extracted_at__isnull=True),
            pk=1,
            generation=seen.generation,
            source=seen.source,
            extracted_through=seen.extracted_through,
        )
        if not moved.update(extracted_through=to_xid, extracted_at=as_of or seen.extracted_at):
            raise LakeMoved
        current = LakeFile.objects.filter(generation=seen.generation, replaced_at__isnull=True)
        days = {(file.entity, file.day) for file in files}
        if as_of is not None:
            ahead = current.filter(to_xid=OPEN_END)
            days |= set(ahead.values_list("entity", "day"))
            ahead.update(replaced_at=now)
            current.filter(entity__in=lists).update(replaced_at=now)
        _enter(seen.generation, files, now)
        _flag_unique(seen.generation, days)
    return state()


def swap(generation: int, replaced: Sequence[LakeFile], files: Sequence[LakeFile]) -> None:
    """Puts files with the same rows in the place of others. Raises LakeMoved when one of those is not current."""
    now = clock.now()
    with transaction.atomic():
        row = LakeState.objects.select_for_update().get(pk=1)
        ids = [file.pk for file in replaced]
        current = LakeFile.objects.filter(generation=generation, replaced_at__isnull=True, pk__in=ids)
        if row.generation != generation or current.update(replaced_at=now) != len(ids):
            raise LakeMoved
        _enter(generation, files, now)
        _flag_unique(generation, {(file.entity, file.day) for file in files})


def begin_again(seen: LakeState | None = None, name: str = "") -> LakeState:
    """A new, empty generation, read from the source `name` ("" = not known yet). Files of the last one go later.

    With `seen`, raises LakeMoved when somebody else has begun one since.
    """
    state()
    with transaction.atomic():
        row = LakeState.objects.select_for_update().get(pk=1)
        if seen is not None and (row.generation, row.source) != (seen.generation, seen.source):
            raise LakeMoved
        row.generation += 1
        row.source = name
        row.extracted_through = 0
        row.extracted_at = None
        row.save()
        LakeFile.objects.filter(replaced_at__isnull=True).update(replaced_at=clock.now())
    return row


def adopt(seen: LakeState, name: str) -> LakeState:
    """Writes down the source of a lake that is still empty. Raises LakeMoved when somebody else was faster."""
    if not LakeState.objects.filter(pk=1, generation=seen.generation, source="").update(source=name):
        raise LakeMoved
    return state()


def current() -> Contents:
    """What the lake holds now. Raises LakeUnusable when it was never filled, or a file of it is gone."""
    with transaction.atomic():
        state()
        row = LakeState.objects.select_for_update().get(pk=1)  # no batch is entered between the two reads
        files = tuple(LakeFile.objects.filter(generation=row.generation, replaced_at__isnull=True).order_by("id"))
    if row.extracted_at is None:
        raise LakeUnusable("The lake is empty or only partly filled: run `manage.py pipeline run extract` first.")
    lost = missing(files)
    if lost:
        raise LakeUnusable(
            f"{len(lost)} files of the lake are gone from {root()} (the first: {lost[0].path}):"
            " run `manage.py pipeline run extract`, which reads everything again."
        )
    return Contents(row.generation, row.extracted_through, row.extracted_at, files)


def rows() -> int:
    """How many rows the files have that count, of all entities."""
    return LakeFile.objects.filter(replaced_at__isnull=True).aggregate(total=Sum("rows"))["total"] or 0


def missing(files: Iterable[LakeFile]) -> list[LakeFile]:
    """Those that are not on disk with the size that they were written with."""
    base = root()
    return [file for file in files if _size(base / file.path) != file.bytes]


def gone(generation: int) -> bool:
    """Whether current files are missing, so that all must be read again from the store.

    Raises LakeUnusable where that would lose something: the store does not have any more what was purged.
    """
    files = list(LakeFile.objects.filter(generation=generation, replaced_at__isnull=True))
    lost = missing(files)
    if not lost:
        return False
    if len(lost) < len(files) and ArchivedMessage.objects.filter(purged_at__isnull=False).exists():
        place = root() / f"{_GENERATION}{generation}"
        raise LakeUnusable(
            f"{len(lost)} of {len(files)} files of the lake are gone (the first: {lost[0].path}). Put them back from a"
            f" backup; or delete {place} to have the store read again, without what was purged from it."
        )
    return True


def sweep(now: datetime | None = None) -> int:
    """Deletes files that do not count: those without a row, and replaced ones that no run can be reading. How many.

    Leaves everything that is younger than an hour, and does nothing while somebody writes files.
    """
    with locked(LOCK, wait=False) as lock:
        if lock is None:
            return 0
        return _sweep_replaced(now or clock.now()) + _sweep_orphans()


def _sweep_replaced(now: datetime) -> int:
    """The file goes first: a row without its file is swept the next time, a file without its row as an orphan."""
    oldest = (
        PipelineRun.objects.filter(state=RunState.RUNNING, started_at__isnull=False)
        .order_by("started_at")
        .values_list("started_at", flat=True)
        .first()
    )
    before = min(now - KEPT, oldest) if oldest else now - KEPT
    rows = list(LakeFile.objects.filter(replaced_at__lt=before))
    for row in rows:
        (root() / row.path).unlink(missing_ok=True)
    LakeFile.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return len(rows)


def _sweep_orphans() -> int:
    known = set(LakeFile.objects.values_list("path", flat=True))
    count = 0
    youngest = time.time() - KEPT.total_seconds()
    for path in root().glob(f"{_GENERATION}[0-9]*/**/*"):
        try:
            status = path.stat()
            if path.is_dir():
                # Gone once it is empty; one that is not stays.
                if status.st_mtime < youngest and not any(path.iterdir()):
                    path.rmdir()
                continue
            if status.st_mtime >= youngest or str(path.relative_to(root())) in known:
                continue
            path.unlink()
        except FileNotFoundError:
            continue
        count += 1
    return count


def _enter(generation: int, files: Sequence[LakeFile], now: datetime) -> None:
    for file in files:
        file.generation, file.schema_version, file.created_at = generation, VERSION, now
        file.unique_keys = not ENTITIES[file.entity].changes
    LakeFile.objects.bulk_create(files)


_FLAG = """
UPDATE messaging_lakefile f SET unique_keys = u.alone FROM (
    SELECT entity, day, count(DISTINCT (from_xid, to_xid)) = 1 AS alone FROM messaging_lakefile
    WHERE generation = %s AND replaced_at IS NULL AND entity = %s AND day = ANY(%s) GROUP BY entity, day
) u
WHERE f.generation = %s AND f.replaced_at IS NULL AND f.entity = u.entity AND f.day = u.day AND f.unique_keys <> u.alone
"""


def _flag_unique(generation: int, touched: Iterable[tuple[str, date | None]]) -> None:
    """One statement reads each key once, so the files of a day are unique while all come from one statement."""
    days: dict[str, list[date]] = {}
    for entity, day in touched:
        if day is not None and ENTITIES[entity].changes:
            days.setdefault(entity, []).append(day)
    with connection.cursor() as cursor:
        for entity, list_of_days in days.items():
            cursor.execute(_FLAG, [generation, entity, list_of_days, generation])


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
