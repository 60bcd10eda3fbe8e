"""The reconciliation job: it finds what was planted and nothing else, and says what plain SQL says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from messaging.pipeline.jobs import frames, reconcile
from tests.benchmarks import pipeline_sql
from tests.pipeline import planted
from tests.pipeline.planted import Difference, Planted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
NOON = datetime(2026, 6, 30, 12, tzinfo=UTC)
MARGIN = timedelta(hours=1)
Rows = list[dict[str, Any]]

# Name: direction, our state (None: we do not have it), begin and end relative to noon or the log's end, the digests of
# theirs (one a copy), and the verdict (None: nothing is said).
CASES: Mapping[str, tuple[str, str | None, str, tuple[str, ...], str | None]] = {
    "sent once, and lost": ("out", "sent", "noon", (), "lost"),
    "received, not in theirs": ("in", "received", "noon", (), "lost"),
    "on its way": ("out", "awaiting_ack", "noon", (), None),
    "on its way, and there": ("out", "awaiting_ack", "noon", ("aa",), "agreed"),
    "waits": ("out", "queued", "noon", (), None),
    "cancelled": ("out", "cancelled", "noon", (), None),
    "skipped, and there": ("out", "skipped", "noon", ("aa",), "in_doubt_arrived"),
    "in doubt": ("out", "in_doubt", "noon", (), "in_doubt"),
    "in doubt, and there": ("out", "in_doubt", "noon", ("aa",), "in_doubt_arrived"),
    "capitals": ("out", "delivered", "noon", ("AA",), "agreed"),
    "no digest": ("in", "received", "noon", ("",), "agreed"),
    "another digest": ("in", "received", "noon", ("bb",), "differs"),
    "three times there": ("in", "received", "noon", ("aa", "aa", "aa"), "doubled"),
    "twice here, twice there": ("in", "received twice", "noon", ("aa", "aa"), "agreed"),
    "unknown": ("in", None, "noon", ("aa",), "unknown_here"),
    "unknown, twice": ("out", None, "noon", ("aa", "aa"), "unknown_here"),
    "after the log ends": ("out", "delivered", "after", (), None),
    "after the log ends, in doubt": ("out", "failed", "after", (), None),
    "after the log ends, and there": ("out", "delivered", "after", ("aa",), "agreed"),
    "in the margin": ("out", "delivered", "margin", (), None),
}


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Planted differences, and the cases above."""
    found = planted.plant(tmp_path_factory.mktemp("books"), 20_000, one_in=2_000, pairs=10, seed=5)
    times = {"noon": NOON, "after": found.end + timedelta(days=1), "margin": found.end - timedelta(minutes=30)}
    messages, log = [], []
    for place, (name, (direction, state, when, digests, _)) in enumerate(CASES.items()):
        at = times[when]
        for copy in range(0 if state is None else 2 if state.endswith("twice") else 1):
            messages.append(
                {
                    "id": f"10000000-0000-7000-8009-{copy:06d}{place:06d}",
                    "direction": direction,
                    "state": str(state).partition(" ")[0],
                    "pair_id": "00000000-0000-7000-8001-000000000001",
                    "message_id": name,
                    "digest": "aa",
                    "created_at": at - timedelta(seconds=1),
                    "first_sent_at": at if direction == "out" else None,
                    "completed_at": at + timedelta(seconds=1),
                }
            )
        log += [{"message_id": name, "direction": direction, "at": at, "digest": digest} for digest in digests]
    for entity, rows in {"messages": messages, "log": log}.items():
        known = pq.read_schema(found.path(entity) / "0000.parquet")
        fields = {one.name: getattr(one.type, "value_type", one.type) for one in known}
        table = pa.Table.from_pylist(rows, schema=pa.schema(list(fields.items())))
        pq.write_table(table, found.path(entity) / "more.parquet")
    return found


@pytest.fixture(scope="module")
def found(spark: SparkSession, books: Planted) -> dict[str, Rows]:
    """The job's tables."""
    inputs = {
        entity: spark.read.parquet(str(books.path(entity))).select(*columns)
        for entity, columns in reconcile.INPUTS.items()
    }
    tables = reconcile.run(inputs, {"from": books.begin, "to": books.end, "margin": MARGIN.seconds})
    for name, table in tables.items():
        declared = [(one.name, one.dataType) for one in reconcile.OUTPUTS[name]]
        assert [(one.name, one.dataType) for one in table.schema] == declared
    return {name: table.toArrow().to_pylist() for name, table in tables.items()}


