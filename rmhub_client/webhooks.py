"""Verifies what comes to a webhook, as Standard Webhooks 1.0 describes it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


class BadSignature(ValueError):
    """The request does not come from the hub, or is too old: answer 401, and do nothing."""


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """A verified event. `id` is the same in all attempts to deliver it: recognise repeats by it."""

    id: str
    type: str
    timestamp: str
    data: Mapping[str, Any]


def check(
    secrets: str | Iterable[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float | None = None,
    tolerance: int = 300,
) -> str:
    """Whether the hub has sent this body, to a webhook or to an HTTP trigger's service; returns its `webhook-id`.

    `secrets`: `whsec_...`, several while one is being replaced. `headers`: names in any case. `tolerance`: how many
    seconds its time may differ from `now` (default: the clock's). Raises BadSignature.
    """
    found = {name.lower(): value for name, value in headers.items()}
    try:
        identity, at = found["webhook-id"], found["webhook-timestamp"]
        given = found["webhook-signature"].split()
    except KeyError as error:
        raise BadSignature("The headers webhook-id, webhook-timestamp and webhook-signature are needed.") from error
    if not (at.isascii() and at.isdigit() and len(at) < 13):
        raise BadSignature("Its time is no number of seconds.")
    if abs((time.time() if now is None else now) - int(at)) > tolerance:
        raise BadSignature("It is too old, or a clock is wrong.")
    signed = f"{identity}.{at}.".encode() + body
    expected = [_signature(secret, signed) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    if not any(hmac.compare_digest(one.encode(), other.encode()) for one in expected for other in given):
        raise BadSignature("No signature fits.")
    return identity


def verify(
    secrets: str | Iterable[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float | None = None,
    tolerance: int = 300,
) -> WebhookEvent:
    """The event of a request to a webhook, as `check` lets it through. Raises BadSignature, and ValueError for a body
    that is signed and no event.
    """
    identity = check(secrets, headers, body, now=now, tolerance=tolerance)
    event = json.loads(body)
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise ValueError("The body is signed, but no event.")
    return WebhookEvent(identity, event["type"], str(event.get("timestamp", "")), event.get("data") or {})


def _signature(secret: str, signed: bytes) -> str:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        raise ValueError("A secret has the form whsec_ and base64.") from error
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
