"""Who calls: an API token, or a person with a console session."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django.contrib.auth.models import User
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from messaging.access.services import sessions, tokens
from messaging.api.problems import Problem
from messaging.choices import Interface
from messaging.journal.audit import Actor
from messaging.models import ApiToken
from messaging.permissions import permissions_of

MAX_HEADER = 200
MUST_ENROL = "must_enrol"  # in the session of somebody who has to set up a second factor first


@dataclass(frozen=True, slots=True)
class Access:
    """What an authenticated caller may do, and the name under which it is written down (`request.auth`).

    `owner` is the user name: the submitter of messages, whichever of their tokens was used. `partners`: whose data
    they may see; None = everybody's.
    """

    name: str
    owner: str
    scopes: frozenset[str]
    partners: frozenset[uuid.UUID] | None = None
    token: ApiToken | None = None  # None for a session
    caller: str = ""  # whose requests are counted together: a token's, or a person's

    @property
    def limited(self) -> bool:
        return self.partners is not None


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer rmh_live_...`."""

    def authenticate(self, request: Request) -> tuple[User, Access] | None:
        header = request.headers.get("Authorization", "")
        scheme, _, text = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        if len(header) > MAX_HEADER:
            raise AuthenticationFailed("This is not an API token: it is too long.", code="invalid_token")
        address = request.META.get("REMOTE_ADDR", "")
        try:
            bearer = tokens.authenticate(text.strip(), address)
        except tokens.BadToken as error:
            wait = tokens.token_refused(error, address=address, request_id=getattr(request, "request_id", ""))
            if wait:
                said = f"Too many invalid API tokens came from your address: wait {wait} s."
                raise Problem("too_many_requests", said, headers={"Retry-After": str(wait)}) from error
            raise AuthenticationFailed(error.detail, code=error.code) from error
        owner = bearer.owner.get_username()
        name = f"{owner} (token {bearer.token.name})"[:150]
        caller = f"token:{bearer.token.pk.hex}"
        return bearer.owner, Access(name, owner, bearer.scopes, bearer.partners, bearer.token, caller)

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
        if sessions.is_idle(request.session, by_itself=False):
            raise AuthenticationFailed("This session expired after inactivity: log in again.", code="not_authenticated")
        if request.session.get(MUST_ENROL):
            raise AuthenticationFailed("Set up your second factor in the console first.", code="not_authenticated")
        permissions = permissions_of(user)
        name = user.get_username()
        return user, Access(name, name, permissions.scopes, permissions.partners, caller=f"user:{user.pk}")


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
        authentication=_method(request),
    )


def _method(request: Request) -> str:
    """How the caller showed who they are."""
    if isinstance(request.successful_authenticator, TokenAuthentication):
        return "token"
    session = getattr(request, "session", None)
    return str(session.get("method", "session")) if session is not None else "session"
