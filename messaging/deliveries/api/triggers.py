"""Triggers and their verbs: representation, bodies, operations."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import IF_MATCH, expected_version, item, tag
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import IdOut, ReasonBody, RowSerializer, StrictBody, Text, Whole, page_of, validated
from messaging.api.named import AgreementNamed, PartyRef, TriggerRef
from messaging.api.pagination import PAGING, listing, read_list, sort_parameter
from messaging.api.reading import Param, read_parameters
from messaging.api.resource import ChangesBody, SettingsBody
from messaging.choices import ServiceKind, TriggerState
from messaging.deliveries.resource import TRIGGERS
from messaging.deliveries.selectors import triggers
from messaging.deliveries.selectors.triggers import trigger_rows
from messaging.deliveries.services import triggering
from messaging.deliveries.services.trigger_rules import SETTINGS
from messaging.deliveries.services.triggering import allowed_verbs
from messaging.models import Trigger
from messaging.overview.serializers import CauseSerializer
from messaging.resource import Verb
from rmhub import clock

_PATH = {"trigger": "Id of the trigger (`trg_...`), or its name."}
_CONDITIONAL = ("stale", "precondition_required", "invalid_header")
FILTERS = (
    Param("state", "States, comma separated.", "choices", choices=tuple(TriggerState.values)),
    Param("kind", "http, callable, pull or atomic.", "choice", choices=tuple(ServiceKind.values)),
    Param("party", "Id of a party.", "id", prefix="par"),
    Param("q", "Part of the name, of the URL or of the callable."),
    sort_parameter("name", "-name", "severity"),
)
_ORDERS = {"name": ("name",), "-name": ("-name",), "severity": ("severity", "name")}
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The trigger.")
_EXAMPLE = OpenApiExample(
    "Orders to an application, in order",
    value={
        "name": "ERP orders",
        "documents": [{"service": "urn:orders", "action": "*"}],
        "kind": "http",
        "url": "http://erp.internal:8080/documents",
        "ordered": True,
        "reason": "go-live",
    },
    request_only=True,
)
_REASON = OpenApiExample("With a reason", value={"reason": "The ERP is up again"}, request_only=True)


_SECONDS = 2_147_483_647
_SMALL = 32_767
_DOCUMENTS = (
    "Services and actions (`*` for any action) that it wants; empty = all that party and agreement let through."
)
# Members of bodies that are named otherwise in `services.trigger_rules.TriggerValues`.
_IDS = {name.removesuffix("_id"): name for name in SETTINGS if name.endswith("_id")}
_MEMBERS = tuple(name.removesuffix("_id") for name in SETTINGS)


class DocumentBody(StrictBody):
    """One kind of document that a trigger wants."""

    service = Text(max_length=255)
    action = Text(max_length=255, help_text="`*` for any.")


class TriggerBody(SettingsBody):
    """A new trigger."""

    references = {"party": "par", "agreement": "agr", "member_of": "trg", "atomic_agreement": "agr"}
    documents = serializers.ListField(child=DocumentBody(), required=False, max_length=100, help_text=_DOCUMENTS)
    retry_statuses = serializers.ListField(
        child=Whole(min_value=400, max_value=599),
        required=False,
        max_length=50,
        help_text="HTTP statuses that say: not processed, try again later.",
    )

    class Meta:
        model = Trigger
        fields = ("reason", *(name for name in _MEMBERS if name != "name"), "name")
        # The services say where the bounds are narrower.
        extra_kwargs = {
            "party": {"help_text": "Only documents of this partner; null = of any."},
            "agreement": {"help_text": "Only documents under this agreement."},
            "kind": {"help_text": "`http` if absent."},
            "url": {"help_text": "Kind http: where documents are posted."},
            "callable_name": {"help_text": "Kind callable: what a Django app registers."},
            "member_of": {"help_text": "The atomic trigger whose documents it processes with others."},
            "atomic_agreement": {
                "help_text": "HTTP members: the agreement (profile wsat) under which the application takes part in "
                "transactions."
            },
            "timeout": {"help_text": "Seconds that the service has; kind atomic: until all members have voted."},
            "answers": {"help_text": "Its response is what the partner of a synchronous exchange gets."},
            "detect_duplicates": {"help_text": "Look whether a document is new, a duplicate or in doubt."},
            "use_history": {"help_text": "Use the document history."},
            "history_ttl": {"max_value": _SECONDS, "help_text": "Seconds that a processed document is remembered."},
            "document_id_path": {
                "help_text": "Where a document holds its own id: an XPath without prefixes, a JSON path from $, or an "
                "element of a segment such as BGM+2. Empty: the id that its sender gave is used, else the "
                "MessageId."
            },
            "resolver": {"help_text": "Who is asked when neither count nor history can tell."},
            "resolver_failure": {"help_text": "What a resolver that cannot answer now leads to."},
            "max_retries": {"max_value": _SECONDS},
            "retry_interval": {"help_text": "Seconds."},
            "suspend_on_error": {"help_text": "Ordered triggers: an error of the service suspends the trigger."},
            "concurrency": {"max_value": _SMALL, "help_text": "Documents at the same time."},
            "ordered": {"help_text": "In order, pair by pair."},
            "lease_seconds": {"min_value": 1, "help_text": "Pull queue: how long a taken document may take."},
            "monitor": {"help_text": "Who is asked whether a suspended trigger can go on."},
            "monitor_interval": {"help_text": "Seconds."},
            "join_type": {"help_text": "Documents of one conversation that belong together."},
            "join_timeout": {"help_text": "Seconds."},
            "silent_after": {"help_text": "Seconds without a document; 0 = never an incident."},
        }

    def build_standard_field(self, field_name: str, model_field: Any) -> tuple[Any, dict[str, Any]]:
        """Label and help of the model speak to who fills in the form on the console."""
        kind, options = super().build_standard_field(field_name, model_field)
        return kind, {name: option for name, option in options.items() if name not in ("label", "help_text")}


class TriggerChanges(TriggerBody, ChangesBody):
    """What changes; what is absent stays. `documents` replaces all of them."""


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
        source="next_at", allow_null=True, help_text="When its monitor is asked next."
    )


class TriggerSerializer(RowSerializer):
    """A subscription to documents, and the service of an application that they are delivered to. Times are seconds."""

    id = IdOut("trg")
    cause = serializers.CharField(help_text="Why it is suspended: a cause of docs/causes.md.")
    party = PartyRef(allow_null=True)
    agreement = AgreementNamed(allow_null=True)
    diagnosis = TriggerDiagnosisSerializer()
    backlog = BacklogSerializer()
    documents = DocumentSerializer(many=True, help_text=_DOCUMENTS)
    member_of = TriggerRef(allow_null=True, help_text="The atomic trigger that it belongs to.")
    atomic_agreement = AgreementNamed(allow_null=True)
    members = TriggerRef(many=True, help_text="Kind atomic: whose services process a document together, or not at all.")
    retry_statuses = serializers.ListField(child=serializers.IntegerField())
    version = serializers.IntegerField(
        help_text="Counts what people do to it, and suspensions: what If-Match compares."
    )
    allowed_actions = serializers.SerializerMethodField()

    class Meta:
        model = Trigger
        fields: tuple[str, ...] = (
            *("id", "name", "state", "cause", "cause_detail", "party", "agreement", "diagnosis", "backlog"),
            *_MEMBERS[_MEMBERS.index("documents") : _MEMBERS.index("timeout")],
            "members",
            *_MEMBERS[_MEMBERS.index("timeout") :],
            *("changed_at", "monitor_due_at", "last_arrival_at", "last_success_at", "failing_since", "created_at"),
            *("version", "allowed_actions"),
        )
        extra_kwargs = {
            name: {"allow_null": True}
            for name in ("changed_at", "monitor_due_at", "last_arrival_at", "last_success_at", "failing_since")
        }

    def build_standard_field(self, field_name: str, model_field: Any) -> tuple[Any, dict[str, Any]]:
        """Settings have their help where they are set."""
        kind, options = super().build_standard_field(field_name, model_field)
        if field_name in SETTINGS:
            options.pop("help_text", None)
        return kind, options

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=sorted(triggering.VERBS))))
    def get_allowed_actions(self, trigger: Trigger) -> list[str]:
        return list(allowed_verbs(trigger))


class NewTriggerSerializer(TriggerSerializer):
    """A trigger with the secret that signs what is posted to its service."""

    secret = serializers.CharField(help_text="whsec_...: shown only once, now.")

    class Meta(TriggerSerializer.Meta):
        fields = (*TriggerSerializer.Meta.fields, "secret")


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


class Triggers(Endpoint):
    """/triggers"""

    @operation(
        id="triggers_list",
        tag="triggers",
        scope="triggers:read",
        summary="List triggers",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(TriggerSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = triggers.triggers(
            states=values["state"] or (),
            kind=values["kind"] or "",
            party_id=values["party"],
            search=values["q"] or "",
        )
        page = keyset.page(found, order=_ORDERS[values["sort"]], limit=limit, place=place)
        now = clock.now()
        return listing(request, values, page, lambda rows: represent(rows, now))

    @sensitive_variables("secret")
    @operation(
        id="triggers_create",
        tag="triggers",
        scope="triggers:write",
        summary="Create a trigger",
        description="It is active at once, and takes what comes from now on. The secret signs what is posted to its "
        "service, resolver and monitor; it is shown once.",
        request=TriggerBody,
        responses={201: NewTriggerSerializer},
        headers=(_LOCATION,),
        examples=(_EXAMPLE,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(TriggerBody, request.data)
        made, secret = triggering.trigger_create(actor=actor_of(request), **settings_of(values))
        return _with_secret(made.pk, secret, status=201, Location=f"/api/v1/triggers/{made.public_id}")


class OneTrigger(Endpoint):
    """/triggers/{trigger}"""

    @operation(
        id="triggers_read",
        tag="triggers",
        scope="triggers:read",
        summary="One trigger",
        path=_PATH,
        responses={200: TriggerSerializer},
    )
    def get(self, request: Request, trigger: str) -> Response:
        read_parameters(request, ())
        return _answer(request, triggers.trigger(trigger))

    @operation(
        id="triggers_change",
        tag="triggers",
        scope="triggers:write",
        summary="Change a trigger's settings",
        description="Documents that came before keep the deliveries that they have.",
        path=_PATH,
        request=TriggerChanges,
        responses={200: TriggerSerializer},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, trigger: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(TriggerChanges, request.data)
        found = triggers.trigger(trigger)
        triggering.trigger_update(
            trigger_id=found.pk, actor=actor_of(request), expected_version=expected, **settings_of(values)
        )
        return _answer(request, triggers.trigger(found.pk))


class RotateSecret(Endpoint):
    """/triggers/{trigger}/rotate-secret"""

    @sensitive_variables("secret")
    @operation(
        id="triggers_rotate_secret",
        tag="triggers",
        scope="triggers:write",
        summary="Give a trigger a new secret",
        description="It is shown once; the old one signs nothing more from now on.",
        path=_PATH,
        request=ReasonBody,
        responses={200: NewTriggerSerializer},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def post(self, request: Request, trigger: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(ReasonBody, request.data)
        found = triggers.trigger(trigger)
        _, secret = triggering.trigger_rotate_secret(
            trigger_id=found.pk, actor=actor_of(request), expected_version=expected, **values
        )
        return _with_secret(found.pk, secret, status=200)


def _answer(request: Request, trigger: Trigger) -> Response:
    (data,) = represent([trigger], clock.now())
    return item(request, data, revision=trigger.version, digest_of=lasting(data))


@sensitive_variables("secret")
def _with_secret(trigger_id: uuid.UUID, secret: str, *, status: int, **headers: str) -> Response:
    """No cache keeps it: the endpoint's default says no-store."""
    trigger = triggers.trigger(trigger_id)
    (data,) = represent([trigger], clock.now())
    headers["ETag"] = f'"{tag(lasting(data), trigger.version)}"'
    return Response({**data, "secret": secret}, status=status, headers=headers)


def _verb(verb: Verb) -> type[Endpoint]:
    """The view of one verb."""

    class OfVerb(Endpoint):
        """/triggers/{trigger}/<verb>"""

        @operation(
            id=f"triggers_{verb.slug}",
            tag="triggers",
            scope=TRIGGERS.scope_of(verb.slug),
            summary=verb.summary,
            description="Returns the trigger in its new state, with its new ETag.",
            path=_PATH,
            request=ReasonBody,
            responses={200: TriggerSerializer},
            problems=("wrong_state", *_CONDITIONAL),
            headers=(IF_MATCH,),
            examples=(_REASON,),
        )
        def post(self, request: Request, trigger: str) -> Response:
            read_parameters(request, ())
            expected = expected_version(request)
            values = validated(ReasonBody, request.data)
            found = triggers.trigger(trigger)
            verb.service(trigger_id=found.pk, actor=actor_of(request), expected_version=expected, **values)
            return _answer(request, triggers.trigger(found.pk))

    return OfVerb


VERBS = {slug: _verb(verb) for slug in triggering.VERBS if (verb := TRIGGERS.verb(slug)) is not None}
