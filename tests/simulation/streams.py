"""A stream between two hubs: the sender's core, the receiver's core, and everything that can go wrong between them.

Events in the order of their times, chance from one seed. What is stored survives a crash; what is on its way does not
know of it. The judge looks after every event.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, NoReturn

from messaging.protocol.errors import IllegalTransition
from messaging.protocol.streams.acceptance import Arrival, Decision, Incoming, Verdict, decide
from messaging.protocol.streams.envelope import LAST_NUMBER
from messaging.protocol.streams.final import OrderAck, Timer, Timing, on_due, on_message
from messaging.protocol.streams.outgoing import (
    Act,
    Do,
    Event,
    Flow,
    InFlight,
    Kind,
    Outgoing,
    Place,
    Policy,
    Step,
    expired,
    new_stream,
    next_due,
    room,
    step,
)
from tests.simulation.workers import Attempt, Fault, Handing, Process, Trouble, Worker, Workers

START = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS_TO_HEAL = 10_000
STORM = timedelta(minutes=5)
VERBS = {
    Flow.RUNNING: (Kind.RETRY_NOW, Kind.SKIP, Kind.SUSPEND, Kind.SUSPEND),
    Flow.SUSPENDED: (Kind.RESUME, Kind.SKIP, Kind.RESTART, Kind.RESTART, Kind.RESTART),
}


class Broken(AssertionError):
    """A promise was broken; the text names the seed."""


@dataclass(frozen=True)
class Build:
    """The decisions that a hub is built from, so that a wrong one can be put in."""

    decide: Callable[[Incoming, Arrival, datetime], Decision] = decide
    step: Callable[[Outgoing, Event, datetime, Policy], Step] = step
    checks_whose_outcome_it_is: bool = True
    handing: Handing = Handing()  # noqa: RUF009  (frozen)


@dataclass
class Document:
    """A message at its sender: its place in the order, and what became of it."""

    key: int
    expires_at: datetime | None
    state: str = "queued"
    number: int = 0
    attempts: int = 0
    attempt: Attempt | None = None


class Job(NamedTuple):
    """One attempt of a document, under its number, with the octets that were claimed."""

    document: Document
    attempt: int
    arrival: Arrival
    asks: bool


@dataclass(frozen=True)
class Weather:
    loses: float = 0.0
    loses_answers: float = 0.0
    repeats: float = 0.0
    delay: float = 0.01
    person: float = 0.0


@dataclass
class StreamWorld:
    """One run; `play` raises Broken. `fault`: that happens to the sender's workers, in calm weather."""

    seed: int
    build: Build = field(default_factory=Build)
    fault: Fault | None = None

    def __post_init__(self) -> None:
        self.chance = chance = random.Random(self.seed)
        self.now = START
        self.weather = Weather(
            loses=chance.choice((0, 0.1, 0.3, 0.6)),
            loses_answers=chance.choice((0, 0.1, 0.4)),
            repeats=chance.choice((0, 0.2, 0.5)),
            delay=chance.choice((0.01, 1, 15)),
            person=chance.choice((0, 0.03, 0.15)),
        )
        if self.fault is not None:
            self.weather = Weather()
        self.policy = Policy(
            window=chance.choice((1, 2, 4, 16)),
            concurrency=chance.choice((1, 2, 8)),
            resend_schedule=(10.0, 20.0, 40.0),
            retries=chance.choice((2, 8)),
            transport_retries=chance.choice((0, 2)),
            transport_retry_interval=3.0,
            lease=30.0,
        )
        self.sender = new_stream(START)
        if chance.random() < 0.15:  # near the end of all numbers
            last = LAST_NUMBER - chance.randint(0, 4)
            self.sender = replace(self.sender, next_number=last + 1, acked=last)
        self.receiver = Incoming(self.sender.tx_sequence_id, self.sender.acked) if self.sender.acked else Incoming()
        self.timer, self.timing = Timer(), Timing()
        self.documents: list[Document] = []
        self.inbox: list[int] = []
        self.accepted: set[tuple[int, int]] = set()
        self.used = [self.sender.tx_sequence_id]
        self.seen: Counter[str] = Counter()
        self.refused = {key for key in range(40) if chance.random() < chance.choice((0, 0, 0.15)) and not self.fault}
        self.events: list[tuple[datetime, int, Callable[[], object]]] = []
        self.count = 0
        continues, trouble = chance.random() < 0.7 or self.fault is not None, Trouble.drawn(chance)
        self.workers = Workers(self, chance, self.build.handing, trouble, self.fault, continues=continues)
        self.looks_at: datetime | None = None
        self.to_claim: list[Job] = []
        self.wanted = 4 if self.fault else chance.randint(1, 25)
        for _ in range(self.wanted):
            self.later(chance.uniform(0, 60), self.submit)

    # The clock and the link

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + timedelta(seconds=seconds), self.count, what))

    def travel(self, what: Callable[[], object]) -> None:
        """Something is on its way: late, twice, or never."""
        if self.chance.random() >= self.weather.loses:
            self.later(self.chance.uniform(0, self.weather.delay), what)
        if self.chance.random() < self.weather.repeats:
            self.later(self.chance.uniform(0, 20 * self.weather.delay), what)

    def play(self) -> None:
        try:
            while self.now < START + STORM and (len(self.documents) < self.wanted or self.count_open()):
                self.one_event()
            self.weather, self.workers.trouble = Weather(), Trouble()
            for _ in range(EVENTS_TO_HEAL):
                if len(self.documents) == self.wanted and not self.count_open() and not self.events:
                    break
                if self.sender.flow is Flow.SUSPENDED:
                    self.apply(Event(kind=Kind.RESUME))
                self.one_event()
            self.at_the_end()
        except Broken as broken:
            raise Broken(f"{broken} (seed {self.seed})") from None

    def count_open(self) -> int:
        return sum(document.state in ("queued", "in_flight") for document in self.documents)

    def one_event(self) -> None:
        """The earliest of: something on its way, an order acknowledgement."""
        self.look_when_due()
        moments = [moment for moment in (self.events[0][0] if self.events else None, self.timer.due_at) if moment]
        if not moments:
            self.now += timedelta(seconds=1)
            return
        self.now = max(self.now, min(moments))
        if self.chance.random() < self.weather.person:
            self.person()
        if self.events and self.events[0][0] <= self.now:
            heapq.heappop(self.events)[2]()
        else:
            self.acknowledge()
        self.judge()

    def look_when_due(self) -> None:
        """Workers look when something is due: the pair, or a lease that is over."""
        if self.looks_at is not None and self.looks_at > self.now:
            return
        leases = [row.due_at for row in self.sender.flight if row.place is Place.ON_WIRE]
        due = min((at for at in (next_due(self.sender, self.now, self.policy), *leases) if at), default=None)
        if due is not None:
            wait = max((due - self.now).total_seconds(), 0 if self.looks_at is None else 0.2)
            self.looks_at = self.now + timedelta(seconds=min(wait, 1))
            self.workers.look_in(wait)

    # The sender

    def submit(self) -> None:
        life = self.chance.choice((None, None, None, 5, 60))
        expires_at = None if life is None else self.now + timedelta(seconds=life)
        if self.fault is not None:
            expires_at = None
        self.documents.append(Document(len(self.documents), expires_at))
        self.apply(Event(kind=Kind.QUEUED))
        self.go_on()

    def apply(self, event: Event) -> tuple[Act, ...]:
        done = self.build.step(self.sender, event, self.now, self.policy)
        self.sender = done.state
        for act in done.acts:
            self.seen[act.do] += 1
            if act.do is Do.NEW_STREAM:
                self.used.append(self.sender.tx_sequence_id)
            elif act.do is Do.TRANSMIT:
                document = self.numbered(act)
                document.attempts += 1
                arrival = Arrival(self.sender.tx_sequence_id, act.number, act.previous)
                self.to_claim.append(Job(document, document.attempts, arrival, act.request_receipt))
            elif act.do in (Do.COMPLETE, Do.EXPIRE, Do.DROP):
                ends = {Do.COMPLETE: "delivered", Do.EXPIRE: "in_doubt", Do.DROP: "dropped"}
                self.in_flight(act.number).state = ends[act.do]
            elif act.do is Do.REQUEUE:
                document = self.in_flight(act.number)
                document.state, document.number = "queued", 0
        return done.acts

    def in_flight(self, number: int) -> Document:
        return next(d for d in self.documents if d.state == "in_flight" and d.number == number)

    def numbered(self, act: Act) -> Document:
        if not act.first:
            return self.in_flight(act.number)
        document = next(d for d in self.documents if d.state == "queued")
        document.state, document.number = "in_flight", act.number
        return document

    def go_on(self) -> None:
        """What may go now is claimed in the transaction that has decided that, or else found by looking."""
        claimed = self.continued()
        if claimed:
            self.start(None, self.workers.hand_over(claimed))

    def continued(self) -> list[Attempt]:
        due, seat = next_due(self.sender, self.now, self.policy), self.workers.seat()
        waits = any(document.state == "queued" for document in self.documents)
        ready = waits and due is not None and due <= self.now and not self.sender.cause
        return self.promote(seat) if seat is not None and ready else []

    def promote(self, worker: Worker, *, in_hand: bool = False) -> list[Attempt]:
        """What has to go again, and what may go from the queue, as many as may be."""
        self.apply(Event(kind=Kind.DUE, limit=self.chance.choice((None, 1, 3))))
        queue = [document for document in self.documents if document.state == "queued"]
        for document in queue:
            if expired(document.expires_at, self.now):
                document.state = "failed"
                self.apply(Event(kind=Kind.DISCARDED, count=1))
        queue = [document for document in queue if document.state == "queued"]
        heads = queue[: room(self.sender, self.policy)]
        self.apply(Event(kind=Kind.START, count=len(heads), expires=tuple(document.expires_at for document in heads)))
        jobs, self.to_claim = self.to_claim, []
        for job in jobs:
            job.document.attempt = self.workers.claimed(job, worker, in_hand=in_hand)
        return [job.document.attempt for job in jobs if job.document.attempt is not None]

    # What its workers ask of its store (`workers.Store`)

    def claim(self, worker: Worker) -> list[Attempt]:
        for row in self.sender.flight:
            if row.place is Place.ON_WIRE and row.due_at is not None and row.due_at <= self.now:
                attempt = self.in_flight(row.number).attempt
                assert attempt is not None
                self.workers.lease_over(attempt)
                self.apply(Event(kind=Kind.LEASE_OVER, number=row.number))
        due = next_due(self.sender, self.now, self.policy)
        return self.promote(worker, in_hand=True) if due is not None and due <= self.now else []

    def seconds(self) -> float:
        return (self.now - START).total_seconds()

    def start(self, owner: Worker | None, process: Process) -> None:
        self.workers.run(owner, process)

    def broken(self, text: str) -> NoReturn:
        raise Broken(text)

    def waits_for(self, job: Job) -> bool:
        document = job.document
        return document.attempts == job.attempt and document.state == "in_flight" and self.on_wire(document) is not None

    def on_wire(self, document: Document) -> InFlight | None:
        rows = (row for row in self.sender.flight if row.number == document.number)
        return next((row for row in rows if row.place is Place.ON_WIRE), None)

    def renew(self, job: Job) -> None:
        self.due(job, self.now + timedelta(seconds=self.policy.lease))

    def release(self, job: Job) -> None:
        self.due(job, self.now)

    def due(self, job: Job, at: datetime) -> None:
        flight = tuple(
            replace(row, due_at=at) if row.number == job.document.number else row for row in self.sender.flight
        )
        self.sender = replace(self.sender, flight=flight)
        self.looks_at = None

    def record(self, outcomes: Sequence[tuple[Attempt, Any]]) -> list[Attempt]:
        for attempt, kind in outcomes:
            job: Job = attempt.job
            row = self.on_wire(job.document) if job.document.state == "in_flight" else None
            if not self.waits_for(job):
                self.seen["overtaken"] += 1
                if self.build.checks_whose_outcome_it_is or row is None:
                    continue
                raise Broken(f"document {job.document.key} is moved by the outcome of another attempt")
            self.apply(Event(kind=kind, number=job.arrival.number, retry_after=1, cause="connection_reset"))
        return self.continued()

    def person(self) -> None:
        verb = self.chance.choice(VERBS[self.sender.flow])
        try:
            self.apply(Event(kind=verb, cause="by_hand"))
        except IllegalTransition:
            return
        self.seen[verb] += 1

    # A request and its answer

    def talk(self, worker: Worker, attempt: Attempt) -> None:
        job: Job = attempt.job
        heard: list[Kind] = []

        def hear(kind: Kind) -> None:
            if not heard:
                heard.append(kind)
                self.workers.came(worker, attempt, kind)

        def answered(kind: Kind) -> None:
            if self.chance.random() >= self.weather.loses_answers:
                self.later(self.chance.uniform(0, self.weather.delay), lambda: hear(kind))

        if expired(job.document.expires_at, self.now):
            self.seen["not sent any more"] += 1
            hear(Kind.TRANSPORT_FAILED)
            return
        # When no answer comes the transport says so, sooner or later.
        self.later(20, lambda: hear(Kind.TRANSPORT_FAILED))
        self.travel(lambda: answered(self.receive(job.document.key, job.arrival, job.asks)))

    def receive(self, key: int, arrival: Arrival, asks: bool) -> Kind:
        sid = arrival.tx_sequence_id
        if key in self.refused:
            # Refused before sequencing: a final acknowledgement says so, and nothing moves.
            self.travel(lambda: self.final(sid, arrival.number, key))
            return Kind.SENT
        decision = self.build.decide(self.receiver, arrival, self.now)
        self.seen[decision.verdict] += 1
        self.seen[decision.rule] += 1
        self.receiver = decision.state
        self.timer = on_message(self.timer, self.now, self.timing, requested=asks)
        if decision.accepted:
            if (sid, arrival.number) in self.accepted:
                raise Broken(f"number {arrival.number} accepted twice")
            self.accepted.add((sid, arrival.number))
            if key in self.inbox:
                self.seen["repeat by id"] += 1  # numbered anew after a restart
            else:
                self.inbox.append(key)
        return Kind.NOT_TAKEN if decision.verdict is Verdict.GAP else Kind.SENT

    def acknowledge(self) -> None:
        due = on_due(self.timer, self.now, self.receiver)
        self.timer = due.timer
        if due.order_ack is not None:
            ack: OrderAck = due.order_ack
            event = Event(kind=Kind.ACKNOWLEDGED, tx_sequence_id=ack.tx_sequence_id, number=ack.number)
            self.travel(lambda: (self.apply(event), self.go_on()))

    def final(self, sid: int, number: int, key: int) -> None:
        document = self.documents[key]
        if sid == self.sender.tx_sequence_id and document.state == "in_flight" and document.number == number:
            self.apply(Event(kind=Kind.DROPPED, numbers=(number,), bridge=True))

    # The judge

    def judge(self) -> None:
        if self.inbox != sorted(set(self.inbox)):
            raise Broken(f"not once and in order: {self.inbox}")
        if len(self.sender.flight) > self.policy.window:
            raise Broken("more in flight than the window")
        numbers = [row.number for row in self.sender.flight]
        mine = sorted(d.number for d in self.documents if d.state == "in_flight")
        if numbers != mine:
            raise Broken(f"in flight {numbers}, and the documents say {mine}")
        claimed = {d.key for d in self.documents if d.state == "delivered"}
        if not claimed <= set(self.inbox):
            raise Broken(f"acknowledged and not there: {claimed - set(self.inbox)}")
        if self.refused & set(self.inbox):
            raise Broken("accepted what is refused")
        if self.used != sorted(set(self.used)):
            raise Broken("a stream id that is not above all before it")
        queued = sum(d.state == "queued" for d in self.documents)
        if queued != self.sender.queued:
            raise Broken(f"{queued} are queued, and the sender says {self.sender.queued}")

    def at_the_end(self) -> None:
        left = [(d.key, d.state) for d in self.documents if d.state in ("queued", "in_flight")]
        if left or len(self.documents) < self.wanted:
            raise Broken(f"never ends: {left}")
        for document in self.documents:
            self.seen[document.state] += 1
            if document.state == "failed" and document.key in self.inbox and not self.seen[Kind.RESTART]:
                raise Broken(f"{document.key} was never sent, they say, and it is there")
