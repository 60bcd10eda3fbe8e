"""The report tables: what the pipeline's jobs find. Every row belongs to a run; `PublishedReport` says which are shown.

Verbose names and help texts are what screens, API and downloads show as title and description. Durations are seconds.
"""

from __future__ import annotations

from django.db import models

from messaging.choices import Direction, SlaTarget
from messaging.models.pipeline import PipelineRun
from messaging.report_choices import AuditKind, Grain, TimingOption, Verdict, WindowBasis
from rmhub.language import gettext_lazy as _


class ReportRow(models.Model):
    """What all report rows have."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(PipelineRun, on_delete=models.CASCADE, related_name="+", db_index=False)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self._meta.model_name} {self.pk}"


class AuditPair(ReportRow):
    """The audit of one pair, counted."""

    pair_id = models.UUIDField()
    pair = models.CharField(max_length=120, help_text=_("The pair's code."))
    direction = models.CharField(max_length=3, choices=Direction)
    partner = models.CharField(max_length=120)
    messages = models.BigIntegerField(help_text=_("Numbered messages looked at."))
    first_number = models.BigIntegerField(null=True, help_text=_("Sequence number of the first."))
    last_number = models.BigIntegerField(null=True, help_text=_("Sequence number of the last."))
    first_at = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)
    missing = models.BigIntegerField(_("missing numbers"), default=0)
    repeats = models.BigIntegerField(_("numbers accepted twice"), default=0)
    resets = models.BigIntegerField(default=0, help_text=_("How often the sequence restarted at 1."))
    wraps = models.BigIntegerField(_("wrap-arounds"), default=0, help_text=_("How often it went past 999,999,999."))
    bridged = models.BigIntegerField(_("bridged numbers"), default=0, help_text=_("Left out on purpose by a stream."))

    class Meta:
        indexes = (models.Index(fields=("run", "pair"), name="audit_pair_by_run"),)


class AuditFinding(ReportRow):
    """One finding of the audit, with the messages that prove it."""

    kind = models.CharField(max_length=30, choices=AuditKind)
    violation = models.BooleanField("breaks a promise")
    pair_id = models.UUIDField(null=True)
    pair = models.CharField(max_length=120, blank=True, default="")
    partner = models.CharField(max_length=120, blank=True, default="")
    first_number = models.BigIntegerField(null=True, help_text=_("First sequence number that it is about."))
    last_number = models.BigIntegerField(null=True)
    count = models.BigIntegerField(help_text=_("How many numbers, messages or deliveries."))
    message_ids = models.JSONField("MessageIds", default=list, help_text=_("The proof; at most 20."))
    at = models.DateTimeField(null=True, help_text=_("When it showed."))
    detail = models.TextField(blank=True, default="")

    class Meta:
        indexes = (
            models.Index(fields=("run", "kind", "id"), name="audit_finding_by_kind"),
            models.Index(fields=("run", "pair"), name="audit_finding_by_pair"),
        )


class ReconciliationSummary(ReportRow):
    """How many messages have which verdict."""

    direction = models.CharField(max_length=3, choices=Direction, help_text=_("From our side."))
    verdict = models.CharField(max_length=20, choices=Verdict)
    messages = models.BigIntegerField()

    class Meta:
        indexes = (models.Index(fields=("run",), name="recon_summary_by_run"),)


class ReconciliationFinding(ReportRow):
    """A message on which the two logs do not agree."""

    direction = models.CharField(max_length=3, choices=Direction, help_text=_("From our side."))
    verdict = models.CharField(max_length=20, choices=Verdict)
    message_id = models.CharField("MessageId", max_length=512)
    pair_id = models.UUIDField(null=True)
    pair = models.CharField(max_length=120, blank=True, default="")
    sequence_number = models.BigIntegerField(null=True)
    our_state = models.CharField(max_length=12, blank=True, default="")
    our_at = models.DateTimeField(null=True)
    our_digest = models.CharField(max_length=64, blank=True, default="")
    our_copies = models.BigIntegerField(default=0)
    their_at = models.DateTimeField(null=True)
    their_digest = models.CharField(max_length=128, blank=True, default="")
    their_copies = models.BigIntegerField(default=0)

    class Meta:
        indexes = (models.Index(fields=("run", "verdict", "id"), name="recon_finding_by_verdict"),)


class RepeatDelay(ReportRow):
    """How late repeats come, by partner and profile."""

    partner = models.CharField(max_length=120)
    profile = models.CharField(max_length=20)
    messages = models.BigIntegerField(help_text=_("Messages received."))
    repeats = models.BigIntegerField(help_text=_("Copies that came after the first."))
    p50 = models.FloatField(null=True, help_text=_("Seconds from the first copy; half of the repeats came sooner."))
    p90 = models.FloatField(null=True)
    p99 = models.FloatField(null=True)
    p999 = models.FloatField("p99.9", null=True)
    longest = models.FloatField(null=True)

    class Meta:
        indexes = (models.Index(fields=("run", "partner"), name="repeat_delay_by_run"),)


class RepeatHistogram(ReportRow):
    """Repeats by delay, in buckets of powers of two."""

    partner = models.CharField(max_length=120)
    profile = models.CharField(max_length=20)
    upper = models.BigIntegerField(help_text=_("Seconds: the bucket ends below this."))
    repeats = models.BigIntegerField()

    class Meta:
        indexes = (models.Index(fields=("run", "partner", "profile", "upper"), name="repeat_histogram_by_run"),)


class WindowAdvice(ReportRow):
    """The memory window that a wished-for risk needs."""

    partner = models.CharField(max_length=120)
    profile = models.CharField(max_length=20)
    one_in = models.BigIntegerField(_("risk: one message in"), help_text=_("A repeat that comes after the window."))
    basis = models.CharField(max_length=12, choices=WindowBasis)
    window = models.BigIntegerField(help_text=_("Seconds that ids must be remembered."))
    ids = models.BigIntegerField(_("ids remembered"), help_text=_("At the rate of the range."))
    bytes = models.BigIntegerField(help_text=_("With indexes."))
    cost = models.FloatField(null=True, help_text=_("Per month, at RMHUB_STORAGE_PRICE_GB_MONTH."))
    in_force = models.BigIntegerField(_("window in force"), null=True, help_text=_("Seconds; the shortest with them."))
    suffices = models.BooleanField(_("in force suffices"), null=True)

    class Meta:
        indexes = (models.Index(fields=("run", "partner", "profile", "one_in"), name="window_advice_by_run"),)


class TimingLatency(ReportRow):
    """How long acknowledgements take, and how attempts fail, by agreement."""

    agreement_id = models.UUIDField()
    agreement = models.CharField(max_length=255, help_text="TPAId.")
    partner = models.CharField(max_length=120)
    messages = models.BigIntegerField(help_text=_("Messages that ended in the range."))
    attempts = models.BigIntegerField()
    unanswered = models.BigIntegerField(help_text=_("Attempts that no acknowledgement followed before the next one."))
    p50 = models.FloatField(null=True, help_text=_("Seconds from the answered attempt to its acknowledgement."))
    p90 = models.FloatField(null=True)
    p99 = models.FloatField(null=True)
    p999 = models.FloatField("p99.9", null=True)
    longest = models.FloatField(null=True)
    longest_outage = models.FloatField(null=True, help_text=_("Seconds from the first attempt to the answered one."))

    class Meta:
        indexes = (models.Index(fields=("run", "agreement"), name="timing_latency_by_run"),)


class TimingFailure(ReportRow):
    """Why attempts failed, by agreement."""

    agreement_id = models.UUIDField()
    agreement = models.CharField(max_length=255)
    partner = models.CharField(max_length=120)
    cause = models.CharField(max_length=60)
    attempts = models.BigIntegerField()
    share = models.FloatField(help_text=_("Of all failed attempts of the agreement."))

    class Meta:
        indexes = (models.Index(fields=("run", "agreement"), name="timing_failure_by_run"),)


class TimingAdvice(ReportRow):
    """What would have happened in the range under a choice of parameters: a replay of every message."""

    agreement_id = models.UUIDField()
    agreement = models.CharField(max_length=255)
    partner = models.CharField(max_length=120)
    option = models.CharField(max_length=10, choices=TimingOption)
    timeout = models.PositiveIntegerField(help_text=_("Timeout, seconds."))
    retries = models.PositiveIntegerField(help_text=_("Retries."))
    retry_interval = models.PositiveIntegerField(help_text=_("RetryInterval, seconds."))
    messages = models.BigIntegerField()
    attempts = models.BigIntegerField()
    needless = models.BigIntegerField(_("needless repeats"), help_text=_("Sent although the answer was on its way."))
    given_up = models.BigIntegerField(help_text=_("Messages that would have suspended their pair."))
    mean_seconds = models.FloatField(null=True, help_text=_("First attempt to acknowledgement."))
    p95_seconds = models.FloatField(null=True)
    gives_up_after = models.BigIntegerField(help_text=_("Seconds of silence until the pair is suspended."))

    class Meta:
        indexes = (models.Index(fields=("run", "agreement", "option"), name="timing_advice_by_run"),)


class ServiceLevel(ReportRow):
    """Volume and quality by partner, direction and hour, day or whole range; by the message's entry."""

    grain = models.CharField(max_length=5, choices=Grain)
    at = models.DateTimeField(null=True, help_text=_("Begin of the hour or day, UTC."))
    partner = models.CharField(max_length=120, blank=True, default="", help_text=_("Empty = all partners."))
    direction = models.CharField(max_length=3, choices=Direction)
    messages = models.BigIntegerField()
    bytes = models.BigIntegerField()
    succeeded = models.BigIntegerField(
        help_text=_("Delivered, sent without asking for an acknowledgement, or received.")
    )
    failed = models.BigIntegerField(help_text=_("Given up, skipped or cancelled."))
    in_doubt = models.BigIntegerField(help_text=_("Outbound: outcome unknown. Inbound: a delivery is in doubt."))
    under_way = models.BigIntegerField()
    attempts = models.BigIntegerField(help_text=_("Transmissions of these messages."))
    retries_per_message = models.FloatField(
        null=True, help_text=_("Attempts after the first, per message that was sent.")
    )
    duplicates = models.BigIntegerField(help_text=_("Copies that were recognised and discarded."))
    ack_p50 = models.FloatField(null=True, help_text=_("Seconds from first attempt to acknowledgement."))
    ack_p95 = models.FloatField(null=True)
    ack_p99 = models.FloatField(null=True)
    suspensions = models.BigIntegerField(help_text=_("Of pairs; entered where they began."))
    resumed = models.BigIntegerField(help_text=_("Of these suspensions, how many have ended."))
    mean_seconds_to_resume = models.FloatField(null=True)

    class Meta:
        indexes = (models.Index(fields=("run", "grain", "partner", "at"), name="service_level_by_run"),)


