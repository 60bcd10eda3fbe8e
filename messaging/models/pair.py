"""One Sender-Receiver pair of messaging service URIs: the unit of ordering, locking and suspension."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django.db import models
from django.db.models import Q

from messaging.choices import Direction
from messaging.protocol.pair_state import Flow, Gate
from partners.models import Party
from rmhub.ids import public_id, uuid7

FLOWS = [(flow.value, flow.value) for flow in Flow]
GATES = [(gate.value, gate.value) for gate in Gate]


class Pair(models.Model):
    """State changes only in a transaction that holds this row's lock (invariant 6).

    Outbound: the columns of `protocol.pair_state.PairState`. Inbound: `last_sequence` and
    `last_message_id` are those last accepted; 0 and "" before the first.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    direction = models.CharField(max_length=3, choices=Direction)
    sender_uri = models.CharField(max_length=500)
    receiver_uri = models.CharField(max_length=500)
    own_party = models.ForeignKey(Party, on_delete=models.PROTECT, related_name="+")
    partner = models.ForeignKey(Party, on_delete=models.PROTECT, related_name="+")
    code = models.CharField(max_length=120, unique=True, help_text="Short name on screens: ACME>GLOBEX.")

    flow = models.CharField(max_length=12, choices=FLOWS, default=Flow.IDLE.value)
    gate = models.CharField(max_length=10, choices=GATES, default=Gate.OPEN.value)
    in_flight = models.ForeignKey(
        "messaging.Message", null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_constraint=False
    )
    transmission_id = models.UUIDField(null=True, blank=True, help_text="The attempt whose outcome counts.")
    retries = models.PositiveIntegerField(default=0)
    transport_attempts = models.PositiveIntegerField(default=0)
    last_sequence = models.PositiveIntegerField(default=0)
    last_message_id = models.CharField(max_length=512, blank=True, default="")
    due_at = models.DateTimeField(null=True, blank=True)
    holding_since = models.DateTimeField(null=True, blank=True)
    cause = models.CharField(max_length=60, blank=True, default="")
    cause_detail = models.TextField(blank=True, default="")

    queued = models.PositiveIntegerField(default=0, help_text="Messages that wait behind the one in flight.")
    out_now = models.PositiveIntegerField(
        "in flight", default=0, help_text="Repeatable profile: messages between first send and their end."
    )
    next_position = models.BigIntegerField(default=1)
    done = models.BigIntegerField(default=0, help_text="Delivered, or accepted.")
    duplicates = models.BigIntegerField(default=0)
    rejected = models.BigIntegerField(default=0)
    changed_at = models.DateTimeField(null=True, blank=True, help_text="When flow or gate last became what it is.")
    last_success_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    probing = models.BooleanField(
        default=False, help_text="Resumed with one message first: until it is delivered the first failure suspends."
    )
    # Silence is a fault too: a document is expected every so often, with some grace; 0 = no rhythm is known.
    expected_every = models.PositiveIntegerField("a document is expected every, s", default=0)
    silence_grace = models.PositiveIntegerField("grace, s", default=0)
    rhythm_since = models.DateTimeField(
        null=True, blank=True, help_text="When the rhythm was set: silence counts from then."
    )
    silent_since = models.DateTimeField(null=True, blank=True, help_text="Silent: when the awaited document was due.")
    # After a loss of memory (`pairs.services.resync`), until a person has compared what both sides have.
    resync_since = models.DateTimeField(
        "needs resync since", null=True, blank=True, help_text="When the hub's memory was found to be lost."
    )
    resync_from = models.DateTimeField(
        "memory ends at", null=True, blank=True, help_text="What came after this instant is forgotten; empty = unknown."
    )
    takes_any_number = models.BooleanField(
        default=False, help_text="Inbound: its numbers were lost, so the next message is taken whatever its number is."
    )
    runbook = models.TextField(
        "run-book", blank=True, default="", help_text="Markdown; shown when the pair is in trouble."
    )
    version = models.PositiveBigIntegerField(
        default=1, help_text="Counts the actions of people and suspensions (ETag)."
    )

    class Meta:
        ordering = ("code",)
        constraints = (
            models.UniqueConstraint(fields=("direction", "sender_uri", "receiver_uri"), name="pair_uris_unique"),
            models.CheckConstraint(
                name="pair_in_flight_has_state",
                condition=Q(flow__in=[Flow.IDLE, Flow.SUSPENDED]) | Q(in_flight__isnull=False),
            ),
        )
        indexes = (
            models.Index(fields=("due_at",), name="pair_due", condition=Q(due_at__isnull=False, gate="open")),
            models.Index(fields=("partner",), name="pair_partner"),
            models.Index(fields=("expected_every",), name="pair_with_rhythm", condition=Q(expected_every__gt=0)),
            models.Index(fields=("resync_since",), name="pair_needs_resync", condition=Q(resync_since__isnull=False)),
        )

    def __str__(self) -> str:
        return self.code

    @classmethod
    def locked(cls, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Pair]:
        """Locks pairs for a group, in the order of their ids so that two groups never wait for each other.

        Plain SQL, because it runs for every group and building the query would cost as much as running it.
        """
        wanted = list(set(ids))
        if not wanted:
            return {}
        rows = cls.objects.raw("SELECT * FROM messaging_pair WHERE id = ANY(%s) ORDER BY id FOR UPDATE", [wanted])
        return {pair.pk: pair for pair in rows}

    @property
    def in_queue(self) -> int:
        """How many documents are not done: the one that is first in line or those on the way, and what waits."""
        return self.queued + self.out_now + (1 if self.in_flight_id is not None else 0)

    @property
    def public_id(self) -> str:
        return public_id("pair", self.id)
