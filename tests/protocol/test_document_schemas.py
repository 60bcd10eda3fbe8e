"""What documents have to look like: XML Schema, JSON Schema, segments of EDI; and what is said of those that do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from messaging.protocol import document_schemas, edi_messages, selecting
from messaging.protocol.document_schemas import MOST_FAULTS, BadSchema, read
from tests import ROOT

FIXTURES = ROOT / "tests/fixtures"
XS = 'xmlns:xs="http://www.w3.org/2001/XMLSchema"'
ORDER_XSD = f"""<?xml version="1.0" encoding="utf-16"?>
<xs:schema {XS} xmlns:b="urn:b" targetNamespace="urn:a" xmlns="urn:a" elementFormDefault="qualified">
<xs:import namespace="urn:b" schemaLocation="b.xsd"/>
<xs:element name="order"><xs:complexType><xs:sequence>
<xs:element name="amount" type="xs:decimal" maxOccurs="2"/><xs:element ref="b:code" minOccurs="0"/>
</xs:sequence></xs:complexType></xs:element></xs:schema>"""
B_XSD = f"""<xs:schema {XS} targetNamespace="urn:b"><xs:element name="code">
<xs:simpleType><xs:restriction base="xs:string"><xs:pattern value="[A-Z]+"/></xs:restriction></xs:simpleType>
</xs:element></xs:schema>"""
ORDER_JSON = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "lines": {"$ref": "lines.json"}, "a b": {"pattern": "^(a+)+$"}},
    "required": ["amount"],
}
INVOIC = """# an invoice, as far as this partner's go
INVOIC D 97A
BGM M 1 needs 1 2
DTM M 35
SG1 C 99
    NAD M 1 needs 1 2:1
    SG2 C 9
        RFF M 1
CUX C 1
PAT C 1
DTM C 5
SG3 C 9999
    LIN M 1
    QTY C 5
    MOA C 5
    PRI C 5
    RFF C 5
    DTM C 5
    RFF C 5
    TAX C 5
    NAD C 5
