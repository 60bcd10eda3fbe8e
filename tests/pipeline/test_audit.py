"""The audit job: it finds what was planted and nothing else, and what plain SQL finds, whatever the sequences."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.db import models

from messaging.pipeline.jobs import audit, reconcile
from messaging.pipeline.schemas import ENTITIES
from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER as LAST
from messaging.report_choices import NOTICES, AuditKind
from messaging.reports import catalogue as reports
from tests.benchmarks import pipeline_sql
from tests.pipeline import planted
from tests.pipeline.planted import Finding, Planted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, ONE_IN = 40_000, 2_000
NOON = datetime(2026, 6, 30, 12, tzinfo=UTC)
Rows = list[dict[str, Any]]

# Pair -> its numbers in the order of the positions (None: no number), and what must be found: kind, first, last, count.
CASES: Mapping[str, tuple[list[int | None], list[tuple[str, int, int, int]]]] = {
    "plain": ([1, 2, 3, 4], []),
    "begins in the middle": ([500, 501, 502], []),
    "without numbers between": ([1, None, 2, None, None, 3], []),
    "wrap": ([LAST - 1, LAST, 1, 2], [("wrap", LAST, 1, 1)]),
    "wrap, reordered": ([LAST - 1, 1, LAST, 2], [("wrap", LAST, 1, 1)]),
    "wrap, 1 lost": ([LAST - 1, LAST, 2, 3], [("wrap", LAST, 2, 1), ("gap", 1, 1, 1)]),
    "wrap, both ends lost": ([LAST - 1, 2], [("wrap", LAST - 1, 2, 1), ("gap", LAST, 1, 2)]),
    "gap": ([1, 2, 5, 6], [("gap", 3, 4, 2)]),
    "late": ([1, 2, 4, 3, 5], []),
    "late first": ([2, 1, 3, 4], []),
    "repeat": ([1, 2, 2, 3], [("repeat", 2, 2, 1)]),
    "fell back": ([1, 2, 3, 4, 5, 3, 4, 5, 6], [("repeat", 3, 5, 3)]),
    "repeat and gap cancel out": ([1, 2, 2, 4], [("repeat", 2, 2, 1), ("gap", 3, 3, 1)]),
    "reset": ([1, 2, 3, 1, 2], [("reset", 3, 1, 1)]),
    "both one": ([1, 1, 2], [("reset", 1, 1, 1)]),
    "reset, and lost after it": ([7, 8, 1, 3], [("reset", 8, 1, 1), ("gap", 2, 2, 1)]),
    "one number twice in place": ([7, 8, 1, 9], [("gap", 2, 6, 5)]),
    "bridged": ([1, 2, 6], [("bridge", 3, 5, 3)]),
    "bridged in part": ([1, 2, 7], [("gap", 3, 4, 2), ("bridge", 5, 6, 2)]),
    "bridged over the end": ([LAST - 1, 3], [("wrap", LAST - 1, 3, 1), ("bridge", LAST, 2, 3)]),
    # What the pair's events say (docs/decisions.md, acceptance): plain SQL over the messages cannot know it.
    "restarted": ([56, 57, 2, 3], [("reset", 57, 2, 1)]),
    "by the other road": ([1, 2, None, 4, 5], []),
    "by the other road, and lost": ([1, 2, None, 6], [("gap", 3, 5, 2)]),
}
PREVIOUS = {"bridged": 2, "bridged in part": 4, "bridged over the end": LAST - 1}
MOVES = {"restarted": "restarted", "by the other road": "by-other-road", "by the other road, and lost": "by-other-road"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Planted faults, the cases above, and many short random sequences: all in one lake."""
    found = planted.plant(tmp_path_factory.mktemp("lake"), ROWS, one_in=ONE_IN, pairs=20, seed=3)
    sequences = {name: numbers for name, (numbers, _) in CASES.items()} | _random_sequences(150)
    _add(found.folder, sequences)
    return found


