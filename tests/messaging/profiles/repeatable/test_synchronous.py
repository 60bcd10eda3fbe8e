"""Synchronous requests: the application's own answer, for the first copy and for each repeat."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from unittest import mock

import pytest
from django.db import InterfaceError, OperationalError, connections

from messaging.applications import Document, Reply, Transient
from messaging.choices import DeliveryState, ServiceKind, TriggerState
from messaging.deliveries.services import attended, claiming, settling, talking, triggering
from messaging.engine import subscriptions
from messaging.engine.group import GroupCommit
from messaging.journal.audit import Actor
from messaging.models import (
    Delivery,
    DocumentCompleted,
    DocumentStarted,
    Event,
    Incident,
    Message,
    Payload,
    Rejection,
    RememberedRequest,
    Trigger,
)
from partners import registry
from partners.choices import ExchangeMode, Semantics
from partners.models import AgreementVersion
from rmhub import clock
from tests.messaging.http_server import answering, read_request, serving
from tests.messaging.profiles.repeatable.callers import (
    BODY,
    MINUTE,
    Caller,
    T,
    application,
    brief,
    caller,
    new_id,
    refusals,
    remembering_since,
    result,
    stored,
)

OK = (200, "accepted", "")
NOT_READY = (503, "rejected", "application-not-ready")


@pytest.fixture
def partner(db, now) -> Caller:
    remembering_since(T.replace(month=1))
    return caller(exchange_mode=ExchangeMode.SYNCHRONOUS)


@contextmanager
def http_application(handler, **settings):
    """An application behind HTTP, which answers by `handler`."""
    with serving(handler) as server:
        trigger, _ = triggering.trigger_create(
            actor=Actor("test"),
            reason="test",
            **{
                "name": "http application",
                "kind": ServiceKind.HTTP,
                "url": server.url,
                "answers": True,
                "ordered": False,
                "timeout": 5,
                **settings,
            },
        )
        subscriptions.current.forget()
        yield trigger


def http(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def leavings() -> tuple[int, ...]:
    """How much of a request is still there after it was taken back."""
    models = (Message, Payload, Delivery, RememberedRequest, DocumentStarted, DocumentCompleted)
    return tuple(model.objects.count() for model in models)


def test_g01_the_answer_is_the_applications_own(partner: Caller) -> None:
    with application(
        lambda document: Reply(201, b"<Receipt/>", "application/xml", (("Location", "/orders/7"),))
    ) as app:
        answer = partner.post("order-1", T - MINUTE)
    assert (answer.status_code, result(answer), answer.content) == (201, "accepted", b"<Receipt/>")
    assert (answer["Content-Type"], answer["Location"]) == ("application/xml", "/orders/7")
    document = app.documents[0]
    assert (document.message_id, document.parts[0].content, document.redelivery_count) == ("order-1", BODY, 0)
    assert Delivery.objects.get().state == DeliveryState.COMPLETED
    assert RememberedRequest.objects.get().state == "answered"
    kinds = list(Event.objects.order_by("id").values_list("type", flat=True))
    assert sorted(kinds) == ["delivery.completed", "message.received"]


def test_g02_a_repeat_gets_the_same_answer_and_nothing_is_executed(partner: Caller, now) -> None:
    with application() as app:
        first = partner.post("order-1")
        now.move(3600)
        for _ in range(3):
            answer = partner.post("order-1")
            assert (answer.status_code, answer.content, result(answer)) == (200, first.content, "accepted")
    assert json.loads(first.content) == {"executions": 1}
    assert app.executions == 1
    assert Message.objects.get().copies == 3


def test_g13_another_body_leaves_the_stored_answer_untouched(partner: Caller) -> None:
    with application() as app:
        first = partner.post("order-1")
        assert brief(partner.post("order-1", body=b"<Other/>")) == (400, "rejected", "content-differs")
        assert partner.post("order-1").content == first.content
    assert app.executions == 1


@pytest.mark.django_db(transaction=True)
def test_g18_a_copy_that_comes_while_the_first_is_in_work_is_told_so(now) -> None:
    remembering_since(T.replace(month=1))
    partner = caller(exchange_mode=ExchangeMode.SYNCHRONOUS)
    copies = []

    def slow(connection) -> None:
        read_request(connection)
        try:
            copies.append(partner.post("order-1"))
        finally:
            connections.close_all()
        connection.sendall(http("200 OK", b"done"))

    with http_application(slow):
        answer = partner.post("order-1")
        assert brief(copies[0]) == (409, "accepted", "in-work")
        assert int(copies[0]["Retry-After"]) >= 1
        assert (brief(answer), answer.content) == (OK, b"done")
        assert partner.post("order-1").content == b"done"
    assert len(copies) == 1
    assert refusals() == [], "it is no refusal: the first one counts"


def test_g20_an_application_that_fails_before_its_effects_is_not_remembered(partner: Caller) -> None:
    def fails_once(document: Document) -> Reply:
        Event.objects.create(type="effect", at=T)
        if len(app.documents) == 1:
            raise RuntimeError("out of paper")
        return Reply(200, b"printed")

    with application(fails_once) as app:
        before = leavings()
        first = partner.post("order-1")
        assert brief(first) == (500, "rejected", "application-failed")
        assert b"out of paper" not in first.content, "what went wrong inside is not the partner's"
        assert leavings() == before
        assert not Event.objects.filter(type="effect").exists()
        second = partner.post("order-1")
    assert (brief(second), second.content, app.executions) == (OK, b"printed", 2)
    assert Event.objects.filter(type="effect").count() == 1
    assert refusals() == [("application_failed", 500)]


def test_g21_an_answer_that_says_no_is_the_answer(partner: Caller) -> None:
    no = http("422 Unprocessable Content", b'{"error":"no such customer"}', "Content-Type: application/json")
    with http_application(answering(no)):
        first = partner.post("order-1")
        assert (first.status_code, result(first), first.content) == (422, "accepted", b'{"error":"no such customer"}')
        again = partner.post("order-1")
    assert (again.status_code, result(again), again.content) == (422, "accepted", first.content)
    assert refusals() == []
    assert not Incident.objects.exists(), "the partner knows, and nobody here has to do anything"


@pytest.mark.parametrize("status", ["503 Service Unavailable", "429 Too Many Requests", "425 Too Early", "408 Timeout"])
def test_an_application_that_cannot_now_leaves_nothing_behind(partner: Caller, status: str) -> None:
    with http_application(answering(http(status, b"", "Retry-After: 17"), http("200 OK", b"taken"))):
        first = partner.post("order-1")
        assert (brief(first), first["Retry-After"]) == (NOT_READY, "17")
        assert leavings() == (0, 0, 0, 0, 0, 0)
        second = partner.post("order-1")
    assert (brief(second), second.content) == (OK, b"taken")


def test_a_callable_that_cannot_now_leaves_nothing_behind(partner: Caller) -> None:
    def later(document: Document) -> Reply:
        raise Transient("the till is closed", retry_after=33)

    with application(later):
        answer = partner.post("order-1")
    assert (brief(answer), answer["Retry-After"]) == (NOT_READY, "33")
    assert leavings() == (0, 0, 0, 0, 0, 0)
    assert refusals() == [("application_not_ready", 503)]
    assert "the till is closed" in Rejection.objects.get().detail
    assert b"the till" not in answer.content


def test_an_application_that_is_not_up_leaves_nothing_behind(partner: Caller) -> None:
    with http_application(answering()) as trigger:
        pass  # its server is gone now
    assert brief(partner.post("order-1")) == NOT_READY
    assert leavings() == (0, 0, 0, 0, 0, 0)
    assert Trigger.objects.get(pk=trigger.pk).state == TriggerState.ACTIVE, "one caller's trouble suspends nothing"


def test_a_suspended_trigger_is_not_ready(partner: Caller) -> None:
    with application() as app:
        Trigger.objects.filter(pk=app.trigger.pk).update(state=TriggerState.SUSPENDED, cause="suspended_by_user")
        assert brief(partner.post("order-1")) == NOT_READY
        assert leavings() == (0, 0, 0, 0, 0, 0)
        Trigger.objects.filter(pk=app.trigger.pk).update(state=TriggerState.ACTIVE)
        assert brief(partner.post("order-1")) == OK


def test_without_an_application_nothing_is_stored(partner: Caller) -> None:
    Trigger.objects.create(name="only listens", kind="pull")
    subscriptions.current.forget()
    before = stored()
    answer = partner.post("order-1")
    assert brief(answer) == (503, "rejected", "no-application")
    assert answer["Retry-After"] == "20"
    assert stored() == before
    assert refusals() == [("no_application", 503)]


def test_what_was_answered_is_answered_again_when_the_application_is_gone(partner: Caller) -> None:
    with application() as app:
        first = partner.post("order-1")
    Trigger.objects.filter(pk=app.trigger.pk).update(state=TriggerState.DISABLED)
    subscriptions.current.forget()
    again = partner.post("order-1")
    assert (brief(again), again.content) == (OK, first.content)


def test_those_who_only_listen_get_the_document_when_it_is_answered(partner: Caller, woken: list[str]) -> None:
    """Before that it may still be taken back, as if it had never come."""
    listener = Trigger.objects.create(name="archive", kind="pull")
    seen = []

    def behave(document: Document) -> Reply:
        seen.append(Delivery.objects.filter(trigger=listener).exists())
        if len(seen) == 1:
            raise Transient
        return Reply(200)

    with application(behave):
        assert brief(partner.post("order-1")) == NOT_READY
        assert not Delivery.objects.filter(trigger=listener).exists()
        assert brief(partner.post("order-1")) == OK
        partner.post("order-1")
    assert seen == [False, False]
    assert Delivery.objects.filter(trigger=listener).count() == 1


def test_g35_what_belongs_to_one_moment_or_connection_is_not_replayed(partner: Caller) -> None:
    said = http(
        "200 OK",
        b"hello",
        "Content-Type: text/plain",
        "Set-Cookie: a=b",
        "Date: Mon, 01 Jan 2001 00:00:00 GMT",
        "Server: app/1",
        "X-Hop: yes",
        "Connection: X-Hop",
        "X-Kept: one",
        "Cache-Control: private",
        "Repeatability-Result: rejected",
    )
    with http_application(answering(said)):
        answers = [partner.post("order-1"), partner.post("order-1")]
    for answer in answers:
        assert (answer.status_code, answer.content, answer["Content-Type"]) == (200, b"hello", "text/plain")
        assert (answer["X-Kept"], answer["Cache-Control"], result(answer)) == ("one", "private", "accepted")
        for name in ("Set-Cookie", "Date", "Server", "X-Hop"):
            assert name not in answer, name
        assert not answer.cookies
    assert {n: v for n, v in answers[0].items() if n != "X-Request-Id"} == {
        n: v for n, v in answers[1].items() if n != "X-Request-Id"
    }


def test_a_status_that_http_does_not_have_is_the_applications_mistake(partner: Caller) -> None:
    with application(lambda document: Reply(7, b"x")):
        answers = [partner.post("order-1"), partner.post("order-1")]
    assert [(answer.status_code, result(answer)) for answer in answers] == [(502, "accepted")] * 2


def test_headers_that_come_twice_or_that_cannot_be_written(partner: Caller) -> None:
    said = (
        ("Warning", "one"),
        ("Warning", "two"),
        ("X-Split", "a\r\nSet-Cookie: a=b"),
        ("X Blank", "a"),
        ("X-Content-Type-Options", "none"),
        ("Content-Length", "7"),
    )
    with application(lambda document: Reply(200, b"hello", "text/plain\r\nX: y", said)):
        answers = [partner.post("order-1"), partner.post("order-1")]
    for answer in answers:
        assert answer["Warning"] == "one, two"
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert (answer["Content-Length"], answer.content) == ("5", b"hello")
        assert not {"X-Split", "X Blank", "Content-Type", "Set-Cookie"} & set(answer.headers)


def lose(connection) -> None:
    """Takes the request and hangs up."""
    read_request(connection)


def test_g22_an_answer_that_is_lost_leaves_the_request_in_doubt(partner: Caller) -> None:
    with http_application(lose):
        first = partner.post("order-1")
        assert brief(first) == (412, "rejected", "in-doubt")
        again = partner.post("order-1")
    assert brief(again) == (412, "rejected", "in-doubt")
    assert "Repeatability-Window" in again
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.executions) == (DeliveryState.IN_DOUBT, 1)
    assert Incident.objects.get().cause == "documents_in_doubt"
    assert RememberedRequest.objects.get().state == "in_doubt"
    assert refusals() == [("in_doubt", 412)] * 2


def test_a_request_that_a_person_settles_as_processed_is_answered(partner: Caller) -> None:
    listener = Trigger.objects.create(name="archive", kind="pull")
    with http_application(lose):
        partner.post("order-1")
        settling.delivery_settle(
            delivery_id=Delivery.objects.get().pk,
            decision="duplicate",
            actor=Actor("ann"),
            reason="It is in the ledger.",
        )
        answer = partner.post("order-1")
    assert (answer.status_code, answer.content, result(answer)) == (204, b"", "accepted")
    assert Delivery.objects.filter(trigger=listener).count() == 1


def test_a_request_that_a_person_resubmits_is_executed_once_more_and_answered(partner: Caller) -> None:
    answers = iter([None, http("200 OK", b"second time")])

    def handle(connection) -> None:
        head, _ = read_request(connection)
        answer = next(answers)
        if head and answer is not None:
            connection.sendall(answer)

    with http_application(handle):
        partner.post("order-1")
        settling.delivery_settle(
            delivery_id=Delivery.objects.get().pk, decision="resubmit", actor=Actor("ann"), reason="It is not there."
        )
        jobs = claiming.claim_due(limit=5)
        assert len(jobs) == 1
        talking.record([(job, talking.talk(job)) for job in jobs])
        answer = partner.post("order-1")
    assert (brief(answer), answer.content) == (OK, b"second time")


def test_a_request_by_a_process_that_died_is_taken_over_and_its_repeat_gets_the_answer(
    partner: Caller, now, monkeypatch
) -> None:
    """Killed between the commit of the request and the hand-over: nothing was executed, and a repeat executes it."""
    run = attended.run

    def dies(delivery_id):
        raise SystemExit

    with application() as app:
        monkeypatch.setattr(attended, "run", dies)
        with pytest.raises(SystemExit):
            partner.post("order-1")
        monkeypatch.setattr(attended, "run", run)
        assert brief(partner.post("order-1")) == (409, "accepted", "in-work")
        now.move(31)
        answer = partner.post("order-1")
    assert (brief(answer), app.executions) == (OK, 1)


@pytest.mark.parametrize("where", ["attended.run", "remembering.answer_of"])
def test_when_the_database_fails_after_the_request_was_stored_it_is_not_called_rejected(partner: Caller, where) -> None:
    gone = OperationalError("server closed the connection unexpectedly")
    with application() as app:
        with mock.patch(f"messaging.profiles.repeatable.exchanging.{where}", side_effect=gone):
            assert brief(partner.post("order-1")) == (409, "accepted", "in-work")
        assert app.executions == (0 if where == "attended.run" else 1)
        with clock.frozen(T + MINUTE):
            assert brief(partner.post("order-1")) == OK
    assert app.executions == 1


@pytest.mark.django_db(transaction=True)
def test_what_the_application_answered_is_kept_until_the_database_takes_it(
    now, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome is known in this process alone: dropped, the request would be in doubt, although nobody doubts it."""
    remembering_since(T.replace(month=1))
    partner = caller(exchange_mode=ExchangeMode.SYNCHRONOUS)
    away = [InterfaceError("connection already closed"), OperationalError("server closed the connection unexpectedly")]

    def record(outcomes):
        if away:
            raise away.pop()
        return talking.record(outcomes)

    monkeypatch.setattr(attended, "_record", GroupCommit(record))
    monkeypatch.setattr(attended, "AGAIN_SECONDS", 0)
    with http_application(answering(http("200 OK", b"done"))):
        answer = partner.post("order-1")
    assert (brief(answer), answer.content, away) == (OK, b"done", [])
    assert Delivery.objects.get().state == "completed"


