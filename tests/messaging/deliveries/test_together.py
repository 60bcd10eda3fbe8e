"""Documents for several services in one transaction: X09, X10, X11, and what keeps a lost hand-over out of doubt."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection

from messaging import applications
from messaging.applications import Document, Transient
from messaging.deliveries.services import claiming, settling, talking, triggering
from messaging.engine import memory as hub_memory
from messaging.exceptions import InvalidSubmission
from messaging.models import (
    AuditEntry,
    Coordination,
    Delivery,
    DocumentCompleted,
    DocumentStarted,
    Enlistment,
    Event,
    Incident,
    Message,
    Trigger,
)
from messaging.profiles.wsat import asking, delivering, due
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging import factories
from tests.messaging.deliveries.stage import (
    BROKEN,
    PERSON,
    Application,
    Asked,
    arrive,
    claim,
    copy_of,
    finish,
    http,
    lose,
    make_trigger,
    now_of,
    states,
    work,
)
from tests.messaging.deliveries.together import Shop, atomic, coordination, decide, shop
from tests.messaging.factories import REFUSED, PartnerSide, link

pytestmark = pytest.mark.django_db

Effected = Callable[[], list[str]]


@pytest.fixture
def first(app: Application) -> Shop:
    return shop(app, "/first")


@pytest.fixture
def second(app: Application) -> Shop:
    return shop(app, "/second")


@pytest.fixture
def effected(monkeypatch: pytest.MonkeyPatch) -> Effected:
    """The callable "books" writes into a table of the application's own; the fixture reads that."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE books (document_id text NOT NULL)")

    def book(document: Document) -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO books VALUES (%s)", [document.document_id])

    def read() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT document_id FROM books")
            return [row[0] for row in cursor.fetchall()]

    monkeypatch.setitem(applications.SERVICES, "books", book)
    return read


def vote(*shops: Shop, note: Note = Note.PREPARED) -> None:
    for one in shops:
        assert one.last.say(note) == 202


def begun() -> list[str]:
    return list(DocumentStarted.objects.values_list("document_id", flat=True))


def completed() -> list[tuple[str, str]]:
    return list(DocumentCompleted.objects.values_list("document_id", "outcome"))


def test_all_services_process_the_document_or_none_does(
    time: FrozenClock, partner: PartnerSide, first: Shop, second: Shop, effected: Effected
) -> None:
    atomic(first, second, callables=("books",))
    (delivery,) = arrive(partner, "m1@partner.example")
    assert work() == 1
    assert [len(one.documents) for one in (first, second)] == [1, 1]
    assert first.documents[0].headers["rm-coordination-identifier"] == coordination().identifier
    assert first.last.heard() == second.last.heard() == ["Prepare"]
    assert (states(delivery), effected(), completed()) == (["running"], [], [])
    vote(first, second)
    assert (coordination().phase, effected()) == (Phase.DECIDING, []), "no web process runs an application's code"
    decide()
    assert states(delivery) == ["completed"]
    assert effected() == ["m1@partner.example"]
    assert (begun(), completed()) == ([], [("m1@partner.example", "success")])
    assert coordination().decided_at is not None
    assert first.last.heard() == second.last.heard() == ["Prepare", "Commit"]
    vote(first, second, note=Note.COMMITTED)
    assert coordination().phase == Phase.COMMITTED


def test_a_member_is_no_initiator_of_its_hand_over(
    time: FrozenClock, partner: PartnerSide, first: Shop, second: Shop
) -> None:
    """It could else have the first ones commit before the others have the document."""
    asked: list[FaultCode | None] = []
    enlisting = first.enlisting()

    def completing(document: Asked) -> bytes:
        answer = enlisting(document)
        first.peer.ask_register(first.contexts[-1], Protocol.COMPLETION, message_id="urn:uuid:initiator")
        asked.extend(one.fault for one in first.peer.answers_to("urn:uuid:initiator"))
        return answer

    first.plan(completing)
    atomic(first, second)
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    assert asked == [FaultCode.CANNOT_REGISTER]
    assert not Enlistment.objects.filter(protocol=Protocol.COMPLETION).exists()
    assert len(second.documents) == 1
    vote(first, second)
    decide()
    assert states(delivery) == ["completed"]


