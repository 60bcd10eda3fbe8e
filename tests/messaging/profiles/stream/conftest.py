"""Fixtures of the tests of transactional streams."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from messaging.profiles.stream import receiving


@pytest.fixture(autouse=True)
def decided_at_once(settings) -> Iterator[None]:
    """Nothing is held back unless a test asks for it, and what a test before knew of streams is forgotten."""
    settings.RMHUB_STREAM_HOLD_MS = 0
    receiving.reset()
    yield
    receiving.reset()
