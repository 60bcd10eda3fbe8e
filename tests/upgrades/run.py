"""A rolling upgrade under traffic: what happens, what is looked at, and what became of the documents.

The hub that is upgraded is behind a balancer. Today's code makes its tables; then the earlier code works on them alone,
then both, then today's alone, and bears the migration of a release to come. A partner's hub with today's code is at the
other end of a link that loses and repeats.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import psycopg

from messaging.demo import effects, exchange, verdict
from messaging.demo.databases import broker_databases, own_databases, servers
from messaging.demo.seeding import tpa_id
from messaging.demo.stage import Link, Parameters, Receiving, Stage, set_up
from rmhub.hubs import Hub, free_ports
from rmhub.supervisor import Process, StartFailed, Supervisor
from rmhub_client import Client, NoAnswer, Problem
from tests.deploy.balancer import NAME, Balancer, balancer
from tests.rmhub.conditions import eventually
from tests.upgrades.revision import TODAY, Code

Log = Callable[[str], None]
PROFILES = ("ebxml", "stream", "repeatable")
AGREEMENTS = len(PROFILES)  # a pair each way for each
WAITING = 16  # documents that may be under way
SHARE = 3  # what each web server and worker has to do while both codes run, at least
WITHIN = 600.0  # seconds; far more than anything here takes
PAUSE = 0.25  # seconds between two documents of one pair: others need the machine, too
PATIENCE = 30.0  # seconds for which a submission is repeated that is answered "later"
SHOWN = 5  # lines of the log that are shown of a process
SETTINGS = {
    "RMHUB_ALLOWED_HOSTS": f"{NAME},127.0.0.1",
    "RMHUB_TRUSTED_PROXIES": "127.0.0.1/32",
    "RMHUB_DRAIN_SECONDS": "4",
    "RMHUB_LOG_LEVEL": "WARNING",
}
# The last line of a traceback; and what a busy machine, a bad link and processes that end bring about.
_RAISED = re.compile(r"[\w.]*(?:Error|Exception|Violation|Undefined\w+)\b")
_AWAY = re.compile(r"[\w.]*(?:OSError|Operational|Interface|Connect|Timeout|BrokenPipe|Protocol|MaxRetry)\w*")


@dataclass(frozen=True, slots=True)
class Phase:
    """Some time in which the same processes ran, or were exchanged. `documents`: applied meanwhile."""

    name: str
    documents: int
    seconds: float


@dataclass(slots=True)
class Found:
    """`served`: requests by web server; `sent`: transmissions by worker; `judged`: what both judges say at the end;
    `broken`: what must not be.
    """

    old: str
    new: str = TODAY.name
    seconds: float = 0.0
    phases: list[Phase] = field(default_factory=list)
    submitted: int = 0
    served: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    judged: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


# As long as `migrate` does; partitions get it from their table.
_WAIT_FOR_LOCKS = "SET lock_timeout = '5s'"
_TABLES = """
SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
    AND relnamespace = 'public'::regnamespace AND relname ~ '^(messaging|partners)_' ORDER BY 1
