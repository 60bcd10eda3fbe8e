"""The one place that reads the time, so that tests can set it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

_frozen: datetime | None = None


def now() -> datetime:
    """The present instant, in UTC."""
    return _frozen if _frozen is not None else datetime.now(UTC)


class FrozenClock:
    """What `frozen` yields: a clock that only moves when told to."""

    def move(self, seconds: float) -> datetime:
        """Moves the clock and returns the new instant."""
        global _frozen
        assert _frozen is not None
        _frozen += timedelta(seconds=seconds)
        return _frozen


@contextmanager
def frozen(at: datetime) -> Iterator[FrozenClock]:
    """Stops the clock of this process at `at` (tests and simulations only)."""
    global _frozen
    before, _frozen = _frozen, at
    try:
        yield FrozenClock()
    finally:
        _frozen = before
