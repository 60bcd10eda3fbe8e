"""Writes events, and with them the webhook deliveries that they cause: in the caller's transaction."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db import transaction

from messaging import dispatch
from messaging.models import Event, Message, Pair, WebhookDelivery, WebhookEndpoint
from messaging.models.bulk import bulk_insert
from rmhub.ids import public_id

TYPES = (
    "message.accepted",
    "message.retrying",
    "message.sent",
    "message.delayed",
    "message.bounced",
    "message.delivered",
    "message.failed",
    "message.skipped",
    "message.cancelled",
    "message.in_doubt",
    "message.settled",
    "message.received",
    "message.forwarded",
    "message.duplicate",
    "message.rejected",
    "pair.suspended",
    "pair.resumed",
    "pair.paused",
    "pair.released",
    "pair.silent",
    "pair.heard",
    "pair.retry_budget",
    "delivery.completed",
    "delivery.failed",
    "delivery.duplicate",
    "delivery.in_doubt",
    "delivery.settled",
    "trigger.suspended",
    "trigger.resumed",
    "transaction.begun",
    "transaction.committed",
    "transaction.aborted",
    "transaction.in_doubt",
    "transaction.settled",
    "circuit.opened",
    "circuit.closed",
    "incident.opened",
    "incident.acknowledged",
    "incident.assigned",
    "incident.snoozed",
    "incident.resolved",
    "agreement.activated",
    "agreement.disabled",
    "certificate.expiring",
    "webhook_endpoint.disabled",
    "webhook_endpoint.test",
    "bulk_operation.finished",
)

_endpoints: tuple[float, tuple[WebhookEndpoint, ...]] | None = None


def event(
    kind: str,
    at: datetime,
    *,
    pair: Pair | uuid.UUID | None = None,
    message: Message | None = None,
    data: Mapping[str, object] | None = None,
) -> Event:
    """An event that is not written yet. `data` must be JSON; a message adds its MessageId and number."""
    pair_id = pair.pk if isinstance(pair, Pair) else pair
    facts = dict(data or {})
    if message is not None:
        facts.setdefault("message_id", message.message_id)
        if message.sequence_number is not None:
            facts.setdefault("sequence_number", message.sequence_number)
    return Event(type=kind, at=at, pair_id=pair_id, message=message, data=facts)


def write(events: Sequence[Event]) -> None:
    """Stores the events and what is owed to webhook endpoints. Call inside the transaction that they tell of."""
    if not events:
        return
    known = _webhook_endpoints()
    bulk_insert(events, returning_key=bool(known))
    if not known:
        return
    # Looked at again and held until our commit: one that is deleted meanwhile would take this transaction with it.
    endpoints = list(
        WebhookEndpoint.objects.raw(
            "SELECT * FROM messaging_webhookendpoint WHERE enabled AND id = ANY(%s) ORDER BY id FOR KEY SHARE",
            [[endpoint.pk for endpoint in known]],
        )
    )
    deliveries = [
        WebhookDelivery(endpoint=endpoint, event=event, body=body(event), due_at=event.at, created_at=event.at)
        for event in events
        for endpoint in endpoints
        if not endpoint.types or event.type in endpoint.types
    ]
    if deliveries:
        bulk_insert(deliveries)
        transaction.on_commit(lambda: dispatch.wake(dispatch.WEBHOOKS))


def body(event: Event) -> dict[str, object]:
    """The thin form in which webhooks and the feed show an event: ids to look up, not the content."""
    ids: dict[str, object] = {}
    if event.message_id:
        ids["message"] = public_id("msg", event.message_id)
    if event.pair_id:
        ids["pair"] = public_id("pair", event.pair_id)
    return {"type": event.type, "timestamp": event.at.isoformat(), "data": {**ids, **event.data}}


def _webhook_endpoints() -> tuple[WebhookEndpoint, ...]:
    """Enabled endpoints, looked up once a second at most: a change takes that long to be seen."""
    global _endpoints
    at = time.monotonic()
    if _endpoints is None or at - _endpoints[0] > 1.0:
        _endpoints = (at, tuple(WebhookEndpoint.objects.filter(enabled=True)))
    return _endpoints[1]


def reset() -> None:
    """Forgets the cached endpoints (tests)."""
    global _endpoints
    _endpoints = None
