"""The partners' entrance without what only people need: no sessions, cookies, CSRF or page headers.

Messages and acknowledgements are most of what the web server does, and a third of their time went into middleware that
does nothing for them (docs/benchmarks.md). Same view as in the URLconf.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from django.core.handlers.wsgi import WSGIRequest
from django.db import close_old_connections

from messaging.inbound.views import ebxml

PATH = re.compile(r"/ebxml/(?:msh|errors)(?:/[A-Za-z0-9._~-]{1,64})?")

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def entrance_first(rest: WSGI) -> WSGI:
    """A WSGI application that serves the partners' entrance itself and leaves every other path to `rest`."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if not PATH.fullmatch(environ.get("PATH_INFO", "")):
            return rest(environ, start_response)
        answer = ebxml(WSGIRequest(environ))
        if answer.status_code >= 500:
            close_old_connections()  # what broke under this request must not break the next
        start_response(
            f"{answer.status_code} {HTTPStatus(answer.status_code).phrase}",
            [(name, value) for name, value in answer.items() if name != "Content-Type"],
        )
        return (answer.content,)

    return application
