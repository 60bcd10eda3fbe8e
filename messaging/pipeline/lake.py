"""Reads the lake as Spark DataFrames: explicit schemas, only the files that count, only the latest version of a row.

What the files hold of a moment is decided once (`manifest.current`): a run reads the same lake however long it takes,
whatever is extracted or compacted meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from messaging.models import LakeFile
from messaging.pipeline import manifest
from messaging.pipeline.manifest import Contents, LakeUnusable
from messaging.pipeline.schemas import ENTITIES, Entity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def struct(entity: Entity, columns: Sequence[str] | None = None) -> StructType:
    """The Spark schema of these columns, in this order (None = all). Raises KeyError for one that does not exist."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

    types = {"string": StringType(), "long": LongType(), "timestamp": TimestampType()}
    known = {column.name: column.type for column in entity.columns}
    return StructType([StructField(name, types[known[name]]) for name in columns or entity.column_names])


def inputs(
    session: SparkSession,
    wanted: Mapping[str, Sequence[str]],
    begin: datetime | None = None,
    end: datetime | None = None,
) -> tuple[dict[str, DataFrame], dict[str, Any]]:
    """The inputs of a job (entity -> columns), restricted to `begin` (inclusive) to `end` (exclusive); lists are whole.

    Also returns the lineage: generation, transactions, moment, and files, rows and bytes of each entity (rows of
    changing entities are versions). Raises LakeUnusable.
    """
    contents = manifest.current()
    facts: dict[str, Any] = {
        "generation": contents.generation,
        "through_xid": contents.through,
        "as_of": contents.as_of.isoformat(),
        "entities": {},
    }
    frames = {}
    for name, columns in wanted.items():
        files = _files(contents, ENTITIES[name], begin, end)
        frames[name] = _frame(session, contents, ENTITIES[name], files, columns, begin, end)
        facts["entities"][name] = {
            "files": len(files),
            "rows": sum(file.rows for file in files),
            "bytes": sum(file.bytes for file in files),
        }
    return frames, facts


def read(
    session: SparkSession,
    entity: str,
    columns: Sequence[str] | None = None,
    *,
    begin: datetime | None = None,
    end: datetime | None = None,
    generation: int | None = None,
) -> DataFrame:
    """One entity's rows, each once. `generation`: raises LakeUnusable when the lake is of another one by now."""
    contents = manifest.current()
    if generation is not None and generation != contents.generation:
        raise LakeUnusable(
            f"Generation {generation} of the lake is gone; {contents.generation} has taken its place: run it again."
        )
    rows = ENTITIES[entity]
    files = _files(contents, rows, begin, end)
    return _frame(session, contents, rows, files, columns or rows.column_names, begin, end)


def of_files(session: SparkSession, entity: Entity, files: Sequence[LakeFile], columns: Sequence[str]) -> DataFrame:
    """These files as they are, every version in them. Columns that are newer than a file are null."""
    if not files:
        from messaging.pipeline.jobs.literal import literal

        return literal(session, [], struct(entity, columns))
    base = manifest.root().resolve()
    paths = [str(base / file.path) for file in files]
    return session.read.schema(struct(entity, columns)).option("recursiveFileLookup", "true").parquet(*paths)


def latest(rows: DataFrame) -> DataFrame:
    """Of each id the version that was written last (highest `xid`)."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    newest_first = Window.partitionBy("id").orderBy(F.col("xid").desc())
    return rows.withColumn("_version", F.row_number().over(newest_first)).where("_version = 1").drop("_version")


def _files(contents: Contents, entity: Entity, begin: datetime | None, end: datetime | None) -> list[LakeFile]:
    if not entity.day:
        return contents.of(entity.name)
    first = begin.astimezone(UTC).date() if begin else None
    last = (end - timedelta(microseconds=1)).astimezone(UTC).date() if end else None
    return contents.of(entity.name, first, last)


def _frame(
    session: SparkSession,
    contents: Contents,
    entity: Entity,
    files: Sequence[LakeFile],
    columns: Sequence[str],
    begin: datetime | None,
    end: datetime | None,
) -> DataFrame:
    from pyspark.sql import functions as F

    needed = list(columns)
    if entity.day and (begin or end) and entity.day not in needed:
        needed.append(entity.day)

    def cut(frame: DataFrame) -> DataFrame:
        """To the range. The day of a row never changes, so this may come before the versions are told apart."""
        if entity.day and begin:
            frame = frame.where(F.col(entity.day) >= F.lit(begin))
        if entity.day and end:
            frame = frame.where(F.col(entity.day) < F.lit(end))
        return frame

    if not entity.changes:
        return cut(_unchanging(session, contents, entity, files, needed)).select(*columns)
    several = [file for file in files if not file.unique_keys]
    if not several:
        return cut(of_files(session, entity, files, needed)).select(*columns)
    keyed = needed + [name for name in ("id", "xid") if name not in needed]
    versions = latest(cut(of_files(session, entity, several, keyed))).select(*columns)
    single = [file for file in files if file.unique_keys]
    if not single:
        return versions
    return cut(of_files(session, entity, single, needed)).select(*columns).unionByName(versions)


def _unchanging(
    session: SparkSession, contents: Contents, entity: Entity, files: Sequence[LakeFile], columns: Sequence[str]
) -> DataFrame:
    """Rows that never change. While an extract of several batches is under way, it may have passed rows that the last
    one had brought ahead: those count where the batch has put them.
    """
    from pyspark.sql import functions as F

    ahead = [file for file in files if file.to_xid == manifest.OPEN_END and file.from_xid < contents.through]
    if not ahead:
        return of_files(session, entity, files, columns)
    keyed = [*columns, "xid"] if "xid" not in columns else columns
    beyond = of_files(session, entity, ahead, keyed).where(F.col("xid") >= F.lit(contents.through)).select(*columns)
    rest = [file for file in files if file not in ahead]
    return of_files(session, entity, rest, columns).unionByName(beyond)
