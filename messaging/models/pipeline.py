"""The data pipeline's books: runs, the lake, published results, partners' logs; the archive; the live watch's rows."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from django.contrib.postgres.indexes import GinIndex
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import connection, models
from django.db.models import F, Q

from messaging.anomalies import LOOK_BACK, WINDOW, Usual, Window, usual
from messaging.choices import Direction, Interface
from messaging.models.base import Identified
from messaging.models.pair import Pair
from messaging.report_choices import ArchiveState, LogState, PipelineJob, RunState
from partners.models import Agreement, Party
from rmhub.ids import public_id


class PipelineRun(Identified):
    """One run of one job: asked for, claimed by a pipeline process, ended. Its results are rows of the report tables.

    Results of runs of one job with different scopes stand beside each other.
    """

    PREFIX = "run"

    job = models.CharField(max_length=12, choices=PipelineJob)
    scope = models.CharField(
        max_length=80,
        blank=True,
        default="",
        help_text="What distinguishes runs of one job: the partner's log, or the partner.",
    )
    parameters = models.JSONField(default=dict)
    state = models.CharField(max_length=10, choices=RunState, default=RunState.QUEUED)
    requested_by = models.CharField(max_length=150)
    interface = models.CharField(max_length=10, choices=Interface)
    reason = models.TextField(blank=True, default="")

    range_from = models.DateTimeField(null=True, blank=True, help_text="Inclusive; empty = from the beginning.")
    range_to = models.DateTimeField(null=True, blank=True, help_text="Exclusive; empty = to the newest.")
    data_as_of = models.DateTimeField(
        null=True, blank=True, help_text="Everything committed before this is in the result."
    )

    claim = models.UUIDField(null=True, blank=True, help_text="Who works on it; only that process may publish.")
    due_at = models.DateTimeField(null=True, blank=True, help_text="Waiting: not before. Running: end of the lease.")
    cancel_requested = models.BooleanField(default=False)
    step = models.CharField(max_length=120, blank=True, default="", help_text="What it is doing, for people.")
    done = models.BigIntegerField(default=0, help_text="Of `total`, in the unit of the step.")
    total = models.BigIntegerField(default=0, help_text="0 = not known.")

    rows = models.BigIntegerField(null=True, blank=True, help_text="Rows published.")
    facts = models.JSONField(default=dict, help_text="Lineage: what was read, with which code, seconds by step.")
    artifacts = models.JSONField(default=list, help_text="Files to download: name, path, rows, bytes, sha256.")
    error = models.TextField(blank=True, default="", help_text="One sentence; empty for a run that did not fail.")
    error_detail = models.TextField(
        blank=True, default="", help_text="Details of the error, for the person who repairs it."
    )

    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("due_at",), name="pipeline_run_due", condition=Q(due_at__isnull=False)),
            models.Index(F("job"), F("id").desc(), name="pipeline_run_by_job"),
        )

    def __str__(self) -> str:
        return f"{self.job} {self.public_id}"


class PublishedReport(models.Model):
    """Which run's rows readers see: moved in the transaction that writes them, so nobody ever sees half."""

    id = models.BigAutoField(primary_key=True)
    job = models.CharField(max_length=12, choices=PipelineJob)
    scope = models.CharField(max_length=80, blank=True, default="")
    run = models.ForeignKey(PipelineRun, on_delete=models.PROTECT, related_name="+")
    published_at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("job", "scope"), name="published_report_unique"),)

    def __str__(self) -> str:
        return f"{self.job} {self.scope}"


