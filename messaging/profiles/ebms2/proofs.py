"""Looks at the signatures of a message and of its acknowledgements once more, as they were when they came or went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from messaging import storage
from messaging.choices import Direction, SignalKind
from messaging.engine import preparing
from messaging.models import Message, Payload, Signal
from messaging.profile import Proof
from messaging.profiles.ebms2 import signatures, signed
from messaging.profiles.ebms2.signatures import SignatureRefused
from messaging.protocol.codecs import ebms2
from messaging.protocol.envelope import Digest, Limits, PayloadPart
from partners import certificates, registry
from partners.choices import CredentialDirection, CredentialKind, Signatures
from partners.models import Credential
from partners.terms import Terms


def of_message(message: Message) -> list[Proof]:
    """The message itself, then its acknowledgements; nothing under an agreement without signatures, or before it was
    sent. Certificates count that are revoked or replaced since.
    """
    terms = registry.current().version(message.agreement_version_id)
    if terms.signatures == Signatures.NONE or message.wire_frame is None:
        return []
    return list(_proofs(message, terms))


def _proofs(message: Message, terms: Terms) -> Iterator[Proof]:
    theirs = message.direction == Direction.IN
    at = message.created_at if theirs else message.first_sent_at or message.created_at
    digests: tuple[Digest, ...] = ()
    try:
        document, plain, came = _parts(message, terms)
    except storage.PayloadMissing as error:
        yield Proof(None, theirs=theirs, at=at, refused=str(error))
    else:
        digests = ebms2.digests_of(document, Limits(body=len(document)))
        yield _looked_at(None, document, plain, terms, theirs=theirs, at=at, encrypted=came)
    for signal in Signal.objects.filter(about=message, kind=SignalKind.ACKNOWLEDGEMENT).order_by("id"):
        document = ebms2.soap_of(signal.content_type, bytes(signal.body), Limits(body=len(signal.body)))
        theirs = signal.direction == Direction.IN
        try:
            _, plain, came = _carrier(signal, terms) if theirs else (b"", (), ())
        except storage.PayloadMissing as error:
            yield Proof(signal, theirs=theirs, at=signal.created_at, refused=str(error))
            continue
        found = _looked_at(signal, document, plain, terms, theirs=theirs, at=signal.created_at, encrypted=came)
        if not found.refused and not _covers(document, message.message_id, digests):
            found = Proof(signal, theirs=theirs, at=signal.created_at, refused="It has other digests than the message.")
        if not found.refused or terms.signatures == Signatures.RECEIPTS:
            yield found


_Parts = tuple[bytes, Sequence[PayloadPart], Sequence[PayloadPart]]


def _parts(message: Message, terms: Terms) -> _Parts:
    """The SOAP envelope of a message, its documents, and these as they are on the wire. Raises PayloadMissing."""
    rows = list(Payload.objects.filter(message=message).order_by("number"))
    octets = preparing.stored_octets(message, rows)
    limits = Limits(body=len(octets))
    came = ebms2.decode(message.content_type, octets, limits).payloads
    plain = [_document(row) for row in rows] if terms.encrypts else came
    return ebms2.soap_of(message.content_type, octets, limits), plain, came


def _carrier(signal: Signal, terms: Terms) -> _Parts:
    """What else was signed with an acknowledgement: the documents of the message that it came on, if it did."""
    theirs = Message.objects.filter(direction=Direction.IN, message_id=signal.message_id)
    carrier = theirs.filter(pair__partner=terms.hop_party_id).exclude(wire_frame=None).first()
    return _parts(carrier, terms) if carrier is not None else (b"", (), ())


def _document(row: Payload) -> PayloadPart:
    return PayloadPart(row.content_id, row.content_type, storage.opened(row.content, row.stored_as))


def _looked_at(
    signal: Signal | None,
    document: bytes,
    payloads: Sequence[PayloadPart],
    terms: Terms,
    *,
    theirs: bool,
    at: datetime,
    encrypted: Sequence[PayloadPart],
) -> Proof:
    direction = CredentialDirection.INBOUND if theirs else CredentialDirection.OUTBOUND
    known = {
        registry.der_of(one.certificate): one
        for one in Credential.objects.filter(
            party=terms.hop_party_id, direction=direction, kind=CredentialKind.SIGNING
        ).order_by("-id")
    }
    try:
        found = signed.verify(document, payloads, known, terms, at, encrypted)
    except SignatureRefused as refused:
        return Proof(signal, theirs=theirs, at=at, refused=refused.detail)
    credential = next(one for one in known.values() if one.fingerprint == found.fingerprint)
    signer = certificates.read(credential.certificate)[0].title
    return Proof(
        signal, theirs=theirs, at=at, signer=signer, fingerprint=found.fingerprint, revoked_at=credential.revoked_at
    )


def _covers(document: bytes, message_id: str, digests: tuple[Digest, ...]) -> bool:
    said = ebms2.decode("text/xml", document).ebms
    assert said is not None
    return any(
        one.ref_to_message_id == message_id and signatures.covers(one.digests, digests) for one in said.acknowledgments
    )
