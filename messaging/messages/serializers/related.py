"""What belongs together with a message, and what a redelivery has come to."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from messaging.api.fields import IdOut
from messaging.choices import Direction, MessageState, PartnerAnswer
from messaging.messages.services.resubmitting import Redelivery


class RelatedMessage(serializers.Serializer):
    """A message, in short."""

    id = IdOut("msg")
    message_id = serializers.CharField()
    direction = serializers.ChoiceField(choices=Direction.choices)
    state = serializers.ChoiceField(choices=MessageState.choices)
    action = serializers.CharField()
    created_at = serializers.DateTimeField()


class InquiryRef(serializers.Serializer):
    """A question to the partner about the message."""

    id = IdOut("inq")
    answer = serializers.ChoiceField(choices=PartnerAnswer.choices)
    detail = serializers.CharField()
    asked_at = serializers.DateTimeField()
    answered_at = serializers.DateTimeField(allow_null=True)


class RelatedSerializer(serializers.Serializer):
    """Messages around one message, the newest first."""

    previous = RelatedMessage(allow_null=True, help_text="The one before it in its pair.")
    next = RelatedMessage(allow_null=True, help_text="The one after it in its pair.")
    refers_to = RelatedMessage(many=True, help_text="With the MessageId that it answers.")
    answers = RelatedMessage(many=True, help_text="That answer it.")
    conversation = RelatedMessage(many=True)
    resubmitted_from = RelatedMessage(allow_null=True)
    resubmitted_as = RelatedMessage(many=True)
    came_as = RelatedMessage(many=True, help_text="Router: the message that came.")
    went_as = RelatedMessage(many=True, help_text="Router: the messages that pass it on.")
    inquiries = InquiryRef(many=True, help_text="What the partner said when it was asked.")


class LeftOut(serializers.Serializer):
    """A trigger that got nothing."""

    trigger = serializers.CharField()
    why = serializers.CharField()


class RedeliverySerializer(serializers.Serializer):
    """What came of a redelivery."""

    deliveries = serializers.ListField(child=serializers.CharField(), help_text="Ids of the new deliveries.")
    left_out = LeftOut(many=True)


def redelivery(result: Redelivery) -> dict[str, Any]:
    """What RedeliverySerializer describes."""
    return {
        "deliveries": [delivery.public_id for delivery in result.made],
        "left_out": [{"trigger": name, "why": why} for name, why in result.left_out],
    }
