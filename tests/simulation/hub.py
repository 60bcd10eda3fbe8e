"""A model of one hub's store and of the transactions on it, around the real protocol core.

Each method is one transaction: it runs whole or not at all, and what it leaves behind survives every crash. They
follow the rooms of messaging: submitting, claiming (`claim`), recording (`record`), accepting and answering (`accept`),
operating (`act`, `cancel`, `move_gate`); one outbound and one inbound pair. Where a hub continues, submitting and
accepting claim what follows, for a worker that is there, and return it to be handed over (`workers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from messaging.protocol.acceptance import AcceptancePolicy, InboundState, Received, Verdict
from messaging.protocol.envelope import Semantics
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.messages import Happened, State, move
from messaging.protocol.pair_state import (
    Act,
    Event,
    Flow,
    Gate,
    GateVerb,
    Kind,
    PairState,
    SenderPolicy,
    Step,
    move_gate,
)
from messaging.protocol.sender import step
from tests.simulation.builds import RIGHT, Build
from tests.simulation.judge import Broken, Judge
from tests.simulation.workers import Attempt, Process, Worker, Workers

if TYPE_CHECKING:
    from tests.simulation.world import World

SIGNAL_ATTEMPTS = 3


class Packet(NamedTuple):
    """The octets of a message, an acknowledgement or an error message. `id` is MessageId or RefToMessageId.

    `stamp`: when it was encoded. So octets that were encoded twice differ.
    """

    kind: str
    id: str
    number: int
    stamp: datetime
    code: str = ""
    wait: int | None = None


@dataclass(slots=True)
class Row:
    """An outbound message in the store."""

    id: str
    position: int
    state: State = State.QUEUED
    number: int | None = None
    octets: Packet | None = None
    attempts: int = 0


@dataclass(slots=True)
class Signal:
    """An acknowledgement or error message of ours: `owed` copies are still to be sent."""

    key: str
    packet: Packet
    due_at: datetime | None
    state: str = "pending"
    owed: int = 1
    attempts: int = 0
    sends: int = 0
    given_up: int = 0
    attempt: Attempt | None = None


class Job(NamedTuple):
    """A claimed transmission. `key`: of the message or the signal that it is of."""

    transmission: int
    packet: Packet
    key: str
    number: int = 0  # of the attempt, of a signal


@dataclass(slots=True)
class Hub:
    """Store and memory of one hub. A crash empties the memory."""

    name: str
    world: World = field(repr=False)
    policy: SenderPolicy
    judge: Judge
    build: Build = RIGHT
    acceptance: AcceptancePolicy = field(default_factory=AcceptancePolicy)
    peer: Hub = field(init=False, repr=False)
    workers: Workers = field(init=False, repr=False)

    # The store.
    pair: PairState = field(default_factory=PairState)
    transmission: int = 0  # of the attempt whose outcome counts; 0 for none
    attempt: Attempt | None = None  # that one
    transmissions: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    inbound: InboundState = field(default_factory=InboundState)
    stored: dict[str, Packet] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    signals: dict[str, Signal] = field(default_factory=dict)
    errors: int = 0
    happened: Counter[str] = field(default_factory=Counter)

    # The memory, beside that of the workers.
    up: bool = True
    arrived: list[Packet] = field(default_factory=list)  # arrivals that no transaction has taken yet
    remembered: set[str] = field(default_factory=set)  # of a build that keeps ids in memory

    def crash(self) -> None:
        """Every process of the hub dies."""
        self.up = False
        self.arrived = []
        self.remembered = set()
        self.workers.go_down()

    def next_due(self) -> datetime | None:
        """When a worker has something to claim."""
        due = [signal.due_at for signal in self.signals.values() if signal.due_at is not None]
        if self.pair.due_at is not None and self.pair.gate is Gate.OPEN:
            due.append(self.pair.due_at)
        return min(due, default=None)

    # submitting

    def submit(self, message_id: str, now: datetime) -> list[Attempt]:
        """A document of our application. Returns what is to be handed over."""
        self.rows[message_id] = Row(message_id, position=len(self.rows) + 1)
        self.pair = step(self.pair, Event(Kind.QUEUED), now, self.policy).state
        return self._go_on(now)

    # continuing, and what the workers ask of the store (`workers.Store`)

    def _go_on(self, now: datetime) -> list[Attempt]:
        """The head of the queue of an idle pair, claimed by whoever holds the pair's lock."""
        pair, seat = self.pair, self.workers.seat()
        if seat is None or pair.flow is not Flow.IDLE or not pair.queued or pair.gate is not Gate.OPEN:
            return []
        job = self._advance(now)
        if job is None:
            return []
        self.attempt = self.workers.claimed(job, seat)
        return [self.attempt]

    def seconds(self) -> float:
        return self.world.seconds()

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        self.world.later(seconds, what)

    def start(self, owner: Worker | None, process: Process) -> None:
        self.world.start(self, owner, process)

    def broken(self, text: str) -> NoReturn:
        raise Broken("invariant 6", text)

    def waits_for(self, job: Job) -> bool:
        if job.packet.kind == "message":
            return self.transmission == job.transmission and self.pair.flow is Flow.SENDING
        signal = self.signals[job.key]
        return signal.state == "sending" and signal.sends + signal.attempts == job.number

    def renew(self, job: Job) -> None:
        self._due(job, self.world.now + timedelta(seconds=self.policy.lease))

    def release(self, job: Job) -> None:
        self._due(job, self.world.now)

    def _due(self, job: Job, at: datetime) -> None:
        if job.packet.kind == "message":
            self.pair = replace(self.pair, due_at=at)
        else:
            self.signals[job.key].due_at = at

    def talk(self, worker: Worker, attempt: Attempt) -> None:
        self.workers.came(worker, attempt, self.world.transmit(self, attempt.job))

    # sending

    def claim(self, worker: Worker) -> list[Attempt]:
        """Takes what is due, with a lease on each."""
        now, pair = self.world.now, self.pair
        claimed: list[Attempt] = []
        if pair.due_at is not None and pair.due_at <= now and pair.gate is Gate.OPEN:
            if pair.flow is Flow.SENDING and self.attempt is not None:
                self.workers.lease_over(self.attempt)
            job = self._advance(now)
            if job is not None:
                self.attempt = self.workers.claimed(job, worker, in_hand=True)
                claimed.append(self.attempt)
        for signal in self.signals.values():
            if signal.due_at is not None and signal.due_at <= now:
                if signal.state == "sending" and signal.attempt is not None:
                    self.workers.lease_over(signal.attempt)
                claimed.append(self._claim_signal(signal, now, worker, in_hand=True))
        if claimed:
            self.world.note(f"{self.name}'s worker {worker.number} claims", claimed)
        return claimed

    def _claim_signal(self, signal: Signal, now: datetime, worker: Worker, *, in_hand: bool = False) -> Attempt:
        signal.state = "sending"
        signal.attempts += 1
        signal.due_at = now + timedelta(seconds=self.policy.lease) if self.build.leases_what_it_claims else None
        job = Job(self._number(), signal.packet, signal.key, signal.sends + signal.attempts)
        signal.attempt = self.workers.claimed(job, worker, in_hand=in_hand)
        return signal.attempt

    def _advance(self, now: datetime) -> Job | None:
        pair = self.pair
        if self.build.may_start_next(pair):
            pair = replace(pair, flow=Flow.IDLE)
            row = next((row for row in self.rows.values() if row.state is State.QUEUED), None)
        else:
            row = self.rows[pair.in_flight]
        moved = step(pair, Event(Kind.DUE), now, self.policy)
        self.pair = moved.state
        if row is None:
            return None
        if Act.PREPARE_NEXT in moved.acts:
            row.number = moved.state.last_sequence
            row.octets = Packet("message", row.id, row.number, now)
            self.pair = replace(moved.state, in_flight=row.id)
            self.judge.prepared(self, row)
        elif Act.TRANSMIT not in moved.acts:
            if Act.GIVE_UP in moved.acts:
                self._give_up(row)
            else:
                row.state = move(row.state, Happened.WILL_RETRY, reliable=True)
            return None
        assert row.octets is not None
        row.state = move(row.state, Happened.TRANSMITTED, reliable=True)
        row.attempts += 1
        octets = row.octets if self.build.encodes_once else row.octets._replace(stamp=now)
        self.transmission = self._number()
        if not self.build.leases_what_it_claims:
            self.pair = replace(self.pair, due_at=None)
        return Job(self.transmission, octets, row.id)

    def _number(self) -> int:
        self.transmissions += 1
        return self.transmissions

    def _give_up(self, row: Row) -> None:
        self.transmission = 0
        row.state = move(row.state, Happened.GAVE_UP, reliable=True)

    # recording

    def record(self, outcomes: Sequence[tuple[Attempt, Any]]) -> list[Attempt]:
        """What became of transmissions. What follows is claimed when the acknowledgement comes, not here."""
        for attempt, ok in outcomes:
            if attempt.job.packet.kind == "message":
                self._record_message(attempt.job, ok, self.world.now)
            else:
                self._record_signal(attempt.job, ok, self.world.now)
        self.world.note(f"{self.name} records", [attempt for attempt, _ in outcomes])
        return []

    def _record_message(self, job: Job, ok: bool, now: datetime) -> None:
        if self.pair.flow is not Flow.SENDING:
            return
        if self.transmission != job.transmission and self.build.checks_whose_outcome_it_is:
            self.happened["overtaken"] += 1
            return
        kind = Kind.SENT if ok else Kind.TRANSPORT_FAILED
        self.pair = step(self.pair, Event(kind, cause="" if ok else "connect_refused"), now, self.policy).state
        happened = Happened.HANDED_OVER if ok else Happened.WILL_RETRY
        self.rows[job.key].state = move(State.SENDING, happened, reliable=True)

    def _record_signal(self, job: Job, ok: bool, now: datetime) -> None:
        signal = self.signals[job.key]
        if not self.waits_for(job):
            return
        if ok:
            signal.sends += 1
            signal.owed = max(0, signal.owed - 1)
            signal.attempts = 0
            signal.state = "pending" if signal.owed else "sent"
            signal.due_at = now if signal.owed else None
        elif signal.attempts < SIGNAL_ATTEMPTS:
            signal.state = "pending"
            signal.due_at = now + timedelta(seconds=self.policy.transport_retry_interval)
        else:
            signal.state = "failed"
            signal.given_up += signal.owed
            signal.owed = signal.attempts = 0
            signal.due_at = None

    # accepting, answering

    def accept(self, group: Sequence[Packet], now: datetime, *, refuses: bool = False) -> list[Attempt]:
        """A group of arrivals. `refuses`: answers messages with a Transient Error, as a router does (4.1.3).

        Returns what is to be handed over.
        """
        before = set(self.signals)
        busy = self.pair.flow is not Flow.IDLE
        for packet in group:
            if packet.kind != "message":
                self._answered(packet, now)
            elif refuses:
                self._owe_error(packet, "TransientError", now, wait=None if packet.number % 2 else 7)
            else:
                self._receive(packet, now)
        new = [signal for key, signal in self.signals.items() if key not in before]
        seat = self.workers.seat()
        acknowledgements = [signal for signal in new if signal.packet.kind == "acknowledgement"]
        claimed = [self._claim_signal(signal, now, seat) for signal in acknowledgements if seat is not None]
        return [*claimed, *(self._go_on(now) if busy else [])]

    def _receive(self, packet: Packet, now: datetime) -> None:
        known = packet.id in (self.stored if self.build.remembers_ids_on_disk else self.remembered)
        same = self.stored.get(packet.id, packet) == packet
        number = self.numbers.get(packet.id) if known else None
        received = Received(packet.id, Semantics.ONCE_AND_ONLY_ONCE, packet.number, known, same, known_number=number)
        decision = self.build.decide(self.inbound, received, self.acceptance)
        if decision.verdict is Verdict.REJECT:
            assert decision.error is not None
            self._owe_error(packet, str(decision.error.code), now)
            return
        self.judge.received(self.peer, packet)
        if decision.verdict is Verdict.ACCEPT:
            self.judge.stored(self.peer, packet)
            self.inbound = decision.state
            self.stored[packet.id] = packet
            self.numbers[packet.id] = packet.number
            self.remembered.add(packet.id)
            if not self.build.stores_in_two_transactions:
                self.owe_acknowledgement(packet.id, now)
            return
        if decision.state != self.inbound:
            # The sender restarted its sequence with a message that is stored.
            self.inbound = decision.state
            self.numbers[packet.id] = packet.number
        if self.build.acknowledges_repeats:
            self.owe_acknowledgement(packet.id, now)

    def owe_acknowledgement(self, message_id: str, now: datetime) -> None:
        """One more copy of the acknowledgement, with the octets that it was first encoded with."""
        key = f"ack {message_id}"
        signal = self.signals.get(key)
        if signal is None:
            self.signals[key] = Signal(key, Packet("acknowledgement", message_id, 0, now), now)
            return
        signal.owed += 1
        if signal.state != "sending":
            signal.state = "pending"
            signal.due_at = now
            signal.attempts = 0

    def _owe_error(self, packet: Packet, code: str, now: datetime, wait: int | None = None) -> None:
        self.errors += 1
        key = f"error {self.errors}"
        self.signals[key] = Signal(key, Packet("error", packet.id, 0, now, code, wait), now)

    def _answered(self, packet: Packet, now: datetime) -> None:
        if self.pair.in_flight != packet.id and (
            self.build.checks_what_is_acknowledged or not self.pair.in_flight or packet.kind == "error"
        ):
            return
        row = self.rows[self.pair.in_flight]
        was = self.pair.flow
        if packet.kind == "acknowledgement":
            event = Event(Kind.ACKNOWLEDGED)
        elif packet.code == "TransientError":
            event = Event(Kind.TRANSIENT_ERROR, cause="transient_error", min_retry_secs=packet.wait)
        else:
            event = Event(Kind.ERROR, cause=packet.code)
        moved = step(self.pair, event, now, self.policy)
        self.pair = moved.state
        if Act.COMPLETE in moved.acts:
            self.transmission = 0
            row.state = move(row.state, Happened.ACKNOWLEDGED, reliable=True)
        elif Act.GIVE_UP in moved.acts:
            self._give_up(row)
        elif was is not Flow.SUSPENDED:
            self.transmission = 0
            row.state = move(row.state, Happened.WILL_RETRY, reliable=True)

    # operating

    def act(self, kind: Kind, now: datetime) -> None:
        """RESUME, RETRY_NOW, SKIP or RESTART by a person. Raises IllegalTransition, and nothing changed."""
        row = self.rows.get(self.pair.in_flight)
        moved = self._operate(kind, now)
        if row is None:
            return
        if kind is Kind.SKIP:
            row.state = move(row.state, Happened.SKIPPED, reliable=True)
        elif Act.REQUEUE in moved.acts:
            row.state = move(row.state, Happened.REQUEUED, reliable=True)
            row.number, row.octets, row.attempts = None, None, 0
        elif kind is Kind.RESUME:
            row.state = move(row.state, Happened.RESUMED, reliable=True)
        elif kind is Kind.RETRY_NOW:
            row.state = move(row.state, Happened.WILL_RETRY, reliable=True)

    def _operate(self, kind: Kind, now: datetime) -> Step:
        before = self.pair
        moved = step(before, Event(kind), now, self.policy)
        self.pair = moved.state
        self.transmission = 0
        if kind is Kind.SKIP and self.build.number_after_skip != "starts at 1":
            last = before.last_sequence - (self.build.number_after_skip == "is used again")
            self.pair = replace(self.pair, last_sequence=max(0, last))
        if kind in (Kind.SKIP, Kind.RESTART):
            self.judge.restarted(self)
        return moved

    def cancel(self, message_id: str, now: datetime) -> None:
        """A person takes a message back. Raises IllegalTransition, and nothing changed."""
        row = self.rows[message_id]
        if self.pair.in_flight == message_id:
            self._operate(Kind.SKIP, now)
            row.state = move(row.state, Happened.CANCELLED, reliable=True)
        elif row.state is State.QUEUED:
            row.state = move(row.state, Happened.CANCELLED, reliable=True)
            self.pair = replace(self.pair, queued=self.pair.queued - 1)
        else:
            raise IllegalTransition(row.state, Happened.CANCELLED)

    def move_gate(self, verb: GateVerb) -> None:
        """A person pauses or releases the pair. Raises IllegalTransition, and nothing changed."""
        self.pair = replace(self.pair, gate=move_gate(self.pair.gate, verb))
