"""Servers that could not be reached lately, and having one tried now."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import ReasonBody, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.choices import CircuitState
from messaging.engine.circuits import circuit_reset
from messaging.pairs.selectors import circuits as selectors
from messaging.pairs.serializers.circuits import CircuitSerializer

_PATH = {"circuit": "Id of the circuit (`cir_...`)."}
FILTERS = (Param("state", "States, comma separated.", "choices", choices=tuple(CircuitState.values)),)


class Circuits(Endpoint):
    """/circuits"""

    @operation(
        id="circuits_list",
        tag="circuits",
        scope="pairs:read",
        summary="List servers that could not be reached lately",
        description="A server that answers is not in the list. `state=open`: those to which sending is stopped now.",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(CircuitSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = selectors.circuits(states=values["state"] or ())
        page = keyset.page(found, order=("address",), limit=limit, place=place)
        return listing(request, values, page, CircuitSerializer)


class OneCircuit(Endpoint):
    """/circuits/{circuit}"""

    @operation(
        id="circuits_read",
        tag="circuits",
        scope="pairs:read",
        summary="One server that could not be reached lately",
        path=_PATH,
        responses={200: CircuitSerializer},
    )
    def get(self, request: Request, circuit: str) -> Response:
        read_parameters(request, ())
        return item(request, dict(CircuitSerializer(selectors.circuit(circuit)).data))


class ResetCircuit(Endpoint):
    """/circuits/{circuit}/reset"""

    @operation(
        id="circuits_reset",
        tag="circuits",
        scope="pairs:operate",
        summary="Have a server tried now",
        description="The next attempt is let through, and the waits begin anew. Failures that were only counted are "
        "forgotten; then the answer has the state `closed`, and the circuit is gone.",
        path=_PATH,
        request=ReasonBody,
        responses={200: CircuitSerializer},
    )
    def post(self, request: Request, circuit: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        known = selectors.circuit(circuit)
        row = circuit_reset(circuit_id=known.public_id, actor=actor_of(request), reason=values["reason"])
        return Response(CircuitSerializer(row).data)