def test_x09_a_participant_votes_aborted(
    time: FrozenClock, partner: PartnerSide, second: Shop, effected: Effected
) -> None:
    """Delivery to local A and remote B: A is rolled back, STARTED released, and the retry is NEW."""
    atomic(second, callables=("books",), retry_interval=10, max_retries=3)
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    assert begun() == ["m1@partner.example"]
    vote(second, note=Note.ABORTED)
    decide()
    assert (effected(), begun(), completed()) == ([], [], [])
    waiting = now_of(delivery)
    assert (waiting.state, waiting.redelivery_count, waiting.retries) == ("waiting", 1, 1)
    assert waiting.cause == "transaction_voted_no"
    assert work() == 0, "it waits for its interval"

    time.move(10)
    assert work() == 1
    again = now_of(delivery)
    assert (again.verdict, again.executions, again.redelivery_count) == ("new", 2, 1)
    assert second.documents[-1].headers["rm-redelivery-count"] == "1"
    vote(second)
    decide()
    assert (states(delivery), effected()) == (["completed"], ["m1@partner.example"])
    assert Coordination.objects.count() == 2


def test_x10_the_coordinator_dies_after_the_commit_record(
    time: FrozenClock, partner: PartnerSide, second: Shop, effected: Effected
) -> None:
    """Nothing but rows is left: after the restart A and B have both committed, each of them once."""
    atomic(second, callables=("books",))
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    vote(second)
    decide()
    # Here it dies: no wake-up came through, and Commit was never sent.
    assert Message.objects.filter(action="Commit", state="queued").count() == 1
    assert (coordination().phase, states(delivery)) == (Phase.COMMITTING, ["completed"])
    with link() as wire:
        factories.work()
        assert len([parcel for parcel in wire.parcels if b"Commit" in parcel.body]) == 1
    vote(second, note=Note.COMMITTED)
    assert coordination().phase == Phase.COMMITTED
    assert work() == 0
    assert (effected(), len(second.documents), now_of(delivery).executions) == (["m1@partner.example"], 1, 1)
    assert completed() == [("m1@partner.example", "success")]


