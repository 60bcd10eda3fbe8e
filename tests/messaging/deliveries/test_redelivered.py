"""Documents that really were handed over before: W02 and W48, what a resolver's or a person's NEW enters in the
history, and who may be processed again after that.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from messaging.deliveries.services import attended, settling, talking, triggering
from messaging.exceptions import WrongState
from messaging.models import Delivery, DocumentCompleted, DocumentStarted, Trigger
from messaging.profiles.repeatable import remembering
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.stage import (
    BROKEN,
    PERSON,
    Application,
    arrive,
    claim,
    copy_of,
    finish,
    http,
    lose,
    make_trigger,
    now_of,
    states,
    verdict,
    work,
)
from tests.messaging.deliveries.test_attended import remembered, request
from tests.messaging.factories import PartnerSide

pytestmark = pytest.mark.django_db

WHY = "order 4711 is not in the ERP"


def settle(delivery: Delivery, decision: str) -> Delivery:
    return settling.delivery_settle(delivery_id=delivery.pk, decision=decision, actor=PERSON, reason=WHY)


def history() -> list[tuple[str, str]]:
    begun = [(one, "started") for one in DocumentStarted.objects.values_list("document_id", flat=True)]
    return begun + list(DocumentCompleted.objects.order_by("completed_at").values_list("document_id", "outcome"))


# --- counts that rise because somebody died ---


@pytest.mark.parametrize("lost", [1, 2], ids=["W02-once", "W02-twice"])
def test_a_document_whose_workers_died_is_in_doubt_by_its_count_alone(
    partner: PartnerSide, app: Application, lost: int
) -> None:
    """Without history; the second death comes after a resolver's NEW, and the resolver is taken away then."""
    app.plan("/resolver", verdict("NEW"))
    trigger = make_trigger(app, use_history=False, resolver="http" if lost == 2 else "none")
    [document] = arrive(partner, "order-1")
    jobs = claim()
    if lost == 2:
        lose(*jobs)
        jobs = claim()
        talking.record([(job, talking.talk(job)) for job in jobs])
        triggering.trigger_update(trigger_id=trigger.pk, actor=PERSON, reason="no more", resolver="none")
    lose(*jobs)
    work()
    found = now_of(document)
    assert (found.redelivery_count, found.state, found.doubt) == (lost, "in_doubt", "redelivered_without_memory")
    assert (app.documents, history()) == ([], [])


# --- W48: a request whose answer was lost, and no history ---


@pytest.mark.parametrize(
    ("says", "state", "runs", "answer"),
    [
        pytest.param("NEW", "completed", 2, ("answered", 200, b"done"), id="W48-new"),
        pytest.param("DUPLICATE", "duplicate", 1, ("answered", 204, b""), id="W48-duplicate"),
        pytest.param("IN DOUBT", "in_doubt", 1, ("in_doubt", None, b""), id="W48-in-doubt"),
    ],
)
def test_without_history_the_resolver_is_asked_before_a_request_is_run_again(
    partner: PartnerSide,
    app: Application,
    says: str,
    state: str,
    runs: int,
    answer: tuple[str, int | None, bytes],
) -> None:
    app.plan("/documents", BROKEN, http(200, "done"))
    app.plan("/resolver", verdict(says))
    make_trigger(app, answers=True, use_history=False, resolver="http")
    document = request(partner)
    assert attended.run(document.pk).state == "waiting"
    assert (len(app.documents), app.at("/resolver")) == (1, [])
    work()
    assert (states(document), len(app.documents), len(app.at("/resolver"))) == ([state], runs, 1)
    assert remembered() == answer
    assert [one.path for one in app.asked][:2] == ["/documents", "/resolver"], "unasked it never runs twice"


def test_w48_a_resolver_that_would_not_be_asked_saves_no_request_from_doubt(
    partner: PartnerSide, app: Application
) -> None:
    """Where duplicates are not detected a waiting delivery would be run again, resolver or not."""
    app.plan("/documents", BROKEN, http(200, "done"))
    app.plan("/resolver", verdict("NEW"))
    make_trigger(app, answers=True, detect_duplicates=False, use_history=False, resolver="http")
    document = request(partner)
    assert attended.run(document.pk).state == "in_doubt"
    work()
    assert (states(document), len(app.documents), app.at("/resolver")) == (["in_doubt"], 1, [])
    assert remembered()[0] == "in_doubt"


