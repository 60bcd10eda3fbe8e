"""Documents on their way to one trigger: workers that claim, talk and record, an application, a resolver, a person.

The decisions are the protocol core's: what is known of a document (`processing`), what a service's end leads to
(`service_ends`), where a delivery may go (`delivery_moves`). What is committed survives a kill, and so does what the
application has done; a worker does not. Events in the order of their times, chance from one seed.
"""

from __future__ import annotations

import copy
import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from messaging.protocol import processing, service_ends
from messaging.protocol.processing import Answer, Decision, DeliveryState, Entry, Properties, Status, move
from messaging.protocol.service_ends import DEFAULT_RETRY_STATUSES, Next, Ran, RetryPolicy

START = datetime(2026, 1, 1, tzinfo=UTC)
STORM = timedelta(minutes=10)
EVENTS = 8000
LEASE = 60.0  # seconds; longer than any service takes
OPEN = frozenset({DeliveryState.WAITING, DeliveryState.RUNNING})


class Broken(AssertionError):
    """A promise was broken; the text names the seed."""


@dataclass(frozen=True)
class Build:
    """What the engine is made of. The defaults are what we ship; every other value is a known mistake."""

    decide: Callable[..., Decision] = processing.decide
    conclude: Callable[..., Decision] = processing.conclude
    after: Callable[..., Next] = service_ends.after
    redelivered: Callable[[int], int] = processing.redelivered
    begins_before_the_service: bool = True
    records_what_is_completed: bool = True
    releases_what_did_not_happen: bool = True
    checks_whose_outcome_it_is: bool = True
    leases_what_it_claims: bool = True
    keeps_order: bool = True
    commits_a_callable_once: bool = True
    takes_over_for_a_person: bool = True
    looks_whether_a_copy_overtook_it: bool = True
    marks_what_waits_after_a_restore: bool = True
    marks_what_comes_after_a_restore: bool = True
    a_persons_word_outlives_a_restore: bool = False


@dataclass(eq=False)
class Delivery:
    """One document on its way. `lost`: a hand-over of it may have happened or not, so doubt about it is justified."""

    key: int
    document: int
    position: int
    due_at: datetime
    state: DeliveryState = DeliveryState.WAITING
    count: int = 0
    retries: int = 0
    claim: int = 0
    override: bool = False
    lost: bool = False
    memory_lost: bool = False
    decision: Decision | None = None
    effects: int = 0


@dataclass(frozen=True)
class Trouble:
    kills: float
    freezes: float
    fails: float
    resolver_fails: float
    history_fails: float


@dataclass
class Disk:
    deliveries: list[Delivery] = field(default_factory=list)
    started: dict[int, int] = field(default_factory=dict)  # document -> delivery
    completed: set[int] = field(default_factory=set)
    suspended: bool = False


