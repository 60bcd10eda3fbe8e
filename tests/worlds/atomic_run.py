"""Sends documents into atomic transactions, kills whoever takes part, and judges: everywhere or nowhere.

The judge reads the files of the applications and the database of the hub with plain SQL, apart from what it judges.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from email.utils import formatdate
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import urllib3

from messaging.demo.databases import Log
from messaging.demo.exchange import Document, documents
from rmhub.supervisor import Supervisor
from tests.worlds.atomic import Ring

SENDERS = 4
LONG = 50  # documents: a run of so many has time for more kills
_OPEN = ("waiting", "running")


@dataclass(frozen=True, slots=True)
class Seen:
    """What one application's file says: outcome by Identifier, effects as (document id, Identifier), what is open."""

    ended: Mapping[str, str]
    effects: tuple[tuple[str, str], ...]
    open: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known at one moment. `phases`: by Identifier; `deliveries`: the state of each by document id."""

    phases: Mapping[str, str]
    deliveries: Mapping[str, str]
    incidents: int
    seen: Mapping[str, Seen] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of all transactions.

    `committed_in_part` is the broken promise: an application did what another one, or the hub, did not. `in_doubt` are
    transactions that are open, at the hub or in an application. `documents_in_part` have their effect in some
    applications and not in others, or twice; an application that voted "read only" needs to have none.
    """

    transactions: int
    committed: int
    aborted: int
    committed_in_part: int
    in_doubt: int
    voted_read_only: int
    documents_completed: int
    documents_failed: int
    documents_in_doubt: int
    documents_open: int
    documents_in_part: int
    incidents: int

    @property
    def settled(self) -> bool:
        return not (self.in_doubt or self.documents_open)

    @property
    def promises_kept(self) -> bool:
        return not (self.committed_in_part or self.documents_in_part or self.documents_in_doubt)


def run(
    ring: Ring,
    supervisor: Supervisor,
    *,
    transactions: int,
    kill: bool,
    seed: int,
    patience: float,
    log: Log = lambda line: None,
) -> dict[str, Any]:
    """The result, as `manage.py demo --atomic` prints it. `patience`: seconds after which it gives up waiting."""
    begun = time.monotonic()
    until = begun + patience
    log(f"sending {transactions} documents, each for all three applications or for none")
    killer = _Killer(ring, supervisor, seed, growth=1.15 if transactions >= LONG else 1.4, log=log)
    known = documents()
    accepted: list[bool] = []
    with ThreadPoolExecutor(SENDERS) as pool:
        for portion in _portions(transactions, len(killer.first) + 1 if kill else 1):
            accepted += pool.map(lambda number: send(ring, known[number % len(known)], until), portion)
            if kill and killer.first:
                killer.kill_first(until)
    with killer.roaming() if kill else nullcontext():
        while time.monotonic() < until:
            found = judge(facts(ring))
            done = found.documents_completed + found.documents_failed + found.documents_in_doubt
            log(f"{done} of {transactions} documents are through, in {found.transactions} transactions")
            if done >= transactions:
                break
            time.sleep(0.5)
    log("everything is up again: waiting for what is still under way")
    while not (found := judge(facts(ring))).settled and time.monotonic() < until:
        time.sleep(0.5)
    kept = found.promises_kept and found.settled and all(accepted)
    through = found.documents_completed + found.documents_failed
    return {
        "documents": sum(accepted),
        **asdict(found),
        "killed": dict(killer.killed),
        "seconds": round(time.monotonic() - begun, 1),
        "promises_kept": kept and through == transactions,
    }


def send(ring: Ring, document: Document, until: float) -> bool:
    """Sends one document, again and again under the same id until it is taken. Whether it was."""
    headers = {
        **urllib3.make_headers(basic_auth=":".join(ring.login)),
        "Repeatability-Request-ID": str(uuid.uuid4()),
        "Repeatability-First-Sent": formatdate(usegmt=True),
        "Content-Type": "application/octet-stream",
        "RM-Service": document.service,
        "RM-Action": document.action,
    }
    wait = 0.05
    while time.monotonic() < until:
        try:
            answer = urllib3.request(
                "POST", ring.address, body=document.content, headers=headers, retries=False, timeout=10
            )
            if answer.status < 300:
                return True
            if answer.status < 500 and answer.status not in (409, 429):
                raise RuntimeError(f"HTTP {answer.status}: {answer.data[:500].decode(errors='replace')}")
        except urllib3.exceptions.HTTPError:
            pass  # the hub is down: the same again
        time.sleep(wait)
        wait = min(2 * wait, 1.0)
    return False


def facts(ring: Ring) -> Facts:
    """What the hub's database and the applications' files say now."""
    with psycopg.connect(ring.hub.database_url) as hub:
        phases: dict[str, str] = dict(hub.execute("SELECT identifier, phase FROM messaging_coordination").fetchall())
        deliveries: dict[str, str] = dict(
            hub.execute("SELECT document_id, state FROM messaging_delivery WHERE resubmission_of_id IS NULL").fetchall()
        )
        row = hub.execute("SELECT count(*) FROM messaging_incident WHERE coordination_id IS NOT NULL").fetchone()
    seen = {name: read(path) for name, path in ring.files.items()}
    return Facts(phases, deliveries, int(row[0]) if row else 0, seen)


