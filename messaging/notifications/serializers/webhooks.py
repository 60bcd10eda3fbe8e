"""Webhook endpoints and their deliveries: representations and bodies."""

from __future__ import annotations

from rest_framework import serializers

from messaging.api.fields import Flag, IdOut, Instant, OptionalReasonBody, Text, Whole
from messaging.choices import WebhookState
from messaging.journal.events import TYPES
from messaging.models import WebhookDelivery
from messaging.notifications.services.webhook_deliveries import REPLAY_AT_MOST, REPLAY_DAYS
from messaging.notifications.services.webhooks import MAX_OVERLAP_HOURS, OVERLAP_HOURS
from messaging.overview.serializers.records import EVENT_DATA


class WebhookBodySerializer(serializers.Serializer):
    """The body of a webhook: an event without its id, which is in the header webhook-id for each delivery."""

    type = serializers.ChoiceField(choices=TYPES)
    timestamp = serializers.DateTimeField()
    data = serializers.DictField(help_text=EVENT_DATA)  # type: ignore[assignment]


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
    disabled_reason = serializers.CharField(help_text="Why it is off; the hub itself switches off what fails for days.")
    failing_since = serializers.DateTimeField(allow_null=True)
    previous_secret_until = serializers.DateTimeField(
        source="previous_until",
        allow_null=True,
        help_text="Until then deliveries carry a second signature, made with the secret before the present one.",
    )
    created_at = serializers.DateTimeField()


class NewWebhookEndpointSerializer(WebhookEndpointSerializer):
    """A new receiver, with the secret that its signatures are made with."""

    secret = serializers.CharField(help_text="whsec_...: shown this once.")


class RotateSecretBody(OptionalReasonBody):
    """How long the old secret goes on signing beside the new one."""

    overlap_hours = Whole(
        required=False,
        default=OVERLAP_HOURS,
        min_value=0,
        max_value=MAX_OVERLAP_HOURS,
        help_text="Hours during which deliveries carry both signatures; 0: the old secret ends now.",
    )


class ReplayBody(OptionalReasonBody):
    """What is delivered again."""

    since = Instant(help_text=f"At most {REPLAY_DAYS} days ago.")
    what = serializers.ChoiceField(
        choices=("failed", "all"),
        required=False,
        default="failed",
        help_text="failed: deliveries that the hub gave up. all: every event since then of the types that the endpoint "
        "is told of, also what it was not owed while it was off.",
    )


class ReplaySerializer(serializers.Serializer):
    """What a replay queued."""

    queued = serializers.IntegerField(help_text=f"At most {REPLAY_AT_MOST:,} at once, oldest first.")
    until = serializers.DateTimeField(
        allow_null=True, help_text="There was more: replay again with this as `since`. null: that was all."
    )


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


class WebhookDeliveryDetailSerializer(WebhookDeliverySerializer):
    """One delivery with what is posted."""

    event = serializers.SerializerMethodField(help_text="The event in the feed.")
    body = WebhookBodySerializer()

    def get_event(self, delivery: WebhookDelivery) -> str:
        return f"evt_{delivery.event_id}"
