"""The database backend of the hub: `OPTIONS["connections"]` bounds how many connections a process has at once.

A thread has one only while it talks to the database, and gives it back when it waits for anything else (`give_back`).
It waits for one that others have; no thread is there only to keep connections open, and while the server is away
everybody is told so at once. A server that has none left is different: what this process has goes round.

One of them is kept for what must not wait for the others' work: a database lock, a worker's presence (`kept`).
"""

from __future__ import annotations

import re
import select
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import psycopg
from django.db import connection
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.postgresql import base
from psycopg import sql
from psycopg.pq import TransactionStatus

# So long a thread waits for a connection that others of its process have; then it is told that there is none.
PATIENCE = 30.0
# The same while the server gives no further one, and how often it is asked again.
FULL_PATIENCE, ASK_EVERY = 5.0, 0.25
# So many of a process's connections are kept for what must not wait for the others' work.
KEPT = 1
# What PostgreSQL and PgBouncer say at their limit. The state 53300 does not reach a client that is not connected yet.
_FULL = re.compile(r"too many (?:clients|connections)|connection slots are reserved|no more connections allowed")


class NoneFree(psycopg.OperationalError):
    """All connections of this process have been in use for too long."""


class FailedOver(psycopg.OperationalError):
    """Another server has taken over since this process last connected: whoever comes again is connected to it."""


class _Patience(threading.local):
    """How long this thread waits for a connection, in seconds; `kept`: whether it may have one that is kept."""

    seconds: float | None = None
    kept: bool = False


_patience = _Patience()


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Whoever only wants to know how the database is does not wait long for a connection."""
    _patience.seconds = seconds
    try:
        yield
    finally:
        _patience.seconds = None


@contextmanager
def kept() -> Iterator[None]:
    """What this thread takes meanwhile may be the connection that is kept. It must need it for a moment only, or be a
    lock; and must have none before.
    """
    _patience.kept = True
    try:
        yield
    finally:
        _patience.kept = False


class Pool:
    """The connections of one process to one database. `limit`: how many at once, with the one that is kept."""

    def __init__(self, limit: int, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self.limit = limit
        self._connect = connect
        self._free = threading.Semaphore(limit - KEPT)
        self._kept = threading.Semaphore(KEPT)
        self._lock = threading.Lock()
        self._given_back = threading.Condition(self._lock)
        self._idle: list[psycopg.Connection[Any]] = []
        self._slots: dict[int, weakref.finalize[Any, Any]] = {}
        self._finding = 0  # threads that are about to have one: of those given back, or a new one
        self._closed = False
        self._in_vain_at: float | None = None  # monotonic: when somebody last waited in vain
        self._refused = False  # the last attempt to connect found a server that has no connection left

    def open(self) -> None:
        """Nothing: connections are made when they are asked for."""

    def getconn(self) -> psycopg.Connection[Any]:
        """A connection that works, as far as can be told without asking the server.

        Raises NoneFree after `PATIENCE` seconds, psycopg.OperationalError when the server cannot be reached, or when it
        has none left and this process's own were all in use for `FULL_PATIENCE` seconds.
        """
        seconds = PATIENCE if _patience.seconds is None else _patience.seconds
        place = self._free
        if _patience.kept and self._kept.acquire(blocking=False):
            place = self._kept
        elif not place.acquire(timeout=seconds):
            self._in_vain_at = time.monotonic()
            raise NoneFree(f"all {self.limit} database connections of this process are in use")
        try:
            return self._find(place, time.monotonic() + min(seconds, FULL_PATIENCE))
        except BaseException:
            place.release()
            raise

    def trouble(self) -> str:
        """What keeps this process from having more connections, as of now; "" = nothing that is known."""
        if self._refused and len(self._slots) + len(self._idle) < self.limit:
            try:
                self._new().close()
            except psycopg.OperationalError as error:
                return what_is_wrong(error)
        at = self._in_vain_at
        if at is not None and time.monotonic() - at < 2 * PATIENCE:
            return f"A request waited in vain for one of the {self.limit} connections of this process."
        return ""

    def usage(self) -> dict[str, int]:
        """How many connections are in use and idle now, and how many there may be."""
        with self._lock:
            return {"in_use": len(self._slots), "idle": len(self._idle), "limit": self.limit}

    def _find(self, place: threading.Semaphore, until: float) -> psycopg.Connection[Any]:
        while True:
            with self._lock:
                self._finding += 1
            found = refused = None
            try:
                found = self._idle_one() or self._new()
            except psycopg.OperationalError as error:
                refused = error
            finally:
                with self._lock:
                    self._finding -= 1
                    if found is not None:
                        found._pool = self  # type: ignore[assignment]
                        # One that is forgotten, as its thread has ended, does not count for ever.
                        self._slots[id(found)] = weakref.finalize(found, place.release)
            if found is not None:
                return found
            assert refused is not None
            with self._given_back:
                # Those in use come back in a moment; with none of its own a process can only come again later.
                alone = not (self._slots or self._idle or self._finding)
                if not _is_full(refused) or alone or time.monotonic() >= until:
                    raise refused
                if not self._idle:
                    self._given_back.wait(ASK_EVERY)

    def _new(self) -> psycopg.Connection[Any]:
        try:
            made = self._connect()
        except psycopg.OperationalError as error:
            self._refused = _is_full(error)
            raise
        self._refused = False
        return made

    def putconn(self, used: psycopg.Connection[Any]) -> None:
        """Takes a connection back: the next that asks has it, unless something is wrong with it."""
        used._pool = None
        with self._lock:
            slot = self._slots.pop(id(used), None)
            good = not self._closed and not used.closed and used.info.transaction_status == TransactionStatus.IDLE
            if good:
                self._idle.append(used)
                self._given_back.notify()
        if not good:
            used.close()
        if slot is not None and (alive := slot.detach()) is not None:
            alive[1]()

    def close(self) -> None:
        """Closes what is idle, and from now on what is given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for one in idle:
            one.close()

    def _idle_one(self) -> psycopg.Connection[Any] | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                found = self._idle.pop()
            if _is_quiet(found):
                return found
            found.close()


