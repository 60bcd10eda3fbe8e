"""Documents handed to HTTP services: the request, and what its answer means."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import Error

from messaging import storage
from messaging.applications import Reply
from messaging.deliveries.services import calling, documents
from messaging.deliveries.services.calling import Answered
from messaging.deliveries.services.job import Job, Outcome
from messaging.models import Delivery, Trigger
from messaging.protocol.service_ends import Ran, from_http
from messaging.transports.base import printable
from partners.secrets import SecretUnreadable, decrypt

OCTETS = "application/octet-stream"
KEPT = 8 * 1024  # bytes of an answer that people can look at
MAX_REPLY = 1024 * 1024  # bytes of an answer that goes to whoever sent the request


def post(job: Job) -> Outcome:
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
    answered = calling.post(
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
