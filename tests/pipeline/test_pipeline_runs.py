"""Runs of the pipeline: asked for, claimed by one process, cancelled, lost, and queued by the schedule."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from messaging import tasks
from messaging.exceptions import InvalidSubmission, NotFound, WrongState
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, Event, PipelineRun, RetentionPolicy
from messaging.reports.services import runs as pipeline_runs
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.env import env_hour

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANN = Actor("ann", "console", "192.0.2.9", "req-1")


@pytest.fixture(autouse=True)
def time() -> Iterator[FrozenClock]:
    with clock.frozen(NOON) as frozen:
        yield frozen


def request(job: str = "audit", **values: Any) -> PipelineRun:
    return pipeline_runs.run_request(job=job, actor=ANN, **values)


def claimed(job: str = "audit", **values: Any) -> PipelineRun:
    run = request(job, **values)
    found = pipeline_runs.claim_run(run.pk, worker="here:1")
    assert found is not None
    return found


def state(run: PipelineRun) -> str:
    run.refresh_from_db()
    return run.state


def test_a_run_is_queued_with_who_asked_and_an_audit_entry() -> None:
    run = request(range_from=NOON - timedelta(days=1), range_to=NOON, reason="quarterly audit")
    assert (run.state, run.due_at, run.requested_by, run.interface) == ("queued", NOON, "ann", "console")
    assert run.parameters == {"extract": True}
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.object_id, entry.reason) == ("pipeline.run", run.public_id, "quarterly audit")
    assert entry.after["from"] == "2026-02-28T12:00:00+00:00"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"job": "nonsense"}, "job"),
        ({"job": "extract", "range_from": NOON}, "from"),
        ({"job": "audit", "range_from": datetime(2026, 3, 1)}, "from"),
        ({"job": "audit", "range_from": NOON, "range_to": NOON}, "to"),
        ({"job": "audit", "parameters": {"colour": "red"}}, "parameters"),
        ({"job": "audit", "parameters": {"extract": "yes"}}, "parameters"),
        ({"job": "extract", "parameters": {"extract": True}}, "parameters"),
        ({"job": "export", "parameters": {"at": NOON}}, "parameters"),
        ({"job": "reconcile"}, "scope"),
        ({"job": "reconcile", "scope": "x" * 81}, "scope"),
    ],
)
def test_bad_requests_name_the_field(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSubmission) as refused:
        request(**values)
    assert list(refused.value.errors) == [field]
    assert not PipelineRun.objects.exists()


def test_the_same_job_is_not_asked_for_twice_but_other_scopes_are_other_runs() -> None:
    first = request("reconcile", scope="plog_1")
    request("reconcile", scope="plog_2")
    with pytest.raises(WrongState, match=first.public_id):
        request("reconcile", scope="plog_1")
    pipeline_runs.run_cancel(run_id=first.pk, actor=ANN)
    request("reconcile", scope="plog_1")


def test_all_is_the_extract_and_then_every_report_of_the_lake_as_it_left_it() -> None:
    runs = pipeline_runs.run_all_request(actor=ANN, range_from=NOON - timedelta(days=7))
    assert [run.job for run in runs] == ["extract", "audit", "levels", "sla", "window", "timing"]
    assert [run.range_from is None for run in runs] == [True, False, False, False, False, False]
    assert all(run.parameters == {"extract": False} for run in runs[1:])
    order = []
    while (run := pipeline_runs.claim_next(worker="here:1")) is not None:
        order.append(run.job)
        pipeline_runs.run_succeed(run)
    assert order == [run.job for run in runs]
    assert [run.job for run in pipeline_runs.run_all_request(actor=ANN, archive=True)][-1] == "archive"
    with pytest.raises(WrongState):
        pipeline_runs.run_all_request(actor=ANN)


def test_one_run_is_worked_on_at_a_time_and_none_before_it_is_due(time: FrozenClock) -> None:
    late = request("levels", due_at=NOON + timedelta(minutes=5))
    soon = request("audit")
    first = pipeline_runs.claim_next(worker="here:1")
    assert first is not None and first.pk == soon.pk and first.claim is not None
    assert (first.state, first.facts["worker"], first.started_at) == ("running", "here:1", NOON)
    time.move(30)
    assert pipeline_runs.heartbeat(first, "Counting", 1, 2)
    assert pipeline_runs.claim_run(late.pk, worker="here:2") is None, "another run is being worked on"
    pipeline_runs.run_succeed(first)
    assert pipeline_runs.claim_next(worker="here:2") is None
    time.move(300)
    second = pipeline_runs.claim_next(worker="here:2")
    assert second is not None and second.pk == late.pk


@pytest.mark.django_db(transaction=True)
def test_many_processes_at_once_claim_one_run() -> None:
    for job in ("audit", "levels", "window"):
        request(job)
    found: list[PipelineRun | None] = []
    barrier = threading.Barrier(4)

    def claim() -> None:
        barrier.wait()
        found.append(pipeline_runs.claim_next(worker="x"))
        connection.close()

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(run is not None for run in found) == 1
    assert PipelineRun.objects.filter(state="running").count() == 1


def test_a_heartbeat_shows_progress_and_renews_the_lease(time: FrozenClock) -> None:
    run = claimed()
    time.move(50)
    assert pipeline_runs.heartbeat(run, "Computing findings", 3, 8)
    run.refresh_from_db()
    assert (run.step, run.done, run.total) == ("Computing findings", 3, 8)
    time.move(50)
    assert pipeline_runs.fail_lost() == 0
    time.move(11)
    assert pipeline_runs.fail_lost() == 1
    assert state(run) == "failed"
    assert "no sign of life" in run.error
    assert not pipeline_runs.heartbeat(run, "Computing findings"), "it is not ours any more"
    with pytest.raises(pipeline_runs.ClaimLost):
        pipeline_runs.run_succeed(run)
    assert not pipeline_runs.run_fail(run, "another story")
    assert not pipeline_runs.run_cancelled(run)
    assert "no sign of life" in PipelineRun.objects.get().error


def test_a_claim_is_worth_nothing_once_somebody_else_has_the_run() -> None:
    run = claimed()
    stale = PipelineRun.objects.get(pk=run.pk)
    PipelineRun.objects.filter(pk=run.pk).update(claim=uuid.uuid4())
    assert not pipeline_runs.heartbeat(stale, "Counting")
    with pytest.raises(pipeline_runs.ClaimLost):
        pipeline_runs.run_succeed(stale)
    with pytest.raises(pipeline_runs.ClaimLost):
        pipeline_runs.owned(run.pk, stale.claim or uuid.uuid4())
    assert state(run) == "running"


def test_cancel_ends_a_waiting_run_and_tells_a_running_one() -> None:
    waiting = request("levels")
    running = claimed("audit")
    assert pipeline_runs.run_cancel(run_id=waiting.pk, actor=ANN).state == "cancelled"
    pipeline_runs.run_cancel(run_id=running.pk, actor=ANN, reason="wrong range")
    assert not pipeline_runs.heartbeat(running, "Counting")
    with pytest.raises(pipeline_runs.ClaimLost, match="cancelled"):
        pipeline_runs.run_succeed(running)
    assert pipeline_runs.run_fail(running, "a query that was cancelled raises")
    assert (state(running), running.error) == ("cancelled", "")
    with pytest.raises(WrongState):
        pipeline_runs.run_cancel(run_id=running.pk, actor=ANN)
    with pytest.raises(NotFound):
        pipeline_runs.run_cancel(run_id=uuid.uuid4(), actor=ANN)
    assert AuditEntry.objects.filter(verb="pipeline.cancel").count() == 2


def test_a_cancelled_run_whose_process_died_is_cancelled(time: FrozenClock) -> None:
    run = claimed()
    pipeline_runs.run_cancel(run_id=run.pk, actor=ANN)
    time.move(61)
    pipeline_runs.fail_lost()
    assert state(run) == "cancelled"


def test_a_failed_run_has_a_sentence_and_the_detail() -> None:
    run = claimed()
    assert pipeline_runs.run_fail(run, "The disk is full.", "x" * 30_000 + "\x00end", {"seconds": {"Reading": 1.5}})
    assert (state(run), run.error, run.finished_at) == ("failed", "The disk is full.", NOON)
    assert run.error_detail.endswith("xend") and len(run.error_detail) < 20_001
    assert run.facts["seconds"] == {"Reading": 1.5} and run.facts["worker"] == "here:1"


def happened(at: datetime) -> None:
    Event.objects.create(at=at, type="message.submitted")


def test_the_schedule_queues_all_jobs_once_a_day(
    settings: Any, time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "give_back", lambda: None)  # the test's transaction is in one
    assert settings.CELERY_BEAT_SCHEDULE["pipeline_due"]["task"] == tasks.pipeline_due.name
    settings.RMHUB_PIPELINE_DAILY_AT = "12:30"
    assert pipeline_runs.schedule_due() == []
    time.move(1800)
    assert pipeline_runs.schedule_due() == [], "nothing has happened yet that could be reported"
    happened(NOON)
    assert [run.job for run in pipeline_runs.schedule_due()] == [
        "extract",
        "audit",
        "levels",
        "sla",
        "window",
        "timing",
    ]
    assert {run.interface for run in PipelineRun.objects.all()} == {"system"}
    assert not AuditEntry.objects.exists(), "nobody has asked for it"
    assert pipeline_runs.schedule_due() == []
    while (run := pipeline_runs.claim_next(worker="x")) is not None:
        pipeline_runs.run_succeed(run)
    time.move(6 * 3600)
    assert pipeline_runs.schedule_due() == [], "today's are done"
    RetentionPolicy.objects.update_or_create(pk=1, defaults={"enabled": True})
    time.move(24 * 3600)
    assert tasks.pipeline_due() == "queued 7"
    assert PipelineRun.objects.order_by("id").last().job == "archive"  # type: ignore[union-attr]


def test_a_day_is_not_reported_twice_because_a_run_of_it_was_cancelled(settings: Any, time: FrozenClock) -> None:
    settings.RMHUB_PIPELINE_DAILY_AT = "03:15"
    happened(NOON - timedelta(days=1))
    for run in pipeline_runs.schedule_due():
        pipeline_runs.run_cancel(run_id=run.pk, actor=ANN)
    assert pipeline_runs.schedule_due() == []


@pytest.mark.django_db(transaction=True)
def test_two_schedulers_at_the_same_moment_queue_a_day_once(settings: Any) -> None:
    settings.RMHUB_PIPELINE_DAILY_AT = "03:15"
    happened(NOON - timedelta(days=1))
    barrier = threading.Barrier(3)

    def schedule() -> None:
        barrier.wait()
        pipeline_runs.schedule_due()
        connection.close()

    threads = [threading.Thread(target=schedule) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert PipelineRun.objects.count() == 6


def test_extracts_in_between(settings: Any, time: FrozenClock) -> None:
    settings.RMHUB_PIPELINE_DAILY_AT, settings.RMHUB_EXTRACT_MINUTES = "", 15
    assert [run.job for run in pipeline_runs.schedule_due()] == ["extract"]
    time.move(1000)
    assert pipeline_runs.schedule_due() == [], "the last one is still waiting"
    run = pipeline_runs.claim_next(worker="x")
    assert run is not None
    pipeline_runs.run_succeed(run)
    assert [run.job for run in pipeline_runs.schedule_due()] == ["extract"]
    settings.RMHUB_EXTRACT_MINUTES = 0
    PipelineRun.objects.all().delete()
    assert pipeline_runs.schedule_due() == []


def test_a_scheduled_run_whose_process_died_goes_again_once(settings: Any, time: FrozenClock) -> None:
    settings.RMHUB_PIPELINE_DAILY_AT, settings.RMHUB_EXTRACT_MINUTES = "", 15
    (first,) = pipeline_runs.schedule_due()
    for expected in (2, 2):
        assert pipeline_runs.claim_next(worker="x") is not None
        time.move(61)
        pipeline_runs.fail_lost()
        assert PipelineRun.objects.count() == expected
    again = PipelineRun.objects.exclude(pk=first.pk).get()
    assert again.parameters["again_after"] == first.public_id
    asked = claimed()
    time.move(61)
    pipeline_runs.fail_lost()
    assert state(asked) == "failed"
    assert PipelineRun.objects.filter(state="queued").count() == 0, "people decide on what they asked for"


def test_a_held_run_is_not_taken_by_others_as_long_as_it_is_held(time: FrozenClock) -> None:
    run = request(due_at=clock.now() + pipeline_runs.LEASE)
    for _ in range(3):
        time.move(50)
        assert pipeline_runs.claim_next(worker="the service") is None
        assert pipeline_runs.hold(run)
    assert pipeline_runs.withdraw(run)
    assert state(run) == "cancelled"
    assert not pipeline_runs.hold(run) and not pipeline_runs.withdraw(run)


def test_the_hour_of_the_daily_runs_is_checked_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMHUB_PIPELINE_DAILY_AT", "quarter past three")
    with pytest.raises(ImproperlyConfigured, match="03:15"):
        env_hour("RMHUB_PIPELINE_DAILY_AT")
    monkeypatch.setenv("RMHUB_PIPELINE_DAILY_AT", "")
    assert env_hour("RMHUB_PIPELINE_DAILY_AT", "03:15") == ""
