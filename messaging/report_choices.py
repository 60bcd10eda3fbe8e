"""Values of the data pipeline's tables: jobs, runs, and what the reports find. Values are what the database holds."""

from __future__ import annotations

from django.db import models

from messaging.choices import Look
from rmhub.language import gettext_lazy as _
from rmhub.language import pgettext_lazy


class PipelineJob(models.TextChoices):
    """What a run does. The order is that of `pipeline run all`; those after ARCHIVE are only run when asked for."""

    EXTRACT = "extract", _("Extract to the lake")
    AUDIT = "audit", _("Exactly-once audit")
    LEVELS = "levels", _("Service levels")
    SLA = "sla", _("SLA attainment")
    WINDOW = "window", _("Memory window")
    TIMING = "timing", _("Timing advice")
    ARCHIVE = "archive", _("Archive and retention")
    RECONCILE = "reconcile", _("Reconciliation")
    EXPORT = "export", _("Export of our log")
    RESTORE = "restore", _("Restore from the archive")
    COMPACT = "compact", _("Compact the lake")


class RunState(models.TextChoices):
    QUEUED = "queued", _("Waiting")
    RUNNING = "running", _("Running")
    SUCCEEDED = "succeeded", pgettext_lazy("run", "Succeeded")
    FAILED = "failed", pgettext_lazy("run", "Failed")
    CANCELLED = "cancelled", pgettext_lazy("run", "Cancelled")


OPEN = (RunState.QUEUED, RunState.RUNNING)


class AuditKind(models.TextChoices):
    """What the exactly-once audit finds; the first group breaks a promise, the second explains itself."""

    GAP = "gap", _("Gap in the sequence")
    REPEAT = "repeat", _("Number accepted twice")
    DUPLICATE_ID = "duplicate_id", _("MessageId accepted twice")
    DELIVERED_TWICE = "delivered_twice", _("Completed twice for one trigger")
    DOCUMENT_TWICE = "document_twice", _("Document processed twice")
    DELIVERY_WITHOUT_ACCEPTANCE = "delivery_without_acceptance", _("Delivery without acceptance")
    ACCEPTANCE_WITHOUT_DELIVERY = "acceptance_without_delivery", _("Acceptance without delivery")
    ACK_WITHOUT_STORAGE = "ack_without_storage", _("Acknowledgement without storage")
    RESET = "reset", _("Sequence restarted at 1")
    WRAP = "wrap", _("Sequence number wrapped around at 999,999,999")
    BRIDGE = "bridge", _("Gap bridged by the stream")


NOTICES = (AuditKind.RESET, AuditKind.WRAP, AuditKind.BRIDGE)


class Verdict(models.TextChoices):
    """What the comparison of two logs says of one message."""

    AGREED = "agreed", _("Agreed")
    LOST = "lost", _("Lost: ours, and not in the partner's log")
    UNKNOWN_HERE = "unknown_here", _("In the partner's log, and unknown here")
    DOUBLED = "doubled", _("More than once in a log")
    DIFFERS = "differs", _("The digests differ")
    IN_DOUBT = "in_doubt", _("Undecided here: the partner's log does not have it either")
    IN_DOUBT_ARRIVED = "in_doubt_arrived", _("Undecided here: the partner has it")


class LogState(models.TextChoices):
    """Life of a partner's log."""

    RECEIVED = "received", _("Received")
    RECONCILED = "reconciled", _("Compared")
    FAILED = "failed", _("Could not be read")


class WindowBasis(models.TextChoices):
    """Where a proposed memory window comes from."""

    MEASURED = "measured", _("Measured")
    EXTRAPOLATED = "extrapolated", _("Extrapolated from the tail of the distribution")
    AGREED = "agreed", _("The partner's agreed retry time: too few repeats to measure")


class TimingOption(models.TextChoices):
    IN_FORCE = "in_force", _("In force")
    PROPOSED = "proposed", _("Proposed")


class Grain(models.TextChoices):
    HOUR = "hour", _("Hour")
    DAY = "day", _("Day")
    TOTAL = "total", _("Whole range")


class ArchiveState(models.TextChoices):
    """Where an archived message is."""

    COPIED = "copied", _("In the archive and in the store")
    ARCHIVED = "archived", _("In the archive only")
    RESTORED = "restored", _("Restored to the store")


LOG_LOOKS: dict[str, Look] = {
    LogState.RECEIVED: Look(_("Received"), "…", "secondary"),
    LogState.RECONCILED: Look(_("Compared"), "✓", "green"),
    LogState.FAILED: Look(_("Could not be read"), "✕", "red"),
}
RUN_LOOKS: dict[str, Look] = {
    RunState.QUEUED: Look(_("Waiting"), "…", "secondary"),
    RunState.RUNNING: Look(_("Running"), "→", "azure"),
    RunState.SUCCEEDED: Look(pgettext_lazy("run", "Succeeded"), "✓", "green"),
    RunState.FAILED: Look(pgettext_lazy("run", "Failed"), "✕", "red"),
    RunState.CANCELLED: Look(pgettext_lazy("run", "Cancelled"), "⊘", "secondary"),
}
