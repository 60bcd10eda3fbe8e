"""Who may open which page: one decorator, with the same scopes as the API. A view without it fails a test."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext as _

from messaging.access.selectors import reach
from messaging.access.services import sessions
from messaging.choices import Interface
from messaging.exceptions import NotFound
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.permissions import permissions_of
from partners import visibility
from rmhub.front.environ import CALLER
from rmhub.ids import BadPublicId
from rmhub.roles import NAMES, SCOPES, WHOLE_HUB_SCOPES, Role, role_for

PUBLIC = "public"
SIGNED_IN = "signed in"  # everybody with a role, a partner's people too
# In the session of somebody who must set up a second factor first; and the pages that are open until they have.
ENROL = "must_enrol"
_ENROLLING = ("second-factor", "second-factor-codes")

View = Callable[..., HttpResponseBase]
ScopeRule = str | Callable[[dict[str, Any]], str]


@dataclass(frozen=True, slots=True)
class Person:
    """Who looks at the page. `role` is None for a user whom nobody gave one.

    `partners`: whose data they may see (`messaging.permissions`); None = everybody's.
    """

    name: str
    role: Role | None
    scopes: frozenset[str]
    partners: frozenset[uuid.UUID] | None = None

    @property
    def limited(self) -> bool:
        return self.partners is not None

    def lacks(self, scope: str) -> str:
        """What is missing for a scope: a role's name, or access to all partners; "" when nothing is."""
        if scope in self.scopes:
            return ""
        if scope == SIGNED_IN:
            return str(NAMES[Role.VIEWER])
        if self.role is not None and scope in SCOPES[self.role]:
            return _("{role} with access to all partners").format(role=NAMES[self.role])
        return str(NAMES[role_for(scope)])


def person(request: HttpRequest) -> Person:
    """Of this request; looked up once."""
    known: Person | None = getattr(request, "_console_person", None)
    if known is None:
        permissions = permissions_of(request.user)
        known = Person(request.user.get_username(), permissions.role, permissions.scopes, permissions.partners)
        request._console_person = known  # type: ignore[attr-defined]
    return known


def actor(request: HttpRequest) -> Actor:
    """Whom the audit log names."""
    return Actor(
        name=request.user.get_username(),
        interface=Interface.CONSOLE,
        address=request.META.get("REMOTE_ADDR", ""),
        request_id=getattr(request, "request_id", ""),
        authentication=str(request.session.get("method", "session")),
    )


