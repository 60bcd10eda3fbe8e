"""Many copies and many messages at once: what overtakes is held back, and of copies one is accepted (M42, X18)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from django.db import connection, connections

from messaging.engine import subscriptions
from messaging.engine.group import GroupCommit
from messaging.entrance.refusals import Answer, Arrival
from messaging.models import Delivery, Message, MessageIdentity, Pair
from messaging.profiles.stream import accepting, receiving, storing
from messaging.profiles.stream.arrivals import Holding
from tests.messaging.deliveries.stage import make_trigger
from tests.messaging.profiles.stream.partner import GAP, TAKEN, A, B, StreamSide, ids, items, stream_side
from tests.partners.factories import make_agreement, make_endpoint
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db(transaction=True)

WAIT = 120.0


class Sender(threading.Thread):
    """Sends one message with a connection of its own."""

    def __init__(self, side: StreamSide, arrival: Arrival) -> None:
        super().__init__(daemon=True)
        self.side, self.arrival = side, arrival
        self.answer: Answer | None = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self.side.send(self.arrival)
        finally:
            connections.close_all()

    def done(self) -> Answer | None:
        self.join(WAIT)
        assert not self.is_alive()
        return self.answer


def in_transactions() -> int:
    """How many connections of this database sit in a transaction and do nothing."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in tr%'"
        )
        return int(cursor.fetchone()[0])


def waiting(count: int) -> Callable[[], bool]:
    return lambda: receiving._holding.waiting() == count


def test_what_overtook_its_predecessor_waits_for_it_and_the_rules_see_the_order(settings, monkeypatch) -> None:
    settings.RMHUB_STREAM_HOLD_MS = 10_000
    monkeypatch.setattr(accepting, "position_of", lambda key: (0, 0))  # nobody has to look at the row
    partner = stream_side()
    late = [Sender(partner, partner.message(number, f"m{number}@p")) for number in (4, 3, 5)]
    eventually(waiting(3))
    assert not Message.objects.exists()
    assert in_transactions() == 0, "nobody waits inside a transaction"
    assert partner.send(partner.message(1, "m1@p")) == TAKEN
    assert ids() == ["m1@p"]
    assert partner.send(partner.message(2, "m2@p")) == TAKEN
    assert [sender.done() for sender in late] == [TAKEN] * 3
    assert ids() == [f"m{number}@p" for number in range(1, 6)]
    assert partner.state == (A, 5, 0), "nothing was rejected"
    eventually(waiting(0))


def test_at_the_end_of_its_time_the_rules_decide(settings) -> None:
    settings.RMHUB_STREAM_HOLD_MS = 150
    partner = stream_side()
    partner.send(partner.message(1))
    started = time.monotonic()
    assert partner.send(partner.message(3)) == GAP
    assert time.monotonic() - started >= 0.15
    assert partner.state == (A, 1, 1)


def test_the_head_of_a_new_stream_is_waited_for_too(settings) -> None:
    settings.RMHUB_STREAM_HOLD_MS = 10_000
    partner = stream_side()
    partner.send(partner.message(1, "a1@p"))
    late = Sender(partner, partner.message(2, "b2@p", sid=B))
    eventually(waiting(1))
    partner.send(partner.message(1, "b1@p", sid=B))
    assert late.done() == TAKEN
    assert ids() == ["a1@p", "b1@p", "b2@p"]


def test_when_too_many_wait_the_next_is_decided_at_once(settings, monkeypatch) -> None:
    """The threads of the web server belong to everybody."""
    settings.RMHUB_STREAM_HOLD_MS = 60_000
    monkeypatch.setattr(receiving, "_holding", Holding(limit=1))
    partner = stream_side()
    held = Sender(partner, partner.message(2))
    eventually(waiting(1))
    assert partner.send(partner.message(3)) == GAP
    assert held.is_alive(), "the first still has its time"
    partner.send(partner.message(1))
    assert held.done() == TAKEN


def test_the_acceptance_of_another_process_is_seen(settings) -> None:
    """It commits without a word to this process: the stream's row is looked at."""
    settings.RMHUB_STREAM_HOLD_MS = 10_000
    partner = stream_side()
    held = Sender(partner, partner.message(2, "m2@p"))
    eventually(waiting(1))
    [item] = items(partner, partner.message(1, "m1@p"))
    assert [outcome.status for outcome in accepting.accept([item])] == [202]
    assert held.done() == TAKEN
    assert ids() == ["m1@p", "m2@p"]


def test_sixteen_lanes_in_any_order(settings) -> None:
    settings.RMHUB_STREAM_HOLD_MS = 10_000
    partner = stream_side()
    numbers = [(n * 7) % 16 + 1 for n in range(16)]
    senders = [Sender(partner, partner.message(number, f"m{number}@p")) for number in numbers]
    assert [sender.done() for sender in senders] == [TAKEN] * 16
    assert ids() == [f"m{number}@p" for number in range(1, 17)]
    assert partner.state == (A, 16, 0)


@pytest.mark.parametrize("copies", [2, 6], ids=["M42-two-sessions", "X18-many-copies"])
def test_of_copies_at_once_in_two_processes_one_is_accepted(copies: int) -> None:
    """Each process has a group of its own, so nothing but the database keeps them apart."""
    make_trigger(kind="pull")
    partner = stream_side()
    [item] = items(partner, partner.message(1, "m1@p"))
    processes = [GroupCommit(accepting.accept) for _ in range(2)]
    barrier = threading.Barrier(copies)
    statuses: list[int | None] = []

    def send(number: int) -> None:
        try:
            barrier.wait(WAIT)
            statuses.append(processes[number % 2].submit(item).status)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=send, args=(number,)) for number in range(copies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert statuses == [202] * copies
    assert (ids(), Delivery.objects.count(), MessageIdentity.objects.count()) == (["m1@p"], 1, 1)
    assert partner.state == (A, 1, copies - 1)
    assert (partner.inbound.done, partner.inbound.duplicates) == (1, copies - 1)


def test_m42_the_same_id_at_once_under_two_agreements(monkeypatch) -> None:
    """Two pairs, two locks: the second finds the first when its insert fails, and looks again."""
    first = stream_side()
    from partners.models import Agreement

    agreement = Agreement.objects.get(tpa_id=first.terms.tpa_id)
    version = make_agreement(
        own_endpoint=make_endpoint(agreement.own_party, "https://us.example/stream/second"),
        partner_endpoint=make_endpoint(agreement.partner, "https://them.example/stream/second"),
        profile="stream",
    )
    second = stream_side(version)
    looked, go_on = threading.Event(), threading.Event()
    write = storing.write

    def late(batch: object) -> None:
        monkeypatch.setattr(storing, "write", write)
        looked.set()
        assert go_on.wait(WAIT)
        write(batch)  # type: ignore[arg-type]

    monkeypatch.setattr(storing, "write", late)
    slow = Sender(second, second.message(1, "m1@p"))
    assert looked.wait(WAIT)
    [item] = items(first, first.message(1, "m1@p"))
    assert accepting.accept([item])[0].status == 202
    go_on.set()
    assert slow.done() == TAKEN
    assert ids() == ["m1@p"]
    assert (first.state, second.state) == ((A, 1, 0), (A, 1, 0))
    assert Pair.objects.get(pk=second.inbound.pk).duplicates == 1
    subscriptions.current.forget()