def _is_quiet(idle: psycopg.Connection[Any]) -> bool:
    """Whether the server has said nothing since: what it says to an idle connection is good-bye."""
    try:
        watch = select.poll()
        watch.register(idle.fileno(), select.POLLIN | select.POLLERR | select.POLLHUP)
        return not watch.poll(0)
    except (OSError, ValueError, psycopg.Error):
        return False


_pools: dict[str, Pool] = {}
_pools_lock = threading.Lock()


class DatabaseWrapper(base.DatabaseWrapper):
    """Takes its connection from the pool of the process, and gives it back with `close()`."""

    @property
    def pool(self) -> Pool | None:
        limit = self.settings_dict["OPTIONS"].get("connections")
        if self.alias == NO_DB_ALIAS or not limit:
            return None
        with _pools_lock:
            if self.alias not in _pools:
                _pools[self.alias] = Pool(limit, self._open)
            return _pools[self.alias]

    def close_pool(self) -> None:
        with _pools_lock:
            pool = _pools.pop(self.alias, None)
        if pool is not None:
            pool.close()

    def get_connection_params(self) -> dict[str, Any]:
        params: dict[str, Any] = super().get_connection_params()
        params.pop("connections", None)
        return params

    def _open(self) -> psycopg.Connection[Any]:
        before = _timeline
        made: psycopg.Connection[Any] = psycopg.connect(**{**self.get_connection_params(), "autocommit": True})
        self._configure_connection(made)  # type: ignore[attr-defined]
        _compare(before, made)
        return made


# Of the write-ahead log that the server writes: a standby that takes over begins another one. The name of a file begins
# with it; the control file knows it only after the next checkpoint (PostgreSQL documentation, 25.3.6).
TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"
_timeline = 0


def timeline() -> int:
    """The timeline of the server to which this process last connected; 0 = it does not tell."""
    return _timeline


def _compare(before: int, made: psycopg.Connection[Any]) -> None:
    """Closes a connection to another timeline than that of `before` it was asked for: what was begun on the old server
    is broken off, and whoever begins anew looks first what is missing (messaging/engine/memory.py). Raises FailedOver.
    """
    global _timeline
    try:
        row = made.execute(f"SELECT {TIMELINE}").fetchone()
    except psycopg.Error:  # a standby, or a server that is not quite PostgreSQL
        return
    _timeline = found = int(row[0]) if row else 0
    if before and before != found:
        made.close()
        raise FailedOver(f"another server has taken over: the database is on timeline {found} now")


