"""Joins: documents of one conversation that a trigger processes together, or one instead of all."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from messaging import applications
from messaging.applications import Document, Transient
from messaging.choices import DeliveryState, JoinState
from messaging.deliveries.services import handing_over, pulling, settling, triggering
from messaging.models import AuditEntry, Delivery, DocumentCompleted, DocumentStarted, Incident, Join, Message, Trigger
from messaging.overview.services import housekeeping
from messaging.protocol.envelope import Semantics
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.conftest import NOON
from tests.messaging.deliveries.documents import SERVICE, copy_of, documents_from, make_queue
from tests.messaging.deliveries.stage import PERSON, claim, work
from tests.messaging.factories import PartnerSide, partner_side

pytestmark = pytest.mark.django_db

HOUR = 3600
A_AND_B = [{"service": SERVICE, "action": "A"}, {"service": SERVICE, "action": "B"}]


@pytest.fixture
def partner(time: FrozenClock) -> PartnerSide:
    return partner_side()


class Application:
    """A service that writes down what it gets; `trouble` is raised instead, as long as there is some."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self.trouble: list[Exception] = []

    def __call__(self, document: Document) -> None:
        if self.trouble:
            raise self.trouble.pop(0)
        self.documents.append(document)

    @property
    def runs(self) -> list[list[str]]:
        """The actions of each run, in the order of the documents' arrival."""
        return [[other.action for other in one.others] + [one.action] for one in self.documents]


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Application:
    made = Application()
    monkeypatch.setitem(applications.SERVICES, "erp", made)
    return made


@pytest.fixture
def join_all(application: Application) -> Trigger:
    return made("all")


def made(join_type: str, **values: Any) -> Trigger:
    settings = {"kind": "callable", "callable_name": "erp", "documents": A_AND_B, "join_timeout": HOUR}
    return make_queue(join_type=join_type, **{**settings, **values})


def states(*messages: Message) -> list[str]:
    found = dict(Delivery.objects.filter(join__isnull=True).values_list("message_id", "state"))
    return [found[message.pk] for message in messages]


def test_w38_and_join_with_a_duplicate(partner: PartnerSide, join_all: Trigger, application: Application) -> None:
    (a,) = documents_from(partner, "A", conversation="c1")
    work()
    assert states(a) == [DeliveryState.JOINED]
    assert DocumentCompleted.objects.get().outcome == "success", "done with as soon as it lies in the join"
    copy = copy_of(a, join_all)
    work()
    copy.refresh_from_db()
    assert (copy.state, copy.verdict) == (DeliveryState.DUPLICATE, "duplicate")
    (b,) = documents_from(partner, "B", conversation="c1")
    work()
    assert application.runs == [["A", "B"]]
    document = application.documents[0]
    assert [other.message_id for other in document.others] == [a.message_id]
    assert document.message_id == b.message_id
    assert [part.content for one in (document, *document.others) for part in one.parts] == [b"<Order/>"] * 2
    assert states(a, b) == [DeliveryState.COMPLETED] * 2
    firing = Delivery.objects.get(join__isnull=False)
    assert (firing.state, firing.document_id, firing.executions) == (
        DeliveryState.COMPLETED,
        f"join:{firing.join_id}",
        1,
    )
    assert not DocumentStarted.objects.exists()


@pytest.mark.parametrize("kind", ["callable", "http"])
def test_w38_a_document_and_its_copy_that_are_claimed_together(
    partner: PartnerSide, application: Application, kind: str
) -> None:
    http = {"kind": "http", "url": "http://127.0.0.1:1/documents", "callable_name": ""}
    trigger = made("all", ordered=False, concurrency=10, **(http if kind == "http" else {}))
    (a,) = documents_from(partner, "A", conversation="c1")
    copy = copy_of(a, trigger)
    assert claim() == []
    copy.refresh_from_db()
    assert (states(a)[0], copy.state) == (DeliveryState.JOINED, DeliveryState.DUPLICATE)


