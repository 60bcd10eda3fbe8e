"""Works on one run: session, inputs, job, results, publication; and the handlers of what is not a report.

`execute` is called with a run that this process has claimed. Whatever happens, the run ends with a state. A thread, its
pulse, renews its lease, shows its progress, and stops Spark when it is cancelled.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import Error, connection

from messaging.exceptions import InvalidSubmission
from messaging.models import PipelineRun
from messaging.pipeline import manifest, session
from messaging.pipeline.schemas import ENTITIES
from messaging.report_choices import PipelineJob, RunState
from messaging.reports.catalogue import REPORTS, Table
from messaging.reports.services import publishing
from messaging.reports.services import runs as pipeline_runs
from messaging.reports.services.runs import REPORTS as REPORTS_OF_THE_LAKE
from rmhub.postgresql.base import give_back

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


log = logging.getLogger(__name__)

# Reports that are made of the lake alone: module with INPUTS, OUTPUTS, run.
JOBS = {job.value: f"messaging.pipeline.jobs.{job.value}" for job in REPORTS_OF_THE_LAKE}
# Everything else: run(context) -> None, which ends with context.publish or context.succeed.
HANDLERS: dict[str, str] = {
    PipelineJob.EXTRACT: "messaging.pipeline.extract:run",
    PipelineJob.COMPACT: "messaging.pipeline.parts:run_compaction",
    PipelineJob.ARCHIVE: "messaging.pipeline.archiving:run",
    PipelineJob.RESTORE: "messaging.pipeline.archiving:run_restore",
    PipelineJob.EXPORT: "messaging.pipeline.partner_logs:run_export",
    PipelineJob.RECONCILE: "messaging.pipeline.reconciling:run",
}
PULSE_SECONDS = 1.0
_ROWS_AT_ONCE = 10_000
STOPPED = "The pipeline's process was stopped in the middle of it."
Say = Callable[[str, int, int], None]


class Cancelled(Exception):
    """The run was cancelled, or is not ours any more: end at once."""


class Stopped(BaseException):
    """This process was told to end (SIGTERM)."""


class Context:
    """What a handler is given."""

    def __init__(self, run: PipelineRun, pulse: Pulse, say: Say = lambda step, done, total: None) -> None:
        assert run.claim is not None
        self.run = run
        self.claim: uuid.UUID = run.claim
        self.seconds: dict[str, float] = {}
        self.artifacts: list[dict[str, Any]] = []
        self.ended = False
        self._pulse = pulse
        self._say = say
        self._step = ("", time.monotonic())

    def progress(self, step: str, done: int = 0, total: int = 0) -> None:
        """Says what is being done, in a few words, and how much of it (0 = not known). Raises Cancelled."""
        if self._pulse.lost.is_set():
            raise Cancelled
        give_back()  # the pulse, or whoever reads the store, may need one
        before, since = self._step
        if step != before:
            self._count(before, since)
            self._step = (step, time.monotonic())
        self._pulse.show(step, done, total)
        self._say(step, done, total)

    def session(self) -> SparkSession:
        """The Spark session, started at the first call."""
        if session.current() is None:
            self.progress("Starting Spark")
        return session.get(f"rmhub {self.run.job}", rows=manifest.rows())

    def extract(self) -> None:
        """Brings the lake up to date."""
        self.progress("Bringing the lake up to date")
        extract = importlib.import_module("messaging.pipeline.extract")
        extract.extract(self.progress)

    def inputs(
        self, wanted: Mapping[str, Sequence[str]], begin: datetime | None, end: datetime | None
    ) -> tuple[dict[str, DataFrame], dict[str, Any]]:
        """What `lake_inputs` reads, in the run's session."""
        spark = self.session()
        self.progress("Reading the lake")
        return lake_inputs(spark, wanted, begin, end)

    def parameters(self, as_of: datetime | None) -> dict[str, Any]:
        """What every job is given, with the run's own parameters."""
        price = settings.RMHUB_STORAGE_PRICE_GB_MONTH
        try:
            known = float(price) if price else None
        except ValueError as error:
            raise InvalidSubmission({"RMHUB_STORAGE_PRICE_GB_MONTH": [f"{price!r} is not a number."]}) from error
        common = {"from": self.run.range_from, "to": self.run.range_to, "as_of": as_of, "price_gb_month": known}
        return {**self.run.parameters, **common}

    def publish(
        self,
        tables: Mapping[str, DataFrame | pa.Table],
        *,
        data_as_of: datetime | None = None,
        **facts: Any,
    ) -> int:
        """Computes the tables, writes them as Parquet files to download, publishes them, and ends the run.

        `tables`: every table of the run's report. Returns the number of rows. Raises Cancelled.
        """
        report = REPORTS[self.run.job]
        missing = {table.name for table in report.tables} - set(tables)
        if missing:
            raise InvalidSubmission({"tables": [f"The job gave no {', '.join(sorted(missing))}."]})
        computed: dict[str, pa.Table] = {}
        for table in report.tables:
            self.progress(f"Computing {table.title.lower()}")
            computed[table.name] = _arrow(table, tables[table.name])
        self.progress("Writing files")
        folder = publishing.folder_of(self.run)
        for table in report.tables:
            self.artifact(
                f"{table.name}.parquet",
                _write(computed[table.name], folder / f"{table.name}.parquet"),
                computed[table.name].num_rows,
            )
        self.progress("Publishing")
        rows = publishing.publish(
            self.run,
            {name: _rows(table) for name, table in computed.items()},
            data_as_of=data_as_of,
            facts=self._facts(facts),
            artifacts=self.artifacts,
        )
        self.ended = True
        return rows

    def succeed(self, *, rows: int | None = None, data_as_of: datetime | None = None, **facts: Any) -> None:
        """Ends the run well. Raises Cancelled when it was cancelled meanwhile."""
        pipeline_runs.run_succeed(
            self.run, rows=rows, data_as_of=data_as_of, facts=self._facts(facts), artifacts=self.artifacts
        )
        self.ended = True

    def artifact(self, name: str, path: Path, rows: int | None = None) -> None:
        """Enters a file of the lake's folder to be downloaded under this name."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        relative = path.resolve().relative_to(Path(settings.RMHUB_LAKE_DIR).resolve())
        self.artifacts.append(
            {
                "name": name,
                "path": str(relative),
                "rows": rows,
                "bytes": path.stat().st_size,
                "sha256": digest.hexdigest(),
            }
        )

    def facts_so_far(self) -> dict[str, Any]:
        """Lineage of a run that failed: how far it came."""
        return self._facts({})

    def _facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        step, since = self._step
        self._count(step, since)
        self._step = (step, time.monotonic())
        rounded = {name: round(seconds, 2) for name, seconds in self.seconds.items()}
        where = settings.SPARK_REMOTE or settings.SPARK_MASTER
        return {**facts, "code": code_version(), "spark": where, "seconds": rounded}

    def _count(self, step: str, since: float) -> None:
        if step:
            self.seconds[step] = self.seconds.get(step, 0.0) + time.monotonic() - since


def execute(
    run: PipelineRun,
    say: Say = lambda step, done, total: None,
    perform: Callable[[Context], None] | None = None,
) -> bool:
    """Does what the run says; True when it succeeded. Raises only what ends the process (Ctrl-C, Stopped)."""
    with Pulse(run) as pulse:
        context = Context(run, pulse, say)
        try:
            (perform or _perform)(context)
            if not context.ended:
                raise RuntimeError(f"{run.job} ended without a result")
        except KeyboardInterrupt:
            if not context.ended:
                pipeline_runs.run_cancelled(run)
            raise
        except Stopped:
            if not context.ended:
                pipeline_runs.run_fail(run, STOPPED, facts=context.facts_so_far())
            raise
        except Exception as error:
            if context.ended:
                return True  # it was published; what failed afterwards changes nothing
            if pulse.lost.is_set() or isinstance(error, Cancelled | pipeline_runs.ClaimLost):
                pipeline_runs.run_cancelled(run)
            else:
                pipeline_runs.run_fail(
                    run, session.error_sentence(error), session.error_detail(error), context.facts_so_far()
                )
            return False
    return PipelineRun.objects.filter(pk=run.pk, state=RunState.SUCCEEDED).exists()


@cache
def code_version() -> str:
    """Which code computed a result: a digest of the jobs and of the lake's schemas."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted([*here.glob("jobs/*.py"), here / "schemas.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _perform(context: Context) -> None:
    handler = HANDLERS.get(context.run.job)
    if handler is None:
        _report(context)
        return
    module, _, name = handler.partition(":")
    getattr(importlib.import_module(module), name)(context)


