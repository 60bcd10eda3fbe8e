"""Log-in by the organisation's OpenID provider: code flow with PKCE, state and nonce (OpenID Connect Core 1.0, 3.1).

Three steps: `begin` makes what the browser takes along, `exchange` talks to the provider (no transaction is open), and
`login` finds or makes the user. The provider is the one of the settings; nothing that a browser says names a server.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import requests
from authlib.common.errors import AuthlibBaseError  # type: ignore[import-untyped]
from authlib.common.security import generate_token  # type: ignore[import-untyped]
from authlib.integrations.requests_client import OAuth2Session  # type: ignore[import-untyped]
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.utils.translation import gettext as _
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from messaging.exceptions import ApplicationError
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import OpenIdAccount
from rmhub import clock
from rmhub.postgresql.base import give_back
from rmhub.roles import ORDER, Role

log = logging.getLogger(__name__)

TIMEOUT = 10  # seconds for each answer of the provider
LEEWAY = 60  # seconds by which clocks may differ
_ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
_KEPT = 3600.0
LEFT_ALONE = 30  # seconds for which a provider that did not answer is not asked again
_lock = threading.Lock()
_known: dict[str, tuple[float, Provider]] = {}
_failures: dict[str, datetime] = {}


class OpenIdFailed(ApplicationError):
    """The log-in came to nothing: `detail` says what people can do; what happened exactly is in the hub's log."""


@dataclass(frozen=True, slots=True)
class Provider:
    """What the provider says about itself, and its keys."""

    issuer: str
    authorization: str
    token: str
    keys: KeySet


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the browser goes, and what its session keeps until it is back."""

    url: str
    state: str
    nonce: str
    verifier: str


def enabled() -> bool:
    """Whether there is a provider."""
    return bool(settings.RMHUB_OIDC_ISSUER and settings.RMHUB_OIDC_CLIENT_ID)


def begin(redirect_uri: str) -> Beginning:
    """Raises OpenIdFailed when the provider cannot be reached."""
    provider = _provider()
    state, nonce, verifier = generate_token(32), generate_token(32), generate_token(64)
    client = _client(redirect_uri, state)
    url, _ = client.create_authorization_url(
        provider.authorization, state=state, code_verifier=verifier, nonce=nonce, prompt="select_account"
    )
    return Beginning(url, state, nonce, verifier)


def exchange(*, redirect_uri: str, answer: Mapping[str, str], state: str, nonce: str, verifier: str) -> dict[str, Any]:
    """The claims of the person who came back from the provider, all checked. Raises OpenIdFailed."""
    # First of all: without it anybody's link could put words of theirs on our log-in page.
    if not state or not secrets.compare_digest(answer.get("state", "").encode(), state.encode()):
        raise OpenIdFailed(_("This log-in was begun somewhere else, or too long ago: begin it again."))
    if refusal := answer.get("error"):
        said = answer.get("error_description") or refusal
        raise OpenIdFailed(_("The provider refused: {said}").format(said=said[:200]))
    if not answer.get("code"):
        raise OpenIdFailed(_("The provider sent no code: begin the log-in again."))
    provider = _provider()
    give_back()
    try:
        tokens = _client(redirect_uri, state).fetch_token(
            provider.token, code=answer["code"], code_verifier=verifier, timeout=TIMEOUT, allow_redirects=False
        )
    except (requests.RequestException, AuthlibBaseError, ValueError) as error:
        raise _failed(_("The provider did not take the code."), error) from error
    return _claims(provider, str(tokens.get("id_token") or ""), nonce)


def login(*, claims: Mapping[str, Any], actor: Actor) -> User:
    """The user of these claims: known by issuer and subject, else made, or linked with the invited one of that name.

    With `RMHUB_OIDC_ROLE_CLAIM` the provider says the role, at every log-in; without it, an admin gives it here.
    Raises OpenIdFailed for a name that another user has, and for somebody who is switched off.
    """
    issuer, subject = str(claims["iss"]), str(claims["sub"])
    now = clock.now()
    with transaction.atomic():
        accounts = OpenIdAccount.objects.select_for_update(of=("self",)).select_related("user")
        account = accounts.filter(issuer=issuer, subject=subject).first()
        if account is None:
            user = _adopted(claims, actor)
            account, __ = OpenIdAccount.objects.get_or_create(
                issuer=issuer, subject=subject, defaults={"user": user, "created_at": now}
            )
        if not account.user.is_active:
            raise OpenIdFailed(_("Your user is switched off here. An admin can switch it on again."))
        account.last_login_at = now
        account.save(update_fields=["last_login_at"])
        _role(account.user, claims, actor)
    return account.user


def role_of(claims: Mapping[str, Any]) -> Role | None:
    """The highest role that the provider's claim stands for; None for none."""
    said = claims.get(settings.RMHUB_OIDC_ROLE_CLAIM)
    values = {said} if isinstance(said, str) else {one for one in said or () if isinstance(one, str)}
    given = {role for value, role in settings.RMHUB_OIDC_ROLES.items() if value in values}
    return next((role for role in reversed(ORDER) if role in given), None)


def reset() -> None:
    """Forgets what the provider said about itself (tests)."""
    _known.clear()
    _failures.clear()


