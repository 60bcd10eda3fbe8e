"""The exactly-once audit: did every message arrive exactly once, and in order?

`pairs` counts; `findings` names what is not as it should be, each with the MessageIds that prove it (at most 20):

    gap, repeat, reset, wrap, bridge   of the sequence numbers of both directions: see `islands`. A message whose
            `previous_number` covers a gap bridges it (transactional streams). Messages without a number have a position
            and no number: they leave no gap. Resets, wraps and bridges are notices and break no promise.
    duplicate_id   two stored messages from one partner have the same MessageId, although repeats had to be recognised:
            numbered messages always, requests (spec 2) within their agreement's memory window
    delivered_twice   two completed deliveries of one message to one trigger; neither is a resubmission
    document_twice   two completed deliveries of one document (by its id, of one sender, to one trigger) that two
            messages brought, the second one stored while the trigger's history still knew the first as completed
    delivery_without_acceptance   a delivery that is past waiting and running, whose message is not in the store
    acceptance_without_delivery   accepted messages that no trigger got, though messages of the same pair, service and
            action before and after them were delivered: see `islands`
    ack_without_storage   an acknowledgement of ours, or one of the partner's that was taken for one of our messages,
            whose message is not in the store

At most 100,000 findings of a kind are listed; `pairs` counts all.

Range: rows of before `from` are not there, so acknowledgements and deliveries of messages that were made before it (by
the time in their UUIDv7) are not judged. All inputs are of one moment (the lake is).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from messaging.pipeline.jobs import frames, islands, proofs
from messaging.pipeline.jobs.frames import schema
from messaging.pipeline.jobs.islands import bit, chunk
from messaging.pipeline.jobs.proofs import MOST, settled

INPUTS: Mapping[str, tuple[str, ...]] = {
    "messages": (
        "id", "direction", "state", "pair_id", "agreement_version_id", "message_id", "service", "action",
        "sequence_number", "position", "previous_number", "created_at",
    ),
    "deliveries": (
        "id", "trigger_id", "message_pk", "pair_id", "position", "state", "resubmission_of", "join_id", "created_at",
        "completed_at", "verdict", "sender_id", "document_id",
    ),
    "signals": ("direction", "kind", "state", "pair_id", "about_pk", "ref_to_message_id", "created_at"),
    "events": ("at", "type", "pair_id", "message_pk", "message_id", "rule"),
    "pairs": ("id", "code", "direction", "partner_id", "partner"),
    "agreements": ("id", "profile", "memory_window"),
    "triggers": ("id", "name", "history_ttl"),
}  # fmt: skip
OUTPUTS: Mapping[str, StructType] = {
    "findings": schema(
        "kind string, violation boolean, pair_id string, pair string, partner string, first_number long, "
        "last_number long, count long, message_ids strings, at timestamp, detail string"
    ),
    "pairs": schema(
        "pair_id string, pair string, direction string, partner string, messages long, first_number long, "
        "last_number long, first_at timestamp, last_at timestamp, missing long, repeats long, resets long, "
        "wraps long, bridged long"
    ),
}
NOTICES = ("reset", "wrap", "bridge")
EDGE = timedelta(minutes=5)  # between a message's `created_at` and the time in its id


def run(inputs: Mapping[str, DataFrame], parameters: Mapping[str, Any]) -> dict[str, DataFrame]:
    """Returns the tables `findings` and `pairs`. Parameters: from (optional), see above; buckets (optional).

    Computes what is small and needed more than once on the way.
    """
    messages, deliveries, signals, events = (
        _keyed(inputs[name]) for name in ("messages", "deliveries", "signals", "events")
    )
    pairs = inputs["pairs"].withColumn("key", F.xxhash64("id"))
    triggers = inputs["triggers"].select(F.col("id").alias("trigger_id"), F.col("name").alias("trigger"))
    first_key, buckets = _first_key(parameters.get("from")), parameters.get("buckets", frames.BUCKETS)

    summed = _summed(messages).persist()
    runs = _runs(summed).persist()
    odd = islands.steps(islands.unwrapped(runs, _moved(events))).persist()
    accepted = summed.where("service is not null").groupBy("pair_id", "service", "chunk").agg(
        F.bit_or("bits").alias("bits"), F.bit_xor("keys").alias("keys")
    )  # fmt: skip
    delivered = islands.delivered(deliveries).persist()
    shown = settled(odd.limit(MOST))
    suspicious = settled(islands.suspicious(delivered, accepted).limit(MOST))
    undelivered = settled(islands.undelivered(accepted, delivered).limit(MOST))

    # The second look: only at what was found.
    looked_at = _rows_at(messages, settled(_wanted(shown, suspicious, undelivered))).persist()
    sequences = settled(proofs.sequences(shown, looked_at))
    given = proofs.given(deliveries, suspicious, looked_at, first_key).persist()
    lost, candidates = proofs.lost(given, triggers), proofs.candidates(undelivered, looked_at)
    told = proofs.told(events, lost, candidates).persist()
    # One kind after the other: a plan of all of them would be planned anew after each of its fifty stages.
    found = [
        proofs.delivered_twice(given, triggers),
        proofs.document_twice(deliveries, messages, inputs["triggers"]),
        proofs.without_acceptance(lost, told),
        proofs.without_delivery(candidates, told),
        proofs.without_storage(messages, signals, first_key, buckets),
        proofs.same_ids(messages, pairs, inputs["agreements"]),
    ]
    counted = sequences.where(F.col("count") > 0).limit(MOST)
    findings = reduce(DataFrame.unionByName, [settled(one.limit(MOST)) for one in found], counted)
    return {"findings": _named(findings, pairs), "pairs": _counted(runs, summed, odd, sequences, pairs)}


def _keyed(rows: DataFrame) -> DataFrame:
    """With a 64-bit hash in place of the pair's UUID: keys of one word take less memory than texts.

    Two of a thousand pairs have the same one with a chance of 10^-14; `_named` gives the UUID back.
    """
    return rows.withColumn("pair_id", F.xxhash64("pair_id"))


def _first_key(begin: datetime | None) -> str:
    """The smallest UUIDv7 of messages that surely lie in the range."""
    if begin is None:
        return ""
    digits = f"{int((begin + EDGE).timestamp() * 1000):012x}"
    return f"{digits[:8]}-{digits[8:]}"


def _summed(messages: DataFrame) -> DataFrame:
    """All messages by pair, offset (null without a number), service (of inbound ones, hashed) and chunk."""
    position, inbound = F.col("position"), F.col("direction") == "in"
    return messages.groupBy(
        "pair_id",
        (F.col("sequence_number") - position).alias("offset"),
        F.when(inbound, F.xxhash64("service", "action")).alias("service"),
        chunk(position).alias("chunk"),
    ).agg(
        F.bit_or(bit(position)).alias("bits"),
        F.bit_xor(F.when(inbound, F.xxhash64("id"))).alias("keys"),
        F.count(F.lit(1)).alias("rows"),
        F.min("created_at").alias("first_at"),
        F.max("created_at").alias("last_at"),
    )


def _runs(summed: DataFrame) -> DataFrame:
    stretches = summed.where("offset is not null").groupBy("pair_id", "offset", "chunk").agg(
        F.bit_or("bits").alias("bits"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
    )  # fmt: skip
    return islands.runs(stretches)


def _moved(events: DataFrame) -> DataFrame:
    moves = events.where(F.col("rule").isin(islands.RESTARTED, islands.OTHER_ROAD))
    return moves.groupBy("pair_id").agg(F.collect_list(F.struct("at", "rule")).alias("moves"))


def _wanted(shown: DataFrame, suspicious: DataFrame, undelivered: DataFrame) -> DataFrame:
    """Which messages have to be looked at: a bitmap of positions for each pair and chunk."""
    proof = shown.select("pair_id", F.explode("proof").alias("position"))
    places = proof.unionByName(undelivered.select("pair_id", "position"))
    bitmaps = places.select("pair_id", chunk(F.col("position")).alias("chunk"), bit(F.col("position")).alias("wanted"))
    whole = suspicious.select("pair_id", "chunk", F.lit(-1).cast("long").alias("wanted"))
    return bitmaps.unionByName(whole).groupBy("pair_id", "chunk").agg(F.bit_or("wanted").alias("wanted"))


def _rows_at(messages: DataFrame, wanted: DataFrame) -> DataFrame:
    rows = messages.select(
        "id", "pair_id", "position", "direction", "message_id", "sequence_number", "previous_number", "created_at",
        chunk(F.col("position")).alias("chunk"),
    )  # fmt: skip
    found = rows.join(F.broadcast(wanted), ["pair_id", "chunk"])
    return found.where(islands.has(F.col("wanted"), F.col("position"))).drop("wanted", "chunk")


def _named(findings: DataFrame, pairs: DataFrame) -> DataFrame:
    known = pairs.select(F.col("key").alias("pair_id"), "id", F.col("code").alias("pair"), "partner")
    found = findings.join(F.broadcast(known), "pair_id", "left").withColumns(
        {
            "pair_id": F.col("id"),
            "violation": ~F.col("kind").isin(*NOTICES),
            "pair": F.coalesce("pair", F.lit("")),
            "partner": F.coalesce("partner", F.lit("")),
        }
    )
    return found.select(*OUTPUTS["findings"].names)


def _counted(runs: DataFrame, summed: DataFrame, odd: DataFrame, sequences: DataFrame, pairs: DataFrame) -> DataFrame:
    """One row for each pair that has numbered messages."""
    last = F.struct("position", (F.col("number") + F.col("length") - 1).alias("number"))
    numbers = runs.groupBy("pair_id").agg(
        F.min(F.struct("position", "number"))["number"].alias("first_number"),
        F.max(last)["number"].alias("last_number"),
    )
    counts = summed.where("offset is not null").groupBy("pair_id").agg(
        F.sum("rows").alias("messages"), F.min("first_at").alias("first_at"), F.max("last_at").alias("last_at")
    )  # fmt: skip
    by_kind = {"missing": "gap", "repeats": "repeat", "resets": "reset", "wraps": "wrap", "bridged": "bridge"}
    steps = odd.select("pair_id", "kind", "count")
    # What a message bridges was counted as missing first.
    bridges = sequences.where("kind = 'bridge'").select("pair_id", "kind", "count")
    steps = steps.unionAll(bridges).unionAll(bridges.select("pair_id", F.lit("gap").alias("kind"), -F.col("count")))
    sums = steps.groupBy("pair_id").agg(
        *(F.sum(F.when(F.col("kind") == kind, F.col("count"))).alias(name) for name, kind in by_kind.items())
    )
    known = pairs.select(F.col("key").alias("pair_id"), "id", F.col("code").alias("pair"), "direction", "partner")
    found = known.join(counts, "pair_id").join(numbers, "pair_id").join(sums, "pair_id", "left")
    found = found.fillna(0, subset=list(by_kind)).withColumn("pair_id", F.col("id"))
    return found.select(*OUTPUTS["pairs"].names)
