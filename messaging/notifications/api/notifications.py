"""Notification rules, and what was told by them."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import IF_MATCH, expected_revision, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import Flag, IdIn, IdOut, OptionalReasonBody, Text, Whole, page_of, validated
from messaging.api.named import NotificationRuleRef, NotifiedGroup, WebhookRef
from messaging.api.pagination import PAGING, listing, read_list, simple_list
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.choices import NotificationChannel, NotificationState, Severity
from messaging.notifications import selectors
from messaging.notifications.services import notifying
from messaging.notifications.services import rules as services
from messaging.notifications.services.rules import CAUSES_MOST, NOTIFIABLE, RECIPIENTS_MOST, WINDOW_MOST

_LIST = ("invalid_cursor", "cursor_mismatch")
_operation = partial(operation, tag="notifications", scope="notifications:manage")
_PATH = {"rule": "Id of the rule (`rule_...`)."}
_CONDITIONAL = ("stale", "precondition_required", "invalid_header")
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The rule.")
FILTERS = (
    Param("rule", "Id of a rule.", "id", prefix="rule"),
    Param("incident", "Id of an incident (`inc_...`).", "id", prefix="inc"),
    Param("state", "States, comma separated.", "choices", choices=tuple(NotificationState.values)),
)
_EXAMPLE = OpenApiExample(
    "Those on call hear of every incident, once an hour at most",
    value={
        "name": "On call",
        "events": ["incident.opened", "incident.resolved"],
        "channel": "mail",
        "recipients": ["oncall@example.com"],
        "window": 3600,
    },
    request_only=True,
)


class TimeOfDay(serializers.TimeField):
    """A time of the day, HH:MM."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(format="%H:%M", input_formats=["%H:%M"], **kwargs)


class RuleBody(OptionalReasonBody):
    """A new rule."""

    enabled = Flag(required=False, help_text="true if absent.")
    causes = serializers.ListField(
        child=Text(max_length=60), required=False, max_length=CAUSES_MOST, help_text="Codes of causes; empty = all."
    )
    group = IdIn("grp", required=False, allow_null=True, help_text="Only the partners of this group; null = all.")
    recipients = serializers.ListField(
        child=Text(max_length=254), required=False, max_length=RECIPIENTS_MOST, help_text="For mail: addresses."
    )
    endpoint = IdIn("whe", required=False, allow_null=True, help_text="For webhook: the endpoint that is notified.")
    window = Whole(
        required=False,
        min_value=0,
        max_value=WINDOW_MOST,
        help_text="Seconds within which the same event again is counted and not reported; 0 = every event is reported.",
    )
    least = serializers.ChoiceField(
        choices=Severity.choices, required=False, help_text="What is less bad is not reported; info = everything."
    )
    quiet_from = TimeOfDay(
        required=False, allow_null=True, help_text="From then to quiet_to only what is critical is sent; null = always."
    )
    quiet_to = TimeOfDay(required=False, allow_null=True, help_text="What waited is sent then.")
    quiet_zone = Text(max_length=64, required=False, help_text="Time zone of the quiet hours; UTC if absent.")
    escalate_after = Whole(
        required=False,
        min_value=0,
        max_value=WINDOW_MOST,
        help_text="Seconds after which an incident that nobody has acknowledged is notified by escalate_to; 0 = never.",
    )
    escalate_to = IdIn("rule", required=False, allow_null=True, help_text="The rule that notifies it then.")
    secret = Text(
        max_length=500,
        required=False,
        write_only=True,
        help_text="Slack, Teams: the address of the incoming webhook. PagerDuty, Opsgenie: the integration's key.",
    )
    address = Text(
        max_length=500,
        required=False,
        allow_blank=True,
        help_text="PagerDuty and Opsgenie: another address than the usual one, such as https://api.eu.opsgenie.com.",
    )
    name = Text(max_length=80)
    events = serializers.ListField(child=serializers.ChoiceField(choices=NOTIFIABLE), allow_empty=False)
    channel = serializers.ChoiceField(choices=NotificationChannel.choices)


class RuleChanges(RuleBody):
    """What changes; what is absent stays."""

    def get_fields(self) -> Any:
        fields = super().get_fields()
        for field in fields.values():
            field.required = False
        return fields


class RuleSerializer(serializers.Serializer):
    """Who is notified of what."""

    id = IdOut("rule")
    name = serializers.CharField()
    enabled = serializers.BooleanField()
    events = serializers.ListField(child=serializers.CharField())
    causes = serializers.ListField(child=serializers.CharField(), help_text="Empty = all.")
    group = NotifiedGroup(allow_null=True)
    channel = serializers.ChoiceField(choices=NotificationChannel.choices)
    recipients = serializers.ListField(child=serializers.CharField())
    endpoint = WebhookRef(allow_null=True)
    window = serializers.IntegerField(help_text="Seconds.")
    least = serializers.ChoiceField(choices=Severity.choices)
    quiet_from = TimeOfDay(allow_null=True)
    quiet_to = TimeOfDay(allow_null=True)
    quiet_zone = serializers.CharField()
    escalate_after = serializers.IntegerField(help_text="Seconds.")
    escalate_to = NotificationRuleRef(allow_null=True)
    address = serializers.CharField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class IncidentRef(serializers.Serializer):
    """An incident, by id and number."""

    id = IdOut("inc")
    number = serializers.IntegerField()


