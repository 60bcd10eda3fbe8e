"""One message and what belongs to it, as JSON and as the octets that are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from messaging import profile
from messaging.api.authentication import access_of, actor_of
from messaging.api.conditional import item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.handlers import listed, shown
from messaging.api.octets import download
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.archive import selectors as archive
from messaging.exceptions import NotFound
from messaging.messages import serializers as shapes
from messaging.messages.selectors import messages, relatives
from messaging.messages.services import disclosing
from messaging.messages.services.disclosing import Octets
from messaging.models import Message
from messaging.models import Payload as PayloadRow
from messaging.notifications import selectors as events
from messaging.notifications.api.events import represent
from messaging.overview.serializers import EventSerializer
from messaging.profile import Proof
from rmhub.roles import role_of

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
ATTEMPT = {"transmission_id": "Id of the attempt (`att_...`)."}


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

    get = shown(
        lambda message_id: relatives.of_message(messages.message_by_reference(message_id)),
        shapes.RelatedSerializer,
        etag=False,
        id="messages_related",
        scope="messages:read",
        summary="What belongs together with a message",
        description="What it answers and what answers it, its conversation, what it was resubmitted from and as, what "
        "was passed on, and its neighbours in the pair; of each kind the newest 15.",
        path=PATH,
        problems=PROBLEMS,
    )


def _proofs(message: Message) -> list[Proof]:
    return profile.of_message(message).proofs(message)


class Signatures(Endpoint):
    """/messages/{message_id}/signatures"""

    get = shown(
        lambda message_id: {"signatures": _proofs(messages.message_by_reference(message_id))},
        shapes.SignaturesSerializer,
        etag=False,
        id="messages_signatures",
        scope="messages:read",
        summary="Verify the signatures of a message again",
        description="That of the message and those of its acknowledgements, with the certificates of their time. A "
        "valid one of the partner's acknowledgement is proof of what was received. Nothing where the agreement has no "
        "signatures.",
        path=PATH,
        problems=PROBLEMS,
    )


def _listed(
    rows: Callable[[UUID], QuerySet[Any]], shape: type[Serializer], *, order: str = "id", **said: Any
) -> type[Endpoint]:
    """Return the view of a list that belongs to a message; `rows` takes its id."""

    class OfMessage(Endpoint):
        get = listed(
            lambda message_id: rows(messages.message_by_reference(message_id).pk),
            shape,
            order=(order,),
            problems=PROBLEMS,
            **{"scope": "messages:read", "path": PATH, **said},
        )

    return OfMessage


Transmissions = _listed(
    messages.transmissions,
    shapes.TransmissionSerializer,
    id="messages_transmissions",
    summary="A message's attempts, oldest first",
)
Signals = _listed(
    messages.signals,
    shapes.SignalSerializer,
    id="messages_signals",
    summary="Acknowledgements and error messages about a message, oldest first",
)
History = _listed(
    events.of_message,
    EventSerializer,
    id="messages_events",
    summary="A message's history, oldest first",
    represent=represent,
)
Inquiries = _listed(
    relatives.inquiries,
    shapes.InquirySerializer,
    order="-id",
    id="messages_inquiries",
    summary="What the partner said about a message, newest first",
    tag="in-doubt",
    path=ABOUT,
)


class OneTransmission(Endpoint):
    """/transmissions/{transmission_id}"""

    get = shown(
        messages.transmission,
        shapes.TransmissionDetailSerializer,
        ids={"transmission_id": "att"},
        id="transmissions_read",
        tag="messages",
        scope="messages:read",
        summary="One attempt",
        description="What a message's list of attempts shows, also of a signal's attempt, with the way to the octets.",
        path=ATTEMPT,
    )


# --- downloads ---


def _payload(request: Request, message_id: str, number: str, masked: bool) -> Octets:
    if not (number.isascii() and number.isdigit() and len(number) < 6):
        raise Problem("not_found", "Payloads are numbered from 1.")
    message = messages.message_by_reference(message_id)
    which: dict[str, Any] = {"message_id": message.pk, "number": int(number), "actor": actor_of(request)}
    if masked:
        return disclosing.payload_view(**which)
    return disclosing.payload_open(**which, role=role_of(request.user), as_file=True)


Payload = download(
    "messages_payload",
    "payloads:read",
    "The octets of a payload",
    _payload,
    path={**PATH, "number": "Number of the payload, from 1."},
    description="As an attachment of its own content type, with Digest and Repr-Digest; one Range is honoured. "
    "Reading a payload is written to the audit log. Where rules cover parts of it for the caller's role, only the "
    "covered form is handed out, with `masked=true`.",
    parameters=(
        Param("masked", "true: with all parts covered that any rule covers, in UTF-8.", "flag", default=False),
    ),
    problems=(*PROBLEMS, "payload_masked", "payload_missing"),
)


def _documents(request: Request, message_id: str) -> Octets:
    key = messages.message_by_reference(message_id).pk
    return disclosing.documents_open(message_id=key, actor=actor_of(request), role=role_of(request.user))


Documents = download(
    "messages_documents",
    "payloads:read",
    "All payloads of a message as a ZIP file",
    _documents,
    path=PATH,
    description="The octets of each payload in a file of its own, numbered. Reading it is written to the audit log.",
    problems=(*PROBLEMS, "payload_masked", "payload_missing"),
)


def _wire(request: Request, message_id: str) -> Octets:
    key = messages.message_by_reference(message_id).pk
    return disclosing.wire_open(message_id=key, actor=actor_of(request), role=role_of(request.user), as_file=True)


Wire = download(
    "messages_wire",
    "payloads:read",
    "The exact octets of a message",
    _wire,
    path=PATH,
    description="The body as it was sent (each time) or received; Content-Type is that of the message. "
    "Reading it is written to the audit log, for the payloads are in it.",
    problems=(*PROBLEMS, "payload_masked", "wire_not_prepared", "payload_missing"),
)


def _transmission_response(request: Request, transmission_id: str) -> Octets:
    attempt = messages.transmission(id_of("att", transmission_id))
    if disclosing.answer_holds_document(attempt) and "payloads:read" not in access_of(request).scopes:
        text = "The answer may be a document of the partner's: reading it needs the scope payloads:read."
        raise Problem("missing_scope", text, required_scope="payloads:read")
    return disclosing.answer_open(attempt=attempt, actor=actor_of(request), role=role_of(request.user)).octets


TransmissionResponse = download(
    "transmissions_response",
    "messages:read",
    "What the partner's server answered to an attempt",
    _transmission_response,
    path=ATTEMPT,
    description="Head and body of the HTTP answer, cut at 8 KiB; empty when there was none. The answer to a repeatable "
    "request may be a document: reading it needs the scope `payloads:read` too, and is written to the audit log; where "
    "masks hold for it, only its head is here.",
)


def _signal_wire(request: Request, signal_id: str) -> Octets:
    signal = messages.signal(id_of("sig", signal_id))
    return Octets(bytes(signal.body), signal.content_type, f"{signal.public_id}.mime", "")


SignalWire = download(
    "signals_wire",
    "messages:read",
    "The exact octets of an acknowledgement or error message",
    _signal_wire,
    path={"signal_id": "Id of the signal (`sig_...`)."},
)


def _inquiry_response(request: Request, inquiry: str) -> Octets:
    found = relatives.inquiry(id_of("inq", inquiry))
    return Octets(bytes(found.response or b""), "application/octet-stream", f"{found.public_id}.bin", "")


InquiryResponse = download(
    "inquiries_response",
    "messages:read",
    "The partner's answer as it came",
    _inquiry_response,
    path={"inquiry": "Id of the inquiry (`inq_...`)."},
    tag="in-doubt",
    description="Head and body of the HTTP answer, cut at 8 KiB; empty when there was none.",
)
