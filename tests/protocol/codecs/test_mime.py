"""Multipart bodies on bytes: what is forgiven, what is exact, what is bounded.

The file form of a message (docs/ftp-binding.md).
"""

from __future__ import annotations

import io
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging.protocol.codecs.entity_file import NotAnEntity, file_name, is_final, name_of, pack, unpack
from messaging.protocol.codecs.mime import (
    MustBeHeld,
    Part,
    bare_content_id,
    choose_boundary,
    content_id_keys,
    content_id_of,
    decode_entity_head,
    decode_header_value,
    decode_multipart,
    decode_transfer_encoding,
    encode_base64_parts,
    encode_multipart,
    encode_part_head,
    refers_to,
)
from messaging.protocol.envelope import Limits
from messaging.protocol.errors import EncodeError, NotAMessage
from messaging.storage import Large
from tests.protocol.codecs.samples import counting

TWO_PARTS = (
    b"preamble, ignored\r\n"
    b"--b\r\nContent-ID: <one>\r\nContent-Type: text/xml\r\n\r\n<a/>\r\n"
    b"--b\r\nContent-Id: <two>\r\n\r\nline 1\r\nline 2\r\n\r\n"
    b"--b--\r\nepilogue\r\n--b\r\n\r\nignored\r\n"
)


def contents(body: bytes, boundary: str = "b", **limits: int) -> list[bytes]:
    return [part.octets for part in decode_multipart(body, boundary, Limits(**limits))]


def reason(body: bytes, boundary: str = "b", **limits: int) -> str:
    with pytest.raises(NotAMessage) as caught:
        decode_multipart(body, boundary, Limits(**limits))
    return caught.value.reason


_NEAR = st.sampled_from([b"--b", b"\r\n", b"\n", b"--", b" ", b"A: b", b"x" * 7, b"\r", b"--b--", b"--b\r\n"])


@given(st.one_of(st.lists(_NEAR, max_size=30).map(b"".join), st.binary(max_size=60).map(lambda end: TWO_PARTS + end)))
def test_a_body_in_a_file_is_cut_as_one_in_memory(body: bytes) -> None:
    """Pieces of eleven bytes, so that every delimiter lies across two of them sometimes."""

    def cut(of: bytes | Large) -> list[tuple[object, ...]] | str:
        try:
            parts = decode_multipart(of, "b", Limits(parts=5, part_headers=30))
        except NotAMessage as error:
            return error.reason
        return [(part.headers, part.octets, part.offset, len(part.content)) for part in parts]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("messaging.storage.large.PIECE", 11)
        assert cut(Large(io.BytesIO(body))) == cut(body)


def test_a_part_with_an_encoding_is_read_in_memory_only() -> None:
    body = b"--b\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ==\r\n--b--\r\n"
    assert contents(body) == [b"a"]
    with pytest.raises(MustBeHeld):
        decode_multipart(Large(io.BytesIO(body)), "b")
    plain = body.replace(b"base64", b"8bit")
    assert [part.octets for part in decode_multipart(Large(io.BytesIO(plain)), "b")] == [b"YQ=="]


def test_parts_are_exact_and_know_their_offset() -> None:
    parts = decode_multipart(TWO_PARTS, "b")
    assert [part.content for part in parts] == [b"<a/>", b"line 1\r\nline 2\r\n"]
    assert [part.content_id for part in parts] == ["one", "two"]
    for part in parts:
        assert part.offset is not None
        assert TWO_PARTS[part.offset : part.offset + len(part.content)] == part.content


def test_bare_line_feeds_are_read_as_well() -> None:
    body = TWO_PARTS.replace(b"\r\n", b"\n")
    assert contents(body) == [b"<a/>", b"line 1\nline 2\n"]


@pytest.mark.parametrize("content", [b"", b"\r", b"\n", b"\r\n", b"\r\r\n\r", b"x\r", b"\n\r\n", b"--", b"-"])
def test_content_before_a_delimiter_keeps_its_own_line_breaks(content: bytes) -> None:
    assert contents(b"--b\r\n\r\n" + content + b"\r\n--b--\r\n") == [content]


