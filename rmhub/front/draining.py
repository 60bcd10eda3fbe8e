"""Lets a web server leave without losing a request: it says first that it goes, works on for a while, and then ends.

Whoever shares requests out (a balancer, Kubernetes) needs some time to notice that `/readyz` says 503. Until then the
server takes what comes, and says with each answer that the connection ends. Then it takes no new connection, finishes
what it has begun, and ends (rmhub.front.serving).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading

log = logging.getLogger(__name__)

_begun = threading.Event()


def has_begun() -> bool:
    """Whether this process was told to end: `/readyz` says 503 from then on. True for no other process of the hub."""
    return _begun.is_set()


def at_sigterm(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Have SIGTERM begin the drain, and end the server so many seconds later.

    To be called when the HTTP server has set its own handlers: SIGINT is left to it, and is how it is told then.
    """

    def begin() -> None:
        if _begun.is_set():
            return  # systemd and a terminal tell every process of a group, and the server tells its children
        _begun.set()
        log.info("draining", extra={"action": "draining", "seconds": seconds})
        loop.call_later(seconds, os.kill, os.getpid(), signal.SIGINT)

    loop.add_signal_handler(signal.SIGTERM, begin)
