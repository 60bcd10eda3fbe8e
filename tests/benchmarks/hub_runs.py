"""Measures our hubs: acknowledged messages in steady state, and one message at a time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg

from messaging.demo import verdict
from rmhub.hubs import BASE, Hub
from tests.benchmarks.arena import RECEIVER, SENDER, Arena, Servers
from tests.benchmarks.machine import costs, look, spread

DRAIN_SECONDS = 60.0


@dataclass(frozen=True)
class Window:
    """Seconds of warm-up, which count for nothing, and of measurement."""

    warm: float
    measured: float


def depth(pairs: int) -> int:
    """How many messages are kept waiting on each pair: enough for the time between two looks."""
    return max(5, min(40, 200 // pairs))


def steady(
    arena: Arena,
    servers: Servers,
    roots: dict[str, int],
    *,
    pairs: int,
    window: Window,
    most: int = 1_000_000,
    since: float = 0.0,
    during: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Closed loop: every pair has messages waiting all the time, as far as `most` on all of them suffice.

    `since`: what was stored before is not looked at when all is checked. `during` is told the driver's pid when it
    begins.
    """
    with ExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(servers.database_url, autocommit=True))
        load = ("--pairs", str(pairs), "--depth", str(depth(pairs)), "--most", str(most))
        driver = stack.enter_context(_driver(arena, *load))
        watched = {**roots, **servers.roots, "driver": driver.pid}
        _line(driver)
        time.sleep(window.warm)
        if during is not None:
            during(driver.pid)
        before = look(connection, watched, list(arena.databases.values()))
        connections = _connections(connection, arena, until=before.at + window.measured)
        after = look(connection, watched, list(arena.databases.values()))
        assert driver.stdin is not None
        driver.stdin.close()
        totals = _line(driver)
    drained = _drain(arena)
    rows = _delivered(arena, before.at, after.at)
    seconds = after.at - before.at
    per_second = [0] * max(1, int(seconds))
    for row in rows:
        per_second[min(len(per_second) - 1, int(row[2] - before.at))] += 1
    return {
        "kind": "steady",
        "pairs": pairs,
        "backlog_per_pair": depth(pairs),
        "seconds": round(seconds, 3),
        "messages": len(rows),
        "submitted_meanwhile": _submitted(arena, before.at, after.at),
        "messages_per_second": round(len(rows) / seconds, 1),
        "per_second": per_second,
        "first_transmission_to_ack": spread([(row[2] - row[1]) * 1000 for row in rows]),
        **costs(before, after, len(rows)),
        "connections": connections,
        "driver": totals,
        "drained": drained,
        "check": _check(arena, since),
        "contradictions": [] if since else contradictions(arena.sender, arena.receiver),
    }


def _connections(connection: psycopg.Connection[Any], arena: Arena, *, until: float) -> dict[str, int]:
    """How many connections each hub's own processes had at most, looking four times a second until that time."""
    most = dict.fromkeys(arena.databases, 0)
    while (left := until - time.time()) > 0:
        time.sleep(min(0.25, left))
        rows = connection.execute(
            "SELECT datname, count(*) FROM pg_stat_activity"
            " WHERE datname = ANY(%s) AND application_name LIKE 'rmhub %%' AND application_name NOT LIKE '%% driver'"
            " GROUP BY datname",
            [list(arena.databases.values())],
        )
        found = dict(rows.fetchall())
        most = {name: max(count, found.get(arena.databases[name], 0)) for name, count in most.items()}
    return most


def unloaded(
    arena: Arena, servers: Servers, roots: dict[str, int], *, pairs: int, every: float, count: int
) -> dict[str, Any]:
    """One message every so often, so that none waits for another: from the submission to its acknowledgement."""
    arguments = ("--pairs", str(pairs), "--every", str(every), "--count", str(count))
    with _driver(arena, *arguments) as driver:
        began = _line(driver)["began"]
        totals = _line(driver)
    drained = _drain(arena)
    # The first one, submitted before `began`, opened the connections and is not measured.
    rows = [row for row in _delivered(arena, began, time.time()) if row[0] >= began]
    return {
        "kind": "unloaded",
        "pairs": pairs,
        "seconds_between": every,
        "messages": len(rows),
        "submission_to_ack": spread([(row[2] - row[0]) * 1000 for row in rows]),
        "first_transmission_to_ack": spread([(row[2] - row[1]) * 1000 for row in rows]),
        "driver": totals,
        "drained": drained,
        "contradictions": contradictions(arena.sender, arena.receiver),
    }


def idle(arena: Arena, servers: Servers, roots: dict[str, int], *, seconds: float) -> dict[str, Any]:
    """Percent of one CPU that a hub's own processes use while there is nothing to do, and what the servers use."""
    _drain(arena)
    time.sleep(seconds / 4)  # what still becomes of the last messages
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        before = look(connection, {**roots, **servers.roots}, list(arena.databases.values()))
        time.sleep(seconds)
        after = look(connection, {**roots, **servers.roots}, list(arena.databases.values()))
    spent = after.at - before.at
    percent = {name: (after.cpu[name] - before.cpu[name]).both / spent * 100 for name in before.cpu}
    hubs = sum(value for name, value in percent.items() if name not in servers.roots)
    return {
        "kind": "idle",
        "seconds": round(spent, 1),
        "percent_of_a_cpu": round(hubs / len(arena.databases), 2),
        "by_process": {name: round(value, 2) for name, value in percent.items()},
        "commits_per_second": {
            name: round((after.commits[name] - before.commits[name]) / spent, 2) for name in before.commits
        },
    }