def test_x10_the_coordinator_dies_before_the_commit_record(
    time: FrozenClock,
    partner: PartnerSide,
    second: Shop,
    effected: Effected,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was done without the record is gone with it, and the outcome is still open."""
    atomic(second, callables=("books",))
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    vote(second)

    def dies(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(delivering.dispatch, "wake_on_commit", dies)  # the last thing of the hub's own share
    with pytest.raises(SystemExit):
        decide()
    monkeypatch.undo()
    assert (effected(), states(delivery), coordination().decided_at) == ([], ["running"], None)


def test_x11_a_participant_is_not_reached_in_phase_two_for_hours(
    time: FrozenClock, partner: PartnerSide, first: Shop, second: Shop
) -> None:
    atomic(first, second)
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    with link():
        factories.work()
    vote(first, second)
    vote(first, note=Note.COMMITTED)
    with link(REFUSED) as wire:
        for _ in range(36):
            factories.work()
            time.move(300)
            assert work() == 0, "the document is not handed over again"
            decide()
        sent = [parcel for parcel in wire.parcels if parcel.address == second.last.own.address]
        assert len(sent) > 10
        assert len({parcel.body for parcel in sent if b"Commit<" in parcel.body or b"Commit/>" in parcel.body}) == 1
    assert coordination().phase == Phase.COMMITTING
    assert (states(delivery), now_of(delivery).executions) == (["completed"], 1)
    vote(second, note=Note.COMMITTED)
    assert coordination().phase == Phase.COMMITTED


def test_a_member_that_does_not_register_has_it_rolled_back(
    time: FrozenClock, partner: PartnerSide, first: Shop, second: Shop
) -> None:
    atomic(first, second)
    second.plan(http(200, "done, on my own"))
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    failed = now_of(delivery)
    assert (failed.state, failed.cause) == ("failed", "member_not_enlisted")
    assert coordination().phase == Phase.ABORTING
    assert first.last.heard() == ["Rollback"]
    assert Incident.objects.get().cause == "documents_failed"


@pytest.mark.parametrize(
    ("answer", "state", "cause"),
    [
        (http(503), "waiting", "service_not_now"),
        (http(500, "I cannot"), "failed", "service_error"),
        (http(502), "waiting", "service_outcome_unknown"),
        (BROKEN, "waiting", "service_outcome_unknown"),
    ],
    ids=["not now", "error", "gateway", "no answer"],
)
def test_a_member_that_fails_has_it_rolled_back(
    time: FrozenClock, partner: PartnerSide, first: Shop, second: Shop, answer: bytes, state: str, cause: str
) -> None:
    """Also when its answer is lost: it cannot have committed, so that nothing is in doubt."""
    atomic(first, second)
    second.plan(second.enlisting(answer) if answer else BROKEN)
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    after = now_of(delivery)
    assert (after.state, after.cause, after.redelivery_count) == (state, cause, 1)
    assert begun() == []
    assert first.last.heard() == ["Rollback"]
    assert coordination().phase == Phase.ABORTING
    assert coordination().cause == cause


def test_a_participant_may_leave_before_it_is_asked(
    time: FrozenClock, partner: PartnerSide, first: Shop, second: Shop
) -> None:
    atomic(first, second)
    first.plan(first.enlisting(first=Note.READ_ONLY))
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    vote(second)
    assert (states(delivery), first.last.heard()) == (["completed"], [])
    second.plan(second.enlisting(first=Note.ABORTED))
    (other,) = arrive(partner, "m2@partner.example")
    work()
    assert (states(other), coordination().phase) == (["waiting"], Phase.ABORTED)


def test_nobody_votes_in_time(time: FrozenClock, partner: PartnerSide, first: Shop, second: Shop) -> None:
    trigger = atomic(first, second, timeout=30, retry_interval=0)
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    vote(first)
    time.move(31)
    decide()
    assert (now_of(delivery).state, now_of(delivery).cause) == ("waiting", "transaction_expired")
    assert first.last.heard() == ["Prepare", "Rollback"]
    trigger.refresh_from_db()
    assert trigger.failing_since is not None
    work()
    vote(first, second)
    assert states(delivery) == ["completed"]
    trigger.refresh_from_db()
    assert trigger.failing_since is None


def test_a_worker_that_dies_while_it_hands_over_leaves_nothing_in_doubt(
    time: FrozenClock, partner: PartnerSide, first: Shop, second: Shop
) -> None:
    atomic(first, second)
    (delivery,) = arrive(partner, "m1@partner.example")
    second.plan(BROKEN)

    (job,) = claim()
    talking.talk(job)  # the first member is enlisted, the second was not reached; nobody records what came of it
    assert coordination().phase == Phase.ACTIVE
    second.plan(second.enlisting())
    lose(job)
    assert work() == 1
    assert Coordination.objects.earliest("id").phase == Phase.ABORTING
    assert first.places[0].heard() == ["Rollback"]
    again = now_of(delivery)
    assert (again.verdict, again.redelivery_count, again.executions) == ("new", 1, 2)
    vote(first, second)
    assert states(delivery) == ["completed"]


def test_a_transaction_whose_delivery_was_taken_back_cannot_commit(
    time: FrozenClock, partner: PartnerSide, first: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim holds both together, even when nobody came to roll the first one back."""
    atomic(first)
    (delivery,) = arrive(partner, "m1@partner.example")
    jobs = claim()
    finish(jobs)
    monkeypatch.setattr("messaging.deliveries.services.together.abandon_lost", lambda claims: 0)
    lose(*jobs)
    work()
    stale, fresh = first.places
    assert stale.say(Note.PREPARED) == 202
    assert stale.heard() == ["Prepare", "Rollback"]
    assert Coordination.objects.earliest("id").cause == delivering.TAKEN_BACK
    assert states(delivery) == ["running"]
    fresh.say(Note.PREPARED)
    assert fresh.heard() == ["Prepare", "Commit"]
    assert states(delivery) == ["completed"]


def test_x22_what_a_restored_hub_was_handing_over_is_not_handed_over_again(
    time: FrozenClock, partner: PartnerSide, first: Shop
) -> None:
    """Nobody had registered yet in the backup: all may have, and may have committed, since."""
    atomic(first)
    (delivery,) = arrive(partner, "m1@partner.example")
    jobs = claim()
    hub_memory.lost(clock.now(), reason="The database was restored.", actor=PERSON)
    lose(*jobs)
    work()
    assert states(delivery) == ["in_doubt"]
    assert first.documents == []


def test_a_copy_is_a_duplicate(time: FrozenClock, partner: PartnerSide, first: Shop) -> None:
    atomic(first, ordered=False)
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    during = copy_of(delivery)
    work()
    assert states(during) == ["in_doubt"], "the first is in progress: nobody can say yet"
    vote(first)
    after = copy_of(delivery)
    work()
    assert states(delivery, after) == ["completed", "duplicate"]
    assert len(first.documents) == 1


def test_in_order_the_next_document_waits_for_the_decision(
    time: FrozenClock, partner: PartnerSide, first: Shop
) -> None:
    atomic(first, ordered=True, retry_interval=0)
    one, two = arrive(partner, "m1@partner.example", "m2@partner.example")
    assert work() == 1
    assert states(one, two) == ["running", "waiting"]
    vote(first, note=Note.ABORTED)
    assert work() == 1
    assert states(one, two) == ["running", "waiting"], "the first keeps its place"
    vote(first)
    assert work() == 1
    vote(first)
    assert states(one, two) == ["completed", "completed"]


@pytest.mark.parametrize(
    ("error", "state", "cause"),
    [(Transient("busy"), "waiting", "service_not_now"), (ValueError("no such order"), "failed", "service_error")],
    ids=["transient", "error"],
)
def test_a_callable_that_fails_rolls_everybody_back(
    time: FrozenClock,
    partner: PartnerSide,
    first: Shop,
    effected: Effected,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    state: str,
    cause: str,
) -> None:
    def fails(document: Document) -> None:
        applications.SERVICES["books"](document)
        raise error

    monkeypatch.setitem(applications.SERVICES, "zz fails", fails)
    atomic(first, callables=("books", "zz fails"))
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    vote(first)
    decide()
    after = now_of(delivery)
    assert (after.state, after.cause) == (state, cause)
    assert effected() == []
    assert first.last.heard() == ["Prepare", "Rollback"]
    assert coordination().cause_detail.endswith(str(error))
    assert "transaction.committed" not in set(Event.objects.values_list("type", flat=True))


def test_callables_alone_are_decided_by_a_worker(time: FrozenClock, partner: PartnerSide, effected: Effected) -> None:
    atomic(callables=("books",))
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    decide()
    assert (states(delivery), effected()) == (["completed"], ["m1@partner.example"])
    assert [one.local for one in Enlistment.objects.order_by("id")] == ["document history", "callable books"]


def test_nobody_is_a_member(time: FrozenClock, partner: PartnerSide) -> None:
    trigger = atomic()
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    trigger.refresh_from_db()
    assert (trigger.state, trigger.cause, states(delivery)) == ("suspended", "no_members", ["waiting"])
    assert not Coordination.objects.exists()


def test_retries_that_are_used_up_suspend_the_trigger(time: FrozenClock, partner: PartnerSide, first: Shop) -> None:
    trigger = atomic(first, max_retries=1, retry_interval=0, when_exhausted="suspend")
    (delivery,) = arrive(partner, "m1@partner.example")
    for _ in range(2):
        assert work() == 1
        vote(first, note=Note.ABORTED)
    trigger.refresh_from_db()
    assert (trigger.state, trigger.cause, states(delivery)) == ("suspended", "transaction_voted_no", ["waiting"])
    assert work() == 0


def test_the_kind_stays_while_documents_are_in_work(time: FrozenClock, partner: PartnerSide, first: Shop) -> None:
    """Else what was handed over by itself would be taken for rolled back when it is lost, or the other way round."""
    trigger = atomic(first)
    Trigger.objects.filter(member_of=trigger).update(member_of=None, state="disabled", atomic_agreement=None)
    arrive(partner, "m1@partner.example")
    claim()
    with pytest.raises(InvalidSubmission) as refused:
        triggering.trigger_update(
            trigger_id=trigger.pk, actor=PERSON, reason="fix it", kind="http", url="http://one.internal/"
        )
    assert "Documents are in progress" in refused.value.errors["kind"][0]


def test_a_callable_that_takes_its_worker_with_it_is_not_tried_for_ever(
    time: FrozenClock, partner: PartnerSide, effected: Effected
) -> None:
    trigger = atomic(callables=("books",), retry_until="success")
    (delivery,) = arrive(partner, "m1@partner.example")
    for _ in range(5):
        lose(*claim())
    assert claim() == []
    trigger.refresh_from_db()
    assert (trigger.state, trigger.cause, states(delivery)) == ("suspended", "worker_lost", ["waiting"])


def test_members_take_no_documents_by_themselves(
    time: FrozenClock, partner: PartnerSide, first: Shop, app: Application
) -> None:
    whole = atomic(first)
    alone = make_trigger(app)
    arrive(partner, "m1@partner.example")
    assert set(Delivery.objects.values_list("trigger_id", flat=True)) == {whole.pk, alone.pk}


@pytest.mark.parametrize("ends", ["error", "retries used up"])
def test_what_failed_was_processed_by_nobody_so_a_copy_is_new(
    time: FrozenClock, partner: PartnerSide, first: Shop, second: Shop, ends: str
) -> None:
    atomic(first, second, ordered=False, max_retries=0, when_exhausted="fail")
    second.plan(second.enlisting(http(500 if ends == "error" else 503)))
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    assert (states(delivery), begun(), completed()) == (["failed"], [], [])
    assert Incident.objects.get().cause == "documents_failed"
    second.plan(second.enlisting())
    copy = copy_of(delivery)
    work()
    vote(first, second)
    assert states(delivery, copy) == ["failed", "completed"]
    assert completed() == [("m1@partner.example", "success")]


def test_a_person_decides_about_what_was_rolled_back(
    time: FrozenClock, partner: PartnerSide, first: Shop, second: Shop
) -> None:
    """Processed already: copies are duplicates from then on. Again: a copy that comes meanwhile is not new."""
    atomic(first, second, ordered=False)
    second.plan(second.enlisting(http(500)))
    done, again = arrive(partner, "m1@partner.example", "m2@partner.example")
    work()
    assert (states(done, again), completed()) == (["failed", "failed"], [])
    why = "asked the application's owner"
    settling.delivery_settle(delivery_id=done.pk, decision="duplicate", actor=PERSON, reason=why)
    assert completed() == [("m1@partner.example", "operator")]
    settling.delivery_settle(delivery_id=again.pk, decision="resubmit", actor=PERSON, reason=why)
    made = Delivery.objects.get(resubmission_of=again)
    second.plan(second.enlisting())
    copies = [copy_of(done), copy_of(again)]
    work()
    assert states(made, *copies) == ["running", "duplicate", "in_doubt"]
    vote(first, second)
    assert states(made) == ["completed"]


def test_a_document_that_ends_its_workers_is_not_in_the_history(
    time: FrozenClock, partner: PartnerSide, first: Shop
) -> None:
    atomic(first, when_exhausted="fail")
    (delivery,) = arrive(partner, "m1@partner.example")
    for _ in range(claiming.POISON):
        jobs = claim()
        lose(*jobs)
    assert work() == 0
    assert (states(delivery), begun(), completed()) == (["failed"], [], [])


def test_after_a_restore_the_document_of_a_transaction_stays_in_work(
    time: FrozenClock, partner: PartnerSide, first: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when all votes were in and a worker was about to decide: a person says so, whatever comes in meanwhile."""
    monkeypatch.setitem(applications.SERVICES, "books", lambda document: None)
    atomic(first, callables=("books",))
    (delivery,) = arrive(partner, "m1@partner.example")
    work()
    first.last.say(Note.PREPARED)
    one = coordination()
    assert one.phase == Phase.DECIDING
    assert due.restored(clock.now()) == 1
    time.move(30 * 86400)
    first.last.say(Note.PREPARED)
    assert (work(), due.run_due()) == (0, 0)
    assert (states(delivery), coordination().phase) == (["running"], Phase.DECIDING)
    assert asking.allowed(coordination()) == ("commit", "rollback")
    asking.transaction_ask(
        coordination_id=one.pk, verb="commit", actor=PERSON, reason="The shop says that it was committed"
    )
    assert due.run_due() == 1
    assert (states(delivery), first.last.heard()) == (["completed"], ["Prepare", "Commit"])
    assert AuditEntry.objects.filter(verb="transaction.commit").count() == 1
