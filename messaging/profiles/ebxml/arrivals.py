"""ebXML messages that have come in: one of them, what is known of it, and what a transaction writes of many."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import NamedTuple

from messaging.entrance.effects import Arrived, Effects
from messaging.models import Message, Signal
from messaging.profiles.repeatable import remembering
from messaging.protocol.envelope import Envelope
from partners.terms import Terms
from partners.transports import HTTP, Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Arrived):
    """One decoded arrival.

    A Normal message has the terms of its agreement in force and its pair; an answer may come after its agreement ended.
    One for somebody else has those of the hop that brought it.
    """

    envelope: Envelope
    terms: Terms | None = None
    pair_id: uuid.UUID | None = None
    came_by: Transport = HTTP

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
class Batch(Effects):
    """What one transaction writes of ebXML messages and answers. `known`: the MessageIds that are stored.

    `owed`: how many acknowledgements more, by message; `asked`: for which repeat; `new_acks`: those that are not
    written yet. `answered`: messages of ours; `ended`: what `upstream` has to be told.
    """

    known: dict[tuple[uuid.UUID, str], Known] = field(default_factory=dict)
    owed: dict[uuid.UUID, int] = field(default_factory=dict)
    asked: dict[uuid.UUID, Item] = field(default_factory=dict)
    new_acks: dict[uuid.UUID, Signal] = field(default_factory=dict)
    answered: dict[uuid.UUID, Message] = field(default_factory=dict)
    ended: list[tuple[uuid.UUID | None, str]] = field(default_factory=list)