"""


def _added(database: psycopg.Connection, table: str) -> bool:
    """Whether the table got the column; not if somebody else held it all the time."""
    with suppress(psycopg.errors.LockNotAvailable):
        database.execute(f"ALTER TABLE {table} ADD COLUMN of_a_later_release text".encode())
        return True
    return False


class Broken(Exception):
    """There is no sense in going on."""


@dataclass
class Said:
    """What the hubs' processes say of exceptions, by process; each line once. The link and the application, which
    nobody upgrades, may complain of whoever ends.
    """

    log: Log
    raised: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def __call__(self, name: str, line: str) -> None:
        self.log(f"{name}: {line}")
        is_hub = name.startswith(("old-", "new-", "b-"))
        if is_hub and _RAISED.match(line) and not _AWAY.match(line) and line not in self.raised[name]:
            self.raised[name].append(line)

    def lines(self) -> list[str]:
        return [f"{name} says: {line[:500]}" for name, said in list(self.raised.items()) for line in said[:SHOWN]]


@dataclass
class Upgrade:
    """The stage, and the processes of the hub that is upgraded: `old-web`, `new-worker` ..."""

    stage: Stage
    balancer: Balancer
    said: Said
    found: Found
    documents: int  # from each hub in each phase, at least
    running: dict[str, Supervisor] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    workers: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    accepted: dict[str, set[str]] = field(default_factory=lambda: {"a": set(), "b": set()})
    refused: list[str] = field(default_factory=list)

    @property
    def urls(self) -> tuple[str, str]:
        return self.stage.buyer.database_url, self.stage.seller.database_url

    def start(self, processes: Sequence[Process]) -> None:
        """Each under a supervisor of its own, so that it can be stopped alone. Raises Broken."""
        for process in processes:
            started = Supervisor([process], output=self.said, name=process.name, restarts_per_minute=None)
            try:
                started.start()
            except StartFailed as error:
                self.found.broken.append(str(error))
                raise Broken from None
            self.running[process.name] = started

    def expand(self) -> None:
        """Add a column to each table, as the migration of the next release may: nobody who works now knows of it."""
        with psycopg.connect(self.urls[0], autocommit=True) as database:
            database.execute(_WAIT_FOR_LOCKS)
            for (table,) in database.execute(_TABLES).fetchall():
                self.until(partial(_added, database, table), f"{table} gets a column")

    def stop(self, name: str) -> None:
        self.running.pop(name).stop()

    def stop_all(self) -> None:
        for name in reversed(list(self.running)):
            self.stop(name)

    @contextmanager
    def traffic(self) -> Iterator[None]:
        """Each pair is given one document after the other, in both directions, as far as the hubs keep up."""
        over = threading.Event()
        lanes = [
            threading.Thread(target=self._lane, args=(over, hub, number))
            for hub in (self.stage.buyer, self.stage.seller)
            for number in range(AGREEMENTS)
        ]
        for lane in lanes:
            lane.start()
        try:
            yield
        finally:
            over.set()
            for lane in lanes:
                lane.join()

    def _lane(self, over: threading.Event, hub: Hub, number: int) -> None:
        known = exchange.documents()
        mine = 0

        def pause(seconds: float) -> None:
            if over.wait(seconds):
                raise Broken  # nobody waits any more for what this lane would repeat

        told = self.stage.tokens[hub.name]
        with closing(Client(hub.url, told, timeout=120, patience=PATIENCE, sleep=pause)) as client, suppress(Broken):
            while not over.is_set():
                pause(PAUSE)
                if sum(map(len, self.accepted.values())) > effects.count(self.stage.effects) + WAITING:
                    continue
                try:
                    document = known[(mine + number) % len(known)]
                    self.accepted[hub.name].add(exchange.hand_over(client, tpa_id(number + 1), document))
                except (Problem, NoAnswer) as error:
                    self.refused.append(f"a document was not taken by hub {hub.name}: {error}"[:500])
                mine += 1

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Returns when enough documents of both hubs were applied in it, and whatever the block waits for."""
        began, before = time.monotonic(), effects.count(self.stage.effects)
        known = {hub: set(ids) for hub, ids in self.accepted.items()}
        yield
        self.until(lambda: all(len(self._applied(hub) - known[hub]) >= self.documents for hub in "ab"), name)
        done = Phase(name, effects.count(self.stage.effects) - before, round(time.monotonic() - began, 1))
        self.found.phases.append(done)
        self.said.log(f"{done.name} - {done.documents} documents in {done.seconds} s")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Returns when it holds. Raises Broken as soon as something is broken, or when the time is over."""
        try:
            eventually(lambda: self.trouble() or condition(), WITHIN)
        except AssertionError:
            left = verdict.unfinished(dict(zip("ab", self.urls, strict=True)))[:SHOWN]
            self.found.broken += [f"not done within {WITHIN:g} s: {what}", *left]
        if self.found.broken or self.trouble():
            raise Broken

    def trouble(self) -> list[str]:
        """What was seen so far that must not be."""
        failed = [f"the balancer was told: {one}" for one in self.balancer.failed if ": 500 " in one]
        return [*self.said.lines(), *self.refused[:SHOWN], *failed[:SHOWN]]

    def _applied(self, hub: str) -> set[str]:
        """Which of the documents that this hub accepted had their effect at the other one's application."""
        with closing(sqlite3.connect(self.stage.effects, timeout=30)) as file:
            return self.accepted[hub] & {one for (one,) in file.execute("SELECT message_id FROM effect")}

    def work(self) -> Counter[str]:
        """What each web server and each worker of the upgraded hub has done so far; it is taken down, too."""
        self.found.served = {name: self.balancer.served[port] for name, port in self.ports.items()}
        with psycopg.connect(self.urls[0]) as database:
            for name, supervisor in self.running.items():
                if name.endswith("-worker"):
                    pids = supervisor.pids(name)
                    rows = database.execute("SELECT number FROM messaging_worker WHERE pid = ANY(%s)", [pids])
                    self.workers[name] |= {number for (number,) in rows}
            for name, numbers in self.workers.items():
                query = "SELECT count(*) FROM messaging_transmission WHERE worker = ANY(%s)"
                (self.found.sent[name],) = database.execute(query, [list(numbers)]).fetchone() or (0,)
        return Counter(self.found.served) + Counter(self.found.sent)

    def all_work(self) -> None:
        """Returns when each of both codes has done something from now on. Raises Broken."""
        before = self.work()

        def done() -> bool:
            now = self.work()
            return all(now[name] - before[name] >= SHARE for name in (*self.ports, *self.workers))

        self.until(done, "each web server and each worker of both has something to do")

    def judge(self) -> None:
        """What became of all that was accepted, when nothing is under way any more. Raises Broken."""
        a, b = self.urls
        total = sum(map(len, self.accepted.values()))

        def sent() -> verdict.Verdict:
            return verdict.judge([(a, b, self.accepted["a"]), (b, a, self.accepted["b"])])

        # One whose answer never came may be there as well, under its own id.
        self.until(
            lambda: sent().completed >= total and not verdict.unfinished({"a": a, "b": b}), "all that was accepted"
        )
        self.until(lambda: not effects.judge([a, b], self.stage.effects).unsettled, "all that was received")
        said, applied = sent(), effects.judge([a, b], self.stage.effects)
        self.found.judged = {**asdict(said), **asdict(applied)}
        wrong = ("delivered_twice", "lost", "out_of_order", "suspended", "messages_in_doubt", "in_doubt", "failed")
        wrong += tuple(name for name in asdict(applied) if name.startswith("effects_") and name != "effects_once")
        self.found.broken += [f"{name}: {self.found.judged[name]}" for name in wrong if self.found.judged[name]]
        self.found.broken += verdict.contradictions({"a": a, "b": b})


