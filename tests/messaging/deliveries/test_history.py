"""The document history: begun, completed, released; what races and copies see of it."""

from __future__ import annotations

import threading
from datetime import date, timedelta

import pytest
from django.db import connection, connections, transaction

from messaging.deliveries.services import history
from messaging.engine import forgetting
from messaging.models import Delivery, DocumentCompleted, DocumentStarted, Trigger
from messaging.protocol.processing import Entry
from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.conftest import NOON
from tests.messaging.deliveries.stage import arrive, copy_of, make_trigger
from tests.messaging.factories import PartnerSide, partner_side
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db


@pytest.fixture
def partner() -> PartnerSide:
    return partner_side()


@pytest.fixture
def trigger() -> Trigger:
    return make_trigger(kind="pull")


@pytest.fixture
def delivery(trigger: Trigger, partner: PartnerSide, time: FrozenClock) -> Delivery:
    [made] = arrive(partner, "order-1")
    return made


def begin(trigger: Trigger, *deliveries: Delivery) -> list[Entry]:
    found = history.begin(trigger, deliveries, 7, clock.now())
    return [found[delivery.pk] for delivery in deliveries]


def test_a_document_is_absent_then_started_then_completed(trigger: Trigger, delivery: Delivery) -> None:
    copy = copy_of(delivery)
    assert history.look(trigger, [delivery]) == {delivery.pk: Entry.ABSENT}
    assert begin(trigger, delivery) == [Entry.ABSENT]
    row = DocumentStarted.objects.get()
    assert (row.trigger_id, row.sender_id, row.document_id) == history.key_of(delivery)
    assert (row.delivery_id, row.worker, row.started_at) == (delivery.pk, 7, NOON)
    assert begin(trigger, delivery, copy) == [Entry.STARTED, Entry.STARTED]
    assert history.begun_by(copy) == delivery.pk
    history.complete(delivery, trigger, "success", NOON)
    assert not DocumentStarted.objects.exists()
    assert begin(trigger, copy) == [Entry.COMPLETED]
    assert history.look(trigger, [copy]) == {copy.pk: Entry.COMPLETED}
    assert not DocumentStarted.objects.exists(), "looking leaves nothing behind"


def test_of_two_copies_in_one_group_the_first_is_entered(trigger: Trigger, delivery: Delivery) -> None:
    assert sorted(begin(trigger, delivery, copy_of(delivery))) == [Entry.ABSENT, Entry.STARTED]


def test_triggers_and_senders_have_histories_of_their_own(
    trigger: Trigger, delivery: Delivery, partner: PartnerSide
) -> None:
    other_trigger = make_trigger(kind="pull")
    stranger = partner_side()
    elsewhere = next(
        made
        for made in arrive(stranger, "order-1")
        if (made.sender_id, made.trigger_id) == (stranger.terms.partner_id, trigger.pk)
    )
    begin(trigger, delivery)
    history.complete(delivery, trigger, "success", NOON)
    assert elsewhere.document_id == delivery.document_id and elsewhere.sender_id != delivery.sender_id
    assert begin(trigger, elsewhere) == [Entry.ABSENT]
    delivery.trigger_id = other_trigger.pk
    assert begin(other_trigger, delivery) == [Entry.ABSENT]


def test_a_release_makes_it_new_again_but_leaves_what_another_has_begun(trigger: Trigger, delivery: Delivery) -> None:
    copy = copy_of(delivery)
    begin(trigger, delivery)
    history.release(copy)
    assert begin(trigger, copy) == [Entry.STARTED]
    history.release(delivery)
    assert begin(trigger, copy) == [Entry.ABSENT]


def test_taking_over_belongs_to_whoever_took_over(trigger: Trigger, delivery: Delivery, time: FrozenClock) -> None:
    copy = copy_of(delivery)
    begin(trigger, delivery)
    history.take_over(trigger, copy, 9, time.move(5))
    row = DocumentStarted.objects.get()
    assert (row.delivery_id, row.worker, row.started_at) == (copy.pk, 9, clock.now())
    history.complete(copy, trigger, "success", clock.now())
    history.take_over(trigger, delivery, 9, clock.now())
    assert begin(trigger, copy) == [Entry.STARTED], "what is begun anew counts, although it was completed before"


def test_the_last_outcome_of_a_day_stays(trigger: Trigger, delivery: Delivery) -> None:
    history.complete(delivery, trigger, "error", NOON)
    history.complete(delivery, trigger, "success", NOON + timedelta(seconds=5))
    history.complete_all(
        [history.Ended(copy_of(delivery), trigger, outcome) for outcome in ("error", "operator")], NOON
    )
    assert DocumentCompleted.objects.get().outcome == "operator"


@pytest.mark.parametrize("ttl", [2 * 3600, 86_400, 30 * 86_400])
def test_it_is_kept_for_the_time_to_live_and_at_least_through_tomorrow(
    trigger: Trigger, delivery: Delivery, ttl: int
) -> None:
    trigger.history_ttl = ttl
    history.complete(delivery, trigger, "success", NOON)
    assert DocumentCompleted.objects.get().forget_on == date(2026, 3, 1) + timedelta(days=max(1, ttl // 86_400))


def test_w15_w16_it_counts_for_as_long_as_it_is_there(trigger: Trigger, delivery: Delivery, time: FrozenClock) -> None:
    trigger.history_ttl = 2 * 3600
    history.complete(delivery, trigger, "success", NOON)
    copy = copy_of(delivery)
    time.move(2 * 3600 + 660)
    assert begin(trigger, copy) == [Entry.COMPLETED]
    time.move(10 * 86_400)
    assert begin(trigger, copy) == [Entry.COMPLETED], "nobody has swept"
    assert forgetting.drop_due(clock.now()) >= 1
    assert begin(trigger, copy) == [Entry.ABSENT]


@pytest.mark.parametrize(
    "changes",
    [{"use_history": False}, {"detect_duplicates": False}, {"document_id": ""}, {"verdict": "unchecked"}],
    ids=lambda changes: next(iter(changes)),
)
def test_what_is_not_kept_leaves_no_row(trigger: Trigger, delivery: Delivery, changes: dict[str, object]) -> None:
    for name, value in changes.items():
        setattr(trigger if hasattr(trigger, name) else delivery, name, value)
    assert not history.keeps(trigger, delivery)
    history.complete(delivery, trigger, "success", NOON)
    history.release(delivery)
    assert not DocumentCompleted.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_whoever_begins_while_another_completes_finds_it_completed(trigger: Trigger, delivery: Delivery) -> None:
    """Neither started nor completed: that gap would make a copy new."""
    copy = copy_of(delivery)
    begin(trigger, delivery)
    found: list[Entry] = []
    waits = threading.Event()

    def other() -> None:
        try:
            waits.set()
            found.extend(begin(trigger, copy))
        finally:
            connections.close_all()

    thread = threading.Thread(target=other)
    with transaction.atomic():
        history.complete(delivery, trigger, "success", NOON)
        thread.start()
        assert waits.wait(120)
        _until_somebody_waits_for_a_lock()
    thread.join(120)
    assert found == [Entry.COMPLETED]


_WAITS = (
    "SELECT 1 FROM pg_locks WHERE NOT granted AND pid IN"
    " (SELECT pid FROM pg_stat_activity WHERE datname = current_database())"
)


def _until_somebody_waits_for_a_lock() -> None:
    with connection.cursor() as cursor:
        eventually(lambda: cursor.execute(_WAITS).fetchone())
