"""Webhook endpoints and API tokens."""

from __future__ import annotations

import secrets
from datetime import timedelta

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.views.decorators.debug import sensitive_variables

from messaging.console.access import actor, person, requires
from messaging.console.rendering import keyset_page, page, problems, see_other
from messaging.exceptions import ApplicationError, InvalidSubmission
from messaging.selectors import records
from messaging.services import tokens, webhooks
from rmhub import clock
from rmhub.ids import read_public_id
from rmhub.roles import ORDER, SCOPES

_DAYS = (30, 90, 180, 365)
_ONCE = "token_form"


@requires("webhooks:manage")
def webhook_list(request: HttpRequest) -> HttpResponse:
    """Who is told of events, and whether it works."""
    context = keyset_page(request, "console.webhooks", records.webhook_endpoints(), order=("id",), filters={})
    return page(request, "console/webhooks.html", context)


@requires("webhooks:manage", methods=("GET", "POST"))
def webhook_page(request: HttpRequest, reference: str) -> HttpResponse:
    """One endpoint with its deliveries; POST switches it on or off."""
    endpoint = records.webhook_endpoint(read_public_id("whe", reference))
    errors: list[tuple[str, str]] = []
    if request.method == "POST":
        reason = request.POST.get("reason", "").strip().replace("\x00", "")
        if len(reason) < tokens.MIN_REASON:
            errors = [("reason", f"Say why, in at least {tokens.MIN_REASON} characters: it goes into the audit log.")]
        else:
            enabled = request.POST.get("enabled") == "1"
            webhooks.endpoint_update(endpoint_id=endpoint.pk, enabled=enabled, actor=actor(request), reason=reason)
            notices.success(request, f"{endpoint} is {'on' if enabled else 'off'}.")
            return see_other("console:webhook", reference)
    found = records.webhook_deliveries(endpoint.pk)
    context = keyset_page(request, f"console.webhook.{endpoint.pk}", found, order=("-id",), filters={})
    context |= {"endpoint": endpoint, "errors": errors, "given": request.POST}
    return page(request, "console/webhook.html", context, status=422 if errors else 200)


@requires("tokens:manage")
def token_list(request: HttpRequest) -> HttpResponse:
    """All tokens, newest first; never a secret."""
    context = keyset_page(request, "console.tokens", records.tokens(), order=("-id",), filters={})
    return page(request, "console/tokens.html", {**context, "now": clock.now()})


@sensitive_variables("secret")
@requires("tokens:manage", methods=("GET", "POST"))
def token_new(request: HttpRequest) -> HttpResponse:
    """The form; POST makes the token and shows its secret this once, on a page that no cache keeps."""
    errors: list[tuple[str, str]] = []
    chosen = request.POST.getlist("scopes")
    if request.method == "POST":
        # A reload posts the form again: it must neither make a second token nor show the first one's secret.
        if request.POST.get("once", "-") != request.session.get(_ONCE):
            notices.error(
                request, "This form was used already. A secret is shown once; make another token if it is lost."
            )
            return see_other("console:tokens")
        days = request.POST.get("days", "")
        try:
            token, secret = tokens.token_create(
                owner=request.POST.get("owner", "").strip().replace("\x00", "") or request.user.get_username(),
                name=request.POST.get("name", "").replace("\x00", ""),
                scopes=chosen,
                actor=actor(request),
                granted_by=person(request).scopes,
                expires_at=clock.now() + timedelta(days=int(days) if days in map(str, _DAYS) else 90),
                reason=request.POST.get("reason", "").strip().replace("\x00", ""),
            )
        except InvalidSubmission as error:
            errors = problems(error)
        else:
            del request.session[_ONCE]
            return page(request, "console/token_made.html", {"token": token, "secret": secret})
    request.session[_ONCE] = secrets.token_urlsafe(16)
    context = {
        "errors": errors,
        "given": request.POST,
        "chosen": chosen,
        "once": request.session[_ONCE],
        "days": _DAYS,
        "groups": _scope_groups(),
    }
    return page(request, "console/token_new.html", context, status=422 if errors else 200)


@requires("tokens:manage", methods=("GET", "POST"))
def token_revoke(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of a token."""
    token = records.token(read_public_id("tok", reference))
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        reason = request.POST.get("reason", "").strip().replace("\x00", "")
        try:
            tokens.token_revoke(token_id=token.pk, actor=actor(request), reason=reason)
        except ApplicationError as error:
            errors, status = problems(error), 422
        else:
            notices.success(request, f"Token {token.name} is revoked.")
            return see_other("console:tokens")
    context = {"token": token, "errors": errors, "given": request.POST}
    return page(
        request,
        "console/token_revoke.html",
        context,
        fragments={"dialog": "console/token_revoke_form.html"},
        status=status,
    )


def _scope_groups() -> list[tuple[str, list[str]]]:
    """Scopes by the role that first has them."""
    groups, seen = [], set[str]()
    for role in ORDER:
        groups.append((role.value, sorted(SCOPES[role] - seen)))
        seen |= SCOPES[role]
    return groups
