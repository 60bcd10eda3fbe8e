"""Workers while the database is away, and after: nobody is taken for dead, and nothing that is known is forgotten."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import Error, connection, connections

from messaging.deliveries.services import claiming
from messaging.engine import leases
from messaging.engine.claiming import claim_due
from messaging.engine.kinds import DELIVERIES, SENDS
from messaging.engine.loop import Engine
from messaging.models import Delivery, Message, Pair, Signal, Transmission, Worker
from messaging.transports import Parcel, Receipt
from rmhub import clock
from rmhub.embedded.processes import Mark, _started
from tests.messaging.deliveries.stage import Application, Asked, application, arrive, http, make_trigger
from tests.messaging.factories import TAKEN, link, partner_side, submit
from tests.messaging.outages import end_sessions, outage
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db(transaction=True)

WAIT = 120.0
ELSEWHERE = "another machine"


@pytest.fixture(autouse=True)
def always_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal is not left out because there was one a moment ago."""
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.0)


@pytest.fixture
def other() -> Iterator[leases.WorkerLock]:
    """Another worker, whose process lives."""
    made = leases.WorkerLock()
    made.hold()
    yield made
    made.release()


@pytest.fixture
def app() -> Iterator[Application]:
    with application() as made:
        yield made


@contextmanager
def running(engine: Engine) -> Iterator[Engine]:
    """Runs the engine again and again, as a worker does, whatever becomes of the database."""
    over = threading.Event()
    send = engine._send

    def send_and_close(job) -> None:
        try:
            send(job)
        finally:
            connections.close_all()

    engine._send = send_and_close  # type: ignore[method-assign]

    def sweep() -> None:
        while not over.wait(0.02):
            try:
                engine.run()
            except Error:
                connection.close()
        connection.close()

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        yield engine
    finally:
        over.set()
        thread.join(WAIT)
        engine.close()


def silent(worker: leases.WorkerLock, seconds: float, *, node: str = ELSEWHERE) -> None:
    """The worker runs on another machine and was last heard of so long ago."""
    at = clock.now() - timedelta(seconds=seconds)
    Worker.objects.filter(pk=worker.number).update(renewed_at=at, node=node)


def present_for(worker: leases.WorkerLock, seconds: float) -> None:
    Worker.objects.filter(pk=worker.number).update(held_since=clock.now() - timedelta(seconds=seconds))


def claimed_by(worker: leases.WorkerLock) -> Message:
    message = submit(partner_side())
    assert message.pk in [job.message_id for job in claim_due(limit=10, worker=worker.number)]
    return message


# ---- presence ----


def test_x23_a_presence_is_held_again_after_an_outage(other: leases.WorkerLock) -> None:
    worker = leases.WorkerLock()
    worker.hold()
    for _ in range(2):
        with outage():
            for _ in range(3):
                with pytest.raises(Error):
                    worker.hold()
        worker.hold()
        assert leases.living() == {worker.number, other.number}
    worker.release()
    assert leases.living() == {other.number}


def test_x23_a_presence_outlives_the_session_that_renewed_it(other: leases.WorkerLock) -> None:
    """The next session may be another one of a pooler: no session holds anything."""
    end_sessions()
    connection.close()
    assert other.number in leases.living()


def test_x23_a_worker_that_cannot_connect_does_not_lose_what_it_has_in_hand(other: leases.WorkerLock) -> None:
    worker = leases.WorkerLock()
    worker.hold()
    message = claimed_by(worker)
    with outage(), pytest.raises(Error):
        worker.hold()
    other.hold()
    assert leases.release_dead(clock.now()) == 0
    worker.hold()
    assert leases.release_dead(clock.now()) == 0
    assert Message.objects.get(pk=message.pk).state == "sending"


def test_x23_whoever_was_away_does_not_judge_others(other: leases.WorkerLock) -> None:
    """After an outage the first that is back finds everybody silent; they are given the time to come back too."""
    worker = leases.WorkerLock()
    worker.hold()
    present_for(worker, 600)
    silent(worker, 60)
    silent(other, 60)
    for _ in range(3):
        worker.hold()
        assert leases.living() == {worker.number, other.number}
    present_for(worker, leases.LEASE + 1)  # and so long nobody has heard of the other
    worker.hold()
    assert leases.living() == {worker.number}


