"""Generated cases of the ebms2 codec: what is written is valid and read back; nothing breaks the reader."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from messaging.protocol.codecs.ebms2 import acknowledgement, decode, may_answer_with_error
from messaging.protocol.codecs.ebms2_lexical import escaped_reference, is_reference
from messaging.protocol.codecs.mime import encode_base64_parts
from messaging.protocol.envelope import Ebms2Options, Envelope
from messaging.protocol.errors import NotAMessage

from .ebms2_fuzz import examine
from .ebms2_generated import damaged, messages, reshaped
from .ebms2_samples import DIGEST, RECEIVED, as_read, assert_valid, document_of, ebms, entity_of

bounded = settings(max_examples=150)
options = st.builds(Ebms2Options, st.booleans(), st.booleans())


@bounded
@given(envelope=messages(), option=options)
def test_what_is_written_is_valid_and_read_back(envelope: Envelope, option: Ebms2Options) -> None:
    assert_valid(document_of(envelope, option))
    content_type, body = entity_of(envelope, option)
    decoded = decode(content_type, body)
    assert as_read(decoded) == envelope
    for payload in decoded.payloads:
        assert payload.offset is not None
        assert body[payload.offset : payload.offset + len(payload.content)] == payload.content


@bounded
@given(envelope=messages())
def test_mail_form_is_read_back(envelope: Envelope) -> None:
    content_type, body = entity_of(envelope, Ebms2Options(multipart=True))
    boundary = content_type.rpartition('boundary="')[2].rstrip('"')
    assert decode(content_type, encode_base64_parts(body, boundary)) == envelope


@bounded
@given(envelope=messages())
def test_acknowledgements_are_read_back(envelope: Envelope) -> None:
    if not ebms(envelope).ack_requests or not may_answer_with_error(envelope):
        return
    answer = acknowledgement(
        envelope, message_id="1@x", timestamp=RECEIVED, received=envelope.timestamp, digests=(DIGEST,)
    )
    assert_valid(document_of(answer))
    assert decode(*entity_of(answer)) == answer


@settings(bounded, max_examples=600)
@given(entity=st.one_of(damaged(), reshaped()))
def test_whatever_is_read_can_be_answered_or_written_again(entity: tuple[str, bytes]) -> None:
    examine(*entity)


@bounded
@given(content_type=st.text(max_size=80), body=st.binary(max_size=300))
def test_random_input_raises_nothing_else(content_type: str, body: bytes) -> None:
    with suppress(NotAMessage):
        decode(content_type, body)


@bounded
@given(text=st.one_of(st.text(max_size=30), st.text("ab:/?#[]@%4 ", max_size=12)))
def test_escaping_a_reference_twice_changes_nothing(text: str) -> None:
    escaped = escaped_reference(text.encode("utf-8", "replace").decode())
    assert escaped_reference(escaped) == escaped
    assert escaped.isascii()
    if is_reference(text):
        assert escaped == text
