"""Reads the lake as Spark DataFrames: explicit schemas, only the files that count, only the latest version of a row.

What the files hold of a moment is decided once (`manifest.current`): a run reads the same lake however long it takes,
whatever is extracted or compacted meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from messaging.pipeline import manifest
from messaging.pipeline.schemas import ENTITIES
from messaging.pipeline.submitted import frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    root = str(manifest.root().resolve())
    frames, read = {}, {}
    for name, columns in wanted.items():
        parts, read[name] = contents.parts(ENTITIES[name], begin, end)
        frames[name] = frame(session, ENTITIES[name], columns, parts, root, begin, end)
    return frames, {**contents.lineage, "entities": read}