def _report(context: Context) -> None:
    if context.run.parameters.get("extract"):
        context.extract()
    spark = context.session()
    # After the session: constants of a job may be expressions, which need one.
    job = importlib.import_module(JOBS[context.run.job])
    inputs, facts = context.inputs(job.INPUTS, context.run.range_from, context.run.range_to)
    as_of = datetime.fromisoformat(facts["as_of"])
    try:
        context.publish(job.run(inputs, context.parameters(as_of)), data_as_of=as_of, **facts)
    finally:
        spark.catalog.clearCache()  # what a job kept is of no use to the next one in this session


def _arrow(table: Table, result: Any) -> pa.Table:
    """The result as Arrow, with the columns of the report's table. Raises InvalidSubmission for other ones."""
    names = [field.name for field in table.columns]
    is_arrow = hasattr(result, "column_names")
    found = list(result.column_names if is_arrow else result.columns)
    if found != names:
        given, needed = ", ".join(found), ", ".join(names)
        raise InvalidSubmission({table.name: [f"The job gave the columns {given}; needed: {needed}."]})
    return result if is_arrow else result.toArrow()


def _write(table: pa.Table, path: Path) -> Path:
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")
    return path


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class Pulse:
    """Beats every second until the block ends. `lost` is set when the run was cancelled, or is not ours any more."""

    def __init__(self, run: PipelineRun, seconds: float = PULSE_SECONDS) -> None:
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
                    continue
                finally:
                    with contextlib.suppress(Exception):
                        connection.close()
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


# --- Reads the lake as Spark DataFrames: explicit schemas, only the files that count, only the latest version of a
# row.
#
# What the files hold of a moment is decided once (`manifest.current`): a run reads the same lake however long it
# takes, whatever is extracted or compacted meanwhile.


def lake_inputs(
    session: SparkSession,
    wanted: Mapping[str, Sequence[str]],
    begin: datetime | None = None,
    end: datetime | None = None,
) -> tuple[dict[str, DataFrame], dict[str, Any]]:
    """The inputs of a job (entity -> columns), restricted to `begin` (inclusive) to `end` (exclusive); lists are whole.

    Also returns the lineage: generation, transactions, moment, and files, rows and bytes of each entity (rows of
    changing entities are versions). Raises LakeUnusable.
    """
    from messaging.pipeline.submitted import frame  # needs Spark

    contents = manifest.current()
    root = str(manifest.root().resolve())
    frames, read = {}, {}
    for name, columns in wanted.items():
        parts, read[name] = contents.parts(ENTITIES[name], begin, end)
        frames[name] = frame(session, ENTITIES[name], columns, parts, root, begin, end)
    return frames, {**contents.lineage, "entities": read}
