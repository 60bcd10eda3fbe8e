"""Turns a stored message into its octets, once (invariant 3), and finds them again."""

from __future__ import annotations

import hashlib
import struct
import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from urllib.parse import quote

from messaging import storage
from messaging.models import Message, Payload
from messaging.protocol.codecs import ebxml, repeatable
from messaging.protocol.envelope import (
    DocumentReference,
    Envelope,
    MessageType,
    PayloadPart,
    RoutingHeader,
    Semantics,
    Wire,
)
from messaging.services.snapshots import party_ids, writer_options
from partners.choices import ExchangeIdentity
from partners.terms import Terms

_BARE_FRAME = storage.pack_frame((b"", b""))  # a body that is one payload and nothing else
_HEADER_SAFE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def payloads_of(message_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, list[Payload]]:
    """Payload rows by message, in their order: one query."""
    found: dict[uuid.UUID, list[Payload]] = defaultdict(list)
    for payload in Payload.objects.filter(message_id__in=list(message_ids)).order_by("message_id", "number"):
        found[payload.message_id].append(payload)
    return found


def prepare(message: Message, payloads: list[Payload], terms: Terms, now: datetime) -> bytes:
    """Encodes the message under its sequence number, sets frame, digest and content type, and returns the body.

    Raises EncodeError (no valid wire form) or storage.PayloadMissing; the row is unchanged then.
    """
    contents = [storage.load(payload.content, payload.stored_as) for payload in payloads]
    envelope = Envelope(
        message_type=MessageType.NORMAL,
        message_id=message.message_id,
        timestamp=message.created_at,
        from_parties=party_ids(terms.own_identifiers),
        to_parties=party_ids(terms.partner_identifiers),
        agreement_id=terms.tpa_id,
        conversation_id=message.conversation_id,
        service=message.service,
        action=message.action,
        semantics=Semantics(message.semantics),
        ref_to_message_id=message.ref_to_message_id,
        routing=(
            RoutingHeader(
                sender_uri=terms.own_uri,
                receiver_uri=terms.partner_uri,
                error_uri=terms.own_error_uri,
                timestamp=now,
                sequence_number=message.sequence_number,
            ),
        ),
        manifest=tuple(
            DocumentReference(
                label=payload.label, document_id=f"cid:{payload.content_id}", description=payload.filename
            )
            for payload in payloads
        ),
        payloads=tuple(
            PayloadPart(payload.content_id, payload.content_type, content)
            for payload, content in zip(payloads, contents, strict=True)
        ),
    )
    wire = ebxml.encode(envelope, writer_options(terms))
    body = wire.join(contents)
    message.wire_frame = storage.pack_frame(wire.literals)
    message.content_type = wire.content_type
    message.digest = hashlib.sha256(body).hexdigest()
    return body


def prepare_request(message: Message, payloads: list[Payload]) -> bytes:
    """The body of a repeatable request is its one payload as it is. Sets frame, digest and content type.

    Raises storage.PayloadMissing; the row is unchanged then.
    """
    (payload,) = payloads
    body = storage.load(payload.content, payload.stored_as)
    message.wire_frame = _BARE_FRAME
    message.content_type = payload.content_type
    message.digest = payload.sha256
    return body


def request_headers(message: Message, terms: Terms) -> tuple[tuple[str, str], ...]:
    """The headers of a repeatable request, from what never changes: the same for every copy of it."""
    by_key = terms.exchange_identity == ExchangeIdentity.KEY
    identity = repeatable.Identity(message.message_id, None if by_key else message.first_sent_at, by_key=by_key)
    named = {
        "RM-Service": message.service,
        "RM-Action": message.action,
        "RM-Conversation-ID": message.conversation_id,
        "RM-Ref-To-Message-ID": message.ref_to_message_id,
    }
    # Header values are ASCII (RFC 9110, 5.5); what is not, and the sign that says so, is percent-encoded.
    return (
        *repeatable.write(identity),
        *((name, quote(value, safe=_HEADER_SAFE)) for name, value in named.items() if value),
    )


def stored_body(message: Message, payloads: list[Payload]) -> bytes:
    """The exact octets of a message that was prepared or received.

    Raises ValueError when it has none yet, and storage.PayloadMissing when what is stored no longer gives them.
    """
    if message.wire_frame is None:
        raise ValueError(f"{message.public_id} was not prepared yet, so it has no octets")
    slices = [storage.load(payload.content, payload.stored_as) for payload in payloads if not payload.in_frame]
    try:
        body = Wire(message.content_type, storage.unpack_frame(message.wire_frame)).join(slices)
    except (ValueError, struct.error) as error:
        raise storage.PayloadMissing(f"the stored parts of {message.public_id} do not fit together: {error}") from error
    if hashlib.sha256(body).hexdigest() != message.digest:
        raise storage.PayloadMissing(f"the stored octets of {message.public_id} are not those of its SHA-256")
    return body
