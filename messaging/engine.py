"""The worker's engines: claim, talk, record. One loop a process and kind of work; talking is done by a pool of threads.

A slow partner or application holds one thread and nothing else: outcomes are recorded as they come, in groups.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from django.conf import settings
from django.db import close_old_connections, connection

from messaging import dispatch, transports
from messaging.services import leases
from messaging.services.delivering import claiming, talking
from messaging.services.delivering import job as deliveries
from messaging.services.delivering import recording as delivering_recording
from messaging.services.group import GroupCommit
from messaging.services.recording import record
from messaging.services.sending import Job, claim_due
from messaging.transports import Receipt
from rmhub import clock

log = logging.getLogger(__name__)

# A claim that found this many will soon find as many again: a short pause lets them gather into one transaction.
CROWD = 4
GATHER_SECONDS = 0.015
WATCH_SECONDS = 1.0

JobT = TypeVar("JobT")
OutcomeT = TypeVar("OutcomeT")


@dataclass(frozen=True, slots=True)
class Work(Generic[JobT, OutcomeT]):
    """One kind of work in its three steps.

    `claim`: (limit, worker) -> jobs, committed. `talk`: no transaction is open. `record`: outcomes of many jobs, one
    transaction; returns for each the job that follows at once, or None. `release_dead`: frees what dead workers had.
    `ahead`: more is claimed than there are threads for. Without it every claim is talked about at once, and when a job
    has ended there may be another that waited for its end, so the engine looks again.
    """

    task: str
    claim: Callable[[int, int], list[JobT]]
    talk: Callable[[JobT], OutcomeT]
    record: Callable[[list[tuple[JobT, OutcomeT]]], list[JobT | None]]
    release_dead: Callable[[datetime], int]
    ahead: bool


class Engine(Generic[JobT, OutcomeT]):
    """Runs what is due. `run` may be called by any number of tasks at once; one of them does the work."""

    def __init__(self, work: Work[JobT, OutcomeT], *, threads: int, batch: int) -> None:
        self._work = work
        self._threads = threads
        self._batch = batch
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._running = False
        self._again = False
        self._free = threading.Semaphore(threads)
        self._worker = leases.WorkerLock()
        self._looked_at = 0.0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=work.task.rpartition(".")[2])
        self._gather = threading.Event()  # never set until the engine closes: a pause that ends early then
        self._record: GroupCommit[tuple[JobT, OutcomeT], JobT | None] = GroupCommit(work.record, limit=batch)

    def run(self) -> int:
        """Claims and hands over until nothing is due. Returns how many jobs it started (0 for a bystander)."""
        with self._lock:
            if self._gather.is_set():
                return 0
            if self._running:
                self._again = True
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
                found = self._hand_out()
                started += found
                if found >= CROWD:
                    # While this loop runs it finds what becomes due by itself; wake-ups would only cost.
                    crowded = True
                    dispatch.busy(self._work.task)
                    self._gather.wait(GATHER_SECONDS)
                    continue
                if crowded:
                    crowded = False  # one more look, with wake-ups counting again
                    continue
                with self._lock:
                    if not self._again or self._gather.is_set():
                        self._rest()
                        return started
        except BaseException:
            with self._lock:
                self._rest()
            raise

    def _rest(self) -> None:
        self._running = False
        self._idle.notify_all()

    def _watch(self) -> None:
        """Once a second: shows that this worker lives, and takes over what dead ones had claimed."""
        if time.monotonic() - self._looked_at >= WATCH_SECONDS:
            self._worker.hold()
            self._work.release_dead(clock.now())
            self._looked_at = time.monotonic()

    def _hand_out(self) -> int:
        """One claim, and a thread for each job of it. Returns how many jobs that were."""
        if self._gather.is_set():
            return 0
        if self._work.ahead:
            jobs = self._work.claim(self._batch, self._worker.number)
            for job in jobs:
                self._free.acquire()
                self._pool.submit(self._send, job)
            return len(jobs)
        free = self._take_free()
        if 0 < free < self._threads // 2:
            # Others are about to end: one claim for several costs little more than one for one.
            self._gather.wait(GATHER_SECONDS)
            free += self._take_free()
        jobs = []
        try:
            if free:
                jobs = self._work.claim(free, self._worker.number)
        finally:
            if free > len(jobs):
                self._free.release(free - len(jobs))
        for job in jobs:
            self._pool.submit(self._send, job)
        return len(jobs)

    def _take_free(self) -> int:
        """How many threads were idle; they are the caller's now."""
        free = 0
        while self._free.acquire(blocking=False):
            free += 1
        return free

    def _send(self, job: JobT) -> None:
        following: JobT | None = job
        try:
            while following is not None:
                if connection.in_atomic_block:
                    raise RuntimeError("talking inside a transaction would hold its locks for as long as others like")
                following = self._record.submit((following, self._work.talk(following)))
        except Exception:
            # Not recorded: the lease runs out, and the rules decide what may be done again.
            log.exception("outcome not recorded", extra={"action": "record_failed", "job": str(job)[:200]})
            close_old_connections()
        finally:
            self._free.release()
        if not self._work.ahead:
            self._look_again()

    def _look_again(self) -> None:
        try:
            self.run()
        except Exception:
            # The sweep looks again in a second.
            log.exception("claim failed", extra={"action": "claim_failed", "task": self._work.task})
            close_old_connections()

    def stop(self) -> None:
        """Starts nothing new."""
        self._gather.set()

    def close(self) -> None:
        """Lets what is under way finish; starts nothing new, and leaves nothing claimed that is not begun."""
        self.stop()
        with self._idle:
            self._idle.wait_for(lambda: not self._running)
        self._pool.shutdown(wait=True)
        self._worker.release()


