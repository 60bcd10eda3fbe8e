"""Documents as applications see them, and handed to HTTP services: signed requests, and what their answers mean.

Whether a request may have been executed is all that counts here. A connection that was idle is not used again: its
server may close it in the very moment in which the request goes out, and then nobody could tell whether the document
was processed.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import quote

import urllib3
from django.db import Error
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError
from urllib3.response import HTTPResponse

from messaging import storage
from messaging.applications import Document, Part, Reply
from messaging.deliveries.services import handing_over
from messaging.deliveries.services.job import MAX_WAIT, Job, Outcome
from messaging.models import Delivery, Message, Payload, Trigger
from messaging.notifications.services.webhooks import sign
from messaging.protocol.service_ends import ACCESS_REFUSED, Ran, from_http
from messaging.transports.base import printable
from messaging.transports.bounded import BoundedConnection, BoundedTLSConnection, time_limit
from messaging.transports.http import cause_of, sentence_of
from partners import registry
from partners.secrets import SecretUnreadable, decrypt
from rmhub import clock, traces
from rmhub.postgresql.base import give_back

Octets = bytes | storage.Large | storage.Body
CONNECT_SECONDS = 10.0
MAX_IDLE = 1.0  # seconds; well below what servers keep idle connections for


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
    url: str,
    headers: Sequence[tuple[str, str]],
    body: Octets,
    *,
    key: str,
    secret: str,
    timeout: float,
    keep: int,
) -> Answered:
    """POSTs `body`, signed as Standard Webhooks 1.0 describes with `key` as its id. Never raises for the network.

    `timeout`: seconds for all of it. `keep`: how many bytes of the answer are wanted.
    """
    at = str(int(clock.now().timestamp()))
    signed = {
        "User-Agent": "rmhub",
        **traces.headers(),
        **dict(headers),
        **({} if isinstance(body, bytes) else {"Content-Length": str(len(body))}),
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
        headers, body = request(load(service, delivery))
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
        if answered.status in ACCESS_REFUSED:  # the trigger's `retry_statuses` say that it comes before all work
            return "service_access_refused", said
        return ("service_not_now" if answered.status is not None else "service_unreachable"), said
    return ("service_error" if ran is Ran.ERROR else "service_outcome_unknown"), said


# --- Documents as applications see them: as an object for callables, as an HTTP request for services and resolvers.

# What header values may hold: printable ASCII. A percent sign is escaped too, so that it can be undone.
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def load(trigger: Trigger, delivery: Delivery) -> Document:
    """The document of a delivery with its payloads; the firing of a join has the others in `others`.

    Raises storage.PayloadMissing.
    """
    messages = [delivery.message]
    others: list[Delivery] = []
    if delivery.join_id is not None:
        others = [part for part in handing_over.parts(delivery.join_id) if part.message_id != delivery.message_id]
        messages += [part.message for part in others]
    payloads = Payload.of_messages(message.pk for message in messages)
    documents = [
        _document(
            trigger,
            one,
            message,
            tuple(
                Part(
                    storage.opened(payload.content, payload.stored_as),
                    payload.content_type,
                    payload.filename,
                    payload.label,
                )
                for payload in payloads[message.pk]
            ),
        )
        for one, message in zip([delivery, *others], messages, strict=True)
    ]
    return replace(documents[0], others=tuple(documents[1:]))


def _document(trigger: Trigger, delivery: Delivery, message: Message, parts: tuple[Part, ...]) -> Document:
    terms = registry.current().version(message.agreement_version_id)
    return Document(
        delivery=delivery.public_id,
        trigger=trigger.name,
        document_id=delivery.document_id,
        redelivery_count=delivery.redelivery_count,
        message=message.pk,
        message_id=message.message_id,
        conversation_id=message.conversation_id,
        ref_to_message_id=message.ref_to_message_id,
        agreement=terms.tpa_id,
        sender=terms.partner_name,
        profile=terms.profile,
        service=message.service,
        action=message.action,
        received_at=message.created_at,
        parts=parts,
    )


def request(document: Document) -> tuple[list[tuple[str, str]], Octets]:
    """Headers and body of the request that hands a document to an HTTP service.

    One payload is the body as it is (none: no body); several, or a join, are a multipart/mixed in which each part names
    its message.
    """
    headers = [
        ("RM-Document-ID", document.document_id),
        ("RM-Message-ID", document.message_id),
        ("RM-Conversation-ID", document.conversation_id),
        ("RM-Ref-To-Message-ID", document.ref_to_message_id),
        ("RM-Agreement", document.agreement),
        ("RM-Sender", document.sender),
        ("RM-Service", document.service),
        ("RM-Action", document.action),
        ("RM-Redelivery-Count", str(document.redelivery_count)),
        ("RM-Trigger", document.trigger),
        ("RM-Received-At", document.received_at.astimezone(UTC).isoformat()),
    ]
    body: Octets
    if len(document.parts) <= 1 and not document.others:
        content_type, body = next(((part.content_type, part.octets) for part in document.parts), ("", b""))
    else:
        content_type, body = _multipart([*document.others, document])
    return [(name, escaped(value)) for name, value in [("Content-Type", content_type), *headers] if value], body


def _multipart(documents: Sequence[Document]) -> tuple[str, Octets]:
    """multipart/mixed of all payloads, in the order of arrival. The same documents always make the same octets."""
    pieces: list[tuple[bytes, bytes | storage.Large]] = []
    for document in documents:
        for number, part in enumerate(document.parts, start=1):
            head = [
                f"Content-Type: {escaped(part.content_type)}",
                f'Content-Disposition: attachment; name="part{number}"{_filename(part)}',
                f"RM-Message-ID: {escaped(document.message_id)}",
                f"RM-Service: {escaped(document.service)}",
                f"RM-Action: {escaped(document.action)}",
            ]
            pieces.append(("\r\n".join(head).encode("ascii"), part.octets))
    digest = storage.digest(storage.join([content for _, content in pieces]))
    boundary = f"rmhub-{digest[:48]}"
    while any(boundary.encode() in content for _, content in pieces):  # nobody makes a document hold its own digest
        boundary += "-"
    parts: list[bytes | storage.Large] = []
    for about, content in pieces:
        parts += (b"--%s\r\n%s\r\n\r\n" % (boundary.encode(), about), content, b"\r\n")
    parts.append(b"--%s--\r\n" % boundary.encode())
    return f'multipart/mixed; boundary="{boundary}"', storage.join(parts)


def _filename(part: Part) -> str:
    return f"; filename*=UTF-8''{quote(part.filename, safe='')}" if part.filename else ""


def question(document: Document) -> bytes:
    """The JSON that an HTTP resolver is asked with (protocols 4.4)."""
    return json.dumps(
        {
            "documentTypeName": f"{document.service}/{document.action}",
            "redeliveryCount": document.redelivery_count,
            "uuid": document.document_id,
            "transport": document.profile,
            "triggerName": document.trigger,
            "document": _described(document),
            "others": [_described(other) for other in document.others],
        },
        separators=(",", ":"),
    ).encode()


def _described(document: Document) -> dict[str, object]:
    return {
        "document_id": document.document_id,
        "message_id": document.message_id,
        "conversation_id": document.conversation_id,
        "sender": document.sender,
        "agreement": document.agreement,
        "service": document.service,
        "action": document.action,
        "received_at": document.received_at.astimezone(UTC).isoformat(),
        "sha256": [storage.digest(part.octets) for part in document.parts],
    }


def escaped(value: str) -> str:
    """A header value: everything but printable ASCII percent-encoded as UTF-8."""
    return quote(value, safe=_PLAIN)
