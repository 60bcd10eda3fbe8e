"""Rules that cover parts of payloads on the screen and in the API: made, changed, deleted. What is stored stays."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import IntegrityError, transaction

from messaging.choices import MaskKind
from messaging.exceptions import InvalidSubmission, NotFound, Stale
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import PayloadMask
from messaging.protocol import selecting
from partners.models import Party
from rmhub import clock
from rmhub.ids import public_id
from rmhub.roles import Role

SETTINGS = ("name", "kind", "path", "partner", "service", "visible_to", "enabled")
# A viewer opens no payload at all, so that the roles that a rule can tell apart are these.
VISIBLE_TO = (Role.OPERATOR.value, Role.ADMIN.value)


def mask_create(*, actor: Actor, reason: str, **values: Any) -> PayloadMask:
    """A new rule. `partner_id`: only for documents of that partner. Raises InvalidSubmission by field."""
    audit.require_reason(reason)
    now = clock.now()
    rule = PayloadMask(created_at=now, updated_at=now)
    _apply(rule, values)
    with transaction.atomic():
        _save(rule, force_insert=True)
        audit.record(actor, "mask.create", rule, reason=reason, after=described(rule))
    return rule


def mask_update(
    *, mask_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None, **values: Any
) -> PayloadMask:
    """Changes what is given; it holds from the next look on. Raises NotFound, Stale, InvalidSubmission by field."""
    audit.require_reason(reason)
    with transaction.atomic():
        rule = _locked(mask_id, expected_version)
        before = described(rule)
        _apply(rule, values)
        after = described(rule)
        changed = [name for name in SETTINGS if before[name] != after[name]]
        if not changed:
            return rule
        rule.updated_at = clock.now()
        _save(rule)
        audit.record(
            actor,
            "mask.update",
            rule,
            reason=reason,
            before={name: before[name] for name in changed},
            after={name: after[name] for name in changed},
        )
    return rule


def mask_delete(*, mask_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> None:
    """What it covered is seen again by everybody who may read payloads. Raises NotFound, Stale, InvalidSubmission."""
    audit.require_reason(reason)
    with transaction.atomic():
        rule = _locked(mask_id, expected_version)
        audit.record(actor, "mask.delete", rule, reason=reason, before=described(rule))
        rule.delete()


def described(rule: PayloadMask) -> dict[str, object]:
    """A rule as the audit log has it."""
    return {
        "name": rule.name,
        "kind": str(rule.kind),
        "path": rule.path,
        "partner": public_id("par", rule.partner_id) if rule.partner_id else None,
        "service": rule.service,
        "visible_to": str(rule.visible_to),
        "enabled": rule.enabled,
    }


def revision(rule: PayloadMask) -> int:
    """What changes with each change: the time of the last one, in microseconds."""
    return int(rule.updated_at.timestamp() * 1_000_000)


def _locked(mask_id: uuid.UUID, expected_version: int | None) -> PayloadMask:
    rule = PayloadMask.objects.select_for_update().filter(pk=mask_id).first()
    if rule is None:
        raise NotFound(f"There is no mask {public_id('mask', mask_id)}.")
    if expected_version is not None and expected_version != revision(rule):
        raise Stale("Somebody changed this mask since you looked at it: look again.", version=revision(rule))
    return rule


def _apply(rule: PayloadMask, values: dict[str, Any]) -> None:
    for name in ("name", "path", "service"):
        if name in values:
            setattr(rule, name, str(values[name]).strip())
    for name in ("kind", "visible_to", "enabled", "partner_id"):
        if name in values:
            setattr(rule, name, values[name])
    errors: dict[str, list[str]] = {}
    for name, most in (("name", 80), ("path", 500), ("service", 255)):
        text = getattr(rule, name)
        if len(text) > most or any(ord(sign) < 32 for sign in text):
            errors[name] = [f"At most {most} characters, and no control characters."]
        elif not text and name != "service":
            errors[name] = ["Required."]
    if rule.kind not in MaskKind.values:
        errors["kind"] = [f"One of {', '.join(MaskKind.values)}."]
    elif "path" not in errors:
        try:
            selecting.check(rule.kind, rule.path)
        except ValueError as error:
            errors["path"] = [f"Write {error}."]
    if rule.visible_to not in VISIBLE_TO:
        errors["visible_to"] = [f"One of {', '.join(VISIBLE_TO)}: viewers open no payloads."]
    if rule.partner_id is not None and not Party.objects.filter(pk=rule.partner_id).exists():
        errors["partner"] = ["There is no such partner."]
    if errors:
        raise InvalidSubmission(errors)


def _save(rule: PayloadMask, **how: Any) -> None:
    try:
        with transaction.atomic():
            rule.save(**how)
    except IntegrityError as error:
        raise InvalidSubmission({"name": [f"There is a mask named {rule.name} already."]}) from error
