"""Turns a stored message into its octets, once (invariant 3), and finds them again."""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from messaging import profile, storage
from messaging.choices import SignalKind
from messaging.claim import Claim
from messaging.engine.snapshots import party_ids
from messaging.models import Message, Payload, Signal
from messaging.protocol.codecs.entity_file import name_of
from messaging.protocol.envelope import PartyId, Wire
from messaging.protocol.errors import NotAMessage
from messaging.read_ahead import Octets
from partners import registry
from partners.terms import Terms


def prepare(message: Message, payloads: list[Payload], terms: Terms, now: datetime) -> Octets:
    """Encodes the message under its sequence number, sets frame, digest and content type, and returns the body.

    Raises EncodeError (no valid wire form) or storage.PayloadMissing; the row is unchanged then.
    """
    contents = [storage.opened(payload.content, payload.stored_as) for payload in payloads]
    wire = profile.of(terms).write(message, payloads, contents, terms, now)
    return keep(message, wire, [one for payload, one in zip(payloads, contents, strict=True) if not payload.in_frame])


def keep(message: Message, wire: Wire, contents: list[bytes | storage.Large]) -> Octets:
    """Sets frame, digest and content type of a message that was encoded; returns its body. `contents`: those of its
    documents that are slices of that.
    """
    body = storage.join(wire.around(contents))
    message.wire_frame = storage.pack_frame(wire.literals)
    message.content_type = wire.content_type
    message.digest = storage.digest(body)
    return body


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


def received(message_pk: uuid.UUID) -> tuple[Message, bytes | storage.Body]:
    """A received message with its exact octets; those of which a part is encoded in memory. Raises
    storage.PayloadMissing when they are not there any more.
    """
    message = Message.objects.filter(pk=message_pk).first()
    if message is None:
        raise storage.PayloadMissing("the message as it was received is no longer in the store")
    payloads = list(Payload.objects.filter(message=message_pk).order_by("number"))
    octets = stored_octets(message, payloads)
    return message, octets[:] if any(payload.in_frame for payload in payloads) else octets


def answer(signal: Signal, terms: Terms, claim: Claim) -> None:
    """Claims the next attempt of our acknowledgement or Error message, with its stored octets."""
    address = terms.partner_error_address if _to_error_uri(signal, terms) else terms.partner_address
    claim.answer(signal, terms, address, **fields_of_signal(signal, terms))


def fields_of_signal(signal: Signal, terms: Terms) -> dict[str, Any]:
    """Fields of the Parcel of a signal."""
    return {
        "target": terms.partner_error_uri if _to_error_uri(signal, terms) else terms.partner_uri,
        "headers": profile.of(terms).answer_headers,
        "name": name_of(signal.kind, signal.message_id),
    }


def _to_error_uri(signal: Signal, terms: Terms) -> bool:
    return signal.kind == SignalKind.ERROR or profile.of(terms).answers_apart


def stored_body(message: Message, payloads: list[Payload]) -> bytes:
    """`stored_octets` in memory, however many they are."""
    octets = stored_octets(message, payloads)
    return octets if isinstance(octets, bytes) else b"".join(octets)


def stored_octets(message: Message, payloads: list[Payload]) -> bytes | storage.Body:
    """The exact octets of a message that was prepared or received.

    Raises storage.PayloadMissing when it has none yet, or what is stored no longer gives them.
    """
    if message.wire_frame is None:
        raise storage.PayloadMissing(f"{message.public_id} has no octets")
    slices = [storage.opened(payload.content, payload.stored_as) for payload in payloads if not payload.in_frame]
    try:
        body = storage.join(Wire(message.content_type, storage.unpack_frame(message.wire_frame)).around(slices))
    except (ValueError, struct.error) as error:
        raise storage.PayloadMissing(f"the stored parts of {message.public_id} do not fit together: {error}") from error
    if storage.digest(body) != message.digest:
        raise storage.PayloadMissing(f"the stored octets of {message.public_id} are not those of its SHA-256")
    return body
