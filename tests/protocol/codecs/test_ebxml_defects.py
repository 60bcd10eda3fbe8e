"""What the reader says about messages that break a rule, and which bytes it takes for no message at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from messaging.protocol.envelope import Limits, MessageType, Semantics
from messaging.protocol.errors import ErrorCode
from tests.protocol.codecs.samples import counting

from .samples import (
    ACK_XML,
    ERROR_XML,
    MULTIPART,
    ORDER,
    ORDER_PART,
    ORDER_XML,
    RELIABILITY,
    ROUTED,
    SELLER,
    SEMANTICS_LOCATION,
    SENT,
    SEQUENCE,
    SEQUENCE_LOCATION,
    as_read,
    changed,
    defect_codes,
    document_of,
    enclose,
    entity_of,
    read,
    read_order,
    reason,
    the_defect,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("\r\n    000000023\n  ", 23),
        ("\t23 ", 23),
        ("1", 1),
        ("000000001", 1),
        ("999999999", 999_999_999),
    ],
)
def test_e14_sequence_number_as_in_the_sample(text: str, value: int) -> None:
    envelope = read_order((SEQUENCE, f"<SequenceNumber>{text}</SequenceNumber>"))
    assert envelope.hop.sequence_number == value
    assert envelope.defects == ()


def test_e14_all_values_may_be_wrapped_in_line_breaks() -> None:
    document = ORDER_XML.replace(">", ">\n  ").replace("</", "\r\n\t</").replace('"UTF-8"?>\n  ', '"UTF-8"?>\n')
    assert as_read(read(document, ORDER_PART)) == as_read(read_order())


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "000000000",
        "-1",
        "+1",
        "1.0",
        "abc",
        "",
        " ",
        "1000000000",
        "0000000023",
        "1 2",
        "1e3",
        "0x1",
        "\u0661",
        "\u00b2",
    ],
)
def test_e15_bad_sequence_number(text: str) -> None:
    envelope = read_order((SEQUENCE, f"<SequenceNumber>{text}</SequenceNumber>"))
    assert defect_codes(envelope) == [(ErrorCode.INVALID_SEQUENCE_NUMBER, SEQUENCE_LOCATION)]
    assert envelope.hop.sequence_number is None
    assert envelope.semantics is Semantics.ONCE_AND_ONLY_ONCE


def test_e15_missing_sequence_number() -> None:
    envelope = read_order((SEQUENCE, ""))
    assert defect_codes(envelope) == [(ErrorCode.INVALID_SEQUENCE_NUMBER, SEQUENCE_LOCATION)]
    assert "missing" in the_defect(envelope).description
    assert envelope.hop.sequence_number is None


def test_e15_names_the_hop_that_is_wrong() -> None:
    document = document_of(ROUTED).replace("000000007", "0")
    assert the_defect(read(document, ORDER_PART)).location == "/ebXMLHeader/RoutingHeader[2]/SequenceNumber"


@pytest.mark.parametrize(
    ("changes", "code", "location"),
    [
        ([('Version="0.21"', 'Version="3.0"')], ErrorCode.NOT_SUPPORTED, "/ebXMLHeader/@Version"),
        ([('"Normal"', '"Ping"')], ErrorCode.NOT_SUPPORTED, "/ebXMLHeader/@MessageType"),
        ([(' MessageType="Normal"', "")], ErrorCode.NOT_SUPPORTED, "/ebXMLHeader/@MessageType"),
        (
            [("<TPAId>tpa:buyer-seller:2000-10</TPAId>", "")],
            ErrorCode.NOT_WELL_FORMED,
            "/ebXMLHeader/Header/TPAInfo/TPAId",
        ),
        (
            [(ORDER.conversation_id, " ")],
            ErrorCode.NOT_WELL_FORMED,
            "/ebXMLHeader/Header/TPAInfo/ConversationId",
        ),
        ([(ORDER.service, "")], ErrorCode.NOT_WELL_FORMED, "/ebXMLHeader/Header/TPAInfo/ServiceInterface"),
        ([("<Action>NewPurchaseOrder", "<Action>")], ErrorCode.NOT_WELL_FORMED, "/ebXMLHeader/Header/TPAInfo/Action"),
        ([('<PartyId context="DUNS">123456789</PartyId>', "")], ErrorCode.NOT_WELL_FORMED, "/ebXMLHeader/Header/From"),
        ([("987654321", "")], ErrorCode.NOT_WELL_FORMED, "/ebXMLHeader/Header/To"),
        (
            [("<TimeStamp>20001002T103000.000Z</TimeStamp>", "")],
            ErrorCode.NOT_WELL_FORMED,
            "/ebXMLHeader/Header/MessageData/TimeStamp",
        ),
        (
            [("<TimeStamp>20001002T103000.000Z", "<TimeStamp>yesterday")],
            ErrorCode.VALUE_NOT_RECOGNIZED,
            "/ebXMLHeader/Header/MessageData/TimeStamp",
        ),
        (
            [("<Timestamp>20001002T103000.000Z", "<Timestamp>20001301T103000.000Z")],
            ErrorCode.VALUE_NOT_RECOGNIZED,
            "/ebXMLHeader/RoutingHeader[1]/Timestamp",
        ),
        (
            [("<TPAId>", "<TPAId>other</TPAId><TPAId>")],
            ErrorCode.NOT_WELL_FORMED,
            "/ebXMLHeader/Header/TPAInfo/TPAId",
        ),
        (
            [("<MessageId>", "<MessageId>other</MessageId><MessageId>")],
            ErrorCode.NOT_WELL_FORMED,
            "/ebXMLHeader/Header/MessageData/MessageId",
        ),
        (
            [(SEQUENCE, SEQUENCE + "<SequenceNumber>1</SequenceNumber>")],
            ErrorCode.NOT_WELL_FORMED,
            "/ebXMLHeader/RoutingHeader[1]",
        ),
        (
            [("cid:po-4711@msh.buyer.example", "cid:po-4712@msh.buyer.example")],
            ErrorCode.MIME_PROBLEM,
            "/ebXMLHeader/Manifest/DocumentReference[1]",
        ),
        (
            [("<DocumentId>cid:po-4711@msh.buyer.example</DocumentId>", "")],
            ErrorCode.NOT_WELL_FORMED,
            "/ebXMLHeader/Manifest/DocumentReference[1]",
        ),
        (
            [("NewPurchaseOrder<", "New\nPurchaseOrder<")],
            ErrorCode.VALUE_NOT_RECOGNIZED,
            "/ebXMLHeader/Header/TPAInfo/Action",
        ),
        (
            [("http://msh.buyer.example/ebxml/errors", "http://msh.buyer.example/" + "e" * 600)],
            ErrorCode.VALUE_NOT_RECOGNIZED,
            "/ebXMLHeader/RoutingHeader[1]/ErrorURI",
        ),
    ],
)
def test_defects_of_a_readable_message(changes: list[tuple[str, str]], code: ErrorCode, location: str) -> None:
    envelope = read_order(*changes)
    assert defect_codes(envelope) == [(code, location)]
    assert envelope.message_type is MessageType.NORMAL
    assert envelope.hop.receiver_uri == SELLER


@pytest.mark.parametrize("value", ["", "onceandonlyonce", "ExactlyOnce"])
def test_unknown_semantics_are_best_effort_with_a_defect(value: str) -> None:
    envelope = read_order(("OnceAndOnlyOnce", value))
    assert defect_codes(envelope) == [(ErrorCode.VALUE_NOT_RECOGNIZED, SEMANTICS_LOCATION)]
    assert envelope.semantics is Semantics.BEST_EFFORT


def test_no_semantics_are_best_effort() -> None:
    envelope = read_order((RELIABILITY, ""))
    assert envelope.semantics is Semantics.BEST_EFFORT
    assert envelope.defects == ()


def test_at_most_once_is_read_as_a_wire_value() -> None:
    assert read_order(("OnceAndOnlyOnce", "AtMostOnce")).semantics is Semantics.AT_MOST_ONCE


def test_unknown_message_type_with_an_error_body_is_an_error() -> None:
    envelope = read(ERROR_XML.replace('MessageType="Error"', 'MessageType="Fault"'))
    assert envelope.message_type is MessageType.ERROR
    assert the_defect(envelope).code is ErrorCode.NOT_SUPPORTED


def test_answer_that_names_no_message() -> None:
    envelope = read(ACK_XML.replace(f"<RefToMessageId>{ORDER.message_id}</RefToMessageId>", ""))
    assert the_defect(envelope).code is ErrorCode.NOT_WELL_FORMED


def test_unreadable_times_fall_back_to_each_other() -> None:
    assert read_order(("<TimeStamp>20001002T103000.000Z", "<TimeStamp>x")).timestamp == SENT
    assert read_order(("<Timestamp>20001002T103000.000Z", "<Timestamp>x")).hop.timestamp == SENT


def test_error_uri_may_be_missing() -> None:
    envelope = read_order(("<ErrorURI>http://msh.buyer.example/ebxml/errors</ErrorURI>", ""))
    assert envelope.hop.error_uri == ""
    assert envelope.defects == ()


@pytest.mark.parametrize(
    "part",
    [
        b"Content-ID: <po-4711@msh.buyer.example>\r\nContent-Transfer-Encoding: base64\r\n\r\nQQ",
        b"Content-ID: <po-4711@msh.buyer.example>\r\nContent-Transfer-Encoding: x-gzip\r\n\r\nQQ",
    ],
)
def test_payload_that_cannot_be_decoded(part: bytes) -> None:
    assert defect_codes(read(ORDER_XML, part)) == [(ErrorCode.MIME_PROBLEM, "po-4711@msh.buyer.example")]


def test_content_ids_that_occur_twice_or_cannot_be_written() -> None:
    assert defect_codes(read(ORDER_XML, ORDER_PART, ORDER_PART)) == [
        (ErrorCode.MIME_PROBLEM, "po-4711@msh.buyer.example")
    ]
    assert defect_codes(read(ORDER_XML, ORDER_PART, "Content-ID: <\u00e4>\r\n\r\nx".encode())) == [
        (ErrorCode.MIME_PROBLEM, "\u00e4")
    ]


def test_manifest_reference_percent_encoded() -> None:
    envelope = read_order(("cid:po-4711@msh", "cid:po%2D4711%40msh"))
    assert envelope.defects == ()
    assert envelope.manifest[0].document_id == "cid:po%2D4711%40msh.buyer.example"


def test_manifest_reference_to_elsewhere_needs_no_part() -> None:
    envelope = read_order(("cid:po-4711@msh.buyer.example", "http://buyer.example/po-4711"))
    assert envelope.defects == ()


def test_manifest_descriptions() -> None:
    envelope = read_order((' xml:lang="en"', ""))
    assert (envelope.manifest[0].description, envelope.manifest[0].language) == ("Purchase order 4711", "")
    envelope = read_order(("Purchase order 4711", ""))
    assert (envelope.manifest[0].description, envelope.manifest[0].language) == ("", "en")


def test_identifiers_are_cut_to_the_limit() -> None:
    envelope = read_order(limits=Limits(identifier=10))
    assert envelope.message_id == ORDER.message_id[:10]
    assert {code for code, _ in defect_codes(envelope)} == {ErrorCode.VALUE_NOT_RECOGNIZED, ErrorCode.MIME_PROBLEM}
    assert ErrorCode.VALUE_NOT_RECOGNIZED is envelope.defects[0].code
    assert all(len(hop.sender_uri) <= 10 for hop in envelope.routing)


def test_number_of_hops_is_bounded() -> None:
    hop = ORDER_XML[ORDER_XML.index("  <RoutingHeader>") : ORDER_XML.index("</ebXMLHeader>")]
    envelope = read(ORDER_XML.replace(hop, hop * 9 + hop.replace("023", "024")), ORDER_PART)
    assert envelope.defects == ()
    assert len(envelope.routing) == 10
    envelope = read(ORDER_XML.replace(hop, hop * 500 + hop.replace("023", "024")), ORDER_PART)
    assert defect_codes(envelope) == [(ErrorCode.NOT_SUPPORTED, "/ebXMLHeader/RoutingHeader")]
    assert len(envelope.routing) == 10
    assert envelope.hop.sequence_number == 24


def test_number_of_defects_is_bounded() -> None:
    reference = "<DocumentReference><DocumentId>cid:none</DocumentId></DocumentReference>"
    envelope = read_order(("<Manifest>", "<Manifest>" + reference * 5000))
    assert 0 < len(envelope.defects) <= 50


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("", b"", "not_mime"),
        ("application/json", b"{}", "not_mime"),
        ("multipart/related", b"--b--", "not_mime"),
        ("multipart/related; boundary=", b"--b--", "not_mime"),
        ("multipart/related; boundary=c", b"--b\r\n\r\nx\r\n--b--", "not_mime"),
        ("x" * 20_000, b"", "not_mime"),
        (MULTIPART, b"--b--", "no_header_part"),
        (MULTIPART, b"--b\r\nContent-Type: application/pdf\r\n\r\nx\r\n--b--", "no_header_part"),
        (MULTIPART, b"--b\r\nContent-Transfer-Encoding: base64\r\n\r\nQ\r\n--b--", "bad_transfer_encoding"),
        (MULTIPART, b"--b\r\n\r\nnot xml\r\n--b--", "xml_not_well_formed"),
        ("text/xml", b"", "xml_not_well_formed"),
        ("text/xml", b"<a/>", "not_ebxml"),
        ("text/xml", b"<ebXMLHeader xmlns='urn:x'/>", "not_ebxml"),
        ("text/xml", b"<!DOCTYPE ebXMLHeader><ebXMLHeader/>", "dtd_forbidden"),
        ("text/xml", b"<a>" * 100 + b"</a>" * 100, "too_deep"),
        ("text/xml", b"<a>" + b"<b/>" * 30_000 + b"</a>", "too_many_elements"),
        ("text/xml", b"<ebXMLHeader/>", "missing_message_id"),
    ],
)
def test_what_is_no_message(content_type: str, body: bytes, expected: str) -> None:
    assert reason(content_type, body) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (ORDER.message_id, " \n ", "missing_message_id"),
        ("MessageId>", "Id>", "missing_message_id"),
        ("RoutingHeader>", "Routing>", "missing_routing_header"),
        ("SenderURI>", "Sender>", "missing_sender_uri"),
        ("http://msh.seller.example/ebxml/msh", "", "missing_receiver_uri"),
    ],
)
def test_what_cannot_be_answered(old: str, new: str, expected: str) -> None:
    content_type, body = enclose(changed(ORDER_XML, (old, new)), ORDER_PART)
    assert reason(content_type, body) == expected


def test_size_limits() -> None:
    content_type, body = entity_of(ORDER)
    assert reason(content_type, body, Limits(body=len(body) - 1)) == "body_too_large"
    assert reason(content_type, body, Limits(header_document=100)) == "header_too_large"
    assert reason(content_type, body, Limits(parts=1)) == "too_many_parts"
    content_type, body = enclose(ORDER_XML, b"X: " + b"x" * 300 + b"\r\n\r\n")
    assert reason(content_type, body, Limits(part_headers=200)) == "part_headers_too_large"


def test_entity_bomb_in_the_header() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
    content_type, body = enclose(ORDER_XML.replace("<ebXMLHeader", bomb + "<ebXMLHeader"), ORDER_PART)
    assert reason(content_type, body) == "dtd_forbidden"


def test_ten_thousand_parts_cost_next_to_nothing() -> None:
    def refused(parts: int) -> None:
        content_type, body = enclose(ORDER_XML, *[ORDER_PART] * parts)
        with counting() as calls:
            assert reason(content_type, body) == "too_many_parts"
        costs.append(len(calls))

    costs: list[int] = []
    refused(2_000)
    refused(10_000)
    assert costs[1] < 2 * costs[0]


def test_bytes_of_strangers_never_reach_the_text_columns_as_nul() -> None:
    part = (
        b"Content-ID: <po-4711@msh.buyer.example>\r\nContent-Type: a/b\x00\r\n"
        b"Content-Disposition: x; filename=a\x00b\r\n\r\n"
    )
    envelope = read(ORDER_XML, part)
    assert "\x00" not in repr(replace(envelope, payloads=())) + "".join(
        payload.content_id + payload.content_type + payload.filename for payload in envelope.payloads
    )
