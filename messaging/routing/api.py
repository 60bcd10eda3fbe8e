"""Routes and their verbs."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import expected_version, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import ReasonBody, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.models import Route
from messaging.pairs.api.pairs import IF_MATCH
from messaging.routing import selectors
from messaging.routing import serializers as shapes
from messaging.routing.services import routes as services

_PATH = {"route": "Id of the route (`rt_...`)."}
_CONDITIONAL = ("stale", "precondition_required", "invalid_header")
FILTERS = (
    Param("q", "Part of the name, of the To-party or of the service."),
    Param("enabled", "Only routes that are on, or off.", "flag"),
)
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The route.")
_EXAMPLE = OpenApiExample(
    "Everything for one party goes over the next router",
    value={
        "name": "Brick Lane, by the harbour",
        "party_context": "DUNS",
        "party_value": "987654321",
        "onward": "agr_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7",
        "mode": "confirm_through",
        "reason": "go-live",
    },
    request_only=True,
)


class Routes(Endpoint):
    """/routes"""

    @operation(
        id="routes_list",
        tag="routes",
        scope="agreements:read",
        summary="List routes",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(shapes.RouteSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = selectors.routes(search=values["q"] or "", enabled=values["enabled"])
        page = keyset.page(found, order=("name",), limit=limit, place=place)
        return listing(request, values, page, shapes.RouteSerializer)

    @operation(
        id="routes_create",
        tag="routes",
        scope="agreements:write",
        summary="Create a route",
        description="It decides about messages that come from now on. `warnings` says what keeps it from working.",
        request=shapes.RouteBody,
        responses={201: shapes.RouteDetailSerializer},
        headers=(_LOCATION,),
        examples=(_EXAMPLE,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.RouteBody, request.data)
        made = services.route_create(actor=actor_of(request), **values)
        return _answer(request, made.pk, status=201)


class OneRoute(Endpoint):
    """/routes/{route}"""

    @operation(
        id="routes_read",
        tag="routes",
        scope="agreements:read",
        summary="One route, and what is the matter with it",
        path=_PATH,
        responses={200: shapes.RouteDetailSerializer},
    )
    def get(self, request: Request, route: str) -> Response:
        read_parameters(request, ())
        return _answer(request, id_of("rt", route))

    @operation(
        id="routes_change",
        tag="routes",
        scope="agreements:write",
        summary="Change a route",
        description="What was passed on already goes on as it was taken.",
        path=_PATH,
        request=shapes.RouteChanges,
        responses={200: shapes.RouteDetailSerializer},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, route: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(shapes.RouteChanges, request.data)
        route_id = id_of("rt", route)
        services.route_update(route_id=route_id, actor=actor_of(request), expected_version=expected, **values)
        return _answer(request, route_id)

    @operation(
        id="routes_delete",
        tag="routes",
        scope="agreements:write",
        summary="Delete a route",
        description="What was passed on already goes on; messages that come are refused, or take a less specific one.",
        path=_PATH,
        request=ReasonBody,
        responses={204: None},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def delete(self, request: Request, route: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(ReasonBody, request.data)
        services.route_delete(route_id=id_of("rt", route), actor=actor_of(request), expected_version=expected, **values)
        return Response(status=204)


def _answer(request: Request, route_id: uuid.UUID, *, status: int = 200) -> Response:
    route = selectors.route(route_id)
    data, lasting = shapes.detail(route)
    headers = {"Location": f"/api/v1/routes/{route.public_id}"} if status == 201 else {}
    return item(request, data, revision=route.version, digest_of=lasting, status=status, **headers)


def _verb(name: str, summary: str, service: Callable[..., Route]) -> type[Endpoint]:
    """The view of one verb."""

    class Verb(Endpoint):
        """/routes/{route}/<verb>"""

        @operation(
            id=f"routes_{name}",
            tag="routes",
            scope="agreements:write",
            summary=summary,
            description="Answers the route as it is then, with its new ETag.",
            path=_PATH,
            request=ReasonBody,
            responses={200: shapes.RouteDetailSerializer},
            problems=("wrong_state", *_CONDITIONAL),
            headers=(IF_MATCH,),
        )
        def post(self, request: Request, route: str) -> Response:
            read_parameters(request, ())
            expected = expected_version(request)
            values = validated(ReasonBody, request.data)
            route_id = id_of("rt", route)
            service(route_id=route_id, actor=actor_of(request), expected_version=expected, **values)
            return _answer(request, route_id)

    return Verb


VERBS: dict[str, type[Endpoint]] = {
    "enable": _verb("enable", "Let a route decide about messages again", services.route_enable),
    "disable": _verb("disable", "Switch a route off: messages that come do not take it", services.route_disable),
}
