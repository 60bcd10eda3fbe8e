"""Bulk jobs as plans: what they mean is fixed and shown before a person begins them, and nothing is done before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from messaging.bulk import selectors as reading
from messaging.bulk.pages import buttons as words
from messaging.bulk.services import actions as job_actions
from messaging.bulk.services import jobs
from messaging.bulk.services.export import job_export
from messaging.exceptions import InvalidSubmission, NotFound, Stale, WrongState
from messaging.journal import incidents
from messaging.journal.audit import Actor
from messaging.models import AuditEntry, BulkJob, BulkJobItem, Event, Incident, Message, Pair
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.ids import uuid7
from rmhub.roles import ADMIN_SCOPES, Role
from tests.messaging.api.client import make_user
from tests.messaging.console.scenes import suspended
from tests.messaging.factories import link, partner_side, submit, work

pytestmark = pytest.mark.django_db

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANN = Actor("ann", "console", "192.0.2.9", "req-1", "session")
BOB = Actor("bob", "console")
WHY = "the partner is up again"


@pytest.fixture(autouse=True)
def time() -> Iterator[FrozenClock]:
    with clock.frozen(AT) as frozen:
        yield frozen


def pause(*pairs: Pair, **values: object) -> BulkJob:
    chosen = {"action": "pairs_pause", "parameters": {}, "ids": [pair.pk for pair in pairs], "actor": ANN}
    return jobs.job_plan(**{**chosen, **values})  # type: ignore[arg-type]


def execute(job: BulkJob, **values: object) -> BulkJob:
    given = {"job_id": job.pk, "expect_count": job.total, "actor": ANN, "reason": WHY}
    return jobs.job_execute(**{**given, **values})  # type: ignore[arg-type]


def fresh(job: BulkJob) -> BulkJob:
    return BulkJob.objects.get(pk=job.pk)


# --- plan, execute, expire ---


def test_a_plan_says_what_it_means_and_does_nothing(woken: list[str]) -> None:
    first, second = partner_side().outbound, partner_side().outbound
    Pair.objects.filter(pk=second.pk).update(gate="paused")
    job = pause(first, second, partner_side().inbound)
    assert (job.state, job.total, job.reason, job.due_at) == ("planned", 1, "", None)
    assert job.expires_at == AT + jobs.PLANNED_FOR
    plan = reading.plan(job, AT)
    assert (plan.left_out, plan.expired) == (2, False)
    assert [(group.words, group.count) for group in plan.groups] == [("idle", 1)]
    assert plan.sample == [(first.code, "pair", first.code)]
    assert jobs.run_due() == 0 and woken == []
    assert not AuditEntry.objects.filter(verb__startswith="job.").exists()
    first.refresh_from_db()
    assert first.gate == "open"


def test_whoever_executes_a_plan_is_who_did_it() -> None:
    pair = partner_side().outbound
    job = execute(pause(pair), actor=BOB)
    assert (job.state, job.actor, job.reason) == ("queued", "bob", WHY)
    assert jobs.run_due() == 1
    pair.refresh_from_db()
    assert pair.gate == "paused"
    entry = AuditEntry.objects.get(verb="pair.pause")
    assert (entry.actor, entry.reason, entry.request_id, entry.authentication) == ("bob", WHY, job.public_id, "job")
    assert AuditEntry.objects.get(verb="job.create").actor == "bob"
    finished = Event.objects.get(type="bulk_operation.finished").data
    assert finished == {
        "job": job.public_id,
        "action": "pairs_pause",
        "state": "finished",
        "actor": "bob",
        "total": 1,
        "done": 1,
        "refused": 0,
    }


def test_a_plan_is_executed_once_and_as_it_was_seen(time: FrozenClock) -> None:
    job = pause(partner_side().outbound)
    with pytest.raises(Stale):
        execute(job, expect_count=2)
    with pytest.raises(InvalidSubmission, match="reason"):
        execute(job, reason="x")
    execute(job)
    with pytest.raises(WrongState, match="ann has begun it"):
        execute(job, actor=BOB)
    old = pause(partner_side().outbound)
    time.move(3600)
    with pytest.raises(WrongState, match="too old"):
        execute(old)
    with pytest.raises(NotFound):
        jobs.job_execute(job_id=uuid7(), expect_count=1, actor=ANN, reason=WHY)


def test_a_plan_is_thrown_away_and_a_job_is_not(time: FrozenClock) -> None:
    job = pause(partner_side().outbound)
    with pytest.raises(WrongState, match="not begun"):
        jobs.job_cancel(job_id=job.pk, actor=ANN, reason="not wanted")
    assert set(BulkJobItem.objects.values_list("state", flat=True)) == {"pending"}
    jobs.job_discard(job_id=job.pk)
    assert not BulkJob.objects.exists() and not BulkJobItem.objects.exists()
    begun = execute(pause(partner_side().outbound))
    with pytest.raises(WrongState, match="only a plan"):
        jobs.job_discard(job_id=begun.pk)
    jobs.run_due()
    forgotten = pause(partner_side().outbound)
    assert jobs.forget_old() == 0
    time.move(timedelta(hours=3).total_seconds())
    assert jobs.forget_old() == 1
    assert not BulkJob.objects.filter(pk=forgotten.pk).exists()
    time.move(timedelta(days=91).total_seconds())
    assert jobs.forget_old() == 1 and not BulkJobItem.objects.exists()


def test_nothing_to_do_is_no_plan() -> None:
    inbound = partner_side().inbound
    with pytest.raises(InvalidSubmission, match="not in a state"):
        pause(inbound)
    with pytest.raises(InvalidSubmission, match="Nothing matches"):
        pause(ids=None, rows=Pair.objects.none())
    for wrong in ({"ids": []}, {"filter": {}}, {"filter": {"pair": "x"}, "ids": None}, {"ids": None}):
        with pytest.raises(InvalidSubmission, match="filter"):
            pause(inbound, **wrong)
    assert not BulkJob.objects.exists()


# --- the actions ---


def test_every_action_has_words_and_a_scope_that_exists() -> None:
    assert set(words.VERBS) == set(job_actions.ACTIONS)
    for name, action in job_actions.ACTIONS.items():
        assert action.scope in ADMIN_SCOPES
        assert words.VERBS[name].takes == action.takes
        assert reading.prefix_of(name) == action.prefix
        if not action.decisions:
            assert words.VERBS[name].heavy == action.heavy, name


def test_suspended_pairs_are_resumed_one_after_the_other(time: FrozenClock) -> None:
    pairs = [suspended(time).outbound for _ in range(3)]
    now = clock.now()
    job = jobs.job_plan(
        action="pairs_resume", parameters={}, rows=reading.matching("pair", {"state": "suspended"}), actor=ANN
    )
    assert (job.total, job.parameters) == (3, {"mode": "probe", "stagger": 0})
    assert reading.plan(job, now).waiting == 9
    with pytest.raises(InvalidSubmission, match="stagger"):
        execute(job, parameters={"stagger": 3601})
    with pytest.raises(InvalidSubmission, match="mode"):
        execute(job, parameters={"mode": "maybe"})
    execute(job, parameters={"mode": "all", "stagger": 30})
    assert jobs.run_due() == 1
    assert [Pair.objects.get(pk=pair.pk).flow for pair in pairs].count("suspended") == 2
    assert fresh(job).state == "running" and fresh(job).due_at == now + timedelta(seconds=30)
    time.move(29)
    assert jobs.run_due() == 0
    time.move(1)
    assert jobs.run_due() == 1
    time.move(30)
    assert jobs.run_due() == 1
    assert fresh(job).state == "finished"
    assert AuditEntry.objects.filter(verb="pair.resume", reason=WHY).count() == 3


def test_resuming_in_probe_mode_is_handed_on(time: FrozenClock) -> None:
    pair = suspended(time).outbound
    execute(jobs.job_plan(action="pairs_resume", parameters={"mode": "probe"}, ids=[pair.pk], actor=ANN))
    jobs.run_due()
    pair.refresh_from_db()
    assert pair.probing


def test_incidents_are_acknowledged_assigned_and_resolved(time: FrozenClock) -> None:
    olga = make_user(Role.OPERATOR)
    opened = [Incident.objects.get(pair=suspended(time).outbound) for _ in range(2)]
    keys = [one.pk for one in opened]

    def run(action: str, **parameters: object) -> list[Incident]:
        execute(jobs.job_plan(action=action, parameters=parameters, ids=keys, actor=ANN))
        jobs.run_due()
        return list(Incident.objects.filter(pk__in=keys))

    assert {(one.state, one.owner) for one in run("incidents_acknowledge")} == {("acknowledged", "ann")}
    with pytest.raises(InvalidSubmission, match="owner"):
        run("incidents_assign", owner="nobody at all")
    assert {one.owner for one in run("incidents_assign", owner=olga.username)} == {olga.username}
    assert {one.state for one in run("incidents_resolve")} == {"resolved"}


def test_messages_are_cancelled_resubmitted_and_exported(time: FrozenClock) -> None:
    partner = partner_side()
    made = [submit(partner) for _ in range(3)]
    rows = reading.matching("msg", {"state": "queued", "pair": partner.outbound.code})
    job = jobs.job_plan(action="messages_cancel", parameters={}, rows=rows, actor=ANN)
    assert job.total == 3
    with pytest.raises(InvalidSubmission, match="10 characters"):
        execute(job, reason="too few")
    execute(job)
    jobs.run_due()
    assert set(Message.objects.values_list("state", flat=True)) == {"cancelled"}
    execute(jobs.job_plan(action="messages_resubmit", parameters={}, ids=[made[0].pk, made[1].pk], actor=ANN))
    jobs.run_due()
    anew = Message.objects.filter(state="queued")
    assert {one.resubmitted_from_id for one in anew} == {made[0].pk, made[1].pk}
    export = execute(jobs.job_plan(action="messages_export", parameters={}, ids=[made[2].pk], actor=ANN))
    jobs.run_due()
    packed = b"".join(job_export(job=fresh(export), actor=BOB, role=Role.ADMIN))
    assert packed[:2] == b"PK"
    assert AuditEntry.objects.get(verb="job.export").actor == "bob"
    assert AuditEntry.objects.filter(verb="payload.read", object_id=made[2].public_id).count() == 1


def test_a_message_that_left_the_queue_after_the_plan_is_not_given_up() -> None:
    partner = partner_side()
    first, second = submit(partner), submit(partner)
    job = execute(jobs.job_plan(action="messages_cancel", parameters={}, ids=[first.pk, second.pk], actor=ANN))
    with link():
        work()
    jobs.run_due()
    assert [Message.objects.get(pk=one.pk).state for one in (first, second)] == ["awaiting_ack", "cancelled"]
    assert partner.outbound.in_flight_id == first.pk
    assert (fresh(job).done, fresh(job).refused) == (1, 1)
    assert "the partner may have it" in BulkJobItem.objects.get(job=job, state="refused").detail


def test_what_was_refused_is_planned_again() -> None:
    pairs = [partner_side().outbound for _ in range(2)]
    job = execute(pause(*pairs))
    Pair.objects.filter(pk=pairs[0].pk).update(gate="disabled")
    with pytest.raises(WrongState, match="wait for its end"):
        jobs.job_retry(job_id=job.pk, actor=ANN)
    jobs.run_due()
    assert (fresh(job).done, fresh(job).refused) == (1, 1)
    Pair.objects.filter(pk=pairs[0].pk).update(gate="open")
    again = jobs.job_retry(job_id=job.pk, actor=BOB)
    assert (again.state, again.total, again.actor) == ("planned", 1, "bob")
    assert BulkJobItem.objects.get(job=again).object_id == pairs[0].pk
    lines = list(reading.csv_lines(fresh(job)))
    assert lines[0] == "id,name,result,detail\r\n"
    assert lines[1].startswith(f"{pairs[0].public_id},{pairs[0].code},refused,")
    assert lines[2] == f"{pairs[1].public_id},{pairs[1].code},done,\r\n"


# --- all that match ---


def test_a_list_s_filters_mean_the_same_for_a_job(time: FrozenClock) -> None:
    stuck, calm = suspended(time).outbound, partner_side().outbound
    found = reading.matching("pair", {"state": "suspended", "cursor": "x", "view": "all"})
    assert [pair.pk for pair in found] == [stuck.pk]
    assert calm.pk in {pair.pk for pair in reading.matching("pair", {"q": calm.code})}
    open_ones = reading.matching("inc", {})
    assert [one.pair_id for one in open_ones] == [stuck.pk]
    incidents.incident_resolve(incident_id=open_ones.get().pk, actor=ANN, reason="it is fixed")
    assert not reading.matching("inc", {}).exists() and reading.matching("inc", {"show": "all"}).exists()
    for kind, wrong in (
        ("pair", {"state": "odd"}),
        ("pair", {"size": "3"}),
        ("msg", {"pair": "no-such"}),
        ("msg", {"created_gte": "whenever"}),
        ("inc", {"partner": "par_1"}),
    ):
        with pytest.raises(InvalidSubmission, match="filter"):
            reading.matching(kind, wrong)


def test_a_plan_over_all_that_match_keeps_what_was_meant(time: FrozenClock) -> None:
    stuck = suspended(time).outbound
    given = {"state": "suspended"}
    job = jobs.job_plan(
        action="pairs_resume",
        parameters={},
        rows=reading.matching("pair", given),
        chosen=given,
        actor=ANN,
        origin="/pairs/",
    )
    assert job.what == "state: suspended"
    assert (job.plan["filter"], job.plan["origin"]) == (given, "/pairs/")
    suspended(time)
    assert [item.object_id for item in BulkJobItem.objects.filter(job=job)] == [stuck.pk]
