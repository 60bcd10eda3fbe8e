"""Runs of the data pipeline: asked for, queued by schedule, claimed by one process, followed, cancelled, ended.

Nothing here knows Spark. A process that works on a run holds its claim and renews its lease; whoever lost the claim can
neither report progress nor publish. One run is worked on at a time: each may use all the memory that it is given, and a
report that follows an extract reads what that extract wrote.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from messaging.choices import Interface
from messaging.exceptions import InvalidSubmission, WrongState
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import Event, PipelineRun, RetentionPolicy
from messaging.models.base import existing
from messaging.report_choices import OPEN, PipelineJob, RunState
from messaging.reports import catalogue
from rmhub import clock
from rmhub.language import inside

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)
SCHEDULE = Actor("schedule", Interface.SYSTEM)

_LOCK = 0x524D5052  # first key of the advisory locks: "runs of the pipeline"
_CLAIMING, _REQUESTING = 1, 2
DIED = (
    "The process that worked on it is gone: it gave no sign of life for 60 seconds. Was it killed, or is the machine"
    " out of memory? RMHUB_SPARK_MEMORY bounds Spark's heap."
)
REPORTS = tuple(job for job in PipelineJob if job in catalogue.REPORTS and catalogue.REPORTS[job].of_lake)
ALL = (PipelineJob.EXTRACT, *REPORTS)
# A range means something to these only.
RANGED = frozenset((*REPORTS, PipelineJob.RECONCILE, PipelineJob.EXPORT))


class ClaimLost(WrongState):
    """This process may not go on with the run: somebody cancelled it, or its lease ended."""


def check_request(
    *,
    job: str,
    parameters: Mapping[str, Any] | None = None,
    range_from: datetime | None = None,
    range_to: datetime | None = None,
    scope: str = "",
) -> dict[str, Any]:
    """The parameters as a run of this job gets them. Raises InvalidSubmission by field."""
    errors: dict[str, list[str]] = {}
    if job not in PipelineJob.values:
        raise InvalidSubmission({"job": [_("One of {values}.").format(values=", ".join(PipelineJob.values))]})
    for name, value in (("from", range_from), ("to", range_to)):
        if value is not None and job not in RANGED:
            errors[name] = [_("{job} takes no range: leave it out.").format(job=PipelineJob(job).label)]
        elif value is not None and value.tzinfo is None:
            errors[name] = [_("A time zone is needed, such as Z for UTC.")]
    if not errors and range_from is not None and range_to is not None and range_from >= range_to:
        errors["to"] = [_("It must be later than the beginning of the range.")]
    kept = dict(parameters or {})
    try:
        json.dumps(kept)
    except (TypeError, ValueError):
        errors["parameters"] = [_("Only what JSON can hold.")]
    if job in REPORTS:
        unknown = sorted(set(kept) - {"extract"})
        if unknown:
            errors["parameters"] = [_("Unknown: {names}. Known: extract.").format(names=", ".join(unknown))]
        elif not isinstance(kept.setdefault("extract", True), bool):
            errors["parameters"] = [_("extract: true or false.")]
    elif job in (PipelineJob.EXTRACT, PipelineJob.COMPACT) and kept:
        errors["parameters"] = [_("{job} takes none.").format(job=PipelineJob(job).label)]
    if job == PipelineJob.RECONCILE and not scope:
        errors["scope"] = [_("The partner's log that is compared (plog_…).")]
    if len(scope) > 80 or "\x00" in scope:
        errors["scope"] = [_("At most 80 characters.")]
    if errors:
        raise InvalidSubmission(errors)
    return kept


def run_request(
    *,
    job: str,
    actor: Actor,
    parameters: Mapping[str, Any] | None = None,
    range_from: datetime | None = None,
    range_to: datetime | None = None,
    scope: str = "",
    reason: str = "",
    due_at: datetime | None = None,
) -> PipelineRun:
    """Queues a run. A report's parameter `extract` (true unless given): whether the lake is brought up to date first.

    Raises InvalidSubmission by field, WrongState when the same job (and scope) waits or runs already.
    """
    kept = check_request(job=job, parameters=parameters, range_from=range_from, range_to=range_to, scope=scope)
    with transaction.atomic():
        _lock(_REQUESTING)
        open_one = _open_runs(job, scope).first()
        if open_one is not None:
            said = (
                _("{job} is running already ({run}): wait for its end, or cancel it.")
                if open_one.state == RunState.RUNNING
                else _("{job} is waiting already ({run}): wait for its end, or cancel it.")
            )
            raise WrongState(said.format(job=PipelineJob(job).label, run=open_one.public_id), state=open_one.state)
        return _queue(job, actor, kept, range_from, range_to, scope, reason, due_at)


def run_all_request(
    *,
    actor: Actor,
    range_from: datetime | None = None,
    range_to: datetime | None = None,
    reason: str = "",
    due_at: datetime | None = None,
    archive: bool = False,
    schedule: str = "",
) -> list[PipelineRun]:
    """Queues the extract and every report after it, in that order; with `archive` also archive and retention.

    Jobs that wait or run already are left as they are. Raises InvalidSubmission for a bad range, WrongState when there
    is nothing to queue.
    """
    jobs = [*ALL, *([PipelineJob.ARCHIVE] if archive else [])]
    runs = []
    with transaction.atomic():
        _lock(_REQUESTING)
        for job in jobs:
            begin, end = (range_from, range_to) if job in RANGED else (None, None)
            parameters = {"extract": False} if job in REPORTS else {}
            kept = check_request(job=job, parameters=parameters, range_from=begin, range_to=end)
            if schedule:
                kept["schedule"] = schedule
            if not _open_runs(job, "").exists():
                runs.append(_queue(job, actor, kept, begin, end, "", reason, due_at))
        if not runs:
            raise WrongState(_("All jobs wait or run already."), state=RunState.QUEUED)
    return runs


def run_cancel(*, run_id: uuid.UUID, actor: Actor, reason: str = "") -> PipelineRun:
    """A waiting run ends at once; a running one is told to stop, and from now on it cannot publish.

    Raises NotFound, WrongState when it has ended.
    """
    with transaction.atomic():
        run = existing(PipelineRun.objects.select_for_update(), run_id)
        if run.state not in OPEN:
            said = _("This run has ended: {state}.").format(state=inside(run.get_state_display()))
            raise WrongState(said, state=run.state)
        before: dict[str, object] = {"state": run.state}
        if run.state == RunState.QUEUED:
            _end(run, RunState.CANCELLED)
        elif not run.cancel_requested:
            run.cancel_requested = True
            run.save(update_fields=["cancel_requested"])
        after: dict[str, object] = {"state": run.state, "cancel_requested": run.cancel_requested}
        audit.record(actor, "pipeline.cancel", run, reason=reason, before=before, after=after)
    return run


def claim_next(*, worker: str) -> PipelineRun | None:
    """Claims the run that is due longest, unless one is being worked on. `worker` names the process, for people."""
    return _claim(worker, None)


def claim_run(run_id: uuid.UUID, *, worker: str) -> PipelineRun | None:
    """Claims this run, whenever it is due; None while another one is worked on, or when it waits no more."""
    return _claim(worker, run_id)


def hold(run: PipelineRun) -> bool:
    """Keeps a waiting run for whoever asked for it with `due_at` in the future; False when it waits no more."""
    return bool(PipelineRun.objects.filter(pk=run.pk, state=RunState.QUEUED).update(due_at=clock.now() + LEASE))


def withdraw(run: PipelineRun) -> bool:
    """Ends a run that whoever asked for it does not want any more; False when it waits no more."""
    waiting = PipelineRun.objects.filter(pk=run.pk, state=RunState.QUEUED)
    return bool(waiting.update(state=RunState.CANCELLED, due_at=None, finished_at=clock.now()))


def owned(run_id: uuid.UUID, claim: uuid.UUID) -> PipelineRun:
    """The run, for the process that was started with its claim. Raises ClaimLost."""
    run = PipelineRun.objects.filter(pk=run_id, claim=claim, state=RunState.RUNNING).first()
    if run is None:
        raise ClaimLost("This run is not ours any more.", state="")
    return run


def heartbeat(run: PipelineRun, step: str, done: int = 0, total: int = 0) -> bool:
    """Renews the lease and shows the progress. False: cancelled, or lost; stop, and publish nothing."""
    mine = PipelineRun.objects.filter(pk=run.pk, claim=run.claim, state=RunState.RUNNING, cancel_requested=False)
    return bool(mine.update(due_at=clock.now() + LEASE, step=step[:120], done=max(0, done), total=max(0, total)))


def lock_for_end(run: PipelineRun) -> PipelineRun:
    """The run's row, locked (call inside a transaction). Raises ClaimLost when this process may not end it well."""
    row = PipelineRun.objects.select_for_update().get(pk=run.pk)
    if row.state != RunState.RUNNING or row.claim != run.claim:
        raise ClaimLost("This run is not ours any more: its lease ended. Nothing was published.", state=row.state)
    if row.cancel_requested:
        raise ClaimLost("This run was cancelled. Nothing was published.", state=row.state)
    return row


