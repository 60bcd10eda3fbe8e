"""Rules that cover parts of payloads on the screen and in the API: made, changed, deleted. What is stored stays."""

from __future__ import annotations

import uuid
from typing import Any

from messaging.journal import changing
from messaging.journal.audit import Actor
from messaging.models import PayloadMask
from messaging.protocol import selecting
from rmhub import clock

SETTINGS = ("name", "kind", "path", "partner", "service", "visible_to", "enabled")


def mask_create(*, actor: Actor, reason: str, **values: Any) -> PayloadMask:
    """Make a rule. `partner`: id of the only partner whose documents it is about. Raises InvalidSubmission by field."""
    now = clock.now()
    rule = PayloadMask(created_at=now, updated_at=now)
    return changing.made("mask.create", rule, values, SETTINGS, _wrong, actor, reason)


def mask_update(
    *, mask_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None, **values: Any
) -> PayloadMask:
    """Change what is given; it holds from the next look on. Raises NotFound, Stale, InvalidSubmission by field."""
    rows = PayloadMask.objects.select_related("partner")
    return changing.changed(
        "mask.update", rows, mask_id, values, SETTINGS, actor, reason, expected_version, check=_wrong
    )


def mask_delete(*, mask_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> None:
    """What it covered is seen again by everybody who may read payloads. Raises NotFound, Stale, InvalidSubmission."""
    rows = PayloadMask.objects.select_related("partner")
    changing.deleted("mask.delete", rows, mask_id, SETTINGS, actor, reason, expected_version)


def _wrong(rule: PayloadMask) -> dict[str, list[str]]:
    """What the fields alone do not say: a path of its kind, and a name of its own."""
    errors = {}
    try:
        selecting.check(rule.kind, rule.path)
    except ValueError as error:
        errors["path"] = [f"Write {error}."]
    if PayloadMask.objects.exclude(pk=rule.pk).filter(name=rule.name).exists():
        errors["name"] = [f"There is a mask named {rule.name} already."]
    return errors
