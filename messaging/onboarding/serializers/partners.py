"""Parties, endpoints and credentials: representations and bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import IdIn, IdOut, Instant, OptionalReasonBody, RowSerializer, StrictBody, Text
from messaging.api.named import PartyRef
from messaging.api.resource import SettingsBody
from partners import transports
from partners.certificates import MAX_TEXT
from partners.choices import CredentialDirection, CredentialKind
from partners.models import ENDPOINT, Credential, Endpoint, Party


class IdentifierBody(StrictBody):
    """A typed identifier, e.g. DUNS 123456789."""

    type = Text(max_length=120)
    value = Text(max_length=255)


class Described:
    """Settings about which the API says something of its own, `said`, or nothing."""

    said: Mapping[str, str] = {}

    def build_standard_field(self, field_name: str, model_field: Any) -> tuple[Any, dict[str, Any]]:
        kind, options = super().build_standard_field(field_name, model_field)  # type: ignore[misc]
        options = {name: value for name, value in options.items() if name not in ("label", "trim_whitespace")}
        return kind, {**options, "help_text": self.said.get(field_name, "")}


class PartyChanges(OptionalReasonBody, Described, SettingsBody):
    """What changes; what is absent stays. `identifiers` replaces all of them."""

    contact = Text(max_length=5000, required=False, allow_blank=True)
    identifiers = serializers.ListField(child=IdentifierBody(), required=False, max_length=20)
    groups = serializers.ListField(
        child=IdIn("grp"), required=False, max_length=100, help_text="Replaces the partner groups."
    )

    class Meta:
        model = Party
        fields = ("reason", "name", "is_own", "contact", "identifiers", "time_zone", "hours", "groups")
        extra_kwargs: dict[str, dict[str, Any]] = {"name": {"required": False}}


class PartyBody(PartyChanges):
    """An organisation."""

    said = {"time_zone": "IANA name, e.g. Europe/Berlin.", "hours": "Business hours, in words."}
    contact = Text(max_length=5000, required=False, allow_blank=True, default="")
    identifiers = serializers.ListField(
        child=IdentifierBody(), required=False, max_length=20, help_text="The preferred one first."
    )
    groups = serializers.ListField(child=IdIn("grp"), required=False, max_length=100, help_text="Partner groups.")

    class Meta(PartyChanges.Meta):
        extra_kwargs = {"is_own": {"default": False}}


class IdentifierSerializer(serializers.Serializer):
    """A typed identifier."""

    type = serializers.CharField(source="context")
    value = serializers.CharField()


class PartySerializer(Described, RowSerializer):
    """An organisation; ours is one too."""

    said = {"hours": "Business hours, in words."}
    id = IdOut("par")
    identifiers = IdentifierSerializer(many=True, help_text="The first is the one that we write.")
    groups = serializers.SerializerMethodField(help_text="Ids of its partner groups (`grp_...`).")
    archived_at = serializers.DateTimeField(allow_null=True, help_text="Archived.")

    class Meta:
        model = Party
        fields = (
            *("id", "name", "is_own", "contact", "identifiers", "time_zone", "hours", "groups"),
            *("archived_at", "created_at", "updated_at"),
        )

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_groups(self, party: Party) -> list[str]:
        return [group.public_id for group in party.groups.all()]


class EndpointChanges(OptionalReasonBody, Described, SettingsBody):
    """What changes; what is absent stays."""

    said = {
        "error_uri": "Where errors go; the URI if absent.",
        "address": "Only if it differs from the URI.",
        "server": " ".join(one.server_said for one in transports.ALL if one.server_said),
        "host_key": "Files: fingerprint of the server's key, as `ssh-keygen -l` prints it; several are separated by "
        "spaces.",
        "service_address": "Below it lie the partner's test services status and echo (docs/partner-services.md).",
        "connect_timeout": "Seconds.",
        "read_timeout": "Seconds.",
    }
    trusted_certificates = Text(
        max_length=MAX_TEXT,
        required=False,
        allow_blank=True,
        help_text="HTTPS, mail: PEM, the only certificates that its server may show; empty = what this machine trusts.",
    )

    class Meta:
        model = Endpoint
        fields: tuple[str, ...] = (
            *("reason", "error_uri", "name", "transport", "address", "error_address", "server", "host_key"),
            *("trusted_certificates", "service_address", "connect_timeout", "read_timeout", "uri"),
        )
        extra_kwargs: dict[str, dict[str, Any]] = {
            "error_uri": {"required": False, "allow_blank": True},
            "connect_timeout": {"max_value": 3600},
            "read_timeout": {"max_value": 3600},
            "uri": {"required": False},
        }


class EndpointBody(EndpointChanges):
    """A messaging service of a party."""

    said = {**EndpointChanges.said, "uri": "SenderURI and ReceiverURI on the wire."}
    party = IdIn("par")

    class Meta(EndpointChanges.Meta):
        fields = (*(name for name in EndpointChanges.Meta.fields if name != "uri"), "party", "uri")
        extra_kwargs = {**EndpointChanges.Meta.extra_kwargs, "uri": {}}


class EndpointSerializer(Described, RowSerializer):
    """A messaging service of a party: its logical URIs, and where its bytes really go."""

    said = {
        "server": "Mail and files: where it goes, if not to that of the URI.",
        "host_key": "Files: fingerprint of the server's key.",
        "trusted_certificates": "PEM; empty = what the hub's machine trusts.",
        "service_address": "Of the partner's test services; empty = it has none.",
        "connect_timeout": "Seconds.",
        "read_timeout": "Seconds.",
    }
    id = IdOut("end")
    party = PartyRef()

    class Meta:
        model = Endpoint
        fields = ("id", "party", *ENDPOINT, "created_at", "updated_at")


class CredentialBody(OptionalReasonBody):
    """Proof of identity between us and a partner."""

    party = IdIn("par")
    direction = serializers.ChoiceField(choices=CredentialDirection.choices)
    kind = serializers.ChoiceField(choices=CredentialKind.choices)
    label = Text(max_length=80, required=False, allow_blank=True)  # type: ignore[assignment]
    username = Text(max_length=120, required=False, allow_blank=True, help_text="HTTP Basic, and SSH.")
    secret = Text(
        max_length=MAX_TEXT,
        required=False,
        trim_whitespace=False,
        help_text="Outbound: what the partner gave us, our SSH private key, or our certificate with its private key "
        "(PEM without a passphrase). Inbound: made up if absent.",
    )
    fingerprint = Text(max_length=200, required=False, allow_blank=True, help_text="Certificate: its SHA-256.")
    certificate = Text(
        max_length=MAX_TEXT,
        required=False,
        allow_blank=True,
        help_text="Inbound certificate: itself, PEM, in the place of its fingerprint; for signatures always itself.",
    )
    valid_from = Instant(required=False, allow_null=True)
    valid_until = Instant(required=False, allow_null=True)


class CredentialSerializer(Described, RowSerializer):
    """A credential, without any secret."""

    id = IdOut("cred")
    party = PartyRef()
    valid_from = serializers.DateTimeField(allow_null=True)
    valid_until = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)

    class Meta:
        model = Credential
        fields: tuple[str, ...] = (
            *("id", "party", "direction", "kind", "label", "username", "fingerprint"),
            *("valid_from", "valid_until", "revoked_at", "created_at"),
        )


class NewCredentialSerializer(CredentialSerializer):
    """A new credential, with what the partner has to show."""

    secret = serializers.CharField(allow_null=True, help_text="Shown only once, now; null if there is nothing to show.")

    class Meta(CredentialSerializer.Meta):
        fields = (*CredentialSerializer.Meta.fields, "secret")
