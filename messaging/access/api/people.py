"""Users, where they are logged in, and the groups of partners that they can be limited to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.access.selectors import people
from messaging.access.selectors.people import UserRow
from messaging.access.services import second_factor, sessions, users
from messaging.api.authentication import actor_of
from messaging.api.conditional import check_unchanged, item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import Flag, IdIn, IdOut, OptionalReasonBody, ReasonBody, Text, validated
from messaging.api.handlers import listed, shown
from messaging.api.named import PartyRef
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.console_links import invitation_link
from messaging.models import UserSession
from partners.models import PartnerGroup
from rmhub.roles import ROLES

_MAIL = "Send the invitation to the person's mail address, instead of returning it."
_ROLES = tuple(role.value for role in ROLES)
_MANAGE: dict[str, Any] = {"tag": "users", "scope": "users:manage"}
_PATH = {"username": "User name."}
_GROUP = {"group": "Id of the group (`grp_...`)."}
_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The user.")


class GroupRef(serializers.Serializer):
    """A partner group."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()


class UserSerializer(serializers.Serializer):
    """A person who may use the console and own tokens."""

    username = serializers.CharField(source="user.username")
    full_name = serializers.CharField(source="user.first_name", allow_blank=True)
    email = serializers.CharField(source="user.email", allow_blank=True)
    role = serializers.ChoiceField(choices=_ROLES, allow_null=True, help_text="null: may do nothing.")
    is_active = serializers.BooleanField(
        source="user.is_active", help_text="false: switched off; cannot log in, and their tokens are refused."
    )
    limited = serializers.BooleanField(help_text="Sees only the partners of `groups`.")
    groups = GroupRef(many=True)
    partner = PartyRef(allow_null=True, help_text="Whose portal they see (role `partner`).")
    login = serializers.ChoiceField(choices=("invited", "password", "password_and_code", "single_sign_on"))
    created_at = serializers.DateTimeField(source="user.date_joined")
    last_login_at = serializers.DateTimeField(source="user.last_login", allow_null=True)

    def to_representation(self, instance: UserRow | User) -> dict[str, Any]:
        """Of a `UserRow`, or of a user that `people.users` read."""
        shown: dict[str, Any] = super().to_representation(
            people.row(instance) if isinstance(instance, User) else instance
        )
        return shown


class InvitedSerializer(UserSerializer):
    """The person, and the link with which they set a password: once, and shown this once."""

    invitation = serializers.CharField(
        allow_null=True, help_text="Give it to the person, and to nobody else. null: it was sent by mail."
    )
    mail_error = serializers.CharField(help_text="Why it was not sent by mail, though that was wanted; else empty.")


class UserBody(OptionalReasonBody):
    """A new user, without a password."""

    username = Text(max_length=150, help_text="The log-in name. It cannot be changed.")
    role = serializers.ChoiceField(choices=_ROLES, allow_null=True, help_text="null: none yet.")
    full_name = Text(max_length=150, required=False, allow_blank=True)
    email = Text(max_length=254, required=False, allow_blank=True)
    limited = Flag(required=False, help_text="Sees only the partners of `groups`.")
    groups = serializers.ListField(child=IdIn("grp"), required=False, max_length=100)
    partner = IdIn("par", required=False, help_text="Whose portal they see; for the role `partner`.")
    mail = Flag(required=False, default=False, help_text=_MAIL)


class InviteBody(OptionalReasonBody):
    """A new invitation."""

    mail = Flag(required=False, default=False, help_text=_MAIL)


class UserChangeBody(ReasonBody):
    """What is given is changed."""

    role = serializers.ChoiceField(choices=_ROLES, allow_null=True, required=False)
    full_name = Text(max_length=150, required=False, allow_blank=True)
    email = Text(max_length=254, required=False, allow_blank=True)
    limited = Flag(required=False)
    groups = serializers.ListField(child=IdIn("grp"), required=False, max_length=100)
    partner = IdIn("par", required=False, help_text="Whose portal they see; for the role `partner`.")
    is_active = Flag(required=False, help_text="false: they are logged out at once, everywhere.")


class SessionSerializer(serializers.ModelSerializer[UserSession]):
    """Where a person is logged in."""

    id = IdOut("ses")
    user = serializers.CharField(source="user.username")
    method = serializers.CharField(help_text="password, totp (password and code), openid; session: not known.")

    class Meta:
        model = UserSession
        fields = ("id", "user", "address", "agent", "method", "created_at", "last_seen_at")