class LakeState(models.Model):
    """One row: how far the lake is. Moved by compare-and-set in the transaction that enters a batch's files.

    Transaction numbers belong to one database server (`source`); on another one the lake begins a new generation.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    generation = models.PositiveIntegerField(default=1)
    source = models.CharField(max_length=80, blank=True, default="", help_text="Server and database it was read from.")
    extracted_through = models.BigIntegerField(default=0, help_text="All transactions below this number are in.")
    extracted_at = models.DateTimeField(null=True, blank=True, help_text="Everything committed before is in.")

    def __str__(self) -> str:
        return f"generation {self.generation} through {self.extracted_through}"


class LakeFile(models.Model):
    """One Parquet file of the lake. A file that has no row here does not count: its extract died on the way.

    `path` is relative to the lake's folder. Replaced ones (by compaction, or a newer list of pairs) stay on disk until
    no run can be reading them.
    """

    id = models.BigAutoField(primary_key=True)
    generation = models.PositiveIntegerField()
    entity = models.CharField(max_length=20)
    day = models.DateField(null=True, blank=True, help_text="UTC; empty for lists that are written whole.")
    path = models.CharField(max_length=255, unique=True)
    schema_version = models.PositiveSmallIntegerField()
    rows = models.BigIntegerField()
    bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    from_xid = models.BigIntegerField()
    to_xid = models.BigIntegerField()
    min_at = models.DateTimeField(null=True, blank=True)
    max_at = models.DateTimeField(null=True, blank=True)
    unique_keys = models.BooleanField(default=False, help_text="No key of it occurs in another file of its day.")
    created_at = models.DateTimeField()
    replaced_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("id",)
        indexes = (
            models.Index(
                fields=("generation", "entity", "day"), name="lake_file_current", condition=Q(replaced_at__isnull=True)
            ),
            models.Index(fields=("replaced_at",), name="lake_file_replaced", condition=Q(replaced_at__isnull=False)),
        )

    def __str__(self) -> str:
        return self.path


class PartnerLog(Identified):
    """A log that a partner sent, to be compared with ours. The file lies in the lake's folder, below `partner-logs`."""

    PREFIX = "plog"

    party = models.ForeignKey(Party, on_delete=models.PROTECT, related_name="+")
    agreement = models.ForeignKey(
        Agreement, null=True, blank=True, on_delete=models.PROTECT, related_name="+", help_text="Empty = all with them."
    )
    source = models.CharField(max_length=10, choices=Interface, help_text="`system`: the drop folder.")
    filename = models.CharField(max_length=255)
    path = models.CharField(max_length=255)
    format = models.CharField(max_length=10, choices=[("csv", "CSV"), ("parquet", "Parquet")])
    size = models.BigIntegerField(help_text="Bytes.")
    sha256 = models.CharField(max_length=64)
    columns = models.JSONField(default=dict, help_text="Our column -> theirs, as it was when the log came.")
    range_from = models.DateTimeField(
        null=True, blank=True, help_text="Inclusive. What the log covers; its first and last row if absent."
    )
    range_to = models.DateTimeField(null=True, blank=True, help_text="Exclusive.")
    rows = models.BigIntegerField(null=True, blank=True, help_text="Empty before it was read.")
    state = models.CharField(max_length=10, choices=LogState, default=LogState.RECEIVED)
    error = models.TextField(blank=True, default="", help_text="Why it could not be read.")
    uploaded_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=("party", "sha256"), name="partner_log_once"),)

    def __str__(self) -> str:
        return self.filename


