"""Timing advice: the replay against the sender's machine, which attempt was answered, and how a proposal is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.pipeline.stepwise import Choice, Course, World, course

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SECOND = 1_000_000
_TERMS = "timeout long, retries long, retry_interval long, transport_retries long, transport_retry_interval long"
_WORLD = "number long, outage long, latency long, failing boolean, lost_takes long, sent_takes long"

# Instants that meet: whole seconds and their neighbours are as frequent as anything else.
instants = st.one_of(
    st.just(0),
    st.builds(lambda second, off: max(0, second * SECOND + off), st.integers(0, 400), st.integers(-1, 1)),
    st.integers(0, 4000 * SECOND),
)
short = st.one_of(st.just(0), st.integers(0, 40 * SECOND))
perhaps = st.one_of(st.none(), instants, instants, instants)
worlds = st.builds(World, perhaps, perhaps, st.booleans(), short, short)
choices = st.builds(
    Choice, st.integers(0, 120), st.integers(0, 12), st.integers(0, 300), st.integers(0, 3), st.integers(0, 20)
)


def replayed(spark: SparkSession, cases: Sequence[tuple[World, Choice]]) -> list[Course]:
    from messaging.pipeline.jobs.replay import replay

    rows = [(number, *astuple(world), *astuple(choice)) for number, (world, choice) in enumerate(cases)]
    results = ("number", "replayed_attempts", "needless", "gave_up", "micros")
    found = replay(spark.createDataFrame(rows, f"{_WORLD}, {_TERMS}")).select(*results).collect()
    by_number = {row["number"]: row for row in found}
    return [
        Course(row["replayed_attempts"], row["needless"], bool(row["gave_up"]), row["micros"])
        for row in (by_number[number] for number in range(len(cases)))
    ]


def compare(spark: SparkSession, cases: Sequence[tuple[World, Choice]]) -> None:
    for (world, choice), found in zip(cases, replayed(spark, cases), strict=True):
        assert found == course(world, choice), (world, choice)


# A few examples of hundreds of messages each: Spark takes as long for one message as for a thousand.
@settings(
    max_examples=4,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(st.tuples(worlds, choices), min_size=100, max_size=150))
def test_the_replay_is_the_senders_machine(spark: SparkSession, cases: list[tuple[World, Choice]]) -> None:
    compare(spark, cases)


def test_the_replay_is_the_senders_machine_where_instants_meet(spark: SparkSession) -> None:
    cases = [
        (World(outage, latency, failing, takes, takes), Choice(timeout, retries, interval, 2, wait))
        for outage in (
            0,
            1,
            10 * SECOND - 1,
            10 * SECOND,
            10 * SECOND + 1,
            25 * SECOND,
            60 * SECOND,
            1000 * SECOND,
            None,
        )
        for latency in (0, 1, 10 * SECOND - 1, 10 * SECOND, 10 * SECOND + 1, 30 * SECOND, 90 * SECOND)
        for failing in (False, True)
        for takes in (0, SECOND)
        for timeout, retries, interval, wait in ((10, 0, 10, 0), (10, 1, 20, 5), (10, 3, 10, 10), (0, 2, 0, 0))
    ]
    compare(spark, cases)


def test_which_attempt_was_answered(spark: SparkSession) -> None:
    """By the number of acknowledgements: every copy that arrives is acknowledged, also when the first was enough."""
    from messaging.pipeline.jobs.replay import facts

    start = datetime(2026, 5, 1, 12, tzinfo=UTC)

    def at(seconds: float) -> datetime:
        return start + timedelta(seconds=seconds)

    # message -> attempts (begin, end, outcome, cause), when it was acknowledged, times of all acknowledgements
    cases: dict[str, tuple[list[tuple[float, float, str, str]], float | None, list[float]]] = {
        "at once": ([(0, 0.1, "sent", "")], 2.5, [2.5]),
        "slow": ([(0, 0.1, "sent", ""), (30, 30.1, "sent", "")], 44.5, [44.5, 74.5]),
        "first lost": ([(0, 0.1, "sent", ""), (30, 30.2, "sent", "")], 31.0, [31.0]),
        "refused connections": ([(0, 0.5, "failed", "connect_refused"), (10, 10.1, "sent", "")], 11.0, [11.0]),
        "more answers than attempts": ([(0, 0.1, "sent", ""), (30, 30.1, "sent", "")], 40.0, [40.0, 41.0, 42.0]),
        "answered before the repeat": ([(0, 0.1, "sent", ""), (30, 30.1, "sent", "")], 29.0, [29.0]),
        "never": ([(0, 0.1, "sent", ""), (30, 30.1, "sent", "")], None, []),
    }
    messages = [
        (key, "out", "delivered" if ended is not None else "failed", "v1", "OnceAndOnlyOnce", at(ended or 99))
        for key, (_, ended, _) in cases.items()
    ]
    transmissions = [
        (key, outcome, cause, at(begin), at(end))
        for key, (attempts, _, _) in cases.items()
        for begin, end, outcome, cause in attempts
    ]
    signals = [("in", "ack", "matched", key, "") for key, (_, _, answers) in cases.items() for _ in answers]
    inputs = {
        "messages": spark.createDataFrame(
            messages,
            "id string, direction string, state string, agreement_version_id string, semantics string,"
            " completed_at timestamp",
        ),
        "transmissions": spark.createDataFrame(
            transmissions,
            "message_pk string, outcome string, cause string, started_at timestamp, finished_at timestamp",
        ),
        "signals": spark.createDataFrame(
            signals, "direction string, kind string, state string, about_pk string, error_code string"
        ),
        "agreements": spark.createDataFrame([("v1", "a1", "ebxml")], "id string, agreement_id string, profile string"),
    }
    found = {row["message_pk"]: row for row in facts(inputs).collect()}
    courses = {key: (row["outage"], row["latency"], row["unexplained"]) for key, row in found.items()}
    assert courses == {
        "at once": (0, 2_500_000, 0),
        "slow": (0, 44_500_000, 1),
        "first lost": (30_000_000, 1_000_000, 1),
        "refused connections": (10_000_000, 1_000_000, 0),
        "more answers than attempts": (0, 40_000_000, 1),
        "answered before the repeat": (0, 29_000_000, 1),
        "never": (None, None, 2),
    }
    failing = found["refused connections"]
    assert (failing["failing"], failing["lost_takes"], failing["sent_takes"]) == (True, 500_000, 100_000)
