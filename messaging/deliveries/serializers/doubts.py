"""What is in doubt, by evidence group: representation."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import IdOut
from messaging.choices import DeliveryState, Direction, MessageState
from messaging.deliveries.selectors.doubts import AnswerGroup, DoubtGroup, OutboundGroup, TransactionGroup
from messaging.deliveries.serializers.triggers import TriggerRef
from messaging.deliveries.services.deciding import Decision, MessageDecision, delivery_decisions, message_decisions
from messaging.messages.serializers.messages import PairRef, PartyRef
from messaging.models import Delivery, Enlistment, Message
from messaging.profiles.wsat import settling
from messaging.transactions.serializers import SETTLEMENTS


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
