"""A claimed transmission and the parcel that goes with it: what all kinds of claims hand to the engine.

Turns a stored message into its octets, once (invariant 3), and finds them again.
"""

from __future__ import annotations

import hashlib
import logging
import struct
import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from messaging import profile, storage
from messaging.choices import SignalKind, SignalState
from messaging.engine.snapshots import lease_seconds, party_ids, writer_options
from messaging.models import Event, Message, Payload, Signal, Transmission
from messaging.models.bulk import read
from messaging.protocol import document_ids
from messaging.protocol.codecs import ebxml, repeatable, stream
from messaging.protocol.codecs.entity_file import name_of
from messaging.protocol.envelope import (
    DocumentReference,
    Envelope,
    MessageType,
    PartyId,
    PayloadPart,
    RoutingHeader,
    Semantics,
    Wire,
)
from messaging.protocol.errors import EncodeError, NotAMessage
from messaging.transports import Parcel
from messaging.transports.base import Login
from partners import registry, transports
from partners.choices import ExchangeIdentity
from partners.secrets import SecretUnreadable
from partners.terms import Terms
from partners.transports import HTTP

log = logging.getLogger(__name__)

# Of the answer to a request; a body of 64 KiB is kept whole.
ANSWER_BYTES = 72 * 1024
STREAM_HEADERS = (("SOAPAction", stream.SOAP_ACTION),)
# Fields of the Parcel for a server that is not to see our credentials.
WITHHELD: dict[str, Any] = {"authorization": "", "login": None, "client_certificate": ""}


class JobKind(StrEnum):
    PAIR = "pair"
    UNRELIABLE = "unreliable"
    SIGNAL = "signal"
    REPEATABLE = "repeatable"
    STREAM = "stream"
    NOTIFICATION = "notification"  # a message of an atomic transaction


@dataclass(frozen=True, slots=True)
class Job:
    """One transmission that is claimed: what to send, and what its outcome belongs to."""

    kind: JobKind
    transmission_id: uuid.UUID
    transport: str
    parcel: Parcel
    version_id: uuid.UUID
    pair_id: uuid.UUID | None = None
    message_id: uuid.UUID | None = None
    signal_id: uuid.UUID | None = None
    number: int = 0  # of the attempt; tells for all but PAIR and UNRELIABLE which claim an outcome belongs to
    last: bool = False  # if it fails, its pair gives up: it goes out even to a server that is left alone


@dataclass(slots=True)
class Claim:
    """One claiming transaction as it fills up. `limit`: how many of each kind at most. `passed_over`: pairs for
    which nothing is claimed now. `largest`: of what is encoded in it, bytes; None = of any size.
    """

    now: datetime
    limit: int
    passed_over: list[uuid.UUID] = field(default_factory=list)
    largest: int | None = None
    jobs: list[Job] = field(default_factory=list)
    transmissions: list[Transmission] = field(default_factory=list)
    written: list[Event] = field(default_factory=list)
    silent: list[uuid.UUID] = field(default_factory=list)  # messages of transactions that go unanswered too long
    held: list[uuid.UUID] = field(default_factory=list)  # those that wait too long behind a pair that is shut

    def carries(self, message: Message) -> bool:
        """Whether a message may be encoded in it. One that is passed on is made of what came, which is read first."""
        return self.largest is None or (message.size <= self.largest and message.forwarded_from_id is None)

    def transmit(
        self,
        kind: JobKind,
        message: Message,
        body: bytes,
        terms: Terms,
        *,
        address: str = "",
        last: bool = False,
        **more: Any,
    ) -> Transmission:
        """Claims the attempt that the message has come to, with these octets; `more` are further fields of the Parcel.

        `address`: where it goes, if not to the partner's address.
        """
        address = address or terms.partner_address
        attempt = Transmission(
            pair_id=message.pair_id, message=message, number=message.attempts, address=address, started_at=self.now
        )
        fields = {**fields_of_message(kind, message, terms), **more, "attempt": attempt.public_id}
        self.transmissions.append(attempt)
        self.jobs.append(
            Job(
                kind=kind,
                transmission_id=attempt.pk,
                transport=terms.transport,
                parcel=parcel(terms, address, message.content_type, body, self.now, **fields),
                version_id=terms.version_id,
                pair_id=message.pair_id,
                message_id=message.pk,
                number=message.attempts,
                last=last,
            )
        )
        return attempt

    def answer(self, signal: Signal, terms: Terms) -> None:
        """Claims the next attempt of our acknowledgement or Error message, with its stored octets."""
        address = terms.partner_error_address if _to_error_uri(signal, terms) else terms.partner_address
        signal.state = SignalState.SENDING
        signal.attempts += 1
        signal.due_at = self.now + timedelta(seconds=lease_seconds(terms))
        number = signal.sends + signal.attempts
        attempt = Transmission(
            pair_id=signal.pair_id, signal=signal, number=number, address=address, started_at=self.now
        )
        fields = {**fields_of_signal(signal, terms), "attempt": attempt.public_id}
        self.transmissions.append(attempt)
        self.jobs.append(
            Job(
                kind=JobKind.SIGNAL,
                transmission_id=attempt.pk,
                transport=terms.transport,
                parcel=parcel(terms, address, signal.content_type, bytes(signal.body), self.now, **fields),
                version_id=terms.version_id,
                pair_id=signal.pair_id,
                signal_id=signal.pk,
                number=number,
            )
        )

    def but(self, column: str) -> str:
        """What to add to the condition of a query by pairs, so that it leaves out what is passed over."""
        return f" AND {column} <> ALL(%s)" if self.passed_over else ""

    @property
    def parameters(self) -> list[object]:
        """Of a query with a time, `but` and a limit."""
        return [self.now, *([self.passed_over] if self.passed_over else []), self.limit]


