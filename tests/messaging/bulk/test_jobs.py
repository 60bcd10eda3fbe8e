"""Bulk jobs: planned over one evidence group, done one by one, cancelled, and safe when a worker dies."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection

from messaging import dispatch, tasks
from messaging.bulk import selectors as reading
from messaging.bulk.services import jobs, plans
from messaging.deliveries.services import settling, triggering
from messaging.engine import subscriptions
from messaging.engine.claiming import claim_due
from messaging.engine.looking import look
from messaging.exceptions import InvalidSubmission, NotFound, Stale, WrongState
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, BulkJob, BulkJobItem, Delivery, Message, Trigger
from messaging.profiles.repeatable import replies
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.ids import uuid7
from tests.messaging.deliveries.stage import arrive, make_trigger
from tests.messaging.factories import LOST, PartnerSide, link, partner_side, submit
from tests.messaging.factories import work as send

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANN = Actor("ann", "console", "192.0.2.9", "req-1")
WHY = "the ERP has none of them"
NOBODY = uuid.UUID(int=7)  # of nothing that is stored


@pytest.fixture(autouse=True)
def time() -> Iterator[FrozenClock]:
    with clock.frozen(NOON) as frozen:
        yield frozen


@pytest.fixture
def partner() -> PartnerSide:
    return partner_side()


def doubtful(partner: PartnerSide, count: int, doubt: str = "started_not_completed", **values: Any) -> Trigger:
    """A pull queue with so many documents in doubt."""
    trigger = make_trigger(kind="pull", **values)
    first = Delivery.objects.count()
    arrive(partner, *(f"{trigger.name}.{first + number}@x".replace(" ", "") for number in range(count)))
    Delivery.objects.filter(trigger=trigger, state="waiting").update(state="in_doubt", doubt=doubt, due_at=None)
    return trigger


def create(
    trigger: Trigger, decision: str = "duplicate", doubt: str = "started_not_completed", **values: Any
) -> BulkJob:
    settings: dict[str, Any] = {
        "action": "settle_deliveries",
        "parameters": {"decision": decision},
        "filter": {"trigger": trigger.public_id, "doubt": doubt},
        "actor": ANN,
        "reason": WHY,
    }
    return jobs.job_create(**{**settings, **values})


def fresh(job: BulkJob) -> BulkJob:
    return BulkJob.objects.get(pk=job.pk)


def states(trigger: Trigger) -> dict[str, int]:
    found: dict[str, int] = {}
    for state in Delivery.objects.filter(trigger=trigger).values_list("state", flat=True):
        found[state] = found.get(state, 0) + 1
    return found


# --- the plan ---


def test_a_job_is_planned_and_audited_before_anything_is_done(partner: PartnerSide, woken: list[str]) -> None:
    trigger = doubtful(partner, 3)
    job = create(trigger, expected=3)
    assert (job.state, job.total, job.done, job.actor, job.reason) == ("queued", 3, 0, "ann", WHY)
    assert states(trigger) == {"in_doubt": 3}
    entry = AuditEntry.objects.get(verb="job.create")
    assert (entry.object_id, entry.reason, entry.after["total"]) == (job.public_id, WHY, 3)
    assert entry.after["decision"] == "duplicate"


def test_a_job_takes_what_is_there_now_and_nothing_that_comes_later(partner: PartnerSide) -> None:
    trigger = doubtful(partner, 2)
    job = create(trigger)
    arrive(partner, "late@x")
    Delivery.objects.filter(trigger=trigger, state="waiting").update(state="in_doubt", doubt="started_not_completed")
    assert jobs.run_due() == 2
    assert fresh(job).state == "finished"
    assert states(trigger) == {"settled": 2, "in_doubt": 1}


def test_a_job_is_of_one_evidence_group(partner: PartnerSide) -> None:
    one = doubtful(partner, 2)
    triggering.trigger_disable(trigger_id=one.pk, actor=ANN, reason="only the other one")
    subscriptions.current.forget()
    other = doubtful(partner, 2, doubt="unusable_id")
    everything = list(Delivery.objects.values_list("pk", flat=True))
    with pytest.raises(InvalidSubmission, match="evidence group"):
        create(one, filter=None, ids=everything)
    for chosen in (
        {},
        {"trigger": one.public_id},
        {"doubt": "unusable_id"},
        {"trigger": "x", "doubt": "y"},
        {"pair": "x"},
    ):
        with pytest.raises(InvalidSubmission) as caught:
            create(one, filter=chosen)
        assert list(caught.value.errors) == ["filter"], chosen
    mine = list(Delivery.objects.filter(trigger=other).values_list("pk", flat=True))
    assert create(other, filter=None, ids=mine).total == 2
    assert not BulkJob.objects.exclude(total=2).exists()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"action": "delete_everything"}, "action"),
        ({"parameters": {}}, "decision"),
        ({"parameters": {"decision": "delivered"}}, "decision"),
        ({"parameters": {"decision": "later"}}, "remind_in"),
        ({"parameters": {"decision": "later", "remind_in": True}}, "remind_in"),
        ({"parameters": {"decision": "duplicate", "remind_in": 3600}}, "remind_in"),
        ({"parameters": {"decision": "duplicate", "force": 1}}, "force"),
        ({"reason": " "}, "reason"),
        ({"ids": [NOBODY]}, "filter"),
        ({"filter": None, "ids": [NOBODY]}, "ids"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_field(partner: PartnerSide, values: dict[str, Any], field: str) -> None:
    trigger = doubtful(partner, 1)
    with pytest.raises(InvalidSubmission) as caught:
        create(trigger, **values)
    assert list(caught.value.errors) == [field]
    assert not BulkJob.objects.exists()


def test_a_plan_that_is_out_of_date_is_not_carried_out(partner: PartnerSide) -> None:
    trigger = doubtful(partner, 3)
    with pytest.raises(Stale) as caught:
        create(trigger, expected=2)
    assert caught.value.version == 3
    jobs_before = BulkJob.objects.count()
    Delivery.objects.filter(trigger=trigger).update(state="settled")
    with pytest.raises(InvalidSubmission, match="Nothing matches"):
        create(trigger)
    assert BulkJob.objects.count() == jobs_before == 0
    assert not BulkJobItem.objects.exists()


# --- doing it ---


def test_a_worker_is_woken_after_the_commit_and_swept_each_second(
    partner: PartnerSide,
    woken: list[str],
    django_capture_on_commit_callbacks: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "give_back", lambda: None)  # it would close the test's own
    trigger = doubtful(partner, 1)
    with django_capture_on_commit_callbacks(execute=True):
        job = create(trigger)
        assert dispatch.JOBS not in woken
    assert dispatch.JOBS in woken
    assert dispatch.JOBS in look(0)
    assert tasks.jobs_due.name == dispatch.JOBS
    assert tasks.jobs_due() == "done 1"
    assert fresh(job).state == "finished"


def test_each_is_done_through_the_service_that_does_one(partner: PartnerSide) -> None:
    trigger = doubtful(partner, 5)
    job = create(trigger, "resubmit")
    assert jobs.run_due(chunk=2) == 5
    done = fresh(job)
    assert (done.state, done.done, done.refused, done.due_at) == ("finished", 5, 0, None)
    assert done.finished_at == NOON
    assert states(trigger) == {"settled": 5, "waiting": 5}
    entries = AuditEntry.objects.filter(verb="delivery.resubmit")
    assert entries.count() == 5
    assert {(one.actor, one.interface, one.reason, one.request_id) for one in entries} == {
        ("ann", "console", WHY, job.public_id)
    }


def test_what_cannot_be_done_is_refused_with_the_reason_and_the_rest_is_done(partner: PartnerSide) -> None:
    trigger = doubtful(partner, 3)
    job = create(trigger)
    one = Delivery.objects.filter(trigger=trigger).earliest("id")
    settling.delivery_settle(delivery_id=one.pk, decision="resubmit", actor=Actor("bob"), reason="I was faster")
    jobs.run_due()
    done = fresh(job)
    assert (done.state, done.done, done.refused) == ("finished", 2, 1)
    refused = reading.refused(job.pk).get()
    assert refused.object_id == one.pk
    assert "resubmitted by bob" in refused.detail


def test_the_hub_s_own_failure_on_one_does_not_hold_up_the_others(
    partner: PartnerSide, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trigger = doubtful(partner, 3)
    job = create(trigger)
    poison = Delivery.objects.filter(trigger=trigger).earliest("id").pk
    real = settling.delivery_settle

    def settle(*, delivery_id: Any, **values: Any) -> Delivery:
        if delivery_id == poison:
            raise IntegrityError("constraint")
        return real(delivery_id=delivery_id, **values)

    monkeypatch.setattr(settling, "delivery_settle", settle)
    jobs.run_due()
    assert (fresh(job).state, fresh(job).done, fresh(job).refused) == ("finished", 2, 1)
    assert any(getattr(record, "action", "") == "job_item_failed" for record in caplog.records)


def test_trouble_of_the_database_leaves_the_item_for_later(
    partner: PartnerSide, time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = doubtful(partner, 2)
    job = create(trigger)

    def settle(**values: Any) -> Delivery:
        raise OperationalError("deadlock detected")

    with monkeypatch.context() as patch:
        patch.setattr(settling, "delivery_settle", settle)
        jobs.run_due()
    assert (fresh(job).state, fresh(job).done, fresh(job).refused) == ("running", 0, 0)
    time.move(5)
    jobs.run_due()
    assert (fresh(job).state, fresh(job).done) == ("finished", 2)


def test_a_worker_that_dies_leaves_the_rest_to_another_and_nothing_is_done_twice(
    partner: PartnerSide, time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = doubtful(partner, 4)
    job = create(trigger, "resubmit")
    real = settling.delivery_settle
    calls = 0

    class Killed(BaseException):
        pass

    def settle(**values: Any) -> Delivery:
        nonlocal calls
        calls += 1
        found = real(**values)
        if calls == 3:  # the decision is written, and not committed
            raise Killed
        return found

    with monkeypatch.context() as patch:
        patch.setattr(settling, "delivery_settle", settle)
        with pytest.raises(Killed):
            jobs.run_due()
    assert (fresh(job).state, fresh(job).done) == ("running", 2)
    assert jobs.run_due() == 0, "its lease is not over"
    time.move(61)
    assert jobs.run_due() == 2
    assert (fresh(job).state, fresh(job).done, fresh(job).refused) == ("finished", 4, 0)
    assert states(trigger) == {"settled": 4, "waiting": 4}


def test_jobs_take_turns(partner: PartnerSide, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = doubtful(partner, 4)
    keys = list(Delivery.objects.filter(trigger=trigger).order_by("id").values_list("pk", flat=True))
    first = create(trigger, filter=None, ids=keys[:2])
    second = create(trigger, filter=None, ids=keys[2:])
    order: list[Any] = []
    real = jobs._run_chunk

    def run(job: BulkJob, chunk: int) -> int:
        order.append(job.pk)
        with_time.move(0.001)
        return real(job, chunk)

    with clock.frozen(NOON) as with_time:
        monkeypatch.setattr(jobs, "_run_chunk", run)
        jobs.run_due(chunk=1)
    assert order == [first.pk, second.pk, first.pk, second.pk]


# --- cancelling ---


def test_a_job_that_is_cancelled_in_the_middle_does_nothing_more(
    partner: PartnerSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = doubtful(partner, 4)
    job = create(trigger)
    real = jobs._run_item
    calls = 0

    def run(one: BulkJob, key: int) -> None:
        nonlocal calls
        real(one, key)
        calls += 1
        if calls == 2:
            jobs.job_cancel(job_id=job.pk, actor=Actor("bob"), reason="stop it")

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "_run_item", run)
        jobs.run_due()
    assert (fresh(job).state, fresh(job).done) == ("cancelled", 2)
    assert states(trigger) == {"settled": 2, "in_doubt": 2}
    assert sorted(BulkJobItem.objects.values_list("state", flat=True)) == ["cancelled", "cancelled", "done", "done"]
    assert jobs.run_due() == 0


def test_cancelling_says_who_and_why(partner: PartnerSide) -> None:
    trigger = doubtful(partner, 2)
    job = create(trigger)
    with pytest.raises(InvalidSubmission, match="reason"):
        jobs.job_cancel(job_id=job.pk, actor=ANN, reason="")
    ended = jobs.job_cancel(job_id=job.pk, actor=ANN, reason="wrong group")
    assert (ended.state, ended.due_at, ended.finished_at) == ("cancelled", None, NOON)
    assert set(BulkJobItem.objects.values_list("state", flat=True)) == {"cancelled"}
    assert jobs.run_due() == 0
    assert states(trigger) == {"in_doubt": 2}
    assert AuditEntry.objects.get(verb="job.cancel").reason == "wrong group"
    with pytest.raises(WrongState):
        jobs.job_cancel(job_id=job.pk, actor=ANN, reason="again")
    with pytest.raises(NotFound):
        jobs.job_cancel(job_id=uuid7(), actor=ANN, reason="wrong group")


# --- the other actions ---


def test_what_failed_is_resubmitted(partner: PartnerSide) -> None:
    trigger = doubtful(partner, 2)
    Delivery.objects.filter(trigger=trigger).update(state="failed", doubt="")
    job = create(trigger, action="redeliver_failed", parameters={}, filter={"trigger": trigger.public_id})
    jobs.run_due()
    assert fresh(job).done == 2
    assert states(trigger) == {"settled": 2, "waiting": 2}


def test_messages_in_doubt_are_settled_by_pair_and_cause(time: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies, "jitter", lambda: 1.0)
    far = partner_side(profile="repeatable", partner_window=3600)
    made = [submit(far) for _ in range(3)]
    with link(LOST):
        send()
        time.move(3601)
        claim_due(limit=64)
    chosen = {"pair": far.outbound.public_id, "cause": "outcome_unknown"}
    job = jobs.job_create(
        action="settle_messages",
        parameters={"decision": "resubmit"},
        filter=chosen,
        actor=ANN,
        reason="the partner has none of them",
    )
    assert job.total == 3
    jobs.run_due()
    assert fresh(job).done == 3
    assert {Message.objects.get(pk=message.pk).state for message in made} == {"skipped"}
    assert Message.objects.filter(direction="out").count() == 6
    with pytest.raises(InvalidSubmission, match="cause"):
        jobs.job_create(
            action="settle_messages",
            parameters={"decision": "delivered"},
            filter={"pair": far.outbound.public_id},
            actor=ANN,
            reason=WHY,
        )


def test_progress_tells_how_long_the_rest_takes(partner: PartnerSide, time: FrozenClock) -> None:
    job = BulkJob(total=100, done=18, refused=2, state="running", created_at=NOON)
    time.move(10)
    found = reading.progress(job, clock.now())
    assert (found.ended, found.percent, found.left, found.open) == (20, 20, 40.0, True)
    job.done = 2
    assert reading.progress(job, NOON + timedelta(seconds=1)).left is None, "too early to tell"


def test_a_filter_that_takes_too_long_is_refused_and_other_trouble_is_not_taken_for_it(
    partner: PartnerSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")
        raise AssertionError

    def broken(*_: object) -> int:
        raise OperationalError("the server is gone")

    trigger = doubtful(partner, 1)
    monkeypatch.setattr(plans, "PLAN_SECONDS", 0.01)
    monkeypatch.setattr(plans, "_take", slow)
    with pytest.raises(InvalidSubmission) as caught:
        create(trigger)
    assert list(caught.value.errors) == ["filter"]
    monkeypatch.setattr(plans, "_take", broken)
    with pytest.raises(OperationalError):
        create(trigger)
