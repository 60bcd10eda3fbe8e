"""What people set for themselves, and the lists that they saved."""

from __future__ import annotations

from django.contrib.auth.models import User
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.access.selectors import preferences
from messaging.access.serializers import preferences as shapes
from messaging.access.services import saved_views
from messaging.access.services.preferences import preference_update
from messaging.api.authentication import access_of, actor_of
from messaging.api.conditional import expected_version, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import page_of, validated
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.models import SavedView

SCOPE = "views:write"
FILTERS = (Param("page", "Only those of this list of the console."),)
_PATH = {"view": "Id of the view (`view_...`)."}
_IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, required=True, description="ETag of what you decided upon."
)
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201])
_CONDITIONAL = ("stale", "precondition_required", "invalid_header")


class Preferences(Endpoint):
    """/preferences"""

    @operation(
        id="preferences_read",
        tag="preferences",
        scope=SCOPE,
        summary="How you want the console",
        description="Of the owner of the token or of the session.",
        responses={200: shapes.PreferencesSerializer},
    )
    def get(self, request: Request) -> Response:
        read_parameters(request, ())
        return _preferences(request)

    @operation(
        id="preferences_change",
        tag="preferences",
        scope=SCOPE,
        summary="Change how you want the console",
        description="Nobody else is affected, so it needs neither a reason nor If-Match.",
        request=shapes.PreferencesBody,
        responses={200: shapes.PreferencesSerializer},
    )
    def patch(self, request: Request) -> Response:
        read_parameters(request, ())
        preference_update(user=_user(request), **validated(shapes.PreferencesBody, request.data))
        return _preferences(request)


class SavedViews(Endpoint):
    """/saved-views"""

    @operation(
        id="saved_views_list",
        tag="preferences",
        scope=SCOPE,
        summary="List saved views: yours and the team's",
        parameters=(*FILTERS, *PAGING),
        responses={200: page_of(shapes.SavedViewSerializer)},
        problems=("invalid_cursor", "cursor_mismatch"),
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, FILTERS)
        found = preferences.saved_views(_user(request).pk, page=values["page"] or "")
        page = keyset.page(found, order=("id",), limit=limit, place=place)
        return listing(request, values, page, shapes.SavedViewSerializer)

    @operation(
        id="saved_views_create",
        tag="preferences",
        scope=SCOPE,
        summary="Save a list under a name",
        description="Your own view of the same list and name is replaced. `shared` needs the scope `views:share`.",
        request=shapes.SavedViewBody,
        responses={201: shapes.SavedViewSerializer},
        headers=(_LOCATION,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.SavedViewBody, request.data)
        made = saved_views.view_create(
            owner=_user(request), scopes=access_of(request).scopes, actor=actor_of(request), **values
        )
        return _view(request, made, status=201, Location=f"/api/v1/saved-views/{made.public_id}")


class OneSavedView(Endpoint):
    """/saved-views/{view}"""

    @operation(
        id="saved_views_read",
        tag="preferences",
        scope=SCOPE,
        summary="One saved view",
        path=_PATH,
        responses={200: shapes.SavedViewSerializer},
    )
    def get(self, request: Request, view: str) -> Response:
        read_parameters(request, ())
        return _view(request, preferences.saved_view(_user(request).pk, view))

    @operation(
        id="saved_views_change",
        tag="preferences",
        scope=SCOPE,
        summary="Change a saved view",
        description="A view of the team needs the scope `views:share`.",
        path=_PATH,
        request=shapes.SavedViewChanges,
        responses={200: shapes.SavedViewSerializer},
        problems=_CONDITIONAL,
        headers=(_IF_MATCH,),
    )
    def patch(self, request: Request, view: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        values = validated(shapes.SavedViewChanges, request.data)
        user = _user(request)
        saved_views.view_update(
            view_id=preferences.saved_view(user.pk, view).pk,
            user=user,
            scopes=access_of(request).scopes,
            actor=actor_of(request),
            expected=expected,
            **values,
        )
        return _view(request, preferences.saved_view(user.pk, view))

    @operation(
        id="saved_views_delete",
        tag="preferences",
        scope=SCOPE,
        summary="Delete a saved view",
        description="A view of the team needs the scope `views:share`.",
        path=_PATH,
        responses={204: None},
        problems=(*_CONDITIONAL, "invalid_submission"),
        headers=(_IF_MATCH,),
    )
    def delete(self, request: Request, view: str) -> Response:
        read_parameters(request, ())
        expected = expected_version(request)
        user = _user(request)
        saved_views.view_delete(
            view_id=preferences.saved_view(user.pk, view).pk,
            user=user,
            scopes=access_of(request).scopes,
            actor=actor_of(request),
            expected=expected,
        )
        return Response(status=204)


def _preferences(request: Request) -> Response:
    wishes = preferences.wishes_of(_user(request).pk)
    return item(request, dict(shapes.PreferencesSerializer(wishes).data))


def _view(request: Request, view: SavedView, *, status: int = 200, **headers: str) -> Response:
    data = dict(shapes.SavedViewSerializer(view).data)
    return item(request, data, revision=saved_views.revision(view), status=status, **headers)


def _user(request: Request) -> User:
    assert isinstance(request.user, User)
    return request.user
