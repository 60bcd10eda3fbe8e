"""Who calls: an API token, or a person with a console session."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from messaging.choices import Interface
from messaging.services import tokens
from messaging.services.audit import Actor
from rmhub.roles import scopes_of

MAX_HEADER = 200


@dataclass(frozen=True, slots=True)
class Access:
    """What an authenticated caller may do, and the name under which it is written down (`request.auth`).

    `owner` is the user name: the submitter of messages, whichever of their tokens was used.
    """

    name: str
    owner: str
    scopes: frozenset[str]


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer rmh_live_...`."""

    def authenticate(self, request: Request) -> tuple[User, Access] | None:
        header = request.headers.get("Authorization", "")
        scheme, _, text = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        if len(header) > MAX_HEADER:
            raise AuthenticationFailed("This is not an API token: it is too long.", code="invalid_token")
        try:
            bearer = tokens.authenticate(text.strip())
        except tokens.BadToken as error:
            raise AuthenticationFailed(error.detail, code=error.code) from error
        owner = bearer.owner.get_username()
        return bearer.owner, Access(f"{owner} (token {bearer.token.name})"[:150], owner, bearer.scopes)

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="RM Hub"'


class ConsoleSessionAuthentication(SessionAuthentication):
    """The console's session cookie; every request that changes something shows the CSRF token too."""

    def authenticate(self, request: Request) -> tuple[User, Access] | None:
        found = super().authenticate(request)
        if found is None:
            return None
        user = found[0]
        assert isinstance(user, User)
        return user, Access(user.get_username(), user.get_username(), scopes_of(user))


def access_of(request: Request) -> Access:
    """The caller of a request that passed the permission check."""
    assert isinstance(request.auth, Access)
    return request.auth


def actor_of(request: Request) -> Actor:
    """The caller as the audit log names it."""
    return Actor(
        name=access_of(request).name,
        interface=Interface.API,
        address=request.META.get("REMOTE_ADDR", "")[:64],
        request_id=getattr(request, "request_id", ""),
    )
