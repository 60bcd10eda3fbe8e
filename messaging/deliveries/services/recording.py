"""The third step of a delivery: what came of many hand-overs, in one transaction.

An outcome counts only for the hand-over that it belongs to: one that comes after its lease ran out moves nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import transaction

from messaging.choices import Consult, DeliveryState
from messaging.deliveries.services import history, together
from messaging.deliveries.services.changes import Changes, hold, is_new, not_done
from messaging.deliveries.services.handing_over import absorbed
from messaging.deliveries.services.job import (
    Job,
    JobKind,
    Outcome,
    guaranteed,
    is_checked,
    properties,
    retry_policy,
    service_kind,
)
from messaging.engine import forgetting
from messaging.models import Delivery, Trigger
from messaging.models.bulk import bulk_set
from messaging.protocol.processing import Decision, Doubt, Entry, Evidence, Status, conclude, decide
from messaging.protocol.service_ends import Ran
from rmhub import clock

UNKNOWN = "service_outcome_unknown"
_TOUCH = timedelta(seconds=1)
_AGAIN = timedelta(seconds=1)


def record(outcomes: Sequence[tuple[Job, Outcome]]) -> list[Job | None]:
    """Writes what came of claimed deliveries. Returns for each the job that follows at once: a resolver said NEW."""
    now = clock.now()
    forgetting.ensure_days(forgetting.HISTORY, {history.forget_on(job.trigger, now) for job, _ in outcomes})
    followers: list[Job | None] = []
    with transaction.atomic(durable=True):
        triggers = _locked_triggers(outcomes, now)
        deliveries = _locked_deliveries([job.delivery.pk for job, outcome in outcomes if not outcome.recorded])
        changes = Changes(now)
        for job, outcome in outcomes:
            delivery = deliveries.get(job.delivery.pk)
            if delivery is None or delivery.state != DeliveryState.RUNNING or delivery.claim != job.claim:
                followers.append(None)
                continue
            delivery.message = job.delivery.message
            followers.append(_apply(job, outcome, delivery, triggers.get(job.trigger.pk), changes))
        changes.write()
        _note_health(triggers, outcomes, now)
    for _, outcome in outcomes:
        if outcome.abandons is not None:
            together.abandon(outcome.abandons, outcome.cause, outcome.detail)
    return followers


def _locked_triggers(outcomes: Sequence[tuple[Job, Outcome]], now: datetime) -> dict[uuid.UUID, Trigger]:
    """Rows of triggers that may get an incident or be suspended; and about once a second those that succeed."""
    fine = {job.trigger.pk for job, outcome in outcomes if outcome.ran is Ran.OK}
    troubled = {job.trigger.pk for job, outcome in outcomes if outcome.ran is not Ran.OK}
    rows = Trigger.objects.raw(TRIGGERS, [list(troubled), list(fine), now - _TOUCH])
    return {trigger.pk: trigger for trigger in rows}


TRIGGERS = """
SELECT * FROM messaging_trigger WHERE id = ANY(%s)
OR id = ANY(%s) AND (last_success_at IS NULL OR last_success_at <= %s OR failing_since IS NOT NULL)
ORDER BY id FOR NO KEY UPDATE
"""


def _locked_deliveries(ids: list[uuid.UUID]) -> dict[uuid.UUID, Delivery]:
    if not ids:
        return {}
    rows = Delivery.objects.raw("SELECT * FROM messaging_delivery WHERE id = ANY(%s) ORDER BY id FOR UPDATE", [ids])
    return {delivery.pk: delivery for delivery in rows}


def _note_health(triggers: dict[uuid.UUID, Trigger], outcomes: Sequence[tuple[Job, Outcome]], now: datetime) -> None:
    changed = {}
    for job, outcome in outcomes:
        trigger = triggers.get(job.trigger.pk)
        if trigger is None or outcome.ran is None:
            continue
        if outcome.ran is Ran.OK:
            trigger.last_success_at, trigger.failing_since = now, None
        else:
            trigger.failing_since = trigger.failing_since or now
        changed[trigger.pk] = trigger
    bulk_set(list(changed.values()), ("last_success_at", "failing_since"))


def _apply(job: Job, outcome: Outcome, delivery: Delivery, trigger: Trigger | None, changes: Changes) -> Job | None:
    """`trigger` is its locked row: there whenever the outcome is not a plain success."""
    if outcome.again:
        changes.wait(delivery, delivery.created_at)
        return None
    if outcome.answer is not None:
        assert trigger is not None
        return _resolved(job, outcome, delivery, trigger, changes)
    assert outcome.ran is not None
    delivery.http_status, delivery.answer = outcome.status, outcome.kept or None
    if job.by_caller:
        _for_caller(job, outcome, delivery, changes)
        return None
    if outcome.ran is Ran.OK:
        changes.complete(job.trigger, delivery, outcome.reply)
        return None
    assert trigger is not None
    not_done(trigger, delivery, outcome, changes, claimed=job.trigger, in_transaction=job.kind is JobKind.ATOMIC)
    return None


def _for_caller(job: Job, outcome: Outcome, delivery: Delivery, changes: Changes) -> None:
    """Somebody waits: no retry, no suspension. What certainly did not happen is as if it had never been asked for."""
    cause, detail = outcome.cause, outcome.detail
    if outcome.ran is Ran.OK:
        changes.complete(job.trigger, delivery, outcome.reply)
    elif outcome.ran is Ran.TRANSIENT or job.kind is JobKind.CALLABLE:
        # What a callable that failed has done is rolled back.
        if not changes.forget_unexecuted(delivery, cause, detail):
            changes.put_back(delivery, changes.now, cause, detail)  # it was taken in by another road: the workers' now
    elif outcome.ran is Ran.ERROR:
        changes.fail(job.trigger, delivery, cause, detail, outcome.reply)
    else:
        changes.lose(delivery, changes.now, cause, detail)
        if job.trigger.resolver == Consult.NONE or not is_checked(job.trigger, delivery):
            changes.doubt(job.trigger, delivery, _lost_answer(job, delivery))


def _lost_answer(job: Job, delivery: Delivery) -> Decision:
    """The decision about a request whose answer was lost, taken at once: its caller must not get it executed twice."""
    trigger = job.trigger
    decision = decide(
        properties(trigger),
        guaranteed=guaranteed(delivery),
        redelivery_count=delivery.redelivery_count,
        entry=Entry.STARTED if delivery.document_id else Entry.UNUSABLE_ID,
    )
    if decision.status is Status.IN_DOUBT:
        return decision
    detail = "Duplicates are not detected here, but the sender of a request must not get it executed twice."
    evidence = Evidence("redelivery", "redelivered", Status.IN_DOUBT.value, detail)
    return Decision(Status.IN_DOUBT, ask_resolver=False, suspend=False, evidence=(evidence,), group=Doubt.REDELIVERED)


def _resolved(job: Job, outcome: Outcome, delivery: Delivery, trigger: Trigger, changes: Changes) -> Job | None:
    assert outcome.answer is not None
    decision = conclude(properties(trigger), job.decision, outcome.answer, outcome.detail)
    if decision.suspend:
        changes.decided(delivery, decision)
        delivery.cause, delivery.cause_detail = outcome.cause, outcome.detail
        changes.wait(delivery, delivery.created_at)
        if not job.by_caller:
            changes.suspend(trigger, outcome.cause, outcome.detail)
    elif is_new(decision):
        changes.decided(delivery, decision)
        return _run_after_all(job, decision, delivery, trigger, changes)
    elif decision.status is Status.IN_DOUBT:
        changes.doubt(job.trigger, delivery, decision)
    else:
        changes.duplicate(job.trigger, delivery, decision)
    return None


def _run_after_all(job: Job, decision: Decision, delivery: Delivery, trigger: Trigger, changes: Changes) -> Job | None:
    """The resolver said NEW: the document is handed over under the same claim, unless its retries are used up.

    When a copy has got ahead since it was asked, what it said is no longer true: then the document is decided again.
    """
    if history.keeps(job.trigger, delivery) and history.overtaken(delivery):
        changes.wait(delivery, changes.now + _AGAIN)
        return None
    policy = retry_policy(trigger)
    if delivery.cause == UNKNOWN and not policy.until_success and delivery.retries > policy.max_retries:
        detail = f"{delivery.cause_detail} The resolver says each time that it was not processed."
        if policy.suspends:
            hold(delivery, trigger, UNKNOWN, detail, changes)
        else:
            changes.fail(job.trigger, delivery, UNKNOWN, detail)
        return None
    if absorbed(trigger, delivery, changes):
        return None
    kind = service_kind(job.trigger)
    if kind is not JobKind.CALLABLE and history.keeps(job.trigger, delivery):
        history.take_over(job.trigger, delivery, job.worker, changes.now)
    delivery.executions += 1
    changes.hand_over(delivery, job.claim, changes.now + job.lease, job.worker, delivery.taken_by)
    return replace(job, kind=kind, delivery=delivery, decision=decision, overrides=True)
