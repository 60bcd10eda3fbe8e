"""How the web server is started: `python -m rmhub.front.serving` reads the settings and becomes it."""

from __future__ import annotations

import argparse
import os
import sys

from django.conf import settings

from rmhub.commandline import check_settings

HEADER_SECONDS = 20  # for a request's headers, and for the next request of a connection that is kept open
CONNECTIONS = 8192
_BUFFER = 128 * 1024  # of a connection: no headers are larger


def _server(host: str, port: int, ends_within: int) -> list[str]:
    """The command line of the HTTP server. `ends_within`: seconds from SIGTERM on, after which it is killed.

    HTTP/1.1 only: what speaks HTTP/2 with the world is the proxy, and a connection that may be either has no deadline
    until its first byte. One process: budgets and patience are counted in it.
    """
    return [
        *(sys.executable, "-m", "granian", "--interface", "asgi", "--http", "1", "--no-ws"),
        *("--host", host, "--port", str(port), "--workers", "1", "--loop", "asyncio"),
        *("--backlog", "4096", "--backpressure", str(CONNECTIONS)),
        *("--http1-header-read-timeout", str(HEADER_SECONDS * 1000), "--http1-buffer-size", str(_BUFFER)),
        *("--respawn-failed-workers", "--workers-kill-timeout", str(ends_within), "--log-level", "error"),
        "rmhub.asgi:application",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Runs the hub's web server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmhub.settings")
    check_settings()  # the server would start workers that end at once, again and again
    argv = _server(given.host, given.port, settings.RMHUB_DRAIN_SECONDS + settings.RMHUB_FINISH_SECONDS)
    os.execv(argv[0], argv)  # noqa: S606  (the server itself, with arguments of our own)
