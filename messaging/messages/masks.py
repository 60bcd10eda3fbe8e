"""Rules that cover parts of payloads on the screen and in the API: made, changed, deleted. What is stored stays."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from messaging.journal import changing
from messaging.journal.audit import Actor
from messaging.models import PayloadMask
from messaging.models.base import existing
from messaging.protocol import selecting
from messaging.resource import Resource, deletion
from rmhub import clock
from rmhub.language import gettext_lazy

SETTINGS = ("name", "kind", "path", "partner", "service", "visible_to", "enabled")


def masks() -> QuerySet[PayloadMask]:
    """All rules with their partners, by name."""
    return PayloadMask.objects.select_related("partner").order_by("name")


def mask(mask_id: uuid.UUID) -> PayloadMask:
    """One rule. Raises NotFound."""
    return existing(masks(), mask_id)


def mask_create(*, actor: Actor, reason: str, **values: Any) -> PayloadMask:
    """Make a rule. `partner`: id of the only partner whose documents it is about. Raises InvalidSubmission by field."""
    now = clock.now()
    rule = PayloadMask(created_at=now, updated_at=now)
    return changing.made("mask.create", rule, values, SETTINGS, _wrong, actor, reason)


def mask_update(
    *, mask_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None, **values: Any
) -> PayloadMask:
    """Change what is given; it holds from the next look on. Raises NotFound, Stale, InvalidSubmission by field."""
    return changing.changed(
        "mask.update", masks(), mask_id, values, SETTINGS, actor, reason, expected_version, check=_wrong
    )


def mask_delete(*, mask_id: uuid.UUID, actor: Actor, reason: str, expected_version: int | None = None) -> None:
    """What it covered is seen again by everybody who may read payloads. Raises NotFound, Stale, InvalidSubmission."""
    changing.deleted("mask.delete", masks(), mask_id, SETTINGS, actor, reason, expected_version)


def _wrong(rule: PayloadMask) -> dict[str, list[str]]:
    """What the fields alone do not say: a path of its kind, and a name of its own."""
    errors = {}
    try:
        selecting.check(rule.kind, rule.path)
    except ValueError as error:
        errors["path"] = [_("Write {error}.").format(error=error)]
    if PayloadMask.objects.exclude(pk=rule.pk).filter(name=rule.name).exists():
        errors["name"] = [_("There is a mask named {name} already.").format(name=rule.name)]
    return errors


MASKS = Resource(
    name=gettext_noop("mask"),
    plural=gettext_noop("masks"),
    prefix="mask",
    reads="masks:manage",
    changes="masks:manage",
    rows=masks,
    one=mask,
    order=("name",),
    create=mask_create,
    update=mask_update,
    possible=lambda rule: ("delete",),
    verbs=(
        deletion(
            mask_delete,
            (
                gettext_lazy(
                    "Everybody who may read payloads sees what it covers again, in documents that are stored "
                    "already, too."
                ),
                gettext_lazy("Audit entries of what was shown covered until now stay as they are."),
            ),
            done=gettext_lazy("is deleted: what it covered is shown again"),
        ),
    ),
)
