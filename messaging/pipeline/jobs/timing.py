"""Timing advice: Timeout, RetryInterval and Retries of ebXML agreements, chosen by a replay of every message.

Population: see `replay.facts`. Agreements of the repeatable profile have none of these parameters and are not here.
Messages that the partner refused or held up with an Error message are counted among the latencies and failures and are
not replayed: no choice of these parameters would have changed what became of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from messaging.pipeline.jobs.frames import frequencies, literal, quantiles, schema
from messaging.pipeline.jobs.replay import BELOW, CHOICE, PARAMETERS, facts, replay

# --- Which parameters of an ebXML agreement are tried in the replay, and which of them is proposed. Pure and small.

FEWEST = 20  # acknowledged messages below which nothing is proposed
RETRIES = (1, 2, 3, 5, 8, 10)
LONGEST = 86_400  # seconds: no proposal waits longer than a day for anything
LEAST_TIMEOUT = 2  # seconds: shorter ones would follow the noise of one quiet month


class Choice(NamedTuple):
    """Seconds and a count, as an agreement has them."""

    timeout: int
    retries: int
    retry_interval: int

    @property
    def gives_up_after(self) -> int:
        """Seconds of silence until the pair is suspended (spec 1, table 2-1)."""
        return self.timeout + self.retries * self.retry_interval


class Score(NamedTuple):
    """What the replay of all messages under a choice gives. `mean_micros` is None when no message arrives."""

    choice: Choice
    attempts: int
    needless: int
    given_up: int
    mean_micros: float | None


def choice_in_force(measured: Mapping[str, Any]) -> Choice:
    return Choice(measured["timeout"], measured["retries"], measured["retry_interval"])


def choices(measured: Mapping[str, Any]) -> set[Choice]:
    """What is in force and, when enough was measured, combinations of these, in whole seconds, rounded up:

    Timeout: one and a half times p99.9 of the latencies, twice p99, the longest and a quarter, what is in force.
    Silence to be survived: what is agreed now, twice and four times that, the longest outage and a quarter; never less
    than now. Retries: `RETRIES`, and what is in force. RetryInterval follows from the three, and is not shorter than
    Timeout. `measured`: the terms in force, `answered`, and p99, p999, longest, longest_outage in seconds.
    """
    now = choice_in_force(measured)
    if measured["answered"] < FEWEST:
        return {now}
    waits = (measured["p999"] * 1.5, measured["p99"] * 2, measured["longest"] * 1.25)
    timeouts = {now.timeout} | {min(max(math.ceil(wait), LEAST_TIMEOUT), LONGEST) for wait in waits}
    agreed = now.gives_up_after
    silences = {
        max(agreed, min(math.ceil(silence), LONGEST))
        for silence in (agreed, agreed * 2, agreed * 4, measured["longest_outage"] * 1.25)
    }
    found = {now}
    for timeout, silence, retries in itertools.product(timeouts, silences, {*RETRIES, now.retries} - {0}):
        interval = max(math.ceil((silence - timeout) / retries), timeout)
        if interval <= max(LONGEST, now.retry_interval):
            found.add(Choice(timeout, retries, interval))
    return found


def chosen(measured: Mapping[str, Any], scores: Sequence[Score]) -> list[tuple[Choice, str, Score]]:
    """The option `in_force` and, when enough was measured, `proposed`, each with its score.

    Proposed: of the choices that give up no more messages than what is in force, those with the fewest needless
    repeats; of these, the lowest mean time, then the fewest attempts. What is in force stays where nothing is better;
    else what gives up after about the time that is agreed now goes first.
    """
    now = choice_in_force(measured)
    ours = next(score for score in scores if score.choice == now)
    found = [(now, "in_force", ours)]
    if measured["answered"] < FEWEST:
        return found

    def order(score: Score) -> tuple[Any, ...]:
        mean = math.inf if score.mean_micros is None else score.mean_micros
        change = abs(score.choice.gives_up_after - now.gives_up_after)
        return score.needless, mean, score.attempts, score.choice != now, change, *score.choice

    best = min((score for score in scores if score.given_up <= ours.given_up), key=order)
    return [*found, (best.choice, "proposed", best)]


# --- the job

INPUTS: Mapping[str, tuple[str, ...]] = {
    "messages": ("id", "direction", "state", "agreement_version_id", "semantics", "completed_at"),
    "transmissions": ("message_pk", "outcome", "cause", "started_at", "finished_at"),
    "signals": ("direction", "kind", "state", "about_pk", "error_code"),
    "agreements": ("id", "agreement_id", "tpa_id", "partner", "number", "state", "profile", *PARAMETERS),
}  # fmt: skip

_MICROS = 1e6
_CODES = (
    "InvalidSequenceNumber", "NotWellFormed", "ValueNotRecognized", "NotSupported", "Inconsistent", "MimeProblem",
    "SecurityFailure", "DeliveryFailure", "OtherXml", "TimeToLiveExpired",
)  # fmt: skip
_SPEEDS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
_OFFERS = schema(", ".join(("agreement_id string", *(f"{name} long" for name in PARAMETERS))))

Offer = tuple[str, Choice]

OUTPUTS: Mapping[str, StructType] = {
    "advice": schema(
        "agreement_id string, agreement string, partner string, option string, timeout long, retries long, "
        "retry_interval long, messages long, attempts long, needless long, given_up long, mean_seconds double, "
        "p95_seconds double, gives_up_after long"
    ),
    "latencies": schema(
        "agreement_id string, agreement string, partner string, messages long, attempts long, unanswered long, "
        "p50 double, p90 double, p99 double, p999 double, longest double, longest_outage double"
    ),
    "failures": schema(
        "agreement_id string, agreement string, partner string, cause string, attempts long, share double"
    ),
}


def run(inputs: Mapping[str, DataFrame], parameters: Mapping[str, Any]) -> dict[str, DataFrame]:
    """The tables `advice`, `latencies` and `failures`; `parameters` are not looked at, the inputs are the range."""
    known = facts(inputs).persist()  # read by everything below: the joins that it stands on run once
    terms = F.broadcast(in_force(inputs["agreements"]))
    return {
        "advice": _advice(known, terms),  # computed here and now
        "latencies": _latencies(known, terms),
        "failures": _failures(inputs, known, terms),
    }


def in_force(agreements: DataFrame) -> DataFrame:
    """One row an ebXML agreement: its active version, else its newest one that ever was in force, else its newest."""
    rank = F.when(F.col("state") == "active", 0).when(F.col("state") != "draft", 1).otherwise(2)
    order = Window.partitionBy("agreement_id").orderBy(rank, F.desc("number"))
    versions = agreements.where(F.col("profile") == "ebxml").withColumn("_rank", F.row_number().over(order))
    return versions.where(F.col("_rank") == 1).select(
        "agreement_id", F.col("tpa_id").alias("agreement"), "partner", *PARAMETERS
    )


# --- latencies and failures


def _latencies(known: DataFrame, terms: DataFrame) -> DataFrame:
    """One row an agreement. unanswered: attempts less acknowledged messages, for a message's first acknowledgement ends
    it. Quantiles: from the attempt that was answered to the acknowledgement. longest_outage: from the first attempt to
    the answered one, at most; a person's pause or a suspension in between is part of it.
    """
    sums = known.groupBy("agreement_id").agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("attempts").alias("attempts"),
        (F.sum("attempts") - F.sum("answers")).alias("unanswered"),
        (F.max("latency") / _MICROS).alias("longest"),
        (F.max("outage") / _MICROS).alias("longest_outage"),
    )
    speeds = quantiles(
        frequencies(known, ("agreement_id",), "latency"), ("agreement_id",), "latency", _SPEEDS, unit=_MICROS
    )
    rows = sums.join(speeds, "agreement_id", "left").join(terms, "agreement_id")
    return rows.select(*OUTPUTS["latencies"].names)


def _failures(inputs: Mapping[str, DataFrame], known: DataFrame, terms: DataFrame) -> DataFrame:
    """Why attempts failed: the cause that the transmission noted; the code of the partner's Error message
    (ebms_error_..., transient_error); ack_timeout for what was handed over without either and not acknowledged.
    """
    ours = known.select("agreement_id", "message_pk")
    noted = (
        inputs["transmissions"]
        .where(F.col("message_pk").isNotNull() & (F.col("cause") != ""))
        .join(ours, "message_pk")
        .select("agreement_id", "cause")
    )
    refused = (
        inputs["signals"]
        .where((F.col("direction") == "in") & (F.col("kind") == "error") & (F.col("state") == "matched"))
        .join(ours, F.col("about_pk") == F.col("message_pk"))
        .select("agreement_id", _cause_of(F.col("error_code")).alias("cause"))
    )
    counted = noted.unionByName(refused).groupBy("agreement_id", "cause").agg(F.count(F.lit(1)).alias("attempts"))
    silence = known.groupBy("agreement_id").agg(F.sum("unexplained").alias("attempts")).where(F.col("attempts") > 0)
    rows = counted.unionByName(silence.withColumn("cause", F.lit("ack_timeout")))
    rows = rows.groupBy("agreement_id", "cause").agg(F.sum("attempts").alias("attempts"))
    share = F.col("attempts") / F.sum("attempts").over(Window.partitionBy("agreement_id"))
    return rows.withColumn("share", share).join(terms, "agreement_id").select(*OUTPUTS["failures"].names)


def _cause_of(code: Column) -> Column:
    """The cause code of a partner's error code, as on pairs and messages (docs/causes.md)."""
    snake = F.lower(F.regexp_replace(code, "(?<!^)([A-Z])", "_$1"))
    named = F.when(code.isin(*_CODES), F.concat(F.lit("ebms_error_"), snake)).otherwise("ebms_error_unknown")
    return F.when(code == "TransientError", "transient_error").otherwise(named)


