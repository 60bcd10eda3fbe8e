"""What happens during a soak, what is looked at, and what became of the documents."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from messaging.demo import exchange
from messaging.demo.seeding import tpa_id
from messaging.demo.stage import Link, Parameters, Receiving, Stage, running
from rmhub.hubs import BASE, Hub
from rmhub.supervisor import Supervisor
from tests.benchmarks import machine

Log = Callable[[str], None]
AGREEMENTS = 20  # a pair each way for each
PURGED = 2 * 86_400.0  # seconds after which the store forgets a message
# It is run as if that were over: messages that ended so many seconds ago leave the store.
YOUNG = 60.0
PATIENCE = 600.0  # seconds until everything has to be settled at the end
# What is judged lives through all of it; the other machine of each hub is what fails.
LASTING = ("a-web", "a-worker", "a-beat", "b-web", "b-worker", "b-beat")
FAILING = ("a2-web", "a2-worker", "b2-web", "b2-worker")
# Tables that retention empties; identities and the archive's entries stay, so that nothing is ever delivered twice.
STORE = ("message", "payload", "event", "transmission", "signal", "delivery", "documentstarted")


@dataclass(frozen=True, slots=True)
class Plan:
    """Lengths in seconds. `rate`: documents a second on both hubs together; 0 = half of what they carry."""

    seconds: float
    rate: float = 0.0
    measured: float = 20.0  # how long it is measured what they carry
    fault_every: float = 30.0
    idle: float = 30.0  # how long an idle hub is looked at, before and after
    seed: int = 1

    @property
    def archive_every(self) -> float:
        """Seconds between two runs of the archive."""
        return min(600.0, self.seconds / 3)

    @property
    def sample_every(self) -> float:
        """There are at least thirty looks."""
        return min(30.0, self.seconds / 30)


@dataclass(frozen=True, slots=True)
class Sample:
    """One look. `memory`: MiB by process; `connections`: by hub; `store`: MiB of the tables that retention empties, of
    both hubs; `stored`: messages in them; `handed_over`, `applied`: documents until then; `cpu`: CPU seconds of both
    hubs' lasting processes until then.
    """

    at: float
    memory: dict[str, float]
    connections: dict[str, int]
    store: float
    stored: int
    handed_over: int
    applied: int
    cpu: float


@dataclass(slots=True)
class Soak:
    """`faults`: how often each; `archived`: runs of the archive; `forgotten`: messages that left the stores; `idle`:
    percent of a CPU that a hub uses with nothing to do, before and after; `broken`: promises that were not kept.
    """

    seconds: float
    rate: float
    handed_over: int = 0
    faults: dict[str, int] = field(default_factory=lambda: {"killed": 0, "restarted": 0})
    archived: int = 0
    forgotten: int = 0
    idle: tuple[float, float] = (0.0, 0.0)
    samples: list[Sample] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def soak(plan: Plan, log: Log, *, logs: bool = False) -> Soak:
    """Runs it; what was found is in what is returned, whatever became of the promises."""
    parameters = Parameters(agreements=AGREEMENTS, timeout=20, retry_interval=5)
    silent: Log = log if logs else lambda line: None
    with running(
        link=Link(), parameters=parameters, receiving=Receiving(), machines=2, settings=_SETTINGS, log=silent
    ) as (stage, supervisor):
        for hub in (stage.buyer, stage.seller):
            assert not (said := _manage(hub, "shell", "-c", _POLICY)), said
        load = Load(stage)
        before = _idle(supervisor, plan.idle)
        rate = plan.rate or _carried(load, plan.measured) / 2
        log(f"{rate:.1f} documents/s for {plan.seconds / 60:g} minutes")
        found = Soak(plan.seconds, rate)
        with load.at(rate), _beside(_faults, plan, supervisor, found), _beside(_archive, plan, stage, found, log):
            for sample in _samples(plan, stage, supervisor, load):
                found.samples.append(sample)
                log(_line(sample))
        found.handed_over = len(load.accepted)
        found.broken += _verdict(stage, load)
        found.forgotten = sum(map(_forgotten, (stage.buyer, stage.seller)))
        found.idle = (before, _idle(supervisor, plan.idle))
        return found


# Without the daily runs: whichever hour it is, the archive is asked for here alone.
_SETTINGS = {"RMHUB_LOG_LEVEL": "ERROR", "RMHUB_PIPELINE_DAILY_AT": ""}
_POLICY = """
from messaging.archive.services import retention
from messaging.journal.audit import Actor
retention.policy_change(actor=Actor("soak"), reason="soak", enabled=True, archive_after=1, purge_after=2)
"""


@dataclass(slots=True)
class Load:
    """What hands over documents: one thread for each pair, so that their order is known."""

    stage: Stage
    accepted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @contextmanager
    def at(self, rate: float) -> Iterator[None]:
        """So many documents a second on all pairs together; as many as go if that is 0."""
        over = threading.Event()
        pause = 2 * AGREEMENTS / rate if rate else 0.0
        threads = [
            threading.Thread(target=self._lane, args=(over, hub, number, pause))
            for hub in (self.stage.buyer, self.stage.seller)
            for number in range(AGREEMENTS)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _lane(self, over: threading.Event, hub: Hub, number: int, pause: float) -> None:
        known = exchange.documents()
        over.wait(pause * number / AGREEMENTS)
        due = time.monotonic()
        with closing(self.stage.client(hub)) as client:
            for turn in itertools.count():
                if over.is_set():
                    return
                document = known[(turn + number) % len(known)]
                try:
                    self.accepted.append(exchange.hand_over(client, tpa_id(number + 1), document))
                except Exception as error:  # told with the result; the lane goes on
                    self.refused.append(f"{hub.name}: {error}"[:300])
                due += pause
                over.wait(max(0.0, due - time.monotonic()))


def _carried(load: Load, seconds: float) -> float:
    """Documents a second that both hubs take, pass on and apply when more wait all the time."""
    with load.at(0.0):
        _wait(seconds / 2)
        before, began = _applied(load.stage.effects), time.monotonic()
        _wait(seconds / 2)
        return (_applied(load.stage.effects) - before) / (time.monotonic() - began)


@contextmanager
def _beside(work: Callable[..., None], plan: Plan, *arguments: object) -> Iterator[None]:
    """The work in a thread of its own, until the block ends."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over, plan, *arguments))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _faults(over: threading.Event, plan: Plan, supervisor: Supervisor, found: Soak) -> None:
    """Kills processes of the second machines and asks them to end, as a restart does, in turn; all come back."""
    chance = random.Random(plan.seed)
    for number in itertools.count():
        if over.wait(plan.fault_every):
            return
        name = chance.choice(FAILING)
        if number % 2:
            supervisor.kill(name)
            found.faults["killed"] += 1
        else:
            for pid in supervisor.pids(name):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            found.faults["restarted"] += 1


