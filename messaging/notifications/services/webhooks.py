"""Tells endpoints of events, signed as Standard Webhooks 1.0 describes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

import urllib3
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import translation
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from messaging import dispatch, tracing
from messaging.choices import WebhookState
from messaging.exceptions import InvalidSubmission, Stale
from messaging.journal import audit, events, incidents
from messaging.journal.audit import SYSTEM, Actor
from messaging.models import Event, WebhookDelivery, WebhookEndpoint
from messaging.models.base import existing
from messaging.models.bulk import bulk_set
from messaging.tracing import Operation
from messaging.transports.bounded import bounded_pool, is_public, public_pool, time_limit
from messaging.transports.http import sentence_of
from partners.secrets import SecretUnreadable, decrypt, encrypt
from rmhub import clock, ids, traces
from rmhub.ids import public_id
from rmhub.postgresql.base import give_back

log = logging.getLogger(__name__)

Row = TypeVar("Row", bound=Any)

# Seconds before attempt 2, 3 ... (Standard Webhooks' recommended schedule, plus a day).
SCHEDULE = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
TIMEOUT = 15  # seconds, for all of one post
POSTERS = 10
MAX_ANSWER = 1024
GIVEN_UP_AFTER = timedelta(days=5)  # an endpoint that fails for so long is switched off
DISABLED = "webhook_disabled"  # cause of the incident
OVERLAP_HOURS = 24
MAX_OVERLAP_HOURS = 168
_LEASE = timedelta(seconds=120)
# The check of the name below is for people; the pool for public addresses checks the very connection.
_any_pool = bounded_pool(num_pools=50, maxsize=4)
_public_pool = public_pool()


def endpoint_create(
    *, url: str, types: Sequence[str], name: str, actor: Actor, reason: str = ""
) -> tuple[WebhookEndpoint, str]:
    """A new endpoint and its secret (`whsec_...`), which is shown this once. Raises InvalidSubmission."""
    _check(url, types, name=name)
    secret = _new_secret()
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
        endpoint = _locked(endpoint_id, expected)
        _check(
            url if url is not None else endpoint.url,
            types if types is not None else endpoint.types,
            name=name or "",
            new=url,
        )
        before = _described(endpoint)
        endpoint.url = endpoint.url if url is None else url
        endpoint.name = endpoint.name if name is None else name
        endpoint.types = endpoint.types if types is None else list(types)
        if enabled is not None:
            if enabled and not endpoint.enabled:
                now = clock.now()
                WebhookDelivery.objects.filter(endpoint=endpoint, due_at__lt=now).update(due_at=now)
            endpoint.enabled = enabled
            endpoint.disabled_reason = "" if enabled else reason[:255]
            endpoint.failing_since = None
        endpoint.save(update_fields=["url", "name", "types", "enabled", "disabled_reason", "failing_since"])
        audit.record(actor, "webhook.update", endpoint, reason=reason, before=before, after=_described(endpoint))
        _close_incident(actor, reason or f"{endpoint} was looked at.")
        dispatch.wake_on_commit(dispatch.WEBHOOKS)
    return endpoint


@sensitive_variables("secret")
def endpoint_rotate_secret(
    *,
    endpoint_id: uuid.UUID,
    actor: Actor,
    reason: str = "",
    overlap_hours: int = OVERLAP_HOURS,
    expected: str | None = None,
) -> tuple[WebhookEndpoint, str]:
    """A new secret, which is shown this once. Until `overlap_hours` have passed deliveries carry both signatures.

    Raises NotFound, InvalidSubmission, Stale (see `endpoint_update`).
    """
    if not 0 <= overlap_hours <= MAX_OVERLAP_HOURS:
        raise InvalidSubmission(
            {
                "overlap_hours": [
                    _("From 0 (the old secret is invalid at once) to {hours} hours.").format(hours=MAX_OVERLAP_HOURS)
                ]
            }
        )
    secret = _new_secret()
    with transaction.atomic():
        endpoint = _locked(endpoint_id, expected)
        until = clock.now() + timedelta(hours=overlap_hours)
        endpoint.previous_secret_encrypted = endpoint.secret_encrypted if overlap_hours else b""
        endpoint.previous_until = until if overlap_hours else None
        endpoint.secret_encrypted = encrypt(secret)
        endpoint.save(update_fields=["secret_encrypted", "previous_secret_encrypted", "previous_until"])
        after = {"previous_until": until.isoformat() if overlap_hours else None}
        audit.record(actor, "webhook.rotate_secret", endpoint, reason=reason, after=after)
    return endpoint, secret


def revision(endpoint: WebhookEndpoint) -> str:
    """Names what people can change of an endpoint (ETag)."""
    return hashlib.sha256(json.dumps(_described(endpoint), sort_keys=True).encode()).hexdigest()[:20]


def _described(endpoint: WebhookEndpoint) -> dict[str, object]:
    return {"url": endpoint.url, "name": endpoint.name, "types": endpoint.types, "enabled": endpoint.enabled}


def _check(url: str, types: Sequence[str], *, name: str, new: str | None = "") -> None:
    """Raises InvalidSubmission. An address that did not change (`new` is None) is not looked up again."""
    errors: dict[str, list[str]] = {}
    if new is not None and (problem := refuse_url(url)) is not None:
        errors["url"] = [problem]
    if unknown := sorted(set(types) - set(events.TYPES)):
        errors["types"] = [
            _("Unknown: {unknown}. Known: {known}.").format(unknown=", ".join(unknown), known=", ".join(events.TYPES))
        ]
    if len(name) > 80 or not name.isprintable():
        errors["name"] = [_("At most 80 characters, and no control characters.")]
    if errors:
        raise InvalidSubmission(errors)


def endpoint_delete(*, endpoint_id: uuid.UUID, actor: Actor, reason: str = "", expected: str | None = None) -> None:
    """Removes an endpoint with its deliveries. Raises NotFound, Stale."""
    with transaction.atomic():
        endpoint = _locked(endpoint_id, expected)
        audit.record(actor, "webhook.delete", endpoint, reason=reason, before=_described(endpoint))
        endpoint.delete()
        _close_incident(actor, reason or f"{endpoint} was deleted.")


def _new_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def _close_incident(actor: Actor, resolution: str) -> None:
    """A person has looked after what was switched off: with the last of them the incident is over."""
    if WebhookEndpoint.objects.filter(enabled=False, failing_since__isnull=False).exists():
        return
    events.write(
        incidents.incidents_resolve_of_hub(cause=DISABLED, now=clock.now(), by=actor.name, resolution=resolution)
    )


def _locked(endpoint_id: uuid.UUID, expected: str | None) -> WebhookEndpoint:
    endpoint = existing(WebhookEndpoint.objects.select_for_update(), endpoint_id)
    if expected is not None and revision(endpoint) != expected:
        raise Stale(_("This endpoint changed since you looked at it: look again before you change it."), version=0)
    return endpoint


def deliver_due(*, limit: int = 50) -> int:
    """Claims due deliveries, posts several at a time, records what came of it, which claims what comes next. Returns
    how many were posted.

    Even if every one of them takes all the time there is, a claim is done before its lease ends.
    """
    posted = 0
    with ThreadPoolExecutor(POSTERS, thread_name_prefix="webhook") as pool:
        dispatch.taken(dispatch.WEBHOOKS)  # what becomes due after a look sends a wake-up of its own
        claimed = claim(_due(), _LEASE, limit)
        while claimed:
            dispatch.busy(dispatch.WEBHOOKS)  # found at the next look; if that is long in coming, by whom it wakes
            give_back()
            outcomes = list(zip(claimed, pool.map(post, claimed), strict=True))
            posted += len(claimed)
            dispatch.taken(dispatch.WEBHOOKS)
            claimed = _record(outcomes, following=limit)
    return posted


def _due() -> QuerySet[WebhookDelivery]:
    return WebhookDelivery.objects.filter(endpoint__enabled=True).select_related("endpoint")


def claim(due: QuerySet[Row], lease: timedelta, limit: int) -> list[Row]:
    """Claims what is due, what waits longest first: nobody else takes it before the lease ends. Commits."""
    with transaction.atomic(durable=True):
        return _take(due, lease, limit)


def claim_next(due: QuerySet[Row], lease: timedelta, limit: int) -> list[Row]:
    """The same in the transaction that has written the outcomes of those before: these stay written, whatever is wrong
    with what comes next.
    """
    try:
        with transaction.atomic():
            return _take(due, lease, limit)
    except Exception:
        log.exception("claim failed", extra={"action": "claim_failed", "rows": due.model._meta.db_table})
        return []


def _take(due: QuerySet[Row], lease: timedelta, limit: int) -> list[Row]:
    now = clock.now()
    rows = due.filter(due_at__isnull=False, due_at__lte=now).order_by("due_at", "id")
    claimed = list(rows.select_for_update(skip_locked=True, of=("self",))[:limit])
    for row in claimed:
        row.due_at = now + lease
        row.attempts += 1
    bulk_set(claimed, ("due_at", "attempts"))
    return claimed


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an endpoint answered (HTTP status, Retry-After in seconds), or why it did not."""

    status: int | None = None
    error: str = ""
    retry_after: int | None = None


