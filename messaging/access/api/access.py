"""Credentials of partners, and API tokens: whoever may come in."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist
from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import OpenApiExample
from rest_framework.request import Request
from rest_framework.response import Response

from messaging import keyset
from messaging.access.serializers import tokens as shapes
from messaging.access.services import tokens
from messaging.api.authentication import access_of, actor_of
from messaging.api.conditional import item
from messaging.api.endpoint import Endpoint, operation
from messaging.api.fields import ReasonBody, page_of, validated
from messaging.api.pagination import PAGING, listing, read_list
from messaging.api.problems import Problem
from messaging.api.reading import Param, read_parameters
from messaging.api.references import id_of
from messaging.onboarding.serializers.partners import CredentialBody, CredentialSerializer, NewCredentialSerializer
from messaging.onboarding.services import changing as onboarding
from messaging.overview.selectors import records
from partners import selectors
from partners.choices import CredentialDirection

_LIST = ("invalid_cursor", "cursor_mismatch")
_CREDENTIAL = {"credential_id": "Id of the credential (`cred_...`)."}
_TOKEN = {"token_id": "Id of the token (`tok_...`)."}
CREDENTIAL_FILTERS = (Param("party", "Id of a party.", "id", prefix="par"),)
TOKEN_FILTERS = (Param("owner", "Exact user name."),)


_SUBMITS = OpenApiExample(
    "Submits, from one network, and nothing else",
    value={"name": "ERP", "scopes": ["messages:write"], "networks": ["10.1.0.0/16"], "reason": "go-live"},
    request_only=True,
)


class Credentials(Endpoint):
    """/credentials"""

    @operation(
        id="credentials_list",
        tag="credentials",
        scope="partners:read",
        summary="List credentials, newest first, without secrets",
        parameters=(*CREDENTIAL_FILTERS, *PAGING),
        responses={200: page_of(CredentialSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, CREDENTIAL_FILTERS)
        found = selectors.credentials(party_id=values["party"])
        page = keyset.page(found, order=("-id",), limit=limit, place=place)
        return listing(request, values, page, CredentialSerializer)

    @sensitive_variables("values", "secret")
    @operation(
        id="credentials_create",
        tag="credentials",
        scope="partners:write",
        summary="Create a credential",
        description="Inbound: what the partner shows us; the answer holds it, this once. Outbound: what we show the "
        "partner; `secret` is what they gave us. Others of the same party stay valid, so that one can be replaced.",
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
            made, secret = (
                onboarding.credential_store_outbound(party_id=party_id, actor=actor_of(request), **_outbound(values)),
                "",
            )
        made.secret = secret or None  # type: ignore[attr-defined]
        headers = {"Location": f"/api/v1/credentials/{made.public_id}"}
        return Response(NewCredentialSerializer(made).data, status=201, headers=headers)


class OneCredential(Endpoint):
    """/credentials/{credential_id}"""

    @operation(
        id="credentials_read",
        tag="credentials",
        scope="partners:read",
        summary="One credential, without its secret",
        path=_CREDENTIAL,
        responses={200: CredentialSerializer},
    )
    def get(self, request: Request, credential_id: str) -> Response:
        read_parameters(request, ())
        try:
            found = selectors.credential(id_of("cred", credential_id))
        except ObjectDoesNotExist as error:
            raise Problem("not_found", f"There is no credential {credential_id}.") from error
        return item(request, CredentialSerializer(found).data)


class RevokeCredential(Endpoint):
    """/credentials/{credential_id}/revoke"""

    @operation(
        id="credentials_revoke",
        tag="credentials",
        scope="partners:write",
        summary="End a credential now and for ever",
        path=_CREDENTIAL,
        request=ReasonBody,
        responses={200: CredentialSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request, credential_id: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        found = onboarding.credential_revoke(
            credential_id=id_of("cred", credential_id), actor=actor_of(request), **values
        )
        return item(request, CredentialSerializer(found).data)


class Tokens(Endpoint):
    """/tokens"""

    @operation(
        id="tokens_list",
        tag="tokens",
        scope="tokens:manage",
        summary="List API tokens, newest first, without secrets",
        parameters=(*TOKEN_FILTERS, *PAGING),
        responses={200: page_of(shapes.TokenSerializer)},
        problems=_LIST,
    )
    def get(self, request: Request) -> Response:
        values, limit, place = read_list(request, TOKEN_FILTERS)
        found = records.tokens(owner=values["owner"] or "")
        page = keyset.page(found, order=("-id",), limit=limit, place=place)
        return listing(request, values, page, shapes.TokenSerializer)

    @sensitive_variables("secret")
    @operation(
        id="tokens_create",
        tag="tokens",
        scope="tokens:manage",
        summary="Create an API token",
        description=(
            "Its scopes are at most those of its owner's role, and at most yours. Made with a token, it is good from "
            "that token's networks at most, and no longer than that. The secret is shown once."
        ),
        request=shapes.TokenBody,
        responses={201: shapes.NewTokenSerializer},
        examples=(_SUBMITS,),
    )
    def post(self, request: Request) -> Response:
        read_parameters(request, ())
        values = validated(shapes.TokenBody, request.data)
        owner = values.pop("owner", None) or request.user
        assert isinstance(owner, str | User)
        access = access_of(request)
        made, secret = tokens.token_create(
            owner=owner, actor=actor_of(request), granted_by=access.scopes, made_with=access.token, **values
        )
        made.secret = secret  # type: ignore[attr-defined]
        headers = {"Location": f"/api/v1/tokens/{made.public_id}"}
        return Response(shapes.NewTokenSerializer(made).data, status=201, headers=headers)


class OneToken(Endpoint):
    """/tokens/{token_id}"""

    @operation(
        id="tokens_read",
        tag="tokens",
        scope="tokens:manage",
        summary="One API token, without its secret",
        path=_TOKEN,
        responses={200: shapes.TokenSerializer},
    )
    def get(self, request: Request, token_id: str) -> Response:
        read_parameters(request, ())
        return item(request, shapes.TokenSerializer(records.token(id_of("tok", token_id))).data)


class RevokeToken(Endpoint):
    """/tokens/{token_id}/revoke"""

    @operation(
        id="tokens_revoke",
        tag="tokens",
        scope="tokens:manage",
        summary="End an API token now and for ever",
        path=_TOKEN,
        request=ReasonBody,
        responses={200: shapes.TokenSerializer},
        problems=("wrong_state",),
    )
    def post(self, request: Request, token_id: str) -> Response:
        read_parameters(request, ())
        values = validated(ReasonBody, request.data)
        found = tokens.token_revoke(token_id=id_of("tok", token_id), actor=actor_of(request), **values)
        return item(request, shapes.TokenSerializer(found).data)


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
