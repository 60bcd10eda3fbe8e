"""Routes in the API: what a route is there, and what is said of the operations."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers

from messaging.api.fields import IdOut, RowSerializer
from messaging.api.named import PartyRef
from messaging.api.reading import Param
from messaging.api.resource import ChangesBody, Operations, SettingsBody
from messaging.models import Route
from messaging.routing import selectors
from messaging.routing.resource import ROUTES as RESOURCE
from messaging.routing.services.routes import SETTINGS


class RouteBody(SettingsBody):
    """A new route."""

    references = {"onward": "agr"}

    class Meta:
        model = Route
        fields = ("reason", *SETTINGS, "enabled")


class RouteChanges(ChangesBody):
    """What changes; what is absent stays."""

    references = RouteBody.references

    class Meta:
        model = Route
        fields = ("reason", *SETTINGS)


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


class RouteSerializer(RowSerializer):
    """Where messages for a party that is not ours go next."""

    id = IdOut("rt")
    onward = OnwardRef()

    class Meta:
        model = Route
        fields: tuple[str, ...] = ("id", *SETTINGS, "enabled", "created_at", "updated_at", "version")


class RouteDetailSerializer(RouteSerializer):
    """A route with what is the matter with it."""

    warnings = RouteWarningSerializer(many=True)
    waiting = serializers.IntegerField(
        help_text="Messages that were passed on under the onward agreement and are not delivered yet."
    )

    class Meta(RouteSerializer.Meta):
        fields = (*RouteSerializer.Meta.fields, "warnings", "waiting")


def _detail(route: Route) -> tuple[Any, Any]:
    lasting = dict(RouteSerializer(route).data)
    route.warnings = selectors.warnings(route)  # type: ignore[attr-defined]
    route.waiting = selectors.waiting(route)  # type: ignore[attr-defined]
    return dict(RouteDetailSerializer(route).data), lasting


ROUTES = Operations(
    resource=RESOURCE,
    shape=RouteSerializer,
    detailed=RouteDetailSerializer,
    detail=_detail,
    body=RouteBody,
    changes=RouteChanges,
    filters=(
        Param("q", "Part of the name, of the To-party or of the service."),
        Param("enabled", "Only routes that are on, or off.", "flag"),
    ),
    said={
        "list": ("List routes", ""),
        "create": (
            "Create a route",
            "It decides about messages that come from now on. `warnings` says what keeps it from working.",
        ),
        "read": ("One route, and its diagnosis", ""),
        "change": ("Change a route", "What was passed on already goes on as it was taken."),
        "delete": (
            "Delete a route",
            "What was passed on already goes on; messages that come are refused, or take a less specific one.",
        ),
    },
    example=OpenApiExample(
        "Everything for one party goes over the next router",
        value={
            "name": "Brick Lane, by the harbour",
            "party_context": "DUNS",
            "party_value": "987654321",
            "onward": "agr_0192f3f2f3e47a5fb0c1d2e3f4a5b6c7",
            "mode": "confirm_through",
            "reason": "go-live",
        },
        request_only=True,
    ),
)
