"""Log-in by the organisation's OpenID provider: away to it, and back."""

from __future__ import annotations

import time

from django.conf import settings
from django.contrib import messages as notices
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from messaging.access.pages.account import enter
from messaging.access.services import openid
from messaging.choices import Interface
from messaging.console.access import PUBLIC, requires
from messaging.console.rendering import after, see_other
from messaging.journal.audit import Actor

_AWAY = "openid"
_SECONDS = 600


@requires(PUBLIC)
def sign_on(request: HttpRequest) -> HttpResponse:
    """Sends the browser to the provider; its session keeps what only it can bring back."""
    if not openid.enabled():
        raise Http404("There is no OpenID provider here: RMHUB_OIDC_ISSUER is not set.")
    try:
        beginning = openid.begin(_back())
    except openid.OpenIdFailed as error:
        notices.error(request, error.detail)
        return see_other("console:login")
    request.session[_AWAY] = {
        "state": beginning.state,
        "nonce": beginning.nonce,
        "verifier": beginning.verifier,
        "next": after(request),
        "at": time.time(),
    }
    return HttpResponseRedirect(beginning.url)


@requires(PUBLIC)
def sign_on_back(request: HttpRequest) -> HttpResponse:
    """What the provider sends back: used once, by the browser that went away."""
    if not openid.enabled():
        raise Http404("There is no OpenID provider here: RMHUB_OIDC_ISSUER is not set.")
    kept = request.session.pop(_AWAY, None) or {}
    fresh = 0 <= time.time() - float(kept.get("at", 0)) < _SECONDS
    try:
        claims = openid.exchange(
            redirect_uri=_back(),
            answer={name: request.GET.get(name, "") for name in ("code", "state", "error", "error_description")},
            state=kept.get("state", "") if fresh else "",
            nonce=kept.get("nonce", ""),
            verifier=kept.get("verifier", ""),
        )
        who = Actor(
            str(claims.get(settings.RMHUB_OIDC_NAME_CLAIM) or claims["sub"])[:150],
            Interface.CONSOLE,
            request.META.get("REMOTE_ADDR", ""),
            getattr(request, "request_id", ""),
            "openid",
        )
        user = openid.login(claims=claims, actor=who)
    except openid.OpenIdFailed as error:
        notices.error(request, error.detail)
        return see_other("console:login")
    enter(request, user, "openid")
    return see_other(kept["next"])


def _back() -> str:
    # The address that the provider knows, and not what a request says that this host is called.
    return f"{settings.RMHUB_PUBLIC_URL}{reverse('console:openid-back')}"
