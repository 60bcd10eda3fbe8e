"""Signed messages: what is made can be checked, what others signed, too, and every change is refused."""

from __future__ import annotations

import base64
import gc
import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import xmlsec
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from messaging.profiles.ebms2.signatures import (
    STRONG,
    CannotSign,
    DigestMethod,
    Reason,
    SignatureMethod,
    SignatureRefused,
    Verified,
    sign,
    verify,
)
from messaging.profiles.ebms2.signatures.parts import Part, cid_of, uri_of
from messaging.protocol.codecs.xml import parse_document
from tests import FIXTURES
from tests.messaging.profiles.ebms2.signed import (
    BEGIN,
    END,
    MESSAGE,
    NOW,
    PARTS,
    fixture,
    message,
    signer,
)

WITH_SHA1 = {*STRONG, SignatureMethod.RSA_SHA1, DigestMethod.SHA1}


def check(document: bytes, parts: dict[str, bytes] = PARTS, at: datetime = NOW, **more: object) -> Verified:
    return verify(document, parts, [signer().certificate], at=at, **more)  # type: ignore[arg-type]


def refusal(document: bytes, parts: dict[str, bytes] = PARTS, **more: object) -> Reason:
    with pytest.raises(SignatureRefused) as refused:
        check(document, parts, **more)  # type: ignore[arg-type]
    assert refused.value.detail
    return refused.value.reason


def changed(old: bytes, new: bytes, document: bytes = b"") -> bytes:
    document = document or message()
    assert document.count(old) == 1, old
    return document.replace(old, new)


# --- what is made can be checked


@pytest.mark.parametrize("kind", ["rsa2048", "rsa3072", "SECP256R1", "SECP384R1"])
def test_what_is_signed_is_verified(kind: str) -> None:
    one = signer("buyer", kind)
    verified = verify(message("buyer", kind), PARTS, [one.certificate], at=NOW)
    assert verified.fingerprint == hashlib.sha256(one.certificate).hexdigest()
    assert [one.uri for one in verified.references] == ["", *(f"cid:{cid}" for cid in PARTS)]
    digests = [hashlib.sha256(part).digest() for part in PARTS.values()]
    assert [one.digest for one in verified.references[1:]] == digests
    assert {one.method for one in verified.references} == {DigestMethod.SHA256}
    assert verified.uncovered == ()


def test_the_signature_has_exactly_the_transforms_of_the_standard() -> None:
    """Section 4.1.3, and the place of the signature (section 4.1.1)."""
    root = parse_document(message())
    ds = "{http://www.w3.org/2000/09/xmldsig#}"
    signature = root[0][-1]
    assert signature.tag == f"{ds}Signature"
    document, *parts = signature.findall(f"{ds}SignedInfo/{ds}Reference")
    assert document.get("URI") == ""
    assert [step.get("Algorithm") for step in document.iter(f"{ds}Transform")] == [
        "http://www.w3.org/2000/09/xmldsig#enveloped-signature",
        "http://www.w3.org/TR/1999/REC-xpath-19991116",
        "http://www.w3.org/TR/2001/REC-xml-c14n-20010315",
    ]
    xpath = document.find(f".//{ds}XPath")
    assert xpath is not None and xpath.nsmap["SOAP-ENV"] == "http://schemas.xmlsoap.org/soap/envelope/"
    assert xpath.text == (
        'not(ancestor-or-self::node()[@SOAP-ENV:actor="urn:oasis:names:tc:ebxml-msg:actor:nextMSH"] | '
        'ancestor-or-self::node()[@SOAP-ENV:actor="http://schemas.xmlsoap.org/soap/actor/next"])'
    )
    assert all(part.find(f"{ds}Transforms") is None for part in parts)
    # Nothing else changed.
    root[0].remove(signature)
    assert etree.tostring(root, method="c14n") == etree.tostring(parse_document(MESSAGE), method="c14n")


def test_sha1_only_when_told() -> None:
    one = signer()
    document = sign(MESSAGE, PARTS, one.key, one.certificate, SignatureMethod.RSA_SHA1, DigestMethod.SHA1)
    assert refusal(document) is Reason.WEAK_ALGORITHM
    assert (
        check(document, allowed=WITH_SHA1).references[1].digest == hashlib.sha1(PARTS["order@buyer.example"]).digest()
    )
    # A strong signature over weak digests is weak, and the other way round.
    mixed = sign(MESSAGE, PARTS, one.key, one.certificate, digest=DigestMethod.SHA1)
    assert refusal(mixed) is Reason.WEAK_ALGORITHM
    mixed = sign(MESSAGE, PARTS, one.key, one.certificate, SignatureMethod.RSA_SHA1)
    assert refusal(mixed) is Reason.WEAK_ALGORITHM


