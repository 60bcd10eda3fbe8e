"""Who gets the next thread: one lane for each server, so that a slow one never holds them all.

Bookkeeping without threads or time of its own; the caller holds one lock around every call. A lane begins with a
sixteenth of the threads (at least one). Each job whose server answered earns it one more, up to seven eighths, and one
whose server did not takes it back to the beginning: a server that is dead never gets many, and one that was well never
had them all. Within a lane jobs are begun in the order in which they came; lanes take turns.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

JobT = TypeVar("JobT")

# So many times what a lane may have at once may wait in it: fewer and larger claims.
AHEAD = 8


@dataclass(slots=True)
class Waiting(Generic[JobT]):
    """A job that is claimed and not begun. `leased_at`: when its lease began, in the caller's seconds."""

    job: JobT
    leased_at: float


@dataclass(frozen=True, slots=True)
class Begun(Generic[JobT]):
    """A job that has a thread from now on; `Lanes.end` gives it back."""

    lane: str
    job: JobT
    leased_at: float


class Pace:
    """How many jobs end in a second."""

    def __init__(self) -> None:
        self._second, self._now, self._before = 0, 0, 0

    def count(self, at: float) -> None:
        """One has ended; `at` in seconds that never go back."""
        self._turn(int(at))
        self._now += 1

    def of(self, at: float) -> int:
        """How many ended in this second so far, or in the one before, whichever is more."""
        self._turn(int(at))
        return max(self._now, self._before)

    def _turn(self, second: int) -> None:
        if second != self._second:
            self._before = self._now if second == self._second + 1 else 0
            self._second, self._now = second, 0


class Lanes(Generic[JobT]):
    """`threads` in all; `shared`: every lane may have them all. Not safe for several threads at once, see above."""

    def __init__(self, threads: int, *, shared: bool = False) -> None:
        self.threads = threads
        self.first = threads if shared else max(1, threads // 16)
        self.most = threads if shared else max(1, threads * 7 // 8)
        self.free = threads
        self._running: dict[str, int] = {}
        self._shares: dict[str, int] = {}
        self._used: set[str] = set()  # since the last `forget`
        self._waiting: OrderedDict[str, deque[Waiting[JobT]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many jobs wait for a thread, in all lanes."""
        return sum(map(len, self._waiting.values()))

    def running(self, lane: str) -> int:
        """How many threads the lane holds."""
        return self._running.get(lane, 0)

    def share(self, lane: str) -> int:
        """How many threads the lane may hold at present."""
        return self._shares.get(lane, self.first)

    def put(self, lane: str, job: JobT, leased_at: float) -> None:
        """The job waits for its turn."""
        self._waiting.setdefault(lane, deque()).append(Waiting(job, leased_at))

    def begin(self) -> list[Begun[JobT]]:
        """Takes a thread for each job that may begin now."""
        begun: list[Begun[JobT]] = []
        while self.free and (lane := self._next()) is not None:
            queue = self._waiting[lane]
            entry = queue.popleft()
            if queue:
                self._waiting.move_to_end(lane)
            else:
                del self._waiting[lane]
            self.free -= 1
            self._running[lane] = self.running(lane) + 1
            begun.append(Begun(lane, entry.job, entry.leased_at))
        return begun

    def _next(self) -> str | None:
        return next((lane for lane in self._waiting if self.running(lane) < self.share(lane)), None)

    def end(self, lane: str, reached: bool | None) -> None:
        """A job of this lane has ended. `reached`: whether its server answered; None = it was not asked."""
        self.free += 1
        left = self.running(lane) - 1
        if reached is False:
            self._shares.pop(lane, None)
        elif reached:
            self._shares[lane] = min(self.most, self.share(lane) + 1)
        if left:
            self._running[lane] = left
        else:
            del self._running[lane]
        self._used.add(lane)

    def forget(self) -> None:
        """Called now and then: a lane that was not used since the last call starts anew, for nobody knows what its
        server is like by now.
        """
        used = self._used | self._running.keys() | self._waiting.keys()
        self._shares = {lane: share for lane, share in self._shares.items() if lane in used}
        self._used.clear()

    def crowded(self) -> frozenset[str]:
        """Lanes in which enough waits to keep them busy for a while: nothing more need be claimed for them now."""
        return frozenset(lane for lane, queue in self._waiting.items() if len(queue) >= AHEAD * self.share(lane))

    def is_busy(self) -> bool:
        """Whether jobs wait for a server that has all the threads it may ever have: one that answers well."""
        return any(self.share(lane) >= self.most > self.first for lane in self._waiting)

    def waiting_in(self, lanes: Iterable[str]) -> list[JobT]:
        """The jobs that wait in these lanes."""
        return [entry.job for lane in lanes for entry in self._waiting.get(lane, ())]

    def entries(self) -> Iterator[Waiting[JobT]]:
        """All that wait. The caller may set their `leased_at`."""
        for queue in self._waiting.values():
            yield from queue

    def drop(self, unwanted: Callable[[JobT], bool]) -> list[JobT]:
        """Takes out the jobs that are not wanted any more, and returns them."""
        dropped: list[JobT] = []
        for lane, queue in list(self._waiting.items()):
            dropped += [entry.job for entry in queue if unwanted(entry.job)]
            kept = deque(entry for entry in queue if not unwanted(entry.job))
            if kept:
                self._waiting[lane] = kept
            else:
                del self._waiting[lane]
        return dropped
