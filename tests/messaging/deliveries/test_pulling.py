"""Pull queues: lease, complete, fail, release, extend; and the document history behind them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import OperationalError, connection, transaction

from messaging import applications
from messaging.applications import Document, Transient
from messaging.choices import DeliveryState, TriggerState
from messaging.deliveries.services import claiming, history, pulling, triggering
from messaging.engine import forgetting
from messaging.exceptions import InvalidSubmission, NotFound, WrongState
from messaging.models import Delivery, DocumentCompleted, DocumentStarted, Event, Incident, Trigger
from messaging.overview.services import housekeeping
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.ids import uuid7
from tests.messaging.conftest import NOON
from tests.messaging.deliveries.documents import copy_of, documents_from, make_queue
from tests.messaging.deliveries.stage import PERSON
from tests.messaging.factories import PartnerSide, partner_side

pytestmark = pytest.mark.django_db

DAY = 86_400


@pytest.fixture
def partner(time: FrozenClock) -> PartnerSide:
    return partner_side()


def take(trigger: Trigger, limit: int = 1, consumer: str = "erp", seconds: int | None = None) -> list[pulling.Leased]:
    return pulling.lease(trigger.pk, limit=limit, consumer=consumer, seconds=seconds)


def one(trigger: Trigger) -> pulling.Leased:
    (leased,) = take(trigger)
    return leased


def again(leased: pulling.Leased) -> Delivery:
    return Delivery.objects.get(pk=leased.delivery.pk)


def ids(leases: list[pulling.Leased]) -> list[str]:
    return [leased.delivery.message.message_id for leased in leases]


def lost(time: FrozenClock, leased: pulling.Leased) -> None:
    """The consumer dies, its lease runs out, and a worker's next round sees it."""
    time.move((leased.until - clock.now()).total_seconds())
    assert claiming.claim_due(limit=10) == []


def event_types() -> list[str]:
    return list(Event.objects.filter(type__startswith="delivery.").order_by("id").values_list("type", flat=True))


# --- the life of a lease ---


def test_a_document_is_leased_and_completed(partner: PartnerSide) -> None:
    trigger = make_queue(lease_seconds=60)
    (message,) = documents_from(partner, "NewOrder")
    leased = one(trigger)
    assert leased.delivery.message == message
    assert leased.until == NOON + timedelta(seconds=60)
    row = again(leased)
    assert (row.state, row.verdict, row.taken_by, row.executions) == (DeliveryState.RUNNING, "new", "erp", 1)
    assert DocumentStarted.objects.get().delivery_id == row.pk, "begun before anybody has it"
    assert take(trigger) == []
    done = pulling.complete(leased.delivery.pk, leased.claim)
    assert (done.state, done.due_at) == (DeliveryState.COMPLETED, None)
    assert not DocumentStarted.objects.exists()
    assert DocumentCompleted.objects.get().outcome == "success"
    assert event_types() == ["delivery.completed"]
    assert take(trigger) == []


def test_completing_twice_changes_nothing(time: FrozenClock, partner: PartnerSide) -> None:
    trigger = make_queue()
    documents_from(partner, "NewOrder")
    leased = one(trigger)
    first = pulling.complete(leased.delivery.pk, leased.claim)
    time.move(5)
    second = pulling.complete(leased.delivery.pk, leased.claim)
    assert (second.completed_at, second.version) == (first.completed_at, first.version)
    assert event_types() == ["delivery.completed"]
    with pytest.raises(WrongState) as refused:
        pulling.complete(leased.delivery.pk, uuid.uuid4())
    assert refused.value.code == "lease_over"
    with pytest.raises(WrongState):
        pulling.fail(leased.delivery.pk, leased.claim, "no, after all")
    with pytest.raises(WrongState):
        pulling.release(leased.delivery.pk, leased.claim)


