"""What became of what a partner has sent in a stream; and ways past the entrance, for tests of the receiving side."""

from __future__ import annotations

from typing import Any
from unittest import mock

from django.test import Client

from messaging.choices import Direction, SignalKind
from messaging.entrance.refusals import Answer, Arrival
from messaging.models import Message, Signal
from messaging.profiles.stream import accepting, receiving
from tests.messaging.profiles.stream.partner import StreamSide

TAKEN, GAP = Answer(202), Answer(503, 1)


def ids() -> list[str]:
    """What is stored, in the order in which documents are delivered."""
    return list(
        Message.objects.filter(direction=Direction.IN).order_by("position").values_list("message_id", flat=True)
    )


def finals() -> list[tuple[str, str]]:
    """The final receipts that we have made: what they are about, and what they say ("" = taken)."""
    found = Signal.objects.filter(direction=Direction.OUT, kind=SignalKind.FINAL).order_by("id")
    return list(found.values_list("ref_to_message_id", "error_code"))


def items(partner: StreamSide, *arrivals: Arrival) -> list[accepting.Item]:
    """What the entrance hands over for these, to be processed as one group."""
    collected: list[accepting.Item] = []

    def keep(item: accepting.Item) -> accepting.Outcome:
        collected.append(item)
        return accepting.Outcome(202)

    with mock.patch.object(receiving._group, "submit", keep):
        for arrival in arrivals:
            partner.send(arrival)
    return collected


def post(arrival: Arrival, path: str = "/stream/orders", **environ: Any) -> Any:
    """POSTs it as its sender would."""
    if arrival.presented.authorization:
        environ.setdefault("HTTP_AUTHORIZATION", arrival.presented.authorization)
    return Client().generic("POST", path, arrival.body, arrival.content_type, **environ)
