"""Proof of identity between us and partners."""

from __future__ import annotations

from django.db import models

from partners.choices import CredentialDirection, CredentialKind
from partners.models.parties import Party
from rmhub.ids import public_id, uuid7
from rmhub.language import gettext_lazy


class Credential(models.Model):
    """Proof of identity between us and a partner. Several may be valid at once, so that one can be replaced.

    Inbound secrets are kept as a password hash, outbound ones encrypted (`partners.secrets`).
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    party = models.ForeignKey(Party, on_delete=models.CASCADE, related_name="credentials")
    direction = models.CharField(gettext_lazy("who shows it"), max_length=10, choices=CredentialDirection)
    kind = models.CharField(gettext_lazy("kind"), max_length=12, choices=CredentialKind)
    label = models.CharField(
        gettext_lazy("name"), max_length=80, blank=True, help_text=gettext_lazy("To tell several apart.")
    )
    username = models.CharField(gettext_lazy("user name"), max_length=120, blank=True)
    secret_hash = models.CharField(max_length=255, blank=True)
    secret_encrypted = models.BinaryField(blank=True, default=b"")
    fingerprint = models.CharField(gettext_lazy("SHA-256 fingerprint"), max_length=64, blank=True)
    certificate = models.TextField(blank=True, default="", help_text="PEM of what was uploaded, for its facts.")
    valid_from = models.DateTimeField(
        gettext_lazy("valid from"), null=True, blank=True, help_text=gettext_lazy("Empty: at once.")
    )
    valid_until = models.DateTimeField(
        gettext_lazy("valid until"),
        null=True,
        blank=True,
        help_text=gettext_lazy("Empty: it does not expire. A certificate has its own date."),
    )
    revoked_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("party_id", "direction", "-created_at")

    def __str__(self) -> str:
        return self.label or f"{self.party} {self.kind} {self.direction}"

    @property
    def public_id(self) -> str:
        return public_id("cred", self.id)
