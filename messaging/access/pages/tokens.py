"""API tokens."""

from __future__ import annotations

import secrets
from datetime import timedelta

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.debug import sensitive_variables

from messaging.access.selectors.reach import read_id
from messaging.access.services import tokens
from messaging.console.access import actor, person, requires
from messaging.console.rendering import dialog, keyset_page, page, posted, problems, see_other
from messaging.exceptions import InvalidSubmission
from messaging.overview.selectors import records
from rmhub import clock
from rmhub.ids import BadPublicId
from rmhub.roles import ORDER, SCOPES

_DAYS = (30, 90, 180, 365)
_ONCE = "token_form"


@requires("tokens:manage")
def token_list(request: HttpRequest) -> HttpResponse:
    """All tokens, newest first; never a secret."""
    context = keyset_page(request, "console.tokens", records.tokens(), order=("-id",), filters={})
    now = clock.now()
    return page(request, "console/access/tokens.html", {**context, "now": now, "soon": now + tokens.ENDS_SOON})


@sensitive_variables("secret")
@requires("tokens:manage", methods=("GET", "POST"))
def token_new(request: HttpRequest) -> HttpResponse:
    """The form; POST makes the token and shows its secret this once, on a page that no cache keeps."""
    errors: list[tuple[str, str]] = []
    chosen = request.POST.getlist("scopes")
    limited_to = request.POST.getlist("groups")
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
                owner=posted(request, "owner") or request.user.get_username(),
                name=request.POST.get("name", "").replace("\x00", ""),
                scopes=chosen,
                actor=actor(request),
                granted_by=person(request).scopes,
                expires_at=clock.now() + timedelta(days=int(days) if days in map(str, _DAYS) else 90),
                networks=request.POST.get("networks", "").replace("\x00", "").replace(",", " ").split(),
                groups=[read_id("grp", group) for group in limited_to],
                reason=posted(request, "reason"),
            )
        except InvalidSubmission as error:
            errors = problems(error)
        except BadPublicId:
            errors = [("groups", "One of these partner groups does not exist (any more).")]
        else:
            del request.session[_ONCE]
            return page(request, "console/access/token_made.html", {"token": token, "secret": secret})
    request.session[_ONCE] = secrets.token_urlsafe(16)
    context = {
        "errors": errors,
        "given": request.POST,
        "chosen": chosen,
        "once": request.session[_ONCE],
        "days": _DAYS,
        "groups": _scope_groups(),
        "partner_groups": records.token_groups(),
        "limited_to": limited_to,
    }
    return page(request, "console/access/token_new.html", context, status=422 if errors else 200)


@requires("tokens:manage", methods=("GET", "POST"))
def token_revoke(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of a token."""
    token = records.token(read_id("tok", reference))

    def do() -> HttpResponse:
        tokens.token_revoke(token_id=token.pk, actor=actor(request), reason=posted(request, "reason"))
        notices.success(request, f"Token {token.name} is revoked.")
        return see_other("console:tokens")

    shown = {"title": f"Revoke {token.name}", "crumbs": [(reverse("console:tokens"), "API tokens")], "token": token}
    return dialog(request, "console/access/token_revoke.html", lambda: shown, do)


def _scope_groups() -> list[tuple[str, list[str]]]:
    """Scopes by the role that first has them."""
    groups, seen = [], set[str]()
    for role in ORDER:
        groups.append((role.value, sorted(SCOPES[role] - seen)))
        seen |= SCOPES[role]
    return groups
