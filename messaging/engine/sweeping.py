"""The worker's own clock: what is due is looked for although nobody wakes it.

Submissions and answers wake workers through the broker. Once a second a worker looks what is due until its next look
(`engine.looking`), and runs it at its time. A task that was neither woken nor due for as long as its interval is run
too, so that whatever the look should pass over is at most a little later than that, without a broker and without beat.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType

from django.db import Error, connection

from messaging.engine.leases import RENEW_SECONDS, WorkerLock
from rmhub.postgresql.base import kept

log = logging.getLogger(__name__)

# What beat's message takes to come through; a task that it has woken is not run a second time.
LATE = 0.25
THREADS = 4


@dataclass(slots=True)
class _Turn:
    """One task: how often, and when it was begun last (monotonic)."""

    seconds: float
    run: Callable[[], object]
    begun: float = float("-inf")
    running: bool = False


class Sweeper:
    """Holds the presence of this process and runs its tasks at their intervals. One a worker.

    `first`: done once, before anything else, as soon as the database answers. `look`: the tasks that have something to
    do, and in how many seconds, asked every so many seconds; `at_most_every`: tasks that are not run more often than
    that, whatever it says.
    """

    def __init__(
        self,
        tasks: Mapping[str, tuple[float, Callable[[], object]]],
        *,
        presence: WorkerLock,
        first: Callable[[], object] = lambda: None,
        look: Callable[[], Mapping[str, float]] = dict,
        every: float = 1.0,
        at_most_every: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._turns = {name: _Turn(seconds, run) for name, (seconds, run) in tasks.items()}
        self._presence = presence
        self._first: Callable[[], object] | None = first
        self._look = look
        self._every = every
        self._at_most_every = at_most_every
        self._looked_at = float("-inf")
        self._due_at: dict[str, float] = {}  # as the last look said (monotonic)
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._away_since: float | None = None
        self._threads = [
            threading.Thread(target=self._hold, name="presence", daemon=True),
            threading.Thread(target=self._sweep, name="sweep", daemon=True),
        ]
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="sweep")

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begins nothing new; returns when its own threads have ended."""
        self._over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def woken(self, name: str) -> None:
        """The task is being run, because the broker says so."""
        turn = self._turns.get(name)
        if turn is not None:
            turn.begun = time.monotonic()

    def _hold(self) -> None:
        """A thread of its own: whatever the tasks wait for, others see that this worker lives."""
        while not self._over.wait(RENEW_SECONDS / 2):
            try:
                with kept():
                    self._presence.hold()
            except Error as error:
                self._away(error)
            else:
                self._back()
            finally:
                connection.close()

    def _away(self, error: Error) -> None:
        if self._away_since is None:
            self._away_since = time.monotonic()
            log.error(
                "the database is away; tried again until it is back",
                extra={"action": "database_away", "error": str(error).strip()[:200]},
            )

    def _back(self) -> None:
        if self._away_since is not None:
            away, self._away_since = time.monotonic() - self._away_since, None
            log.warning("the database is back", extra={"action": "database_back", "seconds": round(away, 1)})

    def _sweep(self) -> None:
        pause = 0.1
        while not self._over.wait(pause):
            pause = 0.1
            if self._away_since is not None:
                continue  # what could be done without it?
            if self._first is not None:
                if not self._attempt("first", self._first):
                    self._over.wait(RENEW_SECONDS)
                    continue
                self._first = None
            due = self._due()
            now = time.monotonic()
            for name, turn in self._turns.items():
                since = now - turn.begun
                if since < (self._at_most_every.get(name, 0.0) if name in due else turn.seconds + LATE):
                    continue
                with self._lock:
                    if turn.running:
                        continue
                    turn.running, turn.begun = True, now
                self._pool.submit(self._run, name, turn)
            then = min([self._looked_at + self._every, *self._due_at.values()])
            pause = min(1.0, max(0.01, then - time.monotonic()))
        connection.close()

    def _due(self) -> Collection[str]:
        """Tasks whose time has come, as the last look says; it looks again when it is time for that."""
        if (now := time.monotonic()) - self._looked_at >= self._every:
            self._looked_at = now
            try:
                self._due_at = {name: now + seconds for name, seconds in self._look().items()}
            except Error:
                self._due_at = {}  # the presence says that the database is away
            finally:
                connection.close()
        due = {name for name, at in self._due_at.items() if at <= time.monotonic()}
        self._due_at = {name: at for name, at in self._due_at.items() if name not in due}
        return due

    def _run(self, name: str, turn: _Turn) -> None:
        try:
            self._attempt(name, turn.run)
        finally:
            with self._lock:
                turn.running = False

    def _attempt(self, name: str, run: Callable[[], object]) -> bool:
        try:
            run()
        except Exception:
            # Due work stays due; the next turn looks again.
            log.exception("sweep failed", extra={"action": "sweep_failed", "task": name})
            return False
        finally:
            connection.close()  # while others wake the tasks, these threads need none
        return True
