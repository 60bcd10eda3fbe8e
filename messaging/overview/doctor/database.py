"""Checks of PostgreSQL: what the hub takes for granted of it, and where it is about to end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor

from messaging.overview.doctor.check import Finding, failed, ok, warning
from rmhub.postgresql.base import what_is_wrong

OLDEST = 14  # what Django supports
CLOCK_WARNING, CLOCK_FAILED = 1.0, 10.0  # seconds
# Web server and worker have `RMHUB_DB_CONNECTIONS` each; the pipeline has two, and locks have their own.
_MORE = 2


def _one(statement: str, parameters: list[Any] | None = None) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or [])
        return cursor.fetchone()


def _setting(name: str) -> str:
    """As this session has it; "" where the server does not know it."""
    (value,) = _one("SELECT current_setting(%s, true)", [name])
    return str(value or "")


def answers() -> Iterator[Finding]:
    """It is reached, with the version and the encoding that the hub needs."""
    known = connection.settings_dict
    at = f"{known['HOST'] or 'the local socket'}:{known['PORT']}/{known['NAME']}"
    try:
        version = int(_setting("server_version_num"))
    except (DatabaseError, InterfaceError) as error:
        cause = error.__cause__ or error
        said = str(cause).strip().splitlines()
        yield failed(f"{at}: {what_is_wrong(error)} {said[0] if said else ''}".rstrip(), "Check DATABASE_URL.")
        return
    shown = f"PostgreSQL {version // 10_000}.{version % 10_000} at {at}"
    if version < OLDEST * 10_000:
        yield failed(f"{shown} is too old", f"Upgrade it to {OLDEST} or later.")
    else:
        yield ok(shown)


def encoding() -> Iterator[Finding]:
    """Names and documents have every character."""
    found = _setting("server_encoding")
    if found == "UTF8":
        yield ok("UTF8")
    else:
        yield failed(f"the database is encoded in {found}", "Create it anew with ENCODING 'UTF8' and restore into it.")


def role() -> Iterator[Finding]:
    """It takes writes, and its triggers run."""
    (standby,) = _one("SELECT pg_is_in_recovery()")
    if standby:
        yield failed(
            "it is a standby: nothing can be written",
            "Name the primary in DATABASE_URL, or all servers with target_session_attrs=read-write.",
        )
    elif _setting("transaction_read_only") == "on":
        yield failed("sessions are read-only", "Reset default_transaction_read_only of the server, database or role.")
    elif _setting("session_replication_role") != "origin":
        yield failed("triggers of the hub's tables do not run", "Reset session_replication_role of database or role.")
    else:
        (standbys,) = _one("SELECT count(*) FROM pg_stat_replication")
        yield ok(f"it is the primary, and takes writes; {standbys} standbys are connected")


def migrations() -> Iterator[Finding]:
    """The tables are those of this version of the hub."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    known = {key for key in executor.loader.applied_migrations if key[0] in ("partners", "messaging")}
    newer = sorted(".".join(key) for key in known - set(executor.loader.disk_migrations))
    if plan:
        yield failed(f"{len(plan)} migrations are not applied", "Run manage.py migrate.")
    elif newer:
        yield failed(f"the database is newer than this code: it has {', '.join(newer)}", "Start the newer version.")
    else:
        yield ok("all are applied")


def durability() -> Iterator[Finding]:
    """What is committed is on disk: the hub has answered "accepted" for it."""
    wrong = [
        f"{name} is off" for name in ("fsync", "full_page_writes", "synchronous_commit") if _setting(name) == "off"
    ]
    if wrong:
        yield failed(f"{', '.join(wrong)}: accepted documents can be lost in a crash", "Switch it on.")
    else:
        yield ok(f"fsync and full_page_writes are on, synchronous_commit is {_setting('synchronous_commit')}")
    if _setting("autovacuum") == "off":
        yield failed("autovacuum is off: tables grow, and the server stops in the end", "Switch it on.")


def wal() -> Iterator[Finding]:
    """A standby or a point-in-time recovery can be made of it."""
    level = _setting("wal_level")
    if level == "minimal":
        yield warning("wal_level is minimal: no standby, no point-in-time recovery", "Set it to replica.")
    else:
        yield ok(f"wal_level is {level}, archive_mode {_setting('archive_mode')}")


def connections() -> Iterator[Finding]:
    """There is room for the processes of one machine, whoever else uses the server."""
    (most, reserved) = int(_setting("max_connections")), int(_setting("superuser_reserved_connections"))
    (of_database, of_role, used) = _one(
        "SELECT (SELECT datconnlimit FROM pg_database WHERE datname = current_database()),"
        " (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),"
        " (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        " AND application_name NOT LIKE 'rmhub%%' AND pid <> pg_backend_pid())"
    )
    need = 2 * settings.DATABASES["default"]["OPTIONS"]["connections"] + _MORE
    left = most - reserved - used
    shown = f"{left} of {most} connections are left for the hub, and a web server, a worker and the pipeline use {need}"
    advice = "Raise max_connections, or lower RMHUB_DB_CONNECTIONS."
    limits = [limit for limit in (of_database, of_role) if 0 <= limit < need]
    if limits:
        yield failed(f"database or role may have {min(limits)} connections, {need} are used", "Raise its limit.")
    elif left < need:
        yield failed(shown, advice)
    elif left < 2 * need:
        yield warning(f"{shown}; with a second machine there are too few", advice)
    else:
        yield ok(shown)


def clocks() -> Iterator[Finding]:
    """Timers are set by the workers' clocks, presence is judged by the database's."""
    before = time.time()
    (there,) = _one("SELECT clock_timestamp()")
    after = time.time()
    here = datetime.fromtimestamp((before + after) / 2, UTC)
    apart = max(0.0, abs((there - here).total_seconds()) - (after - before) / 2)
    text = f"the database's clock and this machine's are {apart:.1f} s apart"
    advice = "Synchronise both by NTP."
    if apart > CLOCK_FAILED:
        yield failed(text, advice)
    elif apart > CLOCK_WARNING:
        yield warning(text, advice)
    else:
        yield ok(text)
