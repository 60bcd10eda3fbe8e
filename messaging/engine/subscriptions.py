"""Which triggers a stored document goes to: one delivery for each, written by the transaction that stores it (spec 4).

Triggers are few and documents are many, so they are kept in memory and looked up once a second at most: a trigger that
is new or changed is seen by every process within about a second.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from messaging import storage
from messaging.choices import DocumentIdSource, ServiceKind, TriggerState
from messaging.models import Delivery, Message, Payload, Trigger
from messaging.protocol import document_ids, processing, selecting
from partners.terms import Terms
from partners.transports import HTTP, Transport
from rmhub.ids import uuid7
from rmhub.remembered import Remembered

# The contents of a message, each with its content type; called where a trigger looks into them.
Documents = Callable[[], Iterable[tuple[bytes, str]]]
_COLUMNS = ("id", "party_id", "agreement_id", "documents", "answers", "kind", "document_id_path")


UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Subscription:
    """What of a trigger decides whether it wants a document."""

    trigger_id: uuid.UUID
    party_id: uuid.UUID | None
    agreement_id: uuid.UUID | None
    documents: tuple[tuple[str, str], ...]
    answers: bool
    kind: str
    document_id_path: str

    def wants(self, *, party_id: uuid.UUID, agreement_id: uuid.UUID, service: str, action: str) -> bool:
        """Whether party, agreement, service and action are all ones that it names (or leaves open)."""
        if self.party_id not in (None, party_id) or self.agreement_id not in (None, agreement_id):
            return False
        return not self.documents or any(wanted == service and of in ("*", action) for wanted, of in self.documents)


@Remembered
def current() -> tuple[Subscription, ...]:
    """The subscriptions of all triggers that are not disabled, at most about a second old.

    Members of an atomic trigger have none: they process its documents.
    """
    own = Trigger.objects.exclude(state=TriggerState.DISABLED).filter(member_of=None)
    return tuple(
        Subscription(key, party, agreement, tuple((d["service"], d["action"]) for d in documents), *rest)
        for key, party, agreement, documents, *rest in own.order_by("pk").values_list(*_COLUMNS)
    )


def matching(terms: Terms, service: str, action: str) -> list[Subscription]:
    """The subscriptions that want a document which came under these terms."""
    return [
        subscription
        for subscription in current()
        if subscription.wants(
            party_id=terms.partner_id, agreement_id=terms.agreement_id, service=service, action=action
        )
    ]


def deliveries_for(
    message: Message,
    documents: Documents | None,
    terms: Terms,
    now: datetime,
    *,
    came_by: Transport | None = HTTP,
    answering: uuid.UUID | None = None,
    memory_lost: bool = False,
) -> list[Delivery]:
    """One delivery, due now, for each trigger that wants the inbound message; not written yet.

    `documents` are its contents, looked into for triggers that find the document's id there; it may raise
    storage.PayloadMissing. None: they cannot be read. `came_by` is what brought the message in, which may be another
    transport than the agreement's; None: not known any more. `answering` is the trigger whose answer the sender of a
    synchronous exchange waits for: its delivery is `attended`. `memory_lost`: the document may be a repeat that this
    database has forgotten. What callables did with the first copy was in this database, and is forgotten with it.
    """
    made = []
    for subscription in matching(terms, message.service, message.action):
        found, source = _document_id(message, documents, subscription.document_id_path)
        delivery = Delivery(
            id=uuid7(),
            trigger_id=subscription.trigger_id,
            message=message,
            pair_id=message.pair_id,
            sender_id=terms.partner_id,
            position=message.position,
            document_id=found,
            document_id_from=source,
            # A mail system, or whoever puts files into a folder, may hand a document over again: nobody counts (spec 4,
            # step 1).
            redelivery_count=0 if came_by == HTTP else UNKNOWN,
            due_at=now,
            attended=subscription.trigger_id == answering,
            memory_lost=memory_lost and subscription.kind != ServiceKind.CALLABLE,
            created_at=now,
        )
        made.append(delivery)
    return made


def stored(message: Message) -> Documents:
    """The documents of a stored message, read when they are needed. Those too large to be looked into are left out."""
    rows = Payload.objects.filter(message=message.pk, size__lte=selecting.MAX_BYTES).order_by("number")
    return lambda: ((storage.load(row.content, row.stored_as), row.content_type) for row in rows)


def _document_id(message: Message, documents: Documents | None, path: str) -> tuple[str, DocumentIdSource]:
    """The id that the history goes by, "" for none that it could know, and where it was found: what the document itself
    says counts first, then what its sender said of it. Of one that cannot be read nobody knows what it says.
    """
    if path and documents is None:
        return "", DocumentIdSource.DOCUMENT
    inside = document_ids.in_documents(path, documents()) if path and documents is not None else ""
    source = DocumentIdSource.MESSAGE
    if inside:
        source = DocumentIdSource.DOCUMENT
    elif message.document_id not in ("", message.message_id):
        source = DocumentIdSource.SENDER
    return processing.document_id(inside, message.document_id, message.message_id) or "", source