UNS M 1
MOA M 5
TAX C 5
"""


def said(kind: str, files: dict[str, str], content: bytes, content_type: str = "") -> list[str]:
    return [str(fault) for fault in read(kind, files).faults(content, content_type)]


# --- XML Schema ---


def test_an_xml_document_is_checked_against_a_schema_and_what_it_imports() -> None:
    files = {"order.xsd": ORDER_XSD, "b.xsd": B_XSD}
    fits = b"<order xmlns='urn:a'><amount>1.5</amount><code xmlns='urn:b'>AB</code></order>"
    assert said("xml", files, fits) == []
    wrong = (
        b"<order xmlns='urn:a'>\n<amount>1</amount>\n<amount>it's a secret</amount><code xmlns='urn:b'>9</code></order>"
    )
    amount, pattern, *more = said("xml", files, wrong)
    assert (
        amount
        == "line 3, /order/amount[2]: Element 'amount': its value is not a valid value of the atomic type 'xs:decimal'."
    )
    assert pattern.startswith("line 3, /order/code: Element 'code': [facet 'pattern'] The value is not accepted")
    assert not any("secret" in one or "9" in one for one in (amount, pattern, *more))


def test_schemas_and_messages_that_others_wrote() -> None:
    folder = FIXTURES / "ws-tx/schemas"
    files = {name: (folder / name).read_text() for name in ("wscoor.xsd", "ws-addr.xsd")}
    register = etree.parse(FIXTURES / "ws-tx/03_Register.xml").find(".//{*}Register")
    assert said("xml", files, etree.tostring(register)) == []
    del register[0]
    [sentence] = said("xml", files, etree.tostring(register))
    assert "/Register/ParticipantProtocolService" in sentence and "Expected is ( ProtocolIdentifier )" in sentence


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://127.0.0.1:9/b.xsd", "/etc/passwd", "c.xsd"])
def test_a_schema_reads_nothing_but_its_files(location: str) -> None:
    files = {"order.xsd": ORDER_XSD.replace("b.xsd", location), "b.xsd": B_XSD}
    with pytest.raises(BadSchema, match="is needed and is not among the files: add it"):
        read("xml", files)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"<order>\n <amount></order>", "line 2, column 18: It is not well-formed XML."),
        (b"<!DOCTYPE order><order/>", "It has a DOCTYPE."),
        (
            b"<other/>",
            "line 1, /other: Element 'other': No matching global declaration available for the validation root.",
        ),
    ],
)
def test_what_is_no_such_xml(content: bytes, sentence: str) -> None:
    assert said("xml", {"order.xsd": ORDER_XSD, "b.xsd": B_XSD}, content) == [sentence]


def test_folders_that_files_come_from_do_not_matter() -> None:
    for location in ("../common/b.xsd", "./b.xsd", "common/b.xsd"):
        read("xml", {"order.xsd": ORDER_XSD.replace("b.xsd", location), "b.xsd": B_XSD})


# --- JSON Schema ---


def test_a_json_document_is_checked_and_the_place_is_named() -> None:
    files = {"order.json": json.dumps(ORDER_JSON), "lines.json": '{"items": {"type": "string"}}'}
    assert said("json", files, b'{"amount": 1, "lines": ["x"]}') == []
    text = b'\xef\xbb\xbf{\n "amount": "secret",\n "lines": ["x", 5],\n "a b": "' + b"a" * 40 + b'!"}'
    assert said("json", files, text) == [
        'line 2, column 12, $.amount: Its value is not of type "number".',
        'line 3, column 17, $.lines[1]: Its value is not of type "string".',
        "line 4, column 9, $['a b']: Its value does not match \"^(a+)+$\".",
    ]
    assert said("json", files, b" {}") == ['line 1, column 2, $: "amount" is a required property.']


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/x.json", "file:///etc/passwd", "other.json"])
def test_a_json_schema_reads_nothing_but_its_files(reference: str) -> None:
    with pytest.raises(BadSchema, match="is needed and is not among the files: add it"):
        read("json", {"order.json": json.dumps({"$ref": reference})})


def test_files_of_a_json_schema_find_each_other_by_their_ids_too() -> None:
    files = {
        "order.json": json.dumps({"$ref": "https://example.com/lines"}),
        "lines.json": json.dumps({"$id": "https://example.com/lines", "type": "array"}),
    }
    assert said("json", files, b"[]") == []
    assert said("json", files, b"{}") == ['line 1, column 1, $: Its value is not of type "array".']


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "It is not valid JSON."),
        (b"\xff\xff", "It is not valid JSON."),
        (b"[" * 100_000 + b"]" * 100_000, "It is nested too deeply, or has too long a number, to be checked."),
        (b"9" * 10_000, "It is nested too deeply, or has too long a number, to be checked."),
    ],
)
def test_what_is_no_such_json(content: bytes, sentence: str) -> None:
    assert said("json", {"order.json": '{"type": ["array", "number"]}'}, content) == [sentence]


# --- schemas that are none ---


@pytest.mark.parametrize(
    ("kind", "files", "sentence"),
    [
        ("xml", {}, "Give the schema: its text, or a file."),
        ("xml", {"a.xsd": " "}, "Give the schema: its text, or a file."),
        ("xml", {"a.xsd": "<a"}, "a.xsd: it is not well-formed XML."),
        ("xml", {"a.xsd": "<a/>"}, "It is no XML Schema: The XML document 'schema:///a.xsd' is not a schema document."),
        ("xml", {"../a.xsd": B_XSD}, "'../a.xsd' cannot be the name of a file: use letters, digits, dots, _ and -."),
        ("json", {"a.json": "{"}, "a.json is not valid JSON"),
        ("json", {"a.json": "[]"}, 'It is no JSON Schema: it is not of types "boolean", "object".'),
        ("json", {"a.json": '{"type": "order"}'}, "It is no JSON Schema: type is not valid"),
        ("json", {"a.json": '{"pattern": "(?=a)b"}'}, "Look-around and back-references are not supported."),
        ("edi", {"a.txt": "# nothing"}, "a.txt, line 1: name the type of message, such as INVOIC D 96A"),
        ("edi", {"a.txt": "*\nBGM M 1"}, "a.txt, line 2: * stands for messages of any type"),
        ("edi", {"a.txt": "INVOIC\nBGM"}, "a.txt, line 2: write a segment as DTM M 35, or BGM M 1 needs 1 2."),
        (
            "edi",
            {"a.txt": "INVOIC\nLOOP1 M 1"},
            "a.txt, line 2: LOOP1 is a group: its segments follow, indented deeper.",
        ),
        ("edi", {"a.txt": "INVOIC\nSG1 M 1 needs 1\n BGM M 1"}, "a.txt, line 2: SG1 is a group: its segments have"),
        ("edi", {"a.txt": "INVOIC\n  BGM M 1\n DTM M 1"}, "a.txt, line 3: it is indented like no line above it."),
        ("edi", {"a.txt": "INVOIC\n" + "\n".join(f"{' ' * n}SG{n} M 1" for n in range(30))}, "nested too deeply"),
        ("edi", {"a.txt": "INVOIC\nBGM M 1", "b.txt": "*"}, "The list of segments is one file."),
    ],
)
def test_what_is_no_schema_is_refused_with_a_sentence(kind: str, files: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadSchema) as refused:
        read(kind, files)
    assert sentence in str(refused.value)


def test_faults_beyond_the_first_ten_are_left_out() -> None:
    assert (
        len(said("json", {"a.json": '{"items": {"type": "string"}}'}, json.dumps(list(range(50))).encode()))
        == MOST_FAULTS
    )


def test_what_is_too_large_is_not_checked() -> None:
    [sentence] = said("json", {"a.json": "{}"}, b" " * (selecting.MAX_BYTES + 1))
    assert sentence == "It is larger than 8 MiB, so it is not checked."


# --- EDI ---


def edifact(name: str) -> bytes:
    return (FIXTURES / "documents" / name).read_bytes()


def test_interchanges_that_others_wrote() -> None:
    assert said("edi", {"invoic.txt": INVOIC}, edifact("edifact-invoice1.edi")) == []
    assert said("edi", {"any.txt": "*"}, edifact("edifact-invoice1.edi")) == []
    assert said("edi", {"any.txt": "*"}, edifact("edifact-order2.edi")) == [
        "line 1, column 1, segment 1 (UNB): UNB is not closed: UNZ is missing."
    ]


@pytest.mark.parametrize(
    ("before", "after", "sentences"),
    [
        (b"BGM+381+1060113800026+9'", b"BGM+381++9'", ["line 3, column 1, segment 3 (BGM): Its element 2 is empty."]),
        (b"NAD+SU+2002993::92'", b"NAD+SU+::92'", ["line 7, column 1, segment 7 (NAD): Its element 2:1 is empty."]),
        (
            b"UNS+S'\n",
            b"",
            [
                "line 24, column 1, segment 24 (UNT): Its count of segments is not right: it has to be 23.",
                "line 22, column 1, segment 22 (MOA): UNS is missing before it.",
            ],
        ),
        (
            b"TAX+7+VAT'\n",
            b"FTX+AAA'\n",
            ["line 24, column 1, segment 24 (FTX): It is not expected here."],
        ),
        (
            b"INVOIC:D:97A",
            b"INVOIC:D:96A",
            ["line 2, column 1, segment 2 (UNH): Its type or version is not INVOIC D 97A."],
        ),
        (b"UNT+24+1'", b"UNT+24+2'", ["line 25, column 1, segment 25 (UNT): Its reference is not that of its UNH."]),
        (
            b"UNZ+1+",
            b"UNZ+2+",
            ["line 26, column 1, segment 26 (UNZ): Its count of groups or messages is not right: it has to be 1."],
        ),
        (b"UNH+1+INVOIC:D:97A:UN'\n", b"", None),
        (b"UNT+24+1'\n", b"", None),
    ],
)
def test_what_does_not_fit_of_an_invoice(before: bytes, after: bytes, sentences: list[str] | None) -> None:
    content = edifact("edifact-invoice1.edi").replace(b"\r\n", b"\n")
    assert before in content
    found = said("edi", {"invoic.txt": INVOIC}, content.replace(before, after))
    assert found
    assert sentences is None or found == sentences


X12 = (
    "ISA*00*          *00*          *ZZ*SENDER         *ZZ*RECEIVER       *260101*1200*U*00401*000000001*0*P*>~"
    "GS*PO*S*R*20260101*1200*7*X*004010~ST*850*0001~BEG*00*SA*1~REF*DP*38~SE*4*0001~GE*1*7~IEA*1*000000001~"
)


@pytest.mark.parametrize(
    ("before", "after", "place", "sentence"),
    [
        ("", "", "", ""),
        ("BEG*00*SA*1", "BEG*00*SA*", "BEG*", "segment 4 (BEG): Its element 3 is empty."),
        ("004010~ST", "005010~ST", "ST*850", "segment 3 (ST): Its type or version is not 850 004010."),
        ("GE*1*7", "GE*1*8", "GE*1", "segment 7 (GE): Its reference is not that of its GS."),
        ("SE*4*", "SE*5*", "SE*4", "segment 6 (SE): Its count of segments is not right: it has to be 4."),
        ("IEA*1*000000001~", "", "ISA", "segment 1 (ISA): ISA is not closed: IEA is missing."),
    ],
)
def test_x12(before: str, after: str, place: str, sentence: str) -> None:
    guide = {"850.txt": "850 004010\n0200 BEG M 1 needs 1 2 3\n0500 REF O 9999\n"}
    expected = [f"line 1, column {X12.index(place) + 1}, {sentence}"] if place else []
    assert said("edi", guide, X12.replace(before, after).encode()) == expected


SEGMENTS = ["UNB+a+b+c+d+1", "UNH+1+INVOIC:D:97A", "BGM+1+2", "DTM+1", "UNT+2+1", "UNZ+1+1", "", "x"]


@given(st.lists(st.sampled_from(SEGMENTS)))
def test_any_sequence_of_segments_is_answered_with_places(segments: list[str]) -> None:
    content = "\n".join(f"{one}'" for one in segments).encode()
    for fault in read("edi", {"invoic.txt": INVOIC}).faults(content, ""):
        assert fault.text.endswith(".")
        assert fault.line <= len(segments) + 1


@given(st.binary(max_size=200), st.sampled_from(["xml", "json", "edi"]))
def test_no_document_makes_a_check_fail(content: bytes, kind: str) -> None:
    schema = {"xml": {"b.xsd": B_XSD}, "json": {"a.json": '{"type": "object"}'}, "edi": {"a.txt": INVOIC}}[kind]
    for fault in document_schemas.read(kind, schema).faults(content, ""):
        assert isinstance(fault, edi_messages.Fault)
        assert isinstance(fault.text, str)
        assert Path(fault.path)