def test_a_message_without_payloads() -> None:
    one = signer()
    document = sign(MESSAGE, {}, one.key, one.certificate)
    assert [one.uri for one in check(document, {}).references] == [""]
    assert refusal(document) is Reason.PART_NOT_REFERENCED


@pytest.mark.parametrize("cid", ["a b@c", "50%@x", "ä@x", "a+b=c@x", "<x>@y", "a#b@c", "a%40b"])
def test_content_ids_of_all_kinds(cid: str) -> None:
    """RFC 2392: percent-encoded in the URI; compared decoded."""
    assert cid_of(uri_of(cid)) == cid
    one = signer()
    document = sign(MESSAGE, {cid: b"x"}, one.key, one.certificate)
    assert check(document, {cid: b"x"}).references[1].cid == cid
    assert refusal(document, {cid: b"y"}) is Reason.NOT_INTACT


def test_a_large_part_is_read_piece_by_piece() -> None:
    """Nothing of it is kept: each piece can go before the next comes."""
    pieces = [b"x" * 100_000, b"", b"y" * 3, b"z" * 70_000] * 20
    alive = 0
    most = 0

    def reading() -> Iterator[bytes]:
        nonlocal alive, most
        for piece in pieces:
            alive += 1
            most = max(most, alive)
            yield bytes(piece)
            alive -= 1

    one = signer()
    document = sign(MESSAGE, {"large@x": reading()}, one.key, one.certificate)
    found = verify(document, {"large@x": reading()}, [one.certificate], at=NOW)
    assert found.references[1].digest == hashlib.sha256(b"".join(pieces)).digest()
    assert most == 1


def test_parts_that_cannot_be_read_say_so_themselves() -> None:
    def broken() -> Iterator[bytes]:
        yield b"x"
        raise OSError("the disk is gone")

    class Unopened:
        def __iter__(self) -> Iterator[bytes]:
            raise OSError("the disk is gone")

    parts: dict[str, Part]
    for part in (broken(), Unopened()):
        parts = {**PARTS, "order@buyer.example": part}
        with pytest.raises(OSError, match="the disk is gone"):
            verify(message(), parts, [signer().certificate], at=NOW)
    with pytest.raises(OSError, match="the disk is gone"):
        sign(MESSAGE, {"a@b": broken()}, signer().key, signer().certificate)
    gc.collect()  # the library closes what it opened only now, and must find whom to call
    assert check(message())


def test_parts_are_not_read_before_everything_else_is_right() -> None:
    read = []

    class Watched:
        def __iter__(self) -> Iterator[bytes]:
            read.append(1)
            return iter((b"<order/>",))

    parts: dict[str, Part] = {**PARTS, "order@buyer.example": Watched()}
    with pytest.raises(SignatureRefused):
        verify(message(), parts, [signer().certificate], at=END)
    assert read == []
    verify(message(), parts, [signer().certificate], at=NOW)
    assert read == [1]


def test_threads_do_not_see_the_parts_of_others() -> None:
    one = signer()
    documents = {
        number: sign(MESSAGE, {"p@x": str(number).encode() * 50_000}, one.key, one.certificate) for number in range(6)
    }
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(5):
            try:
                verify(documents[number], {"p@x": str(number).encode() * 50_000}, [one.certificate], at=NOW)
            except SignatureRefused:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in documents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_no_file_and_no_url_can_be_read_by_a_signature() -> None:
    check(message())
    template = etree.fromstring(message())
    signature = template[0][-1]
    for reference in signature.findall(".//{*}Reference")[1:]:
        reference.set("URI", "file:///etc/hostname")
    context = xmlsec.SignatureContext()
    context.key = xmlsec.Key.from_memory(signer().key, xmlsec.constants.KeyDataFormatPem)
    with pytest.raises(xmlsec.Error):
        context.sign(signature)


# --- who signed, and when


def test_only_certificates_of_the_agreement_count() -> None:
    stranger = message("stranger")
    assert refusal(stranger) is Reason.FOREIGN_CERTIFICATE
    # Without a word of the certificate the key decides.
    start, end = stranger.index(b"<ds:KeyInfo>"), stranger.index(b"</ds:KeyInfo>") + len(b"</ds:KeyInfo>")
    assert refusal(stranger[:start] + stranger[end:]) is Reason.NOT_INTACT
    # And so it does with the certificate of somebody else.
    theirs, ours = (base64.b64encode(signer(name).certificate) for name in ("stranger", "buyer"))
    assert refusal(changed(theirs, ours, stranger)) is Reason.NOT_INTACT
    assert verify(stranger, PARTS, [signer().certificate, signer("stranger").certificate], at=NOW)
    with pytest.raises(SignatureRefused) as refused:
        verify(message(), PARTS, [], at=NOW)
    assert refused.value.reason is Reason.FOREIGN_CERTIFICATE
    with pytest.raises(SignatureRefused) as refused:
        verify(message(), PARTS, [b"no certificate"], at=NOW)
    assert refused.value.reason is Reason.FOREIGN_CERTIFICATE


