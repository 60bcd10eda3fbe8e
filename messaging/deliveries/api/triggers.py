"""Triggers and their verbs: representation, bodies, operations."""

from __future__ import annotations

from typing import Any

from django.urls import URLPattern, path
from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import OpenApiExample, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.api.conditional import CONDITIONAL, IF_MATCH
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import IdOut, ReasonBody, RowSerializer, StrictBody, Text, Whole
from messaging.api.named import AgreementNamed, PartyRef, TriggerRef
from messaging.api.reading import Param
from messaging.api.resource import ChangesBody, Operations, SettingsBody
from messaging.choices import ServiceKind, TriggerState
from messaging.deliveries.resource import TRIGGERS, row_of
from messaging.deliveries.selectors.triggers import trigger_rows
from messaging.deliveries.services import triggering
from messaging.deliveries.services.trigger_rules import MAX_DOCUMENTS, MAX_TEXT, SETTINGS
from messaging.models import Trigger
from messaging.overview.serializers import CauseSerializer
from rmhub import clock

_DOCUMENTS = (
    "Services and actions (`*` for any action) that it wants; empty = all that party and agreement let through."
)
_MEMBERS = tuple(name.removesuffix("_id") for name in SETTINGS)
_TRAFFIC = ("diagnosis", "backlog")  # what traffic and the passing of time change: no part of the ETag


class DocumentBody(StrictBody):
    """One kind of document that a trigger wants."""

    service = Text(max_length=MAX_TEXT)
    action = Text(max_length=MAX_TEXT, help_text="`*` for any.")


class TriggerBody(SettingsBody):
    """A new trigger."""

    references = {"party": "par", "agreement": "agr", "member_of": "trg", "atomic_agreement": "agr"}
    documents = serializers.ListField(
        child=DocumentBody(), required=False, max_length=MAX_DOCUMENTS, help_text=_DOCUMENTS
    )

    class Meta:
        model = Trigger
        fields = ("reason", *(name for name in _MEMBERS if name != "name"), "name")
        extra_kwargs = {
            "kind": {"help_text": "`http` if absent."},
            "retry_statuses": {"child": Whole(min_value=400, max_value=599), "max_length": 50},
        }

    def build_relational_field(self, field_name: str, relation_info: Any) -> tuple[Any, dict[str, Any]]:
        """The services take keys."""
        kind, options = super().build_relational_field(field_name, relation_info)
        return kind, {**options, "source": f"{field_name}_id"}


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


class _Triggers(serializers.ListSerializer):
    """Triggers, whose diagnoses are looked up together."""

    def to_representation(self, data: Any) -> list[Any]:
        for row in trigger_rows(data, clock.now()):
            row.trigger.row = row  # type: ignore[attr-defined]
        return super().to_representation(data)


class TriggerSerializer(RowSerializer):
    """A subscription to documents, and the service of an application that they are delivered to. Times are seconds."""

    id = IdOut("trg")
    party = PartyRef(allow_null=True)
    agreement = AgreementNamed(allow_null=True)
    diagnosis = TriggerDiagnosisSerializer(source="row.diagnosis")
    backlog = BacklogSerializer(source="row.backlog")
    documents = DocumentSerializer(many=True, help_text=_DOCUMENTS)
    member_of = TriggerRef(allow_null=True, help_text="The atomic trigger that it belongs to.")
    atomic_agreement = AgreementNamed(allow_null=True)
    members = TriggerRef(many=True, help_text="Kind atomic: whose services process a document together, or not at all.")
    allowed_actions = serializers.SerializerMethodField()

    class Meta:
        model = Trigger
        list_serializer_class = _Triggers
        fields: tuple[str, ...] = (
            *("id", "name", "state", "cause", "cause_detail", "party", "agreement", *_TRAFFIC),
            *_MEMBERS[_MEMBERS.index("documents") : _MEMBERS.index("timeout")],
            "members",
            *_MEMBERS[_MEMBERS.index("timeout") :],
            *("changed_at", "monitor_due_at", "last_arrival_at", "last_success_at", "failing_since", "created_at"),
            *("version", "allowed_actions"),
        )

    def to_representation(self, instance: Any) -> Any:
        row_of(instance)
        return super().to_representation(instance)

    @extend_schema_field(serializers.ListField(child=serializers.ChoiceField(choices=sorted(triggering.VERBS))))
    def get_allowed_actions(self, trigger: Trigger) -> list[str]:
        return list(triggering.allowed_verbs(trigger))


class NewTriggerSerializer(TriggerSerializer):
    """A trigger with the secret that signs what is posted to its service."""

    secret = serializers.CharField(help_text="whsec_...: shown only once, now.")

    class Meta(TriggerSerializer.Meta):
        fields = (*TriggerSerializer.Meta.fields, "secret")


def _detail(trigger: Trigger) -> tuple[Any, Any]:
    data = dict(TriggerSerializer(trigger).data)
    return data, {name: value for name, value in data.items() if name not in _TRAFFIC}


class TriggerOperations(Operations):
    """Triggers have a secret, which is shown when it is made."""

    def urls(self) -> list[URLPattern]:
        api = self

        class RotateSecret(Endpoint):
            """/triggers/{trigger}/rotate-secret"""

            @sensitive_variables()
            @operation(
                id="triggers_rotate_secret",
                tag="triggers",
                scope="triggers:write",
                summary="Give a trigger a new secret",
                description="It is shown once; the old one signs nothing more from now on.",
                path=api.path,
                request=ReasonBody,
                responses={200: NewTriggerSerializer},
                problems=CONDITIONAL,
                headers=(IF_MATCH,),
            )
            def post(self, request: Request, **named: str) -> Response:
                return api.do(request, named, triggering.trigger_rotate_secret, ReasonBody)

        rotate = RotateSecret.as_view()
        return [*super().urls(), path("triggers/<str:trigger>/rotate-secret", rotate, name="trigger-rotate-secret")]

    @sensitive_variables()
    def left(self, request: Request, left: Any, *, status: int = 200) -> Response:
        if isinstance(left, Trigger):
            return super().left(request, left, status=status)
        trigger, secret = left
        answer = super().left(request, trigger, status=status)
        answer.data["secret"] = secret
        answer["Cache-Control"] = "no-store"
        return answer


API = TriggerOperations(
    resource=TRIGGERS,
    shape=TriggerSerializer,
    detailed=TriggerSerializer,
    detail=_detail,
    body=TriggerBody,
    changes=TriggerChanges,
    made=NewTriggerSerializer,
    filters=(
        Param("state", "States, comma separated.", "choices", choices=tuple(TriggerState.values)),
        Param("kind", "http, callable, pull or atomic.", "choice", choices=tuple(ServiceKind.values)),
        Param("party", "Id, name or identifier of a party.", "party"),
        Param("q", "Part of the name, of the URL or of the callable."),
    ),
    sorts={"name": ("name",), "-name": ("-name",), "severity": ("severity", "name")},
    said={
        "list": ("List triggers", ""),
        "create": (
            "Create a trigger",
            "It is active at once, and takes what comes from now on. The secret signs what is posted to its service, "
            "resolver and monitor; it is shown once.",
        ),
        "read": ("One trigger", ""),
        "change": ("Change a trigger's settings", "Documents that came before keep the deliveries that they have."),
    },
    example=OpenApiExample(
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
    ),
)
