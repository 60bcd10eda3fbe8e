"""Every number of the reports is what plain SQL over the store gives: after real traffic, by way of the lake."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db.models import Max, Min

from messaging import dispatch
from messaging.models import Event
from messaging.reports.catalogue import REPORTS
from rmhub import clock
from tests.pipeline import store_sql
from tests.pipeline.stepwise import Choice, World, course
from tests.pipeline.store_sql import Row
from tests.pipeline.traffic import T, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOBS = ("levels", "timing", "window")
KEYS = {
    "pairs": ("pair_id",),
    "levels": ("grain", "at", "partner", "direction"),
    "errors": ("partner", "kind", "cause"),
    "doubts": ("partner", "what", "doubt", "outcome"),
    "latencies": ("agreement_id",),
    "failures": ("agreement_id", "cause"),
    "delays": ("partner", "profile"),
    "histogram": ("partner", "profile", "upper"),
    "windows": ("partner", "profile", "one_in"),
}
PRICE = 0.25


@pytest.mark.parametrize("name", (*JOBS, "sla"))
def test_the_jobs_declare_the_tables_of_the_catalogue(name: str) -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType, TimestampType

    from messaging.pipeline.schemas import ENTITIES

    kinds: Mapping[str, type] = {
        "CharField": StringType, "TextField": StringType, "UUIDField": StringType, "BigIntegerField": LongType,
        "PositiveIntegerField": LongType, "FloatField": DoubleType, "BooleanField": BooleanType,
        "DateTimeField": TimestampType,
    }  # fmt: skip
    job = import_module(f"messaging.pipeline.jobs.{name}")
    report = REPORTS[name]
    assert set(job.OUTPUTS) == {table.name for table in report.tables}
    for table in report.tables:
        wanted = [(column.name, kinds[column.get_internal_type()]) for column in table.columns]
        assert [(field.name, type(field.dataType)) for field in job.OUTPUTS[table.name]] == wanted, table.name
    for entity, columns in job.INPUTS.items():
        assert set(columns) <= set(ENTITIES[entity].column_names), entity


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.django_db(transaction=True)
def test_every_number_is_what_plain_sql_gives(
    spark: SparkSession, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from messaging.pipeline import driver
    from messaging.pipeline.extract import extract

    Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)  # WhiteNoise warns when it is missing
    settings.RMHUB_LAKE_DIR = tmp_path / "lake"
    monkeypatch.setattr(dispatch, "wake", lambda task: None)
    with clock.frozen(T) as time:
        fill(time)
        as_of = clock.now() + timedelta(minutes=10)
    extract(lambda step, done, total: None)
    span = Event.objects.aggregate(first=Min("at"), last=Max("at"))
    middle = span["first"] + (span["last"] - span["first"]) / 3
    part = (middle, span["last"] - timedelta(hours=2))
    for (begin, end), names in (((None, None), (*JOBS, "audit")), (part, ("levels", "window"))):
        found: dict[tuple[str, str], list[Row]] = {}
        for name in names:
            job = import_module(f"messaging.pipeline.jobs.{name}")
            inputs, _ = driver.lake_inputs(spark, job.INPUTS, begin, end)
            results = job.run(inputs, {"from": begin, "to": end, "as_of": as_of, "price_gb_month": PRICE})
            for table, schema in job.OUTPUTS.items():
                assert results[table].columns == schema.names
                assert [f.dataType for f in results[table].schema] == [f.dataType for f in schema], table
                found[name, table] = collected(results[table])
        _levels(found, begin, end)
        _window(found, begin, end, as_of)
        if "timing" in names:
            _timing(found, begin, end)
        if "audit" in names:
            same("pairs", found["audit", "pairs"], store_sql.rows(store_sql.AUDIT_PAIRS, begin, end))


def _levels(found: Mapping[tuple[str, str], list[Row]], begin: datetime | None, end: datetime | None) -> None:
    levels = store_sql.rows(store_sql.LEVELS, begin, end)
    same("levels", found["levels", "levels"], levels)
    for row in levels:
        assert row["messages"] == row["succeeded"] + row["failed"] + row["in_doubt"] + row["under_way"]
    same("errors", found["levels", "errors"], store_sql.rows(store_sql.ERRORS, begin, end))
    same("doubts", found["levels", "doubts"], store_sql.rows(store_sql.DOUBTS, begin, end))


def _timing(found: Mapping[tuple[str, str], list[Row]], begin: datetime | None, end: datetime | None) -> None:
    same("latencies", found["timing", "latencies"], store_sql.rows(store_sql.LATENCIES, begin, end))
    same("failures", found["timing", "failures"], store_sql.rows(store_sql.FAILURES, begin, end))
    courses = store_sql.rows(store_sql.COURSES, begin, end)
    terms = {row["agreement_id"]: row for row in store_sql.rows(store_sql.TERMS)}
    advice = found["timing", "advice"]
    assert len({(row["agreement_id"], row["option"]) for row in advice}) == len(advice)
    for agreement in {row["agreement_id"] for row in courses}:
        ours = [row for row in courses if row["agreement_id"] == agreement and not row["refusals"]]
        options = {row["option"]: row for row in advice if row["agreement_id"] == agreement}
        answered = sum(row["acknowledged"] for row in ours)
        assert set(options) == ({"in_force", "proposed"} if answered >= 20 else {"in_force"})
        names = ("timeout", "retries", "retry_interval")
        assert [options["in_force"][name] for name in names] == [terms[agreement][name] for name in names]
        for row in options.values():
            assert (row["agreement"], row["partner"]) == (ours[0]["agreement"], ours[0]["partner"])
            assert_replayed(row, ours, terms[agreement])


def assert_replayed(row: Row, courses: Sequence[Row], terms: Row) -> None:
    """The row of the advice is what the sender's own machine does with every message, one by one."""
    choice = Choice(
        row["timeout"], row["retries"], row["retry_interval"], terms["transport_retries"],
        terms["transport_retry_interval"],
    )  # fmt: skip
    results = [
        course(World(one["outage"], one["latency"], one["failing"], one["lost_takes"], one["sent_takes"] or 0), choice)
        for one in courses
    ]
    times = sorted(result.micros / 1e6 for result in results if result.micros is not None)
    assert row["messages"] == len(results)
    assert row["attempts"] == sum(result.attempts for result in results)
    assert row["needless"] == sum(result.needless for result in results)
    assert row["given_up"] == sum(result.gave_up for result in results)
    assert row["gives_up_after"] == row["timeout"] + row["retries"] * row["retry_interval"]
    assert close(row["mean_seconds"], sum(times) / len(times) if times else None)
    place = 0.95 * (len(times) - 1)
    low, high = (times[math.floor(place)], times[math.ceil(place)]) if times else (0.0, 0.0)
    assert close(row["p95_seconds"], low + (high - low) * (place - math.floor(place)) if times else None)


