"""How many connections a process has: a bound, whatever its threads, and nobody waits for whom he holds up."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from django.db import OperationalError, connection, connections, transaction
from psycopg import sql

from messaging.engine.group import GroupCommit
from messaging.overview.selectors import health
from rmhub import clock
from rmhub.clock import frozen
from rmhub.postgresql import base
from tests.messaging.outages import administrator, end_sessions, outage
from tests.rmhub.conditions import eventually

pytestmark = pytest.mark.django_db(transaction=True)
WAIT = 120.0


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Two connections for all threads of this process, and one that is kept; who waits for one does so as long as the
    test may last.
    """
    monkeypatch.setattr(base, "PATIENCE", WAIT)
    monkeypatch.setattr(base, "FULL_PATIENCE", WAIT)
    options = connection.settings_dict["OPTIONS"]
    before = options["connections"]
    connection.close()
    connection.close_pool()
    options["connections"] = 2 + base.KEPT
    yield 2
    connection.close()
    connection.close_pool()
    options["connections"] = before


def server_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def in_threads(count: int, work: object) -> list[threading.Thread]:
    def run() -> None:
        try:
            work()  # type: ignore[operator]
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_twenty_threads_have_two_connections(bound: int) -> None:
    seen: set[int] = set()
    for thread in in_threads(20, lambda: seen.add(server_pid())):
        thread.join(WAIT)
    assert 1 <= len(seen) <= bound


def test_one_that_is_given_back_is_the_next_one_s(bound: int) -> None:
    first = server_pid()
    base.give_back()
    assert server_pid() == first


def test_within_a_transaction_nothing_is_given_back(bound: int) -> None:
    with transaction.atomic():
        first = server_pid()
        base.give_back()
        assert connection.in_atomic_block
        assert server_pid() == first


def test_one_that_is_given_back_within_a_transaction_is_nobody_s(bound: int) -> None:
    """Its thread ended in the middle: the next one must not go on with what it has written."""
    pool = connection.pool
    assert pool is not None
    used = pool.getconn()
    used.autocommit = False
    used.execute("SELECT 1")
    pool.putconn(used)
    assert used.closed
    assert [server_pid() for _ in range(2)], "and its place is free"


def test_a_thread_that_ended_without_giving_back_does_not_count_for_ever(bound: int) -> None:
    pool = connection.pool
    assert pool is not None
    for _ in range(3):
        forgotten = pool.getconn()
        forgotten.close()
        del forgotten
    base.give_back()
    assert server_pid()


