"""Masks in the API: what a rule is there, and what is said of the operations."""

from __future__ import annotations

from messaging.api.fields import IdOut, RowSerializer
from messaging.api.named import PartyRef
from messaging.api.resource import ChangesBody, Operations, SettingsBody
from messaging.messages.masks import MASKS as RESOURCE
from messaging.messages.masks import SETTINGS
from messaging.models import PayloadMask


class MaskBody(SettingsBody):
    """A new rule."""

    references = {"partner": "par"}

    class Meta:
        model = PayloadMask
        fields = ("reason", *SETTINGS)


class MaskChanges(ChangesBody, MaskBody):
    """What is to change."""


class MaskSerializer(RowSerializer):
    """A rule."""

    id = IdOut("mask")
    partner = PartyRef(allow_null=True)

    class Meta:
        model = PayloadMask
        fields = ("id", *SETTINGS, "created_at", "updated_at")


MASKS = Operations(
    resource=RESOURCE,
    shape=MaskSerializer,
    detailed=MaskSerializer,
    detail=lambda rule: (dict(MaskSerializer(rule).data), None),
    body=MaskBody,
    changes=MaskChanges,
    filters=(),
    said={
        "list": ("List the rules that cover parts of payloads", ""),
        "create": (
            "Create a rule",
            "It applies at once, also to what is stored already. Stored octets stay as they are.",
        ),
        "read": ("One rule", ""),
        "change": ("Change a rule", ""),
        "delete": ("Delete a rule: what it covered is shown again", ""),
    },
)
