"""Documents as applications see them: as an object for callables, as an HTTP request for services and resolvers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from urllib.parse import quote

from messaging import storage
from messaging.applications import Document, Part
from messaging.deliveries.services import joining
from messaging.engine import preparing
from messaging.models import Delivery, Message, Trigger
from partners import registry

# What header values may hold: printable ASCII. A percent sign is escaped too, so that it can be undone.
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def load(trigger: Trigger, delivery: Delivery) -> Document:
    """The document of a delivery with its payloads; the firing of a join has the others in `others`.

    Raises storage.PayloadMissing.
    """
    messages = [delivery.message]
    others: list[Delivery] = []
    if delivery.join_id is not None:
        others = [part for part in joining.parts(delivery.join_id) if part.message_id != delivery.message_id]
        messages += [part.message for part in others]
    payloads = preparing.payloads_of(message.pk for message in messages)
    documents = [
        _document(
            trigger,
            one,
            message,
            tuple(
                Part(
                    storage.load(payload.content, payload.stored_as),
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


def request(document: Document) -> tuple[list[tuple[str, str]], bytes]:
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
    if len(document.parts) <= 1 and not document.others:
        content_type, body = next(((part.content_type, part.content) for part in document.parts), ("", b""))
    else:
        content_type, body = _multipart([*document.others, document])
    return [(name, escaped(value)) for name, value in [("Content-Type", content_type), *headers] if value], body


def _multipart(documents: Sequence[Document]) -> tuple[str, bytes]:
    """multipart/mixed of all payloads, in the order of arrival. The same documents always make the same octets."""
    pieces: list[tuple[bytes, bytes]] = []
    for document in documents:
        for number, part in enumerate(document.parts, start=1):
            head = [
                f"Content-Type: {escaped(part.content_type)}",
                f'Content-Disposition: attachment; name="part{number}"{_filename(part)}',
                f"RM-Message-ID: {escaped(document.message_id)}",
                f"RM-Service: {escaped(document.service)}",
                f"RM-Action: {escaped(document.action)}",
            ]
            pieces.append(("\r\n".join(head).encode("ascii"), part.content))
    digest = hashlib.sha256(b"".join(content for _, content in pieces)).hexdigest()
    boundary = f"rmhub-{digest[:48]}"
    while any(boundary.encode() in content for _, content in pieces):  # nobody makes a document hold its own digest
        boundary += "-"
    body = b"".join(b"--%s\r\n%s\r\n\r\n%s\r\n" % (boundary.encode(), head, content) for head, content in pieces)
    return f'multipart/mixed; boundary="{boundary}"', body + b"--%s--\r\n" % boundary.encode()


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
        "sha256": [hashlib.sha256(part.content).hexdigest() for part in document.parts],
    }


def escaped(value: str) -> str:
    """A header value: everything but printable ASCII percent-encoded as UTF-8."""
    return quote(value, safe=_PLAIN)
