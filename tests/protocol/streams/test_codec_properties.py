"""Generated cases: what is written is read back as it was; what is not a message never breaks the reader."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from messaging.protocol.codecs.stream import (
    ReceiptWish,
    StreamEnvelope,
    StreamKind,
    StreamPosition,
    decode,
    encode,
    rebridged,
)
from messaging.protocol.codecs.stream_lexical import NEVER
from messaging.protocol.envelope import DocumentReference, PayloadPart
from messaging.protocol.errors import NotAMessage
from messaging.protocol.streams.envelope import LAST_ID, LAST_NUMBER
from tests.protocol.codecs.test_properties import (
    content_ids,
    content_types,
    contents,
    filenames,
    free_texts,
    identifiers,
    optional_identifiers,
    parties,
)

from .test_codec import ORDER, SAMPLES, as_read, body_of, document

bounded = settings(max_examples=60)
moments = st.datetimes(datetime(1000, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(microsecond=0)
)
sources = st.uuids().map(str)


@st.composite
def positions(draw: st.DrawFn) -> StreamPosition:
    current = draw(st.integers(1, 9) | st.integers(1, LAST_NUMBER))
    previous = draw(st.just(current - 1) | st.integers(0, current - 1))
    start = current == 1
    return StreamPosition(
        draw(sources),
        draw(st.integers(1, LAST_ID)),
        current,
        previous,
        start,
        draw(identifiers) if start else "",
        draw(st.booleans()),
        draw(st.booleans()),
    )


@st.composite
def messages(draw: st.DrawFn) -> StreamEnvelope:
    payloads = tuple(
        draw(
            st.lists(
                st.builds(PayloadPart, content_ids, content_types, contents, filenames),
                max_size=3,
                unique_by=lambda payload: payload.content_id,
            )
        )
    )
    described = [(payload, draw(optional_identifiers), draw(free_texts)) for payload in payloads if draw(st.booleans())]
    return StreamEnvelope(
        kind=StreamKind.MESSAGE,
        message_id=draw(identifiers),
        to=draw(identifiers),
        source=draw(sources),
        sent_at=draw(st.none() | moments),
        expires_at=draw(st.none() | moments.filter(lambda moment: moment != NEVER)),
        label=draw(optional_identifiers),
        vias=tuple(draw(st.lists(identifiers, max_size=2))),
        position=draw(st.none() | positions()),
        wish=draw(st.none() | st.builds(ReceiptWish, identifiers, st.booleans(), st.booleans())),
        agreement_id=draw(optional_identifiers),
        conversation_id=draw(optional_identifiers),
        service=draw(optional_identifiers),
        action=draw(optional_identifiers),
        ref_to_message_id=draw(optional_identifiers),
        from_parties=draw(parties),
        to_parties=draw(parties),
        manifest=tuple(
            DocumentReference(label, f"cid:{payload.content_id}", text, "de" if text else "en")
            for payload, label, text in described
        ),
        payloads=payloads,
    )


@bounded
@given(messages())
def test_every_message_comes_back_as_it_was_written(envelope: StreamEnvelope) -> None:
    assert encode(envelope) == encode(envelope)
    read = decode(*body_of(envelope))
    assert read.defects == ()
    # XML turns line ends in text into LF, as it has to.
    texts = [reference.description.replace("\r\n", "\n") for reference in envelope.manifest]
    assert [reference.description.replace("\r\n", "\n") for reference in read.manifest] == texts
    assert as_read(replace(read, manifest=envelope.manifest)) == envelope


@bounded
@given(messages().filter(lambda message: message.position is not None), st.data())
def test_x17_copies_of_a_message_differ_in_previous_alone(envelope: StreamEnvelope, data: st.DataObject) -> None:
    assert envelope.position is not None
    previous = data.draw(st.integers(0, envelope.position.current - 1))
    copy = rebridged(envelope, previous)
    first, second = encode(envelope), encode(copy)
    assert first.content_type == second.content_type
    assert first.literals[1:] == second.literals[1:]
    assert decode(*body_of(copy)) == replace(
        decode(*body_of(envelope)),
        position=replace(envelope.position, previous=previous),
        payloads=decode(*body_of(copy)).payloads,
    )


_SEEDS = [document(ORDER), *(path.read_bytes() for path in sorted(SAMPLES.glob("*.xml")))]


@bounded
@given(st.sampled_from(_SEEDS), st.integers(0, 4000), st.integers(0, 4000), st.binary(max_size=12))
def test_whatever_comes_is_a_message_or_is_not(seed: bytes, start: int, end: int, noise: bytes) -> None:
    damaged = seed[: start % len(seed)] + noise + seed[end % len(seed) :]
    for content_type in ("text/xml", 'multipart/related; boundary="x"'):
        with suppress(NotAMessage):
            message = decode(content_type, damaged)
            assert message.message_id or message.kind is not StreamKind.MESSAGE
