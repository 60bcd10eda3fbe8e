"""Organisations: ours and partners, with their identifiers and groups."""

from __future__ import annotations

from django.db import models

from partners.fields import settings
from rmhub.ids import public_id, uuid7
from rmhub.language import gettext_lazy


class PartnerGroup(models.Model):
    """Partners that the same people look after: users and tokens can be limited to groups."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(gettext_lazy("name"), max_length=80, unique=True)
    description = models.CharField(gettext_lazy("description"), max_length=255, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)
        verbose_name = gettext_lazy("partner group")

    def __str__(self) -> str:
        return self.name

    @property
    def public_id(self) -> str:
        return public_id("grp", self.id)


class Party(models.Model):
    """An organisation. Exactly one or more are ours (`is_own`)."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(
        gettext_lazy("name"),
        max_length=120,
        unique=True,
        help_text=gettext_lazy("What people call them. It appears on every page."),
    )
    is_own = models.BooleanField(
        gettext_lazy("our own organisation"),
        default=False,
        help_text=gettext_lazy("One of our own organisations, in whose name the hub sends."),
    )
    contact = models.TextField(
        gettext_lazy("contacts"), blank=True, help_text=gettext_lazy("Names, telephone numbers, mail addresses.")
    )
    time_zone = models.CharField(
        gettext_lazy("time zone"),
        max_length=64,
        blank=True,
        default="",
        help_text=gettext_lazy("IANA name; pages can show times in it."),
    )
    hours = models.CharField(gettext_lazy("business hours"), max_length=120, blank=True, default="")
    groups = models.ManyToManyField(PartnerGroup, blank=True, related_name="partners")
    archived_at = models.DateTimeField(
        null=True, blank=True, help_text="Archived: not offered any more, what it did stays."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)
        verbose_name = gettext_lazy("party")
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
    context = models.CharField(
        gettext_lazy("type"), max_length=120, help_text=gettext_lazy("The scheme: DUNS, GLN, URI ...")
    )
    value = models.CharField(gettext_lazy("value"), max_length=255)
    rank = models.PositiveSmallIntegerField(default=0)

    class Meta:
        ordering = ("rank", "id")
        verbose_name = gettext_lazy("party identifier")
        constraints = (models.UniqueConstraint(fields=("context", "value"), name="party_identifier_unique"),)

    def __str__(self) -> str:
        return f"{self.context}:{self.value}"
