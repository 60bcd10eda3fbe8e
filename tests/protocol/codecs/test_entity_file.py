"""The file form of a message (docs/ftp-binding.md)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging.protocol.codecs.entity_file import NotAnEntity, file_name, is_final, name_of, pack, unpack


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
