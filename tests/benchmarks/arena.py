"""The benchmark's two hubs: own databases on servers of its own, real processes, each other's partners."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import redis

from rmhub import embedded
from rmhub.embedded import postgres, state, valkey
from rmhub.hubs import BASE, Hub, free_ports
from rmhub.supervisor import Process, StartFailed, Supervisor

Say = Callable[[str], None]
SENDER, RECEIVER = "sender", "receiver"


@dataclass(frozen=True)
class Servers:
    """The benchmark's own PostgreSQL (fsync and synchronous_commit on) and Valkey, with their process numbers."""

    database_url: str
    redis_url: str
    roots: dict[str, int]
    programs: Path
    version: str


@contextlib.contextmanager
def servers(var: Path, say: Say) -> Iterator[Servers]:
    """Durable servers in `var/servers`, for as long as the ``with`` lasts."""
    folder = var / "servers"
    with embedded.servers(folder, log=say) as urls:
        known = state.load(folder.resolve())
        assert known is not None
        roots = {
            "postgres": postgres.server_pid(postgres.data_folder(known.home)) or 0,
            "valkey": valkey.server_pid(known.home) or 0,
        }
        from rmhub.embedded.identity import servers_identity

        programs = postgres.find_programs(known.home, servers_identity(), say)
        yield Servers(urls.database_url, urls.redis_url, roots, programs.folder, programs.version)


def fresh_database(servers: Servers, name: str) -> str:
    """The URL of a new, empty database."""
    embedded.drop_database(servers.database_url, name)
    return embedded.create_database(servers.database_url, name)


def redis_database(url: str, number: int) -> str:
    """The URL of another database of the same Valkey."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{number}"))


@contextlib.contextmanager
def supervised(processes: Sequence[Process]) -> Iterator[dict[str, int]]:
    """Runs processes that write to log files; yields their numbers by name.

    Raises RuntimeError with the end of its log when one does not start.
    """
    supervisor = Supervisor(processes, output=lambda name, line: None, name="bench")
    try:
        supervisor.start()
    except StartFailed as failure:
        logs = [process.log for process in processes if process.log is not None and process.log.exists()]
        said = "".join(f"\n{log}:\n{log.read_text(errors='replace')[-2000:]}" for log in logs)
        raise RuntimeError(f"{failure}{said}") from failure
    try:
        yield {process.name: supervisor.pids(process.name)[0] for process in processes}
    finally:
        supervisor.stop()


@dataclass(frozen=True)
class Arena:
    """Two hubs that are set up for each other; `running` starts their processes."""

    sender: Hub
    receiver: Hub
    databases: dict[str, str]
    """Name of the hub -> name of its database."""

    @contextlib.contextmanager
    def running(self, machines: int = 1) -> Iterator[dict[str, int]]:
        """Both hubs' processes, up; yields their process numbers by name (`sender web`, ...). `machines`: of each hub,
        each with a worker; partners call the web server of the first.
        """
        for hub in (self.sender, self.receiver):
            with redis.Redis.from_url(hub.redis_url) as broker:
                broker.flushdb()
        processes = [
            dataclasses.replace(process, log=hub.var / f"{process.name.rpartition(' ')[2]}.log")
            for hub in (self.receiver, self.sender)
            for process in hub.processes(prefix=f"{hub.name} ", restart=False)
        ]
        for hub in (self.receiver, self.sender) if machines > 1 else ():
            for number, port in enumerate(free_ports(machines - 1), start=2):
                more = hub.machine(number, port)
                processes += [
                    dataclasses.replace(process, log=hub.var / f"{number} {process.name.rpartition(' ')[2]}.log")
                    for process in more.processes(prefix=f"{more.name} ", restart=False, beat=False)
                ]
        with supervised(processes) as roots:
            yield roots


def build(servers: Servers, var: Path, pairs: int, say: Say, *, refused: int = 0, ebms2: Path | None = None) -> Arena:
    """Two empty hubs with `pairs` agreements between them, the last of which lead nowhere (`refused`).

    `ebms2`: they are of ebXML Messaging 2.0, and in this folder is what each hub signs with.
    """
    ports = free_ports(2)
    hubs: list[Hub] = []
    for number, (name, port) in enumerate(zip((SENDER, RECEIVER), ports, strict=True), start=1):
        folder = var / name
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        hubs.append(
            Hub(
                name=name,
                database_url=fresh_database(servers, f"bench_{name}"),
                redis_url=redis_database(servers.redis_url, number),
                var=folder,
                port=port,
                settings={"RMHUB_LOG_LEVEL": "WARNING"},
            )
        )
    say(f"setting up two hubs with {pairs} agreements")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_prepare, hubs, reversed(hubs), (pairs, pairs), (refused, 0), (ebms2, ebms2)))
    return Arena(hubs[0], hubs[1], {hub.name: f"bench_{hub.name}" for hub in hubs})


def _prepare(hub: Hub, other: Hub, pairs: int, refused: int, ebms2: Path | None) -> None:
    """Makes a hub's tables and agreements. Raises RuntimeError with what was said when that fails."""
    sides = (hub.name, hub.url, other.name, other.url, str(pairs), str(refused))
    signers = [str(ebms2 / f"{hub.name}.json")] if ebms2 is not None else []
    argv = [sys.executable, "-m", "tests.benchmarks.prepare", *sides, *signers]
    result = subprocess.run(argv, env=hub.environment(), cwd=BASE, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        said = (result.stdout + result.stderr).strip()[-4000:]
        raise RuntimeError(f"setting up the {hub.name} failed:\n{said}")
