"""What must not be forgotten too early, and must be forgotten cheaply: document history and remembered requests.

What is in work lies in a small table of its own, which is never swept; what is done lies in daily partitions, which are
dropped whole. The partitions are made and dropped by `engine.forgetting`; the models are unmanaged (migration 0002).
"""

from __future__ import annotations

from django.db import models

from messaging.choices import RequestState
from messaging.models.delivery import Delivery
from messaging.models.message import Message
from messaging.models.trigger import Trigger
from partners.models import Party
from rmhub.ids import uuid7


class DocumentStarted(models.Model):
    """A document that a trigger's service has begun with, and whose end is not known (spec 4: "processing started").

    Leaves this table to `DocumentCompleted`, by a deliberate release, or by a person's decision; never by age.
    """

    id = models.BigAutoField(primary_key=True)
    trigger = models.ForeignKey(Trigger, on_delete=models.PROTECT, related_name="+", db_index=False)
    sender = models.ForeignKey(Party, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False)
    document_id = models.CharField(max_length=96)
    delivery = models.ForeignKey(
        Delivery, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    worker = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("trigger", "sender", "document_id"), name="document_started_unique"),
        )
        indexes = (models.Index(fields=("started_at",), name="document_started_age"),)

    def __str__(self) -> str:
        return self.document_id


class DocumentCompleted(models.Model):
    """A document that a trigger has processed, with success or not. Partitioned by `forget_on` (UTC day), dropped after
    it. `outcome`: "success", "error", or "operator".
    """

    pk = models.CompositePrimaryKey("trigger_id", "sender_id", "document_id", "forget_on")
    trigger = models.ForeignKey(Trigger, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False)
    sender = models.ForeignKey(Party, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False)
    document_id = models.CharField(max_length=96)
    forget_on = models.DateField()
    delivery_id = models.UUIDField()
    outcome = models.CharField(max_length=10)
    completed_at = models.DateTimeField()

    class Meta:
        managed = False
        db_table = "messaging_documentcompleted"

    def __str__(self) -> str:
        return self.document_id


class RememberedRequest(models.Model):
    """A request of the repeatable profile (spec 2) and what it was answered with; ids belong to their sender.

    Partitioned by `day`, the UTC day of `first_sent`: a day is dropped when no copy of its requests could be admitted.
    `content` is the SHA-256 fingerprint (32 bytes) of everything that a repeat must have in common with the first.
    """

    pk = models.CompositePrimaryKey("sender_id", "request_id", "day")
    sender = models.ForeignKey(Party, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False)
    request_id = models.CharField(max_length=96)
    day = models.DateField()
    first_sent = models.DateTimeField()
    content = models.BinaryField()
    state = models.CharField(max_length=10, choices=RequestState)
    message = models.ForeignKey(Message, null=True, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False)
    delivery_id = models.UUIDField(null=True)
    client_id = models.CharField(max_length=96, blank=True, default="")
    status = models.PositiveSmallIntegerField(null=True)
    headers = models.JSONField(null=True)
    body = models.BinaryField(null=True)

    class Meta:
        managed = False
        db_table = "messaging_rememberedrequest"

    def __str__(self) -> str:
        return self.request_id


class MemoryEpoch(models.Model):
    """One row: since when ids are remembered without a gap, and through when they were forgotten (spec 2).

    `epoch` and `heartbeat` stand in a file of the store folder too; when they do not fit, memory was lost.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    epoch = models.UUIDField(default=uuid7)
    memory_start = models.DateTimeField()
    forgotten_through = models.DateTimeField()
    heartbeat = models.DateTimeField()
    reason = models.CharField(max_length=120, blank=True, default="")

    def __str__(self) -> str:
        return str(self.memory_start)