def test_in_a_body_with_bare_line_feeds_a_carriage_return_is_content() -> None:
    assert contents(b"--b\n\nx\r\n--b--\n") == [b"x\r"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"--b\r\n--b--", [b""]),
        (b"--b\r\n\r\n--b--", [b""]),
        (b"--b\r\n\r\n\r\n--b--", [b""]),
        (b"--b\r\nA: 1\r\n--b--", [b""]),
        (b"--b\r\nA: 1\r\n\r\n--b--", [b""]),
        (b"--b--", []),
        (b"--b  \t\r\n\r\nx\r\n--b-- \r\n", [b"x"]),
        (b"--b\r\n\r\n--bx\r\n--b-\r\n--b --\r\n-- b\r\nx--b\r\n--b--", [b"--bx\r\n--b-\r\n--b --\r\n-- b\r\nx--b"]),
        (b"--b\r\n\r\n--b--x\r\n--b--", [b"--b--x"]),
    ],
)
def test_delimiter_lines(body: bytes, expected: list[bytes]) -> None:
    assert contents(body) == expected


def test_a_nested_multipart_whose_boundary_begins_like_ours_stays_whole() -> None:
    inner = b"--b1\r\n\r\nx\r\n--b1--"
    assert contents(b"--b\r\n\r\n" + inner + b"\r\n--b--") == [inner]


def test_boundary_of_java_mail() -> None:
    value = "multipart/related;boundary=----=_Part_1_2.3; type=text/xml;start=ebXMLHeader@spine.nhs.uk"
    media_type, parameters = decode_header_value(value)
    assert media_type == "multipart/related"
    assert parameters == {"boundary": "----=_Part_1_2.3", "type": "text/xml", "start": "ebXMLHeader@spine.nhs.uk"}
    assert contents(b"------=_Part_1_2.3\r\n\r\nx\r\n------=_Part_1_2.3--", parameters["boundary"]) == [b"x"]


@pytest.mark.parametrize(
    ("value", "parameters"),
    [
        ('a/b; x="1;2"; Y = z ', {"x": "1;2", "y": "z"}),
        (r'a/b; x="say \"hi\" \\"', {"x": 'say "hi" \\'}),
        ('a/b; x="unfinished', {"x": "unfinished"}),
        ("a/b;; ;x=1;x=2", {"x": "1"}),
        ("a/b; x", {}),
        ("", {}),
    ],
)
def test_header_parameters(value: str, parameters: dict[str, str]) -> None:
    assert decode_header_value(value)[1] == parameters


def test_headers_are_unfolded_and_hold_no_control_characters() -> None:
    body = b"--b\r\nContent-Type: text/plain;\r\n\tname=x\r\nCONTENT-ID:\r\n <i\x00d>\r\nnonsense\r\n\r\n--b--"
    (part,) = decode_multipart(body, "b")
    assert part.headers == {"content-type": "text/plain; name=x", "content-id": "<id>"}


def test_header_bytes_that_are_not_utf8_are_read_as_latin_1() -> None:
    body = b'--b\r\nContent-Disposition: attachment; filename="M\xfcller.xml"\r\n\r\nx\r\n--b--'
    assert decode_multipart(body, "b")[0].filename == "M\u00fcller.xml"


@pytest.mark.parametrize(
    ("disposition", "filename"),
    [
        ('attachment; filename="a \\"b\\".xml"', 'a "b".xml'),
        ("attachment; filename=order.xml", "order.xml"),
        ("attachment; filename*=UTF-8''M%C3%BCller%0D%0A%00.xml; filename=x", "M\u00fcller.xml"),
        ("attachment; filename*=iso-8859-1'de'M%FCller.xml", "M\u00fcller.xml"),
        ("attachment; filename*=broken", ""),
        ("inline", ""),
    ],
)
def test_filename(disposition: str, filename: str) -> None:
    assert Part({"content-disposition": disposition}, b"", 0).filename == filename


