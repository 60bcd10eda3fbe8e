"""A router that confirms through: the previous hop is acknowledged when the next one has (spec 1, 4.1.3)."""

from __future__ import annotations

import pytest

from messaging.archive.services import archived
from messaging.models import Message, Pair, Signal
from messaging.pairs.services import operating
from messaging.protocol.envelope import Envelope
from messaging.protocol.errors import ErrorCode, Severity
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.routing.hubs import WHO, WHY, Network
from tests.messaging.routing.test_store_and_forward import acknowledgements, errors, states, submit

THROUGH = pytest.mark.parametrize("net", [{"mode": "confirm_through", "min_retry_secs": 45}], indirect=True)
pytestmark = THROUGH


def held(net: Network) -> list[tuple[str, int]]:
    """B's acknowledgements to A: state, and the copies that they owe."""
    with net["B"]:
        return list(Signal.objects.filter(direction="out", kind="ack").values_list("state", "owed"))


def upstream_errors(net: Network) -> list[Envelope]:
    return errors(net.between("B", "A"))


def test_nothing_is_acknowledged_before_the_receiver_has_stored_the_message(net: Network, time: FrozenClock) -> None:
    stored: list[int] = []

    def look(sender: str, receiver: str, parcel: object) -> list[bool]:
        if (sender, receiver) == ("B", "A"):
            with net["C"]:
                stored.append(Message.objects.filter(direction="in").count())
        return [True]

    net.faults = look
    with net["A"]:
        for number in range(3):
            submit(b"<Order n='%d'/>" % number)
    net.down = {"C"}
    net.work()
    assert net.between("B", "A") == [] and len(states(net["B"])) == 1
    net.down = set()
    time.move(31)
    net.work()
    assert stored == [1, 2, 3]
    assert states(net["A"]) == states(net["B"]) == ["delivered"] * 3
    assert held(net) == [("sent", 0)] * 3


def test_copies_that_come_while_the_message_is_on_its_way_are_counted_and_acknowledged_later(
    net: Network, time: FrozenClock
) -> None:
    net.faults = lambda sender, receiver, parcel: [] if (sender, receiver) == ("C", "B") else [True]
    with net["A"]:
        submit()
    net.work()
    assert held(net) == [("held", 1)]
    net.faults = lambda sender, receiver, parcel: [True, True] if receiver == "B" and sender == "A" else []
    with net["A"] as a:
        Pair.objects.filter(pk=a.outbound("tpa:A-C").pk).update(due_at=clock.now())
    net.work()
    assert held(net) == [("held", 3)]
    assert net.between("B", "A") == []
    net.faults = lambda sender, receiver, parcel: [True]
    time.move(31)
    net.work()
    assert states(net["A"]) == states(net["B"]) == ["delivered"]
    assert len(acknowledgements(net.between("B", "A"))) == 3
    assert held(net) == [("sent", 0)]


def test_when_the_router_gives_up_the_hop_before_is_told_and_so_is_each_copy(net: Network, time: FrozenClock) -> None:
    net.down = {"C"}
    with net["A"]:
        submit()
    flow = ""
    while flow != "suspended":
        net.work()
        with net["B"] as b:
            flow = b.outbound("tpa:B-C").flow
        time.move(5)
    net.work()
    [error] = upstream_errors(net)
    assert error.error is not None
    assert (error.error.severity, error.error.min_retry_secs) == (Severity.TRANSIENT, 45)
    assert held(net) == [("held", 0)]
    for count in (2, 3):
        time.move(46)
        net.work()
        assert len(upstream_errors(net)) == count
    with net["A"] as a:
        pair = a.outbound("tpa:A-C")
        assert (pair.flow, pair.retries) == ("holding", 0)
    net.down = set()
    with net["B"] as b:
        operating.pair_resume(pair_id=b.outbound("tpa:B-C").pk, actor=WHO, reason=WHY)
    net.work()
    assert states(net["A"]) == states(net["B"]) == ["delivered"]
    assert len(acknowledgements(net.between("B", "A"))) == 1
    with net["C"] as c:
        assert len(c.received()) == 1