def fields_of_message(kind: JobKind, message: Message, terms: Terms) -> dict[str, Any]:
    """Fields of the Parcel of a message; those of a message of a transaction are its own (`wsat.outgoing`)."""
    if kind is JobKind.REPEATABLE:
        headers = request_headers(message, terms)
        return {"headers": headers, "answer_bytes": ANSWER_BYTES, "not_after": message.expires_at}
    if kind is JobKind.STREAM:
        return {"headers": STREAM_HEADERS, "not_after": message.expires_at}
    return {"name": name_of("message", message.message_id)}


def fields_of_signal(signal: Signal, terms: Terms) -> dict[str, Any]:
    """Fields of the Parcel of a signal."""
    return {
        "target": terms.partner_error_uri if _to_error_uri(signal, terms) else terms.partner_uri,
        "headers": STREAM_HEADERS if profile.of(terms).windowed else (),
        "name": name_of(signal.kind, signal.message_id),
    }


def _to_error_uri(signal: Signal, terms: Terms) -> bool:
    return signal.kind == SignalKind.ERROR or profile.of(terms).windowed


def parcel(terms: Terms, address: str, content_type: str, body: bytes, now: datetime, **more: Any) -> Parcel:
    """Bytes with the partner's address and our credential for it; `more` are further fields of the Parcel."""
    try:
        authorization, login = _credentials(terms, now)
        certificate = _certificate(terms, now)
    except SecretUnreadable:
        # Sent without it the partner refuses, which a person sees; not sent at all the whole batch would stand still.
        log.exception("credential unreadable", extra={"action": "credential_unreadable", "partner": terms.partner_name})
        authorization, login, certificate = "", None, ""
    fields = {
        "authorization": authorization,
        "login": login,
        "origin": terms.own_uri,
        "target": terms.partner_uri,
        "server": terms.server,
        "host_key": terms.host_key,
        "trusted_certificates": terms.trusted_certificates,
        "client_certificate": certificate,
        "connect_timeout": terms.connect_timeout,
        "read_timeout": terms.read_timeout,
        **more,
    }
    return Parcel(address=address, content_type=content_type, body=body, **fields)


def _credentials(terms: Terms, now: datetime) -> tuple[str, Login | None]:
    """The Authorization header, or the log-in for the server of mail or files. Raises SecretUnreadable."""
    known = registry.current()
    if terms.transport == HTTP.name:
        return known.outbound_authorization(terms.hop_party_id, now), None
    transport = transports.named(terms.transport)
    if transport.relayed and not terms.server:
        return "", None  # the hub's own relay has a log-in of its own; the partner's goes to nobody else
    found = known.outbound_login(terms.hop_party_id, now, *transport.logins)
    return "", Login(*found) if found else None


def _certificate(terms: Terms, now: datetime) -> str:
    """Our certificate with its key, for servers that ask for one. Raises SecretUnreadable."""
    if terms.transport != HTTP.name:
        return ""
    return registry.current().outbound_certificate(terms.hop_party_id, now)


_BARE_FRAME = storage.pack_frame((b"", b""))  # a body that is one payload and nothing else
_HEADER_SAFE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def payloads_of(message_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, list[Payload]]:
    """Payload rows by message, in their order: one query."""
    found: dict[uuid.UUID, list[Payload]] = defaultdict(list)
    rows = read(
        Payload,
        "SELECT * FROM messaging_payload WHERE message_id = ANY(%s) ORDER BY message_id, number",
        [list(message_ids)],
    )
    for payload in rows:
        found[payload.message_id].append(payload)
    return found


