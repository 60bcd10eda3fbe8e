"""Services that run in the worker: what they do, the document history and the delivery's end are one transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import DatabaseError, IntegrityError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from messaging import applications
from messaging.applications import Document, Reply, Transient
from messaging.deliveries.services import claiming, settling, talking, triggering
from messaging.models import Delivery, DocumentCompleted, DocumentStarted, Incident, Message, Trigger
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.stage import (
    PERSON,
    arrive,
    claim,
    copy_of,
    finish,
    lose,
    make_trigger,
    now_of,
    states,
    work,
)
from tests.messaging.factories import PartnerSide

pytestmark = pytest.mark.django_db


@pytest.fixture
def effects() -> None:
    """A table of the application's own, in the hub's database."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE effects (document_id text NOT NULL, note text CHECK (note <> 'broken'))")


def effect(document: Document, note: str = "") -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO effects VALUES (%s, %s)", [document.document_id, note])


def effected() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT document_id FROM effects ORDER BY 1")
        return [row[0] for row in cursor.fetchall()]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trigger]:
    """A trigger whose service is this function."""

    def made(function: Callable[[Document], Reply | None], **values: object) -> Trigger:
        monkeypatch.setitem(applications.SERVICES, "orders.import", function)
        return make_trigger(kind="callable", callable_name="orders.import", **values)

    return made


def completed() -> list[tuple[str, str]]:
    return list(DocumentCompleted.objects.values_list("document_id", "outcome"))


def test_it_gets_the_document_and_its_effect_is_committed_with_the_history(
    partner: PartnerSide, runs: Callable[..., Trigger], effects: None
) -> None:
    seen: list[Document] = []
    inside: list[list[str]] = []

    def service(document: Document) -> None:
        seen.append(document)
        inside.append(list(DocumentStarted.objects.values_list("document_id", flat=True)))
        effect(document)

    trigger = runs(service)
    [delivery] = arrive(partner, "order-1", content=b"<Order/>", conversation_id="c1")
    work()
    [document] = seen
    assert (document.document_id, document.conversation_id, document.trigger) == ("order-1", "c1", trigger.name)
    assert (document.sender, document.agreement) == (partner.terms.partner_name, partner.terms.tpa_id)
    assert (document.parts[0].content, document.parts[0].content_type) == (b"<Order/>", "application/xml")
    assert inside == [["order-1"]]
    assert (states(delivery), effected(), completed()) == (["completed"], ["order-1"], [("order-1", "success")])
    assert not DocumentStarted.objects.exists()
    trigger.refresh_from_db()
    assert trigger.last_success_at is not None


def test_an_error_undoes_what_it_did_and_counts_as_processed(
    partner: PartnerSide, runs: Callable[..., Trigger], effects: None
) -> None:
    def service(document: Document) -> None:
        effect(document)
        raise ValueError("no such article")

    runs(service)
    [delivery] = arrive(partner, "order-1")
    work()
    assert (states(delivery), effected(), completed()) == (["failed"], [], [("order-1", "error")])
    assert "no such article" in now_of(delivery).cause_detail
    assert Incident.objects.get().cause == "documents_failed"
    second = copy_of(delivery)
    work()
    assert states(second) == ["duplicate"]


def test_transient_trouble_is_undone_and_run_again(
    partner: PartnerSide, runs: Callable[..., Trigger], effects: None, time: FrozenClock
) -> None:
    troubles = [Transient("the stock system sleeps", retry_after=60), Transient("still")]

    def service(document: Document) -> None:
        effect(document)
        if troubles:
            raise troubles.pop(0)

    runs(service, retry_interval=10)
    [delivery] = arrive(partner, "order-1")
    work()
    assert (states(delivery), effected(), DocumentStarted.objects.count()) == (["waiting"], [], 0)
    time.move(59)
    assert work() == 0
    time.move(1)
    work()
    time.move(10)
    work()
    found = now_of(delivery)
    assert (found.state, found.verdict, found.redelivery_count, found.executions) == ("completed", "new", 0, 3)
    assert effected() == ["order-1"]


