"""Who is notified of what: rules that people make. `notifying` tells by them. docs/notifications.md."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction

from messaging.choices import NotificationChannel
from messaging.exceptions import InvalidSubmission, Stale
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import NotificationRule, WebhookEndpoint
from messaging.models.base import existing
from partners.models import PartnerGroup
from rmhub import clock

# What a person can be told of: nothing that comes with every message.
NOTIFIABLE = (
    "incident.opened",
    "incident.acknowledged",
    "incident.assigned",
    "incident.snoozed",
    "incident.resolved",
    "pair.suspended",
    "pair.resumed",
    "pair.paused",
    "pair.released",
    "pair.silent",
    "pair.heard",
    "pair.retry_budget",
    "pair.needs_resync",
    "pair.resynced",
    "trigger.suspended",
    "trigger.resumed",
    "circuit.opened",
    "circuit.closed",
    "message.failed",
    "message.in_doubt",
    "message.bounced",
    "delivery.failed",
    "delivery.in_doubt",
    "agreement.activated",
    "agreement.disabled",
    "certificate.expiring",
    "webhook_endpoint.disabled",
    "bulk_operation.finished",
)
RECIPIENTS_MOST = 50
CAUSES_MOST = 100
WINDOW_MOST = 7 * 86_400


class RuleFields(TypedDict, total=False):
    """What can be changed of a rule. `group` and `endpoint` are ids, or None; `window` is in seconds."""

    name: str
    enabled: bool
    events: Sequence[str]
    causes: Sequence[str]
    group: uuid.UUID | None
    channel: str
    recipients: Sequence[str]
    endpoint: uuid.UUID | None
    window: int


def rule_create(*, actor: Actor, reason: str = "", **fields: Unpack[RuleFields]) -> NotificationRule:
    """A new rule; it reports what happens from now on. Raises InvalidSubmission, with what is missing too."""
    now = clock.now()
    rule = NotificationRule(created_at=now, updated_at=now, events=[], causes=[], recipients=[])
    with transaction.atomic():
        _apply(rule, fields)
        rule.save(force_insert=True)
        audit.record(actor, "notification_rule.create", rule, reason=reason, after=described(rule))
    return rule


def rule_update(
    *,
    rule_id: uuid.UUID,
    actor: Actor,
    reason: str = "",
    expected: str | None = None,
    **changes: Unpack[RuleFields],
) -> NotificationRule:
    """Changes what is given. Raises NotFound, InvalidSubmission, and Stale when the rule is not what `expected` (a
    `revision`) names.
    """
    with transaction.atomic():
        rule = _locked(rule_id, expected)
        before = described(rule)
        _apply(rule, changes)
        rule.updated_at = clock.now()
        rule.save()
        audit.record(actor, "notification_rule.update", rule, reason=reason, before=before, after=described(rule))
    return rule


def rule_delete(*, rule_id: uuid.UUID, actor: Actor, reason: str = "", expected: str | None = None) -> None:
    """Removes a rule, with the list of what it has told. Raises NotFound, Stale."""
    with transaction.atomic():
        rule = _locked(rule_id, expected)
        audit.record(actor, "notification_rule.delete", rule, reason=reason, before=described(rule))
        rule.delete()


def revision(rule: NotificationRule) -> str:
    """Names what people can change of a rule (ETag)."""
    return hashlib.sha256(json.dumps(described(rule), sort_keys=True).encode()).hexdigest()[:20]


def described(rule: NotificationRule) -> dict[str, object]:
    """A rule as the audit log shows it."""
    return {
        "name": rule.name,
        "enabled": rule.enabled,
        "events": list(rule.events),
        "causes": list(rule.causes),
        "group": rule.group.name if rule.group is not None else None,
        "channel": str(rule.channel),
        "recipients": list(rule.recipients),
        "endpoint": rule.endpoint.public_id if rule.endpoint is not None else None,
        "window": rule.window,
    }


def _locked(rule_id: uuid.UUID, expected: str | None) -> NotificationRule:
    found = NotificationRule.objects.select_related("group", "endpoint").select_for_update(of=("self",))
    rule = existing(found, rule_id)
    if expected is not None and revision(rule) != expected:
        raise Stale("This rule changed since you looked at it: look again before you change it.", version=0)
    return rule


def _apply(rule: NotificationRule, fields: RuleFields) -> None:
    """Sets and checks the fields. Raises InvalidSubmission."""
    errors: dict[str, list[str]] = {}
    given: Mapping[str, Any] = fields
    for name, value in given.items():
        if name in ("group", "endpoint"):
            kind: Any = PartnerGroup if name == "group" else WebhookEndpoint
            found = kind.objects.filter(pk=value).first() if value is not None else None
            setattr(rule, name, found)
            if value is not None and found is None:
                errors[name] = [f"There is no {kind._meta.verbose_name} {kind(pk=value).public_id}."]
        elif name in ("events", "causes", "recipients"):
            setattr(rule, name, list(dict.fromkeys(one.strip() for one in value if one.strip())))
        else:
            setattr(rule, name, value.strip() if isinstance(value, str) else value)
    for name, sentence in _faults(rule):
        errors.setdefault(name, [sentence])
    if errors:
        raise InvalidSubmission(errors)


def _faults(rule: NotificationRule) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if not rule.name or len(rule.name) > 80 or not rule.name.isprintable():
        found.append(("name", "A name of at most 80 characters, without control characters."))
    elif NotificationRule.objects.filter(name=rule.name).exclude(pk=rule.pk).exists():
        found.append(("name", f"There is a rule {rule.name} already: choose another name."))
    if not rule.events:
        found.append(("events", "Choose at least one event."))
    elif unknown := sorted(set(rule.events) - set(NOTIFIABLE)):
        found.append(("events", f"Unknown: {', '.join(unknown)}. Known: {', '.join(NOTIFIABLE)}."))
    if len(rule.causes) > CAUSES_MOST or any(len(one) > 60 or not one.isprintable() for one in rule.causes):
        found.append(("causes", f"At most {CAUSES_MOST} codes, such as cert_expired (docs/causes.md)."))
    if type(rule.window) is not int or not 0 <= rule.window <= WINDOW_MOST:
        found.append(("window", "From 0 (every event is reported) to 604800 seconds (a week)."))
    if rule.channel == NotificationChannel.MAIL:
        found += _faults_of_mail(rule)
    elif rule.channel == NotificationChannel.WEBHOOK:
        rule.recipients = []
        if rule.endpoint is None:
            found.append(("endpoint", "Choose the webhook endpoint that is notified."))
    else:
        found.append(("channel", "mail or webhook."))
    return found


def _faults_of_mail(rule: NotificationRule) -> list[tuple[str, str]]:
    rule.endpoint = None
    if not rule.recipients:
        return [("recipients", "Enter at least one mail address.")]
    if len(rule.recipients) > RECIPIENTS_MOST:
        return [("recipients", f"At most {RECIPIENTS_MOST} addresses: use one of a list of yours.")]
    for address in rule.recipients:
        try:
            if len(address) > 254 or not address.isascii():
                raise ValidationError("")
            validate_email(address)
        except ValidationError:
            return [("recipients", f"{address[:80]} is not a mail address.")]
    return []
