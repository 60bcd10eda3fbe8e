"""Notification rules and what was told by them: representations and bodies."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from messaging.api.fields import Flag, IdIn, IdOut, OptionalReasonBody, Text, Whole
from messaging.choices import NotificationChannel, NotificationState
from messaging.notifications.services.rules import CAUSES_MOST, NOTIFIABLE, RECIPIENTS_MOST, WINDOW_MOST


class RuleFields(OptionalReasonBody):
    """The settings of a rule; what is absent has its default, or stays."""

    enabled = Flag(required=False, help_text="true unless told.")
    causes = serializers.ListField(
        child=Text(max_length=60), required=False, max_length=CAUSES_MOST, help_text="Codes of causes; empty = all."
    )
    group = IdIn("grp", required=False, allow_null=True, help_text="Only the partners of this group; null = all.")
    recipients = serializers.ListField(
        child=Text(max_length=254), required=False, max_length=RECIPIENTS_MOST, help_text="For mail: addresses."
    )
    endpoint = IdIn("whe", required=False, allow_null=True, help_text="For webhook: the endpoint that is told.")
    window = Whole(
        required=False,
        min_value=0,
        max_value=WINDOW_MOST,
        help_text="Seconds within which what is the same again is counted and not told; 0 = told every time.",
    )


class RuleBody(RuleFields):
    """A new rule."""

    name = Text(max_length=80)
    events = serializers.ListField(child=serializers.ChoiceField(choices=NOTIFIABLE), allow_empty=False)
    channel = serializers.ChoiceField(choices=NotificationChannel.choices)


class RuleChanges(RuleFields):
    """What changes; what is absent stays."""

    name = Text(max_length=80, required=False)
    events = serializers.ListField(child=serializers.ChoiceField(choices=NOTIFIABLE), required=False, allow_empty=False)
    channel = serializers.ChoiceField(choices=NotificationChannel.choices, required=False)


class NotifiedGroup(serializers.Serializer):
    """A partner group."""

    id = IdOut("grp")
    name = serializers.CharField()


class WebhookRef(serializers.Serializer):
    """A webhook endpoint."""

    id = IdOut("whe")
    name = serializers.CharField()


class RuleSerializer(serializers.Serializer):
    """Who is told of what."""

    id = IdOut("rule")
    name = serializers.CharField()
    enabled = serializers.BooleanField()
    events = serializers.ListField(child=serializers.CharField())
    causes = serializers.ListField(child=serializers.CharField(), help_text="Empty = all.")
    group = NotifiedGroup(allow_null=True)
    channel = serializers.ChoiceField(choices=NotificationChannel.choices)
    recipients = serializers.ListField(child=serializers.CharField())
    endpoint = WebhookRef(allow_null=True)
    window = serializers.IntegerField(help_text="Seconds.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class NotificationRuleRef(serializers.Serializer):
    """A rule, by id and name."""

    id = IdOut("rule")
    name = serializers.CharField()


class IncidentRef(serializers.Serializer):
    """An incident, by id and number."""

    id = IdOut("inc")
    number = serializers.IntegerField()


class NotificationSerializer(serializers.Serializer):
    """One message to people."""

    id = IdOut("note")
    rule = NotificationRuleRef()
    incident = IncidentRef(allow_null=True)
    state = serializers.ChoiceField(choices=NotificationState.choices)
    subject = serializers.CharField()
    body = serializers.CharField()
    event = serializers.DictField(source="data", help_text="What a webhook endpoint is told.")
    folded = serializers.IntegerField(help_text="How many more occurrences it stands for.")
    attempts = serializers.IntegerField()
    due_at = serializers.DateTimeField(allow_null=True, help_text="When it is tried (again).")
    last_error = serializers.CharField()
    created_at = serializers.DateTimeField()
    sent_at = serializers.DateTimeField(allow_null=True)


def represent(rule: Any) -> dict[str, Any]:
    """A rule as its representation."""
    return dict(RuleSerializer(rule).data)
