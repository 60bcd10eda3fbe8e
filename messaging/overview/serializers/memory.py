"""What the hub remembers of repeatable requests: representation."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import IdOut
from messaging.deliveries.serializers.triggers import AgreementNamed
from messaging.messages.serializers.messages import PartyRef
from messaging.overview.selectors.memory import Window
from partners.choices import ExchangeIdentity
from rmhub.ids import public_id


class EpochSerializer(serializers.Serializer):
    """Since when ids are remembered without a gap."""

    id = IdOut("mem", source="epoch", help_text="Another one: memory was lost and began anew.")
    memory_start = serializers.DateTimeField(help_text="Requests with an earlier first-instance time are refused.")
    forgotten_through = serializers.DateTimeField(help_text="Ids of requests before it were forgotten on purpose.")
    heartbeat = serializers.DateTimeField(help_text="The latest time that this memory has seen.")
    reason = serializers.CharField(help_text="Why it began anew.")


class WindowSerializer(serializers.Serializer):
    """What one agreement in force promises."""

    agreement = serializers.SerializerMethodField()
    partner = serializers.SerializerMethodField()
    identity = serializers.ChoiceField(
        choices=ExchangeIdentity.choices,
        source="terms.exchange_identity",
        help_text="`key`: requests carry an Idempotency-Key and no first-instance time, so no window protects them.",
    )
    window_seconds = serializers.IntegerField(source="terms.memory_window")
    clock_skew_seconds = serializers.IntegerField(source="terms.clock_skew")
    repeat_interval_seconds = serializers.IntegerField(source="terms.repeat_interval")
    earliest_accepted_first_sent = serializers.DateTimeField(source="earliest")
    latest_accepted_first_sent = serializers.DateTimeField(source="latest")

    @extend_schema_field(AgreementNamed)
    def get_agreement(self, window: Window) -> dict[str, str]:
        return {"id": public_id("agr", window.terms.agreement_id), "tpa_id": window.terms.tpa_id}

    @extend_schema_field(PartyRef)
    def get_partner(self, window: Window) -> dict[str, str]:
        return {"id": public_id("par", window.terms.partner_id), "name": window.terms.partner_name}


class MemorySerializer(serializers.Serializer):
    """How far back the ids of repeatable requests are remembered."""

    server_time = serializers.DateTimeField(source="now")
    epoch = EpochSerializer(allow_null=True, help_text="null before the hub first ran.")
    windows = WindowSerializer(many=True, help_text="Of the repeatable agreements in force, by TPAId.")
