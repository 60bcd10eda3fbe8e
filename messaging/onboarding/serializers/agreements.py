"""Agreements, their versions, and the columns of partners' logs: representations and bodies."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import IdIn, IdOut, OptionalReasonBody, RowSerializer, StrictBody, Text
from messaging.api.named import EndpointRef, PartyRef
from messaging.api.resource import SettingsBody
from messaging.onboarding.serializers.partners import Described
from partners import selectors
from partners.choices import ServiceDirection, VersionState
from partners.log_columns import COLUMNS, DIGEST_OF, DIRECTION_IS, MAX_NAME, MAX_VALUES, SETTINGS
from partners.models import TERMS, Agreement, AgreementService, AgreementVersion
from partners.services import Level, gives_up_sentence
from partners.validation import problems

# What the API says of the terms: which profile has them, and what is not plain from their names.
_SAID = {
    "partner_window": "Repeatable requests: how long the partner remembers ids. Nothing is repeated past it.",
    "clock_skew": "Repeatable requests: how far in the future a first-instance time may lie.",
    "exchange_mode": "Repeatable requests: what the partner's are answered with.",
    "exchange_identity": "Repeatable requests: which headers identify one.",
    "repeat_interval": "Requests and transactions: first wait.",
    "repeat_interval_max": "Requests and transactions: longest wait.",
    "ordered": "Repeatable requests: one at a time, each after the one before.",
    "max_in_flight": "Repeatable requests that are not ordered, and streams (the window): how many at once.",
    "stream_concurrency": "Streams: requests on the wire at once; 1 for a receiver that rejects messages which "
    "arrive out of order.",
    "resend_schedule": "Streams: waits for an order acknowledgement in seconds, with commas between them; the last "
    "repeats.",
    "order_ack_timeout": "Streams: OrderAckTimeout in milliseconds.",
    "max_order_ack_delay": "Streams: MaximumOrderAckDelay in milliseconds.",
    "time_to_live": "Streams: what is not acknowledged by then is a dead letter; 0 = never.",
    "final_receipt": "Streams: ask whether the partner's application took the document.",
    "final_receipt_within": "Streams: how long that may take.",
    "inbound_quota": "Streams: documents that may wait here; what comes beyond is refused permanently. 0 = no limit.",
    "coordination_version": "Transactions: namespaces of what the hub writes and expects.",
    "addressing_profile": "Transactions: which WS-Addressing headers notifications carry.",
    "addressing_strict": "Transactions: refuse a notification that lacks a header, or carries one too many.",
    "other_servers": "Transactions: servers beside that of the partner's endpoint at which addresses in messages may "
    "lie, with blanks between them, such as `https://txn.example:8443`.",
    "soap_version": "Transactions: what the hub writes; both are read.",
    "acknowledged_within": "Service level: seconds from the acceptance of a document that we send to its "
    "acknowledgement; 0 = no target.",
    "acknowledged_percent": "Service level: how many of a calendar month's documents are to be acknowledged in time.",
    "processed_within": "Service level: seconds until all triggers' services have processed a document that we "
    "receive, or, where final receipts are asked for, until that of a document that we send; 0 = no target.",
    "processed_percent": "Service level: how many of a calendar month's documents are to be processed in time.",
    "note": "What this version changes, and why.",
}


_OUR_COLUMNS = {
    "message_id": "MessageId. Must be there, unless the mapping is empty.",
    "direction": "What the partner did with it: sent or received.",
    "at": "When: ISO 8601, UTC where it has no zone; or seconds (milli-, micro-, nanoseconds) since 1970.",
    "digest": "SHA-256, hexadecimal.",
    "status": "What became of it, in the partner's words.",
    "sequence_number": "Sequence number.",
}
_DIRECTION_IS = "For a log without such a column: all of it was `sent`, or `received`, by the partner."
_DIGEST_OF = "What the partner's digest is of: the message as it was transmitted (`body`), or its first `payload`."
_SENT = "Values of that column for what the partner sent; out, sent and the like if absent."
_RECEIVED = "The same for what the partner received."


class LogColumnsBody(StrictBody):
    """Our column, and the name that it has in the partner's log; empty = the names that our own export has."""

    message_id = Text(max_length=MAX_NAME, required=False, help_text=_OUR_COLUMNS["message_id"])
    direction = Text(max_length=MAX_NAME, required=False, help_text=_OUR_COLUMNS["direction"])
    at = Text(max_length=MAX_NAME, required=False, help_text=_OUR_COLUMNS["at"])
    digest = Text(max_length=MAX_NAME, required=False, help_text=_OUR_COLUMNS["digest"])
    status = Text(max_length=MAX_NAME, required=False, help_text=_OUR_COLUMNS["status"])
    sequence_number = Text(max_length=MAX_NAME, required=False, help_text=_OUR_COLUMNS["sequence_number"])
    direction_is = serializers.ChoiceField(choices=DIRECTION_IS, required=False, help_text=_DIRECTION_IS)
    digest_of = serializers.ChoiceField(choices=DIGEST_OF, required=False, help_text=_DIGEST_OF)
    sent_values = serializers.ListField(
        child=Text(max_length=MAX_NAME), required=False, max_length=MAX_VALUES, help_text=_SENT
    )
    received_values = serializers.ListField(
        child=Text(max_length=MAX_NAME), required=False, max_length=MAX_VALUES, help_text=_RECEIVED
    )


