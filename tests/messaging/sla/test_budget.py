"""The arithmetic of service levels: what a budget allows, and when it burns too fast."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from messaging.sla.budget import Tally, allowed, burning, used_up_at

NOTHING = Tally()
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def windows(
    *, hour: Tally, five: Tally = NOTHING, six: Tally | None = None, half: Tally | None = None
) -> Callable[[timedelta], Tally]:
    minutes = {5: five, 30: half if half is not None else five, 60: hour, 360: six if six is not None else hour}
    return lambda length: minutes[int(length.total_seconds()) // 60]


@pytest.mark.parametrize(
    ("expected", "percent", "misses"),
    [(100, 99, 1), (99, 99, 0), (1000, 99.95, 0), (2000, 99.95, 1), (10_000, 99.9, 10), (20, 50, 10), (0, 99, 0)],
)
def test_a_budget_is_whole_documents(expected: int, percent: float, misses: int) -> None:
    assert allowed(expected, percent) == misses


def test_misses_at_many_times_the_pace_that_is_allowed_burn_the_budget() -> None:
    burn = burning(99, windows(hour=Tally(100, 15), five=Tally(10, 2)))
    assert burn is not None and burn.rate == pytest.approx(15)
    assert burning(99, windows(hour=Tally(100, 14), five=Tally(10, 2), six=Tally(600, 14))) is None
    slow = burning(99, windows(hour=Tally(100, 6), five=Tally(), six=Tally(600, 36), half=Tally(50, 4)))
    assert slow is not None and slow.window.long == timedelta(hours=6)


def test_a_burn_that_stopped_is_none() -> None:
    assert burning(99, windows(hour=Tally(100, 15), five=Tally(10, 0))) is None
    assert burning(99, windows(hour=Tally(100, 15), five=Tally())) is not None  # nothing speaks against it
    # One that is known is over after half an hour without trouble, not after five minutes.
    stopped = windows(hour=Tally(100, 15), five=Tally(10, 0), half=Tally(40, 15), six=Tally(100, 15))
    assert burning(99, stopped, since=True) is not None
    calm = windows(hour=Tally(100, 15), five=Tally(10, 0), half=Tally(40, 0), six=Tally(100, 15))
    assert burning(99, calm, since=True) is None


@pytest.mark.parametrize("tally", [Tally(2, 1), Tally(9, 9), Tally(10, 1)])
def test_few_documents_are_no_trend(tally: Tally) -> None:
    assert burning(99, windows(hour=tally, five=tally)) is None


def test_a_low_target_can_burn_too() -> None:
    assert burning(90, windows(hour=Tally(100, 90), five=Tally(10, 9))) is not None
    assert burning(50, windows(hour=Tally(100, 89), five=Tally(10, 9))) is None


def test_when_the_budget_is_used_up() -> None:
    burn = burning(99, windows(hour=Tally(100, 20), five=Tally(10, 2)))
    assert burn is not None
    assert used_up_at(NOW, 39, burn) == NOW + timedelta(hours=2)
    assert used_up_at(NOW, 0, burn) == NOW + timedelta(minutes=3)
