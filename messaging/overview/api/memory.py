"""GET /memory: how far back the ids of repeatable requests are remembered."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.endpoint import Endpoint, operation
from messaging.api.reading import read_parameters
from messaging.overview.selectors.memory import recollection
from messaging.overview.serializers.memory import MemorySerializer
from rmhub import clock


class Memory(Endpoint):
    """/memory"""

    @operation(
        id="memory_read",
        tag="memory",
        scope="agreements:read",
        summary="How far back the ids of repeatable requests are remembered",
        description="A request whose first-instance time lies before `earliest_accepted_first_sent` is refused, for "
        "nobody could tell whether it was executed.",
        responses={200: MemorySerializer},
    )
    def get(self, request: Request) -> Response:
        read_parameters(request, ())
        return Response(MemorySerializer(recollection(clock.now())).data)
