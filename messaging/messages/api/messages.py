"""One message and what belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from messaging import keyset
from messaging.api.conditional import item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import page_of
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.archive import selectors as archive
from messaging.exceptions import NotFound
from messaging.messages.selectors import messages, relatives
from messaging.messages.serializers import messages as shapes
from messaging.models import Message
from messaging.models import Payload as PayloadRow
from messaging.notifications import selectors as events
from messaging.notifications.api.events import represent
from messaging.overview.serializers import EventSerializer

PATH = {"message_id": "Id of the message (`msg_...`), or its MessageId."}
ABOUT = {"message_id": "Id (`msg_...`) or MessageId of a message."}
INCLUDED = 100
_INCLUDE = Param(
    "include",
    f"What else the answer holds, comma separated; the first {INCLUDED} of each.",
    "choices",
    choices=("transmissions", "signals", "events"),
)
PROBLEMS = ("ambiguous_message_id",)


class OneMessage(Endpoint):
    """/messages/{message_id}"""

    @operation(
        id="messages_read",
        tag="messages",
        scope="messages:read",
        summary="One message",
        path=PATH,
        parameters=(_INCLUDE,),
        responses={200: shapes.MessageIncludingSerializer},
        problems=(*PROBLEMS, "gone"),
    )
    def get(self, request: Request, message_id: str) -> Response:
        values = read_parameters(request, (_INCLUDE,))
        try:
            message = messages.message_by_reference(message_id)
        except NotFound as error:
            gone = archive.left(message_id, limit=1)
            if not gone:
                raise
            path = f"/api/v1/archive/messages/{gone[0].public_id}"
            text = f"{message_id} has left the store and is in the archive: {path}."
            raise Problem("gone", text, existing={"id": gone[0].public_id, "href": path}) from error
        return answer(request, message, list(messages.payloads(message.pk)), values["include"] or ())


def answer(request: Request, message: Message, payloads: list[PayloadRow], include: Sequence[str] = ()) -> Response:
    """`include`: what else is in the answer, the first hundred of each; its tag is then that of all of it."""
    data, lasting = shapes.detail(message, payloads), shapes.changeable(message)
    more: dict[str, Any] = {}
    if "transmissions" in include:
        found = messages.transmissions(message.pk).order_by("id")[:INCLUDED]
        more["transmissions"] = shapes.TransmissionSerializer(found, many=True).data
    if "signals" in include:
        signals = messages.signals(message.pk).order_by("id")[:INCLUDED]
        more["signals"] = shapes.SignalSerializer(signals, many=True).data
    if "events" in include:
        more["events"] = represent(list(events.of_message(message.pk).order_by("id")[:INCLUDED]))
    return item(request, {**data, **more}, digest_of=[lasting, more] if more else lasting)


class Related(Endpoint):
    """/messages/{message_id}/related"""

    @operation(
        id="messages_related",
        tag="messages",
        scope="messages:read",
        summary="What belongs together with a message",
        description="What it answers and what answers it, its conversation, what it was resubmitted from and as, what "
        "was passed on, and its neighbours in the pair; of each kind the newest 15.",
        path=PATH,
        responses={200: shapes.RelatedSerializer},
        problems=PROBLEMS,
    )
    def get(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        message = messages.message_by_reference(message_id)
        return Response(shapes.RelatedSerializer(relatives.of_message(message)).data)


def _listed(
    id: str,
    summary: str,
    shape: type[Serializer],
    rows: Callable[[UUID], QuerySet[Any]],
    *,
    order: str = "id",
    tag: str = "messages",
    path: Mapping[str, str] = PATH,
    represented: Callable[[list[Any]], list[Any]] | None = None,
) -> type[Endpoint]:
    """Return the view of a list that belongs to a message; `rows` takes its id."""

    class OfMessage(Endpoint):
        @operation(
            id=id,
            tag=tag,
            scope="messages:read",
            summary=summary,
            path=path,
            parameters=PAGING,
            responses={200: page_of(shape)},
            problems=(*PROBLEMS, "invalid_cursor", "cursor_mismatch"),
        )
        def get(self, request: Request, message_id: str) -> Response:
            values, limit, place = read_list(request, ())
            found = rows(messages.message_by_reference(message_id).pk)
            page = keyset.page(found, order=(order,), limit=limit, place=place)
            return listing(request, values, page, represented or shape)

    return OfMessage


Transmissions = _listed(
    "messages_transmissions",
    "A message's attempts, oldest first",
    shapes.TransmissionSerializer,
    messages.transmissions,
)
Signals = _listed(
    "messages_signals",
    "Acknowledgements and error messages about a message, oldest first",
    shapes.SignalSerializer,
    messages.signals,
)
History = _listed(
    "messages_events",
    "A message's history, oldest first",
    EventSerializer,
    events.of_message,
    represented=represent,
)
Inquiries = _listed(
    "messages_inquiries",
    "What the partner said about a message, newest first",
    shapes.InquirySerializer,
    relatives.inquiries,
    order="-id",
    tag="in-doubt",
    path=ABOUT,
)


class OneTransmission(Endpoint):
    """/transmissions/{transmission_id}"""

    @operation(
        id="transmissions_read",
        tag="messages",
        scope="messages:read",
        summary="One attempt",
        description="What a message's list of attempts shows, also of a signal's attempt, with the way to the octets.",
        path={"transmission_id": "Id of the attempt (`att_...`)."},
        responses={200: shapes.TransmissionDetailSerializer},
    )
    def get(self, request: Request, transmission_id: str) -> Response:
        read_parameters(request, ())
        attempt = messages.transmission(id_of("att", transmission_id))
        return item(request, shapes.TransmissionDetailSerializer(attempt).data)
