"""What a signature refers to, how it is computed, and its shape: one of each is taken, and nothing else."""

from __future__ import annotations

import base64
import itertools
import re

import pytest
from lxml import etree

from messaging.profiles.ebms2.signatures import DigestMethod, Reason, SignatureMethod, verify
from messaging.profiles.ebms2.signatures.names import C14N, ENVELOPED, XPATH, exclusion
from tests.messaging.profiles.ebms2.edited import DS, EB, SOAP, Change, edited, refusal, signature_of, signed_anew
from tests.messaging.profiles.ebms2.signed import MESSAGE, NEXT, NOW, PARTS, message, signer

# --- what is referred to


def references(root: etree._Element) -> list[etree._Element]:
    return signature_of(root).findall(f"{DS}SignedInfo/{DS}Reference")


def without_reference(number: int) -> Change:
    def change(root: etree._Element) -> None:
        one = references(root)[number]
        signature_of(root)[0].remove(one)

    return change


def with_uri(number: int, uri: str) -> Change:
    def change(root: etree._Element) -> None:
        references(root)[number].set("URI", uri)

    return change


def without_uri(root: etree._Element) -> None:
    del references(root)[0].attrib["URI"]


def doubled_reference(number: int, times: int = 1) -> Change:
    def change(root: etree._Element) -> None:
        for _ in range(times):
            signature_of(root)[0].append(etree.fromstring(etree.tostring(references(root)[number])))

    return change


def by_id(root: etree._Element) -> None:
    """The header is signed by its Id, and the document is not."""
    root[0].set("Id", "h")
    root[0].set("{http://www.w3.org/XML/1998/namespace}id", "h")
    references(root)[0].set("URI", "#h")


REFERENCES = [
    (without_reference(0), Reason.DOCUMENT_NOT_REFERENCED),
    (without_reference(1), Reason.PART_NOT_REFERENCED),
    (without_reference(2), Reason.PART_NOT_REFERENCED),
    (without_uri, Reason.FOREIGN_REFERENCE),
    (by_id, Reason.FOREIGN_REFERENCE),
    (with_uri(0, "#xpointer(/)"), Reason.FOREIGN_REFERENCE),
    (with_uri(1, "file:///etc/passwd"), Reason.FOREIGN_REFERENCE),
    (with_uri(1, "http://127.0.0.1/"), Reason.FOREIGN_REFERENCE),
    (with_uri(1, "cid:order@buyer.example#x"), Reason.FOREIGN_REFERENCE),
    (with_uri(1, "cid:other@buyer.example"), Reason.FOREIGN_REFERENCE),
    (with_uri(1, "cid:"), Reason.FOREIGN_REFERENCE),
    (with_uri(1, "cid:drawing@buyer.example"), Reason.FOREIGN_REFERENCE),
    (with_uri(1, "cid:drawing%40buyer.example"), Reason.FOREIGN_REFERENCE),
    (doubled_reference(0), Reason.FOREIGN_REFERENCE),
    (doubled_reference(1), Reason.FOREIGN_REFERENCE),
    (doubled_reference(1, 300), Reason.FOREIGN_REFERENCE),
]


@pytest.mark.parametrize(("change", "reason"), REFERENCES)
def test_exactly_the_document_and_its_parts_are_referred_to(change: Change, reason: Reason) -> None:
    assert refusal(edited(change)) is reason


@pytest.mark.parametrize("cid", ["order%40buyer.example", "ORDER@buyer.example"])
def test_a_percent_encoded_reference_is_the_same_part(cid: str) -> None:
    """RFC 2392; the case of letters counts."""
    document = edited(with_uri(1, f"cid:{cid}"))
    assert refusal(document) is (Reason.NOT_INTACT if "%" in cid else Reason.FOREIGN_REFERENCE)


# --- how it is computed


def with_transforms(*algorithms: str, number: int = 0) -> Change:
    def change(root: etree._Element) -> None:
        reference = references(root)[number]
        old = reference.find(f"{DS}Transforms")
        transforms = etree.Element(f"{DS}Transforms")
        for algorithm in algorithms:
            step = etree.SubElement(transforms, f"{DS}Transform", Algorithm=algorithm)
            if algorithm == XPATH:
                xpath = etree.SubElement(step, f"{DS}XPath", nsmap={"SOAP-ENV": SOAP[1:-1]})
                xpath.text = exclusion("SOAP-ENV")
        if old is not None:
            reference.remove(old)
        reference.insert(0, transforms)

    return change