def run_succeed(
    run: PipelineRun,
    *,
    rows: int | None = None,
    data_as_of: datetime | None = None,
    facts: Mapping[str, Any] | None = None,
    artifacts: list[dict[str, Any]] | None = None,
) -> PipelineRun:
    """Ends a run that has done what it was asked to. `publishing.publish` calls it in its own transaction.

    Raises ClaimLost.
    """
    with transaction.atomic():
        row = lock_for_end(run)
        row.rows = rows
        row.data_as_of = data_as_of or row.data_as_of
        row.facts = {**row.facts, **(facts or {})}
        row.artifacts = artifacts or row.artifacts
        return _end(row, RunState.SUCCEEDED)


def run_fail(run: PipelineRun, error: str, detail: str = "", facts: Mapping[str, Any] | None = None) -> bool:
    """Ends a run with a sentence for people. One that was cancelled is cancelled. False when it is not ours."""
    with transaction.atomic():
        row = PipelineRun.objects.select_for_update().get(pk=run.pk)
        if row.state != RunState.RUNNING or row.claim != run.claim:
            return False
        row.facts = {**row.facts, **(facts or {})}
        if row.cancel_requested:
            _end(row, RunState.CANCELLED)
            return True
        row.error, row.error_detail = error, detail[-20_000:].replace("\x00", "")
        _end(row, RunState.FAILED)
    log.warning("pipeline run failed", extra={"action": "pipeline_failed", "run": run.public_id, "error": error[:200]})
    return True


