"""Questions to partners about messages: representation."""

from __future__ import annotations

from rest_framework import serializers

from messaging.api.fields import IdOut
from messaging.choices import PartnerAnswer


class InquirySerializer(serializers.Serializer):
    """One question to the partner about a message, and what it said."""

    id = IdOut("inq")
    message = IdOut("msg", source="message_id")
    answer = serializers.ChoiceField(choices=PartnerAnswer.choices)
    detail = serializers.CharField(help_text="In the partner's words, or why there was no answer.")
    cause = serializers.CharField(help_text="Stable code of why there was no answer; else empty.")
    address = serializers.CharField(help_text="What was asked for.")
    http_status = serializers.IntegerField(allow_null=True)
    actor = serializers.CharField()
    asked_at = serializers.DateTimeField()
    answered_at = serializers.DateTimeField(allow_null=True)
