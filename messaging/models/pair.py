"""Sender-Receiver pairs, and the transactional streams (spec 3) that come in and go out on them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from django.db import models
from django.db.models import Q

from messaging.choices import Direction
from messaging.models.base import Identified
from messaging.models.bulk import read
from messaging.protocol.pair_state import Flow, Gate
from partners.models import Party
from rmhub.ids import uuid7

FLOWS = [(flow.value, flow.value) for flow in Flow]
GATES = [(gate.value, gate.value) for gate in Gate]


class Pair(Identified):
    """State changes only in a transaction that holds this row's lock (invariant 6).

    Outbound: the columns of `protocol.pair_state.PairState`. Inbound: `last_sequence` and
    `last_message_id` are those last accepted; 0 and "" before the first.
    """

    PREFIX = "pair"

    direction = models.CharField(max_length=3, choices=Direction)
    sender_uri = models.CharField(max_length=500)
    receiver_uri = models.CharField(max_length=500)
    own_party = models.ForeignKey(Party, on_delete=models.PROTECT, related_name="+")
    partner = models.ForeignKey(Party, on_delete=models.PROTECT, related_name="+", db_index=False)
    code = models.CharField(max_length=120, unique=True, help_text="Short name on screens: ACME>GLOBEX.")

    flow = models.CharField(max_length=12, choices=FLOWS, default=Flow.IDLE.value)
    gate = models.CharField(max_length=10, choices=GATES, default=Gate.OPEN.value)
    in_flight = models.ForeignKey(
        "messaging.Message",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        db_index=False,
        db_constraint=False,
    )
    transmission_id = models.UUIDField(null=True, blank=True, help_text="The attempt whose outcome counts.")
    retries = models.PositiveIntegerField(default=0)
    transport_attempts = models.PositiveIntegerField(default=0)
    last_sequence = models.PositiveIntegerField(
        default=0, help_text="The sequence number that was given, or accepted, last."
    )
    last_message_id = models.CharField(max_length=512, blank=True, default="")
    due_at = models.DateTimeField(null=True, blank=True)
    holding_since = models.DateTimeField(null=True, blank=True)
    cause = models.CharField(max_length=60, blank=True, default="")
    cause_detail = models.TextField(blank=True, default="")

    queued = models.PositiveIntegerField(default=0, help_text="Messages that wait behind the one in flight.")
    out_now = models.PositiveIntegerField(
        "in flight", default=0, help_text="Repeatable requests and streams: messages on the way at this moment."
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
    # Silence is a fault too.
    expected_every = models.PositiveIntegerField(
        "a document is expected every, s",
        default=0,
        help_text="A document is expected every so many seconds; 0 = no rhythm is known.",
    )
    silence_grace = models.PositiveIntegerField(
        "grace, s", default=0, help_text="Seconds beyond that before the pair is called silent."
    )
    rhythm_since = models.DateTimeField(
        null=True, blank=True, help_text="When the rhythm was set: silence counts from then."
    )
    silent_since = models.DateTimeField(null=True, blank=True, help_text="When the awaited document was due.")
    # After a loss of memory (`pairs.services.resync`), until a person has compared what both sides have.
    resync_since = models.DateTimeField(
        "needs resync since",
        null=True,
        blank=True,
        help_text="The hub's memory was lost then, and nobody has compared both sides yet: what comes in may be a "
        "repeat. Null: nothing is missing.",
    )
    resync_from = models.DateTimeField(
        "memory ends at",
        null=True,
        blank=True,
        help_text="From when on things may be missing here; null when that is not known.",
    )
    takes_any_number = models.BooleanField(
        default=False,
        help_text="Inbound: the number that should come next was lost, so the next message is taken with its own.",
    )
    runbook = models.TextField(
        "run-book", blank=True, default="", help_text="Markdown; shown when the pair has a problem."
    )
    version = models.PositiveBigIntegerField(
        default=1, help_text="Counts what people do to it, and suspensions: what If-Match compares."
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
        # None of a column that a message moves: with each of them every message would write into all of them. What is
        # due is looked for in the whole table, which has a few megabytes where there are ten thousand pairs.
        indexes = (
            models.Index(fields=("partner",), name="pair_partner"),
            models.Index(fields=("expected_every",), name="pair_with_rhythm", condition=Q(expected_every__gt=0)),
            models.Index(fields=("resync_since",), name="pair_needs_resync", condition=Q(resync_since__isnull=False)),
        )

    def __str__(self) -> str:
        return self.code

    @classmethod
    def locked(
        cls, ids: Iterable[uuid.UUID], *, sending: Mapping[uuid.UUID, uuid.UUID] | None = None
    ) -> dict[uuid.UUID, Pair]:
        """Locks pairs for a group, in the order of their ids so that two groups never wait for each other.

        `sending`: attempts with their pairs, which are locked too if they still wait for the outcome of that attempt.
        Plain SQL, because it runs for every group and building the query would cost as much as running it.
        """
        wanted = list(set(ids))
        if sending:
            found = read(
                cls,
                "SELECT * FROM messaging_pair WHERE id = ANY(%s) OR id = ANY(%s) AND flow = 'sending'"
                " AND transmission_id = ANY(%s) ORDER BY id FOR UPDATE",
                [wanted, list(sending.values()), list(sending)],
            )
            return {pair.pk: pair for pair in found}
        if not wanted:
            return {}
        rows = read(cls, "SELECT * FROM messaging_pair WHERE id = ANY(%s) ORDER BY id FOR UPDATE", [wanted])
        return {pair.pk: pair for pair in rows}

    @property
    def in_queue(self) -> int:
        """How many documents are not done: the one that is first in line or those on the way, and what waits."""
        return self.queued + self.out_now + (1 if self.in_flight_id is not None else 0)


class IncomingStream(models.Model):
    """What one sending queue manager has got accepted on an inbound pair (spec 3; protocols 3.3).

    Changes only under the pair's lock. `tx_sequence_id` and `number` move on acceptance only; 0 before the first.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    pair = models.ForeignKey(Pair, on_delete=models.PROTECT, related_name="streams_in", db_index=False)
    source = models.CharField("sender's GUID", max_length=64)
    tx_sequence_id = models.DecimalField("IncomingTxSequenceID", max_digits=20, decimal_places=0, default=0)
    number = models.PositiveBigIntegerField(
        "IncomingTxSequenceNumber", default=0, help_text="IncomingTxSequenceNumber: accepted last."
    )
    reject_count = models.PositiveIntegerField(
        "TxMessageRejectCount", default=0, help_text="Refused since the last that was accepted."
    )
    last_access_at = models.DateTimeField("LastAccessTime", null=True, blank=True)
    last_order_ack_at = models.DateTimeField("LastOrderAckSendTime", null=True, blank=True)
    order_ack_due_at = models.DateTimeField(
        null=True, blank=True, help_text="The Order Ack Send Timer; null when it is off."
    )
    receipts_to = models.CharField(
        max_length=500, blank=True, help_text="Where it wants receipts; never used as an address."
    )
    agreement_version_id = models.UUIDField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("pair_id", "id")
        constraints = (models.UniqueConstraint(fields=("pair", "source"), name="incoming_stream_unique"),)
        indexes = (
            models.Index(
                fields=("order_ack_due_at",), name="order_ack_due", condition=Q(order_ack_due_at__isnull=False)
            ),
        )

    def __str__(self) -> str:
        return f"{self.source}\\{self.tx_sequence_id}"


