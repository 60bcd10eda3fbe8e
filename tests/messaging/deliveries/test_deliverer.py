"""The worker's engine for deliveries, with real threads, real commits and a real HTTP service."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from django.db import connection, connections, transaction

from messaging.deliveries.services.job import Job
from messaging.engine import kinds
from messaging.engine.kinds import DELIVERIES
from messaging.engine.loop import Engine
from messaging.models import Delivery, DocumentStarted
from rmhub import clock
from tests.messaging.deliveries.stage import (
    Application,
    Asked,
    arrive,
    claim,
    http,
    lose,
    make_trigger,
    now_of,
    states,
    verdict,
)
from tests.messaging.factories import PartnerSide, partner_side
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db(transaction=True)

WAIT = 120.0


def made(threads: int = 4, share: int | None = None) -> Engine:
    """An engine whose threads close their connections with each piece of work: they do not outlive the test."""
    engine = Engine(DELIVERIES, threads=threads, batch=threads)
    send = engine._send

    def send_and_close(job: Job) -> None:
        try:
            send(job)
        finally:
            connections.close_all()

    engine._send = send_and_close  # type: ignore[method-assign]
    return engine


@pytest.fixture
def engine(settings: object) -> Iterator[Engine]:
    settings.RMHUB_DELIVER_THREADS = 4  # type: ignore[attr-defined]
    engine = made()
    yield engine
    engine.close()


class Held:
    """A service that keeps some documents until they are let go."""

    def __init__(self, app: Application, *document_ids: str) -> None:
        self.ids = set(document_ids)
        self.inside = threading.Semaphore(0)
        self.gate = threading.Event()
        app.plan("/documents", self)

    def __call__(self, asked: Asked) -> bytes:
        if asked.document_id in self.ids:
            self.inside.release()
            assert self.gate.wait(WAIT)
        return http(200)


def all_are(state: str, *documents: Delivery) -> Callable[[], bool]:
    return lambda: states(*documents) == [state] * len(documents)


def test_one_wake_up_hands_over_a_whole_queue_in_its_order(
    partner: PartnerSide, app: Application, engine: Engine
) -> None:
    """Each document of a pair waits for the one before; its end is what makes the next due, without a wake-up."""
    make_trigger(app)
    documents = arrive(partner, *(f"a{n}" for n in range(12)))
    assert engine.run() >= 1
    eventually(all_are("completed", *documents))
    assert app.documents == [f"a{n}" for n in range(12)]
    assert {now_of(document).executions for document in documents} == {1}


def test_the_resolver_and_then_the_service_under_one_claim(
    partner: PartnerSide, app: Application, engine: Engine
) -> None:
    app.plan("/resolver", verdict("NEW"))
    make_trigger(app, resolver="http")
    [document] = arrive(partner, "a1")
    lose(*claim())
    engine.run()
    eventually(all_are("completed", document))
    assert [one.path for one in app.asked] == ["/resolver", "/documents"]


def test_a_service_that_hangs_holds_up_no_other_trigger(partner: PartnerSide, app: Application, engine: Engine) -> None:
    held = Held(app, *(f"a{n}" for n in range(8)))
    make_trigger(app, ordered=False, concurrency=64, documents=[{"service": "urn:orders", "action": "Hang"}])
    make_trigger(app, ordered=False, documents=[{"service": "urn:orders", "action": "Go"}])
    hanging = arrive(partner, *(f"a{n}" for n in range(8)), action="Hang")
    try:
        engine.run()
        for _ in range(3):
            assert held.inside.acquire(timeout=WAIT)
        others = arrive(partner, *(f"b{n}" for n in range(6)), action="Go")
        engine.run()
        eventually(all_are("completed", *others))
        assert sorted(states(*hanging)) == ["running"] * 3 + ["waiting"] * 5, "one thread is left for the others"
    finally:
        held.gate.set()
    eventually(all_are("completed", *hanging))


def test_a_document_whose_service_hangs_holds_up_its_own_trigger_only(app: Application, engine: Engine) -> None:
    one, other = partner_side(), partner_side()
    held = Held(app, "a1")
    make_trigger(app)
    waiting = arrive(one, "a1", "a2")
    others = arrive(other, "b1", "b2", "b3")
    try:
        engine.run()
        assert held.inside.acquire(timeout=WAIT)
        eventually(all_are("completed", *others))
        assert states(*waiting) == ["running", "waiting"]
    finally:
        held.gate.set()
    eventually(all_are("completed", *waiting))


def test_concurrency_holds_over_all_workers(partner: PartnerSide, app: Application, settings: object) -> None:
    names = [f"a{n}" for n in range(12)]
    held = Held(app, *names)
    make_trigger(app, ordered=False, concurrency=3)
    documents = arrive(partner, *names)
    engines = [made() for _ in range(3)]
    try:
        for engine in engines:
            engine.run()
        for _ in range(3):
            assert held.inside.acquire(timeout=WAIT)
        for engine in engines:
            assert engine.run() == 0
        assert sorted(states(*documents)) == ["running"] * 3 + ["waiting"] * 9
        held.gate.set()
        eventually(all_are("completed", *documents))
    finally:
        held.gate.set()
        for engine in engines:
            engine.close()
    assert sorted(app.documents) == sorted(names)


def test_many_workers_at_once_never_run_a_delivery_twice(app: Application, settings: object) -> None:
    partners = [partner_side() for _ in range(4)]
    make_trigger(app, ordered=False, concurrency=64)
    make_trigger(app, url=app.url("/ordered"), concurrency=64)
    for partner in partners:
        arrive(partner, *(f"{partner.terms.tpa_id}-{n}" for n in range(8)))
    engines = [made() for _ in range(3)]
    threads = [
        threading.Thread(target=lambda engine=engine: (engine.run(), connections.close_all())) for engine in engines
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        eventually(lambda: [e.run() for e in engines] == [0, 0, 0] and not _open())
    finally:
        for engine in engines:
            engine.close()
    assert Delivery.objects.filter(state="completed", executions=1).count() == 64
    for path in ("/documents", "/ordered"):
        assert len(app.at(path)) == len({one.document_id for one in app.at(path)}) == 32
    for partner in partners:
        mine = [one.document_id for one in app.at("/ordered") if one.document_id.startswith(f"{partner.terms.tpa_id}-")]
        assert mine == [f"{partner.terms.tpa_id}-{n}" for n in range(8)]
    assert not DocumentStarted.objects.exists()


def _open() -> bool:
    return Delivery.objects.filter(state__in=("waiting", "running")).exists()


def test_what_a_dead_worker_had_in_work_is_taken_back_without_waiting_for_its_lease(
    partner: PartnerSide, app: Application, engine: Engine
) -> None:
    make_trigger(app)
    [document] = arrive(partner, "a1")
    claim(worker=4711)
    eventually(lambda: engine.run() is not None and states(document) == ["in_doubt"])
    assert app.documents == []


def test_what_a_living_worker_has_in_work_is_left_to_it(partner: PartnerSide, app: Application, engine: Engine) -> None:
    other = made()
    try:
        other._worker.hold()
        make_trigger(app)
        [document] = arrive(partner, "a1")
        claim(worker=other._worker.number)
        assert engine.run() == 0
        assert states(document) == ["running"]
    finally:
        other.close()


def test_an_outcome_that_cannot_be_recorded_leaves_the_document_in_doubt(
    partner: PartnerSide, app: Application, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    make_trigger(app)
    [document] = arrive(partner, "a1")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE messaging_event RENAME TO gone")
    try:
        engine.run()
        eventually(lambda: any(r.getMessage() == "outcome not recorded" for r in caplog.records))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE gone RENAME TO messaging_event")
    assert (states(document), app.documents) == (["running"], ["a1"])
    Delivery.objects.update(due_at=clock.now())
    engine.run()
    eventually(all_are("in_doubt", document))
    assert app.documents == ["a1"]


def test_closing_leaves_nothing_claimed_that_was_not_begun(partner: PartnerSide, app: Application) -> None:
    names = [f"a{n}" for n in range(20)]
    held = Held(app, *names)
    make_trigger(app, ordered=False, concurrency=64)
    documents = arrive(partner, *names)
    engine = made(threads=2)
    engine.run()
    for _ in range(2):
        assert held.inside.acquire(timeout=WAIT)
    closer = threading.Thread(target=engine.close)
    closer.start()
    assert engine._gather.wait(WAIT)
    assert engine.run() == 0
    held.gate.set()
    closer.join(WAIT)
    assert not closer.is_alive()
    found = states(*documents)
    assert (found.count("completed"), found.count("waiting")) == (2, 18)
    assert not DocumentStarted.objects.exists()


def test_a_claim_inside_a_transaction_is_refused(partner: PartnerSide, app: Application, engine: Engine) -> None:
    """A service that is slow would hold our locks."""
    make_trigger(app)
    arrive(partner, "a1")
    jobs = claim()
    engine._bulkheads.put("", jobs[0], 0.0)
    [begun] = engine._bulkheads.begin()
    with transaction.atomic():
        Engine._send(engine, begun)
    assert app.asked == []


def test_one_deliverer_belongs_to_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_deliverer", None)
    monkeypatch.setattr(kinds, "_sender", None)
    monkeypatch.setattr(kinds, "_collector", None)
    assert kinds.deliverer() is kinds.deliverer()
    kinds.close()
    assert kinds.deliverer().run() == 0
