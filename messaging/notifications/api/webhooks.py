"""Webhook endpoints, what people do with them, and their deliveries."""

from __future__ import annotations

from functools import partial

from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import IF_MATCH, expected_revision, item, tag
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import Flag, IdOut, Instant, OptionalReasonBody, Text, Whole, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list, simple_list
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.choices import WebhookState
from messaging.journal.events import TYPES
from messaging.models import WebhookDelivery, WebhookEndpoint
from messaging.notifications import selectors
from messaging.notifications.services import webhook_deliveries, webhooks
from messaging.notifications.services.webhook_deliveries import REPLAY_AT_MOST, REPLAY_DAYS
from messaging.notifications.services.webhooks import MAX_OVERLAP_HOURS, OVERLAP_HOURS
from messaging.overview.serializers import EVENT_DATA

_LIST = ("invalid_cursor", "cursor_mismatch")
_operation = partial(operation, tag="webhooks", scope="webhooks:manage")
_CONDITIONAL = ("stale", "precondition_required", "invalid_header")
_WEBHOOK = {"endpoint_id": "Id of the webhook endpoint (`whe_...`)."}
_DELIVERY = {**_WEBHOOK, "delivery_id": "Id of the delivery (`dlv_...`): the `webhook-id` of its attempts."}
DELIVERY_FILTERS = (Param("state", "States, comma separated.", "choices", choices=tuple(WebhookState.values)),)
_NEW = OpenApiExample(
    "Notified of what is delivered and what is not",
    value={
        "name": "ERP",
        "url": "https://erp.acme.example/hooks/rmhub",
        "types": ["message.delivered", "message.failed", "pair.suspended"],
        "reason": "go-live",
    },
    request_only=True,
)
_REPLAY = OpenApiExample(
    "After an outage of the receiver",
    value={"since": "2026-11-22T02:00:00Z", "what": "failed", "reason": "The ERP is back"},
    request_only=True,
)


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

    secret = serializers.CharField(help_text="whsec_...: shown only once, now.")


class RotateSecretBody(OptionalReasonBody):
    """How long the old secret goes on signing beside the new one."""

    overlap_hours = Whole(
        required=False,
        default=OVERLAP_HOURS,
        min_value=0,
        max_value=MAX_OVERLAP_HOURS,
        help_text="Hours during which deliveries carry both signatures; 0: the old secret is invalid at once.",
    )


