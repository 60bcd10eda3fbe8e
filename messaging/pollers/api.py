"""Pollers in the API: what a poller is there, and what is said of the operations."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework import serializers

from messaging.api.fields import IdOut, RowSerializer, Text
from messaging.api.named import EndpointRef, PartyRef
from messaging.api.reading import Param
from messaging.api.resource import ChangesBody, Operations, SettingsBody
from messaging.pollers import selectors
from messaging.pollers.resource import POLLERS as RESOURCE
from messaging.pollers.selectors import STATES, PollerRow
from partners.choices import CredentialKind, PollerKind
from partners.models import Poller
from partners.ssh_keys import MAX_KEY

_SECRET_KINDS = ((CredentialKind.BASIC.value, "Password"), (CredentialKind.SSH_KEY.value, "SSH private key"))
_SETTINGS = (
    *("partner", "username", "secret", "secret_kind", "host_key", "trusted_checker", "interval", "enabled"),
    *("name", "kind", "url", "endpoint"),
)


class PollerBody(SettingsBody):
    """A new poller."""

    references = {"endpoint": "end", "partner": "par"}
    secret_kind = serializers.ChoiceField(choices=_SECRET_KINDS, required=False)
    secret = Text(
        max_length=MAX_KEY,
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        help_text="Password, or SSH private key (PEM without a passphrase). Kept encrypted, and never shown.",
    )

    class Meta:
        model = Poller
        fields = ("reason", *_SETTINGS)


class PollerChanges(ChangesBody, PollerBody):
    """What changes; what is absent stays. Another server, user name or host key needs the secret again."""


class PollerProgressSerializer(serializers.Serializer):
    """How far the hub is with it."""

    state = serializers.ChoiceField(choices=[(name, name) for name in STATES])
    next_look_at = serializers.DateTimeField(allow_null=True, help_text="null: never, or right now.")
    last_looked_at = serializers.DateTimeField(source="progress.last_looked_at", allow_null=True)
    last_success_at = serializers.DateTimeField(source="progress.last_success_at", allow_null=True)
    taken = serializers.IntegerField(source="progress.taken", help_text="Items that were taken from there, ever.")
    failures = serializers.IntegerField(source="progress.failures", help_text="In a row.")
    cause = serializers.CharField(source="progress.cause", help_text="Of the last failure; empty when it went well.")
    detail = serializers.CharField(source="progress.detail")
    sentence = serializers.SerializerMethodField(
        help_text="What the last poll found, and since when it is known; for people."
    )

    def get_sentence(self, row: PollerRow) -> str:
        return " ".join(part for part in (row.headline, row.sentence, row.outlook[0]) if part)


class PollerSerializer(RowSerializer):
    """A mailbox or folder that the hub looks into. Its secret is never told."""

    id = IdOut("poll")
    endpoint = EndpointRef()
    partner = PartyRef(allow_null=True)
    secret_kind = serializers.ChoiceField(choices=_SECRET_KINDS)
    progress = serializers.SerializerMethodField()

    class Meta:
        model = Poller
        fields = (
            *("id", "name", "kind", "url", "endpoint", "partner", "username", "secret_kind", "host_key"),
            *("trusted_checker", "interval", "enabled", "progress", "created_at", "updated_at"),
        )

    @extend_schema_field(PollerProgressSerializer)
    def get_progress(self, poller: Poller) -> dict[str, Any]:
        return dict(PollerProgressSerializer(selectors.row(poller)).data)


POLLERS = Operations(
    resource=RESOURCE,
    shape=PollerSerializer,
    detailed=PollerSerializer,
    detail=lambda poller: (dict(PollerSerializer(poller).data), None),
    body=PollerBody,
    changes=PollerChanges,
    filters=(
        Param("q", "Part of the name or URL."),
        Param("kind", "Kinds, one of.", "choices", choices=tuple(PollerKind.values)),
        Param("enabled", "Only pollers that are on, or off.", "flag"),
        Param("party", "Id, name or identifier of a party: whose endpoint it is, or who puts files there.", "party"),
    ),
    said={
        "list": ("List mailboxes and folders that the hub polls", ""),
        "create": ("Create a poller", "It is polled at once, and then at its interval."),
        "read": ("One poller, and how far the hub is with it", ""),
        "change": (
            "Change a poller",
            "Another server, host key or user name needs `secret` again: a stored one goes nowhere else.",
        ),
        "delete": ("Delete a poller", "What lies in the mailbox or folder stays there."),
    },
    example=OpenApiExample(
        "A folder in which a partner leaves files",
        value={
            "name": "Globex, outgoing",
            "kind": "sftp",
            "url": "sftp://files.globex.example/to-us/",
            "endpoint": "end_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7",
            "partner": "par_0192f3f2f3e47a5fb0c1d2e3f4a5b6c8",
            "username": "hub",
            "secret": "what they gave us",
            "host_key": "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU",
            "reason": "go-live",
        },
        request_only=True,
    ),
)
