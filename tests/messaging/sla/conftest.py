"""A clock, a feed that a test's own transaction is read from, and worlds of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from django.core.cache import cache

from messaging.overview.services import traffic_hours
from rmhub import clock
from rmhub.clock import FrozenClock

AT = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    with clock.frozen(AT) as frozen:
        yield frozen


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page remembers for a moment; and what a test writes is of a transaction that is still open."""
    cache.clear()
    monkeypatch.setattr("messaging.models.feed.horizon", lambda: 1 << 40)
    monkeypatch.setattr("messaging.models.feed.is_ahead", lambda place: False)


@pytest.fixture
def counted() -> Callable[[], int]:
    return traffic_hours.count_due
