"""Messages and what belongs to them: representations."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import IdOut, RowSerializer
from messaging.api.named import PairRef, PartyRef
from messaging.choices import Direction, MessageState
from messaging.engine import attributes
from messaging.messages.selectors import relatives
from messaging.messages.services.cancelling import why_not_cancel
from messaging.messages.services.resubmitting import why_not_resubmit
from messaging.messages.services.settling import message_decisions
from messaging.models import Message, Payload, Signal, StatusInquiry, Transmission
from messaging.overview.serializers import CauseDocumentation, EventSerializer
from messaging.profile import Proof
from messaging.protocol.edi_messages import Fault
from partners.terms import Terms
from rmhub.ids import public_id

_DOCUMENT_ID = "What its sender calls the document; the MessageId where nothing else was said."


class AgreementRef(serializers.Serializer):
    """The version of an agreement under which a message is handled."""

    id = IdOut("agr", source="agreement_id")
    tpa_id = serializers.CharField(source="agreement.tpa_id")
    version = serializers.IntegerField(source="number")


class PayloadSerializer(RowSerializer):
    """A payload of a message; its octets are at /messages/{id}/payloads/{number}."""

    class Meta:
        model = Payload
        fields: tuple[str, ...] = ("number", "content_id", "content_type", "filename", "label", "size", "sha256")


class FaultSerializer(serializers.Serializer):
    """One thing of a document that does not fit."""

    line = serializers.IntegerField(help_text="From 1 on; 0 = not known.")
    column = serializers.IntegerField(help_text="From 1 on; 0 = not known.")
    path = serializers.CharField(help_text="Of an element, a JSON value or a segment.")
    text = serializers.CharField()


class SchemaFaults(serializers.Serializer):
    """The schema that a document did not fit when the message was stored."""

    schema = serializers.CharField(help_text="Id (`sch_...`).")
    name = serializers.CharField()
    version = serializers.IntegerField()
    held = serializers.BooleanField(help_text="Inbound: applications get it when a person says so.")
    faults = FaultSerializer(many=True)


class MessageSerializer(RowSerializer):
    """A message, outbound or inbound."""

    id = IdOut("msg")
    document_id = serializers.CharField(source="identifies", help_text=_DOCUMENT_ID)
    tx_sequence_id = serializers.CharField(
        allow_null=True, help_text="Streams: TxSequenceID, an unsigned 64-bit number in decimal."
    )
    forwarded_from = IdOut(
        "msg",
        source="forwarded_from_id",
        allow_null=True,
        help_text="Router: the message that came, and that this one passes on.",
    )
    resubmitted_from = IdOut(
        "msg",
        source="resubmitted_from_id",
        allow_null=True,
        help_text="The message whose documents a person sent again as this one.",
    )
    pair = PairRef()
    partner = PartyRef(source="pair.partner")
    agreement = AgreementRef(source="agreement_version")
    cause_documentation = CauseDocumentation()
    sha256 = serializers.CharField(source="digest", help_text="Of its octets on the wire; empty before they are made.")
    attributes = serializers.SerializerMethodField(
        help_text="What it is found by, such as an invoice number: name -> value; without those that are never shown."
    )
    schema_faults = serializers.SerializerMethodField(
        help_text="Which schema a document of it does not fit, and what does not; null: none."
    )
    allowed_actions = serializers.SerializerMethodField()

    class Meta:
        model = Message
        fields: tuple[str, ...] = (
            *("id", "direction", "state", "message_id", "document_id", "conversation_id", "ref_to_message_id"),
            *("service", "action", "semantics", "sequence_number", "tx_sequence_id", "previous_number", "order_number"),
            *("forwarded_from", "resubmitted_from", "position", "pair", "partner", "agreement", "size", "attempts"),
            *("copies", "cause", "cause_documentation", "cause_detail", "remind_at", "sha256", "created_at"),
            *(
                "first_sent_at",
                "completed_at",
                "expires_at",
                "submitted_by",
                "attributes",
                "schema_faults",
                "allowed_actions",
            ),
        )

    @extend_schema_field(serializers.DictField(child=serializers.CharField()))
    def get_attributes(self, message: Message) -> dict[str, str]:
        return attributes.shown(message.attributes)

    @extend_schema_field(SchemaFaults(allow_null=True))
    def get_schema_faults(self, message: Message) -> dict[str, Any] | None:
        kept = message.schema_faults
        return {**kept, "faults": [Fault(*one)._asdict() for one in kept["faults"]]} if kept else None

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=["cancel", "settle", "resubmit"])))
    def get_allowed_actions(self, message: Message) -> list[str]:
        found = [] if why_not_cancel(message) else ["cancel"]
        if message_decisions(message):
            found.append("settle")
        return found if why_not_resubmit(message) else [*found, "resubmit"]


class TransmissionSerializer(RowSerializer):
    """One attempt to put a message on the wire."""

    id = IdOut("att")
    cause_documentation = CauseDocumentation()

    class Meta:
        model = Transmission
        fields: tuple[str, ...] = (
            *("id", "number", "address", "outcome", "http_status", "cause", "cause_documentation", "detail"),
            *("started_at", "finished_at"),
        )


class TransmissionDetailSerializer(TransmissionSerializer):
    """One attempt, with what it put on the wire and where the octets are."""

    pair = PairRef(allow_null=True)
    message = IdOut("msg", source="message_id", allow_null=True, help_text="What was sent; null: a signal was.")
    signal = IdOut("sig", source="signal_id", allow_null=True)
    wire = serializers.SerializerMethodField(help_text="Path of the octets that went out.")
    response = serializers.SerializerMethodField(help_text="Path of what the partner's server answered.")

    class Meta(TransmissionSerializer.Meta):
        fields = (*TransmissionSerializer.Meta.fields, "pair", "message", "signal", "wire", "response")

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_wire(self, attempt: Transmission) -> str | None:
        if attempt.message_id is not None:
            return f"/api/v1/messages/{public_id('msg', attempt.message_id)}/wire"
        return f"/api/v1/signals/{public_id('sig', attempt.signal_id)}/wire" if attempt.signal_id else None

    @extend_schema_field(serializers.CharField())
    def get_response(self, attempt: Transmission) -> str:
        return f"/api/v1/transmissions/{attempt.public_id}/response"


class SignalSerializer(RowSerializer):
    """An acknowledgement or error message about a message; its octets are at /signals/{id}/wire."""

    id = IdOut("sig")

    class Meta:
        model = Signal
        fields = (
            *("id", "direction", "kind", "state", "message_id", "ref_to_message_id", "error_code", "error_severity"),
            *("error_description", "min_retry_secs", "note", "signed_by", "sends", "created_at", "last_sent_at"),
        )


class ProofSerializer(serializers.Serializer):
    """A signature, and whether it holds."""

    signal = IdOut("sig", source="signal.id", allow_null=True, help_text="The acknowledgement; null: the message.")
    theirs = serializers.BooleanField(help_text="The partner signed it.")
    valid = serializers.SerializerMethodField()
    signer = serializers.CharField(help_text="Whom the certificate names.")
    fingerprint = serializers.CharField(help_text="SHA-256 of the certificate.")
    revoked_at = serializers.DateTimeField(allow_null=True, help_text="When that was revoked since.")
    at = serializers.DateTimeField(help_text="When it came or first went out: its certificate was valid then.")
    detail = serializers.CharField(source="refused", help_text="Why it proves nothing.")

    def get_valid(self, proof: Proof) -> bool:
        return not proof.refused


class SignaturesSerializer(serializers.Serializer):
    """The signatures of a message and of its acknowledgements."""

    signatures = ProofSerializer(many=True)


class MessageDetailSerializer(MessageSerializer):
    """A message with its payloads."""

    payloads = PayloadSerializer(many=True, source="listed_payloads")
    deliveries = serializers.SerializerMethodField(
        help_text="Inbound: where its deliveries to applications are listed."
    )
    forwarded_to = serializers.SerializerMethodField(
        help_text="Inbound, router: ids of the messages that pass it on to the next hop, newest first."
    )

    class Meta(MessageSerializer.Meta):
        fields = (*MessageSerializer.Meta.fields, "payloads", "deliveries", "forwarded_to")

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_forwarded_to(self, message: Message) -> list[str]:
        return [one.public_id for one in relatives.journey(message).went] if message.direction == Direction.IN else []

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_deliveries(self, message: Message) -> str | None:
        return f"/api/v1/deliveries?message={message.public_id}" if message.direction == Direction.IN else None


class MessageIncludingSerializer(MessageDetailSerializer):
    """A message with its payloads, and with what `include` asked for (documentation: the view adds it)."""

    transmissions = TransmissionSerializer(many=True, required=False, help_text="With `include=transmissions`.")
    signals = SignalSerializer(many=True, required=False, help_text="With `include=signals`.")
    events = EventSerializer(many=True, required=False, help_text="With `include=events`.")

    class Meta(MessageDetailSerializer.Meta):
        fields = (*MessageDetailSerializer.Meta.fields, "transmissions", "signals", "events")


class InquirySerializer(RowSerializer):
    """One question to the partner about a message, and what it said."""

    id = IdOut("inq")
    message = IdOut("msg", source="message_id")

    class Meta:
        model = StatusInquiry
        fields = (
            *("id", "message", "answer", "detail", "cause", "address", "http_status", "actor", "asked_at"),
            "answered_at",
        )


class RelatedMessage(RowSerializer):
    """A message, in short."""

    id = IdOut("msg")

    class Meta:
        model = Message
        fields = ("id", "message_id", "direction", "state", "action", "created_at")


class InquiryRef(RowSerializer):
    """A question to the partner about the message."""

    id = IdOut("inq")

    class Meta:
        model = StatusInquiry
        fields = ("id", "answer", "detail", "asked_at", "answered_at")


class RelatedSerializer(serializers.Serializer):
    """Messages around one message, the newest first."""

    previous = RelatedMessage(allow_null=True, help_text="The one before it in its pair.")
    next = RelatedMessage(allow_null=True, help_text="The one after it in its pair.")
    refers_to = RelatedMessage(many=True, help_text="With the MessageId that it answers.")
    answers = RelatedMessage(many=True, help_text="That answer it.")
    conversation = RelatedMessage(many=True)
    resubmitted_from = RelatedMessage(allow_null=True)
    resubmitted_as = RelatedMessage(many=True)
    came_as = RelatedMessage(many=True, source="journey.came", help_text="Router: the message that came.")
    went_as = RelatedMessage(many=True, source="journey.went", help_text="Router: the messages that pass it on.")
    inquiries = InquiryRef(many=True, help_text="What the partner said when it was asked.")


class WarningSerializer(serializers.Serializer):
    """Something that a submitter should know although the message is accepted."""

    code = serializers.CharField()
    detail = serializers.CharField()


class ReceiptSerializer(RowSerializer):
    """What was accepted. It never changes, so that a replay under the same Idempotency-Key answers the same."""

    id = IdOut("msg")
    state = serializers.ChoiceField(choices=[MessageState.QUEUED.value], help_text="As it was accepted.")
    document_id = serializers.CharField(source="identifies", help_text=_DOCUMENT_ID)
    agreement = AgreementRef(source="agreement_version")
    pair = PairRef()
    warnings = WarningSerializer(many=True, help_text="As of the moment of acceptance; a replay has none.")

    class Meta:
        model = Message
        fields = (
            *("id", "state", "message_id", "document_id", "conversation_id", "ref_to_message_id", "agreement", "pair"),
            *("service", "action", "semantics", "position", "size", "created_at", "warnings"),
        )


def receipt(message: Message, terms: Terms, warnings: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """What ReceiptSerializer describes, by hand: submissions come in their thousands. Loads the pair if need be."""
    return {
        "id": message.public_id,
        "state": MessageState.QUEUED.value,
        "message_id": message.message_id,
        "document_id": message.identifies,
        "conversation_id": message.conversation_id,
        "ref_to_message_id": message.ref_to_message_id,
        "agreement": {
            "id": public_id("agr", terms.agreement_id),
            "tpa_id": terms.tpa_id,
            "version": terms.number,
        },
        "pair": {"id": message.pair.public_id, "code": message.pair.code},
        "service": message.service,
        "action": message.action,
        "semantics": str(message.semantics),
        "position": message.position,
        "size": message.size,
        "created_at": message.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "warnings": [{"code": code, "detail": text} for code, text in warnings],
    }


def changeable(message: Message, *, partner: str = "", tpa_id: str = "") -> list[Any]:
    """All of a message's representation that ever changes: what its ETag is made from.

    `partner` and `tpa_id` are names that are known already; otherwise they are read from the loaded relations.
    """
    return [
        str(message.pk),
        str(message.state),
        message.attempts,
        message.copies,
        message.cause,
        message.cause_detail,
        message.sequence_number,
        message.tx_sequence_id,
        message.previous_number,
        message.digest,
        message.first_sent_at,
        message.completed_at,
        message.remind_at,
        message.expires_at,
        partner or message.pair.partner.name,
        tpa_id or message.agreement_version.agreement.tpa_id,
    ]


def detail(message: Message, payloads: list[Any]) -> dict[str, Any]:
    """A message with its payloads, as MessageDetailSerializer shows it."""
    message.listed_payloads = payloads  # type: ignore[attr-defined]
    data: dict[str, Any] = dict(MessageDetailSerializer(message).data)
    return data
