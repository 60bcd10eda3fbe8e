"""The worker's engine with real threads and real commits; only the transport is a fake."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
from django.db import OperationalError, connection, connections, transaction

from messaging.engine import kinds, leases, loop
from messaging.engine.claiming import claim_due
from messaging.engine.kinds import SENDS, talk
from messaging.engine.loop import Engine
from messaging.models import Message, Pair, Signal, Transmission
from messaging.transports import Parcel, Receipt
from tests.messaging.factories import TAKEN, PartnerSide, decoded, link, partner_side, submit
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db(transaction=True)

WAIT = 120.0


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = closing(Engine(SENDS, threads=4, batch=64))
    yield made
    made.close()


def closing(engine: Engine) -> Engine:
    """Connections of its threads are closed with each piece of work: they do not outlive the test."""
    send = engine._send

    def send_and_close(job) -> None:
        try:
            send(job)
        finally:
            connections.close_all()

    engine._send = send_and_close  # type: ignore[method-assign]
    return engine


class Worker(threading.Thread):
    """Runs the engine once in a thread, like a Celery task."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(daemon=True)
        self.engine = engine
        self.started: int | None = None
        self.start()

    def run(self) -> None:
        try:
            self.started = self.engine.run()
        finally:
            connections.close_all()

    def done(self) -> int | None:
        self.join(WAIT)
        assert not self.is_alive()
        return self.started


class Slow:
    """A transport on which the parcels of one partner stay until they are let go."""

    def __init__(self, *partners: PartnerSide) -> None:
        self.addresses = {partner.terms.partner_address for partner in partners}
        self.held = threading.Semaphore(0)
        self.gate = threading.Event()

    def __call__(self, parcel: Parcel) -> Receipt:
        if parcel.address in self.addresses:
            self.held.release()
            assert self.gate.wait(WAIT)
        return TAKEN


def state(message: Message) -> str:
    return Message.objects.values_list("state", flat=True).get(pk=message.pk)


def reached(wanted: str, *messages: Message) -> Callable[[], bool]:
    return lambda: all(state(message) == wanted for message in messages)


def test_it_sends_what_is_due_and_says_how_much(engine: Engine) -> None:
    partners = [partner_side() for _ in range(6)]
    messages = [submit(partner) for partner in partners]
    partners[0].send(partners[0].message(1))
    plain = submit(partners[1], semantics="BestEffort")
    with link() as wire:
        assert engine.run() == 8
        eventually(reached("awaiting_ack", *messages))
        eventually(reached("sent", plain))
        eventually(lambda: Signal.objects.get().state == "sent")
    assert len(wire.parcels) == 8
    assert {t.worker for t in Transmission.objects.all()} == {engine._worker.number}
    assert engine.run() == 0


def test_two_hubs_talk_until_every_document_is_delivered(engine: Engine) -> None:
    """Each acknowledgement makes the next message due: rounds go on until nothing is left."""
    partners = [partner_side() for _ in range(3)]
    messages = [submit(partner) for partner in partners for _ in range(5)]
    by_address = {partner.terms.partner_address: partner for partner in partners}

    def receiver(parcel: Parcel) -> Receipt:
        partner = by_address[parcel.address]
        partner.send(partner.acknowledgement(parcel))  # overtakes the record of our own attempt
        return TAKEN

    with link(receiver) as wire:
        eventually(lambda: engine.run() == 0 and reached("delivered", *messages)())
    assert len(wire.parcels) == 15
    for partner in partners:
        numbers = [decoded(p).hop.sequence_number for p in wire.parcels if p.address == partner.terms.partner_address]
        assert numbers == [1, 2, 3, 4, 5]


def test_a_slow_partner_holds_its_own_thread_and_nothing_else() -> None:
    slow, others = partner_side(), [partner_side() for _ in range(5)]
    held, messages = submit(slow), [submit(partner) for partner in others]
    answer = Slow(slow)
    engine = closing(Engine(SENDS, threads=2, batch=64))
    try:
        with link(answer):
            assert engine.run() == 6
            assert answer.held.acquire(timeout=WAIT)
            eventually(reached("awaiting_ack", *messages))
            assert state(held) == "sending"
            later = submit(others[0], semantics="BestEffort")
            assert engine.run() == 1
            eventually(reached("sent", later))
            assert state(held) == "sending"
            answer.gate.set()
            eventually(reached("awaiting_ack", held))
    finally:
        answer.gate.set()
        engine.close()


def test_a_bystander_returns_at_once_and_what_it_was_woken_for_is_sent_all_the_same() -> None:
    slow = [partner_side() for _ in range(2)]
    messages = [submit(partner) for partner in slow]
    answer = Slow(*slow)
    engine = closing(Engine(SENDS, threads=1, batch=64))
    try:
        with link(answer):
            first = Worker(engine)
            assert answer.held.acquire(timeout=WAIT)
            later = submit(partner_side())
            bystander = Worker(engine)
            assert bystander.done() == 0
            assert first.is_alive(), "it waits for its one thread"
            answer.gate.set()
            assert first.done() == 3, "and looks once more, because somebody was woken meanwhile"
            eventually(reached("awaiting_ack", *messages, later))
    finally:
        answer.gate.set()
        engine.close()


def test_many_tasks_at_once_send_each_message_once(engine: Engine) -> None:
    messages = [submit(partner_side()) for _ in range(12)]
    with link() as wire:
        workers = [Worker(engine) for _ in range(6)]
        total = sum(worker.done() or 0 for worker in workers)
        eventually(reached("awaiting_ack", *messages))
    assert total == len(wire.parcels) == 12


