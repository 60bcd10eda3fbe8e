"""Rules that cover parts of payloads, as one declaration: what console and API are made of."""

from __future__ import annotations

import uuid

from django.db.models import QuerySet

from messaging.messages.services.masks import mask_create, mask_delete, mask_update
from messaging.models import PayloadMask
from messaging.models.base import existing
from messaging.resource import Resource, Verb


def masks() -> QuerySet[PayloadMask]:
    """All rules with their partners, by name."""
    return PayloadMask.objects.select_related("partner").order_by("name")


def mask(mask_id: uuid.UUID) -> PayloadMask:
    """One rule. Raises NotFound."""
    return existing(masks(), mask_id)


MASKS = Resource(
    name="mask",
    plural="masks",
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
        Verb(
            "delete",
            "Delete",
            "x",
            "danger",
            mask_delete,
            (
                "Everybody who may read payloads sees what it covers again, in documents that are stored already, too.",
                "What was shown covered until now stays in the audit log as that.",
            ),
            "The rule is deleted permanently; the audit log keeps what it was.",
            (),
            "is deleted: what it covered is shown again",
        ),
    ),
)
