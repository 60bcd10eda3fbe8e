"""Atomic transactions: representations, and the bodies of those who begin, join and settle them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import IdOut, OptionalReasonBody, ReasonBody, StrictBody, Text, Whole
from messaging.api.named import PartyRef, TriggerRef
from messaging.choices import Direction, MessageState
from messaging.messages.serializers import AgreementRef
from messaging.models import Coordination, Enlistment
from messaging.profiles.wsat import asking, settling
from messaging.protocol.atomic.words import Phase, Protocol, Seat, Vote
from messaging.transactions.resource import VERBS
from messaging.transactions.selectors import coordinations
from messaging.transactions.selectors.diagnosis import Diagnosis, Situation
from partners.choices import CoordinationVersion

OUTCOMES = ("committed", "aborted")
SETTLEMENTS = tuple(settling.WARNINGS)


class ParticipantSerializer(serializers.Serializer):
    """Who takes part in a transaction, or asks for its outcome (protocol Completion)."""

    id = IdOut("enl")
    protocol = serializers.ChoiceField(choices=[one.value for one in Protocol])
    role = serializers.SerializerMethodField(help_text="local: what this hub does itself; superior: it decides.")
    local = serializers.CharField(help_text="What of this hub takes part; empty for all others.")
    party = PartyRef(allow_null=True)
    agreement = AgreementRef(source="agreement_version", allow_null=True)
    trigger = TriggerRef(allow_null=True)
    address = serializers.CharField(source="peer_address", help_text="Of its endpoint reference.")
    seat = serializers.ChoiceField(choices=[one.value for one in Seat], help_text="Its state; none: it has ended.")
    vote = serializers.ChoiceField(choices=["", *(one.value for one in Vote)])
    voted_at = serializers.DateTimeField(allow_null=True)
    last_heard_at = serializers.DateTimeField(allow_null=True, help_text="When a message of it came last.")
    doubt = serializers.CharField(help_text="Why it is in doubt, as a cause's code; empty: it is not.")
    doubt_detail = serializers.CharField()
    settled_as = serializers.CharField(help_text="What a person decided about it: committed, aborted, forget.")
    settled_by = serializers.CharField()
    settled_at = serializers.DateTimeField(allow_null=True)
    settled_reason = serializers.CharField()
    created_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    allowed_settlements = serializers.SerializerMethodField(help_text="What `settle` takes now.")

    @extend_schema_field(serializers.ChoiceField(choices=("participant", "initiator", "superior", "local")))
    def get_role(self, one: Enlistment) -> str:
        if one.local:
            return "local"
        if one.superior:
            return "superior"
        return "initiator" if one.protocol == Protocol.COMPLETION else "participant"

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=SETTLEMENTS)))
    def get_allowed_settlements(self, one: Enlistment) -> list[str]:
        return list(settling.settlements(one))


class TransactionSerializer(serializers.Serializer):
    """Work of several systems with one outcome."""

    id = IdOut("txn")
    identifier = serializers.CharField(help_text="Of its CoordinationContext: an absolute URI.")
    version = serializers.ChoiceField(choices=CoordinationVersion.values, help_text="Namespace of WS-Coordination.")
    phase = serializers.ChoiceField(choices=[one.value for one in Phase])
    outcome = serializers.SerializerMethodField(help_text="null: it is not decided yet.")
    role = serializers.SerializerMethodField(help_text="Of this hub; participant: another coordinator decides.")
    begun_by = serializers.SerializerMethodField(help_text="Partner, person or trigger.")
    delivery = serializers.SerializerMethodField(help_text="Id of the delivery that is handed over in it.")
    expires_at = serializers.DateTimeField(allow_null=True, help_text="It is rolled back then unless it is decided.")
    decided_at = serializers.DateTimeField(allow_null=True, help_text="When the commit record was written.")
    cause = serializers.CharField(help_text="Why it was rolled back, as a cause's code.")
    in_doubt_since = serializers.DateTimeField(source="doubtful_since", allow_null=True)
    created_at = serializers.DateTimeField()
    changed_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    allowed_actions = serializers.SerializerMethodField()

    @extend_schema_field(serializers.ChoiceField(choices=OUTCOMES, allow_null=True))
    def get_outcome(self, one: Coordination) -> str | None:
        return coordinations.outcome(one) or None

    @extend_schema_field(serializers.ChoiceField(choices=coordinations.ROLES))
    def get_role(self, one: Coordination) -> str:
        return "participant" if one.subordinate else "coordinator"

    def get_begun_by(self, one: Coordination) -> str:
        return coordinations.beginner(one)

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_delivery(self, one: Coordination) -> str | None:
        shown = coordinations.delivery_of(one)
        return shown.public_id if shown is not None else None

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=tuple(VERBS))))
    def get_allowed_actions(self, one: Coordination) -> list[str]:
        return list(asking.allowed(one))


class TransactionDiagnosisSerializer(serializers.Serializer):
    """What the transaction waits for, or how it ended."""

    situation = serializers.ChoiceField(choices=[one.value for one in Situation])
    headline = serializers.CharField()
    why = serializers.CharField()
    action = serializers.CharField(help_text="What a person can do.")
    next_at = serializers.DateTimeField(allow_null=True, help_text="When the hub does something by itself.")
    next_what = serializers.CharField()


class TransactionDetailSerializer(TransactionSerializer):
    """A transaction with its participants."""

    cause_detail = serializers.CharField()
    diagnosis = TransactionDiagnosisSerializer()
    participants = ParticipantSerializer(many=True)
    hidden_participants = serializers.IntegerField(help_text="Of partners that the caller may not see.")


class ParticipantListSerializer(serializers.Serializer):
    """All participants, in the order of their registration."""

    data = ParticipantSerializer(many=True)  # type: ignore[assignment]


class EndpointReferenceSerializer(serializers.Serializer):
    """A WS-Addressing endpoint reference."""

    address = serializers.CharField()
    parameters = serializers.ListField(
        child=serializers.CharField(), help_text="Reference parameters: each one XML element, to be echoed as a header."
    )


class EnlistedSerializer(ParticipantSerializer):
    """A participant that was enlisted, and where it sends Prepared, Committed, Aborted ..."""

    coordinator = EndpointReferenceSerializer()


class TransactionContextSerializer(serializers.Serializer):
    """What an application needs to register with the transaction."""

    identifier = serializers.CharField()
    agreement = serializers.CharField(help_text="TPAId: whose partner can register with it.")
    expires_in_ms = serializers.IntegerField(allow_null=True)
    registration = EndpointReferenceSerializer(help_text="The registration service.")
    context_xml = serializers.CharField(help_text="The CoordinationContext element, for a SOAP header.")


class TransactionMessageSerializer(serializers.Serializer):
    """One message of WS-Coordination or WS-AtomicTransaction about a transaction."""

    message = IdOut("msg", source="message_id")
    message_id = serializers.CharField(source="message.message_id", help_text="wsa:MessageID.")
    direction = serializers.ChoiceField(source="message.direction", choices=Direction.choices)
    kind = serializers.CharField(help_text="Name of the body's element, or Fault.")
    participant = IdOut("enl", source="enlistment_id", allow_null=True)
    party = PartyRef(source="message.pair.partner")
    address = serializers.CharField(help_text="Where ours goes.")
    relates_to = serializers.CharField()
    awaits_answer = serializers.BooleanField(source="awaits", help_text="It is sent again until it is answered.")
    fault_code = serializers.CharField()
    fault_reason = serializers.CharField()
    note = serializers.CharField(help_text="What was made of it, e.g. that it was ignored.")
    state = serializers.ChoiceField(source="message.state", choices=MessageState.choices)
    attempts = serializers.IntegerField(source="message.attempts", help_text="How often ours was put on the wire.")
    cause = serializers.CharField(source="message.cause", help_text="Why the last attempt failed.")
    at = serializers.DateTimeField()


class TransactionBody(StrictBody):
    """A new transaction."""

    expires_ms = Whole(
        min_value=1,
        max_value=4_294_967_295,
        required=False,
        help_text="Milliseconds until it is rolled back unless it is decided; the hub's maximum if absent or larger.",
    )
    version = serializers.ChoiceField(
        choices=CoordinationVersion.values, required=False, default=CoordinationVersion.V2006.value
    )


class ParticipantBody(StrictBody):
    """A participant's endpoint reference, as it would give it in a Register message."""

    agreement = Text(max_length=255, help_text="TPAId of an active agreement of the profile wsat.")
    protocol = serializers.ChoiceField(choices=[Protocol.DURABLE.value, Protocol.VOLATILE.value])
    address = Text(max_length=500, help_text="Physical http(s) address, of the same origin as the agreement's partner.")
    parameters = serializers.ListField(
        child=Text(max_length=2000),
        required=False,
        default=list,
        max_length=16,
        help_text="Reference parameters: each one XML element as text.",
    )


