"""Bulk jobs: one decision of a person over many objects. They live in the database and survive a closed browser.

Each object is done in a transaction of its own together with its item, through the service that does one: a worker may
die at any point, and nothing is done twice or forgotten.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import F, QuerySet

from messaging import dispatch
from messaging.choices import DeliveryState, Direction, ItemState, JobState, MessageState
from messaging.exceptions import ApplicationError, InvalidSubmission, NotFound, Stale, WrongState
from messaging.models import BulkJob, BulkJobItem, Delivery, Message
from messaging.services import audit, settling
from messaging.services.audit import Actor
from rmhub import clock
from rmhub.ids import BadPublicId, public_id, read_public_id

log = logging.getLogger(__name__)

CHUNK = 50
MAX_IDS = 10_000
_LEASE = timedelta(seconds=60)
_FAR = timedelta(seconds=5)  # a job that stumbled over the hub's own trouble is tried again then

Filter = Mapping[str, Any]
Rows = QuerySet[Delivery] | QuerySet[Message]


@dataclass(frozen=True, slots=True)
class Action:
    """One kind of job. `find` gives the rows that a filter means now, `group` what rows of one job must have in common,
    `decisions` the allowed ones ("" = the action takes none), `run` does one object and raises ApplicationError.
    """

    find: Callable[[Filter], Rows]
    group: tuple[str, ...]
    decisions: tuple[str, ...]
    run: Callable[[uuid.UUID, Mapping[str, Any], Actor, str], object]


def job_create(
    *,
    action: str,
    parameters: Mapping[str, Any],
    actor: Actor,
    reason: str,
    ids: Collection[uuid.UUID] | None = None,
    filter: Mapping[str, Any] | None = None,
    what: str = "",
    expected: int | None = None,
) -> BulkJob:
    """Plans the job and queues it: the objects of `ids`, or those that `filter` means right now.

    `parameters`: {"decision": …} and, for later, {"remind_in": seconds}. Filters name ids as people see them:
    settle_deliveries {"trigger", "doubt"}, redeliver_failed {"trigger"}, settle_messages {"pair", "cause"}. All objects
    of a job are of one evidence group. `expected`: how many the person saw; Stale when it is another number now.
    Raises InvalidSubmission by field, NotFound, Stale.
    """
    audit.require_reason(reason)
    chosen = ACTIONS.get(action)
    if chosen is None:
        raise InvalidSubmission({"action": [f"One of {', '.join(ACTIONS)}."]})
    kept = _checked(chosen, parameters)
    if bool(ids) == bool(filter):
        raise InvalidSubmission({"filter": ["Give either ids or a filter, and not an empty one."]})
    with transaction.atomic():
        rows = _by_ids(chosen, ids) if ids else chosen.find(filter or {})
        now = clock.now()
        job = BulkJob.objects.create(
            action=action,
            parameters=kept,
            what=(what or _described(chosen, ids, filter))[:255],
            actor=actor.name[:150],
            interface=actor.interface,
            address=actor.address[:64],
            reason=reason.strip(),
            due_at=now,
            created_at=now,
        )
        job.total = _take(job, rows)
        if job.total == 0:
            raise InvalidSubmission({"filter": ["Nothing matches any more: somebody else may have settled it."]})
        if expected is not None and job.total != expected:
            raise Stale(
                f"It is {job.total:,} now, and you saw {expected:,}: look again before you decide.", version=job.total
            )
        job.save(update_fields=["total"])
        after: dict[str, object] = {"action": action, **kept, "what": job.what, "total": job.total}
        audit.record(actor, "job.create", job, reason=reason, after=after)
        dispatch.wake_on_commit(dispatch.JOBS)
    return job


def job_cancel(*, job_id: uuid.UUID, actor: Actor, reason: str) -> BulkJob:
    """Ends a job: what is done stays done, what waits is not done. Raises NotFound, WrongState when it has ended."""
    audit.require_reason(reason)
    with transaction.atomic():
        # Items before the job, like the worker: it locks an item, and counts it on the job's row afterwards.
        BulkJobItem.objects.filter(job=job_id, state=ItemState.PENDING).update(state=ItemState.CANCELLED)
        job = BulkJob.objects.select_for_update().filter(pk=job_id).first()
        if job is None:
            raise NotFound(f"There is no job {public_id('job', job_id)}.")
        if job.state not in OPEN:
            raise WrongState(f"This job is {job.get_state_display().lower()} already.", state=job.state)
        before: dict[str, object] = {"state": job.state, "done": job.done}
        job.state, job.due_at, job.finished_at = JobState.CANCELLED, None, clock.now()
        job.save(update_fields=["state", "due_at", "finished_at"])
        audit.record(actor, "job.cancel", job, reason=reason, before=before, after={"state": job.state})
    return job


OPEN = (JobState.QUEUED, JobState.RUNNING)


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
    keys = list(pending.values_list("id", flat=True)[:chunk])
    for key in keys:
        _run_item(job, key)
    now = clock.now()
    with transaction.atomic(durable=True):
        # A cancelled job keeps its end; one with more to do gives way to others that are due.
        mine = BulkJob.objects.select_for_update().filter(pk=job.pk, state=JobState.RUNNING)
        if mine.exists():
            if pending.exists():
                mine.update(due_at=now)
            else:
                mine.update(state=JobState.FINISHED, due_at=None, finished_at=now)
    return len(keys)


def _run_item(job: BulkJob, key: int) -> None:
    with transaction.atomic(durable=True):
        item = BulkJobItem.objects.select_for_update().filter(pk=key, state=ItemState.PENDING).first()
        if item is None:  # cancelled meanwhile, or done by a worker that was only slow
            return
        actor = Actor(job.actor, job.interface, job.address, job.public_id)
        try:
            with transaction.atomic():
                ACTIONS[job.action].run(item.object_id, job.parameters, actor, job.reason)
            item.state = ItemState.DONE
        except ApplicationError as error:
            item.state, item.detail = ItemState.REFUSED, str(error)[:255]
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            # One object that the hub itself fails on must not hold up the others, nor be tried for ever.
            log.exception("job item failed", extra={"action": "job_item_failed", "job": job.public_id})
            item.state, item.detail = ItemState.REFUSED, "The hub failed on this one; its log says why."
        item.save(update_fields=["state", "detail"])
        counted = "done" if item.state == ItemState.DONE else "refused"
        BulkJob.objects.filter(pk=job.pk).update(**{counted: F(counted) + 1})


def _take(job: BulkJob, rows: Rows) -> int:
    """Writes an item for each row, in one statement: what is meant is fixed before the first one is done."""
    inner, values = rows.order_by("id").values("id").query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO messaging_bulkjobitem (job_id, object_id, state, detail) "  # noqa: S608  (made by the ORM)
            f"SELECT %s, chosen.id, 'pending', '' FROM ({inner}) AS chosen",
            [job.pk, *values],
        )
        return int(cursor.rowcount)


def _checked(action: Action, parameters: Mapping[str, Any]) -> dict[str, Any]:
    errors: dict[str, list[str]] = {}
    allowed = {"decision", "remind_in"} if action.decisions else set()
    for name in sorted(set(parameters) - allowed):
        errors[name] = ["This action does not take it."]
    kept: dict[str, Any] = {}
    if action.decisions:
        decision, remind_in = parameters.get("decision"), parameters.get("remind_in")
        if decision not in action.decisions:
            errors["decision"] = [f"One of {', '.join(action.decisions)}."]
        kept["decision"] = decision
        if remind_in is not None:
            kept["remind_in"] = remind_in
        wants = decision == "later"
        fits = isinstance(remind_in, int) and settling.MIN_REMIND <= remind_in <= settling.MAX_REMIND
        if wants and not fits:
            errors["remind_in"] = [f"Seconds, from {settling.MIN_REMIND} to {settling.MAX_REMIND} (90 days)."]
        elif not wants and remind_in is not None:
            errors["remind_in"] = ["Only the decision “later” takes a time: leave it out."]
    if errors:
        raise InvalidSubmission(errors)
    return kept


def _by_ids(action: Action, ids: Collection[uuid.UUID]) -> Rows:
    """The rows of these ids, which must all be settleable and of one evidence group."""
    wanted = set(ids)
    if len(wanted) > MAX_IDS:
        raise InvalidSubmission({"ids": [f"At most {MAX_IDS:,}: use a filter for more."]})
    rows = action.find({}).filter(pk__in=wanted)
    groups = list(rows.order_by().values_list(*action.group).distinct()[:2])
    if len(groups) > 1:
        raise InvalidSubmission(
            {"ids": [f"These differ in {' or '.join(action.group)}: settle one evidence group at a time."]}
        )
    missing = wanted - set(rows.values_list("pk", flat=True))
    if missing:
        raise InvalidSubmission({"ids": [f"{len(missing)} of these are not in a state in which this can be done."]})
    return rows


def _described(action: Action, ids: Collection[uuid.UUID] | None, chosen: Filter | None) -> str:
    if ids is not None:
        return f"{len(set(ids)):,} chosen one by one"
    return ", ".join(f"{name}: {value}" for name, value in sorted((chosen or {}).items()))


def _only(chosen: Filter, names: Collection[str]) -> None:
    unknown = sorted(set(chosen) - set(names))
    if unknown:
        raise InvalidSubmission({"filter": [f"Unknown: {', '.join(unknown)}. Known: {', '.join(sorted(names))}."]})


def _key(prefix: str, name: str, chosen: Filter) -> uuid.UUID:
    text = chosen.get(name)
    try:
        return read_public_id(prefix, text if isinstance(text, str) else "")
    except BadPublicId as error:
        raise InvalidSubmission({"filter": [f"{name}: an id of the form {prefix}_… is needed."]}) from error


def _in_doubt(chosen: Filter) -> QuerySet[Delivery]:
    _only(chosen, ("trigger", "doubt"))
    found = Delivery.objects.filter(state=DeliveryState.IN_DOUBT)
    if not chosen:
        return found
    if not chosen.get("doubt"):
        raise InvalidSubmission({"filter": ["doubt: name one reason, so that all are of one evidence group."]})
    return found.filter(trigger=_key("trg", "trigger", chosen), doubt=str(chosen["doubt"])[:40].replace("\x00", ""))


def _failed(chosen: Filter) -> QuerySet[Delivery]:
    _only(chosen, ("trigger",))
    found = Delivery.objects.filter(state=DeliveryState.FAILED)
    return found.filter(trigger=_key("trg", "trigger", chosen)) if chosen else found


def _messages_in_doubt(chosen: Filter) -> QuerySet[Message]:
    _only(chosen, ("pair", "cause"))
    found = Message.objects.filter(direction=Direction.OUT, state=MessageState.IN_DOUBT)
    if not chosen:
        return found
    if not chosen.get("cause"):
        raise InvalidSubmission({"filter": ["cause: name one, so that all are of one evidence group."]})
    return found.filter(pair=_key("pair", "pair", chosen), cause=str(chosen["cause"])[:60].replace("\x00", ""))


def _settle_delivery(key: uuid.UUID, parameters: Mapping[str, Any], actor: Actor, reason: str) -> object:
    return settling.delivery_settle(
        delivery_id=key,
        decision=parameters["decision"],
        remind_in=parameters.get("remind_in"),
        actor=actor,
        reason=reason,
    )


def _settle_message(key: uuid.UUID, parameters: Mapping[str, Any], actor: Actor, reason: str) -> object:
    return settling.message_settle(
        message_id=key,
        decision=parameters["decision"],
        remind_in=parameters.get("remind_in"),
        actor=actor,
        reason=reason,
    )


def _redeliver(key: uuid.UUID, parameters: Mapping[str, Any], actor: Actor, reason: str) -> object:
    return settling.delivery_settle(
        delivery_id=key, decision=settling.Decision.RESUBMIT.value, actor=actor, reason=reason
    )


ACTIONS: Mapping[str, Action] = {
    "settle_deliveries": Action(
        _in_doubt, ("trigger", "doubt"), tuple(one.value for one in settling.Decision), _settle_delivery
    ),
    "settle_messages": Action(
        _messages_in_doubt, ("pair", "cause"), tuple(one.value for one in settling.MessageDecision), _settle_message
    ),
    "redeliver_failed": Action(_failed, ("trigger",), (), _redeliver),
}
