"""The partners' entrances without what only people need: no sessions, cookies, CSRF or page headers.

Messages and acknowledgements are most of what the web server does, and a third of their time went into middleware that
does nothing for them (docs/benchmarks.md). Same views as in the URLconf.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse

from messaging.entrance.ebxml_view import ebxml
from messaging.entrance.exchange_view import exchange, well_known
from messaging.entrance.stream_view import stream
from messaging.entrance.ws_tx_view import coordination
from rmhub.postgresql.base import give_back

PATH = re.compile(r"/ebxml/(?:msh|errors)(?:/[A-Za-z0-9._~-]{1,64})?")
EXCHANGE = "/exchange/"
STREAM = "/stream/"
COORDINATION = re.compile(r"/ws-tx/([a-z-]{1,40})/?")
WELL_KNOWN = "/.well-known/reliable-messaging"

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
View = Callable[[HttpRequest], HttpResponse]


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
    if PATH.fullmatch(path):
        return _bodyless
    if path.startswith(EXCHANGE) and path != EXCHANGE:
        return _exchange
    if path.startswith(STREAM) and path != STREAM:
        return _stream
    if COORDINATION.fullmatch(path):
        return _coordination
    return well_known if path == WELL_KNOWN else None


def _bodyless(request: HttpRequest) -> HttpResponse:
    answer = ebxml(request)
    del answer["Content-Type"]
    return answer


def _exchange(request: HttpRequest) -> HttpResponse:
    return exchange(request, request.path_info.removeprefix(EXCHANGE))


def _stream(request: HttpRequest) -> HttpResponse:
    return stream(request, request.path_info.removeprefix(STREAM))


def _coordination(request: HttpRequest) -> HttpResponse:
    named = COORDINATION.fullmatch(request.path_info)
    assert named is not None, "it is how the view was found"
    return coordination(request, named[1])


def _phrase(status: int) -> str:
    """An application may answer with a status that nobody has named."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unnamed"
