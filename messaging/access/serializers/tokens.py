"""API tokens: representations and bodies."""

from __future__ import annotations

from rest_framework import serializers

from messaging.api.fields import IdIn, IdOut, Instant, OptionalReasonBody, Text
from rmhub.roles import ADMIN_SCOPES


class TokenBody(OptionalReasonBody):
    """A token for an application."""

    name = Text(max_length=80)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=sorted(ADMIN_SCOPES)), allow_empty=False)
    owner = Text(max_length=150, required=False, help_text="User name; yours if absent.")
    expires_at = Instant(required=False, help_text="90 days from now if absent; at most 366.")
    networks = serializers.ListField(
        child=Text(max_length=50),
        required=False,
        default=list,
        max_length=20,
        help_text="Addresses or networks (CIDR) from which it may be used; empty = from anywhere.",
    )
    groups = serializers.ListField(
        child=IdIn("grp"),
        required=False,
        default=list,
        max_length=50,
        help_text="Partner groups: it sees and does nothing else; empty = whatever its owner may see.",
    )


class TokenGroupSerializer(serializers.Serializer):
    """A partner group that a token is limited to."""

    id = IdOut("grp")
    name = serializers.CharField()


class TokenSerializer(serializers.Serializer):
    """An API token, without its secret."""

    id = IdOut("tok")
    name = serializers.CharField()
    owner = serializers.CharField(source="owner.username")
    scopes = serializers.ListField(child=serializers.CharField())
    networks = serializers.ListField(child=serializers.CharField(), help_text="Empty = usable from anywhere.")
    groups = TokenGroupSerializer(many=True, help_text="Empty = whatever its owner may see.")
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(allow_null=True, help_text="To the minute.")
    revoked_at = serializers.DateTimeField(allow_null=True)


class NewTokenSerializer(TokenSerializer):
    """A new token with its secret."""

    secret = serializers.CharField(help_text="rmh_live_...: shown this once.")
