"""Agreements in versions, with the services that they allow."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from partners.choices import (
    AddressingProfile,
    CoordinationVersion,
    Encryption,
    ExchangeIdentity,
    ExchangeMode,
    Profile,
    Semantics,
    ServiceDirection,
    SignatureAlgorithm,
    Signatures,
    SoapVersion,
    SyncReply,
    VersionState,
)
from partners.fields import Percent, Seconds, settings
from partners.models.endpoints import Endpoint
from partners.models.parties import Party
from rmhub.ids import public_id, uuid7
from rmhub.language import gettext_lazy

DAY = 86_400
LONGEST_TARGET = 31 * DAY


class Agreement(models.Model):
    """A trading partner agreement (TPA) between one of our parties and a partner. Its terms are in versions."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tpa_id = models.CharField(
        "TPAId",
        max_length=255,
        unique=True,
        help_text=gettext_lazy("It is in every message, so both sides must use the same one."),
    )
    name = models.CharField(gettext_lazy("name"), max_length=120, blank=True)
    own_party = models.ForeignKey(
        Party, verbose_name=gettext_lazy("our party"), on_delete=models.PROTECT, related_name="+"
    )
    partner = models.ForeignKey(Party, on_delete=models.PROTECT, related_name="agreements")
    log_columns = models.JSONField(
        gettext_lazy("columns of the partner's log"),
        default=dict,
        blank=True,
        help_text=gettext_lazy(
            "Our column -> theirs, for reconciliation; empty = the columns that our own export has."
        ),
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("tpa_id",)
        verbose_name = gettext_lazy("agreement")

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
    profile = models.CharField(gettext_lazy("wire profile"), max_length=20, choices=Profile, default=Profile.EBXML)
    own_endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="+")
    partner_endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="+")

    semantics = models.CharField(
        gettext_lazy("delivery semantics"), max_length=20, choices=Semantics, default=Semantics.ONCE_AND_ONLY_ONCE
    )
    # Spec 1, table 2-1.
    timeout = Seconds(
        gettext_lazy("Timeout"), default=60, help_text=gettext_lazy("Wait for an answer after the first send.")
    )
    retries = models.PositiveIntegerField(gettext_lazy("Retries"), default=5, validators=[MaxValueValidator(1000)])
    retry_interval = Seconds("RetryInterval", default=300)
    # Spec 1, 2.5.4.
    transport_retries = models.PositiveSmallIntegerField(
        gettext_lazy("transport retries"), default=2, help_text=gettext_lazy("Attempts below reliable messaging.")
    )
    transport_retry_interval = Seconds(gettext_lazy("transport retry interval"), default=10)
    transient_ceiling = Seconds(
        gettext_lazy("ceiling for pauses"),
        default=DAY,
        help_text=gettext_lazy("Transient errors for longer open an incident."),
    )
    # By MessageId (ruling C7).
    detect_repeats = models.BooleanField(gettext_lazy("detect repeats of best-effort messages"), default=False)
    # Although their MessageId is known (spec 1, 5.2 case 4).
    strict_sequence = models.BooleanField(gettext_lazy("refuse old sequence numbers"), default=False)
    # Of repeatable requests. Ids of other messages are kept permanently.
    memory_window = Seconds(
        gettext_lazy("our memory window"),
        default=400 * DAY,
        help_text=gettext_lazy("How long we remember what came, to recognise repeats."),
    )
    max_message_bytes = models.PositiveIntegerField(
        gettext_lazy("largest message, bytes"), default=20 * 1024 * 1024, validators=[MinValueValidator(1024)]
    )
    write_namespace = models.BooleanField(gettext_lazy("write the namespace"), default=True)
    write_padded_numbers = models.BooleanField(gettext_lazy("write sequence numbers with zeros"), default=True)
    # Repeatable profile (spec 2): what we promise a partner and what we rely on may differ.
    partner_window = Seconds(
        gettext_lazy("partner's memory window"),
        default=DAY,
        help_text=gettext_lazy("How long they remember ids: nothing is repeated past it."),
    )
    clock_skew = Seconds(gettext_lazy("clock skew"), default=300)  # how far in the future a first-instance time may lie
    exchange_mode = models.CharField(
        gettext_lazy("we answer with"), max_length=12, choices=ExchangeMode, default=ExchangeMode.ONE_WAY
    )
    exchange_identity = models.CharField(
        gettext_lazy("requests are identified by"),
        max_length=12,
        choices=ExchangeIdentity,
        default=ExchangeIdentity.FIRST_SENT,
    )
    repeat_interval = Seconds(
        gettext_lazy("repeat after"),
        default=20,
        validators=[MinValueValidator(1)],
        help_text=gettext_lazy("The wait before the first repeat."),
    )
    repeat_interval_max = Seconds(
        gettext_lazy("longest wait between repeats"), default=600, validators=[MinValueValidator(1)]
    )
    ordered = models.BooleanField(
        gettext_lazy("in order, one at a time"), default=False, help_text=gettext_lazy("ebXML always is.")
    )
    max_in_flight = models.PositiveSmallIntegerField(
        gettext_lazy("messages in flight"), default=16, validators=[MinValueValidator(1), MaxValueValidator(256)]
    )
    # Transactional streams (spec 3). `retries`: resends of the window without progress before the pair is suspended.
    # Of one stream; 1 for a receiver that rejects messages that arrive out of order.
    stream_concurrency = models.PositiveSmallIntegerField(
        gettext_lazy("requests on the wire at once"),
        default=16,
        validators=[MinValueValidator(1), MaxValueValidator(64)],
    )
    resend_schedule = models.CharField(
        gettext_lazy("resend everything after, s"),
        max_length=255,
        default="30,30,30,300,300,300,1800,1800,1800,21600",
        help_text=gettext_lazy("Waits with commas between them; the last one repeats."),
    )
    order_ack_timeout = models.PositiveIntegerField("OrderAckTimeout, ms", default=500)
    max_order_ack_delay = models.PositiveIntegerField("MaximumOrderAckDelay, ms", default=10_000)
    # What is not acknowledged by then is a dead letter.
    time_to_live = Seconds(gettext_lazy("time to live"), default=4 * DAY, help_text=gettext_lazy("0 s: no limit."))
    # That the document was taken by the partner's application.
    final_receipt = models.BooleanField(gettext_lazy("ask for final receipts"), default=False)
    final_receipt_within = Seconds(gettext_lazy("final receipt within"), default=4 * DAY)
    # What comes beyond is refused permanently.
    inbound_quota = models.PositiveIntegerField(
        gettext_lazy("documents that may wait here"), default=0, help_text=gettext_lazy("0: no limit.")
    )
    # Atomic transactions (spec 5). What awaits an answer is sent again after `repeat_interval`, then after 1.4 times as
    # long each time, up to `repeat_interval_max`; `retries`: after so many a person is told.
    coordination_version = models.CharField(
        "WS-Coordination", max_length=8, choices=CoordinationVersion, default=CoordinationVersion.V2006
    )
    addressing_profile = models.CharField(
        gettext_lazy("headers of notifications"),
        max_length=8,
        choices=AddressingProfile,
        default=AddressingProfile.SEED,
    )
    addressing_strict = models.BooleanField(
        gettext_lazy("refuse what lacks a header"),
        default=False,
        help_text=gettext_lazy("Off: a notification without ReplyTo is answered where its sender registered."),
    )
    other_servers = models.CharField(
        gettext_lazy("other servers of the partner"),
        max_length=1000,
        blank=True,
        default="",
        help_text=gettext_lazy(
            "Addresses in messages (FaultTo, RegistrationService) may lie there too: https://txn.example:8443."
        ),
    )
    soap_version = models.CharField("SOAP", max_length=4, choices=SoapVersion, default=SoapVersion.V11)
    # ebXML Messaging 2.0. `retries` and `retry_interval` as in spec 1; `partner_window` is its PersistDuration.
    sync_reply = models.CharField(
        gettext_lazy("in the response"),
        max_length=20,
        choices=SyncReply,
        default=SyncReply.NONE,
        db_default=SyncReply.NONE.value,
        help_text=gettext_lazy("What each side says in the HTTP response to a message (syncReplyMode)."),
    )
    message_order = models.BooleanField(
        gettext_lazy("in the order of each conversation"),
        default=False,
        db_default=False,
        help_text=gettext_lazy(
            "Messages of a conversation have numbers, and are handed on in that order (MessageOrder)."
        ),
    )
    own_role = models.CharField(
        gettext_lazy("our role"),
        max_length=255,
        blank=True,
        default="",
        db_default="",
        help_text=gettext_lazy(
            "As the process of the agreement names it (Role), such as Buyer; empty: none is written."
        ),
    )
    partner_role = models.CharField(
        gettext_lazy("partner's role"), max_length=255, blank=True, default="", db_default=""
    )
    signatures = models.CharField(
        gettext_lazy("what is signed"),
        max_length=10,
        choices=Signatures,
        default=Signatures.NONE,
        db_default=Signatures.NONE.value,
        help_text=gettext_lazy("By both sides. A signed acknowledgement is proof of what was received."),
    )
    signature_algorithm = models.CharField(
        gettext_lazy("signed with"),
        max_length=14,
        choices=SignatureAlgorithm,
        default=SignatureAlgorithm.RSA_SHA256,
        db_default=SignatureAlgorithm.RSA_SHA256.value,
        help_text=gettext_lazy("Choose SHA-1 only for a partner that can do nothing else."),
    )
    encryption = models.CharField(
        gettext_lazy("encryption of documents"),
        max_length=12,
        choices=Encryption,
        default=Encryption.NONE,
        db_default=Encryption.NONE.value,
        help_text=gettext_lazy(
            "By both sides, each for the other's certificate. Signatures are over the plain documents."
        ),
    )
    # Service level (docs/service-levels.md). Nothing waits for these times, and nothing is sent because of them.
    acknowledged_within = Seconds(
        gettext_lazy("SLA: acknowledged within"),
        default=0,
        validators=[MaxValueValidator(LONGEST_TARGET)],
        help_text=gettext_lazy(
            "What we send: from the moment the hub accepts the document to the partner's acknowledgement. "
            "0 s: no target."
        ),
    )
    acknowledged_percent = Percent(gettext_lazy("SLA: acknowledged in time, %"), default=99.0)
    processed_within = Seconds(
        gettext_lazy("SLA: processed within"),
        default=0,
        validators=[MaxValueValidator(LONGEST_TARGET)],
        help_text=gettext_lazy(
            "What we receive: until every trigger's service has processed the document. With final receipts also "
            "what we send: until the partner's final receipt. 0 s: no target."
        ),
    )
    processed_percent = Percent(gettext_lazy("SLA: processed in time, %"), default=99.0)

    note = models.CharField(gettext_lazy("what this version changes"), max_length=255, blank=True)
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
        indexes = (
            models.Index(
                fields=("agreement",),
                name="agreement_version_with_target",
                condition=Q(acknowledged_within__gt=0) | Q(processed_within__gt=0),
            ),
        )

    def __str__(self) -> str:
        return f"{self.agreement} v{self.number}"

    @property
    def transport_recovery(self) -> int:
        """Seconds that transport recovery may take."""
        return self.transport_retries * self.transport_retry_interval


# The terms of a version; the rest of the row is its life, and the endpoints.
TERMS = settings(AgreementVersion, "number", "state", "activated_at", "ended_at")
# Those of recovery below reliable messaging, which go together.
RECOVERY = ("transport_retries", "transport_retry_interval", "transient_ceiling")


class AgreementService(models.Model):
    """A service and action that the agreement allows. `*` as action allows every action of the service."""

    version = models.ForeignKey(AgreementVersion, on_delete=models.CASCADE, related_name="services")
    service = models.CharField(gettext_lazy("service"), max_length=255)
    action = models.CharField(gettext_lazy("action"), max_length=255, default="*")
    direction = models.CharField(
        gettext_lazy("direction"), max_length=10, choices=ServiceDirection, default=ServiceDirection.BOTH
    )

    class Meta:
        ordering = ("service", "action")
        verbose_name = gettext_lazy("agreement service")
        constraints = (
            models.UniqueConstraint(fields=("version", "service", "action"), name="agreement_service_unique"),
        )

    def __str__(self) -> str:
        return f"{self.service} {self.action}"
