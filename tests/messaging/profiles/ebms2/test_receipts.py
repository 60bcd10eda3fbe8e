"""Signed acknowledgements: what they prove."""

from __future__ import annotations

import base64
import hashlib

import pytest
from lxml import etree

from messaging.profiles.ebms2.signatures import (
    Reason,
    SignatureMethod,
    SignatureRefused,
    covers,
    reference_in,
    references_of,
    sign,
    verify,
)
from tests import FIXTURES
from tests.messaging.profiles.ebms2.signed import MESSAGE, NOW, PARTS, fixture, message, signer

DS = "{http://www.w3.org/2000/09/xmldsig#}"
ACKNOWLEDGEMENT = b"""<SOAP:Envelope xmlns:SOAP="http://schemas.xmlsoap.org/soap/envelope/"
 xmlns:eb="http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd"><SOAP:Header>
<eb:Acknowledgment SOAP:mustUnderstand="1" eb:version="2.0"><eb:RefToMessageId>m-1@buyer.example</eb:RefToMessageId>
</eb:Acknowledgment></SOAP:Header><SOAP:Body/></SOAP:Envelope>"""


def acknowledged(document: bytes) -> bytes:
    """The seller's signed acknowledgement of a message."""
    text = ACKNOWLEDGEMENT.replace(b"</eb:Acknowledgment>", b"".join(references_of(document)) + b"</eb:Acknowledgment>")
    seller = signer("seller", "SECP256R1")
    return sign(text, {}, seller.key, seller.certificate, SignatureMethod.ECDSA_SHA256)


def in_acknowledgement(document: bytes) -> list[etree._Element]:
    (acknowledgement,) = etree.fromstring(document).iter("{*}Acknowledgment")
    return acknowledgement.findall(f"{DS}Reference")


def test_an_acknowledgement_proves_what_was_sent() -> None:
    sent = verify(message(), PARTS, [signer().certificate], at=NOW)
    receipt = acknowledged(message())
    # It can be verified itself, with references inside that are not its own.
    verified = verify(receipt, {}, [signer("seller", "SECP256R1").certificate], at=NOW)
    assert [one.uri for one in verified.references] == [""]
    copied = in_acknowledgement(receipt)
    assert covers(copied, sent.references)
    assert [reference_in(one) for one in copied] == list(sent.references)
    assert not covers(copied, verified.references)


def copies(document: bytes) -> list[etree._Element]:
    return [etree.fromstring(one) for one in references_of(document)]


def test_a_copied_reference_declares_the_prefix_of_its_xpath() -> None:
    """Wherever the message declared it: here at the top, as some do."""
    envelope, _parts = fixture("nav-smtp-delivered.msg")
    declared = b' xmlns:SOAP-ENV="http://schemas.xmlsoap.org/soap/envelope/"'
    above = envelope.replace(declared, b"").replace(b"<SOAP:Envelope", b"<SOAP:Envelope" + declared, 1)
    for document in (message(), envelope, above):
        (xpath,) = copies(document)[0].iter(f"{DS}XPath")
        assert xpath.nsmap["SOAP-ENV"] == "http://schemas.xmlsoap.org/soap/envelope/"
        assert b"</eb:" not in references_of(document)[0]


def test_what_does_not_prove_it() -> None:
    sent = verify(message(), PARTS, [signer().certificate], at=NOW).references
    document, order, drawing = copies(message())
    again = copies(message())[1]
    other = copies(message(document=MESSAGE.replace(b"m-1@", b"m-2@")))[0]
    assert covers([document, order, drawing], sent)
    assert covers([drawing, document, order], sent)
    assert not covers([], sent)
    assert not covers([document, order], sent)
    assert not covers([order, drawing], sent)
    assert not covers([document, order, drawing, again], sent)
    assert not covers([other, order, drawing], sent)
    assert not covers([document, order, drawing], sent[:2])
    assert not covers([], [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'URI="cid:order@buyer.example"', b'URI="cid:another@buyer.example"'),
        (b'URI="cid:order@buyer.example"', b'URI="http://buyer.example"'),
        (b'URI="cid:order@buyer.example"', b""),
        (b"xmlenc#sha256", b"xmlenc#sha512"),
        (b"<ds:DigestValue>", b"<ds:DigestValue>?"),
        (b"<ds:DigestValue>", b"<ds:DigestValue>AAAA"),
        (b"ds:DigestMethod", b"ds:DigestMethods"),
    ],
)
def test_references_that_say_something_else(old: bytes, new: bytes) -> None:
    sent = verify(message(), PARTS, [signer().certificate], at=NOW).references
    document, order, drawing = copies(message())
    text = etree.tostring(order)
    assert old in text
    assert not covers([document, etree.fromstring(text.replace(old, new)), drawing], sent)


def test_a_percent_encoded_reference_is_the_same_part() -> None:
    sent = verify(message(), PARTS, [signer().certificate], at=NOW).references
    document, order, drawing = copies(message())
    order.set("URI", "cid:order%40buyer.example")
    assert covers([document, order, drawing], sent)


def test_an_acknowledgement_for_the_next_hop_is_not_covered_and_says_so() -> None:
    """Its references prove nothing then: anybody on the way can write them."""
    root = etree.fromstring(ACKNOWLEDGEMENT)
    root[0][0].set("{http://schemas.xmlsoap.org/soap/envelope/}actor", "urn:oasis:names:tc:ebxml-msg:actor:nextMSH")
    one = signer()
    verified = verify(sign(etree.tostring(root), {}, one.key, one.certificate), {}, [one.certificate], at=NOW)
    assert [name.rpartition("}")[2] for name in verified.uncovered] == ["Acknowledgment"]


def test_the_references_of_an_unsigned_message() -> None:
    with pytest.raises(SignatureRefused) as refused:
        references_of(MESSAGE)
    assert refused.value.reason is Reason.UNSIGNED


def test_a_genuine_acknowledgement_has_a_reference_in_its_own_form() -> None:
    """Its digest was replaced by a word, so it proves nothing; the reference is found all the same."""
    document = (FIXTURES / "ebms2" / "nav-acknowledgment.xml").read_bytes()
    (reference,) = in_acknowledgement(document)
    assert reference.get("URI") == ""
    sent = verify(message(), PARTS, [signer().certificate], at=NOW).references
    assert not covers([reference], sent[:1])
    value = reference.find(f"{DS}DigestValue")
    assert value is not None
    value.text = "\n" + base64.b64encode(sent[0].digest).decode() + "\n"
    assert covers([reference], sent[:1])
    assert hashlib.sha256(PARTS["order@buyer.example"]).digest() == sent[1].digest
