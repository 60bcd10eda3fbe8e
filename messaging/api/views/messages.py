"""One message and what belongs to it."""

from __future__ import annotations

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import actor_of
from messaging.api.conditional import check_unchanged, item
from messaging.api.endpoint import OCTETS, AnyOctets, Endpoint, operation
from messaging.api.octets import attachment
from messaging.api.pagination import PAGING, listing, read_list, simple_list
from messaging.api.problems import Problem
from messaging.api.reading import read_parameters
from messaging.api.serializers import messages as shapes
from messaging.api.serializers.fields import ReasonBody, page_of, validated
from messaging.api.serializers.records import EventSerializer
from messaging.api.views.events import represent
from messaging.api.views.references import id_of
from messaging.exceptions import NotFound
from messaging.models import Message
from messaging.models import Payload as PayloadRow
from messaging.selectors import archive, events, keyset, messages
from messaging.services.disclosing import Octets, payload_open, wire_open
from messaging.services.operating import message_cancel
from messaging.services.settling import message_settle

_PATH = {"message_id": "Id of the message (`msg_...`), or its MessageId."}
_PROBLEMS = ("ambiguous_message_id",)
_LIST = (*_PROBLEMS, "invalid_cursor", "cursor_mismatch")


class OneMessage(Endpoint):
    """/messages/{message_id}"""

    @operation(
        id="messages_read",
        tag="messages",
        scope="messages:read",
        summary="One message",
        path=_PATH,
        responses={200: shapes.MessageDetailSerializer},
        problems=_PROBLEMS,
    )
    def get(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        try:
            message = messages.message_by_reference(message_id)
        except NotFound as error:
            gone = archive.left(message_id, limit=1)
            if not gone:
                raise
            path = f"/api/v1/archive/messages/{gone[0].public_id}"
            raise NotFound(f"{error.detail} It has left the store and is in the archive: {path}.") from error
        return _answer(request, message, list(messages.payloads(message.pk)))


class Cancel(Endpoint):
    """/messages/{message_id}/cancel"""

    @operation(
        id="messages_cancel",
        tag="messages",
        scope="messages:cancel",
        summary="Cancel an outbound message",
        description=(
            "One that waits leaves the queue. One in flight is skipped, and the pair's sequence restarts at 1, for "
            "nobody knows whether the partner has it. If-Match is not required; it is honoured when given."
        ),
        path=_PATH,
        request=ReasonBody,
        responses={200: shapes.MessageDetailSerializer},
        problems=(*_PROBLEMS, "wrong_state", "stale"),
    )
    def post(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        message = messages.message_by_reference(message_id)
        payloads = list(messages.payloads(message.pk))
        check_unchanged(request, shapes.changeable(message))
        message_cancel(message_id=message.pk, actor=actor_of(request), reason=values["reason"])
        return _answer(request, messages.message(message.pk), payloads)


class Settle(Endpoint):
    """/messages/{message_id}/settle"""

    @operation(
        id="messages_settle",
        tag="in-doubt",
        scope="indoubt:resolve",
        summary="Decide about an outbound message whose outcome is unknown",
        description=(
            "`delivered`: the partner has it. `resubmit`: the partner has not; the same documents go out as a new "
            "message with a new id, and this one counts as skipped. `later`: shown again in `remind_in` seconds. "
            "If-Match is not required; it is honoured when given."
        ),
        path=_PATH,
        request=shapes.MessageSettleBody,
        responses={200: shapes.MessageDetailSerializer},
        problems=(
            *_PROBLEMS,
            "wrong_state",
            "already_settled",
            "stale",
            "unknown_agreement",
            "outside_agreement",
            "message_too_large",
            "payload_missing",
        ),
    )
    def post(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        values = validated(shapes.MessageSettleBody, request.data)
        message = messages.message_by_reference(message_id)
        payloads = list(messages.payloads(message.pk))
        check_unchanged(request, shapes.changeable(message))
        message_settle(message_id=message.pk, actor=actor_of(request), **values)
        return _answer(request, messages.message(message.pk), payloads)


def _answer(request: Request, message: Message, payloads: list[PayloadRow]) -> Response:
    return item(request, shapes.detail(message, payloads), digest_of=shapes.changeable(message))


class Payload(Endpoint):
    """/messages/{message_id}/payloads/{number}"""

    content_negotiation_class = AnyOctets

    @operation(
        id="messages_payload",
        tag="messages",
        scope="payloads:read",
        summary="The octets of a payload",
        description="As an attachment of its own content type, with Digest and Repr-Digest; one Range is honoured. "
        "Reading a payload is written to the audit log.",
        path={**_PATH, "number": "Number of the payload, from 1."},
        responses=OCTETS,
        problems=(*_PROBLEMS, "range_not_satisfiable", "payload_missing"),
    )
    def get(self, request: Request, message_id: str, number: str) -> HttpResponse:
        read_parameters(request, ())
        if not (number.isascii() and number.isdigit() and len(number) < 6):
            raise Problem("not_found", "Payloads are numbered from 1.")
        message = messages.message_by_reference(message_id)
        octets = payload_open(message_id=message.pk, number=int(number), actor=actor_of(request))
        return attachment(request, octets)


class Wire(Endpoint):
    """/messages/{message_id}/wire"""

    content_negotiation_class = AnyOctets

    @operation(
        id="messages_wire",
        tag="messages",
        scope="payloads:read",
        summary="The exact octets of a message",
        description="The body as it was sent (each time) or received; Content-Type is that of the message. "
        "Reading it is written to the audit log, for the payloads are in it.",
        path=_PATH,
        responses=OCTETS,
        problems=(*_PROBLEMS, "wire_not_prepared", "range_not_satisfiable", "payload_missing"),
    )
    def get(self, request: Request, message_id: str) -> HttpResponse:
        read_parameters(request, ())
        message = messages.message_by_reference(message_id)
        return attachment(request, wire_open(message_id=message.pk, actor=actor_of(request)))


class Transmissions(Endpoint):
    """/messages/{message_id}/transmissions"""

    @operation(
        id="messages_transmissions",
        tag="messages",
        scope="messages:read",
        summary="A message's attempts, oldest first",
        path=_PATH,
        parameters=PAGING,
        responses={200: page_of(shapes.TransmissionSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request, message_id: str) -> Response:
        found = messages.transmissions(messages.message_by_reference(message_id).pk)
        return simple_list(request, found, shapes.TransmissionSerializer, order=("id",))


class TransmissionResponse(Endpoint):
    """/transmissions/{transmission_id}/response"""

    content_negotiation_class = AnyOctets

    @operation(
        id="transmissions_response",
        tag="messages",
        scope="messages:read",
        summary="What the partner's server answered to an attempt",
        description="Head and body of the HTTP answer, cut at 8 KiB; empty when there was none.",
        path={"transmission_id": "Id of the attempt (`att_...`)."},
        responses=OCTETS,
        problems=("range_not_satisfiable",),
    )
    def get(self, request: Request, transmission_id: str) -> HttpResponse:
        read_parameters(request, ())
        attempt = messages.transmission(id_of("att", transmission_id))
        content = bytes(attempt.response or b"")
        return attachment(request, Octets(content, "application/octet-stream", f"{attempt.public_id}.bin", ""))


class Signals(Endpoint):
    """/messages/{message_id}/signals"""

    @operation(
        id="messages_signals",
        tag="messages",
        scope="messages:read",
        summary="Acknowledgements and error messages about a message, oldest first",
        path=_PATH,
        parameters=PAGING,
        responses={200: page_of(shapes.SignalSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request, message_id: str) -> Response:
        found = messages.signals(messages.message_by_reference(message_id).pk)
        return simple_list(request, found, shapes.SignalSerializer, order=("id",))


class SignalWire(Endpoint):
    """/signals/{signal_id}/wire"""

    content_negotiation_class = AnyOctets

    @operation(
        id="signals_wire",
        tag="messages",
        scope="messages:read",
        summary="The exact octets of an acknowledgement or error message",
        path={"signal_id": "Id of the signal (`sig_...`)."},
        responses=OCTETS,
        problems=("range_not_satisfiable",),
    )
    def get(self, request: Request, signal_id: str) -> HttpResponse:
        read_parameters(request, ())
        signal = messages.signal(id_of("sig", signal_id))
        return attachment(request, Octets(bytes(signal.body), signal.content_type, f"{signal.public_id}.mime", ""))


class History(Endpoint):
    """/messages/{message_id}/events"""

    @operation(
        id="messages_events",
        tag="messages",
        scope="messages:read",
        summary="A message's history, oldest first",
        path=_PATH,
        parameters=PAGING,
        responses={200: page_of(EventSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request, message_id: str) -> Response:
        values, limit, place = read_list(request, ())
        found = events.of_message(messages.message_by_reference(message_id).pk)
        page = keyset.page(found, order=("id",), limit=limit, place=place)
        return listing(request, values, page, represent)
