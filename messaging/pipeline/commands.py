"""The subcommands of `manage.py pipeline`: of each its arguments, and what it does; what that returns is the exit code.

Spark and Arrow are imported only by what needs them.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import threading
import time
import uuid
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from django.core.management.base import CommandError, CommandParser, OutputWrapper
from django.utils.dateparse import parse_date, parse_datetime

from messaging.choices import Interface
from messaging.exceptions import InvalidSubmission, WrongState
from messaging.journal.audit import Actor
from messaging.models import LakeState, PipelineRun
from messaging.pipeline import check, driver, java, session, submitting
from messaging.pipeline.runner import Runner
from messaging.report_choices import PipelineJob, RunState
from messaging.reports.catalogue import REPORTS
from messaging.reports.selectors import pipeline
from messaging.reports.services import partner_logs
from messaging.reports.services import runs as pipeline_runs
from messaging.reports.services.live_watch import Superseded
from partners.models import Agreement, Party
from rmhub import clock
from rmhub.ids import BadPublicId, read_public_id

if TYPE_CHECKING:
    import pyarrow as pa

ALL = "all"
NICE = 10
_POLL = 0.5  # seconds between two looks whether our run's turn has come
_SHOWN = 15  # runs
_EXIT_INTERRUPTED, _EXIT_TERMINATED = 130, 143
_FACTS = "_facts"  # as in messaging.pipeline.submitted, which needs PySpark


def instant(text: str) -> datetime:
    """A date, or an ISO 8601 time; UTC unless it says otherwise. Raises ArgumentTypeError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a date such as 2026-03-01, nor an ISO 8601 time") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _range(parser: CommandParser) -> None:
    parser.add_argument("--from", dest="begin", type=instant, help="begin of the range: a date or ISO 8601 time, UTC")
    parser.add_argument("--to", dest="end", type=instant, help="end of the range, exclusive")


def _actor() -> Actor:
    return Actor(f"command:{getpass.getuser()}", Interface.COMMAND)


def _worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _stopped(number: int, frame: FrameType | None) -> NoReturn:
    raise driver.Stopped


# --- run


def _run_arguments(parser: CommandParser) -> None:
    jobs = (ALL, *PipelineJob.values)
    parser.add_argument("job", choices=jobs, metavar="JOB", help=", ".join(jobs))
    _range(parser)
    parser.add_argument("--scope", default="", help="reconcile: the partner's log (plog_…)")
    parser.add_argument("--no-extract", action="store_true", help="a report: of the lake as it is")
    parser.add_argument("--reason", default="", help="for the audit log")


def run(options: dict[str, Any], stdout: OutputWrapper) -> int:
    """Runs jobs in the foreground, in one Spark session."""
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
                held = pipeline_runs.run_request(
                    **each, actor=_actor(), reason=options["reason"], due_at=clock.now() + pipeline_runs.LEASE
                )
            except WrongState as error:
                if job != ALL:
                    raise
                stdout.write(f"{each['job']:9} {error.detail}")
                good = False
                continue
            good &= work_on(held, stdout)
    except (KeyboardInterrupt, driver.Stopped):
        stdout.write("stopped")
        return _EXIT_INTERRUPTED
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
    said = ""
    begun = time.monotonic()

    def say(step: str, done: int, total: int) -> None:
        nonlocal said
        if step != said:
            stdout.write(f"{run.job:9} {step}")
            stdout.flush()
            said = step

    try:
        while (claimed := pipeline_runs.claim_run(run.pk, worker=_worker())) is None and pipeline_runs.hold(run):
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


# --- status, check, serve, execute


def _status_arguments(parser: CommandParser) -> None:
    parser.add_argument("--runs", type=int, default=_SHOWN, help="how many")


def status(options: dict[str, Any], stdout: OutputWrapper) -> int:
    """Prints how far the lake is, and the latest runs."""
    state = LakeState.objects.filter(pk=1).first()
    if state is None or state.extracted_at is None:
        stdout.write("lake      empty: nothing was extracted yet")
    else:
        stdout.write(f"lake      as of {state.extracted_at:%Y-%m-%d %H:%M:%S} UTC, generation {state.generation}")
    for run in PipelineRun.objects.order_by("-id")[: max(0, options["runs"])]:
        progress = f" {run.step} {run.done}/{run.total}" if run.state == "running" and run.total else f" {run.step}"
        what = run.error or progress.rstrip()
        stdout.write(f"{run.created_at:%m-%d %H:%M} {run.job:9} {run.state:9} {run.public_id} {what}".rstrip())
    return 0


def _check_arguments(parser: CommandParser) -> None:
    parser.add_argument("--start", action="store_true", help="also start a Spark session (some seconds)")


def say_what_is_missing(options: dict[str, Any], stdout: OutputWrapper) -> int:
    """Prints a sentence for each finding; 1 when something is missing."""
    good = True
    for finding in check.findings(start=options["start"]):
        stdout.write(f"{'ok     ' if finding.good else 'PROBLEM'} {finding.text}")
        stdout.flush()
        good &= finding.good
    return 0 if good else 1


