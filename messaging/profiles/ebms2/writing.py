"""Turns a stored message into an ebXML 2.0 message, and says what goes with it to the partner's server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from messaging.choices import Direction, SignalKind
from messaging.engine import preparing
from messaging.models import Message, Payload, Signal
from messaging.profiles.ebms2 import encrypted, signed
from messaging.protocol.codecs import ebms2
from messaging.protocol.codecs.ebms2_lexical import SOAP_ACTION, VERSION, escaped_reference, has_scheme
from messaging.protocol.codecs.entity_file import name_of
from messaging.protocol.envelope import (
    Acknowledgment,
    AckRequest,
    DocumentReference,
    Ebms2,
    Envelope,
    MessageOrder,
    MessageType,
    PayloadPart,
    Semantics,
    Sought,
    Wire,
)
from partners.choices import RESPONSES, Signatures, SyncReply
from partners.terms import Terms

HEADERS = (("SOAPAction", SOAP_ACTION),)
# An answer with signatures repeats a digest for each document.
ANSWER_BYTES = 512 * 1024
MOST_RESPONSE_BYTES = 8 * 1024 * 1024  # what comes in a response is held in memory
_NO_URI = "string"  # the type of what is no URI: without one it has to be a URI (3.1.1.1, 3.1.4.1)


def write(
    message: Message, payloads: Sequence[Payload], contents: Sequence[bytes | Sought], terms: Terms, now: datetime
) -> Wire:
    """The message in its place, signed and encrypted if that is agreed. Raises EncodeError, storage.PayloadMissing."""
    envelope = _envelope(message, payloads, contents, terms)
    signs = terms.signatures != Signatures.NONE
    document = signed.document_of(envelope, terms, now) if signs else ebms2.soap_document(envelope)
    if terms.encrypts and envelope.payloads:
        return encrypted.enclose(envelope, document, terms, now)
    return ebms2.enclose(envelope, document)


def _envelope(
    message: Message, payloads: Sequence[Payload], contents: Sequence[bytes | Sought], terms: Terms
) -> Envelope:
    who = preparing.ends(message, terms)
    order = None
    if message.order_number is not None:
        order = MessageOrder(message.order_number, reset=message.order_number == 0)
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
        routing=(),
        ref_to_message_id=message.ref_to_message_id,
        document_id=message.document_id,
        manifest=tuple(
            DocumentReference(
                label="", document_id=f"cid:{escaped_reference(payload.content_id)}", description=payload.label
            )
            for payload in payloads
        ),
        payloads=tuple(
            PayloadPart(payload.content_id, payload.content_type, content, payload.filename)
            for payload, content in zip(payloads, contents, strict=True)
        ),
        version=VERSION,
        ebms=Ebms2(
            from_role=terms.own_role,
            to_role=terms.partner_role,
            service_type="" if has_scheme(message.service) else _NO_URI,
            time_to_live=message.expires_at,
            duplicate_elimination=message.semantics != Semantics.BEST_EFFORT,
            ack_requests=(
                (AckRequest(signed=terms.signatures == Signatures.RECEIPTS),)
                if message.semantics == Semantics.ONCE_AND_ONLY_ONCE
                else ()
            ),
            # What comes in a response has none itself.
            sync_reply=terms.sync_reply != SyncReply.NONE and not is_response(message, terms),
            acknowledgments=_acknowledged(message, terms),
            order=order,
        ),
    )


def is_response(message: Message, terms: Terms) -> bool:
    """Whether somebody may wait for this message of ours."""
    return terms.sync_reply in RESPONSES and bool(message.ref_to_message_id)


def _acknowledged(message: Message, terms: Terms) -> tuple[Acknowledgment, ...]:
    """What a response says of the message that it answers, where both are one: our acknowledgement of that."""
    if terms.sync_reply != SyncReply.SIGNALS_AND_RESPONSE or not message.ref_to_message_id:
        return ()
    ours = Signal.objects.filter(
        about__message_id=message.ref_to_message_id,
        about__direction=Direction.IN,
        about__pair__partner=terms.partner_id,
        # A message of the partner's under another agreement may have the same MessageId, and another wire profile.
        about__agreement_version__agreement=terms.agreement_id,
        about__agreement_version__profile=terms.profile,
        direction=Direction.OUT,
        kind=SignalKind.ACKNOWLEDGEMENT,
    )
    signal = ours.first()
    if signal is None:
        return ()
    ebms = ebms2.decode(signal.content_type, bytes(signal.body)).ebms
    assert ebms is not None
    return ebms.acknowledgments


def fields(message: Message, terms: Terms) -> dict[str, Any]:
    """Fields of the Parcel of a message, beside those that come of its agreement."""
    return {
        "name": name_of("message", message.message_id),
        "headers": HEADERS,
        "answer_bytes": ANSWER_BYTES
        if terms.sync_reply not in RESPONSES
        else min(ANSWER_BYTES + terms.max_message_bytes, MOST_RESPONSE_BYTES),
        "not_after": message.expires_at,
    }
