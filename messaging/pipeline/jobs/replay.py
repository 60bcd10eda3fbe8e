"""Attempts of reliable ebXML messages: which was answered, how fast, what came before it; and what the sender (spec 1,
2.1.4 and table 2-1) would have done under other parameters.

The record of a message says how the partner was then: `outage`: from the first attempt until the one that was answered;
`latency`: from an attempt that is answered to its acknowledgement; `failing`: attempts before the outage's end failed
on the transport (else they were taken and not answered); `lost_takes` and `sent_takes`: how long an attempt of either
kind keeps the sender busy. All in whole microseconds; an outage or latency that is null never ended.

The schedule of `messaging.protocol.sender` is periodic, so where it meets the end of the outage, and how many repeats
go out while the answer is on its way, are divisions. A test holds this against the machine itself, step by step.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_ENDED = ("delivered", "failed", "skipped", "cancelled")


def facts(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """One row a message: outbound, reliable, of an ebXML agreement, ended or given up, with an attempt in the range.

    agreement_id, message_pk; `attempts`; `answers`: 1 when it was acknowledged; `refusals`: Error messages of the
    partner that counted; `unexplained`: attempts that were handed over, and that neither an answer nor a transport
    failure followed; and the columns of `replay`: outage, latency, failing, lost_takes, sent_takes (microseconds).

    Which attempt was answered: a receiver acknowledges every copy that it gets (spec 1, 2.1.3 (4)), and what is lost is
    lost at the beginning, while the partner is away. So of k attempts that were handed over and j acknowledgements that
    came, early or late, the first acknowledgement is for number k - j + 1; if that one had not begun yet, for the last
    that had.
    """
    messages = _messages(inputs)
    transmissions = inputs["transmissions"].where(F.col("message_pk").isNotNull())
    taken = F.col("outcome") == "sent"
    takes = F.greatest(F.coalesce(_micros("finished_at") - _micros("started_at"), F.lit(0)), F.lit(0)).cast("long")
    counted = transmissions.groupBy("message_pk").agg(
        F.count(F.lit(1)).alias("attempts"),
        F.min(_micros("started_at")).alias("first_at"),
        F.max(takes).alias("takes"),
        F.sum(F.when(taken & (F.col("cause") == ""), 1).otherwise(0)).alias("handed_over"),
        F.max(taken).alias("taken"),
    )
    several = _several(inputs, transmissions, counted, takes)
    refusals = (
        _signals(inputs, "error")
        .where(F.col("state") == "matched")
        .groupBy("about_pk")
        .agg(F.count("*").alias("refusals"))
    )
    found = (
        messages.join(counted, "message_pk")
        .join(several, "message_pk", "left")
        .join(refusals, F.col("message_pk") == F.col("about_pk"), "left")
    )
    found = found.withColumn("answered", _answered())
    answers = F.when(F.col("acknowledged"), 1).otherwise(0).cast("long")
    refusal_count = F.coalesce("refusals", F.lit(0)).cast("long")
    alone = F.col("list").isNull()
    first_taken = F.when(alone, F.col("taken")).otherwise(F.col("list")[0]["taken"])
    answered_at = F.when(alone, F.col("first_at")).otherwise(F.col("answered")["at"])
    explained = refusal_count + F.when(F.col("handed_over") > 0, answers).otherwise(0)
    return found.select(
        "agreement_id",
        "message_pk",
        "attempts",
        answers.alias("answers"),
        refusal_count.alias("refusals"),
        F.greatest(F.col("handed_over") - explained, F.lit(0)).cast("long").alias("unexplained"),
        F.when(F.col("acknowledged"), F.greatest(answered_at - F.col("first_at"), F.lit(0))).alias("outage"),
        F.when(F.col("acknowledged"), F.greatest(F.col("ended_at") - answered_at, F.lit(0))).alias("latency"),
        (~first_taken).alias("failing"),
        F.when(alone, F.col("takes")).otherwise(F.col("list")[0]["takes"]).alias("lost_takes"),
        F.when(alone, F.col("takes")).otherwise(F.coalesce(F.col("answered")["takes"], F.lit(0))).alias("sent_takes"),
    )


def _messages(inputs: Mapping[str, DataFrame]) -> DataFrame:
    versions = inputs["agreements"].where(F.col("profile") == "ebxml")
    versions = F.broadcast(versions.select(F.col("id").alias("agreement_version_id"), "agreement_id"))
    messages = inputs["messages"].where(
        (F.col("direction") == "out") & (F.col("semantics") == "OnceAndOnlyOnce") & F.col("state").isin(*_ENDED)
    )
    return messages.join(versions, "agreement_version_id").select(
        "agreement_id",
        F.col("id").alias("message_pk"),
        (F.col("state") == "delivered").alias("acknowledged"),
        _micros("completed_at").alias("ended_at"),
    )


def _several(inputs: Mapping[str, DataFrame], transmissions: DataFrame, counted: DataFrame, takes: Column) -> DataFrame:
    """Messages with more than one attempt, which are few: the attempts in their order, and how many answers came."""
    many = counted.where(F.col("attempts") > 1).select("message_pk")
    attempt = F.struct(
        _micros("started_at").alias("at"), takes.alias("takes"), (F.col("outcome") == "sent").alias("taken")
    )
    lists = (
        transmissions.join(many, "message_pk", "left_semi")
        .groupBy("message_pk")
        .agg(F.array_sort(F.collect_list(attempt)).alias("list"))
    )
    copies = (
        _signals(inputs, "ack")
        .join(many, F.col("about_pk") == F.col("message_pk"), "left_semi")
        .groupBy(F.col("about_pk").alias("message_pk"))
        .agg(F.count("*").alias("copies"))
    )
    return lists.join(copies, "message_pk", "left")


def _answered() -> Column:
    """The attempt that the first acknowledgement is for."""
    taken = F.filter("list", lambda attempt: attempt["taken"])
    number = F.greatest(F.size(taken) - F.coalesce("copies", F.lit(1)) + 1, F.lit(1)).cast("int")
    guessed = F.try_element_at(taken, number)
    begun = F.filter("list", lambda attempt: attempt["at"] <= F.col("ended_at"))
    taken_and_begun = F.filter(begun, lambda attempt: attempt["taken"])
    last = F.coalesce(
        F.try_element_at(taken_and_begun, F.lit(-1)), F.try_element_at(begun, F.lit(-1)), F.col("list")[0]
    )
    return F.when(guessed["at"] <= F.col("ended_at"), guessed).otherwise(last)


def _signals(inputs: Mapping[str, DataFrame], kind: str) -> DataFrame:
    """The partner's answers of one kind that name a message of ours."""
    return inputs["signals"].where(
        (F.col("direction") == "in") & (F.col("kind") == kind) & F.col("about_pk").isNotNull()
    )


