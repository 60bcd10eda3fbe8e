"""Signs of life of the processes that have no row in the database: a file that each renews while it does its work.

It tells which process it is of, so that neither a file that was left behind nor a number that somebody else has now is
taken for a sign.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from django.conf import settings

from rmhub.embedded.processes import Mark

RENEW_SECONDS = 1.0


class Sign:
    """The sign of this process. Nothing that is wrong with the disk disturbs whoever gives it."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._given = float("-inf")  # monotonic

    def give(self) -> None:
        """Renew it, at most once in `RENEW_SECONDS`."""
        now = time.monotonic()
        if now - self._given < RENEW_SECONDS:
            return
        path = _path(self._role)
        with suppress(OSError):
            if self._given == float("-inf") or not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                new = path.with_suffix(f".{os.getpid()}")
                new.write_text(json.dumps(asdict(Mark.own())))
                os.replace(new, path)
            os.utime(path)
            self._given = now


def seconds_since(role: str) -> float | None:
    """How long ago a process of this role that is still there gave its sign, on this machine; None: there is none."""
    path = _path(role)
    try:
        mark = Mark(**json.loads(path.read_text()))
        given = path.stat().st_mtime
    except (OSError, ValueError, TypeError):
        return None
    return max(0.0, time.time() - given) if mark.is_alive() else None


def _path(role: str) -> Path:
    """Hubs and machines that share a folder have files of their own."""
    hub = settings.RMHUB_COOKIE_SUFFIX or "hub"
    return Path(settings.VAR_DIR) / "run" / f"{role}-{hub}-{socket.gethostname()}.alive"