class SlaAttainment(ReportRow):
    """What became of an agreement's target in one calendar month (UTC), by the time at which each limit ended."""

    agreement_id = models.UUIDField()
    agreement = models.CharField(max_length=255)
    partner = models.CharField(max_length=120)
    target = models.CharField(max_length=12, choices=SlaTarget)
    month = models.DateTimeField(help_text=_("Its begin, UTC."))
    percent = models.FloatField(_("target, %"), help_text=_("Of the newest version under which its documents went."))
    due = models.BigIntegerField(
        help_text=_("Documents whose limit ends in the month, without those cancelled in time.")
    )
    met = models.BigIntegerField(help_text=_("In time."))
    missed = models.BigIntegerField(help_text=_("Late, or not at all before the limit."))
    open = models.BigIntegerField(help_text=_("Neither yet: the limit is ahead."))
    attained = models.FloatField(_("attained, %"), null=True, help_text=_("Met, of what is decided."))
    allowed = models.BigIntegerField(
        _("error budget"),
        help_text=_("Misses that the target allows of the month's documents, or of those of the month before."),
    )
    used = models.FloatField(_("budget used, %"), null=True, help_text=_("Empty: not one miss is allowed."))

    class Meta:
        indexes = (models.Index(fields=("run", "agreement", "target", "month"), name="sla_attainment_by_run"),)


