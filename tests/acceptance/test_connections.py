"""Connections of real hubs: how many they have under load, what happens at PostgreSQL's limit, and behind a pooler."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import urllib3
from psycopg import sql

from messaging.demo import effects, exchange, verdict
from messaging.demo.databases import broker_databases, own_databases, servers
from messaging.demo.exchange import by_pair
from messaging.demo.stage import Link, Parameters, Receiving, Stage, each, set_up
from rmhub import embedded
from rmhub.hubs import Hub, free_ports
from rmhub.supervisor import Supervisor
from tests.poolers import pooling
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.acceptance

PATIENCE = 600.0  # seconds
FULL = "PostgreSQL has no connection left for this process: others have them all. Work waits until it has."
# Enough pairs and threads that everything would have dozens of connections if nothing bounded them.
PAIRS = 8
# As `manage.py pipeline` asks for a run, from within the hub.
ASK_FOR_A_RUN = """
from messaging.journal.audit import SYSTEM
from messaging.reports.services import runs
runs.run_request(job="extract", actor=SYSTEM)
"""


@dataclass(slots=True)
class Scene:
    """Two hubs that run. `accepted`: the MessageIds that each of them ("a", "b") has accepted."""

    stage: Stage
    database_urls: dict[str, str]  # without a pooler
    accepted: dict[str, set[str]] = field(default_factory=lambda: {"a": set(), "b": set()})

    @contextmanager
    def exchanging(self, total: int) -> Iterator[Callable[[], int]]:
        """Hands over documents both ways, all pairs at once. Gives how many are not through yet."""
        plan = by_pair(list(exchange.plan(self.stage, total, PAIRS)))
        with ThreadPoolExecutor(len(plan)) as pool:
            running: list[Future[tuple[str, set[str]]]] = [
                pool.submit(exchange.submit, self.stage, errands) for errands in plan
            ]
            yield lambda: sum(not one.done() for one in running)
            for one in running:
                name, ids = one.result(PATIENCE)
                self.accepted[name] |= ids

    def stored(self, hub: str) -> int:
        with psycopg.connect(self.database_urls[hub]) as connection:
            row = connection.execute("SELECT count(*) FROM messaging_message WHERE direction = 'out'").fetchone()
            return int(row[0]) if row else 0

    def ends_well(self) -> None:
        """Everything is delivered, to the application too, once and in order, and the rows keep the invariants."""
        a, b = self.database_urls["a"], self.database_urls["b"]
        total = len(self.accepted["a"]) + len(self.accepted["b"])
        assert total, "nothing was exchanged"

        def judged() -> verdict.Verdict:
            return verdict.judge([(a, b, self.accepted["a"]), (b, a, self.accepted["b"])])

        eventually(lambda: judged().completed == total, PATIENCE)
        eventually(lambda: effects.judge([a, b], self.stage.effects).effects_once == total, PATIENCE)
        eventually(lambda: not verdict.unfinished(self.database_urls), PATIENCE)
        found, applied = judged(), effects.judge([a, b], self.stage.effects)
        assert (found.delivered, found.delivered_twice, found.lost, found.out_of_order) == (total, 0, 0, 0)
        assert (found.suspended, found.messages_in_doubt) == (0, 0)
        assert (applied.effects_twice, applied.effects_missing, applied.in_doubt) == (0, 0, 0)
        assert verdict.contradictions(self.database_urls) == []


@contextmanager
def hubs(
    *, pipeline: bool = False, through: Callable[[str], str] = lambda url: url, settings: dict[str, str] | None = None
) -> Iterator[Scene]:
    """Two hubs with databases of their own; `through`: what their processes have as the URL of one."""
    with ExitStack() as stack:
        var, database_url, redis_url = stack.enter_context(servers(None, print))
        first, second = free_ports(2)
        one, other = stack.enter_context(own_databases(database_url, ("a", "b")))
        brokers = stack.enter_context(broker_databases(redis_url))
        # The tables, parties and agreements are made directly.
        stage = set_up(
            database_url=database_url,
            redis_url=redis_url,
            var=var,
            link=Link(),
            parameters=Parameters(agreements=PAIRS),
            ports=(first, second),
            databases=(one, other),
            redis_numbers=(brokers[0], brokers[1]),
            settings=settings,
            receiving=Receiving(),
            console=False,
            pipeline=pipeline,
            fresh=True,
        )
        direct = {hub.name: hub.database_url for hub in (stage.buyer, stage.seller)}
        stage.buyer, stage.seller = (
            replace(hub, database_url=through(hub.database_url)) for hub in (stage.buyer, stage.seller)
        )
        supervisor = Supervisor(stage.processes(), output=lambda name, line: print(f"{name}: {line}"))
        supervisor.start()
        stack.callback(supervisor.stop)
        yield Scene(stage, direct)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with hubs(pipeline=True) as found:
        yield found


def test_a_hub_has_at_most_twelve_connections_while_all_its_threads_are_busy(scene: Scene) -> None:
    most: Counter[str] = Counter()
    total, looks, over = 0, 0, threading.Event()

    def look() -> None:
        nonlocal total, looks
        with psycopg.connect(_elsewhere(scene.database_urls["a"]), autocommit=True) as admin:
            name = urlsplit(scene.database_urls["a"]).path.lstrip("/")
            while not over.is_set():
                found = admin.execute(_SESSIONS, [name]).fetchall()
                for process, count in found:
                    most[process] = max(most[process], count)
                total, looks = max(total, sum(count for _, count in found)), looks + 1

    looking = threading.Thread(target=look)
    looking.start()
    try:
        with scene.exchanging(160):
            each([scene.stage.buyer], lambda hub: hub.manage("shell", "-v", "0", "-c", ASK_FOR_A_RUN))
        # On a busy machine the run may have ended before it is known here that it was asked for.
        while not looks or _runs(scene.database_urls["a"]):
            with scene.exchanging(160):
                pass
        scene.ends_well()
    finally:
        over.set()
        looking.join(PATIENCE)
    print(f"{total} connections at most, {dict(most)} in {looks} looks")
    named = {process: count for process, count in most.items() if process.startswith("rmhub a ")}
    assert set(named) == {"rmhub a web", "rmhub a worker", "rmhub a pipeline"}
    assert total <= 12
    assert named["rmhub a web"] <= 4 and named["rmhub a worker"] <= 4
    assert 2 <= named["rmhub a pipeline"] <= 4, "with the process of a run"


# What `shell` asks for the run with is no process of the hub, and says so.
_SESSIONS = """
SELECT application_name, count(*) FROM pg_stat_activity
WHERE datname = %s AND application_name LIKE 'rmhub a _%%' GROUP BY 1
"""


def test_x23_at_the_limit_of_the_server_work_waits_health_says_so_and_nothing_is_lost(scene: Scene) -> None:
    """One session for all processes of a hub, so that some have none: as after a restart among greedy neighbours."""
    url, before = scene.database_urls["a"], scene.stored("a")
    with ExitStack() as work:
        work.enter_context(scene.exchanging(80))
        eventually(lambda: scene.stored("a") > before, PATIENCE)
        with _limited(url, 1):
            # However fast the first ones went: these come while there are too few.
            work.enter_context(scene.exchanging(80))
            part = eventually(lambda: _trouble(scene.stage.buyer), PATIENCE)
    assert part["detail"] == FULL and part["since"]
    scene.ends_well()
    eventually(lambda: _health(scene.stage.buyer)[1].get("status") == "ok", PATIENCE)


def test_behind_a_pooler_that_shares_few_sessions_messages_come_once_and_in_order(tmp_path: Path) -> None:
    """PgBouncer in transaction mode: no statement of a thread can count on the session of the one before."""
    with ExitStack() as stack:
        database_url = stack.enter_context(servers(None, print))[1]
        through = stack.enter_context(pooling(database_url, tmp_path, sessions=3))
        with hubs(through=through, settings={"RMHUB_PREPARE_THRESHOLD": "0"}) as behind:
            assert urlsplit(behind.stage.buyer.database_url).port != urlsplit(behind.database_urls["a"]).port
            with behind.exchanging(96) as left:
                most = eventually(lambda: _sessions(behind.database_urls["a"]), PATIENCE)
                while left():
                    most = max(most, _sessions(behind.database_urls["a"]))
            behind.ends_well()
            assert 1 <= most <= 3, "somebody went around the pooler"


def _sessions(url: str) -> int:
    """How many sessions of this database processes of the hub have."""
    with psycopg.connect(_elsewhere(url), autocommit=True) as admin:
        row = admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name LIKE 'rmhub %%'",
            [urlsplit(url).path.lstrip("/")],
        ).fetchone()
        return int(row[0]) if row else 0


def _elsewhere(url: str) -> str:
    """Another database of the same server: a session there does not count."""
    return embedded.database_url(url, "postgres")


@contextmanager
def _limited(url: str, sessions: int) -> Iterator[None]:
    """The database takes so many sessions, and those that are there have ended."""
    name = urlsplit(url).path.lstrip("/")
    limit = sql.SQL("ALTER DATABASE {} CONNECTION LIMIT {}")
    with psycopg.connect(_elsewhere(url), autocommit=True) as admin:
        admin.execute(limit.format(sql.Identifier(name), sql.Literal(sessions)))
        try:
            admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name])
            yield
        finally:
            admin.execute(limit.format(sql.Identifier(name), sql.Literal(-1)))


def _runs(url: str) -> int:
    """Runs of the data pipeline that are not over."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM messaging_pipelinerun WHERE state IN ('queued', 'running')"
        ).fetchone()
        return int(row[0]) if row else 0


def _health(hub: Hub) -> tuple[int, dict[str, Any]]:
    answer = urllib3.request("GET", f"{hub.url}/api/v1/health", retries=False, timeout=30)
    return answer.status, answer.json()


def _trouble(hub: Hub) -> dict[str, Any] | None:
    """What health says of the database, when it has something to say."""
    parts: list[dict[str, Any]] = _health(hub)[1]["parts"]
    return next((part for part in parts if part["name"] == "database" and part["detail"] == FULL), None)
