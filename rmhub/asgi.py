"""What the web server runs: the front, which fetches bodies, before Django's WSGI application in threads."""

from __future__ import annotations

import resource

from django.conf import settings

from rmhub.wsgi import application as wsgi

# Only now, for they need the app registry, which the import above has filled.
from rmhub.front.application import Bounds, Front  # isort: skip
from rmhub.front.bodies import Pace  # isort: skip
from rmhub.front.environ import Peers  # isort: skip
from rmhub.front.refusing import refusing  # isort: skip

_FILES = 65_536  # as many as may be open: each connection is one, and so is each large body


def _raise_limit() -> None:
    """Takes as many open files as the system allows: shells and systemd begin with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


_raise_limit()
application = Front(
    wsgi,
    refusing,
    Bounds(
        threads=settings.RMHUB_WEB_THREADS,
        pace=Pace(settings.RMHUB_BODY_GRACE_SECONDS, settings.RMHUB_BODY_RATE, settings.RMHUB_BODY_SECONDS),
        memory=settings.RMHUB_BODY_MEMORY_BYTES,
        spool=settings.RMHUB_BODY_SPOOL_BYTES,
        wait=settings.RMHUB_BODY_WAIT_SECONDS,
        drain=settings.RMHUB_DRAIN_SECONDS,
        discard=2 * settings.RMHUB_MAX_MESSAGE_BYTES,
        folder=settings.VAR_DIR / "spool",
    ),
    Peers(
        tuple(settings.RMHUB_TRUSTED_PROXIES),
        chain=settings.RMHUB_FORWARDED_HEADER,
        fingerprint_header=settings.RMHUB_FINGERPRINT_HEADER,
    ),
    access_log=settings.RMHUB_ACCESS_LOG,
)
