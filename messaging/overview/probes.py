"""`/readyz`, for balancers and orchestrators: whether this web server can take and answer requests.

It is served before Django: probes name no host of ours, come without TLS and log in nowhere. `/livez` beside it is
answered by the front itself (`rmhub.front.application`), for a server whose threads all wait is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from django.conf import settings
from django.utils import translation

from messaging.overview.selectors.health import PartState, readiness
from rmhub.front import draining
from rmhub.postgresql.base import give_back

READY = "/readyz"

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def probes_first(rest: WSGI) -> WSGI:
    """A WSGI application that answers probes itself and leaves every other path to `rest`."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != READY:
            return rest(environ, start_response)
        status, text = _answer(environ)
        kind = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
        start_response(f"{status.value} {status.phrase}", kind)
        return (text.encode(),)

    return application


def _answer(environ: dict[str, Any]) -> tuple[HTTPStatus, str]:
    """A line for each part that is down; with `?verbose` one for each part."""
    if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        return HTTPStatus.METHOD_NOT_ALLOWED, "Ask with GET.\n"
    if draining.has_begun():
        return HTTPStatus.SERVICE_UNAVAILABLE, "draining: this web server was told to end\n"
    verbose = "verbose" in parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    with translation.override(settings.LANGUAGE_CODE):
        try:
            parts = readiness()
        finally:
            give_back()
        down = [part for part in parts if part.state is PartState.DOWN]
        lines = [
            f"{part.name} {part.state}: {part.detail}" if part.detail else f"{part.name} {part.state}"
            for part in (parts if verbose else down)
        ]
    if not down:
        lines.append("ready" if verbose else "ok")
    return HTTPStatus.SERVICE_UNAVAILABLE if down else HTTPStatus.OK, "".join(f"{line}\n" for line in lines)
