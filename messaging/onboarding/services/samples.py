"""A sample message of an agreement: made by the codec that makes the real ones, sent to nobody but a test service."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from datetime import datetime

from messaging.engine.snapshots import party_ids, writer_options
from messaging.protocol.codecs import ebxml, repeatable, stream
from messaging.protocol.envelope import (
    DocumentReference,
    Envelope,
    MessageType,
    PayloadPart,
    RoutingHeader,
    Semantics,
)
from messaging.protocol.streams.envelope import first_id
from partners.choices import ExchangeIdentity, Profile, ServiceDirection
from partners.terms import Terms

CONTENT = b"""<?xml version="1.0" encoding="UTF-8"?>
<test>This document is a test. Nothing is to be done with it.</test>
"""
CONTENT_TYPE = "application/xml"
_CONTENT_ID = "test-document"


@dataclass(frozen=True, slots=True)
class Sample:
    """One message as it would go out. `sha256`: of the whole body; `payload_sha256`: of its one document."""

    message_id: str
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...]
    service: str
    action: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    @property
    def payload_sha256(self) -> str:
        return hashlib.sha256(CONTENT).hexdigest()


def sample(terms: Terms, now: datetime, *, message_id: str = "", number: int = 1, previous: int = 0) -> Sample:
    """The message with this number. Raises EncodeError when the agreement's values have no wire form."""
    service, action = document_of(terms)
    if terms.profile == Profile.REPEATABLE:
        return _request(terms, now, message_id or str(uuid.uuid4()), service, action)
    if terms.profile == Profile.STREAM:
        return _stream(terms, now, message_id or str(uuid.uuid4()), service, action, number, previous)
    return _ebxml(terms, now, message_id or f"{uuid.uuid4()}@test", service, action, number)


def document_of(terms: Terms) -> tuple[str, str]:
    """The first service and action that we may send, else the first one; `Test` where every action may be."""
    rows = [row for row in terms.services if row[2] != ServiceDirection.RECEIVE] or list(terms.services)
    service, action = rows[0][:2] if rows else ("urn:test", "*")
    return service, "Test" if action == "*" else action


def _payload() -> tuple[PayloadPart, ...]:
    return (PayloadPart(_CONTENT_ID, CONTENT_TYPE, CONTENT),)


def _ebxml(terms: Terms, now: datetime, message_id: str, service: str, action: str, number: int) -> Sample:
    semantics = Semantics(terms.semantics)
    envelope = Envelope(
        message_type=MessageType.NORMAL,
        message_id=message_id,
        timestamp=now,
        from_parties=party_ids(terms.own_identifiers),
        to_parties=party_ids(terms.partner_identifiers),
        agreement_id=terms.tpa_id,
        conversation_id=f"test-{message_id}",
        service=service,
        action=action,
        semantics=semantics,
        routing=(
            RoutingHeader(
                sender_uri=terms.own_uri,
                receiver_uri=terms.partner_uri,
                error_uri=terms.own_error_uri,
                timestamp=now,
                sequence_number=number if semantics is Semantics.ONCE_AND_ONLY_ONCE else None,
            ),
        ),
        manifest=(DocumentReference(label=action, document_id=f"cid:{_CONTENT_ID}", description="test.xml"),),
        payloads=_payload(),
    )
    wire = ebxml.encode(envelope, writer_options(terms))
    return Sample(message_id, wire.content_type, wire.join([CONTENT]), (), service, action)


def _stream(
    terms: Terms, now: datetime, message_id: str, service: str, action: str, number: int, previous: int
) -> Sample:
    source, stream_id = str(terms.agreement_id), first_id(now)
    receipts_to = terms.own_error_uri or terms.own_uri
    envelope = stream.StreamEnvelope(
        kind=stream.StreamKind.MESSAGE,
        message_id=message_id,
        to=terms.partner_uri,
        sent_at=now,
        source=source,
        label=action,
        position=stream.StreamPosition(
            source=source,
            tx_sequence_id=stream_id,
            current=number,
            previous=previous,
            start=number == 1,
            receipts_to=receipts_to if number == 1 else "",
        ),
        agreement_id=terms.tpa_id,
        conversation_id=f"test-{message_id}",
        service=service,
        action=action,
        from_parties=party_ids(terms.own_identifiers),
        to_parties=party_ids(terms.partner_identifiers),
        payloads=_payload(),
    )
    wire = stream.encode(envelope)
    return Sample(message_id, wire.content_type, wire.join([CONTENT]), (), service, action)


def _request(terms: Terms, now: datetime, message_id: str, service: str, action: str) -> Sample:
    by_key = terms.exchange_identity == ExchangeIdentity.KEY
    identity = repeatable.Identity(message_id, None if by_key else now.replace(microsecond=0), by_key=by_key)
    headers = (*repeatable.write(identity), ("RM-Service", service), ("RM-Action", action))
    return Sample(message_id, CONTENT_TYPE, CONTENT, headers, service, action)
