"""Setting out documents: nothing is expanded, fetched or lost."""

from __future__ import annotations

import pytest

from messaging.messages.pages import viewer
from messaging.messages.pages.viewer import HEX_LIMIT, TEXT_LIMIT, View, view
from messaging.protocol.masking import COVER
from tests import FIXTURES


def _lines(shown: View) -> list[str]:
    return ["".join(text for _, text in line) for line in shown.lines]


def test_xml_is_set_out_with_what_it_holds() -> None:
    content = (
        b'<?xml version="1.0"?><!-- why --><o:Order xmlns:o="urn:o" o:id="a&quot;b" xml:lang="de">'
        b"<Line>A &amp; B &lt;5</Line><Empty/><Mixed>one<b>two</b>three</Mixed><?do it?></o:Order>"
    )
    shown = view(content, "application/xml", "pretty")
    assert (shown.mode, shown.kind) == ("pretty", "XML")
    assert _lines(shown) == [
        '<?xml version="1.0"?>',
        "<!-- why -->",
        '<o:Order xmlns:o="urn:o" o:id="a&quot;b" xml:lang="de">',
        "  <Line>A &amp; B &lt;5</Line>",
        "  <Empty/>",
        "  <Mixed>",
        "    one",
        "    <b>two</b>",
        "    three",
        "  </Mixed>",
        "  <?do it?>",
        "</o:Order>",
    ]


@pytest.mark.parametrize(
    "content",
    [
        b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        '<!DOCTYPE a [<!ENTITY x "boom">]><a>&x;</a>'.encode("utf-16"),
        b"<a><b></a>",
        b"<a>" * 5000,
        b"<",
    ],
)
def test_xml_that_is_not_safe_or_not_well_formed_is_shown_as_it_is(content: bytes) -> None:
    shown = view(content, "application/xml", "")
    assert shown.mode == "raw"
    assert "shown as it is" in shown.note
    assert "root:" not in "".join(_lines(shown))
    assert "boom" not in "".join(_lines(shown)).replace('"boom"', "")


def test_a_deep_document_is_set_out_without_a_crash() -> None:
    shown = view(b"<a>" * 250 + b"</a>" * 250, "text/xml", "")
    assert shown.mode == "pretty"


def test_edifact_is_cut_at_its_own_separators() -> None:
    shown = view(b"UNA:*.! ~UNB*UNOA:1~BGM*220*it!~s*x~\r\nDTM*137~", "application/edifact", "")
    assert shown.kind == "EDIFACT"
    assert [line.split("*")[0] for line in _lines(shown)][1:] == ["UNB", "BGM", "DTM"]
    assert _lines(shown)[2] == "BGM*220*it!~s*x~beginning of message"
    default = view(b"UNB+UNOA:1'BGM+220+it?'s'UNZ+1'", "", "")
    assert [line[:3] for line in _lines(default)] == ["UNB", "BGM", "UNZ"]


def test_x12_is_cut_at_the_terminator_of_its_isa() -> None:
    isa = b"ISA*00*          *00*          *ZZ*SENDER         *ZZ*RECEIVER       *260101*1200*U*00401*000000001*0*P*>~"
    shown = view(isa + b"GS*PO~ST*850~", "application/edi-x12", "")
    assert shown.kind == "X12"
    assert [line.split("*")[0] for line in _lines(shown)] == ["ISA", "GS", "ST"]
    assert view(isa[:50], "application/edi-x12", "").mode == "raw"


def test_json_is_set_out_and_broken_json_is_not() -> None:
    assert _lines(view(b'{"a":[1,"x"]}', "application/json", "")) == [
        "{",
        '  "a": [',
        "    1,",
        '    "x"',
        "  ]",
        "}",
    ]
    assert view(b'{"a":', "application/json", "").mode == "raw"
    assert view(b"[" * 100_000, "application/json", "").mode == "raw"


def test_the_numbers_and_members_of_json_are_those_of_the_document() -> None:
    content = (
        rb'{"price":1.10,"total":0.12345678901234567890123,"price":1e400,"name":"Gr\u00f6\u00dfe","half":"\ud800"}'
    )
    assert _lines(view(content, "application/json", "")) == [
        "{",
        '  "price": 1.10,',
        '  "total": 0.12345678901234567890123,',
        '  "price": 1e400,',
        '  "name": "Größe",',
        r'  "half": "\ud800"',
        "}",
    ]
    deep = view(b"[" * 500 + b"]" * 500, "application/json", "")
    assert (deep.mode, deep.note) == ("raw", "It is nested too deeply to be formatted, so it is shown as it is.")