@pytest.mark.parametrize(
    ("encoding", "raw", "content", "identity"),
    [
        (b"7bit", b"a\r\nb", b"a\r\nb", True),
        (b"8BIT", b"\xff\x00", b"\xff\x00", True),
        (b"binary", b"\r\n", b"\r\n", True),
        (b"Base64", b"/wAN\r\nCg==\r\n", b"\xff\x00\r\n", False),
        (b"quoted-printable", b"a=3Db=\r\nc =\r\nd \t \r\ne ", b"a=bc d\r\ne", False),
    ],
)
def test_transfer_encodings(encoding: bytes, raw: bytes, content: bytes, identity: bool) -> None:
    body = b"--b\r\nContent-Transfer-Encoding: " + encoding + b"\r\n\r\n" + raw + b"\r\n--b--"
    (part,) = decode_multipart(body, "b")
    assert (part.content, part.damage) == (content, "")
    assert (part.offset is not None) is identity


@pytest.mark.parametrize("raw", [b"QQ", b"QQ=", b"Q!Q=", b"QQ==QQ==", b"QUJD\r\n-- scanned by relay"])
def test_damaged_base64_is_no_content(raw: bytes) -> None:
    (part,) = decode_multipart(b"--b\r\nContent-Transfer-Encoding: base64\r\n\r\n" + raw + b"\r\n--b--", "b")
    assert part.damage.startswith("base64 content is damaged")
    assert part.content == raw
    assert part.offset is None


def test_unknown_transfer_encoding() -> None:
    with pytest.raises(ValueError, match="x-uuencode"):
        decode_transfer_encoding("X-UUencode", b"")


def test_quoted_printable_padding_costs_linear_time() -> None:
    began = time.thread_time()
    decode_transfer_encoding("quoted-printable", (b" " * 200_000 + b"x\n") * 3)
    assert time.thread_time() - began < 10, "linear: some milliseconds; with steps back: minutes"


def test_part_content_length_is_ignored() -> None:
    assert contents(b"--b\r\nContent-Length: 1\r\n\r\nabc\r\n--b--") == [b"abc"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "not_mime"),
        (b"no boundary at all", "not_mime"),
        (b"x--b\r\n\r\n x--b--", "not_mime"),
        (b"--b", "truncated"),
        (b"--b\r\n\r\nhalf of a payload", "truncated"),
        (b"--b\r\n\r\nx\r\n--b", "truncated"),
        (b"--b\r\n\r\nx\r\n--b-", "truncated"),
    ],
)
def test_what_is_no_multipart(body: bytes, expected: str) -> None:
    assert reason(body) == expected


def test_number_of_parts_is_bounded() -> None:
    three = b"--b\r\n\r\nx\r\n" * 3 + b"--b--"
    assert len(contents(three, parts=3)) == 3
    assert reason(three, parts=2) == "too_many_parts"


def test_ten_thousand_parts_are_refused_at_the_limit() -> None:
    part = b"--b\r\nA: b\r\n\r\nx\r\n"
    assert cost_of_refusing(part * 10_000) < 2 * cost_of_refusing(part * 2_000)


def test_lines_that_nearly_are_delimiters_are_bounded() -> None:
    few, many = (b"--b\r\n\r\n" + b"\n--bx" * number + b"\r\n" for number in (100_000, 1_000_000))
    assert cost_of_refusing(many) < 2 * cost_of_refusing(few)


def cost_of_refusing(parts: bytes) -> int:
    """How many functions are called until it is refused for its many parts."""
    with counting() as calls:
        assert reason(parts + b"--b--") == "too_many_parts"
    return len(calls)


def test_padding_of_a_delimiter_line_is_bounded() -> None:
    assert reason(b"--b" + b" " * 5000) == "not_mime"


def test_part_headers_are_bounded() -> None:
    block = b"A: " + b"x" * 100 + b"\r\n"
    assert contents(b"--b\r\n" + block + b"\r\n--b--", part_headers=200) == [b""]
    assert reason(b"--b\r\n" + block * 3 + b"\r\nx\r\n--b--", part_headers=200) == "part_headers_too_large"


