"""When what awaits an answer goes out again: the pure schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging.protocol.atomic.transaction import GROWTH, patience, wait


def test_each_wait_is_longer_by_the_same_factor_up_to_the_longest() -> None:
    waits = [round(wait(attempt, 5, 600), 3) for attempt in range(1, 20)]

    assert waits[:4] == [5.0, 7.0, 9.8, 13.72]
    assert waits[13] == pytest.approx(5 * GROWTH**13)
    assert waits[14:] == [pytest.approx(5 * GROWTH**14), 600.0, 600.0, 600.0, 600.0]


def test_a_longest_wait_below_the_first_does_not_shorten_that() -> None:
    assert wait(1, 5, 1) == 5.0
    assert wait(9, 5, 1) == 5.0


def test_patience_ends_when_the_last_repeat_has_had_its_time() -> None:
    assert patience(0, 5, 600) == 5.0
    assert patience(2, 5, 600) == pytest.approx(5 + 7 + 9.8)
    assert patience(3, 5, 6) == 5 + 6 + 6 + 6


@pytest.mark.parametrize(("attempt", "first"), [(0, 5), (-1, 5), (1, 0), (1, -2)])
def test_what_would_send_at_once_for_ever_is_refused(attempt: int, first: int) -> None:
    with pytest.raises(ValueError, match="both begin at 1"):
        wait(attempt, first, 600)


@given(st.integers(1, 100_000), st.integers(1, 86_400), st.integers(1, 86_400))
def test_waits_never_get_shorter_and_never_leave_their_bounds(attempt: int, first: int, most: int) -> None:
    now, then = wait(attempt, first, most), wait(attempt + 1, first, most)

    assert first <= now <= then <= max(first, most)