# --- advice


def _advice(known: DataFrame, terms: DataFrame) -> DataFrame:
    """The parameters in force and, from `FEWEST` acknowledged messages on, the proposed ones, each with its replay.

    The messages stay where they are. What is decided here comes in as one row an agreement, goes out as `choices`,
    comes back as the sums of their replays, and is `chosen`. Mean and p95 are of the messages that the replay does not
    give up.
    """
    replayed = known.where(F.col("refusals") == 0)
    agreements = {row["agreement_id"]: row.asDict() for row in _measured(replayed, terms).collect()}
    offered = [(key, choice) for key, measured in agreements.items() for choice in choices(measured)]
    scores: dict[str, list[Score]] = {key: [] for key in agreements}
    for row in _scores(replayed, _frame(known, agreements, offered)).collect():
        score = Score(_choice(row), row["attempts"], row["needless"], row["given_up"], row["mean_micros"])
        scores[row["agreement_id"]].append(score)
    options = [(key, *option) for key, measured in agreements.items() for option in chosen(measured, scores[key])]
    again = replay(_offered(replayed, _frame(known, agreements, [(key, choice) for key, choice, _, _ in options])))
    p95 = {(row["agreement_id"], _choice(row)): row["p95"] for row in _slowest(again).collect()}
    rows = []
    for key, choice, option, score in options:
        named = agreements[key]
        mean = score.mean_micros / _MICROS if score.mean_micros is not None else None
        rows.append(
            (key, named["agreement"], named["partner"], option, *choice, named["messages"], score.attempts,
             score.needless, score.given_up, mean, p95.get((key, choice)), choice.gives_up_after)
        )  # fmt: skip
    return literal(known.sparkSession, rows, OUTPUTS["advice"])


