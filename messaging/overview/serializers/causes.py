"""Causes: why something went wrong, as representations."""

from __future__ import annotations

from rest_framework import serializers

from messaging.causes import lookup

WHERE = "Where the console explains it: a path of this hub."


class CauseDocumentation(serializers.CharField):
    """Beside a `cause` that is a bare code: where the console explains it, "" for no cause."""

    def __init__(self) -> None:
        super().__init__(source="cause", read_only=True, help_text=f"{WHERE} Empty for no cause.")

    def to_representation(self, value: str) -> str:
        return lookup(value).documentation if value else ""


class CauseSerializer(serializers.Serializer):
    """A cause of the closed list in docs/causes.md."""

    code = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    sentence = serializers.CharField(help_text="What happened.")
    action = serializers.CharField(help_text="What to do.")
    retryable = serializers.BooleanField(help_text="Whether time alone may mend it.")
    group = serializers.CharField(help_text="What it belongs to; empty: a code of another version of the hub.")
    documentation = serializers.CharField(help_text=WHERE)


class CausesSerializer(serializers.Serializer):
    """All causes."""

    data = CauseSerializer(many=True)  # type: ignore[assignment]
