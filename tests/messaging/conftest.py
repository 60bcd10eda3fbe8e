"""Fixtures of the tests of the messaging services."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.core.cache import cache
from django.db import connection, models

from messaging import dispatch
from messaging.access.services import tokens
from messaging.engine import leases
from messaging.overview.selectors import health
from rmhub import clock
from rmhub.clock import FrozenClock
from rmhub.roles import Role
from tests.messaging.api.client import Api, make_token, make_user
from tests.messaging.console.scenes import World, world
from tests.messaging.factories import PartnerSide, partner_side
from tests.staged import staged

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


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


@pytest.fixture(autouse=True)
def fresh_tokens(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a process remembers of tokens does not outlive a test, and does outlive a slow moment in it."""
    monkeypatch.setattr(tokens, "SEEN_SECONDS", 3600.0)
    tokens.reset()
    yield
    tokens.reset()


@pytest.fixture
def admin(db: None) -> Api:
    """A caller with all scopes."""
    return Api(make_token(make_user(Role.ADMIN)))


@pytest.fixture
def operator(db: None) -> Api:
    """A caller with an operator's scopes."""
    return Api(make_token(make_user(Role.OPERATOR)))


@pytest.fixture
def viewer(db: None) -> Api:
    """A caller with a viewer's scopes."""
    return Api(make_token(make_user(Role.VIEWER)))


@pytest.fixture
def stranger() -> Api:
    """A caller without a token."""
    return Api()


@pytest.fixture
def partner(db: None) -> PartnerSide:
    """The partner of an active agreement."""
    return partner_side()