def test_without_key_info_each_certificate_of_the_agreement_is_tried() -> None:
    document = message()
    start, end = document.index(b"<ds:KeyInfo>"), document.index(b"</ds:KeyInfo>") + len(b"</ds:KeyInfo>")
    bare = document[:start] + document[end:]
    known = [signer("other").certificate, signer("curve", "SECP256R1").certificate, signer().certificate]
    fingerprint = hashlib.sha256(signer().certificate).hexdigest()
    assert verify(bare, PARTS, known, at=NOW).fingerprint == fingerprint


def test_a_key_of_the_wrong_kind() -> None:
    document = message()
    rsa_der, ec_der = (base64.b64encode(signer("buyer", kind).certificate) for kind in ("rsa2048", "SECP256R1"))
    with pytest.raises(SignatureRefused) as refused:
        verify(changed(rsa_der, ec_der, document), PARTS, [signer("buyer", "SECP256R1").certificate], at=NOW)
    assert refused.value.reason is Reason.FOREIGN_CERTIFICATE


@pytest.mark.parametrize("kind", ["rsa1024", "SECP192R1", "SECP256K1"])
def test_weak_keys(kind: str) -> None:
    one = signer("weak", kind)
    document = message("weak", kind)
    with pytest.raises(SignatureRefused) as refused:
        verify(document, PARTS, [one.certificate], WITH_SHA1, at=NOW)
    assert refused.value.reason is Reason.WEAK_KEY


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (BEGIN - timedelta(seconds=1), Reason.NOT_YET_VALID),
        (BEGIN, None),
        (END - timedelta(seconds=1), None),
        (END, Reason.EXPIRED),
    ],
)
def test_when_the_message_came(at: datetime, reason: Reason | None) -> None:
    assert (refusal(message(), at=at) if reason else check(message(), at=at).uncovered) == (reason or ())


# --- what was changed


def test_tampered_parts() -> None:
    first, second = PARTS
    assert refusal(message(), {**PARTS, first: b"<order/> "}) is Reason.NOT_INTACT
    assert refusal(message(), {**PARTS, second: PARTS[second][:-1]}) is Reason.NOT_INTACT
    assert refusal(message(), {first: PARTS[second], second: PARTS[first]}) is Reason.NOT_INTACT
    assert refusal(message(), {first: PARTS[first]}) is Reason.FOREIGN_REFERENCE
    assert refusal(message(), {**PARTS, "more@x": b""}) is Reason.PART_NOT_REFERENCED


def test_swapped_cids_in_the_signature() -> None:
    first, second = (f'URI="cid:{cid}"'.encode() for cid in PARTS)
    document = message()
    document = document.replace(first, b'URI="@"').replace(second, first).replace(b'URI="@"', second)
    assert refusal(document) is Reason.NOT_INTACT


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"<eb:CPAId>cpa-1<", b"<eb:CPAId>cpa-2<"),
        (b'mustUnderstand="1"', b'mustUnderstand="0"'),
        (b"<SOAP:Body>", b"<SOAP:Body> "),
        (b"<eb:Action>Order</eb:Action>", b""),
        (b'xlink:href="cid:order@buyer.example"', b'xlink:href="cid:drawing@buyer.example"'),
        (b"<eb:MessageHeader ", b'<eb:MessageHeader xmlns:x="urn:x" '),
        (b"</SOAP:Envelope>", b"</SOAP:Envelope><?stop it?>"),
        (b"<SOAP:Body>", b"<?stop it?><SOAP:Body>"),
        (b"m-1@buyer", b"m-1<?x?>@buyer"),
    ],
)
def test_changed_documents(old: bytes, new: bytes) -> None:
    assert refusal(changed(old, new)) is Reason.NOT_INTACT


