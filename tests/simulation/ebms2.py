"""ebXML Messaging 2.0 between two hubs: messages in flight one by one, order of conversations, and what goes wrong.

Events in the order of their times, chance from one seed. What is committed survives a kill; what is under way does not
know of it. The judge is asked at each attempt, each time something is handed on, at each acknowledgement, and at the
end. Nothing is under way for longer than `UNDER_WAY`; people, who may know that, act later than that.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NoReturn

from messaging.protocol.ebms import sending
from messaging.protocol.ebms.acceptance import Conversation, Decision, Received, Verdict
from messaging.protocol.ebms.sending import Policy, Reply, Step
from messaging.protocol.envelope import ErrorInfo, MessageOrder
from messaging.protocol.errors import ErrorCode, Severity
from messaging.protocol.messages import EBMS2_FINAL, Happened, State, move_ebms2
from messaging.protocol.repeating import Act, Reached
from tests.simulation.ebms2_rows import (
    FORGETS,
    PERSIST,
    START,
    UNDER_WAY,
    Broken,
    Build,
    Disk,
    Job,
    Message,
    Outcome,
    Packet,
    Place,
    Signal,
    Weather,
    fits,
)
from tests.simulation.workers import Attempt, Fault, Process, Trouble, Worker, Workers

STORM = timedelta(minutes=20)
EVENTS = 20_000
GAP = timedelta(minutes=10)  # after so long a person asks for what is missing, and again after as long
ASKED = 6  # so often

FLIGHT = (State.SENDING, State.AWAITING_ACK, State.RETRYING)
_OPEN = (*FLIGHT, State.IN_DOUBT)  # states in which an acknowledgement still counts
_CODES = (
    *(ErrorCode.MIME_PROBLEM, ErrorCode.DELIVERY_FAILURE, ErrorCode.UNKNOWN),
    *(ErrorCode.INCONSISTENT, ErrorCode.SECURITY_FAILURE),
)
_NOT_MADE = frozenset({"circuit_open", "not_begun"})


class Ebms2World:
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
            loses_answers=chance.choice((0, 0.2, 0.6)),
            repeats=chance.choice((0, 0.3)),
            strays=chance.choice((0, 0.3, 0.8)),
            delay=chance.choice((0.05, 2, 20)),
            kills=chance.choice((0, 0.05, 0.15)),
            fails=chance.choice((0, 0.2)),
        )
        # The agreement
        self.policy = Policy(
            retries=chance.choice((0, 2, 6)), retry_interval=chance.choice((10, 60)), persist=PERSIST, lease=30
        )
        self.time_to_live = chance.choice((None, None, 90, 300))
        self.sync = chance.random() < 0.5
        self.ordered = chance.random() < 0.6
        self.at_once = chance.choice((1, 3, 20))
        self.faulty = chance.choice((0, 0, 0.2))  # messages with which something is wrong
        self.forgetful = chance.random() < 0.5
        self.ahead = timedelta(seconds=chance.choice((0, chance.uniform(-50, 50))))  # the receiver's clock
        if self.calm:
            self.weather = Weather(0, 0, 0, 0, 0.05, 0, 0)
            self.policy = replace(self.policy, retries=6)
            self.time_to_live, self.faulty, self.ahead = None, 0, timedelta(0)
        self.disk = Disk()
        self.places: dict[str, Place] = {}
        self.suspended = False
        self.messages: dict[str, Message] = {}
        self.boot = self.points = self.submitted = 0
        self.shut_until, self.shut_with, self.other_agreement = START, (), START  # type: ignore[var-annotated]
        self.handed: Counter[str] = Counter()  # by MessageId at its sender: what the receiver has handed on
        self.documents: Counter[int] = Counter()
        self.latest: dict[str, int] = {}  # by conversation: the place of what was handed on last
        self.octets: dict[str, tuple[object, ...]] = {}
        self.acked: dict[str, str] = {}
        self.asked: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.events: list[tuple[datetime, int, Callable[[], object]]] = []
        self.count = 0
        continues, trouble = chance.random() < 0.7 or self.calm, Trouble.drawn(chance)
        fault = fault or (Fault() if self.calm else None)
        self.workers = Workers(self, chance, self.build.handing, trouble, fault, continues=continues)
        self.later(STORM.total_seconds(), lambda: setattr(self.workers, "trouble", Trouble()))
        names = [f"c{number}" for number in range(chance.randint(1, 3))]
        over = chance.choice((600, 600, 20))  # seconds
        for document in range(chance.randint(3 if self.calm else 1, 14)):
            self.later(chance.uniform(0, over), lambda d=document: self.submit(d, chance.choice(names)))  # type: ignore[misc]
        self.later(60, self.housekeeping)
        accident = chance.choice(("none", "shut", "shut", "disagree", "impatience", "cancel"))
        if accident != "none" and not self.calm:
            self.later(chance.uniform(30, 1000), getattr(self, accident))

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
    def receivers_clock(self) -> datetime:
        return self.now + self.ahead

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

    def travel(self, loses: float, what: Callable[[], object], copied: Callable[[], object] | None = None) -> bool:
        """Something is on its way: late, or never, of which the answer tells. `copied`: of a message, which comes
        again, also long after that.
        """
        delay = self.weather.delay if self.stormy else 0.05
        arrives = self.chance.uniform(0, delay)
        comes = not self.stormy or self.chance.random() >= loses
        if comes:
            self.later(arrives, what)
        if copied is not None and self.stormy:
            if self.chance.random() < self.weather.repeats:
                self.later(arrives + self.chance.uniform(0, 2 * delay), copied)
            if self.chance.random() < self.weather.strays:
                for _ in range(self.chance.randint(1, 3)):
                    self.later(self.chance.uniform(0, UNDER_WAY.total_seconds()), copied)
        return comes

    # The sender, and what its workers ask of its store (`workers.Store`)

    def submit(self, document: int, conversation: str, again: int = 0) -> None:
        life = self.time_to_live
        wrong = None
        if self.chance.random() < self.faulty * (not again):
            severity = self.chance.choice((Severity.ERROR, Severity.ERROR, Severity.WARNING))
            wrong = ErrorInfo(self.chance.choice(_CODES), severity, "Not that.")
        self.submitted += 1
        made = Message(
            document,
            f"m{document}.{again}",
            self.submitted,
            conversation,
            self.now + timedelta(seconds=life) if life else None,
            wrong,
        )
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
        begun: list[Attempt] = []
        if worker is None or self.suspended:
            return begun
        room = self.at_once - sum(one.state in FLIGHT for one in self.messages.values())
        for message in [one for one in self.messages.values() if one.state is State.QUEUED]:
            if room <= 0:
                break
            if message.time_to_live is not None and message.time_to_live < self.now:
                message.state, message.cause = move_ebms2(message.state, Happened.GAVE_UP), "expired"
                self.seen["expired in the queue"] += 1
                continue
            if self.ordered:
                message.order = self.next_place(message)
                if message.order is None:
                    self.seen["waits to begin anew"] += 1
                    break
            first = self.build.begin(sending.State(), self.now, self.policy, message.time_to_live)
            assert first.act is Act.SEND
            if message.order is not None:
                self.places[message.conversation] = Place(message.order.sequence_number)
                self.seen["reset"] += message.order.reset
            begun.append(self.transmit(message, first, worker, in_hand=in_hand))
            room -= 1
        return begun

    def next_place(self, message: Message) -> MessageOrder | None:
        row = self.places.get(message.conversation, Place())

        def under_way() -> bool:
            same = (one for one in self.messages.values() if one.conversation == message.conversation)
            return any(one.state in FLIGHT for one in same)

        return self.build.place(None if row.restarts else row.number, under_way)

    def transmit(self, message: Message, begun: Step, worker: Worker, *, in_hand: bool) -> Attempt:
        self.seen[begun.act] += 1
        message.core, message.state = begun.state, move_ebms2(message.state, Happened.TRANSMITTED)
        message.attempts += 1
        message_id = message.id
        if not self.build.repeats_under_the_same_id and message.attempts > 1:
            message_id = f"{message.id}+{message.attempts}"
        packet = Packet(message_id, message, message.conversation, message.order, message.time_to_live, sync=self.sync)
        assert begun.due_at is not None
        self.due(message, (begun.due_at - self.now).total_seconds())
        message.attempt = self.workers.claimed(Job(message, message.attempts, packet), worker, in_hand=in_hand)
        return message.attempt

    def claim(self, worker: Worker) -> list[Attempt]:
        claimed = []
        for message in list(self.messages.values()):
            if message.due_at > self.now or message.state not in FLIGHT:
                continue
            if message.state is State.SENDING:
                assert message.attempt is not None
                self.workers.lease_over(message.attempt)
                # Nobody knows what came of it.
                message.core = replace(message.core, reached=Reached.SERVICE)
                message.told.add("lost")
            moves = self.build.wait_over(message.core, self.now, self.policy)
            if moves.act not in (Act.SEND, Act.HOLD):
                self.end(message, self.build.expire(message.core))
            elif self.suspended:
                self.hold(message)
            elif moves.act is Act.HOLD:
                self.seen["retries used up"] += 1
                self.stop()
                self.hold(message)
            else:
                claimed.append(self.transmit(message, moves, worker, in_hand=True))
        return claimed + self.promote(worker, in_hand=True)

    def due(self, message: Message, seconds: float) -> None:
        message.due_at = self.now + timedelta(seconds=seconds)
        self.later(max(0, seconds), lambda: self.workers.look_in(0))  # what was due before is looked at now

    def seconds(self) -> float:
        return (self.now - START).total_seconds()

    def start(self, owner: Worker | None, process: Process) -> None:
        self.workers.run(owner, process)

    def waits_for(self, job: Job) -> bool:
        return job.message.state is State.SENDING and job.message.attempts == job.number

    def renew(self, job: Job) -> None:
        self.due(job.message, self.policy.lease)

    def release(self, job: Job) -> None:
        self.due(job.message, 0)

    def talk(self, worker: Worker, attempt: Attempt) -> None:
        message, _, packet = attempt.job
        chance, weather = self.chance, self.weather

        def came(outcome: Outcome, seconds: float = 0.1) -> None:
            self.later(seconds, lambda: self.workers.came(worker, attempt, outcome))

        expires = message.core.expires
        assert expires is not None
        if self.now > expires and self.build.looks_at_the_time_before_it_talks:
            self.seen["not sent any more"] += 1
            return came(Outcome(None, "window_over"), 0)
        if message.time_to_live is not None and self.now > message.time_to_live:
            self.broken(f"{message.id} goes out after its TimeToLive")
        octets = (packet.order, packet.time_to_live)
        first = self.octets.setdefault(message.id, (self.now, *octets))
        if self.now > first[0] + PERSIST:  # type: ignore[operator]
            self.broken(f"{message.id} goes out although its receiver may have forgotten it")
        if first[1:] != octets:
            self.broken(f"{message.id} goes out with other octets")
        if self.stormy and chance.random() < weather.fails * 0.3:
            return came(Outcome(None, chance.choice(("connect_refused", "circuit_open"))))
        if self.now < self.shut_until:
            if not self.shut_with:
                return came(Outcome(None, "connect_refused"))
            return came(Outcome(chance.choice(self.shut_with), "http_4xx"))
        message.talked = self.now
        if self.stormy and chance.random() < weather.fails * 0.2:
            self.seen["somebody else said 200"] += 1
            return came(Outcome(200))
        sent = replace(packet, sent=(worker, attempt))
        if not self.travel(weather.loses, lambda: self.arrives(sent), lambda: self.arrives(packet)):
            self.no_answer(worker, attempt)
        return None

    def no_answer(self, worker: Worker, attempt: Attempt) -> None:
        """Nothing comes: the worker gives up after some time, or the lease is over before."""
        if self.chance.random() < 0.7:
            self.later(10, lambda: self.workers.came(worker, attempt, Outcome(None, "read_timeout")))

    def record(self, outcomes: Sequence[tuple[Attempt, Outcome]]) -> list[Attempt]:
        for attempt, outcome in outcomes:
            message, waited_for = attempt.job.message, self.waits_for(attempt.job)
            if outcome.signal is not None and self.said(outcome.signal):
                self.seen["said in the response"] += 1
            elif waited_for:
                self.follow(message, outcome)
            else:
                self.seen["overtaken"] += 1
                if not _never_left(outcome):
                    message.core = replace(message.core, reached=Reached.SERVICE)
        return self.promote(self.workers.seat())

    def follow(self, message: Message, outcome: Outcome) -> None:
        if outcome.cause in _NOT_MADE:
            message.core = replace(message.core, attempts=message.core.attempts - 1)
        reply = sending.classify(outcome.status, outcome.cause)
        self.seen[reply] += 1
        message.told.add("not sent" if _never_left(outcome) else outcome.status or "lost")
        following = self.build.step(message.core, reply, self.now, self.policy, outcome.retry_after)
        self.seen[following.act] += 1
        message.core = following.state
        if following.act is Act.COMPLETE:  # no build of ours
            return self.delivered(message)
        message.state = move_ebms2(message.state, Happened.HANDED_OVER if reply is Reply.TAKEN else Happened.WILL_RETRY)
        if following.act is Act.HOLD:
            self.hold(message)
            return self.stop()
        assert following.due_at is not None
        return self.due(message, (following.due_at - self.now).total_seconds())

    def hold(self, message: Message) -> None:
        """Its pair is shut: it is looked at again when its time is over."""
        if message.state is State.SENDING:
            message.state = move_ebms2(message.state, Happened.WILL_RETRY)
        assert message.core.expires is not None
        self.due(message, max(0, (message.core.expires - self.now).total_seconds() + 1))

    def stop(self) -> None:
        """The pair is suspended; a person looks when nothing of it is under way any more."""
        if not self.suspended:
            self.suspended = True
            self.seen["suspended"] += 1
            self.later(UNDER_WAY.total_seconds() + self.chance.uniform(1, 300), self.resume)

    def resume(self) -> None:
        if self.stormy and self.chance.random() < 0.3:
            self.skip()
        self.suspended = False
        self.seen["resumed"] += 1
        self.let_go(anew=True)

    def let_go(self, *, anew: bool = False) -> None:
        for message in self.messages.values():
            if message.state in FLIGHT:
                if message.state is not State.SENDING:
                    self.due(message, 0)
                if anew:
                    message.core = replace(message.core, attempts=0)
        self.go_on()

    def skip(self) -> None:
        waiting = (State.RETRYING, State.AWAITING_ACK)
        message = next((one for one in self.messages.values() if one.state in waiting), None)
        if message is not None and self.now > message.talked + UNDER_WAY:
            message.state = move_ebms2(message.state, Happened.SKIPPED)
            self.seen["skipped"] += 1
            self.interrupted(message)

    def interrupted(self, message: Message) -> None:
        if message.order is not None and self.build.begins_anew_after_what_failed:
            self.places[message.conversation].restarts = True

    def end(self, message: Message, ended: Step, *, cause: str = "") -> None:
        """In doubt, or failed. On a pair with order a person looks at it before others go on."""
        happened = {Act.IN_DOUBT: Happened.DOUBTED, Act.FAIL: Happened.GAVE_UP}[ended.act]
        message.state, message.cause = move_ebms2(message.state, happened), cause or ended.cause
        self.seen[ended.act] += 1
        self.seen[message.cause] += 1
        if message.state is State.IN_DOUBT and message.refused:
            self.broken(f"{message.id} is in doubt, and its receiver has refused it")
        if not fits(message.cause, message.told):
            self.broken(f"{message.id} ends as {message.cause} after {message.told}")
        self.interrupted(message)
        if self.ordered:
            self.stop()
        if message.state is State.IN_DOUBT:
            self.later(UNDER_WAY.total_seconds() + self.chance.uniform(1, 600), lambda: self.person(message))
        self.workers.look_in(0.5)

    def person(self, message: Message) -> None:
        """Asks the partner, which tells of what it holds, too; sends it again under a new id if it never came."""
        if message.state is not State.IN_DOUBT:
            return
        if self.handed[message.id] or self.holds(message):
            message.state = move_ebms2(message.state, Happened.ACKNOWLEDGED)
        else:
            message.state = move_ebms2(message.state, Happened.SKIPPED)
            again = int(message.id.partition(".")[2]) + 1
            self.submit(message.document, message.conversation, again)
        self.seen["settled by a person"] += 1

    def said(self, signal: Signal) -> bool:
        """What the partner says of a message of ours, in a response or by itself. Returns whether that moved it."""
        message, error = self.messages[signal.about.partition("+")[0]], signal.error
        if error is None:
            self.seen["acknowledged"] += 1
            if self.acked.setdefault(signal.about, signal.octets) != signal.octets:
                self.broken(f"{message.id} is acknowledged with {self.acked[signal.about]} and {signal.octets}")
        if message.state not in _OPEN:
            self.seen["nothing waits for it"] += 1
            return False
        if error is None:
            self.seen["settled by an acknowledgement"] += message.state is State.IN_DOUBT
            self.delivered(message)
            return True
        self.seen[error.severity] += 1
        if error.severity is Severity.WARNING or message.state is State.IN_DOUBT:
            return False
        act = self.build.refused(error.code)
        self.seen[f"refused: {act}"] += 1
        message.refused = message.refused or sending.refused(error.code) is Act.FAIL
        if not self.build.takes_errors:
            return False
        if act is Act.COMPLETE:  # no build of ours
            self.delivered(message)
        elif act is Act.HOLD:
            message.state = move_ebms2(message.state, Happened.WILL_RETRY)
            message.told.add("lost")
            message.core = replace(message.core, reached=Reached.SERVICE)
            self.hold(message)
            self.stop()
        else:
            self.end(message, Step(message.core, Act.FAIL), cause="refused")
        return True

    def delivered(self, message: Message) -> None:
        message.state, message.cause = move_ebms2(message.state, Happened.ACKNOWLEDGED), ""
        self.seen["delivered"] += 1
        self.go_on()

    # The receiver

    def arrives(self, packet: Packet) -> None:
        if self.now < self.shut_until:
            return None  # it went past who shuts the door; nobody takes it
        if self.stormy and self.chance.random() < self.weather.fails * 0.5:
            pause = self.chance.choice((None, 5.0, 90.0))
            return self.respond(packet, Outcome(503, "http_5xx", retry_after=pause))
        if not self.build.stores_before_it_acknowledges and packet.id not in self.disk.ids:
            self.acknowledge(packet)
        if not self.here("before the commit"):
            return None
        found = self.build.decide(self.known(packet), self.received(packet))
        self.seen[found.rule or found.verdict] += 1
        match found.verdict:
            case Verdict.REJECT:
                assert found.error is not None
                if found.rule in ("passed", "waits-already", "out-of-range", "reset-not-zero"):
                    self.broken(f"{packet.of.id} is refused for its number, which is right")
                return self.say(packet, Signal(packet.id, error=found.error))
            case Verdict.DUPLICATE:
                return self.acknowledge(packet)
        self.take(packet, found)
        if packet.of.wrong is not None:  # a warning
            self.say(packet, Signal(packet.id, error=packet.of.wrong), alone=True)
        if self.build.stores_before_it_acknowledges:
            self.acknowledge(packet)
        return None

    def known(self, packet: Packet) -> Conversation:
        if packet.order is None:
            return Conversation()
        row = self.disk.conversations.get(packet.conversation, Conversation())
        return replace(row, held=frozenset(self.disk.waits.get(packet.conversation, ())))

    def received(self, packet: Packet) -> Received:
        wrong = packet.of.wrong
        if self.now < self.other_agreement:
            wrong = ErrorInfo(ErrorCode.VALUE_NOT_RECOGNIZED, Severity.ERROR, "There is no such agreement.")
        return Received(
            acknowledge=True,
            once=True,
            known=packet.id in self.disk.ids,
            expired=packet.time_to_live is not None and packet.time_to_live < self.receivers_clock,
            defect=wrong if wrong is not None and wrong.severity is Severity.ERROR else None,
            order=packet.order,
        )

    def take(self, packet: Packet, found: Decision) -> None:
        """One commit."""
        self.disk.ids[packet.id] = self.now
        message, name = packet.of, packet.conversation
        if packet.order is None:
            return self.hand_on(message)
        waits = self.disk.waits.setdefault(name, {})
        for number in found.given_up:
            self.seen["given up"] += 1
            given_up = waits.pop(number)
            if self.build.hands_on_what_it_gives_up:
                self.hand_on(given_up)
        moved, turns = self.build.released(found.conversation)
        if found.verdict is Verdict.HOLD:
            waits[packet.order.sequence_number] = message
        else:
            self.hand_on(message)
        for number in turns:
            self.hand_on(waits.pop(number))
        if not moved.held or moved.last != self.disk.conversations.get(name, Conversation()).last:
            self.disk.gaps.pop(name, None)
        if moved.held:
            self.disk.gaps.setdefault(name, self.now)
        self.disk.conversations[name] = moved
        return None

    def holds(self, message: Message) -> bool:
        return any(message in waits.values() for waits in self.disk.waits.values())

    def hand_on(self, message: Message) -> None:
        self.handed[message.id] += 1
        self.documents[message.document] += 1
        if self.documents[message.document] > 1:
            self.broken(f"document {message.document} is handed on twice, now as {message.id}")
        if not self.ordered:
            return
        if message.place < self.latest.get(message.conversation, 0):
            self.broken(f"{message.id} is handed on out of order in {message.conversation}")
        self.latest[message.conversation] = message.place

    def acknowledge(self, packet: Packet) -> None:
        """In the response, or by itself: then that is committed with the message, and sent from what is committed."""
        if packet.id not in self.disk.acks or not self.build.keeps_acknowledgements:
            self.disk.acks[packet.id] = f"ack {len(self.disk.acks)} at {self.receivers_clock:%H:%M:%S.%f}"
        self.say(packet, Signal(packet.id, self.disk.acks[packet.id]))

    def say(self, packet: Packet, signal: Signal, *, alone: bool = False) -> None:
        sync = packet.sync and not alone
        if not sync:
            self.disk.owed.append(signal)
        if not self.here("between the commit and the answer"):
            return
        if not sync:
            self.at_receiver(self.chance.uniform(0, 1), self.send_signals)
        if alone:
            return
        if self.stormy and self.chance.random() < self.weather.fails * 0.3:
            self.seen["stored, and an error of the server"] += 1
            return self.respond(packet, Outcome(500, "http_5xx"))
        self.respond(packet, Outcome(200, signal=signal) if sync else Outcome(204))

    def respond(self, packet: Packet, outcome: Outcome) -> None:
        if packet.sent is not None:
            worker, attempt = packet.sent
            loses = self.weather.loses_answers
            if not self.travel(loses, lambda: self.workers.came(worker, attempt, outcome)):
                self.no_answer(worker, attempt)

    def send_signals(self) -> None:
        """What is owed goes out; a kill after that sends it again."""
        for signal in list(self.disk.owed):
            self.travel(self.weather.loses_answers, lambda s=signal: self.hears(s))  # type: ignore[misc]
            if not self.here("between the signal and its record"):
                return
            self.disk.owed.remove(signal)

    def hears(self, signal: Signal) -> None:
        if self.said(signal):
            self.seen["said by itself"] += 1

    def housekeeping(self) -> None:
        """What is owed still goes out, ids are forgotten, and somebody asks for what is missing."""
        self.send_signals()
        if self.forgetful or self.build.remembers < FORGETS:
            for key in [key for key, at in self.disk.ids.items() if self.now > at + self.build.remembers]:
                del self.disk.ids[key]
                self.disk.acks.pop(key, None)
                self.acked.pop(key, None)
                self.seen["forgotten"] += 1
        for name, since in self.disk.gaps.items():
            if self.now > since + GAP * (1 + self.asked[name]) and self.asked[name] < ASKED:
                self.asked[name] += 1
                self.seen["asked for what is missing"] += 1
                self.submit(1000 + self.submitted, name)
        open_still = any(one.state not in EBMS2_FINAL for one in self.messages.values())
        missing = any(self.asked[name] < ASKED for name in self.disk.gaps)
        if self.stormy or open_still or missing or self.disk.owed:
            self.later(self.chance.uniform(20, 90), self.housekeeping)

    # What happens once at most in a run

    def shut(self) -> None:
        """Credentials or addresses are wrong for a while, or nobody is there."""
        self.shut_with = self.chance.choice(((), (401,), (404,), (401, 404)))
        self.shut_until = self.now + timedelta(seconds=self.chance.uniform(10, 1500))

    def disagree(self) -> None:
        """The receiver's agreement is not in force for a while."""
        self.other_agreement = self.now + timedelta(seconds=self.chance.uniform(10, 900))

    def impatience(self) -> None:
        """A person wants all repeats now, again and again."""
        if not self.suspended:
            self.seen["retry now"] += 1
            self.let_go()
        if self.stormy:
            self.later(self.chance.uniform(1, 60), self.impatience)

    def cancel(self) -> None:
        """A person takes back whatever waits in the queue."""
        for message in self.messages.values():
            if message.state is State.QUEUED:
                message.state = move_ebms2(message.state, Happened.CANCELLED)
                self.seen["cancelled"] += 1

    # At the end

    def close(self) -> None:
        for message in self.messages.values():
            handed = self.handed[message.id]
            if message.state not in EBMS2_FINAL:
                self.broken(f"{message.id} ends {message.state}")
            if message.state is State.DELIVERED and not handed:
                self.broken(
                    f"{message.id} counts as delivered and {'waits for ever' if self.holds(message) else 'is lost'}"
                )
            if message.state in (State.FAILED, State.CANCELLED) and handed:
                self.broken(f"{message.id} is {message.state} ({message.cause}) and was handed on")
        if self.calm and any(one.state is not State.DELIVERED for one in self.messages.values()):
            self.broken("nothing went wrong, and not everything is delivered")


def _never_left(outcome: Outcome) -> bool:
    return sending.classify(outcome.status, outcome.cause) is Reply.NOT_SENT
