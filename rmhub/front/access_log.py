"""A line for each request: of the console, the API and the partners' entrances alike, and of what the front refuses."""

from __future__ import annotations

import logging
import re
from typing import Any
from urllib.parse import quote

from rmhub.front.environ import CALLER, REQUEST_ID

log = logging.getLogger("rmhub.access")

# Whoever has the last part of such an address sets a password by it.
_SECRET = re.compile(r"^(/invitation/[^/]*/).+", re.DOTALL)
_PLAIN = re.compile(r"[!-~]*")


class Counted:
    """Sends an answer on, and knows afterwards what it was. `status`: 0 = there was none."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self.status = self.size = 0

    async def __call__(self, event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            self.status = event["status"]
        else:
            self.size += len(event.get("body", b""))
        await self._send(event)


def note(environ: dict[str, Any], answer: Counted, seconds: float) -> None:
    """Writes the line. It has no query: searches and log-ins name people and documents."""
    path = _SECRET.sub(r"\1...", environ["PATH_INFO"])
    log.info(
        "request",
        extra={
            "method": environ["REQUEST_METHOD"],
            "path": path if _PLAIN.fullmatch(path) else quote(path.encode("latin-1"), safe="/:@!$&'()*+,;=~%"),
            "status": answer.status,
            "bytes": answer.size,
            "milliseconds": round(seconds * 1000, 1),
            "caller": environ.get(CALLER, ""),
            "address": environ["REMOTE_ADDR"],
            "request_id": environ[REQUEST_ID],
        },
    )