def _measured(replayed: DataFrame, terms: DataFrame) -> DataFrame:
    """One row an agreement: its terms in force, and what `choices` asks for."""
    key = ("agreement_id",)
    speeds = quantiles(
        frequencies(replayed, key, "latency"), key, "latency", {"p99": 0.99, "p999": 0.999}, unit=_MICROS
    )
    extremes = replayed.groupBy(*key).agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("answers").alias("answered"),
        (F.max("latency") / _MICROS).alias("longest"),
        (F.max("outage") / _MICROS).alias("longest_outage"),
    )
    return extremes.join(speeds, "agreement_id", "left").join(terms, "agreement_id")


def _frame(known: DataFrame, agreements: Mapping[str, Mapping[str, Any]], offered: Sequence[Offer]) -> DataFrame:
    """The choices as rows, each once, with the terms that no choice changes."""
    rows = [(key, *choice, *(agreements[key][name] for name in BELOW)) for key, choice in dict.fromkeys(offered)]
    return literal(known.sparkSession, rows, _OFFERS)


def _offered(messages: DataFrame, offers: DataFrame) -> DataFrame:
    return messages.join(F.broadcast(offers), "agreement_id")


def _scores(replayed: DataFrame, offers: DataFrame) -> DataFrame:
    """The sums of the replays: one row a choice.

    A message whose first attempt was answered before the shortest Timeout among the choices fares the same under all
    of them: those are added up first, and the others are replayed one by one.
    """
    shortest = F.broadcast(offers.groupBy("agreement_id").agg(F.min("timeout").alias("shortest")))
    at_once = (F.col("outage") == 0) & (F.col("latency") - F.col("sent_takes") <= F.col("shortest") * 1_000_000)
    judged = replayed.join(shortest, "agreement_id").withColumn("at_once", F.coalesce(at_once, F.lit(False)))
    one, none = F.lit(1).cast("long"), F.lit(0).cast("long")
    same = (
        judged.where("at_once")
        .groupBy("agreement_id")
        .agg(F.count(one).alias("attempts"), F.count(one).alias("arrived"), F.sum("latency").alias("micros"))
    )
    alike = _offered(same, offers).select("agreement_id", *CHOICE, "attempts", none.alias("needless"),
                                          none.alias("given_up"), "arrived", "micros")  # fmt: skip
    tried = replay(_offered(judged.where("NOT at_once"), offers)).select(
        "agreement_id",
        *CHOICE,
        F.col("replayed_attempts").alias("attempts"),
        "needless",
        F.col("gave_up").alias("given_up"),
        F.when(F.col("micros").isNotNull(), one).otherwise(none).alias("arrived"),
        F.coalesce("micros", none).alias("micros"),
    )
    arrived = F.sum("arrived")
    return (
        alike.unionByName(tried)
        .groupBy("agreement_id", *CHOICE)
        .agg(
            F.sum("attempts").alias("attempts"),
            F.sum("needless").alias("needless"),
            F.sum("given_up").alias("given_up"),
            F.when(arrived > 0, F.sum("micros") / arrived).alias("mean_micros"),
        )
    )


def _slowest(again: DataFrame) -> DataFrame:
    keys = ("agreement_id", *CHOICE)
    return quantiles(frequencies(again, keys, "micros"), keys, "micros", {"p95": 0.95}, unit=_MICROS)


def _choice(row: Row) -> Choice:
    return Choice(row["timeout"], row["retries"], row["retry_interval"])
