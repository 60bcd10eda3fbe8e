"""The two limits: how fast the web server takes posts that cost nothing, and how fast the database commits one row."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from rmhub.hubs import BASE, free_ports, listens
from rmhub.supervisor import Process
from tests.benchmarks.arena import Servers, fresh_database, supervised
from tests.benchmarks.machine import Cpu, spread, trees

POST_CONNECTIONS = (1, 16)
COMMIT_CONNECTIONS = (1, 4, 16)
TABLE = (
    "CREATE TABLE bench_row (id bigserial PRIMARY KEY, client int NOT NULL, at timestamptz DEFAULT now(), text text)"
)
INSERT = "INSERT INTO bench_row (client, text) VALUES (:client_id, 'one row');\n"


def posts(var: Path, seconds: float) -> Iterator[dict[str, Any]]:
    """Measure 4 KiB posts with keep-alive through the hub's web server, one worker and 16 threads as the hub's own."""
    (port,) = free_ports(1)
    with supervised([bare_server(var, port)]) as root:
        for count in POST_CONNECTIONS:
            yield _posts(port, count, seconds, root)


def bare_server(var: Path, port: int) -> Process:
    """The hub's web server with an application that answers 204 to everything."""
    return Process(
        name="bare",
        argv=[
            *(sys.executable, "-m", "granian", "--interface", "wsgi", "--host", "127.0.0.1", "--port", str(port)),
            *("--workers", "1", "--blocking-threads", "16", "--no-ws", "--log-level", "warning"),
            "tests.benchmarks.bare_app:application",
        ],
        env={**os.environ, "PYTHONPATH": str(BASE)},
        ready=listens(port),
        cwd=BASE,
        log=var / "bare.log",
    )


def load(port: int, connections: int, seconds: float, *request: str) -> dict[str, Any]:
    """What `post_load` has counted; `request`: its path and authorization. Raises RuntimeError with what it said."""
    words = (str(port), str(connections), str(seconds), *request)
    argv = [sys.executable, "-m", "tests.benchmarks.post_load", *words]
    done = subprocess.run(argv, cwd=BASE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the load generator failed:\n{done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _posts(port: int, connections: int, seconds: float, root: dict[str, int]) -> dict[str, Any]:
    before = trees(root)["bare"]
    found = load(port, connections, seconds)
    used: Cpu = trees(root)["bare"] - before
    return {
        "kind": "posts",
        "connections": connections,
        "requests": found["requests"],
        "posts_per_second": round(found["requests"] / found["seconds"], 1),
        "latency": spread(found["latencies_ms"]),
        "server_cpu_ms_per_post": round(used.both * 1000 / max(1, found["requests"]), 4),
    }


def commits(servers: Servers, var: Path, seconds: float) -> Iterator[dict[str, Any]]:
    """Measure single-row inserts, one commit each, in a database of the same server, by pgbench with prepared ones.

    Raises RuntimeError when the programs of the server have no pgbench with them, or it fails.
    """
    url = fresh_database(servers, "bench_limits")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLE)
        durable = {
            name: (connection.execute(f"SHOW {name}").fetchone() or ("?",))[0]
            for name in ("fsync", "synchronous_commit", "full_page_writes", "server_version")
        }
    script = var / "insert.sql"
    script.write_text(INSERT, encoding="utf-8")
    for connections in COMMIT_CONNECTIONS:
        argv = [
            *(str(servers.programs / "pgbench"), "--no-vacuum", "--file", str(script), "--protocol", "prepared"),
            *("--client", str(connections), "--jobs", str(min(2, connections)), "--time", str(max(1, round(seconds)))),
            url,
        ]
        begun = time.time()
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise RuntimeError(f"there is no pgbench in {servers.programs}: install it beside postgres") from None
        rate = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
        latency = re.search(r"^latency average = ([\d.]+) ms", done.stdout, re.MULTILINE)
        if done.returncode != 0 or rate is None or latency is None:
            raise RuntimeError(f"pgbench failed:\n{(done.stdout + done.stderr).strip()[-2000:]}")
        yield {
            "kind": "commits",
            "connections": connections,
            "commits_per_second": float(rate[1]),
            "average_ms": float(latency[1]),
            "seconds": round(time.time() - begun, 1),
            "settings": durable,
        }