def _adopted(claims: Mapping[str, Any], actor: Actor) -> User:
    name = str(claims.get(settings.RMHUB_OIDC_NAME_CLAIM) or claims["sub"])[:150].replace("\x00", "")
    email = str(claims.get("email") or "")[:254]
    full_name = str(claims.get("name") or "")[:150].replace("\x00", "")
    user = User.objects.select_for_update().filter(username__iexact=name).first()
    if user is None:
        user = User(username=name, email=email, first_name=full_name)
        user.set_unusable_password()
        user.save(force_insert=True)
        audit.record(actor, "user.create", user, reason="First log-in by single sign-on.")
        return user
    # Whoever has a password here, or another account there, is perhaps somebody else of the same name.
    if user.has_usable_password() or OpenIdAccount.objects.filter(user=user).exists():
        raise OpenIdFailed(_("There is another user {name} here: ask an admin to resolve this.").format(name=name))
    audit.record(actor, "user.link_openid", user, reason="Invited under this name.")
    return user


def _role(user: User, claims: Mapping[str, Any], actor: Actor) -> None:
    if not settings.RMHUB_OIDC_ROLE_CLAIM:
        return
    role = role_of(claims)
    before = set(user.groups.filter(name__in=ORDER).values_list("name", flat=True))
    after = {role.value} if role is not None else set()
    if before == after:
        return
    user.groups.remove(*Group.objects.filter(name__in=before - after))
    if role is not None:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    audit.record(
        actor,
        "user.change",
        user,
        reason="The provider says so.",
        before={"role": ", ".join(sorted(before))},
        after={"role": ", ".join(sorted(after))},
    )


def _client(redirect_uri: str, state: str) -> OAuth2Session:
    secret = settings.RMHUB_OIDC_CLIENT_SECRET
    return OAuth2Session(
        settings.RMHUB_OIDC_CLIENT_ID,
        secret or None,
        token_endpoint_auth_method="client_secret_basic" if secret else "none",
        scope=settings.RMHUB_OIDC_SCOPES,
        redirect_uri=redirect_uri,
        state=state,
        code_challenge_method="S256",
    )


def _claims(provider: Provider, text: str, nonce: str) -> dict[str, Any]:
    registry = jwt.JWTClaimsRegistry(
        leeway=LEEWAY,
        iss={"essential": True, "value": provider.issuer},
        aud={"essential": True, "value": settings.RMHUB_OIDC_CLIENT_ID},
        sub={"essential": True},
        exp={"essential": True},
        nonce={"essential": True, "value": nonce},
    )
    try:
        try:
            token = jwt.decode(text, provider.keys, algorithms=_ALGORITHMS)
        except (JoseError, ValueError):
            # The provider may have changed its keys a moment ago.
            provider = _provider(anew=True)
            token = jwt.decode(text, provider.keys, algorithms=_ALGORITHMS)
        registry.validate(token.claims)
    except (JoseError, ValueError) as error:
        raise _failed(_("The provider's ID token about you cannot be verified."), error) from error
    claims: dict[str, Any] = dict(token.claims)
    audience = claims["aud"]
    if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != settings.RMHUB_OIDC_CLIENT_ID:
        raise OpenIdFailed(_("The provider's ID token about you is meant for another application."))
    return claims


def _provider(*, anew: bool = False) -> Provider:
    issuer = settings.RMHUB_OIDC_ISSUER
    at = time.monotonic()
    with _lock:
        known = _known.get(issuer)
    if known is not None and not anew and at - known[0] < _KEPT:
        return known[1]
    _refuse_early(issuer)
    give_back()
    try:
        said = _read(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if said.get("issuer") != issuer:
            raise ValueError(f"it says that its issuer is {str(said.get('issuer'))[:200]!r}")
        ends = [str(said[name]) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
        for url in ends:
            _check_address(url)
        keys = KeySet.import_key_set(_read(ends[2]))  # type: ignore[arg-type]
    except (requests.RequestException, JoseError, ValueError, KeyError, TypeError) as error:
        with _lock:
            _failures[issuer] = clock.now()
        raise _failed(_("The provider cannot be reached, or is not set up correctly."), error) from error
    provider = Provider(issuer, ends[0], ends[1], keys)
    with _lock:
        _known[issuer] = (at, provider)
        _failures.pop(issuer, None)
    return provider


def _refuse_early(issuer: str) -> None:
    """A provider that does not answer costs a thread `TIMEOUT` each time: who comes right after need not wait."""
    with _lock:
        failed = _failures.get(issuer)
    if failed is None:
        return
    left = LEFT_ALONE - (clock.now() - failed).total_seconds()
    if 0 < left <= LEFT_ALONE:
        raise OpenIdFailed(
            _(
                "The provider could not be reached a moment ago, or is not set up correctly. "
                "The hub asks it again in {seconds} s; an admin finds the cause in the hub's log."
            ).format(seconds=math.ceil(left))
        )


def _read(url: str) -> dict[str, Any]:
    _check_address(url)
    answer = requests.get(url, timeout=TIMEOUT, allow_redirects=False, headers={"Accept": "application/json"})
    answer.raise_for_status()
    found = answer.json()
    if not isinstance(found, dict):
        raise ValueError("it answers no JSON object")
    return found


def _check_address(url: str) -> None:
    """https; without it only to this very machine (trials)."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        raise ValueError(f"{url[:200]} is not https")


def _failed(sentence: str, error: Exception) -> OpenIdFailed:
    log.warning("OpenID log-in failed", extra={"action": "openid_failed", "error": str(error)[:300]})
    return OpenIdFailed(
        _("{sentence} Try again; if it stays so, an admin finds the cause in the hub's log.").format(sentence=sentence)
    )
