"""Bulk jobs as people look at them: how far they are, and what came of each object."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from messaging.choices import ItemState, JobState
from messaging.exceptions import NotFound
from messaging.models import BulkJob, BulkJobItem, Delivery, Message
from rmhub.ids import public_id, read_public_id

OPEN = (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is. `left` is an estimate from its pace so far, in seconds; None while there is none."""

    job: BulkJob
    ended: int
    percent: int
    left: float | None

    @property
    def open(self) -> bool:
        return self.job.state in OPEN


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One object of a job with its name and page (view and reference); no name when it is gone."""

    item: BulkJobItem
    name: str
    page: str
    reference: str


def jobs(*, states: tuple[str, ...] = ()) -> QuerySet[BulkJob]:
    """Jobs. Not ordered; pages by ("-id",)."""
    found = BulkJob.objects.all()
    return found.filter(state__in=states) if states else found


def job(reference: str | uuid.UUID) -> BulkJob:
    """One job, by id (`job_...`). Raises NotFound, BadPublicId."""
    key = read_public_id("job", reference) if isinstance(reference, str) else reference
    found = BulkJob.objects.filter(pk=key).first()
    if found is None:
        raise NotFound(f"There is no job {public_id('job', key)}.")
    return found


def items(job_id: uuid.UUID, *, states: tuple[str, ...] = ()) -> QuerySet[BulkJobItem]:
    """A job's objects. Not ordered; pages by ("id",)."""
    found = BulkJobItem.objects.filter(job=job_id)
    return found.filter(state__in=states) if states else found


def progress(job: BulkJob, now: datetime) -> Progress:
    """Done and refused of all, and about how long the rest takes."""
    ended = job.done + job.refused
    spent = (now - job.created_at) / timedelta(seconds=1)
    left = None
    if job.state == JobState.RUNNING and ended >= 5 and spent > 0:
        left = spent / ended * (job.total - ended)
    return Progress(job, ended, 100 * ended // job.total if job.total else 100, left)


def item_rows(job: BulkJob, rows: list[BulkJobItem]) -> list[ItemRow]:
    """Rows with the names of their objects; one query for all of them."""
    keys = [row.object_id for row in rows]
    if job.action == "settle_messages":
        named = dict(Message.objects.filter(pk__in=keys).values_list("pk", "message_id"))
        return [ItemRow(row, named.get(row.object_id, ""), "message", public_id("msg", row.object_id)) for row in rows]
    found = Delivery.objects.filter(pk__in=keys).values_list("pk", "message__message_id")
    names = dict(found)
    return [ItemRow(row, names.get(row.object_id, ""), "delivery", public_id("del", row.object_id)) for row in rows]


_ACTIONS: Mapping[tuple[str, str], str] = {
    ("settle_deliveries", "duplicate"): "Mark as processed already",
    ("settle_deliveries", "resubmit"): "Resubmit",
    ("settle_deliveries", "later"): "Look at later",
    ("settle_deliveries", "ask"): "Ask the resolver again",
    ("settle_messages", "delivered"): "Mark as delivered",
    ("settle_messages", "resubmit"): "Send as new messages",
    ("settle_messages", "later"): "Look at later",
}


def title(job: BulkJob) -> str:
    """What a job does, in words."""
    if job.action == "redeliver_failed":
        return "Resubmit what failed"
    decision = str(job.parameters.get("decision", ""))
    return _ACTIONS.get((job.action, decision), job.action.replace("_", " ").capitalize())


def count_open() -> int:
    """Jobs that are not done."""
    return BulkJob.objects.filter(due_at__isnull=False).count()


def refused(job_id: uuid.UUID) -> QuerySet[BulkJobItem]:
    """What could not be done. Pages by ("id",)."""
    return items(job_id, states=(ItemState.REFUSED,))
