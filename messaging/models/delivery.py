"""Deliveries and joins; document history and remembered requests, which must not be forgotten too early.

What is in work lies in a small table of its own, which is never swept; what is done lies in daily partitions, which are
dropped whole. The partitions are made and dropped by `engine.forgetting`; their models are unmanaged (migration 0002).
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from messaging.choices import DeliveryState, DocumentIdSource, JoinState, RequestState
from messaging.models.base import Identified, written_by, written_index
from messaging.models.message import Message
from messaging.models.pair import Pair
from messaging.models.trigger import Trigger
from messaging.protocol.processing import Status
from partners.models import Party
from rmhub.ids import uuid7

STATUSES = [(value.value, value.value) for value in Status]
OPEN_STATES = (DeliveryState.WAITING.value, DeliveryState.RUNNING.value)


class Join(models.Model):
    """Documents of one activation (conversation) that a trigger processes together (spec 4; protocols 4.6)."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    trigger = models.ForeignKey(Trigger, on_delete=models.PROTECT, related_name="joins")
    activation = models.CharField("ConversationId", max_length=512)
    state = models.CharField(max_length=10, choices=JoinState, default=JoinState.OPEN)
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=("trigger", "activation"), condition=Q(state="open"), name="join_one_open_per_activation"
            ),
        )
        indexes = (
            models.Index(fields=("expires_at",), name="join_due", condition=Q(state="open")),
            models.Index(fields=("trigger", "activation", "expires_at"), name="join_by_activation"),
        )

    def __str__(self) -> str:
        return f"{self.trigger_id} {self.activation}"


class Delivery(Identified):
    """One document on its way to one trigger: NEW, DUPLICATE or IN DOUBT, with the evidence of each step.

    `document_id` is the key of the document history (spec 4's UUID; empty = the document has no usable one), and
    `document_id_from` says where it was found.
    `redelivery_count`: how often it was handed over before, -1 = cannot be known. `position` is the message's place in
    its pair: the order of ordered triggers. A delivery with `join` is the firing of that join; `part_of` is a document
    that waits in one. `verdict` is `messaging.protocol.processing.Status`.
    """

    PREFIX = "del"

    trigger = models.ForeignKey(
        Trigger, on_delete=models.PROTECT, related_name="deliveries", db_index=False, db_constraint=False
    )
    message = models.ForeignKey(
        Message, on_delete=models.CASCADE, related_name="deliveries", db_index=False, db_constraint=False
    )
    pair = models.ForeignKey(Pair, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False)
    sender = models.ForeignKey(Party, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False)
    position = models.BigIntegerField()
    document_id = models.CharField(max_length=96, blank=True, default="")
    document_id_from = models.CharField(
        max_length=10, choices=DocumentIdSource, default=DocumentIdSource.MESSAGE, help_text="Where that id was found."
    )

    state = models.CharField(max_length=10, choices=DeliveryState, default=DeliveryState.WAITING)
    verdict = models.CharField(max_length=10, choices=STATUSES, blank=True, default="")
    evidence = models.JSONField(default=list, blank=True)
    doubt = models.CharField("why it is in doubt", max_length=40, blank=True, default="")
    redelivery_count = models.IntegerField(default=0)
    memory_lost = models.BooleanField(
        default=False, help_text="It may have been processed in the time that a loss of memory took away."
    )
    executions = models.PositiveIntegerField(default=0)
    retries = models.PositiveIntegerField(default=0, help_text="Used since it was last handed over.")
    due_at = models.DateTimeField(null=True, blank=True, help_text="Waiting: not before. Running: end of the lease.")
    remind_at = models.DateTimeField(null=True, blank=True, help_text="In doubt: asked to be shown again then.")
    worker = models.PositiveIntegerField(default=0)
    taken_by = models.CharField(max_length=150, blank=True, default="", help_text="Pull queue: who leased it.")
    claim = models.UUIDField(null=True, blank=True, help_text="The hand-over whose outcome counts.")
    attended = models.BooleanField(default=False, help_text="A caller waits for its outcome (synchronous exchange).")

    resubmission_of = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="resubmissions",
        db_index=False,
        db_constraint=False,
    )
    join = models.ForeignKey(
        Join,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="firings",
        db_index=False,
        db_constraint=False,
    )
    part_of = models.ForeignKey(
        Join, null=True, blank=True, on_delete=models.PROTECT, related_name="parts", db_index=False, db_constraint=False
    )
    decision = models.CharField(max_length=20, blank=True, default="", help_text="How a person settled it.")
    decided_by = models.CharField(max_length=150, blank=True, default="")
    decided_at = models.DateTimeField(null=True, blank=True)

    http_status = models.PositiveSmallIntegerField(null=True, blank=True)
    cause = models.CharField(max_length=60, blank=True, default="")
    cause_detail = models.TextField(blank=True, default="")
    answer = models.BinaryField(null=True, blank=True, help_text="The service's last answer, cut at 8 KiB.")
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)
    version = models.PositiveBigIntegerField(default=1)
    xid = written_by()

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "deliveries"
        constraints = (
            models.UniqueConstraint(
                fields=("trigger", "message"),
                condition=Q(resubmission_of__isnull=True, join__isnull=True),
                name="delivery_once_per_document",
            ),
            models.UniqueConstraint(
                fields=("join",),
                condition=Q(join__isnull=False, resubmission_of__isnull=True),
                name="delivery_one_firing",
            ),
            models.UniqueConstraint(
                fields=("resubmission_of",),
                condition=Q(resubmission_of__isnull=False),
                name="delivery_resubmitted_once",
            ),
        )
        indexes = (
            written_index("delivery_written"),
            # Heads of the queues of ordered triggers: one probe a pair (loose scan), however long they are.
            models.Index(
                fields=("trigger", "pair", "position", "id"),
                name="delivery_by_pair",
                condition=Q(state__in=("waiting", "running")),
            ),
            # By id, too: a trigger that is resumed makes all that waits due at one moment.
            models.Index(fields=("trigger", "due_at", "id"), name="delivery_due", condition=Q(state="waiting")),
            models.Index(fields=("trigger", "due_at"), name="delivery_leased", condition=Q(state="running")),
            models.Index(fields=("message",), name="delivery_by_message"),
            models.Index(F("trigger"), F("id").desc(), name="delivery_by_trigger"),
            models.Index(
                F("state"), F("id").desc(), name="delivery_needs_people", condition=Q(state__in=("in_doubt", "failed"))
            ),
            models.Index(fields=("trigger", "doubt"), name="delivery_by_doubt", condition=Q(state="in_doubt")),
            # Ids that stand in documents alone; all others are those of messages, and found by these.
            models.Index(
                fields=("document_id",),
                name="delivery_by_document",
                opclasses=("varchar_pattern_ops",),
                condition=Q(document_id_from="document"),
            ),
            models.Index(fields=("part_of",), name="delivery_parts", condition=Q(part_of__isnull=False)),
        )

    def __str__(self) -> str:
        return self.public_id


class DocumentStarted(models.Model):
    """A document that a trigger's service has begun with, and whose end is not known (spec 4: "processing started").

    Leaves this table to `DocumentCompleted`, by a deliberate release, or by a person's decision; never by age.
    """

    id = models.BigAutoField(primary_key=True)
    trigger = models.ForeignKey(
        Trigger, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
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
