"""Fixtures of all tests. Without DATABASE_URL real servers are started for the run (throw-away: nothing is synced)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_started: list[Path] = []


def pytest_configure(config: pytest.Config) -> None:
    """Before Django reads its settings. Collecting alone (`--collect-only`) needs no server."""
    os.environ.setdefault("RMHUB_LOG_LEVEL", "ERROR")
    if os.environ.get("DATABASE_URL") or config.option.collectonly:
        return
    from rmhub import embedded

    var = Path(tempfile.mkdtemp(prefix="rmhub-tests-"))
    servers = embedded.start(var, throwaway=True)
    _started.append(var)
    os.environ["DATABASE_URL"] = servers.database_url
    os.environ["REDIS_URL"] = servers.redis_url


def pytest_unconfigure(config: pytest.Config) -> None:
    if _started:
        import shutil

        from rmhub import embedded

        for var in _started:
            embedded.stop(var)
            shutil.rmtree(var, ignore_errors=True)


@pytest.fixture(autouse=True)
def fresh_caches(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """What processes remember of the database does not outlive a test; payload files go to a folder of the test."""
    if not {"db", "transactional_db"} & set(request.fixturenames):
        yield
        return
    from messaging.services import events, pairs
    from partners import registry

    settings = request.getfixturevalue("settings")
    settings.RMHUB_STORE_DIR = tmp_path / "store"
    registry.reset()
    events.reset()
    pairs.reset()
    yield
    registry.reset()
    events.reset()
    pairs.reset()
