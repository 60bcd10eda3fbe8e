"""People and what is theirs: preferences, what they may see, log-ins and sessions, tokens, webhooks, notifications."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from messaging.choices import NotificationChannel, NotificationState, Severity, WebhookState
from messaging.models.base import Identified
from messaging.models.record import Event, Incident
from partners.models import PartnerGroup, Party


class Preference(models.Model):
    """How one person wants the console. Without a row everything is as it comes."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="preference"
    )
    zone = models.CharField(
        "time zone", max_length=64, default="UTC", help_text="UTC, local (the browser's), or an IANA name."
    )
    language = models.CharField(
        max_length=10, blank=True, default="", choices=settings.LANGUAGES, help_text="Empty: the browser's."
    )
    shortcuts = models.BooleanField("single-key shortcuts", default=True)
    columns = models.JSONField(default=dict, blank=True, help_text="List -> names of the columns that are hidden.")
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"preferences of {self.user_id}"


class SavedView(Identified):
    """A list with its filters, under a name. `shared`: everybody sees it. `is_default`: what its owner opens."""

    PREFIX = "view"

    page = models.CharField(max_length=20, help_text="Which list: pairs, messages, incidents, deliveries, audit ...")
    name = models.CharField(max_length=80)
    query = models.CharField(max_length=2000, blank=True, help_text="The query string, without cursor.")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    shared = models.BooleanField("for the team", default=False)
    is_default = models.BooleanField("my default", default=False)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ("page", "name")
        constraints = (
            models.UniqueConstraint(fields=("owner", "page", "name"), name="saved_view_name_unique"),
            models.UniqueConstraint(
                fields=("owner", "page"), condition=Q(is_default=True), name="saved_view_one_default"
            ),
        )

    def __str__(self) -> str:
        return self.name


class Access(models.Model):
    """Limits a person to the partners of some groups. Without a row, or not `limited`, they see all partners.

    `partner`: whose people they are (role partner); they see the portal of that partner.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="hub_access"
    )
    limited = models.BooleanField("only the partners of these groups", default=False)
    groups = models.ManyToManyField(PartnerGroup, blank=True, related_name="+")
    partner = models.ForeignKey(
        Party, null=True, blank=True, on_delete=models.CASCADE, related_name="+", help_text="Whose people they are."
    )

    class Meta:
        verbose_name_plural = "accesses"

    def __str__(self) -> str:
        return f"access of {self.user_id}"


class SecondFactor(models.Model):
    """A time-based one-time password (RFC 6238) of a person. Not asked for before it is confirmed."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="second_factor"
    )
    secret_encrypted = models.BinaryField()
    confirmed_at = models.DateTimeField(null=True, blank=True)
    last_step = models.BigIntegerField(
        default=0, help_text="30-second step of the last code taken: none is taken twice."
    )
    recovery = models.JSONField(default=list, help_text="Hashes of the recovery codes that are left.")
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"second factor of {self.user_id}"


class OpenIdAccount(models.Model):
    """The account of a person at the organisation's OpenID provider."""

    issuer = models.CharField(max_length=255)
    subject = models.CharField(max_length=255)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="openid_accounts")
    created_at = models.DateTimeField()
    last_login_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("issuer", "subject"), name="openid_account_unique"),)

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"


class UserSession(Identified):
    """Where a person is logged in; ending it deletes the row of django_session too."""

    PREFIX = "ses"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="hub_sessions")
    session_key = models.CharField(max_length=40, unique=True, help_text="Of django_session; never shown.")
    address = models.CharField(max_length=64, blank=True, default="")
    agent = models.CharField(max_length=255, blank=True, default="")
    method = models.CharField(max_length=20, default="password", help_text="password, password+totp, openid")
    created_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()

    class Meta:
        ordering = ("-last_seen_at",)

    def __str__(self) -> str:
        return f"session of {self.user_id} from {self.address}"


class LoginThrottle(models.Model):
    """Wrong passwords for one name from one address (or for one name from anywhere: address "")."""

    name = models.CharField(max_length=150)
    address = models.CharField(max_length=64, blank=True, default="")
    misses = models.PositiveIntegerField(default=0)
    last_at = models.DateTimeField()
    until = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("name", "address"), name="login_throttle_unique"),)
        indexes = (models.Index(fields=("last_at",), name="login_throttle_age"),)

    def __str__(self) -> str:
        return f"{self.misses} misses of {self.name} from {self.address or 'anywhere'}"


class PasswordReset(models.Model):
    """Somebody has forgotten a password, and a worker is to mail the link: whether there is such a user, it finds out.

    So the answer to whoever asked is the same, after the same time, for users that exist and for those that do not.
    """

    asked_for = models.CharField("user name or mail address", max_length=254, unique=True)
    address = models.CharField(max_length=64, blank=True, default="", help_text="Where it was asked from.")
    request_id = models.CharField(max_length=80, blank=True, default="")
    created_at = models.DateTimeField()
    due_at = models.DateTimeField(db_index=True)
    attempts = models.PositiveSmallIntegerField(default=0)

    def __str__(self) -> str:
        return f"password reset asked from {self.address or 'anywhere'}"


