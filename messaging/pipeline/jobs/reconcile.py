"""Reconciliation: what both sides wrote down about the messages that they exchanged.

Inputs: `messages` of the pairs that the log is about, with the `digest` that the partner's log has digests of, and
somewhat wider in time than the log; `log`, the partner's, one row a message (direction from OUR side). Parameters: from
and to, the time that the log covers (None = its first and last row); margin, seconds (default 3600); buckets.

One verdict for each (direction, MessageId):

    agreed             both have it, equally often and with the same digests (where both have one)
    doubled            both have it, and one has it more often
    differs            equally often, and the digests differ
    unknown_here       only the partner has it
    lost               only we have it, and it is finished: delivered, sent or received
    in_doubt           only we have it, and it has failed or is in doubt
    in_doubt_arrived   both have it, and here it has failed or is in doubt, or was skipped or cancelled

What is on its way is agreed when the partner has it and is not looked at when it has not; the same goes for skipped and
cancelled messages that the partner has not. Only we have it: that is said of messages which began (first sent, or
received) after `from` + margin and ended before `to` - margin, since clocks differ and the other side may have written
it down a little earlier or later.

The logs are compared by fingerprints (see `frames`); only buckets that differ are joined. The summary counts
messages; one that both logs have twice, alike, counts twice as agreed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from messaging.pipeline.jobs import frames
from messaging.pipeline.jobs.frames import schema

INPUTS: Mapping[str, tuple[str, ...]] = {
    "messages": (
        "direction", "state", "pair_id", "message_id", "sequence_number", "digest", "created_at", "first_sent_at",
        "completed_at",
    ),
    "pairs": ("id", "code"),
    "log": ("message_id", "direction", "at", "digest"),
}  # fmt: skip
OUTPUTS: Mapping[str, StructType] = {
    "summary": schema("direction string, verdict string, messages long"),
    "findings": schema(
        "direction string, verdict string, message_id string, pair_id string, pair string, sequence_number long, "
        "our_state string, our_at timestamp, our_digest string, our_copies long, their_at timestamp, "
        "their_digest string, their_copies long"
    ),
}
FINISHED = ("delivered", "sent", "received")
UNDECIDED = ("failed", "in_doubt")
DROPPED = ("skipped", "cancelled")
MARGIN = 3600  # seconds
_KEY = ("direction", "message_id")


def run(inputs: Mapping[str, DataFrame], parameters: Mapping[str, Any]) -> dict[str, DataFrame]:
    """Returns the tables `summary` and `findings`."""
    log = inputs["log"].select(*_KEY, "at", F.lower(F.coalesce("digest", F.lit(""))).alias("digest"))
    span, digests = _span(log, parameters)
    ours = _ours(inputs["messages"])
    buckets = parameters.get("buckets", frames.BUCKETS)
    number = frames.bucket(buckets, F.col("message_id"))
    content = tuple(F.col(name) for name in (*_KEY, *(("digest",) if digests else ())))
    finished, undecided = F.col("state").isin(*FINISHED), F.col("state").isin(*UNDECIDED)
    inside = (F.col("began") >= span[0]) & (F.col("began") <= span[1])
    # What the partner need not have is left out: where it has it all the same, the bucket differs and shows it.
    sides = frames.fingerprinted(
        ours.where((finished & inside) | undecided), 1, number, content,
        F.col("direction"), undecided.cast("long").alias("open"), finished.cast("long").alias("ours"),
    ).unionAll(
        frames.fingerprinted(
            log, -1, number, content,
            F.col("direction"), F.lit(0).cast("long").alias("open"), F.lit(0).cast("long").alias("ours"),
        )
    )  # fmt: skip
    of = {way: F.sum(F.when(F.col("direction") == way, F.col("ours"))).alias(way) for way in ("in", "out")}
    compared = frames.compared(sides, F.sum("open").alias("open"), *of.values())
    compared = compared.withColumn("odd", F.col("differs") | (F.col("open") > 0)).select("bucket", "odd", *of).persist()
    odd = compared.where("odd").select("bucket")

    judged = _judged(_joined(ours, log, number, odd), span, parameters.get("margin", MARGIN)).persist()
    alike = compared.where("not odd").select(F.explode(F.create_map(
        *(part for way in of for part in (F.lit(way), F.coalesce(way, F.lit(0).cast("long"))))
    )).alias("direction", "messages")).select("direction", F.lit("agreed").alias("verdict"), "messages")  # fmt: skip
    seen = judged.select("direction", "verdict", F.when(F.col("verdict") == "agreed", F.col("our_copies")).otherwise(
        F.lit(1).cast("long")).alias("messages"))  # fmt: skip
    summary = alike.unionAll(seen).groupBy("direction", "verdict").agg(F.sum("messages").alias("messages"))
    pairs = inputs["pairs"].select(F.col("id").alias("pair_id"), F.col("code").alias("pair"))
    findings = judged.where("verdict <> 'agreed'").join(F.broadcast(pairs), "pair_id", "left")
    findings = findings.fillna("", subset=["pair", "our_state", "our_digest", "their_digest"])
    return {
        "summary": summary.where("messages > 0").select(*OUTPUTS["summary"].names),
        "findings": findings.select(*OUTPUTS["findings"].names),
    }


def _span(log: DataFrame, parameters: Mapping[str, Any]) -> tuple[tuple[Column, Column], bool]:
    """From when to when the log goes, and whether it has any digests: one look at two of its columns."""
    told = log.agg(F.min("at").alias("begin"), F.max("at").alias("end"), F.max("digest").alias("digest")).first()
    assert told is not None
    begin, end = parameters.get("from") or told["begin"], parameters.get("to") or told["end"]
    stamp = "timestamp"
    first = F.lit(begin).cast(stamp) if begin else F.to_timestamp(F.lit("0001-01-02"))
    last = F.lit(end).cast(stamp) if end else F.to_timestamp(F.lit("9999-12-30"))
    return (first, last), bool(told["digest"])


def _ours(messages: DataFrame) -> DataFrame:
    return messages.select(
        *_KEY, "state", "pair_id", "sequence_number",
        F.lower(F.coalesce("digest", F.lit(""))).alias("digest"),
        F.coalesce("first_sent_at", "created_at").alias("began"),
        F.coalesce("completed_at", "first_sent_at", "created_at").alias("ended"),
    )  # fmt: skip


def _joined(ours: DataFrame, log: DataFrame, number: Column, odd: DataFrame) -> DataFrame:
    """Both logs in the buckets that have to be looked at: one row for each (direction, message id)."""

    def here(rows: DataFrame) -> DataFrame:
        return rows.withColumn("bucket", number).join(F.broadcast(odd), "bucket", "left_semi").drop("bucket")

    digests = F.sort_array(F.collect_list(F.nullif("digest", F.lit(""))))
    mine = here(ours).groupBy(*_KEY).agg(
        F.count(F.lit(1)).alias("our_copies"),
        digests.alias("our_digests"),
        F.max_by("state", "began").alias("our_state"),
        F.min("began").alias("our_at"),
        F.max("ended").alias("our_end"),
        F.min_by("pair_id", "began").alias("pair_id"),
        F.min_by("sequence_number", "began").alias("sequence_number"),
    )  # fmt: skip
    theirs = here(log).groupBy(*_KEY).agg(
        F.count(F.lit(1)).alias("their_copies"), digests.alias("their_digests"), F.min("at").alias("their_at")
    )  # fmt: skip
    return mine.join(theirs, list(_KEY), "full")


def _judged(both: DataFrame, span: tuple[Column, Column], margin: int) -> DataFrame:
    """The verdicts; without those of which nothing is said."""
    room = F.expr(f"INTERVAL '{int(margin)}' SECOND")
    inside = (F.col("our_at") >= span[0] + room) & (F.col("our_end") <= span[1] - room)
    here, there = F.col("our_copies").isNotNull(), F.col("their_copies").isNotNull()
    state = F.col("our_state")
    # Digests are compared where each copy of both has one.
    comparable = (F.size("our_digests") == F.col("our_copies")) & (F.size("their_digests") == F.col("their_copies"))
    verdict = (
        F.when(~here, "unknown_here")
        .when(~there & inside & state.isin(*FINISHED), "lost")
        .when(~there & inside & state.isin(*UNDECIDED), "in_doubt")
        .when(~there, None)
        .when(state.isin(*UNDECIDED, *DROPPED), "in_doubt_arrived")
        .when(F.col("our_copies") != F.col("their_copies"), "doubled")
        .when(comparable & (F.col("our_digests") != F.col("their_digests")), "differs")
        .otherwise("agreed")
    )
    return (
        both.withColumn("verdict", verdict)
        .where(F.col("verdict").isNotNull())
        .withColumns(
            {
                "our_copies": F.coalesce("our_copies", F.lit(0).cast("long")),
                "their_copies": F.coalesce("their_copies", F.lit(0).cast("long")),
                "our_digest": F.get("our_digests", 0),
                "their_digest": F.get("their_digests", 0),
            }
        )
    )
