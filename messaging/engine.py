"""The worker's engine: claim, talk, record. One loop a process; talking is done by a pool of threads.

A slow partner holds one thread and nothing else: outcomes are recorded as they come, in groups.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings
from django.db import close_old_connections, connection

from messaging import dispatch, transports
from messaging.services import leases
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


class Engine:
    """Runs what is due. `run` may be called by any number of tasks at once; one of them does the work."""

    def __init__(self, *, threads: int, batch: int) -> None:
        self._threads = threads
        self._batch = batch
        self._lock = threading.Lock()
        self._running = False
        self._again = False
        self._free = threading.Semaphore(threads)
        self._worker = leases.WorkerLock()
        self._looked_at = 0.0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="send")
        self._gather = threading.Event()  # never set until the engine closes: a pause that ends early then
        self._record: GroupCommit[tuple[Job, Receipt], bool] = GroupCommit(record, limit=batch)

    def run(self) -> int:
        """Claims and hands over until nothing is due. Returns how many transmissions it started (0 for a bystander)."""
        with self._lock:
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
                    dispatch.taken(dispatch.SEND)
                jobs = [] if self._gather.is_set() else claim_due(limit=self._batch, worker=self._worker.number)
                for job in jobs:
                    self._free.acquire()
                    self._pool.submit(self._send, job)
                started += len(jobs)
                if len(jobs) >= CROWD:
                    # While this loop runs it finds what becomes due by itself; wake-ups would only cost.
                    crowded = True
                    dispatch.busy(dispatch.SEND)
                    self._gather.wait(GATHER_SECONDS)
                    continue
                if crowded:
                    crowded = False  # one more look, with wake-ups counting again
                    continue
                with self._lock:
                    if not self._again or self._gather.is_set():
                        self._running = False
                        return started
        except BaseException:
            with self._lock:
                self._running = False
            raise

    def _watch(self) -> None:
        """Once a second: shows that this worker lives, and takes over what dead ones had claimed."""
        if time.monotonic() - self._looked_at >= WATCH_SECONDS:
            self._worker.hold()
            leases.release_dead(clock.now())
            self._looked_at = time.monotonic()

    def _send(self, job: Job) -> None:
        try:
            receipt = talk(job)
            self._record.submit((job, receipt))
        except Exception:
            # Not recorded: the lease runs out and the same bytes go out again.
            log.exception(
                "outcome not recorded", extra={"action": "record_failed", "transmission": job.transmission_id}
            )
            close_old_connections()
        finally:
            self._free.release()

    def close(self) -> None:
        """Lets the transmissions under way finish; starts nothing new."""
        self._gather.set()
        self._pool.shutdown(wait=True)
        self._worker.release()


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


_engine: Engine | None = None
_engine_lock = threading.Lock()


def engine() -> Engine:
    """This process's engine, made at first use (after any fork)."""
    global _engine
    with _engine_lock:
        if _engine is None:
            _engine = Engine(threads=settings.RMHUB_SEND_THREADS, batch=settings.RMHUB_SEND_BATCH)
        return _engine
