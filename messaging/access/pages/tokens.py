"""API tokens."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import timedelta

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from messaging.access.selectors.reach import read_id
from messaging.access.services import tokens
from messaging.console.access import actor, person, requires
from messaging.console.rendering import dialog, keyset_page, page, posted, problems, see_other
from messaging.console.resource import Column, table
from messaging.exceptions import InvalidSubmission, WrongState
from messaging.models import ApiToken
from messaging.overview.selectors import records
from messaging.templatetags.hub import ago, icon, middle, state
from rmhub import clock
from rmhub.ids import BadPublicId
from rmhub.language import gettext_lazy, pgettext_lazy
from rmhub.roles import ABOUT, NAMES, OPERATOR_SCOPES, ORDER, SCOPES, VIEWER_SCOPES

_DAYS = (30, 90, 180, 365)
_ONCE = "token_form"


def _name(token: ApiToken) -> SafeString:
    short = middle(token.public_id, 22)
    return format_html('<span class="strong">{}</span><div class="mono text-faint">{}</div>', token.name, short)


def _scopes(token: ApiToken) -> SafeString:
    scopes = format_html_join("", '<span class="scope mono">{}</span>', ((scope,) for scope in token.scopes))
    groups, networks = ", ".join(group.name for group in token.groups.all()), ", ".join(token.networks)
    only = where = SafeString("")
    if groups:
        only = format_html('<div class="text-faint">{}</div>', _("only partners of {names}").format(names=groups))
    if networks:
        where = format_html('<div class="text-faint">{} <span class="mono">{}</span></div>', _("from"), networks)
    return format_html("{}{}{}", scopes, only, where)


def _state(token: ApiToken) -> str:
    now = clock.now()
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at <= now:
        return "ended"
    return "ends-soon" if token.expires_at <= now + tokens.ENDS_SOON else "in-force"


_REVOKE = '<a class="btn btn-sm" href="{}" data-dialog>{}{}<span class="visually-hidden"> {}</span></a>'


def _revoke(token: ApiToken) -> SafeString | str:
    if _state(token) in ("revoked", "ended"):
        return ""
    return format_html(
        _REVOKE, reverse("console:token-revoke", args=[token.public_id]), icon("ban"), _("Revoke…"), token.name
    )


_COLUMNS = (
    Column(gettext_lazy("Name"), _name),
    Column(pgettext_lazy("token", "Owner"), lambda token: token.owner.get_username()),
    Column(gettext_lazy("Scopes"), _scopes, "scopes"),
    Column(gettext_lazy("State"), lambda token: state("token", _state(token)), "nowrap"),
    Column(gettext_lazy("Expires"), lambda token: f"{timezone.localtime(token.expires_at):%Y-%m-%d}", "nowrap"),
    Column(gettext_lazy("Last used"), lambda token: ago(token.last_used_at, _("never")), "nowrap"),
    Column(gettext_lazy("Actions"), _revoke, "cell-end"),
)


@requires("tokens:manage")
def token_list(request: HttpRequest) -> HttpResponse:
    """All tokens, newest first; never a secret."""
    context = keyset_page(request, "console.tokens", records.tokens(), order=("-id",), filters={})
    context["table"] = table(_("API tokens, newest first"), _COLUMNS, context["rows"])
    return page(request, "console/access/tokens.html", context)


# What applications usually need: name -> (label, scopes).
PRESETS: Mapping[str, tuple[str, frozenset[str]]] = {
    "submit": (gettext_lazy("Submit only"), frozenset({"messages:write"})),
    "follow": (gettext_lazy("Submit and read"), frozenset({"messages:write", "messages:read", "events:read"})),
    "take": (gettext_lazy("Take documents"), frozenset({"deliveries:take", "deliveries:read", "payloads:read"})),
    "watch": (gettext_lazy("Watch"), VIEWER_SCOPES),
    "operate": (gettext_lazy("Operate"), OPERATOR_SCOPES),
}


@sensitive_variables("secret")
@requires("tokens:manage", methods=("GET", "POST"))
def token_new(request: HttpRequest) -> HttpResponse:
    """The form; POST makes the token and shows its secret this once, on a page that no cache keeps."""
    errors: list[tuple[str, str]] = []
    chosen = request.POST.getlist("scopes") or sorted(PRESETS.get(request.GET.get("preset", ""), ("", ()))[1])
    limited_to = request.POST.getlist("groups")
    if request.method == "POST":
        # A reload posts the form again: it must neither make a second token nor show the first one's secret.
        if request.POST.get("once", "-") != request.session.get(_ONCE):
            notices.error(
                request,
                _("This form was already submitted. A secret is shown only once; create another token if it is lost."),
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
            errors = [("groups", _("One of these partner groups does not exist (any more)."))]
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
        "usual": [(name, label) for name, (label, __) in PRESETS.items()],
        "preset": request.GET.get("preset", ""),
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
        try:
            tokens.token_revoke(token_id=token.pk, actor=actor(request), reason=posted(request, "reason"))
        except WrongState as error:
            raise InvalidSubmission({"": [error.detail]}) from error
        notices.success(request, _("Token {name} is revoked.").format(name=token.name))
        return see_other("console:tokens")

    title, back = _("Revoke {name}").format(name=token.name), reverse("console:tokens")
    shown = {
        "title": title,
        "crumbs": [(back, _("API tokens"))],
        "effects": (
            _("From now on the API refuses it. Applications that use it stop working."),
            format_html(_("Last used: {}."), ago(token.last_used_at, _("never"))),
        ),
        "forever": _("A revoked token stays revoked."),
        "back": back,
        "sign": "ban",
        "button": title,
    }
    return dialog(request, "console/parts/question.html", lambda: shown, do)


def _scope_groups() -> list[tuple[str, list[tuple[str, str]]]]:
    """Scopes, with what each allows, by the role that first has them."""
    groups, seen = [], set[str]()
    for role in ORDER:
        groups.append((NAMES[role], [(scope, ABOUT[scope]) for scope in sorted(SCOPES[role] - seen)]))
        seen |= SCOPES[role]
    return groups
