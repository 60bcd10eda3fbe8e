"""One attempt: its representation."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import IdOut
from messaging.messages.serializers.messages import PairRef, TransmissionSerializer
from messaging.models import Transmission
from rmhub.ids import public_id


class TransmissionDetailSerializer(TransmissionSerializer):
    """One attempt, with what it put on the wire and where the octets are."""

    pair = PairRef(allow_null=True)
    message = IdOut("msg", source="message_id", allow_null=True, help_text="What was sent; null: a signal was.")
    signal = IdOut("sig", source="signal_id", allow_null=True)
    wire = serializers.SerializerMethodField(help_text="Path of the octets that went out.")
    response = serializers.SerializerMethodField(help_text="Path of what the partner's server answered.")

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_wire(self, attempt: Transmission) -> str | None:
        if attempt.message_id is not None:
            return f"/api/v1/messages/{public_id('msg', attempt.message_id)}/wire"
        return f"/api/v1/signals/{public_id('sig', attempt.signal_id)}/wire" if attempt.signal_id else None

    @extend_schema_field(serializers.CharField())
    def get_response(self, attempt: Transmission) -> str:
        return f"/api/v1/transmissions/{attempt.public_id}/response"
