"""Comparing two large sets of rows without joining them: by fingerprints that do not depend on the order of rows.

Each row goes into one of many buckets, by a hash of its key. Of each bucket are kept: how many rows it has, the XOR of
a 64-bit hash of their content, and the sums of both halves of a second such hash. One side counts negatively, so equal
buckets come out as four zeros. Only buckets that differ are read again and joined exactly, and only what that join sees
is reported.

So the one possible error is a bucket that differs and is overlooked. XOR cannot see that a row is there twice more: the
count does. Where the counts are equal, XOR is zero by chance with 2^-46 at least (2^-64, less the bits that chose the
bucket where key and content are the same), and both sums with 2^-64. What XOR is blind for on principle (a row twice on
one side, another one twice on the other) is left to the sums. With a million differing buckets in every run, one is
overlooked in 10^13 runs.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

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
