"""Who is told of what happens, by mail or webhook, and what was told."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from messaging.choices import NotificationChannel, NotificationState
from messaging.models.access import WebhookEndpoint
from messaging.models.record import Incident
from partners.models import PartnerGroup
from rmhub.ids import public_id, uuid7


class NotificationRule(models.Model):
    """Tells somebody of incidents. Empty lists mean all. `window`: what repeats within it is one notification."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
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
    window = models.PositiveIntegerField("told again after, s", default=3600)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def public_id(self) -> str:
        return public_id("rule", self.id)


class Notification(models.Model):
    """One message to people. `folded`: how many more occurrences it stands for."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    rule = models.ForeignKey(NotificationRule, on_delete=models.CASCADE, related_name="notifications")
    incident = models.ForeignKey(
        Incident, null=True, blank=True, on_delete=models.CASCADE, related_name="notifications"
    )
    key = models.CharField(max_length=200, help_text="What is the same trouble: pair or trigger, cause, event.")
    state = models.CharField(max_length=10, choices=NotificationState, default=NotificationState.PENDING)
    subject = models.CharField(max_length=255)
    body = models.TextField()
    data = models.JSONField(default=dict)
    folded = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    last_error = models.CharField(max_length=255, blank=True, default="")
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-id",)
        indexes = (
            models.Index(fields=("due_at",), name="notification_due", condition=Q(due_at__isnull=False)),
            models.Index(F("rule"), F("key"), F("id").desc(), name="notification_by_key"),
        )

    def __str__(self) -> str:
        return self.subject

    @property
    def public_id(self) -> str:
        return public_id("note", self.id)


class NotificationCursor(models.Model):
    """How far the event feed was read for notifications: one row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    xid = models.BigIntegerField(default=0)
    event_id = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.xid}-{self.event_id}"
