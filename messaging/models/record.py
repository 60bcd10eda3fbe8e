"""What is written down for people and scripts: events, incidents, the audit log, and how it names things."""

from __future__ import annotations

import re

from django.db import models
from django.db.models import F, Q

from messaging.choices import IncidentState, Interface, NoteKind
from messaging.models.base import CurrentTransaction, Identified
from messaging.models.coordination import Coordination
from messaging.models.message import Message
from messaging.models.pair import Pair
from messaging.models.trigger import Trigger
from partners.models import Agreement
from rmhub.ids import public_id, uuid7


class Event(models.Model):
    """Something that happened to a message or a pair. History, event feed, and what webhooks are made from.

    Rows are numbered before they are committed, so a reader that remembers the highest `id` would miss one that
    commits late. `xid` closes that hole: see `models.feed`.
    """

    id = models.BigAutoField(primary_key=True)
    xid = models.BigIntegerField(db_default=CurrentTransaction(), editable=False)
    at = models.DateTimeField()
    type = models.CharField(max_length=40)
    pair = models.ForeignKey(
        Pair, null=True, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    message = models.ForeignKey(
        Message, null=True, on_delete=models.DO_NOTHING, related_name="+", db_index=False, db_constraint=False
    )
    data = models.JSONField(default=dict)
    traceparent = ""  # not stored: of the request that led to it (`messaging.tracing`)

    class Meta:
        ordering = ("id",)
        indexes = (
            models.Index(fields=("xid", "id"), name="event_feed"),
            models.Index(fields=("message", "id"), name="event_by_message", condition=Q(message__isnull=False)),
            models.Index(F("pair"), F("id").desc(), name="event_of_pair_itself", condition=Q(message__isnull=True)),
        )

    def __str__(self) -> str:
        return f"{self.type} #{self.pk}"


class Incident(Identified):
    """Something that a person must look at. At most one is unresolved for each (pair, trigger, coordination,
    agreement, cause).
    """

    PREFIX = "inc"

    number = models.PositiveIntegerField(unique=True)
    state = models.CharField(max_length=12, choices=IncidentState, default=IncidentState.OPEN)
    cause = models.CharField(max_length=60)
    detail = models.TextField(blank=True, default="")
    pair = models.ForeignKey(Pair, null=True, blank=True, on_delete=models.PROTECT, related_name="incidents")
    message = models.ForeignKey(
        Message, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_constraint=False
    )
    trigger = models.ForeignKey(Trigger, null=True, blank=True, on_delete=models.PROTECT, related_name="incidents")
    coordination = models.ForeignKey(
        Coordination, null=True, blank=True, on_delete=models.SET_NULL, related_name="incidents"
    )
    part_of = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="parts",
        help_text="The incident about the same problem that was there first; this one closes with it.",
    )
    agreement = models.ForeignKey(
        Agreement,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Whose target it is about.",
    )
    occurrences = models.PositiveIntegerField(default=1)
    opened_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    owner = models.CharField(max_length=150, blank=True, default="")
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolved_by = models.CharField(max_length=150, blank=True, default="")
    resolution = models.TextField(blank=True, default="")
    snoozed_until = models.DateTimeField(null=True, blank=True, help_text="Not among what needs somebody before then.")
    version = models.PositiveIntegerField(default=1, help_text="Counts the actions of people (ETag).")

    class Meta:
        ordering = ("-number",)
        constraints = (
            models.UniqueConstraint(
                fields=("pair", "trigger", "coordination", "agreement", "cause"),
                condition=~Q(state="resolved"),
                name="incident_one_unresolved_per_cause",
                nulls_distinct=False,
            ),
        )
        indexes = (models.Index(fields=("state", "-number"), name="incident_by_state"),)

    def __str__(self) -> str:
        return f"INC-{self.number}"


class IncidentNote(models.Model):
    """What a person wrote to an incident, or did with it."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="notes")
    kind = models.CharField(max_length=10, choices=NoteKind, default=NoteKind.COMMENT)
    author = models.CharField(max_length=150)
    text = models.TextField()
    at = models.DateTimeField()

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.author} on {self.incident_id}"


class AuditEntry(Identified):
    """An action of a person (or a token): who, when, what, why, before and after. Never changed, never deleted.

    Entries are sealed moments after their commit (`access.services.audit_chain`): `number` is their place in the
    chain, and `digest` is SHA-256 over the entry and the digest before it. An entry that is not sealed yet has neither.
    """

    PREFIX = "aud"

    at = models.DateTimeField()
    actor = models.CharField(max_length=150)
    interface = models.CharField(max_length=10, choices=Interface)
    address = models.CharField(max_length=64, blank=True, default="")
    request_id = models.CharField(max_length=80, blank=True, default="")
    verb = models.CharField(max_length=60)
    object_type = models.CharField(max_length=40)
    object_id = models.CharField(max_length=80)
    object_name = models.CharField(max_length=255, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    authentication = models.CharField(
        max_length=20, blank=True, default="", help_text="How the actor showed who they are: session, totp, token ..."
    )
    result = models.CharField(max_length=10, default="done", help_text="done, or denied")
    number = models.BigIntegerField(
        null=True, unique=True, editable=False, help_text="Its place in the chain; empty: not sealed yet."
    )
    digest = models.CharField(
        "SHA-256",
        max_length=64,
        blank=True,
        default="",
        editable=False,
        help_text="SHA-256 over it and the digest before it; empty: not sealed yet.",
    )

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "audit entries"
        indexes = (
            models.Index(F("object_type"), F("object_id"), F("id").desc(), name="audit_by_object"),
            models.Index(F("actor"), F("id").desc(), name="audit_by_actor"),
            models.Index(F("verb"), F("id").desc(), name="audit_by_verb"),
            models.Index(fields=("id",), name="audit_unsealed", condition=Q(number__isnull=True)),
        )

    def __str__(self) -> str:
        return f"{self.actor} {self.verb} {self.object_name}"


_INCIDENT = re.compile(r"INC-([0-9]{1,9})", re.IGNORECASE | re.ASCII)
_PUBLIC_ID = re.compile(r"([a-z]{2,6})_[0-9a-f]{32}")
# Prefix of a public id -> how the audit log names the type.
_TYPES = {
    "pair": "pair",
    "inc": "incident",
    "msg": "message",
    "del": "delivery",
    "trg": "trigger",
    "par": "party",
    "agr": "agreement",
    "txn": "coordination",
    "job": "bulkjob",
    "tok": "apitoken",
    "whe": "webhookendpoint",
}


def object_named(text: str) -> tuple[str, str] | None:
    """(type, public id) as the audit log has them, of what people mean by an id, `INC-42` or a pair's code."""
    if known := _PUBLIC_ID.fullmatch(text):
        kind = _TYPES.get(known[1])
        return (kind, text) if kind else None
    if number := _INCIDENT.fullmatch(text):
        incident = Incident.objects.filter(number=int(number[1])).values_list("pk", flat=True).first()
        return ("incident", public_id("inc", incident)) if incident is not None else None
    pair = Pair.objects.filter(code=text.upper()).values_list("pk", flat=True).first()
    return ("pair", public_id("pair", pair)) if pair is not None else None
