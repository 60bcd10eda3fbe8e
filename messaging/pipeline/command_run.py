"""`manage.py pipeline run JOB|all [--from DATE] [--to DATE]`: in the foreground, in one Spark session."""

from __future__ import annotations

import getpass
import os
import signal
import socket
import time
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime
from types import FrameType
from typing import Any, NoReturn

from django.core.management.base import CommandParser, OutputWrapper

from messaging.choices import Interface
from messaging.exceptions import WrongState
from messaging.journal.audit import Actor
from messaging.models import PipelineRun
from messaging.pipeline import driver, session
from messaging.report_choices import PipelineJob, RunState
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock

ALL = "all"
_POLL = 0.5


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "job", choices=(ALL, *PipelineJob.values), metavar="JOB", help=", ".join((ALL, *PipelineJob.values))
    )
    parser.add_argument("--from", dest="begin", type=instant, help="begin of the range: a date or ISO 8601 time, UTC")
    parser.add_argument("--to", dest="end", type=instant, help="end of the range, exclusive")
    parser.add_argument("--scope", default="", help="reconcile: the partner's log (plog_…)")
    parser.add_argument("--no-extract", action="store_true", help="a report: of the lake as it is")
    parser.add_argument("--reason", default="", help="for the audit log")


def handle(options: dict[str, Any], stdout: OutputWrapper) -> int:
    actor = Actor(f"command:{getpass.getuser()}", Interface.COMMAND)
    job = options["job"]
    jobs = pipeline_runs.ALL if job == ALL else (job,)
    wanted = [_request(name, options, extract=job != ALL and not options["no_extract"]) for name in jobs]
    for each in wanted:
        pipeline_runs.check_request(**each)
    signal.signal(signal.SIGTERM, _stopped)
    good = True
    try:
        for each in wanted:
            try:
                # Held for us: nobody else begins with it as long as this command lives.
                run = pipeline_runs.run_request(
                    **each, actor=actor, reason=options["reason"], due_at=clock.now() + pipeline_runs.LEASE
                )
            except WrongState as error:
                if job != ALL:
                    raise
                stdout.write(f"{each['job']:9} {error.detail}")
                good = False
                continue
            good &= work_on(run, stdout)
    except (KeyboardInterrupt, driver.Stopped):
        stdout.write("stopped")
        return 130
    finally:
        session.stop()
    return 0 if good else 1


def _request(job: str, options: dict[str, Any], *, extract: bool) -> dict[str, Any]:
    ranged = job in pipeline_runs.RANGED or options["job"] != ALL
    return {
        "job": job,
        "parameters": {"extract": extract} if job in pipeline_runs.REPORTS else {},
        "range_from": options["begin"] if ranged else None,
        "range_to": options["end"] if ranged else None,
        "scope": options["scope"] if options["job"] != ALL else "",
    }


def work_on(run: PipelineRun, stdout: OutputWrapper, perform: Callable[[driver.Context], None] | None = None) -> bool:
    """Works on a run that is held for us, as soon as no other is worked on; prints its progress.

    `perform`: does this instead of the run's job. True when it succeeded.
    """
    worker = f"{socket.gethostname()}:{os.getpid()}"
    said = ""
    begun = time.monotonic()

    def say(step: str, done: int, total: int) -> None:
        nonlocal said
        if step != said:
            stdout.write(f"{run.job:9} {step}")
            stdout.flush()
            said = step

    try:
        while (claimed := pipeline_runs.claim_run(run.pk, worker=worker)) is None and pipeline_runs.hold(run):
            say("Waiting for another run", 0, 0)
            time.sleep(_POLL)
    except (KeyboardInterrupt, driver.Stopped):
        pipeline_runs.withdraw(run)
        raise
    if claimed is not None:
        driver.execute(claimed, say, perform)
    run.refresh_from_db()
    seconds = time.monotonic() - begun
    if run.state == RunState.SUCCEEDED:
        rows = "" if run.rows is None else f", {run.rows:,} rows"
        stdout.write(f"{run.job:9} {run.get_state_display().lower()} in {seconds:.1f} s{rows}  {run.public_id}")
        return True
    why = run.error or "somebody asked for it"
    stdout.write(f"{run.job:9} {run.get_state_display().lower()}: {why}  {run.public_id}")
    return False


def _stopped(number: int, frame: FrameType | None) -> NoReturn:
    raise driver.Stopped


def instant(text: str) -> datetime:
    """A date, or an ISO 8601 time; UTC unless it says otherwise. Raises ArgumentTypeError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a date such as 2026-03-01, nor an ISO 8601 time") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)
