"""Fixtures of the tests of the messaging services."""

from __future__ import annotations

from pathlib import Path

import pytest

from messaging import dispatch


@pytest.fixture(scope="session", autouse=True)
def static_folder() -> None:
    """WhiteNoise warns when it is missing, and nobody has collected static files for a test run."""
    from django.conf import settings

    Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)


@pytest.fixture(autouse=True)
def woken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Wake-ups, written down instead of published: no worker runs beside a test, and no broker keeps its leavings."""
    published: list[str] = []
    monkeypatch.setattr(dispatch, "wake", published.append)
    return published
