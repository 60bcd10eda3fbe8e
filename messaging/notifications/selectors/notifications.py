"""Notification rules, and what was told by them, as screens and API read them."""

from __future__ import annotations

import uuid

from django.db.models import QuerySet

from messaging.exceptions import NotFound
from messaging.models import Notification, NotificationRule
from rmhub.ids import public_id


def rules() -> QuerySet[NotificationRule]:
    """All rules with their groups and endpoints. Not ordered; pages by ("name",)."""
    found = NotificationRule.objects.select_related("group", "endpoint")
    return found.defer("endpoint__secret_encrypted", "endpoint__previous_secret_encrypted")


def rule(rule_id: uuid.UUID) -> NotificationRule:
    """One rule. Raises NotFound."""
    found = rules().filter(pk=rule_id).first()
    if found is None:
        raise NotFound(f"There is no notification rule {public_id('rule', rule_id)}.")
    return found


def notifications(
    *,
    rule_id: uuid.UUID | None = None,
    incident_id: uuid.UUID | None = None,
    states: tuple[str, ...] = (),
) -> QuerySet[Notification]:
    """What was told, or is to be told, with rules and incidents. Not ordered; pages by ("-id",)."""
    found = Notification.objects.select_related("rule", "incident")
    if rule_id is not None:
        found = found.filter(rule=rule_id)
    if incident_id is not None:
        found = found.filter(incident=incident_id)
    return found.filter(state__in=states) if states else found
