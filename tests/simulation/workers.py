"""The workers of one simulated hub: what is claimed for them, handed over, sent and recorded, and how they die.

The one model of `engine.handover`, `loop`, `missing` and `leases`, for all worlds. A world says what its store makes of
an attempt (`Store`), and runs the processes: generators that stop between two commits, where time passes, others run,
or the process or a worker ends. What is committed survives that; what a worker has in hand, and its list, do not.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from messaging.engine.handover import _READ_EVERY, VOID_AFTER
from messaging.engine.leases import LEASE
from messaging.engine.loop import KNOWN_SECONDS, RENEW_SECONDS, WATCH_SECONDS
from messaging.engine.missing import MISSING_AFTER
from messaging.models.job import GAP

Process = Generator[str, None, None]
_MISSING_AFTER = MISSING_AFTER.total_seconds()
# A worker is seen for so long after the last that it says; then nothing is claimed for it.
_SEEN_AFTER = VOID_AFTER + _READ_EVERY


@dataclass(frozen=True, slots=True)
class Handing:
    """How a hub hands over. The defaults are what we ship; every other value is a known mistake."""

    drops_what_it_has: bool = True
    knows_what_it_had: bool = True
    renews_what_comes_late: bool = True
    looks_for_what_is_missing: bool = True
    asks_who_is_there: bool = True
    takes_over_from_the_dead: bool = True
    waits_for_the_silent: bool = True


# Each with words of the failure that shows it, in every world that hands over.
MISTAKES: dict[str, tuple[Handing, str]] = {
    "sends what was handed over twice": (Handing(drops_what_it_has=False), "is begun twice by one worker"),
    "forgets what it has sent": (Handing(knows_what_it_had=False), "is begun twice by one worker"),
    "sends what was handed over long ago": (Handing(renews_what_comes_late=False), "that of somebody else by now"),
    "does not look for what is missing": (Handing(looks_for_what_is_missing=False), "was handed over and is missing"),
    "claims for whoever was there once": (Handing(asks_who_is_there=False), "nobody has heard of"),
    "leaves what the dead had to its lease": (Handing(takes_over_from_the_dead=False), "of a worker that is dead"),
    "takes a silent worker for dead": (Handing(waits_for_the_silent=False), "lives, and counts as dead"),
}

# What happens in enough runs of every world that hands over. No lease ends where it outlasts every talk: workers renew
# it, or release it.
ACCIDENTS = (
    "claimed for another",
    "missing",
    "dropped",
    "late",
    "released",
    "killed",
    "frozen",
    "suspended",
    "lapsed",
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Probabilities: of a hand-over to be lost, doubled or late; of a worker to die, to stand still, with all others on
    its machine or alone, or to be unable to say that it is there, at each of its steps.
    """

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    kill: float = 0.0
    freeze: float = 0.0
    suspend: float = 0.0
    lapse: float = 0.0

    @classmethod
    def drawn(cls, chance: random.Random) -> Trouble:
        return cls(
            lost=chance.choice((0, 0.05, 0.4)),
            doubled=chance.choice((0, 0.2)),
            late=chance.choice((0, 0.2)),
            kill=chance.choice((0, 0, 0.01, 0.05)),
            freeze=chance.choice((0, 0, 0.02)),
            suspend=chance.choice((0, 0, 0.01)),
            lapse=chance.choice((0, 0, 0.02)),
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """The one fault of a calm run. At a `step` these workers end (by their place; none: the process that is there, if
    it is no worker's), and others see so at once or not; or the machine stands still for so many seconds; or the
    hand-over of that number arrives after each of these delays, if any.
    """

    step: int = 0
    ends: tuple[int, ...] = ()
    seen: bool = True
    stands: float = 0.0
    hand_over: int = 0
    delays: tuple[float, ...] = ()


@dataclass(eq=False, slots=True)
class Attempt:
    """The row of an attempt. `job` is the world's; `worker`: whose it is. On the wire: it has no outcome."""

    number: int
    worker: int
    at: float
    job: Any
    on_the_wire: bool = True


@dataclass(eq=False, slots=True)
class Worker:
    """`seen`: others see at once when its process is gone. Since when it is not heard of in the database (`silent`: it
    is dead or stands still) and in Valkey (`mute`). `held`: since when its presence is unbroken.
    """

    number: int
    held: float
    seen: bool = True
    alive: bool = True
    silent: float = math.inf
    mute: float = math.inf
    looked: float = -math.inf
    known: dict[int, float | None] = field(default_factory=dict)  # in hand, or when that ended
    begun: set[int] = field(default_factory=set)
    outcomes: list[tuple[Attempt, Any]] = field(default_factory=list)
    still: list[Callable[[], object]] = field(default_factory=list)  # what goes on when it goes on

    @property
    def runs(self) -> bool:
        return self.silent == math.inf


class Store(Protocol):
    """What a world is for its workers. Each of `renew` to `record` is part of a transaction."""

    def seconds(self) -> float: ...

    def later(self, seconds: float, what: Callable[[], object]) -> None: ...

    def start(self, owner: Worker | None, process: Process) -> None:
        """Runs a process, of a worker or of nobody who matters."""
        ...

    def broken(self, text: str) -> NoReturn: ...

    def waits_for(self, job: Any) -> bool:
        """Whether the outcome of this attempt would count."""
        ...

    def renew(self, job: Any) -> None:
        """A new lease from now on for what waits for this attempt."""
        ...

    def release(self, job: Any) -> None:
        """What waits for this attempt is due at once."""
        ...

    def claim(self, worker: Worker) -> list[Attempt]:
        """Claims what is due, for the worker that looks."""
        ...

    def talk(self, worker: Worker, attempt: Attempt) -> None:
        """Puts it on the wire; `Workers.came` hears what came of it, sooner or later, or never."""
        ...

    def record(self, outcomes: Sequence[tuple[Attempt, Any]]) -> list[Attempt]:
        """Writes outcomes; returns what the same transaction has claimed for somebody."""
        ...


class Workers:
    """The workers of one hub, two of them; the lists in Valkey, and the attempts that have no outcome."""

    def __init__(
        self,
        store: Store,
        chance: random.Random,
        build: Handing,
        trouble: Trouble,
        fault: Fault | None = None,
        *,
        continues: bool = True,
    ) -> None:
        self.store, self.chance, self.build, self.continues = store, chance, build, continues
        self.fault, self.trouble = fault, trouble if fault is None else Trouble()
        self.all: list[Worker] = []
        self.rows: set[int] = set()  # the workers that count as living
        self.attempts: dict[int, Attempt] = {}
        self.seen: Counter[str] = Counter()
        self.steps = self.hand_overs = self.count = 0
        self.ended_by_death = -math.inf  # when what the dead had was last released
        self.up = False
        self._cache: tuple[float, list[Worker]] = (-math.inf, [])
        self._round_at = math.inf
        self.come_up()

    @property
    def living(self) -> list[Worker]:
        return [worker for worker in self.all if worker.alive]

    # Who is there

    def come_up(self) -> None:
        """The hub starts."""
        self.up = True
        for _ in range(2):
            self._begin()

    def go_down(self) -> None:
        """All of it dies at once."""
        self.up = False
        for worker in self.living:
            self.kill(worker)

    def _begin(self) -> None:
        if self.up and len(self.living) < 2:
            made = Worker(len(self.all) + 1, self.store.seconds())
            self.all.append(made)
            self.rows.add(made.number)
            self.look_in(0)

    def kill(self, worker: Worker) -> None:
        """Its process ends; another is started later."""
        now = self.store.seconds()
        worker.alive, worker.silent, worker.mute = False, min(worker.silent, now), min(worker.mute, now)
        worker.outcomes = []
        worker.seen = self.chance.random() < 0.5 if self.fault is None else self.fault.seen
        self.seen["killed"] += 1
        self.store.later(2 if self.fault else self.chance.choice((1, 5, 40)), self._begin)
        self.look_in(WATCH_SECONDS)

    def freeze(self, worker: Worker, seconds: float) -> None:
        """It stands still, and does not know that."""
        now = self.store.seconds()
        worker.silent, worker.mute = now, min(worker.mute, now)
        self.seen["frozen"] += 1

        def goes_on() -> None:
            if worker.alive:
                worker.silent = worker.mute = math.inf
                worker.held = self.store.seconds() if seconds > GAP else worker.held
                self.store.start(worker, self.look(worker))
                still, worker.still = worker.still, []
                for go in still:
                    go()

        self.store.later(seconds, goes_on)
        self.look_in(WATCH_SECONDS)

    def suspend(self, seconds: float) -> None:
        """The machine stands still, and all workers with it: nobody judges them."""
        self.seen["suspended"] += 1
        for worker in self.living:
            if worker.runs:
                self.freeze(worker, seconds)

    def lapse(self, worker: Worker, seconds: float) -> None:
        """It cannot say in Valkey that it is there."""
        if worker.mute < math.inf:
            return
        worker.mute = self.store.seconds()
        self.seen["lapsed"] += 1

        def says() -> None:
            if worker.runs:
                worker.mute = math.inf

        self.store.later(seconds, says)

    def here(self, owner: Worker | None) -> bool:
        """Whether a process goes on here, between two commits."""
        self.steps += 1
        trouble, chance = self.trouble, self.chance
        if self.fault is not None:
            if self.steps != self.fault.step:
                return owner is None or owner.alive
            for place in self.fault.ends:
                self.kill(self.all[place])
            if self.fault.stands:
                self.suspend(self.fault.stands)
            return owner.alive if owner else bool(self.fault.ends or self.fault.stands)
        if owner is None:
            return True
        lot = chance.random()
        if lot < trouble.kill:
            self.kill(owner)
        elif (lot := lot - trouble.kill) < trouble.freeze:
            self.freeze(owner, chance.choice((2, 10, 40)))
        elif (lot := lot - trouble.freeze) < trouble.suspend:
            self.suspend(chance.choice((10, 100)))
        elif lot - trouble.suspend < trouble.lapse:
            self.lapse(owner, chance.choice((5, 60)))
        return owner.alive

    def run(self, owner: Worker | None, process: Process) -> None:
        """Runs a process in a world that has one list of events, as long as it lives."""

        def go() -> None:
            if owner is None and not self.up:
                return
            if owner is not None and owner.alive and not owner.runs:
                owner.still.append(go)
            elif owner is None or owner.alive:
                for _ in process:
                    if self.here(owner):
                        pause = 0 if self.fault else self.chance.choice((0, 0, 0.1, 0.5))
                        self.store.later(pause, go)
                    return

        go()

    # Claimed and handed over

    def seat(self) -> Worker | None:
        """A worker that what is to be sent can be claimed for: one that is there, as far as anybody knows."""
        now = self.store.seconds()
        if not self.continues:
            return None
        if not self.build.asks_who_is_there:
            return self.chance.choice(self.all)
        if now - self._cache[0] >= _READ_EVERY:
            self._cache = now, [worker for worker in self.all if now - worker.mute < VOID_AFTER]
        known = self._cache[1]
        return self.chance.choice(known) if known else None

    def claimed(self, job: Any, worker: Worker, *, in_hand: bool = False) -> Attempt:
        """The row of a new attempt. `in_hand`: the worker has claimed it itself."""
        now = self.store.seconds()
        self.count += 1
        made = self.attempts[self.count] = Attempt(self.count, worker.number, now, job)
        if in_hand:
            worker.known[made.number] = None
        elif now - worker.mute > _SEEN_AFTER:
            self.store.broken(f"attempt {made.number} is claimed for worker {worker.number}, which nobody has heard of")
        else:
            self.seen["claimed for another"] += 1
            self.look_in(_MISSING_AFTER)
        return made

    def hand_over(self, attempts: Sequence[Attempt]) -> Process:
        """Whoever has committed that they are claimed tells the workers."""
        yield "between the commit and the hand-over"
        for attempt in attempts:
            worker = self.all[attempt.worker - 1]
            for delay in self._arrivals():
                self.store.later(delay, lambda a=attempt, w=worker: self._arrives(w, a))  # type: ignore[misc]

    def _arrivals(self) -> tuple[float, ...]:
        self.hand_overs += 1
        if self.fault is not None:
            return self.fault.delays if self.fault.hand_over == self.hand_overs else (0,)
        if self.chance.random() < self.trouble.lost:
            return ()
        late = self.chance.choice((1, 4, 8, 30)) if self.chance.random() < self.trouble.late else 0
        if self.chance.random() < self.trouble.doubled:
            return late, late + self.chance.choice((0, 0, 3, 20, 90))
        return (late,)

    def _arrives(self, worker: Worker, attempt: Attempt) -> None:
        if worker.alive:  # nobody reads the list of one that is dead
            self.store.start(worker, self._read(worker, attempt))

    def _read(self, worker: Worker, attempt: Attempt) -> Process:
        yield "between the list and the hands"
        if attempt.number in worker.known and self.build.drops_what_it_has:
            self.seen["dropped"] += 1
            return
        worker.known[attempt.number] = None
        yield from self.carry(worker, attempt, attempt.at)

    # Looking

    def look_in(self, seconds: float) -> None:
        """All workers look, then at the latest."""
        at = self.store.seconds() + seconds
        if at < self._round_at:
            self._round_at = at
            self.store.later(seconds, lambda: self._round(at))

    def _round(self, at: float) -> None:
        if at != self._round_at:
            return
        self._round_at = math.inf
        for worker in self.living:
            if worker.runs:
                self.store.start(worker, self.look(worker))
        known = {number for worker in self.living for number in worker.known}
        if self.living and (self.attempts.keys() - known or self.rows != {worker.number for worker in self.living}):
            self.look_in(WATCH_SECONDS)

    def look(self, worker: Worker) -> Process:
        """Once a second, and when something is due: shows that it lives, takes over what dead ones had and what was
        handed over and did not come, and claims.
        """
        self._hold(worker)
        if self.build.takes_over_from_the_dead:
            self._release_dead()
        self.ended_by_death = self.store.seconds()
        for attempt in self._missing(worker):
            self.store.start(worker, self.carry(worker, attempt, self.store.seconds()))
        yield "before the claim"
        claimed = self.store.claim(worker)
        if claimed:
            yield "between claim and talk"
        for attempt in claimed:
            self.store.start(worker, self.carry(worker, attempt, attempt.at))

    def _hold(self, worker: Worker) -> None:
        now = self.store.seconds()
        enters = worker.number not in self.rows or worker.held == now
        if enters:
            self.rows.add(worker.number)
            worker.held = now
        for other in self.all:
            if other is worker or other.number not in self.rows or other.runs:
                continue
            silent = now - other.silent
            may_judge = not enters and now - worker.held > LEASE
            if (
                (not other.alive and other.seen)
                or (may_judge and silent > LEASE)
                or not self.build.waits_for_the_silent
            ):
                if other.alive and silent <= LEASE:
                    self.store.broken(f"worker {other.number} lives, and counts as dead")
                self.rows.discard(other.number)
            elif silent > GAP:
                self._extend({other.number})
        if enters:
            self._extend(self.rows)

    def _extend(self, workers: set[int]) -> None:
        for attempt in self.attempts.values():
            if attempt.worker in workers and self.store.waits_for(attempt.job):
                self.store.renew(attempt.job)

    def _release_dead(self) -> None:
        for attempt in list(self.attempts.values()):
            if attempt.worker not in self.rows:
                self.seen["released"] += 1
                self.ended(attempt)
                if self.store.waits_for(attempt.job):
                    self.store.release(attempt.job)

    def _missing(self, worker: Worker) -> list[Attempt]:
        now, found = self.store.seconds(), []
        worker.known = {key: at for key, at in worker.known.items() if at is None or now - at <= KNOWN_SECONDS}
        worker.looked = now
        for attempt in list(self.attempts.values()):
            if attempt.worker != worker.number or now - attempt.at < _MISSING_AFTER:
                continue
            if attempt.number in worker.known or not self.build.looks_for_what_is_missing:
                continue
            if self.store.waits_for(attempt.job):
                self.seen["missing"] += 1
                worker.known[attempt.number] = None
                found.append(attempt)
            else:
                self.ended(attempt)
        return found

    # Sending and recording

    def carry(self, worker: Worker, attempt: Attempt, leased: float) -> Process:
        """A thread of the worker, with a job that has been leased since then."""
        yield "between taking and talking"
        late = self.store.seconds() - leased > RENEW_SECONDS
        self.seen["late"] += late
        if late and self.build.renews_what_comes_late:
            if not attempt.on_the_wire:
                worker.known[attempt.number] = self.store.seconds()
                return
            if self.store.waits_for(attempt.job):
                self.store.renew(attempt.job)
        if late and not attempt.on_the_wire:
            self.store.broken(f"attempt {attempt.number} is begun, and is that of somebody else by now")
        if attempt.number in worker.begun:
            self.store.broken(f"attempt {attempt.number} is begun twice by one worker")
        worker.begun.add(attempt.number)
        self.store.talk(worker, attempt)

    def came(self, worker: Worker, attempt: Attempt, outcome: Any) -> None:
        """The talk is over: this worker knows what came of it, and nobody else."""
        if worker.alive:
            worker.outcomes.append((attempt, outcome))
            if len(worker.outcomes) == 1:
                self.store.start(worker, self._record(worker))

    def _record(self, worker: Worker) -> Process:
        yield "between talking and recording"
        group, worker.outcomes = worker.outcomes, []
        claimed = self.store.record(group)
        for attempt, _ in group:
            self.ended(attempt)
            worker.known[attempt.number] = self.store.seconds()
            if not self.build.knows_what_it_had:
                del worker.known[attempt.number]
        if claimed:
            yield from self.hand_over(claimed)

    def ended(self, attempt: Attempt) -> None:
        """It has an outcome, or counts as lost."""
        attempt.on_the_wire = False
        self.attempts.pop(attempt.number, None)

    def lease_over(self, attempt: Attempt) -> None:
        """No outcome was recorded in time. Nothing waits for that but what a worker that lives has in hand."""
        if not attempt.on_the_wire:
            return
        self.ended(attempt)
        worker = self.all[attempt.worker - 1]
        self.seen["lease over"] += 1
        if worker.number not in self.rows and self.ended_by_death > attempt.at:
            self.store.broken(f"attempt {attempt.number} of a worker that is dead waits for the end of its lease")
        missed = worker.alive and worker.looked - attempt.at >= _MISSING_AFTER
        if missed and attempt.number not in worker.known:
            self.store.broken(f"attempt {attempt.number} was handed over and is missing until the end of its lease")
