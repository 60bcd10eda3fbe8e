"""Valkey's primary is killed under traffic and Sentinel names another: messages go on, and the hubs use the new one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
import urllib3

from messaging.demo import verdict
from messaging.demo.databases import own_databases, servers
from messaging.demo.stage import Link, Parameters, Receiving, set_up
from rmhub import broker
from rmhub.embedded import valkey
from rmhub.hubs import Hub, free_ports, listens
from rmhub.supervisor import Process, Supervisor
from tests.acceptance.test_restore import WITHIN, World
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.acceptance

SECRET, LOOKERS = "very-secret", "not-so-secret"


@dataclass
class Sentinels:
    """Two Valkeys, one of which is the other's replica, and three Sentinels. `port`: of the first primary."""

    ports: tuple[int, int]
    lookers: list[int]
    first: Supervisor

    @property
    def url(self) -> str:
        addresses = ",".join(f"127.0.0.1:{port}" for port in self.lookers)
        return f"sentinel://:{SECRET}@{addresses}/0?master_name=rmhub&sentinel_password={LOOKERS}"

    def server(self, number: int) -> redis.Redis:
        return redis.Redis(port=self.ports[number], password=SECRET, socket_timeout=10)

    def primary(self) -> int:
        """The port of the server that Sentinel names."""
        asked = redis.Redis(port=self.lookers[0], password=LOOKERS, socket_timeout=10)
        return int(asked.sentinel_get_master_addr_by_name("rmhub")[1])

    def kill(self) -> None:
        self.first.kill("valkey")
        self.first.stop()


@contextmanager
def sentinels() -> Iterator[Sentinels]:
    folder = Path(tempfile.mkdtemp(prefix="rmhub-sentinel-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        program = str(valkey.find_program(folder, None, print))
        one, other, *lookers = free_ports(5)

        def process(name: str, port: int, lines: list[str], *options: str) -> Process:
            home = folder / f"{name}-{port}"
            home.mkdir()
            file = home / "valkey.conf"
            file.write_text("\n".join([f"port {port}", "bind 127.0.0.1", f"dir {home}", *lines, ""]))
            return Process(name, [program, str(file), *options], ready=listens(port), log=home / "log")

        def running(*processes: Process) -> Supervisor:
            made = Supervisor(processes, output=lambda name, line: None)
            made.start()
            stack.callback(made.stop)
            return made

        secrets = [f"requirepass {SECRET}", f"primaryauth {SECRET}", 'save ""']
        found = Sentinels((one, other), lookers, running(process("valkey", one, secrets)))
        running(process("valkey", other, [*secrets, f"replicaof 127.0.0.1 {one}"]))
        eventually(lambda: found.server(1).info("replication")["master_link_status"] == "up", WITHIN)
        looks = [
            *(f"requirepass {LOOKERS}", f"sentinel sentinel-pass {LOOKERS}"),
            *(f"sentinel monitor rmhub 127.0.0.1 {one} 2", f"sentinel auth-pass rmhub {SECRET}"),
            # A busy machine may answer late.
            *("sentinel down-after-milliseconds rmhub 5000", "sentinel failover-timeout rmhub 20000"),
        ]
        running(*(process(f"sentinel-{port}", port, looks, "--sentinel") for port in lookers))
        asked = redis.Redis(port=lookers[0], password=LOOKERS, socket_timeout=10)

        def agreed() -> bool:
            known = asked.sentinel_master("rmhub")
            return int(known["num-other-sentinels"]) == 2 and int(known["num-slaves"]) == 1

        eventually(agreed, WITHIN)
        yield found


def parts(hub: Hub) -> set[str]:
    """What health says is not well."""
    answer = urllib3.request("GET", f"{hub.url}/api/v1/health", retries=False, timeout=30)
    return {part["name"] for part in answer.json()["parts"] if part["state"] != "ok"}


def test_messages_go_on_while_the_broker_fails_over_and_the_hubs_find_the_new_one() -> None:
    with ExitStack() as stack:
        known = stack.enter_context(sentinels())
        var, database_url, _ = stack.enter_context(servers(None, print))
        stage = set_up(
            database_url=database_url,
            redis_url=known.url,
            var=var,
            link=Link(),
            parameters=Parameters(agreements=2),
            ports=tuple(free_ports(2)),  # type: ignore[arg-type]
            databases=stack.enter_context(own_databases(database_url, ("a", "b"))),  # type: ignore[arg-type]
            redis_numbers=(2, 3),
            receiving=Receiving(resolver=True),
            console=False,
            fresh=True,
        )
        world, hubs = World(stage), (stage.buyer, stage.seller)
        assert all(broker.is_sentinel(hub.redis_url) for hub in hubs)
        supervisor = Supervisor(stage.processes(), output=lambda name, line: print(f"{name}: {line}"))
        supervisor.start()
        stack.callback(supervisor.stop)

        def settled() -> bool:
            return all(world.states(name, world.submitted[name]) == {"delivered"} for name in "ab")

        def uses(number: int) -> bool:
            """Both hubs' workers read from this server: their Celery's queue, and what is handed over to them."""
            clients = known.server(number).client_list()
            return {(one["cmd"].upper(), one["db"]) for one in clients} >= {
                (command, database) for command in ("BRPOP", "BLPOP") for database in ("2", "3")
            }

        names = [f"{hub}-{name}" for hub in "ab" for name in ("web", "worker", "beat")]
        before = [supervisor.pids(name)[0] for name in names]
        world.send(4)
        eventually(settled, WITHIN)
        eventually(lambda: uses(0), WITHIN)
        eventually(lambda: all("broker" not in parts(hub) for hub in hubs), WITHIN)
        known.kill()
        world.send(4)
        eventually(settled, WITHIN)
        eventually(lambda: known.primary() == known.ports[1], WITHIN)
        world.send(4)
        eventually(lambda: uses(1), WITHIN)
        eventually(lambda: all("broker" not in parts(hub) for hub in hubs), WITHIN)
        world.send(4)
        eventually(settled, WITHIN)
        eventually(lambda: set(world.effects()) == {*world.submitted["a"], *world.submitted["b"]}, WITHIN)
        assert set(world.effects().values()) == {1}
        assert [supervisor.pids(name)[0] for name in names] == before, "nobody was started again"
        assert verdict.contradictions({hub.name: hub.database_url for hub in hubs}) == []
