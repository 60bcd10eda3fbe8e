"""The memory window: what may have been forgotten is refused, and never executed a second time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from messaging.engine import forgetting
from messaging.engine import memory as hub_memory
from messaging.models import Event, Incident, MemoryEpoch, Message, RememberedRequest
from messaging.overview.services import housekeeping
from messaging.protocol.codecs.repeatable import imf_fixdate
from partners import registry
from partners.models import AgreementVersion
from rmhub.clock import FrozenClock
from tests.messaging.profiles.repeatable.callers import (
    HOUR,
    MINUTE,
    SKEW,
    WINDOW,
    Caller,
    T,
    brief,
    new_id,
    refusals,
    result,
    stored,
)

SECOND = timedelta(seconds=1)
ACCEPTED = (202, "accepted", "")
OUTSIDE = (412, "rejected", "outside-memory-window")
FUTURE = (412, "rejected", "first-sent-in-future")


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        pytest.param(3 * HOUR, OUTSIDE, id="G05"),
        pytest.param(2 * HOUR, ACCEPTED, id="G06-at-the-edge"),
        pytest.param(2 * HOUR + SECOND, OUTSIDE, id="G06-outside"),
        pytest.param(-4 * MINUTE, ACCEPTED, id="G08-inside"),
        pytest.param(-SKEW, ACCEPTED, id="G08-at-the-edge"),
        pytest.param(-6 * MINUTE, FUTURE, id="G08-outside"),
    ],
)
def test_g05_g06_g08_the_window_and_the_clock_skew(partner: Caller, age: timedelta, expected) -> None:
    before = stored()
    answer = partner.post("order-1", T - age)
    assert brief(answer) == expected
    if expected == ACCEPTED:
        assert Message.objects.count() == 1
        return
    assert stored() == before, "X03"
    assert refusals() == [(expected[2].replace("-", "_"), 412)]
    assert answer["Repeatability-Window"] == "7200"
    assert answer["Repeatability-Earliest"] == imf_fixdate(T - WINDOW)
    problem = json.loads(answer.content)
    assert problem["window_seconds"] == 7200
    assert problem["server_time"] == "2026-03-10T12:00:00Z"
    assert problem["earliest_accepted_first_sent"] == "2026-03-10T10:00:00Z"
    assert problem["memory_start"] == "2026-01-10T12:00:00Z"


def test_g02_a_repeat_after_midnight_is_found_under_the_day_before(partner: Caller, now: FrozenClock) -> None:
    """Ids are kept by the UTC day of their first-instance time; the window knows no midnight."""
    now.move(((T.replace(hour=23, minute=59, second=30)) - T).total_seconds())
    first_sent = T.replace(hour=23, minute=59, second=30)
    assert brief(partner.post("order-1", first_sent)) == ACCEPTED
    now.move(60)
    assert brief(partner.post("order-1", first_sent)) == ACCEPTED
    assert (Message.objects.count(), partner.pair.duplicates) == (1, 1)


def test_g07_what_was_sent_before_memory_starts_is_refused(partner: Caller) -> None:
    MemoryEpoch.objects.update(memory_start=T - HOUR)
    assert brief(partner.post(new_id(), T - 90 * MINUTE)) == OUTSIDE
    assert brief(partner.post(new_id(), T - 30 * MINUTE)) == ACCEPTED


def test_the_earliest_time_that_is_named_is_one_that_is_taken(partner: Caller) -> None:
    """An IMF-fixdate has no fractions of a second; cut off, it would name a time that is refused."""
    MemoryEpoch.objects.update(memory_start=T - HOUR + timedelta(milliseconds=1))
    refused = partner.post("order-1", T - HOUR)
    assert brief(refused) == OUTSIDE
    assert brief(partner.post("order-1", refused["Repeatability-Earliest"])) == ACCEPTED


def test_g09_a_window_that_is_made_larger_does_not_bring_back_what_was_forgotten(db, now, partner: Caller) -> None:
    now.move((datetime(2026, 3, 11, 2, 10, tzinfo=UTC) - T).total_seconds())
    at = T + 14 * HOUR + 10 * MINUTE
    first_sent = at - 150 * MINUTE  # 23:40 of the day before
    with_memory = RememberedRequest.objects.filter(request_id="order-1")
    now.move(-150 * 60)
    assert brief(partner.post("order-1", first_sent)) == ACCEPTED
    now.move(150 * 60)
    assert with_memory.exists()
    assert forgetting.drop_due(at) == 1
    assert not with_memory.exists()
    AgreementVersion.objects.filter(pk=partner.terms.version_id).update(memory_window=3 * 3600)
    registry.reset()
    forgetting.reset()
    answer = partner.post("order-1", first_sent)
    assert brief(answer) == OUTSIDE
    assert json.loads(answer.content)["earliest_accepted_first_sent"] == "2026-03-11T00:00:00Z"
    assert Message.objects.count() == 1, "executed once"
    assert brief(partner.post("order-2", at - 130 * MINUTE)) == ACCEPTED


def test_g10_an_id_is_kept_from_its_first_instance_time_on_and_not_from_its_arrival(partner: Caller, now) -> None:
    """Stamped four minutes ahead, just after midnight, and received before it."""
    now.move((datetime(2026, 3, 10, 23, 58, tzinfo=UTC) - T).total_seconds())
    first_sent = datetime(2026, 3, 11, 0, 2, tzinfo=UTC)
    first = partner.post("order-1", first_sent)
    assert brief(first) == ACCEPTED
    now.move(121 * 60)
    housekeeping.remember_and_forget()
    again = partner.post("order-1", first_sent)
    assert (again.status_code, again.content, result(again)) == (202, first.content, "accepted")
    # 02:05 is 23:58 with window and skew: by the time of arrival the id would be gone now, and it may still come.
    now.move(6 * 60 - 3 * 60)
    forgetting.drop_due(datetime(2026, 3, 11, 2, 6, tzinfo=UTC))
    assert brief(partner.post("order-1", first_sent)) == ACCEPTED
    assert Message.objects.count() == 1


def test_g11_a_repeat_that_comes_after_the_window_is_refused(partner: Caller, now) -> None:
    first_sent = T - 119 * MINUTE
    assert brief(partner.post("order-1", first_sent)) == ACCEPTED
    now.move(120)
    assert brief(partner.post("order-1", first_sent)) == OUTSIDE
    assert Message.objects.count() == 1


def test_g12_whether_the_id_is_still_there_makes_no_difference(partner: Caller, now) -> None:
    assert brief(partner.post("order-1", T)) == ACCEPTED
    now.move(2 * 3600 + 1)
    assert RememberedRequest.objects.filter(request_id="order-1").exists()
    with_it = partner.post("order-1", T)
    RememberedRequest.objects.all().delete()
    without_it = partner.post("order-1", T)
    assert brief(with_it) == brief(without_it) == OUTSIDE
    assert with_it.content == without_it.content


def test_x03_a_refusal_changes_nothing_but_counters(partner: Caller) -> None:
    partner.post("order-1")
    before = stored()
    for _ in range(3):
        partner.post("order-2", T - 3 * HOUR)
        partner.post("order-1", T - MINUTE)
    assert stored() == before
    assert partner.pair.rejected == 6
    assert partner.pair.next_position == 2


def test_x12_when_the_clock_is_set_back_what_was_outside_stays_outside(partner: Caller, now) -> None:
    first_sent = T - WINDOW + MINUTE
    assert brief(partner.post("order-1", first_sent)) == ACCEPTED
    now.move(5 * 60)
    hub_memory.check(T + 5 * MINUTE)  # the heartbeat
    assert brief(partner.post("order-1", first_sent)) == OUTSIDE
    now.move(-10 * 60)
    assert brief(partner.post("order-1", first_sent)) == OUTSIDE
    assert brief(partner.post(new_id(), T - 5 * MINUTE)) == ACCEPTED
    housekeeping.remember_and_forget()
    assert MemoryEpoch.objects.get().heartbeat == T + 5 * MINUTE
    assert brief(partner.post("order-1", first_sent)) == OUTSIDE


def test_x13_a_clock_that_jumps_ahead_shows_as_refusals_that_people_see(partner: Caller, now) -> None:
    assert brief(partner.post("earlier", T)) == ACCEPTED
    now.move(3 * 3600)
    for number in range(3):
        assert brief(partner.post(f"order-{number}", T)) == OUTSIDE
    incident = Incident.objects.get()
    assert (incident.cause, incident.pair, incident.occurrences) == ("clock_differs", partner.pair, 3)
    assert "ids are remembered from" in incident.detail
    assert partner.pair.rejected == 3
    assert refusals() == [("outside_memory_window", 412)] * 3
    kinds = list(Event.objects.order_by("id").values_list("type", flat=True))
    assert kinds.count("message.rejected") == 3
    assert kinds.count("incident.opened") == 1
    now.move(-3 * 3600)
    assert RememberedRequest.objects.get().request_id == "earlier", "nothing was forgotten"
    assert brief(partner.post("order-0", T)) == OUTSIDE, "what was refused stays refused"
    now.move(3600)
    assert brief(partner.post("order-3", T + HOUR)) == ACCEPTED, "three hours ahead, less a window of two"


def test_x13_no_row_is_swept_before_it_is_stored_through_when(partner: Caller, now) -> None:
    assert brief(partner.post("order-1", T)) == ACCEPTED
    MemoryEpoch.objects.all().delete()
    now.move(48 * 3600)
    assert forgetting.drop_due(T + 48 * HOUR) == 0
    assert RememberedRequest.objects.filter(request_id="order-1").exists()


def test_a_first_instance_time_of_another_century_makes_no_day(partner: Caller) -> None:
    for first_sent in ("Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"):
        assert partner.post(new_id(), first_sent).status_code == 412
    assert {day for day, _ in forgetting._partitions(forgetting.REQUESTS)} <= {
        T.date() + timedelta(days=n) for n in range(3)
    }


def test_a_day_that_is_dropped_this_moment_is_not_made_again(partner: Caller, now, monkeypatch) -> None:
    """The look at the memory is a moment older than the drop: the second look has to find out."""
    at = datetime(2026, 3, 11, 2, 4, tzinfo=UTC)
    now.move((at - T).total_seconds())
    first_sent = at - 121 * MINUTE
    AgreementVersion.objects.filter(pk=partner.terms.version_id).update(memory_window=3 * 3600)
    registry.reset()
    ensure = forgetting.ensure_days

    def dropped_meanwhile(table, days) -> None:
        MemoryEpoch.objects.update(forgotten_through=datetime(2026, 3, 11, tzinfo=UTC))
        ensure(table, days)

    monkeypatch.setattr(forgetting, "ensure_days", dropped_meanwhile)
    assert first_sent.day == 11
    assert brief(partner.post("order-1", first_sent)) == ACCEPTED
    assert brief(partner.post("order-2", first_sent - 10 * MINUTE)) == OUTSIDE
    assert Message.objects.count() == 1
