"""Memory window: which window a risk needs, measured, extrapolated or agreed; and quantiles that are exact."""

from __future__ import annotations

import math
import random
import statistics
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

T = datetime(2026, 5, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def test_quantiles_are_exact_and_interpolated(spark: SparkSession) -> None:
    from messaging.pipeline.jobs.frames import frequencies, quantiles

    chance = random.Random(4)
    groups = {
        "one": [7], "two": [1, 4], "same": [5] * 40, "none": [None],
        "many": [chance.randint(0, 500) for _ in range(997)],
        "far": [chance.randint(0, 2**50) for _ in range(101)],
    }  # fmt: skip
    rows = [(name, value) for name, values in groups.items() for value in values]
    frame = spark.createDataFrame(rows, "name string, value long")
    counted = frequencies(frame, ("name",), "value")
    found = {row["name"]: row for row in quantiles(counted, ("name",), "value", {"p10": 0.1, "p50": 0.5}).collect()}
    assert set(found) == set(groups) - {"none"}
    for name, row in found.items():
        values = [value for value in groups[name] if value is not None]
        assert row["p50"] == pytest.approx(statistics.median(values), rel=1e-12)
        if len(values) > 1:
            tenth = statistics.quantiles(values, n=10, method="inclusive")[0]
            assert row["p10"] == pytest.approx(tenth, rel=1e-12)


def test_windows_for_wished_for_risks(spark: SparkSession) -> None:
    """Three partners: one with many repeats, one with a hundred, one with next to none."""
    from pyspark.sql import functions as F

    from messaging.pipeline.jobs import window

    mean = 100.0  # seconds; the delays fall off exponentially
    plan = {"many": (400_000, 10_000), "some": (5_000, 200), "few": (1_000, 3)}
    chance = random.Random(11)
    delays = {
        name: sorted((round(chance.expovariate(1 / mean) * 1e6) for _ in range(repeats)), reverse=True)
        for name, (_, repeats) in plan.items()
    }
    first = "2026-05-01 00:00:00"
    messages = None
    for name, (count, _) in plan.items():
        part = spark.range(count).select(
            F.lit("in").alias("direction"), F.lit(name).alias("pair_id"),
            F.lit(f"v-{name}").alias("agreement_version_id"),
            (F.lit(first).cast("timestamp") + F.make_dt_interval(secs=F.col("id") % 1000)).alias("created_at"),
        )  # fmt: skip
        messages = part if messages is None else messages.unionByName(part)
    assert messages is not None
    copies = [
        (T + timedelta(microseconds=delay), "message.duplicate", name, "m", None, T, "known-id")
        for name, values in delays.items()
        for delay in values
    ]
    terms = [
        (f"v-{name}", f"a-{name}", name, 1, "active", "ebxml", 60, 5, 300, remembered, 0)
        for name, remembered in (("many", 1200), ("some", 86_400), ("few", 1000))
    ]
    inputs = {
        "messages": messages,
        "events": spark.createDataFrame(
            copies,
            "at timestamp, type string, pair_id string, message_pk string, first_sent_at timestamp,"
            " message_created_at timestamp, rule string",
        ),
        "pairs": spark.createDataFrame([(name, name) for name in plan], "id string, partner string"),
        "agreements": spark.createDataFrame(
            terms,
            "id string, agreement_id string, partner string, number long, state string, profile string, timeout long,"
            " retries long, retry_interval long, memory_window long, partner_window long",
        ),
    }
    advice = window.run(inputs, {"as_of": T + DAY, "to": None, "price_gb_month": None})["advice"]
    found = {(row["partner"], row["one_in"]): row for row in advice.collect()}
    assert len(found) == 9

    measured = found["many", 10**4]
    assert measured["basis"] == "measured", "40 repeats may come later: that many are in the data"
    assert measured["window"] == math.ceil(delays["many"][40] / 1e6)
    assert sum(delay > measured["window"] * 1e6 for delay in delays["many"]) <= 40
    assert measured["ids"] == math.ceil(400_000 * measured["window"] / 86_400)
    assert (measured["bytes"], measured["cost"]) == (measured["ids"] * 352, None)
    assert (measured["in_force"], measured["suffices"]) == (1200, True)

    for one_in in (10**6, 10**9):
        row = found["many", one_in]
        assert row["basis"] == "extrapolated"
        assert row["window"] >= delays["many"][0] / 1e6, "the latest that was seen is inside"
        # One message in forty is repeated: P(later than w) = 0.025 exp(-w / mean).
        assert row["window"] == pytest.approx(mean * math.log(0.025 * one_in), rel=0.15)
    assert found["many", 10**9]["suffices"] is False
    for one_in in (10**4, 10**6, 10**9):
        assert found["some", one_in]["basis"] == "extrapolated"
        agreed = found["few", one_in]
        assert (agreed["basis"], agreed["window"], agreed["suffices"]) == ("agreed", 60 + 5 * 300, False)
    windows = [found["some", one_in]["window"] for one_in in (10**4, 10**6, 10**9)]
    assert windows == sorted(windows)
