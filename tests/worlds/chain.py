"""A chain of real hubs on this machine: sender, routers, receiver, and a bad link between each two.

Used by `manage.py demo --hops` and the acceptance tests.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from messaging.choices import RouteMode
from messaging.demo.databases import Log, broker_databases, own_databases, redis_database, servers
from messaging.demo.stage import Link, each, make_databases, new_hub
from rmhub import embedded
from rmhub.hubs import Hub, free_ports, link_process
from rmhub.supervisor import Process, Supervisor
from rmhub_client import Client
from tests.worlds.chain_seeding import HopPlan, Neighbour, sides

# Several hubs share the machine and one database server: each has fewer threads than a hub that is alone.
_THREADS = 8
_SETTINGS = {"RMHUB_SEND_THREADS": "8", "RMHUB_DELIVER_THREADS": "2"}


@dataclass(frozen=True, slots=True)
class Chain:
    """Hubs that are set up, from the sender to the receiver. `token` is for the sender's API."""

    hubs: tuple[Hub, ...]
    link: Process
    token: str

    @property
    def sender(self) -> Hub:
        return self.hubs[0]

    @property
    def receiver(self) -> Hub:
        return self.hubs[-1]

    @property
    def routers(self) -> tuple[Hub, ...]:
        return self.hubs[1:-1]

    def client(self) -> Client:
        """An API client of the sender."""
        return Client(self.sender.url, self.token, timeout=10, patience=600)

    def processes(self) -> list[Process]:
        """Everything that has to run, in order."""
        return [self.link, *(process for hub in self.hubs for process in hub.processes(prefix=f"{hub.name}-"))]

    def kill(self, supervisor: Supervisor, hub: Hub) -> list[str]:
        """Kills all processes of a hub (signal 9); the supervisor brings them back. Returns their names."""
        names = [process.name for process in hub.processes(prefix=f"{hub.name}-")]
        return [name for name in names if supervisor.kill(name)]


def set_up(
    *,
    database_url: str,
    redis_url: str,
    var: Path,
    hops: int,
    mode: str,
    link: Link,
    databases: Sequence[str],
    redis_numbers: Sequence[int],
    log: Log = lambda line: None,
) -> Chain:
    """Makes databases, tables, parties, agreements and routes of `hops` + 1 hubs.

    Raises subprocess.CalledProcessError when a step fails (its output is on stderr).
    """
    count = hops + 1
    ports = free_ports(count + 2 * hops)
    hubs = tuple(
        new_hub(
            name,
            title=side.name,
            database_url=embedded.database_url(database_url, database),
            redis_url=redis_database(redis_url, number),
            var=var / name,
            port=port,
            settings=_SETTINGS,
            threads=_THREADS,
        )
        for name, side, port, database, number in zip(
            "abcdefgh"[:count], sides(hops), ports[:count], databases, redis_numbers, strict=True
        )
    )
    # Between the hubs n and n + 1: the port that leads forward, and the one that leads back.
    forward, back = ports[count : count + hops], ports[count + hops :]
    targets = {port: hubs[place + 1].port for place, port in enumerate(forward)}
    targets |= {port: hubs[place].port for place, port in enumerate(back)}
    shown = [(secrets.token_urlsafe(24), secrets.token_urlsafe(24)) for _ in range(hops)]
    plans = {
        hub.name: HopPlan(
            place=place,
            hops=hops,
            mode=mode,
            before=_neighbour(back[place - 1], shown[place - 1]) if place else None,
            after=_neighbour(forward[place], shown[place][::-1]) if place < hops else None,
        )
        for place, hub in enumerate(hubs)
    }
    log(f"creating tables, partners and routes in {count} hubs")
    make_databases(database_url, databases, hubs, fresh=True)
    outputs = each(
        hubs,
        lambda hub: hub.manage("seed_demo", "--json", "--chain"),
        lambda hub: json.dumps(asdict(plans[hub.name])),
    )
    return Chain(
        hubs=hubs,
        link=link_process(targets, drop=link.drop, duplicate=link.duplicate, delay_ms=link.delay_ms, seed=link.seed),
        token=json.loads(outputs[0])["token"],
    )


def _neighbour(port: int, shown: Sequence[str]) -> Neighbour:
    secret_in, secret_out = shown
    return Neighbour(f"http://127.0.0.1:{port}", secret_in, secret_out)


def read_plan(text: str) -> HopPlan:
    """The plan of one hub as `set_up` writes it for `manage.py seed_demo --chain`. Raises ValueError, TypeError."""
    values = json.loads(text)
    for name in ("before", "after"):
        values[name] = Neighbour(**values[name]) if values[name] else None
    return HopPlan(**values)


@contextmanager
def running(
    *, hops: int, link: Link, mode: str = RouteMode.STORE_FORWARD, log: Log = lambda line: None
) -> Iterator[tuple[Chain, Supervisor]]:
    """The chain, set up in databases of its own and running; everything is removed at the end.

    Its servers are those of DATABASE_URL and REDIS_URL, or embedded ones in a folder of their own.
    """
    with ExitStack() as stack:
        var, database_url, redis_url = stack.enter_context(servers(None, log))
        names = "abcdefgh"[: hops + 1]
        chain = set_up(
            database_url=database_url,
            redis_url=redis_url,
            var=var,
            hops=hops,
            mode=mode,
            link=link,
            databases=stack.enter_context(own_databases(database_url, names)),
            redis_numbers=stack.enter_context(broker_databases(redis_url, hops + 1)),
            log=log,
        )
        supervisor = Supervisor(
            chain.processes(), output=lambda name, line: log(f"{name}: {line}"), restarts_per_minute=120
        )
        log(f"starting {len(chain.hubs)} hubs and the links between them")
        supervisor.start()
        stack.callback(supervisor.stop)
        yield chain, supervisor