def _serve_arguments(parser: CommandParser) -> None:
    parser.add_argument("--once", action="store_true", help="end when nothing is due any more")


def serve(options: dict[str, Any], stdout: OutputWrapper) -> int:
    """Works on the runs that are due, one at a time, until it is stopped."""

    def say(line: str) -> None:
        stdout.write(line)
        stdout.flush()

    return Runner(say).serve(once=options["once"])


def _execute_arguments(parser: CommandParser) -> None:
    parser.add_argument("run", type=uuid.UUID)
    parser.add_argument("--claim", type=uuid.UUID, required=True)


def execute(options: dict[str, Any], stdout: OutputWrapper) -> int:
    """What `serve` starts as a child: works on a run, and on what is due after it for as long as all goes well."""
    signal.signal(signal.SIGTERM, _stopped)
    # Live traffic goes first where both run on one machine; Spark's own process inherits it.
    os.nice(NICE)
    run = pipeline_runs.owned(options["run"], options["claim"])
    worker = run.facts["worker"]  # the process that follows us, and speaks for us when we die: we claim in its name
    try:
        while driver.execute(run):
            following = pipeline_runs.claim_next(worker=worker)
            if following is None:
                return 0
            run = following
        return 1
    except (KeyboardInterrupt, driver.Stopped):
        return _EXIT_TERMINATED
    finally:
        session.stop()


# --- package, manifest, publish


