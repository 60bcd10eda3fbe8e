"""Service levels: volume, success, speed, retries, suspensions, errors and doubts, by partner, hour and day.

Population: messages whose `created_at` lies in the range (when an application handed them in, or when
they were stored on receipt), each counted in the hour and on the day (UTC) of that moment, in the state that it has
now. Suspensions are counted in the hour in which they began. `partner` "" stands for all partners together.
Of transmissions and events only those of the range are known, so a range should end well before the present.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from messaging.pipeline.jobs.frames import frequencies, quantiles, schema

INPUTS: Mapping[str, tuple[str, ...]] = {
    "messages": ("id", "direction", "state", "pair_id", "size", "copies", "cause", "created_at", "first_sent_at",
                 "completed_at"),
    "transmissions": ("pair_id", "message_pk", "cause", "started_at"),
    "deliveries": ("message_pk", "state"),
    "events": ("id", "at", "type", "pair_id", "message_pk", "cause", "delivery_id", "data"),
    "pairs": ("id", "direction", "partner"),
}  # fmt: skip

_SUCCEEDED = ("delivered", "sent", "received")
_FAILED = ("failed", "skipped", "cancelled")
_UNDER_WAY = ("queued", "sending", "awaiting_ack", "retrying", "confirming")
_SUMS = (
    "messages", "bytes", "succeeded", "failed", "in_doubt", "under_way", "attempts", "sent", "duplicates",
    "suspensions", "resumed", "resume_micros",
)  # fmt: skip
_GROUP = ("grain", "at", "partner", "direction")
_MICROS = 1e6
_NO_CAUSE = "unknown"
_CAUSE_LENGTH = 60

OUTPUTS: Mapping[str, StructType] = {
    "levels": schema(
        "grain string, at timestamp, partner string, direction string, messages long, bytes long, succeeded long, "
        "failed long, in_doubt long, under_way long, attempts long, retries_per_message double, duplicates long, "
        "ack_p50 double, ack_p95 double, ack_p99 double, suspensions long, resumed long, "
        "mean_seconds_to_resume double"
    ),
    "errors": schema("partner string, kind string, cause string, count long, share double, cumulative double"),
    "doubts": schema("partner string, what string, doubt string, outcome string, count long"),
}


def run(inputs: Mapping[str, DataFrame], parameters: Mapping[str, Any]) -> dict[str, DataFrame]:
    """The tables `levels`, `errors` and `doubts`; `parameters` are not looked at, the inputs are the range."""
    pairs = F.broadcast(inputs["pairs"].select(F.col("id").alias("pair_id"), "partner"))
    return {
        "levels": _levels(inputs, pairs),
        "errors": _errors(inputs, pairs),
        "doubts": _doubts(inputs, pairs),
    }


# --- levels


def _levels(inputs: Mapping[str, DataFrame], pairs: DataFrame) -> DataFrame:
    """One row for each hour, day and the whole range, with all partners and with each, and direction.

    succeeded, failed, in_doubt and under_way add up to messages. An inbound message is received the moment it is
    stored; it is in doubt while one of its deliveries is. attempts: transmissions of the messages, in the range.
    retries_per_message: attempts after the first, per message of which at least one attempt is known. duplicates:
    copies that came after the stored one. ack_*: first attempt to acknowledgement, of the outbound messages that their
    partner acknowledged; what a person settled as delivered was not acknowledged. resumed and mean_seconds_to_resume:
    of the suspensions of that hour, those that ended before the end of the range.
    """
    messages = _messages(inputs, pairs)
    cells = _added_up(messages.unionByName(_suspensions(inputs, pairs), allowMissingColumns=True))
    acknowledged = frequencies(
        _by_grain(frequencies(messages, ("hour", "partner", "direction"), "latency")), _GROUP, "latency"
    )
    speeds = quantiles(
        acknowledged, _GROUP, "latency", {"ack_p50": 0.5, "ack_p95": 0.95, "ack_p99": 0.99}, unit=_MICROS
    )
    same = reduce(lambda one, other: one & other, [cells[name].eqNullSafe(speeds[name]) for name in _GROUP])
    found = cells.join(speeds, same, "left").select(
        *(cells[name] for name in cells.columns), "ack_p50", "ack_p95", "ack_p99"
    )
    sent, resumed = F.col("sent"), F.col("resumed")
    retries = F.when(sent > 0, (F.col("attempts") - sent) / sent)
    to_resume = F.when(resumed > 0, F.col("resume_micros") / resumed / _MICROS)
    found = found.withColumns({"retries_per_message": retries, "mean_seconds_to_resume": to_resume})
    return found.select(*OUTPUTS["levels"].names)


def _messages(inputs: Mapping[str, DataFrame], pairs: DataFrame) -> DataFrame:
    """Every message with its partner, its attempts, and 1 or 0 for everything that is counted."""
    doubtful = inputs["deliveries"].where(F.col("state") == "in_doubt").select("message_pk").distinct()
    attempts = inputs["transmissions"].where(F.col("message_pk").isNotNull())
    attempts = attempts.groupBy("message_pk").agg(
        F.count(F.lit(1)).alias("attempts"), F.min("started_at").alias("first_at")
    )
    messages = inputs["messages"].join(pairs, "pair_id")
    outbound = messages.where(F.col("direction") == "out").join(attempts, F.col("id") == F.col("message_pk"), "left")
    inbound = messages.where(F.col("direction") != "out").join(
        doubtful.withColumn("doubt", F.lit(True)), F.col("id") == F.col("message_pk"), "left"
    )
    both = outbound.withColumn("doubt", F.col("state") == "in_doubt").unionByName(inbound, allowMissingColumns=True)
    doubt = F.coalesce("doubt", F.lit(False))
    # An acknowledgement clears the cause; a message that a person settled as delivered keeps that of its doubt.
    acknowledged = (F.col("direction") == "out") & (F.col("state") == "delivered") & (F.col("cause") == "")
    # The first-instance time of repeatable requests is cut to whole seconds, so the attempt itself goes first.
    latency = F.unix_micros("completed_at") - F.unix_micros(F.coalesce("first_at", "first_sent_at"))
    return both.select(
        F.date_trunc("hour", "created_at").alias("hour"),
        "partner",
        "direction",
        F.lit(1).cast("long").alias("messages"),
        F.col("size").alias("bytes"),
        _one(F.col("state").isin(*_SUCCEEDED) & ~doubt).alias("succeeded"),
        _one(F.col("state").isin(*_FAILED)).alias("failed"),
        _one(doubt).alias("in_doubt"),
        _one(F.col("state").isin(*_UNDER_WAY)).alias("under_way"),
        F.coalesce("attempts", F.lit(0)).cast("long").alias("attempts"),
        _one(F.coalesce("attempts", F.lit(0)) > 0).alias("sent"),
        F.col("copies").alias("duplicates"),
        F.when(acknowledged, F.greatest(latency, F.lit(0))).alias("latency"),
    )


def _one(condition: Column) -> Column:
    return F.when(condition, 1).otherwise(0).cast("long")


def _suspensions(inputs: Mapping[str, DataFrame], pairs: DataFrame) -> DataFrame:
    """Every suspension of a pair; it ends with the pair's next event of the two kinds."""
    events = inputs["events"].where(F.col("type").isin("pair.suspended", "pair.resumed"))
    of_pair = Window.partitionBy("pair_id").orderBy("id")
    events = events.select(
        "pair_id",
        "at",
        "type",
        F.lead("type").over(of_pair).alias("next_type"),
        F.lead("at").over(of_pair).alias("next_at"),
    )
    ended = F.coalesce(F.col("next_type") == "pair.resumed", F.lit(False))
    micros = F.unix_micros("next_at") - F.unix_micros("at")
    directions = F.broadcast(inputs["pairs"].select(F.col("id").alias("pair_id"), "direction"))
    return (
        events.where(F.col("type") == "pair.suspended")
        .join(pairs, "pair_id")
        .join(directions, "pair_id")
        .select(
            F.date_trunc("hour", "at").alias("hour"),
            "partner",
            "direction",
            F.lit(1).cast("long").alias("suspensions"),
            _one(ended).alias("resumed"),
            F.when(ended, micros).otherwise(0).cast("long").alias("resume_micros"),
        )
    )


