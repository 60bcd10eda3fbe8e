"""X18: two web processes on one database, which know nothing of each other; E30 and M42 through both at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3

from messaging.choices import SignalKind
from messaging.entrance.refusals import Arrival
from messaging.models import Delivery, Message, MessageIdentity, Signal
from tests.messaging.deliveries.stage import make_trigger
from tests.messaging.factories import partner_side
from tests.messaging.profiles.repeatable.hubs import Hub, hubs
from tests.messaging.profiles.stream.partner import A, stream_side

pytestmark = pytest.mark.django_db(transaction=True)

COPIES = 8


def post_at_once(servers: list[Hub], path: str, *arrivals: Arrival) -> list[int]:
    """Each arrival goes to the hubs in turn, all at the same moment. The statuses."""
    barrier = threading.Barrier(len(arrivals))

    def post(number: int) -> int:
        arrival = arrivals[number]
        headers = {"Content-Type": arrival.content_type, "Authorization": arrival.presented.authorization}
        barrier.wait(120)
        url = servers[number % len(servers)].url + path
        return pool.request("POST", url, body=arrival.body, headers=headers, timeout=60).status

    pool = urllib3.PoolManager(maxsize=len(arrivals), retries=False)
    with ThreadPoolExecutor(len(arrivals)) as threads:
        return list(threads.map(post, range(len(arrivals))))


def received() -> list[tuple[str, int]]:
    """MessageIds in their order, and how many copies came of each."""
    return list(Message.objects.filter(direction="in").order_by("position").values_list("message_id", "copies"))


def test_x18_copies_at_two_hubs_are_one_message(tmp_path: Path) -> None:
    make_trigger(kind="pull")
    partner, streaming = partner_side(), stream_side()
    with hubs(tmp_path, 2) as servers:
        # E30: of each number COPIES copies; one is new, and every one is acknowledged.
        for number in range(1, 5):
            arrival = partner.message(number, f"m{number}@p")
            assert set(post_at_once(servers, "/ebxml/msh", *[arrival] * COPIES)) == {204}
        assert received() == [(f"m{number}@p", COPIES - 1) for number in range(1, 5)]
        assert set(Signal.objects.filter(kind=SignalKind.ACKNOWLEDGEMENT).values_list("owed", flat=True)) == {COPIES}
        # E13 in a race: two messages under one number, of which one is taken.
        rivals = [partner.message(5, f"{name}@p") for name in ("one", "other")]
        assert post_at_once(servers, "/ebxml/msh", *rivals) == [204, 204]
        assert (len(received()), partner.inbound.last_sequence, partner.inbound.rejected) == (5, 5, 1)
        # M42: the same message of a stream on several sessions.
        arrival = streaming.message(1, "s1@p")
        assert set(post_at_once(servers, "/stream/orders", *[arrival] * COPIES)) == {202}
        assert streaming.state == (A, 1, COPIES - 1)
    assert Delivery.objects.count() == Message.objects.filter(direction="in").count() == 6
    assert MessageIdentity.objects.filter(direction="in").count() == 6
