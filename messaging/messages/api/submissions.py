"""/messages: the list, and documents that come in."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import access_of
from messaging.api.conditional import tag
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import Base64, IdIn, StrictBody, Text, Whole, page_of, validated
from messaging.api.pagination import listing, read_list, sort_parameter
from messaging.api.problems import Problem
from messaging.api.reading import Param, StrictJson
from messaging.api.references import agreement_id_of, pair_id_of
from messaging.choices import Direction, MessageState
from messaging.engine.attributes import LONGEST, MOST
from messaging.messages import serializers as shapes
from messaging.messages.api.uploads import SHA256
from messaging.messages.selectors import finding, messages, searching
from messaging.messages.services.resubmitting import to_resubmit
from messaging.messages.services.submitting import NewPayload, Submission, message_submit
from messaging.profiles.stream.profile import MAX_LIFE
from messaging.protocol import document_ids
from messaging.protocol.envelope import MAX_PAYLOADS, Semantics
from messaging.protocol.processing import MAX_DOCUMENT_ID
from messaging.storage import Large
from partners import registry
from rmhub import clock
from rmhub.front.environ import IN_MEMORY

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
# Base64 makes three octets four characters; the rest of the body is small.
_OVERHEAD = 1024 * 1024

FILTERS = (
    Param("state", "States, comma separated.", "choices", choices=tuple(MessageState.values)),
    Param("direction", "out or in.", "choice", choices=tuple(Direction.values)),
    Param("pair", "Id or code of a pair."),
    Param("partner", "Id, name or identifier of a party.", "party"),
    Param("agreement", "Id or TPAId of an agreement."),
    Param("service", "Exact."),
    Param("action", "Exact."),
    Param("conversation", "ConversationId, exact."),
    Param("document", "Document id, exact: as its sender gave it, or as a document says itself; else the MessageId."),
    Param("ref", "RefToMessageId, exact."),
    Param("created_gte", "Not before this time.", "instant"),
    Param("created_lt", "Before this time.", "instant"),
    Param("size_gt", "Payloads of more bytes than this.", "number", maximum=999_999_999),
    Param("size_lt", "Payloads of fewer bytes than this.", "number", maximum=999_999_999),
    Param("attempts_gt", "Put on the wire more often than this.", "number", maximum=999_999),
    Param("attempts_lt", "Put on the wire less often than this.", "number", maximum=999_999),
    Param("error", "Code of a cause, such as ack_timeout."),
    Param("schema", "Messages with documents that do not fit the schema of this name; `misfit`: any schema."),
    Param(
        "q",
        "What the console's search box takes: an id (msg_..., MessageId, document id, ConversationId; else the "
        "beginning of a MessageId), the value of an attribute, and terms such as invoice:4711 state:failed "
        "partner:Globex after:24h size>100k. An id that looks like a term must be in quotes.",
    ),
    sort_parameter(*finding.ORDERS),
)
# Parameters -> fields of MessageFilters, where they differ.
_FIELDS = {"state": "states", "pair": "pair_id", "partner": "partner_id", "agreement": "agreement_id", "error": "cause"}
KEY_HEADER = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    required=True,
    description="Names this submission, e.g. a UUID. Lives as long as the message: a repeat stores nothing new.",
)
DOCUMENT_HEADER = OpenApiParameter(
    document_ids.HEADER,
    str,
    OpenApiParameter.HEADER,
    description="The same as document_id in the body; what is not ASCII, and the percent sign, percent-encoded.",
)
LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[202], description="The message.")
REPLAYED = OpenApiParameter(
    "Idempotent-Replayed", str, OpenApiParameter.HEADER, response=[202], description="`true` for a repeat."
)
_EXAMPLE = OpenApiExample(
    "An order as JSON",
    value={
        "agreement": "tpa:acme-globex",
        "service": "urn:orders",
        "action": "Order",
        "document_id": "order-4711",
        "conversation_id": "c-77",
        "payloads": [
            {
                "content_base64": "PE9yZGVyLz4=",
                "content_type": "application/xml",
                "filename": "order-4711.xml",
                "sha256": "70d1fddaf10df96004cedd27ed9293ec5981c053e0d4d07fca4cd602a4630de8",
            }
        ],
    },
    request_only=True,
    media_type="application/json",
)
_RECEIPT = OpenApiExample(
    "Accepted by a suspended pair",
    value={
        "id": "msg_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7",
        "state": "queued",
        "message_id": "0192f3f2f3e47a5fb0c1d2e3f4a5b6c7@hub.acme.example",
        "document_id": "order-4711",
        "conversation_id": "c-77",
        "ref_to_message_id": "",
        "agreement": {"id": "agr_0192f3f2f3e47a5fb0c1d2e3f4a5b6c8", "tpa_id": "tpa:acme-globex", "version": 3},
        "pair": {"id": "pair_0192f3f2f3e47a5fb0c1d2e3f4a5b6c9", "code": "ACME>GLOBEX"},
        "service": "urn:orders",
        "action": "Order",
        "semantics": "OnceAndOnlyOnce",
        "position": 312,
        "size": 8,
        "created_at": "2026-11-22T10:00:00.123456Z",
        "warnings": [
            {
                "code": "pair_suspended",
                "detail": "Accepted; ACME>GLOBEX is suspended (ack_timeout), so it waits until it is resumed.",
            }
        ],
    },
    response_only=True,
    status_codes=["202"],
)


class PayloadBody(StrictBody):
    """A document as it is handed in."""

    content_base64 = Base64(required=False, help_text="The document's octets; they reach the partner unchanged.")
    upload = IdIn("upl", required=False, help_text="In place of octets: an upload that is complete. It is used once.")
    content_type = Text(max_length=255, required=False, default="application/octet-stream")
    filename = Text(max_length=255, required=False, default="", allow_blank=True)
    label = Text(  # type: ignore[assignment]
        max_length=120, required=False, default="Document", help_text="Its name in the Manifest."
    )
    sha256 = serializers.RegexField(
        SHA256, required=False, help_text="If given, the octets must have this SHA-256 (hexadecimal)."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("content_base64" in attrs) == ("upload" in attrs):
            text = "A document is its octets (content_base64) or an upload, one of the two."
            raise ValidationError({"content_base64": [ErrorDetail(text, code="required")]})
        return attrs


class SubmissionFields(StrictBody):
    """What a submission says beside its documents."""

    agreement = Text(max_length=255, help_text="TPAId of an active agreement.")
    service = Text(max_length=255, trim_whitespace=False)
    action = Text(max_length=255, trim_whitespace=False)
    message_id = Text(
        max_length=400,
        required=False,
        default="",
        allow_blank=True,
        trim_whitespace=False,
        help_text="MessageId on the wire, if the application has its own; made up otherwise. It goes out once.",
    )
    document_id = Text(
        max_length=MAX_DOCUMENT_ID,
        required=False,
        default="",
        allow_blank=True,
        trim_whitespace=False,
        help_text="What the application calls the document, the same each time that it submits it: its receiver "
        "processes it once, whatever message brings it. The MessageId if absent.",
    )
    conversation_id = Text(max_length=400, required=False, default="", allow_blank=True, trim_whitespace=False)
    ref_to_message_id = Text(
        max_length=400,
        required=False,
        default="",
        allow_blank=True,
        trim_whitespace=False,
        help_text="MessageId of the message that this one answers.",
    )
    semantics = serializers.ChoiceField(
        choices=[value.value for value in Semantics], required=False, default="", help_text="The agreement's if absent."
    )
    time_to_live = Whole(
        min_value=1,
        max_value=MAX_LIFE,
        required=False,
        help_text="Streams only: seconds until it expires if the partner has not got it; the agreement's if absent.",
    )


class SubmissionBody(SubmissionFields):
    """A document for a partner."""

    resubmitted_from = IdIn(
        "msg",
        required=False,
        help_text="The outbound message that is done, whose document this one corrects: each names the other.",
    )
    attributes = serializers.DictField(
        child=Text(max_length=LONGEST),
        required=False,
        help_text=f"What the message is found by, beside what rules find in its documents: at most {MOST} names (small "
        f"letters, digits, _ and -), each with a text of at most {LONGEST} characters.",
    )
    payloads = serializers.ListField(child=PayloadBody(), allow_empty=False, max_length=MAX_PAYLOADS)


class SubmissionForm(SubmissionFields):
    """The same as a form: one file part `payload` for each document, with its content type and file name."""

    time_to_live = serializers.IntegerField(  # type: ignore[assignment]
        min_value=1, max_value=MAX_LIFE, required=False, help_text="As in JSON."
    )
    payload = serializers.ListField(child=serializers.FileField(allow_empty_file=True), min_length=1, max_length=100)
    attribute = serializers.ListField(
        child=serializers.CharField(max_length=LONGEST + 31),
        required=False,
        help_text="Attributes as in JSON, each as name:value.",
    )
    label = serializers.ListField(  # type: ignore[assignment]
        child=serializers.CharField(max_length=120),
        required=False,
        help_text="Names in the Manifest: as many as there are files, in their order.",
    )


class Messages(Endpoint):
    """/messages"""

    parser_classes = (StrictJson, MultiPartParser)

    def body_limit(self) -> int:
        if _is_form(self.request):
            self.request.META[IN_MEMORY] = _OVERHEAD
            return settings.RMHUB_MAX_MESSAGE_BYTES + _OVERHEAD
        return min(settings.RMHUB_MAX_MESSAGE_BYTES * 4 // 3 + _OVERHEAD, settings.RMHUB_MAX_JSON_BYTES)

    @operation(
        id="messages_list",
        tag="messages",
        scope="messages:read",
        summary="List messages",
        description=(
            "Newest first. What no index serves (direction, service, action, agreement, size, attempts, states of "
            "what is done) is looked for among 30,000 messages a request: a page may be short, or empty, while "
            "`has_more` is true; its `next_cursor` goes on from there. A search that takes over 3 s is stopped."
        ),
        parameters=FILTERS,
        responses={200: page_of(shapes.MessageSerializer)},
        problems=("invalid_cursor", "cursor_mismatch", "query_too_broad"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        given = {**values, "pair": pair_id_of(values["pair"]), "agreement": agreement_id_of(values["agreement"])}
        wanted = {_FIELDS.get(name, name): given[name] for name in given if name not in ("q", "sort")}
        filters = finding.MessageFilters(**{name: value for name, value in wanted.items() if value is not None})
        found = searching.read(values["q"] or "", filters, now=clock.now())
        if found.problems:
            errors = [{"parameter": "q", "code": "invalid", "detail": problem} for problem in found.problems]
            raise Problem("invalid_parameter", " ".join(found.problems), errors=errors)
        oldest_first = values["sort"] == "created_at"
        page = finding.message_page(found.filters, oldest_first=oldest_first, limit=limit, place=place)
        return listing(
            request, values, page, shapes.MessageSerializer, estimate=lambda: finding.estimate(found.filters)
        )

    @operation(
        id="messages_submit",
        tag="messages",
        scope="messages:write",
        summary="Submit a message",
        description=(
            "202 says that the message is stored, and will be sent in its turn. A suspended or paused pair takes it "
            "too, and a warning says so. A repeat with the same Idempotency-Key answers the first receipt."
        ),
        request={"application/json": SubmissionBody, "multipart/form-data": SubmissionForm},
        responses={202: shapes.ReceiptSerializer},
        problems=(
            "idempotency_key_missing",
            "invalid_header",
            "idempotency_key_reused",
            "duplicate_message_id",
            "message_too_large",
            "store_full",
            "pair_queue_full",
            "length_required",
            "unknown_agreement",
            "outside_agreement",
            "payload_missing",
        ),
        headers=(KEY_HEADER, DOCUMENT_HEADER, LOCATION, REPLAYED),
        examples=(_EXAMPLE, _RECEIPT),
    )
    def post(self, request: Request) -> Response:
        values = _submission(request)  # first: a body that cannot be read is not called a missing key
        key = idempotency_key(request)
        values["document_id"] = _document_id(request, values["document_id"])
        submission = message_submit(**values, submitted_by=access_of(request).owner, idempotency_key=key)
        message = submission.message
        terms = registry.current().version(message.agreement_version_id)
        etag = tag(shapes.changeable(message, partner=terms.partner_name, tpa_id=terms.tpa_id))
        return accepted(submission, ETag=f'"{etag}"')


def accepted(submission: Submission, **headers: str) -> Response:
    """What was stored, or was stored before under the same key."""
    message = submission.message
    terms = registry.current().version(message.agreement_version_id)
    headers["Location"] = f"/api/v1/messages/{message.public_id}"
    if submission.replayed:
        headers["Idempotent-Replayed"] = "true"
    return Response(shapes.receipt(message, terms, submission.warnings), status=202, headers=headers)


def idempotency_key(request: Request) -> str:
    """The key, with or without the quotes of a structured header. Raises Problem."""
    header = request.headers.get("Idempotency-Key", "").strip()
    if not header:
        raise Problem("idempotency_key_missing")
    key = header[1:-1] if len(header) > 1 and header[0] == header[-1] == '"' else header
    if not _KEY.fullmatch(key):
        raise Problem("invalid_header", "Idempotency-Key has 1 to 255 ASCII characters and no space, such as a UUID.")
    return key


def _document_id(request: Request, said: str) -> str:
    """That of the body, or of the header for those whose body is made by others. Raises Problem."""
    header = unquote(request.headers.get(document_ids.HEADER, "").strip())
    if header and said and header != said:
        raise Problem("invalid_header", f"{document_ids.HEADER} and document_id differ: say it once.")
    if header and (sentence := document_ids.fault(header, MAX_DOCUMENT_ID)):
        raise Problem("invalid_header", f"{document_ids.HEADER} has to be {sentence}")
    return header or said


def _submission(request: Request) -> dict[str, Any]:
    """The arguments of `message_submit` that the body holds. Raises ValidationError."""
    if _is_form(request):
        values = validated(SubmissionForm, request.data)
        values["attributes"] = dict(one.partition(":")[::2] for one in values.pop("attribute", []))
        return {"payloads": _form_payloads(values.pop("payload"), values.pop("label", [])), **values}
    values = validated(SubmissionBody, request.data)
    if (replaced := values.pop("resubmitted_from", None)) is not None:
        values["resubmission_of"] = to_resubmit(messages.message(replaced).pk)
    return {"payloads": _json_payloads(values.pop("payloads")), **values}


def _is_form(request: Request) -> bool:
    return (request.content_type or "").startswith("multipart/")


def _json_payloads(given: list[dict[str, Any]]) -> list[NewPayload]:
    return [
        NewPayload(
            content=payload.get("content_base64", b""),
            content_type=payload["content_type"],
            filename=payload["filename"],
            label=payload["label"],
            upload=payload.get("upload"),
            expected=payload.get("sha256", ""),
        )
        for payload in given
    ]


def _form_payloads(files: list[UploadedFile], labels: list[str]) -> list[NewPayload]:
    if labels and len(labels) != len(files):
        text = f"There are {len(labels)} labels for {len(files)} files: give one for each, or none."
        raise ValidationError({"label": [ErrorDetail(text, code="invalid")]})
    return [
        NewPayload(
            content=file.read() if (file.size or 0) <= settings.RMHUB_INLINE_PAYLOAD_BYTES else Large(file),
            content_type=_content_type(file),
            filename=file.name or "",
            label=labels[position] if labels else "Document",
        )
        for position, file in enumerate(files)
    ]


def _content_type(file: UploadedFile) -> str:
    kind = file.content_type or "application/octet-stream"
    return f"{kind}; charset={file.charset}" if file.charset else kind
