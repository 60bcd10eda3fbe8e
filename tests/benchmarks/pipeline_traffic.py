"""How much of the traffic's throughput the data pipeline costs: two hubs, with and without extract, archive and purge.

    make bench-pipeline-traffic                        (some two minutes)
    make bench-pipeline-traffic ARGS="--pairs 10 --seconds 20 --stock 20000 --rounds 3"

Both hubs run on durable servers of the benchmark's own. The sending hub is given a stock of old, finished messages;
then steady traffic is measured in turn without anything beside it, and while a pipeline process, as the hub starts it,
extracts, archives (with Spark, which reads the copies back) and purges in a loop. Prints each round and the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rmhub.hubs import BASE
from tests.benchmarks import arena as arenas
from tests.benchmarks import hub_runs
from tests.benchmarks.arena import Arena
from tests.benchmarks.hub_runs import Window

DAYS = 100
MOST = 0.20  # of the throughput may be lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement")
    parser.add_argument("--stock", type=int, default=10_000, help="old messages to archive and purge in each round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--make-stock", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--loop", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make_stock:
        print(json.dumps(make_stock(options.make_stock)), flush=True)
        return 0
    if options.loop:
        loop()
        return 0
    ratio = measure(options.pairs, options.seconds, options.stock, options.rounds)
    return 0 if ratio >= 1 - MOST else 1


def measure(pairs: int, seconds: float, stock: int, rounds: int) -> float:
    """Prints what was measured; returns throughput with the pipeline beside it, as a share of that without (median)."""
    var = BASE / "var" / "bench-pipeline-traffic"
    window = Window(warm=3.0, measured=seconds)
    ratios = []
    with arenas.servers(var, say) as servers:
        arena = arenas.build(servers, var, pairs, say)
        with arena.running() as roots:
            hub_runs.first_message(arena)
            hub_runs.steady(arena, servers, roots, pairs=pairs, window=Window(1.0, 3.0))
            for number in range(1, rounds + 1):
                made = json.loads(_run(arena, "--make-stock", str(stock)))
                say(f"round {number}: {made['messages']} old messages are there")
                # In turn, and the other way round every second time: what the stock does to the database, both feel.
                order = (False, True) if number % 2 else (True, False)
                speeds: dict[bool, float] = {}
                done: dict[str, Any] = {}
                for beside in order:
                    with _pipeline(arena, done) if beside else _nothing():
                        found = hub_runs.steady(arena, servers, roots, pairs=pairs, window=window)
                    speeds[beside] = found["messages_per_second"]
                    _check(found)
                    say(f"round {number}: {speeds[beside]:.0f} messages/s {'with the pipeline' if beside else 'alone'}")
                ratios.append(speeds[True] / speeds[False])
                say(
                    f"round {number}: {ratios[-1]:.0%}; the pipeline archived {done['archived']} messages, purged"
                    f" {done['purged']}, and extracted {done['rows']} rows in {done['rounds']} whole loops"
                )
    ratio = statistics.median(ratios)
    say(f"throughput with the pipeline: {ratio:.0%} of that without (at least {1 - MOST:.0%} is aimed at)")
    return ratio


def say(text: str) -> None:
    print(text, flush=True)


def _check(found: dict[str, Any]) -> None:
    assert found["drained"], "the traffic did not drain"
    assert (found["check"]["received_twice"], found["check"]["out_of_order"]) == (0, 0), found["check"]
    assert not found["contradictions"], found["contradictions"]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _pipeline(arena: Arena, done: dict[str, Any]) -> Iterator[None]:
    """The loop beside what is done within; its totals are in `done` afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.pipeline_traffic", "--loop"],
        env=_environment(arena),
        cwd=BASE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdout.readline()  # it has begun: Spark is up, as it is in a pipeline that has been running
        yield
        process.stdin.close()
        done |= json.loads(process.stdout.readline())
        process.wait(120)
    finally:
        process.kill()
        process.wait()


def _run(arena: Arena, *arguments: str) -> str:
    argv = [sys.executable, "-m", "tests.benchmarks.pipeline_traffic", *arguments]
    return subprocess.run(argv, env=_environment(arena), cwd=BASE, check=True, stdout=subprocess.PIPE, text=True).stdout