class OutgoingStream(models.Model):
    """The stream that an outbound pair sends under now (protocols 3.4). Changes only under the pair's lock."""

    pair = models.OneToOneField(Pair, primary_key=True, on_delete=models.PROTECT, related_name="stream_out")
    source = models.CharField("our GUID", max_length=64)
    tx_sequence_id = models.DecimalField("OutgoingTxSequenceID", max_digits=20, decimal_places=0)
    next_number = models.PositiveBigIntegerField("OutgoingTxSequenceNumber", default=1)
    acked_number = models.PositiveBigIntegerField(default=0)
    resend_index = models.PositiveSmallIntegerField(default=0, help_text="Waits without an order acknowledgement.")
    started_at = models.DateTimeField()
    last_ack_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("pair_id",)

    def __str__(self) -> str:
        return f"{self.source}\\{self.tx_sequence_id}"


class OrderedConversation(models.Model):
    """A conversation of a pair whose messages have an order (MessageOrder of ebXML Messaging 2.0, section 9).

    Changes only under the pair's lock. `number`: outbound the one that was given last, inbound the one that was handed
    on last; null before the first.
    """

    id = models.BigAutoField(primary_key=True)
    pair = models.ForeignKey(Pair, on_delete=models.PROTECT, related_name="conversations", db_index=False)
    conversation_id = models.CharField("ConversationId", max_length=512)
    number = models.PositiveIntegerField("SequenceNumber", null=True, blank=True)
    restarts = models.BooleanField(
        default=False, help_text="Outbound: the next message begins anew (Reset). Inbound: any number is the next."
    )
    gap_since = models.DateTimeField(
        null=True, blank=True, help_text="Inbound: since when something waits for what comes before it."
    )
    changed_at = models.DateTimeField()

    class Meta:
        ordering = ("pair_id", "id")
        constraints = (models.UniqueConstraint(fields=("pair", "conversation_id"), name="ordered_conversation_unique"),)
        indexes = (
            models.Index(fields=("gap_since",), name="ordered_conversation_gap", condition=Q(gap_since__isnull=False)),
        )

    def __str__(self) -> str:
        return self.conversation_id
