"""Fixtures of the tests of ebXML 2.0."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from rmhub.clock import FrozenClock, frozen


@pytest.fixture
def clock() -> Iterator[FrozenClock]:
    """A clock that stands still until the test moves it on."""
    with frozen(datetime(2026, 7, 1, 9, tzinfo=UTC)) as clock:
        yield clock
