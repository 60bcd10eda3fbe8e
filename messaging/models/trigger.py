"""Which documents go to which service of which application (spec 4), and where messages for others go (spec 1, 4.1)."""

from __future__ import annotations

import uuid

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from messaging.choices import (
    CircuitState,
    Consult,
    JoinType,
    ResolverFailure,
    RetryUntil,
    RouteMode,
    ServiceKind,
    TriggerState,
    WhenExhausted,
)
from messaging.models.base import Identified
from messaging.protocol.service_ends import DEFAULT_RETRY_STATUSES
from partners.fields import Seconds
from partners.models import DAY, Agreement, Party, Poller
from rmhub.ids import public_id
from rmhub.language import gettext_lazy as _


def retry_statuses() -> list[int]:
    """The default of `Trigger.retry_statuses`."""
    return sorted(DEFAULT_RETRY_STATUSES)


class Trigger(Identified):
    """A subscription to documents and the service that they are delivered to. Times are whole seconds.

    `documents` is a list of {"service", "action"} (`*` for any action); empty = every document that party and
    agreement, where given, let through.
    """

    PREFIX = "trg"

    name = models.CharField(
        max_length=80,
        unique=True,
        help_text=_("What the application is called, e.g. “ERP orders”. It appears on every page."),
    )
    state = models.CharField(max_length=10, choices=TriggerState, default=TriggerState.ACTIVE)

    party = models.ForeignKey(
        Party,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        verbose_name=_("partner"),
        help_text=_("Only documents of this partner."),
    )
    agreement = models.ForeignKey(
        Agreement,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text=_("Only documents under this agreement."),
    )
    documents = models.JSONField(_("services and actions"), default=list, blank=True)

    kind = models.CharField(max_length=10, choices=ServiceKind, default=ServiceKind.HTTP)
    url = models.CharField(
        _("URL"),
        max_length=500,
        blank=True,
        default="",
        help_text=_("Documents are posted here, signed as Standard Webhooks describes. Private addresses are allowed."),
    )
    callable_name = models.CharField(
        _("callable"),
        max_length=120,
        blank=True,
        default="",
        help_text=_("What the installed applications register. It runs in the transaction of the document history."),
    )
    secret_encrypted = models.BinaryField(blank=True, default=b"")
    # All or nothing (spec 5): a trigger of the kind "atomic" has members, whose services take part in one transaction.
    member_of = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="members",
        help_text=_("An atomic trigger: its documents are processed here and by its other members, or nowhere."),
    )
    atomic_agreement = models.ForeignKey(
        Agreement,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        verbose_name=_("takes part under"),
        help_text=_("Members: the agreement for atomic transactions under which the application registers and votes."),
    )
    timeout = Seconds(
        _("timeout"),
        default=30,
        validators=[MinValueValidator(1)],
        help_text=_(
            "The longest that the service may take. After it, nobody knows whether it has finished. "
            "All or nothing: what is not decided then is rolled back."
        ),
    )
    answers = models.BooleanField(
        _("its response answers synchronous exchanges"),
        default=False,
        help_text=_("For agreements of the repeatable profile: the partner gets what the service responds."),
    )
    retry_statuses = ArrayField(
        models.PositiveSmallIntegerField(),
        verbose_name=_("“Not now” statuses"),
        default=retry_statuses,
        blank=True,
        help_text=_("HTTP statuses that promise: not processed, try again later."),
    )

    detect_duplicates = models.BooleanField(default=True, help_text=_("Off: every copy is processed again."))
    use_history = models.BooleanField(
        _("use the document history"),
        default=True,
        help_text=_("Remembers what was begun and what was completed. Off: only the redelivery count speaks."),
    )
    history_ttl = Seconds(
        _("history time to live"),
        default=30 * DAY,
        validators=[MinValueValidator(60), MaxValueValidator(400 * DAY)],
        help_text=_("A copy that comes later than this is new again."),
    )
    document_id_path = models.CharField(
        _("document id in the document"),
        max_length=300,
        blank=True,
        default="",
        help_text=_(
            "Where a document holds its own id: //Order/ID (names without prefixes), $.order.id or BGM+2. Empty: "
            "the id that its sender gave is used, else the MessageId."
        ),
    )
    resolver = models.CharField(
        max_length=10,
        choices=Consult,
        default=Consult.NONE,
        help_text=_("Who is asked when neither redelivery count nor history can tell."),
    )
    resolver_url = models.CharField(
        _("resolver URL"),
        max_length=500,
        blank=True,
        default="",
        help_text=_("Asked whether the application has processed a document; answers NEW, DUPLICATE or IN_DOUBT."),
    )
    resolver_callable = models.CharField(max_length=120, blank=True, default="")
    resolver_failure = models.CharField(
        _("when resolver or history cannot answer now"),
        max_length=10,
        choices=ResolverFailure,
        default=ResolverFailure.SUSPEND,
    )

    retry_until = models.CharField(max_length=10, choices=RetryUntil, default=RetryUntil.MAX_ATTEMPTS)
    max_retries = models.PositiveIntegerField(
        default=5,
        validators=[MaxValueValidator(1000)],
        help_text=_("0: none. The document is tried once and so many times more."),
    )
    retry_interval = Seconds(default=10)
    when_exhausted = models.CharField(
        _("when retries are used up"), max_length=10, choices=WhenExhausted, default=WhenExhausted.SUSPEND
    )
    suspend_on_error = models.BooleanField(
        _("suspend when the service ends with an error"),
        default=False,
        help_text=_("Nothing goes on behind a document that the service failed on, until somebody has looked."),
    )
    concurrency = models.PositiveSmallIntegerField(
        _("documents at the same time"),
        default=4,
        validators=[MinValueValidator(1), MaxValueValidator(64)],
        help_text=_("1 to 64 documents; in order: of so many pairs."),
    )
    ordered = models.BooleanField(
        _("in order, pair by pair"),
        default=True,
        help_text=_("A document waits until the one before it on the same pair is done. Off: as they come."),
    )
    lease_seconds = Seconds(
        _("lease"),
        default=300,
        validators=[MinValueValidator(5)],
        help_text=_("How long a consumer may keep a document that it took."),
    )

    monitor = models.CharField(
        max_length=10,
        choices=Consult,
        default=Consult.NONE,
        help_text=_("Who is asked whether a suspended trigger can go on."),
    )
    monitor_url = models.CharField(
        _("monitor URL"),
        max_length=500,
        blank=True,
        default="",
        help_text=_("Answers 200 with true, or {“isAvailable”: true}."),
    )
    monitor_callable = models.CharField(max_length=120, blank=True, default="")
    monitor_interval = Seconds(_("interval"), default=60, validators=[MinValueValidator(1)])

    join_type = models.CharField(
        _("join documents of one conversation"),
        max_length=10,
        choices=JoinType,
        default=JoinType.NONE,
        help_text=_("All: processed together when each type has come. Only one: the first; the others are discarded."),
    )
    join_timeout = Seconds(
        _("join timeout"),
        default=DAY,
        validators=[MinValueValidator(1)],
        help_text=_("What has come to a join that stays incomplete is discarded."),
    )
    silent_after = Seconds(
        _("silent after"), default=0, help_text=_("Without a document for so long it is an incident. 0: never.")
    )

    cause = models.CharField(
        max_length=60, blank=True, default="", help_text="Why it is suspended: a cause of docs/causes.md."
    )
    cause_detail = models.TextField(blank=True, default="")
    changed_at = models.DateTimeField(null=True, blank=True, help_text="When its state last became what it is.")
    monitor_due_at = models.DateTimeField(null=True, blank=True)
    last_arrival_at = models.DateTimeField(null=True, blank=True, help_text="When a document was last taken up.")
    last_success_at = models.DateTimeField(null=True, blank=True)
    failing_since = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    version = models.PositiveBigIntegerField(
        default=1, help_text="Counts what people do to it, and suspensions: what If-Match compares."
    )

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Route(Identified):
    """Where messages for a party that is not ours go next. The most specific enabled one applies."""

    PREFIX = "rt"

    name = models.CharField(
        _("name"), max_length=120, unique=True, help_text=_("What people call it. It appears on every page.")
    )
    party_context = models.CharField(_("To-party: type"), max_length=120, help_text=_("The scheme of its identifier."))
    party_value = models.CharField(_("To-party: identifier"), max_length=255)
    service = models.CharField(
        _("service"),
        max_length=255,
        blank=True,
        help_text=_("Only messages of this service; empty: of every one. The most specific route that is on applies."),
    )
    onward = models.ForeignKey(
        Agreement,
        on_delete=models.PROTECT,
        related_name="routes",
        verbose_name=_("agreement with the next hop"),
        help_text=_("Its endpoints, transport, profile and reliability are what the message goes on under."),
    )
    mode = models.CharField(_("acknowledged"), max_length=20, choices=RouteMode, default=RouteMode.STORE_FORWARD)
    max_hops = models.PositiveSmallIntegerField(
        _("hops, at most"),
        default=10,
        validators=[MinValueValidator(1), MaxValueValidator(10)],
        help_text=_("A message that has had so many hops is not passed on: 1 to 10."),
    )
    min_retry_secs = Seconds(
        _("MinRetrySecs"),
        default=60,
        validators=[MinValueValidator(1)],
        help_text=_("How long the previous hop is asked to wait while the next hop accepts nothing."),
    )
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    version = models.PositiveBigIntegerField(default=1, help_text="Counts changes (ETag).")

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(fields=("party_context", "party_value", "service"), name="route_target_unique"),
        )

    def __str__(self) -> str:
        return self.name


