"""What people decide about documents in doubt, and that it happens once: W36, W37, X07, X08."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections

from messaging import applications
from messaging.choices import IncidentState
from messaging.deliveries.services import settling, triggering
from messaging.engine.claiming import claim_due
from messaging.exceptions import InvalidSubmission, NotFound, Stale, WrongState
from messaging.journal.audit import Actor
from messaging.models import (
    AuditEntry,
    Delivery,
    DocumentCompleted,
    DocumentStarted,
    Event,
    Incident,
    Message,
    Payload,
)
from messaging.profiles.repeatable import replies
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.ids import uuid7
from tests.messaging.deliveries.stage import (
    BROKEN,
    Application,
    application,
    arrive,
    claim,
    copy_of,
    http,
    lose,
    make_trigger,
    now_of,
    states,
    verdict,
    work,
)
from tests.messaging.factories import LOST, ORDER, PartnerSide, answered, link, partner_side, submit
from tests.messaging.factories import work as send

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANN = Actor("ann", "console", "192.0.2.9", "req-1")
WHY = "order 4711 is not in the ERP"
HOUR = 3600


@pytest.fixture(autouse=True)
def time() -> Iterator[FrozenClock]:
    with clock.frozen(NOON) as frozen:
        yield frozen


@pytest.fixture
def app() -> Iterator[Application]:
    with application() as made:
        yield made


@pytest.fixture
def partner() -> PartnerSide:
    return partner_side()


def settle(delivery: Delivery, decision: str, **values: object) -> Delivery:
    return settling.delivery_settle(
        delivery_id=delivery.pk,
        decision=decision,
        actor=ANN,
        reason=WHY,
        **values,  # type: ignore[arg-type]
    )


def doubtful(app: Application, partner: PartnerSide, *names: str, **values: object) -> list[Delivery]:
    """Documents that were handed over once, whose answers were lost: begun, never finished."""
    trigger = make_trigger(app, **values)
    plans = app.plans.get("/documents", [])
    app.plan("/documents", BROKEN)
    made = arrive(partner, *names)
    work()
    if trigger.resolver != "none":
        # It is asked after the retry interval, and not at once.
        Delivery.objects.filter(trigger=trigger, state="waiting").update(due_at=clock.now())
        work()
    app.plans["/documents"] = plans
    found = [now_of(one) for one in made]
    assert [one.state for one in found] == ["in_doubt"] * len(names)
    app.asked.clear()
    return found


def failed(app: Application, partner: PartnerSide, name: str, **values: object) -> Delivery:
    make_trigger(app, **values)
    app.plan("/documents", http(500, "cannot"), http(200))
    (made,) = arrive(partner, name)
    work()
    found = now_of(made)
    assert found.state == "failed"
    app.asked.clear()
    return found


def unresolved() -> list[str]:
    found = Incident.objects.exclude(state=IncidentState.RESOLVED)
    return sorted(found.values_list("cause", flat=True))


def history() -> list[tuple[str, str]]:
    """(document id, outcome or "started")."""
    ended = DocumentCompleted.objects.values_list("document_id", "outcome")
    return sorted(
        [*ended, *((one, "started") for one in DocumentStarted.objects.values_list("document_id", flat=True))]
    )


# --- the cases ---


def test_x07_marked_as_done_is_completed_by_an_operator_and_later_copies_are_duplicates(
    app: Application, partner: PartnerSide
) -> None:
    (delivery,) = doubtful(app, partner, "a@x")
    assert history() == [("a@x", "started")]
    settled = settle(delivery, "duplicate")
    assert (settled.state, settled.decision, settled.decided_by) == ("settled", "duplicate", "ann")
    assert settled.decided_at == NOON
    assert history() == [("a@x", "operator")]
    copy = copy_of(delivery)
    work()
    assert states(copy) == ["duplicate"]
    assert app.documents == [], "it was never run again"


def test_w36_a_document_in_doubt_is_resubmitted_once_to_the_trigger_that_saw_it(
    app: Application, partner: PartnerSide
) -> None:
    (delivery,) = doubtful(app, partner, "a@x")
    with pytest.raises(InvalidSubmission):
        settling.delivery_settle(delivery_id=delivery.pk, decision="resubmit", actor=ANN, reason="so it is")
    settled = settle(delivery, "resubmit")
    assert settled.state == "settled"
    with pytest.raises(WrongState) as caught:
        settle(delivery, "resubmit")
    assert caught.value.code == "already_settled"
    assert "resubmitted by ann" in caught.value.detail
    with pytest.raises(WrongState):
        settle(delivery, "duplicate")
    work()
    assert app.documents == ["a@x"]
    made = Delivery.objects.get(resubmission_of=delivery)
    assert (made.trigger_id, made.state, made.executions) == (delivery.trigger_id, "completed", 1)
    assert [(one["step"], one["verdict"]) for one in made.evidence] == [("operator", "new")]
    assert history() == [("a@x", "success")]
    entry = AuditEntry.objects.get(verb="delivery.resubmit")
    assert (entry.actor, entry.reason, entry.object_id) == ("ann", WHY, delivery.public_id)
    assert entry.before["doubt"] == "started_not_completed"
    assert [one["step"] for one in entry.before["evidence"]] == ["redelivery", "history"]
    assert entry.after["resubmitted_as"] == made.public_id


def test_w37_a_duplicate_is_not_resubmitted(app: Application, partner: PartnerSide) -> None:
    make_trigger(app)
    (first,) = arrive(partner, "a@x")
    work()
    copy = copy_of(first)
    work()
    assert states(first, copy) == ["completed", "duplicate"]
    for decision in settling.Decision:
        with pytest.raises(WrongState) as caught:
            settle(copy, decision, **({"remind_in": HOUR} if decision == "later" else {}))
        assert "Duplicates cannot be resubmitted" in caught.value.detail
        assert caught.value.allowed == ()
    work()
    assert app.documents == ["a@x"]
    assert not AuditEntry.objects.filter(object_type="delivery").exists()


def test_x08_a_resubmission_is_a_delivery_of_its_own_with_exactly_one_more_execution(
    app: Application, partner: PartnerSide
) -> None:
    (delivery,) = doubtful(app, partner, "a@x")
    before = Delivery.objects.get(pk=delivery.pk)
    settle(delivery, "resubmit")
    for _ in range(3):
        work()
    after = now_of(delivery)
    assert (after.state, after.message_id, after.executions) == ("settled", before.message_id, 1)
    assert after.evidence[:-1] == before.evidence, "the original stays, with what was known then"
    assert after.evidence[-1]["step"] == "operator"
    assert (after.evidence[-1]["by"], after.evidence[-1]["detail"]) == ("ann", WHY)
    made = Delivery.objects.get(resubmission_of=delivery)
    assert (made.redelivery_count, made.position, made.executions) == (0, delivery.position, 1)
    assert len(app.documents) == 1
    assert copy_of(delivery)
    work()
    assert len(app.documents) == 1, "later copies are duplicates of it"


# --- more about resubmissions ---


def test_a_resubmission_goes_before_what_came_after_the_original(app: Application, partner: PartnerSide) -> None:
    (first,) = doubtful(app, partner, "1@x", ordered=True)
    trigger = first.trigger
    triggering.trigger_suspend(trigger_id=trigger.pk, actor=ANN, reason="wait a moment")
    arrive(partner, "2@x", "3@x")
    settle(first, "resubmit")
    triggering.trigger_resume(trigger_id=trigger.pk, actor=ANN, reason="go on now")
    work()
    assert app.documents == ["1@x", "2@x", "3@x"]


def test_what_the_service_failed_on_is_processed_again_when_it_is_resubmitted(
    app: Application, partner: PartnerSide
) -> None:
    delivery = failed(app, partner, "a@x")
    assert history() == [("a@x", "error")]
    assert unresolved() == ["documents_failed"]
    settle(delivery, "resubmit")
    assert unresolved() == []
    work()
    assert app.documents == ["a@x"]
    assert ("a@x", "success") in history()
    copy = copy_of(delivery)
    work()
    assert states(copy) == ["duplicate"]


def test_a_resubmission_that_is_in_doubt_again_can_be_settled_again(app: Application, partner: PartnerSide) -> None:
    (delivery,) = doubtful(app, partner, "a@x")
    settle(delivery, "resubmit")
    app.plan("/documents", BROKEN)
    work()
    again = Delivery.objects.get(resubmission_of=delivery)
    assert again.state == "in_doubt", "one lost answer more, and no rule knows"
    assert len(app.documents) == 1
    settle(again, "duplicate")
    assert history() == [("a@x", "operator")]


def test_a_copy_whose_original_is_in_work_is_not_resubmitted_and_leaves_the_history_alone(
    app: Application, partner: PartnerSide
) -> None:
    make_trigger(app, ordered=False)
    (first,) = arrive(partner, "a@x")
    jobs = claim()  # and the worker is still at it
    copy = copy_of(first)
    work()
    assert states(copy) == ["in_doubt"]
    with pytest.raises(WrongState) as caught:
        settle(copy, "resubmit")
    assert caught.value.code == "copy_in_work"
    settle(copy, "duplicate")
    assert history() == [("a@x", "started")]
    lose(*jobs)
    work()
    assert states(first) == ["in_doubt"]


def test_a_copy_that_comes_before_the_resubmission_is_not_run_beside_it(app: Application, partner: PartnerSide) -> None:
    (delivery,) = doubtful(app, partner, "a@x", ordered=False)
    settle(delivery, "resubmit")
    made = Delivery.objects.get(resubmission_of=delivery)
    Delivery.objects.filter(pk=made.pk).update(due_at=NOON + timedelta(seconds=60))
    copy = copy_of(delivery)
    work()
    assert app.documents == []
    assert states(copy) == ["in_doubt"]


def test_of_two_copies_in_doubt_one_is_resubmitted(app: Application, partner: PartnerSide) -> None:
    (delivery,) = doubtful(app, partner, "a@x", ordered=False)
    copy = copy_of(delivery)
    work()
    assert states(copy) == ["in_doubt"]
    settle(delivery, "resubmit")
    with pytest.raises(WrongState) as caught:
        settle(copy, "resubmit")
    assert caught.value.code == "copy_in_work"
    work()
    assert app.documents == ["a@x"]
    with pytest.raises(WrongState) as caught:
        settle(copy, "resubmit")
    assert caught.value.code == "copy_completed"
    settle(copy, "duplicate")
    work()
    assert app.documents == ["a@x"]


def test_a_resubmission_to_a_callable_survives_the_death_of_its_worker(partner: PartnerSide) -> None:
    runs: list[str] = []
    applications.SERVICES["orders.settled"] = lambda document: runs.append(document.document_id)
    try:
        make_trigger(kind="callable", callable_name="orders.settled")
        (delivery,) = arrive(partner, "a@x")
        Delivery.objects.filter(pk=delivery.pk).update(
            state="in_doubt", doubt="history_unreachable", due_at=None, completed_at=NOON
        )
        settle(now_of(delivery), "resubmit")
        lose(*claim())
        work()
    finally:
        del applications.SERVICES["orders.settled"]
    assert runs == ["a@x"]
    assert Delivery.objects.get(resubmission_of=delivery).state == "completed"
    assert history() == [("a@x", "success")]


def test_a_disabled_trigger_gets_nothing_resubmitted(app: Application, partner: PartnerSide) -> None:
    (delivery,) = doubtful(app, partner, "a@x")
    triggering.trigger_disable(trigger_id=delivery.trigger_id, actor=ANN, reason="not used any more")
    with pytest.raises(WrongState) as caught:
        settle(delivery, "resubmit")
    assert "enable it first" in caught.value.detail
    assert caught.value.allowed == ("duplicate", "later")


# --- the other decisions ---


def test_the_incident_ends_with_the_last_document_in_doubt(app: Application, partner: PartnerSide) -> None:
    first, second = doubtful(app, partner, "1@x", "2@x", ordered=False)
    assert unresolved() == ["documents_in_doubt"]
    settle(first, "duplicate")
    assert unresolved() == ["documents_in_doubt"]
    settle(second, "resubmit")
    assert unresolved() == []
    assert WHY in Incident.objects.get().resolution
    told = Event.objects.filter(type="delivery.settled").order_by("id")
    assert [one.data["decision"] for one in told] == ["duplicate", "resubmit"]
    assert all(one.message_id for one in told)


def test_later_only_reminds(app: Application, partner: PartnerSide) -> None:
    (delivery,) = doubtful(app, partner, "a@x")
    put_off = settle(delivery, "later", remind_in=HOUR)
    assert (put_off.state, put_off.remind_at) == ("in_doubt", NOON + timedelta(seconds=HOUR))
    assert unresolved() == ["documents_in_doubt"]
    assert history() == [("a@x", "started")]
    for seconds in (None, 59, 91 * 86_400):
        with pytest.raises(InvalidSubmission, match="remind_in"):
            settle(delivery, "later", remind_in=seconds)
    with pytest.raises(InvalidSubmission, match="remind_in"):
        settle(delivery, "duplicate", remind_in=HOUR)
    settle(delivery, "duplicate")
    assert now_of(delivery).remind_at is None


@pytest.mark.parametrize(("says", "state", "runs"), [("NEW", "completed", 1), ("DUPLICATE", "duplicate", 0)])
def test_the_resolver_is_asked_again(app: Application, partner: PartnerSide, says: str, state: str, runs: int) -> None:
    app.plan("/resolver", verdict("maybe"))
    (delivery,) = doubtful(app, partner, "a@x", resolver="http")
    assert delivery.doubt == "resolver_nonsense"
    app.plan("/resolver", verdict(says))
    asked = settle(delivery, "ask")
    assert (asked.state, asked.redelivery_count, asked.doubt) == ("waiting", delivery.redelivery_count + 1, "")
    assert asked.retries == 0
    work()
    assert states(delivery) == [state]
    assert len(app.documents) == runs
    assert len(app.at("/resolver")) == 1
    entry = AuditEntry.objects.get(verb="delivery.ask_resolver")
    assert entry.before["evidence"][-1]["finding"] == "nonsense"


def test_a_trigger_without_resolver_has_nobody_to_ask(app: Application, partner: PartnerSide) -> None:
    (delivery,) = doubtful(app, partner, "a@x")
    with pytest.raises(WrongState) as caught:
        settle(delivery, "ask")
    assert caught.value.allowed == ("duplicate", "resubmit", "later")


def test_every_decision_needs_a_reason_and_a_page_that_is_not_old(app: Application, partner: PartnerSide) -> None:
    (delivery,) = doubtful(app, partner, "a@x")
    with pytest.raises(InvalidSubmission, match="reason"):
        settling.delivery_settle(delivery_id=delivery.pk, decision="duplicate", actor=ANN, reason="  ")
    with pytest.raises(InvalidSubmission, match="decision"):
        settle(delivery, "forget it")
    with pytest.raises(NotFound):
        settling.delivery_settle(delivery_id=uuid7(), decision="duplicate", actor=ANN, reason=WHY)
    seen = now_of(delivery).version
    settle(delivery, "later", remind_in=HOUR)
    with pytest.raises(Stale):
        settle(delivery, "duplicate", expected_version=seen)
    settle(delivery, "duplicate", expected_version=seen + 1)


@pytest.mark.django_db(transaction=True)
def test_two_people_who_resubmit_at_once_have_it_processed_once(app: Application) -> None:
    (delivery,) = doubtful(app, partner_side(), "a@x")
    ready = threading.Barrier(2, timeout=120)
    refused: list[str] = []

    def person() -> None:
        try:
            ready.wait()
            settle(delivery, "resubmit")
        except WrongState as error:
            refused.append(error.code)
        finally:
            connections.close_all()

    people = [threading.Thread(target=person) for _ in range(2)]
    for one in people:
        one.start()
    for one in people:
        one.join(120)
    work()
    assert refused == ["already_settled"]
    assert app.documents == ["a@x"]


# --- outbound messages (spec 2) ---


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> PartnerSide:
    """A partner of the repeatable profile whose answers are lost."""
    monkeypatch.setattr(replies, "jitter", lambda: 1.0)
    return partner_side(profile="repeatable", partner_window=HOUR)


def message_settle(message: Message, decision: str, **values: object) -> Message:
    return settling.message_settle(
        message_id=message.pk,
        decision=decision,
        actor=ANN,
        reason=WHY,
        **values,  # type: ignore[arg-type]
    )


def lost(partner: PartnerSide, time: FrozenClock, count: int = 1) -> list[Message]:
    """Messages of which nobody knows whether the partner has executed them."""
    made = [submit(partner) for _ in range(count)]
    with link(LOST):
        send()
        time.move(HOUR + 1)
        send()
        claim_due(limit=64)
    found = [Message.objects.get(pk=message.pk) for message in made]
    assert [message.state for message in found] == ["in_doubt"] * count
    return found


def test_a_message_that_the_partner_has_counts_as_delivered(far: PartnerSide, time: FrozenClock) -> None:
    first, second = lost(far, time, 2)
    assert unresolved() == ["outcome_unknown"]
    assert message_settle(first, "delivered").state == "delivered"
    assert unresolved() == ["outcome_unknown"]
    message_settle(second, "delivered")
    assert unresolved() == []
    assert far.outbound.done == 2
    with pytest.raises(WrongState) as caught:
        message_settle(first, "resubmit")
    assert caught.value.code == "already_settled"
    assert list(Event.objects.filter(type="message.settled").values_list("data__decision", flat=True)) == [
        "delivered",
        "delivered",
    ]
    entry = AuditEntry.objects.filter(verb="message.settle_delivered").first()
    assert entry is not None
    assert (entry.before["state"], entry.after["state"], entry.reason) == ("in_doubt", "delivered", WHY)


def test_a_message_that_the_partner_has_not_goes_out_as_a_new_one(far: PartnerSide, time: FrozenClock) -> None:
    (message,) = lost(far, time)
    Message.objects.filter(pk=message.pk).update(ref_to_message_id="question@partner")
    settled = message_settle(message, "resubmit")
    assert settled.state == "skipped"
    made = Message.objects.filter(direction="out").exclude(pk=message.pk).get()
    assert made.message_id != message.message_id
    assert (made.conversation_id, made.ref_to_message_id) == (message.conversation_id, "question@partner")
    assert (made.service, made.action, made.submitted_by) == (message.service, message.action, "ann")
    assert bytes(Payload.objects.get(message=made).content or b"") == ORDER
    with link(answered()) as wire:
        send()
    assert len(wire.parcels) == 1
    assert Message.objects.get(pk=made.pk).state == "delivered"
    entry = AuditEntry.objects.get(verb="message.settle_resubmit")
    assert entry.after["resubmitted_as"] == made.public_id


def test_a_message_in_doubt_can_be_put_off(far: PartnerSide, time: FrozenClock) -> None:
    (message,) = lost(far, time)
    put_off = message_settle(message, "later", remind_in=HOUR)
    assert (put_off.state, put_off.remind_at) == ("in_doubt", clock.now() + timedelta(seconds=HOUR))
    assert unresolved() == ["outcome_unknown"]


def test_the_incident_of_a_suspended_pair_stays_until_the_pair_is_resumed(
    time: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "jitter", lambda: 1.0)
    ordered = partner_side(profile="repeatable", partner_window=HOUR, ordered=True)
    (message,) = lost(ordered, time)
    assert ordered.outbound.flow == "suspended"
    message_settle(message, "delivered")
    assert unresolved() == ["outcome_unknown"]


def test_only_outbound_messages_in_doubt_are_settled(far: PartnerSide) -> None:
    message = submit(far)
    with pytest.raises(WrongState):
        message_settle(message, "delivered")
    with pytest.raises(NotFound):
        settling.message_settle(message_id=uuid7(), decision="delivered", actor=ANN, reason=WHY)
    with pytest.raises(InvalidSubmission, match="decision"):
        message_settle(message, "duplicate")
