"""Agreements and their versions: representations and bodies."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import Flag, IdIn, IdOut, OptionalReasonBody, StrictBody, Text, Whole
from messaging.messages.serializers.messages import PartyRef
from messaging.onboarding.serializers.log_columns import LogColumnsBody, LogColumnsSerializer
from messaging.onboarding.serializers.partners import EndpointRef
from partners import selectors
from partners.choices import (
    AddressingProfile,
    CoordinationVersion,
    ExchangeIdentity,
    ExchangeMode,
    Profile,
    Semantics,
    ServiceDirection,
    SoapVersion,
    VersionState,
)
from partners.models import Agreement, AgreementVersion
from partners.services import Level, gives_up_sentence
from partners.validation import problems

_SECONDS = 2_147_483_647


class ServiceBody(StrictBody):
    """A service and action that the agreement allows."""

    service = Text(max_length=255)
    action = Text(max_length=255, required=False, default="*", help_text="* = every action of the service.")
    direction = serializers.ChoiceField(choices=ServiceDirection.choices, required=False, default="both")


class TermsFields(OptionalReasonBody):
    """The terms of an agreement version; times in whole seconds."""

    profile = serializers.ChoiceField(choices=Profile.choices, required=False)
    semantics = serializers.ChoiceField(choices=Semantics.choices, required=False)
    timeout = Whole(min_value=0, max_value=_SECONDS, required=False)
    retries = Whole(min_value=0, max_value=1000, required=False)
    retry_interval = Whole(min_value=0, max_value=_SECONDS, required=False)
    transport_retries = Whole(min_value=0, max_value=32_767, required=False)
    transport_retry_interval = Whole(min_value=0, max_value=_SECONDS, required=False)
    transient_ceiling = Whole(min_value=0, max_value=_SECONDS, required=False)
    detect_repeats = Flag(required=False)
    strict_sequence = Flag(required=False)
    memory_window = Whole(min_value=0, max_value=_SECONDS, required=False)
    max_message_bytes = Whole(min_value=1024, max_value=_SECONDS, required=False)
    write_namespace = Flag(required=False)
    write_padded_numbers = Flag(required=False)
    partner_window = Whole(
        min_value=1,
        max_value=_SECONDS,
        required=False,
        help_text="Repeatable requests: how long the partner remembers ids. Nothing is repeated past it.",
    )
    clock_skew = Whole(
        min_value=0,
        max_value=_SECONDS,
        required=False,
        help_text="Repeatable requests: how far in the future a first-instance time may lie.",
    )
    exchange_mode = serializers.ChoiceField(
        choices=ExchangeMode.choices,
        required=False,
        help_text="Repeatable requests: what the partner's are answered with.",
    )
    exchange_identity = serializers.ChoiceField(
        choices=ExchangeIdentity.choices, required=False, help_text="Repeatable requests: which headers identify one."
    )
    repeat_interval = Whole(
        min_value=1, max_value=_SECONDS, required=False, help_text="Requests and transactions: first wait."
    )
    repeat_interval_max = Whole(
        min_value=1, max_value=_SECONDS, required=False, help_text="Requests and transactions: longest wait."
    )
    ordered = Flag(required=False, help_text="Repeatable requests: one at a time, each after the one before.")
    max_in_flight = Whole(
        min_value=1,
        max_value=256,
        required=False,
        help_text="Repeatable requests that are not ordered, and streams (the window): how many at once.",
    )
    stream_lanes = Whole(
        min_value=1,
        max_value=64,
        required=False,
        help_text="Streams: requests on the wire at once; 1 for a receiver that refuses what overtakes.",
    )
    resend_schedule = Text(
        max_length=255,
        required=False,
        help_text="Streams: waits for an order acknowledgement in seconds, with commas between them; the last repeats.",
    )
    order_ack_timeout = Whole(
        min_value=0, max_value=_SECONDS, required=False, help_text="Streams: OrderAckTimeout in milliseconds."
    )
    max_order_ack_delay = Whole(
        min_value=0, max_value=_SECONDS, required=False, help_text="Streams: MaximumOrderAckDelay in milliseconds."
    )
    time_to_live = Whole(
        min_value=0,
        max_value=_SECONDS,
        required=False,
        help_text="Streams: what is not acknowledged by then is a dead letter; 0 = never.",
    )
    final_receipt = Flag(required=False, help_text="Streams: ask whether the partner's application took the document.")
    final_receipt_within = Whole(
        min_value=0, max_value=_SECONDS, required=False, help_text="Streams: how long that may take."
    )
    inbound_quota = Whole(
        min_value=0,
        max_value=_SECONDS,
        required=False,
        help_text="Streams: documents that may wait here; what comes beyond is refused for good. 0 = no limit.",
    )
    coordination_version = serializers.ChoiceField(
        choices=CoordinationVersion.choices,
        required=False,
        help_text="Transactions: namespaces of what the hub writes and expects.",
    )
    addressing_profile = serializers.ChoiceField(
        choices=AddressingProfile.choices,
        required=False,
        help_text="Transactions: which WS-Addressing headers notifications carry.",
    )
    addressing_strict = Flag(
        required=False, help_text="Transactions: refuse a notification that lacks a header, or carries one too many."
    )
    other_servers = Text(
        max_length=1000,
        required=False,
        allow_blank=True,
        help_text=(
            "Transactions: servers beside that of the partner's endpoint at which addresses in messages may lie, with "
            "blanks between them, such as `https://txn.example:8443`."
        ),
    )
    soap_version = serializers.ChoiceField(
        choices=SoapVersion.choices, required=False, help_text="Transactions: what the hub writes; both are read."
    )
    note = Text(max_length=255, required=False, allow_blank=True, help_text="What this version changes, and why.")


class AgreementBody(TermsFields):
    """A new agreement; its terms are those of version 1, a draft."""

    tpa_id = Text(max_length=255)
    name = Text(max_length=120, required=False, allow_blank=True)
    own_party = IdIn("par")
    partner = IdIn("par")
    own_endpoint = IdIn("end")
    partner_endpoint = IdIn("end")
    services = serializers.ListField(child=ServiceBody(), required=False, max_length=500)


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


class ServiceSerializer(serializers.Serializer):
    """A service and action that the agreement allows."""

    service = serializers.CharField()
    action = serializers.CharField()
    direction = serializers.ChoiceField(choices=ServiceDirection.choices)


class VersionSerializer(serializers.Serializer):
    """The terms of an agreement at one time. Frozen once active."""

    number = serializers.IntegerField()
    state = serializers.ChoiceField(choices=VersionState.choices)
    profile = serializers.ChoiceField(choices=Profile.choices)
    own_endpoint = EndpointRef()
    partner_endpoint = EndpointRef()
    services = ServiceSerializer(many=True)
    semantics = serializers.ChoiceField(choices=Semantics.choices)
    timeout = serializers.IntegerField()
    retries = serializers.IntegerField()
    retry_interval = serializers.IntegerField()
    transport_retries = serializers.IntegerField()
    transport_retry_interval = serializers.IntegerField()
    transient_ceiling = serializers.IntegerField()
    detect_repeats = serializers.BooleanField()
    strict_sequence = serializers.BooleanField()
    memory_window = serializers.IntegerField()
    max_message_bytes = serializers.IntegerField()
    write_namespace = serializers.BooleanField()
    write_padded_numbers = serializers.BooleanField()
    partner_window = serializers.IntegerField()
    clock_skew = serializers.IntegerField()
    exchange_mode = serializers.ChoiceField(choices=ExchangeMode.choices)
    exchange_identity = serializers.ChoiceField(choices=ExchangeIdentity.choices)
    repeat_interval = serializers.IntegerField()
    repeat_interval_max = serializers.IntegerField()
    ordered = serializers.BooleanField()
    max_in_flight = serializers.IntegerField()
    stream_lanes = serializers.IntegerField()
    resend_schedule = serializers.CharField()
    order_ack_timeout = serializers.IntegerField(help_text="Milliseconds.")
    max_order_ack_delay = serializers.IntegerField(help_text="Milliseconds.")
    time_to_live = serializers.IntegerField()
    final_receipt = serializers.BooleanField()
    final_receipt_within = serializers.IntegerField()
    inbound_quota = serializers.IntegerField()
    coordination_version = serializers.ChoiceField(choices=CoordinationVersion.choices)
    addressing_profile = serializers.ChoiceField(choices=AddressingProfile.choices)
    addressing_strict = serializers.BooleanField()
    other_servers = serializers.CharField()
    soap_version = serializers.ChoiceField(choices=SoapVersion.choices)
    note = serializers.CharField()
    gives_up = serializers.SerializerMethodField(help_text="What happens to a message that nobody acknowledges.")
    created_at = serializers.DateTimeField()
    activated_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)

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


class AgreementSerializer(serializers.Serializer):
    """A trading partner agreement (TPA), with the version that counts."""

    id = IdOut("agr")
    tpa_id = serializers.CharField()
    name = serializers.CharField()
    own_party = PartyRef()
    partner = PartyRef()
    state = serializers.SerializerMethodField(help_text="That of the version that counts.")
    log_columns = LogColumnsSerializer(help_text="How the columns of the partner's log are called, for reconciliation.")
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
