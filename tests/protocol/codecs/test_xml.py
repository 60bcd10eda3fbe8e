"""The hardened XML parser: what strangers cannot do to it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from messaging.protocol.codecs.xml import element_text, parse_document
from messaging.protocol.envelope import Limits
from messaging.protocol.errors import NotAMessage


def reason(data: bytes, **limits: int) -> str:
    with pytest.raises(NotAMessage) as caught:
        parse_document(data, Limits(**limits))
    assert "\n" not in caught.value.detail
    return caught.value.reason


@pytest.mark.parametrize(
    "data",
    [
        b"<a>\xc3\xa4</a>",
        b"\xef\xbb\xbf<a>\xc3\xa4</a>",
        b'\r\n <?xml version="1.0"?><a>\xc3\xa4</a>',
        b'<?xml version="1.0" encoding="ISO-8859-1"?><a>\xe4</a>',
        '<?xml version="1.0" encoding="UTF-16"?><a>\u00e4</a>'.encode("utf-16"),
        b"<a>\n <![CDATA[\xc3\xa4]]>\t</a>",
        b"<a>&#xE4;<!-- left out --><?left out?></a>",
    ],
)
def test_documents_that_are_read(data: bytes) -> None:
    assert element_text(parse_document(data)) == "\u00e4"


def test_a_comment_does_not_cut_a_value_in_two() -> None:
    assert element_text(parse_document(b"<a>admin<!-- -->@example</a>")) == "admin@example"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"   ",
        b"text",
        b"<a>",
        b"<a/><a/>",
        b"<a>\xff</a>",
        b"<a>&unknown;</a>",
        b"<a>\x00</a>",
        b"<a b='1' b='2'/>",
    ],
)
def test_not_well_formed(data: bytes) -> None:
    assert reason(data) == "xml_not_well_formed"


def test_unknown_encoding() -> None:
    assert reason(b'<?xml version="1.0" encoding="nope"?><a/>') == "xml_not_well_formed"


BOMB = b'<!DOCTYPE a [<!ENTITY x0 "ha">' + b"".join(
    f'<!ENTITY x{i} "{f"&x{i - 1};" * 10}">'.encode() for i in range(1, 12)
)


@pytest.mark.parametrize(
    "data",
    [
        b"<!DOCTYPE a><a/>",
        b"<!DOCTYPE a []><a/>",
        b'<?xml version="1.0"?>\n<!-- c --><?p i?> <!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd"><a/>',
        BOMB + b"]><a>&x11;</a>",
        BOMB + b']><a b="&x11;"/>',
        '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE a []><a/>'.encode("utf-16"),
        '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE a []><a/>'.encode("utf-16-be"),
        b'<?xml version="1.0" encoding="UTF-7"?>+ADw-+ACE-DOCTYPE a+AD4-<a/>',
    ],
)
def test_a_document_type_is_refused(data: bytes) -> None:
    assert reason(data) == "dtd_forbidden"


def test_an_external_entity_is_never_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    data = f'<!DOCTYPE a [<!ENTITY x SYSTEM "{secret.as_uri()}">]><a>&x;</a>'.encode()
    assert reason(data) == "dtd_forbidden"


@pytest.mark.parametrize("data", [b"<a><![CDATA[<!DOCTYPE x>]]></a>", b"<!-- <!DOCTYPE x> --><?p <!DOCTYPE x>?><a/>"])
def test_the_word_doctype_elsewhere_is_harmless(data: bytes) -> None:
    assert parse_document(data).tag == "a"


def test_search_for_a_document_type_costs_linear_time() -> None:
    began = time.thread_time()
    assert reason(b"<?a?>" * 100_000 + b"<!-- " * 10 + b"<!DOCTYPE") == "xml_not_well_formed"
    assert time.thread_time() - began < 10, "linear: some milliseconds; with steps back: minutes"


def test_size_limit() -> None:
    assert parse_document(b"<a>12</a>", Limits(header_document=9)).text == "12"
    assert reason(b"<a>123</a>", header_document=9) == "header_too_large"


def test_depth_limit() -> None:
    assert parse_document(b"<a><a><a/></a></a>", Limits(xml_depth=3)).tag == "a"
    assert reason(b"<a><a><a><a/></a></a></a>", xml_depth=3) == "too_deep"


@pytest.mark.parametrize("depth", [33, 257, 3000, 150_000])
def test_huge_depth(depth: int) -> None:
    assert reason(b"<a>" * depth + b"</a>" * depth) in ("too_deep", "header_too_large")


def test_element_limit() -> None:
    assert parse_document(b"<a><b/><b/></a>", Limits(xml_nodes=3)).tag == "a"
    assert reason(b"<a><b/><b/><b/></a>", xml_nodes=3) == "too_many_elements"
    assert (
        reason('<?xml version="1.0" encoding="UTF-16"?><a><b/></a>'.encode("utf-16"), xml_nodes=1)
        == "too_many_elements"
    )
