"""Which triggers a stored document goes to: one delivery for each, written by the transaction that stores it (spec 4).

Triggers are few and documents are many, so they are kept in memory and looked up once a second at most: a trigger that
is new or changed is seen by every process within about a second.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from datetime import datetime

from messaging.choices import TriggerState
from messaging.models import Delivery, Message, Trigger
from messaging.protocol.processing import document_id
from partners.terms import Terms
from rmhub.ids import uuid7

CHECK_SECONDS = 1.0
_COLUMNS = ("id", "party_id", "agreement_id", "documents", "answers")


@dataclass(frozen=True, slots=True)
class Subscription:
    """What of a trigger decides whether it wants a document."""

    trigger_id: uuid.UUID
    party_id: uuid.UUID | None
    agreement_id: uuid.UUID | None
    documents: tuple[tuple[str, str], ...]
    answers: bool

    def wants(self, *, party_id: uuid.UUID, agreement_id: uuid.UUID, service: str, action: str) -> bool:
        """Whether party, agreement, service and action are all ones that it names (or leaves open)."""
        if self.party_id not in (None, party_id) or self.agreement_id not in (None, agreement_id):
            return False
        return not self.documents or any(wanted == service and of in ("*", action) for wanted, of in self.documents)


_known: tuple[float, tuple[Subscription, ...]] | None = None


def current() -> tuple[Subscription, ...]:
    """The subscriptions of all triggers that are not disabled, at most about a second old.

    Members of an atomic trigger have none: they process its documents.
    """
    global _known
    at = time.monotonic()
    if _known is None or at - _known[0] > CHECK_SECONDS:
        own = Trigger.objects.exclude(state=TriggerState.DISABLED).filter(member_of=None)
        rows = own.order_by("pk").values_list(*_COLUMNS)
        found = tuple(
            Subscription(key, party, agreement, tuple((d["service"], d["action"]) for d in documents), answers)
            for key, party, agreement, documents, answers in rows
        )
        _known = (at, found)
    return _known[1]


def reset() -> None:
    """Forgets what was read, so that the next look is at the database (after a change in this process; tests)."""
    global _known
    _known = None


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
    message: Message, terms: Terms, now: datetime, *, answering: uuid.UUID | None = None
) -> list[Delivery]:
    """One delivery, due now, for each trigger that wants the inbound message; not written yet.

    `answering` is the trigger whose answer the sender of a synchronous exchange waits for: its delivery is `attended`.
    """
    return [
        Delivery(
            id=uuid7(),
            trigger_id=subscription.trigger_id,
            message=message,
            pair_id=message.pair_id,
            sender_id=terms.partner_id,
            position=message.position,
            document_id=document_id(message.message_id) or "",
            due_at=now,
            attended=subscription.trigger_id == answering,
            created_at=now,
        )
        for subscription in matching(terms, message.service, message.action)
    ]
