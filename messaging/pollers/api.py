"""Pickups and their verbs."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import expected_revision, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import ReasonBody, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.pairs.api.pairs import IF_MATCH
from messaging.pollers import selectors
from messaging.pollers import serializers as shapes
from messaging.pollers.services import changes as services
from partners.choices import PickupKind
from partners.models import Pickup

_PATH = {"pickup": "Id of the pickup (`pick_...`)."}
_CONDITIONAL = ("stale", "precondition_required", "invalid_header")
FILTERS = (
    Param("q", "Part of the name or URL."),
    Param("kind", "Kinds, one of.", "choices", choices=tuple(PickupKind.values)),
    Param("enabled", "Only pickups that are on, or off.", "flag"),
    Param("party", "Id of a party: whose endpoint it is, or who puts files there.", "id", prefix="par"),
)
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The pickup.")
_EXAMPLE = OpenApiExample(
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
)


class Pickups(Endpoint):
    """/pickups"""

    @operation(
        id="pickups_list",
        tag="pickups",
        scope="partners:read",
        summary="List mailboxes and folders that the hub looks into",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(shapes.PickupSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        kinds = values["kind"] or ()
        found = selectors.pickups(search=values["q"] or "", enabled=values["enabled"], party_id=values["party"])
        found = found.filter(kind__in=kinds) if kinds else found
        page = keyset.page(found, order=("name",), limit=limit, place=place)
        return listing(request, values, page, shapes.PickupSerializer)

    @sensitive_variables("values")
    @operation(
        id="pickups_create",
        tag="pickups",
        scope="partners:write",
        summary="Create a pickup",
        description="It is looked into at once, and then at its interval.",
        request=shapes.PickupBody,
        responses={201: shapes.PickupSerializer},
        headers=(_LOCATION,),
        examples=(_EXAMPLE,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = shapes.settings_of(validated(shapes.PickupBody, request.data))
        made = services.pickup_create(actor=actor_of(request), **values)
        return _answer(request, made.pk, status=201)


class OnePickup(Endpoint):
    """/pickups/{pickup}"""

    @operation(
        id="pickups_read",
        tag="pickups",
        scope="partners:read",
        summary="One pickup, and how far the hub is with it",
        path=_PATH,
        responses={200: shapes.PickupSerializer},
    )
    def get(self, request: Request, pickup: str) -> Response:
        read_parameters(request, ())
        return _answer(request, id_of("pick", pickup))

    @sensitive_variables("values")
    @operation(
        id="pickups_change",
        tag="pickups",
        scope="partners:write",
        summary="Change a pickup",
        description="Another server, host key or user name needs `secret` again: a stored one goes nowhere else.",
        path=_PATH,
        request=shapes.PickupChanges,
        responses={200: shapes.PickupSerializer},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, pickup: str) -> Response:
        read_parameters(request, ())
        expected = expected_revision(request)
        values = shapes.settings_of(validated(shapes.PickupChanges, request.data))
        pickup_id = id_of("pick", pickup)
        without = "partner_id" in values and values["partner_id"] is None
        services.pickup_update(
            pickup_id=pickup_id, actor=actor_of(request), expected=expected, without_partner=without, **values
        )
        return _answer(request, pickup_id)

    @operation(
        id="pickups_delete",
        tag="pickups",
        scope="partners:write",
        summary="Delete a pickup",
        description="What lies in the mailbox or folder stays there.",
        path=_PATH,
        request=ReasonBody,
        responses={204: None},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def delete(self, request: Request, pickup: str) -> Response:
        read_parameters(request, ())
        expected = expected_revision(request)
        values = validated(ReasonBody, request.data)
        services.pickup_delete(pickup_id=id_of("pick", pickup), actor=actor_of(request), expected=expected, **values)
        return Response(status=204)


def _answer(request: Request, pickup_id: uuid.UUID, *, status: int = 200) -> Response:
    pickup = selectors.pickup(pickup_id)
    data = dict(shapes.PickupSerializer(pickup).data)
    headers = {"Location": f"/api/v1/pickups/{pickup.public_id}"} if status == 201 else {}
    return item(request, data, revision=services.revision(pickup), status=status, **headers)


def _verb(name: str, summary: str, scope: str, service: Callable[..., Pickup | None]) -> type[Endpoint]:
    """The view of one verb."""

    class Verb(Endpoint):
        """/pickups/{pickup}/<verb>"""

        @operation(
            id=f"pickups_{name}",
            tag="pickups",
            scope=scope,
            summary=summary,
            description="Answers the pickup as it is then, with its new ETag.",
            path=_PATH,
            request=ReasonBody,
            responses={200: shapes.PickupSerializer},
            problems=("wrong_state", *_CONDITIONAL),
            headers=(IF_MATCH,),
        )
        def post(self, request: Request, pickup: str) -> Response:
            read_parameters(request, ())
            expected = expected_revision(request)
            values = validated(ReasonBody, request.data)
            pickup_id = id_of("pick", pickup)
            service(pickup_id=pickup_id, actor=actor_of(request), expected=expected, **values)
            return _answer(request, pickup_id)

    return Verb


VERBS: dict[str, type[Endpoint]] = {
    "look": _verb("look", "Look into it now", "pairs:operate", services.pickup_look),
    "enable": _verb("enable", "Look into it again, from now on", "partners:write", services.pickup_enable),
    "disable": _verb(
        "disable", "Look into it no more; what lies there waits", "partners:write", services.pickup_disable
    ),
}
