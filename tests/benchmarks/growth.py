"""What a message costs when much is stored: the same traffic between two hubs as their stores grow.

    make bench-growth        (ARGS="--messages 10000,100000 --pairs 200 --suspended 50" for smaller ones)

Both hubs have all pairs. What is stored is the traffic of the beginning, copied into the past: messages, documents,
identities, events, attempts and receipts, each with ids of an earlier time. At each size the traffic goes over a
hundred pairs and over nearly all of them, with one pair suspended and with many. Prints a table; leaves JSON, chart and
page in var/bench-growth.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from rmhub.hubs import BASE, Hub
from tests.benchmarks import arena, chart, hub_runs, machine
from tests.benchmarks.arena import Arena, Servers
from tests.benchmarks.hub_runs import Window

FEW = 100  # pairs with traffic, where it is not nearly all of them
BACKLOG = 500  # messages that wait, on all pairs together
TEMPLATE = 2000  # messages of each hub, at most, that the rest is copied from
# Tables of what is stored, with the columns that hold ids (of rows that are copied too) and texts that are unique.
COPIED = {
    "messaging_message": (("id",), ("message_id", "conversation_id")),
    "messaging_payload": (("message_id",), ()),
    "messaging_messageidentity": (("stored_id",), ("message_id",)),
    "messaging_event": (("message_id",), ()),
    "messaging_signal": (("id", "about_id"), ("message_id", "ref_to_message_id")),
    "messaging_transmission": (("id", "message_id", "signal_id"), ()),
}
# An id of the same kind and order, so many milliseconds earlier.
EARLIER = """
CREATE OR REPLACE FUNCTION pg_temp.earlier(id uuid, ms bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint - ms), 12, '0')
        || substr(replace(id::text, '-', ''), 13))::uuid
$$
"""
BEHIND = """
SELECT EXISTS (
    SELECT FROM (
        SELECT xid, event_id FROM messaging_trafficcursor
        UNION ALL SELECT xid, event_id FROM messaging_notificationcursor
    ) c
    WHERE EXISTS (SELECT FROM messaging_event e WHERE (e.xid, e.id) > (c.xid, c.event_id))
)
"""
SPAN_MS = 60_000  # between one copy and the next: longer than the template's traffic took
COPIES = 10_000  # of one call, at most


def main() -> int:
    """Exit status 1 when a run was wrong: then its speed says nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=_numbers, default=(10_000, 1_000_000, 10_000_000))
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--suspended", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    var = BASE / "var" / "bench-growth"
    var.mkdir(parents=True, exist_ok=True)
    started = datetime.now(UTC)
    raw: dict[str, Any] = {"commit": machine.commit(BASE), "machine": machine.facts(), "runs": [], "sizes": []}
    file = var / f"{started:%Y%m%d-%H%M%S}.json"
    with arena.servers(var, print) as servers:
        for row in _measure(servers, var, chosen, raw):
            raw["runs"].append(row)
            file.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(var / "servers", ignore_errors=True)
    page = table(raw)
    title = f"RM Hub {raw['commit']}, {started:%Y-%m-%d}, {raw['machine']['cpus']} CPUs: the same traffic, more stored"
    file.with_suffix(".svg").write_text(picture(raw, title), encoding="utf-8")
    file.with_suffix(".md").write_text(page, encoding="utf-8")
    print(page)
    wrong = [line for row in raw["runs"] for line in faults(row)]
    print("\n".join(wrong))
    return 1 if wrong else 0


