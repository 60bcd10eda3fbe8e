"""Answers balancers: `/livez`, whether this web server runs, and `/readyz`, whether it wants requests.

They are before everything else: a balancer asks by address and without TLS, which the site itself refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from messaging.overview.selectors.health import health
from rmhub.front import draining
from rmhub.front.application import WSGI, Environ, StartResponse
from rmhub.postgresql.base import give_back


def probes_first(rest: WSGI) -> WSGI:
    """A WSGI application that answers the two and leaves every other path to `rest`."""

    def application(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        probe = _PROBES.get(environ.get("PATH_INFO", ""))
        if probe is None:
            return rest(environ, start_response)
        status, said = probe()
        start_response(status, [("Content-Type", "text/plain"), ("Cache-Control", "no-store")])
        return (f"{said}\n".encode(),)

    return application


def _ready() -> tuple[str, str]:
    if draining.has_begun():
        return "503 Service Unavailable", "draining"
    try:
        return ("200 OK", "ready") if health().ready else ("503 Service Unavailable", "unhealthy")
    finally:
        give_back()


_PROBES: dict[str, Callable[[], tuple[str, str]]] = {
    "/livez": lambda: ("200 OK", "alive"),
    "/readyz": _ready,
}