def test_copies_that_come_after_the_join_fired_start_no_other(
    partner: PartnerSide, join_all: Trigger, application: Application
) -> None:
    a, b = documents_from(partner, "A", "B", conversation="c1")
    work()
    for message in (a, b):
        copy_of(message, join_all)
    work()
    assert application.runs == [["A", "B"]]
    assert Join.objects.get().state == JoinState.FIRED


def test_conversations_and_triggers_have_joins_of_their_own(
    partner: PartnerSide, join_all: Trigger, application: Application
) -> None:
    other = made("all", name="other")
    documents_from(partner, "A", conversation="c1")
    documents_from(partner, "B", conversation="c2")
    work()
    assert application.runs == []
    documents_from(partner_side(), "A", conversation="c2")
    work()
    assert [document.conversation_id for document in application.documents] == ["c2", "c2"]
    assert application.runs == [["B", "A"], ["B", "A"]]
    assert {document.trigger for document in application.documents} == {join_all.name, other.name}
    assert Join.objects.filter(state=JoinState.OPEN).count() == 2


def test_a_second_document_of_one_type_goes_with_the_join(
    partner: PartnerSide, join_all: Trigger, application: Application
) -> None:
    documents_from(partner, "A", "A", "B", conversation="c1")
    work()
    assert application.runs == [["A", "A", "B"]]


def test_w39_and_join_survives_a_crash_between_its_documents(
    partner: PartnerSide, join_all: Trigger, application: Application
) -> None:
    documents_from(partner, "A", conversation="c1")
    assert claim() == []  # and this worker is never seen again
    documents_from(partner, "B", conversation="c1")
    work()
    assert application.runs == [["A", "B"]]


def test_w39_and_join_survives_a_crash_in_the_claim_that_completes_it(
    partner: PartnerSide, join_all: Trigger, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*args: object) -> None:
        raise Killed

    a, b = documents_from(partner, "A", "B", conversation="c1")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(handing_over, "_fire", die)
        claim()
    assert states(a, b) == [DeliveryState.WAITING] * 2
    assert (Join.objects.count(), DocumentCompleted.objects.count()) == (0, 0)
    work()
    assert application.runs == [["A", "B"]]


def test_w39_and_join_survives_a_crash_of_the_worker_that_has_its_firing(
    time: FrozenClock, partner: PartnerSide, join_all: Trigger, application: Application
) -> None:
    documents_from(partner, "A", "B", conversation="c1")
    (job,) = claim()  # the firing is handed over, and its worker dies
    assert job.delivery.join_id is not None
    assert claim() == []
    time.move(HOUR / 2)
    work()
    assert application.runs == [["A", "B"]]
    firing = Delivery.objects.get(join__isnull=False)
    assert (firing.state, firing.redelivery_count) == (DeliveryState.COMPLETED, 1)


def test_the_firing_of_a_join_whose_outcome_nobody_knows_is_in_doubt_and_can_be_resubmitted(
    time: FrozenClock, partner: PartnerSide
) -> None:
    trigger = made("all", kind="pull", callable_name="", lease_seconds=60)
    documents_from(partner, "A", "B", conversation="c1")
    (leased,) = pulling.lease(trigger.pk, limit=5, consumer="erp")
    assert [part.message.action for part in handing_over.parts(leased.delivery.join_id)] == ["A", "B"]
    time.move(60)
    assert pulling.lease(trigger.pk, limit=5, consumer="erp") == []
    assert Delivery.objects.get(pk=leased.delivery.pk).state == DeliveryState.IN_DOUBT
    settling.delivery_settle(
        delivery_id=leased.delivery.pk, decision="resubmit", actor=PERSON, reason="it has not got it"
    )
    (again,) = pulling.lease(trigger.pk, limit=5, consumer="erp")
    assert again.delivery.resubmission_of_id == leased.delivery.pk
    assert [part.message.action for part in handing_over.parts(again.delivery.join_id)] == ["A", "B"]
    pulling.complete(again.delivery.pk, again.claim)
    assert Join.objects.count() == 1