def post(delivery: WebhookDelivery) -> Outcome:
    """Posts one delivery; without the database, for it runs in a thread of its own. Never raises."""
    endpoint = delivery.endpoint
    now = clock.now()
    try:
        keys = _keys(endpoint, now)
    except SecretUnreadable:
        return Outcome(error="The secret of this endpoint cannot be decrypted: restore the key, or rotate the secret.")
    body = json.dumps(delivery.body, separators=(",", ":")).encode()
    at = str(int(now.timestamp()))
    headers = {
        "webhook-id": public_id("dlv", delivery.pk),
        "webhook-timestamp": at,
        "webhook-signature": " ".join(sign(key, public_id("dlv", delivery.pk), at, body) for key in keys),
    }
    with tracing.doing(Operation.WEBHOOK, _message_of(delivery)) as span:
        outcome = send(endpoint.url, body, headers)
        if span is not None:
            taken = outcome.status is not None and outcome.status < 300
            tracing.ended(span, "" if taken else str(outcome.status or "unreachable"), outcome.status)
    return outcome


def _message_of(delivery: WebhookDelivery) -> uuid.UUID | None:
    """The message that an event is about, where its trace is told."""
    if traces.active() is None:
        return None
    found = ids.parse(delivery.body["data"].get("message", ""))
    return found[1] if found is not None else None


