"""Repeatable requests between two hubs: the sender's core, the receiver's memory, and what can go wrong between them.

Events in the order of their times, chance from one seed. What is committed survives a kill; what is under way, and the
application, do not know of it. The judge is asked at each execution, at each answer that is believed, and at the end.
"""

from __future__ import annotations

import copy
import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, NoReturn

from messaging.protocol import memory, repeating
from messaging.protocol.codecs.repeatable import Identity, fingerprint, read, read_result, write
from messaging.protocol.memory import Decision, Memory, Received, Refusal, Stored, Verdict
from messaging.protocol.repeating import Act, Policy, Reply, Step
from tests.simulation.workers import Attempt, Fault, Handing, Process, Trouble, Worker, Workers

START = datetime(2026, 1, 1, tzinfo=UTC)
STORM = timedelta(minutes=20)
EVENTS = 20_000
WINDOW, SKEW, LEASE = timedelta(seconds=600), timedelta(seconds=60), timedelta(seconds=30)


ENDED = frozenset({"done", "failed", "settled"})


def _fits(cause: str, told: set[int]) -> bool:
    """Whether what is said of the end is so, after these answers."""
    says = {
        "never_sent": not told,
        "access_refused": told == {401},
        "turned_away": 404 in told and told <= {401, 404},
    }
    return says.get(cause, True)


class Broken(AssertionError):
    """A promise was broken; the text names the seed."""


@dataclass(frozen=True)
class Build:
    """What both hubs are made of. The defaults are what we ship; every other value is a known mistake."""

    decide: Callable[[Memory, Received, Stored | None, datetime], Decision] = memory.decide
    start_after_loss: Callable[[datetime, datetime, timedelta], datetime] = memory.start_after_loss
    begin: Callable[[repeating.State, datetime, Policy], Step] = repeating.begin
    step: Callable[..., Step] = repeating.step
    admits_first: bool = True
    releases_only_what_did_not_happen: bool = True
    keeps_answers: bool = True
    keeps_forgotten_ids: bool = True
    keeps_how_far_it_forgot: bool = True
    keeps_its_heartbeat: bool = True
    sweeps_by_first_instance: bool = True
    repeats_under_the_same_id: bool = True
    checks_whose_outcome_it_is: bool = True
    looks_at_the_window_before_it_talks: bool = True
    handing: Handing = Handing()  # noqa: RUF009  (frozen)


@dataclass
class Row:
    """What the receiver remembers of one id."""

    state: memory.State
    first_sent: datetime
    arrived: datetime
    fingerprint: str
    lease: datetime
    answer: tuple[int, str, str] = (0, "", "")


@dataclass
class Disk:
    """What the receiver has committed. `to_do`: ids that were acknowledged (one way), and have to be executed."""

    memory: Memory
    rows: dict[str, Row] = field(default_factory=dict)
    to_do: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Packet:
    """A request on the wire: its headers as the codec writes them. `message`: whose it is, for the judge. `sent`: who
    waits for the answer; nobody waits for that to a copy which something on the way has made.
    """

    headers: tuple[tuple[str, str], ...]
    message: str
    sent: tuple[Worker, Attempt] | None = None
    of: int = 0  # the attempt that it is of, and its copies are


class Job(NamedTuple):
    """One attempt of a message at its sender, with the headers that were claimed."""

    message: Message
    number: int
    headers: tuple[tuple[str, str], ...]


@dataclass
class Message:
    """A document at its sender, under one id."""

    document: int
    id: str
    one_way: bool
    state: str = "queued"
    core: repeating.State = field(default_factory=repeating.State)
    due_at: datetime = START
    attempt: Attempt | None = None
    cause: str = ""
    copies: int = 0


@dataclass(frozen=True)
class Weather:
    loses: float
    loses_answers: float
    repeats: float
    strays: float
    delay: float
    kills: float
    fails: float


