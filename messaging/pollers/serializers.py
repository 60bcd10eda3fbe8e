"""Pickups: mailboxes and folders that the hub looks into for what partners left there."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import Flag, IdIn, IdOut, ReasonBody, Text, Whole
from messaging.messages.serializers.messages import PartyRef
from messaging.onboarding.serializers.partners import EndpointRef
from messaging.pollers import selectors as pickups
from messaging.pollers.selectors import STATES, PickupRow
from partners.choices import CredentialKind, PickupKind
from partners.models import Pickup
from partners.services.pickups import LEAST_INTERVAL, LONGEST_INTERVAL
from partners.ssh_keys import MAX_KEY
from rmhub import clock

_SECRET_KINDS = ((CredentialKind.BASIC.value, "Password"), (CredentialKind.SSH_KEY.value, "SSH private key"))


class PickupFields(ReasonBody):
    """The settings of a pickup; what is absent has its default, or stays."""

    partner = IdIn("par", required=False, allow_null=True, help_text="Folders: who puts files there.")
    username = Text(max_length=120, required=False, allow_blank=True, help_text="With which the hub logs in.")
    secret = Text(
        max_length=MAX_KEY,
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        help_text="Password, or SSH private key (PEM without a passphrase). Kept encrypted, and never told.",
    )
    secret_kind = serializers.ChoiceField(choices=_SECRET_KINDS, required=False)
    host_key = Text(
        max_length=200,
        required=False,
        allow_blank=True,
        help_text="Folders: fingerprint of the server's key, as `ssh-keygen -l` prints it; several have spaces between",
    )
    trusted_checker = Text(
        max_length=255,
        required=False,
        allow_blank=True,
        help_text="Mailboxes: the name in Authentication-Results by which the mail server says that it checked.",
    )
    interval = Whole(min_value=LEAST_INTERVAL, max_value=LONGEST_INTERVAL, required=False, help_text="Seconds.")
    enabled = Flag(required=False)


class PickupBody(PickupFields):
    """A new pickup."""

    name = Text(max_length=80)
    kind = serializers.ChoiceField(choices=PickupKind.choices)
    url = Text(max_length=500, help_text="imaps://mail.example.org/INBOX or sftp://files.example.org/outgoing/")
    endpoint = IdIn("end", help_text="Ours: the messages are for its URI.")


class PickupChanges(PickupFields):
    """What changes; what is absent stays. Another server, user name or host key needs the secret again."""

    name = Text(max_length=80, required=False)
    kind = serializers.ChoiceField(choices=PickupKind.choices, required=False)
    url = Text(max_length=500, required=False)
    endpoint = IdIn("end", required=False)


class PickupProgressSerializer(serializers.Serializer):
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
        help_text="What the last look found, and since when it is known; for people."
    )

    def get_sentence(self, row: PickupRow) -> str:
        return " ".join(part for part in (row.headline, row.sentence, row.outlook[0]) if part)


class PickupSerializer(serializers.Serializer):
    """A mailbox or folder that the hub looks into. Its secret is never told."""

    id = IdOut("pick")
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=PickupKind.choices)
    url = serializers.CharField()
    endpoint = EndpointRef()
    partner = PartyRef(allow_null=True)
    username = serializers.CharField()
    secret_kind = serializers.ChoiceField(choices=_SECRET_KINDS)
    host_key = serializers.CharField()
    trusted_checker = serializers.CharField()
    interval = serializers.IntegerField(help_text="Seconds.")
    enabled = serializers.BooleanField()
    progress = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    @extend_schema_field(PickupProgressSerializer)
    def get_progress(self, pickup: Pickup) -> dict[str, Any]:
        found: PickupRow = pickups.row(pickup, clock.now())
        return dict(PickupProgressSerializer(found).data)


def settings_of(values: dict[str, Any]) -> dict[str, Any]:
    """A body's members as `services.changes` takes them."""
    found = {name: value for name, value in values.items() if name not in ("endpoint", "partner")}
    if "endpoint" in values:
        found["endpoint_id"] = values["endpoint"]
    if "partner" in values:
        found["partner_id"] = values["partner"]
    return found
