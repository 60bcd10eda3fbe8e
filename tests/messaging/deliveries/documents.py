"""Documents of different types and conversations, for tests of joins and pull queues."""

from __future__ import annotations

from typing import Any

from messaging.models import Delivery, Message, Trigger
from tests.messaging.deliveries import stage
from tests.messaging.factories import PartnerSide

SERVICE = "urn:orders"


def make_queue(**values: Any) -> Trigger:
    """An active trigger for every document, a pull queue unless `values` say otherwise."""
    return stage.make_trigger(**{"kind": "pull", **values})


def documents_from(partner: PartnerSide, *actions: str, conversation: str = "", **changes: Any) -> list[Message]:
    """Documents that the partner sends one after another, all of one conversation when it is named."""
    stored = []
    for action in actions:
        number = partner.inbound.last_sequence + 1
        if conversation:
            changes["conversation_id"] = conversation
        assert partner.send(partner.message(number, action=action, **changes)) == 204
        stored.append(Message.objects.latest("id"))
    return stored


def copy_of(message: Message, trigger: Trigger, **changes: Any) -> Delivery:
    """The same document once more on its way to the trigger, by a road that does not know repeats."""
    return stage.copy_of(Delivery.objects.filter(message=message, trigger=trigger).earliest("id"), **changes)
