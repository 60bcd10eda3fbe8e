"""Octets at our entrance: through the real Django view, whole or spoilt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

from django.http import HttpResponse
from django.test import Client

from messaging.entrance.refusals import Arrival
from messaging.models import Message
from messaging.profiles.acknowledging import Item
from messaging.profiles.ebxml import receiving
from tests.messaging.factories import PartnerSide

MSH = "/ebxml/msh"
ERRORS = "/ebxml/errors"


def post(arrival: Arrival, path: str = MSH, **environ: Any) -> HttpResponse:
    """POSTs it as its sender would. What a view raises comes out here: no test mistakes a crash for an answer."""
    if arrival.presented.authorization:
        environ.setdefault("HTTP_AUTHORIZATION", arrival.presented.authorization)
    environ.setdefault("CONTENT_TYPE", arrival.content_type)
    return Client().generic("POST", path, arrival.body, arrival.content_type, **environ)


def edited(arrival: Arrival, *changes: tuple[str | bytes, str | bytes]) -> Arrival:
    """The arrival with texts of its body replaced; each must be there."""
    body = arrival.body
    for old, new in changes:
        old, new = (text.encode() if isinstance(text, str) else text for text in (old, new))
        assert old in body, old
        body = body.replace(old, new)
    return replace(arrival, body=body)


def stored() -> list[tuple[str, str, int, str]]:
    """What an accepted message consists of, for all that are stored: to be compared before and after."""
    return sorted(Message.objects.values_list("message_id", "state", "copies", "digest"))


def items(partner: PartnerSide, *arrivals: Arrival) -> list[Item]:
    """What the receiving service hands over for these, to be processed as one group."""
    collected: list[Item] = []

    def keep(item: Item) -> int:
        collected.append(item)
        return 204

    with mock.patch.object(receiving._group, "submit", keep):
        for arrival in arrivals:
            partner.send(arrival)
    return collected
