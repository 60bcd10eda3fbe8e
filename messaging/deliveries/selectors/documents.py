"""Documents as the consumer of a pull queue sees them: what their messages say, and payloads without their octets."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from messaging.choices import DeliveryState
from messaging.models import Delivery, Message, Payload

_NAMES = ("message__pair__partner", "message__agreement_version__agreement")


@dataclass(frozen=True, slots=True)
class DocumentFacts:
    """One message of a delivery, with its payloads in their order (rows without the octets)."""

    message: Message
    payloads: tuple[Payload, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """A delivery with its trigger and its document; `others` are the other documents of a join, as they arrived."""

    delivery: Delivery
    document: DocumentFacts
    others: tuple[DocumentFacts, ...]

    @property
    def messages(self) -> list[Message]:
        return [facts.message for facts in (self.document, *self.others)]


def taken(delivery_ids: Sequence[uuid.UUID]) -> list[Taken]:
    """These deliveries in this order, in three queries at most. Raises KeyError for one that is not there."""
    found = Delivery.objects.select_related("trigger", *_NAMES).filter(pk__in=delivery_ids)
    rows = {row.pk: row for row in found.defer("trigger__secret_encrypted", "answer", "message__wire_frame")}
    chosen = [rows[delivery_id] for delivery_id in delivery_ids]
    others = _others(chosen)
    payloads = _payloads(message.pk for row in chosen for message in (row.message, *others[row.pk]))

    def facts(message: Message) -> DocumentFacts:
        return DocumentFacts(message, tuple(payloads[message.pk]))

    return [Taken(row, facts(row.message), tuple(facts(message) for message in others[row.pk])) for row in chosen]


def held(trigger_id: uuid.UUID, consumer: str) -> list[uuid.UUID]:
    """The deliveries of a pull queue that this consumer has leased now, in the order of their leases' ends."""
    running = Delivery.objects.filter(trigger=trigger_id, state=DeliveryState.RUNNING, taken_by=consumer)
    return list(running.filter(claim__isnull=False).order_by("due_at", "id").values_list("pk", flat=True))


def _others(firings: Sequence[Delivery]) -> dict[uuid.UUID, list[Message]]:
    """By delivery: the messages that its join brought together, but its own."""
    found: dict[uuid.UUID, list[Message]] = defaultdict(list)
    by_join: dict[uuid.UUID | None, Delivery] = {row.join_id: row for row in firings if row.join_id is not None}
    if by_join:
        parts = Delivery.objects.filter(part_of__in=by_join, state=DeliveryState.COMPLETED, join__isnull=True)
        parts = parts.select_related(*_NAMES).defer("answer", "message__wire_frame")
        for part in parts.order_by("message_id", "id"):
            firing = by_join[part.part_of_id]
            if part.message_id != firing.message_id:
                found[firing.pk].append(part.message)
    return found


def _payloads(message_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, list[Payload]]:
    found: dict[uuid.UUID, list[Payload]] = defaultdict(list)
    rows = Payload.objects.filter(message__in=set(message_ids)).defer("content")
    for payload in rows.order_by("message_id", "number"):
        found[payload.message_id].append(payload)
    return found
