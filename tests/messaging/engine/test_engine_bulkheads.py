"""The engine and servers that are slow or dead: threads are counted, never timed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connections

from messaging.claim import Job
from messaging.engine import circuits, kinds, loop
from messaging.engine.claiming import claim_due
from messaging.engine.kinds import SENDS
from messaging.engine.loop import Engine
from messaging.models import Circuit, Message, Signal, Transmission
from messaging.transports import Parcel, Receipt
from messaging.transports.base import server_of
from rmhub import clock
from tests.messaging.engine.test_engine import Worker, closing, reached, state
from tests.messaging.factories import LOST, REFUSED, TAKEN, PartnerSide, link, partner_side, submit
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db(transaction=True)

WAIT = 120.0
THREADS = 8
FIRST = 1  # how many threads a server has that has not answered yet


class Gated:
    """A transport that keeps the parcels for some servers until they are let go, and counts who holds a thread."""

    def __init__(self, *partners: PartnerSide, then: Receipt = LOST) -> None:
        self.servers = {server_of(partner.terms.partner_address) for partner in partners}
        self.gate = threading.Event()
        self.then = then
        self.lock = threading.Lock()
        self.holding = 0
        self.most = 0

    def __call__(self, parcel: Parcel) -> Receipt:
        if server_of(parcel.address) not in self.servers:
            return TAKEN
        with self.lock:
            self.holding += 1
            self.most = max(self.most, self.holding)
        try:
            assert self.gate.wait(WAIT)
        finally:
            with self.lock:
                self.holding -= 1
        return self.then


@contextmanager
def running(engine: Engine, gated: Gated) -> Iterator[Worker]:
    """The engine runs in a thread of its own, like in a worker; in the end all that is held is let go."""
    worker = Worker(engine)
    try:
        yield worker
    finally:
        gated.gate.set()
        engine.close()
        worker.done()


@pytest.fixture
def engine() -> Engine:
    return closing(Engine(SENDS, threads=THREADS, batch=64))


def once(partner: PartnerSide, count: int) -> list[Message]:
    return [submit(partner, semantics="BestEffort") for _ in range(count)]


def opened(partner: PartnerSide, retry_at: str = "2099-01-01T00:00:00Z") -> None:
    """Its server could not be reached lately, and is left alone until then."""
    Circuit.objects.create(
        address=server_of(partner.terms.partner_address),
        state="open",
        failures=5,
        opened_at=clock.now(),
        retry_at=retry_at,
        opened_times=1,
        cause="connect_timeout",
        updated_at=clock.now(),
    )
    circuits.refresh(at_once=True)


def test_a_server_that_takes_connections_and_never_answers_holds_one_thread(engine: Engine) -> None:
    """50 messages for it, and one for each of 20 others: the others are through before it has let go of one."""
    dead, others = partner_side(), [partner_side() for _ in range(20)]
    once(dead, 50)
    messages = [submit(partner) for partner in others]
    gated = Gated(dead)
    with link(gated) as wire, running(engine, gated):
        eventually(reached("awaiting_ack", *messages))
        eventually(lambda: gated.holding == FIRST)
        later = [submit(partner, semantics="BestEffort") for partner in others]
        engine.run()  # a wake-up, while the loop is still at it
        eventually(reached("sent", *later))
        assert gated.most == FIRST
        assert len([p for p in wire.parcels if server_of(p.address) in gated.servers]) == FIRST


def test_several_such_servers_leave_threads_for_the_others() -> None:
    engine = closing(Engine(SENDS, threads=THREADS, batch=64))
    dead, healthy = [partner_side() for _ in range(3)], partner_side()
    for partner in dead:
        once(partner, 10)
    messages = once(healthy, 10)
    gated = Gated(*dead)
    with link(gated), running(engine, gated):
        eventually(reached("sent", *messages))
        eventually(lambda: gated.holding == 3 * FIRST)
        assert gated.most == 3 * FIRST


def test_what_waits_is_bounded_however_much_is_due(engine: Engine) -> None:
    """Claimed is what can begin soon: the rest stays in the queue, without a lease."""
    dead, other = partner_side(), partner_side()
    once(dead, 200)
    gated = Gated(dead)
    with link(gated), running(engine, gated):
        eventually(lambda: gated.holding == FIRST)
        [message] = once(other, 1)
        engine.run()
        eventually(reached("sent", message))
        assert Transmission.objects.filter(outcome="on_the_wire").count() <= 2 * THREADS
        assert Message.objects.filter(state="queued").count() >= 200 - 2 * THREADS


def test_when_it_answers_again_all_that_waited_goes_out(engine: Engine) -> None:
    slow = partner_side()
    messages = once(slow, 60)
    gated = Gated(slow, then=TAKEN)
    with link(gated), running(engine, gated) as worker:
        eventually(lambda: gated.holding == FIRST)
        gated.gate.set()
        eventually(reached("sent", *messages))
        assert worker.done() == 60
    assert gated.most <= THREADS * 7 // 8


def test_a_dead_server_is_found_out_and_what_comes_after_needs_no_thread(engine: Engine) -> None:
    dead = partner_side()
    messages = once(dead, 30)
    gated = Gated(dead)
    gated.gate.set()
    with link(gated) as wire, running(engine, gated):
        eventually(reached("failed", *messages))
    assert 3 <= len(wire.parcels) < 8
    causes = list(Message.objects.values_list("cause", flat=True))
    assert (causes.count("read_timeout"), causes.count("circuit_open")) == (len(wire.parcels), 30 - len(wire.parcels))
    assert Circuit.objects.get().state == "open"


def test_an_open_circuit_costs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = partner_side()
    opened(dead)
    messages = once(dead, 10)
    engine = closing(Engine(SENDS, threads=2, batch=64))
    monkeypatch.setattr(engine._pool, "submit", lambda *_: pytest.fail("a thread for nothing"))
    try:
        with link() as wire:
            assert engine.run() == 10
        assert wire.parcels == []
        assert {message.cause for message in Message.objects.all()} == {"circuit_open"}
        assert all(state(message) == "failed" for message in messages)
    finally:
        engine.close()


def test_two_workers_let_one_probe_through() -> None:
    dead = partner_side()
    opened(dead, "2020-01-01T00:00:00Z")
    messages = once(dead, 12)
    gated = Gated(dead)
    engines = [closing(Engine(SENDS, threads=THREADS, batch=6)) for _ in range(2)]
    with link(gated) as wire, running(engines[0], gated), running(engines[1], gated):
        eventually(lambda: gated.holding == 1)
        # The other worker's fail at once; those behind the probe wait for what it brings.
        eventually(lambda: Message.objects.filter(cause="circuit_open").count() > 0)
        assert gated.most == 1
        gated.gate.set()
        eventually(reached("failed", *messages))
    assert len(wire.parcels) == 1


def test_the_probe_that_is_answered_brings_everything_back() -> None:
    back = partner_side()
    opened(back, "2020-01-01T00:00:00Z")
    engine = closing(Engine(SENDS, threads=THREADS, batch=64))
    try:
        with link():
            [message] = once(back, 1)
            engine.run()
            eventually(reached("sent", message))
            messages = once(back, 10)
            engine.run()
            eventually(reached("sent", *messages))
    finally:
        engine.close()
    assert not Circuit.objects.exists()


# ---- leases of what waits ----


def test_jobs_that_wait_keep_their_leases(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "RENEW_SECONDS", 0.0)
    monkeypatch.setattr(loop, "WATCH_SECONDS", 0.02)
    dead = partner_side()
    once(dead, 6)
    gated = Gated(dead)
    with link(gated), running(engine, gated):
        eventually(lambda: gated.holding == FIRST)
        wanted = Message.objects.filter(state="sending").order_by("due_at")
        eventually(lambda: wanted.count() == 6)
        before = dict(wanted.values_list("pk", "due_at"))

        def moved() -> int:
            return sum(due > before[key] for key, due in wanted.values_list("pk", "due_at"))

        eventually(lambda: moved() >= 6 - FIRST)
        assert moved() == 6 - FIRST, "and those on the wire have the lease that they began with"


def of_every_kind(partner: PartnerSide, requests: PartnerSide) -> list[Job]:
    submit(partner)
    once(partner, 1)
    partner.send(partner.message(1))
    submit(requests)
    jobs = claim_due(limit=10)
    assert {job.kind for job in jobs} == {"pair", "unreliable", "signal", "own"}
    return jobs


def timers(partner: PartnerSide, requests: PartnerSide) -> list[object]:
    unreliable = Message.objects.get(semantics="BestEffort")
    request = Message.objects.get(pair=requests.outbound)
    return [partner.outbound.due_at, Signal.objects.get().due_at, unreliable.due_at, request.due_at]


def test_a_lease_is_renewed_for_every_kind_of_work() -> None:
    partner, requests = partner_side(), partner_side(profile="repeatable")
    jobs = of_every_kind(partner, requests)
    before = timers(partner, requests)
    assert kinds.renew(jobs) == set()
    assert all(new > old for new, old in zip(timers(partner, requests), before, strict=True))


def test_what_somebody_else_has_taken_over_is_not_renewed() -> None:
    partner = partner_side()
    [first, second] = [*once(partner, 1), submit(partner)] and claim_due(limit=10)
    Transmission.objects.filter(pk=first.transmission_id).update(outcome="lost")
    assert kinds.renew([first, second]) == {first.transmission_id}


def test_what_was_taken_over_while_it_waited_is_not_sent(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "RENEW_SECONDS", 0.0)
    monkeypatch.setattr(loop, "WATCH_SECONDS", 0.02)
    dead = partner_side()
    once(dead, 6)
    gated = Gated(dead, then=TAKEN)
    with link(gated) as wire, running(engine, gated):
        eventually(lambda: gated.holding == FIRST)
        eventually(lambda: Transmission.objects.filter(outcome="on_the_wire").count() == 6)
        begun = {parcel.body for parcel in wire.parcels}
        Transmission.objects.update(outcome="lost")
        eventually(lambda: engine._bulkheads.waiting == 0)
        gated.gate.set()
        eventually(lambda: gated.holding == 0)
    assert {parcel.body for parcel in wire.parcels} == begun


# ---- the end of a worker ----


def test_closing_gives_back_what_waits(engine: Engine) -> None:
    dead = partner_side()
    messages = once(dead, 6)
    gated = Gated(dead, then=TAKEN)
    with link(gated) as wire:
        worker = Worker(engine)
        eventually(lambda: gated.holding == FIRST)
        eventually(lambda: Message.objects.filter(state="sending").count() == 6)
        closer = threading.Thread(target=lambda: (engine.close(), connections.close_all()))
        closer.start()
        worker.done()
        # Before the one that is on the wire has ended, the others are free for the next worker.
        eventually(lambda: Message.objects.filter(state="queued").count() == 6 - FIRST)
        gated.gate.set()
        closer.join(WAIT)
        assert not closer.is_alive()
        assert len(wire.parcels) == FIRST
        left = Transmission.objects.filter(outcome="failed").values_list("cause", flat=True)
        assert list(left) == ["not_begun"] * (6 - FIRST)
        following = closing(Engine(SENDS, threads=THREADS, batch=64))
        try:
            following.run()
            eventually(reached("sent", *messages))
        finally:
            following.close()
    assert len({parcel.body for parcel in wire.parcels}) == len(wire.parcels) == 6, "each went out once"


def test_every_kind_is_given_back_and_goes_out_by_the_next_worker() -> None:
    partner, requests = partner_side(), partner_side(profile="repeatable")
    jobs = of_every_kind(partner, requests)
    kinds.give_back(jobs)
    now = clock.now()
    assert all(due <= now for due in timers(partner, requests))
    engine = closing(Engine(SENDS, threads=THREADS, batch=64))
    try:
        with link() as wire:
            eventually(lambda: engine.run() == 0 and len(wire.parcels) == 4)
            eventually(lambda: Signal.objects.get().state == "sent")
            eventually(lambda: state(Message.objects.get(semantics="BestEffort")) == "sent")
            eventually(lambda: partner.outbound.flow == "awaiting_ack")
    finally:
        engine.close()
    # A request that was not begun was certainly not executed.
    assert {t.cause for t in Transmission.objects.filter(outcome="failed")} == {"not_begun"}


def test_an_engine_that_has_nothing_waiting_closes_at_once(engine: Engine) -> None:
    engine.close()
    assert engine.run() == 0


def test_refusals_that_cannot_be_recorded_are_left_to_their_leases(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dead = partner_side()
    opened(dead)
    [message] = once(dead, 1)

    def broken(*_: object) -> None:
        raise OSError("the database went away")

    monkeypatch.setattr("messaging.engine.recording._record_unreliable", broken)
    with link():
        assert engine.run() == 1
    assert state(message) == "sending"
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == ["outcome not recorded"]
    engine.close()


def test_connection_refused_needs_no_thread_for_long_and_is_counted_all_the_same(engine: Engine) -> None:
    """Failures that come at once open the circuit, too: they cost the pair its attempts, not the hub its threads."""
    dead = partner_side(transport_retries=0, retries=5, retry_interval=1000)
    once(dead, 4)
    submit(dead)
    with link(REFUSED):
        eventually(lambda: engine.run() == 0 and dead.outbound.flow == "awaiting_ack")

        def opened() -> bool:
            once(dead, 1)
            engine.run()
            return Circuit.objects.filter(state="open").exists()

        eventually(opened)
    engine.close()
