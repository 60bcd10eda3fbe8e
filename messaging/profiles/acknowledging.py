"""What profiles share whose messages are acknowledged one by one, each by a message of its own.

Which MessageIds are stored already, and acknowledgements that are owed once more for a copy (wire-ebxml 1.5 and 3.1).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django.db import connection

from messaging import storage
from messaging.choices import Direction, SignalKind, SignalState
from messaging.entrance.effects import Arrived, Effects
from messaging.models import Message, MessageIdentity, Signal
from messaging.models.bulk import bulk_insert, bulk_set
from messaging.profiles.repeatable import remembering
from messaging.profiles.repeatable.remembering import Key
from messaging.protocol.envelope import Digest, Envelope
from messaging.routing.services import upstream
from partners.choices import Profile
from partners.terms import Terms
from partners.transports import HTTP, Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Arrived):
    """One decoded arrival.

    A Normal message has the terms of its agreement in force and its pair; an answer may come after its agreement ended.
    One for somebody else has those of the hop that brought it. Under an agreement with signatures `signed_by` is the
    SHA-256 of the certificate with which it is signed, and `digests` are what that covers; or `unsigned` says why its
    signature does not count.
    """

    envelope: Envelope
    terms: Terms | None = None
    pair_id: uuid.UUID | None = None
    came_by: Transport = HTTP
    signed_by: str = ""
    digests: tuple[Digest, ...] = ()
    unsigned: str = ""

    @property
    def key(self) -> tuple[uuid.UUID, str]:
        """Whose MessageId it is, and which."""
        return self.principal.party_id, self.envelope.message_id

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
class Acknowledging(Effects):
    """What one transaction writes of messages that are acknowledged. `known`: the MessageIds that are stored.

    `owed`: how many acknowledgements more, by message; `asked`: for which repeat; `new_acks`: those that are not
    written yet.
    """

    known: dict[tuple[uuid.UUID, str], Known] = field(default_factory=dict)
    owed: dict[uuid.UUID, int] = field(default_factory=dict)
    asked: dict[uuid.UUID, Item] = field(default_factory=dict)
    new_acks: dict[uuid.UUID, Signal] = field(default_factory=dict)

    def remember(self, item: Item, message: Message) -> None:
        """Whatever comes under this MessageId from now on is a repeat."""
        self.identities.append(
            MessageIdentity(
                scope_id=item.principal.party_id,
                direction=Direction.IN,
                message_id=item.envelope.message_id,
                stored_id=message.pk,
                digest=item.digest,
                sequence_number=message.sequence_number,
                created_at=self.now,
            )
        )
        self.known[item.key] = Known(message.pk, item.digest, message.sequence_number)

    def owe_again(self, message_pk: uuid.UUID, item: Item) -> None:
        """One acknowledgement more of a message that is stored, for this copy."""
        self.wake = True
        if message_pk in self.new_acks:
            self.new_acks[message_pk].owed += 1
        else:
            self.owed[message_pk] = self.owed.get(message_pk, 0) + 1
            self.asked[message_pk] = item


def look_up(normals: Sequence[Item], batch: Acknowledging, profile: Profile) -> None:
    """Which MessageIds are stored already. After the locks: a repeat on the same pair cannot slip in between."""
    if not normals:
        return
    with connection.cursor() as cursor:
        scopes = list({item.principal.party_id for item in normals})
        cursor.execute(KNOWN, [scopes, list({item.envelope.message_id for item in normals})])
        found = cursor.fetchall()
    batch.known = {(scope, message_id): Known(pk, digest, number) for scope, message_id, pk, digest, number in found}
    keys = {
        Key(item.principal.party_id, item.envelope.message_id)
        for item in normals
        if remembering.has_others(item.principal.party_id, profile)
    }
    numbered = {key for key, known in batch.known.items() if not known.by_other_road}
    for key, one in remembering.stored_as_requests({key for key in keys if key not in numbered}).items():
        batch.known[key] = Known(one.message_pk, "", None, one)


# The ids of arrivals that are stored, by the index that keeps them unique.
KNOWN = """
SELECT scope_id, message_id, stored_id, digest, sequence_number FROM messaging_messageidentity
WHERE scope_id = ANY(%s) AND direction = 'in' AND message_id = ANY(%s)
"""


def is_same(stored: Known, item: Item) -> bool:
    """Whether a copy has the octets of the first one, or the documents of what came by another profile."""
    if stored.other is not None:
        return stored.other.has(*(storage.digest(payload.content) for payload in item.envelope.payloads))
    return stored.digest == item.digest


Acknowledge = Callable[[Item, Message | None, "Acknowledging"], Signal]


def owe_again(batch: Acknowledging, acknowledge: Acknowledge) -> None:
    """Makes stored acknowledgements due once more for each repeat, with the same octets. `acknowledge`: makes one."""
    if not batch.owed:
        return
    ours = Signal.objects.filter(
        about_id__in=list(batch.owed), direction=Direction.OUT, kind=SignalKind.ACKNOWLEDGEMENT
    )
    signals = list(ours.order_by("pk").select_for_update())  # in the order in which outcomes are recorded
    held = [signal for signal in signals if signal.state == SignalState.HELD]
    for signal in signals:
        signal.owed += batch.owed.pop(signal.about_id)  # type: ignore[arg-type]
        # One that is on the wire becomes due again when its outcome is recorded.
        if signal.state not in (SignalState.SENDING, SignalState.HELD):
            signal.state = SignalState.PENDING
            signal.due_at = batch.now
            signal.attempts = 0
    if held:
        last = {key: item.envelope for key, item in batch.asked.items()}
        bulk_insert(upstream.answer_copies(held, last, batch.pairs, batch.now))
    bulk_set(signals, ("owed", "state", "due_at", "attempts"))
    # What is left was never acknowledged: its first copy came as an unreliable message.
    missing = []
    for message_pk, copies in batch.owed.items():
        signal = acknowledge(batch.asked[message_pk], Message(pk=message_pk), batch)
        signal.owed = copies
        missing.append(signal)
    bulk_insert(missing)