def send(url: str, body: bytes, headers: Mapping[str, str]) -> Outcome:
    """Posts JSON to an address that may be posted to; without the database. Never raises."""
    with translation.override(settings.LANGUAGE_CODE):  # it is kept
        problem = refuse_url(url)
    if problem is not None:
        return Outcome(error=problem)
    headers = {"Content-Type": "application/json", "User-Agent": "rmhub", **traces.headers(), **headers}
    pool = _any_pool if settings.RMHUB_WEBHOOK_ALLOW_PRIVATE else _public_pool
    try:
        with time_limit(TIMEOUT):
            answer = pool.request(
                "POST", url, body=body, headers=headers, redirect=False, timeout=TIMEOUT, preload_content=False
            )
            _let_go(answer)
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        return Outcome(error=sentence_of(error)[:255])
    wait = answer.headers.get("Retry-After", "")
    return Outcome(answer.status, "", int(wait) if wait.isascii() and wait.isdigit() and len(wait) < 6 else None)


def _keys(endpoint: WebhookEndpoint, now: datetime) -> list[str]:
    """The secrets to sign with: the present one, and for a while the one before it. Raises SecretUnreadable."""
    keys = [decrypt(bytes(endpoint.secret_encrypted))]
    if endpoint.previous_until is not None and endpoint.previous_until > now:
        keys.append(decrypt(bytes(endpoint.previous_secret_encrypted)))
    return keys


def _let_go(answer: urllib3.BaseHTTPResponse) -> None:
    """Only the head of an answer matters; a body that is short is read, so that the connection can be used again."""
    try:
        if len(answer.read(MAX_ANSWER + 1, decode_content=False)) > MAX_ANSWER:
            answer.close()
    except (urllib3.exceptions.HTTPError, OSError):
        answer.close()
    finally:
        answer.release_conn()


