"""Traffic of everything that can happen to messages, through the real services, on a clock that is moved by hand.

`fill` leaves a store with several partners in both profiles: quick and slow acknowledgements, outages of both kinds,
suspensions that were resumed, skipped or are still there, refusals, holds, repeats, rejections, documents and messages
in doubt that were settled in every way, and some of everything still under way.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from unittest import mock

from messaging.deliveries.services import settling
from messaging.engine.claiming import claim_due
from messaging.engine.recording import record
from messaging.journal.audit import Actor
from messaging.models import Delivery, Message, Pair
from messaging.pairs.services import operating
from messaging.profiles.repeatable import replies
from messaging.protocol.envelope import Semantics
from messaging.transports import Parcel, Receipt
from partners.models import Party
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.deliveries import stage
from tests.messaging.factories import (
    LOST,
    REFUSED,
    TAKEN,
    Link,
    PartnerSide,
    answered,
    link,
    partner_side,
    submit,
    work,
)
from tests.messaging.profiles.repeatable.callers import Caller, caller, remembering_since
from tests.partners.factories import make_agreement

T = datetime(2026, 3, 10, 7, 12, 30, 123_456, tzinfo=UTC)
ANN = Actor("ann")
WHY = "looked into it"
EBXML = {"timeout": 30, "retries": 3, "retry_interval": 60, "transport_retries": 1, "transport_retry_interval": 5}


@dataclass(slots=True)
class Traffic:
    """The hub's clock, the wire, and chance that is always the same."""

    time: FrozenClock
    wire: Link
    chance: random.Random

    def answer(self, receipt: Receipt, takes: float) -> None:
        """What transmissions come to from now on, and how long they take."""

        def talk(parcel: Parcel) -> Receipt:
            self.time.move(takes)
            return receipt

        self.wire.answer = talk

    def pause(self, seconds: float) -> None:
        self.time.move(seconds)

    def until(self, seconds: float) -> None:
        """A worker that looks whenever something is due, for so long."""
        end = clock.now() + timedelta(seconds=seconds)
        while clock.now() < end:
            looks = (Message.objects.all(), Pair.objects.filter(gate="open", direction="out"))
            due = [row for look in looks for row in look.filter(due_at__lte=end).values_list("due_at", flat=True)]
            if not due:
                break
            self.time.move(max(0.0, (min(due) - clock.now()).total_seconds()))
            if not work():
                self.time.move(1)
        self.time.move(max(0.0, (end - clock.now()).total_seconds()))

    # --- ebXML, outbound

    def exchange(self, partner: PartnerSide, latency: float, takes: float = 0.02) -> Message:
        """Submitted, sent, acknowledged."""
        message = submit(partner, b"x" * self.chance.randint(10, 5000))
        self.answer(TAKEN, takes)
        work()
        self.pause(latency)
        partner.send(partner.acknowledgement(self.wire.last))
        return message

    def slow(self, partner: PartnerSide) -> None:
        """The acknowledgement comes after the first repeat, and then that of the repeat."""
        submit(partner)
        self.answer(TAKEN, 0.03)
        work()
        first = self.wire.last
        self.until(44.5)
        partner.send(partner.acknowledgement(first))
        self.pause(40)
        partner.send(partner.acknowledgement(first))

    def outage(self, partner: PartnerSide, receipt: Receipt, seconds: float, takes: float) -> None:
        """Nothing gets through for so long; the first attempt after that is acknowledged."""
        submit(partner)
        self.answer(receipt, takes)
        self.until(seconds)
        sent = len(self.wire.parcels)
        self.answer(TAKEN, 0.01)
        while len(self.wire.parcels) == sent:
            self.until(5)
        self.pause(0.7)
        partner.send(partner.acknowledgement(self.wire.last))

    def suspended(self, partner: PartnerSide) -> Message:
        message = submit(partner)
        self.answer(TAKEN, 0.02)
        self.until(300)
        assert partner.outbound.flow == "suspended"
        return message

    def resume(self, partner: PartnerSide) -> None:
        operating.pair_resume(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
        self.answer(TAKEN, 0.02)
        work()
        self.pause(0.4)
        partner.send(partner.acknowledgement(self.wire.last))

    def refused(self, partner: PartnerSide) -> None:
        """The partner does not like the number; a person restarts the sequence."""
        submit(partner)
        self.answer(TAKEN, 0.02)
        work()
        self.pause(0.3)
        partner.send(partner.error(self.wire.last, "InvalidSequenceNumber"))
        self.pause(1800)
        operating.pair_restart_sequence(pair_id=partner.outbound.pk, actor=ANN, reason=WHY)
        work()
        self.pause(0.2)
        partner.send(partner.acknowledgement(self.wire.last))

    def held(self, partner: PartnerSide) -> None:
        """The partner asks for a pause, twice."""
        submit(partner)
        self.answer(TAKEN, 0.02)
        work()
        for _ in range(2):
            partner.send(partner.error(self.wire.last, "TransientError", min_retry_secs=120))
            self.until(121)
        partner.send(partner.acknowledgement(self.wire.last))

    # --- repeatable, outbound

    def request(self, partner: PartnerSide, *receipts: Receipt, takes: float = 0.2) -> Message:
        """A request that is answered with these, one after another."""
        message = submit(partner)
        for receipt in receipts:
            self.answer(receipt, takes)
            work()
            due = Message.objects.get(pk=message.pk).due_at
            if due is not None:
                self.pause(max(0.0, (due - clock.now()).total_seconds()))
        return message

    def doubtful(self, partner: PartnerSide) -> Message:
        """Never answered until the partner's window is over."""
        message = submit(partner)
        self.answer(LOST, 1)
        self.until(partner.terms.partner_window + 120)
        assert Message.objects.get(pk=message.pk).state == "in_doubt"
        return message

    def late_answer(self, partner: PartnerSide) -> None:
        """The partner's answer comes when the message is in doubt already: its attempt was thought lost."""
        message = submit(partner)
        jobs = claim_due(limit=8)
        self.answer(LOST, 1)
        self.until(partner.terms.partner_window + 120)
        assert Message.objects.get(pk=message.pk).state == "in_doubt"
        record([(job, answered()) for job in jobs])
        assert Message.objects.get(pk=message.pk).state == "delivered"

    def settle(self, message: Message, decision: str) -> None:
        settling.message_settle(message_id=message.pk, decision=decision, actor=ANN, reason=WHY)

    # --- inbound

    def arrive(self, partner: PartnerSide, message_id: str, repeats: list[float]) -> None:
        """A message comes in, and copies of it so many seconds later each; what lies between is left out."""
        first = partner.message(partner.inbound.last_sequence + 1 if self._known(partner) else 1, message_id)
        assert partner.send(first) == 204
        before = clock.now()
        for delay in repeats:
            self.time.move(delay - (clock.now() - before).total_seconds())
            assert partner.send(first) == 204
        self.time.move((before - clock.now()).total_seconds() + 1.5)

    def _known(self, partner: PartnerSide) -> bool:
        return Message.objects.filter(agreement_version=partner.terms.version_id, direction="in").exists()

    def settle_delivery(self, delivery: Delivery, decision: str) -> None:
        settling.delivery_settle(delivery_id=delivery.pk, decision=decision, actor=ANN, reason=WHY)


def fill(time: FrozenClock) -> None:
    """The clock stands at `T`; it moves on by several days."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(replies, "jitter", lambda: 1.0))
        traffic = Traffic(time, stack.enter_context(link()), random.Random(20260310))
        remembering_since(T - timedelta(days=60))
        quick = partner_side(**EBXML)
        twice = partner_side(
            make_agreement(
                partner=Party.objects.get(pk=quick.terms.partner_id), memory_window=86_400, timeout=300, retries=9
            )
        )
        few = partner_side(timeout=20, retries=1, retry_interval=40)
        requests = partner_side(profile="repeatable", partner_window=3600, max_in_flight=4)
        calls = caller(memory_window=10 * 86_400)
        _outbound(traffic, quick, few, twice)
        _requests(traffic, requests)
        _inbound(traffic, quick, few)
        _calls(traffic, calls)
        _documents(traffic, quick, few)
        _under_way(traffic, quick, requests)


def _outbound(traffic: Traffic, quick: PartnerSide, few: PartnerSide, twice: PartnerSide) -> None:
    for _ in range(36):
        traffic.exchange(quick, round(traffic.chance.expovariate(2), 6) + 0.05, traffic.chance.uniform(0.005, 0.05))
        traffic.pause(traffic.chance.uniform(10, 5000))
    traffic.slow(quick)
    for seconds in (4.0, 70.0, 190.0):
        traffic.outage(quick, REFUSED, seconds, 0.001)
        traffic.pause(600)
        traffic.outage(quick, LOST, seconds, 3)
        traffic.pause(600)
    traffic.outage(quick, TAKEN, 100, 0.05)
    traffic.pause(3000)
    traffic.suspended(quick)
    traffic.pause(7200.5)
    traffic.resume(quick)
    traffic.suspended(quick)
    traffic.pause(100)
    operating.pair_skip_head(pair_id=quick.outbound.pk, actor=ANN, reason=WHY)
    traffic.exchange(quick, 0.3)
    traffic.refused(quick)
    traffic.held(quick)
    for latency in (0.5, 2.25, 19.0):
        traffic.exchange(few, latency)
    late = traffic.suspended(few)
    few.send(few.acknowledgement(traffic.wire.last))
    assert Message.objects.get(pk=late.pk).state == "delivered"
    traffic.pause(500)
    operating.pair_resume(pair_id=few.outbound.pk, actor=ANN, reason=WHY)
    for _ in range(22):
        traffic.exchange(twice, 0.1, 0)
    traffic.answer(TAKEN, 0.01)
    for semantics in (Semantics.BEST_EFFORT, Semantics.AT_MOST_ONCE):
        submit(quick, semantics=semantics)
        work()
    traffic.answer(REFUSED, 0.01)
    for semantics in (Semantics.BEST_EFFORT, Semantics.AT_MOST_ONCE):
        submit(quick, semantics=semantics)
        work()


def _requests(traffic: Traffic, partner: PartnerSide) -> None:
    for _ in range(5):
        traffic.request(partner, answered(), takes=traffic.chance.uniform(0.1, 2))
        traffic.pause(traffic.chance.uniform(1, 3000))
    traffic.request(partner, answered(503), answered(503, "", b"", Retry_After="30"), answered())
    traffic.request(partner, LOST, REFUSED, answered(200))
    traffic.request(partner, answered(400, "rejected"))
    doubts = [traffic.doubtful(partner) for _ in range(4)]
    traffic.settle(doubts[0], "delivered")
    traffic.pause(5)
    traffic.settle(doubts[1], "resubmit")
    traffic.answer(answered(), 0.1)
    work()
    traffic.late_answer(partner)


def _inbound(traffic: Traffic, quick: PartnerSide, few: PartnerSide) -> None:
    for number in range(45):
        repeats: list[float] = []
        if number % 2:
            repeats = sorted(
                round(traffic.chance.lognormvariate(3, 3), 6) for _ in range(traffic.chance.choice((1, 1, 2)))
            )
        traffic.arrive(quick, f"in-{number}@partner", repeats)
    for number in range(6):
        traffic.arrive(few, f"few-{number}@partner", [0.25] if number == 3 else [])
    last = quick.inbound.last_sequence
    quick.send(quick.message(last + 5))  # a gap
    quick.send(quick.message(last))  # the number was another message's
    few.send(few.message(77))


def _calls(traffic: Traffic, calls: Caller) -> None:
    first = clock.now()
    for number in range(40):
        traffic.time.move(1)
        calls.post(f"call-{number}", clock.now() - timedelta(seconds=number % 3))
    for number in range(30):
        sent = first + timedelta(seconds=1 + number - number % 3)
        traffic.time.move(traffic.chance.uniform(0, 90))
        calls.post(f"call-{number}", sent)
    calls.post("call-3", first + timedelta(seconds=4), body=b"<Other/>")
    calls.post("old", clock.now() - timedelta(days=20))
    calls.post("early", clock.now() + timedelta(days=1))


def _documents(traffic: Traffic, quick: PartnerSide, few: PartnerSide) -> None:
    """Documents for applications: completed, failed, in doubt."""
    with stage.application() as app:
        stage.make_trigger(app, ordered=False)
        app.plan("/documents", stage.http(200), stage.http(200), stage.http(500), stage.http(200))
        stage.arrive(quick, "d1@x", "d2@x", "d3@x", "d4@x")
        stage.work()
        app.plan("/documents", stage.BROKEN)
        in_doubt = stage.arrive(quick, "d5@x", "d6@x", "d7@x")
        in_doubt += stage.arrive(few, "d8@x")
        stage.work()
        app.plan("/documents", stage.http(200))
        states = stage.states(*in_doubt)
        assert states == ["in_doubt"] * 4, states
        traffic.pause(60)
        traffic.settle_delivery(stage.now_of(in_doubt[0]), "duplicate")
        traffic.settle_delivery(stage.now_of(in_doubt[1]), "resubmit")
        traffic.pause(60)
        stage.work()
        _asked(traffic, few, app)


def _asked(traffic: Traffic, partner: PartnerSide, app: stage.Application) -> None:
    """A second application, whose resolver does not know at first and is asked again."""
    trigger = stage.make_trigger(app, resolver="http", ordered=False, url=app.url("/second"))
    app.plan("/second", stage.BROKEN)
    app.plan("/resolver", stage.verdict("IN_DOUBT"))
    found = Delivery.objects.filter(trigger=trigger)
    stage.arrive(partner, "d9@x", "d10@x")
    for _ in range(6):
        stage.work()
        traffic.pause(400)
    assert list(found.values_list("state", flat=True)) == ["in_doubt"] * 2
    app.plan("/resolver", stage.verdict("DUPLICATE"))
    traffic.settle_delivery(found.order_by("position")[0], "ask")
    stage.work()
    assert sorted(found.values_list("state", flat=True)) == ["duplicate", "in_doubt"]


def _under_way(traffic: Traffic, quick: PartnerSide, requests: PartnerSide) -> None:
    traffic.answer(TAKEN, 0.01)
    submit(quick)
    work()
    waiting = submit(quick)
    submit(quick)
    operating.message_cancel(message_id=waiting.pk, actor=ANN, reason=WHY)
    operating.pair_pause(pair_id=quick.outbound.pk, actor=ANN, reason=WHY)
    traffic.request(requests, LOST)
