"""Attributes in the API: what a rule is there, and what is said of the operations."""

from __future__ import annotations

from messaging.api.fields import IdOut, RowSerializer
from messaging.api.named import PartyRef
from messaging.api.resource import ChangesBody, Operations, SettingsBody
from messaging.messages.attributes import ATTRIBUTES as RESOURCE
from messaging.messages.attributes import SETTINGS
from messaging.models import AttributeRule


class AttributeBody(SettingsBody):
    """A new rule."""

    references = {"partner": "par"}

    class Meta:
        model = AttributeRule
        fields = ("reason", *SETTINGS)


class AttributeChanges(ChangesBody, AttributeBody):
    """What is to change."""


class AttributeSerializer(RowSerializer):
    """A rule."""

    id = IdOut("atr")
    partner = PartyRef(allow_null=True)

    class Meta:
        model = AttributeRule
        fields = ("id", *SETTINGS, "created_at", "updated_at")


ATTRIBUTES = Operations(
    resource=RESOURCE,
    shape=AttributeSerializer,
    detailed=AttributeSerializer,
    detail=lambda rule: (dict(AttributeSerializer(rule).data), None),
    body=AttributeBody,
    changes=AttributeChanges,
    filters=(),
    said={
        "list": ("List the rules that take attributes from documents", ""),
        "create": (
            "Create a rule",
            "It holds for documents that are stored from now on. For those that are stored already, plan a job with "
            "the action messages_attributes.",
        ),
        "read": ("One rule", ""),
        "change": ("Change a rule", ""),
        "delete": ("Delete a rule: what it has taken stays", ""),
    },
)