def _measure(servers: Servers, var: Path, chosen: argparse.Namespace, raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    window = Window(3.0, chosen.seconds)
    few = min(FEW, chosen.pairs - chosen.suspended)
    begun = time.monotonic()
    hubs = arena.build(servers, var, chosen.pairs, print, refused=chosen.suspended)
    print(f"{chosen.pairs:,} pairs took {time.monotonic() - begun:.0f} s")
    with hubs.running() as roots:
        hub_runs.first_message(hubs)
        hub_runs.steady(hubs, servers, roots, pairs=few, window=Window(1.0, 4.0))
        _suspend(hubs, chosen.pairs, chosen.pairs)
    for turn, size in enumerate(sorted(chosen.messages)):
        begun = time.monotonic()
        urls = (hubs.sender.database_url, hubs.receiver.database_url)
        with ThreadPoolExecutor(2) as pool:
            stored = list(pool.map(lambda url, size=size, turn=turn: grow(url, size, turn), urls))
        print(f"{size:,} messages in each store took {time.monotonic() - begun:.0f} s")
        raw["sizes"].append({"messages": size, "stored": stored, "bytes": _bytes(hubs)})
        with hubs.running() as roots:
            hub_runs.first_message(hubs)
            _catch_up(hubs)
            hub_runs.steady(hubs, servers, roots, pairs=few, window=Window(1.0, 4.0))
            for suspended in sorted({1, chosen.suspended}):
                if suspended > 1:
                    _suspend(hubs, chosen.pairs - suspended + 1, chosen.pairs - 1)
                for pairs in sorted({few, chosen.pairs - chosen.suspended}):
                    run = hub_runs.steady(
                        hubs, servers, roots, pairs=pairs, window=window, most=BACKLOG, since=time.time()
                    )
                    print(f"{size:,} stored, {pairs:,} pairs, {suspended:,} suspended: {run['messages_per_second']}/s")
                    yield {**run, "stored": size, "suspended": suspended}
            if chosen.suspended > 1:
                _inside(hubs.sender, "skip", str(chosen.pairs - chosen.suspended + 1), str(chosen.pairs - 1))


def grow(database_url: str, messages: int, turn: int) -> int:
    """Copies what is stored into the past until there are so many messages; returns how many there are.

    `turn`: counts the calls, so that no two of them make the same copies.
    """
    with psycopg.connect(database_url, autocommit=True) as connection:
        missing = messages - _count(connection)
        if missing > 0:
            connection.execute(EARLIER)
            _templates(connection)
            (rows,) = connection.execute("SELECT count(*) FROM template_messaging_message").fetchone() or (0,)
            copies = -(-missing // rows)
            with _without_indexes(connection, [*COPIED] if missing > 100_000 else []):
                for table, (ids, texts) in COPIED.items():
                    _copy(connection, table, ids, texts, turn * COPIES, copies)
        connection.execute("VACUUM (ANALYZE)")
        os.sync()  # what is written back meanwhile would hold up every commit that is measured
        return _count(connection)


def _catch_up(hubs: Arena) -> None:
    """Waits until the workers have counted what was copied: events that are new to them. Raises TimeoutError."""
    until = time.monotonic() + 3600
    for hub in (hubs.sender, hubs.receiver):
        with psycopg.connect(hub.database_url, autocommit=True) as connection:
            while connection.execute(BEHIND).fetchone() != (False,):
                if time.monotonic() > until:
                    raise TimeoutError("the workers are still counting what was copied")
                time.sleep(1)


def _count(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT count(*) FROM messaging_message").fetchone()
    return int(row[0]) if row else 0


def _templates(connection: psycopg.Connection[Any]) -> None:
    """What is copied: the newest messages that have come to their end, with all rows about them."""
    connection.execute(
        "CREATE TEMP TABLE template_messaging_message AS SELECT * FROM messaging_message"
        f" WHERE state IN ('delivered', 'received') AND id > pg_temp.earlier(%s, {SPAN_MS})"
        f" ORDER BY id DESC LIMIT {TEMPLATE}",
        [_newest(connection)],
    )
    chosen = "(SELECT id FROM template_messaging_message)"
    for table, about in (
        ("messaging_payload", f"message_id IN {chosen}"),
        ("messaging_messageidentity", f"stored_id IN {chosen}"),
        ("messaging_event", f"message_id IN {chosen}"),
        ("messaging_signal", f"about_id IN {chosen}"),
        (
            "messaging_transmission",
            f"message_id IN {chosen} OR signal_id IN (SELECT id FROM template_messaging_signal)",
        ),
    ):
        connection.execute(f"CREATE TEMP TABLE template_{table} AS SELECT * FROM {table} WHERE {about}")


def _newest(connection: psycopg.Connection[Any]) -> Any:
    row = connection.execute("SELECT id FROM messaging_message ORDER BY id DESC LIMIT 1").fetchone()
    assert row is not None, "there is nothing to copy"
    return row[0]


def _copy(
    connection: psycopg.Connection[Any],
    table: str,
    ids: Sequence[str],
    texts: Sequence[str],
    first: int,
    copies: int,
) -> None:
    columns = connection.execute(
        "SELECT attname, format_type(atttypid, NULL), attgenerated FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
        [table],
    ).fetchall()
    values = {}
    for name, kind, generated in columns:
        if generated:
            continue
        if name in ids:
            values[name] = f"pg_temp.earlier({name}, {SPAN_MS} * n::bigint)"
        elif name in texts:
            values[name] = f"CASE WHEN {name} = '' THEN '' ELSE {name} || '-' || n END"
        elif kind == "timestamp with time zone":
            values[name] = f"{name} - n * interval '{SPAN_MS} milliseconds'"
        elif name == "id":
            values[name] = f"(SELECT least(min(id), 0) FROM {table}) - row_number() OVER ()"
        elif name == "position":
            values[name] = "position - n * 1000000::bigint"
        else:
            values[name] = name
    connection.execute(
        f"INSERT INTO {table} ({', '.join(values)}) SELECT {', '.join(values.values())}"
        f" FROM generate_series({first + copies}, {first + 1}, -1) AS n, template_{table}"
    )


@contextmanager
def _without_indexes(connection: psycopg.Connection[Any], tables: Sequence[str]) -> Iterator[None]:
    """Makes the indexes of these tables anew afterwards, but for those of constraints: much faster for many rows."""
    rows = connection.execute(
        "SELECT c.relname, pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " WHERE i.indrelid::regclass::text = ANY(%s)"
        " AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.indexrelid)",
        [list(tables)],
    ).fetchall()
    for name, _ in rows:
        connection.execute(f"DROP INDEX {name}")
    yield
    connection.execute("SET maintenance_work_mem = '512MB'")
    for _, definition in rows:
        connection.execute(definition)


def _bytes(hubs: Arena) -> dict[str, int]:
    found = {}
    for hub in (hubs.sender, hubs.receiver):
        with psycopg.connect(hub.database_url, autocommit=True) as connection:
            row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
            found[hub.name] = int(row[0]) if row else 0
    return found


def _suspend(hubs: Arena, first: int, last: int) -> None:
    """One document on each of these pairs, which lead nowhere; the first refusal suspends them."""
    _inside(hubs.sender, "submit", str(first), str(last))
    wanted = last - first + 1
    deadline = time.monotonic() + 600
    with psycopg.connect(hubs.sender.database_url, autocommit=True) as connection:
        while True:
            row = connection.execute(
                "SELECT count(*) FROM messaging_pair WHERE direction = 'out' AND flow = 'suspended' AND"
                " substring(receiver_uri from '/p(\\d+)$')::int BETWEEN %s AND %s",
                [first, last],
            ).fetchone()
            if row is not None and row[0] >= wanted:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{row[0] if row else 0} of {wanted} pairs are suspended after ten minutes")
            time.sleep(0.2)


def _inside(hub: Hub, *words: str) -> None:
    argv = [sys.executable, "-m", "tests.benchmarks.growth", "inside", *words]
    done = subprocess.run(argv, env=hub.environment("driver"), cwd=BASE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} failed:\n{(done.stdout + done.stderr).strip()[-4000:]}")


def faults(run: dict[str, Any]) -> list[str]:
    """What went wrong in a run."""
    name = f"{run['stored']:,} stored, {run['pairs']:,} pairs, {run['suspended']:,} suspended"
    check = run["check"]
    found = [f"{name}: {key} {check[key]}" for key in ("received_twice", "out_of_order", "sent_again") if check[key]]
    if not run["drained"] or check["delivered"] != check["received"]:
        found.append(f"{name}: delivered {check['delivered']}, received {check['received']}")
    return found


def _rows(raw: dict[str, Any]) -> Iterator[tuple[dict[str, Any], float | None, float | None]]:
    """Each run, with its speed and its CPU time as multiples of the same traffic's with the smallest store."""
    first: dict[tuple[int, int], dict[str, Any]] = {}
    for run in raw["runs"]:
        least = first.setdefault((run["pairs"], run["suspended"]), run)
        speed, cost = least["messages_per_second"], run["cpu_ms_per_message"]
        yield (
            run,
            round(run["messages_per_second"] / speed, 2) if speed else None,
            round(least["cpu_ms_per_message"] / cost, 2) if cost else None,
        )


def table(raw: dict[str, Any]) -> str:
    """Markdown."""
    lines = [
        "| stored in each hub | pairs with traffic | suspended | messages/s | of the first | CPU ms | of the first |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for run, speed, cost in _rows(raw):
        cells = [f"{run[name]:,}" for name in ("stored", "pairs", "suspended")]
        cells += [f"{run['messages_per_second']:g}", f"{speed}", f"{run['cpu_ms_per_message']:.2f}", f"{cost}"]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    lines += [
        f"{size['messages']:,} messages: "
        + ", ".join(f"{value / 1e9:.2f} GB ({name})" for name, value in size["bytes"].items())
        for size in raw["sizes"]
    ]
    return "\n".join(lines) + "\n"


def picture(raw: dict[str, Any], title: str) -> str:
    """Speed and cost of every run, as bars."""
    groups = []
    for run in raw["runs"]:
        short = f"{run['stored'] / 1e6:g} M, {run['pairs']:,} p., {run['suspended']:,} s."
        figures = {
            "messages_per_second": {"median": run["messages_per_second"], "runs": [run["messages_per_second"]]},
            "cpu_ms_by_process": run["cpu_ms_by_process"],
        }
        groups.append((short, chart.OURS, figures))
    return chart.bars(groups, [], title)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word.replace("_", "")) for word in text.split(","))


# --- inside the sending hub


def submit(first: int, last: int) -> None:
    """One document on each of these pairs."""
    from tests.benchmarks import driver

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(driver.submit, range(first, last + 1)))


def skip(first: int, last: int) -> None:
    """Gives up the message that each of these pairs is suspended with, so that they are idle again."""
    from messaging.engine import pairs
    from messaging.journal.audit import Actor
    from messaging.pairs.services import operating
    from partners import registry
    from tests.benchmarks.prepare import tpa_id

    for number in range(first, last + 1):
        terms = registry.current().by_tpa_id(tpa_id(number))
        assert terms is not None
        pair_id = pairs.outbound_pair_id(terms)
        operating.pair_skip_head(pair_id=pair_id, actor=Actor("bench"), reason="It is measured without it.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        import django

        django.setup()
        {"submit": submit, "skip": skip}[sys.argv[2]](int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main())
