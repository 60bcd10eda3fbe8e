"""Document ids on the wire: nothing where there is none, read back as they were, and refused where they are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from messaging.protocol import document_ids
from messaging.protocol.codecs import ebxml, entity_file, mail
from messaging.protocol.codecs.ebxml_writer import header_document
from messaging.protocol.codecs.xml import Findings
from messaging.protocol.envelope import DEFAULT_LIMITS
from messaging.protocol.errors import EncodeError
from tests.protocol.codecs.samples import ORDER


def octets(document_id: str = "") -> tuple[str, bytes]:
    envelope = replace(ORDER, document_id=document_id)
    wire = ebxml.encode(envelope)
    return wire.content_type, wire.join([payload.content for payload in envelope.payloads])


@pytest.mark.parametrize("document_id", ["o", "order 1", "100%", 'a;b="c"', "x" * 512, "<order:1>"])
def test_w44_it_is_read_back_as_it_was(document_id: str) -> None:
    content_type, body = octets(document_id)
    assert ebxml.decode(content_type, body).document_id == document_id
    assert not ebxml.decode(content_type, body).defects


def test_w44_without_one_not_an_octet_is_more() -> None:
    plain, given = octets(), octets("order-1")
    assert b"Document-ID" not in plain[1]
    assert given[1].replace(b"RM-Document-ID: order-1\r\n", b"") == plain[1]
    assert given[0] == plain[0]


def test_w44_the_xml_says_nothing_of_it() -> None:
    """What the DTD of spec 1 knows is all that the header document has."""
    plain, given = (ebxml.decode(*octets(one)) for one in ("", "order-1"))
    assert header_document(given) == header_document(plain)


def test_w44_mail_and_files_keep_it() -> None:
    content_type, body = octets("order-1")
    found = entity_file.unpack(entity_file.pack(content_type, body))
    assert (found.content_type, found.body) == (content_type, body)


@pytest.mark.parametrize("bad", [" x", "x ", "a\tb", "a\nb", "é", "", "x" * 513])
def test_w44_what_is_none_cannot_be_written(bad: str) -> None:
    assert bool(document_ids.fault(bad, document_ids.MAX_WIRE))
    if bad:
        with pytest.raises(EncodeError, match="document id"):
            octets(bad)


@pytest.mark.parametrize(
    ("header", "found", "defects"),
    [
        ("", "", 0),
        (" \t", "", 0),
        (" order-1 ", "order-1", 0),
        ("100%", "100%", 0),
        ("100%25", "100%", 0),
        ("%C3%A9", "", 1),
        ("%FF", "", 1),
        ("a%0Ab", "", 1),
        ("%20a", "", 1),
        ("x" * 512, "x" * 512, 0),
        ("x" * 513, "", 1),
    ],
)
def test_w44_the_header_is_read_tolerantly_and_its_value_strictly(header: str, found: str, defects: int) -> None:
    findings = Findings(DEFAULT_LIMITS)
    assert document_ids.read_header(header, findings) == found
    assert len(findings.defects) == defects


@pytest.mark.parametrize(
    ("path", "kind"),
    [("//Order/ID", "xml"), ("/Order/@id", "xml"), ("$.id", "json"), ("$..lines[0].id", "json"), ("BGM+2", "edi")],
)
def test_w18_a_path_says_by_its_form_which_documents_it_is_for(path: str, kind: str) -> None:
    document_ids.check_path(path)
    assert document_ids.kind_of_path(path) == kind


@pytest.mark.parametrize("path", ["//Order[", "$", "$.", "count(//Order)", "//o:Order", "BGM+"])
def test_w18_a_path_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"such as|leads to"):
        document_ids.check_path(path)


def test_w18_the_first_document_of_a_message_that_has_one_counts() -> None:
    documents = [(b"<Cover/>", "application/xml"), (b'{"ID": 1}', "application/json"), (b"<ID>7</ID>", "text/xml")]
    assert document_ids.in_documents("//ID", documents) == "7"
    assert document_ids.in_documents("$.ID", documents) == "1"
    assert document_ids.in_documents("//Other", documents) == ""
    assert document_ids.in_documents("//ID", [(b"<!DOCTYPE a><ID>7</ID>", "text/xml")]) == ""


def test_w44_mail_writes_the_part_header() -> None:
    content_type, body = octets("order-1")
    heading = mail.Heading("a@a.example", "b@b.example", "m@a.example", ORDER.timestamp)
    posted = mail.write_mail(heading, content_type, body)
    assert b"RM-Document-ID: order-1\r\n" in posted
    assert mail.entity(mail.read_mail(posted)) == (content_type, body)
