"""What several jobs do with data frames: rows that the driver has made, quantiles, and comparing without a join."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
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


# --- Exact quantiles of whole numbers, in bounded memory: sorted and counted, never gathered in one place.
#
# Linear interpolation between neighbours, which is PostgreSQL's `percentile_cont` and Spark's `percentile`; the
# latter keeps every different value of a group in the heap, and one group may be the whole lake.


def frequencies(frame: DataFrame, keys: Sequence[str], value: str) -> DataFrame:
    """How often each value occurs: columns `keys`, `value`, `weight`. A frame that has a `weight` is added up."""
    weight = F.sum("weight") if "weight" in frame.columns else F.count(F.lit(1))
    return frame.where(F.col(value).isNotNull()).groupBy(*keys, value).agg(weight.alias("weight"))


def quantiles(
    counted: DataFrame, keys: Sequence[str], value: str, wanted: Mapping[str, float], *, unit: float = 1.0
) -> DataFrame:
    """One row a group: `keys` and a double for each name of `wanted` (name -> share from 0 to 1), divided by `unit`.

    `counted` comes from `frequencies`; `value` is a long. Groups without values have no row.
    """
    group = Window.partitionBy(*keys)
    upto = F.sum("weight").over(group.orderBy(value).rowsBetween(Window.unboundedPreceding, Window.currentRow))
    ranked = counted.select(*keys, value, "weight", upto.alias("upto"), F.sum("weight").over(group).alias("total"))
    first = F.col("upto") - F.col("weight")

    def at(rank: Column) -> Column:
        return F.max(F.when((first <= rank) & (rank < F.col("upto")), F.col(value)))

    # Aggregates first, then the arithmetic on them: one row a group by then.
    aggregates = [F.max("total").alias("total")]
    for name, share in wanted.items():
        place = F.lit(share) * (F.col("total") - 1)
        aggregates += [at(F.floor(place)).alias(f"{name}_low"), at(F.ceil(place)).alias(f"{name}_high")]
    found = ranked.groupBy(*keys).agg(*aggregates)
    return found.select(*keys, *(_between(name, share, unit).alias(name) for name, share in wanted.items()))


def _between(name: str, share: float, unit: float) -> Column:
    place = F.lit(share) * (F.col("total") - 1)
    low, high = F.col(f"{name}_low"), F.col(f"{name}_high")
    return (low + (high - low) * (place - F.floor(place))) / F.lit(unit)


# --- Comparing two large sets of rows without joining them: by fingerprints that do not depend on the order of rows.
#
# Each row goes into one of many buckets, by a hash of its key. Of each bucket are kept: how many rows it has, the XOR
# of a 64-bit hash of their content, and the sums of both halves of a second such hash. One side counts negatively, so
# equal buckets come out as four zeros. Only buckets that differ are read again and joined exactly, and only what that
# join sees is reported.
#
# So the one possible error is a bucket that differs and is overlooked. XOR cannot see that a row is there twice more:
# the count does. Where the counts are equal, XOR is zero by chance with 2^-46 at least (2^-64, less the bits that
# chose the bucket where key and content are the same), and both sums with 2^-64. What XOR is blind for on principle
# (a row twice on one side, another one twice on the other) is left to the sums. With a million differing buckets in
# every run, one is overlooked in 10^13 runs.

BUCKETS = 1 << 18
_LOW = (1 << 32) - 1
_CHECKS = ("rows", "mixed", "low", "high")


def bucket(buckets: int, *key: Column) -> Column:
    """The bucket (0 to `buckets` - 1, a power of two) that rows with this key go to. Long."""
    if buckets < 1 or buckets & (buckets - 1):
        raise ValueError(f"{buckets} buckets: a power of two, please")
    return F.xxhash64(*key).bitwiseAND(F.lit(buckets - 1).cast("long"))


def fingerprinted(rows: DataFrame, sign: int, bucket: Column, content: tuple[Column, ...], *more: Column) -> DataFrame:
    """One row with `bucket`, the four checks and `more` for each row. `sign`: 1 for the one side, -1 for the other."""
    second = F.xxhash64(F.lit("second"), *content)
    return rows.select(
        bucket.alias("bucket"),
        F.lit(sign).cast("long").alias("rows"),
        F.xxhash64(*content).alias("mixed"),
        (second.bitwiseAND(F.lit(_LOW).cast("long")) * F.lit(sign)).alias("low"),
        (F.shiftrightunsigned(second, 32) * F.lit(sign)).alias("high"),
        *more,
    )


def compared(rows: DataFrame, *more: Column) -> DataFrame:
    """The buckets of both sides (a union of `fingerprinted`) with `differs`, and the aggregates `more`."""
    found = rows.groupBy("bucket").agg(
        F.sum("rows").alias("rows"),
        F.bit_xor("mixed").alias("mixed"),
        F.sum("low").alias("low"),
        F.sum("high").alias("high"),
        *more,
    )
    differs = reduce(Column.__or__, [F.col(name) != 0 for name in _CHECKS])
    return found.withColumn("differs", differs).drop(*_CHECKS)