class RetentionPolicy(models.Model):
    """One row: when finished messages go to the archive, and when they leave the store. Days since a message ended."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    enabled = models.BooleanField(
        "archive and purge daily", default=False, help_text="Whether messages are archived and purged, once a day."
    )
    archive_after = models.PositiveIntegerField(
        "archive after, days",
        default=30,
        validators=[MinValueValidator(1), MaxValueValidator(3650)],
        help_text="Days until a message is copied to the archive.",
    )
    purge_after = models.PositiveIntegerField(
        "purge from the store after, days",
        default=90,
        validators=[MinValueValidator(1), MaxValueValidator(3650)],
        help_text="Days until a message leaves the store.",
    )
    keep_archive = models.PositiveIntegerField(
        "keep the archive, days",
        default=0,
        validators=[MaxValueValidator(36_500)],
        help_text="Days that the archive keeps it; 0 = permanently.",
    )
    changed_by = models.CharField(max_length=150, blank=True, default="")
    changed_at = models.DateTimeField(null=True, blank=True)
    version = models.PositiveBigIntegerField(default=1)

    def __str__(self) -> str:
        return f"archive after {self.archive_after} days, purge after {self.purge_after}"


class LegalHold(Identified):
    """Keeps messages in the store, whatever their age, until it is released. All criteria that are given must fit."""

    PREFIX = "hold"

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
    released_at = models.DateTimeField(null=True, blank=True, help_text="Empty = in force.")
    release_reason = models.TextField(blank=True, default="")

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("released_at",), name="legal_hold_active", condition=Q(released_at=None)),)

    def __str__(self) -> str:
        return self.name


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
    state = models.CharField(
        max_length=10,
        choices=ArchiveState,
        help_text="`copied` and `restored`: in the store too; `archived`: in the archive alone.",
    )
    file = models.ForeignKey(ArchiveFile, on_delete=models.PROTECT, related_name="contents")
    row = models.BigIntegerField(help_text="In the file, from 0.")
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
    size = models.PositiveBigIntegerField(help_text="Bytes of the payloads.")
    created_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True, blank=True)
    purged_at = models.DateTimeField(null=True, blank=True, help_text="When it left the store.")
    restored_at = models.DateTimeField(null=True, blank=True)
    restored_by = models.CharField(max_length=150, blank=True, default="")
    contents = models.JSONField(default=list, help_text="SHA-256 of its payloads, in their order.")
    attributes = models.JSONField(null=True, blank=True, help_text="What it is found by, as the message had them.")
    written = models.BigIntegerField(default=0, help_text="The highest transaction of the rows that were copied.")
    entries = models.PositiveIntegerField(
        default=0, help_text="How many rows were copied; 0 = it changed since, and is copied again."
    )

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("completed_at", "id"), name="archived_in_store", condition=~Q(state="archived")),
            models.Index(fields=("message_id",), name="archived_by_message_id"),
            models.Index(fields=("conversation_id",), name="archived_by_conversation"),
            models.Index(fields=("document_id",), name="archived_by_document", condition=~Q(document_id="")),
            models.Index(F("pair"), F("id").desc(), name="archived_by_pair"),
            GinIndex(fields=("attributes",), name="archived_by_attribute", condition=Q(attributes__isnull=False)),
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


_PAIRS_AT_ONCE = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WINDOWS = """
SELECT pair_id, date_bin('5 minutes', minute, 'epoch') AS start,
       sum(delivered), sum(failed + retried + rejected), sum(received + duplicates + rejected),
       sum(acks), sum(ack_seconds)
FROM messaging_liveminute WHERE pair_id = ANY(%s) AND minute >= %s AND minute < %s
GROUP BY 1, 2 ORDER BY 1, 2
"""
_LAST_CONTACT = """
SELECT p.id, last.minute FROM unnest(%s::uuid[]) AS p(id) CROSS JOIN LATERAL (
    SELECT minute FROM messaging_liveminute m WHERE m.pair_id = p.id AND m.received + m.duplicates + m.rejected > 0
    ORDER BY minute DESC LIMIT 1
) last
"""


def windows(pair_ids: Collection[uuid.UUID], begin: datetime, end: datetime) -> dict[uuid.UUID, list[Window]]:
    """The windows from `begin` to before `end` in which anything happened, oldest first, by pair."""
    found: dict[uuid.UUID, list[Window]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_WINDOWS, [list(pair_ids), begin, end])
        for pair_id, start, delivered, failures, contacts, acks, ack_seconds in cursor:
            window = Window(start, int(delivered), int(failures), int(contacts), int(acks), float(ack_seconds))
            found.setdefault(pair_id, []).append(window)
    return found


def pasts(pair_ids: Sequence[uuid.UUID], before: datetime) -> dict[uuid.UUID, Usual]:
    """What is usual on each pair, by its windows before `before`; a few pairs at a time, to bound the memory."""
    found: dict[uuid.UUID, Usual] = {}
    for first in range(0, len(pair_ids), _PAIRS_AT_ONCE):
        some = windows(pair_ids[first : first + _PAIRS_AT_ONCE], before - LOOK_BACK, before)
        found |= {pair_id: usual(past, before) for pair_id, past in some.items()}
    return found


def last_contacts(pair_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, datetime]:
    """When each partner was heard last, to the minute (the end of it); those never heard are left out."""
    with connection.cursor() as cursor:
        cursor.execute(_LAST_CONTACT, [list(pair_ids)])
        return {pair_id: minute + timedelta(minutes=1) for pair_id, minute in cursor.fetchall()}


def window_of(at: datetime) -> datetime:
    """The start of the window that `at` lies in."""
    return at - (at - _EPOCH) % WINDOW
