"""Tells endpoints of events, signed as Standard Webhooks 1.0 describes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import logging
import secrets
import socket
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import urllib3
from django.conf import settings
from django.db import transaction

from messaging import dispatch
from messaging.choices import WebhookState
from messaging.exceptions import InvalidSubmission, NotFound, Stale
from messaging.models import WebhookDelivery, WebhookEndpoint
from messaging.models.bulk import bulk_set
from messaging.services import audit, events
from messaging.services.audit import Actor
from messaging.transports.public import public_pool
from partners.secrets import decrypt, encrypt
from rmhub import clock
from rmhub.ids import public_id

log = logging.getLogger(__name__)

# Seconds before attempt 2, 3 ... (Standard Webhooks' recommended schedule, plus a day).
SCHEDULE = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
TIMEOUT = 15
_LEASE = timedelta(seconds=120)
# The check of the name below is for people; the pool for public addresses checks the very connection.
_any_pool = urllib3.PoolManager(num_pools=50, maxsize=4, retries=False)
_public_pool = public_pool()


def endpoint_create(
    *, url: str, types: Sequence[str], name: str, actor: Actor, reason: str = ""
) -> tuple[WebhookEndpoint, str]:
    """A new endpoint and its secret (`whsec_...`), which is shown this once. Raises InvalidSubmission."""
    _check(url, types)
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    with transaction.atomic():
        endpoint = WebhookEndpoint.objects.create(
            name=name, url=url, types=list(types), secret_encrypted=encrypt(secret), created_at=clock.now()
        )
        audit.record(actor, "webhook.create", endpoint, reason=reason, after=_described(endpoint))
    return endpoint, secret


def endpoint_update(
    *,
    endpoint_id: uuid.UUID,
    actor: Actor,
    reason: str = "",
    enabled: bool | None = None,
    url: str | None = None,
    name: str | None = None,
    types: Sequence[str] | None = None,
    expected: str | None = None,
) -> WebhookEndpoint:
    """Changes what is given. What waits for an endpoint that is switched on again goes out at once.

    Raises NotFound, InvalidSubmission, and Stale when the endpoint is not what `expected` (a `revision`) names.
    """
    with transaction.atomic():
        endpoint = _locked(endpoint_id)
        if expected is not None and revision(endpoint) != expected:
            raise Stale("This endpoint changed since you looked at it: look again before you change it.", version=0)
        _check(url if url is not None else endpoint.url, types if types is not None else endpoint.types, new=url)
        before = _described(endpoint)
        endpoint.url = endpoint.url if url is None else url
        endpoint.name = endpoint.name if name is None else name
        endpoint.types = endpoint.types if types is None else list(types)
        if enabled is not None:
            endpoint.enabled = enabled
            endpoint.disabled_reason = "" if enabled else reason[:255]
            endpoint.failing_since = None
        endpoint.save(update_fields=["url", "name", "types", "enabled", "disabled_reason", "failing_since"])
        audit.record(actor, "webhook.update", endpoint, reason=reason, before=before, after=_described(endpoint))
        dispatch.wake_on_commit(dispatch.WEBHOOKS)
    return endpoint


def revision(endpoint: WebhookEndpoint) -> str:
    """Names what people can change of an endpoint (ETag)."""
    return hashlib.sha256(json.dumps(_described(endpoint), sort_keys=True).encode()).hexdigest()[:20]


def _described(endpoint: WebhookEndpoint) -> dict[str, object]:
    return {"url": endpoint.url, "name": endpoint.name, "types": endpoint.types, "enabled": endpoint.enabled}


def _check(url: str, types: Sequence[str], *, new: str | None = "") -> None:
    """Raises InvalidSubmission. An address that did not change (`new` is None) is not looked up again."""
    errors: dict[str, list[str]] = {}
    if new is not None and (problem := _refuse_url(url)) is not None:
        errors["url"] = [problem]
    if unknown := sorted(set(types) - set(events.TYPES)):
        errors["types"] = [f"Unknown: {', '.join(unknown)}. Known: {', '.join(events.TYPES)}."]
    if errors:
        raise InvalidSubmission(errors)


def endpoint_delete(*, endpoint_id: uuid.UUID, actor: Actor, reason: str = "") -> None:
    """Removes an endpoint with its deliveries."""
    with transaction.atomic():
        endpoint = _locked(endpoint_id)
        audit.record(actor, "webhook.delete", endpoint, reason=reason, before={"url": endpoint.url})
        endpoint.delete()


def _locked(endpoint_id: uuid.UUID) -> WebhookEndpoint:
    try:
        return WebhookEndpoint.objects.select_for_update().get(pk=endpoint_id)
    except WebhookEndpoint.DoesNotExist as error:
        raise NotFound(f"There is no webhook endpoint {public_id('whe', endpoint_id)}.") from error


def deliver_due(*, limit: int = 50) -> int:
    """Claims due deliveries, posts them, records what came of it. Returns how many were posted."""
    posted = 0
    while claimed := _claim(limit):
        outcomes = [(delivery, *_post(delivery)) for delivery in claimed]
        _record(outcomes)
        posted += len(claimed)
    return posted


def _claim(limit: int) -> list[WebhookDelivery]:
    now = clock.now()
    with transaction.atomic(durable=True):
        due = WebhookDelivery.objects.filter(due_at__isnull=False, due_at__lte=now, endpoint__enabled=True)
        locked = due.select_related("endpoint").order_by("due_at").select_for_update(skip_locked=True, of=("self",))
        claimed = list(locked[:limit])
        for delivery in claimed:
            delivery.due_at = now + _LEASE
            delivery.attempts += 1
        bulk_set(claimed, ("due_at", "attempts"))
    return claimed


def _post(delivery: WebhookDelivery) -> tuple[int | None, str, int | None]:
    """(HTTP status or None, error sentence, Retry-After in seconds)."""
    endpoint = delivery.endpoint
    if (problem := _refuse_url(endpoint.url)) is not None:
        return None, problem, None
    body = json.dumps(delivery.body, separators=(",", ":")).encode()
    at = str(int(clock.now().timestamp()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "rmhub",
        "webhook-id": public_id("dlv", delivery.pk),
        "webhook-timestamp": at,
        "webhook-signature": sign(decrypt(bytes(endpoint.secret_encrypted)), public_id("dlv", delivery.pk), at, body),
    }
    try:
        pool = _any_pool if settings.RMHUB_WEBHOOK_ALLOW_PRIVATE else _public_pool
        answer = pool.request(
            "POST", endpoint.url, body=body, headers=headers, redirect=False, timeout=TIMEOUT, preload_content=False
        )
        answer.read(1024)
        answer.release_conn()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        return None, str(error)[:255], None
    wait = answer.headers.get("Retry-After", "")
    return answer.status, "", int(wait) if wait.isascii() and wait.isdigit() and len(wait) < 6 else None


def sign(secret: str, delivery_id: str, timestamp: str, body: bytes) -> str:
    """Standard Webhooks' v1: HMAC-SHA256 over `id.timestamp.body`, base64. `secret` is `whsec_<base64>`."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{delivery_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _record(outcomes: list[tuple[WebhookDelivery, int | None, str, int | None]]) -> None:
    now = clock.now()
    with transaction.atomic(durable=True):
        for delivery, status, error, retry_after in outcomes:
            delivery.last_status = status
            delivery.last_error = error
            if status is not None and 200 <= status < 300:
                delivery.state, delivery.due_at, delivery.delivered_at = WebhookState.DELIVERED, None, now
                WebhookEndpoint.objects.filter(pk=delivery.endpoint_id, failing_since__isnull=False).update(
                    failing_since=None
                )
            elif status == 410:
                delivery.state, delivery.due_at = WebhookState.FAILED, None
                WebhookEndpoint.objects.filter(pk=delivery.endpoint_id).update(
                    enabled=False, disabled_reason="The endpoint answered 410 Gone."
                )
            else:
                _retry(delivery, now, retry_after)
        bulk_set([o[0] for o in outcomes], ("state", "due_at", "delivered_at", "last_status", "last_error"))