def sign(secret: str, delivery_id: str, timestamp: str, body: bytes | Iterable[bytes]) -> str:
    """Standard Webhooks' v1: HMAC-SHA256 over `id.timestamp.body`, base64. `secret` is `whsec_<base64>`."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = hmac.new(key, f"{delivery_id}.{timestamp}.".encode(), hashlib.sha256)
    for piece in (body,) if isinstance(body, bytes) else body:
        signed.update(piece)
    return "v1," + base64.b64encode(signed.digest()).decode()


def _record(outcomes: Sequence[tuple[WebhookDelivery, Outcome]], *, following: int = 0) -> list[WebhookDelivery]:
    """Writes what became of claimed deliveries, and claims those that come next, at most so many as `following`.

    What was claimed again or deleted meanwhile is not touched.
    """
    now = clock.now()
    with transaction.atomic(durable=True):
        # Endpoints first, like whoever deletes one with its deliveries.
        found = WebhookEndpoint.objects.filter(pk__in={delivery.endpoint_id for delivery, _ in outcomes})
        endpoints = {endpoint.pk: endpoint for endpoint in found.order_by("pk").select_for_update(no_key=True)}
        mine = WebhookDelivery.objects.filter(pk__in=[delivery.pk for delivery, _ in outcomes], due_at__isnull=False)
        attempts = dict(mine.order_by("pk").select_for_update().values_list("pk", "attempts"))
        were_on = {pk for pk, endpoint in endpoints.items() if endpoint.enabled}
        written = []
        for delivery, outcome in outcomes:
            endpoint = endpoints.get(delivery.endpoint_id)
            if endpoint is not None and attempts.get(delivery.pk) == delivery.attempts:
                _apply(delivery, endpoint, outcome, now)
                written.append(delivery)
        bulk_set(written, ("state", "due_at", "delivered_at", "last_status", "last_error"))
        bulk_set(list(endpoints.values()), ("enabled", "disabled_reason", "failing_since"))
        for endpoint in endpoints.values():
            if endpoint.pk in were_on and not endpoint.enabled:
                _tell_disabled(endpoint, now)
        return claim_next(_due(), _LEASE, following) if following else []


def _tell_disabled(endpoint: WebhookEndpoint, now: datetime) -> None:
    """The hub switched an endpoint off: an incident, an event for the others, an entry in the audit log."""
    detail = f"{endpoint} ({endpoint.public_id}): {endpoint.disabled_reason}"
    _, opened = incidents.incident_open(pair=None, cause=DISABLED, now=now, detail=detail)
    data = {"endpoint": endpoint.public_id, "name": endpoint.name, "detail": endpoint.disabled_reason}
    told: list[Event] = [*opened, events.event("webhook_endpoint.disabled", now, data=data)]
    events.write(told)
    after = {"enabled": False, "failing_since": endpoint.failing_since and endpoint.failing_since.isoformat()}
    audit.record(SYSTEM, "webhook.disable", endpoint, reason=endpoint.disabled_reason, after=after)


def _apply(delivery: WebhookDelivery, endpoint: WebhookEndpoint, outcome: Outcome, now: datetime) -> None:
    delivery.last_status, delivery.last_error = outcome.status, outcome.error
    if outcome.status is not None and 200 <= outcome.status < 300:
        delivery.state, delivery.due_at, delivery.delivered_at = WebhookState.DELIVERED, None, now
        endpoint.failing_since = None
    elif outcome.status == 410:
        delivery.state, delivery.due_at = WebhookState.FAILED, None
        endpoint.failing_since = endpoint.failing_since or now
        endpoint.enabled, endpoint.disabled_reason = False, "The endpoint answered 410 Gone."
    else:
        endpoint.failing_since = endpoint.failing_since or now
        _retry(delivery, now, outcome.retry_after)
        if endpoint.enabled and now - endpoint.failing_since >= GIVEN_UP_AFTER:
            since = f"{endpoint.failing_since:%Y-%m-%d %H:%MZ}"
            endpoint.enabled, endpoint.disabled_reason = False, f"Every attempt since {since} failed."


def _retry(delivery: WebhookDelivery, now: datetime, retry_after: int | None) -> None:
    if delivery.attempts > len(SCHEDULE):
        delivery.state, delivery.due_at = WebhookState.FAILED, None
        return
    wait = SCHEDULE[delivery.attempts - 1]
    # Up to a tenth later, so that what failed together does not come back together.
    jitter = wait * (delivery.pk.int % 1000) / 10_000
    delivery.due_at = now + timedelta(seconds=max(wait + jitter, retry_after or 0))


def refuse_url(url: str) -> str | None:
    """Why we do not post to this URL, or None. Private addresses only if the installation allows them (SSRF)."""
    if len(url) > 500 or not url.isprintable() or " " in url:
        return _("An address of at most 500 characters, without blanks and control characters, please.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return _("This address cannot be read: check its host and port.")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or port == 0:
        return _("An http or https address without user name, please.")
    if settings.RMHUB_WEBHOOK_ALLOW_PRIVATE:
        return None
    if parts.scheme != "https":
        return _("Only https (RMHUB_WEBHOOK_ALLOW_PRIVATE=1 allows http and private addresses).")
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return _("The host {host} is not known.").format(host=parts.hostname)
    if any(not is_public(str(address[4][0])) for address in found):
        said = _("{host} is not a public address (RMHUB_WEBHOOK_ALLOW_PRIVATE=1 allows it).")
        return said.format(host=parts.hostname)
    return None
