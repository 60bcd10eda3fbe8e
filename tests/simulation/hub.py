"""A model of one hub's store and of the transactions on it, around the real protocol core.

Each method is one transaction: it runs whole or not at all, and what it leaves behind survives every crash. They
follow the rooms of messaging: submitting, claiming (`claim`), recording (`record`), accepting and answering (`accept`),
operating (`act`, `cancel`, `move_gate`); one outbound and one inbound pair. Where a hub continues (`continues`),
submitting and accepting claim what follows, for the worker that lives, and return it to be handed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

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
from tests.simulation.judge import Judge

SIGNAL_ATTEMPTS = 3
# As in `engine.handover` and `engine.loop`.
MISSING_AFTER = timedelta(seconds=1.5)
RENEW_AFTER = timedelta(seconds=5)


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


class Job(NamedTuple):
    """A claimed transmission. `key`: of the message or the signal that it is of."""

    transmission: int
    packet: Packet
    key: str
    number: int = 0  # of the attempt, of a signal
    at: datetime | None = None  # when it was claimed


class Mine(NamedTuple):
    """An attempt in the store that has no outcome: whose it is, and what it is of."""

    worker: int
    job: Job


@dataclass(slots=True)
class Hub:
    """Store and memory of one hub. A crash empties the memory."""

    name: str
    policy: SenderPolicy
    judge: Judge
    build: Build = RIGHT
    acceptance: AcceptancePolicy = field(default_factory=AcceptancePolicy)
    continues: bool = False
    peer: Hub = field(init=False, repr=False)

    # The store.
    pair: PairState = field(default_factory=PairState)
    transmission: int = 0  # of the attempt whose outcome counts; 0 for none
    transmissions: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    inbound: InboundState = field(default_factory=InboundState)
    stored: dict[str, Packet] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    signals: dict[str, Signal] = field(default_factory=dict)
    errors: int = 0
    happened: Counter[str] = field(default_factory=Counter)  # with hand-overs and their outcomes
    attempts: dict[int, Mine] = field(default_factory=dict)

    # Valkey: what is handed over to the worker that lives.
    mail: list[Job] = field(default_factory=list)

    # The memory.
    up: bool = True
    arrived: list[Packet] = field(default_factory=list)  # arrivals that no transaction has taken yet
    outcomes: list[tuple[Job, bool]] = field(default_factory=list)  # transmissions that no transaction has recorded yet
    remembered: set[str] = field(default_factory=set)  # of a build that keeps ids in memory
    worker: int = 1
    known: set[int] = field(default_factory=set)  # the attempts that this worker has in hand, or had

    def crash(self) -> None:
        """Every process of the hub dies."""
        self.up = False
        self.arrived = []
        self.outcomes = []
        self.remembered = set()
        self.worker += 1
        self.known = set()
        self.mail = []  # nobody reads the list of a worker that is dead

    def next_due(self) -> datetime | None:
        """When a worker has something to do."""
        due = [signal.due_at for signal in self.signals.values() if signal.due_at is not None]
        if self.pair.due_at is not None and self.pair.gate is Gate.OPEN:
            due.append(self.pair.due_at)
        due += [mine.job.at + MISSING_AFTER for mine in self._missing() if mine.job.at is not None]
        return min(due, default=None)

    # submitting

    def submit(self, message_id: str, now: datetime) -> list[Job]:
        """A document of our application. Returns what is to be handed over."""
        self.rows[message_id] = Row(message_id, position=len(self.rows) + 1)
        self.pair = step(self.pair, Event(Kind.QUEUED), now, self.policy).state
        return self._go_on(now)

    # continuing, handing over

    def _go_on(self, now: datetime) -> list[Job]:
        """The head of the queue of an idle pair, claimed by whoever holds the pair's lock."""
        pair = self.pair
        if not self.continues or pair.flow is not Flow.IDLE or not pair.queued or pair.gate is not Gate.OPEN:
            return []
        job = self._advance(now)
        return [job] if job is not None else []

    def take(self, job: Job, now: datetime) -> Job | None:
        """The worker reads a hand-over. Returns the job if it is to be done."""
        if job.transmission in self.known and self.build.drops_what_it_has:
            self.happened["dropped"] += 1
            return None
        late = job.at is not None and now - job.at > RENEW_AFTER
        self.judge.taken(self, job, late=late and not self.build.renews_what_comes_late)
        self.known.add(job.transmission)
        self.happened["late"] += late
        return job if not late or self._renew(job, now) else None

    def _renew(self, job: Job, now: datetime) -> bool:
        """A new lease for a job that waited; False when somebody else has it, or nobody needs it any more."""
        if not self.waits_for(job):
            return False
        until = now + timedelta(seconds=self.policy.lease)
        if job.packet.kind == "message":
            self.pair = replace(self.pair, due_at=until)
        else:
            self.signals[job.key].due_at = until
        return True

    def waits_for(self, job: Job) -> bool:
        """Whether the outcome of this attempt would count."""
        if job.packet.kind == "message":
            return self.transmission == job.transmission and self.pair.flow is Flow.SENDING
        signal = self.signals[job.key]
        return signal.state == "sending" and signal.sends + signal.attempts == job.number

    def missing(self, now: datetime) -> list[Job]:
        """What was claimed for this worker and did not come."""
        found = []
        for mine in self._missing():
            if mine.job.at is not None and mine.job.at + MISSING_AFTER <= now:
                if self.waits_for(mine.job):
                    self.known.add(mine.job.transmission)
                    self.happened["missing"] += 1
                    found.append(mine.job)
                else:
                    del self.attempts[mine.job.transmission]
        return found

    def _missing(self) -> list[Mine]:
        mine = self.attempts.items()
        return [one for number, one in mine if one.worker == self.worker and number not in self.known]

    # sending

    def claim(self, now: datetime) -> list[Job]:
        """Takes what is due, with a lease on each."""
        jobs: list[Job] = []
        pair = self.pair
        if pair.due_at is not None and pair.due_at <= now and pair.gate is Gate.OPEN:
            job = self._advance(now)
            if job is not None:
                jobs.append(job)
        for signal in self.signals.values():
            if signal.due_at is not None and signal.due_at <= now:
                jobs.append(self._claim_signal(signal, now))
        self.known |= {job.transmission for job in jobs}
        return jobs

    def _claim_signal(self, signal: Signal, now: datetime) -> Job:
        signal.state = "sending"
        signal.attempts += 1
        signal.due_at = now + timedelta(seconds=self.policy.lease) if self.build.leases_what_it_claims else None
        return self._attempt(Job(self._number(), signal.packet, signal.key, signal.sends + signal.attempts, now))

    def _attempt(self, job: Job) -> Job:
        self.attempts[job.transmission] = Mine(self.worker, job)
        return job

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
        return self._attempt(Job(self.transmission, octets, row.id, at=now))

    def _number(self) -> int:
        self.transmissions += 1
        return self.transmissions

    def _give_up(self, row: Row) -> None:
        self.transmission = 0
        row.state = move(row.state, Happened.GAVE_UP, reliable=True)

    # recording

    def record(self, outcomes: Sequence[tuple[Job, bool]], now: datetime) -> None:
        """What became of transmissions."""
        for job, ok in outcomes:
            self.attempts.pop(job.transmission, None)
            if job.packet.kind == "message":
                self._record_message(job, ok, now)
            else:
                self._record_signal(job, ok, now)

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

    def accept(self, group: Sequence[Packet], now: datetime, *, refuses: bool = False) -> list[Job]:
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
        acknowledgements = [signal for signal in new if signal.packet.kind == "acknowledgement" and self.continues]
        claimed = [self._claim_signal(signal, now) for signal in acknowledgements]
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