def test_a_consumer_that_fails_is_done_with_the_document(partner: PartnerSide) -> None:
    trigger = make_queue()
    first, _ = documents_from(partner, "NewOrder", "NewOrder")
    leased = one(trigger)
    failed = pulling.fail(leased.delivery.pk, leased.claim, "no such\narticle\x00")
    assert (failed.state, failed.cause, failed.cause_detail) == (
        DeliveryState.FAILED,
        "service_error",
        "no such article ",
    )
    assert pulling.fail(leased.delivery.pk, leased.claim, "again").version == failed.version
    assert Incident.objects.get(trigger=trigger).cause == "documents_failed"
    assert DocumentCompleted.objects.get().outcome == "error"
    assert ids(take(trigger)) != [first.message_id], "the next document goes on"
    with pytest.raises(InvalidSubmission):
        pulling.fail(leased.delivery.pk, leased.claim, " ")


def test_a_failure_suspends_an_ordered_queue_that_says_so(partner: PartnerSide) -> None:
    trigger = make_queue(suspend_on_error=True)
    documents_from(partner, "NewOrder", "NewOrder")
    leased = one(trigger)
    pulling.fail(leased.delivery.pk, leased.claim, "no such article")
    with pytest.raises(WrongState) as refused:
        take(trigger)
    assert refused.value.state == TriggerState.SUSPENDED


def test_what_is_released_is_new_again(time: FrozenClock, partner: PartnerSide) -> None:
    trigger = make_queue()
    documents_from(partner, "NewOrder")
    leased = one(trigger)
    back = pulling.release(leased.delivery.pk, leased.claim, delay=30)
    assert (back.state, back.redelivery_count, back.retries) == (DeliveryState.WAITING, 0, 0)
    assert not DocumentStarted.objects.exists()
    time.move(29)
    assert take(trigger) == []
    time.move(1)
    second = one(trigger)
    assert again(second).verdict == "new"
    assert second.claim != leased.claim
    with pytest.raises(WrongState):
        pulling.complete(leased.delivery.pk, leased.claim)
    pulling.complete(second.delivery.pk, second.claim)
    assert again(second).executions == 2
    assert Incident.objects.count() == 0


def test_a_lease_that_ran_out_is_a_redelivery_and_in_doubt(time: FrozenClock, partner: PartnerSide) -> None:
    trigger = make_queue(lease_seconds=60)
    documents_from(partner, "NewOrder", "NewOrder")
    leased = one(trigger)
    lost(time, leased)
    row = again(leased)
    assert (row.state, row.redelivery_count) == (DeliveryState.WAITING, 1)
    (following,) = take(trigger)
    row = again(leased)
    assert (row.state, row.verdict, row.doubt) == (DeliveryState.IN_DOUBT, "in_doubt", "started_not_completed")
    assert following.delivery.pk != row.pk, "and the next one goes on"
    assert Incident.objects.get(trigger=trigger).cause == "documents_in_doubt"
    for late in (
        lambda: pulling.complete(leased.delivery.pk, leased.claim),
        lambda: pulling.fail(leased.delivery.pk, leased.claim, "late"),
        lambda: pulling.release(leased.delivery.pk, leased.claim),
        lambda: pulling.extend(leased.delivery.pk, leased.claim, 60),
    ):
        with pytest.raises(WrongState) as refused:
            late()
        assert (refused.value.code, refused.value.state) == ("lease_over", DeliveryState.IN_DOUBT)
    assert DocumentStarted.objects.filter(delivery_id=row.pk).exists()


def test_a_lease_counts_until_somebody_else_may_have_the_document(time: FrozenClock, partner: PartnerSide) -> None:
    trigger = make_queue(lease_seconds=60)
    documents_from(partner, "NewOrder")
    leased = one(trigger)
    time.move(61)
    assert pulling.complete(leased.delivery.pk, leased.claim).state == DeliveryState.COMPLETED


