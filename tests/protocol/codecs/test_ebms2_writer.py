"""What the ebms2 writer makes, and what it refuses to make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from messaging.protocol.codecs.ebms2 import SERVICE, decode, enclose, encode, soap_document
from messaging.protocol.codecs.mime import encode_base64_parts
from messaging.protocol.envelope import (
    Acknowledgment,
    AckRequest,
    Actor,
    Digest,
    DocumentReference,
    Ebms2Kind,
    Ebms2Options,
    Envelope,
    ErrorInfo,
    MessageOrder,
    MessageStatus,
    MessageType,
    PartyId,
    PayloadPart,
    RoutingHeader,
    Schema,
    Semantics,
    StatusReport,
    Transform,
)
from messaging.protocol.errors import EncodeError, ErrorCode, Severity

from .ebms2_samples import (
    ACKNOWLEDGEMENT,
    DIGEST,
    ERROR,
    ERRORS,
    ORDER,
    RECEIVED,
    SENT,
    as_read,
    assert_valid,
    document_of,
    ebms,
    entity_of,
)

ORDER_BODY = """--ebms2-1\r
Content-ID: <hdr.20261128-210000-1@msh.buyer.example>\r
Content-Type: text/xml; charset="UTF-8"\r
Content-Length: {length}\r
\r
{document}\r
--ebms2-1\r
Content-ID: <po-4711@msh.buyer.example>\r
Content-Type: application/xml\r
Content-Length: 18\r
\r
<PurchaseOrder/>\r
\r
--ebms2-1--\r
"""


def order(**changes: Any) -> Envelope:
    """The order with other values in what only ebms2 has; its semantics follow."""
    changed = replace(ebms(ORDER), **changes)
    return replace(ORDER, semantics=changed.semantics, ebms=changed)


def acknowledgement(**changes: Any) -> Envelope:
    return replace(ACKNOWLEDGEMENT, ebms=replace(ebms(ACKNOWLEDGEMENT), **changes))


def digest(**changes: Any) -> Envelope:
    return acknowledgement(acknowledgments=(Acknowledgment("1@x", SENT, digests=(replace(DIGEST, **changes),)),))


STATUS = replace(
    ORDER,
    service=SERVICE,
    action="StatusResponse",
    semantics=Semantics.BEST_EFFORT,
    manifest=(),
    payloads=(),
    ebms=replace(
        ebms(ORDER),
        kind=Ebms2Kind.STATUS_RESPONSE,
        duplicate_elimination=False,
        ack_requests=(),
        status=StatusReport("1@x", MessageStatus.RECEIVED, RECEIVED),
    ),
)
VALID = {
    "order": ORDER,
    "order without payload": replace(ORDER, manifest=(), payloads=()),
    "order with document id": replace(ORDER, manifest=(), payloads=(), document_id="order 4711"),
    "acknowledgement": ACKNOWLEDGEMENT,
    "error": ERROR,
    "status response": STATUS,
    "reset": order(order=MessageOrder(0, reset=True)),
    "both actors": order(ack_requests=(AckRequest(Actor.NEXT_MSH), AckRequest(signed=True)), sync_reply=True),
    "piggy-back": order(
        acknowledgments=(
            Acknowledgment("1@x", SENT, Actor.NEXT_MSH, (PartyId("urn:x:y"),), "R"),
            Acknowledgment("2@x", SENT),
        ),
        errors=ERRORS,
    ),
    "elsewhere": replace(ORDER, manifest=(*ORDER.manifest, DocumentReference("", "mid:1@x/2@x"))),
    "microseconds": replace(ORDER, timestamp=SENT.replace(microsecond=725_072)),
    "entities": replace(ORDER, agreement_id='<&">', action="a&b"),
}


@pytest.mark.parametrize("options", [Ebms2Options(), Ebms2Options(element_ids=True), Ebms2Options(multipart=True)])
@pytest.mark.parametrize("name", sorted(VALID))
def test_what_is_written_is_valid_and_read_back(name: str, options: Ebms2Options) -> None:
    envelope = VALID[name]
    assert_valid(document_of(envelope, options))
    assert as_read(decode(*entity_of(envelope, options))) == envelope


def test_the_octets_of_a_message() -> None:
    content_type, body = entity_of(ORDER)
    document = soap_document(ORDER).decode()
    assert content_type == (
        'multipart/related; type="text/xml"; start="<hdr.20261128-210000-1@msh.buyer.example>"; boundary="ebms2-1"'
    )
    assert body.decode() == ORDER_BODY.format(length=len(document), document=document)
    assert encode(ORDER) == encode(replace(ORDER))


def test_what_has_no_parts_goes_alone() -> None:
    content_type, body = entity_of(ACKNOWLEDGEMENT)
    assert (content_type, body) == ('text/xml; charset="UTF-8"', soap_document(ACKNOWLEDGEMENT))
    content_type, _ = entity_of(ACKNOWLEDGEMENT, Ebms2Options(multipart=True))
    assert content_type.startswith("multipart/related; ")


def test_elements_have_ids_where_signatures_name_them() -> None:
    document = document_of(VALID["both actors"], Ebms2Options(element_ids=True))
    for name in ("MessageHeader", "AckRequested-NEXT_MSH", "AckRequested-TO_PARTY_MSH", "SyncReply", "Manifest"):
        assert f'eb:id="{name}"' in document
    assert "eb:id" not in document_of(ORDER)


def test_a_signed_document_is_enclosed_as_it_is() -> None:
    signature = b'<ds:Signature xmlns:ds="http://www.w3.org/2000/09/xmldsig#"/></SOAP:Header>'
    document = soap_document(ORDER).replace(b"</SOAP:Header>", signature)
    wire = enclose(ORDER, document)
    body = wire.join([ORDER.payloads[0].content[:]])
    assert document in body
    assert as_read(decode(wire.content_type, body)) == order(signed=True)


def test_times_are_in_utc() -> None:
    moment = SENT.astimezone(timezone(timedelta(hours=-5)))
    assert "<eb:Timestamp>2026-11-28T21:00:00.000Z<" in document_of(replace(ORDER, timestamp=moment))


def test_as_mail() -> None:
    _, body = entity_of(ORDER)
    content_type = encode(ORDER).content_type
    assert decode(content_type, encode_base64_parts(body, "ebms2-1")) == ORDER


class Pieces:
    """A payload that is nowhere as a whole."""

    def __init__(self, octets: bytes) -> None:
        self.octets = octets

    def __len__(self) -> int:
        return len(self.octets)

    def __iter__(self) -> Iterator[bytes]:
        for at in range(0, len(self.octets), 7):
            yield self.octets[at : at + 7]

    def __contains__(self, sought: bytes, /) -> bool:
        return sought in self.octets

    def find(self, sought: bytes, begin: int = 0, end: int | None = None, /) -> int:
        return self.octets.find(sought, begin, len(self.octets) if end is None else end)

    def __getitem__(self, where: slice, /) -> bytes:
        return self.octets[where]

    def part(self, begin: int, end: int) -> Pieces:
        return Pieces(self.octets[begin:end])


def test_messages_may_be_larger_than_memory() -> None:
    payload = replace(ORDER.payloads[0], content=Pieces(b"--ebms2-1\r\n" * 100))
    wire = encode(replace(ORDER, payloads=(payload,)))
    body = wire.join([payload.content[:]])
    assert "ebms2-1." in wire.content_type  # another boundary than in the payload
    envelope = decode(wire.content_type, Pieces(body))
    assert isinstance(envelope.payloads[0].content, Pieces)
    assert envelope.payloads[0].content[:] == payload.content[:]
    assert envelope.defects == ()


PAYLOAD = ORDER.payloads[0]
REFUSED: dict[str, Envelope] = {
    "no ebms": replace(ORDER, ebms=None),
    "version": replace(ORDER, version="0.21"),
    "signed": order(signed=True),
    "routing": replace(ORDER, routing=(RoutingHeader("a", "b", "c", SENT),)),
    "type": replace(ORDER, message_type=MessageType.ERROR),
    "semantics": replace(ORDER, semantics=Semantics.BEST_EFFORT),
    "service of signals": replace(ORDER, service=SERVICE),
    "service without type": order(service_type=""),
    "party without type": replace(ORDER, from_parties=(PartyId("123"),)),
    "no party": replace(ORDER, to_parties=()),
    "empty party": replace(ORDER, to_parties=(PartyId("", "x"),)),
    "no agreement": replace(ORDER, agreement_id=""),
    "no conversation": replace(ORDER, conversation_id=""),
    "no action": replace(ORDER, action=""),
    "no message id": replace(ORDER, message_id=""),
    "line break": replace(ORDER, message_id="a\nb"),
    "blank": replace(ORDER, message_id=" a"),
    "naive time": replace(ORDER, timestamp=datetime(2026, 11, 28)),
    "naive life": order(time_to_live=datetime(2026, 11, 28)),
    "error in a message": replace(ORDER, error=ERRORS[0]),
    "two requests": order(ack_requests=(AckRequest(), AckRequest(signed=True))),
    "order with sync reply": order(order=MessageOrder(1), sync_reply=True),
    "order without duplicate elimination": order(order=MessageOrder(1), duplicate_elimination=False),
    "order too high": order(order=MessageOrder(100_000_000)),
    "reset to 1": order(order=MessageOrder(1, reset=True)),
    "document id": replace(ORDER, document_id=" x"),
    "label": replace(ORDER, manifest=(replace(ORDER.manifest[0], label="Order"),)),
    "no URI": replace(
        ORDER, manifest=(DocumentReference("", "cid:po 4711"),), payloads=(replace(PAYLOAD, content_id="po 4711"),)
    ),
    "no scheme": replace(ORDER, manifest=(*ORDER.manifest, DocumentReference("", "po-4711"))),
    "no part": replace(ORDER, manifest=(*ORDER.manifest, DocumentReference("", "cid:x"))),
    "not named": replace(ORDER, payloads=(PAYLOAD, PayloadPart("x", "text/plain", b""))),
    "no manifest": replace(ORDER, manifest=()),
    "no content id": replace(ORDER, payloads=(replace(PAYLOAD, content_id=""),)),
    "same content id": replace(ORDER, payloads=(PAYLOAD, PAYLOAD)),
    "role": replace(ORDER, manifest=(replace(ORDER.manifest[0], role="a b"),)),
    "schema": replace(ORDER, manifest=(replace(ORDER.manifest[0], schemas=(Schema(""),)),)),
    "language": replace(ORDER, manifest=(replace(ORDER.manifest[0], language="english please"),)),
    "signal with payload": replace(ACKNOWLEDGEMENT, payloads=ORDER.payloads, manifest=ORDER.manifest),
    "signal of another action": replace(ACKNOWLEDGEMENT, action="Ping"),
    "acknowledgement that asks": acknowledgement(ack_requests=(AckRequest(),)),
    "acknowledgement that eliminates": replace(
        acknowledgement(duplicate_elimination=True), semantics=Semantics.AT_MOST_ONCE
    ),
    "acknowledgement of nothing": acknowledgement(acknowledgments=()),
    "acknowledgement without id": acknowledgement(acknowledgments=(Acknowledgment("", SENT),)),
    "acknowledged twice": acknowledgement(acknowledgments=(Acknowledgment("1", SENT), Acknowledgment("2", SENT))),
    "role of nobody": acknowledgement(acknowledgments=(Acknowledgment("1", SENT, from_role="R"),)),
    "digest": digest(value="digestValue"),
    "digest method": digest(method=""),
    "digest URI": digest(uri="cid:a b"),
    "transform": digest(transforms=(Transform(""),)),
    "no XML": digest(transforms=(Transform("urn:x", "<x>"),)),
    "not canonical": digest(transforms=(Transform("urn:x", "<x/>"),)),
    "entities": digest(transforms=(Transform("urn:x", "&x;"),)),
    "error without list": replace(ERROR, error=None, ebms=replace(ebms(ERROR), errors=())),
    "error of nothing": replace(ERROR, ref_to_message_id=""),
    "not the gravest": replace(ERROR, error=ERRORS[0]),
    "transient": order(errors=(ErrorInfo(ErrorCode.DELIVERY_FAILURE, Severity.TRANSIENT, ""),)),
    "seconds": order(errors=(replace(ERRORS[0], min_retry_secs=5),)),
    "no code": order(errors=(replace(ERRORS[0], code=""),)),
    "status in a message": order(status=StatusReport("1@x")),
    "no status": replace(STATUS, ebms=replace(ebms(STATUS), status=None)),
    "status not said": replace(STATUS, ebms=replace(ebms(STATUS), status=StatusReport("1@x"))),
    "status in a request": replace(
        STATUS, action="StatusRequest", ebms=replace(ebms(STATUS), kind=Ebms2Kind.STATUS_REQUEST)
    ),
    "time in a request": replace(
        STATUS,
        action="StatusRequest",
        ebms=replace(ebms(STATUS), kind=Ebms2Kind.STATUS_REQUEST, status=StatusReport("1@x", None, SENT)),
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_not_written(name: str) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(REFUSED[name])
    assert str(caught.value)


def test_a_digest_names_its_part() -> None:
    envelope = digest(uri="cid:po-4711@msh.buyer.example", transforms=())
    assert ebms(decode(*entity_of(envelope))).acknowledgments[0].digests == (
        Digest("cid:po-4711@msh.buyer.example", DIGEST.method, DIGEST.value),
    )
    assert_valid(document_of(envelope))