class TriggerWorld:
    """One run; `play` raises Broken. `kill_at`: a worker dies at that one place, in calm weather (0: nowhere)."""

    def __init__(self, seed: int, build: Build | None = None, *, kill_at: int | None = None) -> None:
        self.seed, self.build, self.kill_at = seed, build or Build(), kill_at
        self.chance = chance = random.Random(seed)
        self.now, self.disk = START, Disk()
        self.properties = Properties(
            detect_duplicates=chance.random() < 0.9,
            use_history=chance.random() < 0.6,
            has_resolver=chance.random() < 0.4,
            resolver_failure_suspends=chance.random() < 0.5,
            retry_suspends=chance.random() < 0.5,
        )
        self.ordered, self.callable = chance.random() < 0.5, chance.random() < 0.3
        self.policy = RetryPolicy(
            until_success=chance.random() < 0.2,
            max_retries=chance.choice((0, 1, 3)),
            interval=chance.choice((1.0, 10.0)),
            suspends=self.properties.retry_suspends,
            suspend_on_error=self.ordered and chance.random() < 0.3,
        )
        self.trouble = Trouble(
            kills=chance.choice((0, 0.05, 0.2)),
            freezes=chance.choice((0, 0.05)),
            fails=chance.choice((0, 0.2, 0.5)),
            resolver_fails=chance.choice((0, 0.4)),
            history_fails=chance.choice((0, 0, 0.1)),
        )
        if kill_at is not None:
            self.trouble = Trouble(0, 0, 0, 0, 0)
        self.events: list[tuple[datetime, int, bool, Callable[[], object]]] = []
        self.count = self.points = self.claims = 0
        self.processed: Counter[int] = Counter()
        self.seen: Counter[str] = Counter()
        # A resolver that knows what was done cannot know what is being done: copies and resolver are not for one run.
        copies = not self.properties.has_resolver and self.properties.use_history and chance.random() < 0.7
        counted = chance.random() < 0.8
        for document in range(chance.randint(1, 8)):
            for _ in range(chance.randint(1, 3) if copies else 1):
                count = 0 if counted else -1
                self.later(chance.uniform(0, 120), lambda d=document, c=count: self.comes(d, c), lasts=True)  # type: ignore[misc]
        for _ in range(chance.randint(1, 3)):
            self.later(chance.random(), self.work)
        self.later(30, self.person)
        self.came: list[tuple[int, int]] = []  # since the backup: document, count
        self.forgetful, self.restores = False, kill_at is None and chance.random() < 0.4
        if self.restores:
            self.later(chance.uniform(5, 120), self.back_up, lasts=True)

    # The clock

    def later(self, seconds: float, what: Callable[[], object], *, lasts: bool = False) -> None:
        """`lasts`: it comes from outside of the hub, so that no restore takes it away."""
        self.count += 1
        heapq.heappush(self.events, (self.now + timedelta(seconds=seconds), self.count, lasts, what))

    @property
    def stormy(self) -> bool:
        return self.now < START + STORM

    def happens(self, chance: float) -> bool:
        return self.stormy and self.chance.random() < chance

    def lives(self, place: str) -> bool:
        """Whether the worker goes on here, between two commits. Of a dead one a new one takes the place."""
        self.points += 1
        killed = self.points == self.kill_at if self.kill_at is not None else self.happens(self.trouble.kills)
        if killed:
            self.seen[f"killed {place}"] += 1
            self.later(1, self.work)
        return not killed

    def play(self) -> None:
        for _ in range(EVENTS):
            if not self.events:
                break
            self.now, _, _, what = heapq.heappop(self.events)
            what()
        else:
            self.broken("there is no end to it")
        self.close()

    def broken(self, text: str) -> None:
        raise Broken(f"{text} (SIMULATION_FIRST={self.seed} SIMULATION_SEEDS=1, at {self.now:%H:%M:%S})")

    # A backup, and a database that is as of then again

    def back_up(self) -> None:
        disk, processed = copy.deepcopy(self.disk), self.processed.copy()
        self.came.clear()
        self.later(self.chance.uniform(5, 90), lambda: self.restore(disk, processed), lasts=True)

    def restore(self, disk: Disk, processed: Counter[int]) -> None:
        """The hub's processes end; partners and the application have gone on. Until a person has compared, all that
        comes may be a repeat, and so may what waits. What came since the backup comes again.
        """
        self.seen["restored"] += 1
        self.restores, self.forgetful, self.disk = False, True, disk
        self.events = [event for event in self.events if event[2]]
        heapq.heapify(self.events)
        if self.callable:
            self.processed = processed  # its effects were in the same database
        for one in disk.deliveries:
            waits = one.state is DeliveryState.WAITING and not self.callable
            one.memory_lost |= waits and self.build.marks_what_waits_after_a_restore
        for document, count in self.came:
            self.later(self.chance.uniform(1, 30), lambda d=document, c=count: self.comes(d, c), lasts=True)  # type: ignore[misc]
        self.later(31, self.compared, lasts=True)
        for _ in range(self.chance.randint(1, 3)):
            self.later(self.chance.random(), self.work)
        self.later(30, self.person)

    def compared(self) -> None:
        self.forgetful = False

    # Documents and what is known of them

    def comes(self, document: int, count: int) -> None:
        made = self.arrive(document, count)
        self.came.append((document, count))
        made.memory_lost = self.forgetful and not self.callable and self.build.marks_what_comes_after_a_restore

    def arrive(self, document: int, count: int, override: bool = False, position: int | None = None) -> Delivery:
        key = len(self.disk.deliveries) + 1
        made = Delivery(key, document, key if position is None else position, self.now, count=count, override=override)
        self.disk.deliveries.append(made)
        return made

    def is_open(self) -> bool:
        waits = any(one.state in OPEN or one.state is DeliveryState.IN_DOUBT for one in self.disk.deliveries)
        return waits or self.restores or self.forgetful or self.now < START + timedelta(minutes=3)

    def entry(self, delivery: Delivery) -> Entry | None:
        """What the history says; where it has nothing the document is begun, except by callables."""
        if not self.remembers:
            return None
        if self.happens(self.trouble.history_fails):
            self.seen["history down"] += 1
            return Entry.UNREACHABLE
        if delivery.document in self.disk.completed:
            return Entry.COMPLETED
        running = any(
            one.document == delivery.document and one.state is DeliveryState.RUNNING for one in self.disk.deliveries
        )
        if delivery.document in self.disk.started or (self.callable and running):
            return Entry.STARTED
        if self.build.begins_before_the_service and not self.callable:
            self.disk.started[delivery.document] = delivery.key
        return Entry.ABSENT

    # A worker: claim, talk, record

    def work(self) -> None:
        due = [one for one in self.disk.deliveries if self.is_due(one)]
        if not due or self.disk.suspended:
            if self.is_open():
                self.later(self.chance.uniform(0.5, 5), self.work)
            return
        delivery = due[0]
        if delivery.state is DeliveryState.RUNNING:  # its worker is lost
            delivery.count, delivery.lost = self.build.redelivered(delivery.count), True
            self.to(delivery, DeliveryState.WAITING)
        told = delivery.override and (not delivery.memory_lost or self.build.a_persons_word_outlives_a_restore)
        overridden = told and (delivery.count == 0 or (self.remembers and self.begun_by(delivery) != delivery.key))
        overridden = overridden and not (self.build.looks_whether_a_copy_overtook_it and self.is_overtaken(delivery))
        entry = None if overridden else self.entry(delivery)
        if overridden and self.takes_part():
            self.disk.started[delivery.document] = delivery.key
        decision = self.build.decide(
            self.properties,
            guaranteed=True,
            redelivery_count=delivery.count,
            entry=entry,
            operator_override=overridden,
            memory_lost=delivery.memory_lost,
        )
        delivery.decision = decision
        self.seen[decision.status or ("suspend" if decision.suspend else "ask")] += 1
        if decision.suspend:
            self.disk.suspended = True
        elif decision.ask_resolver or decision.status in (Status.NEW, Status.UNCHECKED):
            self.claims += 1
            delivery.claim = self.claims
            self.to(delivery, DeliveryState.RUNNING)
            lease = LEASE if self.build.leases_what_it_claims else 1.0
            delivery.due_at = self.now + timedelta(seconds=lease)
            if self.lives("after the claim"):
                self.later(self.chance.uniform(0.1, 3), lambda: self.talk(delivery, delivery.claim, decision))
            return
        else:
            self.ends(delivery, decision)
        self.later(0.1, self.work)

    def is_due(self, delivery: Delivery) -> bool:
        if delivery.state not in OPEN or delivery.due_at > self.now:
            return False
        if not self.ordered or not self.build.keeps_order:
            return True
        return not any(one.state in OPEN and one.position < delivery.position for one in self.disk.deliveries)

    def begun_by(self, delivery: Delivery) -> int | None:
        return self.disk.started.get(delivery.document)

    def is_overtaken(self, delivery: Delivery) -> bool:
        """Whether a copy has processed the document, or has it in progress, since a person said that it was not."""
        copies = [one for one in self.disk.deliveries if one.document == delivery.document and one is not delivery]
        return self.remembers and any(
            one.state is DeliveryState.COMPLETED
            or (one.state is DeliveryState.RUNNING and self.begun_by(delivery) == one.key)
            for one in copies
        )

    def takes_part(self) -> bool:
        return self.remembers and not self.callable

    @property
    def remembers(self) -> bool:
        return self.properties.use_history and self.properties.detect_duplicates

    def talk(self, delivery: Delivery, claim: int, decision: Decision) -> None:
        if decision.ask_resolver:
            answer = self.resolve(delivery.document)
            if self.lives("between the resolver and the record"):
                self.resolved(delivery, claim, decision, answer)
            return
        if self.callable:
            self.call(delivery, claim)
            return
        trouble = self.chance.random() if self.happens(self.trouble.fails) else 1.0
        if trouble < 0.25:
            ran = service_ends.from_http(None, "connect_refused", DEFAULT_RETRY_STATUSES)
        elif trouble < 0.5:
            ran = service_ends.from_http(503, "", DEFAULT_RETRY_STATUSES)
        elif trouble < 0.6:
            ran = service_ends.from_http(None, "read_timeout", DEFAULT_RETRY_STATUSES)
        else:
            # The request is on its way: whatever becomes of the worker, the application processes it.
            self.processes(delivery)
            status, cause = (None, "read_timeout") if trouble < 0.8 else (500, "") if trouble < 1 else (200, "")
            ran = service_ends.from_http(status, cause, DEFAULT_RETRY_STATUSES)
        if not self.lives("between the service and the record"):
            return
        frozen = LEASE * 2 if self.happens(self.trouble.freezes) else 0
        self.later(frozen, lambda: self.record(delivery, claim, ran))

    def call(self, delivery: Delivery, claim: int) -> None:
        """A callable of ours: what it does, the history and the end are one commit."""
        if not self.is_mine(delivery, claim):
            self.later(0.1, self.work)
        elif self.happens(self.trouble.fails):
            self.record(delivery, claim, Ran.TRANSIENT if self.chance.random() < 0.7 else Ran.ERROR)
        elif self.build.commits_a_callable_once:
            if self.lives("in a callable's transaction"):
                self.processes(delivery)
                self.record(delivery, claim, Ran.OK)
        else:
            self.processes(delivery)
            if self.lives("in a callable's transaction"):
                self.record(delivery, claim, Ran.OK)

    def is_mine(self, delivery: Delivery, claim: int) -> bool:
        return delivery.state is DeliveryState.RUNNING and (
            delivery.claim == claim or not self.build.checks_whose_outcome_it_is
        )

    def resolve(self, document: int) -> Answer:
        """The application looks, and tells the truth, or has trouble of its own."""
        self.seen["resolver"] += 1
        if self.happens(self.trouble.resolver_fails):
            said = self.chance.choice((Answer.TRANSIENT, Answer.FAILED, "maybe", None, "in doubt"))
            return said if isinstance(said, Answer) else processing.read_answer(said)
        return processing.read_answer("DUPLICATE" if self.processed[document] else "New ")

    def resolved(self, delivery: Delivery, claim: int, decision: Decision, answer: Answer) -> None:
        if not self.is_mine(delivery, claim):
            self.later(0.1, self.work)
            return
        found = self.build.conclude(self.properties, decision, answer)
        if found.suspend:
            self.disk.suspended = True
            self.to(delivery, DeliveryState.WAITING)
        elif found.status is Status.NEW:
            if self.takes_part():
                self.disk.started[delivery.document] = delivery.key
            delivery.due_at = self.now + timedelta(seconds=LEASE)
            self.later(self.chance.uniform(0.1, 3), lambda: self.talk(delivery, claim, found))
            return
        else:
            delivery.lost = True  # nobody doubts without having been asked
            self.ends(delivery, found)
        self.later(0.1, self.work)

    def record(self, delivery: Delivery, claim: int, ran: Ran) -> None:
        self.later(0.1, self.work)
        if not self.is_mine(delivery, claim):
            self.seen["late outcome"] += 1
            return
        if delivery.claim != claim:
            self.broken(f"delivery {delivery.key} is moved by the outcome of another hand-over")
        self.seen[ran] += 1
        follows = self.build.after(
            ran,
            retries_used=delivery.retries,
            detect_duplicates=self.properties.detect_duplicates,
            policy=self.policy,
        )
        self.seen[follows] += 1
        match follows:
            case Next.COMPLETE:
                self.finish(delivery, DeliveryState.COMPLETED)
            case Next.RETRY | Next.SUSPEND:
                self.release(delivery)
                self.to(delivery, DeliveryState.WAITING)
                delivery.retries = delivery.retries + 1 if follows is Next.RETRY else 0
                delivery.due_at = self.now + timedelta(seconds=self.policy.interval)
                self.disk.suspended |= follows is Next.SUSPEND
            case Next.REDELIVER:
                delivery.count, delivery.lost = self.build.redelivered(delivery.count), True
                self.to(delivery, DeliveryState.WAITING)
                delivery.due_at = self.now + timedelta(seconds=self.policy.interval)
            case Next.FAIL | Next.FAIL_AND_SUSPEND:
                self.finish(delivery, DeliveryState.FAILED)
                self.disk.suspended |= follows is Next.FAIL_AND_SUSPEND
        if delivery.retries > self.policy.max_retries and not self.policy.until_success:
            self.broken(f"delivery {delivery.key} is retried {delivery.retries} times")

    # How a delivery moves

    def to(self, delivery: Delivery, state: DeliveryState) -> None:
        delivery.state = move(delivery.state, state)

    def release(self, delivery: Delivery) -> None:
        if self.build.releases_what_did_not_happen and self.begun_by(delivery) == delivery.key:
            del self.disk.started[delivery.document]

    def finish(self, delivery: Delivery, state: DeliveryState) -> None:
        self.to(delivery, state)
        if state is DeliveryState.COMPLETED and not self.processed[delivery.document]:
            self.broken(f"delivery {delivery.key} is completed, and its document was never processed")
        if self.remembers:
            self.disk.started.pop(delivery.document, None)
            if self.build.records_what_is_completed:
                self.disk.completed.add(delivery.document)

    def ends(self, delivery: Delivery, decision: Decision) -> None:
        """A duplicate, or in doubt."""
        if decision.status is Status.DUPLICATE:
            own = (delivery.count != 0 or delivery.memory_lost) and self.begun_by(delivery) == delivery.key
            self.to(delivery, DeliveryState.DUPLICATE)
            if own:
                self.disk.started.pop(delivery.document)
                self.disk.completed.add(delivery.document)
            failed = any(
                one.document == delivery.document and one.state is DeliveryState.FAILED for one in self.disk.deliveries
            )
            if not self.processed[delivery.document] and not failed:
                self.broken(f"delivery {delivery.key} is a duplicate, and its document was never processed")
            return
        self.to(delivery, DeliveryState.IN_DOUBT)
        copies = [one for one in self.disk.deliveries if one.document == delivery.document and one is not delivery]
        elsewhere = any(
            one.state in (DeliveryState.RUNNING, DeliveryState.IN_DOUBT) or one.lost or one.memory_lost or one.override
            for one in copies
        )
        if decision.group == processing.Doubt.MEMORY_LOST:
            self.seen["in doubt after a restore"] += 1
        if not (
            delivery.lost or delivery.memory_lost or elsewhere or decision.group == processing.Doubt.HISTORY_UNREACHABLE
        ):
            self.broken(f"delivery {delivery.key} is in doubt for no reason ({decision.group})")

    def processes(self, delivery: Delivery) -> None:
        """The application has done what the document says."""
        self.processed[delivery.document] += 1
        delivery.effects += 1
        checked = self.properties.detect_duplicates
        if checked and delivery.effects > 1:
            self.broken(f"delivery {delivery.key} is processed twice")
        remembered = self.properties.use_history or self.properties.has_resolver
        if checked and remembered and self.processed[delivery.document] > 1:
            self.broken(f"document {delivery.document} is processed twice, now by delivery {delivery.key}")
        earlier = [
            one.key
            for one in self.disk.deliveries
            if one.state in OPEN and one.position < delivery.position and not one.override
        ]
        if self.ordered and earlier:
            self.broken(f"delivery {delivery.key} is processed before {earlier}")

    # A person

    def person(self) -> None:
        """Resumes what stands, and settles what is in doubt by what the application has: once, when nothing is on."""
        self.disk.suspended = False
        for delivery in list(self.disk.deliveries):
            if delivery.state is not DeliveryState.IN_DOUBT:
                continue
            copies = [one for one in self.disk.deliveries if one.document == delivery.document]
            if any(one.state in OPEN for one in copies):
                continue  # another copy, or its resubmission, is in progress
            self.to(delivery, DeliveryState.SETTLED)
            if self.processed[delivery.document]:
                if self.remembers:
                    self.disk.started.pop(delivery.document, None)
                    self.disk.completed.add(delivery.document)
                continue
            made = self.arrive(delivery.document, 0, override=True, position=delivery.position)
            made.due_at = self.now + timedelta(seconds=self.chance.choice((0, 20)))
            if self.remembers and self.build.takes_over_for_a_person:
                self.disk.started[delivery.document] = delivery.key  # until the new delivery takes it over
            elif self.remembers:
                self.disk.started.pop(delivery.document, None)
        if self.is_open():
            self.later(self.chance.uniform(20, 90), self.person)

    # At the end

    def close(self) -> None:
        for delivery in self.disk.deliveries:
            self.seen[delivery.state] += 1
            if delivery.state in OPEN or delivery.state is DeliveryState.IN_DOUBT:
                self.broken(f"delivery {delivery.key} ends {delivery.state}")
        failed = {one.document for one in self.disk.deliveries if one.state is DeliveryState.FAILED}
        for document in {one.document for one in self.disk.deliveries} - failed:
            if not self.processed[document]:
                self.broken(f"document {document} was never processed")
        if self.kill_at == 0 and any(self.seen[state] for state in (DeliveryState.FAILED, DeliveryState.SETTLED)):
            self.broken("nothing went wrong, and not everything is completed")