def test_a_pause_that_the_next_hop_asks_for_is_handed_on(net: Network, time: FrozenClock) -> None:
    """C is a router as well, whose own way onward is shut: its Transient Error goes to A, not only to B."""
    with net["C"] as c:
        from partners import registry, services

        services.agreement_disable(agreement=services.agreements.Agreement.objects.get(tpa_id="tpa:A-C"))
        c.agrees("B", "tpa:C-B")
        onward = c.agrees("D", "tpa:C-D")
        c.party.identifiers.all().delete()
        c.routes_to("C", onward, min_retry_secs=77)
        operating.pair_pause(pair_id=c.outbound("tpa:C-D").pk, actor=WHO, reason=WHY)
        registry.reset()
    with net["A"]:
        submit()
    net.work()
    [error] = upstream_errors(net)
    assert error.error is not None and error.error.min_retry_secs == 77
    assert held(net) == [("held", 0)]


@pytest.mark.parametrize("verb", ["skip", "cancel"])
def test_a_person_who_gives_the_message_up_refuses_it_to_the_hop_before(
    net: Network, time: FrozenClock, verb: str
) -> None:
    net.faults = lambda sender, receiver, parcel: [] if (sender, receiver) == ("C", "B") else [True]
    with net["A"]:
        submit()
    net.work()
    with net["B"] as b:
        if verb == "skip":
            operating.pair_skip_head(pair_id=b.outbound("tpa:B-C").pk, actor=WHO, reason=WHY)
        else:
            operating.message_cancel(message_id=b.sent()[0].pk, actor=WHO, reason=WHY)
    net.work()
    [error] = upstream_errors(net)
    assert error.error is not None
    assert (error.error.code, error.error.severity) == (ErrorCode.DELIVERY_FAILURE, Severity.ERROR)
    with net["A"] as a:
        assert a.outbound("tpa:A-C").flow == "suspended"
        operating.pair_resume(pair_id=a.outbound("tpa:A-C").pk, actor=WHO, reason=WHY)
    net.work()
    assert len(upstream_errors(net)) == 2  # the same copy again gets the same answer
    assert acknowledgements(net.between("B", "A")) == []


def test_a_message_that_waits_in_the_queue_can_be_cancelled_too(net: Network) -> None:
    net.faults = lambda sender, receiver, parcel: [] if (sender, receiver) == ("C", "B") else [True]
    with net["B"] as b:
        b.agrees("Z", "tpa:B-Z", theirs="https://a.example/other")
    with net["A"]:
        submit(b"<Order n='1'/>")
    net.work()
    with net["B"] as b:
        Pair.objects.filter(pk=b.outbound("tpa:B-C").pk).update(gate="paused")
        [waiting] = b.sent()
        operating.message_cancel(message_id=waiting.pk, actor=WHO, reason=WHY)
    net.work()
    assert [one.error.code for one in upstream_errors(net) if one.error] == [ErrorCode.DELIVERY_FAILURE]


def test_while_the_way_is_shut_nothing_is_taken_in_this_mode_either(net: Network) -> None:
    with net["B"] as b:
        operating.pair_pause(pair_id=b.outbound("tpa:B-C").pk, actor=WHO, reason=WHY)
    with net["A"]:
        submit()
    net.work()
    [error] = upstream_errors(net)
    assert error.error is not None and error.error.min_retry_secs == 45
    with net["B"] as b:
        assert b.received() == []


def test_the_sender_can_wait_longer_than_the_router_tries(net: Network, time: FrozenClock) -> None:
    """Killed and brought back: a receiver that is away for a while costs the sender nothing."""
    net.down = {"C"}
    with net["A"]:
        submit()
    net.work()
    time.move(25)
    net.work()
    net.down = set()
    time.move(25)
    net.work()
    assert states(net["A"]) == ["delivered"]
    with net["A"] as a:
        assert a.sent()[0].attempts == 1


def test_what_came_is_kept_until_it_has_got_to_the_next_hop(net: Network) -> None:
    net.down = {"C"}
    with net["A"]:
        submit()
    net.work()
    with net["B"] as b:
        [came] = b.received()
        assert archived.unfinished([came.pk]) == {came.pk}
        Signal.objects.update(state="sent", due_at=None)
        assert archived.unfinished([came.pk]) == {came.pk}
        Message.objects.filter(direction="out").update(state="delivered", due_at=None)
        assert archived.unfinished([came.pk]) == set()