def read(path: Path) -> Seen:
    """What an application has written down."""
    with closing(sqlite3.connect(path, timeout=30)) as file:
        ended: dict[str, str] = {}
        for identifier, outcome in file.execute("SELECT identifier, outcome FROM ended ORDER BY rowid"):
            if ended.get(identifier) != "committed":
                ended[identifier] = outcome
        effects = tuple(file.execute("SELECT document_id, identifier FROM effect").fetchall())
        (open_,) = file.execute("SELECT count(*) FROM taking").fetchone()
    return Seen(ended, effects, open_)


def judge(found: Facts) -> Verdict:
    """The verdict of what is known."""
    phases, seen = found.phases, found.seen
    ended = Counter(phases.values())
    states = Counter(found.deliveries.values())
    open_here = sum(count for phase, count in ended.items() if phase not in ("committed", "aborted"))
    return Verdict(
        transactions=len(phases),
        committed=ended["committed"],
        aborted=ended["aborted"],
        committed_in_part=sum(_is_in_part(phase, identifier, seen) for identifier, phase in phases.items()),
        in_doubt=open_here + sum(one.open for one in seen.values()),
        voted_read_only=sum(outcome == "read_only" for one in seen.values() for outcome in one.ended.values()),
        documents_completed=states["completed"],
        documents_failed=states["failed"],
        documents_in_doubt=states["in_doubt"],
        documents_open=sum(states[state] for state in _OPEN),
        documents_in_part=sum(_has_part(state, key, found) for key, state in found.deliveries.items()),
        incidents=found.incidents,
    )


def _is_in_part(phase: str, identifier: str, seen: Mapping[str, Seen]) -> bool:
    """Whether somebody did something else than the coordinator decided. Of an open one nothing can be said yet."""
    outcomes = [one.ended.get(identifier) for one in seen.values()]
    if phase == "committed":
        return any(outcome not in ("committed", "read_only") for outcome in outcomes)
    return phase == "aborted" and "committed" in outcomes


def _has_part(state: str, document_id: str, found: Facts) -> bool:
    """Whether the effects of a document that is through are not what its state says."""
    if state not in ("completed", "failed"):
        return False
    for one in found.seen.values():
        effects = [identifier for key, identifier in one.effects if key == document_id]
        if len(effects) > 1 or (state == "failed" and effects):
            return True
        others = _effects_elsewhere(document_id, found)
        if state == "completed" and not effects and others and not _was_read_only(one, others):
            return True
    return False


def _effects_elsewhere(document_id: str, found: Facts) -> set[str]:
    made: dict[str, set[str]] = defaultdict(set)
    for one in found.seen.values():
        for key, identifier in one.effects:
            made[key].add(identifier)
    return made[document_id]


def _was_read_only(one: Seen, identifiers: set[str]) -> bool:
    return any(one.ended.get(identifier) == "read_only" for identifier in identifiers)


def _portions(total: int, count: int) -> list[range]:
    """The numbers from 0 to `total` in `count` runs that differ in length by one at most."""
    bounds = [total * number // count for number in range(count + 1)]
    return [range(*pair) for pair in pairwise(bounds)]


class _Killer:
    """Kills the applications, the web server and the worker -9; the supervisor starts them again.

    One of each kind is killed just after a portion of the documents was handed over, however fast the machine is, so
    that the smallest run shows all and the kills hit transactions that are under way. Then whoever it may be, again and
    again; the pauses grow, so that a slow machine gets done too.
    """

    def __init__(self, ring: Ring, supervisor: Supervisor, seed: int, *, growth: float, log: Log) -> None:
        self._chance = random.Random(seed)
        self._ring, self._supervisor, self._growth, self._log = ring, supervisor, growth, log
        self.victims = ring.victims()
        self.first = [self._chance.choice(self.victims[:3]), "hub-web", "hub-worker"]
        self.killed: Counter[str] = Counter()
        self._last = ""

    def kill_first(self, until: float) -> None:
        """Kills the next of `first`, when transactions are under way; gives up at `until` (time.monotonic())."""
        while not facts(self._ring).phases and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(self._chance.uniform(0.0, 0.5))
        victim = self.first.pop()
        while not self._kill(victim) and time.monotonic() < until:
            time.sleep(0.1)

    @contextmanager
    def roaming(self) -> Iterator[None]:
        """Kills again and again until the block ends."""
        stop = threading.Event()

        def roam() -> None:
            while not stop.wait(self._chance.uniform(2.0, 4.0) * self._growth ** self.killed.total()):
                # Not the same again: it may just be starting, and then that shows nothing.
                self._kill(self._chance.choice([one for one in self.victims if one != self._last]))

        thread = threading.Thread(target=roam, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _kill(self, victim: str) -> bool:
        if not self._supervisor.kill(victim):
            return False
        self._last = victim
        self.killed[victim] += 1
        self._log(f"killed {victim}")
        return True
