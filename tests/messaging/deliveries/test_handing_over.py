"""Documents on their way to HTTP services: the request, what each kind of end leads to, order, concurrency, leases."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import threading
import uuid
from datetime import timedelta
from email import message_from_bytes
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from messaging.deliveries.services import calling, claiming, settling, talking, triggering
from messaging.deliveries.services.job import Job, JobKind, lease_of
from messaging.models import Delivery, DocumentCompleted, DocumentStarted, Event, Incident, Trigger
from messaging.protocol.envelope import DocumentReference, PayloadPart
from messaging.protocol.processing import Decision, Status
from partners.secrets import decrypt
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
from tests.messaging.factories import PartnerSide, partner_side

pytestmark = pytest.mark.django_db


def trouble(app: Application, trigger: Trigger) -> dict[str, Any]:
    """Where a trigger stands, and how often its service was run."""
    trigger.refresh_from_db()
    return {"state": trigger.state, "cause": trigger.cause, "ran": len(app.documents)}


# --- the request ---


def test_a_document_is_a_signed_request_with_its_payload_as_it_is(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    trigger = make_trigger(app, name="Größte Bestellungen 100%")
    [document] = arrive(
        partner, "order-1", content=b"<Order>\x00\xff</Order>", conversation_id="Gespräch 7", ref_to_message_id="r@x"
    )
    work()
    [asked] = app.asked
    headers = asked.headers
    assert asked.body == b"<Order>\x00\xff</Order>"
    assert headers["content-type"] == "application/xml"
    named = {name: value for name, value in headers.items() if name.startswith("rm-")}
    assert named == {
        "rm-document-id": "order-1",
        "rm-message-id": "order-1",
        "rm-conversation-id": "Gespr%C3%A4ch 7",
        "rm-ref-to-message-id": "r@x",
        "rm-agreement": partner.terms.tpa_id,
        "rm-sender": partner.terms.partner_name,
        "rm-service": "urn:orders",
        "rm-action": "NewOrder",
        "rm-redelivery-count": "0",
        "rm-trigger": "Gr%C3%B6%C3%9Fte Bestellungen 100%25",
        "rm-received-at": "2026-03-01T12:00:00+00:00",
    }
    assert headers["webhook-id"] == document.public_id
    assert headers["webhook-timestamp"] == str(int(clock.now().timestamp()))
    key = base64.b64decode(decrypt(bytes(trigger.secret_encrypted)).removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + asked.body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


def test_each_attempt_has_the_same_id(partner: PartnerSide, app: Application, time: FrozenClock) -> None:
    app.plan("/documents", http(503), http(200))
    make_trigger(app, retry_interval=10)
    arrive(partner, "order-1")
    work()
    time.move(10)
    work()
    first, second = app.asked
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]


def test_several_payloads_are_one_multipart(partner: PartnerSide, app: Application) -> None:
    make_trigger(app)
    contents = [b"<Order/>", b"--rmhub\r\n\r\nnot a boundary\r\n", b""]
    arrive(
        partner,
        "order-1",
        manifest=tuple(DocumentReference("x", f"cid:p{n}@x", description=f"Ä {n}.xml") for n in range(3)),
        payloads=tuple(PayloadPart(f"p{n}@x", "application/xml", content) for n, content in enumerate(contents)),
    )
    work()
    [asked] = app.asked
    assert asked.headers["content-type"].startswith("multipart/mixed; boundary=")
    parsed = message_from_bytes(f"Content-Type: {asked.headers['content-type']}\r\n\r\n".encode() + asked.body)
    parts = parsed.get_payload()
    assert [part.get_payload(decode=True) for part in parts] == contents
    assert parts[0]["RM-Message-ID"] == "order-1"
    assert parts[0].get_content_type() == "application/xml"


def test_a_document_without_payload_is_a_request_without_body(partner: PartnerSide, app: Application) -> None:
    make_trigger(app)
    arrive(partner, "order-1", manifest=(), payloads=())
    work()
    [asked] = app.asked
    assert (asked.body, asked.headers.get("content-type")) == (b"", None)


def test_a_service_on_a_private_address_is_reached_and_not_followed_to_another(
    partner: PartnerSide, app: Application
) -> None:
    app.plan("/documents", http(302, Location=app.url("/elsewhere")))
    make_trigger(app)
    [document] = arrive(partner, "order-1")
    work()
    assert [one.path for one in app.asked] == ["/documents"]
    assert states(document) == ["failed"]


def test_only_the_beginning_of_a_long_answer_is_kept(partner: PartnerSide, app: Application) -> None:
    app.plan("/documents", http(200, b"x" * 100_000))
    make_trigger(app)
    [document] = arrive(partner, "order-1")
    work()
    found = now_of(document)
    assert (found.state, bytes(found.answer or b"")) == ("completed", b"x" * 8192)


def test_a_connection_that_was_idle_is_not_used_again(
    partner: PartnerSide, app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server might close it while the request is under way, and then nobody knows."""
    make_trigger(app)
    arrive(partner, "order-1", "order-2")
    work()
    assert app.server is not None
    assert len(app.server.connections) == 1
    monkeypatch.setattr(calling, "MAX_IDLE", 0.0)
    arrive(partner, "order-3")
    work()
    assert len(app.server.connections) == 2