def _random_sequences(count: int) -> dict[str, list[int | None]]:
    chance = random.Random(20261121)
    found: dict[str, list[int | None]] = {}
    for name in range(count):
        number = chance.choice((1, 1, 40, LAST - 20))
        numbers: list[int | None] = []
        for _ in range(chance.randint(1, 90)):
            numbers.append(number if chance.random() > 0.03 else None)
            kind = chance.random()
            step = 1
            if kind < 0.04:
                step = chance.randint(2, 4)
            elif kind < 0.08:
                step = -chance.randint(0, 3)
            number = 1 if 0.08 <= kind < 0.1 else (number + step - 1) % LAST + 1
        found[f"random {name}"] = numbers
    return found


def _add(folder: Path, sequences: Mapping[str, list[int | None]]) -> None:
    """Pairs with these numbers, one message every second; outbound, so that nothing but the numbers is looked at."""
    messages, events = [], []
    for pair, (name, numbers) in enumerate(sequences.items(), start=1000):
        pair_id = f"00000000-0000-7000-8009-{pair:012d}"
        for place, number in enumerate(numbers):
            at = NOON + timedelta(seconds=place)
            messages.append(
                {
                    "id": f"10000000-0000-7000-8009-{pair:06d}{place:06d}",
                    "direction": "out",
                    "state": "sent",
                    "pair_id": pair_id,
                    "message_id": f"{name}/{place}",
                    "sequence_number": number,
                    # Some stores have lost rows that had no number: places that nobody has.
                    "position": 100 + place * (3 if name.startswith("random") and pair % 2 else 1),
                    "previous_number": PREVIOUS.get(name) if place == len(numbers) - 1 else None,
                    "created_at": at,
                }
            )
            if name in MOVES and place == 2:
                events.append({"at": at, "type": "message.duplicate", "pair_id": pair_id, "rule": MOVES[name]})
    pairs = [
        {"id": f"00000000-0000-7000-8009-{pair:012d}", "code": name, "direction": "out", "partner_id": "x"}
        for pair, name in enumerate(sequences, start=1000)
    ]
    for entity, rows in {"messages": messages, "events": events, "pairs": pairs}.items():
        schema = pq.read_schema(folder / entity / "0000.parquet")
        plain = pa.schema(
            [
                pa.field(one.name, one.type.value_type if pa.types.is_dictionary(one.type) else one.type)
                for one in schema
            ]
        )
        pq.write_table(pa.Table.from_pylist(rows, schema=plain), folder / entity / "more.parquet")


@pytest.fixture(scope="module")
def found(spark: SparkSession, lake: Planted) -> dict[str, Rows]:
    """The audit's tables."""
    inputs = {
        entity: spark.read.parquet(str(lake.path(entity))).select(*columns) for entity, columns in audit.INPUTS.items()
    }
    return {name: table.toArrow().to_pylist() for name, table in audit.run(inputs, {"from": None}).items()}


@pytest.fixture(scope="module")
def by_sql(lake: Planted) -> Rows:
    """What plain SQL finds."""
    with duckdb.connect() as database:
        for entity in ("messages", "deliveries", "signals", "events", "pairs"):
            database.execute(f"CREATE VIEW {entity} AS FROM read_parquet('{lake.path(entity)}/*.parquet')")
        codes = dict(database.execute("SELECT id, code FROM pairs").fetchall())
        rows = [row for query in pipeline_sql.AUDIT for row in database.execute(query).fetchall()]
    names = ("kind", "pair", "first_number", "last_number", "count", "message_id")
    return [dict(zip(names, (row[0], codes[row[1]], *row[2:]), strict=True)) for row in rows]


pytestmark = pytest.mark.spark


def test_everything_that_was_planted_is_found_and_nothing_else(lake: Planted, found: dict[str, Rows]) -> None:
    rows = [row for row in found["findings"] if row["pair"].startswith("PARTNER-")]
    got = Counter(
        Finding(
            row["kind"],
            row["pair"],
            -1 if row["first_number"] is None else row["first_number"],
            -1 if row["last_number"] is None else row["last_number"],
            row["count"],
            tuple(row["message_ids"]),
        )
        for row in rows
    )
    wanted = Counter(lake.findings)
    assert not wanted - got, "not found"
    assert not got - wanted, "found, and not there"
    assert {row["kind"] for row in rows} == {kind.value for kind in AuditKind}