def _archive(over: threading.Event, plan: Plan, stage: Stage, found: Soak, log: Log) -> None:
    """Has both hubs archive what has ended, and forget it."""
    while not over.wait(plan.archive_every):
        for hub in (stage.buyer, stage.seller):
            argv = [sys.executable, "-m", "tests.soak.later", str(PURGED - YOUNG), "archive"]
            done = subprocess.run(
                argv, env=hub.environment("archive"), cwd=BASE, capture_output=True, text=True, check=False
            )
            if done.returncode:
                found.broken.append(f"the archive of {hub.name} failed: {(done.stdout + done.stderr)[-1000:]}")
            found.archived += 1
            log(f"{hub.name}: {done.stdout.strip()[-300:]}")


def _samples(plan: Plan, stage: Stage, supervisor: Supervisor, load: Load) -> Iterator[Sample]:
    began = time.monotonic()
    for number in itertools.count(1):
        _wait(max(0.0, began + number * plan.sample_every - time.monotonic()))
        yield _look(time.monotonic() - began, stage, supervisor, load)
        if time.monotonic() - began >= plan.seconds:
            return


def _look(at: float, stage: Stage, supervisor: Supervisor, load: Load) -> Sample:
    memory, connections, store, stored = {}, {}, 0.0, 0
    for name in LASTING:
        memory[name] = round(sum(map(_memory, _tree(supervisor, name))), 1)
    for hub in (stage.buyer, stage.seller):
        with psycopg.connect(hub.database_url, application_name="soak") as database:
            size, count, sessions = _one(database.execute(_LOOK, [[f"messaging_{name}" for name in STORE]]))
        store += size / 2**20
        stored += count
        connections[hub.name] = sessions
    roots = {name: pid for name in LASTING for pid in supervisor.pids(name)}
    cpu = sum(used.both for used in machine.trees(roots).values())
    effects = _applied(stage.effects)
    return Sample(at, memory, connections, round(store, 1), stored, len(load.accepted), effects, round(cpu, 2))


