"""Signs what goes out, and checks what came in, as far as an agreement says so (ebXML Messaging 2.0, 4.1 and 6.3.2)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from messaging.profiles.acknowledging import Item
from messaging.profiles.ebms2 import signatures
from messaging.profiles.ebms2.encrypted import UNREADABLE
from messaging.profiles.ebms2.signatures import (
    STRONG,
    CannotSign,
    DigestMethod,
    Reason,
    SignatureMethod,
    SignatureRefused,
    Verified,
)
from messaging.protocol.codecs import ebms2
from messaging.protocol.envelope import Acknowledgment, Actor, Digest, Envelope, Limits, PayloadPart, Wire
from messaging.protocol.errors import Defect, EncodeError, ErrorCode
from partners import registry
from partners.choices import CredentialKind, SignatureAlgorithm, Signatures
from partners.secrets import SecretUnreadable
from partners.terms import Terms

_METHODS = {
    SignatureAlgorithm.RSA_SHA256: (SignatureMethod.RSA_SHA256, DigestMethod.SHA256),
    SignatureAlgorithm.ECDSA_SHA256: (SignatureMethod.ECDSA_SHA256, DigestMethod.SHA256),
    SignatureAlgorithm.RSA_SHA1: (SignatureMethod.RSA_SHA1, DigestMethod.SHA1),
}
_PLACE = "/Envelope/Header/Signature"
# Documents of a message that is signed, or whose acknowledgement is: one for two actors names each twice.
MAX_DOCUMENTS = 200


class SigningImpossible(EncodeError):
    """Nothing of ours can sign this; a sentence that holds no key."""

    cause = "signing_impossible"


def encode(envelope: Envelope, terms: Terms, now: datetime) -> Wire:
    """An acknowledgement in its octets, signed with our certificate. Raises EncodeError."""
    return ebms2.enclose(envelope, document_of(envelope, terms, now))


def document_of(envelope: Envelope, terms: Terms, now: datetime) -> bytes:
    """The SOAP envelope of a message or an acknowledgement, signed with our certificate. Raises EncodeError."""
    pem = _own(terms, now)
    method, digest = _METHODS[SignatureAlgorithm(terms.signature_algorithm)]
    parts = {payload.content_id: payload.content for payload in envelope.payloads}
    try:
        return signatures.sign(ebms2.soap_document(envelope), parts, pem.encode(), registry.der_of(pem), method, digest)
    except CannotSign as error:
        raise SigningImpossible(str(error)) from None


def why_no_signature(terms: Terms, now: datetime) -> str:
    """Why nothing can be signed for this partner now; "" if it can."""
    try:
        pem = _own(terms, now)
        method, _ = _METHODS[SignatureAlgorithm(terms.signature_algorithm)]
        signatures.check(pem.encode(), registry.der_of(pem), method)
    except (SigningImpossible, CannotSign) as error:
        return str(error)
    return ""


def _own(terms: Terms, now: datetime) -> str:
    try:
        pem = registry.current().signing_certificate(terms.hop_party_id, now)
    except SecretUnreadable as error:
        raise SigningImpossible(str(error)) from None
    if not pem:
        raise SigningImpossible(
            f"Agreement {terms.tpa_id} wants signatures, and no certificate of ours to sign for {terms.hop_party_name} "
            "is valid."
        )
    return pem


def allowed(terms: Terms) -> frozenset[SignatureMethod | DigestMethod]:
    """The algorithms that the partner may sign with."""
    return STRONG | set(_METHODS[SignatureAlgorithm(terms.signature_algorithm)])


def verify(
    document: bytes,
    payloads: Sequence[PayloadPart],
    certificates: Collection[bytes],
    terms: Terms,
    at: datetime,
    encrypted: Sequence[PayloadPart],
) -> Verified:
    """Checks a message with all its payloads, received `at`; they may be signed as they are on the wire (`encrypted`),
    where that is agreed. Raises SignatureRefused.
    """
    parts = {payload.content_id: payload.content for payload in payloads}
    if "" in parts:
        raise SignatureRefused(Reason.PART_NOT_REFERENCED, "A payload has no Content-ID, so nobody can have signed it.")
    try:
        return signatures.verify(document, parts, certificates, allowed(terms), at=at)
    except SignatureRefused as refused:
        if not terms.encrypts or refused.reason is not Reason.NOT_INTACT:
            raise
    parts = {payload.content_id: payload.content for payload in encrypted}
    return signatures.verify(document, parts, certificates, allowed(terms), at=at)


def looked_at(item: Item, came: Sequence[PayloadPart], limits: Limits, now: datetime) -> Item:
    """The item with what its signature says, if its agreement has signatures: who signed, or why it does not count.

    `came`: the documents as they are on the wire. The signature of some senders is over them, though encrypted.
    """
    terms, item = item.terms, replace(item, signed_by="", digests=(), unsigned="")
    if terms is None or terms.signatures == Signatures.NONE:
        return item
    document = ebms2.soap_of(item.content_type, item.body, limits)
    known = registry.current().certificates(CredentialKind.SIGNING, terms.hop_party_id, now)
    try:
        found = verify(document, item.envelope.payloads, known, terms, now, encrypted=came)
    except SignatureRefused as refused:
        unread = terms.encrypts and came and refused.reason is Reason.NOT_INTACT
        return replace(item, unsigned=UNREADABLE if unread else refused.detail)
    return replace(item, signed_by=found.fingerprint, digests=ebms2.digests_of(document, limits))


def defects(item: Item) -> tuple[Defect, ...]:
    """What is wrong with the signature of a business message, for its sender."""
    return (Defect(ErrorCode.SECURITY_FAILURE, item.unsigned, _PLACE),) if item.unsigned else ()


def why_no_receipt(item: Item, said: Acknowledgment, sent: Sequence[Digest]) -> str:
    """Why an acknowledgement is no proof that what was `sent` was received; "" for one that is."""
    if not item.signed_by:
        return item.unsigned or "it is not signed"
    if said.actor is not Actor.TO_PARTY_MSH:
        return "what is for the next hop is in no signature"
    return "" if signatures.covers(said.digests, sent) else "it has other digests than the message that was sent"


def digests_sent(frame: Sequence[bytes]) -> tuple[Digest, ...]:
    """What the signature of a message of ours covers, of the octets around its payloads."""
    # Headers before it and behind it say anything, as names of files do, but have no empty line; within the envelope
    # ">" of a text is "&gt;".
    begin, end = 0 if frame[0].startswith(b"<?xml") else frame[0].index(b"\r\n\r\n<?xml") + 4, b"Envelope>"
    document = frame[0][begin : frame[0].index(end, begin) + len(end)]
    return ebms2.digests_of(document)