def give_back() -> None:
    """This thread is about to wait for something else: others may have its connection. Not within a transaction."""
    if not connection.in_atomic_block:
        connection.close()


def what_is_wrong(error: Exception) -> str:
    """Why the database gave no connection, or no answer: one sentence that tells strangers nothing of its address."""
    cause = error.__cause__ or error
    if isinstance(cause, NoneFree):
        return f"No connection is free: {cause}."
    if _is_full(error):
        return "PostgreSQL has no connection left for this process: others have them all. Work waits until it has."
    return "It does not answer."


def trouble() -> str:
    """What keeps this process from having more connections to its database; "" = nothing that is known."""
    pool = _pools.get("default")
    return pool.trouble() if pool is not None else ""


def usage() -> dict[str, int]:
    """The connections of this process to its database by state; empty before the first."""
    pool = _pools.get("default")
    return pool.usage() if pool is not None else {}


def _is_full(error: Exception) -> bool:
    return _FULL.search(str(error)) is not None


class LockLost(Exception):
    """The connection that held a lock is gone, and the lock with it."""


class Lock:
    """An advisory lock of the database, held by an open transaction on a connection of its own: the one that is kept,
    as long as no other lock has it.

    So it belongs to nobody else's session, also behind a pooler that shares sessions between transactions. The
    transaction reads nothing between its statements and writes nothing: it has neither snapshot nor number, and holds
    up no vacuum, however long it lasts.
    """

    def __init__(self, held: psycopg.Connection[Any]) -> None:
        self._held = held

    def check(self) -> None:
        """Raises LockLost unless the lock is held right now."""
        try:
            self._held.execute("SELECT 1")
        except psycopg.Error as error:
            raise LockLost(str(error)) from error


@contextmanager
def locked(key: int, *, shared: bool = False, wait: bool = True) -> Iterator[Lock | None]:
    """Holds the lock while the block lasts; None when somebody else has it and `wait` is false."""
    function = f"pg_{'' if wait else 'try_'}advisory_xact_lock{'_shared' if shared else ''}"
    with kept(), wrapped_errors():
        held = _taken()
    known = held.isolation_level, held.prepare_threshold
    try:
        with wrapped_errors():
            held.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # any other keeps its first snapshot
            held.prepare_threshold = None  # so does the portal of a statement that has parameters or is prepared
            held.autocommit = False
            held.execute(_UNLIMITED)
            row = held.execute(sql.SQL("SELECT {}({})").format(sql.Identifier(function), sql.Literal(key))).fetchone()
        if wait or (row and row[0]):
            yield Lock(held)
        else:
            yield None
    finally:
        # The lock is free when this returns. A connection that is only closed is noticed by the server a little later,
        # and whoever asks for the lock right after would be told that somebody has it.
        with suppress(psycopg.Error):
            held.rollback()
            held.isolation_level, held.prepare_threshold = known
            held.autocommit = True
        _returned(held)


def _taken() -> psycopg.Connection[Any]:
    """A connection that is not the thread's own."""
    pool = connection.pool  # type: ignore[attr-defined]
    found: psycopg.Connection[Any] = pool.getconn() if pool is not None else connection._open()  # type: ignore[attr-defined]
    return found


def _returned(used: psycopg.Connection[Any]) -> None:
    pool = connection.pool  # type: ignore[attr-defined]
    if pool is not None:
        pool.putconn(used)
    else:
        used.close()


# An installation may end transactions that are idle, or long; this one is both, and does no harm.
_UNLIMITED = """
SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN (
    'idle_in_transaction_session_timeout', 'transaction_timeout', 'statement_timeout', 'lock_timeout')
"""


def wrapped_errors() -> AbstractContextManager[None]:
    """Errors of the driver become Django's, as everybody expects them."""
    wrapper: AbstractContextManager[None] = connection.wrap_database_errors
    return wrapper
