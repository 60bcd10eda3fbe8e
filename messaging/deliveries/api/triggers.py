"""Triggers and their verbs."""

from __future__ import annotations

import uuid

from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import expected_version, item, tag
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import ReasonBody, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list, sort_parameter
from messaging.api.reading import Param, read_parameters
from messaging.choices import ServiceKind, TriggerState
from messaging.deliveries.resource import TRIGGERS
from messaging.deliveries.selectors import triggers
from messaging.deliveries.serializers import triggers as shapes
from messaging.deliveries.services import triggering
from messaging.models import Trigger
from messaging.pairs.api.pairs import IF_MATCH
from messaging.resource import Verb
from rmhub import clock

_PATH = {"trigger": "Id of the trigger (`trg_...`), or its name."}
_CONDITIONAL = ("stale", "precondition_required", "invalid_header")
FILTERS = (
    Param("state", "States, comma separated.", "choices", choices=tuple(TriggerState.values)),
    Param("kind", "http, callable, pull or atomic.", "choice", choices=tuple(ServiceKind.values)),
    Param("party", "Id of a party.", "id", prefix="par"),
    Param("q", "Part of the name, of the URL or of the callable."),
    sort_parameter("name", "-name", "severity"),
)
_ORDERS = {"name": ("name",), "-name": ("-name",), "severity": ("severity", "name")}
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The trigger.")
_EXAMPLE = OpenApiExample(
    "Orders to an application, in order",
    value={
        "name": "ERP orders",
        "documents": [{"service": "urn:orders", "action": "*"}],
        "kind": "http",
        "url": "http://erp.internal:8080/documents",
        "ordered": True,
        "reason": "go-live",
    },
    request_only=True,
)
_REASON = OpenApiExample("With a reason", value={"reason": "The ERP is up again"}, request_only=True)


class Triggers(Endpoint):
    """/triggers"""

    @operation(
        id="triggers_list",
        tag="triggers",
        scope="triggers:read",
        summary="List triggers",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(shapes.TriggerSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = triggers.triggers(
            states=values["state"] or (),
            kind=values["kind"] or "",
            party_id=values["party"],
            search=values["q"] or "",
        )
        page = keyset.page(found, order=_ORDERS[values["sort"]], limit=limit, place=place)
        now = clock.now()
        return listing(request, values, page, lambda rows: shapes.represent(rows, now))

    @sensitive_variables("secret")
    @operation(
        id="triggers_create",
        tag="triggers",
        scope="triggers:write",
        summary="Create a trigger",
        description="It is active at once, and takes what comes from now on. The secret signs what is posted to its "
        "service, resolver and monitor; it is shown once.",
        request=shapes.TriggerBody,
        responses={201: shapes.NewTriggerSerializer},
        headers=(_LOCATION,),
        examples=(_EXAMPLE,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.TriggerBody, request.data)
        made, secret = triggering.trigger_create(actor=actor_of(request), **shapes.settings_of(values))
        return _with_secret(made.pk, secret, status=201, Location=f"/api/v1/triggers/{made.public_id}")


class OneTrigger(Endpoint):
    """/triggers/{trigger}"""

    @operation(
        id="triggers_read",
        tag="triggers",
        scope="triggers:read",
        summary="One trigger",
        path=_PATH,
        responses={200: shapes.TriggerSerializer},
    )
    def get(self, request: Request, trigger: str) -> Response:
        read_parameters(request, ())
        return _answer(request, triggers.trigger(trigger))

    @operation(
        id="triggers_change",
        tag="triggers",
        scope="triggers:write",
        summary="Change a trigger's settings",
        description="Documents that came before keep the deliveries that they have.",
        path=_PATH,
        request=shapes.TriggerChanges,
        responses={200: shapes.TriggerSerializer},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, trigger: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(shapes.TriggerChanges, request.data)
        found = triggers.trigger(trigger)
        triggering.trigger_update(
            trigger_id=found.pk, actor=actor_of(request), expected_version=expected, **shapes.settings_of(values)
        )
        return _answer(request, triggers.trigger(found.pk))


class RotateSecret(Endpoint):
    """/triggers/{trigger}/rotate-secret"""

    @sensitive_variables("secret")
    @operation(
        id="triggers_rotate_secret",
        tag="triggers",
        scope="triggers:write",
        summary="Give a trigger a new secret",
        description="It is shown once; the old one signs nothing more from now on.",
        path=_PATH,
        request=ReasonBody,
        responses={200: shapes.NewTriggerSerializer},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def post(self, request: Request, trigger: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(ReasonBody, request.data)
        found = triggers.trigger(trigger)
        _, secret = triggering.trigger_rotate_secret(
            trigger_id=found.pk, actor=actor_of(request), expected_version=expected, **values
        )
        return _with_secret(found.pk, secret, status=200)


def _answer(request: Request, trigger: Trigger) -> Response:
    (data,) = shapes.represent([trigger], clock.now())
    return item(request, data, revision=trigger.version, digest_of=shapes.lasting(data))


@sensitive_variables("secret")
def _with_secret(trigger_id: uuid.UUID, secret: str, *, status: int, **headers: str) -> Response:
    """No cache keeps it: the endpoint's default says no-store."""
    trigger = triggers.trigger(trigger_id)
    (data,) = shapes.represent([trigger], clock.now())
    headers["ETag"] = f'"{tag(shapes.lasting(data), trigger.version)}"'
    return Response({**data, "secret": secret}, status=status, headers=headers)


def _verb(verb: Verb) -> type[Endpoint]:
    """The view of one verb."""

    class OfVerb(Endpoint):
        """/triggers/{trigger}/<verb>"""

        @operation(
            id=f"triggers_{verb.slug}",
            tag="triggers",
            scope=TRIGGERS.scope_of(verb.slug),
            summary=verb.summary,
            description="Answers the trigger as it is then, with its new ETag.",
            path=_PATH,
            request=ReasonBody,
            responses={200: shapes.TriggerSerializer},
            problems=("wrong_state", *_CONDITIONAL),
            headers=(IF_MATCH,),
            examples=(_REASON,),
        )
        def post(self, request: Request, trigger: str) -> Response:
            read_parameters(request, ())
            expected = expected_version(request)
            values = validated(ReasonBody, request.data)
            found = triggers.trigger(trigger)
            verb.service(trigger_id=found.pk, actor=actor_of(request), expected_version=expected, **values)
            return _answer(request, triggers.trigger(found.pk))

    return OfVerb


VERBS = {slug: _verb(verb) for slug in triggering.VERBS if (verb := TRIGGERS.verb(slug)) is not None}
