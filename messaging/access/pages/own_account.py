"""One's own account: where one is logged in, the second factor, preferences, and the lists that one saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings
from django.contrib import messages as notices
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import translation
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from messaging.access.selectors import people
from messaging.access.selectors.reach import read_id
from messaging.access.services import preferences as services
from messaging.access.services import second_factor, sessions
from messaging.console import cells, lists, zones
from messaging.console.access import ENROL, SIGNED_IN, actor, person, requires
from messaging.console.preferences import preferences
from messaging.console.rendering import after, dialog, keyset_page, page, problems, see_other
from messaging.console.resource import Column, table
from messaging.entrance import throttling
from messaging.exceptions import ApplicationError, InvalidSubmission, NotFound, WrongState
from messaging.models import SavedView
from messaging.resource import number
from messaging.templatetags.hub import ago
from rmhub.language import gettext_lazy
from rmhub.roles import NAMES

_OWN = "views:write"
# The lists that have views, and where they are.
PAGES = {
    "pairs": "console:pairs",
    "messages": "console:messages",
    "incidents": "console:incidents",
    "deliveries": "console:deliveries",
    "audit": "console:audit",
    "partners": "console:partners",
    "agreements": "console:agreements",
    "transactions": "console:transactions",
}
_LISTS = {
    "pairs": gettext_lazy("Pairs"),
    "messages": gettext_lazy("Messages"),
    "incidents": gettext_lazy("Incidents"),
    "deliveries": gettext_lazy("Deliveries"),
    "audit": gettext_lazy("Audit"),
    "partners": gettext_lazy("Partners"),
    "agreements": gettext_lazy("Agreements"),
    "transactions": gettext_lazy("Transactions"),
}


def _me(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


@requires(SIGNED_IN)
def account(request: HttpRequest) -> HttpResponse:
    """Who one is here, what one may see, and where one is logged in."""
    me = people.user(_me(request).get_username())
    factor = second_factor.confirmed(me.user.pk)
    context = {
        "row": me,
        "role": NAMES[me.role] if me.role is not None else _("no role"),
        "groups": ", ".join(group.name for group in me.groups),
        "sessions": list(people.sessions(user_id=me.user.pk).order_by("-last_seen_at")[:50]),
        "here": request.session.session_key,
        "methods": sessions.METHODS,
        "factor": factor,
        "codes_left": len(factor.recovery) if factor is not None else 0,
        "has_password": me.user.has_usable_password(),
    }
    return page(request, "console/access/account.html", context)


@requires(SIGNED_IN, methods=("POST",))
def session_end(request: HttpRequest, reference: str) -> HttpResponse:
    """Ends one of one's own sessions."""
    try:
        row = sessions.session_end(
            session_id=read_id("ses", reference), actor=actor(request), reason="By the user.", of=_me(request)
        )
    except NotFound as error:
        notices.error(request, error.detail)
    else:
        notices.success(request, _("The session from {address} has ended.").format(address=row.address or _("there")))
    return see_other("console:account")


@requires(SIGNED_IN, methods=("POST",))
def sessions_end(request: HttpRequest) -> HttpResponse:
    """Ends all of one's own sessions but this one."""
    count = sessions.sessions_end(
        user=_me(request), actor=actor(request), reason="By the user.", keep=request.session.session_key or ""
    )
    notices.success(
        request, ngettext("{count} other session ended.", "{count} other sessions ended.", count).format(count=count)
    )
    return see_other("console:account")


@sensitive_post_parameters("code", "password")
@sensitive_variables("codes")
@requires(SIGNED_IN, methods=("GET", "POST"))
def factor(request: HttpRequest) -> HttpResponse:
    """Setting up a second factor: the picture, and a first code; then the recovery codes, this once."""
    me = _me(request)
    if second_factor.confirmed(me.pk) is not None:
        return see_other("console:account")
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        try:
            codes = second_factor.second_factor_confirm(
                user=me, code=request.POST.get("code", "")[:100], actor=actor(request)
            )
        except WrongState:
            return see_other("console:account")
        except ApplicationError as error:
            errors, status = problems(error), 422
        else:
            request.session.pop(ENROL, None)
            if request.session.get("method") == "password":
                request.session["method"] = "totp"
            return page(request, "console/access/recovery_codes.html", {"codes": codes})
    context = {
        "enrolment": second_factor.enrolment(me),
        "errors": errors,
        "required": bool(request.session.get(ENROL)),
        "hub": settings.RMHUB_NAME,
    }
    return page(request, "console/access/second_factor.html", context, status=status)


