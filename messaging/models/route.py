"""The hub as a router (spec 1, 4.1), and the addresses that are left alone for a while."""

from __future__ import annotations

import uuid

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from messaging.choices import CircuitState, RouteMode
from partners.fields import Seconds
from partners.models import Agreement, Pickup
from rmhub.ids import public_id, uuid7


class Route(models.Model):
    """Where messages for a party that is not ours go next. The most specific enabled one applies."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=120, unique=True, help_text="What people call it. It stands on every page.")
    party_context = models.CharField("To-party: type", max_length=120, help_text="The scheme of its identifier.")
    party_value = models.CharField("To-party: identifier", max_length=255)
    service = models.CharField(
        max_length=255,
        blank=True,
        help_text="Only messages of this service; empty: of every one. The most specific route that is on applies.",
    )
    onward = models.ForeignKey(
        Agreement,
        on_delete=models.PROTECT,
        related_name="routes",
        verbose_name="agreement with the next hop",
        help_text="Its endpoints, transport, profile and reliability are what the message goes on under.",
    )
    mode = models.CharField("acknowledged", max_length=20, choices=RouteMode, default=RouteMode.STORE_FORWARD)
    max_hops = models.PositiveSmallIntegerField(
        "hops, at most",
        default=10,
        validators=[MinValueValidator(1), MaxValueValidator(10)],
        help_text="What has had as many is not passed on: 1 to 10.",
    )
    min_retry_secs = Seconds(
        "MinRetrySecs",
        default=60,
        validators=[MinValueValidator(1)],
        help_text="What the hop before is told to wait while the next hop takes nothing.",
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

    @property
    def public_id(self) -> str:
        return public_id("rt", self.id)


class Circuit(models.Model):
    """How an address has answered lately; only those that failed have a row (spec 1, 2.5.4)."""

    address = models.CharField(primary_key=True, max_length=500)
    state = models.CharField(max_length=10, choices=CircuitState, default=CircuitState.CLOSED)
    failures = models.PositiveIntegerField(default=0, help_text="In a row.")
    opened_at = models.DateTimeField(null=True, blank=True)
    retry_at = models.DateTimeField(null=True, blank=True, help_text="When one attempt is let through.")
    opened_times = models.PositiveIntegerField(default=0, help_text="In a row; each wait is longer.")
    cause = models.CharField(max_length=60, blank=True, default="")
    detail = models.TextField(blank=True, default="")
    updated_at = models.DateTimeField()
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


class PickupState(models.Model):
    """How far the hub is with a mailbox or folder."""

    pickup = models.OneToOneField(Pickup, primary_key=True, on_delete=models.CASCADE, related_name="progress")
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
        ordering = ("pickup_id",)

    def __str__(self) -> str:
        return str(self.pickup_id)