def run_cancelled(run: PipelineRun) -> bool:
    """Ends a run of ours that was stopped (Ctrl-C, or told so). False when it is not ours any more."""
    with transaction.atomic():
        row = PipelineRun.objects.select_for_update().get(pk=run.pk)
        if row.state != RunState.RUNNING or row.claim != run.claim:
            return False
        _end(row, RunState.CANCELLED)
    return True


def fail_lost() -> int:
    """Ends runs whose lease ended; a scheduled one is queued again, once. Returns how many there were."""
    now = clock.now()
    count = 0
    with transaction.atomic():
        # Locked ones are just being ended by their process.
        rows = PipelineRun.objects.filter(state=RunState.RUNNING, due_at__lt=now).select_for_update(skip_locked=True)
        for run in rows:
            count += 1
            if run.cancel_requested:
                _end(run, RunState.CANCELLED)
                continue
            run.error = DIED
            _end(run, RunState.FAILED)
            requeue_scheduled(run)
    return count


def requeue_scheduled(run: PipelineRun) -> PipelineRun | None:
    """A scheduled run whose process died goes again, once; None for all others."""
    if (
        run.interface != Interface.SYSTEM
        or run.parameters.get("again_after")
        or _open_runs(run.job, run.scope).exists()
    ):
        return None
    kept = {**run.parameters, "again_after": run.public_id}
    return _queue(run.job, SCHEDULE, kept, run.range_from, run.range_to, run.scope, run.reason, None)


