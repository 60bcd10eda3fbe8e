"""Databases on a server that runs: a second hub on the same server has one of its own."""

from __future__ import annotations

import contextlib
from urllib.parse import quote, unquote, urlsplit, urlunsplit

_TRIES = 3


def database_url(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path="/" + quote(name, safe="")))


def create_database(url: str, name: str, *, like: str = "") -> str:
    """Make a database unless it exists; return its URL. The role of ``url`` owns it.

    ``like``: the name of one whose content it gets; nobody else may be connected to that one.
    Raises psycopg.Error when the server cannot be reached or the role may not create databases.
    """
    import psycopg  # here, because `python -m rmhub.embedded` has to work without the project's packages
    from psycopg import sql

    with psycopg.connect(url, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            # somebody else may be faster
            with contextlib.suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                made = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
                connection.execute(made + sql.SQL(" TEMPLATE {}").format(sql.Identifier(like)) if like else made)
    return database_url(url, name)


def drop_database(url: str, name: str) -> None:
    """Drop a database with all its content, and the sessions on it; nothing happens when there is none.

    ``url`` is that of another database on the same server. Raises ValueError otherwise, and psycopg.Error when the
    server refuses.
    """
    import psycopg
    from psycopg import sql

    if unquote(urlsplit(url).path.lstrip("/")) == name:
        raise ValueError(f"the URL is that of {name} itself: a database cannot be dropped from within")
    drop = sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name))
    force = drop + sql.SQL(" WITH (FORCE)")
    with psycopg.connect(url, autocommit=True) as connection:
        # Ending a vacuum takes a right that the role does not have, but only with FORCE. Without it, the server ends
        # the vacuum, and no session.
        for statement in (force, drop) * _TRIES:
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectInUse):
                connection.execute(statement)
                return
        connection.execute(force)
