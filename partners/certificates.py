"""X.509 certificates as people enter them and as servers show them: read, and said in words.

Pure. Times are aware datetimes in UTC.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from rmhub.language import gettext_lazy, number

MAX_TEXT = 64 * 1024  # characters of all certificates together
MAX_CERTIFICATES = 20
_UNREADABLE = (ValueError, UnsupportedAlgorithm, x509.InvalidVersion)
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----[^-]*-----END \1-----")
_PURPOSES = {
    ExtendedKeyUsageOID.SERVER_AUTH: gettext_lazy("server authentication"),
    ExtendedKeyUsageOID.CLIENT_AUTH: gettext_lazy("client authentication"),
    ExtendedKeyUsageOID.EMAIL_PROTECTION: gettext_lazy("mail"),
    ExtendedKeyUsageOID.CODE_SIGNING: gettext_lazy("code signing"),
    ExtendedKeyUsageOID.TIME_STAMPING: gettext_lazy("time stamps"),
    ExtendedKeyUsageOID.OCSP_SIGNING: "OCSP",
    ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE: gettext_lazy("any purpose"),
}
_USES = (
    ("digital_signature", gettext_lazy("digital signature")),
    ("content_commitment", gettext_lazy("non-repudiation")),
    ("key_encipherment", gettext_lazy("key encipherment")),
    ("data_encipherment", gettext_lazy("data encipherment")),
    ("key_agreement", gettext_lazy("key agreement")),
    ("key_cert_sign", gettext_lazy("signs certificates")),
    ("crl_sign", gettext_lazy("signs revocation lists")),
)


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What one certificate says. `subject`, `issuer`: RFC 4514. `fingerprint`: SHA-256, 64 hexadecimal digits."""

    subject: str
    issuer: str
    common_name: str
    names: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    fingerprint: str
    serial: str
    key: str
    key_use: tuple[str, ...]
    is_authority: bool
    self_signed: bool
    pem: str = field(repr=False)

    @property
    def title(self) -> str:
        """What it is called on screens: its common name, else its first other name, else its subject."""
        return self.common_name or next(iter(self.names), "") or self.subject or self.fingerprint[:16]

    def expired(self, now: datetime) -> bool:
        return now > self.not_after

    def not_yet(self, now: datetime) -> bool:
        return now < self.not_before

    def days_left(self, now: datetime) -> int:
        """Whole days until its end, below zero when that is past."""
        return (self.not_after - now).days

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the PEM text."""
        found = asdict(self)
        del found["pem"]
        found["not_before"], found["not_after"] = self.not_before.isoformat(), self.not_after.isoformat()
        found["names"], found["key_use"] = list(self.names), list(self.key_use)
        return found


@lru_cache(maxsize=512)
def _read(pem: str) -> tuple[CertificateFacts, ...]:
    if len(pem) > MAX_TEXT:
        raise ValueError(
            _("This is too long: certificates have at most {most} characters of PEM text together.").format(
                most=MAX_TEXT
            )
        )
    kinds = [match[1] for match in _BLOCK.finditer(pem)]
    if any("PRIVATE KEY" in kind for kind in kinds):
        raise ValueError(
            _(
                "There is a private key in this text. Nobody but its owner may have it: leave it out, and if it is the "
                "partner's, tell the partner to replace it."
            )
        )
    found = tuple(_facts(certificate) for certificate in _certificates(pem))
    if not found:
        raise ValueError(
            _("There is no certificate in this text: paste PEM text, from its BEGIN CERTIFICATE to its END line.")
        )
    if len(found) > MAX_CERTIFICATES:
        raise ValueError(
            _("These are {count} certificates, and {most} are the most.").format(
                count=number(len(found)), most=MAX_CERTIFICATES
            )
        )
    return found


def read(pem: str) -> list[CertificateFacts]:
    """All certificates of a PEM text, in their order; none for "". Raises ValueError with a sentence for people."""
    return list(_read(pem.strip())) if pem.strip() else []


def tidy(pem: str) -> str:
    """The certificates of a PEM text and nothing else, each once. Raises ValueError as `read` does."""
    return "".join(dict.fromkeys(one.pem for one in read(pem)))


def read_upload(octets: bytes) -> str:
    """The PEM text of an uploaded file, which may also be one certificate in DER. Raises ValueError."""
    if len(octets) > MAX_TEXT:
        raise ValueError(
            _("The file is too long: certificates have at most {most} bytes together.").format(most=MAX_TEXT)
        )
    if octets[:1] == b"\x30":
        return facts(octets).pem
    try:
        return octets.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(_("The file is neither PEM text nor a DER certificate: export it as PEM (Base64).")) from None


def facts(der: bytes) -> CertificateFacts:
    """One certificate, as a TLS peer shows it. Raises ValueError with a sentence for people."""
    try:
        return _facts(x509.load_der_x509_certificate(der))
    except _UNREADABLE as error:
        raise ValueError(_("This certificate cannot be read.")) from error


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """Our certificate with its key. `pem`: both, the key first; `chain`: the certificates alone."""

    pem: str = field(repr=False)
    chain: str
    facts: CertificateFacts


@sensitive_variables("text", "key", "private")
def read_own(text: str) -> OwnCertificate:
    """Our certificate, with those that lead to its authority if any, and its private key without a passphrase.

    In PEM, in any order. Raises ValueError with a sentence that holds none of it.
    """
    if not text.isascii() or len(text) > MAX_TEXT:
        raise ValueError(
            _("Certificate and key are PEM text of at most {most} ASCII characters.").format(most=MAX_TEXT)
        )
    private = next((match[0] for match in _BLOCK.finditer(text) if "PRIVATE KEY" in match[1]), "")
    if not private:
        raise ValueError(_("The private key is missing: paste certificate and key, one after the other."))
    chain = [_facts(certificate) for certificate in _certificates(text)]
    if not chain:
        raise ValueError(_("The certificate is missing: paste certificate and key, one after the other."))
    try:
        key = load_pem_private_key(private.encode(), password=None)
        public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    except TypeError:
        raise ValueError(_("The private key is encrypted: store it without a passphrase (openssl pkey).")) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(
            _("The private key cannot be read: paste all of it, from its BEGIN to its END line.")
        ) from None
    own = next((one for one in chain if _public_key(one.pem) == public), None)
    if own is None:
        raise ValueError(_("The private key belongs to another certificate: paste the two that belong together."))
    ordered = "".join(dict.fromkeys([own.pem, *(one.pem for one in chain)]))
    return OwnCertificate(written + ordered, ordered, own)


def _public_key(pem: str) -> bytes:
    """In DER; empty for a key that cannot be read."""
    try:
        key = x509.load_pem_x509_certificate(pem.encode()).public_key()
    except _UNREADABLE:
        return b""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _certificates(text: str) -> Iterator[x509.Certificate]:
    for match in _BLOCK.finditer(text):
        if match[1] not in ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"):
            continue
        block = match[0].replace("X509 CERTIFICATE", "CERTIFICATE").replace("TRUSTED CERTIFICATE", "CERTIFICATE")
        try:
            yield x509.load_pem_x509_certificate(block.encode("ascii", "replace"))
        except _UNREADABLE:
            raise ValueError(
                _("A certificate in this text cannot be read: paste all of it, from its BEGIN to its END line.")
            ) from None


def _facts(certificate: x509.Certificate) -> CertificateFacts:
    try:
        subject, issuer = certificate.subject.rfc4514_string(), certificate.issuer.rfc4514_string()
        common = [str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    except ValueError:
        raise ValueError(_("The names in this certificate cannot be read.")) from None
    try:
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except ValueError:
        raise ValueError(_("This certificate cannot be read.")) from None
    der = certificate.public_bytes(Encoding.DER)
    return CertificateFacts(
        subject=subject,
        issuer=issuer,
        common_name=common[0] if common else "",
        names=_names(certificate),
        not_before=begins.astimezone(UTC),
        not_after=ends.astimezone(UTC),
        fingerprint=hashlib.sha256(der).hexdigest(),
        serial=f"{certificate.serial_number:x}",
        key=_key(certificate),
        key_use=_key_use(certificate),
        is_authority=_is_authority(certificate),
        self_signed=_self_signed(certificate),
        pem=certificate.public_bytes(Encoding.PEM).decode(),
    )


def _extension(certificate: x509.Certificate, kind: type[x509.ExtensionType]) -> Any:
    """The value of an extension; None when it is absent or cannot be read."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except (x509.ExtensionNotFound, ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return None


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    found = _extension(certificate, x509.SubjectAlternativeName)
    if found is None:
        return ()
    addresses = (str(address) for address in found.get_values_for_type(x509.IPAddress))
    return (*found.get_values_for_type(x509.DNSName), *addresses)


def _key(certificate: x509.Certificate) -> str:
    try:
        key = certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return "unknown"
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA {key.key_size}"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"EC {key.curve.name}"
    if isinstance(key, ed25519.Ed25519PublicKey):
        return "Ed25519"
    return "Ed448" if isinstance(key, ed448.Ed448PublicKey) else "other"


def _key_use(certificate: x509.Certificate) -> tuple[str, ...]:
    usage = _extension(certificate, x509.KeyUsage)
    uses = [label for name, label in _USES if usage is not None and getattr(usage, name)]
    purposes = _extension(certificate, x509.ExtendedKeyUsage)
    return (*uses, *(_PURPOSES.get(one, one.dotted_string) for one in purposes or ()))


def _is_authority(certificate: x509.Certificate) -> bool:
    constraints = _extension(certificate, x509.BasicConstraints)
    return bool(constraints is not None and constraints.ca)


def _self_signed(certificate: x509.Certificate) -> bool:
    if certificate.subject != certificate.issuer:
        return False
    try:
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True
