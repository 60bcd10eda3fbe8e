"""Encrypts the documents of what goes out, and decrypts those of what came in, as far as an agreement says so.

Each document is an S/MIME entity on the wire (RFC 8551, 3.3): enveloped-data around the document with its own MIME
header. A signature is over the plain documents (ebXML Messaging 2.0, 4.1.4.5: signed first, then encrypted). They are
held in memory (`partners.rules.ebms2.MOST_ENCRYPTED_BYTES`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.ciphers.algorithms import AES128, AES256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs7 import PKCS7EnvelopeBuilder, PKCS7Options, pkcs7_decrypt_der

from messaging.protocol.codecs import ebms2, mime, related
from messaging.protocol.envelope import DEFAULT_LIMITS, Envelope, PayloadPart, Wire
from messaging.protocol.errors import Defect, EncodeError, ErrorCode, NotAMessage
from partners import registry
from partners.choices import CredentialKind, Encryption
from partners.secrets import SecretUnreadable
from partners.terms import Terms

_ALGORITHMS: dict[Encryption, type[AES128] | type[AES256]] = {Encryption.AES128: AES128, Encryption.AES256: AES256}
_WRITTEN = 'application/pkcs7-mime; smime-type=enveloped-data; name="smime.p7m"'
_READABLE = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
_HAS_HEADER = re.compile(rb"(content-[a-z-]+|mime-version)[ \t]*:", re.IGNORECASE)
# One text for all that can go wrong in what was encrypted: what differs would tell who tries how far they got.
UNREADABLE = (
    "a document cannot be decrypted, or is not what was signed: compare the certificate that it is encrypted for"
)
_Own = tuple[x509.Certificate, RSAPrivateKey]


class EncryptionImpossible(EncodeError):
    """There is nothing of the partner's to encrypt for; a sentence for people."""

    cause = "encryption_impossible"


class DecryptionImpossible(Exception):
    """There is nothing of ours to decrypt with; a sentence for people."""


def enclose(envelope: Envelope, document: bytes, terms: Terms, now: datetime) -> Wire:
    """The octets of a message whose SOAP envelope is there already, its documents encrypted in the only literal.

    Raises EncodeError.
    """
    known = registry.current().certificates(CredentialKind.ENCRYPTION, terms.hop_party_id, now)
    if not known:
        raise EncryptionImpossible(
            f"Agreement {terms.tpa_id} has documents encrypted, and no certificate of {terms.hop_party_name} for that "
            "is valid."
        )
    builder = PKCS7EnvelopeBuilder().add_recipient(x509.load_der_x509_certificate(known[0]))
    builder = builder.set_content_encryption_algorithm(_ALGORITHMS[Encryption(terms.encryption)])
    parts = tuple(_encrypted(part, builder) for part in envelope.payloads)
    wire = ebms2.enclose(replace(envelope, payloads=parts), document)
    return Wire(wire.content_type, (wire.join([part.content[:] for part in parts]),))


def _encrypted(part: PayloadPart, builder: PKCS7EnvelopeBuilder) -> PayloadPart:
    head = mime.encode_part_head("", part.content_type, len(part.content), part.filename)
    entity = f"{head}\r\n".encode("ascii") + part.content[:]
    content = builder.set_data(entity).encrypt(Encoding.DER, [PKCS7Options.Binary])
    return PayloadPart(part.content_id, _WRITTEN, content)


def opened(envelope: Envelope, terms: Terms, now: datetime) -> tuple[Envelope, tuple[Defect, ...]]:
    """The message with its documents as they were before they were encrypted; or as it came, with what is wrong.

    Under an agreement without encryption it is as it came. Raises DecryptionImpossible.
    """
    if not terms.encrypts or not envelope.payloads:
        return envelope, ()
    plain = [part for part in envelope.payloads if mime.decode_header_value(part.content_type)[0] not in _READABLE]
    if plain:
        text = f"document {plain[0].content_id} is not encrypted, as agreement {terms.tpa_id} has it"
        return envelope, (Defect(ErrorCode.SECURITY_FAILURE, text, plain[0].content_id),)
    own = _own(terms, now)
    try:
        return replace(envelope, payloads=tuple(_decrypted(part, own) for part in envelope.payloads)), ()
    except (ValueError, UnsupportedAlgorithm, NotAMessage):
        return envelope, (Defect(ErrorCode.SECURITY_FAILURE, UNREADABLE, "/Envelope/Body/Manifest"),)


def _own(terms: Terms, now: datetime) -> list[_Own]:
    try:
        own = [_key(pem) for pem in registry.current().decrypting_certificates(terms.hop_party_id, now)]
    except SecretUnreadable as error:
        raise DecryptionImpossible(str(error)) from None
    if not own:
        raise DecryptionImpossible(
            f"Agreement {terms.tpa_id} has documents encrypted, and no certificate of ours for {terms.hop_party_name} "
            "to decrypt them is valid."
        )
    return own


@lru_cache(maxsize=64)
def _key(pem: str) -> _Own:
    """To read a key takes a hundred times as long as to decrypt with it, so those that are in use are kept."""
    key = load_pem_private_key(pem.encode(), password=None)
    assert isinstance(key, RSAPrivateKey), "checked when it was stored"
    return x509.load_pem_x509_certificate(pem.encode()), key


def _decrypted(part: PayloadPart, own: Sequence[_Own]) -> PayloadPart:
    """Raises ValueError, UnsupportedAlgorithm, NotAMessage."""
    for certificate, key in own:
        try:
            entity = pkcs7_decrypt_der(part.content[:], certificate, key, [])
        except ValueError:
            continue  # it is for another one, maybe
        return _document(part.content_id, entity)
    raise ValueError


def _document(content_id: str, entity: bytes) -> PayloadPart:
    """The document of a decrypted entity; without a header there it is all of it. Raises ValueError, NotAMessage."""
    if not _HAS_HEADER.match(entity):
        kind = "application/xml" if entity.lstrip()[:1] == b"<" else "application/octet-stream"
        return PayloadPart(content_id, kind, entity)
    headers, begin = mime.decode_entity_head(entity)
    content = mime.decode_transfer_encoding(headers.get("content-transfer-encoding", ""), entity[begin:])
    return related.payload_of(content_id, mime.Part(headers, content, None), DEFAULT_LIMITS.identifier)