_LOOK = """
SELECT (SELECT sum(pg_total_relation_size(name::regclass))::bigint FROM unnest(%s::text[]) AS name),
    (SELECT count(*) FROM messaging_message),
    (SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'rmhub %%'
        AND application_name NOT LIKE '%% archive')
"""


def _one(cursor: psycopg.Cursor[tuple[int, ...]]) -> tuple[int, ...]:
    row = cursor.fetchone()
    assert row is not None
    return row


def _tree(supervisor: Supervisor, name: str) -> Sequence[int]:
    return [pid for root in supervisor.pids(name) for pid in (root, *machine.descendants(root))]


def _memory(pid: int) -> float:
    """MiB that are this process's own (its private and shared-by-fork pages by their share)."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _idle(supervisor: Supervisor, seconds: float) -> float:
    """Percent of a CPU that one hub's lasting processes use while nothing is under way."""
    _wait(seconds / 3)
    roots = {name: pid for name in LASTING for pid in supervisor.pids(name)}
    before, began = machine.trees(roots), time.monotonic()
    _wait(seconds)
    after, spent = machine.trees(roots), time.monotonic() - began
    return round(sum((after[name] - before[name]).both for name in roots) / spent * 100 / 2, 2)


def _applied(effects: Path) -> int:
    with closing(sqlite3.connect(effects, timeout=30)) as file:
        return int(file.execute("SELECT count(*) FROM effect").fetchone()[0])


def _verdict(stage: Stage, load: Load) -> list[str]:
    """Which promises were broken, once nothing is under way any more."""
    accepted = set(load.accepted)
    until = time.monotonic() + PATIENCE
    while missing := accepted - set(applied := _effects(stage.effects)):
        if time.monotonic() > until:
            break
        _wait(1.0)
    found = [f"not handed over: {said}" for said in load.refused]
    if missing:
        found.append(f"{len(missing)} documents were not applied, {sorted(missing)[0]} for one")
    if twice := [document for document, count in applied.items() if count > 1]:
        found.append(f"{len(twice)} documents were applied twice, {twice[0]} for one")
    if strange := set(applied) - accepted:
        found.append(f"{len(strange)} documents were applied that nobody handed over")
    return [*found, *(said for hub in (stage.buyer, stage.seller) if (said := _manage(hub, "check_invariants")))]


def _forgotten(hub: Hub) -> int:
    """Messages that only the archive has."""
    with psycopg.connect(hub.database_url) as database:
        return _one(database.execute("SELECT count(*) FROM messaging_archivedmessage WHERE state = 'archived'"))[0]


def _effects(path: Path) -> Counter[str]:
    with closing(sqlite3.connect(path, timeout=30)) as file:
        return Counter(document for (document,) in file.execute("SELECT document_id FROM effect"))


def _manage(hub: Hub, *arguments: str) -> str:
    """Runs a command of the hub; "" when it did what it was told, else what it said."""
    done = subprocess.run(
        hub.manage(*arguments), env=hub.environment("command"), capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else f"{arguments[0]} of {hub.name}: {done.stdout}{done.stderr}"


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def _line(sample: Sample) -> str:
    return (
        f"{sample.at / 60:6.1f} min  {sample.handed_over:8,} handed over  {sample.stored:8,} stored in"
        f" {sample.store:7.1f} MiB  connections {max(sample.connections.values()):2}"
        f"  memory {sum(sample.memory.values()):6.1f} MiB"
    )