def prepare(message: Message, payloads: list[Payload], terms: Terms, now: datetime) -> bytes:
    """Encodes the message under its sequence number, sets frame, digest and content type, and returns the body.

    Raises EncodeError (no valid wire form) or storage.PayloadMissing; the row is unchanged then.
    """
    contents = [storage.load(payload.content, payload.stored_as) for payload in payloads]
    hop = RoutingHeader(
        sender_uri=terms.own_uri,
        receiver_uri=terms.partner_uri,
        error_uri=terms.own_error_uri,
        timestamp=now,
        sequence_number=message.sequence_number,
    )
    wire = _one_hop_further(message, hop, terms) if message.forwarded_from_id else None
    if wire is None:
        wire = ebxml.encode(_envelope(message, payloads, contents, hop, terms), writer_options(terms))
    body = wire.join(contents)
    message.wire_frame = storage.pack_frame(wire.literals)
    message.content_type = wire.content_type
    message.digest = hashlib.sha256(body).hexdigest()
    return body


def _envelope(
    message: Message, payloads: list[Payload], contents: list[bytes], hop: RoutingHeader, terms: Terms
) -> Envelope:
    who = ends(message, terms)
    return Envelope(
        message_type=MessageType.NORMAL,
        message_id=message.message_id,
        timestamp=message.created_at,
        from_parties=who.from_parties,
        to_parties=who.to_parties,
        agreement_id=who.agreement_id,
        conversation_id=message.conversation_id,
        service=message.service,
        action=message.action,
        semantics=Semantics(message.semantics),
        ref_to_message_id=message.ref_to_message_id,
        document_id=message.document_id,
        routing=(hop,),
        manifest=tuple(
            DocumentReference(
                label=payload.label, document_id=f"cid:{payload.content_id}", description=payload.filename
            )
            for payload in payloads
        ),
        payloads=tuple(
            PayloadPart(payload.content_id, payload.content_type, content)
            for payload, content in zip(payloads, contents, strict=True)
        ),
    )


@dataclass(frozen=True, slots=True)
class Ends:
    """Whose a message is, for whom, and under which agreement: end to end, whatever hops are between."""

    from_parties: tuple[PartyId, ...]
    to_parties: tuple[PartyId, ...]
    agreement_id: str


def ends(message: Message, terms: Terms) -> Ends:
    """Of what we send ourselves those of the agreement; of what we pass on those that it came with.

    Raises storage.PayloadMissing when what came cannot be read any more.
    """
    agreed = Ends(party_ids(terms.own_identifiers), party_ids(terms.partner_identifiers), terms.tpa_id)
    if not message.forwarded_from_id:
        return agreed
    came, body = received(message.forwarded_from_id)
    hop = registry.current().version(came.agreement_version_id)
    try:
        said = profile.of(hop).decode(came.content_type, body)
    except NotAMessage as error:
        raise storage.PayloadMissing(f"what came as {message.message_id} cannot be read any more: {error}") from error
    if said is not None:
        return Ends(said.from_parties, said.to_parties, said.agreement_id)
    # A request says no more than for whom it is: it goes on as ours, under our agreement with the next hop.
    return agreed


def received(message_pk: uuid.UUID) -> tuple[Message, bytes]:
    """A received message with its exact octets. Raises storage.PayloadMissing when they are not there any more."""
    message = Message.objects.filter(pk=message_pk).first()
    if message is None:
        raise storage.PayloadMissing("the message as it was received is no longer in the store")
    return message, stored_body(message, list(Payload.objects.filter(message=message_pk).order_by("number")))


def _one_hop_further(message: Message, hop: RoutingHeader, terms: Terms) -> Wire | None:
    """The received octets with our RoutingHeader added (spec 1, 4.1.2); None for what came by another profile."""
    assert message.forwarded_from_id is not None
    came, body = received(message.forwarded_from_id)
    if not profile.of(registry.current().version(came.agreement_version_id)).numbered:
        return None
    try:
        return ebxml.forwarded(came.content_type, body, hop, padded=terms.write_padded_numbers)
    except NotAMessage as error:
        raise EncodeError(f"what came as {message.message_id} cannot be read any more: {error}") from error


