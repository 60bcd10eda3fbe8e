"""The cases of spec 4 that need a store, on the real services, PostgreSQL and HTTP: W01 to W14, W20 to W29, W33 to W35,
W43; and X04, X05, X18 of those that cross the protocols.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from django.db import connection, connections

from messaging import applications
from messaging.applications import Transient
from messaging.deliveries.services import triggering
from messaging.entrance.refusals import Arrival
from messaging.models import Delivery, DocumentCompleted, DocumentStarted, Event, Incident, Signal, Trigger
from messaging.protocol.envelope import Semantics
from partners import transports
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
from tests.messaging.entrance.mail.partners import mail_partner
from tests.messaging.factories import PartnerSide, brought, partner_side
from tests.partners.factories import make_agreement, make_endpoint, make_party

pytestmark = pytest.mark.django_db


def begun() -> list[str]:
    return list(DocumentStarted.objects.values_list("document_id", flat=True))


def completed() -> list[tuple[str, str]]:
    return list(DocumentCompleted.objects.order_by("document_id").values_list("document_id", "outcome"))


def resume(trigger: Trigger) -> None:
    triggering.trigger_resume(trigger_id=trigger.pk, actor=PERSON, reason="it is fixed")


# --- the decision, document by document ---


def file_partner() -> PartnerSide:
    """The partner of a new agreement by files."""
    own, partner = make_party(own=True), make_party()
    known = {"transport": "sftp", "host_key": f"SHA256:{'A' * 43}"}
    folders = [make_endpoint(party, f"sftp://127.0.0.1/{party.pk}/", **known) for party in (own, partner)]
    return partner_side(make_agreement(own_endpoint=folders[0], partner_endpoint=folders[1]))


class Uncounted(PartnerSide):
    """Whose documents nobody counts, for they come in by what its agreement names: a count of -1 is theirs."""

    def send(self, arrival: Arrival) -> int:
        return brought(replace(arrival, came_by=transports.named(self.terms.transport)))


UNCOUNTED: dict[str, Callable[[], PartnerSide]] = {"mail": mail_partner, "files": file_partner}
DECISIONS = [
    # id, history, resolver says, redelivery count, what the history has, state then, executions, questions
    ("W01", False, None, 0, "", "completed", 1, 0),
    ("W02", False, None, 2, "", "in_doubt", 0, 0),
    ("W03", False, None, -1, "", "completed", 1, 0),
    ("W04", False, "DUPLICATE", 0, "", "completed", 1, 0),
    ("W05", False, "DUPLICATE", 1, "", "duplicate", 0, 1),
    ("W06 new", False, "NEW", -1, "", "completed", 1, 1),
    ("W06 in doubt", False, "IN_DOUBT", -1, "", "in_doubt", 0, 1),
    ("W07 first", True, "DUPLICATE", 0, "", "completed", 1, 0),
    ("W07 fifth", True, "DUPLICATE", 5, "", "completed", 1, 0),
    ("W07 undefined", True, "DUPLICATE", -1, "", "completed", 1, 0),
    ("W08 first", True, "NEW", 0, "completed", "duplicate", 0, 0),
    ("W08 fifth", True, "NEW", 5, "completed", "duplicate", 0, 0),
    ("W08 undefined", True, "NEW", -1, "completed", "duplicate", 0, 0),
    ("W09 first", True, None, 0, "started", "in_doubt", 0, 0),
    ("W09 fifth", True, None, 5, "started", "in_doubt", 0, 0),
    ("W09 undefined", True, None, -1, "started", "in_doubt", 0, 0),
    ("W10 new", True, "NEW", 0, "started", "completed", 1, 1),
    ("W10 duplicate", True, "DUPLICATE", 5, "started", "duplicate", 0, 1),
    ("W10 in doubt", True, "IN DOUBT", -1, "started", "in_doubt", 0, 1),
]


@pytest.mark.parametrize(
    ("road", "history", "says", "count", "entry", "state", "executions", "questions"),
    [
        pytest.param(road, *row[1:], id=f"{row[0]} {road}".strip())
        for row in DECISIONS
        for road in (UNCOUNTED if row[3] < 0 else [""])
    ],
)
def test_what_becomes_of_a_document(
    partner: PartnerSide,
    app: Application,
    road: str,
    history: bool,
    says: str | None,
    count: int,
    entry: str,
    state: str,
    executions: int,
    questions: int,
) -> None:
    app.plan("/resolver", verdict(says, "I looked."))
    make_trigger(app, use_history=history, resolver="http" if says else "none")
    sender = partner
    if road:
        made = UNCOUNTED[road]()
        sender = Uncounted(made.terms, made.presented)
    [document] = arrive(sender, "order-1")
    if entry == "completed":
        work()
    elif entry == "started":
        claim()  # and its worker is never heard of again
        Delivery.objects.update(state="in_doubt")
    if entry and road:
        [document] = arrive(sender, "order-2", document_id="order-1")
    elif entry:
        document = copy_of(document)
    if not road:
        Delivery.objects.filter(pk=document.pk).update(redelivery_count=count)
    assert now_of(document).redelivery_count == count
    before = len(app.documents)
    work()
    found = now_of(document)
    assert (found.state, len(app.documents) - before, len(app.at("/resolver"))) == (state, executions, questions)
    steps = [step["step"] for step in found.evidence]
    assert steps == ["redelivery"] + ["history"] * history + ["resolver"] * bool(questions)
    assert found.evidence[-1]["verdict"] == (found.verdict or "new")
    if state == "in_doubt":
        assert found.doubt
        assert Incident.objects.get().cause == "documents_in_doubt"
        assert Event.objects.filter(type="delivery.in_doubt", message=found.message).count() == 1


def test_w10_the_resolver_is_told_what_it_has_to_know(partner: PartnerSide, app: Application) -> None:
    app.plan("/resolver", verdict("NEW"))
    trigger = make_trigger(app, resolver="http")
    [document] = arrive(partner, "order-1", conversation_id="c7")
    lose(*claim())
    work()
    [question] = app.at("/resolver")
    assert question.json["uuid"] == "order-1"
    assert question.json["redeliveryCount"] == 1
    assert question.json["triggerName"] == trigger.name
    assert question.json["transport"] == "ebxml"
    assert question.json["document"]["conversation_id"] == "c7"
    assert len(question.json["document"]["sha256"]) == 1
    assert app.documents == ["order-1"]
    assert app.at("/documents")[0].headers["rm-redelivery-count"] == "1"
    assert (begun(), completed()) == ([], [("order-1", "success")])
    assert states(document) == ["completed"]


@pytest.mark.django_db(transaction=True)
def test_w11_started_is_committed_before_the_service_is_called_and_completed_after_it(
    partner: PartnerSide, app: Application
) -> None:
    seen: list[tuple[list[str], list[tuple[str, str]]]] = []

    def look(asked: object) -> bytes:
        try:
            seen.append((begun(), completed()))  # another connection, as the application's thread has
        finally:
            connections.close_all()
        return http(200)

    app.plan("/documents", look)
    make_trigger(app)
    arrive(partner, "order-1")
    work()
    assert seen == [(["order-1"], [])]
    assert (begun(), completed()) == ([], [("order-1", "success")])


def test_w12_a_service_that_ends_with_an_error_has_processed_the_document(
    partner: PartnerSide, app: Application
) -> None:
    app.plan("/documents", http(500, "no such article"))
    make_trigger(app)
    [document] = arrive(partner, "order-1")
    work()
    found = now_of(document)
    assert (found.state, found.cause, found.http_status, found.answer) == (
        "failed",
        "service_error",
        500,
        b"no such article",
    )
    assert (begun(), completed()) == ([], [("order-1", "error")])
    second = copy_of(document)
    work()
    assert states(second) == ["duplicate"]
    assert app.documents == ["order-1"]


def test_w13_a_copy_that_comes_while_the_first_is_running_is_in_doubt(partner: PartnerSide, app: Application) -> None:
    make_trigger(app, ordered=False)
    [document] = arrive(partner, "order-1")
    running = claim()
    second = copy_of(document)
    work()
    assert states(document, second) == ["running", "in_doubt"]
    assert now_of(second).doubt == "started_not_completed"
    finish(running)
    assert states(document, second) == ["completed", "in_doubt"]
    assert app.documents == ["order-1"]


@pytest.mark.parametrize(("says", "state", "executions"), [("NEW", "completed", 2), ("DUPLICATE", "duplicate", 1)])
def test_w13_with_a_resolver_its_answer_counts(
    partner: PartnerSide, app: Application, says: str, state: str, executions: int
) -> None:
    app.plan("/resolver", verdict(says))
    make_trigger(app, ordered=False, resolver="http")
    [document] = arrive(partner, "order-1")
    running = claim()
    second = copy_of(document)
    work()
    assert begun() == (["order-1"] if says == "DUPLICATE" else [])
    finish(running)
    assert states(document, second) == ["completed", state]
    assert len(app.documents) == executions
    assert (begun(), completed()) == ([], [("order-1", "success")])


def test_w13_two_copies_in_one_claim(partner: PartnerSide, app: Application) -> None:
    make_trigger(app, ordered=False)
    [document] = arrive(partner, "order-1")
    second = copy_of(document)
    assert len(claim()) == 1
    assert sorted(states(document, second)) == ["in_doubt", "running"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["http", "callable"])
def test_x18_w13_two_workers_claim_two_copies_at_once(
    partner: PartnerSide, app: Application, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setitem(applications.SERVICES, "orders", lambda document: None)
    values = {"kind": "callable", "callable_name": "orders", "url": ""} if kind == "callable" else {}
    make_trigger(app, ordered=False, **values)
    documents = [arrive(partner, f"order-{n}")[0] for n in range(6)]
    copies = [copy_of(document) for document in documents]
    start = threading.Barrier(2)
    claimed: list[int] = []

    def worker() -> None:
        try:
            start.wait(120)
            claimed.append(sum(len(claim(limit=1)) for _ in range(12)))
        finally:
            connections.close_all()

    Trigger.objects.update(concurrency=64)
    threads = [threading.Thread(target=worker) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sum(claimed) == 6
    for document, copy in zip(documents, copies, strict=True):
        assert sorted(states(document, copy)) == ["in_doubt", "running"]


def test_w14_two_triggers_execute_the_same_document_once_each(partner: PartnerSide, app: Application) -> None:
    make_trigger(app)
    make_trigger(app, url=app.url("/other"))
    documents = arrive(partner, "order-1")
    assert len(documents) == 2
    work()
    assert states(*documents) == ["completed", "completed"]
    assert [one.path for one in sorted(app.asked, key=lambda one: one.path)] == ["/documents", "/other"]
    assert completed() == [("order-1", "success")] * 2


def test_w20_a_volatile_document_is_executed_as_often_as_it_comes_and_leaves_no_history(
    partner: PartnerSide, app: Application
) -> None:
    make_trigger(app)
    [document] = arrive(partner, "order-1", semantics=Semantics.BEST_EFFORT)
    work()
    second = copy_of(document)
    work()
    assert states(document, second) == ["completed", "completed"]
    assert {now_of(one).verdict for one in (document, second)} == {"unchecked"}
    assert app.documents == ["order-1", "order-1"]
    assert (begun(), completed()) == ([], [])


def test_w21_without_detection_a_copy_is_executed_whatever_the_history_has(
    partner: PartnerSide, app: Application
) -> None:
    trigger = make_trigger(app)
    [document] = arrive(partner, "order-1")
    work()
    assert completed() == [("order-1", "success")]
    Trigger.objects.filter(pk=trigger.pk).update(detect_duplicates=False)
    second = copy_of(document)
    work()
    assert states(second) == ["completed"]
    assert app.documents == ["order-1", "order-1"]


# --- the resolver does not answer as it should ---


def in_question(partner: PartnerSide) -> Delivery:
    """A document whose first hand-over is lost, so that the resolver has to be asked."""
    document, _ = arrive(partner, "order-1", "order-2")
    lose(*claim())
    return document


def test_w22_a_resolver_that_cannot_answer_now_suspends_the_trigger(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    app.plan("/resolver", http(503), verdict("NEW"))
    trigger = make_trigger(app, resolver="http", monitor="http", monitor_url=app.url("/monitor"))
    document = in_question(partner)
    work()
    trigger.refresh_from_db()
    assert (trigger.state, trigger.cause) == ("suspended", "resolver_unavailable")
    assert trigger.monitor_due_at is not None
    assert (states(document), begun()) == (["waiting"], ["order-1"])
    assert app.documents == []
    assert Incident.objects.get().cause == "resolver_unavailable"
    resume(trigger)
    work()
    assert app.documents == ["order-1", "order-2"], "it kept its place at the head"


def test_w22_whatever_was_waiting_stays_when_the_retry_property_suspends(
    partner: PartnerSide, app: Application
) -> None:
    app.plan("/resolver", BROKEN)
    trigger = make_trigger(app, resolver="http", resolver_failure="in_doubt", when_exhausted="suspend")
    document = in_question(partner)
    work()
    trigger.refresh_from_db()
    assert (trigger.state, states(document)) == ("suspended", ["waiting"])


@pytest.mark.parametrize(
    ("answer", "values", "group"),
    [
        pytest.param(
            http(503), {"resolver_failure": "in_doubt", "when_exhausted": "fail"}, "resolver_failed", id="W23"
        ),
        pytest.param(http(400), {}, "resolver_failed", id="W24"),
        pytest.param(verdict("maybe"), {}, "resolver_nonsense", id="W25 maybe"),
        pytest.param(verdict(None), {}, "resolver_nonsense", id="W25 null"),
        pytest.param(verdict(["NEW"]), {}, "resolver_nonsense", id="W25 list"),
        pytest.param(http(200, b"NEW"), {}, "resolver_nonsense", id="W25 no JSON"),
        pytest.param(http(200, b"[" * 60_000), {}, "resolver_nonsense", id="W25 deep"),
        pytest.param(
            http(200, b'{"status": "NEW", "x": "' + b"x" * 70_000 + b'"}'), {}, "resolver_nonsense", id="W25 long"
        ),
    ],
)
def test_a_resolver_without_a_verdict_leaves_the_document_in_doubt(
    partner: PartnerSide, app: Application, answer: bytes, values: dict[str, str], group: str
) -> None:
    app.plan("/resolver", answer)
    trigger = make_trigger(app, resolver="http", **values)
    document = in_question(partner)
    work()
    found = now_of(document)
    assert (found.state, found.doubt) == ("in_doubt", group)
    assert app.documents == ["order-2"], "the next one goes on"
    assert begun() == ["order-1"]
    trigger.refresh_from_db()
    assert trigger.state == "active"
    assert Incident.objects.get().cause == "documents_in_doubt"
    assert Signal.objects.filter(kind="ack", ref_to_message_id="order-1").count() == 1


def raising(error: Exception) -> Callable[[object], object]:
    def resolver(document: object) -> object:
        raise error

    return resolver


@pytest.mark.parametrize(
    ("resolver", "state", "doubt"),
    [
        pytest.param(lambda document: "NEW", "completed", "", id="new"),
        pytest.param(lambda document: "DUPLICATE", "duplicate", "", id="duplicate"),
        pytest.param(raising(Transient("not now")), "waiting", "", id="W22"),
        pytest.param(raising(ValueError("a bug")), "in_doubt", "resolver_failed", id="W24"),
        pytest.param(lambda document: None, "in_doubt", "resolver_nonsense", id="W25 none"),
        pytest.param(lambda document: 5, "in_doubt", "resolver_nonsense", id="W25 number"),
    ],
)
def test_a_resolver_of_a_django_app(
    partner: PartnerSide,
    app: Application,
    monkeypatch: pytest.MonkeyPatch,
    resolver: Callable[[object], object],
    state: str,
    doubt: str,
) -> None:
    monkeypatch.setitem(applications.RESOLVERS, "orders.known", resolver)
    make_trigger(app, resolver="callable", resolver_callable="orders.known")
    document = in_question(partner)
    work()
    assert (now_of(document).state, now_of(document).doubt) == (state, doubt)
    assert ("order-1" in app.documents) == (state == "completed")


# --- the history is down ---


def rename(table: str, to: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO {to}")


@pytest.mark.parametrize("table", ["messaging_documentstarted", "messaging_documentcompleted"])
@pytest.mark.parametrize("kind", ["http", "callable"])
def test_w26_without_its_history_a_trigger_suspends_and_processes_once_afterwards(
    partner: PartnerSide, app: Application, monkeypatch: pytest.MonkeyPatch, table: str, kind: str
) -> None:
    ran: list[str] = []
    monkeypatch.setitem(applications.SERVICES, "orders", lambda document: ran.append(document.document_id))
    values = {"kind": "callable", "callable_name": "orders", "url": ""} if kind == "callable" else {}
    trigger = make_trigger(app, **values)
    documents = arrive(partner, "order-1", "order-2")
    rename(table, "gone")
    assert work() == 0
    trigger.refresh_from_db()
    assert (trigger.state, trigger.cause) == ("suspended", "history_unavailable")
    assert states(*documents) == ["waiting", "waiting"]
    assert Incident.objects.get().cause == "history_unavailable"
    rename("gone", table)
    resume(trigger)
    work()
    assert (app.documents if kind == "http" else ran) == ["order-1", "order-2"]
    assert states(*documents) == ["completed", "completed"]
    assert completed() == [("order-1", "success"), ("order-2", "success")]


def test_w26_without_suspension_what_cannot_be_looked_up_is_in_doubt(partner: PartnerSide, app: Application) -> None:
    make_trigger(app, resolver_failure="in_doubt", when_exhausted="fail")
    documents = arrive(partner, "order-1", "order-2")
    rename("messaging_documentcompleted", "gone")
    work()
    assert states(*documents) == ["in_doubt", "in_doubt"]
    assert {now_of(one).doubt for one in documents} == {"history_unreachable"}
    assert app.documents == []


# --- retries and suspension ---


def test_w27_retries_are_used_up_and_the_next_document_goes_on(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    app.plan("/documents", *[http(503)] * 4, http(200))
    make_trigger(app, max_retries=3, retry_interval=10, when_exhausted="fail")
    first, second = arrive(partner, "order-1", "order-2")
    executed = []
    for at in range(36):
        executed += [at] * work()
        time.move(1)
    assert executed == [0, 10, 20, 30, 30]
    assert app.documents == ["order-1"] * 4 + ["order-2"]
    assert (states(first, second), now_of(first).executions) == (["failed", "completed"], 4)
    assert now_of(first).cause == "service_not_now"
    assert completed() == [("order-1", "error"), ("order-2", "success")]
    assert Signal.objects.filter(kind="ack").count() == 2


@pytest.mark.parametrize(
    ("status", "cause"), [(401, "service_access_refused"), (403, "service_access_refused"), (503, "service_not_now")]
)
def test_a_service_that_refuses_the_hub_is_not_said_to_be_busy(
    partner: PartnerSide, app: Application, time: FrozenClock, status: int, cause: str
) -> None:
    app.plan("/documents", http(status))
    trigger = make_trigger(app, max_retries=0, retry_statuses=[401, 403, 503])
    arrive(partner, "order-1")
    work()
    trigger.refresh_from_db()
    assert (trigger.state, trigger.cause, begun()) == ("suspended", cause, [])


@pytest.mark.parametrize("ordered", [True, False])
def test_w28_w29_suspended_when_retries_are_used_up_and_first_after_the_resumption(
    partner: PartnerSide, app: Application, time: FrozenClock, ordered: bool
) -> None:
    app.plan("/documents", *[http(503)] * 4, http(200))
    trigger = make_trigger(app, max_retries=3, retry_interval=10, ordered=ordered, concurrency=1)
    first, second = arrive(partner, "order-1"), None
    for _ in range(4):
        work()
        time.move(10)
    trigger.refresh_from_db()
    assert (trigger.state, trigger.cause) == ("suspended", "service_not_now")
    assert begun() == [], "a deliberate end leaves nothing begun"
    second = arrive(partner, "order-2")
    assert work() == 0
    resume(trigger)
    work()
    assert app.documents == ["order-1"] * 5 + ["order-2"]
    found = now_of(first[0])
    assert (found.state, found.verdict, found.executions) == ("completed", "new", 5)
    assert states(*second) == ["completed"]
    assert completed() == [("order-1", "success"), ("order-2", "success")]


def test_w28_a_resumed_trigger_has_a_new_budget(partner: PartnerSide, app: Application, time: FrozenClock) -> None:
    app.plan("/documents", http(503))
    trigger = make_trigger(app, max_retries=1, retry_interval=10)
    arrive(partner, "order-1")
    for _ in range(3):
        work()
        time.move(10)
    assert len(app.documents) == 2
    resume(trigger)
    for _ in range(3):
        work()
        time.move(10)
    assert len(app.documents) == 4


def test_w33_an_error_that_is_not_transient_is_not_retried(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    app.plan("/documents", http(422, "unknown article"), http(200))
    trigger = make_trigger(app, max_retries=3)
    first, second = arrive(partner, "order-1", "order-2")
    work()
    time.move(3600)
    assert work() == 0
    assert app.documents == ["order-1", "order-2"]
    assert states(first, second) == ["failed", "completed"]
    assert completed() == [("order-1", "error"), ("order-2", "success")]
    trigger.refresh_from_db()
    assert trigger.state == "active"
    assert Signal.objects.filter(kind="ack").count() == 2


def test_w34_an_ordered_trigger_that_suspends_on_errors(partner: PartnerSide, app: Application) -> None:
    app.plan("/documents", http(500), http(200))
    trigger = make_trigger(app, suspend_on_error=True)
    first, second = arrive(partner, "order-1", "order-2")
    work()
    trigger.refresh_from_db()
    assert (trigger.state, trigger.cause) == ("suspended", "service_error")
    assert states(first, second) == ["failed", "waiting"]
    resume(trigger)
    work()
    assert app.documents == ["order-1", "order-2"]


def test_w35_retried_until_it_succeeds(partner: PartnerSide, app: Application, time: FrozenClock) -> None:
    app.plan("/documents", *[http(503)] * 6, http(200))
    make_trigger(app, retry_until="success", max_retries=1, retry_interval=10)
    [document] = arrive(partner, "order-1")
    for _ in range(9):
        work()
        time.move(10)
    assert len(app.documents) == 7
    assert (states(document), completed()) == (["completed"], [("order-1", "success")])


def test_w43_a_worker_killed_after_started_leaves_the_document_in_doubt(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    trigger = make_trigger(app)
    document, following = arrive(partner, "order-1", "order-2")
    [job] = claim(worker=4711)
    time.move(job.lease.total_seconds() - 1)
    assert work() == 0, "nobody else touches it before its lease is over"
    time.move(1)
    work()
    found = now_of(document)
    assert (found.state, found.doubt, found.redelivery_count) == ("in_doubt", "started_not_completed", 1)
    assert found.cause == "worker_lost"
    assert app.documents == ["order-2"]
    assert begun() == ["order-1"]
    assert [step["finding"] for step in found.evidence] == ["redelivered", "started"]
    assert Incident.objects.get(trigger=trigger).cause == "documents_in_doubt"
    assert states(following) == ["completed"]


def test_w43_with_a_resolver_that_says_new_it_is_executed_once(
    partner: PartnerSide, app: Application, time: FrozenClock
) -> None:
    app.plan("/resolver", verdict("NEW"))
    make_trigger(app, resolver="http")
    [document] = arrive(partner, "order-1")
    lose(*claim())
    work()
    assert app.documents == ["order-1"]
    assert (states(document), begun(), completed()) == (["completed"], [], [("order-1", "success")])
    assert now_of(document).executions == 2, "handed over twice, and the first got nowhere"


def test_w43_killed_again_after_the_resolver_said_new(partner: PartnerSide, app: Application) -> None:
    """The service may have been run after that answer: only the resolver can say so once more."""
    app.plan("/resolver", verdict("NEW"), verdict("DUPLICATE"))
    make_trigger(app, resolver="http")
    [document] = arrive(partner, "order-1")
    lose(*claim())
    jobs = claim()
    from messaging.deliveries.services import talking

    talking.record([(job, talking.talk(job)) for job in jobs])
    assert states(document) == ["running"]
    lose(*jobs)
    work()
    assert (states(document), app.documents, now_of(document).redelivery_count) == (["duplicate"], [], 2)
    assert (begun(), completed()) == ([], [("order-1", "success")])


# --- across the protocols ---


def test_x04_admission_is_acknowledged_although_the_service_fails_for_good(
    partner: PartnerSide, app: Application
) -> None:
    app.plan("/documents", http(500))
    trigger = make_trigger(app)
    [document] = arrive(partner, "order-1")
    work()
    assert Signal.objects.get(kind="ack").ref_to_message_id == "order-1"
    assert not Signal.objects.filter(kind="error").exists()
    assert states(document) == ["failed"]
    incident = Incident.objects.get(trigger=trigger)
    assert (incident.cause, incident.message_id) == ("documents_failed", document.message_id)


def test_x05_while_a_trigger_is_suspended_documents_are_admitted_and_wait_in_order(
    partner: PartnerSide, app: Application
) -> None:
    trigger = make_trigger(app)
    triggering.trigger_suspend(trigger_id=trigger.pk, actor=PERSON, reason="maintenance")
    documents = arrive(partner, *(f"order-{n}" for n in range(5)))
    assert work() == 0
    assert Signal.objects.filter(kind="ack").count() == 5
    assert states(*documents) == ["waiting"] * 5
    resume(trigger)
    work()
    assert app.documents == [f"order-{n}" for n in range(5)]
    assert states(*documents) == ["completed"] * 5
