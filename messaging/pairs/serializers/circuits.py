"""Circuits: representation."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.choices import CircuitState
from messaging.models import Circuit
from messaging.overview.serializers import CauseDocumentation
from messaging.pairs.selectors.circuits import partners_at


class CircuitSerializer(serializers.Serializer):
    """A server that could not be reached lately. When it answers, its circuit is gone."""

    id = serializers.CharField(source="public_id", help_text="cir_...: always the same for the same server.")
    server = serializers.CharField(source="address", help_text="scheme://host:port; all its URIs share the circuit.")
    state = serializers.ChoiceField(
        choices=CircuitState.choices,
        help_text="`closed`: failures are counted, and it is used like any other. `open`: sending to it is stopped.",
    )
    failures = serializers.IntegerField(help_text="In a row.")
    cause = serializers.CharField(help_text="Of the last failure.")
    cause_documentation = CauseDocumentation()
    detail = serializers.CharField(help_text="What the last failure said.")
    opened_at = serializers.DateTimeField(allow_null=True, help_text="Since when sending to it is stopped.")
    retry_at = serializers.DateTimeField(
        allow_null=True, help_text="When one attempt is let through; while that one is under way, when it is given up."
    )
    partners = serializers.SerializerMethodField(
        help_text="Names of the partners that are reached by this server by agreements in force; else of the one for "
        "whom it was tried last."
    )
    updated_at = serializers.DateTimeField(help_text="When something last changed.")

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_partners(self, circuit: Circuit) -> list[str]:
        return list(partners_at(circuit))
