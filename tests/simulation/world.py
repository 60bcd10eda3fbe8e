"""Two hubs, a link, people and accidents, under a scheduler that follows a seed.

Processes are generators: each runs to its next `yield`, where others run, time passes, or a crash ends it. Between
two yields there is at most one transaction. After every step the judge looks at both hubs.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from messaging.protocol.acceptance import AcceptancePolicy, InboundState
from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.pair_state import Flow, Gate, GateVerb, Kind, PairState, SenderPolicy
from tests.simulation.builds import RIGHT, Build
from tests.simulation.hub import Hub, Job, Packet
from tests.simulation.judge import Broken, Judge, Road
from tests.simulation.link import CLEAR, Link, Weather
from tests.simulation.workers import Attempt, Fault, Process, Trouble, Worker, Workers

START = datetime(2026, 1, 1, tzinfo=UTC)
TRACE = 40
HEALING_STEPS = 6000

VERBS = (Kind.RESUME, Kind.RESUME, Kind.RETRY_NOW, Kind.SKIP, Kind.RESTART)
GATE_VERBS = (GateVerb.PAUSE, GateVerb.RELEASE, GateVerb.RELEASE)


@dataclass(frozen=True, slots=True)
class Accidents:
    """Probabilities for one step of the scheduler."""

    crash: float = 0.0  # a whole hub
    kill: float = 0.0  # one process
    person: float = 0.0
    refusal: float = 0.0  # of a message, by a Transient Error; for one arrival
    tick: float = 0.05  # time passes although processes could run


QUIET = Accidents(tick=0.0)


class World:
    """One run. `play` raises Broken, with the seed and the last steps in its text."""

    def __init__(
        self, seed: int, build: Build = RIGHT, unwatched: frozenset[str] = frozenset(), *, fault: Fault | None = None
    ) -> None:
        """`fault`: calm, but for that one, at hub A."""
        self.seed = seed
        self.chance = chance = random.Random(seed)
        self.now = START
        self.judge = Judge(unwatched)
        self.accidents = Accidents(
            crash=chance.choice((0, 0, 0.004, 0.02)),
            kill=chance.choice((0, 0.01, 0.05)),
            person=chance.choice((0, 0, 0.01, 0.06)),
            refusal=chance.choice((0, 0, 0.1)),
            tick=chance.choice((0.02, 0.1, 0.3)),
        )
        weather = Weather(
            loses=chance.choice((0, 0.1, 0.3, 0.6)),
            repeats=chance.choice((0, 0.2, 0.5)),
            delay=chance.choice((0.05, 1, 20)),
            strays=chance.choice((0, 0.1)),
            replays=chance.choice((0, 0.2)),
            lies=chance.choice((0, 0.2)),
        )
        self.calm = fault is not None
        if self.calm:
            self.accidents, weather = QUIET, CLEAR
        self.link = Link(chance, weather)
        self.processes: list[tuple[Hub, Worker | None, Process]] = []
        self.timers: list[tuple[datetime, int, Callable[[], object]]] = []
        self.count = 0
        self.trace: deque[tuple[datetime, str, object]] = deque(maxlen=TRACE)
        self.steps = 0
        self.hubs = {name: self._hub(name, build, fault) for name in ("A", "B")}
        a, b = self.hubs.values()
        a.peer, b.peer = b, a
        self.wanted = {"A": 2, "B": 1} if self.calm else {"A": chance.randint(1, 9), "B": chance.randint(0, 5)}
        self._start_numbers()

    def _hub(self, name: str, build: Build, fault: Fault | None) -> Hub:
        chance = self.chance
        policy = SenderPolicy(
            timeout=chance.choice((5, 30)),
            retries=chance.choice((0, 1, 3)),
            retry_interval=chance.choice((3, 10)),
            transport_retries=chance.choice((0, 2)),
            transport_retry_interval=chance.choice((1, 10)),
            transient_ceiling=60,
            lease=chance.choice((2, 20)),
        )
        if fault is not None:
            policy = replace(policy, timeout=30, retries=3, lease=20)
        strict = AcceptancePolicy(strict_sequence=chance.random() < 0.2)
        hub = Hub(name, self, policy, self.judge, build, strict)
        continues = chance.random() < 0.7 or self.calm
        trouble = Trouble.drawn(chance)
        if fault is not None and name != "A":
            fault = Fault()
        hub.workers = Workers(hub, chance, build.handing, trouble, fault, continues=continues)
        return hub

    def _start_numbers(self) -> None:
        """Some worlds begin shortly before the numbers run out (2.2.2 b)."""
        for hub in self.hubs.values():
            last = MAX_SEQUENCE_NUMBER - self.chance.randint(0, 2) if self.chance.random() < 0.2 else 0
            hub.pair = PairState(last_sequence=last)
            hub.peer.inbound = InboundState(last, "before") if last else InboundState()
            self.judge.roads[hub.name] = Road(1 if last == MAX_SEQUENCE_NUMBER else last + 1)

    # Playing.

    def play(self) -> None:
        """Troubled times first, then the link heals and people resume what is suspended, until all is done."""
        try:
            for _ in range(60 + 60 * sum(self.wanted.values())):
                self._step()
            self._heal()
            for _ in range(HEALING_STEPS):
                if not self._step() and not self._person_mends():
                    break
            for hub in self.hubs.values():
                self.judge.close(hub, hub.peer)
        except Broken as error:
            raise Broken(error.invariant, self._told(error.text)) from error
        except Exception as error:
            # A move that no table has, or plain mistakes of the code: without the seed nobody could look into it.
            raise Broken("the code raised", self._told(repr(error))) from error

    def _step(self) -> bool:
        """One step. Returns False when nothing is left to do."""
        self.steps += 1
        self._ring()
        chance, accidents = self.chance, self.accidents
        lot = chance.random()
        if lot < accidents.crash:
            self._crash(chance.choice(list(self.hubs.values())))
        elif (lot := lot - accidents.crash) < accidents.kill:
            self._kill()
        elif (lot := lot - accidents.kill) < accidents.person:
            self._person(chance.choice(list(self.hubs.values())))
        elif any(self.wanted.values()) and chance.random() < 0.15:
            self._submit()
        else:
            choices = self._choices()
            if not choices or chance.random() < accidents.tick:
                if not self._tick() and not choices:
                    return False
            else:
                self._run(*choices[int(chance.random() * len(choices))])
        for hub in self.hubs.values():
            self.judge.look(hub, hub.peer)
        return True

    def _choices(self) -> list[tuple[Hub, Worker | None, Process | None]]:
        """What could go on right now: processes that run, and those that would be started."""
        self.processes = [entry for entry in self.processes if entry[1] is None or entry[1].alive]
        found: list[tuple[Hub, Worker | None, Process | None]] = [
            entry for entry in self.processes if entry[1] is None or entry[1].runs
        ]
        for hub in self.hubs.values():
            if hub.up:
                if hub.arrived:
                    found.append((hub, None, None))
                due = hub.next_due()
                if due is not None and due <= self.now:
                    found += [(hub, worker, None) for worker in hub.workers.living if worker.runs]
        return found

    def _run(self, hub: Hub, owner: Worker | None, process: Process | None) -> None:
        if process is None:
            process = self._receive(hub) if owner is None else hub.workers.look(owner)
            self.processes.append((hub, owner, process))
        if next(process, None) is None or not hub.workers.here(owner):
            self.processes = [entry for entry in self.processes if entry[2] is not process]

    def start(self, hub: Hub, owner: Worker | None, process: Process) -> None:
        self.processes.append((hub, owner, process))

    def seconds(self) -> float:
        return (self.now - START).total_seconds()

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        self.count += 1
        heapq.heappush(self.timers, (self.now + timedelta(seconds=seconds), self.count, what))

    def note(self, what: str, detail: object = "") -> None:
        self.trace.append((self.now, what, detail))

    def _told(self, text: str) -> str:
        again = f"SIMULATION_FIRST={self.seed} SIMULATION_SEEDS=1 python -m pytest tests/simulation"
        return "\n".join([text, f"seed {self.seed}, step {self.steps} ({again}); the last steps:", *self.last_steps()])

    def last_steps(self) -> list[str]:
        return [f"{(at - START).total_seconds():9.2f} s  {what} {_plain(detail)}" for at, what, detail in self.trace]

    # The processes of a hub.

    def transmit(self, hub: Hub, job: Job) -> bool:
        """What the transport says of it."""
        ok = self._transmit(hub, job.packet)
        self.note(f"{hub.name} transmits, {'taken' if ok else 'not taken'}:", job)
        return ok

    def _transmit(self, hub: Hub, packet: Packet) -> bool:
        if packet.kind == "message":
            self.judge.transmitted(hub, packet)
        elif packet.kind == "acknowledgement":
            self.judge.acknowledged(hub, hub.peer, packet)
        return self.link.send(hub.peer.name, packet, self.now)

    def _receive(self, hub: Hub) -> Process:
        """Web threads whose requests become one transaction."""
        size = self.chance.randint(1, 4)
        group, hub.arrived = hub.arrived[:size], hub.arrived[size:]
        if hub.build.acknowledges_before_commit:
            for packet in group:
                if packet.kind == "message":
                    self._transmit(hub, Packet("acknowledgement", packet.id, 0, self.now))
        yield "before a group of arrivals is committed"
        refuses = self.chance.random() < self.accidents.refusal
        known = set(hub.stored)
        claimed = hub.accept(group, self.now, refuses=refuses)
        self.note(f"{hub.name} {'puts off' if refuses else 'takes'}", group)
        if claimed:
            yield from hub.workers.hand_over(claimed)
        if hub.build.stores_in_two_transactions:
            yield "between a message and its acknowledgement"
            for message_id in [message_id for message_id in hub.stored if message_id not in known]:
                hub.owe_acknowledgement(message_id, self.now)

    # What happens to them.

    def _submit(self) -> None:
        name = self.chance.choice([name for name, count in self.wanted.items() if count])
        hub = self.hubs[name]
        self.wanted[name] -= 1
        message_id = f"{name}{len(hub.rows) + 1}"
        claimed = hub.submit(message_id, self.now)
        self.note(f"{name} is given", message_id)
        if claimed:
            self.start(hub, None, hub.workers.hand_over(claimed))

    def _tick(self) -> bool:
        """Time passes to the next thing that is due. Returns False when nothing ever will be."""
        moments = [hub.next_due() for hub in self.hubs.values() if hub.up]
        moments += [self.link.next_arrival(), self.timers[0][0] if self.timers else None]
        ahead = [moment for moment in moments if moment is not None and moment > self.now]
        down = [hub for hub in self.hubs.values() if not hub.up]
        if down and (not ahead or self.chance.random() < 0.3):
            self._restart(self.chance.choice(down))
            return True
        if not ahead:
            return False
        self.now = min(ahead)
        for name, packet in self.link.arrivals(self.now):
            hub = self.hubs[name]
            if hub.up:
                hub.arrived.append(packet)
        return True

    def _ring(self) -> None:
        while self.timers and self.timers[0][0] <= self.now:
            heapq.heappop(self.timers)[2]()

    def _crash(self, hub: Hub) -> None:
        if hub.up:
            hub.crash()
            self.processes = [entry for entry in self.processes if entry[0] is not hub]
            self.note(f"{hub.name} crashes")

    def _restart(self, hub: Hub) -> None:
        hub.up = True
        hub.workers.come_up()
        self.note(f"{hub.name} starts again")

    def _kill(self) -> None:
        """A process ends: that of a web server, or a worker with all of its threads."""
        if self.processes:
            hub, owner, process = self.processes.pop(self.chance.randrange(len(self.processes)))
            if owner is not None and owner.alive:
                hub.workers.kill(owner)
            self.note(f"{hub.name} loses a process:", process.__name__)

    def _person(self, hub: Hub) -> None:
        """Somebody presses a button, sensible or not."""
        before = hub.pair
        lot = self.chance.random()
        verb: object = ""
        try:
            if lot < 0.2:
                verb = self.chance.choice(GATE_VERBS)
                hub.move_gate(verb)
            elif lot < 0.3:
                if not hub.rows:
                    return
                message_id = self.chance.choice(list(hub.rows))
                verb = f"cancel {message_id}"
                hub.cancel(message_id, self.now)
            else:
                verb = self.chance.choice(VERBS)
                hub.act(verb, self.now)
        except IllegalTransition:
            if hub.pair != before:
                raise Broken("invariant 6", f"{verb} was refused and changed {before} to {hub.pair}") from None
            return
        self.note(f"{hub.name}'s operator:", verb)

    # The end.

    def _heal(self) -> None:
        self.accidents = QUIET
        self.link.weather = CLEAR
        for hub in self.hubs.values():
            hub.workers.trouble = Trouble()
        while any(self.wanted.values()):
            self._submit()
        for hub in self.hubs.values():
            if not hub.up:
                self._restart(hub)
            if hub.pair.gate is not Gate.OPEN:
                hub.move_gate(GateVerb.RELEASE)
        self.note("the link heals")

    def _person_mends(self) -> bool:
        """Nothing moves any more: people look at what is suspended. Returns False when nothing is."""
        suspended = [hub for hub in self.hubs.values() if hub.pair.flow is Flow.SUSPENDED]
        for hub in suspended:
            refused = hub.pair.cause in ("InvalidSequenceNumber", "Inconsistent")
            kind = Kind.RESTART if refused and hub.pair.in_flight else Kind.RESUME
            self.note(f"{hub.name}'s operator fixes {hub.pair.cause}:", kind)
            hub.act(kind, self.now)
        return bool(suspended)


def _plain(detail: object) -> str:
    """Details as people read them."""
    if isinstance(detail, Packet):
        number = f" #{detail.number}" if detail.number else ""
        return f"{detail.kind} {detail.id}{number}{' ' + detail.code if detail.code else ''}"
    if isinstance(detail, Attempt):
        return f"{_plain(detail.job)} for worker {detail.worker}"
    if isinstance(detail, Job):
        return f"attempt {detail.transmission}, {_plain(detail.packet)}"
    if isinstance(detail, list):
        return "; ".join(_plain(entry) for entry in detail) or "nothing"
    return str(detail)