def _environment(arena: Arena) -> dict[str, str]:
    folder = arena.sender.var
    return {
        **arena.sender.environment("driver"),
        "RMHUB_LAKE_DIR": str(folder / "lake"),
        "RMHUB_ARCHIVE_DIR": str(folder / "archive"),
    }


# --- in the environment of the sending hub ---


def make_stock(wished: int) -> dict[str, int]:
    """Copies of finished messages with all that belongs to them, as if they had come long ago."""
    import django

    django.setup()
    from django.db import connection, transaction

    from messaging.archive.services import retention
    from messaging.journal.audit import Actor

    retention.policy_change(actor=Actor("bench"), reason="benchmark", enabled=True)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMP TABLE copies ON COMMIT DROP AS WITH finished AS MATERIALIZED"
            " (SELECT id FROM messaging_message WHERE direction = 'out' AND state = 'delivered' LIMIT 500)"
            " SELECT f.id AS old, gen_random_uuid() AS new FROM finished f,"
            " generate_series(1, (SELECT ceil(%(wished)s / count(*)::numeric)::int FROM finished)) LIMIT %(wished)s",
            {"wished": wished},
        )
        for table, owner in (
            ("message", "id"),
            ("payload", "message_id"),
            ("transmission", "message_id"),
            ("signal", "about_id"),
            ("event", "message_id"),
        ):
            _copy(cursor, f"messaging_{table}", owner)
        cursor.execute("SELECT count(*) FROM copies")
        (made,) = cursor.fetchone()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE messaging_message, messaging_payload, messaging_transmission, messaging_signal")
    return {"messages": made}


_AGED = ("created_at", "completed_at", "first_sent_at", "started_at", "finished_at", "last_sent_at", "at")


def _copy(cursor: Any, table: str, owner: str) -> None:
    cursor.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = %s",
        [table],
    )
    columns = [name for (name,) in cursor.fetchall() if name != "xid"]
    numbered = table in ("messaging_payload", "messaging_event")
    if numbered:
        columns.remove("id")
    values = {name: f"t.{name}" for name in columns}
    values |= {name: f"t.{name} - interval '{DAYS} days'" for name in columns if name in _AGED}
    if "message_id" in columns and table == "messaging_message":
        values["message_id"] = "c.new || '@stock'"
    if not numbered:
        values["id"] = "gen_random_uuid()"
    values[owner] = "c.new"
    cursor.execute(
        f"INSERT INTO {table} ({', '.join(values)}) SELECT {', '.join(values.values())}"
        f" FROM {table} t JOIN copies c ON c.old = t.{owner}"
    )


def loop() -> None:
    """Extract, archive and purge until standard input ends; then prints what was done."""
    import select

    import django

    django.setup()
    from messaging.archive.services import purging
    from messaging.pipeline import archive_copying, archiving, commands, extract, session
    from messaging.pipeline.archive_copying import Pace, Tally

    os.nice(commands.NICE)

    class Ended(Exception):
        pass

    def progress(step: str, done: int = 0, total: int = 0) -> None:
        if select.select([sys.stdin], [], [], 0)[0]:
            raise Ended

    spark = session.get("bench", rows=session.MEDIUM + 1)
    spark.range(1000).selectExpr("sha2(CAST(id AS STRING), 256)").count()
    print("begun", flush=True)
    tally, rows, rounds = Tally(), 0, 0
    try:
        with archiving.alone():
            while True:
                rows += sum(extract.extract(progress).rows.values())
                archive_copying.copy(None, progress, archive_copying.spark_verify(lambda: spark), tally, Pace())
                rows += sum(extract.extract(progress).rows.values())
                if purging.candidates(after=None, limit=1):
                    archiving.purge(progress, tally, Pace())
                rounds += 1
                progress("")
                time.sleep(1)
    except Ended:
        pass
    facts = tally.facts()
    print(
        json.dumps({"archived": facts["archived"], "purged": facts["purged"], "rows": rows, "rounds": rounds}),
        flush=True,
    )
    session.stop()


if __name__ == "__main__":
    sys.exit(main())
