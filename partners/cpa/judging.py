"""What in an agreement contradicts itself, the time, or what this hub does: reported, and never a reason to refuse it.

wire-ebxml, section 4, has the first rulings; each finding says what this hub makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from partners.cpa import comparing, flows
from partners.cpa.channels import (
    Algorithm,
    Channel,
    MessageBinding,
    NonRepudiation,
    Placed,
    Requirement,
    TransportReceiver,
    TransportSecurity,
)
from partners.cpa.findings import Finding, Kind, Matter
from partners.cpa.flows import Flow
from partners.cpa.lexical import write_date_time, write_duration
from partners.cpa.model import Certificate, CertificateUse, Cpa, Party, Status

_SIGNATURES = "http://www.w3.org/2000/09/xmldsig#"
_MORE_SIGNATURES = "http://www.w3.org/2001/04/xmldsig-more#"
# Object identifiers of RFC 8017 and RFC 5758, and the same algorithms in XML Signature.
OIDS = {
    "1.2.840.113549.1.1.4": f"{_MORE_SIGNATURES}rsa-md5",
    "1.2.840.113549.1.1.5": f"{_SIGNATURES}rsa-sha1",
    "1.2.840.113549.1.1.11": f"{_MORE_SIGNATURES}rsa-sha256",
    "1.2.840.113549.1.1.12": f"{_MORE_SIGNATURES}rsa-sha384",
    "1.2.840.113549.1.1.13": f"{_MORE_SIGNATURES}rsa-sha512",
    "1.2.840.10045.4.3.2": f"{_MORE_SIGNATURES}ecdsa-sha256",
    "1.2.840.10045.4.3.3": f"{_MORE_SIGNATURES}ecdsa-sha384",
    "1.2.840.10045.4.3.4": f"{_MORE_SIGNATURES}ecdsa-sha512",
}
_WEAK = re.compile(r"(?:sha-?1|md5)$", re.IGNORECASE)
_SCHEMES = {"HTTP": ("http", "https"), "SMTP": ("mailto",)}


def judge(cpa: Cpa, now: datetime) -> Iterator[Finding]:
    """All conflicts of an agreement. `now`: aware."""
    yield from _agreement(cpa, now)
    for party in cpa.parties:
        yield from _certificates(party, now)
        for channel in party.channels:
            yield from _channel(channel)
        transports = {channel.transport.id: channel.transport for channel in party.channels}
        for transport in transports.values():
            if transport.receiver:
                yield from _receiver(transport.receiver)
            for side in (transport.sender, transport.receiver):
                if side and side.security:
                    yield from _security(side.security)
        exchanges = {channel.doc_exchange.id: channel.doc_exchange for channel in party.channels}
        for exchange in exchanges.values():
            for binding in (exchange.sender, exchange.receiver):
                if binding:
                    yield from _binding(binding)
    yield from flows.mismatches(cpa)
    for flow in flows.flows(cpa):
        yield from _flow(flow)
    yield from comparing.differences(cpa)


def _found(where: Placed, matter: Matter, text: str, below: str = "") -> Finding:
    """`below`: the step from the object to the element that is meant; whoever has the document knows its line."""
    path = f"{where.place.path}/tp:{below}" if below else where.place.path
    return Finding(Kind.CONFLICTING, path, where.place.line, text, matter)


def _agreement(cpa: Cpa, now: datetime) -> Iterator[Finding]:
    if cpa.status is not Status.AGREED:
        said = "signed, and this hub does not verify that" if cpa.status is Status.SIGNED else f"only {cpa.status}"
        yield _found(
            cpa, Matter.STATUS, f"The agreement is {said}: make sure that it is the one that both agreed on.", "Status"
        )
    if cpa.end <= cpa.start:
        yield _found(cpa, Matter.END_BEFORE_START, "The agreement ends before it begins.", "End")
    if cpa.end <= now:
        yield _found(
            cpa, Matter.ENDED, f"The agreement ended at {write_date_time(cpa.end)}: ask for its successor.", "End"
        )
    if now < cpa.start:
        yield _found(cpa, Matter.NOT_BEGUN, f"The agreement begins at {write_date_time(cpa.start)}.", "Start")
    first, second = ({(one.type, one.id) for one in party.ids} for party in cpa.parties)
    for kind, shared in sorted(first & second):
        yield _found(cpa, Matter.SAME_PARTY, f"Both parties have the id {shared} ({kind}): it cannot tell them apart.")


def _certificates(party: Party, now: datetime) -> Iterator[Finding]:
    for certificate in party.certificates:
        uses = party.uses(certificate.id)
        if not certificate.der:
            if uses:
                yield _found(
                    certificate,
                    Matter.CERTIFICATE_MISSING,
                    f"There is no X.509 certificate in {certificate.id}, which is for {_listed(uses)}: ask for it.",
                )
            continue
        if certificate.chain:
            count = 1 + len(certificate.chain)
            text = f"{certificate.id} has {count} certificates: the first is taken as the party's own."
            yield _found(certificate, Matter.SEVERAL_CERTIFICATES, text)
        yield from _readable(certificate, now)


def _readable(certificate: Certificate, now: datetime) -> Iterator[Finding]:
    try:
        read = x509.load_der_x509_certificate(certificate.der)
        begins, ends = read.not_valid_before_utc, read.not_valid_after_utc
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        text = f"{certificate.id} holds octets that are no X.509 certificate: ask for it again."
        yield _found(certificate, Matter.CERTIFICATE_UNREADABLE, text)
        return
    if not begins <= now <= ends:
        since, until = write_date_time(begins), write_date_time(ends)
        text = f"{certificate.id} is valid from {since} to {until} only: ask for its successor."
        yield _found(certificate, Matter.CERTIFICATE_TIME, text)


def _listed(uses: frozenset[CertificateUse]) -> str:
    return " and ".join(sorted(uses))


def _channel(channel: Channel) -> Iterator[Finding]:
    sending = channel.doc_exchange.sender
    if channel.ack_requested is Requirement.ALWAYS and sending and sending.reliability is None:
        text = (
            f"The channel {channel.id} always asks for acknowledgements, and its sender has no ReliableMessaging: "
            "what is not acknowledged is not sent again."
        )
        yield _found(channel, Matter.NO_RELIABILITY, text)


def _receiver(receiver: TransportReceiver) -> Iterator[Finding]:
    expected = _SCHEMES.get(receiver.protocol.name.upper(), ())
    for endpoint in receiver.endpoints:
        if endpoint.address != endpoint.uri:
            text = f"{endpoint.uri} has two slashes that mailto: URIs do not have: it is taken as {endpoint.address}."
            yield _found(endpoint, Matter.MAIL_URI, text)
        scheme = _scheme(endpoint.uri)
        if expected and scheme not in expected:
            text = f"The transport is {receiver.protocol.name}, and {endpoint.uri} is no address for it."
            yield _found(endpoint, Matter.URI_SCHEME, text)
        if receiver.security and scheme == "http":
            text = f"The transport has a certificate for TLS, and {endpoint.uri} is without TLS: ask which is meant."
            yield _found(endpoint, Matter.URI_SCHEME, text)


def _scheme(uri: str) -> str:
    try:
        return urlsplit(uri).scheme
    except ValueError:
        return ""


def _security(security: TransportSecurity) -> Iterator[Finding]:
    name, version = security.protocol.name.upper(), security.protocol.version
    if name == "SSL" or (name == "TLS" and version in ("1.0", "1.1")):
        text = f"{security.protocol.name} {version} is not used any more: this hub speaks TLS 1.2 and later."
        yield _found(security, Matter.OLD_TLS, text)


def _binding(binding: MessageBinding) -> Iterator[Finding]:
    reliability, persist = binding.reliability, binding.persist_duration
    if reliability and reliability.retry_interval is not None and reliability.retries is not None and persist:
        attempts, interval = 1 + reliability.retries, reliability.retry_interval
        try:
            needed = attempts * interval
        except OverflowError:
            needed = None
        if needed is None or persist < needed:
            text = (
                f"Messages are remembered for {write_duration(persist)}, and repeated for longer: {attempts} times "
                f"{write_duration(interval)}. A late repetition can be taken for a new message."
            )
            yield _found(binding, Matter.PERSIST_DURATION, text, "PersistDuration")
    if binding.non_repudiation:
        yield from _signing(binding.non_repudiation)
    for algorithm in binding.envelope.encryption if binding.envelope else ():
        yield from _names(algorithm)


def _signing(signing: NonRepudiation) -> Iterator[Finding]:
    if _WEAK.search(signing.hash):
        yield _found(signing, Matter.WEAK_ALGORITHM, _too_weak(signing.hash), "HashFunction")
    for algorithm in signing.algorithms:
        if _WEAK.search(algorithm.uri):
            yield _found(algorithm, Matter.WEAK_ALGORITHM, _too_weak(algorithm.uri))
        yield from _names(algorithm)


def _too_weak(name: str) -> str:
    return f"{name} is too weak: signatures made with it are accepted only where the agreement's terms allow it."


def _names(algorithm: Algorithm) -> Iterator[Finding]:
    others = [OIDS[algorithm.oid]] if algorithm.oid in OIDS else []
    if "://" in algorithm.name:
        others.append(algorithm.name)
    if "://" in algorithm.uri and any(other != algorithm.uri for other in others):
        named = " and ".join(sorted({algorithm.uri, *others}))
        text = f"The names of one algorithm mean several: {named}. {algorithm.uri} is taken."
        yield _found(algorithm, Matter.ALGORITHM_NAMES, text)


def _flow(flow: Flow) -> Iterator[Finding]:
    if not flow.uri:
        text = f"{flow.receiver.name} receives {flow.action} by the channel {flow.channel.id}, which has no endpoint."
        yield _found(flow.received, Matter.NO_ENDPOINT, text)
    for binding, side, party in (
        (flow.sent, flow.sending, flow.sender),
        (flow.received, flow.receiving, flow.receiver),
    ):
        if binding.signed and not (side and side.non_repudiation):
            text = f"{binding.action} must be signed, and the channel of {party.name} does not say how."
            yield _found(binding, Matter.NO_SIGNATURE, text)
