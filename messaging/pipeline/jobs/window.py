"""Memory window: how late repeats come, and how long ids must be remembered for a wished-for risk.

Messages: those received in the range, by partner and by the profile of the agreement version that they came under.
Repeats: copies after the first that were recognised in the range (events message.duplicate), by the partner and the
profile of the road on which the copy came. A repeat's delay counts from where memory counts: of repeatable requests
from their first-instance time, of ebXML messages from their storage. A copy that came after its id was forgotten was
not recognised, so no delay is longer than the window that was in force then.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from messaging.pipeline.jobs.frames import frequencies, quantiles, schema

INPUTS: Mapping[str, tuple[str, ...]] = {
    "messages": ("direction", "pair_id", "agreement_version_id", "created_at"),
    "events": ("at", "type", "pair_id", "message_pk", "first_sent_at", "message_created_at", "rule"),
    "pairs": ("id", "partner"),
    "agreements": (
        "id", "agreement_id", "partner", "number", "state", "profile", "timeout", "retries", "retry_interval",
        "memory_window", "partner_window",
    ),
}  # fmt: skip

RISKS = (10**4, 10**6, 10**9)
FEWEST = 20  # repeats below which nothing is measured
SUPPORT = 10  # later repeats that a measured window must rest on
TAIL = 10  # the exponential tail is that of the latest tenth of the repeats, and of at least `SUPPORT`
BYTES = {"ebxml": 352, "repeatable": 288}  # an id with its indexes, measured at a million (docs/reports.md)
_MICROS = 1e6
_GB = 1e9
_GROUP = ("partner", "profile")
_REPEATABLE_RULES = ("replay", "busy", "doubt")  # what that profile's acceptance says of a copy

OUTPUTS: Mapping[str, StructType] = {
    "advice": schema(
        "partner string, profile string, one_in long, basis string, window long, ids long, bytes long, cost double, "
        "in_force long, suffices boolean"
    ),
    "delays": schema(
        "partner string, profile string, messages long, repeats long, p50 double, p90 double, p99 double, "
        "p999 double, longest double"
    ),
    "histogram": schema("partner string, profile string, upper long, repeats long"),
}


def run(inputs: Mapping[str, DataFrame], parameters: Mapping[str, Any]) -> dict[str, DataFrame]:
    """The tables `advice`, `delays` and `histogram`.

    parameters: `to` and `as_of` (datetime) end the time over which ids came in; `price_gb_month` (float or None).
    """
    repeats = _repeats(inputs)
    counts = _counts(inputs, repeats)
    return {
        "advice": _advice(inputs, repeats, counts, parameters),
        "delays": _delays(repeats, counts),
        "histogram": _histogram(repeats),
    }


def _repeats(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """One row a copy: partner, profile, delay (microseconds; 0 where the sender's clock is ahead)."""
    pairs = F.broadcast(inputs["pairs"].select(F.col("id").alias("pair_id"), "partner"))
    profile = F.when(F.col("rule").isin(*_REPEATABLE_RULES), "repeatable").otherwise("ebxml")
    first = F.when(profile == "repeatable", F.coalesce("first_sent_at", "message_created_at")).otherwise(
        F.col("message_created_at")
    )
    copies = inputs["events"].where((F.col("type") == "message.duplicate") & F.col("message_created_at").isNotNull())
    delay = F.unix_micros("at") - F.unix_micros(first)
    return copies.join(pairs, "pair_id").select(
        "partner", profile.alias("profile"), F.greatest(delay, F.lit(0)).cast("long").alias("delay")
    )


def _counts(inputs: Mapping[str, DataFrame], repeats: DataFrame) -> DataFrame:
    """Messages and repeats by partner and profile, and when the first of the messages came."""
    versions = F.broadcast(inputs["agreements"].select(F.col("id").alias("agreement_version_id"), "profile"))
    pairs = F.broadcast(inputs["pairs"].select(F.col("id").alias("pair_id"), "partner"))
    messages = (
        inputs["messages"]
        .where(F.col("direction") == "in")
        .groupBy("pair_id", "agreement_version_id")
        .agg(F.count(F.lit(1)).alias("messages"), F.min("created_at").alias("since"))
        .join(versions, "agreement_version_id")
        .join(pairs, "pair_id")
        .groupBy(*_GROUP)
        .agg(F.sum("messages").alias("messages"), F.min("since").alias("since"))
    )
    copies = repeats.groupBy(*_GROUP).agg(F.count(F.lit(1)).alias("repeats"), F.max("delay").alias("longest"))
    zero = F.lit(0).cast("long")
    return messages.join(copies, list(_GROUP), "full").select(
        *_GROUP,
        F.coalesce("messages", zero).alias("messages"),
        F.coalesce("repeats", zero).alias("repeats"),
        "since",
        "longest",
    )


def _delays(repeats: DataFrame, counts: DataFrame) -> DataFrame:
    """Quantiles of the delays, by partner and profile. Seconds."""
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    found = quantiles(frequencies(repeats, _GROUP, "delay"), _GROUP, "delay", shares, unit=_MICROS)
    rows = counts.join(found, list(_GROUP), "left").withColumn("longest", F.col("longest") / _MICROS)
    return rows.select(*OUTPUTS["delays"].names)


def _histogram(repeats: DataFrame) -> DataFrame:
    """Repeats by delay: below 1 s, then from 1, 2, 4, 8 ... seconds to below twice that."""
    seconds = F.call_function("div", F.col("delay"), F.lit(1_000_000).cast("long"))
    upper = F.when(seconds == 0, F.lit(1).cast("long")).otherwise(F.expr("shiftleft(1L, length(bin(_seconds)))"))
    rows = repeats.withColumn("_seconds", seconds).withColumn("upper", upper)
    return rows.groupBy(*_GROUP, "upper").agg(F.count(F.lit(1)).alias("repeats")).select(*OUTPUTS["histogram"].names)


# --- advice


def _advice(
    inputs: Mapping[str, DataFrame], repeats: DataFrame, counts: DataFrame, parameters: Mapping[str, Any]
) -> DataFrame:
    """For each partner and profile that sent us messages, and each of `RISKS`: the window after which at most one
    message in so many is repeated once more.

    allowed = messages / one_in repeats may come later. measured (at least `SUPPORT` allowed): the delay that exactly so
    many exceed. extrapolated: beyond the latest tenth of the repeats the delays are taken to fall off exponentially, by
    their mean excess over the one before that tenth; at least the delay that `allowed` exceed, so at least the longest
    where none may. agreed (fewer than `FEWEST` repeats): the time for which the sender may repeat by the agreement
    (Timeout + Retries x RetryInterval; of the repeatable profile the agreed window for repeats), at least the longest.
    Whole seconds, rounded up. ids = messages a second since the first one x window.
    """
    rows = counts.where(F.col("messages") > 0).join(_agreed(inputs["agreements"]), list(_GROUP), "left")
    rows = rows.select("*", F.explode(F.array(*(F.lit(one).cast("long") for one in RISKS))).alias("one_in"))
    rows = rows.withColumn("allowed", F.call_function("div", F.col("messages"), F.col("one_in")))
    tail = F.greatest(F.call_function("div", F.col("repeats"), F.lit(TAIL).cast("long")), F.lit(SUPPORT).cast("long"))
    rows = rows.withColumn("tail", tail)
    latest = Window.partitionBy(*_GROUP).orderBy(F.desc("delay"))
    # Only as many of the latest as may be asked for: the tail, or what a measured window lets pass.
    ranked = repeats.withColumn("rank", F.row_number().over(latest))
    asked = rows.select(*_GROUP, "one_in", "allowed", "tail")
    found = (
        ranked.join(F.broadcast(asked), list(_GROUP))
        .where(F.col("rank") <= F.greatest("allowed", "tail") + 1)
        .groupBy(*_GROUP, "one_in")
        .agg(
            F.max(F.when(F.col("rank") == F.col("allowed") + 1, F.col("delay"))).alias("exceeded"),
            F.max(F.when(F.col("rank") == F.col("tail") + 1, F.col("delay"))).alias("threshold"),
            F.sum(F.when(F.col("rank") <= F.col("tail"), F.col("delay"))).alias("tail_sum"),
        )
    )
    return _priced(rows.join(found, [*_GROUP, "one_in"], "left"), parameters)


def _priced(rows: DataFrame, parameters: Mapping[str, Any]) -> DataFrame:
    zero = F.lit(0).cast("long")
    threshold = F.coalesce("threshold", zero)
    excess = F.col("tail_sum") / F.col("tail") - threshold
    fall = F.greatest(F.log(F.col("tail") * F.col("one_in") / F.col("messages")), F.lit(0.0))
    beyond = F.greatest(threshold + excess * fall, F.coalesce("exceeded", zero))
    few = F.col("repeats") < FEWEST
    agreed = F.greatest(F.coalesce("agreed", zero) * 1_000_000, F.coalesce("longest", zero))
    measured = F.col("allowed") >= SUPPORT
    micros = F.when(few, agreed).when(measured, F.coalesce("exceeded", zero)).otherwise(beyond)
    basis = F.when(few, "agreed").when(measured, "measured").otherwise("extrapolated")
    until = F.lit(_end(parameters))
    seconds = F.greatest((F.unix_micros(until) - F.unix_micros("since")) / _MICROS, F.lit(1.0))
    per_id = F.when(F.col("profile") == "repeatable", BYTES["repeatable"]).otherwise(BYTES["ebxml"]).cast("long")
    price = parameters.get("price_gb_month")
    cost = F.lit(None).cast("double") if price is None else F.col("bytes") / _GB * F.lit(float(price))
    found = rows.withColumn("basis", basis).withColumn("window", F.ceil(micros / _MICROS).cast("long"))
    found = found.withColumn("ids", F.ceil(F.col("messages") * F.col("window") / seconds).cast("long"))
    found = found.withColumn("bytes", F.col("ids") * per_id).withColumn("cost", cost)
    return found.withColumn("suffices", F.col("in_force") >= F.col("window")).select(*OUTPUTS["advice"].names)


def _end(parameters: Mapping[str, Any]) -> datetime:
    """The end of the time in which messages were counted."""
    as_of: datetime = parameters["as_of"]
    to: datetime | None = parameters.get("to")
    return as_of if to is None else min(to, as_of)


def _agreed(agreements: DataFrame) -> DataFrame:
    """By partner and profile: the shortest memory window in force, and the longest time of repeats that is agreed.

    Where none is in force, the agreed time is that of the newest versions that were; the window in force is null.
    """
    active = F.col("state") == "active"
    newest = Window.partitionBy("agreement_id").orderBy(F.when(active, 0).otherwise(1), F.desc("number"))
    versions = agreements.where(F.col("state") != "draft").withColumn("_rank", F.row_number().over(newest))
    repeats_for: Column = F.when(F.col("profile") == "repeatable", F.col("partner_window")).otherwise(
        F.col("timeout") + F.col("retries") * F.col("retry_interval")
    )
    return (
        versions.where(F.col("_rank") == 1)
        .groupBy(*_GROUP)
        .agg(F.min(F.when(active, F.col("memory_window"))).alias("in_force"), F.max(repeats_for).alias("agreed"))
    )
