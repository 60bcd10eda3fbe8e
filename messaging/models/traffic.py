"""What went over the wire: transmissions, and the signals (acknowledgements, error messages) of both directions."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from messaging.choices import Direction, Outcome, SignalKind, SignalState
from messaging.models.changes import written_by
from messaging.models.message import Message
from messaging.models.pair import Pair
from rmhub.ids import public_id, uuid7


class Signal(models.Model):
    """An acknowledgement or an error message, ours or the partner's, with its exact octets.

    `about` is the message that it answers (empty when the partner's names none of ours). Ours are sent when
    `due_at` has come; a repeat of the message makes the same octets due again (spec 1, 2.1.3 (4)).
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
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
    body = models.BinaryField()
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_severity = models.CharField(max_length=20, blank=True, default="")
    error_description = models.TextField(blank=True, default="")
    min_retry_secs = models.PositiveIntegerField(null=True, blank=True)
    note = models.CharField(max_length=255, blank=True, default="", help_text="Why it was ignored, or failed.")
    due_at = models.DateTimeField(null=True, blank=True)
    owed = models.PositiveIntegerField(
        default=0, help_text="How many copies are still to be sent: one for each receipt."
    )
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Attempts since it last became due.")
    sends = models.PositiveIntegerField(default=0, help_text="How often the partner has taken it.")
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
            models.Index(fields=("xid",), name="signal_written"),
            models.Index(fields=("due_at",), name="signal_due", condition=Q(due_at__isnull=False)),
            models.Index(fields=("about",), name="signal_by_message", condition=Q(about__isnull=False)),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.message_id}"

    @property
    def public_id(self) -> str:
        return public_id("sig", self.id)


class Transmission(models.Model):
    """One attempt to put the bytes of a message or signal on a transport. The bytes are those of that row."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
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
            models.Index(fields=("xid",), name="transmission_written"),
            models.Index(fields=("message",), name="transmission_by_message", condition=Q(message__isnull=False)),
            models.Index(fields=("signal",), name="transmission_by_signal", condition=Q(signal__isnull=False)),
            models.Index(fields=("worker",), name="transmission_claimed", condition=Q(outcome="on_the_wire")),
            models.Index(F("pair"), F("id").desc(), name="transmission_by_pair", condition=Q(message__isnull=False)),
        )

    def __str__(self) -> str:
        return f"attempt {self.number} to {self.address}"

    @property
    def public_id(self) -> str:
        return public_id("att", self.id)


class Rejection(models.Model):
    """Something that came in and was refused: never stored as a message, kept so that a person can see why."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    at = models.DateTimeField()
    remote_address = models.CharField(max_length=64, blank=True, default="")
    party_name = models.CharField(max_length=120, blank=True, default="")
    reason = models.CharField(max_length=60)
    detail = models.TextField()
    http_status = models.PositiveSmallIntegerField()
    tpa_id = models.CharField(max_length=512, blank=True, default="")
    message_id = models.CharField(max_length=512, blank=True, default="")
    content_type = models.CharField(max_length=255, blank=True, default="")
    size = models.PositiveBigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True, default="")
    sample = models.BinaryField(blank=True, default=b"", help_text="The first 4 KiB.")
    # Of those who showed no credential, all of one kind from one address within an hour are one row.
    times = models.PositiveIntegerField(default=1)
    last_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("remote_address", "at"), name="rejection_of_nobody", condition=Q(party_name="")),
        )

    def __str__(self) -> str:
        return f"{self.reason} at {self.at:%Y-%m-%d %H:%M:%S}"

    @property
    def public_id(self) -> str:
        return public_id("rej", self.id)
