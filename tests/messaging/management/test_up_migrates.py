"""Whose tables `manage.py up` changes: the embedded server's always, those of DATABASE_URL only when it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from messaging.management.commands import up
from rmhub.hubs import free_ports
from rmhub.management.commands import migrate
from tests import servers

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what `up` would run."""
    names: list[str] = []

    class Supervisor:
        def __init__(self, processes: list[Any]) -> None:
            names.extend(process.name for process in processes)

        def run(self) -> int:
            return 0

    monkeypatch.setattr(up, "Supervisor", Supervisor)
    monkeypatch.setattr(up.Command, "_announce", lambda *args: None)
    return names


def _up(*options: str) -> int:
    with pytest.raises(SystemExit) as ended:
        call_command("up", "--port", str(free_ports(1)[0]), *options)
    return int(ended.value.code or 0)


@pytest.fixture
def behind() -> Iterator[str]:
    """The last migration of one app is not applied, as far as the database knows. Its name."""
    [last] = MigrationExecutor(connection).loader.graph.leaf_nodes("partners")
    recorder = MigrationRecorder(connection)
    recorder.record_unapplied(*last)
    yield ".".join(last)
    recorder.record_applied(*last)


def test_tables_of_an_older_version_are_left_to_whoever_upgrades(started: list[str], behind: str) -> None:
    with pytest.raises(CommandError) as refused:
        call_command("up", "--port", str(free_ports(1)[0]))
    assert refused.value.returncode == 2
    assert behind in str(refused.value) and "--migrate" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert started == []


def test_up_migrates_when_it_is_told_to(started: list[str], behind: str) -> None:
    assert _up("--migrate") == 0
    assert started[0] == "migrate"


def test_tables_of_this_version_are_not_touched(started: list[str]) -> None:
    assert _up() == 0
    assert started[:3] == ["static", "users", "web"]


def test_the_embedded_servers_tables_follow_by_themselves(started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    own = SimpleNamespace(database_url="postgresql://127.0.0.1:1/none", redis_url="redis://127.0.0.1:1/0")
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.setattr(up.embedded, "servers", lambda *args, **options: nullcontext(own))
    assert _up() == 0
    assert started[0] == "migrate"


def test_a_database_that_is_away_is_said_in_one_line(started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: object) -> None:
        raise up.OperationalError("connection refused\nIs the server running?")

    monkeypatch.setattr(up, "MigrationExecutor", away)
    with pytest.raises(CommandError, match=r"does not answer: connection refused$") as refused:
        call_command("up", "--port", str(free_ports(1)[0]))
    assert refused.value.returncode == 1


def test_a_migration_gives_up_rather_than_make_the_hub_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's long transaction has read the table: all others would wait behind the lock that waits for that."""
    monkeypatch.setattr(migrate, "LOCK_SECONDS", 1)
    with connection.cursor() as cursor, psycopg.connect(servers.database_url()) as other:
        cursor.execute("SET statement_timeout = '60s'")  # or it would wait for ever
        other.execute("SELECT FROM django_session")
        with pytest.raises(CommandError, match=r"sessions\.0001_initial: .* run migrate again") as refused:
            call_command("migrate", "sessions", "zero", verbosity=0)
        assert refused.value.returncode == 1
        cursor.execute("RESET statement_timeout")
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)
    assert ("sessions", "0001_initial") in MigrationRecorder(connection).applied_migrations()
