"""What people and applications do to messages: take back, settle, send anew, hand to triggers again, ask about."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.authentication import actor_of
from messaging.api.conditional import check_unchanged, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import OptionalReasonBody, ReasonBody, Text, Whole, validated
from messaging.api.problems import Problem
from messaging.api.reading import read_parameters
from messaging.exceptions import UnderWay
from messaging.messages import serializers as shapes
from messaging.messages.api.messages import ABOUT, PATH, PROBLEMS, answer
from messaging.messages.api.submissions import KEY_HEADER, LOCATION, REPLAYED, accepted, idempotency_key
from messaging.messages.selectors import messages
from messaging.messages.services.cancelling import message_cancel, waits
from messaging.messages.services.inquiries import ask
from messaging.messages.services.resubmitting import message_redeliver, message_resubmit
from messaging.messages.services.settling import MAX_REMIND, MIN_REMIND, MessageDecision, message_settle
from messaging.models import Message, Payload
from messaging.protocol.processing import MAX_DOCUMENT_ID


class ResubmitBody(ReasonBody):
    """Why a message goes out anew."""

    document_id = Text(
        max_length=MAX_DOCUMENT_ID,
        required=False,
        default="",
        allow_blank=True,
        trim_whitespace=False,
        help_text="Another one makes it another document, which its receiver processes whatever became of the first. "
        "Absent: it stays the same document.",
    )


class MessageSettleBody(ReasonBody):
    """What a person found out about a message whose outcome at the partner is unknown."""

    decision = serializers.ChoiceField(choices=[value.value for value in MessageDecision])
    remind_in = Whole(
        min_value=MIN_REMIND, max_value=MAX_REMIND, required=False, help_text="Decision `later`: seconds from now."
    )


class LeftOut(serializers.Serializer):
    """A trigger that got nothing."""

    trigger = serializers.CharField()
    why = serializers.CharField()


class RedeliverySerializer(serializers.Serializer):
    """What came of a redelivery."""

    deliveries = serializers.ListField(child=serializers.CharField(), help_text="Ids of the new deliveries.")
    left_out = LeftOut(many=True)


class OfMessage(Endpoint):
    """A verb of a message: a 409 says what its state allows."""

    def allowed_now(self, **kwargs: Any) -> list[str]:
        message = messages.message_by_reference(kwargs["message_id"])
        allowed: list[str] = shapes.MessageSerializer(message).data["allowed_actions"]
        return allowed

    def seen(self, request: Request, message_id: str) -> tuple[Message, list[Payload]]:
        """Return the message and its payloads. Raises Problem when it is not as the caller saw it."""
        message = messages.message_by_reference(message_id)
        payloads = list(messages.payloads(message.pk))
        check_unchanged(request, shapes.changeable(message))
        return message, payloads


class Cancel(OfMessage):
    """/messages/{message_id}/cancel"""

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
        problems=(*PROBLEMS, "wrong_state", "stale", "precondition_required"),
    )
    def post(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        message, payloads = self.seen(request, message_id)
        given = request.headers.get("If-Match", "").strip()
        # Who saw a message that waits has not agreed to give up one that the partner may have.
        only_waiting = not given or (given != "*" and waits(message))
        try:
            message_cancel(message_id=message.pk, actor=actor_of(request), only_waiting=only_waiting, **values)
        except UnderWay as error:
            raise Problem("stale" if given else "precondition_required", error.detail) from error
        return answer(request, messages.message(message.pk), payloads)


class Settle(OfMessage):
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
        path=PATH,
        request=MessageSettleBody,
        responses={200: shapes.MessageDetailSerializer},
        problems=(
            *PROBLEMS,
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
        values = validated(MessageSettleBody, request.data)
        message, payloads = self.seen(request, message_id)
        message_settle(message_id=message.pk, actor=actor_of(request), **values)
        return answer(request, messages.message(message.pk), payloads)


class Resubmit(OfMessage):
    """/messages/{message_id}/resubmit"""

    @operation(
        id="messages_resubmit",
        tag="messages",
        scope="messages:write",
        summary="Send the documents of a message that is done as a new message",
        description=(
            "The new message has a MessageId of its own and waits behind all others, under the agreement that is in "
            "force now. It keeps the document id, unless another is given, so that a receiver that uses it recognises "
            "the document. The old one stays as it is. Not for messages that are "
            "still on their way, in doubt, or passed on for another party."
        ),
        path=PATH,
        request=ResubmitBody,
        responses={202: shapes.ReceiptSerializer},
        problems=(
            *PROBLEMS,
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
        headers=(KEY_HEADER, LOCATION, REPLAYED),
    )
    def post(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        key = idempotency_key(request)
        values = validated(ResubmitBody, request.data)
        found = messages.message_by_reference(message_id)
        submission = message_resubmit(message_id=found.pk, actor=actor_of(request), idempotency_key=key, **values)
        return accepted(submission)


class Redeliver(OfMessage):
    """/messages/{message_id}/redeliver"""

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
        responses={200: RedeliverySerializer},
        problems=(*PROBLEMS, "wrong_state"),
    )
    def post(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        found = messages.message_by_reference(message_id)
        result = message_redeliver(message_id=found.pk, actor=actor_of(request), **values)
        return Response(
            {
                "deliveries": [delivery.public_id for delivery in result.made],
                "left_out": [{"trigger": name, "why": why} for name, why in result.left_out],
            }
        )


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
        path=ABOUT,
        request=OptionalReasonBody,
        responses={201: shapes.InquirySerializer},
        problems=(*PROBLEMS, "wrong_state"),
    )
    def post(self, request: Request, message_id: str) -> Response:
        read_parameters(request, ())
        values = validated(OptionalReasonBody, request.data)
        found = messages.message_by_reference(message_id)
        made = ask(message_id=found.pk, actor=actor_of(request), **values)
        return item(request, shapes.InquirySerializer(made).data, status=201)
