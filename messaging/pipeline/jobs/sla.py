"""SLA attainment: how many documents of an agreement were due in a calendar month (UTC), and how many were in time.

Counts what the hub counts live (docs/service-levels.md), from the facts themselves and not from its counts: a document
belongs to the month in which its limit ends, and is judged when the five minutes are over in which it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from messaging.pipeline.jobs.frames import schema

SPAN = 300  # seconds
INPUTS: Mapping[str, tuple[str, ...]] = {
    "messages": ("id", "direction", "semantics", "agreement_version_id", "created_at"),
    "events": ("at", "type", "message_pk"),
    "deliveries": ("id", "message_pk", "trigger_id", "resubmission_of", "join_id", "state", "completed_at"),
    "triggers": ("id", "join_type"),
    "agreements": (
        *("id", "agreement_id", "tpa_id", "partner", "number", "profile", "final_receipt"),
        *("acknowledged_within", "acknowledged_hundredths", "processed_within", "processed_hundredths"),
    ),
}  # fmt: skip
OUTPUTS: Mapping[str, StructType] = {
    "months": schema(
        "agreement_id string, agreement string, partner string, target string, month timestamp, percent double, "
        "due long, met long, missed long, open long, attained double, allowed long, used double"
    ),
}
_GROUP = ("agreement_id", "target", "month")


def run(inputs: Mapping[str, DataFrame], parameters: Mapping[str, Any]) -> dict[str, DataFrame]:
    """The table `months`. parameters: `as_of` (datetime), up to when the inputs know what happened."""
    promised = _promised(inputs)
    judged = F.lit(parameters["as_of"])
    ends = F.timestamp_seconds((F.call_function("div", F.unix_timestamp("until"), F.lit(SPAN)) + 1) * SPAN)
    met = F.coalesce(F.col("done_at") <= F.col("until"), F.lit(False))
    withdrawn = F.coalesce(F.col("withdrawn_at") <= F.col("until"), F.lit(False))
    left = ~met & ~withdrawn
    facts = promised.withColumn("month", F.date_trunc("month", "until")).select(
        *_GROUP,
        *("agreement", "partner", "number", "hundredths"),
        (~withdrawn).cast("long").alias("due"),
        met.cast("long").alias("met"),
        (left & (ends <= judged)).cast("long").alias("missed"),
        (left & (ends > judged)).cast("long").alias("open"),
    )
    months = facts.groupBy(*_GROUP).agg(
        F.max_by("hundredths", "number").alias("hundredths"),
        F.max("agreement").alias("agreement"),
        F.max("partner").alias("partner"),
        *(F.sum(name).alias(name) for name in ("due", "met", "missed", "open")),
    )
    return {"months": _budgets(months).select(*OUTPUTS["months"].names)}


def _budgets(months: DataFrame) -> DataFrame:
    """With what the target allows: of the documents of the month, or of the month before, whichever is more."""
    order = Window.partitionBy("agreement_id", "target").orderBy("month")
    follows = F.lag("month").over(order) == F.add_months("month", -1).cast("timestamp")
    before = F.when(follows, F.lag("due").over(order))
    expected = F.greatest(F.col("due"), F.coalesce(before, F.lit(0)))
    decided = F.col("met") + F.col("missed")
    allowed = F.call_function("div", expected * (F.lit(10_000) - F.col("hundredths")), F.lit(10_000).cast("long"))
    used = F.when(F.col("allowed") > 0, 100 * F.col("missed") / F.col("allowed")).when(F.col("missed") == 0, 0.0)
    return (
        months.withColumn("percent", F.col("hundredths") / 100)
        .withColumn("attained", F.when(decided > 0, 100 * F.col("met") / decided))
        .withColumn("allowed", allowed)
        .withColumn("used", used)
    )


def _promised(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """One row a document that has a limit: `until`, `done_at` and `withdrawn_at`."""
    versions = (
        inputs["agreements"].withColumnRenamed("id", "agreement_version_id").withColumnRenamed("tpa_id", "agreement")
    )
    documents = inputs["messages"].join(F.broadcast(versions), "agreement_version_id")
    receipts = (F.col("profile") == "stream") & (F.col("final_receipt") == 1)
    sent = documents.where((F.col("direction") == "out") & (F.col("semantics") == "OnceAndOnlyOnce"))
    sent = _limited(sent, F.when(receipts, F.lit("processed")).otherwise(F.lit("acknowledged")))
    received = _limited(documents.where(F.col("direction") == "in"), F.lit("processed"))
    told = inputs["events"].where(F.col("type").isin("message.delivered", "message.cancelled"))
    ends = told.groupBy(F.col("message_pk").alias("id")).agg(
        F.min(F.when(F.col("type") == "message.delivered", F.col("at"))).alias("done_at"),
        F.min(F.when(F.col("type") == "message.cancelled", F.col("at"))).alias("withdrawn_at"),
    )
    never = F.lit(None).cast("timestamp").alias("withdrawn_at")
    return sent.join(ends, "id", "left").unionByName(received.join(_processed(inputs), "id").select("*", never))


def _limited(documents: DataFrame, target: Column) -> DataFrame:
    """Those whose agreement has the target, with the end of their limit."""
    acknowledged = F.col("target") == "acknowledged"
    within = F.when(acknowledged, F.col("acknowledged_within")).otherwise(F.col("processed_within"))
    hundredths = F.when(acknowledged, F.col("acknowledged_hundredths")).otherwise(F.col("processed_hundredths"))
    limited = documents.withColumn("target", target).withColumn("within", within).where(F.col("within") > 0)
    until = F.timestamp_micros(F.unix_micros("created_at") + F.col("within") * 1_000_000)
    return limited.select(
        *("id", "agreement_id", "agreement", "partner", "number", "target"),
        hundredths.alias("hundredths"),
        until.alias("until"),
    )


def _processed(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """One row a document that went to an application: when the last of the deliveries that it got when it came ended.

    Without those of joins, which wait for other documents, and those that a person made anew.
    """
    alone = F.broadcast(inputs["triggers"].where(F.col("join_type") == "none").select(F.col("id").alias("trigger_id")))
    own = inputs["deliveries"].where(F.col("resubmission_of").isNull() & F.col("join_id").isNull())
    done = F.col("state").isin("completed", "duplicate")
    of_documents = own.join(alone, "trigger_id").groupBy(F.col("message_pk").alias("id"))
    return of_documents.agg(
        F.max((~done).cast("int")).alias("_left"), F.max(F.when(done, F.col("completed_at"))).alias("_last")
    ).select("id", F.when(F.col("_left") == 0, F.col("_last")).alias("done_at"))
