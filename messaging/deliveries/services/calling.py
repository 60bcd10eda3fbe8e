"""Documents handed to HTTP services: signed requests, and what their answers mean.

Whether a request may have been executed is all that counts here. A connection that was idle is not used again: its
server may close it in the very moment in which the request goes out, and then nobody could tell whether the document
was processed.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

import urllib3
from django.db import Error
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError
from urllib3.response import HTTPResponse

from messaging import storage
from messaging.applications import Reply
from messaging.deliveries.services import documents
from messaging.deliveries.services.job import Job, Outcome
from messaging.models import Delivery, Trigger
from messaging.notifications.services.webhooks import sign
from messaging.protocol.service_ends import Ran, from_http
from messaging.transports.base import printable
from messaging.transports.bounded import BoundedConnection, BoundedTLSConnection, time_limit
from messaging.transports.http import cause_of, sentence_of
from partners.secrets import SecretUnreadable, decrypt
from rmhub import clock
from rmhub.postgresql.base import give_back

CONNECT_SECONDS = 10.0
MAX_IDLE = 1.0  # seconds; well below what servers keep idle connections for
MAX_WAIT = 86_400  # seconds: no Retry-After counts for more


class _Connection(BoundedConnection):
    """A connection that is taken for closed once it was idle for longer than MAX_IDLE."""

    _used_at = float("-inf")

    @property
    def is_connected(self) -> bool:
        return time.monotonic() - self._used_at < MAX_IDLE and super().is_connected

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        answer = super().getresponse()
        self._used_at = time.monotonic()
        return answer


class _TLSConnection(_Connection, BoundedTLSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


_pool = urllib3.PoolManager(num_pools=200, maxsize=16, retries=False, ssl_context=ssl.create_default_context())
_pool.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}


@dataclass(frozen=True, slots=True)
class Answered:
    """What came back. `status` None: nothing, for `cause` (docs/causes.md) and `detail`.

    `complete`: the body is all there: it did not break off and was not longer than asked for. `retry_after`: seconds.
    """

    status: int | None
    cause: str = ""
    detail: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    complete: bool = True
    retry_after: int | None = None


def post(
    url: str, headers: Sequence[tuple[str, str]], body: bytes, *, key: str, secret: str, timeout: float, keep: int
) -> Answered:
    """POSTs `body`, signed as Standard Webhooks 1.0 describes with `key` as its id. Never raises for the network.

    `timeout`: seconds for all of it. `keep`: how many bytes of the answer are wanted.
    """
    at = str(int(clock.now().timestamp()))
    signed = {
        "User-Agent": "rmhub",
        **dict(headers),
        "webhook-id": key,
        "webhook-timestamp": at,
        "webhook-signature": sign(secret, key, at, body),
    }
    give_back()
    limits = urllib3.Timeout(connect=min(CONNECT_SECONDS, timeout), read=timeout)
    with time_limit(timeout):
        try:
            answer = _pool.request(
                "POST", url, body=body, headers=signed, redirect=False, timeout=limits, preload_content=False
            )
        except (HTTPError, OSError, ValueError) as error:
            return Answered(None, cause_of(error)[0], sentence_of(error))
        complete = True
        try:
            content = answer.read(keep + 1, decode_content=False)
            if len(content) > keep:
                content, complete = content[:keep], False
                answer.close()
        except (HTTPError, OSError) as error:
            # The status line came: the service has decided.
            content, complete = f"[answer broken off: {type(error).__name__}]".encode(), False
            answer.close()
        finally:
            answer.release_conn()
    return Answered(
        answer.status,
        headers=tuple(answer.headers.items()),
        body=content,
        complete=complete,
        retry_after=_wait(answer.headers.get("Retry-After", "")),
    )


def _wait(text: str) -> int | None:
    """Seconds from a Retry-After header, which names seconds or an instant (RFC 9110, 10.2.3)."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 12:
        return min(int(text), MAX_WAIT)
    try:
        instant = parsedate_to_datetime(text)
    except ValueError:
        return None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return min(max(0, int((instant - clock.now()).total_seconds())), MAX_WAIT)


OCTETS = "application/octet-stream"
KEPT = 8 * 1024  # bytes of an answer that people can look at
MAX_REPLY = 1024 * 1024  # bytes of an answer that goes to whoever sent the request


def hand_over(job: Job) -> Outcome:
    """Hands the document of a job to its trigger's service."""
    return hand_to(job.trigger, job.delivery, timeout=job.trigger.timeout)


def hand_to(service: Trigger, delivery: Delivery, *, timeout: float, more: Sequence[tuple[str, str]] = ()) -> Outcome:
    """Posts the document of a delivery to the URL of `service`, signed with its secret. Never raises.

    `timeout`: seconds for all of it. `more`: header fields beside those of every document.
    """
    try:
        secret = decrypt(bytes(service.secret_encrypted))
        headers, body = documents.request(documents.load(service, delivery))
    except (SecretUnreadable, storage.PayloadMissing, OSError, Error) as error:
        return nothing_said(error)
    answered = post(
        service.url,
        [*headers, *more],
        body,
        key=delivery.public_id,
        secret=secret,
        timeout=timeout,
        keep=MAX_REPLY if service.answers else KEPT,
    )
    ran = from_http(answered.status, answered.cause, frozenset(service.retry_statuses))
    reply = _reply(answered) if service.answers and ran in (Ran.OK, Ran.ERROR) else None
    if service.answers and ran is Ran.OK and not answered.complete:
        # It was processed, and what it answered is lost: whoever waits for the answer must not get half of it.
        ran, reply = Ran.UNKNOWN, None
    cause, detail = _trouble(ran, answered)
    return Outcome(
        ran,
        status=answered.status,
        cause=cause,
        detail=detail,
        kept=answered.body[:KEPT],
        reply=reply,
        retry_after=answered.retry_after,
    )


def nothing_said(error: Exception) -> Outcome:
    """What kept us from saying anything to the service, so it is certain that it has not seen the document."""
    if isinstance(error, SecretUnreadable):
        return Outcome(Ran.TRANSIENT, cause="secret_unreadable", detail=str(error), misconfigured=True)
    cause = "payload_missing" if isinstance(error, storage.PayloadMissing | OSError) else "internal_error"
    return Outcome(Ran.TRANSIENT, cause=cause, detail=printable(str(error))[:500])


def _reply(answered: Answered) -> Reply:
    assert answered.status is not None
    content_type = next((value for name, value in answered.headers if name.lower() == "content-type"), "")
    return Reply(
        answered.status,
        answered.body,
        content_type or OCTETS,
        tuple((name, value) for name, value in answered.headers if name.lower() != "content-type"),
    )


def _trouble(ran: Ran, answered: Answered) -> tuple[str, str]:
    if ran is Ran.OK:
        return "", ""
    said = f"The service answered HTTP {answered.status}." if answered.status is not None else answered.detail
    if ran is Ran.TRANSIENT:
        return ("service_not_now" if answered.status is not None else "service_unreachable"), said
    return ("service_error" if ran is Ran.ERROR else "service_outcome_unknown"), said
