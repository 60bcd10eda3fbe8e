"""Fixtures of the console's tests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from django.core.cache import cache

from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.console.scenes import World, world
from tests.staged import staged

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    """The hub's clock, which stands at noon until it is moved."""
    with clock.frozen(NOON) as frozen:
        yield frozen


@pytest.fixture
def scene(db: None, time: FrozenClock) -> World:
    """One of everything."""
    return staged(world, time)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """The cache forgets between tests."""
    cache.clear()
    yield
    cache.clear()
