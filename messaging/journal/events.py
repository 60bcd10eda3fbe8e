"""Writes events, and with them the webhook deliveries that they cause: in the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db import transaction

from messaging import dispatch, tracing
from messaging.journal import audit
from messaging.models import Event, Message, Pair, WebhookDelivery, WebhookEndpoint
from messaging.models.bulk import bulk_insert, read
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
    "message.held",
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
    "pair.needs_resync",
    "pair.resynced",
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

_ANY_ENDPOINT = "EXISTS (SELECT FROM messaging_webhookendpoint WHERE enabled)"


def event(
    kind: str,
    at: datetime,
    *,
    pair: Pair | uuid.UUID | None = None,
    message: Message | None = None,
    data: Mapping[str, object] | None = None,
    traceparent: str = "",
) -> Event:
    """An event that is not written yet. `data` must be JSON; a message adds its MessageId, number and document id.

    `traceparent`: of the request that led to it, where traces are told.
    """
    pair_id = pair.pk if isinstance(pair, Pair) else pair
    facts = dict(data or {})
    if message is not None:
        facts.setdefault("message_id", message.message_id)
        if message.document_id:
            facts.setdefault("document_id", message.document_id)
        if message.sequence_number is not None:
            facts.setdefault("sequence_number", message.sequence_number)
    made = Event(type=kind, at=at, pair_id=pair_id, message=message, data=facts)
    made.traceparent = traceparent
    return made


def write(events: Sequence[Event]) -> None:
    """Stores the events and what is owed to webhook endpoints. Call inside the transaction that they tell of."""
    if not events:
        return
    tracing.tell(events)
    if doubts := [_doubt(event) for event in events if event.type == "message.in_doubt"]:
        audit.doubted(doubts, max(event.at for event in events))
    # Whether anybody is to be told is asked in the same statement: an endpoint counts from its own commit on.
    if not bulk_insert(events, returning_key=True, asking=_ANY_ENDPOINT):
        return
    # Held until our commit: one that is deleted meanwhile would take this transaction with it.
    endpoints = read(WebhookEndpoint, "SELECT * FROM messaging_webhookendpoint WHERE enabled ORDER BY id FOR KEY SHARE")
    deliveries = [
        WebhookDelivery(endpoint=endpoint, event=event, body=body(event), due_at=event.at, created_at=event.at)
        for event in events
        for endpoint in endpoints
        if not endpoint.types or event.type in endpoint.types
    ]
    if deliveries:
        bulk_insert(deliveries)
        transaction.on_commit(lambda: dispatch.wake(dispatch.WEBHOOKS))


def _doubt(event: Event) -> audit.Doubt:
    """The entry in the audit log: whatever puts a message in doubt tells it by this event."""
    assert event.message_id is not None
    said = dict(event.data)
    name, reason = str(said.pop("message_id", "")), str(said.pop("detail", ""))
    return audit.Doubt("message", public_id("msg", event.message_id), name, reason, {"state": "in_doubt", **said})


def body(event: Event) -> dict[str, object]:
    """The thin form in which webhooks and the feed show an event: ids to look up, not the content."""
    ids: dict[str, object] = {}
    if event.message_id:
        ids["message"] = public_id("msg", event.message_id)
    if event.pair_id:
        ids["pair"] = public_id("pair", event.pair_id)
    return {"type": event.type, "timestamp": event.at.isoformat(), "data": {**ids, **event.data}}
