"""Parties, their identifiers and endpoints, agreements in versions, and credentials.

Nothing here decides anything: `services` write, `selectors` and `registry` read.
"""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from partners.choices import (
    AddressingProfile,
    CoordinationVersion,
    CredentialDirection,
    CredentialKind,
    ExchangeIdentity,
    ExchangeMode,
    PickupKind,
    Profile,
    Semantics,
    ServiceDirection,
    SoapVersion,
    Transport,
    VersionState,
)
from rmhub.ids import public_id, uuid7

DAY = 86_400


class PartnerGroup(models.Model):
    """Partners that the same people look after: users and tokens can be limited to groups."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=80, unique=True)
    description = models.CharField(max_length=255, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def public_id(self) -> str:
        return public_id("grp", self.id)


class Party(models.Model):
    """An organisation. Exactly one or more are ours (`is_own`)."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=120, unique=True)
    is_own = models.BooleanField("is ours", default=False)
    contact = models.TextField(blank=True, help_text="Whom to call, when, and in which time zone.")
    time_zone = models.CharField(max_length=64, blank=True, default="", help_text="IANA name, e.g. Europe/Berlin.")
    hours = models.CharField("business hours", max_length=120, blank=True, default="")
    groups = models.ManyToManyField(PartnerGroup, blank=True, related_name="partners")
    archived_at = models.DateTimeField(
        null=True, blank=True, help_text="Taken out of use: not offered any more, what it did stays."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "parties"

    def __str__(self) -> str:
        return self.name

    @property
    def public_id(self) -> str:
        return public_id("par", self.id)


class PartyIdentifier(models.Model):
    """A typed identifier of a party, e.g. DUNS 123456789. The first is the one that we write."""

    party = models.ForeignKey(Party, on_delete=models.CASCADE, related_name="identifiers")
    context = models.CharField("type", max_length=120, help_text="The scheme: DUNS, GLN, URI ...")
    value = models.CharField(max_length=255)
    rank = models.PositiveSmallIntegerField(default=0)

    class Meta:
        ordering = ("rank", "id")
        constraints = (models.UniqueConstraint(fields=("context", "value"), name="party_identifier_unique"),)

    def __str__(self) -> str:
        return f"{self.context}:{self.value}"


class Endpoint(models.Model):
    """A messaging service of a party: its logical URIs, and where its bytes really go."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    party = models.ForeignKey(Party, on_delete=models.CASCADE, related_name="endpoints")
    name = models.CharField(max_length=80, default="main")
    transport = models.CharField(max_length=10, choices=Transport, default=Transport.HTTP)
    uri = models.CharField(
        "messaging service URI", max_length=500, help_text="SenderURI and ReceiverURI on the wire (spec 1, 2.2.2)."
    )
    error_uri = models.CharField("error URI", max_length=500, help_text="Where errors go (ErrorURI).")
    address = models.CharField(
        "transport address", max_length=500, blank=True, help_text="Only if it differs from the URI, e.g. a proxy."
    )
    error_address = models.CharField("transport address for errors", max_length=500, blank=True)
    server = models.CharField(
        "mail or file server",
        max_length=500,
        blank=True,
        help_text="Mail: the server that takes it for this address, e.g. smtp+starttls://relay.example:587; "
        "empty = the hub's own relay. Files: empty = the server of the URI.",
    )
    host_key = models.CharField(
        "host key",
        max_length=200,
        blank=True,
        help_text="Files: fingerprint of the server's key, as ssh-keygen -l prints it (SHA256:...).",
    )
    trusted_certificates = models.TextField(
        blank=True,
        default="",
        help_text="PEM: the only certificates (of authorities, or the server's own) that the server may show; "
        "empty = those that this machine trusts.",
    )
    service_address = models.CharField(
        "address of test services",
        max_length=500,
        blank=True,
        default="",
        help_text="Below it lie status and echo (docs/partner-services.md), e.g. https://hub.partner.example/partner/; "
        "empty = the partner has none.",
    )
    connect_timeout = models.PositiveIntegerField("connect timeout, s", default=10, validators=[MinValueValidator(1)])
    read_timeout = models.PositiveIntegerField("read timeout, s", default=30, validators=[MinValueValidator(1)])
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("party_id", "name")
        constraints = (models.UniqueConstraint(fields=("uri",), name="endpoint_uri_unique"),)

    def __str__(self) -> str:
        return f"{self.party}: {self.uri}"

    @property
    def public_id(self) -> str:
        return public_id("end", self.id)


class Pickup(models.Model):
    """A mailbox or folder that the hub looks into for what partners left there.

    Whatever lies in a folder comes from `partner`; who sent a mail is told by its sender's address (spec 1, 2.5.2).
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    endpoint = models.ForeignKey(
        Endpoint, on_delete=models.CASCADE, related_name="pickups", help_text="Ours: the messages are for its URI."
    )
    partner = models.ForeignKey(
        Party,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text="Folders: who puts files there.",
    )
    name = models.CharField(max_length=80)
    kind = models.CharField(max_length=10, choices=PickupKind)
    url = models.CharField(
        max_length=500, help_text="imaps://mail.example.org/INBOX or sftp://files.example.org/outgoing/"
    )
    username = models.CharField(max_length=120, blank=True)
    secret_encrypted = models.BinaryField(blank=True, default=b"")
    secret_kind = models.CharField(max_length=12, choices=CredentialKind, default=CredentialKind.BASIC)
    host_key = models.CharField("host key", max_length=200, blank=True, help_text="Folders: SHA256:... of the server.")
    trusted_checker = models.CharField(
        "trusted checker of senders",
        max_length=255,
        blank=True,
        help_text="Mailboxes: the name in Authentication-Results by which the mail server says that it has checked a "
        "sender (RFC 8601). Empty = no mail is trusted.",
    )
    interval = models.PositiveIntegerField("look every, s", default=30, validators=[MinValueValidator(1)])
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)
        constraints = (models.UniqueConstraint(fields=("name",), name="pickup_name_unique"),)

    def __str__(self) -> str:
        return self.name

    @property
    def public_id(self) -> str:
        return public_id("pick", self.id)


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
        "memory window, s", default=400 * DAY, help_text="How long message ids are remembered."
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


class Credential(models.Model):
    """Proof of identity between us and a partner. Several may be valid at once, so that one can be replaced.

    Inbound secrets are kept as a password hash, outbound ones encrypted (`partners.secrets`).
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    party = models.ForeignKey(Party, on_delete=models.CASCADE, related_name="credentials")
    direction = models.CharField(max_length=10, choices=CredentialDirection)
    kind = models.CharField(max_length=12, choices=CredentialKind)
    label = models.CharField(max_length=80, blank=True)
    username = models.CharField(max_length=120, blank=True)
    secret_hash = models.CharField(max_length=255, blank=True)
    secret_encrypted = models.BinaryField(blank=True, default=b"")
    fingerprint = models.CharField("SHA-256 fingerprint", max_length=64, blank=True)
    certificate = models.TextField(blank=True, default="", help_text="PEM of what was uploaded, for its facts.")
    valid_from = models.DateTimeField(null=True, blank=True)
    valid_until = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("party_id", "direction", "-created_at")

    def __str__(self) -> str:
        return self.label or f"{self.party} {self.kind} {self.direction}"

    @property
    def public_id(self) -> str:
        return public_id("cred", self.id)


class Revision(models.Model):
    """One row that every write of this app bumps, so that processes notice (`partners.registry`)."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    number = models.BigIntegerField(default=1)

    def __str__(self) -> str:
        return str(self.number)