def _retry(delivery: WebhookDelivery, now: datetime, retry_after: int | None) -> None:
    WebhookEndpoint.objects.filter(pk=delivery.endpoint_id, failing_since__isnull=True).update(failing_since=now)
    if delivery.attempts > len(SCHEDULE):
        delivery.state, delivery.due_at = WebhookState.FAILED, None
        return
    wait = SCHEDULE[delivery.attempts - 1]
    # Up to a tenth later, so that what failed together does not come back together.
    jitter = wait * (delivery.pk.int % 1000) / 10_000
    delivery.due_at = now + timedelta(seconds=max(wait + jitter, retry_after or 0))


def _refuse_url(url: str) -> str | None:
    """Why we do not post to this URL, or None. Private addresses only if the installation allows them (SSRF)."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "This address cannot be read: check its host and port."
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or port == 0:
        return "An http or https address without user name, please."
    if settings.RMHUB_WEBHOOK_ALLOW_PRIVATE:
        return None
    if parts.scheme != "https":
        return "Only https (RMHUB_WEBHOOK_ALLOW_PRIVATE=1 allows http and private addresses)."
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return f"The host {parts.hostname} is not known."
    if any(not ipaddress.ip_address(address[4][0]).is_global for address in found):
        return f"{parts.hostname} is not a public address (RMHUB_WEBHOOK_ALLOW_PRIVATE=1 allows it)."
    return None