def test_w48_a_process_that_died_with_the_request_leaves_it_to_the_resolver(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    app.plan("/resolver", verdict("DUPLICATE"))
    make_trigger(app, answers=True, use_history=False, resolver="http")
    document = request(partner)
    job, _ = attended._claim(document.pk)
    assert job is not None
    time.move(job.lease.total_seconds())
    work()
    assert (states(document), app.documents, len(app.at("/resolver"))) == (["duplicate"], [], 1)


# --- NEW, whatever the history has ---


def test_what_a_resolver_takes_for_new_belongs_to_the_copy_that_is_run(partner: PartnerSide, app: Application) -> None:
    """The first hand-over comes back too late: it must not take the entry away from under the copy."""
    app.plan("/resolver", verdict("NEW"), verdict("DUPLICATE"))
    make_trigger(app, ordered=False, resolver="http")
    [document] = arrive(partner, "order-1")
    first = claim()
    second = copy_of(document)
    [asking] = claim()
    [running] = talking.record([(asking, talking.talk(asking))])
    assert running is not None
    assert DocumentStarted.objects.get().delivery_id == second.pk
    app.plan("/documents", http(503), http(200))
    finish(first)  # not now: taken back on purpose, which releases only what is its own
    assert history() == [("order-1", "started")]
    finish([running])
    assert states(second) == ["completed"]
    work()
    assert len(app.documents) == 2, "the refused hand-over and the copy"


def lost_with_a_copy(partner: PartnerSide, app: Application) -> tuple[Delivery, Delivery]:
    """Begun, never finished; and a copy that is in doubt because of it."""
    make_trigger(app, ordered=False)
    app.plan("/documents", BROKEN, http(200))
    [document] = arrive(partner, "order-1")
    work()
    second = copy_of(document)
    work()
    assert states(document, second) == ["in_doubt", "in_doubt"]
    app.asked.clear()
    return document, second


def test_of_two_copies_in_doubt_the_second_is_resubmitted_and_then_the_first_is_not(
    partner: PartnerSide, app: Application
) -> None:
    """What is begun belongs to the copy that a person sent on, from that moment."""
    document, second = lost_with_a_copy(partner, app)
    settle(second, "resubmit")
    with pytest.raises(WrongState) as refused:
        settle(document, "resubmit")
    assert refused.value.code == "copy_in_work"
    work()
    with pytest.raises(WrongState) as refused:
        settle(document, "resubmit")
    assert refused.value.code == "copy_completed"
    work()
    assert app.documents == ["order-1"]


def test_a_copy_that_comes_before_the_resubmission_of_what_nobody_has_begun_is_not_run_beside_it(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    """The history could not be reached, so it has nothing: a person's NEW enters the document."""
    make_trigger(app, ordered=False, resolver_failure="in_doubt", when_exhausted="fail")
    [document] = arrive(partner, "order-1")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE messaging_documentcompleted RENAME TO gone")
        work()
        cursor.execute("ALTER TABLE gone RENAME TO messaging_documentcompleted")
    assert (now_of(document).doubt, history()) == ("history_unreachable", [])
    settle(document, "resubmit")
    assert history() == [("order-1", "started")]
    Delivery.objects.filter(resubmission_of=document).update(due_at=time.move(60))
    time.move(-60)
    second = copy_of(document)
    work()
    assert (states(second), app.documents) == (["in_doubt"], [])
    time.move(60)
    work()
    assert (app.documents, history()) == (["order-1"], [("order-1", "success")])


def resubmitted_beside_a_copy(
    partner: PartnerSide, app: Application, time: FrozenClock, **settings: object
) -> tuple[Delivery, Delivery]:
    """A person has resubmitted a document, and a copy of it comes a minute before the resubmission has its turn."""
    make_trigger(app, ordered=False, resolver="http", **settings)
    [document] = arrive(partner, "order-1")
    lose(*claim())
    app.plan("/resolver", verdict("IN DOUBT"))
    work()
    app.plan("/resolver", verdict("NEW"))
    settle(document, "resubmit")
    again = Delivery.objects.get(resubmission_of=document)
    Delivery.objects.filter(pk=again.pk).update(due_at=time.move(60))
    time.move(-59)
    return again, copy_of(document)


@pytest.mark.parametrize("lost", [False, True], ids=["first hand-over", "after a hand-over without an answer"])
def test_what_a_copy_has_processed_since_a_person_said_new_is_a_duplicate(
    partner: PartnerSide, app: Application, time: FrozenClock, lost: bool
) -> None:
    """The resolver says NEW to the copy, which is true: the person's word was about the same document."""
    again, second = resubmitted_beside_a_copy(partner, app, time, retry_interval=60)
    if lost:
        app.plan("/documents", http(502), http(200))
        Delivery.objects.filter(pk=second.pk).update(due_at=time.move(30))
        Delivery.objects.filter(pk=again.pk).update(due_at=time.move(-20))
        work()
        assert (states(again), now_of(again).redelivery_count) == (["waiting"], 1)
        time.move(20)
    work()
    runs = ["order-1"] * (2 if lost else 1)
    assert (states(second), app.documents) == (["completed"], runs)
    time.move(600)
    work()
    assert (states(again), app.documents, history()) == (["duplicate"], runs, [("order-1", "success")])


def test_a_resubmission_waits_for_the_copy_that_is_in_work(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    """Whatever the resolver says of a document that the hub itself knows to be in progress."""
    again, second = resubmitted_beside_a_copy(partner, app, time)
    asked = claim()
    running = [job for job in talking.record([(job, talking.talk(job)) for job in asked]) if job is not None]
    assert [job.delivery.pk for job in running] == [second.pk]
    time.move(30)
    Delivery.objects.filter(pk=again.pk).update(due_at=clock.now())
    finish(claim())
    assert (states(again, second), app.documents) == (["waiting", "running"], [])
    finish(running)
    time.move(60)
    work()
    assert (states(again, second), app.documents) == (["duplicate", "completed"], ["order-1"])


def test_a_resolvers_new_is_no_longer_true_when_a_resubmission_has_run_meanwhile(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    again, second = resubmitted_beside_a_copy(partner, app, time)
    asked = [(job, talking.talk(job)) for job in claim()]
    assert [job.delivery.pk for job, _ in asked] == [second.pk]
    time.move(10)
    Delivery.objects.filter(pk=again.pk).update(due_at=clock.now())
    finish(claim())
    assert (states(again), app.documents) == (["completed"], ["order-1"])
    assert talking.record(asked) == [None]
    time.move(1)
    work()
    assert (states(second), app.documents) == (["duplicate"], ["order-1"])


def test_an_original_that_ended_with_an_error_does_not_keep_its_copy_from_being_resubmitted(
    partner: PartnerSide, app: Application
) -> None:
    """Failed is not processed: of the two a person chooses one, and then it is done."""
    make_trigger(app, ordered=False)
    app.plan("/documents", http(500, "no such article"), http(200))
    [document] = arrive(partner, "order-1")
    running = claim()
    second = copy_of(document)
    work()
    finish(running)
    assert (states(document, second), history()) == (["failed", "in_doubt"], [("order-1", "error")])
    settle(second, "resubmit")
    work()
    assert app.documents == ["order-1"] * 2
    assert ("order-1", "success") in history()
    with pytest.raises(WrongState) as refused:
        settle(document, "resubmit")
    assert refused.value.code == "copy_completed"
    assert Trigger.objects.get().state == "active"


def test_g18_a_request_is_in_work_until_the_lease_is_over_and_not_at_that_moment(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    make_trigger(app)
    [document] = arrive(partner, "order-1")
    [job] = claim()
    over = clock.now() + job.lease
    assert remembering.in_work([document.pk], over - timedelta.resolution) == {document.pk}
    assert remembering.in_work([document.pk], over) == set()
