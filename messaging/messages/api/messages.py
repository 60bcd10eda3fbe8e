"""One message and what belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import access_of, actor_of
from messaging.api.conditional import check_unchanged, item
from messaging.api.endpoint import OCTETS, AnyOctets, Endpoint, operation
from messaging.api.fields import ReasonBody, page_of, validated
from messaging.api.octets import attachment
from messaging.api.pagination import PAGING, listing, read_list, simple_list
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.archive import selectors as archive
from messaging.deliveries.services.deciding import message_settle
from messaging.exceptions import NotFound, UnderWay
from messaging.messages.selectors import messages
from messaging.messages.serializers import messages as shapes
from messaging.messages.services.disclosing import (
    Octets,
    answer_holds_document,
    answer_open,
    documents_open,
    payload_open,
    payload_view,
    wire_open,
)
from messaging.models import Message
from messaging.models import Payload as PayloadRow
from messaging.notifications import selectors as events
from messaging.notifications.api.events import represent
from messaging.overview.serializers import EventSerializer
from messaging.pairs.services.operating import message_cancel, waits
from rmhub.roles import role_of

PATH = {"message_id": "Id of the message (`msg_...`), or its MessageId."}
_MASKED = Param("masked", "true: with all parts covered that any rule covers, in UTF-8.", "flag", default=False)
INCLUDED = 100
_INCLUDE = Param(
    "include",
    f"What else the answer holds, comma separated; the first {INCLUDED} of each.",
    "choices",
    choices=("transmissions", "signals", "events"),
)
_PROBLEMS = ("ambiguous_message_id",)
_LIST = (*_PROBLEMS, "invalid_cursor", "cursor_mismatch")


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
        problems=(*_PROBLEMS, "gone"),
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
        return _answer(request, message, list(messages.payloads(message.pk)), values["include"] or ())


class Cancel(Endpoint):
    """/messages/{message_id}/cancel"""

    def allowed_now(self, **kwargs: Any) -> list[str]:
        return allowed_of(**kwargs)

    @operation(
        id="messages_cancel",
        tag="messages",
        scope="messages:cancel",
        summary="Cancel an outbound message",
        description=(
            "One that waits leaves the queue. One in flight is skipped, and the pair's sequence restarts at 1, for "
            "nobody knows whether the partner has it: this needs If-Match with the message's ETag, or `*` (428 "
            "without, 412 when the message was sent meanwhile). For one that waits If-Match is honoured when given."
        ),
        path=PATH,
        request=ReasonBody,
        responses={200: shapes.MessageDetailSerializer},
        problems=(*_PROBLEMS, "wrong_state", "stale", "precondition_required"),
    )
    def post(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        message = messages.message_by_reference(message_id)
        payloads = list(messages.payloads(message.pk))
        check_unchanged(request, shapes.changeable(message))
        given = request.headers.get("If-Match", "").strip()
        # Who saw a message that waits has not agreed to give up one that the partner may have.
        only_waiting = not given or (given != "*" and waits(message))
        try:
            message_cancel(
                message_id=message.pk, actor=actor_of(request), reason=values["reason"], only_waiting=only_waiting
            )
        except UnderWay as error:
            raise Problem("stale" if given else "precondition_required", error.detail) from error
        return _answer(request, messages.message(message.pk), payloads)


class Settle(Endpoint):
    """/messages/{message_id}/settle"""

    def allowed_now(self, **kwargs: Any) -> list[str]:
        return allowed_of(**kwargs)

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
        path=PATH,
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
            "store_full",
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


def allowed_of(message_id: str) -> list[str]:
    """What the message's state allows now."""
    message = messages.message_by_reference(message_id)
    allowed: list[str] = shapes.detail(message, list(messages.payloads(message.pk)))["allowed_actions"]
    return allowed


def _answer(request: Request, message: Message, payloads: list[PayloadRow], include: Sequence[str] = ()) -> Response:
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


