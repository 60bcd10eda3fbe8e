"""Users, sessions and partner groups."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from messaging.access.selectors.people import UserRow
from messaging.api.fields import Flag, IdIn, IdOut, OptionalReasonBody, ReasonBody, Text
from messaging.models import UserSession
from partners.models import PartnerGroup
from rmhub.roles import ORDER

ROLES = tuple(role.value for role in ORDER)


class GroupRef(serializers.Serializer):
    """A partner group."""

    id = serializers.CharField()
    name = serializers.CharField()


class UserSerializer(serializers.Serializer):
    """A person who may use the console and own tokens."""

    username = serializers.CharField()
    full_name = serializers.CharField(allow_blank=True)
    email = serializers.CharField(allow_blank=True)
    role = serializers.ChoiceField(choices=ROLES, allow_null=True, help_text="null: may do nothing.")
    is_active = serializers.BooleanField(help_text="false: switched off; cannot log in, and their tokens are refused.")
    limited = serializers.BooleanField(help_text="Sees only the partners of `groups`.")
    groups = GroupRef(many=True)
    login = serializers.ChoiceField(choices=("invited", "password", "password_and_code", "single_sign_on"))
    created_at = serializers.DateTimeField()
    last_login_at = serializers.DateTimeField(allow_null=True)


class InvitedSerializer(UserSerializer):
    """The person, and the link with which they set a password: once, and shown this once."""

    invitation = serializers.CharField(help_text="Hand it to the person, and to nobody else.")


class UserBody(OptionalReasonBody):
    """A new user, without a password."""

    username = Text(max_length=150, help_text="What they log in with. It stays.")
    role = serializers.ChoiceField(choices=ROLES, allow_null=True, help_text="null: none yet.")
    full_name = Text(max_length=150, required=False, allow_blank=True)
    email = Text(max_length=254, required=False, allow_blank=True)
    limited = Flag(required=False, help_text="Sees only the partners of `groups`.")
    groups = serializers.ListField(child=IdIn("grp"), required=False, max_length=100)


class UserChangeBody(ReasonBody):
    """What is given is changed."""

    role = serializers.ChoiceField(choices=ROLES, allow_null=True, required=False)
    full_name = Text(max_length=150, required=False, allow_blank=True)
    email = Text(max_length=254, required=False, allow_blank=True)
    limited = Flag(required=False)
    groups = serializers.ListField(child=IdIn("grp"), required=False, max_length=100)
    is_active = Flag(required=False, help_text="false: they are out at once, everywhere.")


class SessionSerializer(serializers.ModelSerializer[UserSession]):
    """Where a person is logged in."""

    id = IdOut("ses")
    user = serializers.CharField(source="user.username")
    method = serializers.CharField(help_text="password, totp (password and code), openid; session: not known.")

    class Meta:
        model = UserSession
        fields = ("id", "user", "address", "agent", "method", "created_at", "last_seen_at")


class PartyRef(serializers.Serializer):
    """A partner."""

    id = serializers.CharField()
    name = serializers.CharField()


class PartnerGroupSerializer(serializers.ModelSerializer[PartnerGroup]):
    """Partners that the same people look after."""

    id = IdOut("grp")
    size = serializers.IntegerField(help_text="How many partners it has.")

    class Meta:
        model = PartnerGroup
        fields = ("id", "name", "description", "size", "created_at")


class PartnerGroupDetailSerializer(PartnerGroupSerializer):
    """A group with its partners."""

    partners = serializers.SerializerMethodField()

    class Meta(PartnerGroupSerializer.Meta):
        fields = (*PartnerGroupSerializer.Meta.fields, "partners")  # type: ignore[assignment]

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


def represent(row: UserRow) -> dict[str, Any]:
    """A person as UserSerializer says."""
    user = row.user
    login = "password_and_code" if row.second_factor else "password"
    if row.single_sign_on:
        login = "single_sign_on"
    elif row.invited:
        login = "invited"
    return dict(
        UserSerializer(
            {
                "username": user.get_username(),
                "full_name": user.first_name,
                "email": user.email,
                "role": row.role,
                "is_active": user.is_active,
                "limited": row.limited,
                "groups": [{"id": group.public_id, "name": group.name} for group in row.groups],
                "login": login,
                "created_at": user.date_joined,
                "last_login_at": user.last_login,
            }
        ).data
    )


def changeable(row: UserRow) -> dict[str, Any]:
    """What people change about a person: what the ETag is made from."""
    said = represent(row)
    return {name: value for name, value in said.items() if name not in ("last_login_at", "login")}
