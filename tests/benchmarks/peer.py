"""Measures the peer, django-pyas2, the way our hubs are measured: two parties, two databases, the same server.

Unsigned messages of 4 KiB with a synchronous receipt: the least that the peer can do for a message, and so its best.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from rmhub.hubs import free_ports, listens
from rmhub.supervisor import Process
from tests.benchmarks.arena import RECEIVER, SENDER, Say, Servers, fresh_database, supervised
from tests.benchmarks.hub_runs import Window
from tests.benchmarks.machine import costs, look, spread

SITE = Path(__file__).parent
SIDES = (SENDER, RECEIVER)


@dataclass(frozen=True)
class Peer:
    """Two parties that are set up for each other; `running` starts the receiver's web server."""

    python: Path
    port: int
    folder: Path
    urls: dict[str, str]
    databases: dict[str, str]

    def environment(self, side: str) -> dict[str, str]:
        """The environment of one party's processes."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO", "PYTHON"))}
        return {
            **kept,
            "PYTHONPATH": str(SITE),
            "DJANGO_SETTINGS_MODULE": "peer_site.settings",
            "PEER_SIDE": side,
            "PEER_DATABASE_URL": self.urls[side],
            "PEER_RECEIVER_URL": f"http://127.0.0.1:{self.port}",
            "PEER_MEDIA": str(self.folder / side),
            "PEER_KEYS": str(self.folder),
        }

    @contextlib.contextmanager
    def running(self) -> Iterator[dict[str, int]]:
        """The receiver's web server: gunicorn, two sync workers. Yields its process number."""
        server = Process(
            name="peer web",
            argv=[
                *(str(self.python), "-m", "gunicorn", "--workers", "2", "--bind", f"127.0.0.1:{self.port}"),
                *("--log-level", "warning", "peer_site.wsgi:application"),
            ],
            env=self.environment(RECEIVER),
            ready=listens(self.port),
            cwd=SITE,
            log=self.folder / "web.log",
        )
        with supervised([server]) as roots:
            yield roots


def build(
    servers: Servers,
    environment: Path,
    var: Path,
    say: Say,
    *,
    keys: Mapping[str, tuple[bytes, str]] | None = None,
    encrypted: bool = False,
) -> Peer:
    """Two parties with empty databases and folders. `keys`: with what each side signs (PKCS #12, and PEM of the
    certificate), and encrypts for if `encrypted`; without them nothing is signed.
    """
    folder = var / "peer"
    if folder.exists():
        shutil.rmtree(folder)
    (port,) = free_ports(1)
    databases = {side: f"bench_peer_{side}" for side in SIDES}
    peer = Peer(
        python=environment / "bin" / "python",
        port=port,
        folder=folder,
        urls={side: fresh_database(servers, name) for side, name in databases.items()},
        databases=databases,
    )
    for side in SIDES:
        (folder / side).mkdir(parents=True)
        if keys:
            private, public = keys[side]
            (folder / f"{side}.p12").write_bytes(private)
            (folder / f"{side}.pem").write_text(public)
    for side in SIDES:
        say(f"setting up the peer's {side}")
        _output(peer, side, "peer_site.prepare", *(["encrypted"] if encrypted else []))
    return peer


def steady(peer: Peer, servers: Servers, roots: dict[str, int], *, senders: int, window: Window) -> dict[str, Any]:
    """So many sender processes, each with one message under way all the time."""
    watched = {**roots, "postgres": servers.roots["postgres"]}
    names = list(peer.databases.values())
    argv = [str(peer.python), "-m", "peer_site.send", str(senders), str(window.warm), str(window.measured)]
    with (
        psycopg.connect(servers.database_url, autocommit=True) as connection,
        subprocess.Popen(argv, env=peer.environment(SENDER), cwd=SITE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        watched["senders"] = process.pid
        if not process.stdout.readline():
            raise RuntimeError("the peer's sender ended early; its error is above")
        before = look(connection, watched, names)
        # The senders stop by themselves; they must be looked at while they live.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, window.measured - 0.2))
        after = look(connection, watched, names)
        found: dict[str, Any] = json.loads(process.stdout.readline())
    rows = [(end, taken) for end, taken in found["messages"] if before.at <= end < after.at]
    seconds = after.at - before.at
    return {
        "kind": "steady",
        "senders": senders,
        "seconds": round(seconds, 3),
        "messages": len(rows),
        "messages_per_second": round(len(rows) / seconds, 1),
        "message": spread([taken for _, taken in rows]),
        **costs(before, after, len(rows)),
        "states": found["states"],
        "example_of_a_failure": found["example"],
    }


def race(peer: Peer, trials: int) -> dict[str, Any]:
    """The same message posted twice at once, so many times: how often it was delivered twice."""
    found: dict[str, Any] = json.loads(_output(peer, SENDER, "peer_site.race", str(trials)))
    return {"kind": "duplicate race", **found}


def _output(peer: Peer, side: str, module: str, *arguments: str) -> str:
    argv = [str(peer.python), "-m", module, *arguments]
    done = subprocess.run(argv, env=peer.environment(side), cwd=SITE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed for the peer's {side}:\n{done.stderr.strip()[-2000:]}")
    return done.stdout
