"""How an outbound message that was in doubt was settled: who, when, how and why, instead of the doubt that is over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from messaging import causes
from messaging.choices import Direction, MessageState
from messaging.models import Event, Message

_SAID = {
    "delivered": "the partner has it",
    "resubmit": "it was sent again, as a new message",
}


@dataclass(frozen=True, slots=True)
class Settled:
    """`how`: the decision in words; `was`: what had made it doubtful."""

    by: str
    at: datetime
    how: str
    reason: str
    was: str


def of_message(message: Message) -> Settled | None:
    """None for a message that nobody settled. One query for those that ended with a cause."""
    ended = message.state in (MessageState.DELIVERED, MessageState.SKIPPED)
    if message.direction != Direction.OUT or not ended or not message.cause:
        return None
    event = Event.objects.filter(message=message.pk, type="message.settled").order_by("-id").first()
    if event is None:
        return None
    data = event.data
    return Settled(
        by=str(data.get("actor", "")),
        at=event.at,
        how=_SAID.get(str(data.get("decision", "")), str(data.get("decision", ""))),
        reason=str(data.get("reason", "")),
        was=causes.lookup(message.cause).label,
    )