# --- how it ends ---


def test_a_service_that_is_not_there_has_not_seen_the_document(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    trigger = make_trigger(app, url=f"http://127.0.0.1:{port}/", max_retries=1, retry_interval=10)
    [document] = arrive(partner, "order-1")
    work()
    found = now_of(document)
    assert (found.state, found.cause, found.retries, found.redelivery_count) == ("waiting", "service_unreachable", 1, 0)
    assert found.due_at == clock.now() + timedelta(seconds=10)
    assert not DocumentStarted.objects.exists()
    trigger.refresh_from_db()
    assert trigger.failing_since == clock.now()
    time.move(10)
    work()
    assert trouble(app, trigger) == {"state": "suspended", "cause": "service_unreachable", "ran": 0}
    assert now_of(document).retries == 0
    Trigger.objects.filter(pk=trigger.pk).update(url=app.url())
    triggering.trigger_resume(trigger_id=trigger.pk, actor=PERSON, reason="up again")
    work()
    assert states(document) == ["completed"]
    trigger.refresh_from_db()
    assert (trigger.failing_since, trigger.last_success_at) == (None, clock.now())


def test_a_service_that_names_a_time_is_not_asked_before(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    app.plan(
        "/documents", http(429, Retry_After="90"), http(503, Retry_After="Sun, 01 Mar 2026 12:05:00 GMT"), http(200)
    )
    make_trigger(app, retry_interval=10)
    [document] = arrive(partner, "order-1")
    work()
    assert now_of(document).due_at == clock.now() + timedelta(seconds=90)
    time.move(90)
    work()
    assert now_of(document).due_at == clock.now() + timedelta(seconds=210)


@pytest.mark.parametrize("answer", [BROKEN, http(502), http(504)], ids=["broken off", "502", "504"])
def test_a_lost_answer_is_a_redelivery_and_never_new_by_accident(
    partner: PartnerSide, app: Application, answer: bytes
) -> None:
    app.plan("/documents", answer, http(200))
    make_trigger(app, max_retries=5)
    document, following = arrive(partner, "order-1", "order-2")
    work()
    found = now_of(document)
    assert (found.state, found.doubt, found.redelivery_count) == ("in_doubt", "started_not_completed", 1)
    assert found.cause == "service_outcome_unknown"
    assert app.documents == ["order-1", "order-2"]
    assert states(following) == ["completed"]


def test_a_service_that_takes_too_long(partner: PartnerSide, app: Application) -> None:
    """Its time limit is for all of it, and what became of the document is not known."""
    gate = threading.Event()
    app.plan("/documents", lambda asked: http(200) if gate.wait(120) else BROKEN)
    make_trigger(app, timeout=1)
    [document] = arrive(partner, "order-1")
    work()
    gate.set()
    assert (states(document), now_of(document).cause) == (["in_doubt"], "service_outcome_unknown")


def test_without_detection_a_lost_answer_is_simply_retried(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    app.plan("/documents", BROKEN, http(200))
    make_trigger(app, detect_duplicates=False, retry_interval=10)
    [document] = arrive(partner, "order-1")
    work()
    assert states(document) == ["waiting"]
    time.move(10)
    work()
    assert (states(document), len(app.documents)) == (["completed"], 2)


def test_without_history_a_lost_answer_is_in_doubt(partner: PartnerSide, app: Application) -> None:
    app.plan("/documents", BROKEN)
    make_trigger(app, use_history=False)
    [document] = arrive(partner, "order-1")
    work()
    assert (states(document), now_of(document).doubt) == (["in_doubt"], "redelivered_without_memory")


@pytest.mark.parametrize("when_exhausted", ["suspend", "fail"])
def test_lost_answers_and_a_resolver_that_always_says_new_come_to_an_end(
    partner: PartnerSide, app: Application, time: FrozenClock, when_exhausted: str
) -> None:
    app.plan("/documents", BROKEN)
    app.plan("/resolver", verdict("NEW"))
    trigger = make_trigger(app, resolver="http", max_retries=2, retry_interval=10, when_exhausted=when_exhausted)
    [document] = arrive(partner, "order-1")
    for _ in range(60):
        work()
        time.move(1)
    suspends = when_exhausted == "suspend"
    assert trouble(app, trigger)["ran"] == 3
    assert trigger.state == ("suspended" if suspends else "active")
    assert states(document) == ["waiting" if suspends else "failed"]
    assert not DocumentStarted.objects.exists()


def test_a_long_message_id_cannot_be_looked_up(partner: PartnerSide, app: Application) -> None:
    make_trigger(app)
    fits, too_long = arrive(partner, "m" * 96, "m" * 97)
    work()
    assert (now_of(fits).state, now_of(too_long).state, now_of(too_long).doubt) == (
        "completed",
        "in_doubt",
        "unusable_id",
    )
    assert DocumentCompleted.objects.count() == 1


def test_a_trigger_whose_secret_cannot_be_read_is_suspended_before_anything_is_said(
    partner: PartnerSide, app: Application
) -> None:
    trigger = make_trigger(app)
    Trigger.objects.filter(pk=trigger.pk).update(secret_encrypted=b"of another key")
    [document] = arrive(partner, "order-1")
    work()
    assert trouble(app, trigger) == {"state": "suspended", "cause": "secret_unreadable", "ran": 0}
    assert (states(document), DocumentStarted.objects.count()) == (["waiting"], 0)


def test_many_failures_are_one_incident_with_a_count(partner: PartnerSide, app: Application) -> None:
    app.plan("/documents", http(500))
    trigger = make_trigger(app, ordered=False, concurrency=8)
    documents = arrive(partner, *(f"order-{n}" for n in range(5)))
    work()
    assert states(*documents) == ["failed"] * 5
    incident = Incident.objects.get()
    assert (incident.trigger, incident.cause, incident.occurrences) == (trigger, "documents_failed", 5)
    assert Event.objects.filter(type="delivery.failed").count() == 5


def test_an_outcome_that_comes_after_its_lease_moves_nothing(partner: PartnerSide, app: Application) -> None:
    make_trigger(app)
    [document] = arrive(partner, "order-1")
    late = claim()
    lose(*late)
    work()
    assert states(document) == ["in_doubt"]
    finish(late)
    assert (states(document), now_of(document).http_status) == (["in_doubt"], None)
    assert not DocumentCompleted.objects.exists()


def test_one_trigger_that_cannot_be_claimed_for_keeps_no_other_from_its_documents(
    partner: PartnerSide, app: Application, caplog: pytest.LogCaptureFixture
) -> None:
    broken = make_trigger(app, documents=[{"service": "urn:orders", "action": "Broken"}])
    make_trigger(app, documents=[{"service": "urn:orders", "action": "NewOrder"}])
    [document] = arrive(partner, "a1", action="Broken")
    Delivery.objects.filter(pk=document.pk).update(message_id=uuid.uuid4())  # a message that is gone
    others = arrive(partner, "a2", "a3")
    work()
    assert states(*others) == ["completed", "completed"]
    assert {record.trigger for record in caplog.records if record.getMessage() == "claim failed"} == {str(broken.pk)}


# --- what people decide ---


def settle(document: Delivery, decision: str) -> None:
    settling.delivery_settle(delivery_id=document.pk, decision=decision, actor=PERSON, reason="looked into it")


def test_w36_a_resubmitted_document_is_executed_once_more(partner: PartnerSide, app: Application) -> None:
    make_trigger(app)
    [document] = arrive(partner, "order-1")
    lose(*claim())
    work()
    settle(document, "resubmit")
    work()
    again = Delivery.objects.get(resubmission_of=document)
    assert (again.state, again.evidence[0]["step"], app.documents) == ("completed", "operator", ["order-1"])
    assert [row.outcome for row in DocumentCompleted.objects.all()] == ["success"]
    assert not DocumentStarted.objects.exists()


def test_a_failed_document_is_executed_again_although_the_history_has_it(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    app.plan("/documents", http(500), http(503), http(200))
    make_trigger(app, retry_interval=10)
    [document] = arrive(partner, "order-1")
    work()
    settle(document, "resubmit")
    work()
    time.move(10)
    work()
    assert Delivery.objects.get(resubmission_of=document).state == "completed"
    assert len(app.documents) == 3
    assert [row.outcome for row in DocumentCompleted.objects.all()] == ["success"]


def test_an_operators_word_counts_for_one_hand_over_only(partner: PartnerSide, app: Application) -> None:
    """The worker dies with the resubmitted document: nobody has said that this one was not executed."""
    make_trigger(app)
    [document] = arrive(partner, "order-1")
    lose(*claim())
    work()
    settle(document, "resubmit")
    lose(*claim())
    work()
    again = Delivery.objects.get(resubmission_of=document)
    assert (again.state, again.doubt, app.documents) == ("in_doubt", "started_not_completed", [])


def test_a_resubmission_of_a_failed_document_that_is_lost_is_in_doubt_and_no_duplicate(
    partner: PartnerSide, app: Application
) -> None:
    app.plan("/documents", http(500))
    make_trigger(app)
    [document] = arrive(partner, "order-1")
    work()
    settle(document, "resubmit")
    lose(*claim())
    work()
    again = Delivery.objects.get(resubmission_of=document)
    assert (again.state, len(app.documents)) == ("in_doubt", 1)


def test_x07_what_a_person_marked_as_processed_makes_copies_duplicates(partner: PartnerSide, app: Application) -> None:
    make_trigger(app)
    [document] = arrive(partner, "order-1")
    lose(*claim())
    work()
    settle(document, "duplicate")
    second = copy_of(document)
    work()
    assert (states(second), app.documents) == (["duplicate"], [])


def test_the_resolver_is_asked_when_a_person_wants_it(partner: PartnerSide, app: Application) -> None:
    app.plan("/resolver", verdict("maybe"), verdict("NEW"))
    make_trigger(app, resolver="http")
    [document] = arrive(partner, "order-1")
    lose(*claim())
    work()
    assert states(document) == ["in_doubt"]
    settle(document, "ask")
    work()
    assert (states(document), app.documents) == (["completed"], ["order-1"])


# --- order and concurrency ---


def test_ordered_lanes_keep_their_order_under_retry_and_do_not_wait_for_each_other(
    app: Application, time: FrozenClock
) -> None:
    one, other = partner_side(), partner_side()
    failing = {"a1": 2, "b2": 1}

    def answer(asked: Any) -> bytes:
        if failing.get(asked.document_id, 0):
            failing[asked.document_id] -= 1
            return http(503)
        return http(200)

    app.plan("/documents", answer)
    make_trigger(app, retry_interval=10, concurrency=8)
    arrive(one, "a1", "a2", "a3")
    arrive(other, "b1", "b2", "b3")
    for _ in range(4):
        work()
        time.move(10)
    assert [name for name in app.documents if name.startswith("a")] == ["a1", "a1", "a1", "a2", "a3"]
    assert [name for name in app.documents if name.startswith("b")] == ["b1", "b2", "b2", "b3"]
    assert app.documents.index("b3") < app.documents.index("a2"), "the other lane did not wait"


def test_an_ordered_trigger_has_one_document_of_a_pair_in_work(partner: PartnerSide, app: Application) -> None:
    make_trigger(app, concurrency=8)
    arrive(partner, "a1", "a2", "a3")
    jobs = claim()
    assert [job.delivery.document_id for job in jobs] == ["a1"]
    assert claim() == []
    finish(jobs)
    assert [job.delivery.document_id for job in claim()] == ["a2"]


def test_an_unordered_trigger_has_as_many_in_work_as_its_concurrency_allows(
    partner: PartnerSide, app: Application
) -> None:
    make_trigger(app, ordered=False, concurrency=3)
    arrive(partner, *(f"a{n}" for n in range(8)))
    first = claim()
    assert [job.delivery.document_id for job in first] == ["a0", "a1", "a2"]
    assert claim() == []
    finish(first[:2])
    assert [job.delivery.document_id for job in claim()] == ["a3", "a4"]


def test_many_settled_documents_do_not_hold_up_the_next(partner: PartnerSide, app: Application) -> None:
    """Duplicates take no service, so that a claim goes on behind them at once."""
    make_trigger(app, concurrency=2)
    [document] = arrive(partner, "a0")
    work()
    for _ in range(12):
        copy_of(document)
    arrive(partner, "a1")
    assert [job.delivery.document_id for job in claim()] == ["a1"]
    assert Delivery.objects.filter(state="duplicate").count() == 12


def test_what_is_free_is_shared_out_among_the_triggers(partner: PartnerSide, app: Application) -> None:
    triggers = [make_trigger(app, ordered=False, concurrency=64) for _ in range(3)]
    arrive(partner, *(f"a{n}" for n in range(9)))
    jobs = claiming.claim_due(limit=7)
    counts = [sum(job.trigger.pk == trigger.pk for job in jobs) for trigger in triggers]
    assert sorted(counts) == [2, 2, 3]
    more = claiming.claim_due(limit=2)
    busiest = triggers[counts.index(3)]
    assert all(job.trigger.pk != busiest.pk for job in more), "those with the least in progress come first"


def test_one_trigger_never_has_all_threads_of_a_worker(partner: PartnerSide, app: Application) -> None:
    trigger = make_trigger(app, ordered=False, concurrency=64)
    arrive(partner, *(f"a{n}" for n in range(9)))
    jobs = claiming.claim_due(limit=8, worker=7, share=3)
    assert len(jobs) == 3
    assert claiming.claim_due(limit=8, worker=7, share=3) == []
    assert len(claiming.claim_due(limit=8, worker=8, share=3)) == 3
    finish(jobs)
    Trigger.objects.filter(pk=trigger.pk).update(failing_since=clock.now())
    assert len(claiming.claim_due(limit=8, worker=7, share=3)) == 1, "a failing one is tried one by one"


def follow(*jobs: Job) -> list[list[str]]:
    """Records these as done; returns which documents follow each at once."""
    found = talking.record([(job, talking.talk(job)) for job in jobs], more=True)
    return [[job.delivery.document_id] if job is not None else [] for job in found]


def test_what_comes_next_is_claimed_with_the_outcome(partner: PartnerSide, app: Application) -> None:
    make_trigger(app)
    documents = arrive(partner, "a1", "a2", "a3")
    [first] = claim(worker=7)
    [second] = talking.record([(first, talking.talk(first))], more=True)
    assert second is not None and (second.worker, second.claim) == (7, now_of(documents[1]).claim)
    assert states(*documents) == ["completed", "running", "waiting"], "one of a pair at a time"
    assert follow(second) == [["a3"]]
    assert claim(worker=8) == []
    finish(claim_back(documents[2]))
    assert states(*documents) == ["completed"] * 3
    assert app.documents == ["a1", "a2", "a3"]


def claim_back(document: Delivery) -> list[Job]:
    """The job of a delivery that is claimed, whose worker has not lost it."""
    found = now_of(document)
    assert found.claim is not None
    decision = Decision(Status.NEW, ask_resolver=False, suspend=False, evidence=())
    return [Job(JobKind.HTTP, found.trigger, found, found.claim, decision, lease_of(found.trigger), worker=7)]


def test_as_many_follow_as_have_ended_and_as_a_claim_would_take(
    partner: PartnerSide, app: Application, settings: Any
) -> None:
    make_trigger(app, ordered=False, concurrency=3)
    arrive(partner, *(f"a{n}" for n in range(9)))
    first = claim(worker=7)
    assert follow(*first[:2]) == [["a3"], ["a4"]]
    Trigger.objects.update(concurrency=1)
    assert follow(first[2]) == [[]], "two are in progress"
    Trigger.objects.update(concurrency=64)
    settings.RMHUB_DELIVER_THREADS = 4
    jobs = claiming.claim_due(limit=1, worker=7, share=3)
    Trigger.objects.update(failing_since=clock.now())
    assert follow(*jobs) == [["a6"]], "it goes well again"


@pytest.mark.parametrize("why", ["another is due", "suspended", "not done", "two at once"])
def test_nothing_follows_where_a_claim_decides(partner: PartnerSide, app: Application, why: str) -> None:
    trigger = make_trigger(app, ordered=False, retry_interval=60)
    arrive(partner, "a1", "a2", "a3", "a4")
    jobs = claiming.claim_due(limit=1, worker=7)
    if why in ("another is due", "two at once"):
        other = make_trigger(app, ordered=False)
        arrive(partner, "b1", "b2")
        if why == "two at once":
            Trigger.objects.filter(pk=trigger.pk).update(concurrency=1)
            jobs += [job for job in claiming.claim_due(limit=1, worker=7) if job.trigger.pk == other.pk]
            assert len(jobs) == 2
    if why == "suspended":
        Trigger.objects.update(state="suspended")
    if why == "not done":
        app.plan("/documents", http(503))
    assert follow(*jobs) == [[]] * len(jobs)
    assert "running" not in states(*Delivery.objects.filter(trigger=trigger))


def test_whatever_is_wrong_with_what_comes_next_the_outcome_is_written(
    partner: PartnerSide, app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_trigger(app)
    documents = arrive(partner, "a1", "a2")
    [first] = claim(worker=7)

    def broken(*args: Any, **kwargs: Any) -> None:
        Delivery.objects.filter(pk=documents[1].pk).update(cause="half done")
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(claiming, "take", broken)
    assert follow(first) == [[]]
    assert states(*documents) == ["completed", "waiting"] and now_of(documents[1]).cause == ""


# --- leases and workers ---


def test_what_a_dead_worker_had_is_taken_back_at_once(partner: PartnerSide, app: Application) -> None:
    make_trigger(app)
    [document] = arrive(partner, "order-1")
    claim(worker=4711)
    assert claiming.release_dead(clock.now()) == 1
    work()
    assert (states(document), now_of(document).redelivery_count) == (["in_doubt"], 1)


def test_the_count_of_what_nobody_counted_begins_with_our_own_hand_over(partner: PartnerSide, app: Application) -> None:
    """A count of -1 must not make a document NEW that was handed over by us and lost."""
    make_trigger(app, use_history=False)
    [document] = arrive(partner, "order-1")
    Delivery.objects.update(redelivery_count=-1)
    lose(*claim())
    work()
    assert (states(document), now_of(document).redelivery_count, app.documents) == (["in_doubt"], 1, [])


def test_a_suspension_while_documents_are_in_work_lets_them_end(partner: PartnerSide, app: Application) -> None:
    trigger = make_trigger(app, ordered=False)
    documents = arrive(partner, "a1", "a2")
    jobs = claim(limit=1)
    triggering.trigger_suspend(trigger_id=trigger.pk, actor=PERSON, reason="maintenance")
    finish(jobs)
    assert (work(), states(*documents)) == (0, ["completed", "waiting"])


def test_a_disabled_trigger_takes_nothing(partner: PartnerSide, app: Application) -> None:
    trigger = make_trigger(app)
    [document] = arrive(partner, "a1")
    triggering.trigger_disable(trigger_id=trigger.pk, actor=PERSON, reason="gone")
    assert (work(), states(document)) == (0, ["waiting"])


def test_with_nothing_to_do_a_look_costs_one_query(partner: PartnerSide, app: Application) -> None:
    with CaptureQueriesContext(connection) as captured:
        assert claim() == []
    assert len(captured) == 1
    make_trigger(app)
    arrive(partner, "a1")
    work()
    with CaptureQueriesContext(connection) as captured:
        assert claim() == []
    assert len(captured) == 1


def test_a_group_costs_as_many_statements_as_one(partner: PartnerSide, app: Application, time: FrozenClock) -> None:
    make_trigger(app, ordered=False, concurrency=64)
    arrive(partner, *(f"a{n}" for n in range(21)))
    finish(claim(limit=1))  # from here on the day of the history is there, and so is everything else that is made once
    costs = []
    for limit in (1, 19):
        with CaptureQueriesContext(connection) as claimed:
            jobs = claim(limit=limit)
        assert len(jobs) == limit
        outcomes = [(job, talking.talk(job)) for job in jobs]
        with CaptureQueriesContext(connection) as recorded:
            talking.record(outcomes)
        costs.append((len(claimed), len(recorded)))
    assert costs[0] == costs[1]
    assert Delivery.objects.filter(state="completed").count() == 21


def test_an_outcome_of_a_hand_over_that_was_lost_does_not_end_the_next_one(
    partner: PartnerSide, app: Application
) -> None:
    """The first worker was slow, not dead: the second has the document in progress under another claim."""
    app.plan("/resolver", verdict("NEW"))
    make_trigger(app, resolver="http")
    [document] = arrive(partner, "order-1")
    [slow] = claim()
    late = talking.talk(slow)
    lose(slow)
    [question] = claim()
    [second] = talking.record([(question, talking.talk(question))])
    assert second is not None
    assert talking.record([(slow, late)]) == [None]
    assert (states(document), DocumentCompleted.objects.count()) == (["running"], 0)
    finish([second])
    assert states(document) == ["completed"]


def test_a_copy_that_the_resolver_calls_new_is_who_has_begun_from_then_on(
    partner: PartnerSide, app: Application
) -> None:
    app.plan("/resolver", verdict("NEW"))
    make_trigger(app, resolver="http", ordered=False)
    [document] = arrive(partner, "order-1")
    claim()
    second = copy_of(document)
    [question] = claim()
    talking.record([(question, talking.talk(question))])
    assert (states(document, second), DocumentStarted.objects.get().delivery_id) == (["running"] * 2, second.pk)


@pytest.mark.parametrize("ordered", [True, False])
def test_what_suspended_the_trigger_comes_before_what_waited_behind_it(
    partner: PartnerSide, app: Application, time: FrozenClock, ordered: bool
) -> None:
    app.plan("/documents", http(503), http(200))
    trigger = make_trigger(app, ordered=ordered, concurrency=1, max_retries=0)
    arrive(partner, "a1")
    time.move(1)
    arrive(partner, "a2")
    time.move(1)
    work()
    triggering.trigger_resume(trigger_id=trigger.pk, actor=PERSON, reason="up again")
    work()
    assert app.documents == ["a1", "a1", "a2"]
