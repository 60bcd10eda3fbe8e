"""One dead partner among a hundred: what the others lose (spec 1, 2.5.4; docs/operations.md).

One hub and a hundred partners, each with a server of its own. All have messages waiting all the time, up to 64 of each
on the way at once. What 99 of them acknowledge is counted, in turn while the hundredth has no messages and while it has
some and is dead, in one of two ways: it takes no connection, or it takes everything and never answers.

    python -m tests.benchmarks.circuit OWN_URL PORTS        (sets the hub up; with its environment)
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import redis

from rmhub.hubs import BASE, Hub, free_ports
from tests.benchmarks.arena import Say, Servers, fresh_database, redis_database, supervised
from tests.benchmarks.hub_runs import Window, contradictions
from tests.benchmarks.prepare import SERVICE, tpa_id

DELAY_MS = 150  # it is threads that are short then, not the processor: what a dead partner can take from others
DEPTH = 6
CONNECT_TIMEOUT, READ_TIMEOUT = 3, 5
DEATHS = ("blackhole", "mute")
SETTLE_SECONDS = 90.0


def run(servers: Servers, var: Path, window: Window, partners: int, rounds: int, say: Say) -> Iterator[dict[str, Any]]:
    """Measure with so many partners, in a database of its own; the last one dies in each way once a round.

    Raises RuntimeError with what was said when the hub cannot be set up.
    """
    folder = var / "circuit"
    folder.mkdir(parents=True, exist_ok=True)
    hub = Hub(
        name="circuit",
        database_url=fresh_database(servers, "bench_circuit"),
        redis_url=redis_database(servers.redis_url, 5),
        var=folder,
        port=free_ports(1)[0],
        settings={"RMHUB_LOG_LEVEL": "CRITICAL"},
    )
    with redis.Redis.from_url(hub.redis_url) as broker:
        broker.flushdb()
    say(f"one dead partner among {partners}")
    with _servers(partners) as others:
        ports = json.loads(_line(others))
        _prepare(hub, ports)
        processes = hub.processes(prefix="circuit ", restart=False)
        with supervised(processes), psycopg.connect(hub.database_url, autocommit=True) as connection:
            for number in range(1, rounds + 1):
                for death in DEATHS:
                    for mode in ("well", death):
                        found = _measured(hub, connection, others, partners, mode, window)
                        pace = found["messages_per_second"]
                        say(f"round {number} of {rounds}: {mode}: {pace} messages/s by the others")
                        yield {"round": number, "mode": mode, **found}
            found = _measured(hub, connection, others, partners, "well", window)
            yield {"round": rounds, "mode": "well", **found}


def lost(runs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return by way of dying the percent of their throughput that the others lost, and the median.

    Each run is held against the mean of those before and after it, in which nobody is dead.
    """
    found: dict[str, list[float | None]] = {}
    for three in zip(runs, runs[1:], runs[2:], strict=False):
        if three[1]["mode"] != "well":
            before, with_it, after = (run["messages_per_second"] for run in three)
            share = None
            if None not in (before, with_it, after):
                usual = (before + after) / 2
                share = round(100 * (1 - with_it / usual) if usual else 100.0, 1)
            found.setdefault(three[1]["mode"], []).append(share)
    medians = {mode: [share for share in each if share is not None] for mode, each in found.items()}
    return {
        mode: {"median": round(statistics.median(medians[mode]), 1) if medians[mode] else None, "runs": each}
        for mode, each in found.items()
    }


