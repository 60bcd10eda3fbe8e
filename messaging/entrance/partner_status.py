"""What became of a partner's message, for the partner who asks: the other side of `inquiries`.

A partner hears about messages that it has sent us, and of nobody else's: those are as unknown as ones that never were.
The words are those of ebXML Message Service 2.0, 7.1.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from messaging.choices import DeliveryState, Direction, PartnerAnswer, RequestState
from messaging.models import ArchivedMessage, Delivery, Message, MessageIdentity, RememberedRequest
from partners.terms import Principal

MAX_ID = 512  # characters of a MessageId
_DONE = (DeliveryState.COMPLETED, DeliveryState.DUPLICATE, DeliveryState.DISCARDED, DeliveryState.SETTLED)


@dataclass(frozen=True, slots=True)
class Status:
    """The answer, and since when we have the message (None = we do not know it, or no longer when it came)."""

    answer: PartnerAnswer
    received_at: datetime | None = None


def status_of(message_id: str, principal: Principal) -> Status:
    """What has become of the newest message that this partner sent us under this MessageId.

    `processed`: every application that wanted it has taken it. `received`: stored, and not yet processed, or its
    processing failed or is in doubt. `forwarded`: passed on to the next hop. `not_recognized`: we have no such message
    of theirs, neither stored nor archived nor among the ids that are remembered.
    """
    party = principal.party_id
    theirs = Q(pair__partner=party) | Q(agreement_version__partner_endpoint__party=party)
    stored = Message.objects.filter(theirs, message_id=message_id, direction=Direction.IN)
    message = stored.order_by("-id").values_list("pk", "created_at").first()
    if message is not None:
        return Status(_of_stored(message[0]), message[1])
    archived = ArchivedMessage.objects.filter(message_id=message_id, direction=Direction.IN, pair__partner=party)
    if (came := archived.order_by("-id").values_list("created_at", flat=True).first()) is not None:
        return Status(PartnerAnswer.PROCESSED, came)  # only what is finished leaves the store
    identity = MessageIdentity.objects.filter(scope=party, direction=Direction.IN, message_id=message_id)
    if (came := identity.values_list("created_at", flat=True).first()) is not None:
        return Status(PartnerAnswer.RECEIVED, came)
    remembered = RememberedRequest.objects.filter(sender=party, request_id=message_id)
    state = remembered.exclude(state=RequestState.FORGOTTEN).values_list("state", flat=True).first()
    if state is not None:
        return Status(PartnerAnswer.PROCESSED if state == RequestState.ANSWERED else PartnerAnswer.RECEIVED)
    return Status(PartnerAnswer.NOT_RECOGNIZED)


def _of_stored(message_id: uuid.UUID) -> PartnerAnswer:
    if Message.objects.filter(forwarded_from=message_id).exists():
        return PartnerAnswer.FORWARDED
    deliveries = list(Delivery.objects.filter(message=message_id).values_list("state", flat=True))
    done = bool(deliveries) and all(state in _DONE for state in deliveries)
    return PartnerAnswer.PROCESSED if done else PartnerAnswer.RECEIVED