def _micros(name: str) -> Column:
    return F.unix_micros(name)


CHOICE = ("timeout", "retries", "retry_interval")
BELOW = ("transport_retries", "transport_retry_interval")  # which no choice changes
PARAMETERS = (*CHOICE, *BELOW)
_SECOND = 1_000_000
_WITHOUT_END = 2**40


def replay(frame: DataFrame) -> DataFrame:
    """Adds what became of them to messages with the columns above and `PARAMETERS` (long; seconds or counts).

    replayed_attempts: transmissions until the acknowledgement or the suspension. needless: of these, those after the
    one that was answered. gave_up: 1 when the pair was suspended before the acknowledgement came. micros: from the
    first attempt to the acknowledgement; null when it gave up. At one and the same instant an answer comes before a
    timer, and an attempt at the very end of the outage is answered.
    """
    zero = F.lit(0).cast("long")
    timeout, retry, transport_wait = (
        F.col(name) * _SECOND for name in ("timeout", "retry_interval", "transport_retry_interval")
    )
    retries, transport_retries = F.col("retries"), F.col("transport_retries")
    outage, latency, failing = F.col("outage"), F.col("latency"), F.col("failing")
    lost, sent = F.col("lost_takes"), F.col("sent_takes")

    # On the transport: each retry is a run of transport attempts, then RetryInterval (2.5.4).
    gap = lost + transport_wait
    run = transport_retries * gap
    period = run + lost + retry
    # Handed over and not answered: Timeout after the first, RetryInterval after each of the others.
    pause = lost + retry

    frame = frame.select(
        "*",
        F.when(outage <= 0, zero)
        .when(failing, F.greatest(zero, _up(outage - run, period)))
        .otherwise(F.greatest(zero + 1, _up(outage - timeout + retry, pause)))
        .alias("_turn"),
    )
    turn = F.col("_turn")
    frame = frame.select(
        "*",
        F.when(failing & (outage > 0), F.greatest(zero, _up(outage - turn * period, gap)))
        .otherwise(zero)
        .alias("_within"),
    )
    within = F.col("_within")
    start = (
        F.when(turn + within == 0, zero)
        .when(failing, turn * period + within * gap)
        .otherwise(turn * lost + timeout + (turn - 1) * retry)
    )
    before = F.when(failing, turn * (transport_retries + 1) + within).otherwise(turn)
    wait = F.when(turn == 0, timeout).otherwise(retry)
    late = latency - sent - wait
    repeats = F.when(late <= 0, zero).otherwise(_up(late, sent + retry))
    left = retries - turn
    never = outage.isNull() | latency.isNull() | (turn > retries)
    in_vain = F.when(failing, (retries + 1) * (transport_retries + 1)).otherwise(retries + 1)
    return frame.select(
        *[name for name in frame.columns if not name.startswith("_")],
        F.when(never, in_vain).otherwise(before + 1 + F.least(repeats, left)).alias("replayed_attempts"),
        F.when(never, zero).otherwise(F.least(repeats, left)).alias("needless"),
        F.when(never | (repeats > left), zero + 1).otherwise(zero).alias("gave_up"),
        F.when(~never & (repeats <= left), start + latency).alias("micros"),
    )


def _up(dividend: Column, divisor: Column) -> Column:
    """Whole division, rounded up; by nothing, as good as without end (a message is repeated at once, for ever)."""
    step = F.greatest(divisor, F.lit(1).cast("long"))
    up = F.call_function("div", dividend, step) + F.when((dividend > 0) & (dividend % step != 0), 1).otherwise(0)
    return F.when((divisor == 0) & (dividend > 0), F.lit(_WITHOUT_END)).otherwise(up)
