"""One attempt to put a message or signal on the wire."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.conditional import item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.reading import read_parameters
from messaging.api.references import id_of
from messaging.messages.selectors import messages
from messaging.messages.serializers.transmissions import TransmissionDetailSerializer


class OneTransmission(Endpoint):
    """/transmissions/{transmission_id}"""

    @operation(
        id="transmissions_read",
        tag="messages",
        scope="messages:read",
        summary="One attempt",
        description="What a message's list of attempts shows, also of a signal's attempt, with the way to the octets.",
        path={"transmission_id": "Id of the attempt (`att_...`)."},
        responses={200: TransmissionDetailSerializer},
    )
    def get(self, request: Request, transmission_id: str) -> Response:
        read_parameters(request, ())
        attempt = messages.transmission(id_of("att", transmission_id))
        return item(request, TransmissionDetailSerializer(attempt).data)