def test_a_worker_that_is_silent_for_a_moment_is_not_dead(other: leases.WorkerLock) -> None:
    worker = leases.WorkerLock()
    worker.hold()
    present_for(worker, 600)
    silent(other, leases.LEASE - 5)
    worker.hold()
    assert other.number in leases.living()


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_x23_a_worker_that_is_seen_to_run_has_more_time(other: leases.WorkerLock, stopped: bool) -> None:
    """It may be the only one that gets no connection, and it alone knows what came of what it has in hand."""
    worker = leases.WorkerLock()
    worker.hold()
    present_for(worker, 600)
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            if stopped:
                child.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, child.pid, os.WSTOPPED)
            Worker.objects.filter(pk=other.number).update(pid=child.pid, started=_started(child.pid))
            here = Worker.objects.get(pk=worker.number).node
            silent(other, leases.LEASE + 5, node=here)
            worker.hold()
            assert (other.number in leases.living()) is not stopped
            silent(other, leases.LEASE_OF_RUNNING + 1, node=here)
            worker.hold()
            assert other.number not in leases.living()
        finally:
            child.kill()


def test_x23_what_a_silent_worker_has_in_hand_stays_its_own(other: leases.WorkerLock, app: Application) -> None:
    make_trigger(app)
    [delivery] = arrive(partner_side(), "doc-1@example.com")
    message = claimed_by(other)
    [job] = claiming.claim_due(limit=1, worker=other.number)
    worker = leases.WorkerLock()
    worker.hold()
    present_for(worker, 600)
    silent(other, leases.GAP + 1)
    soon = clock.now() + timedelta(seconds=1)
    Delivery.objects.filter(pk=delivery.pk).update(due_at=soon)
    Pair.objects.filter(pk=message.pair_id).update(due_at=soon)
    worker.hold()
    assert Delivery.objects.get(pk=delivery.pk).claim == job.claim
    assert Delivery.objects.get(pk=delivery.pk).due_at > soon + timedelta(seconds=10)  # type: ignore[operator]
    assert Pair.objects.get(pk=message.pair_id).due_at > soon + timedelta(seconds=10)  # type: ignore[operator]


def test_a_worker_whose_process_is_gone_is_dead_at_once(other: leases.WorkerLock) -> None:
    message = claimed_by(other)
    partner = partner_side()
    assert partner.send(partner.message(1)) == 204
    assert len(claim_due(limit=10, worker=other.number)) == 1
    Worker.objects.filter(pk=other.number).update(started=Mark.own().started - 1)  # its number is somebody else's now
    worker = leases.WorkerLock()
    worker.hold()
    assert leases.living() == {worker.number}
    assert leases.release_dead(clock.now()) == 2
    assert Pair.objects.get(pk=message.pair_id).due_at <= clock.now()
    assert Signal.objects.get().due_at <= clock.now(), "the acknowledgement that it had in hand"


def test_x23_what_workers_have_in_hand_gets_new_leases_after_an_outage(
    other: leases.WorkerLock, app: Application
) -> None:
    """Nobody could renew them meanwhile; the living know what came of it, and say so in a moment."""
    make_trigger(app)
    [delivery] = arrive(partner_side(), "doc-1@example.com")
    message = claimed_by(other)
    [job] = claiming.claim_due(limit=1, worker=other.number)
    past = clock.now() - timedelta(seconds=30)
    Delivery.objects.filter(pk=delivery.pk).update(due_at=past)
    Pair.objects.filter(pk=message.pair_id).update(due_at=past)
    worker = leases.WorkerLock()
    worker.hold()
    assert claiming.claim_due(limit=10, worker=worker.number) == []
    assert claim_due(limit=10, worker=worker.number) == []
    assert Delivery.objects.get(pk=delivery.pk).claim == job.claim


def test_it_is_known_who_is_there_and_who_was_last_heard_of_when(other: leases.WorkerLock) -> None:
    worker = leases.WorkerLock()
    worker.hold()
    silent(other, 12)
    lost, there = leases.presences()
    assert lost.lost_since is not None and 11 < (clock.now() - lost.lost_since).total_seconds() < 3600
    assert there.lost_since is None and there.name.endswith(f":{Mark.own().pid}")