class AskBody(OptionalReasonBody):
    """Why the outcome is asked for."""


class RollbackBody(ReasonBody):
    """Why it is rolled back."""


class TransactionSettleBody(StrictBody):
    """What a person decides about a participant in doubt."""

    outcome = serializers.ChoiceField(choices=SETTLEMENTS)
    reason = Text(max_length=2000, min_length=10, help_text="Why, for the audit log: at least 10 characters.")


def represent(one: Coordination, diagnosis: Diagnosis, *, hidden: int, heard: Mapping[Any, datetime]) -> dict[str, Any]:
    """A transaction that `selectors.coordinations` read, as TransactionDetailSerializer shows it."""
    one.diagnosis = diagnosis  # type: ignore[attr-defined]
    one.participants = participants(coordinations.taking_part(one), heard)  # type: ignore[attr-defined]
    one.hidden_participants = hidden  # type: ignore[attr-defined]
    data = dict(TransactionDetailSerializer(one).data)
    if hidden:
        data["cause_detail"] = ""  # it may name one of them
    return data


def participants(takers: Sequence[Enlistment], heard: Mapping[Any, datetime]) -> Sequence[Enlistment]:
    """The same rows with when they were last heard of."""
    for taker in takers:
        taker.last_heard_at = heard.get(taker.pk)  # type: ignore[attr-defined]
    return takers