class LogColumnsSerializer(serializers.Serializer):
    """The mapping as it is stored: only what was said."""

    message_id = serializers.CharField(required=False, help_text=_OUR_COLUMNS["message_id"])
    direction = serializers.CharField(required=False, help_text=_OUR_COLUMNS["direction"])
    at = serializers.CharField(required=False, help_text=_OUR_COLUMNS["at"])
    digest = serializers.CharField(required=False, help_text=_OUR_COLUMNS["digest"])
    status = serializers.CharField(required=False, help_text=_OUR_COLUMNS["status"])
    sequence_number = serializers.CharField(required=False, help_text=_OUR_COLUMNS["sequence_number"])
    direction_is = serializers.ChoiceField(choices=DIRECTION_IS, required=False, help_text=_DIRECTION_IS)
    digest_of = serializers.ChoiceField(choices=DIGEST_OF, required=False, help_text=_DIGEST_OF)
    sent_values = serializers.ListField(child=serializers.CharField(), required=False, help_text=_SENT)
    received_values = serializers.ListField(child=serializers.CharField(), required=False, help_text=_RECEIVED)

    def to_representation(self, instance: dict[str, object]) -> dict[str, object]:
        return {name: instance[name] for name in (*COLUMNS, *SETTINGS) if name in instance}


class ServiceBody(StrictBody):
    """A service and action that the agreement allows."""

    service = Text(max_length=255)
    action = Text(max_length=255, required=False, default="*", help_text="* = every action of the service.")
    direction = serializers.ChoiceField(choices=ServiceDirection.choices, required=False, default="both")


class TermsFields(OptionalReasonBody, Described, SettingsBody):
    """The terms of an agreement version; times in whole seconds."""

    said = _SAID

    class Meta:
        model = AgreementVersion
        fields: tuple[str, ...] = ("reason", *TERMS)
        extra_kwargs = {"partner_window": {"min_value": 1}}


class AgreementBody(TermsFields):
    """A new agreement; its terms are those of version 1, a draft."""

    tpa_id = Text(max_length=255)
    name = Text(max_length=120, required=False, allow_blank=True)
    own_party = IdIn("par")
    partner = IdIn("par")
    own_endpoint = IdIn("end")
    partner_endpoint = IdIn("end")
    services = serializers.ListField(child=ServiceBody(), required=False, max_length=500)

    class Meta(TermsFields.Meta):
        fields = (
            *TermsFields.Meta.fields,
            *("tpa_id", "name", "own_party", "partner", "own_endpoint", "partner_endpoint", "services"),
        )