@sensitive_post_parameters("code")
@sensitive_variables("codes")
@requires(SIGNED_IN, methods=("GET", "POST"))
def factor_codes(request: HttpRequest) -> HttpResponse:
    """New recovery codes, for a code of the device."""
    refused = _refused(request, renew=True)
    if refused is not None:
        return refused
    codes = second_factor.recovery_codes_renew(user=_me(request), actor=actor(request))
    return page(request, "console/access/recovery_codes.html", {"codes": codes})


@sensitive_post_parameters("code")
@requires(SIGNED_IN, methods=("GET", "POST"))
def factor_remove(request: HttpRequest) -> HttpResponse:
    """Takes the second factor away, for a code of it."""
    refused = _refused(request, renew=False)
    if refused is not None:
        return refused
    second_factor.second_factor_remove(user=_me(request), actor=actor(request), reason="By the user.")
    if settings.RMHUB_REQUIRE_SECOND_FACTOR and request.session.get("method") != "openid":
        request.session[ENROL] = True
    notices.success(request, _("Your second factor is removed."))
    return see_other("console:account")


def _refused(request: HttpRequest, *, renew: bool) -> HttpResponse | None:
    """The form, which says what is wrong with the code that was sent; None for a right one."""
    template, posted = "console/access/second_factor_change.html", request.method == "POST"
    if second_factor.confirmed(_me(request).pk) is None:
        return page(request, template, {"none": True, "renew": renew}, status=409 if posted else 200)
    errors, wait = _checked_code(request, _me(request)) if posted else ([], 0)
    if posted and not errors:
        return None
    status = 429 if wait else 422 if errors else 200
    return page(request, template, {"errors": errors, "renew": renew}, status=status)


def _checked_code(request: HttpRequest, me: User) -> tuple[list[tuple[str, str]], int]:
    """What is wrong with the code that was sent, and how long to wait; guesses are slowed down like log-ins."""
    name, address = me.get_username(), request.META.get("REMOTE_ADDR", "")
    if wait := throttling.attempt(name, address):
        return [("", _("Too many wrong codes: wait {wait} s, then try again.").format(wait=wait))], wait
    try:
        second_factor.second_factor_check(user=me, code=request.POST.get("code", "")[:100])
    except ApplicationError as error:
        return problems(error), 0
    throttling.succeeded(name, address)
    return [], 0


# --- preferences and saved views ---


@requires(SIGNED_IN, methods=("GET", "POST"))
def preferences_page(request: HttpRequest) -> HttpResponse:
    """Zone, language and shortcuts; the theme is kept by the browser."""
    errors: list[tuple[str, str]] = []
    if request.method == "POST":
        try:
            saved = services.preference_update(
                user=_me(request),
                zone=request.POST.get("other", "").strip() or request.POST.get("zone", ""),
                language=request.POST.get("language"),
                shortcuts=request.POST.get("shortcuts") == "1",
            )
        except InvalidSubmission as error:
            errors = problems(error)
        else:
            # The notice stands on the next page.
            with translation.override(saved.language or translation.get_language_from_request(request)):
                notices.success(request, _("Your preferences are saved."))
            return see_other("console:preferences")
    wished = preferences(request)
    context = {
        "errors": errors,
        "given": request.POST,
        "names": zones.names(),
        "wished": wished,
        "spoken": request.POST.get("language", wished.language),
        "languages": settings.LANGUAGES,
    }
    return page(request, "console/access/preferences.html", context, status=422 if errors else 200)


@requires(SIGNED_IN, methods=("POST",))
def zone(request: HttpRequest) -> HttpResponse:
    """The switch at the top of every page; goes back to where it was pressed."""
    try:
        services.preference_update(user=_me(request), zone=request.POST.get("zone", ""))
    except InvalidSubmission as error:
        notices.error(request, problems(error)[0][1])
    return see_other(after(request))


@requires(_OWN, methods=("POST",))
def columns(request: HttpRequest, name: str) -> HttpResponse:
    """Which columns a list shows this person; goes back to the list."""
    try:
        hidden = None
        if request.POST.get("reset") != "1":
            hidden = lists.hidden_of(request.POST.getlist("shown"), request.POST.getlist("offered"))
        services.preference_update(user=_me(request), columns={name: hidden})
    except InvalidSubmission as error:
        notices.error(request, problems(error)[0][1])
    return see_other(after(request))


