"""Mail as it comes from relays: heads, transfer encodings, results of checks, reports."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging.protocol.codecs import ebxml
from messaging.protocol.codecs.mail import (
    Action,
    Heading,
    author,
    entity,
    is_vouched_for,
    mailbox_of,
    read_mail,
    read_report,
    write_mail,
)
from messaging.protocol.codecs.mime import decode_header_value, decode_multipart, encode_part_head
from messaging.protocol.errors import EncodeError, NotAMessage
from tests import FIXTURES
from tests.messaging.entrance.mail.reports import report

HEADING = Heading("a@us.example", "b@them.example", "att_1@us.example", datetime(2026, 12, 31, 23, 59, tzinfo=UTC))


def multipart(boundary: str, *contents: bytes) -> tuple[str, bytes]:
    """A stored message as our writer makes it."""
    body = b""
    for number, content in enumerate(contents):
        head = encode_part_head(f"p{number}@us.example", "application/octet-stream", len(content))
        body += f"{'' if not number else chr(13) + chr(10)}--{boundary}\r\n{head}\r\n".encode() + content
    body += f"\r\n--{boundary}--\r\n".encode()
    return f'multipart/related; type="application/vnd.eb+xml"; boundary="{boundary}"', body


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4))
def test_what_is_mailed_comes_back_octet_by_octet(contents: list[bytes]) -> None:
    content_type, body = multipart("rm080-q7", *contents)
    octets = write_mail(HEADING, content_type, body)
    assert octets.isascii()
    assert entity(read_mail(octets)) == (content_type, body)


def test_a_message_of_one_part_goes_in_base64_too() -> None:
    octets = write_mail(HEADING, "application/xml", "<ä/>".encode())
    assert entity(read_mail(octets)) == ("application/xml", "<ä/>".encode())


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/related", b"--x\r\n\r\n--x--\r\n"),
        ('multipart/related; boundary="x"', b"no delimiter"),
        ("text/plain\r\nBcc: everybody@elsewhere.example", b""),
    ],
)
def test_what_mail_cannot_carry_is_our_mistake(content_type: str, body: bytes) -> None:
    with pytest.raises(EncodeError):
        write_mail(HEADING, content_type, body)


def test_the_example_of_the_wire_form() -> None:
    content_type, body = entity(read_mail((FIXTURES / "ebxml-2000" / "06-normal.smtp").read_bytes()))
    envelope = ebxml.decode(content_type, body)
    assert envelope.message_id == "20001002-103000-0001@msh.buyer.example"
    assert envelope.defects == ()
    assert envelope.payloads[0].content.endswith(b"</PurchaseOrder>\r\n")
    assert envelope.payloads[0].offset is not None, "a payload lies in the body as it is"


def test_a_mail_as_real_relays_left_it() -> None:
    mail = read_mail((FIXTURES / "ebms2" / "nav-smtp-delivered.msg").read_bytes())
    assert author(mail) == "flytitnhndevelop@gmail.com"
    assert mail.first("soapaction") == '"ebXML"'
    content_type, body = entity(mail)
    media_type, parameters = decode_header_value(content_type)
    assert (media_type, parameters["start"]) == ("multipart/related", "<ZTTPT8UKUKU4.U2O3MHW7UL03@speare.no>")
    envelope, payload = decode_multipart(body, parameters["boundary"])
    assert envelope.content.startswith(b"<SOAP:Envelope ")
    assert payload.offset is not None
    assert not payload.damage
    # Sent through SendGrid for a Gmail address: dkim and spf passed, and for neither of them is that the author.
    assert not is_vouched_for(mail, "ppops.net", author(mail))
    assert is_vouched_for(mail, "ppops.net", "orders@sendgrid.net")


def test_a_damaged_part_is_left_for_the_reader_to_complain_about() -> None:
    head = b'Content-Type: multipart/related; boundary="x"\r\n\r\n'
    body = b"--x\r\nContent-Transfer-Encoding: base64\r\n\r\nPE!\r\n--x--\r\n"
    assert entity(read_mail(head + body)) == ('multipart/related; boundary="x"', body)


def test_a_content_that_holds_the_boundary_is_not_unpacked() -> None:
    content = base64.b64encode(b"a\r\n--x--\r\nb")
    body = b"--x\r\nContent-Transfer-Encoding: base64\r\n\r\n" + content + b"\r\n--x--\r\n"
    octets = b'Content-Type: multipart/related; boundary="x"\r\n\r\n' + body
    assert entity(read_mail(octets))[1] == body


def test_a_whole_mail_in_base64_is_unpacked_first() -> None:
    content_type, body = multipart("x", b"one")
    octets = f"Content-Type: {content_type}\r\nContent-Transfer-Encoding: BASE64\r\n\r\n".encode()
    assert entity(read_mail(octets + base64.encodebytes(body))) == (content_type, body)
    with pytest.raises(NotAMessage, match="bad_transfer_encoding"):
        entity(read_mail(octets + b"!!"))


@given(st.binary(max_size=400))
def test_no_octets_break_the_reader(octets: bytes) -> None:
    mail = read_mail(octets)
    for attempt in (lambda: entity(mail), lambda: read_report(mail)):
        try:
            attempt()
        except NotAMessage:
            continue
    assert isinstance(author(mail), str)


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("orders@partner.example", "orders@partner.example"),
        ("Orders@Partner.EXAMPLE", "Orders@partner.example"),
        ("Order desk <orders@partner.example>", "orders@partner.example"),
        ('"Desk, order" <orders@partner.example>', "orders@partner.example"),
        ("orders@partner.example (order desk)", "orders@partner.example"),
        ("<orders@partner.example>", "orders@partner.example"),
        ("orders@partner.example, evil@evil.example", ""),
        ("orders@partner.example <evil@evil.example>", ""),
        ('"orders@partner.example" <evil@evil.example>', "evil@evil.example"),
        ("Group: orders@partner.example;", ""),
        ("<orders@partner.example> <evil@evil.example>", ""),
        ("orders", ""),
        ("", ""),
        ("a" * 5000 + "@partner.example", ""),
    ],
)
def test_the_author_is_one_address_or_nobody(value: str, address: str) -> None:
    assert mailbox_of(value) == address


def test_two_from_headers_are_nobody() -> None:
    assert author(read_mail(b"From: a@b.example\r\nFROM: a@b.example\r\n\r\n")) == ""


@pytest.mark.parametrize(
    ("results", "vouched"),
    [
        (["mx.us.example; dkim=pass header.d=partner.example"], True),
        (["MX.US.example 1; dkim=pass (good; really) header.d=Partner.Example header.s=x"], True),
        (["mx.us.example; spf=pass smtp.mailfrom=bounce@partner.example"], True),
        (["mx.us.example; spf=pass smtp.mailfrom=partner.example"], True),
        (["mx.us.example; dmarc=pass header.from=partner.example"], True),
        (["mx.us.example; dkim=fail; spf=none; dkim=pass header.i=@partner.example"], True),
        (["mx.us.example; dkim=pass header.d=partner.example", "mx.us.example; dkim=fail"], True),
        (["other.example; dkim=fail", "mx.us.example; dkim=pass header.d=partner.example"], True),
        # Only the topmost of the checker's own counts: what lies below came with the mail.
        (["mx.us.example; dkim=fail", "mx.us.example; dkim=pass header.d=partner.example"], False),
        (["mx.us.example; none"], False),
        (["mx.us.example.evil.example; dkim=pass header.d=partner.example"], False),
        (["mx.us.example; dkim=pass header.d=evil.example"], False),
        (["mx.us.example; dkim=pass header.d=notpartner.example"], False),
        (["mx.us.example; dkim=pass header.d=example"], False),
        (["mx.us.example; dkim=pass header.d=mail.partner.example"], False),
        (["mx.us.example; dkim=fail header.d=partner.example"], False),
        (["mx.us.example; spf=pass smtp.helo=partner.example"], False),
        (["mx.us.example; (dkim=pass header.d=partner.example)"], False),
        (['mx.us.example; dkim=pass reason="header.d=partner.example" header.d=evil.example'], False),
        (['mx.us.example; spf=pass smtp.mailfrom="a@partner.example"@evil.example'], False),
        (['mx.us.example; dkim=fail reason="x; dkim=pass header.d=partner.example"'], False),
        (["mx.us.example; dkim=pass (never ends header.d=partner.example"], False),
        ([], False),
    ],
)
def test_whose_word_counts_for_whom(results: list[str], vouched: bool) -> None:
    head = "".join(f"Authentication-Results: {value}\r\n" for value in results)
    mail = read_mail(f"{head}From: orders@partner.example\r\n\r\n".encode())
    assert is_vouched_for(mail, "mx.us.example", "orders@partner.example") is vouched
    assert not is_vouched_for(mail, "", "orders@partner.example")


def test_one_who_rules_a_domain_rules_what_is_below_it() -> None:
    mail = read_mail(b"Authentication-Results: mx; dkim=pass header.d=partner.example\r\n\r\n")
    assert is_vouched_for(mail, "mx", "msh@edi.partner.example")


# --- reports ---


def test_a_report_says_what_became_of_which_mail() -> None:
    found = read_report(read_mail(report("att_1@us.example", envelope_id="att_2")))
    assert found is not None
    assert (found.action, found.status, found.permanent) == (Action.FAILED, "5.1.1", True)
    assert found.diagnostic == "550 5.1.1 <msh@partner.example>: no such user"
    assert found.recipient == "msh@partner.example"
    assert found.names == ("att_2", "<att_1@us.example>")


@pytest.mark.parametrize(
    ("written", "action"),
    [
        ("failed", Action.FAILED),
        ("Delayed", Action.DELAYED),
        ("relayed", Action.DELIVERED),
        ("expanded", Action.DELIVERED),
    ],
)
def test_actions(written: str, action: Action) -> None:
    found = read_report(read_mail(report("att_1@us.example", action=written, status="4.4.7")))
    assert found is not None
    assert (found.action, found.permanent) == (action, False)


def test_of_several_recipients_the_worst_counts() -> None:
    one = b"Final-Recipient: rfc822; a@b\r\nAction: delivered\r\nStatus: 2.0.0\r\n\r\n"
    octets = report("att_1@us.example").replace(b"Final-Recipient", one + b"Final-Recipient", 1)
    found = read_report(read_mail(octets))
    assert found is not None
    assert (found.action, found.recipient) == (Action.FAILED, "msh@partner.example")


def test_a_returned_mail_is_found_by_its_own_head() -> None:
    original = b"From: a@b\r\nMessage-ID: <att_9@us.example>\r\n\r\nbody\r\nMessage-ID: <other@x>\r\n"
    octets = report().replace(b"--b--", b"--b\r\nContent-Type: message/rfc822\r\n\r\n" + original + b"\r\n--b--")
    found = read_report(read_mail(octets))
    assert found is not None
    assert found.names == ("<att_9@us.example>",)


def test_other_mails_are_no_reports() -> None:
    assert read_report(read_mail(b"From: a@b\r\nContent-Type: text/plain\r\n\r\nhello")) is None
    receipt = b'Content-Type: multipart/report; report-type=disposition-notification; boundary="b"\r\n\r\n'
    assert read_report(read_mail(receipt)) is None


def test_a_report_that_says_nothing_cannot_be_read() -> None:
    octets = (
        b'Content-Type: multipart/report; report-type=delivery-status; boundary="b"\r\n\r\n--b\r\n\r\nhm\r\n--b--\r\n'
    )
    with pytest.raises(NotAMessage, match="not_a_report"):
        read_report(read_mail(octets))
