"""A database that goes away for a while, for this test's database alone: sessions end, and no new one begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import OperationalError, connection
from psycopg import sql


@contextmanager
def administrator() -> Iterator[psycopg.Connection]:
    """A connection to another database of the same server."""
    known = connection.settings_dict
    with psycopg.connect(
        host=known["HOST"],
        port=known["PORT"],
        user=known["USER"],
        password=known["PASSWORD"],
        dbname="postgres",
        autocommit=True,
    ) as made:
        yield made


def end_sessions() -> None:
    """Every session of the test's database ends now, as when the server is restarted."""
    with administrator() as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s AND usename = user",
            [connection.settings_dict["NAME"]],
        )


@contextmanager
def outage() -> Iterator[None]:
    """While this lasts the database takes no connection; those that were there are gone."""
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    name = sql.Identifier(connection.settings_dict["NAME"])
    with administrator() as admin:
        admin.execute(allow.format(name, sql.SQL("false")))
    try:
        end_sessions()
        yield
    finally:
        with administrator() as admin:
            admin.execute(allow.format(name, sql.SQL("true")))
        connection.close()


class Killed:
    """The database is gone with the n-th statement."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise OperationalError("the connection is closed")
        return execute(sql, params, many, context)