class Payload(Endpoint):
    """/messages/{message_id}/payloads/{number}"""

    content_negotiation_class = AnyOctets

    @operation(
        id="messages_payload",
        tag="messages",
        scope="payloads:read",
        summary="The octets of a payload",
        description="As an attachment of its own content type, with Digest and Repr-Digest; one Range is honoured. "
        "Reading a payload is written to the audit log. Where rules cover parts of it for the caller's role, only the "
        "covered form is handed out, with `masked=true`.",
        path={**PATH, "number": "Number of the payload, from 1."},
        parameters=(_MASKED,),
        responses=OCTETS,
        problems=(*_PROBLEMS, "payload_masked", "range_not_satisfiable", "payload_missing"),
    )
    def get(self, request: Request, message_id: str, number: str) -> HttpResponse:
        values = read_parameters(request, (_MASKED,))
        if not (number.isascii() and number.isdigit() and len(number) < 6):
            raise Problem("not_found", "Payloads are numbered from 1.")
        message = messages.message_by_reference(message_id)
        opened, role = (payload_view, None) if values["masked"] else (payload_open, role_of(request.user))
        octets = opened(message_id=message.pk, number=int(number), actor=actor_of(request), role=role)
        return attachment(request, octets)


class Documents(Endpoint):
    """/messages/{message_id}/documents"""

    content_negotiation_class = AnyOctets

    @operation(
        id="messages_documents",
        tag="messages",
        scope="payloads:read",
        summary="All payloads of a message as a ZIP file",
        description="The octets of each payload in a file of its own, numbered. Reading it is written to the audit "
        "log.",
        path=PATH,
        responses=OCTETS,
        problems=(*_PROBLEMS, "payload_masked", "range_not_satisfiable", "payload_missing"),
    )
    def get(self, request: Request, message_id: str) -> HttpResponse:
        read_parameters(request, ())
        message = messages.message_by_reference(message_id)
        octets = documents_open(message_id=message.pk, actor=actor_of(request), role=role_of(request.user))
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
        path=PATH,
        responses=OCTETS,
        problems=(*_PROBLEMS, "payload_masked", "wire_not_prepared", "range_not_satisfiable", "payload_missing"),
    )
    def get(self, request: Request, message_id: str) -> HttpResponse:
        read_parameters(request, ())
        message = messages.message_by_reference(message_id)
        return attachment(
            request, wire_open(message_id=message.pk, actor=actor_of(request), role=role_of(request.user))
        )


class Transmissions(Endpoint):
    """/messages/{message_id}/transmissions"""

    @operation(
        id="messages_transmissions",
        tag="messages",
        scope="messages:read",
        summary="A message's attempts, oldest first",
        path=PATH,
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
        description=(
            "Head and body of the HTTP answer, cut at 8 KiB; empty when there was none. The answer to a repeatable "
            "request may be a document: reading it needs the scope `payloads:read` too, and is written to the audit "
            "log; where masks hold for it, only its head is here."
        ),
        path={"transmission_id": "Id of the attempt (`att_...`)."},
        responses=OCTETS,
        problems=("range_not_satisfiable",),
    )
    def get(self, request: Request, transmission_id: str) -> HttpResponse:
        read_parameters(request, ())
        attempt = messages.transmission(id_of("att", transmission_id))
        if answer_holds_document(attempt) and "payloads:read" not in access_of(request).scopes:
            text = "The answer may be a document of the partner's: reading it needs the scope payloads:read."
            raise Problem("missing_scope", text, required_scope="payloads:read")
        view = answer_open(attempt=attempt, actor=actor_of(request), role=role_of(request.user))
        return attachment(request, view.octets)


class Signals(Endpoint):
    """/messages/{message_id}/signals"""

    @operation(
        id="messages_signals",
        tag="messages",
        scope="messages:read",
        summary="Acknowledgements and error messages about a message, oldest first",
        path=PATH,
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
        path=PATH,
        parameters=PAGING,
        responses={200: page_of(EventSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request, message_id: str) -> Response:
        values, limit, place = read_list(request, ())
        found = events.of_message(messages.message_by_reference(message_id).pk)
        page = keyset.page(found, order=("id",), limit=limit, place=place)
        return listing(request, values, page, represent)
