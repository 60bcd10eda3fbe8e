"""Who gets the next thread: one bulkhead for each server, so that a slow one never holds them all.

Bookkeeping without threads or time of its own; the caller holds one lock around every call. A bulkhead begins with a
sixteenth of the threads (at least one). Each job whose server answered earns it one more, up to seven eighths, and one
whose server did not takes it back to the beginning: a server that is dead never gets many, and one that was well never
had them all. Within a bulkhead jobs are begun in the order in which they came; bulkheads take turns.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

JobT = TypeVar("JobT")

# So many times what a bulkhead may have at once may wait in it: fewer and larger claims.
AHEAD = 8


@dataclass(slots=True)
class Waiting(Generic[JobT]):
    """A job that is claimed and not begun. `leased_at`: when its lease began, in the caller's seconds."""

    job: JobT
    leased_at: float


@dataclass(frozen=True, slots=True)
class Begun(Generic[JobT]):
    """A job that has a thread from now on; `Bulkheads.end` gives it back."""

    bulkhead: str
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


class Bulkheads(Generic[JobT]):
    """`threads` in all; `shared`: every bulkhead may have them all. Not safe for several threads at once, see above."""

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
        """How many jobs wait for a thread, in all bulkheads."""
        return sum(map(len, self._waiting.values()))

    def running(self, bulkhead: str) -> int:
        """How many threads the bulkhead holds."""
        return self._running.get(bulkhead, 0)

    def share(self, bulkhead: str) -> int:
        """How many threads the bulkhead may hold at present."""
        return self._shares.get(bulkhead, self.first)

    def put(self, bulkhead: str, job: JobT, leased_at: float) -> None:
        """The job waits for its turn."""
        self._waiting.setdefault(bulkhead, deque()).append(Waiting(job, leased_at))

    def begin(self) -> list[Begun[JobT]]:
        """Takes a thread for each job that may begin now."""
        begun: list[Begun[JobT]] = []
        while self.free and (bulkhead := self._next()) is not None:
            queue = self._waiting[bulkhead]
            entry = queue.popleft()
            if queue:
                self._waiting.move_to_end(bulkhead)
            else:
                del self._waiting[bulkhead]
            self.free -= 1
            self._running[bulkhead] = self.running(bulkhead) + 1
            begun.append(Begun(bulkhead, entry.job, entry.leased_at))
        return begun

    def _next(self) -> str | None:
        return next((bulkhead for bulkhead in self._waiting if self.running(bulkhead) < self.share(bulkhead)), None)

    def end(self, bulkhead: str, reached: bool | None) -> None:
        """A job of this bulkhead has ended. `reached`: whether its server answered; None = it was not asked."""
        self.free += 1
        left = self.running(bulkhead) - 1
        if reached is False:
            self._shares.pop(bulkhead, None)
        elif reached:
            self._shares[bulkhead] = min(self.most, self.share(bulkhead) + 1)
        if left:
            self._running[bulkhead] = left
        else:
            del self._running[bulkhead]
        self._used.add(bulkhead)

    def forget(self) -> None:
        """Called now and then: a bulkhead that was not used since the last call starts anew, for nobody knows what its
        server is like by now.
        """
        used = self._used | self._running.keys() | self._waiting.keys()
        self._shares = {bulkhead: share for bulkhead, share in self._shares.items() if bulkhead in used}
        self._used.clear()

    def crowded(self) -> frozenset[str]:
        """Bulkheads in which enough waits to keep them busy for a while: nothing more need be claimed for them now."""
        return frozenset(
            bulkhead for bulkhead, queue in self._waiting.items() if len(queue) >= AHEAD * self.share(bulkhead)
        )

    def is_busy(self) -> bool:
        """Whether jobs wait for a server that has all the threads it may ever have: one that answers well."""
        return any(self.share(bulkhead) >= self.most > self.first for bulkhead in self._waiting)

    def waiting_in(self, bulkheads: Iterable[str]) -> list[JobT]:
        """The jobs that wait in these bulkheads."""
        return [entry.job for bulkhead in bulkheads for entry in self._waiting.get(bulkhead, ())]

    def entries(self) -> Iterator[Waiting[JobT]]:
        """All that wait. The caller may set their `leased_at`."""
        for queue in self._waiting.values():
            yield from queue

    def drop(self, unwanted: Callable[[JobT], bool]) -> list[JobT]:
        """Takes out the jobs that are not wanted any more, and returns them."""
        dropped: list[JobT] = []
        for bulkhead, queue in list(self._waiting.items()):
            dropped += [entry.job for entry in queue if unwanted(entry.job)]
            kept = deque(entry for entry in queue if not unwanted(entry.job))
            if kept:
                self._waiting[bulkhead] = kept
            else:
                del self._waiting[bulkhead]
        return dropped
