"""Audit and reconciliation by size, beside DuckDB and PostgreSQL: `make bench-pipeline ARGS="1M,2M,10M"`.

Plants faults at 1 in 10,000 (`tests.pipeline.planted`), asks every engine the same two questions, each in a process of
its own, and ends with 1 when one of them misses a fault or finds one that is not there. Writes pipeline.json and
pipeline.md to var/bench.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rmhub.hubs import BASE
from tests.benchmarks import machine
from tests.pipeline import planted

SIZES = (1_000_000, 2_000_000, 10_000_000)
ONE_IN = 10_000
QUESTIONS = ("audit", "reconcile")
ENGINES = ("spark", "duckdb", "duckdb-1g", "duckdb-trick", "postgres")  # all but the cluster, which is told to
CLUSTER = "cluster"
TITLES = {
    "spark": "Spark, 1 GiB heap (the job)",
    CLUSTER: "Spark, a standalone cluster of this machine's processes, 1 GiB heap each (the job; CPU with its start)",
    "duckdb": "DuckDB, plain SQL",
    "duckdb-1g": "DuckDB, plain SQL, told to use 1 GiB",
    "duckdb-trick": "DuckDB, with the job's fingerprints",
    "postgres": "PostgreSQL, plain SQL (loading not counted)",
}
Run = Mapping[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-pipeline", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sizes", nargs="?", type=_sizes, default=SIZES, help="for example 1M,2M,10M (the default)")
    parser.add_argument("--engines", type=_engines, default=ENGINES, help=f"some of {','.join(TITLES)}")
    parser.add_argument("--questions", type=lambda text: tuple(text.split(",")), default=QUESTIONS)
    parser.add_argument("--workers", type=int, default=2, help="of the cluster, each of one core (2)")
    parser.add_argument("--keep", action="store_true", help="leave the planted files for the next time")
    parser.add_argument("--rounds", type=int, default=1, help="how often everything is measured; the best counts")
    given = parser.parse_args()
    var = BASE / "var" / "bench"
    var.mkdir(parents=True, exist_ok=True)
    runs = []
    workers = given.workers if CLUSTER in given.engines else 0
    with _database(var, "postgres" in given.engines) as url, _cluster(var, workers) as cluster:
        for size in given.sizes:
            folder = _planted(var / "pipeline" / f"{size}", size)
            for _ in range(given.rounds):
                for question in given.questions:
                    for engine in given.engines:
                        if engine != "duckdb-trick" or question == "reconcile":
                            runs.append(_measured(engine, question, folder, url, cluster))
            if not given.keep:
                shutil.rmtree(folder)
    document = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()},
        "one_in": ONE_IN,
        "runs": runs,
    }
    (var / "pipeline.json").write_text(json.dumps(document, indent=1))
    (var / "pipeline.md").write_text(table(runs))
    print(table(runs))
    faulty = [run for run in runs if run["missed"] or run["wrong"]]
    for run in faulty:
        print(f"{run['engine']} {run['question']} {run['rows']:,}: {run['missed']} missed, {run['wrong']} wrong")
    return 1 if faulty else 0


def _sizes(text: str) -> tuple[int, ...]:
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)([kKmM]?)", part.strip())
        if not match or int(match[1]) == 0:
            raise argparse.ArgumentTypeError(f"{part!r} is not a number of messages such as 500k or 10M")
        found.append(int(match[1]) * {"": 1, "k": 1000, "m": 1_000_000}[match[2].lower()])
    return tuple(found)


def _engines(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if unknown := set(chosen) - set(TITLES):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: known are {', '.join(TITLES)}")
    return chosen


@contextlib.contextmanager
def _database(var: Path, needed: bool) -> Iterator[str]:
    """A PostgreSQL of the benchmark's own, unless BENCH_DATABASE_URL names one."""
    if not needed or (url := os.environ.get("BENCH_DATABASE_URL", "")):
        yield "" if not needed else url
        return
    from tests.benchmarks import arena

    with arena.servers(var, print) as servers:
        yield arena.fresh_database(servers, "bench_pipeline")