# ---- what is known and cannot be written yet ----


def test_x23_an_outcome_is_recorded_when_the_database_is_back() -> None:
    """A transmission that ended while it was away is not repeated."""
    said, go_on = threading.Event(), threading.Event()

    def answer(parcel: Parcel) -> Receipt:
        said.set()
        assert go_on.wait(WAIT)
        return TAKEN

    message = submit(partner_side(), semantics="AtMostOnce")
    with link(answer) as wire, running(Engine(SENDS, threads=2, batch=10)) as engine:
        assert said.wait(WAIT)
        with outage():
            go_on.set()
            eventually(lambda: engine._record._busy or engine._bulkheads.free < 2, within=WAIT)
        eventually(lambda: Message.objects.get(pk=message.pk).state == "sent", within=WAIT)
        assert list(Transmission.objects.values_list("outcome", flat=True)) == ["sent"]
    assert len(wire.parcels) == 1


def test_x23_a_document_that_was_processed_meanwhile_is_not_in_doubt(app: Application) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(asked: Asked) -> bytes:
        begun.set()
        assert go_on.wait(WAIT)
        return http(200)

    app.plan("/documents", slow)
    make_trigger(app)
    [delivery] = arrive(partner_side(), "doc-1@example.com")
    with running(Engine(DELIVERIES, threads=2, batch=2)):
        assert begun.wait(WAIT)
        with outage():
            go_on.set()
        eventually(lambda: Delivery.objects.get(pk=delivery.pk).state == "completed", within=WAIT)
    assert app.documents == ["doc-1@example.com"]


def test_x23_documents_after_an_outage_are_delivered_as_before_it(app: Application) -> None:
    """With work that takes longer than a worker's look for the dead."""
    worked = threading.Event()

    def slow(asked: Asked) -> bytes:
        worked.wait(1.5)  # never set: the application's work
        return http(200)

    app.plan("/documents", slow)
    make_trigger(app)
    partner = partner_side()
    first = arrive(partner, "doc-1@example.com")
    with running(Engine(DELIVERIES, threads=4, batch=4)):
        eventually(lambda: Delivery.objects.get(pk=first[0].pk).state == "completed", within=WAIT)
        with outage():
            worked.wait(0.2)
        later = arrive(partner, "doc-2@example.com", "doc-3@example.com")
        ids = [delivery.pk for delivery in later]
        eventually(
            lambda: not Delivery.objects.filter(pk__in=ids, state__in=("waiting", "running")).exists(), within=WAIT
        )
        assert set(Delivery.objects.values_list("state", "redelivery_count")) == {("completed", 0)}
    assert sorted(app.documents) == ["doc-1@example.com", "doc-2@example.com", "doc-3@example.com"]


# ---- a worker that was stopped for a while ----


def test_x25_a_worker_that_goes_on_does_not_begin_what_others_have_taken_over(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was frozen between its claim and the hand-over; then another worker had the document."""
    monkeypatch.setattr("messaging.engine.loop.RENEW_SECONDS", -1.0)  # as if it had claimed it long ago
    make_trigger(app, detect_duplicates=False)
    [delivery] = arrive(partner_side(), "doc-1@example.com")
    frozen = Engine(DELIVERIES, threads=1, batch=1)
    work = frozen._work
    taken = []

    def claim(limit: int, worker: int, crowded: object) -> list:
        jobs = work.claim(limit, worker, crowded)  # type: ignore[arg-type]
        if jobs and not taken:
            Delivery.objects.filter(pk=delivery.pk).update(due_at=clock.now() - timedelta(seconds=1))
            taken.extend(claiming.claim_due(limit=1, worker=4711))
        return jobs

    frozen._work = type(work)(
        task=work.task, claim=claim, talk=work.talk, record=work.record, release_dead=lambda now: 0, keeps=work.keeps
    )
    with running(frozen):
        eventually(lambda: taken and frozen._bulkheads.free == 1, within=WAIT)
    assert app.documents == []
    assert Delivery.objects.get(pk=delivery.pk).claim == taken[0].claim