def test_a_lease_is_extended(time: FrozenClock, partner: PartnerSide) -> None:
    trigger = make_queue(lease_seconds=60)
    documents_from(partner, "NewOrder")
    leased = one(trigger)
    time.move(50)
    assert pulling.extend(leased.delivery.pk, leased.claim, 100).due_at == NOON + timedelta(seconds=150)
    time.move(99)
    claiming.claim_due(limit=10)
    assert pulling.complete(leased.delivery.pk, leased.claim).state == DeliveryState.COMPLETED


def test_without_history_a_lost_lease_is_in_doubt_by_its_redelivery_count(
    time: FrozenClock, partner: PartnerSide
) -> None:
    trigger = make_queue(use_history=False)
    documents_from(partner, "NewOrder", "NewOrder")
    first = one(trigger)
    pulling.release(first.delivery.pk, first.claim)
    first = one(trigger)
    lost(time, first)
    assert ids(take(trigger)) != [first.delivery.message.message_id]
    assert (again(first).state, again(first).doubt) == (DeliveryState.IN_DOUBT, "redelivered_without_memory")


# --- the resolver ---


class Resolver:
    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: list[Document] = []

    def __call__(self, document: Document) -> object:
        self.asked.append(document)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


Resolving = Callable[[object], Resolver]


@pytest.fixture
def resolving(monkeypatch: pytest.MonkeyPatch) -> Resolving:
    def register(answer: object) -> Resolver:
        made = Resolver(answer)
        monkeypatch.setitem(applications.RESOLVERS, "erp", made)
        return made

    return register


def resolved_queue(**values: object) -> Trigger:
    return make_queue(resolver="callable", resolver_callable="erp", ordered=False, concurrency=10, **values)


def test_the_resolver_is_asked_about_a_lost_lease_and_says_new(
    time: FrozenClock, partner: PartnerSide, resolving: Resolving
) -> None:
    resolver = resolving("NEW")
    trigger = resolved_queue(lease_seconds=60)
    documents_from(partner, "NewOrder")
    first = one(trigger)
    assert resolver.asked == []
    lost(time, first)
    time.move(10)
    second = one(trigger)
    assert [document.redelivery_count for document in resolver.asked] == [1]
    assert second.delivery.pk == first.delivery.pk
    assert second.until == clock.now() + timedelta(seconds=60)
    assert again(second).taken_by == "erp"
    for earlier in (
        lambda: pulling.complete(first.delivery.pk, first.claim),
        lambda: pulling.fail(first.delivery.pk, first.claim, "late"),
        lambda: pulling.release(first.delivery.pk, first.claim),
        lambda: pulling.extend(first.delivery.pk, first.claim, 600),
    ):
        with pytest.raises(WrongState) as refused:
            earlier()
        assert (refused.value.code, refused.value.state) == ("lease_over", DeliveryState.RUNNING)
    assert pulling.complete(second.delivery.pk, second.claim).state == DeliveryState.COMPLETED
    assert not DocumentStarted.objects.exists()


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("DUPLICATE", DeliveryState.DUPLICATE),
        ("IN DOUBT", DeliveryState.IN_DOUBT),
        ("maybe", DeliveryState.IN_DOUBT),
        (ValueError("bug"), DeliveryState.IN_DOUBT),
    ],
)
def test_the_resolver_says_something_else(
    time: FrozenClock, partner: PartnerSide, resolving: Resolving, answer: object, state: str
) -> None:
    resolving(answer)
    trigger = resolved_queue()
    documents_from(partner, "NewOrder")
    first = one(trigger)
    lost(time, first)
    assert take(trigger) == []
    assert again(first).state == state


