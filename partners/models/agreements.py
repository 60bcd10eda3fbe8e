"""Agreements in versions, with the services that they allow."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from partners.choices import (
    AddressingProfile,
    CoordinationVersion,
    ExchangeIdentity,
    ExchangeMode,
    Profile,
    Semantics,
    ServiceDirection,
    SoapVersion,
    VersionState,
)
from partners.models.endpoints import Endpoint
from partners.models.parties import Party
from rmhub.ids import public_id, uuid7

DAY = 86_400


class Agreement(models.Model):
    """A trading partner agreement (TPA) between one of our parties and a partner. Its terms are in versions."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tpa_id = models.CharField("TPAId", max_length=255, unique=True)
    name = models.CharField(max_length=120, blank=True)
    own_party = models.ForeignKey(Party, on_delete=models.PROTECT, related_name="+")
    partner = models.ForeignKey(Party, on_delete=models.PROTECT, related_name="agreements")
    log_columns = models.JSONField(
        "columns of the partner's log",
        default=dict,
        blank=True,
        help_text="Our column -> theirs, for reconciliation; empty = the columns that our own export has.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("tpa_id",)

    def __str__(self) -> str:
        return self.tpa_id

    @property
    def public_id(self) -> str:
        return public_id("agr", self.id)


class AgreementVersion(models.Model):
    """The terms of an agreement at one time. Frozen once active: messages point at the version they ran under.

    Times are whole seconds, as spec 1 table 2-1 has them.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    agreement = models.ForeignKey(Agreement, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=10, choices=VersionState, default=VersionState.DRAFT)
    profile = models.CharField(max_length=20, choices=Profile, default=Profile.EBXML)
    own_endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="+")
    partner_endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="+")

    semantics = models.CharField(max_length=20, choices=Semantics, default=Semantics.ONCE_AND_ONLY_ONCE)
    timeout = models.PositiveIntegerField(
        "Timeout, s", default=60, help_text="Wait for an answer after the first send (spec 1, table 2-1)."
    )
    retries = models.PositiveIntegerField("Retries", default=5, validators=[MaxValueValidator(1000)])
    retry_interval = models.PositiveIntegerField("RetryInterval, s", default=300)
    transport_retries = models.PositiveSmallIntegerField(
        default=2, help_text="Attempts of transport recovery below reliable messaging (spec 1, 2.5.4)."
    )
    transport_retry_interval = models.PositiveIntegerField("transport retry interval, s", default=10)
    transient_ceiling = models.PositiveIntegerField(
        "transient error ceiling, s", default=DAY, help_text="Transient errors for longer than this open an incident."
    )
    detect_repeats = models.BooleanField(
        "look for repeats of best-effort messages", default=False, help_text="By MessageId (ruling C7)."
    )
    strict_sequence = models.BooleanField(
        default=False, help_text="Refuse an old sequence number although its MessageId is known (spec 1, 5.2 case 4)."
    )
    memory_window = models.PositiveIntegerField(
        "memory window, s",
        default=400 * DAY,
        help_text="Repeatable requests: how long their ids are remembered. Ids of other messages are kept for good.",
    )
    # Repeatable profile (spec 2): what we promise a partner and what we rely on may differ.
    partner_window = models.PositiveIntegerField(
        "partner's memory window, s",
        default=DAY,
        help_text="How long the partner remembers ids: we never repeat a message past it.",
    )
    clock_skew = models.PositiveIntegerField(
        "clock skew, s", default=300, help_text="How far in the future a first-instance time may lie."
    )
    exchange_mode = models.CharField("answer with", max_length=12, choices=ExchangeMode, default=ExchangeMode.ONE_WAY)
    exchange_identity = models.CharField(
        "identify requests by", max_length=12, choices=ExchangeIdentity, default=ExchangeIdentity.FIRST_SENT
    )
    repeat_interval = models.PositiveIntegerField(
        "wished-for repeat interval, s", default=20, validators=[MinValueValidator(1)]
    )
    repeat_interval_max = models.PositiveIntegerField(
        "longest repeat interval, s", default=600, validators=[MinValueValidator(1)]
    )
    ordered = models.BooleanField(
        default=False, help_text="One message at a time, each after the one before (ebXML always is)."
    )
    max_in_flight = models.PositiveSmallIntegerField(
        "messages in flight", default=16, validators=[MinValueValidator(1), MaxValueValidator(256)]
    )
    # Transactional streams (spec 3). `retries`: resends of the window without progress before the pair is suspended.
    stream_lanes = models.PositiveSmallIntegerField(
        "requests on the wire at once",
        default=16,
        validators=[MinValueValidator(1), MaxValueValidator(64)],
        help_text="Of one stream. 1 for a receiver that refuses what overtakes.",
    )
    resend_schedule = models.CharField(
        "resend after, s",
        max_length=255,
        default="30,30,30,300,300,300,1800,1800,1800,21600",
        help_text="Waits for an order acknowledgement; the last one repeats.",
    )
    order_ack_timeout = models.PositiveIntegerField("OrderAckTimeout, ms", default=500)
    max_order_ack_delay = models.PositiveIntegerField("MaximumOrderAckDelay, ms", default=10_000)
    time_to_live = models.PositiveIntegerField(
        "time to live, s", default=4 * DAY, help_text="What is not acknowledged by then is a dead letter; 0 = for ever."
    )
    final_receipt = models.BooleanField(
        "ask for final receipts", default=False, help_text="That the document was taken by the partner's application."
    )
    final_receipt_within = models.PositiveIntegerField("final receipt within, s", default=4 * DAY)
    inbound_quota = models.PositiveIntegerField(
        "documents that may wait here", default=0, help_text="What comes beyond is refused for good; 0 = no limit."
    )
    # Atomic transactions (spec 5). What awaits an answer is sent again after `repeat_interval`, then after 1.4 times as
    # long each time, up to `repeat_interval_max`; `retries`: after so many a person is told.
    coordination_version = models.CharField(
        "WS-Coordination version", max_length=8, choices=CoordinationVersion, default=CoordinationVersion.V2006
    )
    addressing_profile = models.CharField(
        "WS-Addressing headers", max_length=8, choices=AddressingProfile, default=AddressingProfile.SEED
    )
    addressing_strict = models.BooleanField(
        "refuse what lacks a header",
        default=False,
        help_text="Off: a notification without ReplyTo is answered where its sender registered.",
    )
    other_servers = models.CharField(
        "other servers of the partner",
        max_length=1000,
        blank=True,
        default="",
        help_text="Addresses that messages of transactions name may lie there too, such as https://txn.example:8443.",
    )
    soap_version = models.CharField("SOAP version", max_length=4, choices=SoapVersion, default=SoapVersion.V11)
    max_message_bytes = models.PositiveIntegerField(default=20 * 1024 * 1024, validators=[MinValueValidator(1024)])
    write_namespace = models.BooleanField(default=True)
    write_padded_numbers = models.BooleanField(default=True)

    note = models.CharField(max_length=255, blank=True, help_text="What this version changes, and why.")
    created_at = models.DateTimeField(auto_now_add=True)
    activated_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("agreement_id", "-number")
        constraints = (
            models.UniqueConstraint(fields=("agreement", "number"), name="agreement_version_number_unique"),
            models.UniqueConstraint(
                fields=("agreement",), condition=Q(state=VersionState.ACTIVE), name="agreement_one_active_version"
            ),
        )

    def __str__(self) -> str:
        return f"{self.agreement} v{self.number}"


class AgreementService(models.Model):
    """A service and action that the agreement allows. `*` as action allows every action of the service."""

    version = models.ForeignKey(AgreementVersion, on_delete=models.CASCADE, related_name="services")
    service = models.CharField(max_length=255)
    action = models.CharField(max_length=255, default="*")
    direction = models.CharField(max_length=10, choices=ServiceDirection, default=ServiceDirection.BOTH)

    class Meta:
        ordering = ("service", "action")
        constraints = (
            models.UniqueConstraint(fields=("version", "service", "action"), name="agreement_service_unique"),
        )

    def __str__(self) -> str:
        return f"{self.service} {self.action}"
