"""Checks who signed a message, and that it is still the same (ebXML Messaging 2.0, section 4.1)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import xmlsec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from messaging.profiles.ebms2.signatures.names import STRONG, DigestMethod, Reason, SignatureMethod, SignatureRefused
from messaging.profiles.ebms2.signatures.parts import Part, with_parts
from messaging.profiles.ebms2.signatures.reading import Reference, Signed, read_signed

MIN_RSA_BITS = 2048
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)


@dataclass(frozen=True, slots=True)
class Verified:
    """A message is as it was signed.

    `fingerprint`: of the certificate, SHA-256, 64 hexadecimal digits. `uncovered`: header elements for the next hop
    ("{namespace}name"), which anybody on the way may have written: nothing in them may be believed.
    """

    fingerprint: str
    references: tuple[Reference, ...]
    uncovered: tuple[str, ...]


def verify(
    document: bytes,
    parts: Mapping[str, Part],
    certificates: Iterable[bytes],
    allowed: Collection[SignatureMethod | DigestMethod] = STRONG,
    *,
    at: datetime,
) -> Verified:
    """Checks a message. `parts`: all its payloads, by Content-ID without angle brackets, as their sender had them.

    `certificates`: those of the agreement, in DER; one that comes with the message only says which of them it is.
    Without that each is tried, and the parts are iterated again. `allowed`: algorithms. `at`: when the message was
    received, aware. Parts are read piece by piece, after all else was checked.
    Raises SignatureRefused, and what reading a part raises.
    """
    signed = read_signed(document, parts.keys(), allowed)
    candidates = _candidates(signed, list(certificates), at)
    by_uri = {one.uri: parts[one.cid] for one in signed.references if one.cid is not None}
    for certificate in candidates:
        if _intact(signed, certificate, by_uri):
            return Verified(hashlib.sha256(certificate).hexdigest(), signed.references, signed.uncovered)
    raise SignatureRefused(
        Reason.NOT_INTACT, "The message was changed after it was signed, or signed with another key than it says."
    )


def _candidates(signed: Signed, known: list[bytes], at: datetime) -> list[bytes]:
    """The certificates that can have made the signature, and were valid."""
    named = [one for one in known if one in signed.certificates] if signed.certificates else known
    if not named:
        raise SignatureRefused(
            Reason.FOREIGN_CERTIFICATE, "The agreement has no certificate with which this is signed."
        )
    usable: list[bytes] = []
    refusals: list[SignatureRefused] = []
    for one in named:
        try:
            _check(one, signed.method, at)
            usable.append(one)
        except SignatureRefused as refused:
            refusals.append(refused)
    if not usable:
        raise refusals[0]
    return usable


def _check(der: bytes, method: SignatureMethod, at: datetime) -> None:
    try:
        certificate = x509.load_der_x509_certificate(der)
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        raise SignatureRefused(Reason.FOREIGN_CERTIFICATE, "A certificate of the agreement cannot be read.") from None
    wanted = ec.EllipticCurvePublicKey if method is SignatureMethod.ECDSA_SHA256 else rsa.RSAPublicKey
    if not isinstance(key, wanted):
        raise SignatureRefused(
            Reason.FOREIGN_CERTIFICATE, "The agreement's certificate has another kind of key than the signature."
        )
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < MIN_RSA_BITS:
        raise SignatureRefused(Reason.WEAK_KEY, f"The RSA key has {key.key_size} bits; {MIN_RSA_BITS} are the least.")
    if isinstance(key, ec.EllipticCurvePublicKey) and not isinstance(key.curve, _CURVES):
        raise SignatureRefused(Reason.WEAK_KEY, f"Keys on the curve {key.curve.name} are not used.")
    if at < certificate.not_valid_before_utc:
        raise SignatureRefused(
            Reason.NOT_YET_VALID, f"The certificate is valid from {certificate.not_valid_before_utc.isoformat()} on."
        )
    if at > certificate.not_valid_after_utc:
        raise SignatureRefused(
            Reason.EXPIRED, f"The certificate was valid until {certificate.not_valid_after_utc.isoformat()}."
        )


def _intact(signed: Signed, certificate: bytes, parts: Mapping[str, Part]) -> bool:
    context = xmlsec.SignatureContext()
    context.key = xmlsec.Key.from_memory(certificate, xmlsec.constants.KeyDataFormatCertDer)
    # A second fence: what `read_signed` lets pass is all that the library knows.
    for transform in (
        xmlsec.constants.TransformEnveloped,
        xmlsec.constants.TransformXPath,
        xmlsec.constants.TransformInclC14N,
        xmlsec.constants.TransformSha256,
        xmlsec.constants.TransformSha1,
    ):
        context.enable_reference_transform(transform)
    for transform in (
        xmlsec.constants.TransformInclC14N,
        xmlsec.constants.TransformRsaSha256,
        xmlsec.constants.TransformEcdsaSha256,
        xmlsec.constants.TransformRsaSha1,
    ):
        context.enable_signature_transform(transform)
    try:
        with_parts(parts, lambda: context.verify(signed.signature))
    except xmlsec.Error:
        return False
    return True
