"""A message's document once more, and what belongs together with a message."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import actor_of
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import ReasonBody, validated
from messaging.api.reading import read_parameters
from messaging.messages.api.messages import PATH, allowed_of
from messaging.messages.api.submissions import KEY_HEADER, LOCATION, REPLAYED, idempotency_key
from messaging.messages.selectors import messages, relatives
from messaging.messages.serializers import related as shapes
from messaging.messages.serializers.messages import ReceiptSerializer, ResubmitBody, receipt
from messaging.messages.services.resubmitting import message_redeliver, message_resubmit
from partners import registry

_KEY = OpenApiParameter(
    "Idempotency-Key", str, OpenApiParameter.HEADER, required=True, description=KEY_HEADER.description
)


class Resubmit(Endpoint):
    """/messages/{message_id}/resubmit"""

    def allowed_now(self, **kwargs: Any) -> list[str]:
        return allowed_of(**kwargs)

    @operation(
        id="messages_resubmit",
        tag="messages",
        scope="messages:write",
        summary="Send the documents of a message that is done as a new message",
        description=(
            "The new message has a MessageId of its own and waits behind all others, under the agreement that is in "
            "force now. It keeps the document id, unless another is given, so that a receiver which goes by it knows "
            "the document again. The old one stays as it is. Not for messages that are "
            "still on their way, in doubt, or passed on for another party."
        ),
        path=PATH,
        request=ResubmitBody,
        responses={202: ReceiptSerializer},
        problems=(
            "ambiguous_message_id",
            "idempotency_key_missing",
            "invalid_header",
            "idempotency_key_reused",
            "wrong_state",
            "unknown_agreement",
            "outside_agreement",
            "message_too_large",
            "store_full",
            "pair_queue_full",
            "payload_missing",
        ),
        headers=(_KEY, LOCATION, REPLAYED),
    )
    def post(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        key = idempotency_key(request)
        values = validated(ResubmitBody, request.data)
        found = messages.message_by_reference(message_id)
        submission = message_resubmit(
            message_id=found.pk,
            actor=actor_of(request),
            reason=values["reason"],
            idempotency_key=key,
            document_id=values["document_id"],
        )
        message = submission.message
        terms = registry.current().version(message.agreement_version_id)
        headers = {"Location": f"/api/v1/messages/{message.public_id}"}
        if submission.replayed:
            headers["Idempotent-Replayed"] = "true"
        return Response(receipt(message, terms, submission.warnings), status=202, headers=headers)


class Redeliver(Endpoint):
    """/messages/{message_id}/redeliver"""

    def allowed_now(self, **kwargs: Any) -> list[str]:
        return allowed_of(**kwargs)

    @operation(
        id="messages_redeliver",
        tag="messages",
        scope="indoubt:resolve",
        summary="Hand a received message to the triggers that have not processed it",
        description=(
            "A trigger that wants it and has no delivery of it gets one; a delivery that failed or is in doubt is "
            "resubmitted. What was processed, or is on its way, is left out: a document is processed once."
        ),
        path=PATH,
        request=ReasonBody,
        responses={200: shapes.RedeliverySerializer},
        problems=("ambiguous_message_id", "wrong_state"),
    )
    def post(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        found = messages.message_by_reference(message_id)
        result = message_redeliver(message_id=found.pk, actor=actor_of(request), reason=values["reason"])
        return Response(shapes.redelivery(result))


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
        problems=("ambiguous_message_id",),
    )
    def get(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        message = messages.message_by_reference(message_id)
        return Response(shapes.RelatedSerializer(relatives.of_message(message)).data)
