"""Masks, as one declaration: what console and API are made of."""

from __future__ import annotations

from messaging.messages.selectors import masks as selectors
from messaging.messages.services import masks
from messaging.resource import Resource, Verb

MASKS = Resource(
    name="mask",
    plural="masks",
    prefix="mask",
    reads="masks:manage",
    changes="masks:manage",
    rows=selectors.masks,
    one=selectors.mask,
    order=("name",),
    create=masks.mask_create,
    update=masks.mask_update,
    possible=lambda rule: ("delete",),
    verbs=(
        Verb(
            "delete",
            "Delete",
            "x",
            "danger",
            masks.mask_delete,
            (
                "Everybody who may read payloads sees what it covers again, in documents that are stored already, too.",
                "What was shown covered until now stays in the audit log as that.",
            ),
            "The rule is gone for good; the audit log keeps what it was.",
            (),
            "is deleted: what it covered is shown again",
        ),
    ),
)