def test_pairs_are_counted(lake: Planted, found: dict[str, Rows]) -> None:
    rows = {row["pair"]: row for row in found["pairs"]}
    for code, wanted in lake.pairs.items():
        assert {name: rows[code][name] for name in wanted} == wanted, code
    row = rows["wrap, both ends lost"]
    assert (row["messages"], row["first_number"], row["last_number"], row["missing"]) == (2, LAST - 1, 2, 2)
    assert (row["first_at"], row["last_at"]) == (NOON, NOON + timedelta(seconds=1))


@pytest.mark.parametrize("case", CASES)
def test_sequence(found: dict[str, Rows], case: str) -> None:
    rows = [row for row in found["findings"] if row["pair"] == case]
    got = [(row["kind"], row["first_number"], row["last_number"], row["count"]) for row in rows]
    assert sorted(got) == sorted(CASES[case][1])
    for row in rows:
        assert row["message_ids"], row
        assert row["violation"] is (row["kind"] not in NOTICES)


def test_the_messages_of_a_finding_prove_it(found: dict[str, Rows]) -> None:
    proof = {(row["pair"], row["kind"]): row["message_ids"] for row in found["findings"]}
    assert proof["gap", "gap"] == ["gap/1", "gap/2"]
    assert proof["wrap, reordered", "wrap"] == ["wrap, reordered/2", "wrap, reordered/1"]
    assert proof["fell back", "repeat"] == [f"fell back/{place}" for place in (2, 3, 4, 5, 6, 7)]
    assert proof["reset", "reset"] == ["reset/2", "reset/3"]


def test_plain_sql_finds_the_same(found: dict[str, Rows], by_sql: Rows) -> None:
    got = Counter(_plain(row, row["message_ids"]) for row in _single(found["findings"]))
    wanted = Counter(_plain(row, [row["message_id"]]) for row in by_sql if row["pair"] not in MOVES)
    assert got == wanted
    random_ones = [row for row in by_sql if row["pair"].startswith("random")]
    assert {row["kind"] for row in random_ones} == {"gap", "repeat", "reset", "wrap"}


def _single(rows: Rows) -> Iterator[dict[str, Any]]:
    """The findings but those that need events, and repeats one by one, as SQL has them."""
    for row in rows:
        if row["pair"] in MOVES:
            continue
        if row["kind"] != "repeat":
            yield row
            continue
        for step in range(row["count"]):
            number = (row["first_number"] - 1 + step) % LAST + 1
            yield row | {"first_number": number, "last_number": number, "count": 1}


def _plain(row: dict[str, Any], proof: list[str]) -> tuple[Any, ...]:
    numbered = row["first_number"] is not None
    return (row["kind"], row["pair"], row["first_number"], row["last_number"], row["count"], numbered or proof[0])


FIELDS: Mapping[type[models.Field], str] = {
    models.CharField: "string",
    models.TextField: "string",
    models.UUIDField: "string",
    models.BigIntegerField: "bigint",
    models.BooleanField: "boolean",
    models.DateTimeField: "timestamp",
    models.JSONField: "array<string>",
}


@pytest.mark.parametrize(("name", "job"), [("audit", audit), ("reconcile", reconcile)])
def test_columns_are_those_of_the_report_tables(name: str, job: Any) -> None:
    report = reports.REPORTS[name]
    assert set(job.OUTPUTS) == {table.name for table in report.tables}
    for table in report.tables:
        schema = job.OUTPUTS[table.name]
        columns = [(column.attname, FIELDS[type(column)]) for column in table.columns]
        assert [(one.name, one.dataType.simpleString()) for one in schema] == columns
    for entity, columns in job.INPUTS.items():
        assert entity == "log" or set(columns) <= set(ENTITIES[entity].column_names)


def test_the_tables_are_as_declared(spark: SparkSession, lake: Planted) -> None:
    """Of empty inputs, too: a new hub has none."""
    inputs = {
        entity: spark.read.parquet(str(lake.path(entity))).select(*columns).limit(0)
        for entity, columns in audit.INPUTS.items()
    }
    tables = audit.run(inputs, {"from": NOON})
    for name, table in tables.items():
        declared = [(one.name, one.dataType) for one in audit.OUTPUTS[name]]
        assert [(one.name, one.dataType) for one in table.schema] == declared
    assert tables["findings"].count() == 0