def text(found: Found) -> str:
    """The report for people."""
    lines = [f"{found.old} beside {found.new}: {found.submitted} documents in {found.seconds} s"]
    lines += [f"  {one.name}: {one.documents} documents in {one.seconds} s" for one in found.phases]
    lines += [f"  {name} answered {count} requests" for name, count in found.served.items()]
    lines += [f"  {name} sent {count} times" for name, count in found.sent.items()]
    lines += [f"  {name.replace('_', ' ')} {value}" for name, value in found.judged.items()]
    lines += [f"BROKEN: {one}" for one in found.broken] or ["Nothing was lost, doubled or out of order."]
    return "\n".join(lines)


def side_by_side(old: Code, log: Log, *, documents: int = 20, logs: bool = False, spoil: Sequence[str] = ()) -> Found:
    """Runs it; what was found is in what is returned, whatever became of the promises.

    `documents`: from each hub in each phase, at least. `spoil`: SQL that tests have executed in the upgraded hub's
    database after the migrations. Raises Unusable when the old code cannot be run at all.
    """
    found, began = Found(old.name), time.monotonic()

    def milestones(line: str) -> None:
        if logs or ": " not in line:
            log(line)

    with ExitStack() as stack:
        upgrade, of_old, of_new = stack.enter_context(_staged(old, found, documents, milestones))
        for statement in spoil:
            with psycopg.connect(upgrade.urls[0], autocommit=True) as database:
                database.execute(statement.encode())
        with suppress(Broken):
            _upgrade(upgrade, of_old, of_new)
        found.broken += upgrade.trouble()
        found.submitted = sum(map(len, upgrade.accepted.values()))
    found.seconds = round(time.monotonic() - began, 1)
    return found


