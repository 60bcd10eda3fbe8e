"""People who use the console: what they prefer, what they may see, how they prove who they are, their sessions."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from partners.models import PartnerGroup
from rmhub.ids import public_id, uuid7


class Preference(models.Model):
    """How one person wants the console. Without a row everything is as it comes."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="preference"
    )
    zone = models.CharField(
        "time zone", max_length=64, default="UTC", help_text="UTC, local (the browser's), or an IANA name."
    )
    shortcuts = models.BooleanField("single-key shortcuts", default=True)
    columns = models.JSONField(default=dict, blank=True, help_text="List -> names of the columns that are hidden.")
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"preferences of {self.user_id}"


class SavedView(models.Model):
    """A list with its filters, under a name. `shared`: everybody sees it. `is_default`: what its owner opens."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
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

    @property
    def public_id(self) -> str:
        return public_id("view", self.id)


class Access(models.Model):
    """Limits a person to the partners of some groups. Without a row, or not `limited`, they see all partners."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="hub_access"
    )
    limited = models.BooleanField("only the partners of these groups", default=False)
    groups = models.ManyToManyField(PartnerGroup, blank=True, related_name="+")

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


class UserSession(models.Model):
    """Where a person is logged in; ending it deletes the row of django_session too."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
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

    @property
    def public_id(self) -> str:
        return public_id("ses", self.id)


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
