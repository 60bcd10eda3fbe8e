"""Fixtures of the tests of deliveries: a clock that stands, a partner, an application."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from rmhub import clock
from rmhub.clock import FrozenClock
from tests.messaging.deliveries.stage import Application, application
from tests.messaging.factories import PartnerSide, partner_side

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def time() -> Iterator[FrozenClock]:
    """The hub's clock, which stands at noon until it is moved."""
    with clock.frozen(NOON) as frozen:
        yield frozen


@pytest.fixture
def app() -> Iterator[Application]:
    with application() as made:
        yield made


@pytest.fixture
def partner() -> PartnerSide:
    return partner_side()
