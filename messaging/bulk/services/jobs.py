"""Bulk jobs: one decision of a person over many objects. They live in the database and survive a closed browser.

A job is planned first: which objects it means is fixed, and nothing is done. Once a person has seen the plan and
executes it, each object is done in a transaction of its own together with its item, through the service that does one:
a worker may die at any point, and nothing is done twice or forgotten.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import F, Min, Q
from django.utils.translation import gettext as _

from messaging import dispatch
from messaging.bulk.services import endings as job_endings
from messaging.bulk.services.actions import ACTIONS, Action, Filter, Rows
from messaging.bulk.services.endings import ENDED, OPEN
from messaging.bulk.services.plans import MAX_IDS, PLANNED_FOR, action_of, checked, job_plan, left_out_words
from messaging.choices import ItemState, JobState
from messaging.exceptions import ApplicationError, InvalidSubmission, Stale, WrongState
from messaging.journal import audit, events
from messaging.journal.audit import Actor
from messaging.messages.services import inquiries
from messaging.models import BulkJob, BulkJobItem
from messaging.models.base import existing
from partners import visibility
from rmhub import clock
from rmhub.language import inside, number

__all__ = [
    "ACTIONS",
    "ENDED",
    "MAX_IDS",
    "OPEN",
    "PLANNED_FOR",
    "Action",
    "allowed_verbs",
    "forget_old",
    "job_cancel",
    "job_create",
    "job_discard",
    "job_execute",
    "job_plan",
    "job_retry",
    "run_due",
]

log = logging.getLogger(__name__)

CHUNK = 50
TALKS = 16  # how many partners' answers are waited for before it is another job's turn
KEPT_FOR = timedelta(days=90)
_LEASE = timedelta(seconds=60)
_FAR = timedelta(seconds=5)  # a job that stumbled over the hub's own trouble is tried again then


def job_execute(
    *,
    job_id: uuid.UUID,
    expect_count: int,
    actor: Actor,
    reason: str,
    parameters: Mapping[str, Any] | None = None,
) -> BulkJob:
    """Begins a planned job, in the name of whoever executes it. `expect_count`: how many they saw in the plan.

    `parameters` replace those of the plan by name. Raises InvalidSubmission by field, NotFound, Stale for another
    count, WrongState for a plan that was executed already, was cancelled or is older than an hour.
    """
    with transaction.atomic():
        job = _locked(job_id)
        kind = ACTIONS[job.action]
        kept = checked(kind, {**job.parameters, **(parameters or {})})
        audit.require_reason(reason, at_least=kind.least_reason(kept))
        now = clock.now()
        if job.state != JobState.PLANNED:
            said = (
                _("This job is {state}: {who} has begun it already.")
                if job.state in OPEN
                else _("This job is {state}: There is nothing to execute any more.")
            )
            raise WrongState(
                said.format(state=inside(job.get_state_display()), who=job.actor),
                state=job.state,
                allowed=allowed_verbs(job),
            )
        if job.expires_at is not None and job.expires_at <= now:
            raise WrongState(
                _("This plan is too old: much may have changed since. Plan it again."),
                state=job.state,
                allowed=allowed_verbs(job),
            )
        if job.total != expect_count:
            said = _("It is {count} now, and you saw {seen}: look again before you decide.")
            raise Stale(said.format(count=number(job.total), seen=number(expect_count)), version=job.total)
        job.state, job.parameters, job.reason = JobState.QUEUED, kept, reason.strip()
        job.actor, job.interface, job.address = actor.name[:150], actor.interface, actor.address[:64]
        job.due_at, job.expires_at, job.created_at = now, None, now
        job.save()
        _stagger(job, kept.get("stagger", 0), now)
        after: dict[str, object] = {"action": job.action, **kept, "what": job.what, "total": job.total}
        audit.record(actor, "job.create", job, reason=reason, after=after)
        dispatch.wake_on_commit(dispatch.JOBS)
    return job


def job_create(
    *,
    action: str,
    parameters: Mapping[str, Any],
    actor: Actor,
    reason: str,
    ids: Collection[uuid.UUID] | None = None,
    filter: Filter | None = None,
    rows: Rows | None = None,
    chosen: Mapping[str, Any] | None = None,
    what: str = "",
    expected: int | None = None,
) -> BulkJob:
    """Plans a job and executes it at once. `expected`: how many the person saw; Stale when it is another number now.

    Of `ids`, all must be in a state in which it can be done. Raises what `job_plan` and `job_execute` raise.
    """
    kind = action_of(action)
    audit.require_reason(reason, at_least=kind.least_reason(checked(kind, parameters)))
    with transaction.atomic():
        job = job_plan(
            action=action,
            parameters=parameters,
            actor=actor,
            ids=ids,
            filter=filter,
            rows=rows,
            chosen=chosen,
            what=what,
        )
        if left_out := job.plan["left_out"]:
            raise InvalidSubmission({"ids": [left_out_words(left_out)]})
        expect_count = expected if expected is not None else job.total
        return job_execute(job_id=job.pk, expect_count=expect_count, actor=actor, reason=reason)


def allowed_verbs(job: BulkJob) -> tuple[str, ...]:
    """What its state takes: `execute` and `discard` a plan, `cancel` a job, `retry` what an ended one was refused."""
    if job.state == JobState.PLANNED:
        expired = job.expires_at is not None and job.expires_at <= clock.now()
        return ("discard",) if expired else ("execute", "discard")
    if job.state in OPEN:
        return ("cancel",)
    return ("retry",) if job.state in ENDED and job.refused else ()


def job_retry(*, job_id: uuid.UUID, actor: Actor, parameters: Mapping[str, Any] | None = None) -> BulkJob:
    """A new plan over what an ended job was refused. `parameters` replace those of the job by name.

    Raises NotFound, WrongState, InvalidSubmission.
    """
    job = existing(visibility.own(BulkJob.objects.all(), "actor"), job_id)
    if job.state not in ENDED:
        raise WrongState(
            _("This job is {state}: wait for its end.").format(state=inside(job.get_state_display())),
            state=job.state,
            allowed=allowed_verbs(job),
        )
    refused = BulkJobItem.objects.filter(job=job, state=ItemState.REFUSED)
    return job_plan(
        action=job.action,
        parameters={**job.parameters, **(parameters or {})},
        actor=actor,
        rows=ACTIONS[job.action].model._default_manager.filter(pk__in=refused.values("object_id")),
        chosen={"refused_by": job.public_id},
        what=f"What was refused: {job.what}",
        origin=str(job.plan.get("origin", "")),
    )


def job_discard(*, job_id: uuid.UUID) -> None:
    """Throws a plan away: nothing was done, and nothing is written down. Raises NotFound, WrongState."""
    with transaction.atomic():
        job = _locked(job_id)
        if job.state != JobState.PLANNED:
            raise WrongState(
                _("This job is {state}: only a plan is discarded, a job is cancelled.").format(
                    state=inside(job.get_state_display())
                ),
                state=job.state,
                allowed=allowed_verbs(job),
            )
        job.delete()


def job_cancel(*, job_id: uuid.UUID, actor: Actor, reason: str) -> BulkJob:
    """Ends a job: what is done stays done, what waits is not done. Raises NotFound, WrongState when it has ended."""
    audit.require_reason(reason)
    with transaction.atomic():
        # Items before the job, like the worker: it locks an item, and counts it on the job's row afterwards.
        BulkJobItem.objects.filter(job=job_id, state=ItemState.PENDING).update(state=ItemState.CANCELLED)
        job = _locked(job_id)
        if job.state not in OPEN:
            said = (
                _("This job is {state} already: it is not begun: discard the plan.")
                if job.state == JobState.PLANNED
                else _("This job is {state} already: it has ended.")
            )
            raise WrongState(
                said.format(state=inside(job.get_state_display())),
                state=job.state,
                allowed=allowed_verbs(job),
            )
        before: dict[str, object] = {"state": job.state, "done": job.done}
        now = clock.now()
        job.state, job.due_at, job.finished_at = JobState.CANCELLED, None, now
        job.save(update_fields=["state", "due_at", "finished_at"])
        audit.record(actor, "job.cancel", job, reason=reason, before=before, after={"state": job.state})
        events.write([job_endings.ended(job, now)])
    return job


def forget_old() -> int:
    """Removes plans that nobody executed, and jobs that ended 90 days ago. Returns how many; a few at a time."""
    now = clock.now()
    stale = Q(state=JobState.PLANNED, expires_at__lte=now - PLANNED_FOR) | Q(finished_at__lte=now - KEPT_FOR)
    keys = list(BulkJob.objects.filter(stale).order_by("id").values_list("pk", flat=True)[:20])
    with transaction.atomic():
        BulkJobItem.objects.filter(job__in=keys).delete()
        BulkJob.objects.filter(stale, pk__in=keys).delete()
    return len(keys)


def run_due(*, chunk: int = CHUNK) -> int:
    """Works on the jobs that are due, a chunk at a time and the oldest first. Returns how many items were done."""
    done = 0
    while (job := _claim()) is not None:
        try:
            done += _run_chunk(job, chunk)
        except (OperationalError, InterfaceError):
            # The database's trouble (a deadlock that we lost, a restart) is not the item's: it stays pending.
            log.warning("job interrupted", extra={"action": "job_interrupted", "job": job.public_id}, exc_info=True)
            BulkJob.objects.filter(pk=job.pk, state=JobState.RUNNING).update(due_at=clock.now() + _FAR)
    return done


def _claim() -> BulkJob | None:
    """The next due job, leased to this worker; one whose worker died comes back when its lease ends."""
    now = clock.now()
    with transaction.atomic(durable=True):
        due = BulkJob.objects.filter(due_at__lte=now).order_by("due_at", "id")
        job = due.select_for_update(skip_locked=True).first()
        if job is None:
            return None
        job.state, job.due_at = JobState.RUNNING, now + _LEASE
        job.save(update_fields=["state", "due_at"])
    return job


def _run_chunk(job: BulkJob, chunk: int) -> int:
    pending = BulkJobItem.objects.filter(job=job, state=ItemState.PENDING).order_by("id")
    ready = pending.filter(Q(not_before=None) | Q(not_before__lte=clock.now()))
    if ACTIONS[job.action].run is None:
        keys = list(ready.values_list("id", flat=True)[: min(chunk, TALKS)])
        _ask(job, keys)
    else:
        keys = list(ready.values_list("id", flat=True)[:chunk])
        for key in keys:
            _run_item(job, key)
    now = clock.now()
    with transaction.atomic(durable=True):
        # A cancelled job keeps its end; one with more to do gives way to others that are due.
        mine = BulkJob.objects.select_for_update().filter(pk=job.pk, state=JobState.RUNNING)
        if mine.exists():
            if pending.filter(not_before=None).exists():
                mine.update(due_at=now)
            elif (turn := pending.aggregate(at=Min("not_before"))["at"]) is not None:
                mine.update(due_at=max(turn, now))
            else:
                mine.update(state=JobState.FINISHED, due_at=None, finished_at=now)
                events.write([job_endings.ended(BulkJob.objects.get(pk=job.pk), now)])
    return len(keys)


def _run_item(job: BulkJob, key: int) -> None:
    with transaction.atomic(durable=True):
        item = BulkJobItem.objects.select_for_update().filter(pk=key, state=ItemState.PENDING).first()
        if item is None:  # cancelled meanwhile, or done by a worker that was only slow
            return
        run = ACTIONS[job.action].run
        assert run is not None
        try:
            with transaction.atomic():
                run(item.object_id, job.parameters, actor=_actor(job), reason=job.reason)
            item.state = ItemState.DONE
        except ApplicationError as error:
            item.state, item.detail = ItemState.REFUSED, str(error)[:255]
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            # One object that the hub itself fails on must not hold up the others, nor be tried for ever.
            log.exception("job item failed", extra={"action": "job_item_failed", "job": job.public_id})
            item.state, item.detail = ItemState.REFUSED, "The hub failed on this one; its log says why."
        _count(job, item)


def _ask(job: BulkJob, keys: list[int]) -> None:
    """Items that partners are asked about: asked with no transaction open, then each recorded."""
    wanted = dict(BulkJobItem.objects.filter(pk__in=keys).values_list("object_id", "pk"))
    answers = inquiries.ask_many(message_ids=list(wanted), actor=_actor(job), reason=job.reason)
    for object_id, key in wanted.items():
        with transaction.atomic(durable=True):
            item = BulkJobItem.objects.select_for_update().filter(pk=key, state=ItemState.PENDING).first()
            if item is None:
                continue
            answer = answers[object_id]
            if isinstance(answer, ApplicationError):
                item.state, item.detail = ItemState.REFUSED, str(answer)[:255]
            else:
                item.state, item.detail = ItemState.DONE, answer.get_answer_display()
            _count(job, item)


def _count(job: BulkJob, item: BulkJobItem) -> None:
    item.save(update_fields=["state", "detail"])
    counted = "done" if item.state == ItemState.DONE else "refused"
    BulkJob.objects.filter(pk=job.pk).update(**{counted: F(counted) + 1})


def _actor(job: BulkJob) -> Actor:
    return Actor(job.actor, job.interface, job.address, job.public_id, "job")


def _stagger(job: BulkJob, seconds: int, now: datetime) -> None:
    if not seconds:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE messaging_bulkjobitem AS item SET not_before = %s + turns.turn * make_interval(secs => %s) FROM"
            " (SELECT id, row_number() OVER (ORDER BY id) - 1 AS turn FROM messaging_bulkjobitem WHERE job_id = %s)"
            " AS turns WHERE turns.id = item.id",
            [now, seconds, job.pk],
        )


def _locked(job_id: uuid.UUID) -> BulkJob:
    return existing(visibility.own(BulkJob.objects.select_for_update(), "actor"), job_id)
