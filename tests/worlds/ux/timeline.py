"""Things that happened in the past: the clock is set back, and ids sort where they belong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from rmhub import clock, ids
from rmhub.clock import FrozenClock


class _Time:
    """What `rmhub.ids` takes for the module `time`."""

    @staticmethod
    def time_ns() -> int:
        return int(clock.now().timestamp() * 1_000_000) * 1000


@contextmanager
def past(at: datetime) -> Iterator[FrozenClock]:
    """Everything inside happens at `at`, and later as the clock is moved."""
    known_time, known_last = ids.time, ids._last  # type: ignore[attr-defined]
    with clock.frozen(at) as moving:
        ids.time, ids._last = _Time, 0  # type: ignore[attr-defined, assignment]
        try:
            yield moving
        finally:
            ids.time, ids._last = known_time, known_last  # type: ignore[attr-defined]
