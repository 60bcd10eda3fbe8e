"""The data pipeline's own books: runs, what the lake holds, which run's results are shown, logs of partners."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from messaging.choices import Interface
from messaging.report_choices import LogState, PipelineJob, RunState
from partners.models import Agreement, Party
from rmhub.ids import public_id, uuid7


class PipelineRun(models.Model):
    """One run of one job: asked for, claimed by a pipeline process, ended. Its results are rows of the report tables.

    `scope` tells runs of one job apart whose results stand beside each other (a reconciliation: the partner log's id).
    `facts` is the lineage: lake generation and transaction range, input files and rows, code version, seconds by step.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    job = models.CharField(max_length=12, choices=PipelineJob)
    scope = models.CharField(max_length=80, blank=True, default="")
    parameters = models.JSONField(default=dict)
    state = models.CharField(max_length=10, choices=RunState, default=RunState.QUEUED)
    requested_by = models.CharField(max_length=150)
    interface = models.CharField(max_length=10, choices=Interface)
    reason = models.TextField(blank=True, default="")

    range_from = models.DateTimeField(null=True, blank=True, help_text="Inclusive; empty = from the beginning.")
    range_to = models.DateTimeField(null=True, blank=True, help_text="Exclusive; empty = to the newest.")
    data_as_of = models.DateTimeField(null=True, blank=True, help_text="Everything committed before is in the result.")

    claim = models.UUIDField(null=True, blank=True, help_text="Who works on it; only that process may publish.")
    due_at = models.DateTimeField(null=True, blank=True, help_text="Waiting: not before. Running: end of the lease.")
    cancel_requested = models.BooleanField(default=False)
    step = models.CharField(max_length=120, blank=True, default="", help_text="What it is doing, for people.")
    done = models.BigIntegerField(default=0, help_text="Of `total`, in the unit of the step.")
    total = models.BigIntegerField(default=0, help_text="0 = not known.")

    rows = models.BigIntegerField(null=True, blank=True, help_text="Rows published.")
    facts = models.JSONField(default=dict)
    artifacts = models.JSONField(default=list, help_text="Files to download: name, path, rows, bytes, sha256.")
    error = models.TextField(blank=True, default="", help_text="One sentence for people.")
    error_detail = models.TextField(blank=True, default="")

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

    @property
    def public_id(self) -> str:
        return public_id("run", self.id)


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


class PartnerLog(models.Model):
    """A log that a partner sent, to be compared with ours. The file lies in the lake's folder, below `partner-logs`."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    party = models.ForeignKey(Party, on_delete=models.PROTECT, related_name="+")
    agreement = models.ForeignKey(
        Agreement, null=True, blank=True, on_delete=models.PROTECT, related_name="+", help_text="Empty = all with them."
    )
    source = models.CharField(max_length=10, choices=Interface)
    filename = models.CharField(max_length=255)
    path = models.CharField(max_length=255)
    format = models.CharField(max_length=10, choices=[("csv", "CSV"), ("parquet", "Parquet")])
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    columns = models.JSONField(default=dict, help_text="Our column -> theirs, as it was when the log came.")
    range_from = models.DateTimeField(null=True, blank=True, help_text="What the log covers: inclusive.")
    range_to = models.DateTimeField(null=True, blank=True, help_text="Exclusive.")
    rows = models.BigIntegerField(null=True, blank=True)
    state = models.CharField(max_length=10, choices=LogState, default=LogState.RECEIVED)
    error = models.TextField(blank=True, default="")
    uploaded_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=("party", "sha256"), name="partner_log_once"),)

    def __str__(self) -> str:
        return self.filename

    @property
    def public_id(self) -> str:
        return public_id("plog", self.id)
