"""Who takes part in a simulated transaction: coordinators and participants, with a disk and a memory each.

A participant's memory, and that of a coordinator with a log only, is gone after a crash; a coordinator with rows keeps
every step that was committed, as this hub does. Nothing else is certain: a crash may come between any two acts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from messaging.protocol.atomic import coordinator, participant, phases
from messaging.protocol.atomic.coordinator import ActKind, Kind, Partaker, Transaction
from messaging.protocol.atomic.participant import Taking
from messaging.protocol.atomic.transaction import wait
from messaging.protocol.atomic.words import ENDED, FaultCode, Note, Phase, Protocol, Seat, Vote
from messaging.protocol.errors import IllegalTransition
from tests.simulation.workers import Attempt, Fault, Handing, Process, Trouble, Worker, Workers

if TYPE_CHECKING:
    from tests.simulation.atomic import AtomicWorld

Word = Note | FaultCode
P = participant.Kind
PA = participant.ActKind
INITIATOR = "i"
ROW_LEASE = 30.0  # seconds
OF_SUPERIOR = {
    Note.PREPARE: Kind.SUPERIOR_PREPARE,
    Note.COMMIT: Kind.SUPERIOR_COMMIT,
    Note.ROLLBACK: Kind.SUPERIOR_ROLLBACK,
}


def recover(records: Mapping[str, Sequence[Partaker]]) -> dict[str, coordinator.Step]:
    """How a coordinator of others starts again that keeps nothing but commit records: each names the voters of one
    transaction, who are told Commit again (5.6). What has no record is unknown from here on: presumed abort.
    """
    recovered = {}
    for key, voters in records.items():
        rows = tuple(replace(one, seat=Seat.COMMITTING, vote=Vote.PREPARED) for one in voters)
        commits = tuple(coordinator.Act(ActKind.SEND, one.key, note=Note.COMMIT, awaits=True) for one in rows)
        ended = phases.finish(Transaction(Phase.COMMITTING, rows, decided=True))
        recovered[key] = coordinator.Step(ended.transaction, (*commits, *ended.acts))
    return recovered


@dataclass(frozen=True)
class Build:
    """The decisions that a hub is built from, so that a wrong one can be put in."""

    step: Callable[[Transaction, coordinator.Event], coordinator.Step] = coordinator.step
    unknown: Callable[..., coordinator.Acts] = coordinator.unknown
    recover: Callable[[Mapping[str, Sequence[Partaker]]], dict[str, coordinator.Step]] = recover
    take: Callable[[Taking, participant.Event], participant.Step] = participant.step
    forgotten: Callable[[Note], participant.Acts] = participant.unknown
    record_first: bool = True
    keeps_votes: bool = True
    waits_for_outcome: bool = True
    checks_whose_outcome_it_is: bool = True
    handing: Handing = Handing()  # noqa: RUF009  (frozen)


class Crash(Exception):
    """The process is gone."""


@dataclass
class Node(ABC):
    world: AtomicWorld
    name: str
    superior: str = ""
    fragile: float = 1.0
    up: bool = True
    epoch: int = 0

    def soon(self, seconds: float, what: Callable[[], None]) -> None:
        """Later, unless this process dies before."""
        epoch = self.epoch
        self.world.later(seconds, lambda: what() if self.up and self.epoch == epoch else None)

    def may_crash(self) -> None:
        self.world.points += 1
        if self.world.points == self.world.crash_at:
            raise Crash
        if self.world.chance.random() < self.fragile * self.world.weather.crash:
            raise Crash

    def alive(self, what: Callable[[], None]) -> None:
        try:
            what()
        except Crash:
            self.world.seen["crash"] += 1
            self.up, self.epoch = False, self.epoch + 1
            self.lose_memory()
            self.world.later(self.world.chance.uniform(0.5, 20), self.start_again)

    def start_again(self) -> None:
        self.up = True
        self.alive(self.restart)

    @abstractmethod
    def lose_memory(self) -> None: ...

    @abstractmethod
    def restart(self) -> None: ...

    @abstractmethod
    def hear(self, sender: str, word: Word) -> None: ...


@dataclass
class ParticipantNode(Node):
    """`effect`: what became of its work, for good. `record`: the prepared record. Both are on its disk."""

    protocol: Protocol = Protocol.DURABLE
    plan: participant.Kind = P.WORK_PREPARED
    enlisted: bool = False
    taking: Taking | None = None
    record: Taking | None = None
    effect: str = ""
    awaiting: bool = False
    attempt: int = 0

    def begin(self, life: float) -> None:
        self.enlisted, self.taking = True, Taking(protocol=self.protocol, version=self.world.version)
        self.soon(life, lambda: self.alive(self.expire))

    def expire(self) -> None:
        """Its own time is over. Only who has not voted may leave."""
        if self.taking is None:
            return
        if self.taking.seat is Seat.ACTIVE:
            self.feed(participant.Event(P.LEAVE_ABORTED))
        elif self.taking.seat is Seat.PREPARED and not self.world.build.waits_for_outcome:
            self.feed(participant.Event(P.FAULT_RECEIVED, fault=FaultCode.UNKNOWN_TRANSACTION))

    def leave(self, kind: participant.Kind) -> None:
        if self.up and self.taking is not None and self.taking.seat is Seat.ACTIVE:
            self.world.seen[kind] += 1
            self.alive(lambda: self.feed(participant.Event(kind)))

    def settle(self, outcome: Phase) -> bool:
        taking = self.taking
        if not self.up or taking is None or taking.seat is not Seat.PREPARED or taking.settled is not None:
            return False
        self.alive(lambda: self.feed(participant.Event(P.SETTLED, outcome=outcome)))
        return self.record is not None and self.record.settled is outcome

    def hear(self, sender: str, word: Word) -> None:
        if isinstance(word, Note):
            event = participant.Event(P.RECEIVED, note=word)
        else:
            event = participant.Event(P.FAULT_RECEIVED, fault=word)
        self.alive(lambda: self.feed(event))

    def feed(self, event: participant.Event) -> None:
        if self.taking is None:
            if event.note is not None:
                for act in self.world.build.forgotten(event.note):
                    self.do(act)
            return
        before = self.taking
        done = self.world.build.take(before, event)
        self.taking = done.taking
        for act in done.acts:
            self.may_crash()
            if act.kind is PA.FORCE_WRITE and before.seat is Seat.PREPARING and self.world.write_fails():
                self.taking = before
                self.feed(participant.Event(P.WORK_FAILED))
                return
            self.do(act)

    def do(self, act: participant.Act) -> None:
        chance = self.world.chance
        if act.kind is PA.PREPARE_WORK:
            self.soon(chance.uniform(0, 3), lambda: self.alive(lambda: self.done(self.plan)))
        elif act.kind is PA.COMMIT_WORK:
            self.soon(chance.uniform(0, 3), lambda: self.alive(self.commit))
        elif act.kind is PA.ROLL_BACK_WORK:
            self.became("aborted")
            if self.taking is None or self.taking.settled is None:
                self.record = None  # the effect and the end of the record are one write
        elif act.kind is PA.FORCE_WRITE:
            self.record = self.taking if self.world.build.keeps_votes else None
        elif act.kind is PA.FORGET:
            self.taking = self.record = None
            self.awaiting = False
        elif act.kind is PA.STOP:
            self.awaiting = False
        elif act.kind is PA.DOUBT:
            self.world.doubts.add(self.name)
        elif act.kind is PA.FAULT and act.fault is not None:
            self.world.send(self.name, self.superior, act.fault)
        elif act.kind is PA.SEND and act.note is not None:
            self.world.send(self.name, self.superior, act.note)
            if act.awaits and not self.awaiting:
                self.awaiting, self.attempt = True, 0
                self.remind()

    def remind(self) -> None:
        self.attempt += 1
        self.soon(wait(self.attempt, 2, 20), lambda: self.alive(self.resend))

    def resend(self) -> None:
        if self.awaiting:
            self.world.seen["vote again"] += 1
            self.remind()
            self.feed(participant.Event(P.RESEND))

    def done(self, kind: participant.Kind) -> None:
        """Its own work is over."""
        try:
            self.feed(participant.Event(kind))
        except IllegalTransition as refused:
            self.world.broken(f"{self.name} refuses {kind}: {refused}")

    def commit(self) -> None:
        """Like rolling back: the effect and the end of the record are one write."""
        self.may_crash()
        settled = self.taking is not None and self.taking.settled is not None
        if self.taking is None or not (settled or self.taking.seat is Seat.COMMITTING):
            return
        self.became("committed")
        if not settled:
            self.record = None
        self.may_crash()
        self.done(P.WORK_COMMITTED)

    def became(self, effect: str) -> None:
        if self.plan is P.WORK_READ_ONLY:
            return
        if self.effect and self.effect != effect:
            self.world.broken(f"{self.name} was {self.effect} and is {effect}")
        self.effect = effect

    def lose_memory(self) -> None:
        self.taking, self.awaiting = None, False
        if self.protocol is Protocol.VOLATILE:
            self.record = None

    def restart(self) -> None:
        self.taking = self.record
        if self.taking is not None:
            self.feed(participant.Event(P.RESTARTED))
        elif self.enlisted and not self.effect:
            self.became("aborted")  # what was not prepared is gone


@dataclass(eq=False)
class Posted:
    """A message in the outbox of a hub: due, sending, or done with."""

    to: str
    word: Word
    awaits: bool
    state: str = "due"
    attempts: int = 0
    due_at: float = 0.0
    attempt: Attempt | None = None


class Job(NamedTuple):
    row: Posted
    number: int


@dataclass
class CoordinatorNode(Node):
    """`rows`: every step is committed as a whole, with what it sends, which workers take from there. Otherwise there is
    a log, of commit records only.
    """

    rows: bool = True
    transaction: Transaction | None = None
    log: tuple[Partaker, ...] | None = None
    awaiting: dict[str, tuple[Note, int]] = field(default_factory=dict)
    outbox: list[Posted] = field(default_factory=list)

    def __post_init__(self) -> None:
        chance, world = self.world.chance, self.world
        trouble = Trouble.drawn(chance) if self.rows else Trouble()
        continues = chance.random() < 0.7 or world.fault is not None
        fault = Fault() if world.crash_at is not None or world.fault is not None else None
        if world.fault is not None and not self.superior:
            fault = world.fault
        self.workers = Workers(self, chance, world.build.handing, trouble, fault, continues=continues)

    def feed(self, event: coordinator.Event) -> None:
        if self.transaction is None:
            return
        try:
            done = self.world.build.step(self.transaction, event)
        except IllegalTransition as refused:
            self.world.broken(f"{self.name} refuses {event.kind}: {refused}")
        before, after = self.transaction, done.transaction
        if self.rows:
            self.may_crash()
            self.transaction = after
            self.world.record(self, before, after)
            for act in done.acts:
                self.note(act)
            for act in done.acts:
                self.do(act)
            self.may_crash()  # committed, and not yet handed over
            return
        self.may_crash()
        writes = after.decided and not before.decided
        if writes and self.world.build.record_first:
            self.write(before, after)
        self.transaction = after
        for act in done.acts:
            self.may_crash()
            self.note(act)
            self.do(act)
        if writes and not self.world.build.record_first:
            self.write(before, after)

    def write(self, before: Transaction, after: Transaction) -> None:
        self.log = tuple(one for one in after.partakers if one.votes and one.vote is Vote.PREPARED)
        self.world.record(self, before, after)

    def note(self, act: coordinator.Act) -> None:
        """What belongs to the step itself: which answers are awaited."""
        if act.awaits and act.note is not None and act.key not in self.awaiting:
            self.awaiting[act.key] = (act.note, 0)
            self.remind(act.key)
        elif act.awaits and act.note is not None:
            self.awaiting[act.key] = (act.note, self.awaiting[act.key][1])
        elif act.kind is ActKind.STOP:
            self.awaiting.pop(act.key, None)
            for row in self.outbox:
                if row.to == (act.key or self.superior) and row.awaits:
                    row.state = "done"

    def do(self, act: coordinator.Act) -> None:
        self.world.seen[act.kind] += 1
        if act.kind is ActKind.SEND and act.note is not None:
            self.world.sends(self, act.key, act.note)
            self.post(act.key, act.note, awaits=act.awaits)
        elif act.kind is ActKind.OUTCOME and act.note is not None:
            self.post(act.key, act.note)
        elif act.kind is ActKind.VOTE and act.note is not None:
            self.post(self.superior, act.note, awaits=act.awaits)
        elif act.kind is ActKind.ANSWER and act.note is not None:
            self.post(act.key, act.note)
        elif act.kind is ActKind.FAULT and act.fault is not None:
            self.post(act.key or self.superior, act.fault)
        elif act.kind is ActKind.DOUBT:
            self.world.doubts.add(act.key or self.name)
        elif act.kind is ActKind.DECIDE:
            self.soon(self.world.chance.choice((0, 0, 4)), lambda: self.alive(self.decide))
        elif act.kind is ActKind.END:
            self.log = None
            settled = self.transaction is not None and self.transaction.settled is not None
            if not self.rows or (self.world.chance.random() < 0.3 and not settled):  # forgotten altogether
                self.transaction = None

    # The outbox, and what its workers ask of the store (`workers.Store`)

    def post(self, to: str, word: Word, *, awaits: bool = False) -> None:
        """Sent by whoever has decided it, or, in a hub, claimed in the transaction that has, or else found by looking.

        An open one that awaits an answer goes again instead of a new one.
        """
        if not self.rows:
            self.world.send(self.name, to, word)
            return
        for row in self.outbox:
            if awaits and row.awaits and row.state != "done" and (row.to, row.word) == (to, word):
                row.due_at = min(row.due_at, self.world.now) if row.state == "due" else row.due_at
                self.workers.look_in(0)
                return
        row = Posted(to, word, awaits, due_at=self.world.now)
        self.outbox.append(row)
        seat = self.workers.seat()
        if seat is None:
            self.workers.look_in(0.5)
        else:
            self.start(None, self.workers.hand_over([self.begin(row, seat)]))

    def begin(self, row: Posted, worker: Worker, *, in_hand: bool = False) -> Attempt:
        row.state, row.attempts = "sending", row.attempts + 1
        row.attempt = self.workers.claimed(Job(row, row.attempts), worker, in_hand=in_hand)
        self.due(row, ROW_LEASE)
        return row.attempt

    def due(self, row: Posted, seconds: float) -> None:
        row.due_at = self.world.now + seconds
        self.later(seconds, lambda: self.workers.look_in(0))

    def seconds(self) -> float:
        return self.world.now

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        self.world.later(seconds, what)

    def start(self, owner: Worker | None, process: Process) -> None:
        self.workers.run(owner, process)

    def broken(self, text: str) -> NoReturn:
        self.world.broken(text)

    def waits_for(self, job: Job) -> bool:
        return job.row.state == "sending" and job.row.attempts == job.number

    def renew(self, job: Job) -> None:
        self.due(job.row, ROW_LEASE)

    def release(self, job: Job) -> None:
        self.due(job.row, 0)

    def claim(self, worker: Worker) -> list[Attempt]:
        claimed = []
        for row in self.outbox:
            if row.state == "done" or row.due_at > self.world.now:
                continue
            if row.state == "sending" and row.attempt is not None:
                self.workers.lease_over(row.attempt)
            claimed.append(self.begin(row, worker, in_hand=True))
        return claimed

    def talk(self, worker: Worker, attempt: Attempt) -> None:
        """Whether it is taken is heard when the request is answered, or when time is up for that."""
        row: Posted = attempt.job.row
        taken, chance = self.world.send(self.name, row.to, row.word), self.world.chance
        seconds = chance.uniform(0, self.world.weather.delay) if taken else chance.choice((0, 20))
        self.later(seconds, lambda: self.workers.came(worker, attempt, taken))

    def record(self, outcomes: Sequence[tuple[Attempt, Any]]) -> list[Attempt]:
        for attempt, taken in outcomes:
            row: Posted = attempt.job.row
            if not self.waits_for(attempt.job):
                self.world.seen["overtaken"] += 1
                if self.world.build.checks_whose_outcome_it_is or row.state != "sending":
                    continue
                self.broken(f"{row.word} to {row.to} is moved by the outcome of another attempt")
            row.state = "done" if taken else "due"
            if not taken:
                self.due(row, wait(row.attempts, 3, 20))
        return []

    def decide(self) -> None:
        """What the coordinator does itself, and the record."""
        if self.transaction is not None and self.transaction.phase is Phase.DECIDING:
            self.feed(coordinator.Event(Kind.REFUSED if self.world.write_fails() else Kind.DECIDED))

    def remind(self, key: str) -> None:
        if key not in self.awaiting:
            return
        note, attempt = self.awaiting[key]
        self.awaiting[key] = (note, attempt + 1)
        self.soon(wait(attempt + 1, 3, 20), lambda: self.alive(lambda: self.resend(key)))

    def resend(self, key: str) -> None:
        if key not in self.awaiting or self.transaction is None:
            return
        self.world.seen["again"] += 1
        self.remind(key)
        if not key:
            self.post(self.superior, self.awaiting[key][0], awaits=True)
        else:
            self.feed(coordinator.Event(Kind.RESEND, key))

    def hear(self, sender: str, word: Word) -> None:
        self.alive(lambda: self.heard(sender, word))

    def heard(self, sender: str, word: Word) -> None:
        self.may_crash()
        above = bool(self.superior) and sender == self.superior
        known = self.transaction is not None and (above or self.transaction.partaker(sender) is not None)
        if not known:
            if isinstance(word, Note):
                self.answer_unknown(sender, word, above=above)
        elif not above:
            if isinstance(word, Note):
                self.feed(coordinator.Event(Kind.RECEIVED, sender, note=word))
            else:
                self.feed(coordinator.Event(Kind.FAULT_RECEIVED, sender, fault=word))
        elif isinstance(word, Note):
            self.feed(coordinator.Event(OF_SUPERIOR[word]))
        else:
            self.feed(coordinator.Event(Kind.SUPERIOR_FAULT, fault=word))

    def answer_unknown(self, sender: str, note: Note, *, above: bool) -> None:
        if above:
            for told in self.world.build.forgotten(note):
                if told.note is not None:
                    self.post(sender, told.note)
            return
        protocol = self.world.protocol_of(sender) if self.world.chance.random() < 0.5 else None
        for act in self.world.build.unknown(note, protocol):
            self.world.seen["none column"] += 1
            self.do(replace(act, key=sender) if act.kind is not ActKind.IGNORE else act)

    def settle(self, outcome: Phase) -> bool:
        if not self.up or self.transaction is None or self.transaction.phase is not Phase.PREPARED:
            return False
        self.alive(lambda: self.feed(coordinator.Event(Kind.SETTLED, outcome=outcome)))
        return self.transaction.settled is not None

    def enlist(self, name: str, protocol: Protocol, *, local: bool = False) -> bool:
        """False: refused, or nobody is there to answer."""
        if not self.up or self.transaction is None:
            return False
        event = coordinator.Event(Kind.ENLIST, name, protocol=protocol, local=local)
        self.alive(lambda: self.feed(event))
        return self.transaction is not None and self.transaction.partaker(name) is not None

    def lose_memory(self) -> None:
        self.workers.go_down()
        if not self.rows:
            self.transaction = None
            self.awaiting.clear()

    def restart(self) -> None:
        self.workers.come_up()
        if self.rows:
            for key in list(self.awaiting):
                self.remind(key)
            if self.transaction is not None and self.transaction.phase is Phase.DECIDING:
                self.decide()
        elif self.log is not None:
            recovered = self.world.build.recover({self.name: self.log}).get(self.name)
            if recovered is None:
                return
            self.world.seen["recovered"] += 1
            self.transaction = recovered.transaction
            for act in recovered.acts:
                self.note(act)
                self.do(act)

    @property
    def over(self) -> bool:
        return self.transaction is None or self.transaction.phase in ENDED