def test_a_resolver_that_cannot_answer_suspends_the_queue_and_the_rest_keeps_its_place(
    time: FrozenClock, partner: PartnerSide, resolving: Resolving
) -> None:
    resolver = resolving(Transient("maintenance"))
    trigger = resolved_queue()
    documents_from(partner, "NewOrder", "NewOrder", "NewOrder")
    leases = take(trigger, limit=3)
    lost(time, leases[0])
    assert take(trigger, limit=3) == []
    assert len(resolver.asked) == 1
    assert {again(leased).state for leased in leases} == {DeliveryState.WAITING}
    assert {again(leased).redelivery_count for leased in leases} == {1}
    trigger.refresh_from_db()
    assert (trigger.state, trigger.cause) == (TriggerState.SUSPENDED, "resolver_unavailable")
    resolver.answer = "NEW"
    triggering.trigger_resume(trigger_id=trigger.pk, actor=PERSON, reason="it is up again")
    assert ids(take(trigger, limit=3)) == ids(leases)


def test_a_slow_resolver_does_not_hold_the_consumer_for_ever(
    time: FrozenClock, partner: PartnerSide, resolving: Resolving, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = resolving("NEW")
    seconds = iter(range(0, 10_000, 20))
    monkeypatch.setattr(pulling, "monotonic", lambda: next(seconds))
    trigger = resolved_queue(timeout=30)
    documents_from(partner, "NewOrder", "NewOrder", "NewOrder")
    leases = take(trigger, limit=3)
    lost(time, leases[0])
    assert ids(take(trigger, limit=3)) == ids(leases[:1])
    assert len(resolver.asked) == 1
    assert [again(leased).state for leased in leases] == ["running", "waiting", "waiting"]
    assert [again(leased).redelivery_count for leased in leases] == [1, 1, 1]


def test_crash_while_the_resolver_is_asked(
    time: FrozenClock, partner: PartnerSide, resolving: Resolving, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    resolving("NEW")
    trigger = resolved_queue(lease_seconds=60)
    documents_from(partner, "NewOrder")
    first = one(trigger)
    lost(time, first)

    def die(document: Document) -> object:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setitem(applications.RESOLVERS, "erp", die)
        take(trigger)
    assert take(trigger) == []
    time.move(60)
    assert one(trigger).delivery.pk == first.delivery.pk
    assert again(first).redelivery_count == 2


# --- order and concurrency ---


def test_ordered_queue_gives_the_next_of_a_pair_only_after_the_one_before(
    time: FrozenClock, partner: PartnerSide
) -> None:
    trigger = make_queue(ordered=True, concurrency=10)
    first, second = documents_from(partner, "NewOrder", "NewOrder")
    (other,) = documents_from(partner_side(), "NewOrder")
    leases = take(trigger, limit=10)
    assert sorted(ids(leases)) == sorted([first.message_id, other.message_id])
    head = next(leased for leased in leases if leased.delivery.message == first)
    pulling.release(head.delivery.pk, head.claim, delay=60)
    assert take(trigger, limit=10) == [], "the second waits for the first"
    time.move(60)
    (head,) = take(trigger, limit=10)
    assert head.delivery.message == first
    pulling.complete(head.delivery.pk, head.claim)
    assert ids(take(trigger, limit=10)) == [second.message_id]


def test_the_queue_has_no_more_documents_out_than_its_concurrency(partner: PartnerSide) -> None:
    trigger = make_queue(ordered=False, concurrency=3)
    sent = [message.message_id for message in documents_from(partner, *["NewOrder"] * 5)]
    first = take(trigger, limit=2)
    assert ids(first) == sent[:2]
    assert ids(take(trigger, limit=5, consumer="other")) == sent[2:3]
    assert take(trigger, limit=5) == []
    pulling.complete(first[0].delivery.pk, first[0].claim)
    assert ids(take(trigger, limit=5)) == sent[3:4]


def test_the_hub_itself_hands_nothing_of_a_pull_queue_out(partner: PartnerSide) -> None:
    make_queue()
    documents_from(partner, "NewOrder")
    assert claiming.claim_due(limit=10) == []
    assert Delivery.objects.get().state == DeliveryState.WAITING


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("ordered", [True, False])
def test_two_consumers_at_the_same_time_never_get_the_same_document(ordered: bool) -> None:
    partners = [partner_side() for _ in range(3)]
    trigger = make_queue(ordered=ordered, concurrency=64)
    for partner in partners:
        documents_from(partner, *["NewOrder"] * 10)
    taken: list[tuple[uuid.UUID, str]] = []
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def consume(name: str) -> None:
        try:
            start.wait(120)
            while leases := take(trigger, limit=2, consumer=name):
                for leased in leases:
                    taken.append((leased.delivery.pk, name))
                    pulling.complete(leased.delivery.pk, leased.claim)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=consume, args=(f"consumer {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    while leases := take(trigger, limit=10):  # a consumer stops when all heads are out at that moment
        for leased in leases:
            taken.append((leased.delivery.pk, "last"))
            pulling.complete(leased.delivery.pk, leased.claim)
    assert len(taken) == len({key for key, _ in taken}) == 30
    assert set(Delivery.objects.values_list("state", "executions")) == {(DeliveryState.COMPLETED, 1)}


@pytest.mark.django_db(transaction=True)
def test_leases_of_one_queue_wait_for_each_other() -> None:
    """Else two of them would count the same free places, and give out two documents of one pair."""
    trigger = make_queue()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Trigger.objects.select_for_update(no_key=True).get(pk=trigger.pk)
                held.set()
                done.wait(120)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(120)
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '50ms'")
        with pytest.raises(OperationalError, match="lock timeout"):
            take(trigger)
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")  # whoever has this connection next waits as always
    finally:
        done.set()
        thread.join(120)
        connection.close()
    assert take(trigger) == []


@pytest.mark.django_db(transaction=True)
def test_two_who_complete_the_same_lease_at_the_same_time_complete_it_once() -> None:
    trigger = make_queue()
    documents_from(partner_side(), "NewOrder")
    leased = one(trigger)
    start = threading.Barrier(4)
    states: list[str] = []

    def complete() -> None:
        start.wait(120)
        try:
            states.append(pulling.complete(leased.delivery.pk, leased.claim).state)
        finally:
            connection.close()

    threads = [threading.Thread(target=complete) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert states == [DeliveryState.COMPLETED] * 4
    assert event_types() == ["delivery.completed"]


# --- copies, and how long they are remembered ---


def test_a_copy_of_a_completed_document_is_a_duplicate(partner: PartnerSide) -> None:
    trigger = make_queue()
    (message,) = documents_from(partner, "NewOrder")
    leased = one(trigger)
    pulling.complete(leased.delivery.pk, leased.claim)
    copy = copy_of(message, trigger)
    assert take(trigger) == []
    copy.refresh_from_db()
    assert (copy.state, copy.verdict) == (DeliveryState.DUPLICATE, "duplicate")


def test_many_duplicates_do_not_hide_the_document_behind_them(partner: PartnerSide) -> None:
    trigger = make_queue(ordered=False)
    first, last = documents_from(partner, "NewOrder", "NewOrder")
    leased = one(trigger)
    pulling.complete(leased.delivery.pk, leased.claim)
    for _ in range(40):
        copy_of(first, trigger, due_at=NOON - timedelta(seconds=5))
    assert ids(take(trigger)) == [last.message_id]
    assert Delivery.objects.filter(state=DeliveryState.DUPLICATE).count() == 40


def test_w15_a_copy_after_its_history_was_swept_is_new(time: FrozenClock, partner: PartnerSide) -> None:
    trigger = make_queue(history_ttl=2 * 3600)
    (message,) = documents_from(partner, "NewOrder")
    leased = one(trigger)
    pulling.complete(leased.delivery.pk, leased.claim)
    time.move(2 * 3600 + 11 * 60)
    while forgetting.drop_due(clock.now()) == 0:
        time.move(3600)
    assert not DocumentCompleted.objects.exists()
    assert clock.now() - NOON < timedelta(days=2), "a day more at the most than the day that holds the end of its time"
    copy = copy_of(message, trigger)
    assert one(trigger).delivery.pk == copy.pk


def test_w16_a_copy_after_its_time_is_a_duplicate_until_its_history_is_swept(
    time: FrozenClock, partner: PartnerSide
) -> None:
    trigger = make_queue(history_ttl=3 * DAY)
    (message,) = documents_from(partner, "NewOrder")
    leased = one(trigger)
    pulling.complete(leased.delivery.pk, leased.claim)
    time.move(20 * DAY)
    copy = copy_of(message, trigger)
    assert take(trigger) == []
    copy.refresh_from_db()
    assert copy.state == DeliveryState.DUPLICATE
    housekeeping.run()
    assert not DocumentCompleted.objects.exists()
    later = copy_of(message, trigger)
    assert one(trigger).delivery.pk == later.pk


def test_a_day_whose_documents_have_time_left_is_not_swept(time: FrozenClock, partner: PartnerSide) -> None:
    trigger = make_queue(history_ttl=3 * DAY)
    (message,) = documents_from(partner, "NewOrder")
    leased = one(trigger)
    pulling.complete(leased.delivery.pk, leased.claim)
    time.move(3 * DAY)
    forgetting.drop_due(clock.now())
    copy_of(message, trigger)
    assert take(trigger) == []
    assert history.look(trigger, [leased.delivery])[leased.delivery.pk] == "completed"


# --- what is refused ---


def test_what_a_lease_may_ask_for() -> None:
    trigger = make_queue()
    for wrong in ({"limit": 0}, {"limit": 65}, {"limit": 1, "seconds": 4}, {"limit": 1, "seconds": DAY + 1}):
        with pytest.raises(InvalidSubmission):
            pulling.lease(trigger.pk, consumer="erp", **wrong)
    with pytest.raises(NotFound):
        pulling.lease(uuid7(), limit=1, consumer="erp")
    assert take(trigger) == []


def test_only_pull_queues_are_leased_from(partner: PartnerSide) -> None:
    trigger = make_queue(kind="http", url="http://127.0.0.1:1/documents")
    documents_from(partner, "NewOrder")
    with pytest.raises(WrongState) as refused:
        take(trigger)
    assert refused.value.code == "not_a_pull_queue"
    (job,) = claiming.claim_due(limit=1)
    with pytest.raises(WrongState) as refused:
        pulling.complete(job.delivery.pk, job.claim)
    assert refused.value.code == "not_a_pull_queue"


def test_nothing_is_leased_from_a_queue_that_is_held(partner: PartnerSide) -> None:
    trigger = make_queue()
    documents_from(partner, "NewOrder", "NewOrder")
    leased = one(trigger)
    triggering.trigger_suspend(trigger_id=trigger.pk, actor=PERSON, reason="stocktaking")
    with pytest.raises(WrongState) as refused:
        take(trigger)
    assert refused.value.state == TriggerState.SUSPENDED
    assert pulling.complete(leased.delivery.pk, leased.claim).state == DeliveryState.COMPLETED
    triggering.trigger_disable(trigger_id=trigger.pk, actor=PERSON, reason="not used")
    with pytest.raises(WrongState):
        take(trigger)


@pytest.mark.parametrize("delay", [-1, pulling.MAX_DELAY + 1])
def test_a_delay_that_is_none(partner: PartnerSide, delay: int) -> None:
    trigger = make_queue()
    documents_from(partner, "NewOrder")
    leased = one(trigger)
    with pytest.raises(InvalidSubmission):
        pulling.release(leased.delivery.pk, leased.claim, delay)
    with pytest.raises(InvalidSubmission):
        pulling.extend(leased.delivery.pk, leased.claim, 4)
    with pytest.raises(NotFound):
        pulling.complete(uuid7(), leased.claim)
    with pytest.raises(NotFound):
        pulling.extend(uuid7(), leased.claim, 60)