def requires(
    scope: ScopeRule, *, methods: tuple[str, ...] = ("GET",), whole_hub: bool = False
) -> Callable[[View], View]:
    """Opens a view to people whose role has the scope, to all who have one (`SIGNED_IN`), or to everybody (`PUBLIC`),
    for these methods only.

    `scope` may be a function of the URL's parameters. `whole_hub`: shows or changes what cannot be told apart by
    partner, so it is closed to people who are limited to some. A person without a session goes to the log-in page; a
    fragment is answered 401 with the way there. What a selector or service does not find becomes 404, and so does
    every id of a partner that the person may not see.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if request.method not in methods and not (request.method == "HEAD" and "GET" in methods):
                return HttpResponseNotAllowed(methods)
            wanted = scope if isinstance(scope, str) else scope(kwargs)
            if wanted != PUBLIC:
                if not request.user.is_authenticated or has_ended(request):
                    return _to_login(request)
                request.META[CALLER] = request.user.get_username()
                if request.session.get(ENROL) and _page_of(request) not in _ENROLLING:
                    return HttpResponseRedirect(resolve_url("console:second-factor"))
                _note_use(request)
                if person(request).role == Role.PARTNER and _page_of(request) == "dashboard":
                    return HttpResponseRedirect(resolve_url("console:portal"))
                try:
                    _check_scope(person(request), wanted, whole_hub)
                except PermissionDenied:
                    _note_refusal(request, wanted, kwargs)
                    raise
            try:
                response = _within_reach(request, view, wanted, args, kwargs)
            except (NotFound, BadPublicId) as error:
                raise Http404(str(error)) from error
            # Pages show what only people who are logged in may see: they stay out of caches, the browser's too.
            add_never_cache_headers(response)
            return response

        guarded.scope = scope  # type: ignore[attr-defined]
        guarded.methods = methods  # type: ignore[attr-defined]
        guarded.whole_hub = whole_hub  # type: ignore[attr-defined]
        return guarded

    return decorate


def _note_refusal(request: HttpRequest, wanted: str, parameters: dict[str, Any]) -> None:
    """What somebody tried to do, or whose documents to read, is in the audit log; where they looked is not."""
    if request.method == "POST" or wanted == "payloads:read":
        audit.refused(actor(request), _page_of(request), parameters, method=request.method or "", required=wanted)


def _page_of(request: HttpRequest) -> str:
    return (request.resolver_match.url_name or "") if request.resolver_match is not None else ""


def has_ended(request: HttpRequest) -> bool:
    """Whether nobody used the session for too long: it is ended then. Live regions ask without anybody being there."""
    by_itself = request.headers.get("HX-Target", "").startswith("live-") or _page_of(request) == "toasts"
    if not sessions.is_idle(request.session, by_itself=by_itself):
        return False
    sessions.session_ended(key=request.session.session_key or "")
    request.session.flush()
    request.user = AnonymousUser()
    return True


def _note_use(request: HttpRequest) -> None:
    key = request.session.session_key
    if key and request.user.pk is not None:
        sessions.session_seen(
            user_id=request.user.pk,
            key=key,
            address=request.META.get("REMOTE_ADDR", ""),
            agent=request.headers.get("User-Agent", ""),
            method=str(request.session.get("method", "session")),
        )


def _check_scope(who: Person, wanted: str, whole_hub: bool) -> None:
    if wanted == SIGNED_IN and who.role is not None:
        return
    if who.limited and who.role is not None:
        role_has = wanted in SCOPES[who.role]
        if (role_has and wanted in WHOLE_HUB_SCOPES) or (whole_hub and wanted in who.scopes):
            raise PermissionDenied(
                _(
                    "This concerns all partners, and your access is limited to the partners of some groups. "
                    "Ask an admin who sees them all."
                )
            )
    missing = who.lacks(wanted)
    if missing:
        yours = _("Your role is {role}.").format(role=NAMES[who.role]) if who.role else _("You have no role yet.")
        raise PermissionDenied(f"{_('This needs the role {role}.').format(role=missing)} {yours}")


def _within_reach(
    request: HttpRequest, view: View, wanted: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> HttpResponseBase:
    """Calls the view under the limits of whoever asks; they hold for a streamed answer to its end."""
    if wanted == PUBLIC:
        return view(request, *args, **kwargs)
    who = person(request)
    with visibility.only(who.partners, who.name):
        if who.limited:
            reach.check([*kwargs.values(), dict(request.GET.lists())])
            if request.method == "POST":
                reach.check(dict(request.POST.lists()))
        response = view(request, *args, **kwargs)
        if request.method == "POST" and request.headers.get("HX-Request") == "true" and response.status_code == 303:
            # What was done in a dialog leads on as a page; only what was refused stays in it.
            return HttpResponse(status=204, headers={"HX-Redirect": response["Location"]})
        if who.limited and isinstance(response, StreamingHttpResponse):
            response.streaming_content = visibility.lasting(response.streaming_content)
    return response


def _to_login(request: HttpRequest) -> HttpResponse:
    login = resolve_url(settings.LOGIN_URL)
    if request.headers.get("HX-Request") == "true":
        answer = HttpResponse(status=401)
        answer["HX-Redirect"] = login
        return answer
    # What was posted is gone, so the way back is to the page and not to the action.
    after = request.get_full_path() if request.method == "GET" else "/"
    return HttpResponseRedirect(f"{login}?{urlencode({'next': after})}")
