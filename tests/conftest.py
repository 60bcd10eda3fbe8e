"""Fixtures of all tests. The servers behind them are started by `tests.servers`."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# No example is judged by how long it takes: the machine may be busy.
hypothesis.settings.register_profile(
    "rmhub", deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("rmhub")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Says what stays together when tests run in several processes.

    Files stay whole, for what they build once; all that needs Spark shares one session, all of a browser one Chromium.
    """
    if not item.get_closest_marker("xdist_group"):
        kinds = [kind for kind in ("browser", "acceptance", "spark") if item.get_closest_marker(kind)]
        item.add_marker(pytest.mark.xdist_group(kinds[0] if kinds else str(item.path)))


def pytest_collection_finish() -> None:
    """Looks for garbage less often, and never in what stays: all modules, and ten thousand collected tests."""
    if os.environ["DJANGO_SETTINGS_MODULE"] != "tests.settings":
        raise pytest.UsageError("A module that tests import sets DJANGO_SETTINGS_MODULE: for all that they start, too.")
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_setup() -> None:
    """No test does without the broker because that failed in a test before it, and is left alone for a while."""
    dispatch = sys.modules.get("messaging.dispatch")
    if dispatch is not None:
        dispatch._down_until = 0.0  # type: ignore[attr-defined]


def pytest_sessionfinish() -> None:
    gc.unfreeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begins with what waits for others the most."""
    groups = [mark.args[0] for item in items if (mark := item.get_closest_marker("xdist_group"))]
    first = {"acceptance": 0, "spark": 1}  # the longest two; the next two wait for their end
    held_back = {"pair": 1, "browser": 2}
    others = [group for group, _ in Counter(groups).most_common() if group not in (*first, *held_back)]
    ranks = {group: rank for rank, group in enumerate([*first, *others[:1], *held_back, *others[1:]])}
    items.sort(key=lambda item: ranks[item.get_closest_marker("xdist_group").args[0]])  # type: ignore[union-attr]


# Django makes them anew after each flush, for all models.
_KEPT = ("auth_permission", "django_content_type")
_MANY = 500  # rows, from which on to truncate all tables costs less than to delete them


@pytest.fixture(scope="session", autouse=True)
def what_was_written_is_flushed() -> Iterator[None]:
    """After a test with real commits only tables that have rows are emptied: to truncate all takes longer."""
    from django.db.backends.postgresql.operations import DatabaseOperations

    truncate = DatabaseOperations.sql_flush

    def sql_flush(self: Any, style: Any, tables: list[str], **options: bool) -> list[str]:
        quoted = [self.quote_name(table) for table in sorted(tables) if table not in _KEPT]
        with self.connection.cursor() as cursor:
            cursor.execute(
                " UNION ALL ".join(
                    f"SELECT {place}, count(*) FROM (SELECT FROM {table} LIMIT {_MANY + 1}) AS t{place}"
                    for place, table in enumerate(quoted)
                )
            )
            written = {quoted[place]: count for place, count in cursor.fetchall() if count}
        if max(written.values(), default=0) > _MANY:
            return truncate(self, style, tables, **options)  # type: ignore[no-any-return]
        return [f"DELETE FROM {table}" for table in written]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseOperations, "sql_flush", sql_flush)
        yield


@pytest.fixture(scope="session")
def folder_of_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the payload files of all tests of a process go: `tmp_path` looks through all folders that it ever made."""
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(autouse=True)
def fresh_caches(request: pytest.FixtureRequest, folder_of_process: Path) -> Iterator[None]:
    """What processes remember of the database does not outlive a test; payload files go to a folder of the test."""
    # A test may ask for the database by its mark alone; then neither fixture is among its names.
    if not request.node.get_closest_marker("django_db") and not {"db", "transactional_db"} & set(request.fixturenames):
        yield
        return
    from messaging import applications
    from messaging.messages.selectors import messages
    from tests.staged import forget_all

    if not _commits(request):
        request.getfixturevalue("nobody_else_writes")
    settings = request.getfixturevalue("settings")
    folder = Path(tempfile.mkdtemp(dir=folder_of_process))
    settings.RMHUB_STORE_DIR = folder / "store"
    settings.RMHUB_LAKE_DIR = folder / "lake"
    settings.RMHUB_ARCHIVE_DIR = folder / "archive"
    # The time limit of a search holds until its transaction ends, and that is the end of the test: on a busy machine it
    # would stop what the test does after the search.
    request.getfixturevalue("monkeypatch").setattr(messages, "SECONDS", 600)
    forget_all()
    tables: tuple[dict[str, Any], ...] = (applications.SERVICES, applications.RESOLVERS, applications.MONITORS)
    registered = [dict(table) for table in tables]
    yield
    for table, before in zip(tables, registered, strict=True):
        table.clear()
        table.update(before)
    forget_all()
    shutil.rmtree(folder, ignore_errors=True)


def _commits(request: pytest.FixtureRequest) -> bool:
    marker = request.node.get_closest_marker("django_db")
    return "transactional_db" in request.fixturenames or bool(marker and marker.kwargs.get("transaction"))


@pytest.fixture
def nobody_else_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the one transaction of a test nothing asks the database again for what others may have written meanwhile.

    When it asks is up to the machine's clock and to the tests of other processes, and statements are counted.
    """
    from messaging.models import feed
    from rmhub import remembered

    monkeypatch.setattr(remembered, "SECONDS", float("inf"))
    monkeypatch.setattr(feed, "HORIZON", f"SELECT number, false FROM ({feed.HORIZON}) AS seen (number)")


@pytest.fixture(autouse=True)
def no_days_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """The days of what is remembered, made by a test that commits, go with it: Django's flush does not know them."""
    if not _commits(request):
        yield
        return
    request.getfixturevalue("transactional_db")
    yield
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits JOIN pg_class parent ON parent.oid = inhparent"
            " WHERE parent.relname IN ('messaging_documentcompleted', 'messaging_rememberedrequest')"
            " AND parent.relkind = 'p'"
        )
        for (day,) in cursor.fetchall():
            cursor.execute(f"DROP TABLE {day}")
