"""What of messages is told as spans (`rmhub.traces`): their names and attributes, as OpenTelemetry's conventions for
messaging have them (Semantic Conventions, "Messaging spans").

Facts come from the events that are written of them (`tell`), so every profile tells the same. What is put on the wire,
handed to an application or posted to a webhook is a span around the doing (`doing`). Attributes are ids, codes, numbers
and names of our own configuration: nothing of a document, and no text of somebody else's.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from django.db import transaction

from messaging import profile
from messaging.claim import Job, JobKind
from messaging.models import Event, Message, Pair
from messaging.transports import Receipt
from messaging.transports.base import server_of
from partners import registry
from partners.terms import Terms
from rmhub import traces
from rmhub.ids import public_id
from rmhub.traces import Kind

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Operation(Enum):
    """What a span is about: its name, the kind of operation that the conventions know, and the span's kind."""

    SUBMIT = "submit", "create", Kind.PRODUCER
    SEND = "send", "send", Kind.CLIENT
    RECEIVE = "receive", "receive", Kind.CONSUMER
    ACKNOWLEDGE = "acknowledge", "settle", Kind.CLIENT  # we, with a transmission of its own
    ACKNOWLEDGED = "acknowledged", "settle", Kind.CONSUMER  # the partner
    DELIVER = "deliver", "process", Kind.CLIENT
    WEBHOOK = "webhook", "send", Kind.CLIENT
    FAIL = "fail", "settle", Kind.INTERNAL
    DOUBT = "doubt", "settle", Kind.INTERNAL


_FACTS = {
    "message.accepted": Operation.SUBMIT,
    "message.held": Operation.RECEIVE,
    "message.received": Operation.RECEIVE,
    "message.duplicate": Operation.RECEIVE,
    "message.delivered": Operation.ACKNOWLEDGED,
    "message.failed": Operation.FAIL,
    "message.in_doubt": Operation.DOUBT,
}
_ROOTS = ("message.accepted", "message.received")
_WRONG = (Operation.FAIL, Operation.DOUBT)


def tell(events: Sequence[Event]) -> None:
    """Tells what has happened to messages, once it is committed. Call inside the transaction."""
    if traces.active() is None:
        return
    facts = [event for event in events if event.type in _FACTS and traces.of(event.message_id) is not None]
    if facts:
        transaction.on_commit(partial(_told, facts), robust=True)


def _told(facts: Sequence[Event]) -> None:
    for event in facts:
        tracing, message = traces.of(event.message_id), event.message
        if tracing is None or message is None:
            continue
        operation = _FACTS[event.type]
        # Some are read in part: what is not at hand is not asked for.
        terms = registry.known(message.__dict__.get("agreement_version_id"))
        attributes = {**_attributes(operation, message.pk, terms), "rmhub.event": event.type}
        if event.pair_id is not None:
            attributes["rmhub.pair.id"] = public_id(Pair.PREFIX, event.pair_id)
        if size := event.data.get("size"):
            attributes["messaging.message.body.size"] = size
        if attempts := event.data.get("attempts"):
            attributes["rmhub.attempts"] = attempts
        if cause := event.data.get("cause"):
            attributes["error.type"] = str(cause)
        tracing.happened(
            _name(operation, terms),
            message.pk,
            operation.value[2],
            attributes,
            began=event.at,
            is_root=event.type in _ROOTS,
            led_by=event.traceparent,
            failed=operation in _WRONG,
        )


def doing(
    operation: Operation, key: uuid.UUID | None, version_id: uuid.UUID | None = None, *, rooted: bool = True
) -> AbstractContextManager[Span | None]:
    """A span around what is done for the message `key`; None where that is not told. `version_id`: its agreement's.

    `rooted`: as in `Tracing.span`.
    """
    tracing = traces.of(key)
    if tracing is None or key is None:
        return traces.NOTHING
    terms = registry.known(version_id)
    return tracing.span(
        _name(operation, terms), key, operation.value[2], _attributes(operation, key, terms), rooted=rooted
    )


def ended(span: Span, cause: str, status: int | None, **more: str | int) -> None:
    """Says in a span what came of it: the code of what went wrong, "" for nothing; the HTTP status.

    `more`: attributes of ours, without `rmhub.` in front.
    """
    if status is not None:
        span.set_attribute("http.response.status_code", status)
    if cause:
        from opentelemetry.trace import StatusCode

        span.set_attribute("error.type", cause)
        span.set_status(StatusCode.ERROR)
    span.set_attributes({f"rmhub.{name}": value for name, value in more.items()})


def sending(job: Job) -> AbstractContextManager[Span | None]:
    """A span around a transmission: of a message, or of a receipt in the trace of the message that it is about."""
    if traces.active() is None:
        return traces.NOTHING
    if job.kind is JobKind.SIGNAL:
        # One that is about no message of ours, or about many, has a trace of its own.
        return doing(
            Operation.ACKNOWLEDGE, job.about_id or job.signal_id, job.version_id, rooted=job.about_id is not None
        )
    # Messages of transactions are submitted by nobody.
    terms = registry.known(job.version_id)
    rooted = terms is None or profile.of(terms).carries_documents
    return doing(Operation.SEND, job.message_id, job.version_id, rooted=rooted)


def sent(span: Span, job: Job, receipt: Receipt) -> None:
    """Says in the span of a transmission what came of it."""
    server = urlsplit(server_of(job.parcel.address, job.parcel.server))
    span.set_attribute("server.address", server.hostname or "")
    if server.port:
        span.set_attribute("server.port", server.port)
    ended(span, receipt.cause, receipt.status, attempt=job.number, transport=job.transport)
    if job.pair_id is not None:
        span.set_attribute("rmhub.pair.id", public_id(Pair.PREFIX, job.pair_id))


def _name(operation: Operation, terms: Terms | None) -> str:
    return f"{operation.value[0]} {terms.tpa_id}" if terms is not None else operation.value[0]


def _attributes(operation: Operation, key: uuid.UUID, terms: Terms | None) -> dict[str, str | int]:
    name, kind, _ = operation.value
    attributes: dict[str, str | int] = {
        "messaging.system": "rmhub",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.message.id": public_id(Message.PREFIX, key),
    }
    if terms is not None:
        attributes["messaging.destination.name"] = terms.tpa_id
        attributes["rmhub.profile"] = str(terms.profile)
    return attributes
