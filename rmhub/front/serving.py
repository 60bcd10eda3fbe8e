"""How the web server is started: `up` runs this command, and `python -m rmhub.front.serving` becomes it."""

from __future__ import annotations

import argparse
import os
import sys

from rmhub.commandline import check_settings

HEADER_SECONDS = 20  # for a request's headers, and for the next request of a connection that is kept open
CONNECTIONS = 8192
_BUFFER = 128 * 1024  # of a connection: no headers are larger


def command(host: str, port: int) -> list[str]:
    """The command line of the web server.

    HTTP/1.1 only: what speaks HTTP/2 with the world is the proxy, and a connection that may be either has no deadline
    until its first byte. One process: budgets and patience are counted in it.
    """
    return [
        *(sys.executable, "-m", "granian", "--interface", "asginl", "--http", "1", "--no-ws"),
        *("--host", host, "--port", str(port), "--workers", "1", "--loop", "asyncio"),
        *("--backlog", "4096", "--backpressure", str(CONNECTIONS)),
        *("--http1-header-read-timeout", str(HEADER_SECONDS * 1000), "--http1-buffer-size", str(_BUFFER)),
        *("--respawn-failed-workers", "--workers-kill-timeout", "5", "--log-level", "error"),
        "rmhub.asgi:application",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Runs the hub's web server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmhub.settings")
    check_settings()  # the server would start workers that end at once, again and again
    argv = command(given.host, given.port)
    os.execv(argv[0], argv)  # noqa: S606  (the server itself, with arguments of our own)