def _added_up(rows: DataFrame) -> DataFrame:
    """The sums of each hour, partner and direction first: what is added up further is small then."""
    hours = rows.groupBy("hour", "partner", "direction").agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _SUMS)
    )
    return _by_grain(hours).groupBy(*_GROUP).agg(*(F.sum(name).alias(name) for name in _SUMS))


def _by_grain(rows: DataFrame) -> DataFrame:
    """Each row six times: for its hour, its day and the whole range, with its partner and with all of them."""
    hour, nothing = F.col("hour"), F.lit(None).cast("timestamp")
    places = F.array(
        *(
            F.struct(F.lit(grain).alias("grain"), at.alias("at"), partner.alias("partner"))
            for grain, at in (("hour", hour), ("day", F.date_trunc("day", hour)), ("total", nothing))
            for partner in (F.col("partner"), F.lit(""))
        )
    )
    rest = [name for name in rows.columns if name not in ("hour", "partner")]
    return rows.select(F.explode(places).alias("place"), *rest).select("place.*", *rest)


# --- errors


def _errors(inputs: Mapping[str, DataFrame], pairs: DataFrame) -> DataFrame:
    """Causes and how often, by partner and for all.

    attempt: transmissions of messages that noted a cause (the transport failed, the worker died, or the answer of a
    repeatable request says that it has to be repeated). message: how often a message was given up (events
    message.failed; a best-effort message fails without one). rejection: what came in on a pair and was refused, by the
    code that the partner was told. delivery: how often a delivery to an application failed. Nothing of what was
    refused before it was authenticated is here: it belongs to no pair.
    """
    events = inputs["events"]
    code = F.get_json_object("data", "$.code")
    of_type = F.col("type")
    told = events.where(of_type.isin("message.failed", "message.rejected", "delivery.failed")).select(
        "pair_id",
        F.when(of_type == "message.failed", "message")
        .when(of_type == "message.rejected", "rejection")
        .otherwise("delivery")
        .alias("kind"),
        F.when(F.col("type") == "message.rejected", code).otherwise(F.col("cause")).alias("cause"),
    )
    attempts = inputs["transmissions"].where(F.col("message_pk").isNotNull() & (F.col("cause") != ""))
    attempts = attempts.select("pair_id", F.lit("attempt").alias("kind"), "cause")
    cause = F.substring(F.coalesce("cause", F.lit("")), 1, _CAUSE_LENGTH)
    counted = (
        told.unionByName(attempts)
        .groupBy("pair_id", "kind", F.when(cause == "", _NO_CAUSE).otherwise(cause).alias("cause"))
        .agg(F.count(F.lit(1)).alias("count"))
        .join(pairs, "pair_id")
    )
    rows = _with_all(counted, ("kind", "cause"))
    of_partner = Window.partitionBy("partner")
    ordered = of_partner.orderBy(F.desc("count"), "kind", "cause").rowsBetween(
        Window.unboundedPreceding, Window.currentRow
    )
    total = F.sum("count").over(of_partner)
    return rows.select(
        "partner",
        "kind",
        "cause",
        "count",
        (F.col("count") / total).alias("share"),
        (F.sum("count").over(ordered) / total).alias("cumulative"),
    )


