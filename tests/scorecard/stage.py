"""The world in which the scorecard is played: a seeded hub with its processes, and its partners' servers."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from messaging.demo import databases
from messaging.demo.stage import OWN_FOLDERS
from rmhub import embedded
from rmhub.hubs import BASE, Hub, free_ports
from rmhub.supervisor import Process, Supervisor
from tests.worlds.ux.plan import PORTS


@dataclass(frozen=True, slots=True)
class World:
    """A running hub. `facts`: what `seed_demo --scale ux` says of it. `partner`: root of the partners' own server."""

    hub: Hub
    facts: dict[str, Any]
    partner: str
    folder: Path

    def api(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """An answer of the API to the world's own token, read as JSON."""
        answer = urllib3.request(
            method,
            f"{self.hub.url}/api/v1{path}",
            json=body,
            headers={"Authorization": f"Bearer {self.facts['token']}", **headers},
        )
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.data[:400]!r}"
        return answer.json() if answer.data else None

    def partners(self, path: str, body: object = None) -> Any:
        """What the partners' server has seen (GET), or is told (POST)."""
        answer = urllib3.request("GET" if body is None else "POST", self.partner + path, json=body)
        return answer.json() if answer.data else None


@contextlib.contextmanager
def running(messages: int, var: Path, say: Callable[[str], None], *, pairs: int = 500) -> Iterator[World]:
    """Seeds a world of its own and starts everything; embedded servers unless the environment names others."""
    var.mkdir(parents=True, exist_ok=True)
    # The store of another run says that this run's database has lost its memory.
    shutil.rmtree(var / "store", ignore_errors=True)
    with contextlib.ExitStack() as stack:
        _, database_url, redis_url = stack.enter_context(databases.servers(var / "servers", say))
        (database,) = stack.enter_context(databases.own_databases(database_url, ["ux"]))
        number, *_ = stack.enter_context(databases.broker_databases(redis_url))
        hub = Hub(
            name="scorecard",
            database_url=embedded.create_database(database_url, database),
            redis_url=databases.redis_database(redis_url, number),
            var=var,
            port=free_ports(1)[0],
            title="Nordlys hub",
            settings={
                "RMHUB_ENVIRONMENT": "TEST",
                "RMHUB_LOG_LEVEL": "WARNING",
                "RMHUB_WEBHOOK_ALLOW_PRIVATE": "1",
                **OWN_FOLDERS,
            },
        )
        facts = seed(hub, messages, var / "world", say, pairs=pairs)
        stack.enter_context(processes(hub, var / "world"))
        yield World(hub, facts, f"http://127.0.0.1:{facts['port']}", var / "world")


def seed(hub: Hub, messages: int, folder: Path, say: Callable[[str], None], *, pairs: int) -> dict[str, Any]:
    """Fills the hub's empty database. Raises RuntimeError with what was said when that fails."""
    port = _block_of_ports()
    steps = (
        hub.manage("migrate", "--verbosity", "0"),
        hub.manage("collectstatic", "--noinput", "--verbosity", "0"),
        hub.manage(
            *("seed_demo", "--scale", "ux", "--messages", str(messages), "--pairs", str(pairs), "--json"),
            *("--partners", str(max(200, pairs * 2 // 5)), "--partner-port", str(port), "--folder", str(folder)),
        ),
    )
    printed = ""
    for step in steps:
        with subprocess.Popen(
            step, env=hub.environment(), cwd=BASE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as done:
            assert done.stderr is not None and done.stdout is not None
            tail = []
            for line in done.stderr:
                tail.append(line)
                if " s  " in line:
                    say(line.strip())
            printed = done.stdout.read()
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(step[2:4])} failed:\n{''.join(tail[-40:])}{printed[-2000:]}")
    return dict(json.loads(printed))


@contextlib.contextmanager
def processes(hub: Hub, folder: Path) -> Iterator[None]:
    """The hub's web server, worker and beat, and the partners; their output goes to files in the hub's folder."""
    partner = Process(
        name="partners",
        argv=[sys.executable, "manage.py", "demo_partner", "--folder", str(folder), "--hub", hub.url],
        env=hub.environment("partners"),
        cwd=BASE,
    )
    log = (hub.var / "processes.log").open("a")
    supervisor = Supervisor(
        [partner, *hub.processes(restart=False)], output=lambda name, line: log.write(f"{name} | {line}\n"), name="ux"
    )
    supervisor.start()
    try:
        yield
    finally:
        supervisor.stop()
        log.close()


def _block_of_ports() -> int:
    """A port with as many free ones behind it as the partners need."""
    for _ in range(50):
        first = free_ports(1)[0]
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for offset in (0, *PORTS.values()):
                _bind(stack, first + offset)
            return first
    raise RuntimeError("no block of free ports was found")


def _bind(stack: contextlib.ExitStack, port: int) -> None:
    import socket

    listener = stack.enter_context(socket.socket())
    listener.bind(("127.0.0.1", port))