class AgreementChanges(OptionalReasonBody):
    """What changes; what is absent stays. The TPAId is fixed once a version was active."""

    tpa_id = Text(max_length=255, required=False)
    name = Text(max_length=120, required=False, allow_blank=True)
    log_columns = LogColumnsBody(required=False, help_text="Replaces the mapping; {} = the columns of our own export.")


class VersionBody(OptionalReasonBody):
    """A new draft: a copy of the latest version."""

    note = Text(max_length=255, required=False, allow_blank=True, default="")


class VersionChanges(TermsFields):
    """What changes in a draft; what is absent stays. `services` replaces all of them."""

    own_endpoint = IdIn("end", required=False)
    partner_endpoint = IdIn("end", required=False)
    services = serializers.ListField(child=ServiceBody(), required=False, max_length=500)

    class Meta(TermsFields.Meta):
        fields = (*TermsFields.Meta.fields, "own_endpoint", "partner_endpoint", "services")


class ServiceSerializer(RowSerializer):
    """A service and action that the agreement allows."""

    class Meta:
        model = AgreementService
        fields = ("service", "action", "direction")


class VersionSerializer(Described, RowSerializer):
    """The terms of an agreement at one time. Frozen once active."""

    said = {"order_ack_timeout": "Milliseconds.", "max_order_ack_delay": "Milliseconds."}
    own_endpoint = EndpointRef()
    partner_endpoint = EndpointRef()
    services = ServiceSerializer(many=True)
    gives_up = serializers.SerializerMethodField(help_text="What happens to a message that nobody acknowledges.")
    activated_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)

    class Meta:
        model = AgreementVersion
        fields: tuple[str, ...] = (
            *("number", "state", "profile", "own_endpoint", "partner_endpoint", "services"),
            *(name for name in TERMS if name != "profile"),
            *("gives_up", "created_at", "activated_at", "ended_at"),
        )

    def get_gives_up(self, version: AgreementVersion) -> str:
        return gives_up_sentence(version)


class FindingSerializer(serializers.Serializer):
    """Something in a version that contradicts something else."""

    pointer = serializers.CharField()
    code = serializers.CharField()
    detail = serializers.CharField()
    level = serializers.ChoiceField(choices=[level.value for level in Level])


class VersionDetailSerializer(VersionSerializer):
    """A version with what is wrong with it; errors keep it from being activated."""

    problems = FindingSerializer(many=True)

    class Meta(VersionSerializer.Meta):
        fields = (*VersionSerializer.Meta.fields, "problems")


class AgreementSerializer(serializers.Serializer):
    """A trading partner agreement (TPA), with the version that counts."""

    id = IdOut("agr")
    tpa_id = serializers.CharField()
    name = serializers.CharField()
    own_party = PartyRef()
    partner = PartyRef()
    state = serializers.SerializerMethodField(help_text="That of the version that counts.")
    log_columns = LogColumnsSerializer(help_text="How the columns of the partner's log are named, for reconciliation.")
    current = serializers.SerializerMethodField(help_text="The active version, else the disabled one, else the newest.")
    created_at = serializers.DateTimeField()

    @extend_schema_field(serializers.ChoiceField(choices=VersionState.choices))
    def get_state(self, agreement: Agreement) -> str:
        version = selectors.current_version(agreement)
        return version.state if version else ""

    @extend_schema_field(VersionSerializer)
    def get_current(self, agreement: Agreement) -> dict[str, Any]:
        return dict(VersionSerializer(selectors.current_version(agreement)).data)


class AgreementDetailSerializer(AgreementSerializer):
    """A trading partner agreement (TPA), with all its versions."""

    versions = VersionSerializer(many=True, help_text="Newest first.")


def version_detail(version: AgreementVersion) -> dict[str, Any]:
    """A version that `partners.selectors.version` read, as VersionDetailSerializer shows it."""
    version.problems = [  # type: ignore[attr-defined]
        {"pointer": f"#/{found.field}", "code": found.code, "detail": found.sentence, "level": found.level}
        for found in problems(version, rivals=selectors.rivals(version))
    ]
    data: dict[str, Any] = dict(VersionDetailSerializer(version).data)
    return data
