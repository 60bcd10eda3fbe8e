"""Who may use the API, and who is told of events."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from messaging.choices import WebhookState
from messaging.models.record import Event
from partners.models import PartnerGroup
from rmhub.ids import public_id, uuid7


class ApiToken(models.Model):
    """A bearer token: shown once, kept as a hash, limited to scopes, with an end."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
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
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.name

    @property
    def public_id(self) -> str:
        return public_id("tok", self.id)


class WebhookEndpoint(models.Model):
    """A receiver of events, signed as Standard Webhooks describes. `types` empty = all."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
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

    @property
    def public_id(self) -> str:
        return public_id("whe", self.id)


class WebhookDelivery(models.Model):
    """One event on its way to one endpoint. Its id is the `webhook-id`, the same over all attempts."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    endpoint = models.ForeignKey(WebhookEndpoint, on_delete=models.CASCADE, related_name="deliveries")
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

    @property
    def public_id(self) -> str:
        return public_id("dlv", self.id)
