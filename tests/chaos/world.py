"""What the faults happen to: two hubs with servers of their own, of which one hub has two of each process."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import urllib3

from messaging.demo.stage import Link, Parameters, Receiving, Stage, set_up
from rmhub import embedded
from rmhub.embedded import postgres, valkey
from rmhub.hubs import Hub, free_ports, listens
from rmhub.supervisor import Supervisor
from tests.chaos.proxy import Proxy
from tests.rmhub.conditions import eventually

DATABASES = ("chaos_a", "chaos_b")
TAKES = 4.0  # seconds that the application is busy with a document
START = 300.0  # seconds that a server may take to start on a machine that is busy with other things
AGREEMENTS = 6
# Small documents go to the payload store too, so that it matters when that is full.
SETTINGS = {"RMHUB_INLINE_PAYLOAD_BYTES": "1024"}


def at_port(url: str, port: int) -> str:
    """The same URL with another port."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}"))


@dataclass(slots=True)
class World:
    """`judged`: the databases of both hubs as the judge reaches them, whatever the hubs can reach."""

    stage: Stage
    supervisor: Supervisor
    second: Hub
    home: Path
    database: Proxy
    broker: Proxy
    roads: tuple[Proxy, Proxy]
    judged: tuple[str, str]
    server_url: str

    @property
    def hubs(self) -> tuple[Hub, Hub]:
        return self.stage.buyer, self.stage.seller

    def kill_postgres(self) -> None:
        pid = postgres.server_pid(postgres.data_folder(self.home))
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def until_postgres_answers(self) -> None:
        """Returns when it is there again; AssertionError after `START` seconds. The time counts from then on."""
        eventually(lambda: all(_answers(url) for url in self.judged), within=START)

    def until_link_listens(self) -> None:
        """Returns when both ways of the link are there again; AssertionError after `START` seconds."""
        ports = [int(part.partition("=")[0]) for part in self.stage.link.argv if "=127.0.0.1:" in part]
        eventually(lambda: all(_is_heard(port) for port in ports), within=START)

    def until_processes_work(self) -> None:
        """Returns when each web server answers and each worker is present; AssertionError after `START` seconds."""
        hubs = (*self.hubs, self.second)
        eventually(lambda: all(_is_served(hub.url) for hub in hubs), within=START)
        workers = {0: ("a-worker", "a2-worker"), 1: ("b-worker",)}
        for index, names in workers.items():
            present = partial(self._are_present, self.judged[index], names)
            eventually(present, within=START)

    def _are_present(self, url: str, workers: Sequence[str]) -> bool:
        with psycopg.connect(url) as database:
            present = {pid for (pid,) in database.execute("SELECT pid FROM messaging_worker")}
        return all(present & set(self.supervisor.pids(name)) for name in workers)

    def kill_valkey(self) -> None:
        pid = valkey.server_pid(self.home)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def signal(self, name: str, number: int) -> None:
        for pid in self.supervisor.pids(name):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    @contextmanager
    def store_gone(self) -> Iterator[None]:
        """Nothing can be written to the payload stores, by nobody: there is a file in the place of each folder."""
        moved = []
        for hub in self.hubs:
            store = hub.var / "store"
            if store.exists():
                aside = store.with_name("store.aside")
                store.rename(aside)
                moved.append((store, aside))
            store.write_text("in the way")
        try:
            yield
        finally:
            for hub in self.hubs:
                (hub.var / "store").unlink()
            for store, aside in moved:
                aside.rename(store)

    @contextmanager
    def no_connection_left(self) -> Iterator[None]:
        """Others have all connections that the server gives; the hubs' own are ended first."""
        held: list[psycopg.Connection] = []
        try:
            with psycopg.connect(self.server_url, autocommit=True) as admin:
                held += _all_connections(self.server_url)
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = ANY(%s) AND application_name LIKE 'rmhub %%'",
                    [list(DATABASES)],
                )
            held += _all_connections(self.server_url)
            yield
        finally:
            for one in held:
                one.close()


def _answers(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=5):
            return True
    except psycopg.OperationalError:
        return False


def _is_heard(port: int) -> bool:
    with suppress(OSError):
        return listens(port)()
    return False


def _is_served(url: str) -> bool:
    try:
        return urllib3.request("GET", f"{url}/api/v1/health", retries=False, timeout=5).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _all_connections(url: str) -> list[psycopg.Connection]:
    held: list[psycopg.Connection] = []
    with suppress(psycopg.OperationalError):
        while len(held) < 1000:
            held.append(psycopg.connect(url, connect_timeout=5, application_name="others"))
    return held


def _replaced(text: str, by: Mapping[str, str]) -> str:
    for old, new in by.items():
        text = text.removesuffix(old) + new if text.endswith(old) else text
    return text


@contextmanager
def world(profiles: Sequence[str], log: embedded.Log) -> Iterator[World]:
    """Both hubs running, with agreements of all these profiles.

    The link between them loses, repeats and delays some of what it carries all the time.
    """
    with ExitStack() as stack:
        var = Path(tempfile.mkdtemp(prefix="rmhub-chaos-"))
        var.chmod(0o711)  # the servers run as another user when we are root
        stack.callback(shutil.rmtree, var, ignore_errors=True)
        servers = stack.enter_context(embedded.servers(var, log=log))
        state = embedded.state.load(var)
        assert state is not None
        database, broker = Proxy(state.postgres_port), Proxy(state.valkey_port)
        stack.callback(database.shut)
        stack.callback(broker.shut)
        ports = free_ports(3)
        stage = set_up(
            database_url=servers.database_url,
            redis_url=at_port(servers.redis_url, broker.port),
            var=var,
            link=Link(drop=0.05, duplicate=0.1, delay_ms=20),
            parameters=Parameters(
                agreements=AGREEMENTS, profile=profiles[0], more_profiles=tuple(profiles[1:]), ordered=True
            ),
            ports=(ports[0], ports[1]),
            databases=DATABASES,
            redis_numbers=(0, 1),
            settings=SETTINGS,
            receiving=Receiving(resolver=False, takes_ms=TAKES * 1000),
            console=False,
            fresh=True,
            log=log,
        )
        judged = (stage.buyer.database_url, stage.seller.database_url)
        for url in judged:
            with psycopg.connect(url) as connection:
                # What a service did that has not answered in time is in doubt, and on a busy machine each is slow.
                connection.execute("UPDATE messaging_trigger SET timeout = 300")
        for hub in (stage.buyer, stage.seller):
            stage_hub = replace(hub, database_url=at_port(hub.database_url, database.port))
            if hub is stage.buyer:
                stage.buyer = stage_hub
            else:
                stage.seller = stage_hub
        second = replace(stage.buyer, port=ports[2], settings={**stage.buyer.settings, "RMHUB_COOKIE_SUFFIX": "a2"})
        roads = (Proxy(ports[0]), Proxy(ports[1]))
        for road in roads:
            stack.callback(road.shut)
        to = {f"=127.0.0.1:{port}": f"=127.0.0.1:{road.port}" for port, road in zip(ports, roads, strict=False)}
        leads = [_replaced(argument, to) for argument in stage.link.argv]
        stage.link = replace(stage.link, argv=leads, restart=True)
        supervisor = Supervisor(
            [*stage.processes(), *second.processes(prefix="a2-")],
            output=lambda name, line: log(f"{name}: {line}"),
            restarts_per_minute=None,
        )
        supervisor.start()
        stack.callback(supervisor.stop)
        yield World(stage, supervisor, second, state.home, database, broker, roads, judged, servers.database_url)
