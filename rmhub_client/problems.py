"""What the hub answers instead of what was asked for (RFC 9457), and no answer at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class NoAnswer(ConnectionError):
    """Nobody has answered for as long as the client is patient: it is not known whether the request was carried out.

    One that has a key, or changes nothing, can be made again as it was.
    """


class Problem(Exception):
    """An answer that is not 2xx. Decide by `code`, show `detail` to people, log `request_id`.

    `retryable`: the same request may succeed later; `retry_after`: not before so many seconds. `errors`: one for each
    field that is wrong, with `pointer`, `code` and `detail`. `members`: all of the document.
    """

    def __init__(self, status: int, members: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        self.members = dict(members)
        self.code = str(members.get("code", f"http_{status}"))
        self.detail = str(members.get("detail", ""))
        self.request_id = str(members.get("request_id", ""))
        self.retryable = bool(members.get("retryable", status in (429, 502, 503, 504)))
        self.retry_after = retry_after
        self.errors: list[Mapping[str, Any]] = list(members.get("errors") or ())
        super().__init__(f"{status} {self.code}: {self.detail}".rstrip(": "))


def read(status: int, content_type: str, body: bytes, retry_after: str) -> Problem:
    """The problem of an answer, whoever gave it: a proxy in between knows nothing of problem documents."""
    members: Any = None
    if "json" in content_type:
        try:
            members = json.loads(body)
        except ValueError:
            members = None
    if not isinstance(members, dict):
        members = {"detail": body[:200].decode("utf-8", "replace").strip()}
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    return Problem(status, members, seconds)
