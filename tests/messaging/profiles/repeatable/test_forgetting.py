"""Days of what is remembered: made lightly, dropped whole, and never made again after they were forgotten."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256

import pytest
from django.db import connection, connections, transaction

from messaging.engine import forgetting
from messaging.engine.forgetting import HISTORY, REQUESTS, Forgotten
from messaging.models import MemoryEpoch, RememberedRequest
from partners.choices import Profile
from rmhub.ids import uuid7
from tests.partners.factories import make_agreement

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
TODAY = NOON.date()
SENDER = uuid7()


@pytest.fixture(autouse=True)
def unknown_days() -> Iterator[None]:
    forgetting.reset()
    yield
    forgetting.reset()


def epoch(forgotten_through: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> MemoryEpoch:
    return MemoryEpoch.objects.create(
        memory_start=forgotten_through, forgotten_through=forgotten_through, heartbeat=forgotten_through
    )


def remember(request_id: str, first_sent: datetime, state: str = "accepted") -> None:
    RememberedRequest.objects.create(
        sender_id=SENDER,
        request_id=request_id,
        day=first_sent.date(),
        first_sent=first_sent,
        content=sha256(b"x").digest(),
        state=state,
    )


def days(table: forgetting.Table) -> list[date]:
    return [day for day, _ in forgetting._partitions(table)]


def test_a_day_is_made_once_and_takes_rows() -> None:
    forgetting.ensure_days(REQUESTS, [TODAY])
    forgetting.ensure_days(REQUESTS, [TODAY, TODAY + timedelta(days=1)])
    remember("a", NOON)
    remember("b", NOON + timedelta(days=1))
    assert RememberedRequest.objects.count() == 2
    assert {TODAY, TODAY + timedelta(days=1)} <= set(days(REQUESTS))


def test_days_seen_in_a_transaction_that_is_rolled_back_are_not_believed_in() -> None:
    """The day goes with the transaction that made it; who remembered it would fail to write into it for ever."""
    with pytest.raises(RuntimeError), transaction.atomic():
        forgetting.ensure_days(REQUESTS, [TODAY])
        raise RuntimeError
    forgetting.ensure_days(REQUESTS, [TODAY])
    remember("a", NOON)


@pytest.mark.django_db(transaction=True)
def test_days_are_remembered_once_they_are_committed(django_assert_num_queries) -> None:
    day = date(2031, 5, 5)
    forgetting.ensure_days(REQUESTS, [day])
    with django_assert_num_queries(0):
        forgetting.ensure_days(REQUESTS, [day])
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE messaging_rememberedrequest_20310505")


@pytest.mark.django_db(transaction=True)
def test_making_a_day_neither_waits_for_writers_nor_keeps_them_waiting() -> None:
    first, second = date(2031, 5, 5), date(2031, 5, 6)
    forgetting.ensure_days(REQUESTS, [first])
    errors: list[BaseException] = []

    def make() -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '3s'")
            forgetting.ensure_days(REQUESTS, [second])
            with connection.cursor() as cursor:
                cursor.execute("RESET lock_timeout")  # whoever has this connection next waits as always
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    with transaction.atomic():
        remember("a", datetime(2031, 5, 5, 12, tzinfo=UTC))
        maker = threading.Thread(target=make)
        maker.start()
        maker.join(120)
        assert not maker.is_alive()
        assert errors == []
    assert second in days(REQUESTS)
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE messaging_rememberedrequest_20310505, messaging_rememberedrequest_20310506")


@pytest.mark.django_db(transaction=True)
def test_many_that_need_the_same_new_day_at_once_all_get_it() -> None:
    day = date(2031, 6, 1)
    barrier = threading.Barrier(4)
    errors: list[BaseException] = []

    def make() -> None:
        barrier.wait()
        try:
            forgetting.ensure_days(REQUESTS, [day])
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE messaging_rememberedrequest_20310601")


def test_a_day_is_dropped_when_the_longest_window_and_the_clock_skew_are_over() -> None:
    epoch()
    make_agreement(profile=Profile.REPEATABLE, memory_window=7200, clock_skew=300)
    make_agreement(profile=Profile.REPEATABLE, memory_window=3600, clock_skew=60)
    day = date(2026, 3, 9)
    forgetting.ensure_days(REQUESTS, [day, TODAY])
    remember("old", datetime(2026, 3, 9, 23, 59, tzinfo=UTC))
    remember("new", datetime(2026, 3, 10, 0, 0, tzinfo=UTC))
    assert forgetting.drop_due(datetime(2026, 3, 10, 2, 4, 59, tzinfo=UTC)) == 0
    assert forgetting.drop_due(datetime(2026, 3, 10, 2, 5, 0, tzinfo=UTC)) == 1
    assert list(RememberedRequest.objects.values_list("request_id", flat=True)) == ["new"]
    assert MemoryEpoch.objects.get().forgotten_through == datetime(2026, 3, 10, tzinfo=UTC)


def test_what_was_forgotten_is_never_made_again() -> None:
    epoch()
    make_agreement(profile=Profile.REPEATABLE, memory_window=7200, clock_skew=300)
    day = date(2026, 3, 8)
    forgetting.ensure_days(REQUESTS, [day])
    assert forgetting.drop_due(NOON) == 1
    forgetting.reset()
    with pytest.raises(Forgotten):
        forgetting.ensure_days(REQUESTS, [day])


@pytest.mark.parametrize("state", ["running", "in_doubt"])
def test_a_day_with_something_undecided_stays(state: str) -> None:
    epoch()
    day = date(2026, 3, 1)
    forgetting.ensure_days(REQUESTS, [day])
    remember("done", datetime(2026, 3, 1, 1, tzinfo=UTC))
    remember("open", datetime(2026, 3, 1, 2, tzinfo=UTC), state=state)
    assert forgetting.drop_due(NOON) == 0
    assert MemoryEpoch.objects.get().forgotten_through == datetime(2026, 1, 1, tzinfo=UTC)
    RememberedRequest.objects.filter(request_id="open").update(state="answered")
    assert forgetting.drop_due(NOON) == 1


def test_history_is_dropped_the_day_after_it_ends() -> None:
    epoch()
    forgetting.ensure_days(HISTORY, [TODAY - timedelta(days=1), TODAY])
    assert forgetting.drop_due(NOON) == 1
    assert TODAY in days(HISTORY)
    assert TODAY - timedelta(days=1) not in days(HISTORY)


@pytest.mark.django_db(transaction=True)
def test_a_day_that_somebody_reads_is_dropped_another_time() -> None:
    MemoryEpoch.objects.all().delete()
    epoch()
    day = date(2026, 3, 1)
    forgetting.ensure_days(REQUESTS, [day])
    reading, done = threading.Event(), threading.Event()

    def read() -> None:
        try:
            with transaction.atomic():
                list(RememberedRequest.objects.filter(day=day))
                reading.set()
                assert done.wait(120)
        finally:
            connections.close_all()

    reader = threading.Thread(target=read)
    reader.start()
    assert reading.wait(120)
    try:
        assert forgetting.drop_due(NOON) == 0
        assert MemoryEpoch.objects.get().forgotten_through == datetime(2026, 1, 1, tzinfo=UTC)
    finally:
        done.set()
        reader.join(120)
    assert forgetting.drop_due(NOON) == 1


def test_days_are_there_before_they_are_needed() -> None:
    forgetting.ensure_ahead(NOON)
    assert {TODAY, TODAY + timedelta(days=1), TODAY + timedelta(days=2)} <= set(days(REQUESTS))
