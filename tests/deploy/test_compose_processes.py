"""The processes of compose.yaml with its commands and its environment, as far as that goes without containers.

Two web servers, two workers, beat and the pipeline, on embedded servers, behind a balancer; a partner's hub exchanges
documents with them over a link. Then each process is restarted, one after the other, while documents come both ways.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from cryptography.fernet import Fernet

from messaging.demo import effects, exchange, verdict
from messaging.demo.databases import broker_databases, own_databases, servers
from messaging.demo.seeding import tpa_id
from messaging.demo.stage import Link, Parameters, Receiving, Stage, set_up
from rmhub.hubs import BASE, free_ports
from rmhub.supervisor import Process, Supervisor
from rmhub_client import Client, NoAnswer, Problem
from tests.deploy.balancer import NAME, Balancer, balancer
from tests.deploy.reading import HUB, role_of
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.acceptance

AGREEMENTS = 3
KEYS = {"RMHUB_SECRET_KEY": "k" * 60, "RMHUB_SECRET_KEYS": Fernet.generate_key().decode()}
WITHIN = 240.0  # far more than anything here takes


@dataclass
class World:
    """`ports`: of the web servers of compose, by the names of their services."""

    stage: Stage
    balancer: Balancer
    supervisor: Supervisor
    ports: dict[str, int]
    accepted: dict[str, set[str]] = field(default_factory=lambda: {"a": set(), "b": set()})

    def settled(self) -> tuple[verdict.Verdict, effects.Effects]:
        """What became of all that was accepted, when nothing is under way any more."""
        hubs = (self.stage.buyer.database_url, self.stage.seller.database_url)
        total = sum(map(len, self.accepted.values()))

        def done() -> bool:
            found = verdict.judge([(*hubs, self.accepted["a"]), (*reversed(hubs), self.accepted["b"])])
            return found.completed == total and not effects.judge(list(hubs), self.stage.effects).unsettled

        eventually(done, WITHIN)
        found = verdict.judge([(*hubs, self.accepted["a"]), (*reversed(hubs), self.accepted["b"])])
        return found, effects.judge(list(hubs), self.stage.effects)

    def restart(self, name: str) -> None:
        """Tell one process to end; returns when another one does its work."""
        [before, *_] = self.supervisor.pids(name)
        os.kill(before, signal.SIGTERM)
        port = self.ports.get(name)
        if port is not None:
            eventually(lambda: not self.balancer.is_ready(port), WITHIN)
        eventually(lambda: self.supervisor.pids(name)[:1] not in ([], [before]), WITHIN)
        if port is not None:
            eventually(lambda: self.balancer.is_ready(port), WITHIN)
        if role_of(name) == "worker":
            eventually(lambda: self._is_present(name), WITHIN)

    def _is_present(self, name: str) -> bool:
        with psycopg.connect(self.stage.buyer.database_url) as database:
            present = {pid for (pid,) in database.execute("SELECT pid FROM messaging_worker")}
        return bool(present & set(self.supervisor.pids(name)))


def _processes(stage: Stage, proxy: Balancer, secrets: Path) -> tuple[list[Process], dict[str, int]]:
    """Those of compose.yaml, where /var/lib/rmhub and /run/secrets are folders of the test."""
    for name, text in {
        "database_url": stage.buyer.database_url,
        "redis_url": stage.buyer.redis_url,
        "secret_key": KEYS["RMHUB_SECRET_KEY"],
        "secret_keys": KEYS["RMHUB_SECRET_KEYS"],
    }.items():
        (secrets / name).write_text(text + "\n")
    webs = [name for name in HUB if role_of(name) == "web"]
    ports = dict(zip(webs, free_ports(len(webs)), strict=True))
    inherited = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("RMHUB_", "DATABASE_", "REDIS_", "DJANGO_"))
    }
    found = []
    for name, service in HUB.items():
        if name == "migrate":
            continue  # the stage has made the tables
        environment = {
            key: text.replace("/run/secrets", str(secrets))
            .replace("/var/lib/rmhub", str(stage.buyer.var))
            .replace("${HUB_NAME:-hub.example.org}", NAME)
            for key, text in service["environment"].items()
        }
        environment["RMHUB_TRUSTED_PROXIES"] = "127.0.0.1/32"
        environment["RMHUB_WEBHOOK_ALLOW_PRIVATE"] = "1"  # the application is on this machine
        environment["RMHUB_DRAIN_SECONDS"] = "4"  # the balancer of the test looks ten times a second
        command = [stage.link.argv[0] if word == "python" else word for word in service["command"]]
        if name in ports:
            command = [{"0.0.0.0": "127.0.0.1", "8000": str(ports[name])}.get(word, word) for word in command]
        found.append(
            Process(
                name=name,
                argv=command,
                env={**inherited, **environment},
                ready=(lambda port=ports[name]: proxy.is_ready(port)) if name in ports else None,
                restart=True,
                ready_within=WITHIN,
                grace=float(service.get("stop_grace_period", "30s").removesuffix("s")),
                cwd=BASE,
            )
        )
    return found, ports


@contextmanager
def running() -> Iterator[World]:
    with ExitStack() as stack:
        secrets = Path(tempfile.mkdtemp(prefix="rmhub-compose-"))
        stack.callback(shutil.rmtree, secrets, ignore_errors=True)
        proxy = stack.enter_context(balancer())
        var, database_url, redis_url = stack.enter_context(servers(None, lambda line: None))
        first, second = stack.enter_context(own_databases(database_url, ("a", "b")))
        one, two = stack.enter_context(broker_databases(redis_url))
        stage = set_up(
            database_url=database_url,
            redis_url=redis_url,
            var=var,
            link=Link(),
            parameters=Parameters(agreements=AGREEMENTS, timeout=5, retry_interval=5),
            receiving=Receiving(resolver=False, takes_ms=200),
            # What the partner sends comes in through the balancer.
            ports=(proxy.port, free_ports(1)[0]),
            databases=(first, second),
            redis_numbers=(one, two),
            settings=KEYS,
            console=False,
            fresh=True,
        )
        ours, ports = _processes(stage, proxy, secrets)
        proxy.before(list(ports.values()))
        assert stage.application is not None
        partner = stage.seller.processes(prefix="b-")
        supervisor = Supervisor(
            [stage.link, stage.application, *ours, *partner], output=lambda name, line: None, restarts_per_minute=None
        )
        supervisor.start()
        stack.callback(supervisor.stop)
        yield World(stage, proxy, supervisor, ports)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running() as made:
        yield made


def _errand(hub: str, number: int) -> exchange.Errand:
    known = exchange.documents()
    return exchange.Errand(hub, tpa_id(number % AGREEMENTS + 1), known[number % len(known)])


def _hand_over(world: World, errand: exchange.Errand, url: str) -> None:
    """Once and without patience: what is not answered 201 fails."""
    client = Client(url, world.stage.tokens[errand.hub], timeout=120, patience=0)
    try:
        world.accepted[errand.hub].add(exchange.hand_over(client, errand.agreement, errand.document))
    finally:
        client.close()


def test_documents_go_and_come_through_both_web_servers(world: World) -> None:
    before = dict(world.balancer.served)
    for number in range(6):
        _hand_over(world, _errand("a", number), world.balancer.url)
        _hand_over(world, _errand("b", number), world.stage.seller.url)
    found, done = world.settled()
    assert found.promises_kept and found.delivered == 12
    assert done.promises_kept and done.effects_once == 12 and not done.in_doubt
    assert all(world.balancer.served[port] > before.get(port, 0) for port in world.ports.values())
    assert world.balancer.failed == []


@pytest.mark.long
def test_a_rolling_restart_of_every_process_fails_no_request(world: World) -> None:
    over = threading.Event()
    refused: list[str] = []

    def submit(hub: str, url: str, number: int) -> None:
        while not over.wait(0.1):
            try:
                _hand_over(world, _errand(hub, number), url)
            except (Problem, NoAnswer) as error:
                refused.append(f"{hub}: {error}")

    def read() -> None:
        client = Client(world.balancer.url, world.stage.tokens["a"], timeout=120, patience=0)
        while not over.wait(0.05):
            try:
                client.get("/messages", limit=5)
            except (Problem, NoAnswer) as error:
                refused.append(f"read: {error}")
        client.close()

    lanes = [
        threading.Thread(target=submit, args=(hub, url, number))
        for number in range(AGREEMENTS)
        for hub, url in (("a", world.balancer.url), ("b", world.stage.seller.url))
    ]
    for thread in (lanes := [*lanes, threading.Thread(target=read), threading.Thread(target=read)]):
        thread.start()
    try:
        enough = len(world.accepted["a"]) + 10
        eventually(lambda: len(world.accepted["a"]) > enough, WITHIN)
        for name in [name for name in HUB if name != "migrate"]:
            world.restart(name)
        after = len(world.accepted["a"]) + 10
        eventually(lambda: len(world.accepted["a"]) > after, WITHIN)
    finally:
        over.set()
        for thread in lanes:
            thread.join()
    assert refused == []
    assert world.balancer.failed == []
    found, done = world.settled()
    assert found.promises_kept and not found.suspended
    assert done.promises_kept and done.effects_once == sum(map(len, world.accepted.values()))
    # Workers finish what an application is busy with: nothing of that is in doubt, although no resolver is asked.
    assert not done.in_doubt and not done.failed
