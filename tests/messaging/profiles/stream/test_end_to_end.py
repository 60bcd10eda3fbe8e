"""A stream from submission to the receiver's store and back, in one process: exactly once and in order under faults.

One hub is both ends: what it sends under one agreement arrives under another, whose URIs are the same the other way
round, and the octets go through the real entrance.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
from django.db.models import Min

from messaging.entrance.refusals import Arrival
from messaging.models import IncomingStream, Message, Pair, Signal
from messaging.transports import Parcel, Receipt
from partners import registry
from partners.models import AgreementVersion
from partners.terms import Presented
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.factories import LOST, Link, link, submit, work
from tests.messaging.profiles.stream.partner import StreamSide, brought
from tests.partners.factories import basic, make_agreement, make_credential, make_endpoint, make_party

pytestmark = pytest.mark.django_db


@dataclass(slots=True)
class Loop:
    """Both ends, and the wire between them with its faults."""

    sender: StreamSide
    receiver: StreamSide
    wire: Link

    def arrived(self) -> list[bytes]:
        """What the receiver's applications see, in their order."""
        messages = Message.objects.filter(pair=self.receiver.inbound).order_by("position")
        return [bytes(message.payloads.get().content or b"") for message in messages]

    def outgoing(self) -> list[str]:
        return list(Message.objects.filter(direction="out").order_by("position").values_list("state", flat=True))

    def run(self, time: FrozenClock, seconds: float) -> None:
        end = clock.now() + timedelta(seconds=seconds)
        while True:
            looks = [
                Message.objects.exclude(state="retrying").aggregate(at=Min("due_at"))["at"],
                Pair.objects.filter(gate="open").aggregate(at=Min("due_at"))["at"],
                Signal.objects.aggregate(at=Min("due_at"))["at"],
                IncomingStream.objects.aggregate(at=Min("order_ack_due_at"))["at"],
            ]
            upcoming = max(clock.now(), min((at for at in looks if at is not None), default=end))
            if upcoming >= end:
                return
            time.move((upcoming - clock.now()).total_seconds())
            work(limit=200)


@pytest.fixture
def loop(time: FrozenClock) -> Iterator[Loop]:
    """Two parties of which both are ours and each other's partners, as in a hub that has moved in with its partner."""
    one, other = make_party(own=True), make_party(own=True)
    here, there = make_endpoint(one), make_endpoint(other)
    terms = {"profile": "stream", "stream_concurrency": 8, "max_in_flight": 16}
    out = make_agreement(own_party=one, partner=other, own_endpoint=here, partner_endpoint=there, **terms)
    back = make_agreement(own_party=other, partner=one, own_endpoint=there, partner_endpoint=here, **terms)
    ends = {here.uri: side_of(out), there.uri: side_of(back)}

    def carry(parcel: Parcel) -> Receipt:
        arrival = Arrival(parcel.content_type, parcel.body, ends[parcel.address].presented, "192.0.2.7")
        answer = brought(arrival)
        ok = answer.status < 300
        cause = "" if ok else "http_5xx"
        return Receipt(ok=ok, status=answer.status, cause=cause, retry_after=answer.retry_after)

    with link(carry) as wire:
        yield Loop(ends[here.uri], ends[there.uri], wire)


def side_of(version: AgreementVersion) -> StreamSide:
    credential, password = make_credential(version.agreement.partner)
    return StreamSide(
        registry.current().version(version.pk), Presented(authorization=basic(credential.username, password))
    )


def documents(loop: Loop, count: int) -> list[bytes]:
    made = [b"<Order>%d</Order>" % number for number in range(count)]
    for content in made:
        submit(loop.sender, content)  # type: ignore[arg-type]
    return made


def test_everything_arrives_once_in_order_and_is_acknowledged(loop: Loop, time: FrozenClock) -> None:
    made = documents(loop, 40)
    loop.run(time, 5)
    assert loop.arrived() == made
    assert loop.outgoing() == ["delivered"] * 40
    # Cumulative: far fewer acknowledgements than messages.
    assert Signal.objects.filter(direction="in", state="matched").count() <= 10
    more = documents(loop, 3)
    loop.run(time, 5)
    assert loop.arrived() == made + more
    assert IncomingStream.objects.get().number == 3  # of the second stream


@pytest.mark.parametrize("seed", range(4))
def test_once_and_in_order_whatever_the_wire_does(loop: Loop, time: FrozenClock, seed: int) -> None:
    """Lost requests, lost answers, repeats and acknowledgements that never arrive; 503 for what comes too early."""
    chance = random.Random(seed)
    carry = loop.wire.answer
    assert callable(carry)

    def faulty(parcel: Parcel) -> Receipt:
        fate = chance.random()
        if fate < 0.15:
            return LOST
        answer = carry(parcel)
        if fate < 0.25:
            carry(parcel)
        return LOST if fate > 0.85 else answer

    loop.wire.answer = faulty
    made = documents(loop, 30)
    loop.run(time, 300)
    loop.wire.answer = carry
    loop.run(time, 3600)
    assert loop.arrived() == made
    assert loop.outgoing() == ["delivered"] * 30
    assert Message.objects.filter(direction="in").count() == 30


def test_an_expired_message_never_arrives_and_the_rest_does_in_order(loop: Loop, time: FrozenClock) -> None:
    documents(loop, 1)
    loop.run(time, 5)
    loop.wire.answer, carry = LOST, loop.wire.answer
    short = submit(loop.sender, b"<Short/>", time_to_live=20)  # type: ignore[arg-type]
    documents(loop, 2)
    loop.run(time, 19)
    loop.wire.answer = carry
    time.move(2)
    loop.run(time, 700)
    assert Message.objects.get(pk=short.pk).state == "in_doubt"
    assert b"<Short/>" not in loop.arrived()
    assert loop.arrived() == [b"<Order>0</Order>", b"<Order>0</Order>", b"<Order>1</Order>"]
