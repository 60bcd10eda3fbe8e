"""The pulse of a run: a thread that renews its lease, shows its progress, and stops Spark when it is cancelled."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any

from django.db import Error, connection

from messaging.models import PipelineRun
from messaging.pipeline import session
from messaging.reports.services import runs as pipeline_runs

log = logging.getLogger(__name__)

SECONDS = 1.0


class Pulse:
    """Beats every second until the block ends. `lost` is set when the run was cancelled, or is not ours any more."""

    def __init__(self, run: PipelineRun, seconds: float = SECONDS) -> None:
        self.lost = threading.Event()
        self._run = run
        self._seconds = seconds
        self._now = ("Starting", 0, 0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def show(self, step: str, done: int, total: int) -> None:
        """What the next beat writes down."""
        self._now = (step, done, total)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join(timeout=30)

    def _beat(self) -> None:
        try:
            while not self._over.wait(self._seconds):
                step, done, total = self._now
                if not total:
                    done, total = tasks()
                try:
                    alive = pipeline_runs.heartbeat(self._run, step, done, total)
                except Error:
                    # It may be back before the lease ends; if not, publishing is refused.
                    log.warning("no heartbeat", extra={"action": "pipeline_heartbeat"}, exc_info=True)
                    with contextlib.suppress(Exception):
                        connection.close()
                    continue
                if not alive and not self._over.is_set():
                    self.lost.set()
                    cancel_spark()
        finally:
            connection.close()


def tasks() -> tuple[int, int]:
    """Tasks done and planned of what Spark is computing right now; (0, 0) when it is not, or under Spark Connect."""
    running = session.current()
    if running is None or not hasattr(running, "_jsc"):
        return 0, 0
    done = total = 0
    with contextlib.suppress(Exception):  # between two queries, or the JVM is just ending
        tracker: Any = running.sparkContext.statusTracker()
        for job in tracker.getActiveJobsIds():
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                one = tracker.getStageInfo(stage)
                if one:
                    done += one.numCompletedTasks
                    total += one.numTasks
    return done, total


def cancel_spark() -> None:
    """Ends what Spark is computing for this process: the query raises in the thread that waits for it."""
    running: Any = session.current()
    if running is None:
        return
    with contextlib.suppress(Exception):
        if hasattr(running, "_jsc"):
            running.sparkContext.cancelAllJobs()
        else:
            running.interruptAll()