class Circuit(models.Model):
    """How an address has answered lately; only those that failed have a row (spec 1, 2.5.4)."""

    address = models.CharField(primary_key=True, max_length=500)
    state = models.CharField(
        max_length=10,
        choices=CircuitState,
        default=CircuitState.CLOSED,
        help_text="`closed`: failures are counted, and it is used like any other. `open`: sending to it is stopped.",
    )
    failures = models.PositiveIntegerField(default=0, help_text="In a row.")
    silent_since = models.DateTimeField(
        null=True, blank=True, help_text="When the first of the failures in a row began: nothing has answered since."
    )
    opened_at = models.DateTimeField(null=True, blank=True, help_text="Since when sending to it is stopped.")
    retry_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When one attempt is let through; while that one is under way, when it is given up.",
    )
    opened_times = models.PositiveIntegerField(default=0, help_text="In a row; each wait is longer.")
    cause = models.CharField(max_length=60, blank=True, default="", help_text="Of the last failure.")
    detail = models.TextField(blank=True, default="", help_text="What the last failure said.")
    updated_at = models.DateTimeField(help_text="When something last changed.")
    pair = models.ForeignKey(
        "messaging.Pair",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_constraint=False,
        help_text="For which the last attempt that counted was made: it may be under terms that are over.",
    )

    class Meta:
        ordering = ("address",)

    def __str__(self) -> str:
        return self.address

    @property
    def public_id(self) -> str:
        return public_id("cir", uuid.uuid5(uuid.NAMESPACE_URL, self.address))


class PollerState(models.Model):
    """How far the hub is with a mailbox or folder."""

    poller = models.OneToOneField(Poller, primary_key=True, on_delete=models.CASCADE, related_name="progress")
    due_at = models.DateTimeField(null=True, blank=True)
    leased_until = models.DateTimeField(null=True, blank=True)
    position = models.CharField(max_length=120, blank=True, default="", help_text="IMAP: UIDVALIDITY:last UID.")
    taken = models.PositiveBigIntegerField(default=0)
    last_looked_at = models.DateTimeField(null=True, blank=True)
    last_success_at = models.DateTimeField(null=True, blank=True)
    failures = models.PositiveIntegerField(default=0, help_text="In a row.")
    cause = models.CharField(max_length=60, blank=True, default="")
    detail = models.TextField(blank=True, default="")

    class Meta:
        ordering = ("poller_id",)

    def __str__(self) -> str:
        return str(self.poller_id)
