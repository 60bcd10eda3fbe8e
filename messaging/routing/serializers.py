"""Routes: where messages for parties that are not ours go next."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from messaging.api.fields import Flag, IdIn, IdOut, ReasonBody, Text, Whole
from messaging.choices import RouteMode
from messaging.messages.serializers.messages import PartyRef
from messaging.models import Route
from messaging.routing import selectors as routes

_SECONDS = 2_147_483_647
_SERVICE = "Only messages of this service; empty = every service. The most specific route that is enabled applies."


class RouteFields(ReasonBody):
    """The settings of a route; what is absent has its default, or stays."""

    service = Text(max_length=255, required=False, allow_blank=True, trim_whitespace=False, help_text=_SERVICE)
    mode = serializers.ChoiceField(choices=RouteMode.choices, required=False, help_text="`store_forward` unless told.")
    max_hops = Whole(min_value=1, max_value=10, required=False, help_text="What has had as many hops is refused.")
    min_retry_secs = Whole(
        min_value=1,
        max_value=_SECONDS,
        required=False,
        help_text="What the hop before is told to wait while the next hop takes nothing.",
    )


class RouteBody(RouteFields):
    """A new route."""

    name = Text(max_length=120)
    party_context = Text(max_length=120, help_text="Type of the To-party's identifier, e.g. DUNS.")
    party_value = Text(max_length=255, help_text="The To-party's identifier.")
    onward = IdIn("agr", help_text="The agreement with the next hop.")
    enabled = Flag(required=False, help_text="true unless told.")


class RouteChanges(RouteFields):
    """What changes; what is absent stays."""

    name = Text(max_length=120, required=False)
    party_context = Text(max_length=120, required=False)
    party_value = Text(max_length=255, required=False)
    onward = IdIn("agr", required=False)


class OnwardRef(serializers.Serializer):
    """The agreement with the next hop."""

    id = IdOut("agr")
    tpa_id = serializers.CharField()
    partner = PartyRef()


class RouteWarningSerializer(serializers.Serializer):
    """Something that keeps the route from working as one would think."""

    field = serializers.CharField()
    code = serializers.CharField()
    detail = serializers.CharField(source="sentence")


class RouteSerializer(serializers.Serializer):
    """Where messages for a party that is not ours go next."""

    id = IdOut("rt")
    name = serializers.CharField()
    enabled = serializers.BooleanField()
    party_context = serializers.CharField(help_text="Type of the To-party's identifier, e.g. DUNS.")
    party_value = serializers.CharField(help_text="The To-party's identifier.")
    service = serializers.CharField(help_text="Empty = every service.")
    onward = OnwardRef()
    mode = serializers.ChoiceField(choices=RouteMode.choices)
    max_hops = serializers.IntegerField()
    min_retry_secs = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()
    version = serializers.IntegerField(help_text="Counts changes: what If-Match compares.")


class RouteDetailSerializer(RouteSerializer):
    """A route with what is the matter with it."""

    warnings = RouteWarningSerializer(many=True)
    waiting = serializers.IntegerField(
        help_text="Messages that were passed on under the onward agreement and are not delivered yet."
    )


def detail(route: Route) -> tuple[dict[str, Any], dict[str, Any]]:
    """A route as RouteDetailSerializer shows it, and what of it its ETag is made from: not what traffic changes."""
    lasting: dict[str, Any] = dict(RouteSerializer(route).data)
    route.warnings = routes.warnings(route)  # type: ignore[attr-defined]
    route.waiting = routes.waiting(route)  # type: ignore[attr-defined]
    return dict(RouteDetailSerializer(route).data), lasting
