"""Exact quantiles of whole numbers, in bounded memory: sorted and counted, never gathered in one place.

Linear interpolation between neighbours, which is PostgreSQL's `percentile_cont` and Spark's `percentile`; the latter
keeps every different value of a group in the heap, and one group may be the whole lake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


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