def test_everything_that_was_planted_is_found_and_nothing_else(books: Planted, found: dict[str, Rows]) -> None:
    names = ("direction", "verdict", "message_id", "our_copies", "their_copies")
    got = Counter(
        Difference(*(row[name] for name in names)) for row in found["findings"] if row["message_id"] not in CASES
    )
    wanted = Counter(books.differences)
    assert not wanted - got, "not found"
    assert not got - wanted, "found, and not there"


@pytest.mark.parametrize("case", CASES)
def test_verdict(found: dict[str, Rows], case: str) -> None:
    verdict = CASES[case][4]
    rows = [row for row in found["findings"] if row["message_id"] == case]
    assert [row["verdict"] for row in rows] == ([] if verdict in (None, "agreed") else [verdict])


def test_findings_say_what_both_sides_have(found: dict[str, Rows]) -> None:
    (row,) = (row for row in found["findings"] if row["message_id"] == "another digest")
    assert (row["our_digest"], row["their_digest"], row["our_state"]) == ("aa", "bb", "received")
    assert (row["pair"], row["our_at"], row["their_at"]) == ("PARTNER-01/001", NOON - timedelta(seconds=1), NOON)
    (row,) = (row for row in found["findings"] if row["message_id"] == "unknown, twice")
    assert (row["our_copies"], row["their_copies"], row["our_state"], row["pair"]) == (0, 2, "", "")


def test_the_summary_counts_all_messages(books: Planted, found: dict[str, Rows]) -> None:
    got = {(row["direction"], row["verdict"]): row["messages"] for row in found["summary"]}
    findings = Counter((row["direction"], row["verdict"]) for row in found["findings"])
    assert {key: count for key, count in got.items() if key[1] != "agreed"} == findings
    agreed = Counter(direction for direction, _, _, _, verdict in CASES.values() if verdict == "agreed")
    agreed["in"] += 1  # both have it twice
    assert got["in", "agreed"] == books.agreed["in"] + agreed["in"]
    assert got["out", "agreed"] == books.agreed["out"] + agreed["out"]


def test_plain_sql_says_the_same(books: Planted, found: dict[str, Rows]) -> None:
    limits = {"begin": books.begin + MARGIN, "end": books.end - MARGIN}
    stamps = {name: f"TIMESTAMPTZ '{value.isoformat()}'" for name, value in limits.items()}
    with duckdb.connect() as database:
        for entity in ("messages", "log"):
            path = f"{books.path(entity)}/*.parquet"
            digest = "nullif(lower(digest), '')"
            database.execute(
                f"CREATE VIEW {entity} AS SELECT * REPLACE ({digest} AS digest) FROM read_parquet('{path}')"
            )
        rows = database.execute(pipeline_sql.DIFFERENCES.format(**stamps)).fetchall()
        summary = database.execute(pipeline_sql.SUMMARY.format(**stamps)).fetchall()
    names = ("direction", "verdict", "message_id", "our_copies", "their_copies")
    assert Counter(tuple(row[name] for name in names) for row in found["findings"]) == Counter(rows)
    assert {(row["direction"], row["verdict"], row["messages"]) for row in found["summary"]} == set(summary)


def test_doubled_rows_do_not_cancel_each_other_out(spark: SparkSession) -> None:
    """XOR is blind where a row is twice on one side and another one twice on the other; the sums are not."""
    sides = {1: ["a", "a", "b", "same"], -1: ["c", "c", "b", "same"]}
    rows = [(sign, value) for sign, values in sides.items() for value in values]
    frame = spark.createDataFrame(rows, "sign int, value string")
    from pyspark.sql import functions as F

    number = frames.bucket(1, F.col("value"))
    parts = [
        frames.fingerprinted(frame.where(F.col("sign") == sign), sign, number, (F.col("value"),)) for sign in (1, -1)
    ]
    (row,) = frames.compared(parts[0].unionAll(parts[1])).collect()
    assert row["differs"]
    twice = parts[0].unionAll(parts[0].withColumns({name: -F.col(name) for name in ("rows", "low", "high")}))
    assert [one["differs"] for one in frames.compared(twice).collect()] == [False]
