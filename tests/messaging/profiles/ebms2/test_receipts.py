"""Signed acknowledgements: what they prove."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace

import pytest
from lxml import etree

from messaging.profiles.ebms2.signatures import covers, sign, verify
from messaging.protocol.codecs import ebms2
from messaging.protocol.envelope import Digest
from tests import FIXTURES
from tests.messaging.profiles.ebms2.signed import MESSAGE, NOW, PARTS, message, signer

XPATH = "http://www.w3.org/TR/1999/REC-xpath-19991116"


def test_what_does_not_prove_it() -> None:
    sent = ebms2.digests_of(message())
    document, order, drawing = sent
    other = ebms2.digests_of(message(document=MESSAGE.replace(b"m-1@", b"m-2@")))[0]
    assert covers([document, order, drawing], sent)
    assert covers([drawing, document, order], sent)
    assert not covers([], sent)
    assert not covers([document, order], sent)
    assert not covers([order, drawing], sent)
    assert not covers([document, order, drawing, drawing], sent)
    assert not covers([other, order, drawing], sent)
    assert not covers([document, order, drawing], sent[:2])
    assert not covers([], [])


@pytest.mark.parametrize(
    "change",
    [
        {"uri": "cid:another@buyer.example"},
        {"uri": "http://buyer.example"},
        {"uri": ""},
        {"method": "http://www.w3.org/2001/04/xmlenc#sha512"},
        {"method": ""},
        {"value": "?"},
        {"value": "AAAA"},
    ],
    ids=str,
)
def test_digests_that_say_something_else(change: dict[str, str]) -> None:
    sent = ebms2.digests_of(message())
    document, order, drawing = sent
    assert not covers([document, replace(order, **change), drawing], sent)


def test_a_percent_encoded_reference_is_the_same_part() -> None:
    sent = ebms2.digests_of(message())
    document, order, drawing = sent
    assert covers([document, replace(order, uri="cid:order%40buyer.example"), drawing], sent)


def test_digests_are_those_that_were_verified() -> None:
    verified = verify(message(), PARTS, [signer().certificate], at=NOW).references
    said = [(one.uri, one.method, base64.b64decode(one.value)) for one in ebms2.digests_of(message())]
    assert said == [(one.uri, one.method, one.digest) for one in verified]
    assert said[1][2] == hashlib.sha256(PARTS["order@buyer.example"]).digest()


def test_the_prefix_of_an_xpath_goes_along() -> None:
    """Wherever the message declared it: here at the top, as some do."""
    declared = b' xmlns:SOAP-ENV="http://schemas.xmlsoap.org/soap/envelope/"'
    above = message().replace(declared, b"").replace(b"<SOAP:Envelope", b"<SOAP:Envelope" + declared, 1)
    for document in (message(), above):
        (xpath,) = [one.parameters for one in ebms2.digests_of(document)[0].transforms if one.algorithm == XPATH]
        assert declared.decode() in xpath
    assert above != message()


def test_an_acknowledgement_for_the_next_hop_is_not_covered_and_says_so() -> None:
    """Its digests prove nothing then: anybody on the way can write them."""
    text = MESSAGE.replace(
        b"</SOAP:Header>",
        b'<eb:Acknowledgment SOAP:mustUnderstand="1" eb:version="2.0" '
        b'SOAP:actor="urn:oasis:names:tc:ebxml-msg:actor:nextMSH"/></SOAP:Header>',
    )
    one = signer()
    verified = verify(sign(text, {}, one.key, one.certificate), {}, [one.certificate], at=NOW)
    assert [name.rpartition("}")[2] for name in verified.uncovered] == ["Acknowledgment"]


def test_an_unsigned_message_has_no_digests() -> None:
    assert ebms2.digests_of(MESSAGE) == ()
    assert ebms2.digests_of(b"<nothing/>") == ()


def test_a_genuine_acknowledgement_has_a_digest_in_its_own_form() -> None:
    """Its value was replaced by a word, so it proves nothing; the reference is found all the same."""
    document = (FIXTURES / "ebms2" / "nav-acknowledgment.xml").read_bytes()
    (acknowledgment,) = ebms2.decode("text/xml", document).ebms.acknowledgments  # type: ignore[union-attr]
    (found,) = acknowledgment.digests
    assert found.uri == ""
    sent = ebms2.digests_of(message())[:1]
    assert not covers([found], sent)
    assert covers([replace(found, method=sent[0].method, value=sent[0].value)], sent)
    assert isinstance(found, Digest) and etree.QName(etree.fromstring(document)).localname == "Envelope"
