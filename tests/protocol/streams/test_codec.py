"""The SRMP form of stream messages and receipts: published samples, what we write, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from lxml import etree

from messaging.protocol.codecs.stream import (
    SOAP_ACTION,
    FinalReceipt,
    ReceiptWish,
    StreamEnvelope,
    StreamKind,
    StreamPosition,
    StreamReceipt,
    as_envelope,
    decode,
    encode,
    final_receipt,
    order_ack,
    parse_stream_id,
    rebridged,
    stream_id,
)
from messaging.protocol.envelope import DocumentReference, Limits, PartyId, PayloadPart, Semantics
from messaging.protocol.errors import EncodeError, ErrorCode, NotAMessage
from messaging.protocol.streams.final import OrderAck
from tests import FIXTURES

SAMPLES = FIXTURES / "streams"
THEIRS = "2744e4e1-2b48-43e8-b441-42745f280d53"
OURS = "32221eda-9376-46df-b6ed-783091123831"
STREAM = 4839986701558349830
NOW = datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC)

ORDER = StreamEnvelope(
    kind=StreamKind.MESSAGE,
    message_id="order-17@acme.example",
    to="https://globex.example/msh/acme",
    source=OURS,
    sent_at=NOW,
    expires_at=NOW + timedelta(days=4),
    label="urn:orders / New",
    position=StreamPosition(OURS, STREAM, 1, 0, True, "https://acme.example/msh/globex", True),
    wish=ReceiptWish("https://acme.example/msh/globex"),
    agreement_id="acme-globex-1",
    conversation_id="20260301-1@acme.example",
    service="urn:orders",
    action="New",
    ref_to_message_id="quote-3@globex.example",
    from_parties=(PartyId("123456789", "DUNS"), PartyId("Acme & Söhne")),
    to_parties=(PartyId("987654321", "DUNS"),),
    manifest=(DocumentReference("order", "cid:doc1@acme.example", "Order 17 <urgent>"),),
    payloads=(
        PayloadPart("doc1@acme.example", "application/xml", b"<order/>\r\n--rmstream-17\r\n", "order.xml"),
        PayloadPart("doc2@acme.example", "application/octet-stream", bytes(range(256))),
    ),
)


def body_of(envelope: StreamEnvelope) -> tuple[str, bytes]:
    wire = encode(envelope)
    return wire.content_type, wire.join([payload.content for payload in envelope.payloads])


def as_read(envelope: StreamEnvelope) -> StreamEnvelope:
    """What comes back: payloads know where they lay."""
    return replace(envelope, payloads=tuple(replace(payload, offset=None) for payload in envelope.payloads))


def sample(name: str) -> StreamEnvelope:
    return decode("text/xml", (SAMPLES / name).read_bytes())


def document(envelope: StreamEnvelope = ORDER) -> bytes:
    return encode(replace(envelope, payloads=(), manifest=())).literals[0]


# Published samples


@pytest.mark.parametrize(
    ("name", "current", "start", "asks", "ends"),
    [
        ("01-stream.xml", 1, True, True, False),
        ("03-stream.xml", 2, False, False, False),
        ("05-stream.xml", 3, False, False, True),
    ],
)
def test_published_messages(name: str, current: int, start: bool, asks: bool, ends: bool) -> None:
    message = sample(name)
    receipts_to = "http://machine1/MSMQ/private$/receipts?SenderStream=XRntV" if start else ""
    assert message.kind is StreamKind.MESSAGE
    assert message.position == StreamPosition(THEIRS, STREAM, current, current - 1, start, receipts_to, asks, ends)
    assert message.message_id == "uuid:1@00000000-0000-0000-0000-000000000008"
    assert message.to == "http://machine2/msmq/private$/tsimpleq"
    assert message.label == "mqsender label"
    assert message.sent_at == datetime(2007, 6, 19, 16, 59, 59, tzinfo=UTC) + timedelta(seconds=current - 1)
    assert message.expires_at == message.sent_at + timedelta(days=1)
    assert message.payloads == () and not message.has_own_block
    assert message.defects == ()


@pytest.mark.parametrize(("name", "last"), [("02-receipt.xml", 1), ("04-receipt.xml", 2), ("06-receipt.xml", 3)])
def test_published_receipts(name: str, last: int) -> None:
    receipt = sample(name)
    assert receipt.kind is StreamKind.RECEIPT
    assert receipt.receipt == StreamReceipt(THEIRS, STREAM, last)
    assert receipt.message_class == 0x00FF
    assert receipt.source == OURS
    assert receipt.vias == ("http://machine2/msmq/private$/tsimpleq",)
    assert receipt.defects == ()


# What we write


def test_what_is_written_comes_back() -> None:
    for envelope in (ORDER, replace(ORDER, payloads=(), manifest=(), expires_at=None, wish=None)):
        assert as_read(decode(*body_of(envelope))) == envelope


def test_payloads_lie_where_they_are_said_to_lie() -> None:
    content_type, body = body_of(ORDER)
    for payload in decode(content_type, body).payloads:
        assert payload.offset is not None
        assert body[payload.offset : payload.offset + len(payload.content)] == payload.content


def test_the_form_is_that_of_the_specification() -> None:
    text = document().decode()
    root = etree.fromstring(document())
    header = root[0]
    assert [child.tag.rpartition("}")[2] for child in header] == [
        "path",
        "properties",
        "services",
        "stream",
        "Msmq",
        "message",
    ]
    understood = [child.get("{http://schemas.xmlsoap.org/soap/envelope/}mustUnderstand") for child in header]
    assert understood == ["1", "1", "1", "1", None, None]
    assert len(root[1]) == 0 and not root[1].text
    assert "<durable/>" in text
    assert f"<streamId>uid:{OURS}\\{STREAM}</streamId>" in text
    assert "<expiresAt>20260305T123005</expiresAt>" in text and "<TTrq>20260305T123005</TTrq>" in text
    assert "<sentAt>20260301T123005</sentAt>" in text
    assert "<previous>" not in text  # the number before
    assert SOAP_ACTION == '"MSMQMessage"'


def test_without_payloads_the_document_is_the_body() -> None:
    content_type, body = body_of(replace(ORDER, payloads=(), manifest=()))
    assert content_type.startswith("text/xml")
    assert body.startswith(b"<se:Envelope") and body.endswith(b"</se:Envelope>\r\n")


def test_a_message_without_an_end_of_life_says_so() -> None:
    text = document(replace(ORDER, expires_at=None))
    assert b"<expiresAt>20380119T031407</expiresAt>" in text
    assert decode("text/xml", text).expires_at is None


@pytest.mark.parametrize(("current", "previous", "shown"), [(2, 1, None), (2, 0, b"0"), (9, 4, b"4")])
def test_previous_is_written_where_it_is_not_the_number_before(
    current: int, previous: int, shown: bytes | None
) -> None:
    position = StreamPosition(OURS, STREAM, current, previous)
    text = document(replace(ORDER, position=position))
    assert (b"<previous>%b</previous>" % shown in text) if shown else (b"<previous>" not in text)
    assert decode("text/xml", text).position == position


def test_x17_a_copy_differs_in_previous_alone() -> None:
    later = replace(ORDER, position=StreamPosition(OURS, STREAM, 5, 4, receipt_requested=True))
    one, two = encode(later), encode(rebridged(later, 2))
    assert one.literals[1:] == two.literals[1:]
    assert one.content_type == two.content_type
    said = b"<previous>2</previous>\r\n"
    head, blank, text = one.literals[0].partition(b"\r\n\r\n")
    size = int(head.rpartition(b": ")[2])
    longer = head.replace(b": %d" % size, b": %d" % (size + len(said)))
    assert two.literals[0].replace(said, b"") == longer + blank + text
    assert encode(later) == one


def test_m24_the_order_acknowledgement_as_it_is_sent() -> None:
    said = order_ack(
        THEIRS, OrderAck(STREAM, 8), message_id=f"uuid:5@{OURS}", to="https://acme.example/msh", source=OURS, now=NOW
    )
    content_type, body = body_of(said)
    assert b"<action>MSMQ:QM Ordering Ack</action>" in body and b"<Class>255</Class>" in body
    read = decode(content_type, body)
    assert read == replace(said, has_own_block=False)
    assert read.receipt == StreamReceipt(THEIRS, STREAM, 8)


@pytest.mark.parametrize(("code", "positive"), [(0x4000, True), (0x8003, False), (0x8009, False)])
def test_m35_the_final_acknowledgement_as_it_is_sent(code: int, positive: bool) -> None:
    said = final_receipt(
        ORDER.message_id,
        code,
        message_id=f"uuid:6@{OURS}",
        to="https://acme.example/msh",
        source=OURS,
        now=NOW,
        stream=StreamReceipt(THEIRS, STREAM, 8),
    )
    read = decode(*body_of(said))
    assert read.kind is StreamKind.FINAL
    assert read.final == FinalReceipt(ORDER.message_id, positive, NOW)
    assert read.message_class == code
    assert read.receipt is not None and read.receipt.last_ordinal == 8
    outside = final_receipt(
        ORDER.message_id, code, message_id="x", to="https://acme.example", source=OURS, now=NOW, label="orders"
    )
    assert decode(*body_of(outside)).label == "orders"


def test_the_shape_in_which_all_profiles_meet() -> None:
    shaped = as_envelope(ORDER, sender_uri="https://a", receiver_uri="https://b", error_uri="https://a/e", now=NOW)
    assert (shaped.message_id, shaped.service, shaped.action) == (ORDER.message_id, "urn:orders", "New")
    assert shaped.semantics is Semantics.ONCE_AND_ONLY_ONCE
    assert shaped.hop.sender_uri == "https://a" and shaped.hop.sequence_number is None
    assert shaped.payloads == ORDER.payloads and shaped.manifest == ORDER.manifest
    outside = replace(ORDER, position=None, sent_at=None)
    shaped = as_envelope(outside, sender_uri="a", receiver_uri="b", error_uri="c", now=NOW)
    assert shaped.semantics is Semantics.BEST_EFFORT
    assert shaped.timestamp == NOW


# What others write


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'<stream se:mustUnderstand="1">', b'<Stream xmlns="urn:other" se:mustUnderstand="1">'),
        (b"<streamReceiptRequest/>", b"<StreamReceiptRequest></StreamReceiptRequest>"),
        (b"uid:" + OURS.encode(), b"UID:{" + OURS.upper().encode() + b"}"),
        (b"<current>1<", b"<current>\r\n 1 \r\n<"),
        (b"<sentAt>20260301T123005<", b"<sentAt>2026-03-01T12:30:05.250Z<"),
        (b"<se:Header>", b'<se:Header><trace xmlns="urn:x">1</trace>'),
        (b"MSMQ:urn", b"msmq:urn"),
    ],
)
def test_other_spellings_are_read_as_the_same_message(old: bytes, new: bytes) -> None:
    text = document()
    assert old in text
    changed = text.replace(old, new)
    if b"<Stream " in new:
        changed = changed.replace(b"</stream>", b"</Stream>")
    assert decode("text/xml", changed) == decode("text/xml", text)


def test_ttrq_wins_over_expires_at() -> None:
    changed = document().replace(b"<TTrq>20260305T123005", b"<TTrq>20260302T000000")
    assert decode("text/xml", changed).expires_at == datetime(2026, 3, 2, tzinfo=UTC)


def test_a_message_outside_of_any_stream_is_read() -> None:
    message = decode("text/xml", document(replace(ORDER, position=None)))
    assert message.kind is StreamKind.MESSAGE
    assert message.position is None


@pytest.mark.parametrize(("number", "previous"), [("0", None), ("5", "5"), ("5", "9"), ("4294967296", None)])
def test_m17_numbers_out_of_range_are_left_to_acceptance(number: str, previous: str | None) -> None:
    said = f"<current>{number}</current>" + (f"<previous>{previous}</previous>" if previous else "")
    position = decode("text/xml", document().replace(b"<current>1</current>", said.encode())).position
    assert position is not None
    assert position.current == int(number)
    assert position.previous == int(previous or int(number) - 1)


@pytest.mark.parametrize(
    ("reason", "old", "new"),
    [
        ("bad_stream_header", b"<current>1</current>", b""),
        ("bad_stream_header", b"<current>1<", b"<current>one<"),
        ("bad_stream_header", b"<current>1<", b"<current>-1<"),
        ("bad_stream_header", b"<current>1<", b"<current>18446744073709551616<"),
        ("bad_stream_header", b"</current>", b"</current><previous>x</previous>"),
        ("bad_stream_header", b"uid:", b""),
        ("bad_stream_header", b"\\4839986701558349830", b"\\99999999999999999999"),
        ("missing_message_id", b"<id>order-17@acme.example</id>", b""),
        ("missing_to", b"<to>https://globex.example/msh/acme</to>", b"<to> </to>"),
        ("unexpected_class", b"<Class>0<", b"<Class>255<"),
        ("unexpected_class", b"<Class>0<", b"<Class>normal<"),
        ("bad_receipt", b"<Msmq", b"<streamReceipt><lastOrdinal>1</lastOrdinal></streamReceipt><Msmq"),
        ("bad_receipt", b"<Msmq", b"<commitmentReceipt><decision>positive</decision></commitmentReceipt><Msmq"),
        ("bad_receipt", b"<Msmq", b"<commitmentReceipt><id>x</id><decision>maybe</decision></commitmentReceipt><Msmq"),
        ("not_soap", b"se:Header>", b"se:Head>"),
        ("not_soap", b"se:Envelope", b"se:Letter"),
        ("dtd_forbidden", b"<se:Envelope", b"<!DOCTYPE x><se:Envelope"),
        ("xml_not_well_formed", b"</se:Header>", b""),
    ],
)
def test_what_cannot_be_placed_is_no_message(reason: str, old: bytes, new: bytes) -> None:
    text = document()
    assert old in text
    with pytest.raises(NotAMessage) as caught:
        decode("text/xml", text.replace(old, new))
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("content_type", "reason"),
    [
        ("application/json", "not_mime"),
        ("multipart/related", "not_mime"),
        ('multipart/related; boundary="other"', "not_mime"),
        ("x" * 20_000, "not_mime"),
    ],
)
def test_other_bodies_are_no_message(content_type: str, reason: str) -> None:
    with pytest.raises(NotAMessage) as caught:
        decode(content_type, document())
    assert caught.value.reason == reason


def test_limits() -> None:
    content_type, body = body_of(ORDER)
    for limits, reason in (
        (Limits(body=10), "body_too_large"),
        (Limits(header_document=100), "header_too_large"),
        (Limits(parts=2), "too_many_parts"),
        (Limits(xml_nodes=5), "too_many_elements"),
        (Limits(xml_depth=3), "too_deep"),
    ):
        with pytest.raises(NotAMessage) as caught:
            decode(content_type, body, limits)
        assert caught.value.reason == reason
    with pytest.raises(NotAMessage) as caught:
        decode(content_type, body[:-20])
    assert caught.value.reason == "truncated"


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        (ErrorCode.NOT_SUPPORTED, b"<Msmq", b'<lock xmlns="urn:x" se:mustUnderstand="1"/><Msmq'),
        (ErrorCode.VALUE_NOT_RECOGNIZED, b"<sentAt>2026", b"<sentAt>soon2026"),
        (ErrorCode.VALUE_NOT_RECOGNIZED, b"order-17@", b"order-17\r\n@"),
        (ErrorCode.VALUE_NOT_RECOGNIZED, b"order-17@", b"o" * 600),
        (ErrorCode.INCONSISTENT, b"<Msmq", b"<properties/><Msmq"),
        (ErrorCode.NOT_WELL_FORMED, b"</current>", b"</current><current>2</current>"),
        (ErrorCode.MIME_PROBLEM, b"</message>", b'<Document id="cid:nowhere" label=""/></message>'),
    ],
)
def test_a_broken_rule_is_a_defect_of_a_readable_message(code: ErrorCode, old: bytes, new: bytes) -> None:
    text = document()
    assert old in text
    message = decode("text/xml", text.replace(old, new))
    assert [defect.code for defect in message.defects] == [code]
    assert len(message.message_id) <= 512


def test_a_decision_that_its_class_contradicts_is_a_defect() -> None:
    said = final_receipt("x", 0x4000, message_id="y", to="https://acme.example", source=OURS, now=NOW)
    text = encode(said).literals[0].replace(b"<Class>16384<", b"<Class>32768<")
    read = decode("text/xml", text)
    assert [defect.code for defect in read.defects] == [ErrorCode.INCONSISTENT]
    assert read.final is not None and not read.final.positive
    no = final_receipt("x", 0x8000, message_id="y", to="https://acme.example", source=OURS, now=NOW)
    read = decode("text/xml", encode(no).literals[0].replace(b"<Class>32768<", b"<Class>16384<"))
    assert read.final is not None and not read.final.positive and read.message_class == 0x8001
    without = decode("text/xml", encode(said).literals[0].replace(b"<Class>16384</Class>", b""))
    assert without.message_class == 0x4000 and not without.defects


# What we do not write


@pytest.mark.parametrize(
    "wrong",
    [
        {"message_id": ""},
        {"to": ""},
        {"source": "somebody"},
        {"source": OURS.upper()},
        {"message_id": "two\r\nlines"},
        {"conversation_id": " padded"},
        {"service": "x" * 513},
        {"message_class": 255},
        {"sent_at": datetime(2026, 3, 1)},
        {"receipt": StreamReceipt(OURS, STREAM, 1)},
        {"position": replace(ORDER.position, current=0)},
        {"position": replace(ORDER.position, current=2, previous=2, start=False)},
        {"position": replace(ORDER.position, start=False)},
        {"position": replace(ORDER.position, receipts_to="")},
        {"position": StreamPosition(OURS, STREAM, 2, 1, receipts_to="https://acme.example")},
        {"position": replace(ORDER.position, tx_sequence_id=2**64)},
        {"payloads": ORDER.payloads[:1] * 2},
        {"payloads": ()},  # the manifest names one
        {"kind": StreamKind.RECEIPT},
        {"kind": StreamKind.FINAL, "payloads": (), "position": None, "wish": None, "manifest": ()},
    ],
)
def test_what_has_no_wire_form_is_not_written(wrong: dict) -> None:
    with pytest.raises(EncodeError):
        encode(replace(ORDER, **wrong))


def test_a_receipt_for_nothing_is_not_written() -> None:
    with pytest.raises(EncodeError, match="lastOrdinal"):
        encode(order_ack(THEIRS, OrderAck(STREAM, 0), message_id="x", to="https://a", source=OURS, now=NOW))
    with pytest.raises(EncodeError, match="outside of a stream"):
        rebridged(replace(ORDER, position=None), 1)


def test_stream_ids() -> None:
    text = stream_id(THEIRS, STREAM)
    assert text == f"uid:{THEIRS}\\{STREAM}"
    assert parse_stream_id(f" {text}\r\n") == (THEIRS, STREAM)
    for wrong in ("", "uid:1\\2", f"uid:{THEIRS}/1", f"uid:{THEIRS}\\", f"uid:{THEIRS}\\1x"):
        with pytest.raises(ValueError):
            parse_stream_id(wrong)