def test_two_processes_share_the_work() -> None:
    engines = [closing(Engine(SENDS, threads=2, batch=3)) for _ in range(2)]
    messages = [submit(partner_side()) for _ in range(12)]
    try:
        with link() as wire:
            workers = [Worker(engine) for engine in engines for _ in range(2)]
            for worker in workers:
                worker.done()
            eventually(lambda: [engine.run() for engine in engines] == [0, 0])
            eventually(reached("awaiting_ack", *messages))
        assert len(wire.parcels) == len({parcel.body for parcel in wire.parcels}) == 12
    finally:
        for engine in engines:
            engine.close()


def test_a_transport_that_breaks_stops_nobody(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """A mistake of ours in a transport: that attempt is left to its lease, all others go on, and no thread is lost."""
    broken, healthy = partner_side(), partner_side()

    def answer(parcel: Parcel) -> Receipt:
        if parcel.address == broken.terms.partner_address:
            raise AssertionError("a bug")
        return TAKEN

    with link(answer):
        for _ in range(6):  # more often than there are threads
            submit(broken, semantics="BestEffort")
        message = submit(healthy)
        assert engine.run() == 7
        eventually(reached("awaiting_ack", message))
        eventually(lambda: len([r for r in caplog.records if r.getMessage() == "outcome not recorded"]) == 6)
        later = submit(healthy, semantics="BestEffort")
        assert engine.run() == 1
        eventually(reached("sent", later))
    assert Transmission.objects.filter(outcome="on_the_wire").count() == 6


def test_an_outcome_that_cannot_be_recorded_is_left_to_the_lease(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    message = submit(partner_side())
    broken = ValueError("a mistake of ours")
    with link(), mock.patch("messaging.engine.recording._record_pairs", side_effect=broken):
        engine.run()
        eventually(lambda: any(r.getMessage() == "outcome not recorded" for r in caplog.records))
    assert state(message) == "sending"
    Pair.objects.update(due_at="2020-01-01T00:00:00Z")
    with link() as wire:
        eventually(lambda: engine.run() == 1)
        eventually(reached("awaiting_ack", message))
    assert len(wire.parcels) == 1


def test_a_claim_that_fails_does_not_leave_the_engine_running_for_ever(engine: Engine) -> None:
    message = submit(partner_side())
    with (
        mock.patch("messaging.engine.kinds.claim_due", side_effect=OperationalError("gone")),
        pytest.raises(OperationalError),
    ):
        engine.run()
    with link():
        assert engine.run() == 1
        eventually(reached("awaiting_ack", message))


def test_nothing_is_sent_inside_a_transaction() -> None:
    """Invariant 6: a partner that is slow would hold our locks."""
    submit(partner_side())
    [job] = claim_due(limit=1)
    with link() as wire:
        with transaction.atomic(), pytest.raises(RuntimeError, match="inside a transaction"):
            talk(job)
        assert wire.parcels == []
        assert talk(job).ok


def test_an_unknown_transport_is_an_error_of_ours_and_stops_nobody(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    submit(partner_side())
    with mock.patch.dict("messaging.transports.BY_NAME", clear=True):
        assert engine.run() == 1
        eventually(lambda: any(r.getMessage() == "outcome not recorded" for r in caplog.records))


def test_closing_lets_what_is_under_way_finish() -> None:
    partner = partner_side()
    message = submit(partner)
    answer = Slow(partner)
    engine = closing(Engine(SENDS, threads=2, batch=64))
    with link(answer):
        engine.run()
        assert answer.held.acquire(timeout=WAIT)
        closer = threading.Thread(target=engine.close)
        closer.start()
        assert engine._gather.wait(WAIT)
        later = submit(partner_side())
        assert engine.run() == 0, "nothing new is begun"
        answer.gate.set()
        closer.join(WAIT)
        assert not closer.is_alive()
    assert (state(message), state(later)) == ("awaiting_ack", "queued")


# ---- workers that died ----


def claimed_by_the_dead(partner: PartnerSide) -> Message:
    message = submit(partner)
    assert len(claim_due(limit=10, worker=4711)) == 1
    return message


def test_what_a_dead_worker_had_claimed_is_taken_over_at_once(engine: Engine) -> None:
    message = claimed_by_the_dead(partner_side())
    with link() as wire:
        eventually(lambda: engine.run() == 1)
        eventually(reached("awaiting_ack", message))
    assert len(wire.parcels) == 1
    assert list(Transmission.objects.order_by("id").values_list("outcome", flat=True)) == ["lost", "sent"]


def test_what_a_living_worker_has_claimed_is_left_to_it(engine: Engine) -> None:
    other = Engine(SENDS, threads=1, batch=10)
    try:
        other._worker.hold()
        message = submit(partner_side())
        claim_due(limit=10, worker=other._worker.number)
        with link() as wire:
            assert engine.run() == 0
        assert (wire.parcels, state(message)) == ([], "sending")
    finally:
        other.close()


def test_a_worker_that_never_rests_takes_over_too(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load a run does not end for minutes: the dead must not wait for that."""
    monkeypatch.setattr(loop, "WATCH_SECONDS", 0.0)
    looks: list[object] = []
    monkeypatch.setattr(leases, "release_dead", looks.append)
    submit(partner_side())
    jobs = claim_due(limit=1) * loop.CROWD
    claims = [jobs] * 5 + [[]] * 2
    monkeypatch.setattr(kinds, "claim_due", lambda **_: claims.pop(0) if claims else [])
    with link():
        assert engine.run() == 5 * loop.CROWD
    assert len(looks) >= 5


def test_one_engine_belongs_to_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_sender", None)
    made: list[Engine] = []
    threads = [threading.Thread(target=lambda: made.append(kinds.sender())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert len(set(map(id, made))) == 1
    made[0].close()
    connection.close()
