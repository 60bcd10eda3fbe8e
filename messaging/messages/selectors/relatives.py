"""Messages around one message: what it answers, what answers it, its conversation, its copies, its neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.db.models import QuerySet

from messaging.messages.selectors import forwards, messages
from messaging.messages.selectors.forwards import Journey
from messaging.models import Message, StatusInquiry

_MOST = 15


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
    journey: Journey = field(default_factory=Journey)
    inquiries: list[StatusInquiry] = field(default_factory=list)

    @property
    def came_as(self) -> list[Message]:
        return self.journey.came

    @property
    def went_as(self) -> list[Message]:
        return self.journey.went


def of_message(message: Message) -> Relatives:
    """Of a message that `messages.message` read; each kind is an index look-up of a few rows."""
    previous, following = neighbours(message)
    known = messages.shown()
    refers = known.filter(message_id=message.ref_to_message_id) if message.ref_to_message_id else known.none()
    inquiries = StatusInquiry.objects.filter(message=message.pk).defer("response").order_by("-id")
    return Relatives(
        previous=previous,
        next=following,
        refers_to=_newest(refers, 5),
        answers=_newest(known.filter(ref_to_message_id=message.message_id)),
        conversation=_newest(known.filter(conversation_id=message.conversation_id).exclude(pk=message.pk)),
        resubmitted_from=messages.in_store(message.resubmitted_from_id),
        resubmitted_as=_newest(known.filter(resubmitted_from=message.pk)),
        journey=forwards.journey(message),
        inquiries=list(inquiries[:_MOST]),
    )


def neighbours(message: Message) -> tuple[Message | None, Message | None]:
    """The messages before and after it in its pair."""
    of_pair = messages.with_names(Message.objects.filter(pair=message.pair_id))
    before = of_pair.filter(pk__lt=message.pk).order_by("-id").first()
    return before, of_pair.filter(pk__gt=message.pk).order_by("id").first()


def _newest(found: QuerySet[Message], most: int = _MOST) -> list[Message]:
    return list(messages.with_names(found).order_by("-id")[:most])
