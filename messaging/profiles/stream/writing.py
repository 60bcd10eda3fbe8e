"""Turns a stored message into one of a transactional stream (spec 3)."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from messaging import storage
from messaging.engine import preparing
from messaging.models import Message, Payload
from messaging.protocol.codecs import stream
from messaging.protocol.envelope import PayloadPart
from messaging.read_ahead import Octets
from partners.terms import Terms

HEADERS = (("SOAPAction", stream.SOAP_ACTION),)


@dataclass(frozen=True, slots=True)
class Position:
    """A message's place in its stream. `previous`: the number before it that the receiver is to have had."""

    source: str
    tx_sequence_id: int
    number: int
    previous: int
    request_receipt: bool


def prepare(message: Message, payloads: list[Payload], terms: Terms, position: Position) -> Octets:
    """Encodes the message under its place in the stream, sets that, frame, digest and content type; returns the body.

    The same message at the same place gives the same octets each time; another `previous`, or another wish for an order
    acknowledgement, changes only those. Raises EncodeError or storage.PayloadMissing; the row is unchanged then.
    """
    contents = [storage.opened(payload.content, payload.stored_as) for payload in payloads]
    receipts_to = terms.own_error_uri or terms.own_uri
    who = preparing.ends(message, terms)
    envelope = stream.StreamEnvelope(
        kind=stream.StreamKind.MESSAGE,
        message_id=message.message_id,
        to=terms.partner_uri,
        sent_at=message.created_at,
        expires_at=message.expires_at,
        source=position.source,
        label=message.action,
        position=stream.StreamPosition(
            source=position.source,
            tx_sequence_id=position.tx_sequence_id,
            current=position.number,
            previous=position.previous,
            start=position.number == 1,
            receipts_to=receipts_to if position.number == 1 else "",
            receipt_requested=position.request_receipt,
        ),
        wish=stream.ReceiptWish(send_to=receipts_to) if terms.final_receipt else None,
        agreement_id=who.agreement_id,
        conversation_id=message.conversation_id,
        service=message.service,
        action=message.action,
        ref_to_message_id=message.ref_to_message_id,
        document_id=message.document_id,
        from_parties=who.from_parties,
        to_parties=who.to_parties,
        # Writers ask for the length, and for a boundary: a content that is not held answers both.
        payloads=tuple(
            PayloadPart(payload.content_id, payload.content_type, cast(bytes, content), filename=payload.filename)
            for payload, content in zip(payloads, contents, strict=True)
        ),
    )
    body = preparing.keep(message, stream.encode(envelope), contents)
    message.tx_sequence_id = Decimal(position.tx_sequence_id)
    message.sequence_number = position.number
    message.previous_number = position.previous
    return body


def fields(message: Message) -> dict[str, Any]:
    """Fields of the Parcel of a message of a stream, beside those that all messages have."""
    return {"headers": HEADERS, "not_after": message.expires_at}
