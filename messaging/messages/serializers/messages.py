"""Messages and what belongs to them: bodies of submissions, and representations."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import Base64, IdOut, ReasonBody, StrictBody, Text, Whole
from messaging.choices import Direction, MessageState, Outcome, SignalKind, SignalState
from messaging.deliveries.services.deciding import MAX_REMIND, MIN_REMIND, MessageDecision, message_decisions
from messaging.messages.selectors import forwards
from messaging.messages.services.resubmitting import why_not_resubmit
from messaging.messages.services.submitting import MAX_LIFE
from messaging.models import Message
from messaging.overview.serializers import CauseDocumentation, EventSerializer
from messaging.profile import in_stream
from messaging.profiles.wsat import outgoing
from messaging.protocol.envelope import Semantics
from messaging.protocol.messages import RELIABLE, REPEATABLE, STREAM, UNRELIABLE, Happened, State
from messaging.protocol.processing import MAX_DOCUMENT_ID
from partners.choices import Profile
from partners.terms import Terms
from rmhub.ids import public_id

_DOCUMENT_ID = "What its sender calls the document; the MessageId where nothing else was said."


class PayloadBody(StrictBody):
    """A document as it is handed in."""

    content_base64 = Base64(help_text="The document's octets; they reach the partner unchanged.")
    content_type = Text(max_length=255, required=False, default="application/octet-stream")
    filename = Text(max_length=255, required=False, default="", allow_blank=True)
    label = Text(  # type: ignore[assignment]
        max_length=120, required=False, default="Document", help_text="Its name in the Manifest."
    )
    sha256 = serializers.RegexField(
        r"^[0-9a-fA-F]{64}$", required=False, help_text="If given, the octets must have this SHA-256 (hexadecimal)."
    )


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

    payloads = serializers.ListField(child=PayloadBody(), allow_empty=False, max_length=100)


class SubmissionForm(SubmissionFields):
    """The same as a form: one file part `payload` for each document, with its content type and file name."""

    time_to_live = serializers.IntegerField(  # type: ignore[assignment]
        min_value=1, max_value=MAX_LIFE, required=False, help_text="As in JSON."
    )
    payload = serializers.ListField(child=serializers.FileField(allow_empty_file=True), min_length=1, max_length=100)
    label = serializers.ListField(  # type: ignore[assignment]
        child=serializers.CharField(max_length=120),
        required=False,
        help_text="Names in the Manifest: as many as there are files, in their order.",
    )


class PairRef(serializers.Serializer):
    """A pair, by id and code."""

    id = IdOut("pair")
    code = serializers.CharField()


class PartyRef(serializers.Serializer):
    """A party, by id and name."""

    id = IdOut("par")
    name = serializers.CharField()


class AgreementRef(serializers.Serializer):
    """The version of an agreement under which a message is handled."""

    id = IdOut("agr", source="agreement_id")
    tpa_id = serializers.CharField(source="agreement.tpa_id")
    version = serializers.IntegerField(source="number")


class PayloadSerializer(serializers.Serializer):
    """A payload of a message; its octets are at /messages/{id}/payloads/{number}."""

    number = serializers.IntegerField()
    content_id = serializers.CharField()
    content_type = serializers.CharField()
    filename = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    size = serializers.IntegerField(help_text="Bytes.")
    sha256 = serializers.CharField()


class MessageSerializer(serializers.Serializer):
    """A message, outbound or inbound."""

    id = IdOut("msg")
    direction = serializers.ChoiceField(choices=Direction.choices)
    state = serializers.ChoiceField(choices=MessageState.choices)
    message_id = serializers.CharField(help_text="MessageId on the wire.")
    document_id = serializers.CharField(source="identifies", help_text=_DOCUMENT_ID)
    conversation_id = serializers.CharField()
    ref_to_message_id = serializers.CharField()
    service = serializers.CharField()
    action = serializers.CharField()
    semantics = serializers.ChoiceField(choices=[value.value for value in Semantics])
    sequence_number = serializers.IntegerField(allow_null=True, help_text="Given when it is first sent.")
    tx_sequence_id = serializers.CharField(
        allow_null=True, help_text="Streams: TxSequenceID, an unsigned 64-bit number in decimal."
    )
    previous_number = serializers.IntegerField(
        allow_null=True, help_text="Streams: PreviousTxSequenceNumber as it was sent, or came, last; 0 = none."
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
    position = serializers.IntegerField(help_text="Its place in the pair's queue.")
    pair = PairRef()
    partner = PartyRef(source="pair.partner")
    agreement = AgreementRef(source="agreement_version")
    size = serializers.IntegerField(help_text="Bytes of the payloads.")
    attempts = serializers.IntegerField(help_text="How often it was put on the wire.")
    copies = serializers.IntegerField(help_text="Inbound: repeats that were discarded.")
    cause = serializers.CharField(help_text="Why it is not delivered, as a stable code.")
    cause_documentation = CauseDocumentation()
    cause_detail = serializers.CharField()
    remind_at = serializers.DateTimeField(allow_null=True, help_text="In doubt: asked to be shown again then.")
    sha256 = serializers.CharField(source="digest", help_text="Of its octets on the wire; empty before they are made.")
    created_at = serializers.DateTimeField()
    first_sent_at = serializers.DateTimeField(allow_null=True)
    completed_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Outbound. Repeatable profile: when the partner may have forgotten its id. Streams: end of its life.",
    )
    submitted_by = serializers.CharField()
    allowed_actions = serializers.SerializerMethodField()

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=["cancel", "settle", "resubmit"])))
    def get_allowed_actions(self, message: Message) -> list[str]:
        found = ["cancel"] if cancellable(message) else []
        if message_decisions(message):
            found.append("settle")
        return found if why_not_resubmit(message) else [*found, "resubmit"]


class TransmissionSerializer(serializers.Serializer):
    """One attempt to put a message on the wire."""

    id = IdOut("att")
    number = serializers.IntegerField()
    address = serializers.CharField()
    outcome = serializers.ChoiceField(choices=Outcome.choices)
    http_status = serializers.IntegerField(allow_null=True)
    cause = serializers.CharField()
    cause_documentation = CauseDocumentation()
    detail = serializers.CharField()
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)


class SignalSerializer(serializers.Serializer):
    """An acknowledgement or error message about a message; its octets are at /signals/{id}/wire."""

    id = IdOut("sig")
    direction = serializers.ChoiceField(choices=Direction.choices)
    kind = serializers.ChoiceField(choices=SignalKind.choices)
    state = serializers.ChoiceField(choices=SignalState.choices)
    message_id = serializers.CharField()
    ref_to_message_id = serializers.CharField()
    error_code = serializers.CharField()
    error_severity = serializers.CharField()
    error_description = serializers.CharField()
    min_retry_secs = serializers.IntegerField(allow_null=True)
    note = serializers.CharField()
    sends = serializers.IntegerField(help_text="Ours: how often the partner has taken it.")
    created_at = serializers.DateTimeField()
    last_sent_at = serializers.DateTimeField(allow_null=True)


class MessageDetailSerializer(MessageSerializer):
    """A message with its payloads."""

    payloads = PayloadSerializer(many=True, source="listed_payloads")
    deliveries = serializers.SerializerMethodField(
        help_text="Inbound: where its deliveries to applications are listed."
    )

    forwarded_to = serializers.SerializerMethodField(
        help_text="Inbound, router: ids of the messages that pass it on to the next hop, newest first."
    )

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_forwarded_to(self, message: Message) -> list[str]:
        return [one.public_id for one in forwards.journey(message).went] if message.direction == Direction.IN else []

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_deliveries(self, message: Message) -> str | None:
        return f"/api/v1/deliveries?message={message.public_id}" if message.direction == Direction.IN else None


class MessageIncludingSerializer(MessageDetailSerializer):
    """A message with its payloads, and with what `include` asked for (documentation: the view adds it)."""

    transmissions = TransmissionSerializer(many=True, required=False, help_text="With `include=transmissions`.")
    signals = SignalSerializer(many=True, required=False, help_text="With `include=signals`.")
    events = EventSerializer(many=True, required=False, help_text="With `include=events`.")


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


class WarningSerializer(serializers.Serializer):
    """Something that a submitter should know although the message is accepted."""

    code = serializers.CharField()
    detail = serializers.CharField()


class ReceiptSerializer(serializers.Serializer):
    """What was accepted. It never changes, so that a replay under the same Idempotency-Key answers the same."""

    id = IdOut("msg")
    state = serializers.ChoiceField(choices=[MessageState.QUEUED.value], help_text="As it was accepted.")
    message_id = serializers.CharField()
    document_id = serializers.CharField(source="identifies", help_text=_DOCUMENT_ID)
    conversation_id = serializers.CharField()
    ref_to_message_id = serializers.CharField()
    agreement = AgreementRef(source="agreement_version")
    pair = PairRef()
    service = serializers.CharField()
    action = serializers.CharField()
    semantics = serializers.ChoiceField(choices=[value.value for value in Semantics])
    position = serializers.IntegerField(help_text="Its place in the pair's queue.")
    size = serializers.IntegerField(help_text="Bytes of the payloads.")
    created_at = serializers.DateTimeField()
    warnings = WarningSerializer(many=True, help_text="As of the moment of acceptance; a replay has none.")


def cancellable(message: Message) -> bool:
    """Whether the message's state takes `cancel`; the pair's may still refuse it, while an attempt is on the wire."""
    if message.direction != Direction.OUT:
        return False
    if message.agreement_version.profile == Profile.WSAT:
        # Nobody takes back what is on the wire, although an answer may end it there.
        return message.state in outgoing.CANCELLABLE
    if message.agreement_version.profile == Profile.REPEATABLE:
        table = REPEATABLE
    elif in_stream(message):
        table = STREAM
    else:
        table = RELIABLE if message.semantics == Semantics.ONCE_AND_ONLY_ONCE else UNRELIABLE
    return Happened.CANCELLED in table.get(State(message.state), {})


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
