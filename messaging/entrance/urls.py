"""The paths of all entrances of partners: messages of each profile, and the services beside them.

The server goes to the entrances without what only people need: no sessions, cookies, CSRF or page headers. Messages
and acknowledgements are most of what it does, and a third of their time went into middleware that does nothing for
them (docs/benchmarks.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from typing import Any

from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse
from django.urls import include, path, re_path

from messaging.entrance import partner_views, views
from rmhub.postgresql.base import give_back

ebxml = [
    path("msh", views.ebxml, name="msh"),
    path("errors", views.ebxml, name="errors"),
    # A hub may have several messaging service URIs; which of them an agreement means is checked by its ReceiverURI.
    re_path(r"^(?:msh|errors)/[A-Za-z0-9._~-]{1,64}$", views.ebxml),
]
ebms2 = [
    path("msh", views.ebms2, name="msh"),
    re_path(r"^msh/[A-Za-z0-9._~-]{1,64}$", views.ebms2),
]
exchange = [
    re_path(r"^exchange/(?P<path>[\s\S]+)$", views.exchange, name="exchange"),
    path(".well-known/reliable-messaging", views.well_known, name="well-known"),
    path("problems/", views.problems, name="problems"),
    path("problems/<slug:code>", views.problems, name="problem"),
]
# Which of the hub's stream URIs an agreement means is checked by the message's `to`.
streams = [re_path(r"^stream/(?P<path>[\s\S]+)$", views.stream, name="stream")]
coordination = [re_path(r"^ws-tx/(?P<service>[a-z-]{1,40})/?$", views.coordination, name="service")]

urlpatterns = [
    path("ebxml/", include((ebxml, "inbound"))),
    path("ebms2/", include((ebms2, "ebms2"))),
    path("", include((exchange, "exchange"))),
    path("", include((streams, "streams"))),
    path("", include((coordination, "ws-tx"))),
    path("partner/status", partner_views.status, name="partner-status"),
    path("partner/echo", partner_views.echo, name="partner-echo"),
]

EXCHANGE = "/exchange/"

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
View = Callable[[HttpRequest], HttpResponse]

# As above.
_ENTRANCES: tuple[tuple[re.Pattern[str], Callable[..., HttpResponse]], ...] = (
    (re.compile(r"/ebxml/(?:msh|errors)(?:/[A-Za-z0-9._~-]{1,64})?"), views.ebxml),
    (re.compile(r"/ebms2/msh(?:/[A-Za-z0-9._~-]{1,64})?"), views.ebms2),
    (re.compile(EXCHANGE + r"(?P<path>[\s\S]+)"), views.exchange),
    (re.compile(r"/stream/(?P<path>[\s\S]+)"), views.stream),
    (re.compile(r"/ws-tx/(?P<service>[a-z-]{1,40})/?"), views.coordination),
    (re.compile(r"/\.well-known/reliable-messaging"), views.well_known),
)


def entrance_first(rest: WSGI) -> WSGI:
    """A WSGI application that serves the partners' entrances itself and leaves every other path to `rest`."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        view = _view(environ.get("PATH_INFO", ""))
        if view is None:
            return rest(environ, start_response)
        try:
            answer = view(WSGIRequest(environ))
        finally:
            give_back()
        start_response(f"{answer.status_code} {_phrase(answer.status_code)}", list(answer.items()))
        return (answer.content,)

    return application


def is_entrance(path: str) -> bool:
    """Whether partners' messages come in by this path."""
    return _view(path) is not None


def _view(path: str) -> View | None:
    for pattern, view in _ENTRANCES:
        if named := pattern.fullmatch(path):
            return partial(view, **named.groupdict())
    return None


def _phrase(status: int) -> str:
    """An application may answer with a status that nobody has named."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unnamed"
