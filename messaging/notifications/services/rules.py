"""Who is notified of what: rules that people make. `notifying` tells by them. docs/notifications.md."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import time
from typing import Any, TypedDict, Unpack
from zoneinfo import available_timezones

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.utils.translation import gettext as _

from messaging.choices import NotificationChannel, Severity
from messaging.exceptions import InvalidSubmission, Stale
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import NotificationRule, WebhookEndpoint
from messaging.models.base import existing
from messaging.notifications.services.channels import ALERTING, ALERTS
from messaging.notifications.services.webhooks import refuse_url
from partners.models import PartnerGroup
from partners.secrets import SecretUnreadable, decrypt, encrypt
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
_STEPS_MOST = 5


class RuleFields(TypedDict, total=False):
    """What can be changed of a rule. `group`, `endpoint` and `escalate_to` are ids, or None; `window` and
    `escalate_after` are in seconds. `secret`: "" keeps the one that there is.
    """

    name: str
    enabled: bool
    events: Sequence[str]
    causes: Sequence[str]
    group: uuid.UUID | None
    channel: str
    recipients: Sequence[str]
    endpoint: uuid.UUID | None
    window: int
    least: str
    quiet_from: time | None
    quiet_to: time | None
    quiet_zone: str
    escalate_after: int
    escalate_to: uuid.UUID | None
    address: str
    secret: str


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
        "least": str(rule.least),
        "quiet_from": f"{rule.quiet_from:%H:%M}" if rule.quiet_from is not None else None,
        "quiet_to": f"{rule.quiet_to:%H:%M}" if rule.quiet_to is not None else None,
        "quiet_zone": rule.quiet_zone,
        "escalate_after": rule.escalate_after,
        "escalate_to": rule.escalate_to.name if rule.escalate_to is not None else None,
        "address": rule.address,
        # Another one is another revision; what it is stands nowhere.
        "secret": hashlib.sha256(bytes(rule.secret_encrypted)).hexdigest()[:8] if rule.secret_encrypted else None,
    }


def _locked(rule_id: uuid.UUID, expected: str | None) -> NotificationRule:
    found = NotificationRule.objects.select_related("group", "endpoint", "escalate_to").select_for_update(of=("self",))
    rule = existing(found, rule_id)
    if expected is not None and revision(rule) != expected:
        raise Stale(_("This rule changed since you looked at it: look again before you change it."), version=0)
    return rule


def _apply(rule: NotificationRule, fields: RuleFields) -> None:
    """Sets and checks the fields. Raises InvalidSubmission."""
    errors: dict[str, list[str]] = {}
    given: Mapping[str, Any] = fields
    for name, value in given.items():
        if name == "secret":
            if value:
                rule.secret_encrypted = encrypt(value.strip())
        elif name in ("group", "endpoint", "escalate_to"):
            kind: Any = {"group": PartnerGroup, "endpoint": WebhookEndpoint}.get(name, NotificationRule)
            found = kind.objects.filter(pk=value).first() if value is not None else None
            setattr(rule, name, found)
            if value is not None and found is None:
                errors[name] = [
                    _("There is no {kind} {id}.").format(kind=kind._meta.verbose_name, id=kind(pk=value).public_id)
                ]
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
        found.append(("name", _("A name of at most 80 characters, without control characters.")))
    elif NotificationRule.objects.filter(name=rule.name).exclude(pk=rule.pk).exists():
        found.append(("name", _("There is a rule {name} already: choose another name.").format(name=rule.name)))
    if not rule.events:
        found.append(("events", _("Choose at least one event.")))
    elif unknown := sorted(set(rule.events) - set(NOTIFIABLE)):
        found.append(
            (
                "events",
                _("Unknown: {unknown}. Known: {known}.").format(
                    unknown=", ".join(unknown), known=", ".join(NOTIFIABLE)
                ),
            )
        )
    if len(rule.causes) > CAUSES_MOST or any(len(one) > 60 or not one.isprintable() for one in rule.causes):
        found.append(
            (
                "causes",
                _("At most {count} codes, such as cert_expired (docs/causes.md).").format(count=CAUSES_MOST),
            )
        )
    if type(rule.window) is not int or not 0 <= rule.window <= WINDOW_MOST:
        found.append(("window", _("From 0 (every event is reported) to 604800 seconds (a week).")))
    if rule.least not in Severity.values:
        found.append(("least", _("One of {names}.").format(names=", ".join(Severity.values))))
    found += _faults_of_quiet_hours(rule) + _faults_of_escalation(rule)
    if rule.channel == NotificationChannel.MAIL:
        found += _faults_of_mail(rule)
    elif rule.channel == NotificationChannel.WEBHOOK:
        if rule.endpoint is None:
            found.append(("endpoint", _("Choose the webhook endpoint that is notified.")))
    elif rule.channel in NotificationChannel.values:
        found += _faults_of_service(rule)
    else:
        found.append(("channel", _("One of {names}.").format(names=", ".join(NotificationChannel.values))))
    if rule.channel != NotificationChannel.MAIL:
        rule.recipients = []
    if rule.channel != NotificationChannel.WEBHOOK:
        rule.endpoint = None
    if rule.channel in (NotificationChannel.MAIL, NotificationChannel.WEBHOOK):
        rule.secret_encrypted = b""
    if rule.channel not in ALERTING:
        rule.address = ""
    return found


def _faults_of_quiet_hours(rule: NotificationRule) -> list[tuple[str, str]]:
    if (rule.quiet_from is None) != (rule.quiet_to is None):
        missing = "quiet_from" if rule.quiet_from is None else "quiet_to"
        return [(missing, _("Quiet hours have a beginning and an end, such as 22:00 and 07:00."))]
    if rule.quiet_from is not None and rule.quiet_from == rule.quiet_to:
        return [("quiet_to", _("Quiet hours end at another time than they begin."))]
    if rule.quiet_zone not in available_timezones():
        return [("quiet_zone", _("A time zone such as Europe/Berlin or UTC."))]
    return []


def _faults_of_escalation(rule: NotificationRule) -> list[tuple[str, str]]:
    if type(rule.escalate_after) is not int or not 0 <= rule.escalate_after <= WINDOW_MOST:
        return [("escalate_after", _("From 0 (never) to 604800 seconds (a week)."))]
    if bool(rule.escalate_after) != (rule.escalate_to is not None):
        missing = "escalate_to" if rule.escalate_after else "escalate_after"
        return [(missing, _("An escalation has a time, and a rule that is notified then."))]
    if rule.escalate_to is not None and "incident.opened" not in rule.events:
        return [("events", _("What escalates is incidents: choose incident.opened."))]
    following, steps = rule.escalate_to, 0
    while following is not None and steps < _STEPS_MOST:
        if following.pk == rule.pk:
            return [("escalate_to", _("These rules would escalate to each other for ever."))]
        following, steps = following.escalate_to, steps + 1
    return (
        []
        if following is None
        else [("escalate_to", _("At most {count} rules one after another.").format(count=_STEPS_MOST))]
    )


def _faults_of_service(rule: NotificationRule) -> list[tuple[str, str]]:
    """Of Slack, Teams, PagerDuty and Opsgenie: the secret, which is an address or a key, and what they are told."""
    try:
        secret = decrypt(bytes(rule.secret_encrypted)) if rule.secret_encrypted else ""
    except SecretUnreadable:
        return [("secret", _("It cannot be decrypted any more: enter it again."))]
    if rule.channel not in ALERTING:
        if not secret:
            return [("secret", _("Enter the address of the incoming webhook."))]
        return [("secret", refused)] if (refused := refuse_url(secret)) else []
    found: list[tuple[str, str]] = []
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret or len(secret) > 200:
        found.append(("secret", _("Enter the integration's key: printable ASCII without blanks.")))
    if rule.address and (refused := refuse_url(rule.address)):
        found.append(("address", refused))
    if set(rule.events) - set(ALERTS):
        found.append(("events", _("Alerts are about incidents: {names}.").format(names=", ".join(ALERTS))))
    return found


def _faults_of_mail(rule: NotificationRule) -> list[tuple[str, str]]:
    if not rule.recipients:
        return [("recipients", _("Enter at least one mail address."))]
    if len(rule.recipients) > RECIPIENTS_MOST:
        return [
            (
                "recipients",
                _("At most {count} addresses: use one of a list of yours.").format(count=RECIPIENTS_MOST),
            )
        ]
    for address in rule.recipients:
        try:
            if len(address) > 254 or not address.isascii():
                raise ValidationError("")
            validate_email(address)
        except ValidationError:
            return [("recipients", _("{address} is not a mail address.").format(address=address[:80]))]
    return []
