"""Whether deliveries and accepted messages belong together, from bitmaps of their positions (see `islands`).

A delivery has the position of its message, so for each trigger, pair and chunk of 64 positions a bitmap and the XOR of
the hashed message keys say what a join of all deliveries with all messages would say: a trigger takes whole services,
so its bitmap is the union of those of the services that it takes, and its XOR theirs. Chunks where that is not so, and
those with more deliveries than positions, are looked at row by row.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from messaging.pipeline.jobs.islands import bit, chunk, positions

OPEN = ("waiting", "running")


def delivered(deliveries: DataFrame) -> DataFrame:
    """First deliveries (no resubmissions, no firings of joins), summed by trigger, pair and chunk."""
    rows = first_deliveries(deliveries)
    return rows.groupBy(
        F.xxhash64("trigger_id").alias("trigger_key"), "pair_id", chunk(F.col("position")).alias("chunk")
    ).agg(
        F.bit_or(bit(F.col("position"))).alias("bits"),
        F.bit_xor(F.xxhash64("message_pk")).alias("keys"),
        F.count(F.lit(1)).alias("rows"),
    )


def first_deliveries(deliveries: DataFrame) -> DataFrame:
    """Deliveries that acceptance made."""
    return deliveries.where(F.col("resubmission_of").isNull() & F.col("join_id").isNull())


def suspicious(delivered: DataFrame, accepted: DataFrame) -> DataFrame:
    """Chunks (pair_id, chunk) in which some trigger's deliveries are not simply those of whole services.

    `accepted`: inbound messages by pair_id, service (a hash of service and action) and chunk, with `bits` and `keys`.
    """
    services = accepted.select("pair_id", "chunk", F.col("bits").alias("its_bits"), F.col("keys").alias("its_keys"))
    taken = F.col("its_bits").bitwiseAND(F.col("bits")) != 0
    found = (
        delivered.join(services, ["pair_id", "chunk"], "left")
        .groupBy("pair_id", "chunk", "trigger_key")
        .agg(
            F.any_value("bits").alias("bits"),
            F.any_value("keys").alias("keys"),
            F.any_value("rows").alias("rows"),
            F.bit_or(F.when(taken, F.col("its_bits"))).alias("its_bits"),
            F.bit_xor(F.when(taken, F.col("its_keys"))).alias("its_keys"),
        )
    )
    alike = F.col("bits").eqNullSafe(F.col("its_bits")) & F.col("keys").eqNullSafe(F.col("its_keys"))
    odd = ~alike | (F.bit_count("bits") != F.col("rows"))
    return found.where(odd).select("pair_id", "chunk").distinct()


def undelivered(accepted: DataFrame, delivered: DataFrame) -> DataFrame:
    """Accepted messages that no trigger got, although messages of their service before and after them were delivered.

    Returns pair_id, position, `service` and `stretch`: those without a delivered one between them have it in common.
    Where a service has never been delivered, not yet, or not any more, there was no trigger for it: nothing is said.
    """
    by_any = delivered.groupBy("pair_id", "chunk").agg(F.bit_or("bits").alias("given"))
    order = Window.partitionBy("pair_id", "service").orderBy("chunk")
    given = F.col("bits").bitwiseAND(F.coalesce("given", F.lit(0).cast("long")))
    found = accepted.join(by_any, ["pair_id", "chunk"], "left").select(
        "pair_id", "service", "chunk",
        given.alias("given"),
        F.col("bits").bitwiseAND(F.bitwise_not(given)).alias("missing"),
    )  # fmt: skip
    count = F.bit_count("given").cast("long")
    found = found.withColumns(
        {
            "so_far": F.sum(count).over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow)) - count,
            "in_all": F.sum(count).over(Window.partitionBy("pair_id", "service")),
        }
    ).where((F.col("missing") != 0) & (F.col("in_all") > 0))
    found = found.withColumn("position", F.explode(positions(F.col("missing"), F.col("chunk"))))
    stretch = F.col("so_far") + F.bit_count(F.col("given").bitwiseAND(_below(F.col("position"))))
    found = found.withColumn("stretch", stretch).where((F.col("stretch") > 0) & (F.col("stretch") < F.col("in_all")))
    return found.select("pair_id", "position", "service", "stretch")


def _below(position: Column) -> Column:
    """A bitmap of all positions of its chunk before a position."""
    place = position.bitwiseAND(F.lit(63).cast("long")).cast("int")
    return F.when(place == 0, F.lit(0).cast("long")).otherwise(
        F.call_function("shiftrightunsigned", F.lit(-1).cast("long"), 64 - place)
    )