def schedule_due() -> list[PipelineRun]:
    """Queues what the settings ask for: all jobs once a day, and extracts in between. Safe with several schedulers.

    A hub that was down at the hour does it when it is back, on the same day (UTC). Nothing is queued as long as nothing
    has happened before the hour.
    """
    now = clock.now()
    queued: list[PipelineRun] = []
    with transaction.atomic():
        _lock(_REQUESTING)
        hour = daily_at()
        if hour is not None:
            due = datetime.combine(now.date(), hour, UTC)
            name = f"daily {now:%Y-%m-%d}"
            if (
                now >= due
                and not PipelineRun.objects.filter(created_at__gte=due, parameters__schedule=name).exists()
                and _anything_before(due)
            ):
                policy = RetentionPolicy.objects.filter(pk=1).first()
                archive = policy is not None and policy.enabled
                try:
                    queued += run_all_request(actor=SCHEDULE, reason="Daily schedule", archive=archive, schedule=name)
                except WrongState:
                    log.info("daily runs not queued: all of them are waiting", extra={"action": "pipeline_busy"})
        minutes = settings.RMHUB_EXTRACT_MINUTES
        if minutes and not _open_runs(PipelineJob.EXTRACT, "").exists():
            since = now - timedelta(minutes=minutes)
            if not PipelineRun.objects.filter(job=PipelineJob.EXTRACT, created_at__gt=since).exists():
                kept: dict[str, Any] = {"schedule": f"every {minutes} minutes"}
                queued.append(_queue(PipelineJob.EXTRACT, SCHEDULE, kept, None, None, "", "Schedule", None))
    return queued


def daily_at() -> time | None:
    """The hour of the daily runs (UTC), from RMHUB_PIPELINE_DAILY_AT; None when they are off."""
    text = settings.RMHUB_PIPELINE_DAILY_AT
    return datetime.strptime(text, "%H:%M").time() if text else None


def _anything_before(instant: datetime) -> bool:
    first = Event.objects.order_by("id").values_list("at", flat=True).first()
    return first is not None and first < instant


def _open_runs(job: str, scope: str) -> Any:
    return PipelineRun.objects.filter(job=job, scope=scope, state__in=OPEN).order_by("id")


def _lock(number: int) -> None:
    """Until the end of the transaction; taken again by the same one it is free."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK, number])


def _queue(
    job: str,
    actor: Actor,
    parameters: Mapping[str, Any],
    range_from: datetime | None,
    range_to: datetime | None,
    scope: str,
    reason: str,
    due_at: datetime | None,
) -> PipelineRun:
    now = clock.now()
    run = PipelineRun.objects.create(
        job=job,
        scope=scope,
        parameters=dict(parameters),
        requested_by=actor.name[:150],
        interface=actor.interface,
        reason=reason.strip(),
        range_from=range_from,
        range_to=range_to,
        due_at=due_at or now,
        created_at=now,
    )
    if actor.interface != Interface.SYSTEM:
        after: dict[str, object] = {"job": job, "parameters": run.parameters}
        after |= {name: value.isoformat() for name, value in (("from", range_from), ("to", range_to)) if value}
        audit.record(actor, "pipeline.run", run, reason=reason.strip(), after=after)
    return run


def _claim(worker: str, run_id: uuid.UUID | None) -> PipelineRun | None:
    now = clock.now()
    waiting = PipelineRun.objects.filter(state=RunState.QUEUED)
    waiting = waiting.filter(pk=run_id) if run_id else waiting.filter(due_at__lte=now)
    lost = Q(state=RunState.RUNNING, due_at__lt=now)
    # Looked at every second by every pipeline process: without a lock as long as there is nothing to do.
    if not waiting.exists() and not PipelineRun.objects.filter(lost).exists():
        return None
    fail_lost()
    with transaction.atomic():
        _lock(_CLAIMING)
        if PipelineRun.objects.filter(state=RunState.RUNNING).exists():
            return None
        run: PipelineRun | None = waiting.order_by("due_at", "id").select_for_update(skip_locked=True).first()
        if run is None:
            return None
        run.state, run.claim, run.started_at, run.due_at = RunState.RUNNING, uuid.uuid4(), now, now + LEASE
        run.step, run.facts = "Starting", {**run.facts, "worker": worker}
        run.save(update_fields=["state", "claim", "started_at", "due_at", "step", "facts"])
    return run


def _end(run: PipelineRun, state: RunState) -> PipelineRun:
    run.state, run.due_at, run.finished_at = state, None, clock.now()
    run.step = "" if state == RunState.SUCCEEDED else run.step
    run.save()
    return run
