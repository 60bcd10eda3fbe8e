"""The tolerant reader: what it makes of messages of every form."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from messaging.protocol.codecs.ebxml import NAMESPACE, UNKNOWN_TIME, decode
from messaging.protocol.envelope import MessageType, PartyId, Semantics
from messaging.protocol.errors import ErrorCode

from .samples import (
    ACK_XML,
    ACKNOWLEDGEMENT,
    EXPECTED,
    HUB,
    MULTIPART,
    NAMES,
    ORDER,
    ORDER_PART,
    ORDER_XML,
    RELIABILITY,
    ROUTED,
    SELLER,
    SEMANTICS_LOCATION,
    SENT,
    SEQUENCE,
    as_read,
    changed,
    defect_codes,
    document_of,
    enclose,
    entity_of,
    fixture,
    read,
    read_order,
    reason,
    the_defect,
)

# --- what was published -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_published_messages(name: str) -> None:
    content_type, body = fixture(name)
    envelope = decode(content_type, body)
    assert as_read(envelope) == EXPECTED[name]
    for payload in envelope.payloads:
        assert (payload.offset is None) == name.endswith(".smtp")
        if payload.offset is not None:
            assert body[payload.offset : payload.offset + len(payload.content)] == payload.content


@pytest.mark.parametrize("name", NAMES)
def test_published_messages_stored_with_bare_line_feeds(name: str) -> None:
    content_type, body = fixture(name)
    envelope = as_read(decode(content_type, body.replace(b"\r\n", b"\n")))
    assert replace(envelope, payloads=()) == replace(EXPECTED[name], payloads=())
    assert envelope.defects == ()


@pytest.mark.parametrize("name", NAMES)
def test_truncation_at_every_byte_is_never_taken_for_a_message(name: str) -> None:
    content_type, body = fixture(name)
    complete = len(body.rstrip(b"\r\n"))
    for length in range(complete):
        assert reason(content_type, body[:length]) in ("not_mime", "truncated"), length
    assert as_read(decode(content_type, body[:complete])) == EXPECTED[name]


def test_header_truncated_at_every_byte() -> None:
    document = ORDER_XML.rstrip().encode()
    for length in range(len(document)):
        content_type, body = enclose(document[:length], ORDER_PART)
        assert reason(content_type, body) == "xml_not_well_formed", length


# --- the contradictions of the draft ------------------------------------------------------------------------------

ATTRIBUTE = '<ReliableMessagingInfo DeliverySemantics="{}"/>'


@pytest.mark.parametrize(
    ("written", "semantics", "codes"),
    [
        (RELIABILITY, Semantics.ONCE_AND_ONLY_ONCE, []),
        (ATTRIBUTE.format("OnceAndOnlyOnce"), Semantics.ONCE_AND_ONLY_ONCE, []),
        (ATTRIBUTE.format(" BestEffort "), Semantics.BEST_EFFORT, []),
        (
            RELIABILITY.replace("Info>\r\n      ", 'Info DeliverySemantics="OnceAndOnlyOnce">'),
            Semantics.ONCE_AND_ONLY_ONCE,
            [],
        ),
        (
            RELIABILITY.replace("Info>\r\n      ", 'Info DeliverySemantics="BestEffort">'),
            Semantics.ONCE_AND_ONLY_ONCE,
            [(ErrorCode.INCONSISTENT, SEMANTICS_LOCATION)],
        ),
    ],
    ids=["element", "attribute", "attribute-best-effort", "both-equal", "both-different"],
)
def test_c1_delivery_semantics_is_element_or_attribute(
    written: str, semantics: Semantics, codes: list[tuple[ErrorCode, str]]
) -> None:
    envelope = read_order((RELIABILITY, written))
    assert envelope.semantics is semantics
    assert defect_codes(envelope) == codes


@pytest.mark.parametrize("place", ["<RoutingHeader>", "</ebXMLHeader>"])
def test_c2_reliable_messaging_info_may_be_a_child_of_the_root(place: str) -> None:
    assert as_read(read_order((RELIABILITY, ""), (place, RELIABILITY + place))) == as_read(read_order())


def test_c2_two_places_that_disagree_are_an_error() -> None:
    other = RELIABILITY.replace("OnceAndOnlyOnce", "BestEffort")
    envelope = read_order(("</ebXMLHeader>", other + "</ebXMLHeader>"))
    assert envelope.semantics is Semantics.ONCE_AND_ONLY_ONCE
    assert the_defect(envelope).code is ErrorCode.INCONSISTENT


def test_c3_the_last_routing_header_is_the_current_hop() -> None:
    envelope = decode(*entity_of(ROUTED))
    assert envelope.routing == ROUTED.routing
    assert (envelope.hop.sender_uri, envelope.hop.receiver_uri, envelope.hop.sequence_number) == (HUB, SELLER, 7)


def test_c3_only_the_current_hop_is_judged() -> None:
    document = changed(
        document_of(ROUTED), (SEQUENCE, "<SequenceNumber>none</SequenceNumber>"), ("20001002T103000.000Z</T", "x</T")
    )
    envelope = read(document.replace("TimeStamp>x<", "TimeStamp>20001002T103000.000Z<"), ORDER_PART)
    assert envelope.defects == ()
    assert envelope.routing[0].sequence_number is None
    assert envelope.routing[0].timestamp == SENT
    assert envelope.routing[1] == ROUTED.routing[1]


@pytest.mark.parametrize(
    "text", ["", "<SequenceNumber>000000023</SequenceNumber>", "<SequenceNumber>x</SequenceNumber>"]
)
@pytest.mark.parametrize("semantics", [Semantics.BEST_EFFORT, Semantics.AT_MOST_ONCE])
def test_c4_a_sequence_number_without_once_and_only_once_is_ignored(text: str, semantics: Semantics) -> None:
    envelope = read_order((SEQUENCE, text), ("OnceAndOnlyOnce", semantics))
    assert envelope.semantics is semantics
    assert envelope.hop.sequence_number is None
    assert envelope.defects == ()


@pytest.mark.parametrize(("in_data", "in_routing"), [("TimeStamp", "TimeStamp"), ("Timestamp", "Timestamp")])
def test_c5_timestamp_is_read_in_either_spelling(in_data: str, in_routing: str) -> None:
    envelope = read_order(
        ("TimeStamp>", f"{in_data}>"),
        ("<Timestamp>20001002T103000.000Z</Timestamp>\r\n    <S", f"<{in_routing}>20001002T103000.5Z</{in_routing}><S"),
    )
    assert envelope.timestamp == SENT
    assert envelope.hop.timestamp == SENT.replace(microsecond=500_000)
    assert envelope.defects == ()


def test_c6_conversation_id_is_read_in_either_spelling() -> None:
    assert as_read(read_order(("ConversationId>", "ConversationID>"))) == as_read(read_order())


def test_c7_best_effort_is_read_as_such() -> None:
    envelope = read_order(("OnceAndOnlyOnce", "BestEffort"), (SEQUENCE, ""))
    assert envelope.semantics is Semantics.BEST_EFFORT
    assert envelope.defects == ()


def test_c10_one_hop_and_two_hops_are_read_by_the_same_rules() -> None:
    direct, routed = decode(*entity_of(ORDER)), decode(*entity_of(ROUTED))
    assert replace(as_read(direct), routing=()) == replace(as_read(routed), routing=())


# --- forms of the header document ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        [(f' xmlns="{NAMESPACE}"', "")],
        [("<", "<eb:"), ("<eb:?", "<?"), ("<eb:/", "</eb:"), ("xmlns=", "xmlns:eb=")],
        [("<TPAInfo>", ""), ("</TPAInfo>", ""), ("<MessageData>", ""), ("</MessageData>", "")],
        [("<Header>", '<Header><Extra xmlns="urn:x"><MessageId>no</MessageId></Extra><x:MessageId xmlns:x="urn:x"/>')],
        [('Version="0.21" ', "")],
        [('encoding="UTF-8"', 'encoding="ISO-8859-1"')],
        [(ORDER.message_id, f"<![CDATA[{ORDER.message_id}]]>")],
        [("20001002T103000.000Z", "2000-10-02T12:30:00+02:00")],
    ],
    ids=[
        "no-namespace",
        "prefixed",
        "without-wrappers",
        "extensions",
        "no-version",
        "latin-1",
        "cdata",
        "extended-time",
    ],
)
def test_forms_that_mean_the_same(changes: list[tuple[str, str]]) -> None:
    assert as_read(read_order(*changes)) == as_read(read_order())


def test_header_sections_in_any_order() -> None:
    start, end = ORDER_XML.index("  <Header>"), ORDER_XML.index("  <RoutingHeader>")
    document = ORDER_XML[:start] + ORDER_XML[end:].replace("</ebXMLHeader>", ORDER_XML[start:end] + "</ebXMLHeader>")
    assert as_read(read(document, ORDER_PART)) == as_read(read_order())


def test_header_sent_without_multipart() -> None:
    for content_type in ("application/vnd.eb+xml; version=0.21", "text/xml", "APPLICATION/XML; charset=utf-8"):
        assert decode(content_type, ACK_XML.encode()) == ACKNOWLEDGEMENT


def test_charset_that_only_the_content_type_tells() -> None:
    document = ACK_XML.replace(' encoding="UTF-8"', "").replace("tpa:buyer", "tpa:k\u00e4ufer").encode("latin-1")
    assert decode("text/xml; charset=ISO-8859-1", document).agreement_id == "tpa:k\u00e4ufer-seller:2000-10"
    for charset in ("utf-8", "iso-8859-99", "windows-125\x00"):
        assert reason(f"text/xml; charset={charset}", document) == "xml_not_well_formed"


@pytest.mark.parametrize(
    "start", ["", "; start=<h@x>", "; start=h@x", '; start="<h%40x>"', '; START="h@x"', "; start=unknown"]
)
def test_root_part_by_start_or_first(start: str) -> None:
    header = b"Content-Type: text/xml\r\nCONTENT-ID: <h@x>\r\n\r\n" + ORDER_XML.encode()
    parts = [header, ORDER_PART]
    body = b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + b"--b--"
    assert as_read(decode(MULTIPART + start, body)) == as_read(read_order())


def test_root_part_named_by_start_need_not_be_first() -> None:
    header = b"Content-Type: text/xml\r\nContent-ID: <h@x>\r\n\r\n" + ORDER_XML.encode()
    body = b"".join(b"--b\r\n" + part + b"\r\n" for part in (ORDER_PART, header)) + b"--b--"
    assert as_read(decode(MULTIPART + "; start=h@x", body)) == as_read(read_order())


def test_parts_in_base64_and_quoted_printable() -> None:
    header = b"Content-Type: text/xml\r\nContent-Transfer-Encoding: BASE64\r\n\r\n" + base64.encodebytes(
        ORDER_XML.encode()
    )
    part = b"Content-ID: <po-4711@msh.buyer.example>\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=00=FF="
    body = b"--b\r\n" + header + b"\r\n--b\r\n" + part + b"\r\n--b--"
    envelope = decode(MULTIPART, body)
    assert envelope.defects == ()
    assert envelope.payloads[0].content == b"\x00\xff"
    assert envelope.payloads[0].offset is None


def test_payload_headers() -> None:
    part = (
        b"Content-Type: application/edifact; name=x\r\n"
        b'Content-Disposition: attachment; filename="order.edi"\r\nContent-Length: 999\r\n\r\nUNB'
    )
    plain, named = read(ORDER_XML, ORDER_PART.replace(b"Content-Type: application/xml\r\n", b""), part).payloads
    assert plain.content_type == "application/octet-stream"
    assert (named.content_id, named.content_type, named.filename) == ("", "application/edifact; name=x", "order.edi")
    assert named.content == b"UNB"


def test_payload_content_types_fit_into_a_header() -> None:
    odd = b"Content-Type: text/plain; name=\xc3\xa4.txt\r\n\r\nx"
    long = b"Content-Type: text/plain; name=" + b"x" * 600 + b"\r\n\r\nx"
    _order, first, second = read(ORDER_XML, ORDER_PART, odd, long).payloads
    assert first.content_type == "text/plain; name=?.txt"
    assert second.content_type == "text/plain"


def test_several_party_ids_and_no_context() -> None:
    parties = '<To><PartyId>1</PartyId><PartyId context=" GLN ">2</PartyId><PartyId/></To>'
    envelope = read_order(('<To><PartyId context="DUNS">987654321</PartyId></To>', parties))
    assert envelope.to_parties == (PartyId("1"), PartyId("2", "GLN"))


def test_acknowledgement_in_american_spelling() -> None:
    assert read(ACK_XML.replace('"Acknowledgement"', '"Acknowledgment"')) == ACKNOWLEDGEMENT


def test_acknowledgement_with_little_in_it() -> None:
    document = (
        '<ebXMLHeader MessageType="Acknowledgement"><Header><MessageData><MessageId>1@x</MessageId>'
        "<RefToMessageId>2@x</RefToMessageId></MessageData></Header><RoutingHeader><SenderURI>http://a</SenderURI>"
        "<ReceiverURI>http://b</ReceiverURI></RoutingHeader></ebXMLHeader>"
    )
    envelope = read(document, b"\r\npayload that should not be there")
    assert envelope.defects == ()
    assert envelope.message_type is MessageType.ACKNOWLEDGEMENT
    assert (envelope.message_id, envelope.ref_to_message_id) == ("1@x", "2@x")
    assert envelope.semantics is Semantics.BEST_EFFORT
    assert envelope.timestamp == envelope.hop.timestamp == UNKNOWN_TIME