class NotificationSerializer(serializers.Serializer):
    """One message to people."""

    id = IdOut("note")
    rule = NotificationRuleRef()
    incident = IncidentRef(allow_null=True)
    state = serializers.ChoiceField(choices=NotificationState.choices)
    subject = serializers.CharField()
    body = serializers.CharField()
    event = serializers.DictField(source="data", help_text="What a webhook endpoint gets.")
    folded = serializers.IntegerField(help_text="How many more occurrences it stands for.")
    attempts = serializers.IntegerField()
    due_at = serializers.DateTimeField(allow_null=True, help_text="When it is tried (again).")
    last_error = serializers.CharField()
    created_at = serializers.DateTimeField()
    sent_at = serializers.DateTimeField(allow_null=True)


class NotificationRules(Endpoint):
    """/notification-rules"""

    @_operation(
        id="notification_rules_list",
        summary="List notification rules",
        parameters=PAGING,
        responses={200: page_of(RuleSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        return simple_list(request, selectors.rules(), RuleSerializer, order=("name",))

    @_operation(
        id="notification_rules_create",
        summary="Create a notification rule",
        description="It reports what happens from now on.",
        request=RuleBody,
        responses={201: RuleSerializer},
        headers=(_LOCATION,),
        examples=(_EXAMPLE,),
    )
    @sensitive_variables()
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(RuleBody, request.data)
        made = services.rule_create(actor=actor_of(request), **values)
        return _answer(request, made.pk, status=201)


class OneNotificationRule(Endpoint):
    """/notification-rules/{rule}"""

    @_operation(
        id="notification_rules_read",
        summary="One notification rule",
        path=_PATH,
        responses={200: RuleSerializer},
    )
    def get(self, request: Request, rule: str) -> Response:
        read_parameters(request, ())
        return _answer(request, id_of("rule", rule))

    @_operation(
        id="notification_rules_change",
        summary="Change a notification rule",
        path=_PATH,
        request=RuleChanges,
        responses={200: RuleSerializer},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    @sensitive_variables()
    def patch(self, request: Request, rule: str) -> Response:
        read_parameters(request, ())
        expected = expected_revision(request)
        values = validated(RuleChanges, request.data)
        rule_id = id_of("rule", rule)
        services.rule_update(rule_id=rule_id, actor=actor_of(request), expected=expected, **values)
        return _answer(request, rule_id)

    @_operation(
        id="notification_rules_delete",
        summary="Delete a notification rule, with its notifications",
        path=_PATH,
        request=OptionalReasonBody,
        responses={204: None},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def delete(self, request: Request, rule: str) -> Response:
        read_parameters(request, ())
        expected = expected_revision(request)
        values = validated(OptionalReasonBody, request.data)
        services.rule_delete(rule_id=id_of("rule", rule), actor=actor_of(request), expected=expected, **values)
        return Response(status=204)


class TestNotificationRule(Endpoint):
    """/notification-rules/{rule}/test"""

    __test__ = False  # for pytest, which takes its name for a test's

    @_operation(
        id="notification_rules_test",
        summary="Send one notification by a rule now",
        description="Returns the result: `state` is sent, or failed with `last_error`. It is not tried again.",
        path=_PATH,
        responses={200: NotificationSerializer},
    )
    def post(self, request: Request, rule: str) -> Response:
        read_parameters(request, ())
        one = notifying.rule_test(rule_id=id_of("rule", rule), actor=actor_of(request))
        return Response(dict(NotificationSerializer(one).data))


class Notifications(Endpoint):
    """/notifications"""

    @_operation(
        id="notifications_list",
        summary="Notifications, sent and waiting, newest first",
        description="Kept for 90 days.",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(NotificationSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = selectors.notifications(
            rule_id=values["rule"], incident_id=values["incident"], states=values["state"] or ()
        )
        page = keyset.page(found, order=("-id",), limit=limit, place=place)
        return listing(request, values, page, NotificationSerializer)


def _answer(request: Request, rule_id: uuid.UUID, *, status: int = 200) -> Response:
    rule = selectors.rule(rule_id)
    headers = {"Location": f"/api/v1/notification-rules/{rule.public_id}"} if status == 201 else {}
    return item(request, dict(RuleSerializer(rule).data), revision=services.revision(rule), status=status, **headers)
