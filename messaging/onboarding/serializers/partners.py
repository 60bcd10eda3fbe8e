"""Parties and endpoints: representations and bodies."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import Flag, IdIn, IdOut, OptionalReasonBody, StrictBody, Text, Whole
from messaging.messages.serializers.messages import PartyRef
from partners.certificates import MAX_TEXT
from partners.choices import Transport
from partners.models import Party


class IdentifierBody(StrictBody):
    """A typed identifier, e.g. DUNS 123456789."""

    type = Text(max_length=120)
    value = Text(max_length=255)


class PartyBody(OptionalReasonBody):
    """An organisation."""

    name = Text(max_length=120)
    is_own = Flag(required=False, default=False)
    contact = Text(max_length=5000, required=False, allow_blank=True, default="")
    identifiers = serializers.ListField(
        child=IdentifierBody(), required=False, max_length=20, help_text="The preferred one first."
    )
    time_zone = Text(max_length=64, required=False, allow_blank=True, help_text="IANA name, e.g. Europe/Berlin.")
    hours = Text(max_length=120, required=False, allow_blank=True, help_text="Business hours, in words.")
    groups = serializers.ListField(child=IdIn("grp"), required=False, max_length=100, help_text="Partner groups.")


class PartyChanges(OptionalReasonBody):
    """What changes; what is absent stays. `identifiers` replaces all of them."""

    name = Text(max_length=120, required=False)
    is_own = Flag(required=False)
    contact = Text(max_length=5000, required=False, allow_blank=True)
    identifiers = serializers.ListField(child=IdentifierBody(), required=False, max_length=20)
    time_zone = Text(max_length=64, required=False, allow_blank=True)
    hours = Text(max_length=120, required=False, allow_blank=True)
    groups = serializers.ListField(
        child=IdIn("grp"), required=False, max_length=100, help_text="Replaces the partner groups."
    )


class IdentifierSerializer(serializers.Serializer):
    """A typed identifier."""

    type = serializers.CharField(source="context")
    value = serializers.CharField()


class PartySerializer(serializers.Serializer):
    """An organisation; ours is one too."""

    id = IdOut("par")
    name = serializers.CharField()
    is_own = serializers.BooleanField()
    contact = serializers.CharField()
    identifiers = IdentifierSerializer(many=True, help_text="The first is the one that we write.")
    time_zone = serializers.CharField()
    hours = serializers.CharField(help_text="Business hours, in words.")
    groups = serializers.SerializerMethodField(help_text="Ids of its partner groups (`grp_...`).")
    archived_at = serializers.DateTimeField(allow_null=True, help_text="Taken out of use.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_groups(self, party: Party) -> list[str]:
        return [group.public_id for group in party.groups.all()]


class EndpointFields(OptionalReasonBody):
    """What an endpoint may say beside its URI."""

    error_uri = Text(max_length=500, required=False, allow_blank=True, help_text="Where errors go; the URI if absent.")
    name = Text(max_length=80, required=False)
    transport = serializers.ChoiceField(choices=Transport.choices, required=False)
    address = Text(max_length=500, required=False, allow_blank=True, help_text="Only if it differs from the URI.")
    error_address = Text(max_length=500, required=False, allow_blank=True)
    server = Text(
        max_length=500,
        required=False,
        allow_blank=True,
        help_text="Mail: the server that takes it, e.g. smtp+starttls://relay.example:587; empty = the hub's relay. "
        "Files: sftp://host:port, if not that of the URI.",
    )
    host_key = Text(
        max_length=200,
        required=False,
        allow_blank=True,
        help_text="Files: fingerprint of the server's key, as `ssh-keygen -l` prints it; several are apart by spaces.",
    )
    trusted_certificates = Text(
        max_length=MAX_TEXT,
        required=False,
        allow_blank=True,
        help_text="HTTPS, mail: PEM, the only certificates that its server may show; empty = what this machine trusts.",
    )
    service_address = Text(
        max_length=500,
        required=False,
        allow_blank=True,
        help_text="Below it lie the partner's test services status and echo (docs/partner-services.md).",
    )
    connect_timeout = Whole(min_value=1, max_value=3600, required=False, help_text="Seconds.")
    read_timeout = Whole(min_value=1, max_value=3600, required=False, help_text="Seconds.")


class EndpointBody(EndpointFields):
    """A messaging service of a party."""

    party = IdIn("par")
    uri = Text(max_length=500, help_text="SenderURI and ReceiverURI on the wire.")


class EndpointChanges(EndpointFields):
    """What changes; what is absent stays."""

    uri = Text(max_length=500, required=False)


class EndpointSerializer(serializers.Serializer):
    """A messaging service of a party: its logical URIs, and where its bytes really go."""

    id = IdOut("end")
    party = PartyRef()
    name = serializers.CharField()
    transport = serializers.ChoiceField(choices=Transport.choices)
    uri = serializers.CharField()
    error_uri = serializers.CharField()
    address = serializers.CharField()
    error_address = serializers.CharField()
    server = serializers.CharField(help_text="Mail and files: where it goes, if not to that of the URI.")
    host_key = serializers.CharField(help_text="Files: fingerprint of the server's key.")
    trusted_certificates = serializers.CharField(help_text="PEM; empty = what the hub's machine trusts.")
    service_address = serializers.CharField(help_text="Of the partner's test services; empty = it has none.")
    connect_timeout = serializers.IntegerField(help_text="Seconds.")
    read_timeout = serializers.IntegerField(help_text="Seconds.")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class EndpointRef(serializers.Serializer):
    """An endpoint, by id and URI."""

    id = IdOut("end")
    uri = serializers.CharField()
