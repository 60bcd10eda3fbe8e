"""The event feed (`models.feed` says how it is ordered), the history of one message or pair, and who is told of it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from messaging.exceptions import NotFound
from messaging.models import Event, Notification, NotificationRule, Pair, WebhookDelivery, WebhookEndpoint
from messaging.models.base import existing
from messaging.models.feed import OLDEST, FeedPage, Position, latest, rows_behind
from partners.visibility import limit, visible
from rmhub.ids import public_id

__all__ = ["OLDEST", "FeedPage", "Position", "feed", "latest", "of_message", "of_pair"]

# Far more than one page: how many rows a look at rare types may pass over before it answers with a new position.
_SCAN = 10_000


def feed(*, after: Position, limit: int, types: Sequence[str] = ()) -> FeedPage:
    """The committed events behind `after`. Nothing is ever passed over, and nothing comes twice.

    Whoever is limited to some partners gets the events of their pairs and messages; the position moves on all the same.
    """
    chosen_pairs = _visible_pairs()
    choosy = bool(types) or chosen_pairs is not None
    rows = rows_behind(after, _SCAN + 1 if choosy else limit + 1)
    scanned, more = (_SCAN, len(rows) > _SCAN) if choosy else (limit, len(rows) > limit)
    rows = rows[:scanned]
    chosen = [row for row in rows if row.type in types] if types else rows
    if chosen_pairs is not None:
        chosen = [row for row in chosen if row.pair_id in chosen_pairs]
    if len(chosen) > limit:
        chosen, more = chosen[:limit], True
        last = Position(chosen[-1].xid, chosen[-1].pk)
    elif rows:
        last = Position(rows[-1].xid, rows[-1].pk)
    else:
        last = after
    return FeedPage(chosen, last, more)


def _visible_pairs() -> frozenset[uuid.UUID] | None:
    """The pairs whose events may be shown; None = all."""
    if visible() is None:
        return None
    return frozenset(limit(Pair.objects.all(), "partner").values_list("pk", flat=True))


def of_message(message_id: uuid.UUID) -> QuerySet[Event]:
    """A message's history, oldest first (by "id")."""
    return Event.objects.filter(message=message_id).order_by("id")


def of_pair(pair_id: uuid.UUID) -> QuerySet[Event]:
    """What happened to the pair itself (not to its messages), newest first (by "-id")."""
    return Event.objects.filter(pair=pair_id, message__isnull=True).order_by("-id")


def webhook_endpoints() -> QuerySet[WebhookEndpoint]:
    """Webhook endpoints without their secrets. Not ordered; pages by ("id",)."""
    return WebhookEndpoint.objects.defer("secret_encrypted", "previous_secret_encrypted")


def webhook_endpoint(endpoint_id: uuid.UUID) -> WebhookEndpoint:
    """One webhook endpoint without its secret. Raises NotFound."""
    return existing(webhook_endpoints(), endpoint_id)


def webhook_deliveries(endpoint_id: uuid.UUID, *, states: tuple[str, ...] = ()) -> QuerySet[WebhookDelivery]:
    """What was sent, or is to be sent, to an endpoint. Not ordered; pages by ("-id",)."""
    found = WebhookDelivery.objects.filter(endpoint=endpoint_id)
    return found.filter(state__in=states) if states else found


def webhook_delivery(endpoint_id: uuid.UUID, delivery_id: uuid.UUID) -> WebhookDelivery:
    """One delivery of an endpoint. Raises NotFound."""
    found = WebhookDelivery.objects.filter(endpoint=endpoint_id, pk=delivery_id).first()
    if found is None:
        raise NotFound(
            _("{endpoint} has no delivery {delivery}.").format(
                endpoint=public_id("whe", endpoint_id), delivery=public_id("dlv", delivery_id)
            )
        )
    return found


def webhook_delivery_by_id(delivery_id: uuid.UUID) -> WebhookDelivery:
    """One delivery, whichever endpoint it is of, with that. Raises NotFound."""
    known = WebhookDelivery.objects.select_related("endpoint")
    found = (
        known.defer("endpoint__secret_encrypted", "endpoint__previous_secret_encrypted").filter(pk=delivery_id).first()
    )
    if found is None:
        raise NotFound(_("There is no webhook delivery {id}.").format(id=public_id("dlv", delivery_id)))
    return found


def rules() -> QuerySet[NotificationRule]:
    """All notification rules with their groups and endpoints. Not ordered; pages by ("name",)."""
    found = NotificationRule.objects.select_related("group", "endpoint", "escalate_to")
    secrets = ("endpoint__secret_encrypted", "endpoint__previous_secret_encrypted", "escalate_to__secret_encrypted")
    return found.defer(*secrets)


def rule(rule_id: uuid.UUID) -> NotificationRule:
    """One notification rule. Raises NotFound."""
    return existing(rules(), rule_id)


def notifications(
    *, rule_id: uuid.UUID | None = None, incident_id: uuid.UUID | None = None, states: tuple[str, ...] = ()
) -> QuerySet[Notification]:
    """What was told, or is to be told, with rules and incidents. Not ordered; pages by ("-id",)."""
    found = Notification.objects.select_related("rule", "incident")
    if rule_id is not None:
        found = found.filter(rule=rule_id)
    if incident_id is not None:
        found = found.filter(incident=incident_id)
    return found.filter(state__in=states) if states else found
