"""What the entrance of streams hands on: messages to `accepting`, receipts to `acknowledged`."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from messaging.choices import SignalKind
from messaging.profiles.stream.holding import Key
from messaging.protocol.codecs.stream import StreamEnvelope, StreamPosition
from messaging.protocol.streams.acceptance import Arrival as Place
from messaging.protocol.streams.final import Reason
from messaging.routing.services.routing import Road
from partners.terms import Principal, Terms


@dataclass(frozen=True, slots=True)
class Item:
    """One message of an authenticated partner under an agreement in force, decoded and checked as far as it goes alone.

    `service`, `action`: what it says, or the agreement's only ones. `refused`: why it is not taken, whatever its place
    in the stream (its sender gets a final receipt); `detail` says it in words. `may_wait`: when its predecessor is not
    there yet, nothing is decided. `road`: of a message for somebody else.
    """

    envelope: StreamEnvelope
    body: bytes
    content_type: str
    principal: Principal
    digest: str
    terms: Terms
    pair_id: uuid.UUID
    service: str
    action: str
    refused: Reason | None = None
    detail: str = ""
    may_wait: bool = False
    road: Road | None = None
    remote_address: str = ""

    @property
    def position(self) -> StreamPosition:
        """Of a transactional message."""
        assert self.envelope.position is not None
        return self.envelope.position

    @property
    def place(self) -> Place:
        """What the rules of spec 3 look at."""
        position = self.position
        return Place(position.tx_sequence_id, position.current, position.previous)

    @property
    def stream(self) -> Key:
        """Which stream it belongs to."""
        return self.pair_id, self.position.source


@dataclass(frozen=True, slots=True)
class Receipt:
    """An order acknowledgement (kind ACKNOWLEDGEMENT) or a final receipt (FINAL) of an authenticated partner.

    `terms`: the agreement in force whose address it came to, if there is one. `source`, `tx_sequence_id`: the stream
    that it names ("" and 0 without one). `number`: lastOrdinal; of a final receipt the message's number, or 0.
    `about`: MessageId that a final receipt is about.
    """

    kind: SignalKind
    principal: Principal
    terms: Terms | None
    message_id: str
    source: str
    tx_sequence_id: int
    number: int
    about: str
    message_class: int
    content_type: str
    body: bytes
    digest: str
    remote_address: str = ""
