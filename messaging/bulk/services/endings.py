"""How bulk jobs end: what is told of one, and what a loss of memory (`engine.memory`) leaves of those under way."""

from __future__ import annotations

from datetime import datetime

from messaging.choices import ItemState, JobState
from messaging.journal import events
from messaging.models import BulkJob, BulkJobItem, Event

OPEN = (JobState.QUEUED, JobState.RUNNING)
ENDED = (JobState.FINISHED, JobState.CANCELLED)
_UNKNOWN = "The database was restored: this may have been done since the backup. Look first, then try the refused ones."


def ended(job: BulkJob, now: datetime) -> Event:
    """What others are told of a job that has ended."""
    data = {
        "job": job.public_id,
        "action": job.action,
        "state": job.state,
        "actor": job.actor,
        "total": job.total,
        "done": job.done,
        "refused": job.refused,
    }
    return events.event("bulk_operation.finished", now, data=data)


def refuse_what_waits(now: datetime) -> None:
    """After a loss of memory: what open jobs have not done in this database may have been done all the same.

    It is refused, each item with a sentence, and the jobs end; a person who has looked plans the refused ones anew.
    Plans that nobody has executed are too old. Call inside a transaction that has locked no pairs yet.
    """
    BulkJob.objects.filter(state=JobState.PLANNED).update(expires_at=now)
    open_jobs = list(BulkJob.objects.filter(state__in=OPEN).order_by("pk").values_list("pk", flat=True))
    written = []
    for key in open_jobs:
        # Items before the job, like its worker: it locks an item, and counts it on the job's row afterwards.
        waiting = BulkJobItem.objects.filter(job=key, state=ItemState.PENDING)
        refused = waiting.update(state=ItemState.REFUSED, detail=_UNKNOWN)
        job = BulkJob.objects.select_for_update().get(pk=key)
        job.refused += refused
        job.state, job.due_at, job.finished_at = JobState.FINISHED, None, now
        job.save(update_fields=["refused", "state", "due_at", "finished_at"])
        written.append(ended(job, now))
    events.write(written)