def prepare_request(message: Message, payloads: list[Payload]) -> bytes:
    """The body of a repeatable request is its one payload as it is. Sets frame, digest and content type.

    Raises storage.PayloadMissing; the row is unchanged then.
    """
    (payload,) = payloads
    body = storage.load(payload.content, payload.stored_as)
    message.wire_frame = _BARE_FRAME
    message.content_type = payload.content_type
    message.digest = payload.sha256
    return body


def request_headers(message: Message, terms: Terms) -> tuple[tuple[str, str], ...]:
    """The headers of a repeatable request, from what never changes: the same for every copy of it."""
    by_key = terms.exchange_identity == ExchangeIdentity.KEY
    identity = repeatable.Identity(message.message_id, None if by_key else message.first_sent_at, by_key=by_key)
    named = {
        "RM-Service": message.service,
        "RM-Action": message.action,
        "RM-Conversation-ID": message.conversation_id,
        "RM-Ref-To-Message-ID": message.ref_to_message_id,
    }
    if message.document_id:
        named[document_ids.HEADER] = message.document_id
    if terms.hop_party_id != terms.partner_id:  # the hop is a router, and passes it on
        named["RM-To"] = ":".join(terms.partner_identifiers[0])
    # Header values are ASCII (RFC 9110, 5.5); what is not, and the sign that says so, is percent-encoded.
    return (
        *repeatable.write(identity),
        *((name, quote(value, safe=_HEADER_SAFE)) for name, value in named.items() if value),
    )


@dataclass(frozen=True, slots=True)
class Position:
    """A message's place in its stream. `previous`: the number before it that the receiver is to have had."""

    source: str
    tx_sequence_id: int
    number: int
    previous: int
    request_receipt: bool


def prepare_for_stream(message: Message, payloads: list[Payload], terms: Terms, position: Position) -> bytes:
    """Encodes the message under its place in the stream, sets that, frame, digest and content type; returns the body.

    The same message at the same place gives the same octets each time; another `previous`, or another wish for an order
    acknowledgement, changes only those. Raises EncodeError or storage.PayloadMissing; the row is unchanged then.
    """
    contents = [storage.load(payload.content, payload.stored_as) for payload in payloads]
    receipts_to = terms.own_error_uri or terms.own_uri
    who = ends(message, terms)
    envelope = stream.StreamEnvelope(
        kind=stream.StreamKind.MESSAGE,
        message_id=message.message_id,
        to=terms.partner_uri,
        sent_at=message.created_at,
        expires_at=message.expires_at,
        source=position.source,
        label=message.action,
        position=stream.StreamPosition(
            source=position.source,
            tx_sequence_id=position.tx_sequence_id,
            current=position.number,
            previous=position.previous,
            start=position.number == 1,
            receipts_to=receipts_to if position.number == 1 else "",
            receipt_requested=position.request_receipt,
        ),
        wish=stream.ReceiptWish(send_to=receipts_to) if terms.final_receipt else None,
        agreement_id=who.agreement_id,
        conversation_id=message.conversation_id,
        service=message.service,
        action=message.action,
        ref_to_message_id=message.ref_to_message_id,
        document_id=message.document_id,
        from_parties=who.from_parties,
        to_parties=who.to_parties,
        payloads=tuple(
            PayloadPart(payload.content_id, payload.content_type, content, filename=payload.filename)
            for payload, content in zip(payloads, contents, strict=True)
        ),
    )
    wire = stream.encode(envelope)
    body = wire.join(contents)
    message.tx_sequence_id = Decimal(position.tx_sequence_id)
    message.sequence_number = position.number
    message.previous_number = position.previous
    message.wire_frame = storage.pack_frame(wire.literals)
    message.content_type = wire.content_type
    message.digest = hashlib.sha256(body).hexdigest()
    return body


def stored_body(message: Message, payloads: list[Payload]) -> bytes:
    """The exact octets of a message that was prepared or received.

    Raises ValueError when it has none yet, and storage.PayloadMissing when what is stored no longer gives them.
    """
    if message.wire_frame is None:
        raise ValueError(f"{message.public_id} was not prepared yet, so it has no octets")
    slices = [storage.load(payload.content, payload.stored_as) for payload in payloads if not payload.in_frame]
    try:
        body = Wire(message.content_type, storage.unpack_frame(message.wire_frame)).join(slices)
    except (ValueError, struct.error) as error:
        raise storage.PayloadMissing(f"the stored parts of {message.public_id} do not fit together: {error}") from error
    if hashlib.sha256(body).hexdigest() != message.digest:
        raise storage.PayloadMissing(f"the stored octets of {message.public_id} are not those of its SHA-256")
    return body
