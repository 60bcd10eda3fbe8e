"""Fixtures of all tests. The servers behind them are started by `tests.servers`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def fresh_caches(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """What processes remember of the database does not outlive a test; payload files go to a folder of the test."""
    # A test may ask for the database by its mark alone; then neither fixture is among its names.
    if not request.node.get_closest_marker("django_db") and not {"db", "transactional_db"} & set(request.fixturenames):
        yield
        return
    from messaging.services import door, events, pairs
    from partners import registry

    settings = request.getfixturevalue("settings")
    settings.RMHUB_STORE_DIR = tmp_path / "store"
    registry.reset()
    events.reset()
    pairs.reset()
    door.reset()
    yield
    registry.reset()
    events.reset()
    pairs.reset()
