"""ebXML messages that have come in: one of them, what is known of it, and what a transaction will write of many."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from messaging.models import Delivery, Event, Message, MessageIdentity, Payload, Rejection, Signal, Transmission
from messaging.profiles.repeatable import remembering
from messaging.protocol.envelope import Envelope
from messaging.routing.services import forwarding
from messaging.routing.services.routing import Road
from partners.choices import Transport
from partners.terms import Principal, Terms


@dataclass(frozen=True, slots=True)
class Item:
    """One decoded arrival of an authenticated partner.

    A Normal message has the terms of its agreement in force and its pair; an answer may come after its agreement ended.
    One for somebody else has those of the hop that brought it, and a road.
    """

    envelope: Envelope
    body: bytes
    content_type: str
    principal: Principal
    digest: str
    terms: Terms | None = None
    pair_id: uuid.UUID | None = None
    road: Road | None = None
    remote_address: str = ""
    came_by: Transport = Transport.HTTP

    @property
    def agreed(self) -> Terms:
        """The terms of a Normal message."""
        assert self.terms is not None
        return self.terms


class Known(NamedTuple):
    """A MessageId that is stored: the message, the digest of its octets, the number that it came under.

    Without a digest it came as a repeatable request (spec 2); `other` says what is known of its payloads then.
    """

    message_pk: uuid.UUID
    digest: str
    number: int | None
    other: remembering.Elsewhere | None = None

    @property
    def by_other_road(self) -> bool:
        return not self.digest


@dataclass(slots=True)
class Batch:
    """What one transaction will write; filled item by item."""

    now: datetime
    messages: list[Message] = field(default_factory=list)
    payloads: list[Payload] = field(default_factory=list)
    identities: list[MessageIdentity] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    attempts: list[Transmission] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    repeats: dict[uuid.UUID, int] = field(default_factory=dict)
    owed: dict[uuid.UUID, int] = field(default_factory=dict)
    asked: dict[uuid.UUID, Item] = field(default_factory=dict)  # a repeat for which an acknowledgement is owed
    known: dict[tuple[uuid.UUID, str], Known] = field(default_factory=dict)
    new_acks: dict[uuid.UUID, Signal] = field(default_factory=dict)
    answered: dict[uuid.UUID, Message] = field(default_factory=dict)
    ended: list[tuple[uuid.UUID | None, str]] = field(default_factory=list)  # for `upstream`
    onward: forwarding.Onward = field(default_factory=forwarding.Onward)
    wake: bool = False
