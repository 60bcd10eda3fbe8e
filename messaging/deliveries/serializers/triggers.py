"""Triggers: representation, and the bodies that make and change them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from messaging.api.fields import Flag, IdIn, IdOut, ReasonBody, StrictBody, Text, Whole
from messaging.choices import (
    Consult,
    JoinType,
    ResolverFailure,
    RetryUntil,
    ServiceKind,
    TriggerState,
    WhenExhausted,
)
from messaging.deliveries.selectors.triggers import trigger_rows
from messaging.deliveries.services.triggering import VERBS, allowed_verbs
from messaging.messages.serializers.messages import PartyRef
from messaging.models import Trigger
from messaging.overview.serializers import CauseSerializer

_SECONDS = 2_147_483_647
_SMALL = 32_767
_DOCUMENTS = (
    "Services and actions (`*` for any action) that it wants; empty = all that party and agreement let through."
)
# Members of bodies that are named otherwise in `services.trigger_rules.TriggerValues`.
_IDS = {
    "party": "party_id",
    "agreement": "agreement_id",
    "member_of": "member_of_id",
    "atomic_agreement": "atomic_agreement_id",
}


class DocumentBody(StrictBody):
    """One kind of document that a trigger wants."""

    service = Text(max_length=255)
    action = Text(max_length=255, help_text="`*` for any.")


class TriggerFields(ReasonBody):
    """The settings of a trigger beside its name; what is absent has its default, or stays."""

    party = IdIn("par", required=False, allow_null=True, help_text="Only documents of this partner; null = of any.")
    agreement = IdIn("agr", required=False, allow_null=True, help_text="Only documents under this agreement.")
    documents = serializers.ListField(child=DocumentBody(), required=False, max_length=100, help_text=_DOCUMENTS)
    kind = serializers.ChoiceField(choices=ServiceKind.choices, required=False, help_text="`http` unless told.")
    url = Text(max_length=500, required=False, allow_blank=True, help_text="Kind http: where documents are posted.")
    callable_name = Text(
        max_length=120, required=False, allow_blank=True, help_text="Kind callable: what a Django app registers."
    )
    member_of = IdIn(
        "trg", required=False, allow_null=True, help_text="The atomic trigger whose documents it processes with others."
    )
    atomic_agreement = IdIn(
        "agr",
        required=False,
        allow_null=True,
        help_text="HTTP members: the agreement (profile wsat) under which the application takes part in transactions.",
    )
    timeout = Whole(
        min_value=1,
        max_value=_SECONDS,
        required=False,
        help_text="Seconds that the service has; kind atomic: until all members have voted.",
    )
    answers = Flag(required=False, help_text="Its response is what the partner of a synchronous exchange gets.")
    retry_statuses = serializers.ListField(
        child=Whole(min_value=400, max_value=599),
        required=False,
        max_length=50,
        help_text="HTTP statuses that say: not processed, try again later.",
    )
    detect_duplicates = Flag(required=False, help_text="Look whether a document is new, a duplicate or in doubt.")
    use_history = Flag(required=False, help_text="Go by the document history.")
    history_ttl = Whole(
        min_value=60, max_value=_SECONDS, required=False, help_text="Seconds that a processed document is remembered."
    )
    document_id_path = Text(
        max_length=300,
        required=False,
        allow_blank=True,
        help_text="Where a document holds its own id: an XPath without prefixes, a JSON path from $, or an element of "
        "a segment such as BGM+2. Empty: it goes by the id that its sender gave, else by the MessageId.",
    )
    resolver = serializers.ChoiceField(
        choices=Consult.choices, required=False, help_text="Who is asked when neither count nor history can tell."
    )
    resolver_url = Text(max_length=500, required=False, allow_blank=True)
    resolver_callable = Text(max_length=120, required=False, allow_blank=True)
    resolver_failure = serializers.ChoiceField(
        choices=ResolverFailure.choices, required=False, help_text="What a resolver that cannot answer now leads to."
    )
    retry_until = serializers.ChoiceField(choices=RetryUntil.choices, required=False)
    max_retries = Whole(min_value=0, max_value=_SECONDS, required=False)
    retry_interval = Whole(min_value=0, max_value=_SECONDS, required=False, help_text="Seconds.")
    when_exhausted = serializers.ChoiceField(choices=WhenExhausted.choices, required=False)
    suspend_on_error = Flag(required=False, help_text="Ordered triggers: an error of the service suspends the trigger.")
    concurrency = Whole(min_value=1, max_value=_SMALL, required=False, help_text="Documents at the same time.")
    ordered = Flag(required=False, help_text="In order, pair by pair.")
    lease_seconds = Whole(
        min_value=1, max_value=_SECONDS, required=False, help_text="Pull queue: how long a taken document may take."
    )
    monitor = serializers.ChoiceField(
        choices=Consult.choices, required=False, help_text="Who is asked whether a suspended trigger can go on."
    )
    monitor_url = Text(max_length=500, required=False, allow_blank=True)
    monitor_callable = Text(max_length=120, required=False, allow_blank=True)
    monitor_interval = Whole(min_value=1, max_value=_SECONDS, required=False, help_text="Seconds.")
    join_type = serializers.ChoiceField(
        choices=JoinType.choices, required=False, help_text="Documents of one conversation that belong together."
    )
    join_timeout = Whole(min_value=1, max_value=_SECONDS, required=False, help_text="Seconds.")
    silent_after = Whole(
        min_value=0, max_value=_SECONDS, required=False, help_text="Seconds without a document; 0 = never an incident."
    )


class TriggerBody(TriggerFields):
    """A new trigger."""

    name = Text(max_length=80)


class TriggerChanges(TriggerFields):
    """What changes; what is absent stays. `documents` replaces all of them."""

    name = Text(max_length=80, required=False)


class TriggerRef(serializers.Serializer):
    """A trigger, by id and name."""

    id = IdOut("trg")
    name = serializers.CharField()


class AgreementNamed(serializers.Serializer):
    """An agreement, by id and TPAId."""

    id = IdOut("agr")
    tpa_id = serializers.CharField()


class DocumentSerializer(serializers.Serializer):
    """One kind of document that a trigger wants."""

    service = serializers.CharField()
    action = serializers.CharField()


class BacklogSerializer(serializers.Serializer):
    """What lies with a trigger. Counts stop at 10,000."""

    waiting = serializers.IntegerField()
    running = serializers.IntegerField(help_text="Handed over, or taken.")
    joined = serializers.IntegerField(help_text="Waiting for the other documents of their join.")
    in_doubt = serializers.IntegerField()
    failed = serializers.IntegerField()
    oldest_at = serializers.DateTimeField(allow_null=True, help_text="When the oldest that waits was stored.")


class TriggerDiagnosisSerializer(serializers.Serializer):
    """Why the trigger is as it is, and what happens next."""

    sentence = serializers.CharField(help_text="All of it, for a person.")
    headline = serializers.CharField()
    why = serializers.CharField()
    outlook = serializers.CharField(help_text="What the hub does next by itself.")
    advice = serializers.CharField(help_text="What a person can do.")
    cause = CauseSerializer(allow_null=True)
    next_look_at = serializers.DateTimeField(
        source="next_look", allow_null=True, help_text="When its monitor is asked next."
    )


class TriggerSerializer(serializers.Serializer):
    """A subscription to documents, and the service of an application that they are delivered to. Times are seconds."""

    id = IdOut("trg")
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=TriggerState.choices)
    cause = serializers.CharField(help_text="Why it is suspended: a cause of docs/causes.md.")
    cause_detail = serializers.CharField()
    party = PartyRef(allow_null=True)
    agreement = AgreementNamed(allow_null=True)
    diagnosis = TriggerDiagnosisSerializer()
    backlog = BacklogSerializer()
    documents = DocumentSerializer(many=True, help_text=_DOCUMENTS)
    kind = serializers.ChoiceField(choices=ServiceKind.choices)
    url = serializers.CharField()
    callable_name = serializers.CharField()
    member_of = TriggerRef(allow_null=True, help_text="The atomic trigger that it belongs to.")
    atomic_agreement = AgreementNamed(allow_null=True)
    members = TriggerRef(many=True, help_text="Kind atomic: whose services process a document together, or not at all.")
    timeout = serializers.IntegerField()
    answers = serializers.BooleanField()
    retry_statuses = serializers.ListField(child=serializers.IntegerField())
    detect_duplicates = serializers.BooleanField()
    use_history = serializers.BooleanField()
    history_ttl = serializers.IntegerField()
    document_id_path = serializers.CharField()
    resolver = serializers.ChoiceField(choices=Consult.choices)
    resolver_url = serializers.CharField()
    resolver_callable = serializers.CharField()
    resolver_failure = serializers.ChoiceField(choices=ResolverFailure.choices)
    retry_until = serializers.ChoiceField(choices=RetryUntil.choices)
    max_retries = serializers.IntegerField()
    retry_interval = serializers.IntegerField()
    when_exhausted = serializers.ChoiceField(choices=WhenExhausted.choices)
    suspend_on_error = serializers.BooleanField()
    concurrency = serializers.IntegerField()
    ordered = serializers.BooleanField()
    lease_seconds = serializers.IntegerField()
    monitor = serializers.ChoiceField(choices=Consult.choices)
    monitor_url = serializers.CharField()
    monitor_callable = serializers.CharField()
    monitor_interval = serializers.IntegerField()
    join_type = serializers.ChoiceField(choices=JoinType.choices)
    join_timeout = serializers.IntegerField()
    silent_after = serializers.IntegerField()
    changed_at = serializers.DateTimeField(allow_null=True, help_text="When its state last became what it is.")
    monitor_due_at = serializers.DateTimeField(allow_null=True)
    last_arrival_at = serializers.DateTimeField(allow_null=True, help_text="When a document was last taken up.")
    last_success_at = serializers.DateTimeField(allow_null=True)
    failing_since = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    version = serializers.IntegerField(
        help_text="Counts what people do to it, and suspensions: what If-Match compares."
    )
    allowed_actions = serializers.SerializerMethodField()

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=sorted(VERBS))))
    def get_allowed_actions(self, trigger: Trigger) -> list[str]:
        return list(allowed_verbs(trigger))


class NewTriggerSerializer(TriggerSerializer):
    """A trigger with the secret that signs what is posted to its service."""

    secret = serializers.CharField(help_text="whsec_...: shown this once.")


def represent(found: Iterable[Trigger], now: datetime) -> list[dict[str, Any]]:
    """Triggers that `selectors.triggers` read, as TriggerSerializer shows them. One query for all of them."""
    rows = trigger_rows(found, now)
    for row in rows:
        row.trigger.diagnosis, row.trigger.backlog = row.diagnosis, row.backlog  # type: ignore[attr-defined]
    return [dict(TriggerSerializer(row.trigger).data) for row in rows]


def lasting(data: Mapping[str, Any]) -> dict[str, Any]:
    """What of a representation its ETag is made from: not what traffic and the passing of time change."""
    return {name: value for name, value in data.items() if name not in ("diagnosis", "backlog")}


def settings_of(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a body as the services take them."""
    return {_IDS.get(name, name): value for name, value in values.items()}