def test_a_document_that_the_resolver_says_is_new_goes_into_its_join(
    time: FrozenClock, partner: PartnerSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(applications.RESOLVERS, "erp", lambda document: "NEW")
    trigger = made("all", kind="pull", callable_name="", resolver="callable", resolver_callable="erp")
    (a,) = documents_from(partner, "A", conversation="c1")
    begun_once = Delivery.objects.get()
    DocumentStarted.objects.create(  # by another copy, which was lost
        trigger=trigger,
        sender_id=begun_once.sender_id,
        document_id=a.message_id,
        delivery_id=begun_once.pk,
        started_at=clock.now(),
    )
    assert pulling.lease(trigger.pk, limit=1, consumer="erp") == []
    assert states(a) == [DeliveryState.JOINED]
    assert DocumentCompleted.objects.get().document_id == a.message_id
    assert not DocumentStarted.objects.exists()
    documents_from(partner, "B", conversation="c1")
    (leased,) = pulling.lease(trigger.pk, limit=1, consumer="erp")
    assert [part.message.action for part in handing_over.parts(leased.delivery.join_id)] == ["A", "B"]


def test_the_firing_is_guarded_even_if_its_last_document_is_volatile(time: FrozenClock, partner: PartnerSide) -> None:
    trigger = made("all", kind="pull", callable_name="", lease_seconds=60)
    documents_from(partner, "A", conversation="c1")
    best_effort = partner.message(None, semantics=Semantics.BEST_EFFORT, action="B", conversation_id="c1")
    assert partner.send(best_effort) == 204
    (leased,) = pulling.lease(trigger.pk, limit=5, consumer="erp")
    assert leased.delivery.verdict == "new"
    time.move(60)
    assert pulling.lease(trigger.pk, limit=5, consumer="erp") == []
    assert Delivery.objects.get(pk=leased.delivery.pk).state == DeliveryState.IN_DOUBT


def test_the_firing_keeps_the_order_of_its_pair(partner: PartnerSide, application: Application) -> None:
    trigger = made("all", ordered=True, documents=[*A_AND_B])
    documents_from(partner, "A", "B", conversation="c1")
    documents_from(partner, "A", "B", conversation="c2")
    application.trouble = [Transient("not now")]
    work()
    assert application.runs == [], "the first join waits for its retry"
    assert Join.objects.count() == 1, "and everything behind it for the first join"
    with clock.frozen(NOON + timedelta(seconds=trigger.retry_interval)):
        work()
    assert [document.conversation_id for document in application.documents] == ["c1", "c2"]


def test_w40_and_join_that_times_out(
    time: FrozenClock, partner: PartnerSide, join_all: Trigger, application: Application
) -> None:
    (a,) = documents_from(partner, "A", conversation="c1")
    work()
    time.move(HOUR)
    housekeeping.run()
    assert states(a) == [DeliveryState.JOINED], "not before its time is over"
    time.move(1)
    housekeeping.run()
    assert states(a) == [DeliveryState.DISCARDED]
    row = Delivery.objects.get()
    entry = AuditEntry.objects.get(verb="delivery.discard")
    assert (entry.actor, entry.object_id) == ("system", row.public_id)
    assert a.message_id in str(entry.after)
    incident = Incident.objects.get(trigger=join_all)
    assert (incident.cause, incident.message_id) == ("join_expired", a.pk)
    (b,) = documents_from(partner, "B", conversation="c1")
    work()
    assert states(b) == [DeliveryState.JOINED], "the late one starts a join of its own"
    assert application.runs == []
    documents_from(partner, "A", conversation="c1")
    work()
    assert application.runs == [["B", "A"]]
    assert sorted(Join.objects.values_list("state", flat=True)) == [JoinState.EXPIRED, JoinState.FIRED]


def test_w40_the_late_document_ends_the_join_if_nobody_did(
    time: FrozenClock, partner: PartnerSide, join_all: Trigger, application: Application
) -> None:
    (a,) = documents_from(partner, "A", conversation="c1")
    work()
    time.move(HOUR + 1)
    (b,) = documents_from(partner, "B", conversation="c1")
    work()
    assert states(a, b) == [DeliveryState.DISCARDED, DeliveryState.JOINED]
    assert application.runs == []
    assert Incident.objects.get(trigger=join_all).cause == "join_expired"


def test_what_was_discarded_with_a_join_stays_processed_for_the_history(
    time: FrozenClock, partner: PartnerSide, join_all: Trigger, application: Application
) -> None:
    (a,) = documents_from(partner, "A", conversation="c1")
    work()
    time.move(HOUR + 1)
    housekeeping.run()
    copy = copy_of(a, join_all)
    work()
    copy.refresh_from_db()
    assert copy.state == DeliveryState.DUPLICATE


@pytest.mark.parametrize("join_type", ["all", "only_one"])
def test_a_document_that_came_in_time_counts_however_late_the_trigger_takes_it_up(
    time: FrozenClock, partner: PartnerSide, application: Application, join_type: str
) -> None:
    trigger = made(join_type)
    documents_from(partner, "A", conversation="c1")
    work()
    triggering.trigger_suspend(trigger_id=trigger.pk, actor=PERSON, reason="stocktaking")
    time.move(HOUR / 2)
    (b,) = documents_from(partner, "B", conversation="c1")
    time.move(HOUR)
    housekeeping.run()
    assert Join.objects.get().state == JoinState.OPEN
    triggering.trigger_resume(trigger_id=trigger.pk, actor=PERSON, reason="done")
    work()
    if join_type == "all":
        assert application.runs == [["A", "B"]]
    else:
        assert application.runs == [["A"]]
        assert states(b) == [DeliveryState.DISCARDED]
    housekeeping.run()
    assert Join.objects.get().state == (JoinState.FIRED if join_type == "all" else JoinState.EXPIRED)


def test_w41_xor_join(time: FrozenClock, partner: PartnerSide, application: Application) -> None:
    made("only_one")
    a, b = documents_from(partner, "A", "B", conversation="c1")
    work()
    assert application.runs == [["A"]]
    assert states(a, b) == [DeliveryState.COMPLETED, DeliveryState.DISCARDED]
    documents_from(partner, "B", conversation="c2")
    work()
    assert application.runs == [["A"], ["B"]]
    time.move(HOUR + 1)
    documents_from(partner, "B", conversation="c1")
    work()
    assert application.runs == [["A"], ["B"], ["B"]], "after its timeout the conversation is free again"
    assert Incident.objects.count() == AuditEntry.objects.filter(actor="system").count() == 0


def test_w41_a_copy_of_what_the_xor_join_discarded_is_a_duplicate(
    time: FrozenClock, partner: PartnerSide, application: Application
) -> None:
    trigger = made("only_one")
    _, b = documents_from(partner, "A", "B", conversation="c1")
    work()
    time.move(HOUR + 1)
    copy_of(b, trigger, created_at=clock.now())
    work()
    assert application.runs == [["A"]]


def test_the_one_of_an_xor_join_is_retried_redelivered_and_resubmitted(
    time: FrozenClock, partner: PartnerSide, application: Application
) -> None:
    made("only_one", retry_interval=10)
    a, b = documents_from(partner, "A", "B", conversation="c1")
    application.trouble = [Transient("not now"), ValueError("no such article")]
    work()
    time.move(10)
    work()
    assert states(a, b) == [DeliveryState.FAILED, DeliveryState.DISCARDED]
    failed = Delivery.objects.get(message=a)
    settling.delivery_settle(delivery_id=failed.pk, decision="resubmit", actor=PERSON, reason="article added")
    (job,) = claim()  # whose worker dies
    time.move(HOUR / 2)
    work()
    assert application.runs == [["A"]]
    assert job.delivery.resubmission_of_id == failed.pk


def test_an_xor_document_in_doubt_that_is_resubmitted_yields_to_the_one_that_was_processed(
    time: FrozenClock, partner: PartnerSide
) -> None:
    trigger = made("only_one", kind="pull", callable_name="", lease_seconds=60)
    documents_from(partner, "A", conversation="c1")
    (leased,) = pulling.lease(trigger.pk, limit=1, consumer="erp")
    pulling.complete(leased.delivery.pk, leased.claim)
    DocumentStarted.objects.create(  # another copy of B was begun once, and lost
        trigger=trigger,
        sender_id=leased.delivery.sender_id,
        document_id="b@partner.example",
        delivery_id=leased.delivery.pk,
        started_at=clock.now(),
    )
    (b,) = documents_from(partner, "B", conversation="c1", message_id="b@partner.example")
    assert pulling.lease(trigger.pk, limit=1, consumer="erp") == []
    assert states(b) == [DeliveryState.IN_DOUBT]
    in_doubt = Delivery.objects.get(message=b)
    settling.delivery_settle(delivery_id=in_doubt.pk, decision="resubmit", actor=PERSON, reason="not processed")
    assert pulling.lease(trigger.pk, limit=1, consumer="erp") == []
    assert Delivery.objects.get(resubmission_of=in_doubt).state == DeliveryState.DISCARDED


def test_w42_or_join(partner: PartnerSide, application: Application) -> None:
    made("any")
    documents_from(partner, "A", "B", conversation="c1")
    work()
    assert application.runs == [["A"], ["B"]]
    assert Join.objects.count() == 0


def test_a_document_without_a_conversation_has_nothing_in_common_with_others(
    partner: PartnerSide, join_all: Trigger, application: Application
) -> None:
    a, b = documents_from(partner, "A", "B", conversation="c1")
    Message.objects.filter(pk__in=[a.pk, b.pk]).update(conversation_id="")
    work()
    assert application.runs == []
    assert set(Join.objects.values_list("activation", flat=True)) == {a.message_id, b.message_id}


def test_a_trigger_without_detection_joins_and_leaves_no_history(
    partner: PartnerSide, application: Application
) -> None:
    made("all", detect_duplicates=False)
    documents_from(partner, "A", "B", conversation="c1")
    work()
    assert application.runs == [["A", "B"]]
    assert not DocumentCompleted.objects.exists()
    assert not DocumentStarted.objects.exists()


S, OTHER = "urn:orders", "urn:other"


@pytest.mark.parametrize(
    ("wanted", "came", "complete"),
    [
        ([(S, "A"), (S, "B")], [(S, "A")], False),
        ([(S, "A"), (S, "B")], [(S, "B"), (S, "A")], True),
        ([(S, "A"), (S, "B")], [(S, "A"), (S, "A")], False),
        ([(S, "A"), (OTHER, "A")], [(S, "A"), (S, "A")], False),
        ([(S, "A"), (OTHER, "A")], [(OTHER, "A"), (S, "A")], True),
        ([(S, "*"), (S, "A")], [(S, "A")], False),
        ([(S, "*"), (S, "A")], [(S, "A"), (S, "C")], True),
        ([(S, "*"), (S, "A")], [(S, "C"), (S, "A")], True),
        ([(S, "*"), (S, "A")], [(S, "A"), (S, "A")], True),
        ([(S, "*"), (S, "A")], [(S, "C"), (S, "C")], False),
        ([(S, "*"), (OTHER, "*")], [(S, "C"), (S, "D"), (OTHER, "E")], True),
    ],
)
def test_each_document_that_is_wanted_needs_one_that_came(
    wanted: list[tuple[str, str]], came: list[tuple[str, str]], complete: bool
) -> None:
    documents = [{"service": service, "action": action} for service, action in wanted]
    assert handing_over._is_complete(documents, came) is complete


@pytest.mark.django_db(transaction=True)
def test_documents_that_are_claimed_at_the_same_time_fire_once(application: Application) -> None:
    trigger = made("all", ordered=False, concurrency=10)
    partners = [partner_side() for _ in range(2)]
    for number in range(5):
        documents_from(partners[0], "A", conversation=f"c{number}")
        documents_from(partners[1], "B", conversation=f"c{number}")
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def claim_and_run() -> None:
        try:
            start.wait(120)
            for _ in range(10):
                work()
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=claim_and_run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    work()
    assert sorted(document.conversation_id for document in application.documents) == [f"c{n}" for n in range(5)]
    assert all(len(document.others) == 1 for document in application.documents)
    assert set(Delivery.objects.filter(trigger=trigger).values_list("state", flat=True)) == {DeliveryState.COMPLETED}