def _with_all(counted: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Counts by partner, and once more with "" for all partners."""
    return (
        counted.select(F.explode(F.array("partner", F.lit(""))).alias("partner"), *keys, "count")
        .groupBy("partner", *keys)
        .agg(F.sum("count").alias("count"))
    )


# --- doubts


def _doubts(inputs: Mapping[str, DataFrame], pairs: DataFrame) -> DataFrame:
    """Each time that something came into doubt, by its reason and by what happened to it next.

    delivery: duplicate, resubmit (a person's decision); asked_completed, asked_duplicate, asked_failed, asked_in_doubt
    (the resolver was asked again); open. message (outbound): delivered, resubmit (a person's decision); answered (the
    partner's answer came after all); open.
    """
    events = inputs["events"]
    deliveries = _next(
        events.where(F.col("type").like("delivery.%")),
        "delivery_id",
        "delivery.in_doubt",
        F.get_json_object("data", "$.doubt"),
    ).select(
        "pair_id",
        F.lit("delivery").alias("what"),
        "doubt",
        F.when(F.col("next_type").isNull(), "open")
        .when(F.col("next_type") == "delivery.settled", F.col("decision"))
        .otherwise(F.concat(F.lit("asked_"), F.substring_index("next_type", ".", -1)))
        .alias("outcome"),
    )
    ends = ("message.in_doubt", "message.settled", "message.delivered")
    messages = _next(events.where(F.col("type").isin(*ends)), "message_pk", "message.in_doubt", F.col("cause")).select(
        "pair_id",
        F.lit("message").alias("what"),
        "doubt",
        F.when(F.col("next_type") == "message.settled", F.col("decision"))
        .when(F.col("next_type") == "message.delivered", "answered")
        .otherwise("open")
        .alias("outcome"),
    )
    counted = (
        deliveries.unionByName(messages)
        .withColumn("doubt", F.when(F.coalesce("doubt", F.lit("")) == "", _NO_CAUSE).otherwise(F.col("doubt")))
        .groupBy("pair_id", "what", "doubt", "outcome")
        .agg(F.count(F.lit(1)).alias("count"))
        .join(pairs, "pair_id")
    )
    return _with_all(counted, ("what", "doubt", "outcome")).select(*OUTPUTS["doubts"].names)


def _next(events: DataFrame, key: str, began: str, doubt: Column) -> DataFrame:
    """Events of the type `began`, each with the next one of `events` about the same delivery or message."""
    doubted = events.where(F.col("type") == began).select(key).distinct()
    ours = events.join(doubted, key, "left_semi")
    in_order = Window.partitionBy(key).orderBy("id")
    return ours.select(
        "pair_id",
        "type",
        doubt.alias("doubt"),
        F.lead("type").over(in_order).alias("next_type"),
        F.lead(F.get_json_object("data", "$.decision")).over(in_order).alias("decision"),
    ).where(F.col("type") == began)
