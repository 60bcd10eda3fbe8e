"""Rules that cover parts of payloads."""

from __future__ import annotations

from rest_framework import serializers

from messaging.api.fields import Flag, IdIn, IdOut, ReasonBody, Text
from messaging.choices import MaskKind
from messaging.messages.serializers.messages import PartyRef
from messaging.messages.services.masks import VISIBLE_TO

_PATH = (
    "What it covers. `xml`: an XPath with names without prefixes (//Customer/IBAN, //@card). `json`: $.customer.iban, "
    "$.lines[*].price or $..iban. `edi`: segment and element, NAD+4, or a component, NAD+4:2."
)


class MaskFields(ReasonBody):
    """The settings of a rule; what is absent has its default, or stays."""

    partner = IdIn("par", source="partner_id", required=False, allow_null=True, help_text="null = of any partner.")
    service = Text(max_length=255, required=False, allow_blank=True, help_text="Empty = of any service.")
    visible_to = serializers.ChoiceField(
        choices=VISIBLE_TO, required=False, help_text="The lowest role that sees it uncovered; `admin` unless told."
    )
    enabled = Flag(required=False, help_text="true unless told.")


class MaskBody(MaskFields):
    """A new rule."""

    name = Text(max_length=80)
    kind = serializers.ChoiceField(choices=MaskKind.choices)
    path = Text(max_length=500, help_text=_PATH)


class MaskChanges(MaskFields):
    """What is to change."""

    name = Text(max_length=80, required=False)
    kind = serializers.ChoiceField(choices=MaskKind.choices, required=False)
    path = Text(max_length=500, required=False, help_text=_PATH)


class MaskSerializer(serializers.Serializer):
    """A rule."""

    id = IdOut("mask")
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=MaskKind.choices)
    path = serializers.CharField()
    partner = PartyRef(allow_null=True)
    service = serializers.CharField()
    visible_to = serializers.ChoiceField(choices=VISIBLE_TO)
    enabled = serializers.BooleanField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
