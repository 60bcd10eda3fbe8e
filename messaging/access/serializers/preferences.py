"""Preferences and saved views: bodies and representations."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from messaging.access.selectors.preferences import Wishes
from messaging.api.fields import Flag, StrictBody, Text
from messaging.models import SavedView

_COLUMNS = {
    "type": "object",
    "additionalProperties": {"type": "array", "items": {"type": "string"}},
}


class PreferencesSerializer(serializers.Serializer):
    """How the owner of the token, or of the session, wants the console."""

    zone = serializers.CharField(help_text="`UTC`, `local` (the browser's), or an IANA name.")
    shortcuts = serializers.BooleanField(help_text="Whether single keys do something.")
    columns = serializers.SerializerMethodField(help_text="List -> names of the columns that are hidden.")

    @extend_schema_field(_COLUMNS)
    def get_columns(self, wishes: Wishes) -> dict[str, list[str]]:
        return {name: list(hidden) for name, hidden in wishes.columns.items()}


@extend_schema_field(
    {"type": "object", "additionalProperties": {"type": ["array", "null"], "items": {"type": "string"}}}
)
class Columns(serializers.Field):
    """List -> its hidden columns; null: as the list comes."""

    def to_internal_value(self, data: Any) -> dict[str, list[str] | None]:
        if not isinstance(data, dict):
            raise ValidationError("An object: list -> names of its columns, or null.", code="invalid")
        for hidden in data.values():
            if hidden is not None and not (isinstance(hidden, list) and all(isinstance(one, str) for one in hidden)):
                raise ValidationError("Each list has an array of names, or null.", code="invalid")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


class PreferencesBody(StrictBody):
    """What is given is changed."""

    zone = Text(required=False, max_length=64, help_text="`UTC`, `local`, or an IANA name.")
    shortcuts = Flag(required=False)
    columns = Columns(required=False, help_text="List -> names of the columns to hide; null: as the list comes.")


class SavedViewSerializer(serializers.ModelSerializer):
    """A list with its filters under a name."""

    id = serializers.CharField(source="public_id", help_text="view_...")
    page = serializers.CharField(help_text="Which list of the console.")
    query = serializers.CharField(help_text="The filters, as the query string of the console's list.")
    owner = serializers.CharField(source="owner.username", help_text="User name.")
    shared = serializers.BooleanField(help_text="Whether the team has it.")
    is_default = serializers.BooleanField(help_text="Whether its owner's list opens with it.")

    class Meta:
        model = SavedView
        fields = ("id", "page", "name", "query", "owner", "shared", "is_default", "created_at", "updated_at")


class SavedViewBody(StrictBody):
    """A new view; one's own of the same list and name is replaced."""

    page = Text(max_length=20, help_text="pairs, messages, incidents, deliveries or audit.")
    name = Text(max_length=80)
    query = Text(max_length=2000, allow_blank=True, default="", help_text="Such as `state=failed&partner=par_...`.")
    shared = Flag(default=False, help_text="For the team; needs the scope `views:share`.")
    is_default = Flag(default=False)


class SavedViewChanges(StrictBody):
    """What is given is changed."""

    name = Text(required=False, max_length=80)
    query = Text(required=False, max_length=2000, allow_blank=True)
    shared = Flag(required=False)
    is_default = Flag(required=False, help_text="One's own views only.")
