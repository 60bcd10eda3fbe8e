"""What the ebms2 reader takes and what it says about what is wrong, in one place after the other of a message."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from messaging.protocol.codecs.ebms2 import SERVICE, decode
from messaging.protocol.envelope import (
    AckRequest,
    Actor,
    DocumentReference,
    Limits,
    MessageOrder,
    Semantics,
)
from messaging.protocol.errors import ErrorCode, Severity

from .ebms2_samples import (
    ACK_REQUESTED,
    ACK_XML,
    END,
    ORDER,
    ORDER_PART,
    ORDER_XML,
    as_read,
    changed,
    ebms,
    enclose,
    found,
    read_ack,
    read_order,
    reason,
    with_header,
)

E, W = Severity.ERROR, Severity.WARNING
SOAP = "http://schemas.xmlsoap.org/soap/envelope/"
SYNC_REPLY = '<eb:SyncReply eb:version="2.0" SOAP:actor="http://schemas.xmlsoap.org/soap/actor/next"/>'
ORDERED = '<eb:MessageOrder eb:version="2.0"><eb:SequenceNumber>7</eb:SequenceNumber></eb:MessageOrder>'
DATA = "<eb:TimeToLive>2026-11-29T21:00:00.000Z</eb:TimeToLive>"


def test_the_sample() -> None:
    assert as_read(read_order()) == replace(
        ORDER, payloads=(replace(ORDER.payloads[0], content=b"<PurchaseOrder/>\r\n"),)
    )


@pytest.mark.parametrize(
    "changes",
    [
        [("SOAP:", "soapenv:"), ("xmlns:SOAP", "xmlns:soapenv")],
        [('mustUnderstand="1"', 'mustUnderstand="true"')],
        [(' SOAP:mustUnderstand="1"', "")],
        [('eb:type="', 'type="'), ('eb:version="2.0" SOAP', 'version="2.0" SOAP')],
        [(">20261128-210000-1@msh.buyer.example<", ">\r\n  20261128-210000-1@msh.buyer.example\t<")],
        [("<SOAP:Header>", "<SOAP:Header><!-- x --><?x y?>")],
        [('xlink:type="simple" xlink:href', "href")],
        [("cid:po-4711@", "cid:po-4711%40")],
        [("cid:po-4711@", "CID:po%2d4711@")],
        [("<SOAP:Body>", '<SOAP:Body xmlns:xsi="http://www.w3c.org/2001/XML-Schema-Instance" xsi:x="y">')],
        [
            (
                "</eb:MessageHeader>",
                '<eb:Description xml:lang="no">{"MSH-system": "x"}</eb:Description></eb:MessageHeader>',
            )
        ],
        [("2026-11-28T21:00:00.000Z", "2026-11-28T21:00:00")],
        [("2026-11-28T21:00:00.000Z", "2026-11-28T22:00:00.0000000+01:00")],
    ],
)
def test_forms_that_mean_the_same(changes: list[tuple[str, str]]) -> None:
    envelope = read_order(*changes)
    (reference,) = envelope.manifest
    assert replace(as_read(envelope), manifest=(replace(reference, document_id=ORDER.manifest[0].document_id),)) == (
        as_read(read_order())
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_a_document_in_utf_16(encoding: str) -> None:
    octets = ACK_XML.replace('encoding="UTF-8"', 'encoding="UTF-16"').encode(encoding)
    assert decode("text/xml", octets if encoding == "utf-16" else b"\xff\xfe" + octets) == read_ack()


@pytest.mark.parametrize(
    ("content_type", "old", "new"),
    [
        ("multipart/related;start=soap@nhs.uk;type=text/xml;boundary=--=b", b"--b", b"----=b"),
        ('Multipart/Related; boundary="b"', b"\r\n", b"\n"),
        ('multipart/related; boundary="b"; start="<nowhere>"', b"text/xml", b"application/xml"),
        ('multipart/related; boundary="b"', b"Content-Type: text/xml\r\n\r\n", b"\r\n"),
        ('multipart/related; boundary="b"', b"Content-ID: <po", b"CONTENT-Id: <po"),
        ('multipart/related; boundary="b"', b"Content-ID: <po", b"Content-Length: 3\r\nContent-ID: <po"),
    ],
)
def test_packages_of_others(content_type: str, old: bytes, new: bytes) -> None:
    _, body = enclose(ORDER_XML, ORDER_PART)
    assert old in body
    envelope = decode(content_type, body.replace(old, new))
    assert (envelope.defects, envelope.payloads[0].content_type) == ((), "application/xml")


def test_the_root_part_is_the_one_that_start_names() -> None:
    _, body = enclose(ORDER_XML, ORDER_PART)
    root, order = body.removesuffix(b"--b--\r\n").split(b"--b\r\n")[1:]
    swapped = b"--b\r\n" + order + b"--b\r\nContent-Id: <soap@nhs.uk>\r\n" + root + b"--b--\r\n"
    envelope = decode("multipart/related; start=soap@nhs.uk; boundary=b", swapped)
    assert as_read(envelope) == as_read(read_order())


HEADER = "/Envelope/Header"
OWN = f"{HEADER}/MessageHeader"


@pytest.mark.parametrize(
    ("old", "new", "code", "location"),
    [
        (">cpa:buyer-seller:2026-11<", "><", ErrorCode.OTHER_XML, f"{OWN}/CPAId"),
        ("<eb:CPAId>cpa:buyer-seller:2026-11</eb:CPAId>", "", ErrorCode.OTHER_XML, f"{OWN}/CPAId"),
        (">conv-4711@msh.buyer.example<", "> <", ErrorCode.OTHER_XML, f"{OWN}/ConversationId"),
        (">OrderProcessing<", "><", ErrorCode.OTHER_XML, f"{OWN}/Service"),
        (">NewPurchaseOrder<", "><", ErrorCode.OTHER_XML, f"{OWN}/Action"),
        (">2026-11-28T21:00:00.000Z<", "><", ErrorCode.OTHER_XML, f"{OWN}/MessageData/Timestamp"),
        (">2026-11-28T21", ">in November 21", ErrorCode.VALUE_NOT_RECOGNIZED, f"{OWN}/MessageData/Timestamp"),
        ("</eb:CPAId>", "</eb:CPAId><eb:CPAId>x</eb:CPAId>", ErrorCode.INCONSISTENT, f"{OWN}/CPAId"),
        ("</eb:CPAId>", "</eb:CPAId><eb:Via/>", ErrorCode.OTHER_XML, OWN),
        (' eb:type="string"', "", ErrorCode.INCONSISTENT, f"{OWN}/Service"),
        (">urn:x:seller<", ">seller<", ErrorCode.INCONSISTENT, f"{OWN}/To/PartyId"),
        ("eb:Role>Seller</eb:Role>", "eb:Role>S</eb:Role><eb:Role/>", ErrorCode.INCONSISTENT, f"{OWN}/To/Role"),
        ('<eb:MessageHeader eb:version="2.0"', '<eb:MessageHeader eb:version="3.0"', ErrorCode.VALUE_NOT_RECOGNIZED,
         f"{OWN}/@version"),
        ('<eb:MessageHeader eb:version="2.0"', "<eb:MessageHeader", ErrorCode.OTHER_XML, OWN),
        ('<eb:AckRequested eb:version="2.0"', '<eb:AckRequested eb:version="1.0"', ErrorCode.VALUE_NOT_RECOGNIZED,
         f"{HEADER}/AckRequested/@version"),
        (' eb:signed="false"', "", ErrorCode.OTHER_XML, f"{HEADER}/AckRequested"),
        (' eb:signed="false"', ' eb:signed="no"', ErrorCode.VALUE_NOT_RECOGNIZED, f"{HEADER}/AckRequested/@signed"),
        (END, f"<eb:Via/>{END}", ErrorCode.OTHER_XML, HEADER),
        (END, f"{ACK_REQUESTED}{END}", ErrorCode.INCONSISTENT, f"{HEADER}/AckRequested"),
        (END, f"{SYNC_REPLY * 2}{END}", ErrorCode.INCONSISTENT, f"{HEADER}/SyncReply"),
        (END, f'<eb:SyncReply eb:version="2.0"/>{END}', ErrorCode.OTHER_XML, f"{HEADER}/SyncReply"),
        (END, f"{SYNC_REPLY}{ORDERED}{END}", ErrorCode.INCONSISTENT, f"{HEADER}/MessageOrder"),
        ("<eb:DuplicateElimination/>", "", ErrorCode.INCONSISTENT, f"{HEADER}/MessageOrder"),
        (ACK_REQUESTED, "", ErrorCode.INCONSISTENT, f"{HEADER}/MessageOrder"),
        ("<SOAP:Body>", "<SOAP:Header/><SOAP:Body>", ErrorCode.INCONSISTENT, "/Envelope"),
        ("</SOAP:Body>", "<eb:Acknowledgment/></SOAP:Body>", ErrorCode.INCONSISTENT, "/Envelope"),
        ("</SOAP:Body>", "<eb:Trace/></SOAP:Body>", ErrorCode.OTHER_XML, "/Envelope/Body"),
        ("</eb:Manifest>", '</eb:Manifest><eb:Manifest eb:version="2.0"/>', ErrorCode.INCONSISTENT,
         "/Envelope/Body/Manifest"),
        (' xlink:href="cid:po-4711@msh.buyer.example"', "", ErrorCode.OTHER_XML,
         "/Envelope/Body/Manifest/Reference[1]"),
        ('xlink:href="cid:po', 'xlink:href="cid:op', ErrorCode.MIME_PROBLEM, "/Envelope/Body/Manifest/Reference[1]"),
        ('xlink:href="cid:', 'xlink:href="', ErrorCode.MIME_PROBLEM, "/Envelope/Body/Manifest/Reference[1]"),
        ('xlink:role="urn:x:roles:order"', 'xlink:role="http://x:y/"', ErrorCode.VALUE_NOT_RECOGNIZED,
         "/Envelope/Body/Manifest/Reference[1]/@role"),
        ("</SOAP:Body>", '<eb:StatusRequest eb:version="2.0"/></SOAP:Body>', ErrorCode.OTHER_XML,
         "/Envelope/Body/StatusRequest"),
        (' eb:type="string">OrderProcessing<', f">{SERVICE}<", ErrorCode.VALUE_NOT_RECOGNIZED, f"{OWN}/Action"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_a_defect(old: str, new: str, code: ErrorCode, location: str) -> None:
    ordered = "MessageOrder" in location and "SyncReply" not in new
    document = ORDER_XML.replace(END, f"{ORDERED}{END}") if ordered else ORDER_XML
    envelope = decode(*enclose(changed(document, (old, new)), ORDER_PART))
    assert (code, location, E) in [(one.code, one.location, one.severity) for one in envelope.defects]
    assert envelope.fault is not None and envelope.fault.code is code
    assert envelope.message_id == ORDER.message_id


@pytest.mark.parametrize("name", ["From", "To"])
def test_a_missing_party_is_inconsistent(name: str) -> None:
    start = ORDER_XML.index(f"<eb:{name}>")
    stop = ORDER_XML.index(f"</eb:{name}>") + len(f"</eb:{name}>")
    envelope = read_order((ORDER_XML[start:stop], ""))
    assert [(one.code, one.location) for one in envelope.defects] == [(ErrorCode.INCONSISTENT, f"{OWN}/{name}")]


@pytest.mark.parametrize("text", ["Tue Jul 10 20:01:14 HKT 2007", "never"])
def test_a_time_to_live_that_is_none_is_ignored(text: str) -> None:
    envelope = read_order((DATA, f"<eb:TimeToLive>{text}</eb:TimeToLive>"))
    assert ebms(envelope).time_to_live is None
    assert found(envelope) == [(ErrorCode.VALUE_NOT_RECOGNIZED, W)]
    assert envelope.fault is None


@pytest.mark.parametrize(
    ("wishes", "duplicates", "semantics"),
    [
        (ACK_REQUESTED, "<eb:DuplicateElimination/>", Semantics.ONCE_AND_ONLY_ONCE),
        ("", "<eb:DuplicateElimination/>", Semantics.AT_MOST_ONCE),
        (ACK_REQUESTED, "", Semantics.BEST_EFFORT),
        ("", "", Semantics.BEST_EFFORT),
    ],
)
def test_semantics(wishes: str, duplicates: str, semantics: Semantics) -> None:
    envelope = read_order((ACK_REQUESTED, wishes), ("<eb:DuplicateElimination/>", duplicates))
    assert (envelope.semantics, envelope.defects) == (semantics, ())


def test_both_services_on_the_way_may_be_asked_to_acknowledge() -> None:
    envelope = with_header(ACK_REQUESTED.replace("toPartyMSH", "nextMSH").replace("false", "1"))
    assert envelope.defects == ()
    assert ebms(envelope).ack_requests == (AckRequest(), AckRequest(Actor.NEXT_MSH, signed=True))


def test_ack_requested_without_actor_is_for_the_to_party() -> None:
    envelope = read_order((' SOAP:actor="urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH"', ""))
    assert (ebms(envelope).ack_requests, envelope.defects) == ((AckRequest(),), ())


@pytest.mark.parametrize(
    ("number", "order", "codes"),
    [
        ("<eb:SequenceNumber>0</eb:SequenceNumber>", MessageOrder(0), []),
        ('<eb:SequenceNumber eb:status="Reset">0</eb:SequenceNumber>', MessageOrder(0, reset=True), []),
        ('<eb:SequenceNumber eb:status="Continue">99999999</eb:SequenceNumber>', MessageOrder(99_999_999), []),
        ("<eb:SequenceNumber>100000000</eb:SequenceNumber>", None, [ErrorCode.VALUE_NOT_RECOGNIZED]),
        ("<eb:SequenceNumber>-1</eb:SequenceNumber>", None, [ErrorCode.VALUE_NOT_RECOGNIZED]),
        ("<eb:SequenceNumber/>", None, [ErrorCode.OTHER_XML]),
        ("", None, [ErrorCode.OTHER_XML]),
        (
            '<eb:SequenceNumber eb:status="Begin">1</eb:SequenceNumber>',
            MessageOrder(1),
            [ErrorCode.VALUE_NOT_RECOGNIZED],
        ),
        (
            '<eb:SequenceNumber eb:status="Reset">1</eb:SequenceNumber>',
            MessageOrder(1, reset=True),
            [ErrorCode.INCONSISTENT],
        ),
    ],
)
def test_message_order(number: str, order: MessageOrder | None, codes: list[ErrorCode]) -> None:
    envelope = with_header(f'<eb:MessageOrder eb:version="2.0">{number}</eb:MessageOrder>')
    assert ebms(envelope).order == order
    assert [defect.code for defect in envelope.defects] == codes


@pytest.mark.parametrize("actor", ["", ' SOAP:actor=""', ' SOAP:actor="http://schemas.xmlsoap.org/soap/actor/next"',
                                   ' SOAP:actor="urn:oasis:names:tc:ebxml-msg:actor:nextMSH"'])  # fmt: skip
@pytest.mark.parametrize("must", ["1", "true"])
def test_a_foreign_block_that_must_be_understood_is_not_supported(actor: str, must: str) -> None:
    envelope = with_header(f'<x:Security xmlns:x="urn:x" SOAP:mustUnderstand="{must}"{actor}/>')
    assert [(one.code, one.location) for one in envelope.defects] == [(ErrorCode.NOT_SUPPORTED, f"{HEADER}/Security")]


@pytest.mark.parametrize(
    "attributes", ["", ' SOAP:mustUnderstand="0"', ' SOAP:mustUnderstand="1" SOAP:actor="urn:another"']
)
def test_a_foreign_block_for_others_is_passed_over(attributes: str) -> None:
    assert with_header(f'<x:Security xmlns:x="urn:x"{attributes}/>').defects == ()


@pytest.mark.parametrize("name", ["MessageHeader", "AckRequested", "SyncReply", "MessageOrder", "Acknowledgment"])
def test_an_element_for_another_actor_refuses_the_message(name: str) -> None:
    """It may be what a signature covers, while another service would read it: wrapping."""
    document = ORDER_XML.replace(END, f"{SYNC_REPLY.replace('/actor/next', '/actor/nextMSH')}{END}")
    if name == "SyncReply":
        envelope = decode(*enclose(document, ORDER_PART))
        assert not ebms(envelope).sync_reply
    elif name in ("MessageHeader", "AckRequested"):
        attribute = "" if name == "MessageHeader" else ' SOAP:actor="urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH"'
        changes = [(attribute, "")] if attribute else []
        envelope = read_order(*changes, (f"<eb:{name} ", f'<eb:{name} SOAP:actor="urn:another" '))
        assert ebms(envelope).ack_requests == (() if name == "AckRequested" else (AckRequest(),))
    else:
        envelope = with_header(f'<eb:{name} eb:version="2.0" SOAP:actor="urn:another"/>')
        assert (ebms(envelope).order, ebms(envelope).acknowledgments) == (None, ())
    assert [(one.code, one.location) for one in envelope.defects] == [
        (ErrorCode.VALUE_NOT_RECOGNIZED, f"{HEADER}/{name}/@actor")
    ]


def test_a_signature_for_another_actor_refuses_the_message() -> None:
    envelope = with_header('<ds:Signature SOAP:actor="urn:another"/>')
    assert not ebms(envelope).signed
    assert found(envelope) == [(ErrorCode.SECURITY_FAILURE, E)]


def test_a_signature_is_noticed() -> None:
    envelope = with_header('<ds:Signature SOAP:mustUnderstand="1"/>')
    assert (ebms(envelope).signed, envelope.defects) == (True, ())


@pytest.mark.parametrize("place", ["<x:Wrapper xmlns:x='urn:x'>{}</x:Wrapper></SOAP:Header>", "</SOAP:Header>{}"])
def test_an_element_elsewhere_refuses_the_message(place: str) -> None:
    start, stop = ORDER_XML.index("<eb:MessageHeader"), ORDER_XML.index("</eb:MessageHeader>")
    header = ORDER_XML[start:stop] + "</eb:MessageHeader>"
    envelope = read_order((END, place.format(header)))
    assert found(envelope) == [(ErrorCode.INCONSISTENT, E)]


@pytest.mark.parametrize("actor", ["", ' SOAP:actor="urn:oasis:names:tc:ebxml-msg:actor:nextMSH"'])
def test_a_second_message_header_refuses_the_message(actor: str) -> None:
    start, stop = ORDER_XML.index("<eb:MessageHeader"), ORDER_XML.index("</eb:MessageHeader>")
    header = ORDER_XML[start:stop] + "</eb:MessageHeader>"
    header = header.replace("<eb:MessageHeader", f"<eb:MessageHeader{actor}")
    envelope = with_header(header.replace(ORDER.message_id, "another"))
    assert envelope.message_id == ORDER.message_id
    assert found(envelope) == [(ErrorCode.INCONSISTENT, E)]


def test_parts_that_the_manifest_does_not_name_are_dropped_with_a_warning() -> None:
    named = b"Content-ID: <other>\r\n\r\nx"
    envelope = decode(*enclose(ORDER_XML, named, ORDER_PART, b"\r\nwithout id"))
    assert [payload.content_id for payload in envelope.payloads] == ["po-4711@msh.buyer.example"]
    assert found(envelope) == [(ErrorCode.MIME_PROBLEM, W)] * 2
    assert "other" in envelope.defects[0].description and "without Content-ID" in envelope.defects[1].description


def test_many_warnings_do_not_hide_what_refuses_a_message() -> None:
    envelope = decode(*enclose(ORDER_XML.replace("cid:po", "cid:op"), *[b"\r\nx"] * 200))
    assert envelope.fault is not None and envelope.fault.code is ErrorCode.MIME_PROBLEM


def test_a_part_that_cannot_be_decoded_is_a_mime_problem() -> None:
    part = ORDER_PART.replace(b"Content-Type", b"Content-Transfer-Encoding: base64\r\nContent-Type")
    envelope = decode(*enclose(ORDER_XML, part))
    assert found(envelope) == [(ErrorCode.MIME_PROBLEM, E)]


def test_a_content_id_that_occurs_twice_is_a_mime_problem() -> None:
    assert found(decode(*enclose(ORDER_XML, ORDER_PART, ORDER_PART))) == [(ErrorCode.MIME_PROBLEM, E)]


@pytest.mark.parametrize(
    "href", ["mid:20261127-1@msh.buyer.example/po-4711@msh.buyer.example", "http://files.example/po-4711.xml"]
)
def test_documents_that_lie_elsewhere(href: str) -> None:
    entry = f'<eb:Reference xlink:href="{href}"/></eb:Manifest>'
    envelope = read_order(("</eb:Manifest>", entry))
    assert envelope.manifest == (*ORDER.manifest, DocumentReference("", href))
    assert envelope.defects == ()


def test_a_cid_with_characters_that_no_uri_may_hold() -> None:
    part = ORDER_PART.replace(b"po-4711", b"po 47[11]%")
    envelope = decode(*enclose(ORDER_XML.replace("cid:po-4711", "cid:po 47[11]%"), part))
    assert envelope.manifest[0].document_id == "cid:po%2047%5B11%5D%25@msh.buyer.example"
    assert (envelope.payloads[0].content_id, envelope.defects) == ("po 47[11]%@msh.buyer.example", ())


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        ("<a/>", "not_soap"),
        (f'<a xmlns="{SOAP}"/>', "not_soap"),
        (ORDER_XML.replace(SOAP, "http://www.w3.org/2003/05/soap-envelope"), "not_soap"),
        (f'<S:Envelope xmlns:S="{SOAP}"><S:Body/></S:Envelope>', "not_ebxml"),
        (ORDER_XML.replace("msg-header-2_0.xsd", "msg-header-3_0.xsd"), "not_ebxml"),
        (ORDER_XML.replace(f">{ORDER.message_id}<", "> <"), "missing_message_id"),
        (ORDER_XML.replace("eb:MessageData", "eb:Data"), "missing_message_id"),
        (ORDER_XML[:-20], "xml_not_well_formed"),
        (ORDER_XML.replace("<SOAP:Envelope", "<!DOCTYPE x><SOAP:Envelope", 1), "dtd_forbidden"),
        (ORDER_XML.replace("<SOAP:Body>", "<SOAP:Body>" + "<x>" * 40 + "</x>" * 40), "too_deep"),
    ],
)
def test_what_is_no_message(document: str, wanted: str) -> None:
    assert reason("text/xml", document.encode()) == wanted


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/soap+xml", "multipart/related"])
def test_what_is_no_entity_of_this_profile(content_type: str) -> None:
    assert reason(content_type, ORDER_XML.encode()) == "not_mime"


def test_identifiers_can_be_stored() -> None:
    envelope = read_order((ORDER.message_id, "a\tb" + "c" * 600), limits=Limits(identifier=100))
    assert len(envelope.message_id) == 100 and "\t" not in envelope.message_id
    assert envelope.fault is not None and envelope.fault.code is ErrorCode.VALUE_NOT_RECOGNIZED


def test_a_document_id_comes_in_a_block_of_its_own() -> None:
    """What is beside the SOAP envelope is in no signature."""
    content_type, body = enclose(ORDER_XML, ORDER_PART)
    beside = body.replace(b"Content-Type: text/xml", b"RM-Document-ID: order 4711\r\nContent-Type: text/xml", 1)
    assert decode(content_type, beside).document_id == ""
    block = '<DocumentId xmlns="urn:rmhub:ebms2:1"> order 4711 </DocumentId></SOAP:Header>'
    content_type, body = enclose(ORDER_XML.replace("</SOAP:Header>", block), ORDER_PART)
    assert decode(content_type, body).document_id == "order 4711"
    # A signature may leave out what is for the next hop.
    body = body.replace(b"<DocumentId ", b'<DocumentId SOAP:actor="http://schemas.xmlsoap.org/soap/actor/next" ')
    assert decode(content_type, body).document_id == ""


def test_a_time_zone_is_counted() -> None:
    envelope = read_order((DATA, "<eb:TimeToLive>2026-11-29T21:00:00+02:00</eb:TimeToLive>"))
    assert ebms(envelope).time_to_live == datetime(2026, 11, 29, 19, 0, tzinfo=UTC)
