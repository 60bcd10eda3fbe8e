"""Schemas in words, and rows that the driver has made as a DataFrame, without a Python process at any executor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "strings": ArrayType(StringType()),
    "long": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
}


def schema(text: str) -> StructType:
    """The schema that `name type, name type ...` says, with the names of `TYPES`; Spark's own parser needs a session.

    Raises KeyError for a type that is none of them.
    """
    columns = (column.split() for column in text.split(","))
    return StructType([StructField(name, TYPES[kind]) for name, kind in columns])


def literal(session: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType) -> DataFrame:
    """Some rows of texts, numbers, truth values and nulls, in the order of the schema's columns.

    `createDataFrame` of a list starts Python workers, which executors of a cluster need not have.
    """
    names = schema.fieldNames()
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows], allow_nan=False)
    parsed = F.from_json(F.lit(text), ArrayType(schema), {"mode": "FAILFAST"})
    return session.range(1, numPartitions=1).select(F.inline(parsed))