def test_a_database_error_that_it_swallows_is_an_error_of_the_service(
    partner: PartnerSide, runs: Callable[..., Trigger], effects: None
) -> None:
    def service(document: Document) -> None:
        effect(document)
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT no_such_column FROM effects")
        except DatabaseError:
            pass

    runs(service)
    [delivery] = arrive(partner, "order-1")
    work()
    assert (states(delivery), effected(), completed()) == (["failed"], [], [("order-1", "error")])


def test_its_own_constraint_that_fails_is_an_error_of_the_service(
    partner: PartnerSide, runs: Callable[..., Trigger], effects: None
) -> None:
    runs(lambda document: effect(document, "broken"))
    [delivery] = arrive(partner, "order-1")
    work()
    assert (states(delivery), effected()) == (["failed"], [])
    assert IntegrityError.__name__ in now_of(delivery).cause_detail


@pytest.mark.parametrize(("reply", "state"), [({"not": "a reply"}, "failed"), (Reply(body=5), "waiting")])  # type: ignore[arg-type]
def test_an_answer_that_is_none_is_undone(
    partner: PartnerSide, runs: Callable[..., Trigger], effects: None, reply: Reply, state: str
) -> None:
    def service(document: Document) -> Reply:
        effect(document)
        return reply

    runs(service, answers=True)
    [delivery] = arrive(partner, "order-1")
    Delivery.objects.update(attended=True)
    Message.objects.update(first_sent_at=clock.now())
    work()
    assert (states(delivery), effected()) == ([state], [])


def test_a_worker_that_dies_inside_leaves_nothing_and_the_document_is_processed_once(
    partner: PartnerSide, runs: Callable[..., Trigger], effects: None
) -> None:
    """A killed process neither commits nor records. Without a resolver nothing is in doubt all the same."""

    class Killed(BaseException):
        pass

    deaths = [Killed()]

    def service(document: Document) -> None:
        effect(document)
        if deaths:
            raise deaths.pop()

    runs(service)
    [delivery] = arrive(partner, "order-1")
    jobs = claim()
    with pytest.raises(Killed):
        talking.talk(jobs[0])
    assert (effected(), DocumentStarted.objects.count()) == ([], 0)
    lose(*jobs)
    work()
    found = now_of(delivery)
    assert (found.state, found.verdict, found.redelivery_count) == ("completed", "new", 1)
    assert (effected(), completed()) == (["order-1"], [("order-1", "success")])


def test_a_worker_that_comes_too_late_does_not_begin(partner: PartnerSide, runs: Callable[..., Trigger]) -> None:
    """It had the document in hand for so long that another worker has it now."""
    ran: list[str] = []
    runs(lambda document: ran.append(document.document_id))
    [delivery] = arrive(partner, "order-1")
    late = claim()
    lose(*late)
    jobs = claim()
    finish(late)
    assert (ran, states(delivery)) == ([], ["running"])
    finish(jobs)
    assert (ran, states(delivery)) == (["order-1"], ["completed"])


def test_a_resubmitted_document_is_entered_while_it_runs(partner: PartnerSide, runs: Callable[..., Trigger]) -> None:
    """A copy that comes meanwhile has to find it there."""
    inside: list[list[str]] = []

    def service(document: Document) -> None:
        inside.append(list(DocumentStarted.objects.values_list("document_id", flat=True)))
        if len(inside) == 1:
            raise ValueError("no such article")

    runs(service)
    [delivery] = arrive(partner, "order-1")
    work()
    settling.delivery_settle(delivery_id=delivery.pk, decision="resubmit", actor=PERSON, reason="article added")
    work()
    assert inside == [["order-1"], ["order-1"]]
    assert completed() == [("order-1", "success")]
    assert not DocumentStarted.objects.exists()