class PartnerGroupSerializer(serializers.ModelSerializer[PartnerGroup]):
    """Partners that the same people look after."""

    id = IdOut("grp")
    size = serializers.IntegerField(help_text="How many partners it has.")

    class Meta:
        model = PartnerGroup
        fields: tuple[str, ...] = ("id", "name", "description", "size", "created_at")


class PartnerGroupDetailSerializer(PartnerGroupSerializer):
    """A group with its partners."""

    partners = serializers.SerializerMethodField()

    class Meta(PartnerGroupSerializer.Meta):
        fields = (*PartnerGroupSerializer.Meta.fields, "partners")

    def get_partners(self, group: PartnerGroup) -> list[dict[str, str]]:
        return [{"id": party.public_id, "name": party.name} for party in group.partners.all()]


class PartnerGroupBody(OptionalReasonBody):
    """A new group."""

    name = Text(max_length=80)
    description = Text(max_length=255, required=False, allow_blank=True)
    partners = serializers.ListField(child=IdIn("par"), required=False, max_length=5000)


class PartnerGroupChangeBody(ReasonBody):
    """What is given is changed; `partners` are all that it has afterwards."""

    name = Text(max_length=80, required=False)
    description = Text(max_length=255, required=False, allow_blank=True)
    partners = serializers.ListField(child=IdIn("par"), required=False, max_length=5000)


