"""Publishing: all of a run's rows and the switch to them at once; nothing of a run that may not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from messaging.exceptions import InvalidSubmission
from messaging.journal.audit import Actor
from messaging.models import AuditFinding, AuditPair, PipelineRun, PublishedReport
from messaging.reports.catalogue import REPORTS
from messaging.reports.services import publishing
from messaging.reports.services import runs as pipeline_runs

pytestmark = pytest.mark.django_db

ANN = Actor("ann", "console")
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
PAIR = uuid.uuid4()


def claimed(job: str = "audit", scope: str = "") -> PipelineRun:
    run = pipeline_runs.run_request(job=job, actor=ANN, scope=scope)
    found = pipeline_runs.claim_run(run.pk, worker="x")
    assert found is not None
    return found


def row(table: str, **values: Any) -> list[Any]:
    """A row of the audit's table in the order of its columns; what is not given is empty."""
    return [values.get(field.name) for field in REPORTS["audit"].table(table).columns]


def finding(number: int, **values: Any) -> list[Any]:
    return row("findings", **{"kind": "gap", "violation": True, "first_number": number, "count": 1, **values})


def pair(**values: Any) -> list[Any]:
    known = {"pair_id": str(PAIR), "pair": "A > B", "direction": "in", "partner": "Brick Lane", "messages": 3}
    return row("pairs", **known, **values)


def test_rows_and_lineage_of_a_run() -> None:
    run = claimed()
    rows = publishing.publish(
        run,
        {
            "findings": [finding(7, message_ids=["a@x", "b\x00@x"], at=datetime(2026, 3, 1, 12), pair_id=str(PAIR))],
            "pairs": [pair(first_at=AT, first_number=1)],
        },
        data_as_of=AT,
        facts={"generation": 2},
        artifacts=[{"name": "findings.parquet"}],
    )
    assert rows == 2
    found = AuditFinding.objects.get()
    assert (found.run_id, found.message_ids, found.at, found.pair_id) == (run.pk, ["a@x", "b@x"], AT, PAIR)
    assert (found.pair, found.detail) == ("", ""), "an empty text is what the column holds by default"
    counted = AuditPair.objects.get()
    assert (counted.missing, counted.last_number, counted.first_at) == (0, None, AT)
    run.refresh_from_db()
    assert (run.state, run.rows, run.data_as_of, run.due_at) == ("succeeded", 2, AT, None)
    assert run.facts == {"worker": "x", "generation": 2}
    assert PublishedReport.objects.get().run_id == run.pk


@pytest.mark.parametrize(
    ("tables", "field"),
    [
        ({"findings": []}, "tables"),
        ({"findings": [], "pairs": [], "more": []}, "tables"),
        ({"findings": [[1, 2]], "pairs": []}, "findings"),
        ({"findings": [], "pairs": [pair(last_at=AT), row("pairs", pair="no id")]}, "pairs"),
        ({"findings": [], "pairs": [pair() for _ in range(3)] + [row("pairs", pair="x" * 121)]}, "pairs"),
    ],
    ids=["missing table", "unknown table", "columns", "empty", "too long"],
)
def test_rows_that_do_not_fit_publish_nothing(tables: dict[str, Any], field: str) -> None:
    run = claimed()
    with pytest.raises(InvalidSubmission) as refused:
        publishing.publish(run, tables)
    assert list(refused.value.errors) == [field]
    assert not AuditPair.objects.exists() and not PublishedReport.objects.exists()
    run.refresh_from_db()
    assert run.state == "running", "whoever works on it says that it failed"


@pytest.mark.parametrize("what", ["cancelled", "lease ended", "another's claim"])
def test_a_run_that_is_not_ours_publishes_nothing(what: str) -> None:
    run = claimed()
    if what == "cancelled":
        pipeline_runs.run_cancel(run_id=run.pk, actor=ANN)
    elif what == "lease ended":
        PipelineRun.objects.update(due_at=AT)
        pipeline_runs.fail_lost()
    else:
        PipelineRun.objects.update(claim=uuid.uuid4())
    with pytest.raises(pipeline_runs.ClaimLost):
        publishing.publish(run, {"findings": [finding(1)], "pairs": []})
    assert not AuditFinding.objects.exists() and not PublishedReport.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_readers_see_the_run_before_or_this_one_and_never_half() -> None:
    old = claimed()
    publishing.publish(old, {"findings": [finding(1)], "pairs": [pair()]})
    new = claimed()
    sql = (
        "SELECT p.run_id, (SELECT count(*) FROM messaging_auditfinding f WHERE f.run_id = p.run_id),"
        " (SELECT count(*) FROM messaging_auditpair a WHERE a.run_id = p.run_id),"
        " (SELECT state FROM messaging_pipelinerun r WHERE r.id = p.run_id)"
        " FROM messaging_publishedreport p"
    )
    parameters = connection.get_connection_params()
    address = {name: parameters[name] for name in ("host", "port", "dbname", "user", "password") if name in parameters}
    seen: list[Any] = []
    with psycopg.connect(**address, autocommit=True) as reader:

        def rows() -> Iterator[list[Any]]:
            for number in range(3000):
                if number % 1000 == 500:
                    seen.append(reader.execute(sql).fetchone())
                yield finding(number)

        publishing.publish(new, {"findings": rows(), "pairs": [pair(), pair()]})
        after = reader.execute(sql).fetchone()
    assert seen == [(old.pk, 1, 1, "succeeded")] * 3
    assert after == (new.pk, 3000, 2, "succeeded")


@pytest.mark.django_db(transaction=True)
def test_a_process_that_dies_while_it_publishes_leaves_nothing() -> None:
    run = claimed()

    def rows() -> Iterator[list[Any]]:
        yield from (finding(number) for number in range(2000))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publishing.publish(run, {"findings": rows(), "pairs": []})
    assert not AuditFinding.objects.exists()
    publishing.publish(run, {"findings": [finding(1)], "pairs": []})
    assert AuditFinding.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_ten_runs_are_kept_with_rows_and_files(settings: Any, tmp_path: Path) -> None:
    settings.RMHUB_LAKE_DIR = tmp_path
    runs = []
    for _ in range(12):
        run = claimed()
        folder = publishing.folder_of(run)
        folder.mkdir(parents=True)
        (folder / "findings.parquet").write_bytes(b"x")
        publishing.publish(run, {"findings": [finding(1)], "pairs": []}, artifacts=[{"name": "findings.parquet"}])
        runs.append(run)
    kept = set(AuditFinding.objects.values_list("run_id", flat=True))
    assert kept == {run.pk for run in runs[2:]}
    assert [publishing.folder_of(run).exists() for run in runs] == [False] * 2 + [True] * 10
    assert [bool(run.artifacts) for run in PipelineRun.objects.order_by("id")] == [False] * 2 + [True] * 10
    assert PipelineRun.objects.count() == 12, "the runs themselves are history"


def test_results_of_different_scopes_stand_beside_each_other() -> None:
    summary = ["in", "agreed", 5]
    for scope in ("plog_1", "plog_2", "plog_1"):
        publishing.publish(claimed("reconcile", scope), {"summary": [summary], "findings": []})
    assert PublishedReport.objects.filter(job="reconcile").count() == 2
    latest = PipelineRun.objects.filter(scope="plog_1").order_by("-id").first()
    assert latest is not None
    assert PublishedReport.objects.get(scope="plog_1").run_id == latest.pk
