"""The database's primary is killed under traffic and a standby takes over; or it is recovered to a moment of the past.

With synchronous replication nothing is lost. Without it, what is missing is marked by the hub itself as after a
restore, and one action brings all pairs back. Real servers, real hubs; no process of a hub is started again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psycopg
import pytest

from messaging.demo import effects, exchange, verdict
from messaging.demo.databases import broker_databases, own_databases, servers
from messaging.demo.seeding import tpa_id
from messaging.demo.stage import Link, Parameters, Receiving, Stage, set_up
from rmhub import embedded
from rmhub.embedded.identity import make_private, servers_identity
from rmhub.hubs import Hub, free_ports
from rmhub.supervisor import Supervisor
from rmhub_client import Problem
from tests import ROOT
from tests.acceptance.test_restore import EVIDENCE, WITHIN, Running, World, manage, operator, restore, take
from tests.clusters import Server, either, primary, standby_of
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.acceptance

PAIRS = 2
WAITING = 16  # documents that may be under way
DATABASES = ("failover_a", "failover_b")
PROCESSES = ("web", "worker", "beat")


@dataclass
class Cluster:
    """Two servers, and the stage whose hubs know both: all of them, or only the buyer's."""

    first: Server
    second: Server
    stage: Stage
    supervisor: Supervisor
    accepted: dict[str, set[str]] = field(default_factory=lambda: {"a": set(), "b": set()})

    def fail_over(self) -> None:
        self.first.kill()
        self.second.promote()

    @contextmanager
    def traffic(self) -> Iterator[None]:
        """Each pair is given one document after the other, in both directions, as far as the hubs keep up."""
        over = threading.Event()

        def run(hub: str, agreement: str) -> None:
            known = exchange.documents()
            while not over.is_set():
                if sum(map(len, self.accepted.values())) > self.done() + WAITING:
                    over.wait(0.05)
                    continue
                errand = exchange.Errand(hub, agreement, known[len(self.accepted[hub]) % len(known)])
                with suppress(Problem):
                    self.accepted[hub] |= exchange.submit(self.stage, [errand])[1]

        threads = [
            threading.Thread(target=run, args=(hub, tpa_id(number + 1))) for hub in "ab" for number in range(PAIRS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def done(self) -> int:
        """How many documents have had their effect in the application."""
        return len(World(self.stage).effects())

    def ends_well(self) -> None:
        """All that was accepted is delivered, once and in order, and the rows keep the invariants."""
        a, b = self._urls()
        total = len(self.accepted["a"]) + len(self.accepted["b"])

        def judged() -> verdict.Verdict:
            return verdict.judge([(a, b, self.accepted["a"]), (b, a, self.accepted["b"])])

        # One whose answer never came may be there as well, under its own id.
        eventually(lambda: judged().completed >= total and not verdict.unfinished({"a": a, "b": b}), WITHIN)
        eventually(lambda: effects.judge([a, b], self.stage.effects).effects_once == judged().delivered, WITHIN)
        found, applied = judged(), effects.judge([a, b], self.stage.effects)
        assert (found.delivered_twice, found.lost, found.out_of_order) == (0, 0, 0)
        assert (found.suspended, found.messages_in_doubt) == (0, 0)
        assert (applied.effects_twice, applied.effects_missing, applied.in_doubt) == (0, 0, 0)
        assert verdict.contradictions({"a": a, "b": b}) == []

    def _urls(self) -> list[str]:
        return [self.stage.buyer.database_url, self.stage.seller.database_url]

    def pids(self) -> dict[str, int]:
        """Who does the hubs' work: the first process of each."""
        return {f"{hub}-{name}": self.supervisor.pids(f"{hub}-{name}")[0] for hub in "ab" for name in PROCESSES}


def staged(stack: ExitStack, first: Server, folder: Path, *, apart: bool, link: Link | None = None) -> Stage:
    """Two hubs on the server, not started. `apart`: only the buyer's; the seller's database is elsewhere."""
    _, elsewhere, redis_url = stack.enter_context(servers(None, print))
    stage = set_up(
        database_url=first.url(),
        redis_url=redis_url,
        var=folder / "var",
        link=link or Link(),
        parameters=Parameters(agreements=PAIRS),
        ports=tuple(free_ports(2)),  # type: ignore[arg-type]
        databases=DATABASES,
        redis_numbers=stack.enter_context(broker_databases(redis_url)),  # type: ignore[arg-type]
        receiving=Receiving(resolver=True),
        console=False,
        fresh=True,
    )
    if apart:
        dump = folder / "seller.dump"
        take(stage.seller, dump)
        (other,) = stack.enter_context(own_databases(elsewhere, ("b",)))
        stage.seller = replace(stage.seller, database_url=embedded.database_url(elsewhere, other))
        restore(stage.seller, dump)
    return stage


@contextmanager
def cluster(*, synchronous: bool, apart: bool = False, link: Link | None = None) -> Iterator[Cluster]:
    """Hubs, or only the buyer's, on a primary with its standby."""
    with ExitStack() as stack:
        first, folder = stack.enter_context(primary())
        stage = staged(stack, first, folder, apart=apart, link=link)
        second = stack.enter_context(standby_of(first, folder, synchronous=synchronous))
        stage.buyer = replace(stage.buyer, database_url=either(first, second, DATABASES[0]))
        if not apart:
            stage.seller = replace(stage.seller, database_url=either(first, second, DATABASES[1]))
        supervisor = Supervisor(stage.processes(), output=lambda name, line: print(f"{name}: {line}"))
        supervisor.start()
        stack.callback(supervisor.stop)
        yield Cluster(first, second, stage, supervisor)


def test_with_synchronous_replication_a_failover_loses_nothing() -> None:
    with cluster(synchronous=True, link=Link(drop=0.1, duplicate=0.1)) as made:
        before = made.pids()
        with made.traffic():
            eventually(lambda: made.done() >= 8, WITHIN)
            made.fail_over()
            count = made.done()
            eventually(lambda: made.done() >= count + 8, WITHIN)
        made.ends_well()
        assert made.pids() == before, "nobody was started again"
        for name in "ab":
            seen = World(made.stage)
            assert not seen.ask(name, "SELECT 1 FROM messaging_incident WHERE cause IN ('memory_lost', 'needs_resync')")
        manage(made.stage.buyer, "check_invariants")


def test_without_it_what_is_missing_is_marked_and_repaired_as_after_a_restore() -> None:
    with cluster(synchronous=False, apart=True) as made:
        before, world = made.pids(), World(made.stage)
        world.send(3)
        settled(world)
        ((so_far,),) = made.first.ask("SELECT pg_current_wal_lsn()::text")
        reached = "SELECT 1 FROM pg_stat_replication WHERE replay_lsn >= %s"
        eventually(lambda: made.first.ask(reached, so_far), WITHIN)
        # The standby hears nothing more: as when the line between the two breaks a moment before.
        made.second.set("primary_conninfo", "")
        eventually(lambda: not made.first.ask("SELECT 1 FROM pg_stat_replication"), WITHIN)
        lost = world.send(4)
        settled(world)
        made.fail_over()

        eventually(lambda: marked(made.stage.buyer, world), WITHIN)
        assert not marked(made.stage.seller, world), "it was not its database"
        assert world.states("a", lost["a"]) == {"gone"}, "the test shows too little"
        assert len(world.ask("a", "SELECT 1 FROM messaging_incident WHERE cause = 'memory_lost'")) == 1
        repaired(world)
        assert made.pids() == before, "nobody was started again"


@pytest.mark.long
def test_a_mistake_is_undone_by_a_recovery_to_the_moment_before_it() -> None:
    """With the settings of docs/operations.md, and what it says that follows."""
    archiving, recovering = recipe()
    with ExitStack() as stack:

        def settings(folder: Path) -> dict[str, str]:
            make_private(folder / "wal", servers_identity())
            return {name: value.replace(ARCHIVE, str(folder / "wal")) for name, value in archiving.items()}

        first, folder = stack.enter_context(primary(settings))
        stage = staged(stack, first, folder, apart=True)
        assert stage.application is not None
        others = Supervisor([stage.link, stage.application, *stage.seller.processes(prefix="b-")])
        others.start()
        stack.callback(others.stop)
        buyer, world = Running(stage.buyer.processes(prefix="a-")), World(stage)
        buyer.start()
        stack.callback(buyer.stop)
        world.send(2)
        settled(world)
        recovered = first.base_backup(folder / "recovered", "--wal-method=stream")
        kept = world.send(3)
        settled(world)
        ((moment,),) = first.ask("SELECT clock_timestamp()::text")
        lost = world.send(3)
        settled(world)
        with psycopg.connect(stage.buyer.database_url, autocommit=True) as connection:
            connection.execute("DROP TABLE messaging_delivery CASCADE")  # the mistake
        buyer.stop()
        ((last,),) = first.ask("SELECT pg_walfile_name(pg_switch_wal())")
        eventually(lambda: first.ask("SELECT 1 FROM pg_stat_archiver WHERE last_archived_wal >= %s", last), WITHIN)
        first.kill()

        stack.callback(recovered.stop)
        target = {**recovering, "recovery_target_time": moment}
        replaced = {name: value.replace(ARCHIVE, str(folder / "wal")) for name, value in target.items()}
        recovered.recover(first.port, {**first.settings, **replaced})
        assert "pairs need resync" in manage(stage.buyer, "after_restore")
        assert world.states("a", kept["a"]) == {"delivered"}, "it came before the moment"
        assert world.states("a", lost["a"]) == {"gone"}, "it came after the moment"
        assert marked(stage.buyer, world)
        buyer.start()
        repaired(world)


ARCHIVE = "/srv/wal"
_SETTING = re.compile(r"^\s*(\w+) = '?(.*?)'?$", re.MULTILINE)


def recipe() -> tuple[dict[str, str], dict[str, str]]:
    """The settings for archiving and for a recovery, as docs/operations.md has them."""
    section = (ROOT / "docs" / "operations.md").read_text().partition("### Point-in-time recovery")[2]
    blocks = re.findall(r"```ini\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    archiving, recovering = (dict(_SETTING.findall(block)) for block in blocks)
    assert archiving["archive_mode"] == "on" and recovering["recovery_target_action"] == "promote"
    return archiving, recovering


def settled(world: World) -> None:
    """Everything that was submitted has arrived, and had its effect."""
    for name in "ab":
        eventually(lambda name=name: world.states(name, world.submitted[name]) == {"delivered"}, WITHIN)  # type: ignore[misc]
    eventually(lambda: set(world.effects()) >= {*world.submitted["a"], *world.submitted["b"]}, WITHIN)


def marked(hub: Hub, world: World) -> bool:
    """Whether all pairs of the hub need resync."""
    found = world.ask(hub.name, "SELECT resync_since IS NOT NULL FROM messaging_pair")
    return bool(found) and all(row[0] for row in found)


def repaired(world: World) -> None:
    """Traffic goes on in both directions, one action clears all pairs of the buyer, and nothing came twice."""

    def go_on() -> None:
        new = world.send(3)
        for name in "ab":
            eventually(lambda name=name: world.states(name, new[name]) == {"delivered"}, WITHIN)  # type: ignore[misc]

    go_on()
    everywhere = {"action": "pairs_clear_resync", "filter": {"resync": "true"}, "reason": EVIDENCE}
    assert operator(world.stage.buyer).post("/bulk-operations", everywhere)["matched"] == 2 * PAIRS
    eventually(lambda: not world.ask("a", "SELECT 1 FROM messaging_pair WHERE resync_since IS NOT NULL"), WITHIN)
    go_on()
    expected = {*world.submitted["a"], *world.submitted["b"]}
    eventually(lambda: set(world.effects()) == expected, WITHIN)
    assert set(world.effects().values()) == {1}, "processed twice"
    hubs = (world.stage.buyer, world.stage.seller)
    assert verdict.contradictions({hub.name: hub.database_url for hub in hubs}) == []