# --- sends: messages and signals to partners ---


def _claim_sends(limit: int, worker: int) -> list[Job]:
    return claim_due(limit=limit, worker=worker)


def talk(job: Job) -> Receipt:
    """The second step: bytes on the wire, with no transaction open (invariant 6)."""
    if connection.in_atomic_block:
        raise RuntimeError("a transmission inside a transaction would hold its locks for as long as the partner likes")
    receipt = transports.send(job.transport, job.parcel)
    log.log(
        logging.DEBUG if receipt.ok else logging.WARNING,
        "transmitted" if receipt.ok else "transmission failed",
        extra={
            "action": "transmitted" if receipt.ok else "transmission_failed",
            "kind": job.kind,
            "address": job.parcel.address,
            "status": receipt.status,
            "cause": receipt.cause,
            "message_id": job.message_id,
        },
    )
    return receipt


def _record_sends(outcomes: list[tuple[Job, Receipt]]) -> list[Job | None]:
    record(outcomes)
    return [None] * len(outcomes)


SENDS = Work(
    task=dispatch.SEND,
    claim=_claim_sends,
    talk=talk,
    record=_record_sends,
    release_dead=lambda now: leases.release_dead(now),
    ahead=True,
)

# --- deliveries: documents to applications ---


def _claim_deliveries(limit: int, worker: int) -> list[deliveries.Job]:
    # One thread is always left for the other triggers.
    return claiming.claim_due(limit=limit, worker=worker, share=max(1, settings.RMHUB_DELIVER_THREADS - 1))


DELIVERIES = Work(
    task=dispatch.DELIVER,
    claim=_claim_deliveries,
    talk=talking.talk,
    record=delivering_recording.record,
    release_dead=claiming.release_dead,
    ahead=False,
)

_sender: Engine[Job, Receipt] | None = None
_deliverer: Engine[deliveries.Job, deliveries.Outcome] | None = None
_engine_lock = threading.Lock()


def sender() -> Engine[Job, Receipt]:
    """This process's engine for sends, made at first use (after any fork)."""
    global _sender
    with _engine_lock:
        if _sender is None:
            _sender = Engine(SENDS, threads=settings.RMHUB_SEND_THREADS, batch=settings.RMHUB_SEND_BATCH)
        return _sender


def deliverer() -> Engine[deliveries.Job, deliveries.Outcome]:
    """This process's engine for deliveries, made at first use (after any fork)."""
    global _deliverer
    with _engine_lock:
        if _deliverer is None:
            threads = settings.RMHUB_DELIVER_THREADS
            _deliverer = Engine(DELIVERIES, threads=threads, batch=threads)
        return _deliverer


def close() -> None:
    """Closes this process's engines: nothing new is started, and what is under way is finished."""
    engines = (sender(), deliverer())
    for made in engines:
        made.stop()
    for made in engines:
        made.close()