class ReplayBody(OptionalReasonBody):
    """What is delivered again."""

    since = Instant(help_text=f"At most {REPLAY_DAYS} days ago.")
    what = serializers.ChoiceField(
        choices=("failed", "all"),
        required=False,
        default="failed",
        help_text="failed: deliveries that the hub gave up. all: every event since then of the types that the endpoint "
        "is subscribed to, also those from while it was off.",
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


class WebhookEndpoints(Endpoint):
    """/webhook-endpoints"""

    @_operation(
        id="webhook_endpoints_list",
        summary="List webhook endpoints, oldest first, without secrets",
        parameters=PAGING,
        responses={200: page_of(WebhookEndpointSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        return simple_list(request, selectors.webhook_endpoints(), WebhookEndpointSerializer, order=("id",))

    @sensitive_variables("secret")
    @_operation(
        id="webhook_endpoints_create",
        summary="Create a webhook endpoint",
        description="Deliveries are signed as Standard Webhooks 1.0 describes. The secret is shown once.",
        request=WebhookEndpointBody,
        responses={201: NewWebhookEndpointSerializer},
        examples=(_NEW,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(WebhookEndpointBody, request.data)
        made, secret = webhooks.endpoint_create(actor=actor_of(request), **values)
        return _with_secret(made, secret, status=201, Location=f"/api/v1/webhook-endpoints/{made.public_id}")


class OneWebhookEndpoint(Endpoint):
    """/webhook-endpoints/{endpoint_id}"""

    @_operation(
        id="webhook_endpoints_read",
        summary="One webhook endpoint, without its secret",
        path=_WEBHOOK,
        responses={200: WebhookEndpointSerializer},
    )
    def get(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        return _webhook(request, selectors.webhook_endpoint(id_of("whe", endpoint_id)))

    @_operation(
        id="webhook_endpoints_change",
        summary="Change a webhook endpoint, or switch it off and on",
        path=_WEBHOOK,
        request=WebhookEndpointChanges,
        responses={200: WebhookEndpointSerializer},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        expected = expected_revision(request)
        values = validated(WebhookEndpointChanges, request.data)
        found = webhooks.endpoint_update(
            endpoint_id=id_of("whe", endpoint_id), actor=actor_of(request), expected=expected, **values
        )
        return _webhook(request, found)

    @_operation(
        id="webhook_endpoints_delete",
        summary="Delete a webhook endpoint with its deliveries",
        description="An If-Match that is given is compared.",
        path=_WEBHOOK,
        responses={204: None},
        problems=("stale", "invalid_header"),
    )
    def delete(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        expected = expected_revision(request) if request.headers.get("If-Match") else None
        values = validated(OptionalReasonBody, request.data)
        webhooks.endpoint_delete(
            endpoint_id=id_of("whe", endpoint_id), actor=actor_of(request), expected=expected, **values
        )
        return Response(status=204)


class TestWebhookEndpoint(Endpoint):
    """/webhook-endpoints/{endpoint_id}/test"""

    @_operation(
        id="webhook_endpoints_test",
        summary="Post a test event to an endpoint, and say what it answered",
        description="One attempt of an event of the type `webhook_endpoint.test`, signed like every other, whatever "
        "types the endpoint is subscribed to. It is made now: the answer takes as long as the endpoint does, at most "
        "15 s.",
        path=_WEBHOOK,
        request=OptionalReasonBody,
        responses={200: WebhookDeliveryDetailSerializer},
    )
    def post(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        validated(OptionalReasonBody, request.data)
        delivery = webhook_deliveries.endpoint_test(endpoint_id=id_of("whe", endpoint_id), actor=actor_of(request))
        return Response(WebhookDeliveryDetailSerializer(delivery).data)


class RotateWebhookSecret(Endpoint):
    """/webhook-endpoints/{endpoint_id}/rotate-secret"""

    @sensitive_variables("secret")
    @_operation(
        id="webhook_endpoints_rotate_secret",
        summary="Give a webhook endpoint a new secret",
        description="It is shown once. For `overlap_hours` deliveries carry two signatures, separated by a space: a "
        "receiver that knows one of the two secrets takes them.",
        path=_WEBHOOK,
        request=RotateSecretBody,
        responses={200: NewWebhookEndpointSerializer},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def post(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        expected = expected_revision(request)
        values = validated(RotateSecretBody, request.data)
        found, secret = webhooks.endpoint_rotate_secret(
            endpoint_id=id_of("whe", endpoint_id), actor=actor_of(request), expected=expected, **values
        )
        return _with_secret(found, secret, status=200)


class ReplayWebhookEndpoint(Endpoint):
    """/webhook-endpoints/{endpoint_id}/replay"""

    @_operation(
        id="webhook_endpoints_replay",
        summary="Deliver again what an endpoint has missed",
        description="Deliveries that were made before keep their `webhook-id`, so that a receiver recognises them.",
        path=_WEBHOOK,
        request=ReplayBody,
        responses={202: ReplaySerializer},
        problems=("wrong_state",),
        examples=(_REPLAY,),
    )
    def post(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        values = validated(ReplayBody, request.data)
        done = webhook_deliveries.replay(
            endpoint_id=id_of("whe", endpoint_id),
            actor=actor_of(request),
            since=values["since"],
            everything=values["what"] == "all",
            reason=values["reason"],
        )
        return Response(ReplaySerializer(done).data, status=202)


def _delivery(endpoint_id: str, delivery_id: str) -> WebhookDelivery:
    return selectors.webhook_delivery(id_of("whe", endpoint_id), id_of("dlv", delivery_id))


class WebhookDeliveries(Endpoint):
    """/webhook-endpoints/{endpoint_id}/deliveries"""

    @_operation(
        id="webhook_deliveries_list",
        summary="What was sent, or is to be sent, to an endpoint, newest first",
        path=_WEBHOOK,
        parameters=(*DELIVERY_FILTERS, *PAGING),
        responses={200: page_of(WebhookDeliverySerializer)},
        problems=_LIST,
    )
    def get(self, request: Request, endpoint_id: str) -> Response:
        values, limit, place = read_list(request, DELIVERY_FILTERS)
        endpoint = selectors.webhook_endpoint(id_of("whe", endpoint_id))
        found = selectors.webhook_deliveries(endpoint.pk, states=values["state"] or ())
        page = keyset.page(found, order=("-id",), limit=limit, place=place)
        return listing(request, values, page, WebhookDeliverySerializer)


class OneWebhookDelivery(Endpoint):
    """/webhook-endpoints/{endpoint_id}/deliveries/{delivery_id}"""

    @_operation(
        id="webhook_deliveries_read",
        summary="One delivery, with what is posted",
        path=_DELIVERY,
        responses={200: WebhookDeliveryDetailSerializer},
    )
    def get(self, request: Request, endpoint_id: str, delivery_id: str) -> Response:
        read_parameters(request, ())
        found = _delivery(endpoint_id, delivery_id)
        return item(request, WebhookDeliveryDetailSerializer(found).data)


class RedeliverWebhook(Endpoint):
    """/webhook-endpoints/{endpoint_id}/deliveries/{delivery_id}/redeliver"""

    @_operation(
        id="webhook_deliveries_redeliver",
        summary="Deliver it once more, with all retries and under the same `webhook-id`",
        path=_DELIVERY,
        request=OptionalReasonBody,
        responses={202: WebhookDeliveryDetailSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request, endpoint_id: str, delivery_id: str) -> Response:
        read_parameters(request, ())
        values = validated(OptionalReasonBody, request.data)
        known = _delivery(endpoint_id, delivery_id)
        found = webhook_deliveries.redeliver(delivery_id=known.pk, actor=actor_of(request), **values)
        return Response(WebhookDeliveryDetailSerializer(found).data, status=202)


VERBS: dict[str, type[Endpoint]] = {
    "test": TestWebhookEndpoint,
    "rotate-secret": RotateWebhookSecret,
    "replay": ReplayWebhookEndpoint,
}


def _webhook(request: Request, endpoint: WebhookEndpoint) -> Response:
    data = WebhookEndpointSerializer(endpoint).data
    return item(request, data, revision=webhooks.revision(endpoint))


@sensitive_variables("secret")
def _with_secret(endpoint: WebhookEndpoint, secret: str, *, status: int, **headers: str) -> Response:
    """No cache keeps it: the endpoint's default says no-store."""
    data = WebhookEndpointSerializer(endpoint).data
    headers["ETag"] = f'"{tag(data, webhooks.revision(endpoint))}"'
    return Response({**data, "secret": secret}, status=status, headers=headers)
