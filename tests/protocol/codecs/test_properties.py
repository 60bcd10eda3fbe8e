"""Generated cases: what is written is read back as it was; what is not a message never breaks the reader."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given, settings
from hypothesis import strategies as st

from messaging.protocol.codecs.ebxml import (
    acknowledgement,
    append_hop,
    decode,
    encode,
    error_message,
    format_timestamp,
    may_answer_with_error,
    normalize_uri,
    parse_timestamp,
)
from messaging.protocol.codecs.mime import decode_header_value, decode_multipart, encode_base64_parts
from messaging.protocol.codecs.xml import parse_document
from messaging.protocol.envelope import (
    MAX_SEQUENCE_NUMBER,
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
from messaging.protocol.errors import ErrorCode, NotAMessage, Severity

from .samples import EXPECTED, HUB, MULTIPART, NAMES, SELLER_ERRORS, SENT, as_read, entity_of, fixture

bounded = settings(max_examples=150)

XML_SPACE = " \t\r\n"
identifier_characters = st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="\ufffe\uffff")
optional_identifiers = st.text(identifier_characters, max_size=40).map(lambda text: text.strip(XML_SPACE))
identifiers = optional_identifiers.filter(bool)
free_texts = st.text(st.one_of(identifier_characters, st.sampled_from("\r\n\t<&>\"'\x85\u2028")), max_size=60).map(
    lambda text: text.strip(XML_SPACE)
)
moments = st.datetimes(
    min_value=datetime(1000, 1, 2),
    max_value=datetime(9999, 12, 30),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=9)), timezone(-timedelta(hours=5, minutes=30))]),
).map(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000))
content_ids = st.from_regex(r"[!-;=?-~]([ -;=?-~]{0,20}[!-;=?-~])?", fullmatch=True)
filenames = st.one_of(
    st.just(""), st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=20)
).filter(lambda text: not {"\ufffe", "\uffff"} & set(text))
contents = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.sampled_from(
            [b"\r", b"\n", b"\r\n", b"--", b"--rm080-", b"\r\n--rm080-1\r\n", b"\n--rm080-1--\n", b"x", b"\x00", b" "]
        ),
        max_size=12,
    ).map(b"".join),
)
content_types = st.sampled_from(["application/xml", 'text/plain; charset="UTF-8"', "application/octream", "x"])
parties = st.lists(st.builds(PartyId, identifiers, optional_identifiers), min_size=1, max_size=3).map(tuple)


@st.composite
def hops(draw: st.DrawFn, reliable: bool) -> RoutingHeader:
    number = draw(st.integers(1, MAX_SEQUENCE_NUMBER)) if reliable else None
    return RoutingHeader(draw(identifiers), draw(identifiers), draw(identifiers), draw(moments), number)


@st.composite
def normal_messages(draw: st.DrawFn) -> Envelope:
    reliable = draw(st.booleans())
    payloads = draw(
        st.lists(
            st.builds(PayloadPart, content_ids, content_types, contents, filenames),
            max_size=4,
            unique_by=lambda payload: payload.content_id,
        )
    )
    manifest = []
    for payload in payloads:
        description = draw(free_texts)
        language = draw(st.sampled_from(["en", "de-CH", ""])) if description else "en"
        manifest.append(
            DocumentReference(draw(optional_identifiers), f"cid:{payload.content_id}", description, language)
        )
    return Envelope(
        message_type=MessageType.NORMAL,
        message_id=draw(st.one_of(identifiers, st.sampled_from(["1", "x-1@host", "rm080-1"]))),
        timestamp=draw(moments),
        from_parties=draw(parties),
        to_parties=draw(parties),
        agreement_id=draw(identifiers),
        conversation_id=draw(identifiers),
        service=draw(identifiers),
        action=draw(identifiers),
        semantics=Semantics.ONCE_AND_ONLY_ONCE if reliable else Semantics.BEST_EFFORT,
        routing=tuple(draw(st.lists(hops(reliable), min_size=1, max_size=3))),
        ref_to_message_id=draw(optional_identifiers),
        manifest=tuple(manifest),
        payloads=tuple(payloads),
    )


@st.composite
def error_infos(draw: st.DrawFn) -> ErrorInfo:
    code = draw(st.sampled_from(ErrorCode))
    severity = Severity.TRANSIENT if code is ErrorCode.TRANSIENT_ERROR else draw(st.sampled_from(Severity))
    seconds = draw(st.one_of(st.none(), st.integers(0, 999_999_999)))
    return ErrorInfo(code, severity, draw(free_texts), draw(optional_identifiers), seconds)


@bounded
@given(envelope=normal_messages(), namespace=st.booleans(), padded=st.booleans())
def test_what_is_written_is_read_back(envelope: Envelope, namespace: bool, padded: bool) -> None:
    wire = encode(envelope, WriterOptions(namespace, padded))
    body = wire.join([payload.content for payload in envelope.payloads])
    decoded = decode(wire.content_type, body)
    assert as_read(decoded) == envelope
    for payload in decoded.payloads:
        assert payload.offset is not None
        assert body[payload.offset : payload.offset + len(payload.content)] == payload.content


@bounded
@given(envelope=normal_messages())
def test_mail_form_is_read_back(envelope: Envelope) -> None:
    content_type, body = entity_of(envelope)
    mail = encode_base64_parts(body, decode_header_value(content_type)[1]["boundary"])
    assert decode(content_type, mail) == envelope


@bounded
@given(envelope=normal_messages(), error=error_infos(), moment=moments, own_uri=identifiers, message_id=identifiers)
def test_answers_are_read_back(
    envelope: Envelope, error: ErrorInfo, moment: datetime, own_uri: str, message_id: str
) -> None:
    answer = error_message(envelope, error, message_id=message_id, timestamp=moment, error_uri=own_uri)
    assert decode(*entity_of(answer)) == answer
    if envelope.semantics is Semantics.ONCE_AND_ONLY_ONCE:
        answer = acknowledgement(envelope, message_id=message_id, timestamp=moment, error_uri=own_uri)
        assert decode(*entity_of(answer)) == answer


@st.composite
def damaged_messages(draw: st.DrawFn) -> tuple[str, bytes]:
    content_type, body = fixture(draw(st.sampled_from(NAMES)))
    if draw(st.booleans()):
        body = body.replace(b"\r\n", b"\n")
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(body)))
        length = draw(st.sampled_from([0, 1, 1, 2, 10, 200]))
        filling = draw(
            st.one_of(
                st.binary(max_size=8),
                st.sampled_from(
                    [b"<", b">", b"&", b'"', b"</Header>", b"\r\n", b"--rm080-0001\r\n", b"&#10;", b"\xc2\x85"]
                ),
            )
        )
        body = body[:start] + filling + body[start + length :]
    return content_type, body


@settings(bounded, max_examples=600)
@given(entity=damaged_messages())
def test_whatever_is_read_can_be_answered_or_sent_on(entity: tuple[str, bytes]) -> None:
    try:
        envelope = decode(*entity)
    except NotAMessage:
        return
    if not may_answer_with_error(envelope):
        return
    if envelope.defects:
        answer = error_message(envelope, envelope.defects[0], message_id="1@x", timestamp=SENT, error_uri=SELLER_ERRORS)
        assert decode(*entity_of(answer)) == answer
        return
    number = 1 if envelope.semantics is Semantics.ONCE_AND_ONLY_ONCE else None
    forwarded = append_hop(envelope, RoutingHeader(HUB, "http://next", HUB, SENT, number))
    assert decode(*entity_of(forwarded)).defects == ()


def only_not_a_message(content_type: str, body: bytes) -> None:
    try:
        decode(content_type, body)
    except NotAMessage as error:
        assert error.reason.isidentifier()
        assert error.detail


@bounded
@given(content_type=st.text(max_size=80), body=st.binary(max_size=300))
def test_random_input_raises_nothing_else(content_type: str, body: bytes) -> None:
    only_not_a_message(content_type, body)


@bounded
@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=20),
            st.sampled_from(
                [
                    b"--b\r\n",
                    b"--b--",
                    b"\r\n",
                    b"\n\n",
                    b"Content-Type: text/xml\r\n\r\n",
                    b"Content-Transfer-Encoding: base64\r\n",
                    b"<ebXMLHeader>",
                    b"</ebXMLHeader>",
                    b"<Header><MessageId>1</MessageId></Header>",
                    b"<RoutingHeader><SenderURI>a</SenderURI><ReceiverURI>b</ReceiverURI></RoutingHeader>",
                ]
            ),
        ),
        max_size=20,
    )
)
def test_random_multiparts_raise_nothing_else(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    only_not_a_message(MULTIPART, body)
    only_not_a_message("text/xml", body)
    try:
        parts = decode_multipart(body, "b")
    except NotAMessage:
        return
    for part in parts:
        if part.offset is not None:
            assert body[part.offset : part.offset + len(part.content)] == part.content


@bounded
@given(data=st.binary(max_size=200))
def test_random_bytes_are_no_xml(data: bytes) -> None:
    with suppress(NotAMessage):
        parse_document(data)


@bounded
@given(moment=moments)
def test_time_stamps_are_read_back(moment: datetime) -> None:
    assert parse_timestamp(format_timestamp(moment)) == moment
    assert parse_timestamp(moment.isoformat()) == moment


@bounded
@given(text=st.text(max_size=40))
def test_time_stamps_of_strangers_raise_value_error(text: str) -> None:
    with suppress(ValueError):
        parse_timestamp(text)


@bounded
@given(uri=st.one_of(st.text(max_size=40), st.from_regex(r"(HTTP|mailto):(//)?[A-Z@/?:]{0,10}", fullmatch=True)))
def test_normalizing_a_uri_twice_changes_nothing(uri: str) -> None:
    assert normalize_uri(normalize_uri(uri)) == normalize_uri(uri)


@bounded
@given(name=st.sampled_from(sorted(EXPECTED)), cut=st.integers(1, 3000))
def test_a_message_that_was_cut_short_is_no_message(name: str, cut: int) -> None:
    content_type, body = fixture(name)
    body = body.rstrip(b"\r\n")
    try:
        decode(content_type, body[: max(0, len(body) - cut)])
    except NotAMessage as error:
        assert error.reason in ("truncated", "not_mime")
    else:
        raise AssertionError("half a message was read as a whole one")
