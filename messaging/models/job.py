"""Bulk jobs: one action of a person over many objects; and the worker processes that are there."""

from __future__ import annotations

from django.db import models

from messaging.choices import ItemState, JobState
from messaging.models.base import Identified
from rmhub.language import gettext_lazy


class BulkJob(Identified):
    """What a person asked to be done to many objects.

    `action` names an entry of `bulk.services.jobs.ACTIONS`; `what` says in words which objects. Counts are kept as
    items are done.
    """

    PREFIX = "job"

    action = models.CharField(max_length=40)
    parameters = models.JSONField(default=dict)
    what = models.CharField(max_length=255)
    state = models.CharField(max_length=10, choices=JobState, default=JobState.QUEUED)
    actor = models.CharField(max_length=150)
    interface = models.CharField(max_length=10)
    address = models.CharField(max_length=64, blank=True, default="")
    reason = models.TextField()
    total = models.PositiveIntegerField(default=0)
    done = models.PositiveIntegerField(default=0)
    refused = models.PositiveIntegerField(default=0)
    plan = models.JSONField(
        default=dict, blank=True, help_text="Planned: filter or ids, groups with their counts, and a sample."
    )
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Planned: not executed after that.")
    due_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = gettext_lazy("job")
        ordering = ("-id",)
        indexes = (models.Index(fields=("due_at",), name="job_due", condition=models.Q(due_at__isnull=False)),)

    def __str__(self) -> str:
        return f"{self.action}: {self.what}"


class BulkJobItem(models.Model):
    """One object of a job, and what came of it."""

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(BulkJob, on_delete=models.CASCADE, related_name="items", db_index=False)
    object_id = models.UUIDField()
    not_before = models.DateTimeField(null=True, blank=True, help_text="Staggered start: its turn is not before then.")
    state = models.CharField(max_length=10, choices=ItemState, default=ItemState.PENDING)
    detail = models.CharField(max_length=255, blank=True, default="")

    class Meta:
        ordering = ("id",)
        indexes = (
            models.Index(fields=("job", "id"), name="jobitem_by_job"),
            models.Index(fields=("job", "id"), name="jobitem_pending", condition=models.Q(state="pending")),
        )

    def __str__(self) -> str:
        return f"{self.job_id} {self.object_id}"


# A row that was not renewed for so many seconds has a gap: its worker could not reach the database, or did not run.
GAP = 5.0


class Worker(models.Model):
    """A worker process that is there, or was a moment ago. `engine.leases` writes and reads it, by the database's
    clock. One that has ended, or is taken for dead, has no row.
    """

    number = models.PositiveIntegerField(primary_key=True, help_text="What its claims carry.")
    name = models.CharField(max_length=200, help_text="The machine's name and the number of the process there.")
    node = models.CharField(max_length=120, help_text="Processes with the same node see each other.")
    pid = models.PositiveIntegerField()
    started = models.BigIntegerField(help_text="With node and pid it tells the process from all others.")
    held_since = models.DateTimeField(help_text="Since when its presence is unbroken.")
    renewed_at = models.DateTimeField(help_text="When it last showed that it lives.")

    def __str__(self) -> str:
        return self.name
