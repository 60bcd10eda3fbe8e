"""What has left the store for the archive, what must not leave, and what the live watch counts."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q

from messaging.choices import Direction
from messaging.models.pair import Pair
from messaging.models.pipeline import PipelineRun
from messaging.report_choices import ArchiveState
from partners.models import Party
from rmhub.ids import public_id, uuid7


class RetentionPolicy(models.Model):
    """One row: when finished messages go to the archive, and when they leave the store. Days since a message ended."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    enabled = models.BooleanField("archive and purge daily", default=False)
    archive_after = models.PositiveIntegerField(
        "archive after, days", default=30, validators=[MinValueValidator(1), MaxValueValidator(3650)]
    )
    purge_after = models.PositiveIntegerField(
        "purge from the store after, days", default=90, validators=[MinValueValidator(1), MaxValueValidator(3650)]
    )
    keep_archive = models.PositiveIntegerField(
        "keep the archive, days", default=0, validators=[MaxValueValidator(36_500)], help_text="0 = for ever."
    )
    changed_by = models.CharField(max_length=150, blank=True, default="")
    changed_at = models.DateTimeField(null=True, blank=True)
    version = models.PositiveBigIntegerField(default=1)

    def __str__(self) -> str:
        return f"archive after {self.archive_after} days, purge after {self.purge_after}"


class LegalHold(models.Model):
    """Keeps messages in the store, whatever their age, until it is released. All criteria that are given must fit."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=120)
    reason = models.TextField()
    party = models.ForeignKey(Party, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    pair = models.ForeignKey(Pair, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    conversation_id = models.CharField("ConversationId", max_length=512, blank=True, default="")
    message_id = models.CharField("MessageId", max_length=512, blank=True, default="")
    range_from = models.DateTimeField(null=True, blank=True, help_text="Messages that entered from then on.")
    range_to = models.DateTimeField(null=True, blank=True, help_text="Messages that entered before then.")
    placed_by = models.CharField(max_length=150)
    placed_at = models.DateTimeField()
    released_by = models.CharField(max_length=150, blank=True, default="")
    released_at = models.DateTimeField(null=True, blank=True)
    release_reason = models.TextField(blank=True, default="")

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("released_at",), name="legal_hold_active", condition=Q(released_at=None)),)

    def __str__(self) -> str:
        return self.name

    @property
    def public_id(self) -> str:
        return public_id("hold", self.id)


class ArchiveFile(models.Model):
    """One Parquet file of the archive, verified against the store. `path` is relative to the archive's folder."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(PipelineRun, null=True, on_delete=models.SET_NULL, related_name="+")
    day = models.DateField(help_text="UTC day on which its messages ended.")
    path = models.CharField(max_length=255, unique=True)
    schema_version = models.PositiveSmallIntegerField()
    messages = models.BigIntegerField()
    payloads = models.BigIntegerField()
    payload_bytes = models.BigIntegerField()
    bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField()
    verified_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("day", "id")
        indexes = (models.Index(fields=("day",), name="archive_file_by_day"),)

    def __str__(self) -> str:
        return self.path


class ArchivedMessage(models.Model):
    """Where an archived message lies: what searches need, and no more. `id` is the message's own."""

    id = models.UUIDField(primary_key=True, editable=False)
    state = models.CharField(max_length=10, choices=ArchiveState)
    file = models.ForeignKey(ArchiveFile, on_delete=models.PROTECT, related_name="contents")
    row = models.BigIntegerField()
    message_id = models.CharField("MessageId", max_length=512)
    document_id = models.CharField(
        "document id", max_length=512, blank=True, default="", help_text="As its sender gave it. Empty: its MessageId."
    )
    conversation_id = models.CharField("ConversationId", max_length=512)
    direction = models.CharField(max_length=3, choices=Direction)
    message_state = models.CharField(max_length=12)
    pair = models.ForeignKey(Pair, on_delete=models.PROTECT, related_name="+", db_index=False)
    service = models.CharField(max_length=255)
    action = models.CharField(max_length=255)
    sequence_number = models.PositiveIntegerField(null=True, blank=True)
    size = models.PositiveBigIntegerField()
    created_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True, blank=True)
    purged_at = models.DateTimeField(null=True, blank=True)
    restored_at = models.DateTimeField(null=True, blank=True)
    restored_by = models.CharField(max_length=150, blank=True, default="")
    contents = models.JSONField(default=list, help_text="SHA-256 of its payloads, in their order.")
    written = models.BigIntegerField(default=0, help_text="The highest transaction of the rows that were copied.")
    entries = models.PositiveIntegerField(
        default=0, help_text="How many rows were copied; 0 = it changed since, and is copied anew."
    )

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("completed_at", "id"), name="archived_in_store", condition=~Q(state="archived")),
            models.Index(fields=("message_id",), name="archived_by_message_id"),
            models.Index(fields=("conversation_id",), name="archived_by_conversation"),
            models.Index(fields=("document_id",), name="archived_by_document", condition=~Q(document_id="")),
            models.Index(F("pair"), F("id").desc(), name="archived_by_pair"),
        )

    def __str__(self) -> str:
        return self.message_id

    @property
    def identifies(self) -> str:
        """The id by which applications know its document."""
        return self.document_id or self.message_id

    @property
    def public_id(self) -> str:
        return public_id("msg", self.id)


class LiveState(models.Model):
    """One row a streaming query: the last batch that was applied, so that one that comes again changes nothing."""

    query = models.CharField(max_length=40, primary_key=True)
    epoch = models.UUIDField(help_text="The checkpoint that the batch numbers belong to.")
    batch = models.BigIntegerField()
    through = models.BigIntegerField(default=0, help_text="Transactions below this number are counted.")
    applied_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.query} {self.batch}"


class LiveMinute(models.Model):
    """What happened on a pair within a minute, as the live watch counted it. Kept for some days (usual range)."""

    id = models.BigAutoField(primary_key=True)
    pair = models.ForeignKey(Pair, on_delete=models.CASCADE, related_name="+", db_index=False)
    minute = models.DateTimeField()
    accepted = models.PositiveIntegerField(default=0, help_text="Submitted.")
    delivered = models.PositiveIntegerField(default=0, help_text="Acknowledged, or sent without wishing for it.")
    failed = models.PositiveIntegerField(default=0)
    retried = models.PositiveIntegerField(default=0)
    received = models.PositiveIntegerField(default=0)
    duplicates = models.PositiveIntegerField(default=0)
    rejected = models.PositiveIntegerField(default=0)
    suspensions = models.PositiveIntegerField(default=0)
    acks = models.PositiveIntegerField(default=0, help_text="Acknowledgements whose latency is known.")
    ack_seconds = models.FloatField(default=0.0, help_text="Sum of their latencies.")
    ack_longest = models.FloatField(default=0.0)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("pair", "minute"), name="live_minute_unique"),)
        indexes = (models.Index(fields=("minute",), name="live_minute_by_time"),)

    def __str__(self) -> str:
        return f"{self.pair_id} {self.minute:%H:%M}"
