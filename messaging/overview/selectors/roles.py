"""Whether the process of a role on this machine does its work: for whoever starts it and has to know (`manage.py
health`). Each role proves it by what it does anyway.
"""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from messaging.engine.leases import presences
from messaging.journal.wording import span
from messaging.overview.probes import READY
from messaging.overview.selectors.health import CONNECTION_SECONDS
from rmhub import alive, clock
from rmhub.postgresql.base import patience, what_is_wrong

ANSWER_SECONDS = 10.0
# Beat turns at least every 30 s; a broker that is silent holds a round up.
BEAT_SECONDS = 120.0
# The pipeline looks every second; taking a large log from a partner's folder takes longer.
PIPELINE_SECONDS = 60.0


def wrong_with(role: str, url: str = "http://127.0.0.1:8000") -> str:
    """A sentence that says why the role does not do its work here; "" when it does. Raises KeyError for no role.

    `url`: where this machine's web server listens.
    """
    return ROLES[role](url)


def _web(url: str) -> str:
    """It is ready as balancers see it."""
    try:
        with urllib.request.urlopen(f"{url}{READY}", timeout=ANSWER_SECONDS):  # noqa: S310  (our own address)
            return ""
    except urllib.error.HTTPError as error:
        with error:
            return " ".join(error.read().decode(errors="replace").split()) or f"{url} answered {error.code}."
    except (OSError, ValueError) as error:
        return f"Nobody answers at {url}: {error}."


def _worker(url: str) -> str:
    """Its row is renewed by a process of this machine."""
    try:
        with patience(CONNECTION_SECONDS):
            here = [one for one in presences() if one.here]
    except (DatabaseError, InterfaceError) as error:
        return f"The database: {what_is_wrong(error)}"
    lost = [one for one in here if one.lost_since is not None]
    if not here:
        return "No worker of this machine has made itself known."
    if lost and lost[0].lost_since is not None:
        ago = span(max(0.0, (clock.now() - lost[0].lost_since).total_seconds()))
        return f"Worker {lost[0].name} was last heard of {ago} ago: stopped, or cut off from the database."
    return ""


def _signs(role: str, most: float) -> Callable[[str], str]:
    def look(url: str) -> str:
        """It gave its sign of life a short time ago."""
        ago = alive.seconds_since(role)
        if ago is None:
            return f"No {role} runs on this machine."
        return f"The last sign of {role} is {span(ago)} old: it hangs, or is stopped." if ago > most else ""

    return look


def _mail(url: str) -> str:
    """It greets whoever connects (RFC 5321, 3.1)."""
    if settings.RMHUB_SMTP_LISTEN is None:
        return "RMHUB_SMTP_LISTEN is not set: this hub takes no mail by SMTP."
    host, port = settings.RMHUB_SMTP_LISTEN
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    try:
        with socket.create_connection((host, port), timeout=ANSWER_SECONDS) as made:
            greeting = made.recv(512)
    except OSError as error:
        return f"Nobody answers at {host}:{port}: {error.strerror or error}."
    return "" if greeting.startswith(b"220") else f"What listens at {host}:{port} does not greet as a mail server."


ROLES: Mapping[str, Callable[[str], str]] = {
    "web": _web,
    "worker": _worker,
    "beat": _signs("beat", BEAT_SECONDS),
    "pipeline": _signs("pipeline", PIPELINE_SECONDS),
    "mail": _mail,
}
