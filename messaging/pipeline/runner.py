"""The pipeline's own process: claims due runs and has a child work on them, which alone has Spark.

A child leads a session of its own and dies with this process. It goes on with whatever is due next, in the same Spark
session, and ends when nothing is or a run did not succeed. So its memory is given back when the work is done, and a run
that hangs can be killed.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from django.db import Error, transaction

from messaging.models import PipelineRun
from messaging.pipeline import driver
from messaging.report_choices import RunState
from messaging.reports.services import log_folder
from messaging.reports.services import runs as pipeline_runs
from rmhub.alive import Sign
from rmhub.postgresql.base import give_back
from rmhub.supervisor import guard
from rmhub.supervisor.processes import PRELUDE

log = logging.getLogger(__name__)

BASE = Path(__file__).resolve().parent.parent.parent
LOOK_EVERY = 1.0
FOLDER_EVERY = 5.0
_FOLLOW_EVERY = 0.25
# A run that was cancelled stops Spark by itself; one that hangs somewhere else gets a signal, and then the other one.
TERM_AFTER, KILL_AFTER = 4.0, 10.0
# A child that has no run left tidies up and ends.
END_AFTER = 30.0


class Runner:
    """`serve` returns when the process was told to stop."""

    def __init__(self, say: Callable[[str], None], command: Callable[[PipelineRun], list[str]] | None = None) -> None:
        self._say = say
        self._command = command or _execute
        self._stop = threading.Event()
        self._folder_at = 0.0
        self._sign = Sign("pipeline")
        self.worker = f"{socket.gethostname()}:{os.getpid()}"

    def serve(self, *, once: bool = False, signals: bool = True) -> int:
        """Looks for due runs every second; with `once` until there is none. Returns the exit code."""
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._asked)
        while not self._stop.is_set():
            try:
                give_back()
                self._look_into_folder()
                run = pipeline_runs.claim_next(worker=self.worker)
                self._sign.give()
                if run is not None:
                    self._work(run)
                elif once:
                    break
                else:
                    self._stop.wait(LOOK_EVERY)
            except Error as error:
                log.warning("database away", extra={"action": "pipeline_serve", "error": str(error)[:200]})
                give_back()
                self._stop.wait(LOOK_EVERY)
        return 0

    def stop(self) -> None:
        """Ends `serve`, and the run that is being worked on."""
        self._stop.set()

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self._stop.set()

    def _look_into_folder(self) -> None:
        """Partners' logs that lie in the drop folder become runs."""
        if time.monotonic() < self._folder_at:
            return
        self._folder_at = time.monotonic() + FOLDER_EVERY
        try:
            for taken in log_folder.take_from_folder():
                self._say(f"{taken.name} {taken.error or f'taken as {taken.log}'}")
        except OSError as error:
            log.warning("drop folder not readable", extra={"action": "partner_log_folder", "error": str(error)[:200]})

    def _work(self, run: PipelineRun) -> None:
        """Starts a child with this run, and follows it through all that it claims (in our name) until it has ended."""
        self._say(f"{run.job} {run.public_id} started")
        prelude = [sys.executable, "-I", "-S", str(PRELUDE), str(os.getpid()), str(int(signal.SIGTERM)), "-", "-"]
        child = subprocess.Popen([*prelude, *self._command(run)], cwd=BASE, env=_environment(), start_new_session=True)
        try:
            since: float | None = None  # it was asked to end, or had no run any more
            while child.poll() is None:
                self._sign.give()
                now = self._held(run)
                if now is not None and now.pk != run.pk:
                    self._over(run)
                    self._say(f"{now.job} {now.public_id} started")
                    run, since = now, None
                asked = self._stop.is_set() or (now is not None and now.cancel_requested)
                since = (since or time.monotonic()) if asked or now is None else None
                waited = time.monotonic() - since if since is not None else 0.0
                if waited >= (KILL_AFTER if asked else END_AFTER):
                    guard.kill({child.pid})
                elif asked and (waited >= TERM_AFTER or self._stop.is_set()):
                    child.terminate()
                time.sleep(_FOLLOW_EVERY)
        finally:
            guard.kill({child.pid})
            child.wait()
        give_back()
        if (now := self._held(run)) is not None and now.pk != run.pk:
            self._over(run)
            run = now
        self._ended(run, child.returncode)

    def _held(self, run: PipelineRun) -> PipelineRun | None:
        """The run that the child works on; `run` while the database does not say."""
        try:
            return PipelineRun.objects.filter(facts__worker=self.worker, state=RunState.RUNNING).first()
        except Error:
            give_back()
            return run

    def _over(self, run: PipelineRun) -> None:
        run.refresh_from_db()
        self._say(f"{run.job} {run.public_id} {run.state}" + (f": {run.error}" if run.error else ""))

    def _ended(self, run: PipelineRun, code: int) -> None:
        """A child that died without a word: the run fails with what can be said about it."""
        if self._stop.is_set() and code != 0:
            sentence = driver.STOPPED
        elif code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            sentence = (
                "The process that worked on it was killed (signal 9): most likely the machine had no memory left."
                " RMHUB_SPARK_MEMORY bounds Spark's heap."
            )
        elif code < 0:
            sentence = f"The process that worked on it ended by signal {-code}."
        else:
            sentence = f"The process that worked on it ended with exit code {code}; its output says why."
        with transaction.atomic():
            died = pipeline_runs.run_fail(run, sentence, f"exit code {code}")
            run.refresh_from_db()
            if run.state == RunState.FAILED and (died or self._stop.is_set()):
                pipeline_runs.requeue_scheduled(run)
        self._over(run)


# Of a child at once: what reads the store, what else it does or its sign of life, and a lock.
CHILD_CONNECTIONS = 3


def _environment() -> dict[str, str]:
    name = "RMHUB_DB_CONNECTIONS"
    inherited = {key: text for key, text in os.environ.items() if key != f"{name}_FILE"}
    return {**inherited, name: str(CHILD_CONNECTIONS)}


def _execute(run: PipelineRun) -> list[str]:
    return [sys.executable, str(BASE / "manage.py"), "pipeline", "execute", str(run.pk), "--claim", str(run.claim)]
