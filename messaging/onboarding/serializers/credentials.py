"""Credentials: representations and bodies."""

from __future__ import annotations

from rest_framework import serializers

from messaging.api.fields import IdIn, IdOut, Instant, OptionalReasonBody, Text
from messaging.messages.serializers.messages import PartyRef
from partners.certificates import MAX_TEXT
from partners.choices import CredentialDirection, CredentialKind


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
        help_text="Inbound certificate: itself, PEM, in the place of its fingerprint.",
    )
    valid_from = Instant(required=False, allow_null=True)
    valid_until = Instant(required=False, allow_null=True)


class CredentialSerializer(serializers.Serializer):
    """A credential, without any secret."""

    id = IdOut("cred")
    party = PartyRef()
    direction = serializers.ChoiceField(choices=CredentialDirection.choices)
    kind = serializers.ChoiceField(choices=CredentialKind.choices)
    label = serializers.CharField()  # type: ignore[assignment]
    username = serializers.CharField()
    fingerprint = serializers.CharField()
    valid_from = serializers.DateTimeField(allow_null=True)
    valid_until = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()


class NewCredentialSerializer(CredentialSerializer):
    """A new credential, with what the partner has to show."""

    secret = serializers.CharField(allow_null=True, help_text="Shown this once; null if there is nothing to show.")
