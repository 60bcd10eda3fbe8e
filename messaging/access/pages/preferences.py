"""What people set for themselves (zone, shortcuts, columns), and the lists that they saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages as notices
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from messaging.access.selectors import preferences as selectors
from messaging.access.services import saved_views
from messaging.access.services.preferences import preference_update
from messaging.console import lists, zones
from messaging.console.access import actor, person, requires
from messaging.console.rendering import after, dialog, keyset_page, page, problems, see_other
from messaging.console.wishes import wishes
from messaging.exceptions import InvalidSubmission
from messaging.models import SavedView
from messaging.resource import number

SCOPE = "views:write"
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


@requires(SCOPE, methods=("GET", "POST"))
def preferences_page(request: HttpRequest) -> HttpResponse:
    """Zone and shortcuts; the theme is kept by the browser."""
    errors: list[tuple[str, str]] = []
    if request.method == "POST":
        try:
            preference_update(
                user=_user(request),
                zone=request.POST.get("other", "").strip() or request.POST.get("zone", ""),
                shortcuts=request.POST.get("shortcuts") == "1",
            )
        except InvalidSubmission as error:
            errors = problems(error)
        else:
            notices.success(request, "Your preferences are saved.")
            return see_other("console:preferences")
    context = {"errors": errors, "given": request.POST, "names": zones.names(), "wished": wishes(request)}
    return page(request, "console/access/preferences.html", context, status=422 if errors else 200)


@requires(SCOPE, methods=("POST",))
def zone(request: HttpRequest) -> HttpResponse:
    """The switch at the top of every page; goes back to where it was pressed."""
    try:
        preference_update(user=_user(request), zone=request.POST.get("zone", ""))
    except InvalidSubmission as error:
        notices.error(request, problems(error)[0][1])
    return see_other(after(request))


@requires(SCOPE, methods=("POST",))
def columns(request: HttpRequest, name: str) -> HttpResponse:
    """Which columns a list shows this person; goes back to the list."""
    try:
        hidden = None
        if request.POST.get("reset") != "1":
            hidden = lists.hidden_of(request.POST.getlist("shown"), request.POST.getlist("offered"))
        preference_update(user=_user(request), columns={name: hidden})
    except InvalidSubmission as error:
        notices.error(request, problems(error)[0][1])
    return see_other(after(request))


@requires(SCOPE, methods=("GET", "POST"))
def view_list(request: HttpRequest) -> HttpResponse:
    """Saved views, one's own and the team's; POST saves the filters of a list under a name."""
    if request.method == "POST":
        return _save(request)
    chosen = request.GET.get("page", "")
    chosen = chosen if chosen in PAGES else ""
    found = selectors.saved_views(request.user.pk or 0, page=chosen)
    context = keyset_page(request, "console.saved-views", found, order=("id",), filters={"page": chosen})
    context |= {"chosen": chosen, "pages": PAGES, "may_share": saved_views.SHARE in person(request).scopes}
    return page(request, "console/access/saved_views.html", context)


def _save(request: HttpRequest) -> HttpResponse:
    name, where = request.POST.get("name", ""), request.POST.get("page", "")
    try:
        if where not in PAGES:
            raise InvalidSubmission({"page": ["This list has no saved views."]})
        made = saved_views.view_create(
            owner=_user(request),
            scopes=person(request).scopes,
            page=where,
            name=name,
            query=request.POST.get("query", ""),
            shared=request.POST.get("shared") == "1",
            is_default=request.POST.get("is_default") == "1",
            actor=actor(request),
        )
    except InvalidSubmission as error:
        notices.error(request, f"The view was not saved. {problems(error)[0][1]}")
        return see_other(after(request))
    notices.success(request, f"Saved as “{made.name}”{', for the team' if made.shared else ''}.")
    return see_other(_open(made))


@requires(SCOPE, methods=("GET", "POST"))
def view_edit(request: HttpRequest, reference: str) -> HttpResponse:
    """Another name, for the team or not, the default or not."""

    def do(view: SavedView, known: dict[str, Any]) -> str:
        mine = view.owner_id == request.user.pk
        saved_views.view_update(
            **known,
            name=request.POST.get("name", ""),
            shared=request.POST.get("shared") == "1" if mine else None,
            is_default=request.POST.get("is_default") == "1" if mine else None,
        )
        return "The view is saved."

    return _dialog(request, reference, "Edit", "console/access/saved_view_edit.html", do)


@requires(SCOPE, methods=("GET", "POST"))
def view_delete(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and the end of a view; the list itself stays as it is."""

    def do(view: SavedView, known: dict[str, Any]) -> str:
        saved_views.view_delete(**known)
        return f"The view “{view.name}” is deleted."

    return _dialog(request, reference, "Delete", "console/access/saved_view_delete.html", do)


def _dialog(
    request: HttpRequest, reference: str, word: str, form: str, act: Callable[[SavedView, dict[str, Any]], str]
) -> HttpResponse:
    """`act` does it to the view, with what services want to know, and says what is done."""
    user, scopes = _user(request), person(request).scopes

    def do() -> HttpResponse:
        view = selectors.saved_view(user.pk, reference)
        known = {"view_id": view.pk, "user": user, "scopes": scopes, "actor": actor(request)}
        notices.success(request, act(view, {**known, "expected": number(request.POST.get("version", ""))}))
        return see_other("console:saved-views")

    def shown() -> dict[str, Any]:
        view = selectors.saved_view(user.pk, reference)
        return {
            "title": f"{word} {view.name}",
            "crumbs": [(reverse("console:saved-views"), "Saved views")],
            "view": view,
            "version": saved_views.revision(view),
            "mine": view.owner_id == user.pk,
            "may_share": saved_views.SHARE in scopes,
        }

    return dialog(request, form, shown, do)


def _open(view: SavedView) -> str:
    return f"{reverse(PAGES[view.page])}?{view.query}{'&' if view.query else ''}view={view.public_id}"


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user
