"""Notification rules, and what was told by them."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.api.authentication import actor_of
from messaging.api.conditional import expected_revision, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import OptionalReasonBody, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list, simple_list
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.choices import NotificationState
from messaging.notifications.selectors import notifications as selectors
from messaging.notifications.serializers import notifications as shapes
from messaging.notifications.services import notifying
from messaging.notifications.services import rules as services
from messaging.pairs.api.pairs import IF_MATCH

SCOPE = "notifications:manage"
_PATH = {"rule": "Id of the rule (`rule_...`)."}
_LIST = ("invalid_cursor", "cursor_mismatch")
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


class NotificationRules(Endpoint):
    """/notification-rules"""

    @operation(
        id="notification_rules_list",
        tag="notifications",
        scope=SCOPE,
        summary="List notification rules",
        parameters=PAGING,
        responses={200: page_of(shapes.RuleSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        return simple_list(request, selectors.rules(), shapes.RuleSerializer, order=("name",))

    @operation(
        id="notification_rules_create",
        tag="notifications",
        scope=SCOPE,
        summary="Create a notification rule",
        description="It tells of what happens from now on.",
        request=shapes.RuleBody,
        responses={201: shapes.RuleSerializer},
        headers=(_LOCATION,),
        examples=(_EXAMPLE,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.RuleBody, request.data)
        made = services.rule_create(actor=actor_of(request), **values)
        return _answer(request, made.pk, status=201)


class OneNotificationRule(Endpoint):
    """/notification-rules/{rule}"""

    @operation(
        id="notification_rules_read",
        tag="notifications",
        scope=SCOPE,
        summary="One notification rule",
        path=_PATH,
        responses={200: shapes.RuleSerializer},
    )
    def get(self, request: Request, rule: str) -> Response:
        read_parameters(request, ())
        return _answer(request, id_of("rule", rule))

    @operation(
        id="notification_rules_change",
        tag="notifications",
        scope=SCOPE,
        summary="Change a notification rule",
        path=_PATH,
        request=shapes.RuleChanges,
        responses={200: shapes.RuleSerializer},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, rule: str) -> Response:
        read_parameters(request, ())
        expected = expected_revision(request)
        values = validated(shapes.RuleChanges, request.data)
        rule_id = id_of("rule", rule)
        services.rule_update(rule_id=rule_id, actor=actor_of(request), expected=expected, **values)
        return _answer(request, rule_id)

    @operation(
        id="notification_rules_delete",
        tag="notifications",
        scope=SCOPE,
        summary="Delete a notification rule, with the list of what it has told",
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

    @operation(
        id="notification_rules_test",
        tag="notifications",
        scope=SCOPE,
        summary="Send one notification by a rule now",
        description="Answers what came of it: `state` is sent, or failed with `last_error`. It is not tried again.",
        path=_PATH,
        responses={200: shapes.NotificationSerializer},
    )
    def post(self, request: Request, rule: str) -> Response:
        read_parameters(request, ())
        one = notifying.rule_test(rule_id=id_of("rule", rule), actor=actor_of(request))
        return Response(dict(shapes.NotificationSerializer(one).data))


class Notifications(Endpoint):
    """/notifications"""

    @operation(
        id="notifications_list",
        tag="notifications",
        scope=SCOPE,
        summary="What was told, or is to be told, newest first",
        description="Kept for 90 days.",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(shapes.NotificationSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = selectors.notifications(
            rule_id=values["rule"], incident_id=values["incident"], states=values["state"] or ()
        )
        page = keyset.page(found, order=("-id",), limit=limit, place=place)
        return listing(request, values, page, shapes.NotificationSerializer)


def _answer(request: Request, rule_id: uuid.UUID, *, status: int = 200) -> Response:
    rule = selectors.rule(rule_id)
    headers = {"Location": f"/api/v1/notification-rules/{rule.public_id}"} if status == 201 else {}
    return item(request, shapes.represent(rule), revision=services.revision(rule), status=status, **headers)