class ServiceError(ReportRow):
    """Errors by cause, the most frequent first (Pareto): failed attempts, failed messages and rejections."""

    partner = models.CharField(max_length=120, blank=True, default="", help_text=_("Empty = all partners."))
    kind = models.CharField(max_length=12, help_text=_("attempt, message, rejection or delivery."))
    cause = models.CharField(max_length=60)
    count = models.BigIntegerField()
    share = models.FloatField(help_text=_("Of all errors of the partner."))
    cumulative = models.FloatField(help_text=_("Share of this and all more frequent ones."))

    class Meta:
        indexes = (models.Index(fields=("run", "partner", "-count"), name="service_error_by_run"),)


class DoubtOutcome(ReportRow):
    """What became of what was in doubt."""

    partner = models.CharField(max_length=120, blank=True, default="", help_text=_("Empty = all partners."))
    what = models.CharField(max_length=10, help_text=_("delivery or message."))
    doubt = models.CharField(max_length=60, help_text=_("Why it was in doubt."))
    outcome = models.CharField(max_length=20, help_text=_("The decision, or open."))
    count = models.BigIntegerField()

    class Meta:
        indexes = (models.Index(fields=("run", "partner"), name="doubt_outcome_by_run"),)


class ArchiveDay(ReportRow):
    """What a run of archive and retention did, by the day on which the messages ended."""

    day = models.DateField()
    messages = models.BigIntegerField(_("archived"), help_text=_("Messages written to the archive and verified."))
    payloads = models.BigIntegerField()
    bytes = models.BigIntegerField(help_text=_("Of the payloads."))
    purged = models.BigIntegerField(help_text=_("Messages removed from the store."))
    held = models.BigIntegerField(help_text=_("Due, and kept by a legal hold."))
    differing = models.BigIntegerField(help_text=_("Not what the store says: kept in the store."))

    class Meta:
        indexes = (models.Index(fields=("run", "day"), name="archive_day_by_run"),)
