"""Bulk jobs: one action of a person over many objects, with progress and a result for each."""

from __future__ import annotations

from django.db import models

from messaging.choices import ItemState, JobState
from rmhub.ids import public_id, uuid7


class BulkJob(models.Model):
    """What a person asked to be done to many objects.

    `action` names an entry of `bulk.services.jobs.ACTIONS`; `what` says in words which objects. Counts are kept as
    items are done.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
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
        ordering = ("-id",)
        indexes = (models.Index(fields=("due_at",), name="job_due", condition=models.Q(due_at__isnull=False)),)

    def __str__(self) -> str:
        return f"{self.action}: {self.what}"

    @property
    def public_id(self) -> str:
        return public_id("job", self.id)


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
