"""Messages from which the tests of the ebms2 codec start, and the schemas that judge what it writes."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

import pytest
from lxml import etree

import tests
from messaging.protocol.codecs.ebms2 import SERVICE, decode, encode
from messaging.protocol.codecs.mime import decode_header_value, decode_multipart
from messaging.protocol.envelope import (
    DEFAULT_LIMITS,
    Acknowledgment,
    AckRequest,
    Digest,
    DocumentReference,
    Ebms2,
    Ebms2Kind,
    Ebms2Options,
    Envelope,
    ErrorInfo,
    Limits,
    MessageType,
    PartyId,
    PayloadPart,
    Schema,
    Semantics,
    Transform,
)
from messaging.protocol.errors import ErrorCode, NotAMessage, Severity

FIXTURES = tests.FIXTURES / "ebms2"
MULTIPART = 'multipart/related; type="text/xml"; boundary="b"'
SENT = datetime(2026, 11, 28, 21, 0, tzinfo=UTC)

ORDER = Envelope(
    message_type=MessageType.NORMAL,
    message_id="20261128-210000-1@msh.buyer.example",
    timestamp=SENT,
    from_parties=(PartyId("123456789", "urn:oasis:names:tc:ebxml-cppa:partyid-type:duns"),),
    to_parties=(PartyId("987654321", "urn:oasis:names:tc:ebxml-cppa:partyid-type:duns"), PartyId("urn:x:seller")),
    agreement_id="cpa:buyer-seller:2026-11",
    conversation_id="conv-4711@msh.buyer.example",
    service="OrderProcessing",
    action="NewPurchaseOrder",
    semantics=Semantics.ONCE_AND_ONLY_ONCE,
    routing=(),
    manifest=(
        DocumentReference(
            "",
            "cid:po-4711@msh.buyer.example",
            "Purchase order 4711",
            "en",
            "urn:x:roles:order",
            (Schema("http://schemas.example/order.xsd", "2.3"),),
        ),
    ),
    payloads=(PayloadPart("po-4711@msh.buyer.example", "application/xml", b"<PurchaseOrder/>\r\n"),),
    version="2.0",
    ebms=Ebms2(
        from_role="Buyer",
        to_role="Seller",
        service_type="string",
        time_to_live=datetime(2026, 11, 29, 21, 0, tzinfo=UTC),
        duplicate_elimination=True,
        ack_requests=(AckRequest(),),
    ),
)
RECEIVED = datetime(2026, 11, 28, 21, 0, 1, 250_000, tzinfo=UTC)
DIGEST = Digest(
    "",
    "http://www.w3.org/2001/04/xmlenc#sha256",
    "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
    (
        Transform("http://www.w3.org/2000/09/xmldsig#enveloped-signature"),
        Transform(
            "http://www.w3.org/TR/1999/REC-xpath-19991116",
            '<XPath xmlns="http://www.w3.org/2000/09/xmldsig#" xmlns:S="http://schemas.xmlsoap.org/soap/envelope/">'
            "not(ancestor-or-self::node()[@S:actor])</XPath>",
        ),
    ),
)
ACKNOWLEDGEMENT = replace(
    ORDER,
    message_type=MessageType.ACKNOWLEDGEMENT,
    message_id="20261128-210001-7@msh.seller.example",
    timestamp=RECEIVED,
    from_parties=ORDER.to_parties,
    to_parties=ORDER.from_parties,
    service=SERVICE,
    action="Acknowledgment",
    semantics=Semantics.BEST_EFFORT,
    ref_to_message_id=ORDER.message_id,
    manifest=(),
    payloads=(),
    ebms=Ebms2(
        Ebms2Kind.ACKNOWLEDGMENT,
        "Seller",
        "Buyer",
        acknowledgments=(Acknowledgment(ORDER.message_id, RECEIVED, digests=(DIGEST,)),),
    ),
)
ERRORS = (
    ErrorInfo(ErrorCode.VALUE_NOT_RECOGNIZED, Severity.WARNING, "TimeToLive is no time"),
    ErrorInfo(ErrorCode.MIME_PROBLEM, Severity.ERROR, "a part is missing", "cid:po-4711@msh.buyer.example"),
)
ERROR = replace(
    ACKNOWLEDGEMENT,
    message_type=MessageType.ERROR,
    action="MessageError",
    error=ERRORS[1],
    ebms=Ebms2(Ebms2Kind.ERROR, "Seller", "Buyer", errors=ERRORS),
)

# What fills the placeholders of the fixtures of ebms-core: `[[${name}]]`, and attributes `th:name="${name}"`.
PLACEHOLDERS = {
    "partyType": "urn:osb:oin",
    "fromPartyId": "00000000000000000000",
    "fromRole": "DIGIPOORT",
    "toPartyId": "00000000000000000001",
    "toRole": "OVERHEID",
    "cpaId": "cpaStubEBF.rm.http.unsigned.sync",
    "uuid": "5d3f1c1e-0000-4000-8000-000000000001",
    "refToMessageId": "5d3f1c1e-0000-4000-8000-000000000000",
    "service": "http://www.example.nl/afleveren",
    "action": "afleveren",
    "timestamp": "2026-11-28T21:00:00",
    "timeToLive": "2026-11-29T21:00:00Z",
    "cid": "po-4711@msh.buyer.example",
}


def filled(name: str) -> bytes:
    """A fixture of ebms-core as its generator would have sent it, to a service without a type."""
    text = (FIXTURES / name).read_text()
    text = re.sub(r' th:eb:type="\$\{serviceType\}"| th:each="[^"]*"', "", text)
    text = re.sub(r"th:xlink:href=\"\$\{'cid:' \+ cid\}\"", f'xlink:href="cid:{PLACEHOLDERS["cid"]}"', text)
    text = re.sub(r'th:([a-z:]+)="\$\{(\w+)\}"', lambda found: f'{found[1]}="{PLACEHOLDERS[found[2]]}"', text)
    text = re.sub(r"\[\[\$\{(\w+)\}\]\]", lambda found: PLACEHOLDERS[found[1]], text)
    assert "th:" not in text and "${" not in text
    return text.encode()


def enclose(document: str | bytes, *parts: bytes) -> tuple[str, bytes]:
    """A SOAP envelope of any form as a message; each of `parts` is a whole MIME part, headers and all."""
    if isinstance(document, str):
        document = document.encode()
    root = b"Content-Type: text/xml\r\n\r\n" + document
    return MULTIPART, b"".join(b"--b\r\n" + part + b"\r\n" for part in (root, *parts)) + b"--b--\r\n"


ORDER_PART = b"Content-ID: <po-4711@msh.buyer.example>\r\nContent-Type: application/xml\r\n\r\n<PurchaseOrder/>\r\n"


def entity_of(envelope: Envelope, options: Ebms2Options | None = None) -> tuple[str, bytes]:
    """Content-Type and body as our writer makes them."""
    wire = encode(envelope, options or Ebms2Options())
    return wire.content_type, wire.join([payload.content[:] for payload in envelope.payloads])


def document_of(envelope: Envelope, options: Ebms2Options | None = None) -> str:
    """The SOAP envelope as our writer makes it."""
    content_type, body = entity_of(envelope, options)
    media_type, parameters = decode_header_value(content_type)
    if media_type == "text/xml":
        return body.decode()
    return decode_multipart(body, parameters["boundary"])[0].octets.decode()


ORDER_XML = document_of(ORDER)
ACK_XML = document_of(ACKNOWLEDGEMENT)
ERROR_XML = document_of(ERROR)


ACK_REQUESTED = (
    '<eb:AckRequested eb:version="2.0" SOAP:mustUnderstand="1" '
    'SOAP:actor="urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH" eb:signed="false"/>'
)
END = "</SOAP:Header>"


def changed(document: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in document, old
        document = document.replace(old, new)
    return document


def read_order(*changes: tuple[str, str], limits: Limits = DEFAULT_LIMITS) -> Envelope:
    return decode(*enclose(changed(ORDER_XML, *changes), ORDER_PART), limits)


def with_header(*blocks: str) -> Envelope:
    """The order with more header blocks."""
    return read_order((END, "".join(blocks) + END))


def read(document: str | bytes, *changes: tuple[str, str]) -> Envelope:
    """A SOAP envelope that comes alone."""
    text = document.decode() if isinstance(document, bytes) else document
    return decode("text/xml", changed(text, *changes).encode())


def read_ack(*changes: tuple[str, str]) -> Envelope:
    return read(ACK_XML, *changes)


def as_read(envelope: Envelope) -> Envelope:
    """`envelope` without the offsets at which its payloads were found."""
    return replace(envelope, payloads=tuple(replace(payload, offset=None) for payload in envelope.payloads))


def ebms(envelope: Envelope) -> Ebms2:
    assert envelope.ebms is not None
    return envelope.ebms


def found(envelope: Envelope) -> list[tuple[ErrorCode, Severity]]:
    return [(defect.code, defect.severity) for defect in envelope.defects]


def reason(content_type: str, body: bytes, limits: Limits = DEFAULT_LIMITS) -> str:
    with pytest.raises(NotAMessage) as caught:
        decode(content_type, body, limits)
    return caught.value.reason


@cache
def _schema() -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(FIXTURES / "schemas" / "msg-header-2_0.xsd"))


def assert_valid(document: str) -> None:
    """By msg-header-2_0.xsd, and by the schema of SOAP that it imports."""
    _schema().assertValid(etree.fromstring(document.encode()))
