"""Fixtures of the tests of the messaging services."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import connection, models

from messaging import dispatch
from messaging.engine import leases
from messaging.overview.selectors import health


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


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """As health sees it, although no worker runs beside a test; tests of presences look at the rows."""
    there = leases.Presence("here:1", datetime(2026, 1, 1, tzinfo=UTC), None)
    monkeypatch.setattr(health, "presences", lambda: [there])


@pytest.fixture
def commit_fails() -> Callable[[type[models.Model]], AbstractContextManager[None]]:
    """`with commit_fails(Message):` whatever inserts such a row succeeds, and fails only when it is committed."""

    @contextmanager
    def failing(model: type[models.Model]) -> Iterator[None]:
        table = model._meta.db_table
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE FUNCTION no_commit() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'no commit today'; END $$"
            )
            cursor.execute(
                f"CREATE CONSTRAINT TRIGGER no_commit AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED "
                "FOR EACH ROW EXECUTE FUNCTION no_commit()"
            )
        try:
            yield
        finally:
            with connection.cursor() as cursor:
                cursor.execute("DROP FUNCTION no_commit CASCADE")

    return failing
