"""What people set for themselves, and the lists that they saved."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.access.selectors import people
from messaging.access.services import preferences
from messaging.api.authentication import access_of, actor_of
from messaging.api.conditional import IF_MATCH, expected_version, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import Flag, StrictBody, Text, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.models import SavedView

FILTERS = (Param("page", "Only those of this list of the console."),)
_OWN: dict[str, Any] = {"tag": "preferences", "scope": "views:write"}
_PATH = {"view": "Id of the view (`view_...`)."}
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201])
_CONDITIONAL = ("stale", "precondition_required", "invalid_header")


class PreferencesSerializer(serializers.Serializer):
    """How the owner of the token, or of the session, wants the console."""

    zone = serializers.CharField(help_text="`UTC`, `local` (the browser's), or an IANA name.")
    language = serializers.CharField(help_text="`en-gb`, `de` or `fr`; empty: the browser's.")
    shortcuts = serializers.BooleanField(help_text="Whether single-key shortcuts are on.")
    columns = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        read_only=True,
        help_text="List -> names of the columns that are hidden.",
    )


@extend_schema_field(
    {"type": "object", "additionalProperties": {"type": ["array", "null"], "items": {"type": "string"}}}
)
class Columns(serializers.Field):
    """List -> its hidden columns; null: the default."""

    def to_internal_value(self, data: Any) -> dict[str, list[str] | None]:
        if not isinstance(data, dict):
            raise ValidationError("An object: list -> names of its columns, or null.", code="invalid")
        for hidden in data.values():
            if hidden is not None and not (isinstance(hidden, list) and all(isinstance(one, str) for one in hidden)):
                raise ValidationError("Each list has an array of names, or null.", code="invalid")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


class PreferencesBody(StrictBody):
    """What is given is changed."""

    zone = Text(required=False, max_length=64, help_text="`UTC`, `local`, or an IANA name.")
    language = Text(
        required=False, max_length=10, allow_blank=True, help_text="`en-gb`, `de` or `fr`; empty: the browser's."
    )
    shortcuts = Flag(required=False)
    columns = Columns(required=False, help_text="List -> names of the columns to hide; null: the default.")


class SavedViewSerializer(serializers.ModelSerializer):
    """A list with its filters under a name."""

    id = serializers.CharField(source="public_id", help_text="view_...")
    page = serializers.CharField(help_text="Which list of the console.")
    query = serializers.CharField(help_text="The filters, as the query string of the console's list.")
    owner = serializers.CharField(source="owner.username", help_text="User name.")
    shared = serializers.BooleanField(help_text="Whether the team has it.")
    is_default = serializers.BooleanField(help_text="Whether its owner's list opens with it.")

    class Meta:
        model = SavedView
        fields = ("id", "page", "name", "query", "owner", "shared", "is_default", "created_at", "updated_at")


class SavedViewBody(StrictBody):
    """A new view; one's own of the same list and name is replaced."""

    page = Text(max_length=20, help_text="pairs, messages, incidents, deliveries or audit.")
    name = Text(max_length=80)
    query = Text(max_length=2000, allow_blank=True, default="", help_text="Such as `state=failed&partner=par_...`.")
    shared = Flag(default=False, help_text="For the team; needs the scope `views:share`.")
    is_default = Flag(default=False)


class SavedViewChanges(StrictBody):
    """What is given is changed."""

    name = Text(required=False, max_length=80)
    query = Text(required=False, max_length=2000, allow_blank=True)
    shared = Flag(required=False)
    is_default = Flag(required=False, help_text="One's own views only.")


class Preferences(Endpoint):
    """/preferences"""

    @operation(
        id="preferences_read",
        **_OWN,
        summary="Your console preferences",
        description="Of the owner of the token or of the session.",
        responses={200: PreferencesSerializer},
    )
    def get(self, request: Request) -> Response:
        read_parameters(request, ())
        return _preferences(request)

    @operation(
        id="preferences_change",
        **_OWN,
        summary="Change your console preferences",
        description="Nobody else is affected, so it needs neither a reason nor If-Match.",
        request=PreferencesBody,
        responses={200: PreferencesSerializer},
    )
    def patch(self, request: Request) -> Response:
        read_parameters(request, ())
        preferences.preference_update(user=_user(request), **validated(PreferencesBody, request.data))
        return _preferences(request)


class SavedViews(Endpoint):
    """/saved-views"""

    @operation(
        id="saved_views_list",
        **_OWN,
        summary="List saved views: yours and the team's",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(SavedViewSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = people.saved_views(_user(request).pk, page=values["page"] or "")
        page = keyset.page(found, order=("id",), limit=limit, place=place)
        return listing(request, values, page, SavedViewSerializer)

    @operation(
        id="saved_views_create",
        **_OWN,
        summary="Save a list under a name",
        description="Your own view of the same list and name is replaced. `shared` needs the scope `views:share`.",
        request=SavedViewBody,
        responses={201: SavedViewSerializer},
        headers=(_LOCATION,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(SavedViewBody, request.data)
        made = preferences.view_create(
            owner=_user(request), scopes=access_of(request).scopes, actor=actor_of(request), **values
        )
        return _view(request, made, status=201, Location=f"/api/v1/saved-views/{made.public_id}")


class OneSavedView(Endpoint):
    """/saved-views/{view}"""

    @operation(
        id="saved_views_read",
        **_OWN,
        summary="One saved view",
        path=_PATH,
        responses={200: SavedViewSerializer},
    )
    def get(self, request: Request, view: str) -> Response:
        read_parameters(request, ())
        return _view(request, people.saved_view(_user(request).pk, view))

    @operation(
        id="saved_views_change",
        **_OWN,
        summary="Change a saved view",
        description="A view of the team needs the scope `views:share`.",
        path=_PATH,
        request=SavedViewChanges,
        responses={200: SavedViewSerializer},
        problems=_CONDITIONAL,
        headers=(IF_MATCH,),
    )
    def patch(self, request: Request, view: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(SavedViewChanges, request.data)
        preferences.view_update(**_named(request, view), expected=expected, **values)
        return _view(request, people.saved_view(_user(request).pk, view))

    @operation(
        id="saved_views_delete",
        **_OWN,
        summary="Delete a saved view",
        description="A view of the team needs the scope `views:share`.",
        path=_PATH,
        responses={204: None},
        problems=(*_CONDITIONAL, "invalid_submission"),
        headers=(IF_MATCH,),
    )
    def delete(self, request: Request, view: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        preferences.view_delete(**_named(request, view), expected=expected)
        return Response(status=204)


def _named(request: Request, view: str) -> dict[str, Any]:
    """The view, and who changes it, as services take them."""
    user = _user(request)
    known = people.saved_view(user.pk, view)
    return {"view_id": known.pk, "user": user, "scopes": access_of(request).scopes, "actor": actor_of(request)}


def _preferences(request: Request) -> Response:
    preferences = people.preferences_of(_user(request).pk)
    return item(request, dict(PreferencesSerializer(preferences).data))


def _view(request: Request, view: SavedView, *, status: int = 200, **headers: str) -> Response:
    data = dict(SavedViewSerializer(view).data)
    return item(request, data, revision=preferences.revision(view), status=status, **headers)


def _user(request: Request) -> User:
    assert isinstance(request.user, User)
    return request.user
