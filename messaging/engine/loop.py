"""The worker's engine: claim, talk, record. One loop a process and kind of work; talking is done by a pool of threads.

A slow partner or application holds one thread and nothing else: outcomes are recorded as they come, in groups.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from django.db import InterfaceError, OperationalError, connection

from messaging import dispatch
from messaging.engine import leases
from messaging.engine.bulkheads import Begun, Bulkheads, Pace
from messaging.engine.group import GroupCommit
from rmhub import clock, logs
from rmhub.metrics import TALKS
from rmhub.postgresql.base import give_back

log = logging.getLogger(__name__)

# A claim that found this many will soon find as many again: a short pause lets them gather into one transaction.
CROWD = 4
GATHER_SECONDS = 0.015
# The same while claimed jobs still wait for their server's turn.
WAITING_GATHER_SECONDS = 0.05
WATCH_SECONDS = 1.0
FORGET_SECONDS = 30.0
# A job that has waited for so long gets a new lease: what is left of a lease must outlast the transport's time limits.
RENEW_SECONDS = 5.0
# How often an outcome that the database does not take is offered again.
AGAIN_SECONDS = 0.5
# Outcomes that nothing waits for are recorded together, this often.
LAZY_SECONDS = 0.1
# So long a job is known after its end: a hand-over that comes late or twice is none.
KNOWN_SECONDS = 60.0

JobT = TypeVar("JobT")
OutcomeT = TypeVar("OutcomeT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Crowded(Generic[JobT]):
    """What a claim passes over: bulkheads in which enough waits, and the jobs that wait there."""

    bulkheads: frozenset[str] = frozenset()
    jobs: list[JobT] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ahead(Generic[JobT, OutcomeT]):
    """What is needed to claim more than there are threads for, so that one transaction claims many.

    `bulkhead`: whose threads a job takes (`bulkheads`). `refuse`: what comes of a job that is not put on the wire now;
    None = it may be. `reached`: whether the other side answered, None = it was not asked. `renew`: new leases for jobs
    that wait; returns those that are somebody else's by now. `give_back`: jobs that are not begun any more. `key`: what
    `renew` calls a job. `refresh`: called now and then, outside of transactions. `missing`: (worker, keys of what is in
    hand) -> jobs that were handed over and did not come. `urgent`: whether the thread waits until this
    outcome is recorded.
    """

    bulkhead: Callable[[JobT], str]
    refuse: Callable[[JobT], OutcomeT | None]
    reached: Callable[[OutcomeT], bool | None]
    renew: Callable[[list[JobT]], set[uuid.UUID]]
    give_back: Callable[[list[JobT]], None]
    key: Callable[[JobT], uuid.UUID]
    refresh: Callable[[], None]
    missing: Callable[[int, list[uuid.UUID]], list[JobT]]
    urgent: Callable[[JobT, OutcomeT], bool]


@dataclass(frozen=True, slots=True)
class Work(Generic[JobT, OutcomeT]):
    """One kind of work in its three steps.

    `claim`: (limit, worker, what to pass over) -> jobs, committed. `talk`: no transaction is open. `record`: outcomes
    of many jobs, and whether more may be begun; one transaction; returns for each the job that follows at once, or
    None. `release_dead`: frees what dead workers had. `keeps`: whether a job that begins late is still this worker's;
    then it has a new lease. `about`: what lines in the log about a job name. `ahead`: more is claimed than there are
    threads for, jobs are handed over too, and outcomes are recorded while the thread goes on. Without it every claim
    is talked about at once, and when a job has ended there may be another that waited for its end, so the engine
    looks again.
    """

    task: str
    claim: Callable[[int, int, Crowded[JobT]], list[JobT]]
    talk: Callable[[JobT], OutcomeT]
    record: Callable[[list[tuple[JobT, OutcomeT]], bool], list[JobT | None]]
    release_dead: Callable[[datetime], int]
    keeps: Callable[[JobT], bool]
    about: Callable[[JobT], dict[str, str]] = lambda job: {}
    ahead: Ahead[JobT, OutcomeT] | None = None


class Engine(Generic[JobT, OutcomeT]):
    """Runs what is due. `run` may be called by any number of tasks at once; one of them does the work."""

    def __init__(
        self, work: Work[JobT, OutcomeT], *, threads: int, batch: int, worker: leases.WorkerLock | None = None
    ) -> None:
        """`worker`: the presence of the process, which its engines share; None = one of its own."""
        self._work = work
        self._talks = TALKS.labels(work.task)
        self._batch = batch
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # there may be something to claim, or nothing runs any more
        self._thread_free = threading.Condition(self._lock)
        self._running = False
        self._again = False
        self._bulkheads: Bulkheads[JobT] = Bulkheads(threads, shared=work.ahead is None)
        self._passed_over: frozenset[str] = frozenset()
        self._pace = Pace()
        self._worker = worker or leases.WorkerLock()
        self._owns_worker = worker is None
        self._looked_at = 0.0
        self._forgot_at = time.monotonic()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=work.task.rpartition(".")[2])
        self._gather = threading.Event()  # never set until the engine closes: a pause that ends early then
        self._in_hand: dict[uuid.UUID, float | None] = {}  # with `ahead`: when it came to its end (monotonic)
        self._outbox: Outbox[JobT, OutcomeT] | None = None
        if work.ahead is not None:
            self._outbox = Outbox(self._record_some, batch=batch)
        self._record: GroupCommit[tuple[JobT, OutcomeT], JobT | None] = GroupCommit(
            lambda outcomes: work.record(outcomes, not self._gather.is_set()), limit=batch, name=work.task
        )

    def run(self) -> int:
        """Claims and hands over until nothing is due and nothing waits. Returns how many jobs it started (0 for a
        bystander).
        """
        with self._lock:
            if self._gather.is_set():
                return 0
            if self._running:
                self._again = True
                self._changed.notify_all()
                return 0
            self._running = True
        started = 0
        crowded = False
        try:
            while True:
                self._watch()
                with self._lock:
                    self._again = False
                if not crowded:
                    # What becomes due after this look sends a wake-up of its own.
                    dispatch.taken(self._work.task)
                found, more = self._hand_out()
                started += found
                if found >= CROWD:
                    # While this loop runs it finds what becomes due by itself; wake-ups would only cost.
                    crowded = True
                    dispatch.busy(self._work.task)
                    self._gather.wait(GATHER_SECONDS)
                    continue
                if more or (crowded and not self._bulkheads.waiting):
                    crowded = False  # one more look, with wake-ups counting again
                    continue
                if self._is_done():
                    return started
        except BaseException:
            with self._lock:
                self._rest()
            raise

    def _is_done(self) -> bool:
        """Whether this run is over. While jobs wait for a thread it is not; then this waits for news, a second long."""
        with self._lock:
            if not self._gather.is_set():
                if not self._again and self._bulkheads.waiting:
                    self._changed.wait(WATCH_SECONDS)
                    return False
                if self._again:
                    return False
            self._rest()
            return True

    def _rest(self) -> None:
        self._running = False
        self._changed.notify_all()

    def _watch(self) -> None:
        """Once a second: shows that this worker lives, and takes over what dead ones had claimed."""
        if self._work.ahead is not None:
            self._work.ahead.refresh()
        if time.monotonic() - self._looked_at >= WATCH_SECONDS:
            self._worker.hold()
            self._work.release_dead(clock.now())
            self._renew_waiting()
            self._look_for_missing()
            self._looked_at = time.monotonic()
        if time.monotonic() - self._forgot_at >= FORGET_SECONDS:
            with self._lock:
                self._bulkheads.forget()
            self._forgot_at = time.monotonic()

    def _hand_out(self) -> tuple[int, bool]:
        """One claim, and a thread for each job of it that may begin. Returns how many jobs that were, and whether there
        may be more of them.
        """
        limit = self._room()
        if not limit:
            return 0, False
        ahead = self._work.ahead
        with self._lock:
            self._passed_over = self._bulkheads.crowded()
            crowded = Crowded(self._passed_over, self._bulkheads.waiting_in(self._passed_over))
        leased_at = time.monotonic()
        jobs = self._work.claim(limit, self._worker.number, crowded)
        self._put([(job, leased_at) for job in jobs])
        return len(jobs), ahead is not None and len(jobs) >= limit

    def take(self, handed_over: Sequence[tuple[JobT, float]]) -> None:
        """Takes jobs that others have claimed for this worker, with the seconds that they took to come here."""
        now = time.monotonic()
        self._put([(job, now - age) for job, age in handed_over])

    def state(self) -> tuple[int, frozenset[str]] | None:
        """How many jobs more may be handed over, and the bulkheads that take none; None = nothing may be."""
        with self._lock:
            if self._gather.is_set() or not self._worker.is_held():
                return None
            room = self._batch + self._bulkheads.threads - self._bulkheads.waiting
            return max(0, room), self._bulkheads.crowded()

    def _put(self, jobs: list[tuple[JobT, float]]) -> None:
        """Gives each job that is new here a thread, or its place in a bulkhead."""
        ahead = self._work.ahead
        refused: list[tuple[JobT, OutcomeT]] = []
        for job, leased_at in jobs:
            if ahead is None:
                with self._lock:
                    self._bulkheads.put("", job, leased_at)
                continue
            key = ahead.key(job)
            with self._lock:
                if key in self._in_hand:
                    continue
                self._in_hand[key] = None
            outcome = ahead.refuse(job)
            if outcome is not None:
                refused.append((job, outcome))
                continue
            with self._lock:
                self._bulkheads.put(ahead.bulkhead(job), job, leased_at)
        self._begin()
        for start in range(0, len(refused), self._batch):
            self._record_some(refused[start : start + self._batch])

    def _room(self) -> int:
        """How many jobs a claim may bring. With `ahead` it waits for an idle thread; 0 = nothing is claimed now."""
        if self._work.ahead is None:
            with self._lock:
                free, threads = self._bulkheads.free, self._bulkheads.threads
            if 0 < free < threads // 2:
                # Others are about to end: one claim for several costs little more than one for one.
                self._gather.wait(GATHER_SECONDS)
            with self._lock:
                return 0 if self._gather.is_set() else self._bulkheads.free
        with self._lock:
            busy = self._bulkheads.is_busy()
        if busy:
            # The threads have work, so a look can wait: fewer claims of more jobs.
            self._gather.wait(WAITING_GATHER_SECONDS)
        while True:
            with self._lock:
                if self._gather.is_set():
                    return 0
                if self._bulkheads.free:
                    # What is claimed waits with its lease running: no more than what begins within about a second.
                    return min(self._batch, self._bulkheads.free + self._pace.of(time.monotonic()))
                self._thread_free.wait(WATCH_SECONDS)
            self._watch()

    def _begin(self) -> None:
        with self._lock:
            if self._gather.is_set() and self._work.ahead is not None:
                return  # `close` gives them back
            begun = self._bulkheads.begin()
            for one in begun:
                self._pool.submit(self._send, one)

    def _record_some(self, outcomes: list[tuple[JobT, OutcomeT]]) -> None:
        """Records outcomes that no thread waits for; one that the database refuses does not take the others with it."""
        try:
            self._persist(lambda: self._work.record(outcomes, False))
        except Exception:
            if len(outcomes) > 1:
                for outcome in outcomes:
                    self._record_some([outcome])
                return
            self._not_recorded([job for job, _ in outcomes])
        self._forget([job for job, _ in outcomes])

    def _forget(self, jobs: Sequence[JobT]) -> None:
        """These are not in hand any more; for a while they are known as such."""
        ahead, now = self._work.ahead, time.monotonic()
        if ahead is not None:
            with self._lock:
                self._in_hand.update((ahead.key(job), now) for job in jobs)

    def _look_for_missing(self) -> None:
        ahead = self._work.ahead
        if ahead is None:
            return
        until = time.monotonic() - KNOWN_SECONDS
        with self._lock:
            self._in_hand = {key: ended for key, ended in self._in_hand.items() if ended is None or ended > until}
            begun = [key for key, ended in self._in_hand.items() if ended is None]
        found = ahead.missing(self._worker.number, begun)
        if found:
            self.take([(job, 0.0) for job in found])

    def _send(self, begun: Begun[JobT]) -> None:
        following: JobT | None = begun.job
        leased_at = begun.leased_at
        ahead = self._work.ahead
        reached: bool | None = None
        try:
            while following is not None:
                job = following
                if connection.in_atomic_block:
                    raise RuntimeError("talking inside a transaction would hold its locks for as long as others like")
                # It has waited, or this process was stopped meanwhile: others may have taken it over.
                late = time.monotonic() - leased_at > RENEW_SECONDS
                if late and not self._persist(lambda job=job: self._work.keeps(job)):  # type: ignore[misc]
                    self._forget([job])
                    break
                give_back()
                begun_at = time.monotonic()
                with logs.about(**self._work.about(job)):
                    outcome = self._work.talk(job)
                leased_at = time.monotonic()
                self._talks.observe(leased_at - begun_at)
                if ahead is not None:
                    reached = ahead.reached(outcome)
                    if self._outbox is not None and not ahead.urgent(job, outcome):
                        self._outbox.put(job, outcome)
                        break
                following = self._persist(lambda job=job, outcome=outcome: self._record.submit((job, outcome)))  # type: ignore[misc]
                self._forget([job])
        except Exception:
            self._not_recorded([following])
            self._forget([job])
        finally:
            give_back()
            self._end(begun.bulkhead, reached)
        if ahead is None:
            self._look_again()

    def _end(self, bulkhead: str, reached: bool | None) -> None:
        """Gives the thread back, and to the next job that waits for one."""
        with self._lock:
            self._bulkheads.end(bulkhead, reached)
            self._pace.count(time.monotonic())
            if self._passed_over - self._bulkheads.crowded():
                self._passed_over = frozenset()
                self._again = True
                self._changed.notify_all()
            elif not self._bulkheads.waiting:
                self._changed.notify_all()
        self._begin()
        with self._lock:
            if self._bulkheads.free:
                self._thread_free.notify_all()

    def _persist(self, write: Callable[[], ResultT]) -> ResultT:
        """What `write` returns, once the database takes it: what came of a job is known here and nowhere else.

        It may write twice what was committed when the connection broke: an outcome counts once for its claim.
        Raises what `write` raised when the engine closes meanwhile.
        """
        while True:
            try:
                return write()
            except (OperationalError, InterfaceError) as error:
                connection.close()
                log.warning(
                    "the database does not take what came of a job; offered again until it does",
                    extra={"action": "record_waits", "error": str(error)[:200]},
                )
                if self._gather.wait(AGAIN_SECONDS):
                    raise

    def _not_recorded(self, jobs: Sequence[JobT | None]) -> None:
        # The lease runs out, and the rules decide what may be done again.
        log.exception("outcome not recorded", extra={"action": "record_failed", "job": str(jobs)[:200]})

    def _renew_waiting(self) -> None:
        """Jobs that wait keep their leases: this worker lives."""
        ahead, now = self._work.ahead, time.monotonic()
        if ahead is None:
            return
        with self._lock:
            entries = [entry for entry in self._bulkheads.entries() if now - entry.leased_at > RENEW_SECONDS]
        if not entries:
            return
        lost = ahead.renew([entry.job for entry in entries])
        with self._lock:
            for entry in entries:
                entry.leased_at = now
            self._bulkheads.drop(lambda job: ahead.key(job) in lost)

    def _look_again(self) -> None:
        try:
            self.run()
        except Exception:
            # The sweep looks again in a second.
            log.exception("claim failed", extra={"action": "claim_failed", "task": self._work.task})
        finally:
            give_back()

    def stop(self) -> None:
        """Starts nothing new."""
        self._gather.set()
        with self._lock:
            self._changed.notify_all()
            self._thread_free.notify_all()

    def close(self) -> None:
        """Lets what is under way finish; starts nothing new, and gives back what is claimed and not begun."""
        self.stop()
        with self._lock:
            self._changed.wait_for(lambda: not self._running)
            waiting = self._bulkheads.drop(lambda job: True)
        if waiting and self._work.ahead is not None:
            try:
                self._work.ahead.give_back(waiting)
            except Exception:
                # The next worker sees that this one is gone, and takes them over.
                log.exception("not given back", extra={"action": "give_back_failed", "jobs": len(waiting)})
        self._pool.shutdown(wait=True)
        if self._outbox is not None:
            self._outbox.close()
        if self._owns_worker:
            self._worker.release()


class Outbox(Generic[JobT, OutcomeT]):
    """Outcomes on their way into the database: recorded together, by a thread of its own that begins with the first."""

    def __init__(
        self,
        record: Callable[[list[tuple[JobT, OutcomeT]]], None],
        *,
        batch: int,
    ) -> None:
        self._record = record
        self._batch = batch
        self._changed = threading.Condition()
        self._waiting: list[tuple[JobT, OutcomeT]] = []
        self._over = False
        self._thread: threading.Thread | None = None

    def put(self, job: JobT, outcome: OutcomeT) -> None:
        """Takes one; it is recorded when enough have come together, or after `LAZY_SECONDS`."""
        with self._changed:
            self._waiting.append((job, outcome))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Records what is there; call it when nobody puts anything more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._over)
                if not self._waiting:
                    return
                self._changed.wait_for(lambda: len(self._waiting) >= self._batch or self._over, LAZY_SECONDS)
                some, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
            self._record(some)
            give_back()
