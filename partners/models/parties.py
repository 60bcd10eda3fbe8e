"""Organisations: ours and partners, with their identifiers and groups."""

from __future__ import annotations

from django.db import models

from partners.fields import settings
from rmhub.ids import public_id, uuid7


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
    name = models.CharField(max_length=120, unique=True, help_text="What people call them. It appears on every page.")
    is_own = models.BooleanField(
        "our own organisation", default=False, help_text="One of our own organisations, in whose name the hub sends."
    )
    contact = models.TextField("contacts", blank=True, help_text="Names, telephone numbers, mail addresses.")
    time_zone = models.CharField(
        max_length=64, blank=True, default="", help_text="IANA name; pages can show times in it."
    )
    hours = models.CharField("business hours", max_length=120, blank=True, default="")
    groups = models.ManyToManyField(PartnerGroup, blank=True, related_name="partners")
    archived_at = models.DateTimeField(
        null=True, blank=True, help_text="Archived: not offered any more, what it did stays."
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


PARTY = settings(Party, "archived_at")


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