def test_a_resubmission_does_nothing_once_a_copy_has_processed_the_document(
    partner: PartnerSide, runs: Callable[..., Trigger], monkeypatch: pytest.MonkeyPatch, time: FrozenClock
) -> None:
    """A worker has the resubmission in hand, the resolver says NEW of a copy, and another worker is faster."""
    ran: list[str] = []

    def service(document: Document) -> None:
        ran.append(document.document_id)
        if len(ran) == 1:
            raise ValueError("no such article")

    monkeypatch.setitem(applications.RESOLVERS, "orders.known", lambda document: "NEW")
    runs(service, ordered=False, resolver="callable", resolver_callable="orders.known")
    [delivery] = arrive(partner, "order-1")
    work()
    settling.delivery_settle(delivery_id=delivery.pk, decision="resubmit", actor=PERSON, reason="article added")
    slow = claim()
    time.move(1)
    second = copy_of(delivery)
    work()
    assert (states(second), ran) == (["completed"], ["order-1"] * 2)
    finish(slow)
    work()
    again = Delivery.objects.get(resubmission_of=delivery)
    assert (states(again), ran) == (["duplicate"], ["order-1"] * 2)


@pytest.mark.parametrize(
    ("when_exhausted", "state", "trigger_state"), [("suspend", "waiting", "suspended"), ("fail", "failed", "active")]
)
def test_a_document_that_takes_its_worker_with_it_again_and_again_is_not_tried_for_ever(
    partner: PartnerSide, runs: Callable[..., Trigger], when_exhausted: str, state: str, trigger_state: str
) -> None:
    trigger = runs(lambda document: None, when_exhausted=when_exhausted)
    [delivery] = arrive(partner, "order-1")
    for _ in range(claiming.POISON):
        lose(*claim())
    assert claim() == []
    trigger.refresh_from_db()
    assert (states(delivery), trigger.state) == ([state], trigger_state)
    assert now_of(delivery).redelivery_count == claiming.POISON


