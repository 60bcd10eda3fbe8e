"""Credentials of partners, and API tokens: whoever may come in."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist
from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from messaging.access.services import tokens
from messaging.api.authentication import access_of, actor_of
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import IdIn, IdOut, Instant, OptionalReasonBody, ReasonBody, RowSerializer, Text, validated
from messaging.api.handlers import done, listed, shown
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.models import ApiToken
from messaging.onboarding.serializers.partners import CredentialBody, CredentialSerializer, NewCredentialSerializer
from messaging.onboarding.services import changing as onboarding
from messaging.overview.selectors import records
from partners import selectors
from partners.choices import CredentialDirection
from partners.models import Credential
from rmhub.roles import ADMIN_SCOPES

_CREDENTIAL = {"credential_id": "Id of the credential (`cred_...`)."}
_TOKENS: dict[str, Any] = {"tag": "tokens", "scope": "tokens:manage"}
_TOKEN = {"token_id": "Id of the token (`tok_...`)."}


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


class TokenSerializer(RowSerializer):
    """An API token, without its secret."""

    id = IdOut("tok")
    owner = serializers.CharField(source="owner.username")
    scopes = serializers.ListField(child=serializers.CharField())
    networks = serializers.ListField(child=serializers.CharField(), help_text="Empty = usable from anywhere.")
    groups = TokenGroupSerializer(many=True, help_text="Empty = whatever its owner may see.")

    class Meta:
        model = ApiToken
        fields: tuple[str, ...] = (
            *("id", "name", "owner", "scopes", "networks", "groups"),
            *("created_at", "expires_at", "last_used_at", "revoked_at"),
        )
        extra_kwargs = {"last_used_at": {"help_text": "To the minute."}}


class NewTokenSerializer(TokenSerializer):
    """A new token with its secret."""

    secret = serializers.CharField(help_text="rmh_live_...: shown only once, now.")

    class Meta(TokenSerializer.Meta):
        fields = (*TokenSerializer.Meta.fields, "secret")


class Credentials(Endpoint):
    """/credentials"""

    get = listed(
        lambda party=None: selectors.credentials(party_id=party),
        CredentialSerializer,
        order=("-id",),
        filters=(Param("party", "Id, name or identifier of a party.", "party"),),
        id="credentials_list",
        tag="credentials",
        scope="partners:read",
        summary="List credentials, newest first, without secrets",
    )

    @sensitive_variables("values", "secret")
    @operation(
        id="credentials_create",
        tag="credentials",
        scope="partners:write",
        summary="Create a credential",
        description="Inbound: what the partner shows us; the answer holds it, only this time. Outbound: what we show "
        "the partner; `secret` is what they gave us. Others of the same party stay valid, so that one can be replaced.",
        request=CredentialBody,
        responses={201: NewCredentialSerializer},
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(CredentialBody, request.data)
        party_id, direction = values.pop("party"), values.pop("direction")
        if direction == CredentialDirection.INBOUND:
            made, secret = onboarding.credential_issue(party_id=party_id, actor=actor_of(request), **values)
        else:
            values, secret = _outbound(values), ""
            made = onboarding.credential_store_outbound(party_id=party_id, actor=actor_of(request), **values)
        made.secret = secret or None  # type: ignore[attr-defined]
        headers = {"Location": f"/api/v1/credentials/{made.public_id}"}
        return Response(NewCredentialSerializer(made).data, status=201, headers=headers)


def _credential(credential_id: str) -> Credential:
    try:
        return selectors.credential(id_of("cred", credential_id))
    except ObjectDoesNotExist as error:
        raise Problem("not_found", f"There is no credential {credential_id}.") from error


class OneCredential(Endpoint):
    """/credentials/{credential_id}"""

    get = shown(
        _credential,
        CredentialSerializer,
        id="credentials_read",
        tag="credentials",
        scope="partners:read",
        summary="One credential, without its secret",
        path=_CREDENTIAL,
    )


class RevokeCredential(Endpoint):
    """/credentials/{credential_id}/revoke"""

    post = done(
        onboarding.credential_revoke,
        ReasonBody,
        CredentialSerializer,
        ids={"credential_id": "cred"},
        id="credentials_revoke",
        tag="credentials",
        scope="partners:write",
        summary="Revoke a credential, at once and permanently",
        path=_CREDENTIAL,
        problems=("wrong_state",),
    )


class Tokens(Endpoint):
    """/tokens"""

    get = listed(
        records.tokens,
        TokenSerializer,
        order=("-id",),
        filters=(Param("owner", "Exact user name."),),
        id="tokens_list",
        **_TOKENS,
        summary="List API tokens, newest first, without secrets",
    )

    @sensitive_variables("secret")
    @operation(
        id="tokens_create",
        **_TOKENS,
        summary="Create an API token",
        description=(
            "Its scopes are at most those of its owner's role, and at most yours. Made with a token, it is valid from "
            "that token's networks at most, and not longer than that token. The secret is shown once."
        ),
        request=TokenBody,
        responses={201: NewTokenSerializer},
        examples=(
            OpenApiExample(
                "Submits, from one network, and nothing else",
                value={"name": "ERP", "scopes": ["messages:write"], "networks": ["10.1.0.0/16"], "reason": "go-live"},
                request_only=True,
            ),
        ),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(TokenBody, request.data)
        owner = values.pop("owner", None) or request.user
        assert isinstance(owner, str | User)
        access = access_of(request)
        made, secret = tokens.token_create(
            owner=owner, actor=actor_of(request), granted_by=access.scopes, made_with=access.token, **values
        )
        made.secret = secret  # type: ignore[attr-defined]
        headers = {"Location": f"/api/v1/tokens/{made.public_id}"}
        return Response(NewTokenSerializer(made).data, status=201, headers=headers)


class OneToken(Endpoint):
    """/tokens/{token_id}"""

    get = shown(
        records.token,
        TokenSerializer,
        ids={"token_id": "tok"},
        id="tokens_read",
        **_TOKENS,
        summary="One API token, without its secret",
        path=_TOKEN,
    )


class RevokeToken(Endpoint):
    """/tokens/{token_id}/revoke"""

    post = done(
        tokens.token_revoke,
        ReasonBody,
        TokenSerializer,
        ids={"token_id": "tok"},
        id="tokens_revoke",
        **_TOKENS,
        summary="Revoke an API token, at once and permanently",
        path=_TOKEN,
        problems=("wrong_state",),
    )


def _outbound(values: dict[str, Any]) -> dict[str, Any]:
    """What an outbound credential takes; the service refuses a missing secret with a sentence."""
    values.setdefault("secret", "")
    if given := [name for name in ("fingerprint", "certificate") if values.pop(name, "")]:
        raise Problem(
            "invalid_submission",
            errors=[
                {
                    "pointer": f"#/{given[0]}",
                    "code": "invalid",
                    "detail": "Only what a partner shows us is known by it: ours goes into secret, with its key.",
                }
            ],
        )
    return values
