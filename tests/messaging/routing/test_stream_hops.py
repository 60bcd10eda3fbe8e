"""A stream at a hub that passes its messages on: the hub is the final destination of each stream that it receives.

What spec 3 calls a transit hop, a queue manager that hands the TransactionHeader on as it came and has no counters of
its own, does not exist here: the hop accepts under its own counters and sends under a stream of its own (decisions.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from messaging.choices import MessageState
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import IncomingStream, Message, Signal
from messaging.protocol.codecs import stream
from messaging.protocol.envelope import PayloadPart
from messaging.transports import Parcel
from rmhub.clock import FrozenClock
from tests.messaging.routing.hubs import SERVICE, Hub, Network, join, network, uri


@pytest.fixture
def net(time: FrozenClock, settings: Any) -> Iterator[Network]:
    """A, B and C, with a stream from A to B and one from B to C; every message for C."""
    settings.RMHUB_STREAM_HOLD_MS = 0
    at = {name: uri(name, "streams") for name in "ABC"}
    # Final receipts are agreed on the first hop.
    first = {"profile": "stream", "final_receipt": True, "final_receipt_within": 3600}
    with network("ABC") as made:
        with made["A"] as a:
            a.agrees("C", "tpa:A-C", hop="B", ours=at["A"], theirs=at["B"], **first)
        with made["B"] as b:
            b.agrees("A", "tpa:B-A", ours=at["B"], theirs=at["A"], **first)
            b.routes_to("C", b.agrees("C", "tpa:B-C", profile="stream", ours=at["B"], theirs=at["C"]))
        with made["C"] as c:
            c.agrees("A", "tpa:A-C", hop="B", profile="stream", ours=at["C"], theirs=at["B"])
        join(made["A"], made["B"])
        join(made["B"], made["C"])
        yield made


def _submit(hub: Hub, count: int) -> list[str]:
    with hub:
        return [
            message_submit(
                agreement="tpa:A-C",
                service=SERVICE,
                action="NewOrder",
                payloads=[NewPayload(b"<Order>%d</Order>" % number, "application/xml")],
            ).message.message_id
            for number in range(count)
        ]


def _messages(parcels: list[Parcel]) -> list[stream.StreamEnvelope]:
    read = [stream.decode(parcel.content_type, parcel.body) for parcel in parcels]
    return [one for one in read if one.position is not None]


def _settle(net: Network, time: FrozenClock) -> None:
    for _ in range(12):
        net.work()
        time.move(5)


def _contents(payloads: tuple[PayloadPart, ...]) -> list[bytes]:
    return [payload.content for payload in payloads]


def test_m40_m44_a_hop_ends_each_stream_and_sends_under_one_of_its_own(net: Network, time: FrozenClock) -> None:
    ids = _submit(net["A"], 3)
    _settle(net, time)
    came, went = _messages(net.between("A", "B")), _messages(net.between("B", "C"))
    assert [one.message_id for one in came] == ids == [one.message_id for one in went]
    for before, after in zip(came, went, strict=True):
        assert before.position is not None and after.position is not None
        assert after.position.source != before.position.source
        assert after.vias == (), "no reverse path leads past the hop"
        assert _contents(after.payloads) == _contents(before.payloads)
    with net["B"] as b:
        received = IncomingStream.objects.get(pair=b.inbound("tpa:B-A"))
        sent = Message.objects.filter(pair=b.outbound("tpa:B-C")).values_list("state", flat=True)
        assert (received.number, set(sent)) == (3, {MessageState.DELIVERED})
    with net["C"] as c:
        assert [message.message_id for message in c.received()] == ids


def test_m44_the_hop_acknowledges_the_order_at_once_and_confirms_when_the_next_hop_has_acknowledged(
    net: Network, time: FrozenClock
) -> None:
    net.down.add("C")
    (message_id,) = _submit(net["A"], 1)
    _settle(net, time)
    with net["A"]:
        assert Message.objects.get().state == "confirming", "stored at the hop: what the order acknowledgement says"
    with net["B"]:
        assert Signal.objects.get(direction="out", kind="final").state == "held"
    net.down.clear()
    for _ in range(4):
        _settle(net, time)
    with net["C"] as c:
        assert [message.message_id for message in c.received()] == [message_id]
    with net["A"]:
        assert Message.objects.get().state == "delivered"
