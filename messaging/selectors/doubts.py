"""What is in doubt, by evidence group: documents that share a trigger and a reason, messages that share a pair and one.

People settle a group at once, because what is true of one of them is likely to be true of all; never more than a group.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.db.models import Count, F, Min, Q, QuerySet
from django.db.models.functions import Coalesce

from messaging import causes
from messaging.choices import Consult, DeliveryState, Direction, MessageState
from messaging.models import Delivery, Message, Pair, Trigger
from messaging.protocol.processing import Doubt
from messaging.selectors import deliveries, messages

MOST = 10_000
# How long something may be in doubt before its age is shown in yellow and in red, in seconds.
LATE, TOO_LATE = 3600, 4 * 3600


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a document is in doubt: what happened, and how a person finds out."""

    label: str
    sentence: str
    advice: str


REASONS: Mapping[str, Reason] = {
    Doubt.REDELIVERED: Reason(
        "Handed over before, no history",
        "The document was handed over before, and the trigger keeps no history that could say what came of it.",
        "Look for it in the application. Let the trigger use the document history, and this happens far less.",
    ),
    Doubt.STARTED: Reason(
        "Begun, never finished",
        "The application was given the document before, and whether it finished was never recorded: the connection "
        "or the worker was lost.",
        "Look for the document in the application: is its effect there?",
    ),
    Doubt.UNUSABLE_ID: Reason(
        "No usable id",
        "Its MessageId is longer than 96 characters, so the document history cannot know it.",
        "Look for it in the application, and ask the partner for shorter ids.",
    ),
    Doubt.HISTORY_UNREACHABLE: Reason(
        "History could not be read",
        "The document history could not be read, so nobody can say whether the document is new.",
        "When the database is mended, have it decided again, or look for it in the application.",
    ),
    Doubt.RESOLVER_IN_DOUBT: Reason(
        "Resolver cannot say",
        "The resolver was asked and does not know either.",
        "Look for the document in the application: is its effect there?",
    ),
    Doubt.RESOLVER_FAILED: Reason(
        "Resolver failed",
        "The resolver could not answer: it was not available, or ended with an error.",
        "Mend the resolver and ask it again.",
    ),
    Doubt.RESOLVER_NONSENSE: Reason(
        "Resolver's answer unknown",
        "The resolver answered something that is neither NEW nor DUPLICATE nor IN DOUBT.",
        "Mend the resolver and ask it again.",
    ),
}


def reason(code: str) -> Reason:
    """The entry of a doubt code; an unknown one gets its own name."""
    known = REASONS.get(code)
    if known is not None:
        return known
    label = code.replace("_", " ").capitalize() or "No reason recorded"
    return Reason(label, f"{label}.", "Look for the document in the application.")


@dataclass(frozen=True, slots=True)
class DoubtGroup:
    """Inbound documents in doubt with one trigger for one reason. `later` of them were put off by a person."""

    trigger: Trigger
    doubt: str
    count: int
    later: int
    oldest_at: datetime

    @property
    def reason(self) -> Reason:
        return reason(self.doubt)

    @property
    def can_ask(self) -> bool:
        return self.trigger.resolver != Consult.NONE


@dataclass(frozen=True, slots=True)
class OutboundGroup:
    """Outbound messages in doubt on one pair for one cause."""

    pair: Pair
    cause: str
    count: int
    later: int
    oldest_at: datetime

    @property
    def reason(self) -> Reason:
        known = causes.lookup(self.cause)
        return Reason(known.label, known.sentence, known.action)


def groups(now: datetime, *, trigger_id: uuid.UUID | None = None) -> list[DoubtGroup]:
    """Inbound groups, the oldest first. Two queries."""
    found = Delivery.objects.filter(state=DeliveryState.IN_DOUBT)
    if trigger_id is not None:
        found = found.filter(trigger=trigger_id)
    rows = list(
        found.order_by()
        .values("trigger", "doubt")
        .annotate(
            number=Count("pk"),
            later=Count("pk", filter=Q(remind_at__gt=now)),
            oldest=Min(Coalesce("completed_at", "created_at")),
        )
    )
    known = Trigger.objects.defer("secret_encrypted").in_bulk({row["trigger"] for row in rows})
    made = [
        DoubtGroup(known[row["trigger"]], row["doubt"], row["number"], row["later"], row["oldest"])
        for row in rows
        if row["trigger"] in known
    ]
    return sorted(made, key=lambda group: group.oldest_at)