def test_entity_head() -> None:
    entity = b"MIME-Version: 1.0\r\nContent-Type: multipart/related;\r\n boundary=b\r\n\r\n--b"
    headers, start = decode_entity_head(entity)
    assert headers == {"mime-version": "1.0", "content-type": "multipart/related; boundary=b"}
    assert entity[start:] == b"--b"


@pytest.mark.parametrize(
    ("reference", "content_id", "found"),
    [
        ("cid:a@b", "a@b", True),
        ("CID:a@b", "a@b", True),
        ("cid:a%40b", "a@b", True),
        ("cid:a@b", "a%40b", True),
        ("cid:a%40b", "a%40b", True),
        ("cid:a%2540b", "a%40b", True),
        ("cid:<a@b>", "a@b", True),
        ("cid:a@B", "a@b", False),
        ("cid:", "a@b", False),
    ],
)
def test_content_ids_are_compared_decoded(reference: str, content_id: str, found: bool) -> None:
    assert refers_to(reference, content_id_keys([content_id])) is found


@pytest.mark.parametrize("value", ["<a@b>", "a@b", " <a@b> ", "< a@b >", "<a@b", "a@b>"])
def test_bare_content_id(value: str) -> None:
    assert bare_content_id(value) == "a@b"


@pytest.mark.parametrize(
    ("message_id", "boundary"),
    [
        ("20001002-103000-0001@msh.buyer.example", "rm080-0001"),
        ("c1a5d7ed-3850-4a74-ba28-8d73f5355336", "rm080-8d73f5355336"),
        ("urn:x:\u00e4@h", "rm080-x"),
        ("\u00e4@h", "rm080-0"),
        ("x" * 200 + "@h", "rm080-" + "x" * 40),
    ],
)
def test_boundary_follows_from_the_message_id(message_id: str, boundary: str) -> None:
    assert choose_boundary("rm080-", message_id, [b"payload"]) == boundary


def test_boundary_that_occurs_in_a_payload_is_changed() -> None:
    payload = b"\r\n--p1\r\n--p1-x\r\n"
    boundary = choose_boundary("p", "1@h", [b"", payload])
    assert boundary.startswith("p1.")
    assert boundary.encode() not in payload
    assert boundary == choose_boundary("p", "1@h", [b"", payload])
    again = payload + b"--" + boundary.encode()
    assert choose_boundary("p", "1@h", [again]).encode() not in again
    assert len(choose_boundary("rm080-", "x" * 99, [b"--rm080-" + b"x" * 40])) <= 70


def test_header_content_id_is_safe_in_a_header() -> None:
    assert content_id_of("1@h") == "hdr.1@h"
    assert content_id_of('a "b"<\u00e4>%@h') == "hdr.a%20%22b%22%3C%C3%A4%3E%25@h"


def test_multipart_frames() -> None:
    head = encode_part_head("a@b", "text/plain", 3, 'x "y".txt')
    assert head == (
        "Content-ID: <a@b>\r\nContent-Type: text/plain\r\n"
        'Content-Disposition: attachment; filename="x \\"y\\".txt"\r\nContent-Length: 3\r\n'
    )
    literals = encode_multipart("b", [head, "A: 1\r\n"])
    assert literals == [f"--b\r\n{head}\r\n".encode(), b"\r\n--b\r\nA: 1\r\n\r\n", b"\r\n--b--\r\n"]


@pytest.mark.parametrize(
    ("content_id", "content_type", "filename"),
    [
        ("a\r\nX: y", "text/plain", ""),
        ("a>b", "text/plain", ""),
        (" a", "text/plain", ""),
        ("\u00e4", "text/plain", ""),
        ("a", "text/plain\r\nX: y", ""),
        ("a", "text/plain; x=\u00e4", ""),
        ("a", "", ""),
        ("a", " text/plain", ""),
        ("a", "text/plain", "x\r\nX: y"),
        ("a", "text/plain", "x\x00"),
    ],
)
def test_values_that_no_header_can_carry(content_id: str, content_type: str, filename: str) -> None:
    with pytest.raises(EncodeError):
        encode_part_head(content_id, content_type, 0, filename)