def with_xpath(text: str, prefix: str = "SOAP-ENV", namespace: str = SOAP[1:-1]) -> Change:
    def change(root: etree._Element) -> None:
        (step,) = signature_of(root).findall(f".//{DS}Transform[{DS}XPath]")
        step.remove(step[0])
        etree.SubElement(step, f"{DS}XPath", nsmap={prefix: namespace}).text = text

    return change


def with_child(name: str) -> Change:
    def change(root: etree._Element) -> None:
        (transform, *_others) = signature_of(root).findall(f".//{DS}Transform")
        etree.SubElement(transform, name)

    return change


XSLT = "http://www.w3.org/TR/1999/REC-xslt-19991116"
FILTER2 = "http://www.w3.org/2002/06/xmldsig-filter2"
BASE64 = "http://www.w3.org/2000/09/xmldsig#base64"
EXCLUSIVE = "http://www.w3.org/2001/10/xml-exc-c14n#"
RIGHT = exclusion("SOAP-ENV")


@pytest.mark.parametrize(
    "change",
    [
        with_transforms(),
        with_transforms(C14N),
        with_transforms(C14N, ENVELOPED),
        with_transforms(XPATH, ENVELOPED, C14N),
        with_transforms(ENVELOPED, XSLT),
        with_transforms(ENVELOPED, FILTER2, C14N),
        with_transforms(ENVELOPED, EXCLUSIVE),
        with_transforms(ENVELOPED, f"{C14N}#WithComments"),
        with_transforms(ENVELOPED, XPATH, XPATH, C14N),
        with_transforms(ENVELOPED, XPATH, C14N, C14N),
        with_transforms(ENVELOPED, *[XPATH] * 300, C14N),
        with_transforms(ENVELOPED, *[C14N] * 1000),
        with_transforms(C14N, number=1),
        with_transforms(BASE64, number=1),
        with_transforms(XSLT, number=2),
        with_transforms(number=1),
        with_xpath("false()"),
        with_xpath("not(ancestor-or-self::SOAP-ENV:Body)"),
        with_xpath(RIGHT + " and not(self::x)"),
        with_xpath(RIGHT.replace(NEXT, "urn:oasis:names:tc:ebxml-msg:actor:toPartyMSH")),
        with_xpath(RIGHT.replace("ancestor-or-self", "self")),
        with_xpath(RIGHT, namespace="urn:other"),
        with_xpath(RIGHT.replace("SOAP-ENV", "other")),
        with_xpath(""),
        with_child(f"{DS}XPath"),
        with_child(f"{EB}Anything"),
    ],
)
def test_only_the_transforms_of_the_standard(change: Change) -> None:
    assert refusal(edited(change)) is Reason.FORBIDDEN_TRANSFORM


@pytest.mark.parametrize(
    "text",
    [
        RIGHT,
        f"\n  {RIGHT}\n ",
        RIGHT.replace(" | ", "|"),
        RIGHT.replace('"', "'"),
        RIGHT.replace("[", " [ ").replace("SOAP-ENV", "S"),
    ],
)
def test_the_same_xpath_written_otherwise(text: str) -> None:
    prefix = "S" if "@S:" in text else "SOAP-ENV"
    document = signed_anew(with_xpath(text, prefix))
    assert verify(document, PARTS, [signer().certificate], at=NOW).references


@pytest.mark.parametrize("transforms", [(ENVELOPED,), (ENVELOPED, C14N), (ENVELOPED, XPATH), (ENVELOPED, XPATH, C14N)])
def test_the_transforms_that_are_taken(transforms: tuple[str, ...]) -> None:
    document = signed_anew(with_transforms(*transforms))
    assert verify(document, PARTS, [signer().certificate], at=NOW).references


def with_algorithm(element: str, algorithm: str) -> Change:
    def change(root: etree._Element) -> None:
        found = signature_of(root).find(f".//{DS}{element}")
        assert found is not None
        found.set("Algorithm", algorithm)

    return change


