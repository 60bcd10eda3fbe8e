"""Users and where they are logged in."""

from __future__ import annotations

from typing import Any

from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.access.selectors import people
from messaging.access.selectors.people import UserRow
from messaging.access.serializers import people as shapes
from messaging.access.services import second_factor, sessions, users
from messaging.api.authentication import actor_of
from messaging.api.conditional import check_unchanged, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import OptionalReasonBody, ReasonBody, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.console_links import invitation_link

_PATH = {"username": "User name."}
_LIST = ("invalid_cursor", "cursor_mismatch")
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The user.")
USER_FILTERS = (
    Param("q", "Part of the name, the full name or the mail address."),
    Param("role", "Role.", "choice", choices=shapes.ROLES),
    Param("active", "Only those who can log in, or only those who are switched off.", "flag"),
)
SESSION_FILTERS = (Param("user", "User name."),)


class Users(Endpoint):
    """/users"""

    @operation(
        id="users_list",
        tag="users",
        scope="users:manage",
        summary="List users, by name",
        parameters=(*USER_FILTERS, *PAGING),
        responses={200: page_of(shapes.UserSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, USER_FILTERS)
        found = people.users(search=values["q"] or "", role=values["role"] or "", active=values["active"])
        page = keyset.page(found, order=("username",), limit=limit, place=place)
        return listing(request, values, page, lambda rows: [shapes.represent(people.row(row)) for row in rows])

    @sensitive_variables("invitation")
    @operation(
        id="users_create",
        tag="users",
        scope="users:manage",
        summary="Create a user",
        description="Answers an invitation, shown this once: the link with which the person sets a password.",
        request=shapes.UserBody,
        responses={201: shapes.InvitedSerializer},
        headers=(_LOCATION,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.UserBody, request.data)
        made, invitation = users.user_create(actor=actor_of(request), **_with_role(values))
        data = {**shapes.represent(people.user(made.get_username())), "invitation": invitation_link(invitation)}
        return Response(data, status=201, headers={"Location": f"/api/v1/users/{made.get_username()}"})


class OneUser(Endpoint):
    """/users/{username}"""

    @operation(
        id="users_read",
        tag="users",
        scope="users:manage",
        summary="One user",
        path=_PATH,
        responses={200: shapes.UserSerializer},
    )
    def get(self, request: Request, username: str) -> Response:
        read_parameters(request, ())
        return _answer(request, people.user(username))

    @operation(
        id="users_change",
        tag="users",
        scope="users:manage",
        summary="Change a user: role, partners, name, on or off",
        description="It holds from their next request. If-Match is not required; it is honoured when given. One admin "
        "who sees all partners always remains.",
        path=_PATH,
        request=shapes.UserChangeBody,
        responses={200: shapes.UserSerializer},
        problems=("wrong_state", "stale"),
    )
    def patch(self, request: Request, username: str) -> Response:
        read_parameters(request, ())
        values = validated(shapes.UserChangeBody, request.data)
        row = people.user(username)
        check_unchanged(request, shapes.changeable(row))
        users.user_change(user_id=row.user.pk, actor=actor_of(request), **_with_role(values))
        return _answer(request, people.user(username))


class InviteUser(Endpoint):
    """/users/{username}/invite"""

    @sensitive_variables("invitation")
    @operation(
        id="users_invite",
        tag="users",
        scope="users:manage",
        summary="Make a new invitation, e.g. for a forgotten password",
        description="The old password works until the new one is set.",
        path=_PATH,
        request=OptionalReasonBody,
        responses={200: shapes.InvitedSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request, username: str) -> Response:
        read_parameters(request, ())
        values = validated(OptionalReasonBody, request.data)
        row = people.user(username)
        invitation = users.user_invite(user=row.user, actor=actor_of(request), **values)
        return Response({**shapes.represent(row), "invitation": invitation_link(invitation)})


class ResetSecondFactor(Endpoint):
    """/users/{username}/reset-second-factor"""

    @operation(
        id="users_reset_second_factor",
        tag="users",
        scope="users:manage",
        summary="Take away a user's second factor, e.g. when the device is lost",
        path=_PATH,
        request=ReasonBody,
        responses={200: shapes.UserSerializer},
    )
    def post(self, request: Request, username: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        second_factor.second_factor_remove(user=people.user(username).user, actor=actor_of(request), **values)
        return _answer(request, people.user(username))


class EndSessions(Endpoint):
    """/users/{username}/end-sessions"""

    @operation(
        id="users_end_sessions",
        tag="users",
        scope="users:manage",
        summary="End all sessions of a user",
        path=_PATH,
        request=ReasonBody,
        responses={200: shapes.UserSerializer},
    )
    def post(self, request: Request, username: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        sessions.sessions_end(user=people.user(username).user, actor=actor_of(request), **values)
        return _answer(request, people.user(username))


class Sessions(Endpoint):
    """/sessions"""

    @operation(
        id="sessions_list",
        tag="users",
        scope="users:manage",
        summary="Where people are logged in to the console, newest first",
        parameters=(*SESSION_FILTERS, *PAGING),
        responses={200: page_of(shapes.SessionSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, SESSION_FILTERS)
        whose = people.user(values["user"]).user.pk if values["user"] else None
        page = keyset.page(people.sessions(user_id=whose), order=("-id",), limit=limit, place=place)
        return listing(request, values, page, shapes.SessionSerializer)


class OneSession(Endpoint):
    """/sessions/{session}"""

    @operation(
        id="sessions_end",
        tag="users",
        scope="users:manage",
        summary="End a session: whoever has it must log in again",
        path={"session": "Id of the session (`ses_...`)."},
        responses={204: None},
    )
    def delete(self, request: Request, session: str) -> Response:
        read_parameters(request, ())
        sessions.session_end(session_id=id_of("ses", session), actor=actor_of(request))
        return Response(status=204)


def _with_role(values: dict[str, Any]) -> dict[str, Any]:
    if "role" in values:
        values["role"] = values["role"] or ""
    return values


def _answer(request: Request, row: UserRow) -> Response:
    return item(request, shapes.represent(row), digest_of=shapes.changeable(row))
