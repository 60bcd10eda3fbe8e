"""Asking partners what became of messages."""

from __future__ import annotations

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import actor_of
from messaging.api.conditional import item
from messaging.api.endpoint import OCTETS, AnyOctets, Endpoint, operation
from messaging.api.fields import OptionalReasonBody, page_of, validated
from messaging.api.octets import attachment
from messaging.api.pagination import PAGING, simple_list
from messaging.api.reading import read_parameters
from messaging.api.references import id_of
from messaging.messages.selectors import inquiries, messages
from messaging.messages.serializers.inquiries import InquirySerializer
from messaging.messages.services.disclosing import Octets
from messaging.messages.services.inquiries import ask

_PATH = {"message_id": "Id (`msg_...`) or MessageId of a message."}
_PROBLEMS = ("ambiguous_message_id",)


class QueryPartner(Endpoint):
    """/messages/{message_id}/query-partner"""

    @operation(
        id="messages_query_partner",
        tag="in-doubt",
        scope="indoubt:resolve",
        summary="Ask the partner what became of a message",
        description=(
            "Asks the status service of the partner's hub (docs/partner-services.md), for at most 15 seconds. Whatever "
            "comes of it is stored and answered: no answer at all is `no_answer` with its `cause`. Nothing is changed."
        ),
        path=_PATH,
        request=OptionalReasonBody,
        responses={201: InquirySerializer},
        problems=(*_PROBLEMS, "wrong_state"),
    )
    def post(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        values = validated(OptionalReasonBody, request.data)
        found = messages.message_by_reference(message_id)
        made = ask(message_id=found.pk, actor=actor_of(request), **values)
        return item(request, InquirySerializer(made).data, status=201)


class Inquiries(Endpoint):
    """/messages/{message_id}/inquiries"""

    @operation(
        id="messages_inquiries",
        tag="in-doubt",
        scope="messages:read",
        summary="What the partner said about a message, newest first",
        path=_PATH,
        parameters=PAGING,
        responses={200: page_of(InquirySerializer)},
        problems=(*_PROBLEMS, "invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request, message_id: str) -> Response:
        found = inquiries.of_message(messages.message_by_reference(message_id).pk)
        return simple_list(request, found, InquirySerializer, order=("-id",))


class InquiryResponse(Endpoint):
    """/inquiries/{inquiry}/response"""

    content_negotiation_class = AnyOctets

    @operation(
        id="inquiries_response",
        tag="in-doubt",
        scope="messages:read",
        summary="The partner's answer as it came",
        description="Head and body of the HTTP answer, cut at 8 KiB; empty when there was none.",
        path={"inquiry": "Id of the question (`inq_...`)."},
        responses=OCTETS,
        problems=("range_not_satisfiable",),
    )
    def get(self, request: Request, inquiry: str) -> HttpResponse:
        read_parameters(request, ())
        found = inquiries.inquiry(id_of("inq", inquiry))
        content = bytes(found.response or b"")
        return attachment(request, Octets(content, "application/octet-stream", f"{found.public_id}.bin", ""))