class ApiToken(Identified):
    """A bearer token: shown once, kept as a hash, limited to scopes, with an end."""

    PREFIX = "tok"

    name = models.CharField(max_length=80)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    secret_sha256 = models.CharField(max_length=64, unique=True)
    scopes = ArrayField(models.CharField(max_length=40))
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    networks = ArrayField(
        models.CharField(max_length=50),
        default=list,
        blank=True,
        help_text="Where it may be used from; empty = anywhere.",
    )
    groups = models.ManyToManyField(
        PartnerGroup, blank=True, related_name="+", help_text="Only the partners of these groups; none = its owner's."
    )

    class Meta:
        verbose_name = "API token"
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.name


class WebhookEndpoint(Identified):
    """A receiver of events, signed as Standard Webhooks describes. `types` empty = all."""

    PREFIX = "whe"

    name = models.CharField(max_length=80, blank=True, default="")
    url = models.CharField(max_length=500)
    types = ArrayField(models.CharField(max_length=40), default=list, blank=True)
    secret_encrypted = models.BinaryField()
    previous_secret_encrypted = models.BinaryField(blank=True, default=b"")
    previous_until = models.DateTimeField(
        null=True, blank=True, help_text="Until then deliveries carry the signature of the previous secret too."
    )
    enabled = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=255, blank=True, default="")
    failing_since = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.name or self.url


class WebhookDelivery(Identified):
    """One event on its way to one endpoint. Its id is the `webhook-id`, the same over all attempts."""

    PREFIX = "dlv"

    endpoint = models.ForeignKey(
        WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries", db_index=False, db_constraint=False
    )
    event = models.ForeignKey(Event, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False)
    body = models.JSONField()
    state = models.CharField(max_length=10, choices=WebhookState, default=WebhookState.PENDING)
    due_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    last_status = models.PositiveSmallIntegerField(null=True, blank=True)
    last_error = models.CharField(max_length=255, blank=True, default="")
    created_at = models.DateTimeField()
    delivered_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "webhook deliveries"
        indexes = (
            models.Index(fields=("due_at",), name="webhook_due", condition=Q(due_at__isnull=False)),
            models.Index(F("endpoint"), F("id").desc(), name="webhook_by_endpoint"),
        )

    def __str__(self) -> str:
        return f"{self.event_id} to {self.endpoint_id}"


class NotificationRule(Identified):
    """Tells somebody of incidents. Empty lists mean all. `window`: what repeats within it is one notification."""

    PREFIX = "rule"

    name = models.CharField(max_length=80, unique=True)
    enabled = models.BooleanField(default=True)
    events = ArrayField(
        models.CharField(max_length=40), help_text="incident.opened, incident.acknowledged, incident.resolved, ..."
    )
    causes = ArrayField(models.CharField(max_length=60), default=list, blank=True)
    group = models.ForeignKey(
        PartnerGroup, null=True, blank=True, on_delete=models.CASCADE, related_name="+", help_text="Only its partners."
    )
    channel = models.CharField(max_length=10, choices=NotificationChannel)
    recipients = ArrayField(models.CharField(max_length=254), default=list, blank=True, help_text="Mail addresses.")
    endpoint = models.ForeignKey(
        WebhookEndpoint, null=True, blank=True, on_delete=models.CASCADE, related_name="+", help_text="Webhook."
    )
    secret_encrypted = models.BinaryField(
        blank=True, default=b"", help_text="Slack and Teams: the webhook's address. PagerDuty, Opsgenie: the key."
    )
    address = models.CharField(
        max_length=500, blank=True, default="", help_text="PagerDuty, Opsgenie: another address than the usual one."
    )
    window = models.PositiveIntegerField("report again after, s", default=3600)
    least = models.CharField(max_length=10, choices=Severity, default=Severity.INFO)
    # In quiet hours only what is critical is sent; the rest waits until they end.
    quiet_from = models.TimeField(null=True, blank=True)
    quiet_to = models.TimeField(null=True, blank=True)
    quiet_zone = models.CharField(max_length=64, default="UTC")
    escalate_after = models.PositiveIntegerField("escalate after, s", default=0, help_text="0: never.")
    escalate_to = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Notification(Identified):
    """One message to people. `folded`: how many more occurrences it stands for."""

    PREFIX = "note"

    rule = models.ForeignKey(NotificationRule, on_delete=models.CASCADE, related_name="notifications")
    incident = models.ForeignKey(
        Incident, null=True, blank=True, on_delete=models.CASCADE, related_name="notifications"
    )
    key = models.CharField(max_length=200, help_text="What counts as the same problem: pair or trigger, cause, event.")
    state = models.CharField(max_length=10, choices=NotificationState, default=NotificationState.PENDING)
    subject = models.CharField(max_length=255)
    body = models.TextField()
    data = models.JSONField(default=dict)
    folded = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(null=True, blank=True)
    escalates_at = models.DateTimeField(
        null=True, blank=True, help_text="When the rule's escalation is notified, if nobody has taken the incident."
    )
    attempts = models.PositiveSmallIntegerField(default=0)
    last_error = models.CharField(max_length=255, blank=True, default="")
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("due_at",), name="notification_due", condition=Q(due_at__isnull=False)),
            models.Index(
                fields=("escalates_at",), name="notification_escalates", condition=Q(escalates_at__isnull=False)
            ),
            models.Index(F("rule"), F("key"), F("id").desc(), name="notification_by_key"),
        )

    def __str__(self) -> str:
        return self.subject


class NotificationCursor(models.Model):
    """How far the event feed was read for notifications: one row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    xid = models.BigIntegerField(default=0)
    event_id = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.xid}-{self.event_id}"
