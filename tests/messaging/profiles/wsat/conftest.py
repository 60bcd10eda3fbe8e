"""Fixtures of the tests of atomic transactions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from rmhub import clock
from rmhub.clock import FrozenClock

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    """The hub's clock, which stands at noon until it is moved."""
    with clock.frozen(NOON) as frozen:
        yield frozen
