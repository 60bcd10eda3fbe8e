"""What all tests of repeatable requests stand on: a stopped clock, a memory, a partner."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.profiles.repeatable.callers import Caller, T, caller, remembering_since


@pytest.fixture
def now() -> Iterator[FrozenClock]:
    """It is T, and a hub that has remembered since months."""
    with clock.frozen(T) as frozen:
        yield frozen


@pytest.fixture
def partner(db: None, now: FrozenClock) -> Caller:
    remembering_since(T.replace(month=1))
    return caller()
