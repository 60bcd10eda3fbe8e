"""Transactional streams (spec 3): what is kept for each stream that comes in, and for the one that goes out."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from messaging.models.pair import Pair
from rmhub.ids import uuid7


class IncomingStream(models.Model):
    """What one sending queue manager has got accepted on an inbound pair (spec 3; protocols 3.3).

    Changes only under the pair's lock. `tx_sequence_id` and `number` move on acceptance only; 0 before the first.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    pair = models.ForeignKey(Pair, on_delete=models.PROTECT, related_name="streams_in", db_index=False)
    source = models.CharField("sender's GUID", max_length=64)
    tx_sequence_id = models.DecimalField("IncomingTxSequenceID", max_digits=20, decimal_places=0, default=0)
    number = models.PositiveBigIntegerField("IncomingTxSequenceNumber", default=0)
    reject_count = models.PositiveIntegerField("TxMessageRejectCount", default=0)
    last_access_at = models.DateTimeField("LastAccessTime", null=True, blank=True)
    last_order_ack_at = models.DateTimeField("LastOrderAckSendTime", null=True, blank=True)
    order_ack_due_at = models.DateTimeField(
        null=True, blank=True, help_text="The Order Ack Send Timer; empty = inactive."
    )
    receipts_to = models.CharField(
        max_length=500, blank=True, help_text="Where the sender wants receipts; shown, never used as an address."
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
