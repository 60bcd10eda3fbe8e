"""Messages from which the codec tests start.

Counts what a function does, where a test would else judge seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import FrameType

import pytest

import tests
from messaging.protocol.codecs.ebxml import decode, encode
from messaging.protocol.envelope import (
    DEFAULT_LIMITS,
    DocumentReference,
    Envelope,
    ErrorInfo,
    Limits,
    MessageType,
    PartyId,
    PayloadPart,
    RoutingHeader,
    Semantics,
)
from messaging.protocol.errors import Defect, ErrorCode, NotAMessage, Severity

FIXTURES = tests.FIXTURES / "ebxml-2000"
NAMES = sorted(path.name for path in FIXTURES.iterdir() if path.suffix in (".http", ".smtp"))
MULTIPART = 'multipart/related; type="application/vnd.eb+xml"; boundary="b"'

BUYER = "http://msh.buyer.example/ebxml/msh"
SELLER = "http://msh.seller.example/ebxml/msh"
HUB = "http://hub.example/ebxml/msh"
BUYER_ERRORS = "http://msh.buyer.example/ebxml/errors"
SELLER_ERRORS = "http://msh.seller.example/ebxml/errors"
HUB_ERRORS = "http://hub.example/ebxml/errors"

ORDER_ID = "20001002-103000-0001@msh.buyer.example"
SENT = datetime(2000, 10, 2, 10, 30, tzinfo=UTC)

ORDER = Envelope(
    message_type=MessageType.NORMAL,
    message_id=ORDER_ID,
    timestamp=SENT,
    from_parties=(PartyId("123456789", "DUNS"),),
    to_parties=(PartyId("987654321", "DUNS"),),
    agreement_id="tpa:buyer-seller:2000-10",
    conversation_id="conv-4711@msh.buyer.example",
    service="http://seller.example/services/OrderProcessing",
    action="NewPurchaseOrder",
    semantics=Semantics.ONCE_AND_ONLY_ONCE,
    routing=(RoutingHeader(BUYER, SELLER, BUYER_ERRORS, SENT, 23),),
    manifest=(DocumentReference("PurchaseOrder", "cid:po-4711@msh.buyer.example", "Purchase order 4711"),),
    payloads=(
        PayloadPart(
            "po-4711@msh.buyer.example",
            'application/xml; charset="UTF-8"',
            b'<?xml version="1.0" encoding="UTF-8"?>\r\n'
            b'<PurchaseOrder number="4711"><Line sku="A-1" qty="10"/></PurchaseOrder>\r\n',
        ),
    ),
)
ROUTED = replace(
    ORDER,
    routing=(
        RoutingHeader(BUYER, HUB, BUYER_ERRORS, SENT, 23),
        RoutingHeader(HUB, SELLER, HUB_ERRORS, datetime(2000, 10, 2, 10, 30, 4, 500_000, tzinfo=UTC), 7),
    ),
)
ACKNOWLEDGED = datetime(2000, 10, 2, 10, 30, 1, 250_000, tzinfo=UTC)
ACKNOWLEDGEMENT = Envelope(
    message_type=MessageType.ACKNOWLEDGEMENT,
    message_id="20001002-103001-0907@msh.seller.example",
    timestamp=ACKNOWLEDGED,
    from_parties=(PartyId(SELLER, "URI"),),
    to_parties=(PartyId(BUYER, "URI"),),
    agreement_id=ORDER.agreement_id,
    conversation_id=ORDER.conversation_id,
    service="",
    action="",
    semantics=Semantics.BEST_EFFORT,
    routing=(RoutingHeader(SELLER, BUYER, SELLER_ERRORS, ACKNOWLEDGED),),
    ref_to_message_id=ORDER_ID,
)
REFUSED = datetime(2000, 10, 2, 10, 30, 2, tzinfo=UTC)
SEQUENCE_ERROR = replace(
    ACKNOWLEDGEMENT,
    message_type=MessageType.ERROR,
    message_id="20001002-103002-0908@msh.seller.example",
    timestamp=REFUSED,
    routing=(RoutingHeader(SELLER, BUYER_ERRORS, SELLER_ERRORS, REFUSED),),
    error=ErrorInfo(
        ErrorCode.INVALID_SEQUENCE_NUMBER,
        Severity.ERROR,
        "SequenceNumber 23 received; last accepted 20, so 21 (next), 20 (repeat) or 1 (reset) expected",
        "/ebXMLHeader/RoutingHeader[1]/SequenceNumber",
    ),
)
POSTPONED = datetime(2000, 10, 2, 10, 30, 3, tzinfo=UTC)
TRANSIENT_ERROR = replace(
    SEQUENCE_ERROR,
    message_id="20001002-103003-0909@hub.example",
    timestamp=POSTPONED,
    from_parties=(PartyId(HUB, "URI"),),
    routing=(RoutingHeader(HUB, BUYER_ERRORS, HUB_ERRORS, POSTPONED),),
    error=ErrorInfo(
        ErrorCode.TRANSIENT_ERROR,
        Severity.TRANSIENT,
        "Next hop unavailable; resend the same message later",
        min_retry_secs=120,
    ),
)
MAILED = replace(
    ORDER,
    routing=(
        RoutingHeader(
            "mailto:msh@buyer.example", "mailto:msh@seller.example", "mailto:msh-errors@buyer.example", SENT, 23
        ),
    ),
)
EXPECTED = {
    "01-normal.http": ORDER,
    "02-acknowledgement.http": ACKNOWLEDGEMENT,
    "03-error-invalid-sequence.http": SEQUENCE_ERROR,
    "04-error-transient.http": TRANSIENT_ERROR,
    "05-routed-two-hops.http": ROUTED,
    "06-normal.smtp": MAILED,
}


def fixture(name: str) -> tuple[str, bytes]:
    """Content-Type and body of a stored transport entity."""
    head, _, body = (FIXTURES / name).read_bytes().partition(b"\r\n\r\n")
    for line in head.decode("ascii").split("\r\n"):
        if line.startswith("Content-Type: "):
            return line.removeprefix("Content-Type: "), body
    raise AssertionError(name)


def entity_of(envelope: Envelope) -> tuple[str, bytes]:
    """Content-Type and body as our writer makes them."""
    wire = encode(envelope)
    return wire.content_type, wire.join([payload.content for payload in envelope.payloads])


def document_of(envelope: Envelope) -> str:
    """The header document as our writer makes it."""
    wire = encode(envelope)
    text = wire.literals[0].decode()
    return text[text.index("<?xml") : text.index("</ebXMLHeader>") + len("</ebXMLHeader>")] + "\r\n"


def enclose(document: str | bytes, *parts: bytes) -> tuple[str, bytes]:
    """A header document of any form as a message; each of `parts` is a whole MIME part, headers and all."""
    if isinstance(document, str):
        document = document.encode()
    header = b"Content-Type: application/vnd.eb+xml\r\n\r\n" + document
    return MULTIPART, b"".join(b"--b\r\n" + part + b"\r\n" for part in (header, *parts)) + b"--b--\r\n"


ORDER_PART = b"Content-ID: <po-4711@msh.buyer.example>\r\nContent-Type: application/xml\r\n\r\n<PurchaseOrder/>"


def as_read(envelope: Envelope) -> Envelope:
    """`envelope` without the offsets at which its payloads were found."""
    return replace(envelope, payloads=tuple(replace(payload, offset=None) for payload in envelope.payloads))


def defect_codes(envelope: Envelope) -> list[tuple[ErrorCode, str]]:
    return [(defect.code, defect.location) for defect in envelope.defects]


def the_defect(envelope: Envelope) -> Defect:
    """The one defect of an envelope that should have exactly one."""
    assert len(envelope.defects) == 1, envelope.defects
    return envelope.defects[0]


def changed(document: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in document, old
        document = document.replace(old, new)
    return document


def read(document: str | bytes, *parts: bytes, limits: Limits = DEFAULT_LIMITS) -> Envelope:
    return decode(*enclose(document, *parts), limits)


def read_order(*changes: tuple[str, str], limits: Limits = DEFAULT_LIMITS) -> Envelope:
    return read(changed(ORDER_XML, *changes), ORDER_PART, limits=limits)


def reason(content_type: str, body: bytes, limits: Limits = DEFAULT_LIMITS) -> str:
    with pytest.raises(NotAMessage) as caught:
        decode(content_type, body, limits)
    return caught.value.reason


ORDER_XML = document_of(ORDER)
ACK_XML = document_of(ACKNOWLEDGEMENT)
ERROR_XML = document_of(SEQUENCE_ERROR)
SEQUENCE = "<SequenceNumber>000000023</SequenceNumber>"
SEQUENCE_LOCATION = "/ebXMLHeader/RoutingHeader[1]/SequenceNumber"
SEMANTICS_ELEMENT = "<DeliverySemantics>OnceAndOnlyOnce</DeliverySemantics>"
SEMANTICS_LOCATION = "/ebXMLHeader/Header/ReliableMessagingInfo/DeliverySemantics"
RELIABILITY = f"    <ReliableMessagingInfo>\r\n      {SEMANTICS_ELEMENT}\r\n    </ReliableMessagingInfo>\r\n"


@contextmanager
def counting() -> Iterator[list[str]]:
    """The calls of functions within, those of C code too."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            calls.append(event)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