def _package_arguments(parser: CommandParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE.zip")


def package(options: dict[str, Any], stdout: OutputWrapper) -> int:
    """Writes the jobs for spark-submit."""
    application = submitting.write_package(options["file"])
    stdout.write(f"wrote {options['file']} and {application} (code {driver.code_version()}); run it by")
    stdout.write(f"spark-submit --py-files {options['file']} {application} JOB --manifest FILE.json --output DIRECTORY")
    return 0


def _manifest_arguments(parser: CommandParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE.json")
    _range(parser)


def manifest(options: dict[str, Any], stdout: OutputWrapper) -> int:
    """Writes which files of the lake a submitted job reads."""
    found = submitting.write_manifest(options["file"], options["begin"], options["end"])
    files = sum(entity["files"] for entity in found["entities"].values())
    stdout.write(f"wrote {options['file']}: {files} files below {found['lake']}, as of {found['as_of']}")
    return 0


def _publish_arguments(parser: CommandParser) -> None:
    parser.add_argument("job", choices=list(driver.JOBS), metavar="JOB", help=", ".join(driver.JOBS))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--reason", default="", help="for the audit log")


def publish(options: dict[str, Any], stdout: OutputWrapper) -> int:
    """Publishes what a submitted job has written."""
    directory: Path = options["directory"]
    facts = _facts(directory, options["job"])
    tables = {table.name: directory / table.name for table in REPORTS[options["job"]].tables}
    missing = [name for name, path in tables.items() if not path.is_dir()]
    if missing:
        raise InvalidSubmission({"directory": [f"{directory} has no {', '.join(missing)}: did the job end well?"]})
    run = pipeline_runs.run_request(
        job=options["job"],
        actor=_actor(),
        parameters={"extract": False},
        due_at=clock.now() + pipeline_runs.LEASE,
        range_from=instant(facts["from"]) if facts["from"] else None,
        range_to=instant(facts["to"]) if facts["to"] else None,
        reason=options["reason"],
    )

    def perform(context: driver.Context) -> None:
        context.progress("Reading the results")
        context.publish(
            {name: _table(path) for name, path in tables.items()},
            data_as_of=datetime.fromisoformat(facts["as_of"]),
            submitted=facts,
        )

    return 0 if work_on(run, stdout, perform) else 1


def _facts(directory: Path, job: str) -> dict[str, Any]:
    if not (directory / _FACTS / "_SUCCESS").exists():
        raise InvalidSubmission({"directory": [f"{directory} is not what a job has written to the end."]})
    found: dict[str, Any] = json.loads(_table(directory / _FACTS)["facts"][0].as_py())
    if found["job"] != job:
        raise InvalidSubmission({"directory": [f"{directory} is the output of {found['job']}, not of {job}."]})
    here = driver.code_version()
    if found["code"] != here:
        wrong = f"Its manifest is of other code ({found['code']}, here {here}): run it again."
        raise InvalidSubmission({"directory": [wrong]})
    return found


def _table(path: Path) -> pa.Table:
    import pyarrow.dataset as ds

    return ds.dataset(path, format="parquet").to_table()


# --- export-log


def _export_arguments(parser: CommandParser) -> None:
    parser.add_argument("partner", help="the partner's name or id (par_...)")
    parser.add_argument("--agreement", default="", metavar="TPAID", help="only under this agreement (TPAId or id)")
    parser.add_argument(
        "--from", dest="begin", default="", metavar="DATE", help="inclusive: 2026-01-31, or with a time"
    )
    parser.add_argument("--to", dest="end", default="", metavar="DATE", help="exclusive")
    parser.add_argument("--into", default="", metavar="FOLDER", help="where log.csv and log.parquet are written")


def export_log(options: dict[str, Any], stdout: OutputWrapper) -> int:
    """Writes our own log in the form in which partners send theirs, here and now, and says where the files are."""
    partner, agreement = options["partner"], options["agreement"]
    party_id = _named(Party, partner, "par", "name", f"party {partner}, by name or id")
    agreement_id = None
    if agreement:
        agreement_id = _named(Agreement, agreement, "agr", "tpa_id", f"agreement {agreement}, by TPAId or id")
    run = partner_logs.export_request(
        party_id=party_id,
        agreement_id=agreement_id,
        actor=_actor(),
        range_from=_day_or_time("--from", options["begin"]),
        range_to=_day_or_time("--to", options["end"]),
    )
    claimed = pipeline_runs.claim_run(run.pk, worker=_worker())
    if claimed is None:
        raise CommandError(f"Another run is in progress; {run.public_id} waits for `manage.py pipeline serve`.")
    stdout.write(f"{run.public_id}: our log of what was exchanged with {partner}")
    try:
        driver.execute(claimed)
    finally:
        session.stop()
    ended = PipelineRun.objects.get(pk=run.pk)
    if ended.state != RunState.SUCCEEDED:
        raise CommandError(ended.error or f"{run.public_id} was {ended.get_state_display().lower()}.")
    for artifact in ended.artifacts:
        path = pipeline.artifact(ended, artifact["name"])
        if options["into"]:
            into = Path(options["into"])
            into.mkdir(parents=True, exist_ok=True)
            path = Path(shutil.copy(path, into / artifact["name"]))
        stdout.write(f"{path}  {artifact['rows']:,} rows, sha256 {artifact['sha256']}")
    return 0


def _named(model: type[Party] | type[Agreement], text: str, prefix: str, by: str, what: str) -> uuid.UUID:
    """The key of what is meant by a public id, or else by the field `by`. Raises CommandError."""
    try:
        wanted: dict[str, Any] = {"pk": read_public_id(prefix, text)}
    except BadPublicId:
        wanted = {by: text}
    found = model.objects.filter(**wanted).values_list("pk", flat=True).first()
    if found is None:
        raise CommandError(f"There is no {what}.", returncode=2)
    return found


def _day_or_time(name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        day = parse_date(text)
        at = datetime(day.year, day.month, day.day, tzinfo=UTC) if day else parse_datetime(text)
    except ValueError:
        at = None
    if at is None:
        raise CommandError(f"{name} {text}: a day or a time, such as 2026-01-31 or 2026-01-31T12:00Z.", returncode=2)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


# --- live


def _live_arguments(parser: CommandParser) -> None:
    parser.add_argument("--once", action="store_true", help="count what there is, judge it, and end")


def live(options: dict[str, Any], stdout: OutputWrapper) -> int:
    """Counts what happens, and raises incidents for what is unusual, until SIGTERM or SIGINT; what it counted stays."""
    from messaging.pipeline.live import query

    stop = threading.Event()

    def listen() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())

    def begin() -> Any:
        made = query.small_session()
        listen()  # Spark puts its own handler in place of ours
        return made

    def say(line: str) -> None:
        stdout.write(line)

    listen()
    try:
        query.run(begin, once=options["once"], stop=stop, say=say)
    except (query.Busy, Superseded, java.NoJava, session.SparkMisconfigured) as error:
        raise CommandError(str(error)) from error
    except Exception as error:
        if not stop.is_set():
            raise CommandError(f"The live watch failed: {session.error_sentence(error)}") from error
    finally:
        query.end_session()
    say("The live watch has ended.")
    return 0


class Subcommand(NamedTuple):
    """What `manage.py pipeline` offers under one name; `does` begins the sentence that its help is."""

    does: str
    arguments: Callable[[CommandParser], None]
    handle: Callable[[dict[str, Any], OutputWrapper], int]


SUBCOMMANDS = {
    "run": Subcommand("run one job, or all that make reports, here and now", _run_arguments, run),
    "status": Subcommand("how far the lake is, and the latest runs", _status_arguments, status),
    "check": Subcommand("say what is missing, in a sentence each", _check_arguments, say_what_is_missing),
    "serve": Subcommand("work on the runs that console, API and schedule ask for", _serve_arguments, serve),
    "execute": Subcommand("work on one claimed run (a child of `serve`)", _execute_arguments, execute),
    "package": Subcommand("write the jobs as a package for spark-submit", _package_arguments, package),
    "manifest": Subcommand("write which files of the lake a submitted job reads", _manifest_arguments, manifest),
    "publish": Subcommand("publish what a submitted job has written", _publish_arguments, publish),
    "export-log": Subcommand("write our own log in the form that partners send theirs", _export_arguments, export_log),
    "live": Subcommand("watch the traffic of the last hour as it comes", _live_arguments, live),
}
