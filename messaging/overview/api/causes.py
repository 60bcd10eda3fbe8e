"""GET /causes: what the codes mean that pairs, messages, attempts and incidents carry."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.endpoint import Endpoint, operation
from messaging.api.problems import Problem
from messaging.api.reading import read_parameters
from messaging.causes import CAUSES
from messaging.overview.serializers.causes import CauseSerializer, CausesSerializer


class Causes(Endpoint):
    """/causes"""

    @operation(
        id="causes_list",
        tag="hub",
        scope="pairs:read",
        summary="All causes: why something went wrong, and what to do",
        description="The closed list behind every `cause` and `doubt`. It is the same until the hub is updated.",
        responses={200: CausesSerializer},
    )
    def get(self, request: Request) -> Response:
        read_parameters(request, ())
        return Response({"data": CauseSerializer(list(CAUSES.values()), many=True).data})


class OneCause(Endpoint):
    """/causes/{code}"""

    @operation(
        id="causes_read",
        tag="hub",
        scope="pairs:read",
        summary="One cause: what a code means",
        path={"code": "The code, such as `ack_timeout`."},
        responses={200: CauseSerializer},
    )
    def get(self, request: Request, code: str) -> Response:
        read_parameters(request, ())
        known = CAUSES.get(code)
        if known is None:
            raise Problem("not_found", "There is no such cause.")
        return Response(CauseSerializer(known).data)