class Users(Endpoint):
    """/users"""

    get = listed(
        lambda q="", role="", active=None: people.users(search=q, role=role, active=active),
        UserSerializer,
        order=("username",),
        filters=(
            Param("q", "Part of the name, the full name or the mail address."),
            Param("role", "Role.", "choice", choices=_ROLES),
            Param("active", "Only those who can log in, or only those who are switched off.", "flag"),
        ),
        id="users_list",
        **_MANAGE,
        summary="List users, by name",
    )

    @sensitive_variables("invitation")
    @operation(
        id="users_create",
        **_MANAGE,
        summary="Create a user",
        description="Returns an invitation, shown only once: the link with which the person sets a password.",
        request=UserBody,
        responses={201: InvitedSerializer},
        headers=(_LOCATION,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(UserBody, request.data)
        mail = values.pop("mail")
        made, invitation = users.user_create(actor=actor_of(request), **_with_role(values))
        data = _represent(people.user(made.get_username())) | _invited(request, made, invitation, mail=mail)
        return Response(data, status=201, headers={"Location": f"/api/v1/users/{made.get_username()}"})


class OneUser(Endpoint):
    """/users/{username}"""

    @operation(
        id="users_read",
        **_MANAGE,
        summary="One user",
        path=_PATH,
        responses={200: UserSerializer},
    )
    def get(self, request: Request, username: str) -> Response:
        read_parameters(request, ())
        return _answer(request, people.user(username))

    @operation(
        id="users_change",
        **_MANAGE,
        summary="Change a user: role, partners, name, on or off",
        description="It takes effect with their next request. If-Match is not required; it is honoured when given. One "
        "admin who sees all partners always remains.",
        path=_PATH,
        request=UserChangeBody,
        responses={200: UserSerializer},
        problems=("wrong_state", "stale"),
    )
    def patch(self, request: Request, username: str) -> Response:
        read_parameters(request, ())
        values = validated(UserChangeBody, request.data)
        row = people.user(username)
        check_unchanged(request, _changeable(row))
        users.user_change(user_id=row.user.pk, actor=actor_of(request), **_with_role(values))
        return _answer(request, people.user(username))


class InviteUser(Endpoint):
    """/users/{username}/invite"""

    @sensitive_variables("invitation")
    @operation(
        id="users_invite",
        **_MANAGE,
        summary="Create a new invitation, e.g. for a forgotten password",
        description="The old password works until the new one is set.",
        path=_PATH,
        request=InviteBody,
        responses={200: InvitedSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request, username: str) -> Response:
        read_parameters(request, ())
        values = validated(InviteBody, request.data)
        row, mail = people.user(username), values.pop("mail")
        invitation = users.user_invite(user=row.user, actor=actor_of(request), **values)
        return Response(_represent(row) | _invited(request, row.user, invitation, mail=mail))


@sensitive_variables("link", "invitation")
def _invited(request: Request, user: User, invitation: users.Invitation, *, mail: bool) -> dict[str, Any]:
    link = invitation_link(invitation)
    error = users.invitation_mail(user=user, link=link, actor=actor_of(request)) if mail else ""
    return {"invitation": None if mail and not error else link, "mail_error": error}


def _verb(id: str, summary: str, act: Callable[..., object]) -> Callable[..., Response]:
    """An action on a user, with a reason; answers the user as they are then."""

    @operation(
        id=id,
        **_MANAGE,
        summary=summary,
        path=_PATH,
        request=ReasonBody,
        responses={200: UserSerializer},
    )
    def post(self: Endpoint, request: Request, username: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        act(user=people.user(username).user, actor=actor_of(request), **values)
        return _answer(request, people.user(username))

    return post


class ResetSecondFactor(Endpoint):
    """/users/{username}/reset-second-factor"""

    post = _verb(
        "users_reset_second_factor",
        "Remove a user's second factor, e.g. when the device is lost",
        second_factor.second_factor_remove,
    )


class EndSessions(Endpoint):
    """/users/{username}/end-sessions"""

    post = _verb("users_end_sessions", "End all sessions of a user", sessions.sessions_end)


def _sessions(user: str = "") -> QuerySet[UserSession]:
    return people.sessions(user_id=people.user(user).user.pk if user else None)


class Sessions(Endpoint):
    """/sessions"""

    get = listed(
        _sessions,
        SessionSerializer,
        order=("-id",),
        filters=(Param("user", "User name."),),
        id="sessions_list",
        **_MANAGE,
        summary="Where people are logged in to the console, newest first",
    )


class OneSession(Endpoint):
    """/sessions/{session}"""

    @operation(
        id="sessions_end",
        **_MANAGE,
        summary="End a session: its user must log in again",
        path={"session": "Id of the session (`ses_...`)."},
        responses={204: None},
    )
    def delete(self, request: Request, session: str) -> Response:
        read_parameters(request, ())
        sessions.session_end(session_id=id_of("ses", session), actor=actor_of(request))
        return Response(status=204)


class PartnerGroups(Endpoint):
    """/partner-groups"""

    get = listed(
        people.groups,
        PartnerGroupSerializer,
        order=("name",),
        id="partner_groups_list",
        **_MANAGE,
        summary="List partner groups, by name",
    )

    @operation(
        id="partner_groups_create",
        **_MANAGE,
        summary="Create a partner group",
        request=PartnerGroupBody,
        responses={201: PartnerGroupDetailSerializer},
        headers=(OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201], description="The group."),),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(PartnerGroupBody, request.data)
        made = users.group_create(actor=actor_of(request), **values)
        data = PartnerGroupDetailSerializer(people.group(made.pk)).data
        return item(request, data, status=201, Location=f"/api/v1/partner-groups/{made.public_id}")


def _group(group: str) -> PartnerGroup:
    return people.group(id_of("grp", group))


class OnePartnerGroup(Endpoint):
    """/partner-groups/{group}"""

    get = shown(
        _group,
        PartnerGroupDetailSerializer,
        id="partner_groups_read",
        **_MANAGE,
        summary="One partner group with its partners",
        path=_GROUP,
    )

    @operation(
        id="partner_groups_change",
        **_MANAGE,
        summary="Change a partner group",
        description="If-Match is not required; it is honoured when given.",
        path=_GROUP,
        request=PartnerGroupChangeBody,
        responses={200: PartnerGroupDetailSerializer},
        problems=("stale",),
    )
    def patch(self, request: Request, group: str) -> Response:
        read_parameters(request, ())
        values = validated(PartnerGroupChangeBody, request.data)
        found = _group(group)
        check_unchanged(request, PartnerGroupDetailSerializer(found).data)
        users.group_change(group_id=found.pk, actor=actor_of(request), **values)
        return item(request, PartnerGroupDetailSerializer(people.group(found.pk)).data)

    @operation(
        id="partner_groups_delete",
        **_MANAGE,
        summary="Delete a partner group that nobody is limited to",
        path=_GROUP,
        request=ReasonBody,
        responses={204: None},
        problems=("wrong_state",),
    )
    def delete(self, request: Request, group: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        users.group_delete(group_id=id_of("grp", group), actor=actor_of(request), **values)
        return Response(status=204)


def _represent(row: UserRow) -> dict[str, Any]:
    return dict(UserSerializer(row).data)


def _changeable(row: UserRow) -> dict[str, Any]:
    """What people change about a person: what the ETag is made from."""
    return {name: value for name, value in _represent(row).items() if name not in ("last_login_at", "login")}


def _with_role(values: dict[str, Any]) -> dict[str, Any]:
    if "role" in values:
        values["role"] = values["role"] or ""
    return values


def _answer(request: Request, row: UserRow) -> Response:
    return item(request, _represent(row), digest_of=_changeable(row))