def test_comments_are_not_signed_and_not_read() -> None:
    """Canonical XML leaves them out, and so does this hub's parser: both see the same text."""
    document = changed(b"m-1@buyer.example<", b"m-<!-- 2@evil.example -->1@buyer.example<")
    assert check(document)
    message_id = parse_document(document).find(".//{*}MessageId")
    assert message_id is not None and message_id.text == "m-1@buyer.example"


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"<a",
        b"\xff\xfe\x00",
        b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>',
        b"<a>" * 40 + b"</a>" * 40,
        message().replace(b"<SOAP:Envelope", b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><SOAP:Envelope', 1),
    ],
    ids=itertools.count(),
)
def test_documents_that_cannot_be_read(document: bytes) -> None:
    assert refusal(document) is Reason.UNREADABLE


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(message()) - 1), st.integers(1, 255))
def test_a_changed_octet_anywhere_is_refused_or_changes_nothing(position: int, difference: int) -> None:
    """What is inside of the signature and not signed itself, and how XML is written, says nothing."""
    document = bytearray(message())
    document[position] ^= difference
    try:
        check(bytes(document))
    except SignatureRefused:
        return

    def said(octets: bytes) -> bytes:
        root = parse_document(octets)
        root[0].remove(root[0][-1])
        return etree.tostring(root, method="c14n")

    assert said(bytes(document)) == said(message())


# --- what the library is never asked


def test_what_cannot_be_signed() -> None:
    one, other = signer(), signer("other")
    cases: list[tuple[str, Callable[[], bytes]]] = [
        ("no SOAP 1.1 envelope", lambda: sign(b"<a/>", {}, one.key, one.certificate)),
        ("DOCTYPE", lambda: sign(b"<!DOCTYPE a><a/>", {}, one.key, one.certificate)),
        ("signed already", lambda: sign(message(), {}, one.key, one.certificate)),
        ("another certificate", lambda: sign(MESSAGE, {}, other.key, one.certificate)),
        ("another kind of key", lambda: sign(MESSAGE, {}, one.key, one.certificate, SignatureMethod.ECDSA_SHA256)),
        ("cannot be read", lambda: sign(MESSAGE, {}, b"no key", one.certificate)),
        ("cannot be read", lambda: sign(MESSAGE, {}, one.key, b"no certificate")),
    ]
    for said, work in cases:
        with pytest.raises(CannotSign, match=said):
            work()


def test_a_document_that_would_take_long_is_not_computed() -> None:
    many = b" ".join(b'xmlns:n%d="urn:%d"' % (number, number) for number in range(100))
    document = MESSAGE.replace(b"<SOAP:Body>", b"<SOAP:Body " + many + b">" + b"<x/>" * 200)
    with pytest.raises(CannotSign, match="10,000"):
        sign(document, {}, signer().key, signer().certificate)
    assert refusal(changed(b"<SOAP:Body>", b"<SOAP:Body>" + b"<x/>" * 5000)) is Reason.TOO_COMPLEX


# --- what others signed


@pytest.mark.parametrize(
    ("name", "at", "allowed"),
    [
        ("nav-smtp-delivered.msg", datetime(2023, 8, 29, 10, 56, 55, tzinfo=UTC), STRONG),
        ("nav-http-request.mime", datetime(2024, 2, 12, 13, 4, 3, tzinfo=UTC), WITH_SHA1),
    ],
)
def test_genuine_messages(name: str, at: datetime, allowed: set[SignatureMethod | DigestMethod]) -> None:
    document, parts = fixture(name)
    text = etree.fromstring(document).findtext(".//{*}X509Certificate")
    certificate = base64.b64decode(text or "")
    verified = verify(document, parts, [certificate], allowed, at=at)
    assert [one.cid for one in verified.references[1:]] == list(parts)
    ((cid, octets),) = parts.items()
    for changed_parts, certificates, when, reason in (
        ({cid: octets + b" "}, [certificate], at, Reason.NOT_INTACT),
        ({cid: octets}, [signer().certificate], at, Reason.FOREIGN_CERTIFICATE),
        ({cid: octets}, [certificate], datetime(2030, 1, 1, tzinfo=UTC), Reason.EXPIRED),
        ({}, [certificate], at, Reason.FOREIGN_REFERENCE),
    ):
        with pytest.raises(SignatureRefused) as refused:
            verify(document, changed_parts, certificates, allowed, at=when)
        assert refused.value.reason is reason


def test_a_genuine_message_with_sha1_needs_an_agreement_that_allows_it() -> None:
    document, parts = fixture("nav-http-request.mime")
    assert refusal(document, parts) is Reason.WEAK_ALGORITHM


@pytest.mark.parametrize("name", ["nav-acknowledgment.xml", "nav-payloadmessage.xml"])
def test_what_others_signed_and_emptied_is_refused(name: str) -> None:
    """Their digests and certificates were replaced by words: they are read, and are no Base64."""
    assert refusal((FIXTURES / "ebms2" / name).read_bytes(), {"ref1": b""}) is Reason.MALFORMED
