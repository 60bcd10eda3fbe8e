"""One atomic transaction on a bad network: everywhere or nowhere, and an end, whatever is lost, repeated, or crashes.

A coordinator, two to five participants of both protocols, in a share of the runs one of them a subordinate coordinator
with participants of its own, and an initiator that asks until it is answered. Events come in the order of their times,
and chance from one seed. Every message and every write is judged.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from messaging.protocol.atomic import coordinator
from messaging.protocol.atomic.coordinator import Kind, Transaction
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Seat, Vote
from tests.simulation.atomic_nodes import INITIATOR, Build, CoordinatorNode, Node, P, ParticipantNode, Word
from tests.simulation.workers import Fault, Trouble

D, V = Protocol.DURABLE, Protocol.VOLATILE
EVENTS_TO_HEAL = 4000
PLANS = (P.WORK_PREPARED,) * 22 + (P.WORK_READ_ONLY,) * 4 + (P.WORK_FAILED,)


class Broken(AssertionError):
    """A promise was broken; the text names the seed."""


@dataclass(frozen=True)
class Weather:
    loses: float = 0.0
    repeats: float = 0.0
    delay: float = 0.05
    crash: float = 0.0
    write: float = 0.0


@dataclass
class AtomicWorld:
    """One run; `play` raises Broken. `crash_at`: where, in a calm run, the one crash comes (1 is the first act).
    `fault`: that happens, in a calm run, to the workers of the coordinator, which is a hub.
    """

    seed: int
    build: Build = field(default_factory=Build)
    crash_at: int | None = None
    fault: Fault | None = None

    def __post_init__(self) -> None:
        self.chance = chance = random.Random(self.seed)
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], object]]] = []
        self.count = 0
        self.seen: Counter[str] = Counter()
        self.doubts: set[str] = set()
        self.told: dict[str, set[Note]] = {}
        self.by_person: dict[str, Phase] = {}
        self.recorded = False
        self.outcome: Word | None = None
        self.weather = Weather(
            loses=chance.choice((0, 0.1, 0.3, 0.5)),
            repeats=chance.choice((0, 0.2, 0.5)),
            delay=chance.choice((0.05, 1, 8)),
            crash=chance.choice((0, 0.01, 0.03, 0.08)),
            write=chance.choice((0, 0, 0, 0.1)),
        )
        self.points = 0
        if self.crash_at is not None or self.fault is not None:
            self.weather = Weather()
        self.version = chance.choice(("2004/10", "2006/06"))
        self.root = CoordinatorNode(
            self, "root", rows=chance.random() < 0.5 or self.fault is not None, fragile=chance.choice((0, 0.3, 1, 3))
        )
        self.root.transaction = Transaction(version=self.version)
        self.nodes: dict[str, Node] = {"root": self.root}
        self.participants: list[ParticipantNode] = []
        self.sub: CoordinatorNode | None = None
        self.set_up()

    def set_up(self) -> None:
        chance = self.chance
        self.root.enlist(INITIATOR, Protocol.COMPLETION)
        if chance.random() < 0.3:
            self.root.enlist("own", D, local=True)
        for number in range(chance.randint(2, 5)):
            self.join(f"p{number}", self.root)
        if chance.random() < 0.25:
            self.sub = CoordinatorNode(self, "sub", superior="root")
            self.nodes["sub"] = self.sub
            if self.root.enlist("sub", D):
                self.sub.transaction = Transaction(subordinate=True, version=self.version)
                for number in range(chance.randint(1, 2)):
                    self.join(f"s{number}", self.sub)
        expires = chance.choice((15.0, 60.0, 90.0))
        for node in (self.root, self.sub):
            if node is not None:
                self.expire_at(expires, node)
        self.ask = Note.COMMIT if chance.random() < 0.95 else Note.ROLLBACK
        if chance.random() < 0.95:  # else its program is gone, and only time ends the transaction
            self.later(chance.uniform(0, 6), self.initiate)
        else:
            self.outcome = Note.REPLAY
        if chance.random() < 0.1:
            self.later(chance.uniform(1, 30), self.person)

    def join(self, name: str, above: CoordinatorNode) -> None:
        chance = self.chance
        protocol, plan = chance.choice((D, D, V)), chance.choice(PLANS)
        node = ParticipantNode(self, name, superior=above.name, protocol=protocol, plan=plan)
        self.participants.append(node)
        self.nodes[name] = node
        life = chance.uniform(20, 120)

        def register() -> None:
            if above.enlist(name, protocol):
                node.begin(life)

        late = chance.random() < 0.2
        self.later(chance.uniform(0, 8), register) if late else register()
        if chance.random() < 0.03:
            leaves = chance.choice((P.LEAVE_READ_ONLY, P.LEAVE_ABORTED))
            if plan is not P.WORK_READ_ONLY and leaves is P.LEAVE_READ_ONLY:
                node.plan = P.WORK_READ_ONLY
            self.later(chance.uniform(0, 6), lambda: node.leave(leaves))

    def expire_at(self, seconds: float, node: CoordinatorNode) -> None:
        """A row of a timer: a process that is down sees it later."""

        def expire() -> None:
            if node.up:
                node.alive(lambda: node.feed(coordinator.Event(Kind.EXPIRED)))
            if not node.up:
                self.later(1, expire)

        self.later(seconds, expire)

    def person(self) -> None:
        """Somebody loses patience with one that has voted and waits."""
        outcome = self.chance.choice((Phase.COMMITTED, Phase.ABORTED))
        waiting: list[ParticipantNode | CoordinatorNode] = [*self.participants, *((self.sub,) if self.sub else ())]
        self.chance.shuffle(waiting)
        for one in waiting:
            if one.settle(outcome):
                self.by_person[one.name] = outcome
                self.seen[f"person {outcome}"] += 1
                return
        if self.now < 60:
            self.later(1, self.person)

    # The clock and the network

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, what))

    def send(self, sender: str, to: str, word: Word) -> bool:
        """On its way: late, twice, or never; lost where nobody listens. What the sender hears of that."""
        self.seen[word] += 1
        if word is FaultCode.UNKNOWN_TRANSACTION and self.protocol_of(to) is D:
            self.broken(f"{to} is durable and is told UnknownTransaction")
        chance, weather = self.chance, self.weather
        arrives = chance.random() >= weather.loses
        if arrives:
            self.later(chance.uniform(0, weather.delay), lambda: self.arrive(sender, to, word))
        if chance.random() < weather.repeats:
            self.later(chance.uniform(0, 20 * weather.delay), lambda: self.arrive(sender, to, word))
        return arrives and chance.random() >= weather.loses

    def arrive(self, sender: str, to: str, word: Word) -> None:
        if to == INITIATOR:
            self.answered(word)
        elif self.nodes[to].up:
            self.nodes[to].hear(sender, word)

    def write_fails(self) -> bool:
        return self.chance.random() < self.weather.write

    def protocol_of(self, name: str) -> Protocol | None:
        node = self.nodes.get(name)
        return node.protocol if isinstance(node, ParticipantNode) else D if node is self.sub and node else None

    # The initiator

    def initiate(self) -> None:
        if self.outcome is None:
            self.send(INITIATOR, "root", self.ask)
            self.later(5, self.initiate)

    def answered(self, word: Word) -> None:
        decided = {Note.COMMITTED, Note.ABORTED}
        if {self.outcome, word} == decided:
            self.broken(f"the initiator was told {self.outcome} and {word}")
        if word is Note.ABORTED and self.recorded:
            self.broken("the initiator is told Aborted, and there is a commit record")
        if self.outcome not in decided:
            self.outcome = word

    # The judge

    def broken(self, what: str) -> NoReturn:
        raise Broken(f"{what} (seed {self.seed})")

    def record(self, node: CoordinatorNode, before: Transaction, after: Transaction) -> None:
        """A decision is on a disk."""
        if before.decided or not after.decided:
            return
        if node is self.root:
            self.recorded = True
        elif not self.recorded and node.name not in self.by_person and after.settled is None:
            self.broken("a subordinate has decided, and its superior has not")

    def sends(self, node: CoordinatorNode, key: str, note: Note) -> None:
        """What a coordinator that knows the transaction tells a participant."""
        transaction = node.transaction
        settled = node.name in self.by_person or (transaction is not None and transaction.settled is not None)
        if note is Note.COMMIT and not self.recorded and not settled:
            self.broken(f"{key} is told Commit, and there is no record")
        partaker = transaction.partaker(key) if transaction else None
        if transaction is None or partaker is None:
            return
        if partaker.vote is Vote.PREPARED and note in (Note.COMMIT, Note.ROLLBACK):
            told = self.told.setdefault(key, set())
            told.add(note)
            if len(told) > 1:
                self.broken(f"{key} was told Commit and Rollback")
        if note is Note.PREPARE and partaker.protocol is D:
            owing = [one.key for one in transaction.partakers if one.protocol is V and one.seat is Seat.PREPARING]
            if owing:
                self.broken(f"{key} is prepared while {owing} have not voted")

    def judge(self) -> None:
        """Everywhere or nowhere: among those on which no person decided."""
        bound = [one for one in self.participants if not self.apart(one)]
        effects = {one.effect for one in bound if one.effect and one.protocol is D}
        if len(effects) > 1:
            told = {one.name: one.effect for one in self.participants}
            self.broken(f"not everywhere and not nowhere: {told}")
        if not self.recorded and "committed" in {one.effect for one in bound}:
            self.broken("something is committed, and there is no record")

    def apart(self, one: ParticipantNode) -> bool:
        """True when a person decided for it, or for the coordinator above it."""
        return one.name in self.by_person or one.superior in self.by_person

    # A run

    def play(self) -> None:
        storm = self.chance.uniform(30, 150)
        while self.events and self.events[0][0] < storm:
            self.one_event()
        self.weather = Weather()
        for node in (self.root, self.sub):
            if node is not None:
                node.workers.trouble = Trouble()
        for _ in range(EVENTS_TO_HEAL):
            if not self.events:
                break
            self.one_event()
            if self.count % 20 == 0 and self.doubts:
                self.settle_doubts()
        self.settle_doubts()
        while self.events and self.count < 8000:
            self.one_event()
        self.at_the_end()

    def one_event(self) -> None:
        self.now, _, what = heapq.heappop(self.events)
        what()
        self.judge()

    def settle_doubts(self) -> None:
        """People end what contradictions and their own decisions have left, once everybody else has heard."""
        for node in (self.root, self.sub):
            if node is not None and node.transaction is not None and not node.over:
                for name in sorted(self.doubts & {one.key for one in node.transaction.partakers}):
                    partaker = node.transaction.partaker(name) if node.transaction else None
                    if partaker is not None and partaker.seat in (Seat.COMMITTING, Seat.ABORTING):
                        self.seen["forgotten"] += 1
                        node.feed(coordinator.Event(Kind.FORGOTTEN, name))

    def at_the_end(self) -> None:
        for node in (self.root, self.sub):
            if node is not None and not node.over:
                self.broken(f"never ends: {node.name} {node.transaction}")
        for one in self.participants:
            if one.taking is not None and not self.apart(one):
                self.broken(f"never ends: {one.name} {one.taking}")
            if one.enlisted and not one.effect and one.plan is P.WORK_PREPARED:
                self.broken(f"never ends: the work of {one.name}")
        if self.outcome is None:
            self.broken("never ends: the initiator was not answered")
        for name, outcome in self.by_person.items():
            self.after_a_person(name, outcome)
        if self.doubts - set(self.by_person) - {one.name for one in self.participants if self.apart(one)}:
            self.broken(f"in doubt without a reason: {self.doubts}")
        self.seen[f"outcome {self.outcome}"] += 1
        self.seen["rows" if self.root.rows else "log"] += 1
        self.seen["committed" if self.recorded else "aborted"] += 1

    def after_a_person(self, name: str, outcome: Phase) -> None:
        """Whoever decided against the outcome hears of it. A volatile one may have crashed and forgotten it."""
        against = (outcome is Phase.COMMITTED) is not self.recorded
        if against and name not in self.doubts and self.protocol_of(name) is D:
            self.broken(f"{name} was {outcome} by a person against the outcome, and nobody knows")
        self.seen["contradiction" if against else "agreement"] += 1
