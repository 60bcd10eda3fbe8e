"""Rows that the driver has made, as a DataFrame, without a Python process at any executor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType


def literal(session: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType) -> DataFrame:
    """Some rows of texts, numbers, truth values and nulls, in the order of the schema's columns.

    `createDataFrame` of a list starts Python workers, which executors of a cluster need not have.
    """
    names = schema.fieldNames()
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows], allow_nan=False)
    parsed = F.from_json(F.lit(text), ArrayType(schema), {"mode": "FAILFAST"})
    return session.range(1, numPartitions=1).select(F.inline(parsed))