def test_controls_and_tricks_with_the_direction_of_reading_are_made_visible() -> None:
    shown = _lines(view("a\x1bb\u202ec\rd\r\n".encode(), "text/plain", "raw"))
    assert shown[0] == "a‹1B›b\ufffdc‹CR›d‹CR›"


@pytest.mark.parametrize(("charset", "text"), [("iso-8859-1", "Größe"), ("utf-16", "Größe"), ("nonsense", "Größe")])
def test_text_is_read_by_the_charset_that_it_names(charset: str, text: str) -> None:
    encoded = text.encode("utf-8" if charset == "nonsense" else charset)
    assert _lines(view(encoded, f"text/plain; charset={charset}", "raw")) == [text]


def test_what_is_no_text_is_shown_in_hex() -> None:
    shown = view(bytes(range(32)), "image/png", "")
    assert shown.mode == "hex"
    assert _lines(shown)[1] == "00000010  10 11 12 13 14 15 16 17  18 19 1a 1b 1c 1d 1e 1f  ················"


def test_large_ones_are_cut_at_a_character_and_say_so() -> None:
    shown = view(b"<a>" + "é".encode() * TEXT_LIMIT + b"</a>", "application/xml", "")
    assert shown.mode == "raw"
    assert "too large to be formatted" in shown.note
    assert shown.part == "256.00 of 512.01 KiB"
    assert "\ufffd" not in _lines(shown)[0]
    shown = view(b"x" * (HEX_LIMIT * 2), "", "hex")
    assert len(shown.lines) == HEX_LIMIT // 16
    assert shown.part == "32.00 of 64.00 KiB"


@pytest.mark.parametrize("sign", ["é", "€", "𝄞", "x"])
def test_the_parts_of_a_large_text_are_all_of_it(sign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "TEXT_LIMIT", 10_000)
    text = f"é{sign}\n" * 8_000
    parts, offset = [], 0
    while offset is not None:
        shown = view(text.encode(), "text/plain", "raw", offset=offset)
        parts.append("\n".join(_lines(shown)))
        assert shown.begin == offset and shown.end - shown.begin <= 10_000
        offset = shown.after
    assert "".join(parts) == text
    last = view(text.encode(), "text/plain", "raw", offset=shown.begin)
    assert last.before is not None and last.before < last.begin
    assert view(text.encode(), "text/plain", "raw", offset=10**12).end == len(text.encode())


def test_what_is_sought_is_found_in_all_of_it_and_marked_where_it_is_shown() -> None:
    content = b"<a><b>Needle</b>" + b"x" * TEXT_LIMIT + b"needle</a>"
    shown = view(content, "application/xml", "", sought="needle")
    assert shown.found == [6, len(content) - 10]
    assert ("found", "Needle") in shown.lines[0]
    small = view(b"<a b='needle'>two needles</a>", "application/xml", "", sought="needle")
    assert small.mode == "pretty"
    assert [token for token in small.lines[0] if token[0] == "found"] == [("found", "needle")] * 2
    assert view(b"<a/>", "application/xml", "", sought="b").found == []
    assert view(b"<a/>", "application/xml", "").found is None
    assert view("<a>ü</a>".encode("utf-16"), "application/xml; charset=utf-16", "", sought="ü").found == [8]


def test_covered_parts_are_marked() -> None:
    shown = view(f"<a>{COVER}</a>".encode(), "application/xml; charset=utf-8", "")
    assert ("covered", COVER) in shown.lines[0]


def test_nothing_at_all_is_shown_too() -> None:
    for mode in ("", "pretty", "raw", "hex"):
        assert view(b"", "application/xml", mode).size == 0


def test_the_sample_documents_are_set_out() -> None:
    folder = FIXTURES / "documents"
    for document in sorted(folder.glob("*.edi")):
        assert view(document.read_bytes(), "application/octet-stream", "").mode == "pretty", document.name
