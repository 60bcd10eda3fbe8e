"""What the partner said about a message when it was asked, and which parts of payloads are covered for whom."""

from __future__ import annotations

from django.db import models
from django.db.models import F, OuterRef, Q, Subquery, Value
from django.db.models.functions import Coalesce

from messaging.choices import MaskKind, PartnerAnswer
from messaging.models.message import Message
from messaging.models.traffic import Transmission
from partners.models import Party
from rmhub.ids import public_id, uuid7
from rmhub.roles import Role


class StatusInquiry(models.Model):
    """One question to the partner's messaging service: do you have this message? Evidence for what is in doubt.

    The words of the answer are those of ebXML Message Service 2.0, 7.1 (messageStatus).
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    message = models.ForeignKey(
        Message, on_delete=models.CASCADE, related_name="inquiries", db_index=False, db_constraint=False
    )
    answer = models.CharField(max_length=16, choices=PartnerAnswer)
    detail = models.TextField(blank=True, default="")
    cause = models.CharField(max_length=60, blank=True, default="", help_text="Why there was no answer.")
    address = models.CharField(max_length=500)
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

    @property
    def public_id(self) -> str:
        return public_id("inq", self.id)


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


class PayloadMask(models.Model):
    """Covers parts of payloads on the screen and in the API for people below a role. What is stored stays as it is."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=80, unique=True)
    kind = models.CharField("documents", max_length=8, choices=MaskKind)
    path = models.CharField(
        max_length=500,
        help_text="XML: an XPath with names without prefixes, //Customer/IBAN or //@card. JSON: $.customer.iban, "
        "$.lines[*].price, $..iban. EDIFACT and X12: segment and element, NAD+4, or a component, NAD+4:2.",
    )
    partner = models.ForeignKey(
        Party, null=True, blank=True, on_delete=models.CASCADE, related_name="+", help_text="None: of every partner."
    )
    service = models.CharField(max_length=255, blank=True, default="", help_text="Empty: of every service.")
    # A viewer opens no payload at all, so that the roles that a rule can tell apart are these.
    visible_to = models.CharField(
        "seen by",
        max_length=10,
        default=Role.ADMIN.value,
        choices=[(role.value, role.value) for role in (Role.OPERATOR, Role.ADMIN)],
        help_text="The lowest role that sees it uncovered. Viewers open no payloads at all.",
    )
    enabled = models.BooleanField("it is on", default=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def public_id(self) -> str:
        return public_id("mask", self.id)

    @property
    def version(self) -> int:
        """What changes with each change: the time of the last one, in microseconds."""
        return int(self.updated_at.timestamp() * 1_000_000)
