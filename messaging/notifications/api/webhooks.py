"""Webhook endpoints, what people do with them, and their deliveries."""

from __future__ import annotations

from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import OpenApiExample
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import expected_revision, item, tag
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import OptionalReasonBody, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.choices import WebhookState
from messaging.models import WebhookEndpoint
from messaging.notifications.serializers import webhooks as shapes
from messaging.notifications.services import webhook_deliveries, webhooks
from messaging.overview.selectors import records
from messaging.pairs.api.pairs import IF_MATCH

_LIST = ("invalid_cursor", "cursor_mismatch")
_CONDITIONAL = ("stale", "precondition_required", "invalid_header")
_WEBHOOK = {"endpoint_id": "Id of the webhook endpoint (`whe_...`)."}
_DELIVERY = {**_WEBHOOK, "delivery_id": "Id of the delivery (`dlv_...`): the `webhook-id` of its attempts."}
DELIVERY_FILTERS = (Param("state", "States, comma separated.", "choices", choices=tuple(WebhookState.values)),)
_NEW = OpenApiExample(
    "Told of what is delivered and what is not",
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


class WebhookEndpoints(Endpoint):
    """/webhook-endpoints"""

    @operation(
        id="webhook_endpoints_list",
        tag="webhooks",
        scope="webhooks:manage",
        summary="List webhook endpoints, oldest first, without secrets",
        parameters=PAGING,
        responses={200: page_of(shapes.WebhookEndpointSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, ())
        page = keyset.page(records.webhook_endpoints(), order=("id",), limit=limit, place=place)
        return listing(request, values, page, shapes.WebhookEndpointSerializer)

    @sensitive_variables("secret")
    @operation(
        id="webhook_endpoints_create",
        tag="webhooks",
        scope="webhooks:manage",
        summary="Create a webhook endpoint",
        description="Deliveries are signed as Standard Webhooks 1.0 describes. The secret is shown once.",
        request=shapes.WebhookEndpointBody,
        responses={201: shapes.NewWebhookEndpointSerializer},
        examples=(_NEW,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.WebhookEndpointBody, request.data)
        made, secret = webhooks.endpoint_create(actor=actor_of(request), **values)
        return _with_secret(made, secret, status=201, Location=f"/api/v1/webhook-endpoints/{made.public_id}")


class OneWebhookEndpoint(Endpoint):
    """/webhook-endpoints/{endpoint_id}"""

    @operation(
        id="webhook_endpoints_read",
        tag="webhooks",
        scope="webhooks:manage",
        summary="One webhook endpoint, without its secret",
        path=_WEBHOOK,
        responses={200: shapes.WebhookEndpointSerializer},
    )
    def get(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        return _webhook(request, records.webhook_endpoint(id_of("whe", endpoint_id)))

    @operation(
        id="webhook_endpoints_change",
        tag="webhooks",
        scope="webhooks:manage",
        summary="Change a webhook endpoint, or switch it off and on",
        path=_WEBHOOK,
        request=shapes.WebhookEndpointChanges,
        responses={200: shapes.WebhookEndpointSerializer},
        problems=("stale", "precondition_required", "invalid_header"),
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        expected = expected_revision(request)
        values = validated(shapes.WebhookEndpointChanges, request.data)
        found = webhooks.endpoint_update(
            endpoint_id=id_of("whe", endpoint_id), actor=actor_of(request), expected=expected, **values
        )
        return _webhook(request, found)

    @operation(
        id="webhook_endpoints_delete",
        tag="webhooks",
        scope="webhooks:manage",
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

    @operation(
        id="webhook_endpoints_test",
        tag="webhooks",
        scope="webhooks:manage",
        summary="Post a test event to an endpoint, and say what it answered",
        description="One attempt of an event of the type `webhook_endpoint.test`, signed like every other, whatever "
        "types the endpoint is told of. It is made now: the answer takes as long as the endpoint does, at most 15 s.",
        path=_WEBHOOK,
        request=OptionalReasonBody,
        responses={200: shapes.WebhookDeliveryDetailSerializer},
    )
    def post(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        validated(OptionalReasonBody, request.data)
        delivery = webhook_deliveries.endpoint_test(endpoint_id=id_of("whe", endpoint_id), actor=actor_of(request))
        return Response(shapes.WebhookDeliveryDetailSerializer(delivery).data)


class RotateWebhookSecret(Endpoint):
    """/webhook-endpoints/{endpoint_id}/rotate-secret"""

    @sensitive_variables("secret")
    @operation(
        id="webhook_endpoints_rotate_secret",
        tag="webhooks",
        scope="webhooks:manage",
        summary="Give a webhook endpoint a new secret",
        description="It is shown once. For `overlap_hours` deliveries carry two signatures, separated by a space: a "
        "receiver that knows one of the two secrets takes them.",
        path=_WEBHOOK,
        request=shapes.RotateSecretBody,
        responses={200: shapes.NewWebhookEndpointSerializer},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def post(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        expected = expected_revision(request)
        values = validated(shapes.RotateSecretBody, request.data)
        found, secret = webhooks.endpoint_rotate_secret(
            endpoint_id=id_of("whe", endpoint_id), actor=actor_of(request), expected=expected, **values
        )
        return _with_secret(found, secret, status=200)


class ReplayWebhookEndpoint(Endpoint):
    """/webhook-endpoints/{endpoint_id}/replay"""

    @operation(
        id="webhook_endpoints_replay",
        tag="webhooks",
        scope="webhooks:manage",
        summary="Deliver again what an endpoint has missed",
        description="Deliveries that were made before keep their `webhook-id`, so that a receiver recognises them.",
        path=_WEBHOOK,
        request=shapes.ReplayBody,
        responses={202: shapes.ReplaySerializer},
        problems=("wrong_state",),
        examples=(_REPLAY,),
    )
    def post(self, request: Request, endpoint_id: str) -> Response:
        read_parameters(request, ())
        values = validated(shapes.ReplayBody, request.data)
        done = webhook_deliveries.replay(
            endpoint_id=id_of("whe", endpoint_id),
            actor=actor_of(request),
            since=values["since"],
            everything=values["what"] == "all",
            reason=values["reason"],
        )
        return Response(shapes.ReplaySerializer(done).data, status=202)


class WebhookDeliveries(Endpoint):
    """/webhook-endpoints/{endpoint_id}/deliveries"""

    @operation(
        id="webhook_deliveries_list",
        tag="webhooks",
        scope="webhooks:manage",
        summary="What was sent, or is to be sent, to an endpoint, newest first",
        path=_WEBHOOK,
        parameters=(*DELIVERY_FILTERS, *PAGING),
        responses={200: page_of(shapes.WebhookDeliverySerializer)},
        problems=_LIST,
    )
    def get(self, request: Request, endpoint_id: str) -> Response:
        values, limit, place = read_list(request, DELIVERY_FILTERS)
        endpoint = records.webhook_endpoint(id_of("whe", endpoint_id))
        found = records.webhook_deliveries(endpoint.pk, states=values["state"] or ())
        page = keyset.page(found, order=("-id",), limit=limit, place=place)
        return listing(request, values, page, shapes.WebhookDeliverySerializer)


class OneWebhookDelivery(Endpoint):
    """/webhook-endpoints/{endpoint_id}/deliveries/{delivery_id}"""

    @operation(
        id="webhook_deliveries_read",
        tag="webhooks",
        scope="webhooks:manage",
        summary="One delivery, with what is posted",
        path=_DELIVERY,
        responses={200: shapes.WebhookDeliveryDetailSerializer},
    )
    def get(self, request: Request, endpoint_id: str, delivery_id: str) -> Response:
        read_parameters(request, ())
        found = records.webhook_delivery(id_of("whe", endpoint_id), id_of("dlv", delivery_id))
        return item(request, shapes.WebhookDeliveryDetailSerializer(found).data)


class RedeliverWebhook(Endpoint):
    """/webhook-endpoints/{endpoint_id}/deliveries/{delivery_id}/redeliver"""

    @operation(
        id="webhook_deliveries_redeliver",
        tag="webhooks",
        scope="webhooks:manage",
        summary="Deliver it once more, with all retries and under the same `webhook-id`",
        path=_DELIVERY,
        request=OptionalReasonBody,
        responses={202: shapes.WebhookDeliveryDetailSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request, endpoint_id: str, delivery_id: str) -> Response:
        read_parameters(request, ())
        values = validated(OptionalReasonBody, request.data)
        known = records.webhook_delivery(id_of("whe", endpoint_id), id_of("dlv", delivery_id))
        found = webhook_deliveries.redeliver(delivery_id=known.pk, actor=actor_of(request), **values)
        return Response(shapes.WebhookDeliveryDetailSerializer(found).data, status=202)


VERBS: dict[str, type[Endpoint]] = {
    "test": TestWebhookEndpoint,
    "rotate-secret": RotateWebhookSecret,
    "replay": ReplayWebhookEndpoint,
}


def _webhook(request: Request, endpoint: WebhookEndpoint) -> Response:
    data = shapes.WebhookEndpointSerializer(endpoint).data
    return item(request, data, revision=webhooks.revision(endpoint))


@sensitive_variables("secret")
def _with_secret(endpoint: WebhookEndpoint, secret: str, *, status: int, **headers: str) -> Response:
    """No cache keeps it: the endpoint's default says no-store."""
    data = shapes.WebhookEndpointSerializer(endpoint).data
    headers["ETag"] = f'"{tag(data, webhooks.revision(endpoint))}"'
    return Response({**data, "secret": secret}, status=status, headers=headers)
