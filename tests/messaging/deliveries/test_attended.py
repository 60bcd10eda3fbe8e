"""Deliveries whose outcome somebody waits for (synchronous exchanges of spec 2): run at once, never retried."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connections

from messaging import applications
from messaging.applications import Reply, Transient
from messaging.deliveries.services import attended, triggering
from messaging.deliveries.services.attended import GONE
from messaging.engine import forgetting
from messaging.models import (
    Delivery,
    DocumentStarted,
    Incident,
    Message,
    MessageIdentity,
    RememberedRequest,
    Signal,
    Trigger,
)
from messaging.profiles.repeatable import remembering
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.stage import (
    BROKEN,
    PERSON,
    Application,
    arrive,
    copy_of,
    http,
    make_trigger,
    now_of,
    states,
    verdict,
    work,
)
from tests.messaging.factories import PartnerSide

pytestmark = pytest.mark.django_db

# How long the process that has the request has to begin with it.
BEGIN = timedelta(seconds=60)


def request(partner: PartnerSide, name: str = "request-1") -> Delivery:
    """What the admission of a synchronous request leaves: message, delivery and memory, in progress."""
    [delivery] = arrive(partner, name)
    Signal.objects.filter(about=delivery.message_id).delete()  # this profile has none
    MessageIdentity.objects.filter(stored_id=delivery.message_id).update(sequence_number=None)  # nor numbers
    now = clock.now()
    Message.objects.filter(pk=delivery.message_id).update(first_sent_at=now)
    Delivery.objects.filter(pk=delivery.pk).update(attended=True, due_at=now + BEGIN)
    forgetting.ensure_days(forgetting.REQUESTS, [forgetting.day_of(now)])
    RememberedRequest.objects.create(
        sender_id=delivery.sender_id,
        request_id=name,
        day=forgetting.day_of(now),
        first_sent=now,
        content=b"x" * 32,
        state="running",
        message_id=delivery.message_id,
        delivery_id=delivery.pk,
    )
    return delivery


def remembered() -> tuple[str, int | None, bytes]:
    row = RememberedRequest.objects.get()
    return row.state, row.status, bytes(row.body or b"")


def test_an_answer_that_was_given_once_is_never_another(partner: PartnerSide, app: Application) -> None:
    app.plan("/documents", http(201, "created", Content_Type="text/plain"))
    make_trigger(app, answers=True)
    delivery = request(partner)
    attended.run(delivery.pk)
    before = remembered()
    assert before == ("answered", 201, b"created")
    remembering.answered(Delivery.objects.get(pk=delivery.pk), Reply(200, b"late", "text/plain"), clock.now())
    assert remembered() == before


def test_the_services_answer_is_the_answer_and_is_remembered_with_its_end(
    partner: PartnerSide, app: Application
) -> None:
    app.plan("/documents", http(201, "created", Content_Type="text/plain", X_Order="7", Set_Cookie="a=b"))
    make_trigger(app, answers=True)
    finished = attended.run(request(partner).pk)
    assert finished.state == "completed"
    assert finished.reply is not None
    assert (finished.reply.status, finished.reply.body, finished.reply.content_type) == (201, b"created", "text/plain")
    assert dict(finished.reply.headers)["X-Order"] == "7"
    assert remembered() == ("answered", 201, b"created")
    assert app.documents == ["request-1"]


def test_workers_leave_it_to_the_process_that_has_the_request(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    make_trigger(app, answers=True)
    document = request(partner)
    assert work() == 0
    time.move(BEGIN.total_seconds())
    work()
    assert (states(document), app.documents) == (["completed"], ["request-1"])
    assert remembered()[0] == "answered"
    assert attended.run(document.pk).state == "completed", "whoever comes late sees how it ended"
    assert app.documents == ["request-1"]


def test_it_waits_neither_for_order_nor_for_concurrency(partner: PartnerSide, app: Application) -> None:
    make_trigger(app, answers=True, ordered=True, concurrency=1, max_retries=5, retry_interval=100)
    app.plan("/documents", http(503), http(200))
    arrive(partner, "before")
    work()
    assert attended.run(request(partner).pk).state == "completed"
    assert app.documents == ["before", "request-1"]


def test_g21_an_error_of_the_application_is_an_answer_like_any_other(partner: PartnerSide, app: Application) -> None:
    app.plan("/documents", http(422, "unknown article"))
    make_trigger(app, answers=True)
    document = request(partner)
    finished = attended.run(document.pk)
    assert (finished.state, finished.reply and finished.reply.status) == ("failed", 422)
    assert remembered() == ("answered", 422, b"unknown article")
    assert not Incident.objects.exists(), "it is the caller's mistake"
    assert states(copy_of(document)) == ["waiting"]
    work()
    assert app.documents == ["request-1"]


@pytest.mark.parametrize("trouble", ["503", "not there", "secret", "suspended", "disabled"])
def test_what_certainly_was_not_executed_is_as_if_it_had_never_come(
    partner: PartnerSide, app: Application, trouble: str
) -> None:
    trigger = make_trigger(app, answers=True, max_retries=0)
    document = request(partner)
    if trouble == "503":
        app.plan("/documents", http(503, Retry_After="17"))
    elif trouble == "not there":
        Trigger.objects.update(url="http://127.0.0.1:9/")
    elif trouble == "secret":
        Trigger.objects.update(secret_encrypted=b"x")
    elif trouble == "suspended":
        triggering.trigger_suspend(trigger_id=trigger.pk, actor=PERSON, reason="maintenance")
    else:
        triggering.trigger_disable(trigger_id=trigger.pk, actor=PERSON, reason="gone")
    trigger.refresh_from_db()
    before = triggering.described(trigger)
    finished = attended.run(document.pk)
    assert (finished.state, finished.reply) == (GONE, None)
    assert finished.detail
    assert finished.retry_after == (17 if trouble == "503" else None)
    assert not Delivery.objects.exists()
    assert not Message.objects.filter(pk=document.message_id).exists()
    assert not RememberedRequest.objects.exists()
    assert not DocumentStarted.objects.exists()
    trigger.refresh_from_db()
    assert triggering.described(trigger) == before
    assert trigger.state == {"suspended": "suspended", "disabled": "disabled"}.get(trouble, "active")


@pytest.mark.parametrize("suspended", [False, True])
def test_what_was_taken_in_by_another_road_too_is_not_forgotten(
    partner: PartnerSide, app: Application, time: FrozenClock, suspended: bool
) -> None:
    """X01: its acknowledgement by ebXML says that it is stored, so the workers go on with it."""
    app.plan("/documents", *[http(503)] * (not suspended), http(200, "done"))
    trigger = make_trigger(app, answers=True)
    document = request(partner)
    Signal.objects.create(
        direction="out", kind="ack", state="sent", about_id=document.message_id, body=b"", created_at=clock.now()
    )
    if suspended:
        triggering.trigger_suspend(trigger_id=trigger.pk, actor=PERSON, reason="maintenance")
    assert attended.run(document.pk).state == "waiting"
    if suspended:
        triggering.trigger_resume(trigger_id=trigger.pk, actor=PERSON, reason="over")
    work()
    assert (states(document), remembered()) == (["completed"], ("answered", 200, b"done"))


def test_a_repeat_takes_over_what_its_dead_process_had_in_work(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    app.plan("/resolver", verdict("NEW"))
    make_trigger(app, answers=True, resolver="http")
    document = request(partner)
    job, _ = attended._claim(document.pk)
    assert job is not None
    assert attended.run(document.pk).state == "running"
    time.move(job.lease.total_seconds())
    assert attended.run(document.pk).state == "completed"
    assert (len(app.at("/resolver")), app.documents, now_of(document).redelivery_count) == (1, ["request-1"], 1)


def test_a_lost_answer_is_in_doubt_at_once(partner: PartnerSide, app: Application) -> None:
    app.plan("/documents", BROKEN)
    trigger = make_trigger(app, answers=True)
    document = request(partner)
    finished = attended.run(document.pk)
    assert (finished.state, finished.reply, finished.cause) == ("in_doubt", None, "service_outcome_unknown")
    assert (remembered()[0], now_of(document).doubt) == ("in_doubt", "started_not_completed")
    assert Incident.objects.get(trigger=trigger).cause == "documents_in_doubt"
    assert work() == 0


def test_half_an_answer_is_a_lost_one(partner: PartnerSide, app: Application) -> None:
    app.plan("/documents", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it")
    app.plan("/documents", lambda asked: b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 2_000_000)
    make_trigger(app, answers=True)
    assert attended.run(request(partner).pk).state == "in_doubt"


def test_without_detection_too_a_caller_never_gets_it_executed_twice(partner: PartnerSide, app: Application) -> None:
    app.plan("/documents", BROKEN)
    make_trigger(app, answers=True, detect_duplicates=False)
    assert attended.run(request(partner).pk).state == "in_doubt"
    assert (remembered()[0], len(app.documents)) == ("in_doubt", 1)


def test_with_a_resolver_the_workers_find_out(partner: PartnerSide, app: Application, time: FrozenClock) -> None:
    app.plan("/documents", BROKEN, http(200, "done"))
    app.plan("/resolver", verdict("NEW"))
    make_trigger(app, answers=True, resolver="http")
    document = request(partner)
    assert attended.run(document.pk).state == "waiting"
    work()
    assert states(document) == ["completed"]
    assert remembered() == ("answered", 200, b"done")


def test_with_a_resolver_that_knows_it_the_answer_is_lost_and_its_outcome_is_not(
    partner: PartnerSide, app: Application
) -> None:
    app.plan("/documents", BROKEN)
    app.plan("/resolver", verdict("DUPLICATE"))
    make_trigger(app, answers=True, resolver="http")
    document = request(partner)
    attended.run(document.pk)
    work()
    assert (states(document), remembered()) == (["duplicate"], ("answered", 204, b""))


def test_when_its_process_dies_the_workers_take_it_over(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    make_trigger(app, answers=True)
    document = request(partner)
    job, _ = attended._claim(document.pk)
    assert job is not None
    assert work() == 0
    time.move(job.lease.total_seconds())
    work()
    assert (states(document), remembered()[0], app.documents) == (["in_doubt"], "in_doubt", [])


def test_a_document_that_was_processed_before_is_a_duplicate(partner: PartnerSide, app: Application) -> None:
    make_trigger(app, answers=True)
    arrive(partner, "one")
    work()
    document = request(partner)
    Delivery.objects.filter(pk=document.pk).update(document_id="one")
    finished = attended.run(document.pk)
    assert (finished.state, finished.reply) == ("duplicate", None)
    assert app.documents == ["one"]


@pytest.mark.parametrize("error", [ValueError("a bug"), Transient("later", retry_after=5)])
def test_g20_a_callable_that_raises_has_done_nothing_and_the_repeat_is_executed(
    partner: PartnerSide, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def service(document: object) -> Reply:
        raise error

    monkeypatch.setitem(applications.SERVICES, "orders", service)
    make_trigger(kind="callable", callable_name="orders", answers=True)
    finished = attended.run(request(partner).pk)
    assert finished.state == GONE
    assert finished.retry_after == getattr(error, "retry_after", None)
    assert not RememberedRequest.objects.exists()


def test_a_callables_reply_is_committed_with_what_it_did(partner: PartnerSide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(applications.SERVICES, "orders", lambda document: Reply(200, b"{}", "application/json"))
    make_trigger(kind="callable", callable_name="orders", answers=True)
    finished = attended.run(request(partner).pk)
    assert (finished.state, finished.reply) == ("completed", Reply(200, b"{}", "application/json"))
    assert remembered() == ("answered", 200, b"{}")


@pytest.mark.django_db(transaction=True)
def test_two_runs_at_once_are_one_execution(partner: PartnerSide, app: Application) -> None:
    make_trigger(app, answers=True)
    document = request(partner)
    start = threading.Barrier(4)
    found: list[str] = []

    def run() -> None:
        try:
            start.wait(120)
            found.append(attended.run(document.pk).state)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert app.documents == ["request-1"]
    assert "completed" in found and set(found) <= {"completed", "running", "waiting"}


@pytest.mark.django_db(transaction=True)
def test_requests_in_doubt_at_the_same_moment_share_the_incident(partner: PartnerSide, app: Application) -> None:
    """Each needs the trigger's row for its incident, and none may fail for it."""
    make_trigger(app, answers=True, use_history=False)
    documents = [request_more(partner, n) for n in range(4)]
    Delivery.objects.update(redelivery_count=1)
    start = threading.Barrier(4)

    def run(document: Delivery) -> None:
        try:
            start.wait(120)
            attended.run(document.pk)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(document,)) for document in documents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert states(*documents) == ["in_doubt"] * 4
    assert Incident.objects.get().occurrences == 4


def request_more(partner: PartnerSide, number: int) -> Delivery:
    return request(partner, f"request-{number}")
