"""Checks of PostgreSQL: what the hub takes for granted of it, and where it is about to end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
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
    try:
        version = int(_setting("server_version_num"))
    except (DatabaseError, InterfaceError) as error:
        cause = error.__cause__ or error
        said = str(cause).strip().splitlines()
        at = f"{known['HOST'] or 'the local socket'}:{known['PORT']}/{known['NAME']}"
        yield failed(f"{at}: {what_is_wrong(error)} {said[0] if said else ''}".rstrip(), "Check DATABASE_URL.")
        return
    with connection.cursor() as cursor:  # of several servers, the one that it is connected to
        found = cursor.connection.info
        at = f"{found.host or 'the local socket'}:{found.port}/{found.dbname}"
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


def standbys() -> Iterator[Finding]:
    """Each server of DATABASE_URL answers, one of them takes writes, and a failover loses nothing."""
    known = connection.settings_dict
    hosts, ports = known["HOST"].split(","), str(known["PORT"]).split(",")
    if len(hosts) > 1:
        yield from _servers(list(zip(hosts, ports if len(ports) > 1 else ports * len(hosts), strict=True)))
    (count,) = _one("SELECT count(*) FROM pg_stat_replication")
    if not count:
        yield ok("none is connected: without one, nothing can take over")
    elif not _setting("synchronous_standby_names") or _setting("synchronous_commit") == "local":
        yield warning(
            f"{count} are connected, and no commit waits for one: a failover loses the last ones,"
            " and then every pair needs resync",
            "Set synchronous_standby_names.",
        )
    else:
        yield ok(f"{count} are connected; commits wait for {_setting('synchronous_standby_names')}")


def _servers(named: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """Asks each of several servers (host, port) what it is."""
    parameters = {**connection.get_connection_params(), "target_session_attrs": "any", "autocommit": True}
    primaries = []
    for host, port in named:
        at = f"{host}:{port}"
        try:
            with psycopg.connect(**{**parameters, "host": host, "port": port}) as asked:
                (standby,) = asked.execute("SELECT pg_is_in_recovery()").fetchone() or (None,)
        except psycopg.Error as error:
            yield warning(f"{at} does not answer: {str(error).splitlines()[0]}", "Start it again as a standby.")
            continue
        if not standby:
            primaries.append(at)
    if len(primaries) > 1:
        yield failed(
            f"{' and '.join(primaries)} all take writes: processes of the hub may be on any of them",
            "Stop all but the right one at once, then make the others its standbys.",
        )


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
        return
    yield ok(f"wal_level is {level}, archive_mode {_setting('archive_mode')}")
    (failing,) = _one(
        "SELECT CASE WHEN last_failed_time > coalesce(last_archived_time, '-infinity') THEN last_failed_wal END"
        " FROM pg_stat_archiver"
    )
    if failing:
        yield failed(
            f"{failing} could not be archived: the disk of the database fills, and no recovery goes beyond it",
            "Look at the log of PostgreSQL, and at archive_command.",
        )


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