def group(trigger: Trigger, doubt: str, now: datetime) -> DoubtGroup | None:
    """One group as it is now; None when nothing is in it any more."""
    return next((one for one in groups(now, trigger_id=trigger.pk) if one.doubt == doubt), None)


def documents(trigger_id: uuid.UUID, doubt: str) -> QuerySet[Delivery]:
    """The documents of one group. Not ordered; pages by ("id",), the oldest first."""
    found = Delivery.objects.filter(trigger=trigger_id, state=DeliveryState.IN_DOUBT, doubt=doubt)
    return deliveries.with_names(found)


def outbound_groups(now: datetime, *, pair_id: uuid.UUID | None = None) -> list[OutboundGroup]:
    """Outbound groups, the oldest first. Two queries."""
    found = Message.objects.filter(state=MessageState.IN_DOUBT, direction=Direction.OUT)
    if pair_id is not None:
        found = found.filter(pair=pair_id)
    rows = list(
        found.order_by()
        .values("cause", pair_key=F("pair"))
        .annotate(
            number=Count("pk"),
            later=Count("pk", filter=Q(remind_at__gt=now)),
            oldest=Min(Coalesce("completed_at", "created_at")),
        )
    )
    known = Pair.objects.select_related("partner", "own_party").in_bulk({row["pair_key"] for row in rows})
    made = [
        OutboundGroup(known[row["pair_key"]], row["cause"], row["number"], row["later"], row["oldest"])
        for row in rows
        if row["pair_key"] in known
    ]
    return sorted(made, key=lambda one: one.oldest_at)


def outbound_group(pair: Pair, cause: str, now: datetime) -> OutboundGroup | None:
    """One group as it is now; None when nothing is in it any more."""
    return next((one for one in outbound_groups(now, pair_id=pair.pk) if one.cause == cause), None)


def outbound_messages(pair_id: uuid.UUID, cause: str) -> QuerySet[Message]:
    """The messages of one group. Not ordered; pages by ("id",)."""
    found = Message.objects.filter(pair=pair_id, state=MessageState.IN_DOUBT, direction=Direction.OUT, cause=cause)
    return messages.with_names(found)


@dataclass(frozen=True, slots=True)
class Counts:
    """What is in doubt and not put off, counted up to `MOST`."""

    inbound: int
    outbound: int

    @property
    def all(self) -> int:
        return self.inbound + self.outbound


# How many are in doubt and not put off, inbound and outbound: two columns, with the parameters of `count_parameters`.
COUNTS = (
    "(SELECT count(*) FROM (SELECT 1 FROM messaging_delivery WHERE state = 'in_doubt'"
    " AND (remind_at IS NULL OR remind_at <= %s) LIMIT %s) AS counted),"
    " (SELECT count(*) FROM (SELECT 1 FROM messaging_message WHERE state = 'in_doubt' AND direction = 'out'"
    " AND state NOT IN ('delivered', 'received') AND (remind_at IS NULL OR remind_at <= %s) LIMIT %s) AS counted)"
)


def count_parameters(now: datetime) -> list[datetime | int]:
    """What `COUNTS` takes."""
    return [now, MOST, now, MOST]


def counts(now: datetime) -> Counts:
    """One query over the partial indexes."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {COUNTS}", count_parameters(now))
        return Counts(*cursor.fetchone())


def age(since: datetime, now: datetime) -> str:
    """`good`, `watch` or `bad`: how long a decision has been waited for."""
    seconds = (now - since).total_seconds()
    return "bad" if seconds >= TOO_LATE else "watch" if seconds >= LATE else "good"