def _upgrade(upgrade: Upgrade, of_old: Sequence[Process], of_new: Sequence[Process]) -> None:
    """The order of docs/operations.md: the old ones go on after `migrate`; workers are restarted first, then web
    servers, then beat.
    """
    *beside, new_beat = of_new
    upgrade.start(of_old)
    with upgrade.traffic():
        with upgrade.phase("old code alone on the new tables"):
            pass
        with upgrade.phase("old and new code side by side"):
            upgrade.start(beside)
            upgrade.all_work()
        with upgrade.phase("the old processes end, one after the other"):
            for name in ("old-worker", "old-web", "old-beat"):
                upgrade.stop(name)
            upgrade.start([new_beat])
        with upgrade.phase("new code alone, while each table gets a column more"):
            upgrade.expand()
        upgrade.work()
    upgrade.judge()


@contextmanager
def _staged(
    old: Code, found: Found, documents: int, log: Log
) -> Iterator[tuple[Upgrade, list[Process], list[Process]]]:
    """Two hubs on servers of their own, with the partner's running; the processes of the other, in both codes."""
    with ExitStack() as stack:
        proxy = stack.enter_context(balancer())
        var, database_url, redis_url = stack.enter_context(servers(None, log))
        seller, *own = free_ports(3)
        stage = set_up(
            database_url=database_url,
            redis_url=redis_url,
            var=var,
            link=Link(drop=0.1, duplicate=0.1),
            parameters=Parameters(agreements=AGREEMENTS, profile=PROFILES[0], more_profiles=PROFILES[1:], ordered=True),
            ports=(proxy.port, seller),
            databases=stack.enter_context(own_databases(database_url, ("a", "b"))),  # type: ignore[arg-type]
            redis_numbers=stack.enter_context(broker_databases(redis_url)),  # type: ignore[arg-type]
            settings=SETTINGS,
            receiving=Receiving(resolver=True),
            console=False,
            fresh=True,
            log=log,
        )
        made: list[list[Process]] = []
        upgrade = Upgrade(stage, proxy, Said(log), found, documents)
        for number, (name, code) in enumerate((("old", old), ("new", TODAY))):
            machine = replace(stage.buyer.machine(number, own[number]), name=name)
            started = code.processes(machine, prefix=f"{name}-")
            made.append([_patient(process) for process in started])
            upgrade.ports[f"{name}-web"] = own[number]
        proxy.before(own)
        assert stage.application is not None
        partner = [_patient(process) for process in stage.seller.processes(prefix="b-")]
        others = Supervisor([stage.link, stage.application, *partner], output=upgrade.said, restarts_per_minute=None)
        log(f"starting the partner's hub, and {old.name} on the tables of {TODAY.name}")
        others.start()
        stack.callback(others.stop)
        stack.callback(upgrade.stop_all)
        old_ones, new_ones = made
        yield upgrade, old_ones, new_ones


def _patient(process: Process) -> Process:
    """With the time that a busy machine needs; to end, as much as in `deploy/`."""
    return replace(process, ready_within=WITHIN, grace=180.0)
