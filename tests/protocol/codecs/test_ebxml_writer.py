"""The strict writer: the exact form, and what it refuses to write."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from messaging.protocol.codecs.ebxml import decode, encode, format_timestamp
from messaging.protocol.codecs.ebxml_lexical import format_sequence_number
from messaging.protocol.codecs.mime import decode_header_value, encode_base64_parts
from messaging.protocol.envelope import (
    DocumentReference,
    Envelope,
    ErrorInfo,
    MessageType,
    PartyId,
    PayloadPart,
    RoutingHeader,
    Semantics,
    WriterOptions,
)
from messaging.protocol.errors import EncodeError, ErrorCode, Severity

from .samples import (
    ACKNOWLEDGEMENT,
    BUYER,
    BUYER_ERRORS,
    EXPECTED,
    NAMES,
    ORDER,
    ROUTED,
    SELLER,
    SENT,
    SEQUENCE_ERROR,
    TRANSIENT_ERROR,
    as_read,
    document_of,
    entity_of,
    fixture,
)

PAYLOAD = ORDER.payloads[0]


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".http")])
def test_published_messages_are_written_byte_for_byte(name: str) -> None:
    assert entity_of(EXPECTED[name]) == fixture(name)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".http")])
def test_published_messages_survive_reading_and_writing(name: str) -> None:
    content_type, body = fixture(name)
    assert entity_of(decode(content_type, body)) == (content_type, body)


def test_published_mail_is_written_byte_for_byte() -> None:
    content_type, body = entity_of(EXPECTED["06-normal.smtp"])
    boundary = decode_header_value(content_type)[1]["boundary"]
    assert (content_type, encode_base64_parts(body, boundary)) == fixture("06-normal.smtp")


def test_writing_twice_gives_the_same_octets() -> None:
    assert encode(ROUTED) == encode(replace(ROUTED))


def test_payload_bytes_are_left_out() -> None:
    second = PayloadPart("second@x", "application/octet-stream", b"\x00" * 1000)
    wire = encode(replace(ORDER, payloads=(PAYLOAD, second)))
    assert len(wire.literals) == 3
    assert sum(map(len, wire.literals)) < 2500
    with pytest.raises(ValueError, match="cannot frame"):
        wire.join([b""])
    assert wire.join([PAYLOAD.content, second.content]).endswith(b"\x00\r\n--rm080-0001--\r\n")


def test_options_for_partners_that_want_less() -> None:
    wire = encode(ORDER, WriterOptions(namespace=False, padded_sequence_number=False))
    assert b'<ebXMLHeader Version="0.21" MessageType="Normal">' in wire.literals[0]
    assert b"<SequenceNumber>23</SequenceNumber>" in wire.literals[0]
    assert as_read(decode(wire.content_type, wire.join([PAYLOAD.content]))) == ORDER


def test_c1_c2_delivery_semantics_is_an_element_at_the_end_of_the_header() -> None:
    expected = (
        "    <ReliableMessagingInfo>\r\n      <DeliverySemantics>OnceAndOnlyOnce</DeliverySemantics>\r\n"
        "    </ReliableMessagingInfo>\r\n  </Header>\r\n  <RoutingHeader>"
    )
    assert expected in document_of(ORDER)


def test_c3_routing_headers_follow_the_header_oldest_first() -> None:
    document = document_of(ROUTED)
    assert document.index("</Header>") < document.index("000000023") < document.index("000000007")


def test_c4_sequence_number_only_with_once_and_only_once() -> None:
    with pytest.raises(EncodeError, match="needs a SequenceNumber"):
        encode(with_hop(sequence_number=None))
    with pytest.raises(EncodeError, match="has no SequenceNumber"):
        encode(replace(ORDER, semantics=Semantics.BEST_EFFORT))


def test_c5_c6_spellings() -> None:
    document = document_of(ORDER)
    assert document.count("<TimeStamp>") == document.count("<Timestamp>") == document.count("<ConversationId>") == 1
    assert document.index("<TimeStamp>") < document.index("</Header>") < document.index("<Timestamp>")


def test_c7_at_most_once_is_written_as_best_effort() -> None:
    envelope = replace(with_hop(sequence_number=None), semantics=Semantics.AT_MOST_ONCE)
    assert "<DeliverySemantics>BestEffort</DeliverySemantics>" in document_of(envelope)


def test_c11_retry_parameters_are_no_part_of_a_message() -> None:
    for envelope in EXPECTED.values():
        document = document_of(envelope)
        assert not any(word in document for word in ("Timeout", "Retries", "RetryInterval"))


def test_text_is_escaped() -> None:
    odd = "a<b>&\"c'\u00e4\u20ac\U0001f600]]>"
    envelope = replace(
        ORDER,
        message_id=odd,
        agreement_id=odd,
        from_parties=(PartyId(odd, odd),),
        manifest=(DocumentReference(odd, odd, odd + "\r\n\ttwo\rlines", odd),),
    )
    document = document_of(envelope)
    assert "a&lt;b&gt;&amp;&quot;c'\u00e4\u20ac" in document
    assert "&#13;\n\ttwo&#13;lines" in document
    assert as_read(decode(*entity_of(envelope))) == envelope


def test_reading_a_message_id_that_no_header_can_carry() -> None:
    envelope = replace(ORDER, message_id='"\u00e4 <x>;boundary=evil\\@h')
    wire = encode(envelope)
    assert wire.content_type.isascii()
    assert decode_header_value(wire.content_type)[1]["boundary"] == "rm080-evil"
    assert decode(*entity_of(envelope)).message_id == envelope.message_id


def test_filename_is_written_as_content_disposition() -> None:
    for filename in ("order.xml", 'a "b" \\ c;d.xml', "Auftr\u00e4ge \u20ac.xml", " x "):
        envelope = replace(ORDER, payloads=(replace(PAYLOAD, filename=filename),))
        assert decode(*entity_of(envelope)).payloads[0].filename == filename


def test_payload_that_bears_the_content_id_of_the_header() -> None:
    envelope = with_payload(content_id=f"hdr.{ORDER.message_id}")
    assert as_read(decode(*entity_of(envelope))) == envelope


def test_boundary_that_occurs_in_a_payload_is_changed() -> None:
    inner_type, inner = entity_of(ORDER)
    envelope = replace(ORDER, payloads=(replace(PAYLOAD, content=inner, content_type=inner_type),))
    content_type, body = entity_of(envelope)
    assert decode_header_value(content_type)[1]["boundary"] != "rm080-0001"
    decoded = decode(content_type, body)
    assert decoded.payloads[0].content == inner
    assert as_read(decode(decoded.payloads[0].content_type, decoded.payloads[0].content)) == ORDER


def test_a_relayed_message_may_lack_what_only_its_first_sender_had() -> None:
    first = replace(ROUTED.routing[0], error_uri="", sequence_number=None)
    payloads = (PAYLOAD, replace(PAYLOAD, content_id=""), replace(PAYLOAD, content_id=""))
    envelope = replace(ROUTED, routing=(first, ROUTED.hop), payloads=payloads)
    assert as_read(decode(*entity_of(envelope))) == envelope


def with_hop(**changes: Any) -> Envelope:
    return replace(ORDER, routing=(replace(ORDER.hop, **changes),))


def with_payload(**changes: Any) -> Envelope:
    return replace(ORDER, manifest=(), payloads=(replace(PAYLOAD, **changes),))


def with_error(**changes: Any) -> Envelope:
    assert SEQUENCE_ERROR.error is not None
    return replace(SEQUENCE_ERROR, error=replace(SEQUENCE_ERROR.error, **changes))


NAIVE = datetime(2000, 10, 2)


@pytest.mark.parametrize(
    "envelope",
    [
        replace(ORDER, message_id=""),
        replace(ORDER, message_id="a\r\nb"),
        replace(ORDER, message_id="a\x00b"),
        replace(ORDER, message_id=" a"),
        replace(ORDER, message_id="a\n"),
        replace(ORDER, message_id="\ud800"),
        replace(ORDER, message_id="x" * 513),
        replace(ORDER, agreement_id=""),
        replace(ORDER, conversation_id=""),
        replace(ORDER, conversation_id="a\u2028b"),
        replace(ORDER, service=""),
        replace(ORDER, action=""),
        replace(ORDER, action="a\x85b"),
        replace(ORDER, from_parties=()),
        replace(ORDER, to_parties=(PartyId("", "DUNS"),)),
        replace(ORDER, to_parties=(PartyId("1", "a\nb"),)),
        replace(ORDER, ref_to_message_id="a\nb"),
        replace(ORDER, timestamp=NAIVE),
        replace(ORDER, timestamp=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
        replace(ORDER, version="1.0"),
        replace(ORDER, routing=()),
        replace(ORDER, routing=ORDER.routing * 11),
        replace(ORDER, error=SEQUENCE_ERROR.error),
        with_hop(timestamp=NAIVE),
        with_hop(sender_uri=""),
        with_hop(receiver_uri=""),
        with_hop(error_uri=""),
        with_hop(error_uri="http://a\nb"),
        with_hop(sequence_number=0),
        with_hop(sequence_number=-1),
        with_hop(sequence_number=1_000_000_000),
        with_payload(content_id=""),
        with_payload(content_id="a\r\nb"),
        with_payload(content_id="<a>"),
        with_payload(content_id="\u00e4"),
        with_payload(content_id="x" * 513),
        with_payload(content_type=""),
        with_payload(content_type="text/plain\r\nX: y"),
        with_payload(content_type="text/plain; x=" + "y" * 513),
        with_payload(filename="a\nb"),
        replace(ORDER, payloads=(PAYLOAD, PAYLOAD)),
        replace(ORDER, payloads=()),
        replace(ORDER, payloads=tuple(replace(PAYLOAD, content_id=f"{n}@x") for n in range(1001)), manifest=()),
        replace(ORDER, manifest=(DocumentReference("label", ""),)),
        replace(ORDER, manifest=(DocumentReference("a\nb", "http://x"),)),
        replace(ORDER, manifest=(DocumentReference("a", "http://x", "\x07"),)),
        replace(ORDER, manifest=(DocumentReference("a", "http://x", "x" * 4_200_000),)),
        replace(ACKNOWLEDGEMENT, payloads=ORDER.payloads),
        replace(ACKNOWLEDGEMENT, manifest=ORDER.manifest),
        replace(ACKNOWLEDGEMENT, semantics=Semantics.ONCE_AND_ONLY_ONCE),
        replace(ACKNOWLEDGEMENT, service="x"),
        replace(ACKNOWLEDGEMENT, action="x"),
        replace(ACKNOWLEDGEMENT, ref_to_message_id=""),
        replace(ACKNOWLEDGEMENT, error=SEQUENCE_ERROR.error),
        replace(ACKNOWLEDGEMENT, routing=(replace(ACKNOWLEDGEMENT.hop, sequence_number=1),)),
        replace(SEQUENCE_ERROR, error=None),
        replace(SEQUENCE_ERROR, payloads=ORDER.payloads),
        with_error(code=""),
        with_error(code="a\nb"),
        with_error(code=ErrorCode.TRANSIENT_ERROR),
        with_error(description="\x00"),
        with_error(location="a\nb"),
        with_error(min_retry_secs=-1),
        with_error(min_retry_secs=1_000_000_000),
    ],
)
def test_what_is_never_written(envelope: Envelope) -> None:
    with pytest.raises(EncodeError):
        encode(envelope)


def test_error_message_with_all_its_fields() -> None:
    error = ErrorInfo("PartnersOwn", Severity.WARNING, "two\nlines & more", "cid:x", 0)
    envelope = replace(SEQUENCE_ERROR, error=error)
    assert decode(*entity_of(envelope)) == envelope
    assert "<MinRetrySecs>120</MinRetrySecs>" in document_of(TRANSIENT_ERROR)


def test_answers_may_lack_agreement_and_conversation() -> None:
    envelope = replace(SEQUENCE_ERROR, agreement_id="", conversation_id="")
    assert decode(*entity_of(envelope)) == envelope


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(1999, 11, 10, 10, 23, 44, tzinfo=UTC), "19991110T102344.000Z"),
        (datetime(2000, 10, 2, 10, 30, 1, 250_999, tzinfo=UTC), "20001002T103001.250Z"),
        (datetime(2000, 10, 2, 19, 30, tzinfo=timezone(timedelta(hours=9))), "20001002T103000.000Z"),
        (datetime(33, 1, 2, tzinfo=UTC), "00330102T000000.000Z"),
        (datetime.max.replace(tzinfo=UTC), "99991231T235959.999Z"),
    ],
)
def test_time_stamps(moment: datetime, text: str) -> None:
    assert format_timestamp(moment) == text


def test_time_stamp_without_a_zone() -> None:
    with pytest.raises(ValueError, match="without a zone"):
        format_timestamp(NAIVE)


def test_sequence_numbers() -> None:
    assert format_sequence_number(23) == "000000023"
    assert format_sequence_number(999_999_999) == "999999999"
    assert format_sequence_number(23, padded=False) == "23"
    for number in (0, -1, 1_000_000_000):
        with pytest.raises(ValueError, match="is not in"):
            format_sequence_number(number)


def test_smallest_best_effort_message() -> None:
    envelope = Envelope(
        message_type=MessageType.NORMAL,
        message_id="1",
        timestamp=SENT,
        from_parties=(PartyId("a"),),
        to_parties=(PartyId("b"),),
        agreement_id="t",
        conversation_id="c",
        service="s",
        action="x",
        semantics=Semantics.BEST_EFFORT,
        routing=(RoutingHeader(BUYER, SELLER, BUYER_ERRORS, SENT),),
    )
    content_type, body = entity_of(envelope)
    assert decode(content_type, body) == envelope
    assert b"<From><PartyId>a</PartyId></From>" in body
    assert b"Manifest" not in body
    assert b"SequenceNumber" not in body