def test_who_gets_none_is_told_why(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = connection.pool
    assert pool is not None
    held = [pool.getconn() for _ in range(bound)]
    monkeypatch.setattr(base, "PATIENCE", 0.01)
    assert base.trouble() == ""
    with pytest.raises(OperationalError, match="all 3 database connections of this process are in use"):
        server_pid()
    assert base.trouble() == "A request waited in vain for one of the 3 connections of this process."
    with pytest.raises(OperationalError) as refused, base.patience(0.0):
        server_pid()
    assert "all 3 database connections" in base.what_is_wrong(refused.value)
    for one in held:
        pool.putconn(one)
    assert server_pid()


def test_x23_idle_connections_of_a_server_that_went_away_are_not_used(bound: int) -> None:
    first = server_pid()
    base.give_back()
    end_sessions()
    assert server_pid() != first


def test_x23_while_the_server_is_away_everybody_is_told_at_once_and_nothing_is_lost_of_the_bound(bound: int) -> None:
    server_pid()
    with outage():
        for _ in range(3 * bound):
            with pytest.raises(OperationalError):
                server_pid()
            connection.close()
    for _ in range(3):
        assert server_pid()


def test_nothing_is_done_on_a_server_that_took_over_before_somebody_has_looked(
    bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_pid()
    here = base.timeline()
    assert here >= 1
    monkeypatch.setattr(base, "_timeline", here + 1)  # it was connected to another one
    end_sessions()
    connection.close()
    with pytest.raises(OperationalError, match=f"taken over: the database is on timeline {here} now"):
        server_pid()
    assert base.timeline() == here
    assert server_pid(), "whoever comes again is connected"
    assert base.usage()["in_use"] == 1


def test_whoever_waits_for_a_group_holds_no_connection(bound: int) -> None:
    """Else the one that does the work for all of them could get none."""

    def process(items: list[int]) -> list[int]:
        return [server_pid() for _ in items]

    group: GroupCommit[int, int] = GroupCommit(process)
    results: list[int] = []

    def work() -> None:
        server_pid()
        results.append(group.submit(1))

    for thread in in_threads(12, work):
        thread.join(WAIT)
    assert len(results) == 12


# ---- the one that is kept ----


def sessions() -> int:
    with administrator() as admin:
        found = admin.execute(_SESSIONS, [connection.settings_dict["NAME"]]).fetchone()
    assert found is not None
    return int(found[0])


_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"


def test_what_is_kept_is_there_while_the_threads_have_all_others(bound: int) -> None:
    """A worker shows that it lives, however long its callables take."""
    pool = connection.pool
    assert pool is not None
    held = [pool.getconn() for _ in range(bound)]
    with base.kept():
        assert server_pid()
    base.give_back()
    with pytest.raises(OperationalError), base.patience(0.0):
        server_pid()
    for one in held:
        pool.putconn(one)


def test_a_lock_has_the_connection_that_is_kept_and_no_further_one(bound: int) -> None:
    pool = connection.pool
    assert pool is not None
    connection.close()
    held = [pool.getconn() for _ in range(bound)]
    before = sessions()
    for _ in range(3):
        with base.locked(4711) as lock:
            assert lock is not None
            assert sessions() == before + base.KEPT
    with base.kept():
        used = server_pid()
    assert used and sessions() == before + base.KEPT, "it is the next one's, with the settings of all"
    base.give_back()
    for one in held:
        pool.putconn(one)


def test_what_a_lock_had_is_as_others_want_theirs(bound: int) -> None:
    pool = connection.pool
    assert pool is not None
    connection.close()
    with base.locked(4711) as lock:
        assert lock is not None
        used, known = lock._held, pool.getconn()
    assert (used.autocommit, used.isolation_level, used.prepare_threshold) == (
        known.autocommit,
        known.isolation_level,
        known.prepare_threshold,
    )
    assert not used.closed
    pool.putconn(known)


# ---- a server that has no connection left ----


FULL = "connection failed: FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute"


@pytest.fixture
def few(bound: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The server gives this process one connection, and says then what it says at its limit; `few[0] = 2` gives two.

    That PostgreSQL says so is shown by `make chaos`, where others take all that it has.
    """
    given, one = [1], threading.Lock()
    pool = connection.pool
    assert pool is not None
    connect = pool._connect
    made: weakref.WeakSet[psycopg.Connection] = weakref.WeakSet()

    def limited() -> psycopg.Connection:
        with one:
            if sum(not known.closed for known in made) >= given[0]:
                raise psycopg.OperationalError(FULL)
            found = connect()
            made.add(found)
            return found

    monkeypatch.setattr(pool, "_connect", limited)
    yield given
    connection.close()


def test_x23_what_a_process_has_goes_round_while_the_server_gives_no_more(few: list[int]) -> None:
    seen: list[int] = []

    def work() -> None:
        seen.append(server_pid())
        base.give_back()

    for thread in in_threads(12, work):
        thread.join(WAIT)
    assert len(seen) == 12 and len(set(seen)) == 1


def test_x23_who_is_refused_waits_for_one_that_another_thread_is_about_to_have(
    bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = connection.pool
    assert pool is not None
    connect, asked, made = pool._connect, threading.Barrier(2), []

    def first_of_all() -> psycopg.Connection:
        if threading.current_thread() is not slow:
            made.append(None)
            if len(made) == 3:  # three times it has seen that there is none
                asked.wait(WAIT)
            raise psycopg.OperationalError(FULL)
        asked.wait(WAIT)
        return connect()

    monkeypatch.setattr(pool, "_connect", first_of_all)
    seen: list[int] = []
    began = threading.Event()

    def work() -> None:
        began.set()
        seen.append(server_pid())
        base.give_back()

    slow = threading.Thread(target=work)
    slow.start()
    began.wait(WAIT)
    eventually(lambda: pool._finding == 1)
    seen.append(server_pid())
    slow.join(WAIT)
    assert len(seen) == 2 and len(set(seen)) == 1


def test_x23_health_says_that_the_server_has_no_connection_left_and_since_when(
    few: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether this process has one of its own or none; and no more once there are connections again."""
    monkeypatch.setattr(base, "FULL_PATIENCE", 0.01)
    health.forget()
    pool = connection.pool
    assert pool is not None
    mine = pool.getconn()
    first = {part.name: part for part in health.health().parts}["database"]
    assert (first.state, first.detail) == (
        "down",
        "PostgreSQL has no connection left for this process: others have them all. Work waits until it has.",
    )
    pool.putconn(mine)
    with frozen(clock.now() + timedelta(minutes=2)):
        used = server_pid()
        second = {part.name: part for part in health.health().parts}["database"]
    assert used and (second.state, second.detail, second.since) == ("degraded", first.detail, first.since)
    few[0] = 2
    third = {part.name: part for part in health.health().parts}["database"]
    assert (third.state, third.since) == ("ok", None)


def test_a_password_that_is_wrong_is_not_told_to_strangers(bound: int) -> None:
    known = connection.settings_dict
    before, known["USER"] = known["USER"], "nobody-of-this-name"
    try:
        with pytest.raises(OperationalError) as refused:
            server_pid()
    finally:
        known["USER"] = before
    assert base.what_is_wrong(refused.value) == "It does not answer."


# ---- locks ----


def test_a_lock_is_held_by_one_and_given_back(bound: int) -> None:
    with base.locked(4711, wait=False) as lock:
        assert lock is not None
        lock.check()
        with base.locked(4711, wait=False) as second:
            assert second is None
    with base.locked(4711, wait=False) as again:
        assert again is not None


def test_a_lock_is_free_when_its_block_ends_and_not_when_the_server_sees_that_somebody_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[psycopg.Connection] = []
    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "close", lambda one: left.append(one))  # the server does not notice
        with base.locked(4711, wait=False) as lock:
            assert lock is not None
        with base.locked(4711, wait=False) as again:
            assert again is not None
    for one in left:
        one.close()


def test_a_lock_does_not_depend_on_who_gets_the_connection_next(bound: int) -> None:
    """As behind a pooler: between two statements of a thread its connection may be another."""
    with base.locked(4711) as lock:
        assert lock is not None
        base.give_back()
        end = server_pid()
        base.give_back()
        with base.locked(4711, wait=False) as second:
            assert second is None
        assert end
    with base.locked(4711, shared=True) as one, base.locked(4711, shared=True) as two:
        assert one is not None and two is not None


def test_x23_a_lock_that_went_with_its_connection_is_known_to_be_lost(bound: int) -> None:
    with base.locked(4711) as lock:
        assert lock is not None
        end_sessions()
        with pytest.raises(base.LockLost):
            lock.check()
        connection.close()
        with base.locked(4711, wait=False) as other:
            assert other is not None


def test_a_pool_that_was_closed_keeps_nothing(bound: int) -> None:
    server_pid()
    used = connection.connection
    connection.close_pool()
    connection.close()
    assert isinstance(used, psycopg.Connection)
    eventually(lambda: used.closed)


def test_a_lock_holds_up_no_vacuum_however_long_it_is_held(bound: int) -> None:
    """Nor does the installation end it, whatever it does with transactions that are long and idle."""
    name = sql.Identifier(connection.settings_dict["NAME"])
    limits = ("default_transaction_isolation = 'repeatable read'", "idle_in_transaction_session_timeout = 200")
    with administrator() as admin:
        for limit in limits:
            admin.execute(sql.SQL("ALTER DATABASE {} SET " + limit).format(name))
    try:
        with base.locked(4711) as lock:
            assert lock is not None
            with administrator() as admin:
                holder = "SELECT state, backend_xmin, backend_xid FROM pg_stat_activity WHERE pid = %s"
                pid = lock._held.info.backend_pid
                eventually(lambda: admin.execute(holder, [pid]).fetchone() == ("idle in transaction", None, None))
                # Longer than the server lets others be idle.
                eventually(lambda: admin.execute(_IDLE_FOR, [pid]).fetchone() == (True,))
            for _ in range(10):
                lock.check()
            with administrator() as admin:
                eventually(lambda: admin.execute(holder, [pid]).fetchone() == ("idle in transaction", None, None))
    finally:
        with administrator() as admin:
            admin.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(name))


_IDLE_FOR = "SELECT clock_timestamp() - state_change > interval '500 ms' FROM pg_stat_activity WHERE pid = %s"
