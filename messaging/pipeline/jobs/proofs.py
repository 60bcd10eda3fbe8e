"""The findings of the audit, each with the MessageIds that prove it. What the kinds mean: see `audit`."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from messaging.pipeline.jobs import frames, islands
from messaging.pipeline.jobs.islands import chunk

PROOF = 20
MOST = 100_000  # findings of one kind
_ID = ("message_id", "message_pk")


def settled(rows: DataFrame) -> DataFrame:
    """The same few rows, computed: what is made of them is planned anew, and knows how many they are."""
    return rows.sparkSession.createDataFrame(rows.toArrow(), schema=rows.schema)


def made_since(rows: DataFrame, key: str, first_key: str) -> DataFrame:
    """Rows about messages whose key (a UUIDv7, which has the time in it) is not smaller; all where it is empty."""
    return rows.where(F.col(key) >= first_key) if first_key else rows


def _findings(rows: DataFrame, kind: str, message_ids: Column, detail: Column) -> DataFrame:
    """Findings of `rows` (pair_id, count, at) that are not about numbers."""
    none = F.lit(None).cast("long")
    return rows.select(
        F.lit(kind).alias("kind"),
        "pair_id",
        none.alias("first_number"),
        none.alias("last_number"),
        "count",
        message_ids.alias("message_ids"),
        "at",
        detail.alias("detail"),
    )


def sequences(odd: DataFrame, looked_at: DataFrame) -> DataFrame:
    """Those of `islands.steps`; a gap that its message bridges (in part) is a bridge (as well)."""
    proof = odd.select("kind", "pair_id", "position", F.posexplode("proof").alias("place", "at_position"))
    rows = looked_at.select(
        "pair_id", F.col("position").alias("at_position"), "message_id", "previous_number", "created_at"
    )
    shown = F.sort_array(F.collect_list(F.struct("place", "message_id", "previous_number", "created_at")))
    evidence = (
        proof.join(rows, ["pair_id", "at_position"]).groupBy("kind", "pair_id", "position").agg(shown.alias("shown"))
    )
    last = F.element_at("shown", -1)
    found = odd.join(evidence, ["kind", "pair_id", "position"], "left").withColumns(
        {"message_ids": F.col("shown.message_id"), "at": last["created_at"], "previous": last["previous_number"]}
    )
    count, until = F.col("count"), F.col("until")
    left_out = F.pmod(until - F.col("previous"), F.lit(islands.LAST).cast("long")) - 1
    bridging = F.least(F.coalesce(F.when(F.col("kind") == "gap", left_out), F.lit(0).cast("long")), count)
    found = found.withColumn("bridging", F.greatest(bridging, F.lit(0).cast("long")))
    bridging = F.col("bridging")
    ends = F.when(bridging > 0, islands.number(until - 1 - bridging)).otherwise(F.col("last_number"))
    rest = found.where("kind <> 'gap' or bridging < count").withColumns(
        {"last_number": ends, "count": count - bridging}
    )
    bridges = found.where("bridging > 0").withColumns(
        {"kind": F.lit("bridge"), "first_number": islands.number(until - bridging), "count": bridging}
    )
    ids = F.coalesce("message_ids", F.array().cast("array<string>"))
    return rest.unionByName(bridges).select(
        "kind",
        "pair_id",
        "first_number",
        "last_number",
        "count",
        ids.alias("message_ids"),
        "at",
        _sentence().alias("detail"),
    )


def _sentence() -> Column:
    kind, first, last, count = (F.col(name) for name in ("kind", "first_number", "last_number", "count"))
    span, one = F.format_string("%,d to %,d", first, last), count == 1
    return (
        F.when((kind == "gap") & one, F.format_string("Number %,d is missing between these two messages.", first))
        .when(kind == "gap", F.format_string("%,d numbers (%s) are missing between these two messages.", count, span))
        .when((kind == "repeat") & one, F.format_string("Number %,d was given to two messages.", first))
        .when(kind == "repeat", F.format_string("%,d numbers (%s) were given to two messages each.", count, span))
        .when(kind == "reset", F.format_string("After number %,d the sequence restarted at %,d.", first, last))
        .when(
            kind == "wrap", F.format_string("The sequence number wrapped around: %,d was followed by %,d.", first, last)
        )
        .when(one, F.format_string("The stream left out number %,d, and said so.", first))
        .otherwise(F.format_string("The stream left out %,d numbers (%s), and said so.", count, span))
    )


def given(deliveries: DataFrame, suspicious: DataFrame, looked_at: DataFrame, first_key: str) -> DataFrame:
    """Deliveries of the suspicious chunks with the MessageId of their message, null where it is not in the store."""
    rows = made_since(islands.first_deliveries(deliveries), "message_pk", first_key).select(
        "id", "trigger_id", "message_pk", "pair_id", "state", "created_at", chunk(F.col("position")).alias("chunk")
    )
    rows = rows.join(F.broadcast(suspicious), ["pair_id", "chunk"], "left_semi")
    stored = looked_at.where("direction = 'in'").select(F.col("id").alias("message_pk"), "message_id")
    return rows.join(stored, "message_pk", "left")


def delivered_twice(given: DataFrame, triggers: DataFrame) -> DataFrame:
    """One finding for each message and trigger."""
    found = given.where("state = 'completed'").groupBy("pair_id", "trigger_id", "message_pk").agg(
        F.count(F.lit(1)).alias("count"),
        F.min("message_id").alias("message_id"),
        F.max("created_at").alias("at"),
        F.array_join(F.slice(F.sort_array(F.collect_list("id")), 1, PROOF), ", ").alias("ids"),
    )  # fmt: skip
    found = found.where(F.col("count") > 1).join(F.broadcast(triggers), "trigger_id", "left")
    name = F.coalesce("trigger", "trigger_id")
    detail = F.format_string("Trigger %s completed it %,d times: deliveries %s.", name, F.col("count"), F.col("ids"))
    return _findings(found, "delivered_twice", F.array(F.coalesce(*_ID)), detail)


def document_twice(deliveries: DataFrame, messages: DataFrame, triggers: DataFrame) -> DataFrame:
    """One finding for each document that two messages brought, and that the trigger processed anew although it had
    processed it no longer ago than its history remembers.
    """
    key = ("trigger_id", "sender_id", "document_id")
    done = deliveries.where(
        "state = 'completed' and verdict = 'new' and document_id <> '' and resubmission_of is null and join_id is null"
    )
    hashed = F.xxhash64(*key)
    often = done.groupBy(hashed.alias("hash")).agg(F.count(F.lit(1)).alias("rows")).where("rows > 1")
    often = settled(often.select("hash").limit(MOST))
    rows = done.withColumn("hash", hashed).join(F.broadcast(often), "hash", "left_semi")
    kept = triggers.select(F.col("id").alias("trigger_id"), F.col("name").alias("trigger"), "history_ttl")
    rows = rows.join(F.broadcast(kept), "trigger_id").where("history_ttl is not null")
    before = Window.partitionBy(*key).orderBy("completed_at", "id")
    since = F.unix_micros("created_at") - F.unix_micros(F.lag("completed_at").over(before))
    known = since <= F.col("history_ttl") * 1_000_000
    known = known & (F.lag("message_pk").over(before) != F.col("message_pk"))
    found = (
        rows.withColumn("known", F.coalesce(known, F.lit(False)))
        .groupBy(*key)
        .agg(
            F.max_by("pair_id", "completed_at").alias("pair_id"),
            F.min("trigger").alias("trigger"),
            (F.sum(F.col("known").cast("long")) + 1).alias("count"),
            F.max(F.when(F.col("known"), F.col("completed_at"))).alias("at"),
            F.slice(F.sort_array(F.collect_list(F.struct("completed_at", "message_pk"))), 1, PROOF).alias("done"),
        )
        .where("count > 1")
    )
    # Read twice, and few: what is large is not sorted to be joined with it.
    found = settled(found.withColumn("done", F.col("done.message_pk")).limit(MOST))
    proof = found.select(*key, F.posexplode("done").alias("place", "id"))
    stored = messages.select("id", "message_id").join(F.broadcast(proof.select("id")), "id", "left_semi")
    proof = proof.join(stored, "id", "left")
    named = F.struct("place", F.coalesce("message_id", "id").alias("named"))
    ids = proof.groupBy(*key).agg(F.sort_array(F.collect_list(named))["named"].alias("ids"))
    found = found.join(ids, list(key))
    detail = F.format_string(
        "Trigger %s processed document %s %,d times, each brought by another message.",
        "trigger",
        "document_id",
        "count",
    )
    return _findings(found, "document_twice", F.col("ids"), detail)


def lost(given: DataFrame, triggers: DataFrame) -> DataFrame:
    """Messages that were delivered and are not in the store."""
    rows = given.where(F.col("message_id").isNull() & ~F.col("state").isin(*islands.OPEN))
    return rows.join(F.broadcast(triggers), "trigger_id", "left").groupBy("pair_id", "message_pk").agg(
        F.count(F.lit(1)).alias("count"),
        F.min("created_at").alias("at"),
        F.array_join(
            F.slice(F.sort_array(F.collect_set(F.coalesce("trigger", "trigger_id"))), 1, PROOF), ", "
        ).alias("names"),
    )  # fmt: skip


def candidates(undelivered: DataFrame, looked_at: DataFrame) -> DataFrame:
    """The rows of undelivered messages."""
    rows = looked_at.select("pair_id", "position", F.col("id").alias("message_pk"), "message_id", "created_at")
    return undelivered.join(rows, ["pair_id", "position"])


def told(events: DataFrame, *of: DataFrame) -> DataFrame:
    """The events of receipt of these messages: one look at all events."""
    keys = reduce(DataFrame.unionAll, [rows.select("message_pk") for rows in of])
    received = events.where(F.col("type") == "message.received").select("message_pk", "message_id")
    return received.join(F.broadcast(keys), "message_pk", "left_semi")


def without_acceptance(lost: DataFrame, told: DataFrame) -> DataFrame:
    """One finding a message. Its MessageId comes from the event that told of it; without one its key stands for it."""
    found = lost.join(told, "message_pk", "left")
    detail = F.format_string("Message %s is not in the store; delivered to %s.", F.col("message_pk"), F.col("names"))
    return _findings(found, "delivery_without_acceptance", F.array(F.coalesce(*_ID)), detail)


def without_delivery(candidates: DataFrame, told: DataFrame) -> DataFrame:
    """One finding a stretch. A synchronous request that is not answered yet was not told of: it does not count."""
    found = candidates.join(told.select("message_pk"), "message_pk").groupBy("pair_id", "service", "stretch").agg(
        F.count(F.lit(1)).alias("count"),
        F.sort_array(F.collect_list(F.struct("position", "message_id"))).alias("proof"),
        F.min("created_at").alias("at"),
    )  # fmt: skip
    detail = "Messages of this service and action before and after went to a trigger. Was it disabled or changed?"
    ids = F.slice(F.col("proof.message_id"), 1, PROOF)
    return _findings(found, "acceptance_without_delivery", ids, F.lit(detail))


def without_storage(messages: DataFrame, signals: DataFrame, first_key: str, buckets: int) -> DataFrame:
    """Acknowledgements of ours, and those that messages of ours were completed by, against the stored messages."""
    acks = signals.where((F.col("kind") == "ack") & F.col("about_pk").isNotNull())
    acks = acks.where((F.col("direction") == "out") | (F.col("state") == "matched"))
    acks = made_since(acks, "about_pk", first_key)
    # As a rule each of these has exactly one such acknowledgement; whatever has not makes its bucket differ, no more.
    usual = messages.where(F.col("sequence_number").isNotNull())
    usual = made_since(usual.where((F.col("direction") == "in") | (F.col("state") == "delivered")), "id", first_key)
    of_message = frames.bucket(buckets, F.col("id"))
    of_ack = frames.bucket(buckets, F.col("about_pk"))
    sides = frames.fingerprinted(usual, 1, of_message, (F.col("id"),)).unionAll(
        frames.fingerprinted(acks, -1, of_ack, (F.col("about_pk"),))
    )
    odd = settled(frames.compared(sides).where("differs").select("bucket"))
    candidates = acks.withColumn("bucket", of_ack).join(F.broadcast(odd), "bucket", "left_semi")
    stored = messages.select(F.col("id").alias("about_pk")).withColumn("bucket", of_ack)
    stored = stored.join(F.broadcast(odd), "bucket", "left_semi")
    found = candidates.join(stored, "about_pk", "left_anti").groupBy("pair_id", "about_pk").agg(
        F.count(F.lit(1)).alias("count"),
        F.min("ref_to_message_id").alias("message_id"),
        F.min("direction").alias("direction"),
        F.min("created_at").alias("at"),
    )  # fmt: skip
    ours = F.format_string("We acknowledged it, and message %s is not in the store.", "about_pk")
    theirs = F.format_string("The partner acknowledged it, and our message %s is not in the store.", "about_pk")
    detail = F.when(F.col("direction") == "out", ours).otherwise(theirs)
    return _findings(found, "ack_without_storage", F.array("message_id"), detail)


def same_ids(messages: DataFrame, pairs: DataFrame, agreements: DataFrame) -> DataFrame:
    """One finding for each MessageId of a partner that was accepted more than once and should have been recognised."""
    inbound = messages.where("direction = 'in'")
    hashed = F.xxhash64("message_id")
    often = inbound.groupBy(hashed.alias("hash")).agg(F.count(F.lit(1)).alias("rows")).where("rows > 1")
    often = settled(often.select("hash").limit(MOST))
    rows = inbound.select(
        "pair_id", "message_id", "agreement_version_id", "sequence_number", "created_at", hashed.alias("hash")
    ).join(F.broadcast(often), "hash", "left_semi")
    partners = pairs.select(F.col("key").alias("pair_id"), "partner_id")
    terms = agreements.select(F.col("id").alias("agreement_version_id"), "profile", "memory_window")
    rows = rows.join(F.broadcast(partners), "pair_id", "left").join(F.broadcast(terms), "agreement_version_id", "left")
    before = Window.partitionBy("partner_id", "message_id").orderBy("created_at", F.col("sequence_number").isNull())
    since = F.unix_micros("created_at") - F.unix_micros(F.lag("created_at").over(before))
    within = (F.col("profile") == "repeatable") & (F.col("since") <= F.col("memory_window") * 1_000_000)
    known = F.col("since").isNotNull() & (F.col("sequence_number").isNotNull() | F.coalesce(within, F.lit(False)))
    found = (
        rows.withColumn("since", since)
        .withColumn("known", known)
        .groupBy("partner_id", "message_id")
        .agg(
            F.max_by("pair_id", "created_at").alias("pair_id"),
            (F.sum(F.col("known").cast("long")) + 1).alias("count"),
            F.max(F.when(F.col("known"), F.col("created_at"))).alias("at"),
            F.sort_array(F.collect_list("created_at")).alias("times"),
        )
        .where(F.col("count") > 1)
    )
    stamps = F.transform(F.slice("times", 1, PROOF), lambda time: F.date_format(time, "yyyy-MM-dd HH:mm:ss.SSS"))
    detail = F.format_string("Accepted at %s (UTC): it should have been recognised.", F.array_join(stamps, ", "))
    return _findings(found, "duplicate_id", F.array("message_id"), detail)
