"""What belongs together with a message: neighbours and copies, how it travelled, what the partner said when asked."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from messaging import causes
from messaging.choices import Direction, MessageState, SignalState
from messaging.exceptions import NotFound
from messaging.messages.selectors import messages
from messaging.models import Event, Message, Pair, Signal, StatusInquiry
from messaging.pairs.selectors import pairs
from partners.addresses import normalise_uri
from partners.choices import VersionState
from partners.models import Agreement, AgreementVersion
from partners.visibility import limit
from rmhub.ids import public_id
from rmhub.language import gettext_lazy

if TYPE_CHECKING:
    from messaging.pairs.selectors.pairs import RatedPair

_MOST = 15
# Applications may submit under the same agreement: as many of its messages are looked at for what was passed on.
_LOOKED_AT = 500
_DECISIONS = {
    "delivered": gettext_lazy("the partner has it"),
    "resubmit": gettext_lazy("it was sent again, as a new message"),
}


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


@dataclass(frozen=True, slots=True)
class Relatives:
    """`previous` and `next` are its neighbours in the pair, by the order in which they were taken."""

    previous: Message | None
    next: Message | None
    refers_to: list[Message]
    answers: list[Message]
    conversation: list[Message]
    resubmitted_from: Message | None
    resubmitted_as: list[Message]
    journey: Journey
    inquiries: list[StatusInquiry]


def of_message(message: Message) -> Relatives:
    """Of a message that `messages.message` read; each kind is an index look-up of a few rows."""
    previous, following = neighbours(message)
    known = messages.shown()
    refers = known.filter(message_id=message.ref_to_message_id) if message.ref_to_message_id else known.none()
    asked = StatusInquiry.objects.filter(message=message.pk).defer("response").order_by("-id")
    return Relatives(
        previous=previous,
        next=following,
        refers_to=_newest(refers, 5),
        answers=_newest(known.filter(ref_to_message_id=message.message_id)),
        conversation=_newest(known.filter(conversation_id=message.conversation_id).exclude(pk=message.pk)),
        resubmitted_from=messages.in_store(message.resubmitted_from_id),
        resubmitted_as=_newest(known.filter(resubmitted_from=message.pk)),
        journey=journey(message),
        inquiries=list(asked[:_MOST]),
    )


def neighbours(message: Message) -> tuple[Message | None, Message | None]:
    """The messages before and after it in its pair."""
    of_pair = messages.with_names(Message.objects.filter(pair=message.pair_id))
    before = of_pair.filter(pk__lt=message.pk).order_by("-id").first()
    return before, of_pair.filter(pk__gt=message.pk).order_by("id").first()


def _newest(found: QuerySet[Message], most: int = _MOST) -> list[Message]:
    return list(messages.with_names(found).order_by("-id")[:most])


def journey(message: Message) -> Journey:
    """Of a message that `messages.message` read; empty for one that is not passed on here."""
    if message.direction == Direction.IN:
        went = _newest(limit(Message.objects.filter(forwarded_from=message.pk), "pair__partner"), 10)
        return Journey([message], went, _held([message])) if went else Journey()
    if message.forwarded_from_id is None:
        return Journey()
    origin = messages.in_store(message.forwarded_from_id)
    came = [origin] if origin is not None else []
    return Journey(came, [message], _held(came))


def _held(came: list[Message]) -> list[Signal]:
    waiting = Signal.objects.filter(about__in=[message.pk for message in came], state=SignalState.HELD)
    return list(waiting.defer("body").order_by("id"))


def onward_pair(agreement: Agreement) -> RatedPair | None:
    """The pair on which messages go to the next hop; None when the agreement is not in force."""
    in_force = AgreementVersion.objects.filter(agreement=agreement, state=VersionState.ACTIVE)
    version = in_force.select_related("own_endpoint", "partner_endpoint").first()
    if version is None:
        return None
    ours, theirs = normalise_uri(version.own_endpoint.uri), normalise_uri(version.partner_endpoint.uri)
    return pairs.pairs().filter(direction=Direction.OUT, sender_uri=ours, receiver_uri=theirs).first()


def lately(pair: Pair, most: int = 15) -> list[Message]:
    """The newest messages that were passed on over a pair, with what they came from as `origin`; at most two queries.

    `origin` is None when that has left the store. Only the pair's newest messages are looked at, so that a pair that
    applications fill costs no more.
    """
    newest = Message.objects.filter(pair=pair.pk).order_by("-id").values("pk")[:_LOOKED_AT]
    rows = _newest(Message.objects.filter(pk__in=newest, forwarded_from__isnull=False), most)
    came = Message.objects.filter(pk__in={row.forwarded_from_id for row in rows})
    known = {one.pk: one for one in messages.with_names(limit(came, "pair__partner"))}
    for row in rows:
        row.origin = known.get(row.forwarded_from_id)  # type: ignore[arg-type, attr-defined]
    return rows


def settled(message: Message) -> dict[str, object] | None:
    """How an outbound message that was in doubt was settled (by, at, how, reason), and what it was in doubt for (was).

    None for a message that nobody settled. One query for those that ended with a cause.
    """
    ended = message.state in (MessageState.DELIVERED, MessageState.SKIPPED)
    if message.direction != Direction.OUT or not ended or not message.cause:
        return None
    event = Event.objects.filter(message=message.pk, type="message.settled").order_by("-id").first()
    if event is None:
        return None
    decision = event.data.get("decision", "")
    return {
        "by": event.data.get("actor", ""),
        "at": event.at,
        "how": _DECISIONS.get(decision, decision),
        "reason": event.data.get("reason", ""),
        "was": causes.lookup(message.cause).label,
    }


def inquiries(message_id: uuid.UUID) -> QuerySet[StatusInquiry]:
    """Questions about a message with their answers, without the octets of these. Not ordered; pages by ("-id",)."""
    return limit(StatusInquiry.objects.filter(message=message_id), "message__pair__partner").defer("response")


def inquiry(key: uuid.UUID) -> StatusInquiry:
    """One question with its message and the answer's octets. Raises NotFound."""
    found = limit(StatusInquiry.objects.filter(pk=key), "message__pair__partner")
    one = found.select_related("message__pair__partner").defer("message__wire_frame").first()
    if one is None:
        raise NotFound(_("There is no inquiry {inquiry}.").format(inquiry=public_id("inq", key)))
    return one
