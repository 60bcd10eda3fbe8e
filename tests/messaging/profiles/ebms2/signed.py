"""Keys, certificates and messages for the tests of signatures."""

from __future__ import annotations

import email
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from messaging.profiles.ebms2.signatures import SignatureMethod, sign
from tests import FIXTURES

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
END = datetime(2027, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 28, 21, tzinfo=UTC)
NEXT_MSH = "urn:oasis:names:tc:ebxml-msg:actor:nextMSH"
NEXT = "http://schemas.xmlsoap.org/soap/actor/next"
PARTS = {"order@buyer.example": b"<order/>", "drawing@buyer.example": bytes(range(256)) * 300}

MESSAGE = b"""<?xml version="1.0" encoding="UTF-8"?>
<SOAP:Envelope xmlns:SOAP="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xlink="http://www.w3.org/1999/xlink"
 xmlns:eb="http://www.oasis-open.org/committees/ebxml-msg/schema/msg-header-2_0.xsd">
<SOAP:Header>
<eb:MessageHeader SOAP:mustUnderstand="1" eb:version="2.0"><eb:CPAId>cpa-1</eb:CPAId><eb:Action>Order</eb:Action>
<eb:MessageData><eb:MessageId>m-1@buyer.example</eb:MessageId></eb:MessageData></eb:MessageHeader>
</SOAP:Header>
<SOAP:Body><eb:Manifest eb:version="2.0"><eb:Reference xlink:href="cid:order@buyer.example"/></eb:Manifest></SOAP:Body>
</SOAP:Envelope>
"""


@dataclass(frozen=True)
class Signer:
    key: bytes
    certificate: bytes


def signer(name: str = "buyer", kind: str = "rsa2048") -> Signer:
    """A key of its own for each name and kind, with a certificate for 2026."""
    return _signer(name, kind)


@cache
def _signer(name: str, kind: str) -> Signer:
    key = (
        ec.generate_private_key(getattr(ec, kind)())
        if kind.startswith("SECP")
        else rsa.generate_private_key(65537, int(kind.removeprefix("rsa")))
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN)
        .not_valid_after(END - timedelta(seconds=1))
        .sign(key, hashes.SHA256())
    )
    return Signer(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), certificate.public_bytes(Encoding.DER)
    )


def message(who: str = "buyer", kind: str = "rsa2048", document: bytes = MESSAGE) -> bytes:
    """A document that is signed with its parts."""
    return _message(who, kind, document)


@cache
def _message(who: str, kind: str, document: bytes) -> bytes:
    method = SignatureMethod.ECDSA_SHA256 if kind.startswith("SECP") else SignatureMethod.RSA_SHA256
    one = signer(who, kind)
    return sign(document, PARTS, one.key, one.certificate, method)


def fixture(name: str) -> tuple[bytes, dict[str, bytes]]:
    """The document and the payloads of a MIME message."""
    octets = (FIXTURES / "ebms2" / name).read_bytes()
    if octets.startswith(b"--"):
        boundary = octets.partition(b"\n")[0].strip()[2:]
        octets = b'Content-Type: multipart/related; boundary="' + boundary + b'"\n\n' + octets
    found = [part for part in email.message_from_bytes(octets).walk() if not part.is_multipart()]
    first, *others = ((str(part["Content-ID"]).strip("<>"), part.get_payload(decode=True)) for part in found)
    assert isinstance(first[1], bytes)
    return first[1], {cid: octets for cid, octets in others if isinstance(octets, bytes)}