def test_where_nothing_is_remembered_a_plain_request_is_answered_each_time(partner: Caller) -> None:
    AgreementVersion.objects.filter(pk=partner.terms.version_id).update(semantics=Semantics.BEST_EFFORT)
    registry.reset()
    with application() as app:
        answers = [partner.post(None, None) for _ in range(2)]
    assert [(answer.status_code, result(answer)) for answer in answers] == [(200, None)] * 2
    assert app.executions == 2


@pytest.mark.django_db(transaction=True)
def test_g19_of_many_first_copies_one_is_executed(now) -> None:
    """And those that come after it was executed get its answer."""
    remembering_since(T.replace(month=1))
    partner = caller(exchange_mode=ExchangeMode.SYNCHRONOUS)
    request_id = new_id()
    barrier = threading.Barrier(20)
    answers = []

    def copy() -> None:
        try:
            barrier.wait(120)
            answers.append(partner.post(request_id))
        finally:
            connections.close_all()

    with application() as app:
        threads = [threading.Thread(target=copy) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert len(answers) == 20
        assert {brief(answer) for answer in answers} <= {OK, (409, "accepted", "in-work")}
        assert {answer.content for answer in answers if answer.status_code == 200} == {b'{"executions": 1}'}
        assert app.executions == 1
        assert partner.post(request_id).content == b'{"executions": 1}'
    assert Message.objects.get().copies == 20


def test_g38_who_repeats_far_too_fast_is_told_to_wait_and_the_request_is_executed_once(
    partner: Caller, now, settings
) -> None:
    settings.RMHUB_RATE_REPEATS = 60
    request_id = new_id()
    with application() as app:
        answers = [partner.post(request_id) for _ in range(100)]
        assert [brief(answer) for answer in answers[:60]] == [OK] * 60
        assert {answer.content for answer in answers[:60]} == {answers[0].content}
        # No result: an earlier copy was executed, and "rejected" would say that none was.
        assert {brief(answer) for answer in answers[60:]} == {(429, None, "repeated-too-fast")}
        assert {int(answer["Retry-After"]) for answer in answers[60:]} == {60}
        before = stored()
        assert brief(partner.post(new_id())) == OK, "another request of the partner is none of its copies"
        assert app.executions == 2
        now.move(60)
        assert partner.post(request_id).content == answers[0].content
        assert app.executions == 2
    assert before[2][0] in stored()[2]
    assert refusals() == [], "who repeats all day does not fill the disk"


def test_a_copy_that_comes_too_fast_waits_for_as_long_as_the_agreement_wishes_at_least(
    partner: Caller, now, settings
) -> None:
    settings.RMHUB_RATE_REPEATS = 1
    with application():
        now.move(55)
        request_id = new_id()
        assert brief(partner.post(request_id)) == OK
        assert partner.post(request_id)["Retry-After"] == str(partner.terms.repeat_interval)


def test_an_answer_is_recorded_although_the_file_that_a_listener_looks_into_is_gone(
    partner: Caller, settings, tmp_path
) -> None:
    """What the application did is done. The listener's document has no id that could be known, so nobody runs it."""
    settings.RMHUB_STORE_DIR, settings.RMHUB_INLINE_PAYLOAD_BYTES = tmp_path, 4
    Trigger.objects.create(name="listener", kind="pull", document_id_path="//ID")

    def lose_the_file(document: Document) -> Reply:
        for path in [one for one in tmp_path.rglob("*") if one.is_file()]:
            path.unlink()
        return Reply(200, b"done", "text/plain")

    with application(lose_the_file) as app:
        assert partner.post("order-1", body=b"<Order><ID>4711</ID></Order>").content == b"done"
        assert brief(partner.post("order-1", body=b"<Order><ID>4711</ID></Order>")) == OK
        assert app.executions == 1
    listening = Delivery.objects.get(trigger__name="listener")
    assert (listening.document_id, listening.document_id_from) == ("", "document")