def _window(
    found: Mapping[tuple[str, str], list[Row]], begin: datetime | None, end: datetime | None, as_of: datetime
) -> None:
    same("delays", found["window", "delays"], store_sql.rows(store_sql.DELAYS, begin, end))
    same("histogram", found["window", "histogram"], store_sql.rows(store_sql.HISTOGRAM, begin, end))
    until = as_of if end is None else min(end, as_of)
    more = {"risks": [10**4, 10**6, 10**9], "until": until, "price": PRICE}
    same("windows", found["window", "advice"], store_sql.rows(store_sql.WINDOWS, begin, end, **more))


def collected(frame: DataFrame) -> list[Row]:
    rows = frame.toArrow().to_pylist()
    return [dict(row) for row in rows]


def same(name: str, ours: Iterable[Row], theirs: Iterable[Row]) -> None:
    """Both have the same rows, each once, and the same value in every column."""
    keys = KEYS[name]
    by_key = [{tuple(row[key] for key in keys): row for row in rows} for rows in (list(ours), list(theirs))]
    assert by_key[0].keys() == by_key[1].keys(), name
    assert by_key[1], f"nothing to compare in {name}"
    for key, row in by_key[0].items():
        other = by_key[1][key]
        assert row.keys() == other.keys()
        differing = {column: (row[column], other[column]) for column in row if not close(row[column], other[column])}
        assert not differing, (name, key, differing)


def close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and other is not None:
        return math.isclose(one, float(other), rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)
