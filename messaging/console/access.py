"""Who may open which page: one decorator, with the same scopes as the API. A view without it fails a test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.utils.cache import add_never_cache_headers

from messaging.choices import Interface
from messaging.exceptions import NotFound
from messaging.services.audit import Actor
from rmhub.ids import BadPublicId
from rmhub.roles import SCOPES, Role, role_for, role_of

PUBLIC = "public"

View = Callable[..., HttpResponseBase]
ScopeRule = str | Callable[[dict[str, Any]], str]


@dataclass(frozen=True, slots=True)
class Person:
    """Who looks at the page. `role` is None for a user whom nobody gave one."""

    name: str
    role: Role | None
    scopes: frozenset[str]

    def lacks(self, scope: str) -> str:
        """The role that is missing for a scope, "" when nothing is missing."""
        return "" if scope in self.scopes else role_for(scope).value


def person(request: HttpRequest) -> Person:
    """Of this request; looked up once."""
    known: Person | None = getattr(request, "_console_person", None)
    if known is None:
        role = role_of(request.user)
        known = Person(request.user.get_username(), role, SCOPES[role] if role else frozenset())
        request._console_person = known  # type: ignore[attr-defined]
    return known


def actor(request: HttpRequest) -> Actor:
    """Whom the audit log names."""
    return Actor(
        name=request.user.get_username(),
        interface=Interface.CONSOLE,
        address=request.META.get("REMOTE_ADDR", ""),
        request_id=getattr(request, "request_id", ""),
    )


def requires(scope: ScopeRule, *, methods: tuple[str, ...] = ("GET",)) -> Callable[[View], View]:
    """Opens a view to people whose role has the scope, or to everybody (`PUBLIC`), for these methods only.

    `scope` may be a function of the URL's parameters. A person without a session goes to the log-in page; a fragment
    is answered 401 with the way there. What a selector or service does not find becomes 404.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if request.method not in methods and not (request.method == "HEAD" and "GET" in methods):
                return HttpResponseNotAllowed(methods)
            wanted = scope if isinstance(scope, str) else scope(kwargs)
            if wanted != PUBLIC:
                if not request.user.is_authenticated:
                    return _to_login(request)
                missing = person(request).lacks(wanted)
                if missing:
                    raise PermissionDenied(f"This needs the role {missing}. Your role is {_role_name(request)}.")
            try:
                response = view(request, *args, **kwargs)
            except (NotFound, BadPublicId) as error:
                raise Http404(str(error)) from error
            # Pages show what only people who are logged in may see: they stay out of caches, the browser's too.
            add_never_cache_headers(response)
            return response

        guarded.scope = scope  # type: ignore[attr-defined]
        guarded.methods = methods  # type: ignore[attr-defined]
        return guarded

    return decorate


def _role_name(request: HttpRequest) -> str:
    role = person(request).role
    return role.value if role else "none yet; an admin gives you one"


def _to_login(request: HttpRequest) -> HttpResponse:
    login = resolve_url(settings.LOGIN_URL)
    if request.headers.get("HX-Request") == "true":
        answer = HttpResponse(status=401)
        answer["HX-Redirect"] = login
        return answer
    # What was posted is gone, so the way back is to the page and not to the action.
    after = request.get_full_path() if request.method == "GET" else "/"
    return HttpResponseRedirect(f"{login}?{urlencode({'next': after})}")
