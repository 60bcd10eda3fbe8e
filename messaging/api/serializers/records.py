"""Events, incidents, rejections, the audit log, webhooks and tokens: representations and bodies."""

from __future__ import annotations

from rest_framework import serializers

from messaging.api.serializers.fields import Flag, IdOut, Instant, OptionalReasonBody, Text
from messaging.api.serializers.messages import PairRef
from messaging.api.serializers.triggers import TriggerRef
from messaging.choices import IncidentState, Interface, WebhookState
from messaging.services.events import TYPES
from rmhub.roles import ADMIN_SCOPES

_DATA = "What belongs to this type of event: ids to look up, sequence_number, cause, reason ..."


class EventSerializer(serializers.Serializer):
    """Something that happened to a message or a pair."""

    id = serializers.CharField(help_text="Stable name of the event: use it to recognise one that you have seen.")
    type = serializers.ChoiceField(choices=TYPES)
    timestamp = serializers.DateTimeField()
    data = serializers.DictField(help_text=_DATA)  # type: ignore[assignment]


class EventFeedSerializer(serializers.Serializer):
    """A page of the feed. `next_cursor` is there also when there are no events: go on from it."""

    data = EventSerializer(many=True)  # type: ignore[assignment]
    next_cursor = serializers.CharField()
    has_more = serializers.BooleanField(help_text="Whether more are there already; if not, wait before asking again.")


class WebhookBodySerializer(serializers.Serializer):
    """The body of a webhook: an event without its id, which is in the header webhook-id for each delivery."""

    type = serializers.ChoiceField(choices=TYPES)
    timestamp = serializers.DateTimeField()
    data = serializers.DictField(help_text=_DATA)  # type: ignore[assignment]


class MessageRef(serializers.Serializer):
    """A message, by id and MessageId."""

    id = IdOut("msg")
    message_id = serializers.CharField()


class IncidentSerializer(serializers.Serializer):
    """Something that a person must look at."""

    id = IdOut("inc")
    number = serializers.IntegerField(help_text="INC-<number>")
    state = serializers.ChoiceField(choices=IncidentState.choices)
    cause = serializers.CharField()
    detail = serializers.CharField()
    pair = PairRef(allow_null=True)
    trigger = TriggerRef(allow_null=True)
    message = MessageRef(allow_null=True)
    occurrences = serializers.IntegerField()
    opened_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField()
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    owner = serializers.CharField()
    resolved_at = serializers.DateTimeField(allow_null=True)
    resolved_by = serializers.CharField()
    resolution = serializers.CharField()


class RejectionSerializer(serializers.Serializer):
    """Something that came in and was refused."""

    id = IdOut("rej")
    at = serializers.DateTimeField()
    remote_address = serializers.CharField()
    party_name = serializers.CharField(help_text="The partner, if it was known.")
    reason = serializers.CharField()
    detail = serializers.CharField()
    http_status = serializers.IntegerField(help_text="What the partner was answered.")
    tpa_id = serializers.CharField()
    message_id = serializers.CharField()
    content_type = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes.")
    sha256 = serializers.CharField()


class AuditEntrySerializer(serializers.Serializer):
    """An action of a person or token: who, when, what, why, before and after."""

    id = IdOut("aud")
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    interface = serializers.ChoiceField(choices=Interface.choices)
    address = serializers.CharField()
    request_id = serializers.CharField()
    verb = serializers.CharField()
    object_type = serializers.CharField()
    object_id = serializers.CharField()
    object_name = serializers.CharField()
    reason = serializers.CharField()
    before = serializers.DictField()
    after = serializers.DictField()


class WebhookEndpointBody(OptionalReasonBody):
    """A receiver of events."""

    url = Text(max_length=500, help_text="https, and a public address unless the installation allows others.")
    name = Text(max_length=80, required=False, allow_blank=True, default="")
    types = serializers.ListField(
        child=serializers.ChoiceField(choices=TYPES), required=False, default=list, help_text="Empty = all."
    )


class WebhookEndpointChanges(OptionalReasonBody):
    """What changes; what is absent stays."""

    url = Text(max_length=500, required=False)
    name = Text(max_length=80, required=False, allow_blank=True)
    types = serializers.ListField(child=serializers.ChoiceField(choices=TYPES), required=False)
    enabled = Flag(required=False)


class WebhookEndpointSerializer(serializers.Serializer):
    """A receiver of events."""

    id = IdOut("whe")
    name = serializers.CharField()
    url = serializers.CharField()
    types = serializers.ListField(child=serializers.CharField(), help_text="Empty = all.")
    enabled = serializers.BooleanField()
    disabled_reason = serializers.CharField()
    failing_since = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()


class NewWebhookEndpointSerializer(WebhookEndpointSerializer):
    """A new receiver, with the secret that its signatures are made with."""

    secret = serializers.CharField(help_text="whsec_...: shown this once.")


class WebhookDeliverySerializer(serializers.Serializer):
    """One event on its way to one endpoint; its id is the header webhook-id of all attempts."""

    id = IdOut("dlv")
    state = serializers.ChoiceField(choices=WebhookState.choices)
    type = serializers.CharField(source="body.type")
    attempts = serializers.IntegerField()
    due_at = serializers.DateTimeField(allow_null=True)
    last_status = serializers.IntegerField(allow_null=True)
    last_error = serializers.CharField()
    created_at = serializers.DateTimeField()
    delivered_at = serializers.DateTimeField(allow_null=True)


class TokenBody(OptionalReasonBody):
    """A token for an application."""

    name = Text(max_length=80)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=sorted(ADMIN_SCOPES)), allow_empty=False)
    owner = Text(max_length=150, required=False, help_text="User name; yours if absent.")
    expires_at = Instant(required=False, help_text="90 days from now if absent; at most 366.")


class TokenSerializer(serializers.Serializer):
    """An API token, without its secret."""

    id = IdOut("tok")
    name = serializers.CharField()
    owner = serializers.CharField(source="owner.username")
    scopes = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute.")
    revoked_at = serializers.DateTimeField(allow_null=True)


class NewTokenSerializer(TokenSerializer):
    """A new token with its secret."""

    secret = serializers.CharField(help_text="rmh_live_...: shown this once.")


class ChecksSerializer(serializers.Serializer):
    """What /health looked at."""

    database = serializers.BooleanField()
    broker = serializers.BooleanField()
    oldest_due_at = serializers.DateTimeField(allow_null=True, help_text="The oldest work whose time has come.")
    overdue_seconds = serializers.IntegerField()
    circuits_open = serializers.IntegerField(help_text="Partners' servers that are left alone: see /circuits.")


class HealthSerializer(serializers.Serializer):
    """The hub does its work."""

    status = serializers.ChoiceField(choices=["ok"])
    name = serializers.CharField()
    environment = serializers.CharField()
    checks = ChecksSerializer()


class CatalogueEntrySerializer(serializers.Serializer):
    """One kind of problem."""

    type = serializers.CharField()
    code = serializers.CharField()
    status = serializers.IntegerField()
    title = serializers.CharField()
    meaning = serializers.CharField()
    retryable = serializers.BooleanField()


class CatalogueSerializer(serializers.Serializer):
    """All kinds of problems."""

    data = CatalogueEntrySerializer(many=True)  # type: ignore[assignment]