_AT_REST = """
SELECT (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND starts_with(relname, 'messaging_')),
    (SELECT coalesce(sum(pg_column_size(content)), 0) FROM messaging_payload),
    (SELECT count(*) FROM messaging_message)
"""


def at_rest(arena: Arena) -> dict[str, Any]:
    """Bytes that a message takes in each database, with indexes and all that belongs to it but its documents."""
    found: dict[str, Any] = {"kind": "at rest", "bytes_per_message": {}, "messages": {}}
    for hub in (arena.sender, arena.receiver):
        with psycopg.connect(hub.database_url, autocommit=True) as connection:
            connection.execute("VACUUM")
            row = connection.execute(_AT_REST).fetchone()
        assert row is not None
        size, documents, messages = map(int, row)
        found["messages"][hub.name] = messages
        found["bytes_per_message"][hub.name] = round((size - documents) / messages) if messages else None
    return found


def contradictions(*hubs: Hub) -> list[str]:
    """What in the hubs' databases contradicts the invariants. Where nobody can look, that is said: a run is kept."""
    try:
        return verdict.contradictions({hub.name: hub.database_url for hub in hubs})
    except psycopg.Error as error:
        return [f"nobody could look: {str(error).strip()}"]


def first_message(arena: Arena) -> None:
    """Waits until one message has gone all the way: web servers answer sooner than workers are up.

    Raises RuntimeError when none does within a minute.
    """
    with _driver(arena, "--pairs", "1", "--every", "0.1", "--count", "0") as driver:
        _line(driver)
        _line(driver)
    if not _drain(arena):
        raise RuntimeError(f"no message came through in {DRAIN_SECONDS:g} s; see the logs in {arena.sender.var.parent}")


def _driver(arena: Arena, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.driver", *arguments],
        env=arena.sender.environment("driver"),
        cwd=BASE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _line(driver: subprocess.Popen[str]) -> dict[str, Any]:
    assert driver.stdout is not None
    line = driver.stdout.readline()
    if not line:
        raise RuntimeError("the load driver ended early; its error is above")
    found: dict[str, Any] = json.loads(line)
    return found


def _drain(arena: Arena) -> bool:
    """Waits until nothing is under way; False when that takes too long."""
    deadline = time.monotonic() + DRAIN_SECONDS
    with psycopg.connect(arena.sender.database_url, autocommit=True) as connection:
        while time.monotonic() < deadline:
            left = connection.execute(
                "SELECT count(*) FROM messaging_pair"
                " WHERE direction = 'out' AND flow <> 'suspended'"
                " AND (queued > 0 OR out_now > 0 OR in_flight_id IS NOT NULL)"
            ).fetchone()
            if left == (0,):
                return True
            time.sleep(0.1)
    return False


def _delivered(arena: Arena, begin: float, end: float) -> list[tuple[float, float, float]]:
    """Of what was delivered in the window: creation, first transmission, acknowledgement (seconds since the epoch)."""
    with psycopg.connect(arena.sender.database_url, autocommit=True) as connection:
        return connection.execute(
            "SELECT extract(epoch FROM created_at)::float8, extract(epoch FROM first_sent_at)::float8,"
            " extract(epoch FROM completed_at)::float8 FROM messaging_message"
            " WHERE direction = 'out' AND state = 'delivered'"
            " AND completed_at >= to_timestamp(%s) AND completed_at < to_timestamp(%s)",
            [begin, end],
        ).fetchall()


def _submitted(arena: Arena, begin: float, end: float) -> int:
    """In a steady state as many messages come in as go out."""
    with psycopg.connect(arena.sender.database_url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM messaging_message WHERE direction = 'out'"
            " AND created_at >= to_timestamp(%s) AND created_at < to_timestamp(%s)",
            [begin, end],
        ).fetchone()
    return int(row[0]) if row else 0


def _check(arena: Arena, since: float) -> dict[str, int]:
    """Whether what was measured was right: over all that was stored since then (seconds since the epoch)."""
    with psycopg.connect(arena.sender.database_url, autocommit=True) as connection:
        sent = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE state = 'delivered'), count(*) FILTER (WHERE attempts > 1)"
            " FROM messaging_message WHERE direction = 'out' AND state <> 'failed' AND created_at >= to_timestamp(%s)",
            [since],
        ).fetchone()
    with psycopg.connect(arena.receiver.database_url, autocommit=True) as connection:
        received = connection.execute(
            "SELECT count(*), count(DISTINCT message_id) FROM messaging_message"
            " WHERE direction = 'in' AND created_at >= to_timestamp(%s)",
            [since],
        ).fetchone()
        order = connection.execute(
            "SELECT count(*) FROM (SELECT sequence_number - lag(sequence_number) OVER (PARTITION BY pair_id ORDER BY"
            " position) AS step FROM messaging_message WHERE direction = 'in' AND created_at >= to_timestamp(%s))"
            " AS steps WHERE step <> 1",
            [since],
        ).fetchone()
    assert sent is not None and received is not None and order is not None
    return {
        "submitted": sent[0],
        "delivered": sent[1],
        "sent_again": sent[2],
        "received": received[0],
        "received_twice": received[0] - received[1],
        "out_of_order": order[0],
    }


__all__ = ["RECEIVER", "SENDER", "Window", "at_rest", "contradictions", "depth", "idle", "steady", "unloaded"]
