"""Values of the data pipeline's tables: jobs, runs, and what the reports find. Values are what the database holds."""

from __future__ import annotations

from django.db import models

from messaging.choices import Look


class PipelineJob(models.TextChoices):
    """What a run does. The order is that of `pipeline run all`; those after ARCHIVE are only run when asked for."""

    EXTRACT = "extract", "Extract to the lake"
    AUDIT = "audit", "Exactly-once audit"
    LEVELS = "levels", "Service levels"
    SLA = "sla", "SLA attainment"
    WINDOW = "window", "Memory window"
    TIMING = "timing", "Timing advice"
    ARCHIVE = "archive", "Archive and retention"
    RECONCILE = "reconcile", "Reconciliation"
    EXPORT = "export", "Export of our log"
    RESTORE = "restore", "Restore from the archive"
    COMPACT = "compact", "Compact the lake"


class RunState(models.TextChoices):
    QUEUED = "queued", "Waiting"
    RUNNING = "running", "Running"
    SUCCEEDED = "succeeded", "Succeeded"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"


OPEN = (RunState.QUEUED, RunState.RUNNING)


class AuditKind(models.TextChoices):
    """What the exactly-once audit finds; the first group breaks a promise, the second explains itself."""

    GAP = "gap", "Gap in the sequence"
    REPEAT = "repeat", "Number accepted twice"
    DUPLICATE_ID = "duplicate_id", "MessageId accepted twice"
    DELIVERED_TWICE = "delivered_twice", "Completed twice for one trigger"
    DOCUMENT_TWICE = "document_twice", "Document processed twice"
    DELIVERY_WITHOUT_ACCEPTANCE = "delivery_without_acceptance", "Delivery without acceptance"
    ACCEPTANCE_WITHOUT_DELIVERY = "acceptance_without_delivery", "Acceptance without delivery"
    ACK_WITHOUT_STORAGE = "ack_without_storage", "Acknowledgement without storage"
    RESET = "reset", "Sequence restarted at 1"
    WRAP = "wrap", "Sequence number wrapped around at 999,999,999"
    BRIDGE = "bridge", "Gap bridged by the stream"


NOTICES = (AuditKind.RESET, AuditKind.WRAP, AuditKind.BRIDGE)


class Verdict(models.TextChoices):
    """What the comparison of two logs says of one message."""

    AGREED = "agreed", "Agreed"
    LOST = "lost", "Lost: ours, and not in the partner's log"
    UNKNOWN_HERE = "unknown_here", "In the partner's log, and unknown here"
    DOUBLED = "doubled", "More than once in a log"
    DIFFERS = "differs", "The digests differ"
    IN_DOUBT = "in_doubt", "Undecided here: the partner's log does not have it either"
    IN_DOUBT_ARRIVED = "in_doubt_arrived", "Undecided here: the partner has it"


class LogState(models.TextChoices):
    """Life of a partner's log."""

    RECEIVED = "received", "Received"
    RECONCILED = "reconciled", "Compared"
    FAILED = "failed", "Could not be read"


class WindowBasis(models.TextChoices):
    """Where a proposed memory window comes from."""

    MEASURED = "measured", "Measured"
    EXTRAPOLATED = "extrapolated", "Extrapolated from the tail of the distribution"
    AGREED = "agreed", "The partner's agreed retry time: too few repeats to measure"


class TimingOption(models.TextChoices):
    IN_FORCE = "in_force", "In force"
    PROPOSED = "proposed", "Proposed"


class Grain(models.TextChoices):
    HOUR = "hour", "Hour"
    DAY = "day", "Day"
    TOTAL = "total", "Whole range"


class ArchiveState(models.TextChoices):
    """Where an archived message is."""

    COPIED = "copied", "In the archive and in the store"
    ARCHIVED = "archived", "In the archive only"
    RESTORED = "restored", "Restored to the store"


LOG_LOOKS: dict[str, Look] = {
    LogState.RECEIVED: Look("Received", "…", "secondary"),
    LogState.RECONCILED: Look("Compared", "✓", "green"),
    LogState.FAILED: Look("Could not be read", "✕", "red"),
}
RUN_LOOKS: dict[str, Look] = {
    RunState.QUEUED: Look("Waiting", "…", "secondary"),
    RunState.RUNNING: Look("Running", "→", "azure"),
    RunState.SUCCEEDED: Look("Succeeded", "✓", "green"),
    RunState.FAILED: Look("Failed", "✕", "red"),
    RunState.CANCELLED: Look("Cancelled", "⊘", "secondary"),
}