@pytest.mark.parametrize(
    ("element", "algorithm", "reason"),
    [
        ("SignatureMethod", SignatureMethod.RSA_SHA1, Reason.WEAK_ALGORITHM),
        ("SignatureMethod", "http://www.w3.org/2001/04/xmldsig-more#rsa-md5", Reason.WEAK_ALGORITHM),
        ("SignatureMethod", "http://www.w3.org/2001/04/xmldsig-more#hmac-sha256", Reason.WEAK_ALGORITHM),
        ("SignatureMethod", "http://www.w3.org/2000/09/xmldsig#dsa-sha1", Reason.WEAK_ALGORITHM),
        ("SignatureMethod", DigestMethod.SHA256, Reason.WEAK_ALGORITHM),
        ("SignatureMethod", SignatureMethod.ECDSA_SHA256, Reason.FOREIGN_CERTIFICATE),
        ("SignatureMethod", "", Reason.WEAK_ALGORITHM),
        ("DigestMethod", DigestMethod.SHA1, Reason.WEAK_ALGORITHM),
        ("DigestMethod", "http://www.w3.org/2001/04/xmldsig-more#md5", Reason.WEAK_ALGORITHM),
        ("DigestMethod", SignatureMethod.RSA_SHA256, Reason.WEAK_ALGORITHM),
        ("CanonicalizationMethod", EXCLUSIVE, Reason.FORBIDDEN_TRANSFORM),
        ("CanonicalizationMethod", f"{C14N}#WithComments", Reason.FORBIDDEN_TRANSFORM),
        ("CanonicalizationMethod", XSLT, Reason.FORBIDDEN_TRANSFORM),
    ],
)
def test_algorithms_that_are_not_allowed(element: str, algorithm: str, reason: Reason) -> None:
    assert refusal(edited(with_algorithm(element, algorithm))) is reason


# --- the signature itself


def within(pattern: str, replacement: str) -> bytes:
    document, count = re.subn(pattern, replacement, message().decode(), count=1, flags=re.DOTALL)
    assert count == 1
    return document.encode()


@pytest.mark.parametrize(
    "document",
    [
        within("</ds:Signature>", "<ds:Object><x/></ds:Object></ds:Signature>"),
        within("<ds:KeyInfo>", "<ds:Object/><ds:KeyInfo>"),
        within("<ds:SignedInfo>", "<ds:SignedInfo><x/>"),
        within("(<ds:SignedInfo>.*</ds:SignedInfo>)", r"\1\1"),
        within("<ds:SignatureValue>.*</ds:SignatureValue>", ""),
        within("<ds:SignatureValue>.*</ds:SignatureValue>", "<ds:SignatureValue> </ds:SignatureValue>"),
        within("<ds:DigestValue>", "<ds:DigestValue>!"),
        within("<ds:DigestValue>", "<ds:DigestValue><!-- x -->"),
        within("<ds:DigestMethod", "<ds:DigestMethod/><ds:DigestMethod"),
        within("<ds:DigestValue>", "<ds:DigestValue/><ds:DigestValue>"),
        within("<ds:KeyInfo>", "<?x?><ds:KeyInfo>"),
        within("<ds:X509Certificate>", "<ds:X509Certificate>&#228;"),
        within('<ds:Reference URI=""', '<ds:Reference xmlns:x="urn:x" x:URI="file:///etc/passwd" URI=""'),
        within("<ds:SignatureMethod ", '<ds:SignatureMethod xmlns:x="urn:x" x:Algorithm="urn:y" '),
    ],
    ids=itertools.count(),
)
def test_signatures_of_another_shape(document: bytes) -> None:
    assert refusal(document) is Reason.MALFORMED


def test_a_parameter_of_an_algorithm_is_none() -> None:
    short = within(
        "(<ds:SignatureMethod [^>]*)/>", r"\1><ds:HMACOutputLength>1</ds:HMACOutputLength></ds:SignatureMethod>"
    )
    assert refusal(short) is Reason.WEAK_ALGORITHM


@pytest.mark.parametrize("value", ["AA==", "MIIB", base64.b64encode(bytes(256)).decode(), "?"])
def test_a_value_that_is_no_signature(value: str) -> None:
    document = within("<ds:SignatureValue>.*</ds:SignatureValue>", f"<ds:SignatureValue>{value}</ds:SignatureValue>")
    assert refusal(document) is Reason.NOT_INTACT


def test_a_signature_of_another_message_does_not_fit() -> None:
    other = message(document=MESSAGE.replace(b"m-1@", b"m-2@"))
    signature = re.search(rb"<ds:Signature .*</ds:Signature>", other, re.DOTALL)
    assert signature is not None
    document = re.sub(rb"<ds:Signature .*</ds:Signature>", lambda _match: signature[0], message(), flags=re.DOTALL)
    assert refusal(document) is Reason.NOT_INTACT