def _measured(
    hub: Hub,
    connection: psycopg.Connection[Any],
    others: subprocess.Popen[str],
    partners: int,
    mode: str,
    window: Window,
) -> dict[str, Any]:
    """One run. The last partner has messages only when it is dead: so the load is the same but for them."""
    _become(others, mode)
    count = partners if mode != "well" else partners - 1
    with _driver(hub, count) as driver:
        json.loads(_line(driver))
        # A dead one is measured from its first moment on: while nobody knows of it, it costs most.
        time.sleep(window.warm)
        begin = time.time()
        time.sleep(window.measured)
        end = time.time()
        assert driver.stdin is not None
        driver.stdin.close()
        totals = json.loads(_line(driver))
    delivered = _one(
        connection,
        "SELECT count(*) FROM messaging_message m JOIN messaging_pair p ON p.id = m.pair_id WHERE m.state = 'delivered'"
        " AND m.completed_at >= to_timestamp(%s) AND m.completed_at < to_timestamp(%s) AND p.receiver_uri NOT LIKE %s",
        [begin, end, f"%/p{partners}"],
    )
    attempts = _one(
        connection,
        "SELECT count(*) FROM messaging_transmission t JOIN messaging_pair p ON p.id = t.pair_id"
        " WHERE t.started_at >= to_timestamp(%s) AND t.started_at < to_timestamp(%s) AND p.receiver_uri LIKE %s"
        " AND t.cause <> 'circuit_open'",
        [begin - window.warm, end, f"%/p{partners}"],
    )
    events = _one(
        connection,
        "SELECT count(*) FROM messaging_event WHERE type = 'circuit.opened' AND at >= to_timestamp(%s)",
        [begin - window.warm],
    )
    _become(others, "well")
    settled = _settle(connection)
    return {
        "seconds": round(end - begin, 3),
        "messages": delivered,
        "messages_per_second": round(delivered / (end - begin), 1),
        "attempts_at_the_dead_one": attempts,
        "circuits_opened": events,
        "driver": totals,
        "settled": settled,
        "contradictions": contradictions(hub),
    }


def _one(connection: psycopg.Connection[Any], sql: str, parameters: list[object]) -> int:
    row = connection.execute(sql, parameters).fetchone()
    return int(row[0]) if row else 0


def _settle(connection: psycopg.Connection[Any]) -> bool:
    """Waits until everything has gone out, what waited for the dead one too; False when that takes too long."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        # What waits for its next repeat would wait for longer than a benchmark does.
        connection.execute("UPDATE messaging_message SET due_at = now() WHERE state = 'retrying' AND due_at > now()")
        connection.execute("UPDATE messaging_circuit SET retry_at = now() WHERE retry_at > now() + interval '1 second'")
        left = _one(
            connection,
            "SELECT count(*) FROM messaging_pair WHERE direction = 'out' AND (queued > 0 OR out_now > 0)",
            [],
        )
        if not left:
            return True
        time.sleep(0.5)
    return False


@contextmanager
def _servers(partners: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.circuit_partners", str(partners), str(DELAY_MS)],
        cwd=BASE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _become(others: subprocess.Popen[str], mode: str) -> None:
    assert others.stdin is not None
    others.stdin.write(f"{mode}\n")
    others.stdin.flush()
    _line(others)


def _driver(hub: Hub, pairs: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.driver", "--pairs", str(pairs), "--depth", str(DEPTH)],
        env=hub.environment("driver"),
        cwd=BASE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("a process of the benchmark ended early; its error is above")
    return line


def _prepare(hub: Hub, ports: list[int]) -> None:
    arguments = [sys.executable, "-m", "tests.benchmarks.circuit", hub.url, json.dumps(ports)]
    done = subprocess.run(arguments, env=hub.environment(), cwd=BASE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"setting the hub up failed:\n{(done.stdout + done.stderr).strip()[-4000:]}")


def main() -> None:
    own_url, ports = sys.argv[1], json.loads(sys.argv[2])
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from messaging.engine import pairs
    from partners import registry, services
    from partners.choices import Profile

    own = services.party_create(name="hub", is_own=True, identifiers=[("DUNS", "000000001")])
    for number, port in enumerate(ports, start=1):
        partner = services.party_create(name=f"Partner {number}", identifiers=[("DUNS", f"{number + 1:09d}")])
        agreement = services.agreement_create(
            tpa_id=tpa_id(number),
            own_party=own,
            partner=partner,
            own_endpoint=services.endpoint_create(party=own, uri=f"{own_url}/exchange/{tpa_id(number)}/"),
            partner_endpoint=services.endpoint_create(
                party=partner,
                uri=f"http://127.0.0.1:{port}/p{number}",
                connect_timeout=CONNECT_TIMEOUT,
                read_timeout=READ_TIMEOUT,
            ),
            services=[(SERVICE, "*", "both")],
            profile=Profile.REPEATABLE,
        )
        services.version_activate(version=agreement.versions.get())
    registry.reset()
    pairs.ensure_pairs()


if __name__ == "__main__":
    main()
