"""Octets of messages: payloads, what was on the wire, and what was answered."""

from __future__ import annotations

from rest_framework.request import Request

from messaging.api.authentication import access_of, actor_of
from messaging.api.octets import download
from messaging.api.problems import Problem
from messaging.api.reading import Param
from messaging.api.references import id_of
from messaging.messages.api.messages import PATH, PROBLEMS
from messaging.messages.selectors import messages, relatives
from messaging.messages.services import disclosing
from messaging.messages.services.disclosing import Octets
from rmhub.roles import role_of


def _payload(request: Request, message_id: str, number: str, masked: bool) -> Octets:
    if not (number.isascii() and number.isdigit() and len(number) < 6):
        raise Problem("not_found", "Payloads are numbered from 1.")
    message = messages.message_by_reference(message_id)
    opened, role = (disclosing.payload_view, None) if masked else (disclosing.payload_open, role_of(request.user))
    return opened(message_id=message.pk, number=int(number), actor=actor_of(request), role=role)


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
    return disclosing.wire_open(message_id=key, actor=actor_of(request), role=role_of(request.user))


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
    path={"transmission_id": "Id of the attempt (`att_...`)."},
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
