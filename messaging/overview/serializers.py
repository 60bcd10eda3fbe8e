"""Causes and events, as representations that other rooms use too."""

from __future__ import annotations

from rest_framework import serializers

from messaging.causes import lookup
from messaging.journal.events import TYPES

WHERE = "Where the console explains it: a path of this hub."
EVENT_DATA = "What belongs to this type of event: ids to look up, sequence_number, cause, reason ..."


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
    retryable = serializers.BooleanField(help_text="Whether time alone may fix it.")
    group = serializers.CharField(help_text="What it belongs to; empty: a code of another version of the hub.")
    documentation = serializers.CharField(help_text=WHERE)


class EventSerializer(serializers.Serializer):
    """Something that happened to a message or a pair."""

    id = serializers.CharField(help_text="Stable name of the event: use it to recognise one that you have seen.")
    type = serializers.ChoiceField(choices=TYPES)
    timestamp = serializers.DateTimeField()
    data = serializers.DictField(help_text=EVENT_DATA)  # type: ignore[assignment]


class EventFeedSerializer(serializers.Serializer):
    """A page of the feed. `next_cursor` is there also when there are no events: go on from it."""

    data = EventSerializer(many=True)  # type: ignore[assignment]
    next_cursor = serializers.CharField()
    has_more = serializers.BooleanField(help_text="Whether more are there already; if not, wait before asking again.")
