"""What the hub has passed on as a router: lately under one agreement, and how one message travelled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from messaging.choices import Direction, SignalState
from messaging.messages.selectors import messages
from messaging.models import Message, Pair, Signal
from messaging.pairs.selectors import pairs
from partners.addresses import normalise_uri
from partners.choices import VersionState
from partners.models import Agreement, AgreementVersion
from partners.visibility import limit

if TYPE_CHECKING:
    from messaging.pairs.selectors.pairs import RatedPair

# Applications may submit under the same agreement: as many of its messages are looked at for what was passed on.
_LOOKED_AT = 500


@dataclass(frozen=True, slots=True)
class Journey:
    """How a message goes through this hub: what came, what went on, and the answers that wait for the next hop.

    `came` and `went` have one message each, but for those that were sent on again, and for what has left the store.
    """

    came: list[Message] = field(default_factory=list)
    went: list[Message] = field(default_factory=list)
    held: list[Signal] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.came or self.went)


def journey(message: Message) -> Journey:
    """Of a message that `messages.message` read; empty for one that is not passed on here."""
    if message.direction == Direction.IN:
        onward = limit(Message.objects.filter(forwarded_from=message.pk), "pair__partner")
        went = list(messages.with_names(onward).order_by("-id")[:10])
        return Journey([message], went, _held([message])) if went else Journey()
    origin = messages.in_store(message.forwarded_from_id)
    if message.forwarded_from_id is None:
        return Journey()
    came = [origin] if origin is not None else []
    return Journey(came, [message], _held(came))


def onward_pair(agreement: Agreement) -> RatedPair | None:
    """The pair on which messages go to the next hop; None when the agreement is not in force."""
    version = (
        AgreementVersion.objects.filter(agreement=agreement, state=VersionState.ACTIVE)
        .select_related("own_endpoint", "partner_endpoint")
        .first()
    )
    if version is None:
        return None
    ours, theirs = normalise_uri(version.own_endpoint.uri), normalise_uri(version.partner_endpoint.uri)
    return pairs.pairs().filter(direction=Direction.OUT, sender_uri=ours, receiver_uri=theirs).first()


def lately(pair: Pair, limit: int = 15) -> list[Message]:
    """The newest messages that were passed on over a pair, with what they came from as `origin`; at most two queries.

    Only the pair's newest messages are looked at, so that a pair that applications fill costs no more.
    """
    newest = Message.objects.filter(pair=pair.pk).order_by("-id").values("pk")[:_LOOKED_AT]
    found = Message.objects.filter(pk__in=newest, forwarded_from__isnull=False)
    rows = list(messages.with_names(found).order_by("-id")[:limit])
    return with_origins(rows)


def with_origins(rows: list[Message]) -> list[Message]:
    """Sets `origin` of messages that were passed on: the message that came, or None when it has left the store."""
    wanted = {row.forwarded_from_id for row in rows if row.forwarded_from_id}
    known = {one.pk: one for one in messages.with_names(limit(Message.objects.filter(pk__in=wanted), "pair__partner"))}
    for row in rows:
        row.origin = known.get(row.forwarded_from_id) if row.forwarded_from_id else None  # type: ignore[attr-defined]
    return rows


def _held(came: Iterable[Message]) -> list[Signal]:
    ids = [message.pk for message in came]
    waiting = Signal.objects.filter(about__in=ids, state=SignalState.HELD)
    return list(waiting.defer("body").order_by("id"))