def test_base64_parts_for_mail() -> None:
    body = b"--b\r\nContent-ID: <a>\r\nContent-Length: 60\r\n\r\n" + b"x" * 60 + b"\r\n--b\r\n\r\n\r\n--b--\r\n"
    mail = encode_base64_parts(body, "b")
    assert mail == (
        b"--b\r\nContent-ID: <a>\r\nContent-Transfer-Encoding: base64\r\n\r\n" + b"eHh4" * 19 + b"\r\neHh4\r\n"
        b"--b\r\nContent-Transfer-Encoding: base64\r\n\r\n\r\n--b--\r\n"
    )
    assert contents(mail) == contents(body)


@given(st.binary(max_size=500))
def test_bytes_come_back_exactly(body: bytes) -> None:
    entity = unpack(pack('multipart/related; boundary="x"', body))
    assert (entity.content_type, entity.body, entity.declared) == ('multipart/related; boundary="x"', body, True)


@given(st.binary(min_size=1, max_size=300), st.integers(1, 400))
def test_whatever_part_of_a_file_is_read_it_is_never_taken_for_the_whole(body: bytes, cut: int) -> None:
    data = pack("text/xml", body)
    with pytest.raises(NotAnEntity) as caught:
        unpack(data[: -min(cut, len(data))])
    assert caught.value.incomplete


def test_other_writers_lines() -> None:
    entity = unpack(b'content-type: multipart/related;\n boundary="x";\r\n\ttype="text/xml"\nX-More: yes\n\nbody\n')
    assert entity.content_type == 'multipart/related; boundary="x";\ttype="text/xml"'
    assert (entity.body, entity.declared) == (b"body\n", False)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"Content-Type: text/xml\r\nContent-Length: 3\r\n\r\nfour", "has 4 of the 3"),
        (b"Content-Type: text/xml\r\nContent-Length: three\r\n\r\nbody", "not a number"),
        (b"Content-Type: a/b\r\nContent-Type: c/d\r\n\r\nbody", "twice"),
        (b"X: y\r\n\r\nbody", "no Content-Type"),
        (b"<Order/>\r\n\r\nbody", "not a header field"),
        (b"Content-Type: text/xml\r\nContent-Transfer-Encoding: base64\r\n\r\nYm9keQ==", "base64"),
        ("Content-Type: tëxt/xml\r\n\r\nbody".encode(), "ASCII"),
        (b"Content-Type: text/xml\x00\r\n\r\nbody", "not a header field"),
        (b"X: " + b"y" * 20_000, "no empty line"),
    ],
)
def test_what_is_no_entity(data: bytes, says: str) -> None:
    with pytest.raises(NotAnEntity) as caught:
        unpack(data)
    assert says.lower() in caught.value.detail.lower()
    assert not caught.value.incomplete


def test_names_are_safe_whatever_the_id() -> None:
    name = name_of("message", "../../etc/passwd\x00\n∞@x")
    assert name == name_of("message", "../../etc/passwd\x00\n∞@x") != name_of("ack", "../../etc/passwd\x00\n∞@x")
    assert is_final(file_name(name, b"content"))
    assert file_name(name, b"content") != file_name(name, b"other")


@pytest.mark.parametrize(
    "name",
    [
        *("../x.ebxml", "a/b.ebxml", "a\\b.ebxml", ".x.ebxml", ".x.ebxml.tmp", "x.ebxml.tmp", "x.ebxml.part"),
        *(
            "x",
            "x.xml",
            "x.EBXML",
            "..ebxml",
            "-x.ebxml",
            "x\n.ebxml",
            "x.ebxml\n",
            "é.ebxml",
            "",
            "x" * 210 + ".ebxml",
        ),
    ],
)
def test_names_that_are_not_read(name: str) -> None:
    assert not is_final(name)
