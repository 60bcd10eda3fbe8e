"""Covering parts of documents: what a rule names is gone, all else stays, and what cannot be read is not shown."""

from __future__ import annotations

import json

import pytest

from messaging.protocol import masking, selecting
from messaging.protocol.masking import COVER
from messaging.protocol.selecting import Unreadable

ISA = "ISA*00*          *00*          *ZZ*SENDER         *ZZ*RECEIVER       *260101*1200*U*00401*000000001*0*P*>~"


def covered(text: str, *paths: str, content_type: str = "") -> tuple[str, int]:
    content = text.encode()
    kind = selecting.kind_of(content, content_type)
    made, count = masking.cover(content, kind, paths, text=text)
    return made.decode(), count


def test_elements_attributes_and_texts_of_xml() -> None:
    document = (
        '<o:Order xmlns:o="urn:o" xmlns:x="urn:x" x:card="4711"><o:IBAN>DE02</o:IBAN>'
        '<Person id="7"><Name>Ana</Name> tail</Person><Name>Company</Name></o:Order>'
    )
    made, count = covered(document, "//IBAN", "//@card", "//Person")
    assert count == 3
    for secret in ("DE02", "4711", "Ana", '"7"'):
        assert secret not in made
    assert "<Name>Company</Name>" in made and " tail" not in made
    made, count = covered(document, "//Person/Name/text()")
    assert (count, "Ana" in made, "Company" in made, " tail" in made) == (1, False, True, True)


def test_members_and_items_of_json() -> None:
    document = {"customer": {"iban": "DE02", "name": "Ana"}, "lines": [{"price": 1, "iban": "x"}, {"price": 2}]}
    made, count = covered(json.dumps(document), "$.customer.iban", "$.lines[*].price")
    assert count == 3
    assert json.loads(made) == {
        "customer": {"iban": COVER, "name": "Ana"},
        "lines": [{"price": COVER, "iban": "x"}, {"price": COVER}],
    }
    made, count = covered(json.dumps(document), "$..iban")
    assert count == 2 and "DE02" not in made and '"x"' not in made
    assert covered(json.dumps(document), "$.lines[1]['price']")[1] == 1
    assert covered(json.dumps(document), "$.nothing.here", "$.lines[9]")[1] == 0


def test_what_is_not_covered_of_json_stays_as_it_is_written() -> None:
    document = '{"price":1.10, "iban":"DE02","iban" : {"old": ["DE03"]},\r\n"big":1e400,"name":"\\u00fc"}'
    made, count = covered(document, "$.iban", "$..old")
    cover = json.dumps(COVER, ensure_ascii=False)
    assert made == f'{{"price":1.10, "iban":{cover},"iban" : {cover},\r\n"big":1e400,"name":"\\u00fc"}}'
    assert count == 2
    assert covered(document, r"$.ü", "$.²", "$." + "9" * 5000) == (document, 0)


def test_elements_and_components_of_edifact_with_its_own_separators() -> None:
    document = "UNA:+.? 'UNB+UNOA:1'NAD+BY+123?+4::9+Ana?'s+Street 1'NAD+SU'DTM+137:2026'"
    made, count = covered(document, "NAD+3", "DTM+1:2")
    assert made == f"UNA:+.? 'UNB+UNOA:1'NAD+BY+123?+4::9+{COVER}+Street 1'NAD+SU'DTM+137:{COVER}'"
    assert count == 2
    other, _ = covered("UNA*+,! ~UNB+1~NAD+a+b*c~", "NAD+2:2")
    assert other == f"UNA*+,! ~UNB+1~NAD+a+b*{COVER}~"


def test_elements_of_x12() -> None:
    made, count = covered(f"{ISA}N1*ST*Ana Ltd~", "N1+2")
    assert (count, made) == (1, f"{ISA}N1*ST*{COVER}~")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<a><b></a>", "xml"),
        ("<!DOCTYPE a><a/>", "xml"),
        ('{"a": ', "json"),
        ("ISA*00", "edi"),
        ("<a>" + "x" * selecting.MAX_BYTES + "</a>", "xml"),
    ],
)
def test_what_cannot_be_read_is_not_shown(text: str, kind: str) -> None:
    with pytest.raises(Unreadable):
        masking.cover(text.encode(), kind, ["//a"] if kind == "xml" else ["$.a"], text=text)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("xml", "//["),
        ("xml", "//o:IBAN"),
        ("xml", "count(//a)"),
        ("json", "iban"),
        ("json", "$"),
        ("json", "$.a[x]"),
        ("json", "$.a b"),
        ("edi", "NAD"),
        ("edi", "NAD+x"),
        ("edi", "nad+4"),
    ],
)
def test_paths_that_are_none_are_refused_with_an_example(kind: str, path: str) -> None:
    with pytest.raises(ValueError, match=r"such as|leads to"):
        selecting.check(kind, path)


@pytest.mark.parametrize(
    ("kind", "path"),
    [("xml", "//Customer/IBAN"), ("xml", "//@card"), ("json", "$..iban"), ("json", "$.a['b c'][0]"), ("edi", "N1+2:1")],
)
def test_paths_that_are_right(kind: str, path: str) -> None:
    selecting.check(kind, path)


@pytest.mark.parametrize(
    ("content", "content_type", "kind"),
    [
        (b"\xef\xbb\xbf<a/>", "text/plain", "xml"),
        ("<a/>".encode("utf-16"), "application/octet-stream", "xml"),
        (b"garbage", "application/xml", "xml"),
        (b" [1]", "", "json"),
        (b"UNB+UNOA", "text/plain", "edi"),
        (b"plain", "text/plain", ""),
    ],
)
def test_kinds(content: bytes, content_type: str, kind: str) -> None:
    assert selecting.kind_of(content, content_type) == kind
