"""Service levels: each message once, where it entered; suspensions where they began; all partners are the sum."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

NIGHT = datetime(2026, 5, 1, 23, 59, 59, 900_000, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NIGHT + timedelta(seconds=seconds)


def frames(spark: SparkSession, job: Any, **rows: list[tuple[Any, ...]]) -> dict[str, DataFrame]:
    """The inputs of a job; entities without rows are empty."""
    from messaging.pipeline.schemas import ENTITIES
    from messaging.pipeline.submitted import struct

    return {
        name: spark.createDataFrame(rows.get(name, []), struct(ENTITIES[name], columns))
        for name, columns in job.INPUTS.items()
    }


def message(
    key: str, pair: str, state: str, entered: float, done: float | None = None, cause: str = ""
) -> tuple[Any, ...]:
    direction = "in" if state == "received" else "out"
    ended = at(done) if done is not None else None
    return (key, direction, state, f"{pair}-{direction}", 100, 0, cause, at(entered), at(entered), ended)


def test_levels(spark: SparkSession) -> None:
    from messaging.pipeline.jobs import levels

    inputs = frames(
        spark,
        levels,
        pairs=[(f"{name}-{way}", way, name.upper()) for name in ("a", "b") for way in ("in", "out")],
        messages=[
            message("m1", "a", "delivered", 0, 2),  # entered before midnight, acknowledged after it
            message("m2", "a", "delivered", 0.1, 4.1),  # entered at midnight
            message("m3", "b", "delivered", 3, 9000, "outcome_unknown"),  # settled by a person, not acknowledged
            message("m4", "b", "failed", 5, None, "ack_timeout"),
            message("m5", "a", "received", 6, 6),
            message("m6", "a", "received", 7, 7),
            message("m7", "a", "queued", 8),
        ],
        transmissions=[
            ("a-out", "m1", "", at(0)), ("a-out", "m2", "read_timeout", at(0.1)), ("a-out", "m2", "", at(2.1)),
            ("b-out", "m3", "", at(3)), ("b-out", "m4", "", at(5)), ("b-out", "m4", "", at(65)),
            ("a-in", None, "read_timeout", at(6)),  # an acknowledgement of ours
        ],
        deliveries=[("m5", "in_doubt"), ("m5", "completed"), ("m6", "completed")],
        events=[
            (1, at(0), "pair.suspended", "a-out", None, None, None, "{}"),
            (2, at(100), "pair.resumed", "a-out", None, None, None, "{}"),
            (3, at(200), "pair.suspended", "a-out", None, None, None, "{}"),
            (4, at(300), "pair.suspended", "b-out", None, None, None, "{}"),
            (5, at(350), "pair.resumed", "b-out", None, None, None, "{}"),
        ],
    )  # fmt: skip
    found: dict[tuple[Any, ...], Row] = {
        (row["grain"], row["at"], row["partner"], row["direction"]): row
        for row in levels.run(inputs, {})["levels"].collect()
    }
    total = found["total", None, "", "out"]
    counted = ("messages", "succeeded", "failed", "in_doubt", "under_way", "attempts")
    assert [total[name] for name in counted] == [5, 3, 1, 0, 1, 6]
    assert total["retries_per_message"] == 2 / 4
    # m1 took 2 s, m2 4 s from its first attempt; nobody acknowledged m3.
    assert (total["ack_p50"], total["ack_p99"]) == (pytest.approx(3.0), pytest.approx(3.98))
    assert (total["suspensions"], total["resumed"], total["mean_seconds_to_resume"]) == (3, 2, 75.0)
    inbound = found["total", None, "A", "in"]
    assert [inbound[name] for name in counted] == [2, 1, 0, 1, 0, 0]
    assert inbound["retries_per_message"] is None

    days = {key[1].day: row for key, row in found.items() if key[0] == "day" and key[2:] == ("A", "out")}
    assert {day: row["messages"] for day, row in days.items()} == {1: 1, 2: 2}
    assert (days[1]["suspensions"], days[1]["resumed"]) == (1, 1), "it ended on the next day"
    assert (days[2]["suspensions"], days[2]["resumed"], days[2]["mean_seconds_to_resume"]) == (1, 0, None)
    for grain in ("hour", "day", "total"):
        for name in (*counted, "bytes", "suspensions", "resumed"):
            sums = [
                sum(row[name] for key, row in found.items() if key[0] == grain and bool(key[2]) is own)
                for own in (0, 1)
            ]
            assert sums[0] == sums[1], (grain, name)


@pytest.mark.parametrize(
    "name", ["levels", *(pytest.param(name, marks=pytest.mark.long) for name in ("timing", "window"))]
)
def test_a_hub_without_traffic_has_empty_reports(spark: SparkSession, name: str) -> None:
    job = import_module(f"messaging.pipeline.jobs.{name}")
    results = job.run(frames(spark, job), {"as_of": NIGHT, "price_gb_month": None})
    assert {table: results[table].collect() for table in job.OUTPUTS} == {table: [] for table in job.OUTPUTS}
