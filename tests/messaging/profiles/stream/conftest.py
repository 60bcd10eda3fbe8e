"""Fixtures of the tests of transactional streams."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from messaging.profiles.stream import receiving
from rmhub import clock
from rmhub.clock import FrozenClock

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    """The hub's clock, which stands at noon until it is moved."""
    with clock.frozen(NOON) as frozen:
        yield frozen


@pytest.fixture(autouse=True)
def decided_at_once(settings) -> Iterator[None]:
    """Nothing is held back unless a test asks for it, and what a test before knew of streams is forgotten."""
    settings.RMHUB_STREAM_HOLD_MS = 0
    receiving.reset()
    yield
    receiving.reset()
