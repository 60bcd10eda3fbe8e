"""What is usual, and what is not: the rules by themselves, with the past written down."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from messaging.anomalies import DAY, WINDOW, Usual, Window, judge_latency, judge_silence, usual

# A Friday.
NOW = datetime(2026, 11, 20, 16, 0, tzinfo=UTC)


def latencies(*seconds: float, before: datetime = NOW) -> list[Window]:
    """Windows one after the other, the last one just before `before`, with ten acknowledgements each."""
    first = before - WINDOW * len(seconds)
    return [Window(first + WINDOW * n, acks=10, ack_seconds=10 * value) for n, value in enumerate(seconds)]


def test_the_limit_is_six_scaled_deviations_above_the_median() -> None:
    known = usual(latencies(*[1.0, 2.0, 3.0] * 8), NOW)
    assert known.latency is not None
    assert known.latency.middle == 2.0
    assert known.latency.limit == pytest.approx(2.0 + 6 * 1.4826 * 1.0)


def test_a_few_bad_hours_do_not_move_it() -> None:
    known = usual(latencies(*[1.0] * 100, *[900.0] * 24), NOW)
    assert known.latency is not None
    assert (known.latency.middle, known.latency.limit) == (1.0, 1.5)


def test_a_steady_pair_has_room_of_half_its_median_or_a_quarter_of_a_second() -> None:
    slow, fast = usual(latencies(*[10.0] * 24), NOW).latency, usual(latencies(*[0.02] * 24), NOW).latency
    assert slow is not None and slow.limit == 15.0
    assert fast is not None and fast.limit == pytest.approx(0.27)


def test_the_last_day_counts_before_the_week_if_it_is_enough() -> None:
    week = latencies(*[1.0] * 200, before=NOW - 2 * DAY)
    assert usual([*week, *latencies(*[5.0] * 24)], NOW).latency.middle == 5.0  # type: ignore[union-attr]
    assert usual([*week, *latencies(*[5.0] * 23)], NOW).latency.middle == 1.0  # type: ignore[union-attr]
    assert usual(latencies(*[1.0] * 200, before=NOW - 7 * DAY), NOW).latency is None
    assert usual(latencies(*[1.0] * 11), NOW).latency is None


def test_the_window_that_is_judged_is_no_part_of_its_past() -> None:
    windows = latencies(*[1.0] * 24, before=NOW + WINDOW)
    known = usual(windows, NOW)
    assert judge_latency(known, Window(NOW, acks=10, ack_seconds=20.0)).out
    assert judge_latency(known, Window(NOW, acks=10, ack_seconds=15.0)).out is False
    assert judge_latency(known, Window(NOW, acks=4, ack_seconds=20.0)).out is None
    assert judge_latency(Usual(), Window(NOW, acks=10, ack_seconds=20.0)).out is None


def office(days: int, until: datetime, *, weekdays: frozenset[int] = frozenset(range(5))) -> list[Window]:
    """A partner that sends from 8 to 18 o'clock on these days, every five minutes, until then."""
    windows, at = [], until.replace(hour=0, minute=0) - DAY * days
    while at < until:
        if at.weekday() in weekdays and 8 <= at.hour < 18:
            windows.append(Window(at, contacts=3))
        at += WINDOW
    return windows


def silence(windows: list[Window], now: datetime) -> bool | None:
    return judge_silence(usual(windows, now), windows[-1].start + WINDOW, now).out


def test_office_hours_are_a_habit() -> None:
    assert silence(office(14, NOW), NOW) is False
    # Silent since 14:00 on a Friday: on other days, and on Friday a week ago, messages came at these hours.
    stopped = office(14, NOW - timedelta(hours=2))
    assert silence(stopped, NOW - timedelta(minutes=100)) is False
    assert silence(stopped, NOW) is True
    # The evening, the night, the weekend, and Monday before eight are as quiet as ever.
    friday = office(14, NOW + timedelta(hours=8))
    for hours in (6, 12, 24, 40, 60, 63):
        assert silence(friday, NOW + timedelta(hours=hours)) is False
    # Monday at ten: an hour and a half of silence too much.
    assert silence(friday, NOW + timedelta(hours=66)) is True


def test_without_a_week_of_its_past_only_the_pauses_count() -> None:
    short = office(3, NOW - timedelta(hours=2))
    assert silence(short, NOW) is False  # the longest pause was a night
    assert silence(short, NOW + timedelta(hours=40)) is True


def test_one_busy_evening_is_no_habit() -> None:
    steady = office(14, NOW)
    at = NOW.replace(hour=20) - 7 * DAY
    once = [Window(at + WINDOW * n, contacts=3) for n in range(12)]
    windows = sorted([*steady, *once, *office(0, NOW.replace(hour=18))], key=lambda window: window.start)
    assert silence(windows, NOW.replace(hour=21)) is False