@contextlib.contextmanager
def _cluster(var: Path, workers: int) -> Iterator[dict[str, str]]:
    """What a job's environment says of a cluster with so many workers; empty where none is wanted."""
    if not workers:
        yield {}
        return
    from tests.pipeline import standalone

    with tempfile.TemporaryDirectory(dir=var) as folder, standalone.standalone(Path(folder), workers, "2g") as cluster:
        configuration = Path(folder, "job")
        configuration.mkdir()
        (configuration / "spark-defaults.conf").write_text(
            "spark.executor.cores 1\nspark.executor.extraJavaOptions -XX:+UseParallelGC\n"
            "spark.sql.shuffle.partitions 64\n"
        )
        yield {"SPARK_MASTER": cluster.url, "SPARK_CONF_DIR": str(configuration)}


def _planted(folder: Path, size: int) -> Path:
    if not (folder / "expected.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        began = time.perf_counter()
        planted.plant(folder, size, one_in=ONE_IN)
        print(f"{size:,} messages with faults at 1 in {ONE_IN:,}: {time.perf_counter() - began:.0f} s", flush=True)
    return folder


def _measured(engine: str, question: str, folder: Path, url: str, cluster: Mapping[str, str]) -> dict[str, Any]:
    arguments = [sys.executable, "-m", "tests.benchmarks.pipeline_engines", engine, question, str(folder)]
    environment = {**os.environ, "BENCH_DATABASE_URL": url, "RMHUB_SPARK_MEMORY": "1g", "SPARK_MASTER": "local[*]"}
    environment |= cluster if engine == CLUSTER else {}
    before = _cpu()
    done = subprocess.run(arguments, cwd=BASE, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{engine} {question} failed:\n{(done.stdout + done.stderr).strip()[-4000:]}")
    run: dict[str, Any] = json.loads(lines[-1])
    if engine == CLUSTER:
        run["answer_cpu"] = round(_cpu() - before, 2)  # what it cannot see itself: its executors are the workers'
    print(
        f"{engine:13} {question:9} {run['rows']:>11,}  start {run['start_seconds']:6.1f} s  answer "
        f"{run['answer_seconds']:6.1f} s (CPU {run['answer_cpu']:6.1f})  {run['peak_mb']:,} MB",
        flush=True,
    )
    return run


def _cpu() -> float:
    """CPU seconds of this process and of all that it has started."""
    return machine.trees({"here": os.getpid()})["here"].both


def table(runs: Sequence[Run]) -> str:
    """Markdown: one row an engine and question, one column a size; seconds without and with the start, CPU, memory."""
    sizes = sorted({run["rows"] for run in runs})
    lines = []
    for question in QUESTIONS:
        if not (here := [run for run in runs if run["question"] == question]):
            continue
        lines += [f"| {question} | {' | '.join(f'{size:,} messages' for size in sizes)} | growth |"]
        lines += [f"| --- | {' | '.join('---' for _ in sizes)} | --- |"]
        for engine in TITLES:
            best = [_best(run for run in here if run["engine"] == engine and run["rows"] == size) for size in sizes]
            if any(best):
                lines.append(f"| {TITLES[engine]} | {' | '.join(_cell(one) for one in best)} | {_growth(best)} |")
        lines.append("")
    return "\n".join(lines)


def _best(runs: Iterator[Run]) -> Run | None:
    return min(runs, key=lambda run: float(run["answer_seconds"]), default=None)


def _cell(run: Run | None) -> str:
    if run is None:
        return "-"
    peak = run.get("server_peak_mb") or run["peak_mb"]
    start = f" + {run['start_seconds']:.1f} s start" if run["engine"] in ("spark", CLUSTER) else ""
    return f"{run['answer_seconds']:.1f} s{start}, CPU {run['answer_cpu']:.1f} s, {peak:,} MB"


def _growth(best: Sequence[Run | None]) -> str:
    """Of the time, from the smallest to the largest size, beside that of the size."""
    known = [run for run in best if run is not None]
    if len(known) < 2:
        return "-"
    times = known[-1]["answer_seconds"] / max(known[0]["answer_seconds"], 0.01)
    return f"{times:.1f} times the time for {known[-1]['rows'] / known[0]['rows']:.0f} times the messages"


if __name__ == "__main__":
    sys.exit(main())
