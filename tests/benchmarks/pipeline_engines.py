"""One engine, one question, one size, in a process of its own: seconds, CPU seconds and the most memory it had.

    python -m tests.benchmarks.pipeline_engines spark audit FOLDER

Prints one JSON line. The folder is one of `tests.pipeline.planted`; whatever an engine finds is compared with what was
planted, so that no engine is fast and wrong.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.benchmarks import pipeline_sql
from tests.benchmarks.machine import descendants, processes
from tests.pipeline import planted
from tests.pipeline.planted import Planted

Found = Counter[tuple[Any, ...]]
Stage = Callable[[str], None]
USED = {
    "messages": "id, direction, state, pair_id, message_id, service, action, sequence_number, position, "
    "previous_number, digest, created_at, first_sent_at, completed_at",
    "deliveries": "id, trigger_id, message_pk, pair_id, state, resubmission_of, join_id",
    "signals": "direction, kind, state, pair_id, about_pk, ref_to_message_id",
    "events": "type, message_pk, message_id",
    "pairs": "id, code, partner_id",
    "log": "message_id, direction, at, digest",
}
NEEDED = {
    "audit": ("messages", "deliveries", "signals", "events", "pairs"),
    "reconcile": ("messages", "log"),
}
MARGIN = 3600


def main() -> None:
    engine, question, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    told = planted.load(folder)
    clock = _Clock()
    found, facts = ENGINES[engine](question, told, clock.stage)
    clock.stage("end")
    wanted = _wanted(question, told)
    document = {
        "engine": engine,
        "question": question,
        "rows": told.rows,
        **clock.seconds(),
        "peak_mb": _peak_mb(),
        **facts,
        "missed": sum((wanted - found).values()),
        "wrong": sum((found - wanted).values()),
    }
    print(json.dumps(document), flush=True)
    # Nothing of what is left to be tidied up is part of the answer.
    sys.stdout.flush()
    os._exit(0)


class _Clock:
    """Wall and CPU seconds of this process and its children between stages."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, float, float]] = []
        self.stage("begin")

    def stage(self, name: str) -> None:
        self.marks.append((name, time.perf_counter(), _cpu()))

    def seconds(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for (_, begin, before), (name, end, after) in zip(self.marks, self.marks[1:], strict=False):
            name = "answer" if name == "end" else name
            found[f"{name}_seconds"], found[f"{name}_cpu"] = round(end - begin, 2), round(after - before, 2)
        return found


def _cpu() -> float:
    table = processes()
    mine = [os.getpid(), *descendants(os.getpid())]
    return sum((table[pid].own + table[pid].ended_children).both for pid in mine if pid in table)


def _peak_mb() -> int:
    """The most resident memory of each process of this tree (VmHWM), added up."""
    return sum(_high(pid) for pid in [os.getpid(), *descendants(os.getpid())]) // 1024


def _high(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def _wanted(question: str, told: Planted) -> Found:
    if question == "audit":
        return Counter((one.kind, one.pair, one.first_number, one.last_number, one.count) for one in told.findings)
    rows = [(one.direction, one.verdict, one.message_id, one.our_copies, one.their_copies) for one in told.differences]
    return Counter(rows + [(way, "agreed", "", count, 0) for way, count in told.agreed.items()])


def _plain(question: str, rows: Iterable[tuple[Any, ...]], codes: dict[str, str]) -> Found:
    """Rows of plain SQL in the form of `_wanted`."""
    if question == "audit":
        return Counter(
            (kind, codes[pair], -1 if first is None else int(first), -1 if last is None else int(last), int(count))
            for kind, pair, first, last, count, _ in rows
        )
    merged: Found = Counter()
    agreed: Counter[str] = Counter()
    for direction, verdict, message_id, ours, theirs in rows:
        if verdict == "agreed":
            agreed[direction] += int(ours or 0)
        else:
            merged[direction, verdict, message_id, int(ours), int(theirs)] += 1
    return merged + Counter({(way, "agreed", "", count, 0): 1 for way, count in agreed.items()})


def spark(question: str, told: Planted, stage: Stage) -> tuple[Found, dict[str, Any]]:
    """The jobs as they are, in a session as they have it."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmhub.settings")
    from messaging.pipeline import session
    from messaging.pipeline.jobs import audit, reconcile

    job = {"audit": audit, "reconcile": reconcile}[question]
    running = session.get("benchmark", rows=4 * told.rows)  # about as many as all entities have
    stage("start")
    inputs = {
        entity: running.read.parquet(str(told.path(entity))).select(*columns) for entity, columns in job.INPUTS.items()
    }
    tables = job.run(inputs, {"from": told.begin, "to": told.end} if question == "reconcile" else {})
    rows = {name: table.toArrow().to_pylist() for name, table in tables.items()}
    facts = {"heap": session.memory(), "spark": running.version}
    if question == "audit":
        none = {None: -1}
        found = Counter(
            (
                row["kind"],
                row["pair"],
                none.get(row["first_number"], row["first_number"]),
                none.get(row["last_number"], row["last_number"]),
                row["count"],
            )
            for row in rows["findings"]
        )
        return found, facts
    names = ("direction", "verdict", "message_id", "our_copies", "their_copies")
    found = Counter(tuple(row[name] for name in names) for row in rows["findings"])
    agreed = {row["direction"]: row["messages"] for row in rows["summary"] if row["verdict"] == "agreed"}
    return found + Counter({(way, "agreed", "", count, 0): 1 for way, count in agreed.items()}), facts


def _span(told: Planted) -> dict[str, str]:
    begin, end = told.begin.timestamp() + MARGIN, told.end.timestamp() - MARGIN
    return {"begin": f"to_timestamp({begin:.0f})", "end": f"to_timestamp({end:.0f})"}


def _duckdb(question: str, told: Planted, stage: Stage, *, memory: str = "", trick: bool = False) -> tuple[Found, Any]:
    import duckdb

    spill = told.folder / "spill"
    database = duckdb.connect(config={"threads": os.cpu_count() or 1, "temp_directory": str(spill)})
    if memory:
        database.execute(f"SET memory_limit = '{memory}'; SET preserve_insertion_order = false")
    for entity in NEEDED[question]:
        database.execute(f"CREATE VIEW {entity} AS FROM read_parquet('{told.path(entity)}/*.parquet')")
    stage("start")
    codes: dict[str, str] = {}
    if question == "audit":
        rows = [row for query in pipeline_sql.AUDIT for row in database.execute(query).fetchall()]
        codes = dict(database.execute("SELECT id, code FROM pairs").fetchall())
    elif trick:
        database.execute(pipeline_sql.FINGERPRINTS)
        rows = database.execute(pipeline_sql.FEW.format(odd=pipeline_sql.ODD, **_span(told))).fetchall()
    else:
        rows = database.execute(pipeline_sql.BOTH.format(**_span(told))).fetchall()
    return _plain(question, rows, codes), {"duckdb": duckdb.__version__}


def duckdb_plain(question: str, told: Planted, stage: Stage) -> tuple[Found, dict[str, Any]]:
    """DuckDB with plain SQL and as much memory as it likes."""
    return _duckdb(question, told, stage)


def duckdb_small(question: str, told: Planted, stage: Stage) -> tuple[Found, dict[str, Any]]:
    """DuckDB with plain SQL, told to use 1 GiB."""
    return _duckdb(question, told, stage, memory="1GiB")


def duckdb_trick(question: str, told: Planted, stage: Stage) -> tuple[Found, dict[str, Any]]:
    """DuckDB with the fingerprints that the reconciliation job uses."""
    return _duckdb(question, told, stage, trick=True)


def postgres(question: str, told: Planted, stage: Stage) -> tuple[Found, dict[str, Any]]:
    """PostgreSQL with plain SQL over unlogged tables; loading them is timed apart."""
    import psycopg

    url = os.environ["BENCH_DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("SET work_mem = '256MB'; SET jit = off; SET TimeZone = 'UTC'")
        for entity in NEEDED[question]:
            _load(database, told, entity)
        stage("start")
        codes: dict[str, str] = {}
        if question == "audit":
            rows = [row for query in pipeline_sql.AUDIT for row in database.execute(query).fetchall()]
            codes = dict(database.execute("SELECT id, code FROM pairs").fetchall())
        else:
            rows = database.execute(pipeline_sql.BOTH.format(**_span(told))).fetchall()
        facts = {"postgres": database.info.server_version, "server_peak_mb": _high(database.info.backend_pid) // 1024}
        for entity in NEEDED[question]:
            database.execute(f"DROP TABLE {entity}")
    return _plain(question, rows, codes), facts


def _load(database: Any, told: Planted, entity: str) -> None:
    import pyarrow as pa
    import pyarrow.csv as csv
    import pyarrow.dataset as dataset

    columns = USED[entity].split(", ")
    source = dataset.dataset(told.path(entity))
    kinds = {"int64": "bigint", "timestamp[us, tz=UTC]": "timestamptz"}
    types = [kinds.get(str(source.schema.field(name).type), "text") for name in columns]
    made = ", ".join(f"{name} {kind}" for name, kind in zip(columns, types, strict=True))
    database.execute(f"DROP TABLE IF EXISTS {entity}")
    database.execute(f"CREATE UNLOGGED TABLE {entity} ({made})")
    with database.cursor().copy(f"COPY {entity} FROM STDIN (FORMAT csv)") as copy:
        for batch in source.to_batches(columns=columns, batch_size=65_536):
            flat = [one.dictionary_decode() if pa.types.is_dictionary(one.type) else one for one in batch.columns]
            text = io.BytesIO()
            csv.write_csv(
                pa.table(flat, names=columns), text, csv.WriteOptions(include_header=False, quoting_style="needed")
            )
            copy.write(text.getvalue())
    database.execute(f"ANALYZE {entity}")


ENGINES: dict[str, Callable[[str, Planted, Stage], tuple[Found, dict[str, Any]]]] = {
    "spark": spark,
    "cluster": spark,  # where SPARK_MASTER says
    "duckdb": duckdb_plain,
    "duckdb-1g": duckdb_small,
    "duckdb-trick": duckdb_trick,
    "postgres": postgres,
}

if __name__ == "__main__":
    main()
