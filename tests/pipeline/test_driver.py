"""One run from claim to publication: results, lineage, files, and every way to end badly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import call_command
from django.db import connection

from messaging.exceptions import ApplicationError
from messaging.journal.audit import Actor
from messaging.models import AuditFinding, LakeState, PipelineRun, PublishedReport
from messaging.pipeline import driver
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.django_db(transaction=True)

ANN = Actor("ann", "console")
AS_OF = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def lake(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    settings.RMHUB_LAKE_DIR = tmp_path / "lake"
    monkeypatch.setattr(driver, "PULSE_SECONDS", 0.1)
    yield tmp_path / "lake"


def claimed(job: str = "audit", **values: Any) -> PipelineRun:
    values.setdefault("parameters", {"extract": False} if job == "audit" else {})
    run = pipeline_runs.run_request(job=job, actor=ANN, **values)
    found = pipeline_runs.claim_run(run.pk, worker="x")
    assert found is not None
    return found


def handled(monkeypatch: pytest.MonkeyPatch, handler: Callable[[driver.Context], None], job: str = "extract") -> None:
    """What does this job from now on."""
    module = type("module", (), {"run": staticmethod(handler)})
    monkeypatch.setitem(driver.HANDLERS, job, "stub:run")
    monkeypatch.setattr(driver.importlib, "import_module", lambda name: module)  # type: ignore[attr-defined]


def test_a_handler_ends_the_run_with_its_facts(monkeypatch: pytest.MonkeyPatch, lake: Path) -> None:
    def handler(context: driver.Context) -> None:
        context.progress("Reading", 1, 2)
        path = lake / "reports" / "log.csv"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"a,b\n")
        context.artifact("log.csv", path, 0)
        context.succeed(rows=0, data_as_of=AS_OF, files=3)

    handled(monkeypatch, handler)
    run = claimed("extract")
    said: list[str] = []
    assert driver.execute(run, lambda step, done, total: said.append(f"{step} {done}/{total}"))
    run.refresh_from_db()
    assert (run.state, run.rows, run.data_as_of, said) == ("succeeded", 0, AS_OF, ["Reading 1/2"])
    assert (run.facts["files"], run.facts["code"], list(run.facts["seconds"])) == (
        3,
        driver.code_version(),
        ["Reading"],
    )
    (artifact,) = run.artifacts
    assert (artifact["path"], artifact["bytes"], artifact["name"]) == ("reports/log.csv", 4, "log.csv")
    assert artifact["sha256"].startswith("5be08c9684a1d25e")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ApplicationError("The lake is empty."), "The lake is empty."),
        (ZeroDivisionError("division by zero"), "division by zero"),
        (None, "ended without a result"),
    ],
)
def test_a_run_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, error: Exception | None, expected: str) -> None:
    def handler(context: driver.Context) -> None:
        context.progress("Reading")
        if error:
            raise error

    handled(monkeypatch, handler)
    run = claimed("extract")
    assert not driver.execute(run)
    run.refresh_from_db()
    assert run.state == "failed" and expected in run.error
    assert "Traceback" in run.error_detail and "Reading" in run.facts["seconds"]
    assert run.step == "Starting" or run.step == "Reading", "where it was"


def test_a_handler_notices_that_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 0

    def handler(context: driver.Context) -> None:
        nonlocal rounds
        pipeline_runs.run_cancel(run_id=context.run.pk, actor=ANN)
        pause = threading.Event()
        while rounds < 1000:
            rounds += 1
            context.progress("Reading", rounds, 0)
            pause.wait(0.02)

    handled(monkeypatch, handler)
    run = claimed("extract")
    assert not driver.execute(run)
    run.refresh_from_db()
    assert run.state == "cancelled" and rounds < 500


@pytest.mark.parametrize(
    ("end", "cancelled", "state"),
    [(KeyboardInterrupt, False, "cancelled"), (driver.Stopped, False, "failed"), (driver.Stopped, True, "cancelled")],
    ids=["Ctrl-C", "stopped with the hub", "stopped because it was cancelled"],
)
def test_a_process_that_is_told_to_end_says_so(
    monkeypatch: pytest.MonkeyPatch, end: type[BaseException], cancelled: bool, state: str
) -> None:
    def handler(context: driver.Context) -> None:
        if cancelled:
            pipeline_runs.run_cancel(run_id=context.run.pk, actor=ANN)
        raise end

    handled(monkeypatch, handler)
    run = claimed("extract")
    with pytest.raises(end):
        driver.execute(run)
    run.refresh_from_db()
    assert run.state == state


def test_a_run_that_was_taken_away_publishes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "PULSE_SECONDS", 60.0)

    def perform(context: driver.Context) -> None:
        PipelineRun.objects.update(due_at=clock.now() - timedelta(seconds=1))
        pipeline_runs.fail_lost()
        names = {
            table.name: pa.table({field.name: [] for field in table.columns})
            for table in driver.REPORTS["audit"].tables
        }
        context.publish(names)

    run = claimed()
    assert not driver.execute(run, perform=perform)
    run.refresh_from_db()
    assert run.state == "failed" and "no sign of life" in run.error
    assert not PublishedReport.objects.exists()


def test_columns_that_are_not_the_reports_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = claimed()
    wrong = {"findings": pa.table({"kind": []}), "pairs": pa.table({"pair": []})}
    assert not driver.execute(run, perform=lambda context: context.publish(wrong) and None)
    run.refresh_from_db()
    assert "needed: kind, violation" in run.error


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(driver.JOBS, "audit", "tests.pipeline.stub_job")
    LakeState.objects.update_or_create(pk=1, defaults={"extracted_at": AS_OF, "extracted_through": 7})


@pytest.mark.spark
@pytest.mark.usefixtures("stub")
def test_a_job_becomes_a_report(spark: SparkSession, lake: Path) -> None:
    run = claimed()
    steps: list[str] = []
    assert driver.execute(run, lambda step, done, total: steps.append(step)), PipelineRun.objects.get().error
    run.refresh_from_db()
    assert (run.rows, run.data_as_of, run.facts["through_xid"]) == (3, AS_OF, 7)
    assert set(steps) == {"Reading the lake", "Computing findings", "Computing pairs", "Writing files", "Publishing"}
    assert set(run.facts["seconds"]) == set(steps)
    assert PublishedReport.objects.get().run_id == run.pk
    found = AuditFinding.objects.get(first_number=2)
    assert (found.kind, found.message_ids, found.at, found.partner) == ("gap", ["m2"], AS_OF, "")
    names = {artifact["name"]: artifact for artifact in run.artifacts}
    table = pq.read_table(lake / names["findings.parquet"]["path"])
    assert table.num_rows == 3 == names["findings.parquet"]["rows"]
    assert names["pairs.parquet"]["rows"] == 0


@pytest.mark.spark
@pytest.mark.usefixtures("stub")
def test_a_query_that_is_cancelled_ends_and_publishes_nothing(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.pipeline import stub_job

    monkeypatch.setattr(stub_job, "run", stub_job.slow)
    run = claimed()

    def cancel() -> None:
        while not PipelineRun.objects.filter(pk=run.pk, step="Computing findings", total__gt=0).exists():
            pause.wait(0.05)
        pipeline_runs.run_cancel(run_id=run.pk, actor=ANN)
        connection.close()

    pause = threading.Event()
    watcher = threading.Thread(target=cancel)
    watcher.start()
    assert not driver.execute(run)
    watcher.join()
    run.refresh_from_db()
    assert (run.state, run.error) == ("cancelled", "")
    assert run.finished_at is not None and run.total > 0
    assert not AuditFinding.objects.exists() and not PublishedReport.objects.exists()
    assert driver.tasks() == (0, 0), "Spark has stopped computing"


@pytest.mark.spark
@pytest.mark.usefixtures("stub")
def test_a_query_that_fails_is_told_in_a_sentence(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.pipeline import stub_job

    def broken(inputs: Any, parameters: Any) -> Any:
        from pyspark.sql import functions as F

        return {**stub_job.run(inputs, parameters), "findings": stub_job.findings(3).where(F.expr("1 / count = 1 / 0"))}

    monkeypatch.setattr(stub_job, "run", stub_job.run)
    monkeypatch.setattr(driver.importlib, "import_module", _instead(broken))  # type: ignore[attr-defined]
    run = claimed()
    assert not driver.execute(run)
    run.refresh_from_db()
    assert run.state == "failed" and "DIVIDE_BY_ZERO" in run.error and "\n" not in run.error
    assert "Traceback" in run.error_detail


def _instead(job: Callable[..., Any]) -> Callable[[str], Any]:
    import importlib

    real = importlib.import_module

    def chosen(name: str) -> Any:
        module = real(name)
        return type("job", (), {"INPUTS": module.INPUTS, "run": staticmethod(job)}) if "stub_job" in name else module

    return chosen


def test_bad_input_on_the_command_line_is_a_sentence_and_exit_code_2() -> None:
    for arguments in (["audit", "--from", "2026-03-02", "--to", "2026-03-01"], ["extract", "--from", "2026-03-01"]):
        with pytest.raises(Exception) as refused:
            call_command("pipeline", "run", *arguments, stdout=StringIO())
        assert getattr(refused.value, "returncode", None) == 2
    assert not PipelineRun.objects.exists()


def test_status_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    call_command("pipeline", "status", stdout=out)
    assert "nothing was extracted yet" in out.getvalue()
    run = claimed("extract")
    pipeline_runs.run_fail(run, "The disk is full.")
    LakeState.objects.update_or_create(pk=1, defaults={"extracted_at": AS_OF})
    call_command("pipeline", "status", stdout=out)
    assert "as of 2026-03-01 12:00:00 UTC" in out.getvalue() and "The disk is full." in out.getvalue()
