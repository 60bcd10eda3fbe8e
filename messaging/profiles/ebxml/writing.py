"""Turns a stored message into an ebXML message (spec 1)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from messaging import profile
from messaging.engine import preparing
from messaging.engine.snapshots import writer_options
from messaging.models import Message, Payload
from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import (
    DocumentReference,
    Envelope,
    MessageType,
    PayloadPart,
    RoutingHeader,
    Semantics,
    Sought,
    Wire,
)
from messaging.protocol.errors import EncodeError, NotAMessage
from partners import registry
from partners.terms import Terms


def write(
    message: Message, payloads: Sequence[Payload], contents: Sequence[bytes | Sought], terms: Terms, now: datetime
) -> Wire:
    """The message under its sequence number. Raises EncodeError, storage.PayloadMissing."""
    hop = RoutingHeader(
        sender_uri=terms.own_uri,
        receiver_uri=terms.partner_uri,
        error_uri=terms.own_error_uri,
        timestamp=now,
        sequence_number=message.sequence_number,
    )
    wire = _one_hop_further(message, hop, terms) if message.forwarded_from_id else None
    return wire or ebxml.encode(_envelope(message, payloads, contents, hop, terms), writer_options(terms))


def _envelope(
    message: Message, payloads: Sequence[Payload], contents: Sequence[bytes | Sought], hop: RoutingHeader, terms: Terms
) -> Envelope:
    who = preparing.ends(message, terms)
    return Envelope(
        message_type=MessageType.NORMAL,
        message_id=message.message_id,
        timestamp=message.created_at,
        from_parties=who.from_parties,
        to_parties=who.to_parties,
        agreement_id=who.agreement_id,
        conversation_id=message.conversation_id,
        service=message.service,
        action=message.action,
        semantics=Semantics(message.semantics),
        ref_to_message_id=message.ref_to_message_id,
        document_id=message.document_id,
        routing=(hop,),
        manifest=tuple(
            DocumentReference(
                label=payload.label, document_id=f"cid:{payload.content_id}", description=payload.filename
            )
            for payload in payloads
        ),
        # Writers ask for the length, and for a boundary: a content that is not held answers both.
        payloads=tuple(
            PayloadPart(payload.content_id, payload.content_type, content)
            for payload, content in zip(payloads, contents, strict=True)
        ),
    )


def _one_hop_further(message: Message, hop: RoutingHeader, terms: Terms) -> Wire | None:
    """The received octets with our RoutingHeader added (spec 1, 4.1.2); None for what came by another profile."""
    assert message.forwarded_from_id is not None
    came, body = preparing.received(message.forwarded_from_id)
    if not profile.of(registry.current().version(came.agreement_version_id)).numbered:
        return None
    try:
        return ebxml.forwarded(came.content_type, body, hop, padded=terms.write_padded_numbers)
    except NotAMessage as error:
        raise EncodeError(f"what came as {message.message_id} cannot be read any more: {error}") from error
