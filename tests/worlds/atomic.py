"""A real hub as coordinator and three real applications that take part in its transactions, on this machine.

Used by `manage.py demo --atomic` and the acceptance tests.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from messaging.demo.databases import Log, broker_databases, own_databases, redis_database, servers
from messaging.demo.seeding import SELLER
from messaging.demo.stage import each, make_databases, new_hub
from rmhub import embedded
from rmhub.hubs import BASE, Hub, free_ports, listens
from rmhub.supervisor import Process, Supervisor
from tests.worlds import atomic_participant, atomic_seeding
from tests.worlds.atomic_seeding import NAMES, AtomicPlan, Member
from tests.worlds.atomic_taking import Votes

# One transaction after the other is what is shown, so fewer threads than a hub that is alone.
_SETTINGS = {"RMHUB_SEND_THREADS": "8", "RMHUB_DELIVER_THREADS": "8"}


@dataclass(frozen=True, slots=True)
class Ring:
    """A coordinator and its participants, set up. `login`: user and password of the sender of documents."""

    hub: Hub
    members: tuple[Member, ...]
    files: dict[str, Path]
    applications: tuple[Process, ...]
    login: tuple[str, str]

    @property
    def address(self) -> str:
        """Where documents are sent."""
        return f"{self.hub.url}/exchange/{atomic_seeding.TPA_ID}/"

    def processes(self) -> list[Process]:
        """Everything that has to run, in order."""
        return [*self.applications, *self.hub.processes(prefix="hub-")]

    def victims(self) -> tuple[str, ...]:
        """Processes that may be killed at any time."""
        return (*(process.name for process in self.applications), "hub-web", "hub-worker")


def set_up(
    *, database_url: str, redis_url: str, var: Path, database: str, redis_number: int, votes: Votes, log: Log
) -> Ring:
    """Makes the database, its parties, agreements and triggers. Raises subprocess.CalledProcessError when it fails."""
    port, *ports = free_ports(1 + len(NAMES))
    hub = new_hub(
        "hub",
        title=SELLER.name,
        database_url=embedded.database_url(database_url, database),
        redis_url=redis_database(redis_url, redis_number),
        var=var / "hub",
        port=port,
        settings=_SETTINGS,
        threads=16,
    )
    members = tuple(
        Member(name, f"http://127.0.0.1:{at}", secrets.token_urlsafe(24), secrets.token_urlsafe(24))
        for name, at in zip(NAMES, ports, strict=True)
    )
    plan = AtomicPlan(hub.url, secrets.token_urlsafe(24), members)
    log("creating tables, applications and the trigger that joins them")
    make_databases(database_url, [database], [hub], fresh=True)
    command = hub.manage("seed_demo", "--json", "--atomic")
    (seeded,) = each([hub], lambda _: command, lambda _: atomic_seeding.written(plan))
    files = {member.name: var / f"{member.name}.sqlite3" for member in members}
    signed: list[str] = json.loads(seeded)["secrets"]
    applications = tuple(
        _application(member, at, files[member.name], secret, votes, place)
        for place, (member, at, secret) in enumerate(zip(members, ports, signed, strict=True))
    )
    return Ring(hub, members, files, applications, (atomic_seeding.SENDER, plan.secret_in))


def _application(member: Member, port: int, path: Path, secret: str, votes: Votes, place: int) -> Process:
    return Process(
        name=member.name,
        argv=[
            *(sys.executable, "-m", "tests.worlds.atomic_participant", "--port", str(port)),
            *("--database", str(path), "--seed", str(votes.seed), "--no-share", str(votes.no)),
            *("--read-only-share", str(votes.read_only), "--place", str(place), "--count", str(len(NAMES))),
        ],
        env={
            **os.environ,
            "PYTHONPATH": str(BASE),
            "PYTHONUNBUFFERED": "1",
            atomic_participant.SIGNED: secret,
            atomic_participant.SHOWN: f"{member.name}:{member.secret_in}",
            atomic_participant.ASKED: f"hub:{member.secret_out}",
        },
        ready=listens(port),
        restart=True,
        cwd=BASE,
    )


@contextmanager
def running(*, votes: Votes, log: Log = lambda line: None) -> Iterator[tuple[Ring, Supervisor]]:
    """All of it, set up in a database of its own and running; everything is removed at the end.

    Its servers are those of DATABASE_URL and REDIS_URL, or embedded ones in a folder of their own.
    """
    with ExitStack() as stack:
        var, database_url, redis_url = stack.enter_context(servers(None, log))
        ring = set_up(
            database_url=database_url,
            redis_url=redis_url,
            var=var,
            database=stack.enter_context(own_databases(database_url, ("hub",)))[0],
            redis_number=stack.enter_context(broker_databases(redis_url, 1))[0],
            votes=votes,
            log=log,
        )
        supervisor = Supervisor(
            ring.processes(), output=lambda name, line: log(f"{name}: {line}"), restarts_per_minute=120
        )
        log("starting the coordinator and three applications")
        supervisor.start()
        stack.callback(supervisor.stop)
        yield ring, supervisor
