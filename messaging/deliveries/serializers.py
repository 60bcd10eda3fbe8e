"""Deliveries of documents to triggers: representations, and the bodies of those who take and settle them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import Base64, IdIn, IdOut, ReasonBody, StrictBody, Text, Whole
from messaging.api.named import MessageRef, PairRef, PartyRef, TriggerRef
from messaging.choices import DeliveryState, Direction, DocumentIdSource, JoinState, MessageState
from messaging.deliveries.selectors.deliveries import Taken
from messaging.deliveries.selectors.in_doubt import AnswerGroup, DoubtGroup, OutboundGroup, TransactionGroup
from messaging.deliveries.services.pulling import MAX_DELAY, MAX_DETAIL, MAX_DOCUMENTS, MAX_LEASE, MIN_LEASE
from messaging.deliveries.services.settling import (
    MAX_REMIND,
    MIN_REMIND,
    Decision,
    MessageDecision,
    delivery_decisions,
    message_decisions,
)
from messaging.messages.serializers import AgreementRef, PayloadSerializer
from messaging.models import Delivery, Enlistment, Message
from messaging.overview.serializers import CauseDocumentation
from messaging.profiles.wsat import settling
from messaging.protocol.processing import Status
from messaging.transactions.serializers import SETTLEMENTS

DECISIONS = [value.value for value in Decision]
EVIDENCE = "What each step of the decision found: redelivery count, document history, resolver, operator."
CLAIM = "What the lease gave out: it names this hand-over, and nobody else's."


class EvidenceSerializer(serializers.Serializer):
    """One step of the decision whether a document is new, a duplicate or in doubt."""

    step = serializers.CharField()
    finding = serializers.CharField()
    verdict = serializers.CharField(help_text="Empty: this step could not tell, and the next one was asked.")
    detail = serializers.CharField(default="")
    at = serializers.DateTimeField(default=None, allow_null=True, help_text="Step operator: when.")
    by = serializers.CharField(default="", help_text="Step operator: who.")


class JoinRef(serializers.Serializer):
    """Documents of one conversation that a trigger processes together."""

    id = IdOut("join")
    activation = serializers.CharField(help_text="The ConversationId that they share.")
    state = serializers.ChoiceField(choices=JoinState.choices)
    expires_at = serializers.DateTimeField()


class DeliverySerializer(serializers.Serializer):
    """One document on its way to one trigger."""

    id = IdOut("del")
    trigger = TriggerRef()
    message = MessageRef()
    sender = PartyRef()
    state = serializers.ChoiceField(choices=DeliveryState.choices)
    verdict = serializers.ChoiceField(choices=["", *(status.value for status in Status)])
    evidence = EvidenceSerializer(many=True, help_text=EVIDENCE)
    doubt = serializers.CharField(help_text="In doubt: why, as a stable code.")
    document_id = serializers.CharField(help_text="The key of the document history; empty = it has no usable one.")
    document_id_from = serializers.ChoiceField(choices=DocumentIdSource.choices, help_text="Where that id was found.")
    position = serializers.IntegerField(help_text="Its place in the order of its pair.")
    redelivery_count = serializers.IntegerField(help_text="How often it was handed over before; -1 = not known.")
    executions = serializers.IntegerField(help_text="How often the service was started with it.")
    retries = serializers.IntegerField(help_text="Used since it was last handed over.")
    due_at = serializers.DateTimeField(allow_null=True, help_text="Waiting: not before. Running: end of the lease.")
    remind_at = serializers.DateTimeField(allow_null=True, help_text="In doubt: asked to be shown again then.")
    taken_by = serializers.CharField(help_text="Pull queue: who leased it.")
    attended = serializers.BooleanField(help_text="The sender of a synchronous exchange waited for its outcome.")
    resubmission_of = IdOut("del", source="resubmission_of_id", allow_null=True)
    join = JoinRef(allow_null=True, help_text="The join whose documents this delivery hands over together.")
    part_of = JoinRef(allow_null=True, help_text="The join that this document is part of.")
    decision = serializers.CharField(help_text="How a person settled it.")
    decided_by = serializers.CharField()
    decided_at = serializers.DateTimeField(allow_null=True)
    http_status = serializers.IntegerField(allow_null=True, help_text="The service's last answer.")
    cause = serializers.CharField()
    cause_documentation = CauseDocumentation()
    cause_detail = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    completed_at = serializers.DateTimeField(allow_null=True)
    version = serializers.IntegerField(help_text="Counts what people do to it: what If-Match compares.")
    allowed_decisions = serializers.SerializerMethodField(help_text="What `settle` takes now.")

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=DECISIONS)))
    def get_allowed_decisions(self, delivery: Delivery) -> list[str]:
        return list(delivery_decisions(delivery, delivery.trigger))


class DeliveryDetailSerializer(DeliverySerializer):
    """One document on its way to one trigger, and what it was resubmitted as."""

    resubmitted_as = IdOut("del", allow_null=True)
    first_delivery = IdOut(
        "del",
        allow_null=True,
        help_text="Of the same document, brought by another message: the one that the document history knows.",
    )


class SettleBody(ReasonBody):
    """What a person found out about a document."""

    decision = serializers.ChoiceField(choices=DECISIONS)
    remind_in = Whole(
        min_value=MIN_REMIND, max_value=MAX_REMIND, required=False, help_text="Decision `later`: seconds from now."
    )


class LeaseBody(StrictBody):
    """How much is taken, and for how long."""

    limit = Whole(min_value=1, max_value=MAX_DOCUMENTS, required=False, default=1, help_text="Documents, at most.")
    seconds = Whole(
        min_value=MIN_LEASE, max_value=MAX_LEASE, required=False, help_text="The lease; the trigger's if absent."
    )
    consumer = serializers.RegexField(
        r"^[A-Za-z0-9._-]{0,40}$",
        required=False,
        default="",
        allow_blank=True,
        help_text="Which of your processes this is, if there are several: letters, digits, `.`, `-`, `_`.",
    )


class ClaimBody(StrictBody):
    """Which hand-over is meant."""

    claim = IdIn("clm", help_text=CLAIM)


class FailBody(ClaimBody):
    """The application ended with an error: the document counts as processed."""

    detail = Text(max_length=MAX_DETAIL, help_text="What went wrong, for people.")


class ReleaseBody(ClaimBody):
    """The application has not processed it, and somebody shall take it again."""

    delay = Whole(
        min_value=0, max_value=MAX_DELAY, required=False, default=0, help_text="Seconds before it can be taken."
    )


class ExtendBody(ClaimBody):
    """The application needs longer."""

    seconds = Whole(min_value=MIN_LEASE, max_value=MAX_LEASE, help_text="From now.")


class TakenPayloadSerializer(PayloadSerializer):
    """A payload of a document that was taken."""

    href = serializers.CharField(help_text="Its octets.")
    content_base64 = Base64(
        required=False, help_text="With include=payloads, for at most 64 KiB: the octets. Absent: follow `href`."
    )

    class Meta(PayloadSerializer.Meta):
        fields = (*PayloadSerializer.Meta.fields, "href", "content_base64")


class TakenDocumentSerializer(serializers.Serializer):
    """What the message says of a document."""

    message = IdOut("msg", source="id")
    message_id = serializers.CharField(help_text="MessageId on the wire.")
    document_id = serializers.CharField(
        source="identifies", help_text="What its sender calls the document; the MessageId where nothing else was said."
    )
    conversation_id = serializers.CharField()
    ref_to_message_id = serializers.CharField()
    agreement = AgreementRef(source="agreement_version")
    sender = PartyRef(source="pair.partner")
    profile = serializers.CharField(source="agreement_version.profile")
    service = serializers.CharField()
    action = serializers.CharField()
    received_at = serializers.DateTimeField(source="created_at")
    payloads = TakenPayloadSerializer(many=True, source="taken_payloads")


class TakenSerializer(serializers.Serializer):
    """A document that was taken from a pull queue, until `lease_until`."""

    delivery = IdOut("del", source="delivery.id")
    claim = IdOut("clm", source="delivery.claim", help_text=CLAIM)
    lease_until = serializers.DateTimeField(source="delivery.due_at")
    trigger = TriggerRef(source="delivery.trigger")
    document_id = serializers.CharField(
        source="delivery.document_id", help_text="The same for every copy of the document."
    )
    redelivery_count = serializers.IntegerField(
        source="delivery.redelivery_count", help_text="How often it was handed over before; -1 = not known."
    )
    document = TakenDocumentSerializer(source="document.message")
    others = serializers.SerializerMethodField(help_text="A join: its other documents, in the order of arrival.")

    @extend_schema_field(TakenDocumentSerializer(many=True))
    def get_others(self, taken: Taken) -> list[dict[str, Any]]:
        return [dict(TakenDocumentSerializer(facts.message).data) for facts in taken.others]


class LeaseSerializer(serializers.Serializer):
    """What was taken; empty when nothing waits, or as much as the trigger allows is taken already."""

    data = TakenSerializer(many=True)  # type: ignore[assignment]


def represent_taken(taken: Sequence[Taken], octets: Mapping[tuple[uuid.UUID, int], bytes]) -> dict[str, Any]:
    """What `deliveries.taken` read, as LeaseSerializer shows it. `octets`: by message and number of the payload."""
    for one in taken:
        for facts in (one.document, *one.others):
            message = facts.message
            for payload in facts.payloads:
                payload.href = f"/api/v1/messages/{message.public_id}/payloads/{payload.number}"  # type: ignore[attr-defined]
                if (message.pk, payload.number) in octets:
                    payload.content_base64 = octets[message.pk, payload.number]  # type: ignore[attr-defined]
            message.taken_payloads = facts.payloads  # type: ignore[attr-defined]
    return {"data": [dict(TakenSerializer(one).data) for one in taken]}


class ReasonSerializer(serializers.Serializer):
    """Why something is in doubt, for a person."""

    label = serializers.CharField()  # type: ignore[assignment]
    sentence = serializers.CharField(help_text="What happened.")
    advice = serializers.CharField(help_text="How to find out.")


class GroupFields(serializers.Serializer):
    """What groups of both directions have."""

    count = serializers.IntegerField()
    later = serializers.IntegerField(help_text="Those among them that a person has put off.")
    oldest_at = serializers.DateTimeField(help_text="Since when the first of them is in doubt.")
    reason = ReasonSerializer()


class DoubtGroupSerializer(GroupFields):
    """Documents that are in doubt at one trigger for one reason."""

    trigger = TriggerRef()
    doubt = serializers.CharField(help_text="The reason, as a stable code.")
    allowed_decisions = serializers.SerializerMethodField()
    filter = serializers.SerializerMethodField(help_text="Names the group in a bulk job (`settle_deliveries`).")

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=[one.value for one in Decision])))
    def get_allowed_decisions(self, group: DoubtGroup) -> list[str]:
        return list(delivery_decisions(Delivery(state=DeliveryState.IN_DOUBT), group.trigger))

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_filter(self, group: DoubtGroup) -> dict[str, Any]:
        return {"trigger": group.trigger.public_id, "doubt": group.doubt}


class OutboundGroupSerializer(GroupFields):
    """Outbound messages whose outcome at the partner is unknown, on one pair for one reason."""

    pair = PairRef()
    cause = serializers.CharField(help_text="The reason, as a stable code.")
    answers = serializers.DictField(
        child=serializers.IntegerField(), help_text="What the partner says -> of how many; empty name = not asked."
    )
    allowed_decisions = serializers.SerializerMethodField()
    filter = serializers.SerializerMethodField(help_text="Names the group in a bulk job (`settle_messages`).")

    @extend_schema_field(
        serializers.ListField(child=serializers.ChoiceField(choices=[one.value for one in MessageDecision]))
    )
    def get_allowed_decisions(self, group: OutboundGroup) -> list[str]:
        return list(message_decisions(Message(direction=Direction.OUT, state=MessageState.IN_DOUBT)))

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_filter(self, group: OutboundGroup) -> dict[str, Any]:
        return {"pair": group.pair.public_id, "cause": group.cause}


class AnswerGroupSerializer(serializers.Serializer):
    """Outbound messages, of any pairs, about which their partners say the same."""

    answer = serializers.CharField(help_text="As in an inquiry; empty = not asked.")
    count = serializers.IntegerField()
    pairs = serializers.IntegerField(help_text="On how many pairs.")
    oldest_at = serializers.DateTimeField()
    suggestion = serializers.CharField(help_text="The decision that the answer is evidence for; empty when it is none.")
    filter = serializers.SerializerMethodField(
        help_text="Names the group in a bulk operation (`settle_messages`, `ask_partner`)."
    )

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_filter(self, group: AnswerGroup) -> dict[str, Any]:
        return {"answer": group.answer}


class DoubtfulParticipantSerializer(serializers.Serializer):
    """Somebody in a transaction who is in doubt: settled at `/transactions/{transaction}/participants/{id}/settle`."""

    id = IdOut("enl")
    transaction = IdOut("txn", source="coordination_id")
    detail = serializers.CharField(source="doubt_detail")
    allowed_settlements = serializers.SerializerMethodField(help_text="What `settle` takes now.")

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=SETTLEMENTS)))
    def get_allowed_settlements(self, one: Enlistment) -> list[str]:
        return list(settling.settlements(one))


class TransactionGroupSerializer(serializers.Serializer):
    """Transactions in which participants of one partner are in doubt for one reason."""

    partner = PartyRef(allow_null=True, help_text="null: nobody who may be shown; look at the transactions.")
    doubt = serializers.CharField(help_text="The reason, as a cause's code; empty when `partner` says nothing.")
    count = serializers.IntegerField(help_text="Transactions. One with several in doubt is in several groups.")
    oldest_at = serializers.DateTimeField(help_text="Since when the first of them is in doubt.")
    reason = ReasonSerializer()
    oldest = DoubtfulParticipantSerializer(allow_null=True, help_text="The participant of the oldest one.")
    filter = serializers.SerializerMethodField(help_text="Names the group in GET /transactions.")

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_filter(self, group: TransactionGroup) -> dict[str, Any]:
        named = {"party": group.partner.public_id} if group.partner is not None else {}
        return {"doubtful": "true", **named, **({"doubt": group.doubt} if group.doubt else {})}


class InDoubtSerializer(serializers.Serializer):
    """Everything that no rule can decide, the oldest groups first."""

    deliveries = DoubtGroupSerializer(many=True)
    messages = OutboundGroupSerializer(many=True)
    answers = AnswerGroupSerializer(many=True, help_text="The same messages by what their partners say.")
    transactions = TransactionGroupSerializer(many=True)