def _views(request: HttpRequest, rows: Iterable[SavedView], *, may_share: bool) -> dict[str, Any]:
    def name(view: SavedView) -> SafeString:
        both = "&" if view.query else ""
        href = f"/{view.page}/?{view.query}{both}view={view.public_id}"
        mine = view.is_default and view.owner_id == request.user.pk
        chip = format_html(' <span class="chip">{}</span>', _("my default")) if mine else ""
        return cells.joined(cells.link(href, view.name, "strong", data_open=True), chip)

    def change(view: SavedView) -> SafeString:
        if view.owner_id != request.user.pk and not may_share:
            return cells.span("text-faint", _("needs the role operator"))
        links = (
            cells.link(
                cells.to(f"saved-view-{verb}", view.public_id),
                cells.joined(f"{said}…", cells.hidden(f" {view.name}")),
                data_dialog=True,
            )
            for verb, said in (("edit", _("Change")), ("delete", _("Delete")))
        )
        return cells.joined(*links, by=" ")

    def whom(view: SavedView) -> str:
        return _("the team, by {name}").format(name=view.owner.get_username()) if view.shared else _("me")

    columns = (
        Column(_("Name"), name),
        Column(_("List"), lambda view: _LISTS.get(view.page, view.page)),
        Column(_("Filters"), lambda view: view.query or "—", "mono wrap"),
        Column(_("For"), whom),
        Column(_("Saved"), lambda view: ago(view.updated_at), "nowrap", zoned=True),
        Column(_("Change"), change, "nowrap"),
    )
    about = lambda view: {**cells.row_id(view), "data-testid": "saved-view"}  # noqa: E731
    return table(_("Saved views"), columns, rows, about=about, keys=True)


@requires(_OWN, methods=("GET", "POST"))
def view_list(request: HttpRequest) -> HttpResponse:
    """Saved views, one's own and the team's; POST saves the filters of a list under a name."""
    if request.method == "POST":
        return _save(request)
    chosen = request.GET.get("page", "")
    chosen = chosen if chosen in PAGES else ""
    found = people.saved_views(request.user.pk or 0, page=chosen)
    context = keyset_page(request, "console.saved-views", found, order=("id",), filters={"page": chosen})
    may_share = services.SHARE in person(request).scopes
    context |= {
        "chosen": chosen,
        "pages": _LISTS.items(),
        "table": _views(request, context["rows"], may_share=may_share),
    }
    return page(request, "console/access/saved_views.html", context)


def _save(request: HttpRequest) -> HttpResponse:
    name, where = request.POST.get("name", ""), request.POST.get("page", "")
    try:
        if where not in PAGES:
            raise InvalidSubmission({"page": [_("This list has no saved views.")]})
        made = services.view_create(
            owner=_me(request),
            scopes=person(request).scopes,
            page=where,
            name=name,
            query=request.POST.get("query", ""),
            shared=request.POST.get("shared") == "1",
            is_default=request.POST.get("is_default") == "1",
            actor=actor(request),
        )
    except InvalidSubmission as error:
        notices.error(request, _("The view was not saved. {why}").format(why=problems(error)[0][1]))
        return see_other(after(request))
    said = _("Saved as “{name}”, for the team.") if made.shared else _("Saved as “{name}”.")
    notices.success(request, said.format(name=made.name))
    return see_other(_open(made))


@requires(_OWN, methods=("GET", "POST"))
def view_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """Another name, for the team or not, the default or not."""

    def do(view: SavedView, known: dict[str, Any]) -> str:
        mine = view.owner_id == request.user.pk
        services.view_update(
            **known,
            name=request.POST.get("name", ""),
            shared=request.POST.get("shared") == "1" if mine else None,
            is_default=request.POST.get("is_default") == "1" if mine else None,
        )
        return _("The view is saved.")

    return _dialog(request, reference, _("Change {name}"), "console/access/saved_view_edit.html", do)


@requires(_OWN, methods=("GET", "POST"))
def view_delete(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of a view; the list itself stays as it is."""

    def do(view: SavedView, known: dict[str, Any]) -> str:
        services.view_delete(**known)
        return _("The view “{name}” is deleted.").format(name=view.name)

    return _dialog(request, reference, _("Delete {name}"), "console/access/saved_view_delete.html", do)


def _dialog(
    request: HttpRequest, reference: str, title: str, form: str, act: Callable[[SavedView, dict[str, Any]], str]
) -> HttpResponse:
    """`act` does it to the view, with what services want to know, and says what is done. `title`: with its {name}."""
    user, scopes = _me(request), person(request).scopes

    def do() -> HttpResponse:
        view = people.saved_view(user.pk, reference)
        known = {"view_id": view.pk, "user": user, "scopes": scopes, "actor": actor(request)}
        notices.success(request, act(view, {**known, "expected": number(request.POST.get("version", ""))}))
        return see_other("console:saved-views")

    def shown() -> dict[str, Any]:
        view = people.saved_view(user.pk, reference)
        return {
            "title": title.format(name=view.name),
            "crumbs": [(reverse("console:saved-views"), _("Saved views"))],
            "view": view,
            "version": services.revision(view),
            "mine": view.owner_id == user.pk,
            "may_share": services.SHARE in scopes,
        }

    return dialog(request, form, shown, do)


def _open(view: SavedView) -> str:
    return f"{reverse(PAGES[view.page])}?{view.query}{'&' if view.query else ''}view={view.public_id}"