def test_a_callable_that_nobody_registers_suspends_the_trigger(
    partner: PartnerSide, runs: Callable[..., Trigger], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    trigger = runs(lambda document: ran.append(document.document_id))
    service = applications.SERVICES["orders.import"]
    monkeypatch.delitem(applications.SERVICES, "orders.import")
    [delivery] = arrive(partner, "order-1")
    work()
    trigger.refresh_from_db()
    assert (trigger.state, trigger.cause, states(delivery)) == ("suspended", "callable_missing", ["waiting"])
    monkeypatch.setitem(applications.SERVICES, "orders.import", service)
    triggering.trigger_resume(trigger_id=trigger.pk, actor=PERSON, reason="installed")
    work()
    assert (ran, states(delivery)) == (["order-1"], ["completed"])


def test_what_an_http_service_had_begun_with_is_in_doubt_for_a_callable_too(
    partner: PartnerSide, runs: Callable[..., Trigger]
) -> None:
    ran: list[str] = []
    trigger = runs(lambda document: ran.append(document.document_id))
    Trigger.objects.filter(pk=trigger.pk).update(kind="http", url="http://127.0.0.1:9/")
    [delivery] = arrive(partner, "order-1")
    lose(*claim())
    Trigger.objects.filter(pk=trigger.pk).update(kind="callable")
    work()
    assert (states(delivery), ran) == (["in_doubt"], [])


def test_after_the_resolver_said_new_a_death_inside_leaves_the_question_open(
    partner: PartnerSide, runs: Callable[..., Trigger], monkeypatch: pytest.MonkeyPatch, effects: None
) -> None:
    """What the HTTP service had begun with stays begun until the callable's transaction ends it."""
    answers = ["NEW", "DUPLICATE"]
    monkeypatch.setitem(applications.RESOLVERS, "orders.known", lambda document: answers.pop(0))

    class Killed(BaseException):
        pass

    def service(document: Document) -> None:
        effect(document)
        raise Killed

    trigger = runs(service, resolver="callable", resolver_callable="orders.known")
    Trigger.objects.filter(pk=trigger.pk).update(kind="http", url="http://127.0.0.1:9/")
    [delivery] = arrive(partner, "order-1")
    lose(*claim())
    Trigger.objects.filter(pk=trigger.pk).update(kind="callable")
    [job] = claim()
    [following] = talking.record([(job, talking.talk(job))])
    assert following is not None
    with pytest.raises(Killed):
        talking.talk(following)
    assert [row.document_id for row in DocumentStarted.objects.all()] == ["order-1"]
    lose(following)
    work()
    assert (states(delivery), effected(), answers) == (["duplicate"], [], [])


# --- with real commits ---


@pytest.mark.django_db(transaction=True)
def test_while_it_runs_nobody_takes_it_for_lost_however_long_it_takes(
    partner: PartnerSide, runs: Callable[..., Trigger]
) -> None:
    inside, go_on = threading.Event(), threading.Event()
    ran: list[str] = []

    def service(document: Document) -> None:
        ran.append(document.document_id)
        inside.set()
        assert go_on.wait(120)

    runs(service)
    [delivery] = arrive(partner, "order-1")
    jobs = claim()
    lose(*jobs)  # its lease is over, and it has not even begun

    def worker() -> None:
        try:
            finish(jobs)
        finally:
            connections.close_all()

    thread = threading.Thread(target=worker)
    thread.start()
    try:
        assert inside.wait(120)
        assert claim() == []
        assert claiming.release_dead(clock.now()) == 0
    finally:
        go_on.set()
        thread.join(120)
    assert (states(delivery), ran) == (["completed"], ["order-1"])
    assert now_of(delivery).redelivery_count == 0


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_lost_inside_is_no_error_of_the_document(
    partner: PartnerSide, runs: Callable[..., Trigger]
) -> None:
    ran: list[str] = []

    def service(document: Document) -> None:
        ran.append(document.document_id)
        if len(ran) == 1:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                [pid] = cursor.fetchone()
            terminate(pid)

    runs(service, retry_interval=0)
    [delivery] = arrive(partner, "order-1")
    outcome: list[talking.Outcome] = []

    def worker(jobs: list[talking.Job]) -> None:
        try:
            outcome.extend(talking.talk(job) for job in jobs)
        finally:
            connections.close_all()

    jobs = claim()
    thread = threading.Thread(target=worker, args=(jobs,))
    thread.start()
    thread.join(120)
    talking.record(list(zip(jobs, outcome, strict=True)))
    assert (states(delivery), now_of(delivery).redelivery_count) == (["waiting"], 0)
    work()
    assert (states(delivery), ran, completed()) == (["completed"], ["order-1"] * 2, [("order-1", "success")])


def terminate(pid: int) -> None:
    other: BaseDatabaseWrapper = connections.create_connection("default")
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    finally:
        other.close()


@pytest.mark.django_db(transaction=True)
def test_of_two_copies_that_come_by_different_triggers_kinds_only_one_effect_stays(
    partner: PartnerSide, runs: Callable[..., Trigger]
) -> None:
    """The second copy is claimed before the first has entered anything: it meets it there and is decided anew."""
    ran: list[str] = []
    runs(lambda document: ran.append(document.document_id), ordered=False)
    [delivery] = arrive(partner, "order-1")
    first = claim()
    Delivery.objects.filter(pk=delivery.pk).update(document_id="hidden")
    second = copy_of(now_of(delivery), document_id="order-1")
    copies = claim()
    Delivery.objects.filter(pk=delivery.pk).update(document_id="order-1")
    finish(first)
    finish(copies)
    assert states(delivery, second) == ["completed", "waiting"]
    work()
    assert (states(delivery, second), ran) == (["completed", "duplicate"], ["order-1"])
