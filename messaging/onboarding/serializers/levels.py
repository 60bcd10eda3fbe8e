"""How agreements keep their service levels, and what a partner's pairs did lately."""

from __future__ import annotations

from rest_framework import serializers

from messaging.api.fields import IdOut
from messaging.choices import SlaTarget

_STATES = ("none", "good", "watch", "missed")


class AttainmentSerializer(serializers.Serializer):
    """One target in one calendar month (UTC): documents by the time at which their limit ends."""

    agreement = IdOut("agr", source="agreement.pk")
    tpa_id = serializers.CharField(source="agreement.tpa_id")
    target = serializers.ChoiceField(choices=SlaTarget.choices)
    month = serializers.DateField(help_text="Its first day.")
    within = serializers.IntegerField(help_text="Seconds, of the version that counts now; 0: it has no such target.")
    percent = serializers.FloatField(help_text="What is to be attained.")
    due = serializers.IntegerField(help_text="Documents, without those that were cancelled in time.")
    met = serializers.IntegerField(help_text="In time.")
    missed = serializers.IntegerField(help_text="Late, or not done when their limit ended.")
    open = serializers.IntegerField(help_text="Neither yet: their limit is ahead.")
    attained_percent = serializers.FloatField(source="attained", allow_null=True, help_text="Met, of what is decided.")
    budget_allowed = serializers.IntegerField(
        source="allowed", help_text="Misses that the target allows of the month's documents, or of the month before's."
    )
    budget_left = serializers.IntegerField(source="left", help_text="Below 0: the target is missed.")
    budget_used_percent = serializers.FloatField(
        source="used", allow_null=True, help_text="Null: no miss is allowed, and there was one."
    )
    state = serializers.ChoiceField(choices=_STATES, help_text="none: nothing is decided yet; watch: 75 % is used.")


class ServiceLevelsSerializer(serializers.Serializer):
    """How an agreement keeps its targets."""

    counted_through = serializers.DateTimeField(
        allow_null=True, help_text="Limits that ended before are judged; null: nothing is counted yet."
    )
    now = AttainmentSerializer(many=True, help_text="The running month.")
    months = AttainmentSerializer(many=True, help_text="Months with documents, newest first; 12 at most.")


class PartnerDaySerializer(serializers.Serializer):
    """What a partner's pairs did on one day (UTC)."""

    day = serializers.DateTimeField(source="at", help_text="Its begin.")
    delivered = serializers.IntegerField()
    received = serializers.IntegerField()
    failed = serializers.IntegerField()
    ack_p95_seconds = serializers.FloatField(source="p95", allow_null=True)


class PartnerTrafficSerializer(serializers.Serializer):
    """What a partner's pairs did in the last 14 days, from counts by the hour."""

    delivered = serializers.IntegerField()
    received = serializers.IntegerField()
    failed = serializers.IntegerField()
    success_percent = serializers.FloatField(source="success", allow_null=True, help_text="Of what ended outbound.")
    ack_p50_seconds = serializers.FloatField(source="p50", allow_null=True, help_text="As far as the buckets tell.")
    ack_p95_seconds = serializers.FloatField(source="p95", allow_null=True)
    last_at = serializers.DateTimeField(allow_null=True, help_text="When the last message got through, either way.")
    days = PartnerDaySerializer(many=True, help_text="Oldest first.")