class RequestWorld:
    """One run; `play` raises Broken. `kill_at`: the receiver dies at that one place, in calm weather (0: nowhere);
    `fault`: that happens to the sender's workers, in calm weather.
    """

    def __init__(
        self, seed: int, build: Build | None = None, *, kill_at: int | None = None, fault: Fault | None = None
    ) -> None:
        self.seed, self.build, self.kill_at = seed, build or Build(), kill_at
        self.chance = chance = random.Random(seed)
        self.now = START
        self.calm = kill_at is not None or fault is not None
        self.weather = Weather(
            loses=chance.choice((0, 0.1, 0.4)),
            loses_answers=chance.choice((0, 0.2, 0.5)),
            repeats=chance.choice((0, 0.3)),
            strays=chance.choice((0, 0.3, 0.8)),
            delay=chance.choice((0.05, 2, 20)),
            kills=chance.choice((0, 0.05, 0.15)),
            fails=chance.choice((0, 0.2)),
        )
        if self.calm:
            self.weather = Weather(0, 0, 0, 0, 0.05, 0, 0)
        self.policy = Policy(window=WINDOW, skew=SKEW, initial=5, maximum=chance.choice((20, 120)), lease=30)
        # A sender's clock is wrong by less than the skew that its receiver allows for.
        self.ahead = timedelta(seconds=chance.uniform(-55, 55))
        self.set_back, self.refusing, self.shut_until = timedelta(0), False, START
        self.disk = Disk(Memory(WINDOW, SKEW, START - timedelta(days=1), START - timedelta(days=1), START))
        self.back_up()
        self.boot = self.points = 0
        self.messages: dict[str, Message] = {}
        self.transactional = chance.random() < 0.5  # the application's work is one commit with the answer
        self.ran: Counter[str] = Counter()  # by id: what the application has done
        self.documents: Counter[int] = Counter()
        self.answers: dict[str, str] = {}
        self.outside: set[str] = set()
        self.shut_with: tuple[int, ...] = ()
        self.turned_away: set[int] = set()  # attempts that were answered 401 or 404
        self.told: dict[str, set[int]] = {}  # by id: the statuses that its sender has heard while it was open
        self.seen: Counter[str] = Counter()
        self.events: list[tuple[datetime, int, Callable[[], object]]] = []
        self.count = 0
        self.at_once = chance.choice((1, 3, 20))  # in flight
        continues, trouble = chance.random() < 0.7 or self.calm, Trouble.drawn(chance)
        fault = fault or (Fault() if self.calm else None)
        self.workers = Workers(self, chance, self.build.handing, trouble, fault, continues=continues)
        self.later(STORM.total_seconds(), lambda: setattr(self.workers, "trouble", Trouble()))
        for document in range(chance.randint(1, 12)):
            self.later(chance.uniform(0, 600), lambda d=document: self.submit(d))  # type: ignore[misc]
        self.later(60, self.housekeeping)
        accident = chance.choice(("none", "restore", "window", "clock", "clock", "refuse", "shut"))
        if accident != "none" and not self.calm:
            at = chance.uniform(60, 1000)
            self.later(at, getattr(self, accident))
            self.later(at - chance.uniform(1, 400) if at > 401 else at / 2, self.back_up)

    # The clock and the link

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + timedelta(seconds=seconds), self.count, what))

    def at_receiver(self, seconds: float, what: Callable[[], object]) -> None:
        """Something that a process of the receiver does next: a kill ends it."""
        boot = self.boot

        def go() -> None:
            if boot == self.boot:
                what()

        self.later(seconds, go)

    def here(self, place: str) -> bool:
        """Whether the receiver goes on here, between two commits."""
        self.points += 1
        killed = self.points == self.kill_at if self.calm else self.chance.random() < self.weather.kills * self.stormy
        if killed:
            self.boot += 1
            self.seen[f"killed {place}"] += 1
        return not killed

    @property
    def stormy(self) -> bool:
        return self.now < START + STORM

    @property
    def senders_clock(self) -> datetime:
        return self.now + self.ahead

    @property
    def receivers_clock(self) -> datetime:
        return self.now - self.set_back

    def play(self) -> None:
        for _ in range(EVENTS):
            if not self.events:
                break
            self.now, _, what = heapq.heappop(self.events)
            what()
        else:
            self.broken("there is no end to it")
        self.close()

    def broken(self, text: str) -> NoReturn:
        raise Broken(f"{text} (SIMULATION_FIRST={self.seed} SIMULATION_SEEDS=1, at {self.now:%H:%M:%S})")

    # The sender, and what its workers ask of its store (`workers.Store`)

    def submit(self, document: int, again: int = 0) -> None:
        made = Message(document, f"r{document}.{again}", self.chance.random() < 0.4)
        self.messages[made.id] = made
        self.go_on()

    def go_on(self) -> None:
        """What may go now is claimed in the transaction that has decided that, or else found by looking."""
        claimed = self.promote(self.workers.seat())
        if claimed:
            self.start(None, self.workers.hand_over(claimed))
        self.workers.look_in(0.5)

    def promote(self, worker: Worker | None, *, in_hand: bool = False) -> list[Attempt]:
        """Puts queued messages in flight, in their order, as many as may be."""
        flight = sum(one.state in ("sending", "waiting", "held") for one in self.messages.values())
        queue = [one for one in self.messages.values() if one.state == "queued"] if worker else []
        begun = [self.begin(one, worker, in_hand=in_hand) for one in queue[: max(0, self.at_once - flight)] if worker]
        return [attempt for attempt in begun if attempt is not None]

    def claim(self, worker: Worker) -> list[Attempt]:
        claimed = []
        for message in list(self.messages.values()):
            if message.due_at > self.now or message.state not in ("sending", "waiting", "held"):
                continue
            if message.state == "sending":
                assert message.attempt is not None
                self.workers.lease_over(message.attempt)
                self.heard(message, message.core.attempts, None, "", "", "worker_lost")
                continue
            claimed.append(self.begin(message, worker, in_hand=True))
        claimed += self.promote(worker, in_hand=True)
        return [attempt for attempt in claimed if attempt is not None]

    def begin(self, message: Message, worker: Worker, *, in_hand: bool) -> Attempt | None:
        begun = self.build.begin(message.core, self.senders_clock, self.policy)
        if begun.act is not Act.SEND:
            self.became(message, begun)
            return None
        first = message.core.first_sent
        if first is not None and begun.state.first_sent != first:
            self.broken(f"{message.id} goes out with another first-instance time")
        message.core, message.state = begun.state, "sending"
        if not self.build.repeats_under_the_same_id and begun.state.attempts > 1:
            message.copies += 1
        identity = Identity(f"{message.id}{'+' * message.copies}", first_sent=begun.state.first_sent)
        job = Job(message, begun.state.attempts, write(identity))
        self.due(message, self.policy.lease)
        message.attempt = self.workers.claimed(job, worker, in_hand=in_hand)
        return message.attempt

    def due(self, message: Message, seconds: float) -> None:
        message.due_at = self.now + timedelta(seconds=seconds)
        self.later(seconds, lambda: self.workers.look_in(0))

    def seconds(self) -> float:
        return (self.now - START).total_seconds()

    def start(self, owner: Worker | None, process: Process) -> None:
        self.workers.run(owner, process)

    def waits_for(self, job: Job) -> bool:
        return job.message.state == "sending" and job.message.core.attempts == job.number

    def renew(self, job: Job) -> None:
        self.due(job.message, self.policy.lease)

    def release(self, job: Job) -> None:
        self.due(job.message, 0)

    def talk(self, worker: Worker, attempt: Attempt) -> None:
        message, _, headers = attempt.job
        first = message.core.first_sent
        assert first is not None
        if (
            self.senders_clock > repeating.deadline(first, self.policy)
            and self.build.looks_at_the_window_before_it_talks
        ):
            self.seen["not sent any more"] += 1
            return self.workers.came(worker, attempt, (None, "", "", "connect_refused"))
        if self.senders_clock > first + WINDOW:
            self.broken(f"{message.id} goes out although its receiver may have forgotten it")
        away = self.now < self.shut_until and not self.shut_with
        if away or (self.stormy and self.chance.random() < self.weather.fails * 0.3):
            return self.later(0.1, lambda: self.workers.came(worker, attempt, (None, "", "", "connect_refused")))
        packet = Packet(headers, message.id, (worker, attempt), attempt.number)
        return self.travel(
            self.weather.loses, lambda: self.arrives(packet), lambda: self.arrives(replace(packet, sent=None))
        )

    def record(self, outcomes: Sequence[tuple[Attempt, Any]]) -> list[Attempt]:
        for attempt, outcome in outcomes:
            self.heard(attempt.job.message, attempt.job.number, *outcome)
        return self.promote(self.workers.seat())

    def travel(self, loses: float, what: Callable[[], object], copied: Callable[[], object] | None = None) -> None:
        """Something is on its way: late, or never. `copied`: of a request, which comes again, also long after that."""
        delay = self.weather.delay if self.stormy else 0.05
        arrives = self.chance.uniform(0, delay)
        if not self.stormy or self.chance.random() >= loses:
            self.later(arrives, what)
        if copied is None or not self.stormy:
            return
        if self.chance.random() < self.weather.repeats:
            self.later(arrives + self.chance.uniform(0, 5 * delay), copied)
        if self.chance.random() < self.weather.strays:
            for _ in range(self.chance.randint(1, 3)):
                self.later(arrives + self.chance.uniform(0, 2 * WINDOW.total_seconds()), copied)

    def heard(
        self, message: Message, attempt: int, status: int | None, result: str, body: str, cause: str = ""
    ) -> None:
        """An answer, or the end of the lease without one. Of an attempt that is over it moves nothing, unless it is the
        answer that all repeats were for.
        """
        reply = repeating.classify(status, read_result([result] if result else []), cause)
        if reply is not Reply.DONE or message.state not in ("sending", "waiting", "held", "in_doubt"):
            if message.state != "sending":
                return
            if message.core.attempts != attempt:
                self.seen["overtaken"] += 1
                if self.build.checks_whose_outcome_it_is:
                    return
                self.broken(f"{message.id} is moved by the outcome of another attempt")
        self.seen[reply] += 1
        if status is not None:
            self.told.setdefault(message.id, set()).add(status)
        if reply is Reply.DONE and self.answers.get(message.id, body) != body:
            self.broken(f"{message.id} was answered {self.answers[message.id]!r}, and its sender is told {body!r}")
        done = self.build.step(message.core, reply, self.senders_clock, self.policy, self.chance.random())
        self.became(message, done)

    def became(self, message: Message, step: Step) -> None:
        message.core, message.cause = step.state, step.cause
        self.seen[step.act] += 1
        if step.act is Act.RETRY:
            assert step.due_at is not None
            message.state = "waiting"
            self.due(message, (step.due_at - self.senders_clock).total_seconds())
        elif step.act is Act.HOLD:
            message.state = "held"
            self.due(message, self.chance.uniform(1, 300))  # a person fixes it
        else:
            self.workers.look_in(0.5)  # there is room for the next
            message.state = {Act.COMPLETE: "done", Act.IN_DOUBT: "in_doubt", Act.FAIL: "failed"}[step.act]
            if message.state == "in_doubt":
                # A person looks when nothing that is under way can be taken any more.
                self.later((2 * WINDOW + STORM).total_seconds(), lambda: self.person(message))
            elif message.state == "done" and self.chance.random() < 0.2:
                self.later(1, lambda: self.forgets(message))

    def person(self, message: Message) -> None:
        """Looks into the application, and sends it again under a new id if it was not executed."""
        if message.state != "in_doubt":
            return
        message.state = "settled"
        if not self.documents[message.document]:
            self.submit(message.document, int(message.id.partition(".")[2]) + 1)

    def forgets(self, message: Message) -> None:
        """The sender asks its receiver to forget the answer."""
        row = self.disk.rows.get(message.id)
        if row is None or row.state is not memory.State.ANSWERED:
            return
        if self.build.keeps_forgotten_ids:
            row.state, row.answer = memory.State.FORGOTTEN, (0, "", "")
        else:
            del self.disk.rows[message.id]

    # The receiver

    def arrives(self, packet: Packet) -> None:
        now = self.receivers_clock
        # At the entrance, before anybody looks for the id.
        if self.refusing:
            return self.answer(packet, 400, "rejected", "")
        if self.now < self.shut_until:
            if not self.shut_with:
                return None
            self.turned_away.add(packet.of)
            return self.answer(packet, self.chance.choice(self.shut_with), "", "")
        if packet.sent is None and packet.of in self.turned_away:
            return None  # whoever repeats what others send has heard that: it is not repeated until it is taken
        identity = read({name.lower(): [value] for name, value in packet.headers})
        assert identity is not None and identity.first_sent is not None
        request_id, content = identity.request_id, fingerprint("POST", "/orders", "text/plain", packet.message)
        row = self.disk.rows.get(request_id)
        known = None if row is None else Stored(row.state, now < row.lease, row.first_sent, row.fingerprint)
        other = row is not None and self.chance.random() < self.weather.fails
        if other:  # another document under an id that is taken
            content = fingerprint("POST", "/orders", "text/plain", "something else")
        found = self.build.decide(self.disk.memory, Received(identity.first_sent, content), known, now)
        self.seen[found.code or found.verdict] += 1
        if other:
            if found.verdict is not Verdict.REFUSE:
                self.broken(f"another document is taken for {request_id}")
            return None
        if found.verdict is not Verdict.REFUSE and request_id in self.outside and not self.seen["window"]:
            self.broken(f"{request_id} was outside the window, and is taken after all")
        match found.verdict:
            case Verdict.EXECUTE:
                self.admit(packet, identity, content)
            case Verdict.REPLAY:
                assert row is not None
                self.answer(packet, *(row.answer if self.build.keeps_answers else (*row.answer[:2], "lost")))
            case Verdict.BUSY:
                self.answer(packet, 409, "accepted", "")
            case Verdict.DOUBT | Verdict.REFUSE:
                if found.code == Refusal.OUTSIDE_MEMORY_WINDOW:
                    self.outside.add(request_id)
                self.answer(packet, found.status, "rejected", "")
        return None

    def admit(self, packet: Packet, identity: Identity, content: str) -> None:
        """Commit first; then the service is run, or a one-way request acknowledged and run later."""
        now, request_id = self.receivers_clock, identity.request_id
        assert identity.first_sent is not None
        row = Row(memory.State.RUNNING, identity.first_sent, now, content, now + LEASE)
        if self.messages[packet.message].one_way:
            row.state, row.answer = memory.State.ACCEPTED, (202, "accepted", "")
            self.disk.rows[request_id] = row
            self.disk.to_do.append(packet.message)
            self.answers.setdefault(request_id, "")
            if self.here("after the commit of a one-way request"):
                self.answer(packet, *row.answer)
            return
        if self.build.admits_first:
            self.disk.rows[request_id] = row
        if self.here("between the commit and the service"):
            self.at_receiver(self.chance.uniform(0, 5), lambda: self.run(packet, request_id, row))

    def run(self, packet: Packet, request_id: str, row: Row) -> None:
        ends = self.chance.random() if self.stormy else 1.0
        if ends < self.weather.fails:  # not now: it certainly did not happen, and is as if it had never come
            if not self.build.releases_only_what_did_not_happen:
                self.executed(packet.message)
            self.disk.rows.pop(request_id, None)
            return self.answer(packet, 503, "rejected", "")
        if self.transactional and not self.here("in the application's transaction"):
            return None
        self.executed(packet.message)
        if not self.transactional and not self.here("between the service and the record"):
            return None
        status = 422 if ends < 1.5 * self.weather.fails else 200
        row.state, row.answer = memory.State.ANSWERED, (status, "accepted", f"answer {request_id}")
        self.answers.setdefault(request_id, row.answer[2])
        self.disk.rows[request_id] = row
        if self.here("between the record and the answer"):
            self.answer(packet, *row.answer)
        return None

    def executed(self, message_id: str) -> None:
        self.ran[message_id] += 1
        document = self.messages[message_id].document
        self.documents[document] += 1
        if self.documents[document] > 1:
            self.broken(f"document {document} is executed twice, now as {message_id}")

    def answer(self, packet: Packet, status: int | None, result: str, body: str) -> None:
        if packet.sent is not None:
            worker, attempt = packet.sent
            told = (status, result, body, "")
            self.travel(self.weather.loses_answers, lambda: self.workers.came(worker, attempt, told))

    def housekeeping(self) -> None:
        """What is accepted one way is executed, the heartbeat is kept, and now and then what is too old is swept."""
        while self.disk.to_do:
            self.executed(self.disk.to_do.pop(0))  # one commit: what triggers make of it is their simulation's
        self.beat()
        if self.chance.random() < 0.2:
            self.sweep(memory.horizon(self.disk.memory, self.receivers_clock))
        if self.now < START + STORM or any(one.state not in ENDED for one in self.messages.values()):
            self.later(self.chance.uniform(20, 120), self.housekeeping)

    def beat(self) -> None:
        if self.build.keeps_its_heartbeat:
            seen = max(self.receivers_clock, self.disk.memory.heartbeat)
            self.disk.memory = replace(self.disk.memory, heartbeat=seen)

    def sweep(self, through: datetime) -> None:
        """First it is kept how far ids are forgotten; a kill after that leaves some that nobody needs."""
        if self.build.keeps_how_far_it_forgot:
            self.disk.memory = replace(self.disk.memory, forgotten_through=through)
        if not self.here("between the mark and the sweep"):
            return
        for key in [key for key, row in self.disk.rows.items() if self.is_old(row, through)]:
            del self.disk.rows[key]
            self.seen["swept"] += 1

    def is_old(self, row: Row, through: datetime) -> bool:
        if self.build.sweeps_by_first_instance:
            return row.first_sent < through
        return row.arrived < through

    # What happens once at most in a run

    def back_up(self) -> None:
        self.backup = copy.deepcopy(self.disk)

    def restore(self) -> None:
        """The database is an older one; the application's is not."""
        self.seen["restored"] += 1
        self.boot += 1
        lost = self.backup
        start = self.build.start_after_loss(self.receivers_clock, lost.memory.heartbeat, SKEW)
        self.disk = copy.deepcopy(lost)
        self.disk.memory = replace(lost.memory, memory_start=max(start, lost.memory.memory_start))
        self.disk.to_do = []

    def window(self) -> None:
        """A person makes the window longer: what was swept under the short one does not come back."""
        self.seen["window"] += 1
        self.disk.memory = replace(self.disk.memory, window=3 * WINDOW)

    def refuse(self) -> None:
        """The receiver's agreement does not cover these requests any more, from now on."""
        self.refusing = True

    def shut(self) -> None:
        """Credentials or addresses are wrong for a while, or nobody is there."""
        self.shut_with = self.chance.choice(((), (401,), (404,), (401, 404)))
        self.shut_until = self.now + timedelta(seconds=self.chance.uniform(10, 1500))

    def clock(self) -> None:
        """The receiver's goes back; its last beat was a moment ago."""
        self.seen["clock"] += 1
        self.beat()
        self.set_back = timedelta(seconds=self.chance.uniform(60, 900))
        self.later(self.chance.uniform(300, 1500), self.clock_is_right)

    def clock_is_right(self) -> None:
        self.set_back = timedelta(0)

    # At the end

    def close(self) -> None:
        restored = bool(self.seen["restored"])
        for message in self.messages.values():
            ran = self.ran[message.id]
            if message.state not in ENDED:
                self.broken(f"{message.id} ends {message.state}")
            if message.state == "done" and not ran and not restored:
                self.broken(f"{message.id} counts as done and was never executed")
            if message.state == "failed" and ran != (message.cause == "executed_with_error"):
                self.broken(f"{message.id} failed ({message.cause}) and was executed {ran} times")
            told = self.told.get(message.id, set())
            if not _fits(message.cause, told):
                self.broken(f"{message.id} ends as {message.cause} and was answered {told}")
            if message.cause:
                self.seen[message.cause] += 1
        in_time = not self.kill_at and not self.seen["not sent any more"]
        if self.calm and in_time and any(one.state != "done" for one in self.messages.values()):
            self.broken("nothing went wrong, and not everything is done")
