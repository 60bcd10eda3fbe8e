"""What went over the wire, also by hour; and what partners said when asked."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, OuterRef, Q, Subquery, Value
from django.db.models.functions import Coalesce

from messaging.choices import Direction, Outcome, PartnerAnswer, SignalKind, SignalState
from messaging.models.base import Identified, OctetsField, written_by, written_index
from messaging.models.message import Message
from messaging.models.pair import Pair


class Signal(Identified):
    """An acknowledgement or an error message, ours or the partner's, with its exact octets.

    `about` is the message that it answers (empty when the partner's names none of ours). Ours are sent when
    `due_at` has come; a repeat of the message makes the same octets due again (spec 1, 2.1.3 (4)).
    """

    PREFIX = "sig"

    direction = models.CharField(max_length=3, choices=Direction)
    kind = models.CharField(max_length=5, choices=SignalKind)
    state = models.CharField(max_length=10, choices=SignalState)
    pair = models.ForeignKey(
        Pair, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    about = models.ForeignKey(
        Message,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="signals",
        db_index=False,
        db_constraint=False,
    )
    agreement_version_id = models.UUIDField(null=True, blank=True)
    message_id = models.CharField("MessageId", max_length=512)
    ref_to_message_id = models.CharField("RefToMessageId", max_length=512, blank=True, default="")
    content_type = models.CharField(max_length=1000)
    body = OctetsField()
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_severity = models.CharField(max_length=20, blank=True, default="")
    error_description = models.TextField(blank=True, default="")
    min_retry_secs = models.PositiveIntegerField(null=True, blank=True)
    note = models.CharField(max_length=255, blank=True, default="", help_text="Why it was ignored, or failed.")
    # Not "" for those that are not: rows of the code before, which knows no such column, have to fit.
    signed_by = models.CharField(  # noqa: DJ001
        max_length=64,
        null=True,
        blank=True,
        help_text="The partner's: SHA-256 of the certificate with which it was signed, checked when it came.",
    )
    due_at = models.DateTimeField(null=True, blank=True)
    owed = models.PositiveIntegerField(
        default=0, help_text="How many copies are still to be sent: one for each receipt."
    )
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Attempts since it last became due.")
    sends = models.PositiveIntegerField(default=0, help_text="Ours: how often the partner has taken it.")
    created_at = models.DateTimeField()
    last_sent_at = models.DateTimeField(null=True, blank=True)
    xid = written_by()

    class Meta:
        ordering = ("id",)
        constraints = (
            models.UniqueConstraint(
                fields=("about",), condition=Q(direction="out", kind="ack"), name="signal_one_ack_per_message"
            ),
        )
        indexes = (
            written_index("signal_written"),
            models.Index(fields=("due_at",), name="signal_due", condition=Q(due_at__isnull=False)),
            models.Index(fields=("about",), name="signal_by_message", condition=Q(about__isnull=False)),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.message_id}"


class Transmission(Identified):
    """One attempt to put the bytes of a message or signal on a transport. The bytes are those of that row."""

    PREFIX = "att"

    pair = models.ForeignKey(
        Pair, null=True, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    message = models.ForeignKey(
        Message, null=True, on_delete=models.CASCADE, related_name="transmissions", db_index=False, db_constraint=False
    )
    signal = models.ForeignKey(
        Signal, null=True, on_delete=models.CASCADE, related_name="transmissions", db_index=False, db_constraint=False
    )
    number = models.PositiveIntegerField()
    address = models.CharField(max_length=500)
    outcome = models.CharField(max_length=12, choices=Outcome, default=Outcome.ON_THE_WIRE)
    http_status = models.PositiveSmallIntegerField(null=True, blank=True)
    cause = models.CharField(max_length=60, blank=True, default="")
    detail = models.TextField(blank=True, default="")
    response = models.BinaryField(null=True, blank=True, help_text="Head and body of the answer, cut at 8 KiB.")
    worker = models.PositiveIntegerField(default=0, help_text="The process that claimed it (services.leases).")
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    xid = written_by()

    class Meta:
        ordering = ("id",)
        indexes = (
            written_index("transmission_written"),
            models.Index(fields=("message",), name="transmission_by_message", condition=Q(message__isnull=False)),
            models.Index(fields=("signal",), name="transmission_by_signal", condition=Q(signal__isnull=False)),
            models.Index(fields=("worker",), name="transmission_claimed", condition=Q(outcome="on_the_wire")),
            models.Index(F("pair"), F("id").desc(), name="transmission_by_pair", condition=Q(message__isnull=False)),
        )

    def __str__(self) -> str:
        return f"attempt {self.number} to {self.address}"


class Rejection(Identified):
    """Something that came in and was refused: never stored as a message, kept so that a person can see why."""

    PREFIX = "rej"

    at = models.DateTimeField()
    remote_address = models.CharField(max_length=64, blank=True, default="")
    party_name = models.CharField(max_length=120, blank=True, default="", help_text="The partner, if it was known.")
    reason = models.CharField(max_length=60)
    detail = models.TextField()
    http_status = models.PositiveSmallIntegerField(help_text="What the partner was answered.")
    tpa_id = models.CharField(max_length=512, blank=True, default="")
    message_id = models.CharField(max_length=512, blank=True, default="")
    content_type = models.CharField(max_length=255, blank=True, default="")
    size = models.PositiveBigIntegerField(default=0, help_text="Bytes.")
    sha256 = models.CharField(max_length=64, blank=True, default="")
    sample = models.BinaryField(blank=True, default=b"", help_text="The first 4 KiB.")
    times = models.PositiveIntegerField(
        default=1,
        help_text="How many of this kind came from this address within an hour; counted without a credential only.",
    )
    last_at = models.DateTimeField(null=True, blank=True, help_text="The last of them; empty when there was one.")

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("remote_address", "at"), name="rejection_of_nobody", condition=Q(party_name="")),
        )

    def __str__(self) -> str:
        return f"{self.reason} at {self.at:%Y-%m-%d %H:%M:%S}"


class StatusInquiry(Identified):
    """One question to the partner's messaging service: do you have this message? Evidence for what is in doubt.

    The words of the answer are those of ebXML Message Service 2.0, 7.1 (messageStatus).
    """

    PREFIX = "inq"

    message = models.ForeignKey(
        Message, on_delete=models.CASCADE, related_name="inquiries", db_index=False, db_constraint=False
    )
    answer = models.CharField(max_length=16, choices=PartnerAnswer)
    detail = models.TextField(blank=True, default="", help_text="In the partner's words, or why there was no answer.")
    cause = models.CharField(
        max_length=60, blank=True, default="", help_text="Stable code of why there was no answer; else empty."
    )
    address = models.CharField(max_length=500, help_text="What was asked for.")
    http_status = models.PositiveSmallIntegerField(null=True, blank=True)
    response = models.BinaryField(null=True, blank=True, help_text="Head and body of the answer, cut at 8 KiB.")
    actor = models.CharField(max_length=150)
    asked_at = models.DateTimeField()
    answered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "status inquiries"
        indexes = (models.Index(F("message"), F("id").desc(), name="inquiry_by_message"),)

    def __str__(self) -> str:
        return f"{self.answer} for {self.message_id}"


# What a partner says of a message that it has; the other answers say that it has not, or nothing.
HAS_IT = (PartnerAnswer.PROCESSED, PartnerAnswer.RECEIVED, PartnerAnswer.FORWARDED)


def partner_said() -> Coalesce:
    """What the partner said last about a message, to annotate messages with: a `PartnerAnswer`, "" = not asked.

    That it has a message stays true. That it does not know one counts only if it was asked after the last attempt had
    ended, and what is no answer at all counts only while there is no better one.
    """
    asked = StatusInquiry.objects.filter(message=OuterRef("pk")).order_by("-id")
    attempts = Transmission.objects.filter(message=OuterRef(OuterRef("pk"))).order_by("-id")
    ended = Coalesce(Subquery(attempts.values(at=Coalesce("finished_at", "started_at"))[:1]), OuterRef("created_at"))
    told = Q(answer__in=HAS_IT) | Q(answer=PartnerAnswer.NOT_RECOGNIZED, asked_at__gte=ended)
    silent = Q(answer__in=(PartnerAnswer.NO_ANSWER, PartnerAnswer.UNAUTHORIZED), asked_at__gte=ended)
    return Coalesce(
        Subquery(asked.filter(told).values("answer")[:1]),
        Subquery(asked.filter(silent).values("answer")[:1]),
        Value(""),
    )


# What is counted by pair from the event feed: count -> events. By the hour (`overview.services.traffic_hours`), and by
# the minute (`pipeline.live.query`). What is handed over without an acknowledgement being awaited is delivered, too.
COUNTED = {
    "accepted": ("message.accepted",),
    "delivered": ("message.delivered", "message.sent"),
    "failed": ("message.failed",),
    "retried": ("message.retrying",),
    "received": ("message.received",),
    "duplicates": ("message.duplicate",),
    "rejected": ("message.rejected",),
    "suspensions": ("pair.suspended",),
}
# Upper edges of the latency histogram, seconds; the last bucket has none.
LATENCY_EDGES = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200)


def no_latencies() -> list[int]:
    """An empty histogram: one bucket more than there are edges."""
    return [0] * (len(LATENCY_EDGES) + 1)


class TrafficHour(models.Model):
    """What one pair did in one hour (UTC)."""

    pair = models.ForeignKey(Pair, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False)
    hour = models.DateTimeField(help_text="Its beginning.")
    accepted = models.PositiveIntegerField(default=0)
    delivered = models.PositiveIntegerField(
        default=0, help_text="Acknowledged, or handed over where no acknowledgement is awaited."
    )
    received = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    duplicates = models.PositiveIntegerField(default=0)
    latencies = ArrayField(
        models.PositiveIntegerField(), default=no_latencies, help_text="From first send to delivery."
    )

    class Meta:
        constraints = (models.UniqueConstraint(fields=("hour", "pair"), name="traffic_hour_unique"),)
        indexes = (models.Index(fields=("pair", "hour"), name="traffic_hour_by_pair"),)

    def __str__(self) -> str:
        return f"{self.pair_id} {self.hour:%Y-%m-%d %H}"


class EventTotal(models.Model):
    """How many events of one type there were since the hub was set up: what `/metrics` shows. Never less than before.

    Deliveries have a histogram of how long they took, which `messaging.overview.selectors.metrics` adds up.
    """

    type = models.CharField(max_length=40)
    profile = models.CharField(max_length=20, blank=True, default="", help_text="Of the message; empty without one.")
    number = models.PositiveBigIntegerField(default=0)
    seconds = models.FloatField(default=0, help_text="From first send to delivery, all together.")
    latencies = ArrayField(models.BigIntegerField(), default=no_latencies, help_text="The same by `LATENCY_EDGES`.")

    class Meta:
        constraints = (models.UniqueConstraint(fields=("type", "profile"), name="event_total_unique"),)

    def __str__(self) -> str:
        return f"{self.type} {self.profile}: {self.number}"


class TrafficCursor(models.Model):
    """How far the event feed was counted: one row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    xid = models.BigIntegerField(default=0)
    event_id = models.BigIntegerField(default=0)
    counted_at = models.DateTimeField(null=True, blank=True)
    through = models.DateTimeField(
        null=True, blank=True, help_text="All that happened before then is counted, however far the counting is behind."
    )

    def __str__(self) -> str:
        return f"{self.xid}-{self.event_id}"
