"""The embedded servers, really started.

When the tests run as root, pytest's folders cannot be reached by the servers' user, so that most of these tests use
a substitute folder; ``reachable`` is one that can be.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest
import redis

from rmhub import embedded
from rmhub.embedded import EmbeddedError, Servers, identity, lifecycle, postgres, processes, state, valkey
from rmhub.embedded.identity import make_home
from rmhub.embedded.processes import Mark
from rmhub.supervisor.processes import PRELUDE, locked
from tests import ROOT
from tests.rmhub.conditions import alive, eventually

STARTER = """
import signal, sys
from pathlib import Path
from rmhub import embedded
print(embedded.start(Path(sys.argv[1])).database_url, flush=True)
signal.pause()
"""


@pytest.mark.parametrize(
    ("uid", "users", "expected"),
    [
        (1000, {"rmhub": 7, "nobody": 9}, (None, False)),
        (0, {"rmhub": 7, "nobody": 9}, ((7, 7), False)),
        (0, {"nobody": 9}, ((9, 9), True)),
        (0, {}, ((65534, 65534), True)),
    ],
    ids=["not root", "root with a user for the hub", "root without", "root on a machine without users"],
)
def test_who_runs_the_servers_and_whether_others_may_be_that_user(
    monkeypatch: pytest.MonkeyPatch, uid: int, users: dict[str, int], expected: tuple[object, bool]
) -> None:
    found = {name: SimpleNamespace(pw_name=name, pw_uid=number, pw_gid=number) for name, number in users.items()}
    by_number = {one.pw_uid: one for one in found.values()}
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(pwd, "getpwnam", found.__getitem__)
    monkeypatch.setattr(pwd, "getpwuid", by_number.__getitem__)
    who = identity.servers_identity()
    assert (who, identity.is_shared(who)) == expected


@pytest.fixture
def var(tmp_path: Path) -> Iterator[Path]:
    """A folder for servers; whatever was started in it is gone afterwards."""
    folder = tmp_path / "var"
    yield folder
    embedded.remove(folder)


@pytest.fixture(scope="module")
def reachable() -> Iterator[Path]:
    """A folder that the servers' user can reach, with durable servers running in it."""
    parent = Path(tempfile.mkdtemp(prefix="rmhub-test-"))
    parent.chmod(0o711)
    with embedded.servers(parent / "var"):
        yield parent / "var"
    embedded.remove(parent / "var")
    shutil.rmtree(parent)


@contextlib.contextmanager
def starter(var: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that starts the servers and prints the URL of the database."""
    # through the prelude, so that it dies with a test run that is killed
    prelude = [sys.executable, "-I", "-S", str(PRELUDE), str(os.getpid()), str(int(signal.SIGKILL)), "-", "-"]
    with subprocess.Popen(
        [*prelude, sys.executable, "-c", STARTER, str(var)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def pids(var: Path) -> tuple[int, int]:
    """The servers' processes."""
    found = state.load(var)
    assert found is not None
    server, broker = postgres.server_pid(postgres.data_folder(found.home)), valkey.server_pid(found.home)
    assert server is not None and broker is not None
    return server, broker


def execute(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None


def ping(url: str) -> bool:
    client = redis.Redis.from_url(url)
    try:
        return bool(client.ping())
    finally:
        client.close()


def test_both_answer_on_the_loopback_interface_only(reachable: Path) -> None:
    servers = embedded.running(reachable)
    assert servers is not None
    assert execute(servers.database_url, "SELECT current_user || '@' || current_database()") == "rmhub@rmhub"
    assert execute(servers.database_url, "SHOW server_encoding") == "UTF8"
    assert execute(servers.database_url, "SHOW fsync") == "on"
    assert execute(servers.database_url, "SELECT upper('é')") == "É"
    assert ping(servers.redis_url)
    for pid in pids(reachable):
        listening = {c.laddr.ip for c in psutil.Process(pid).net_connections() if c.status == psutil.CONN_LISTEN}
        assert listening == {"127.0.0.1"}
        assert psutil.Process(pid).uids().real != 0


def test_passwords_are_needed_and_nobody_else_can_read_them(reachable: Path) -> None:
    servers = embedded.running(reachable)
    assert servers is not None
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(servers.database_url.replace("rmhub:", "rmhub:not"))
    with pytest.raises(redis.AuthenticationError):
        ping(servers.redis_url.replace("redis://:", "redis://:not"))
    files = [reachable / state.NAME, reachable / "log" / "postgres.log", valkey.configuration_file(reachable)]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    assert "password" not in repr(state.load(reachable))


def test_the_role_is_not_a_superuser_but_can_have_databases(reachable: Path) -> None:
    servers = embedded.running(reachable)
    assert servers is not None
    assert execute(servers.database_url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
    url = embedded.create_database(servers.database_url, 'the "second" hub/é')
    assert embedded.create_database(servers.database_url, 'the "second" hub/é') == url
    assert execute(url, "SELECT current_database()") == 'the "second" hub/é'
    execute(url, "CREATE TABLE kept AS SELECT 1 AS one")
    copy = embedded.create_database(servers.database_url, "copy", like='the "second" hub/é')
    assert execute(copy, "SELECT one FROM kept") == 1
    embedded.drop_database(servers.database_url, "copy")
    with psycopg.connect(url), pytest.raises(ValueError, match="from within"):
        embedded.drop_database(url, 'the "second" hub/é')
    with psycopg.connect(url):  # a session on it does not prevent it
        embedded.drop_database(servers.database_url, 'the "second" hub/é')
    embedded.drop_database(servers.database_url, 'the "second" hub/é')


def test_a_database_that_the_server_vacuums_can_be_dropped(reachable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FORCE needs a right over the server's own workers, which the role has not; DROP alone ends them by itself."""
    servers = embedded.running(reachable)
    assert servers is not None
    embedded.create_database(servers.database_url, "vacuumed")
    said: list[str] = []

    class Vacuuming(psycopg.Connection[Any]):
        def execute(self, query: Any, *rest: Any, **options: Any) -> Any:
            said.append(query.as_string(self).removeprefix('DROP DATABASE IF EXISTS "vacuumed"'))
            if said == [" WITH (FORCE)"]:
                raise psycopg.errors.InsufficientPrivilege("permission denied to terminate process")
            return super().execute(query, *rest, **options)

    with monkeypatch.context() as patched:
        patched.setattr(psycopg, "connect", Vacuuming.connect)
        embedded.drop_database(servers.database_url, "vacuumed")
    assert said == [" WITH (FORCE)", ""]
    assert not execute(servers.database_url, "SELECT count(*) FROM pg_database WHERE datname = 'vacuumed'")


def test_who_finds_them_running_does_not_stop_them(reachable: Path) -> None:
    before = pids(reachable)
    with embedded.servers(reachable) as servers:
        assert servers == embedded.running(reachable)
    assert pids(reachable) == before
    with pytest.raises(EmbeddedError, match="durable servers are running"):
        embedded.start(reachable, throwaway=True)


def test_they_answer_when_all_connections_are_taken(reachable: Path) -> None:
    """Otherwise a second server would be started exactly when the first has most to do."""
    servers = embedded.running(reachable)
    assert servers is not None
    connections = []
    with pytest.raises(psycopg.OperationalError, match=r"slots are reserved|too many clients"):
        for _ in range(300):
            connections.append(psycopg.connect(servers.database_url))
    try:
        assert embedded.running(reachable) == servers
    finally:
        for connection in connections:
            connection.close()


def test_killed_servers_come_back_with_their_data(reachable: Path) -> None:
    servers = embedded.running(reachable)
    assert servers is not None
    execute(servers.database_url, "CREATE TABLE kept AS SELECT 42 AS answer")
    before = pids(reachable)
    with contextlib.closing(psycopg.connect(servers.database_url)) as session:
        # too busy to notice the postmaster's death: it would keep a new one from starting
        session.pgconn.send_query(b"DO $$ BEGIN LOOP END LOOP; END $$")
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not any(map(alive, before)))
        eventually(lambda: embedded.running(reachable) == servers)
    assert not set(before) & set(pids(reachable))
    assert execute(servers.database_url, "SELECT answer FROM kept") == 42


def test_nothing_survives_a_killed_starter_and_the_next_finds_the_data(var: Path) -> None:
    with starter(var) as process:
        url = first_line(process)
        execute(url, "CREATE TABLE kept AS SELECT 42 AS answer")
        before = pids(var)
        process.kill()
    assert embedded.running(var) is None  # although they may still answer for a moment
    eventually(lambda: not any(map(alive, before)))
    with embedded.servers(var) as servers:
        assert servers.database_url == url
        assert execute(url, "SELECT answer FROM kept") == 42
    assert embedded.running(var) is None


def test_two_starters_at_once_share_one_pair_of_servers(var: Path) -> None:
    with starter(var) as one, starter(var) as other:
        urls = {first_line(one), first_line(other)}
        assert len(urls) == 1
        found = state.load(var)
        assert found is not None and found.owner is not None and found.owner.pid in (one.pid, other.pid)
        assert execute(urls.pop(), "SELECT 1") == 1
        with pytest.raises(EmbeddedError, match=rf"belong to process {found.owner.pid} \(.*and end with it"):
            embedded.start(var, own=True)
        before = pids(var)
        # a third process stops them, and the owner does not start them again
        embedded.stop(var)
        assert not any(map(alive, before))
        assert embedded.running(var) is None
        embedded.start(var)
    assert embedded.running(var) is not None
    embedded.stop(var)


def test_throwaway_servers_are_fast_and_leave_nothing(var: Path) -> None:
    lines: list[str] = []
    with embedded.servers(var, throwaway=True, log=lines.append) as servers:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert execute(servers.database_url, f"SHOW {setting}") == "off"
        found = state.load(var)
        assert found is not None and found.throwaway
        if os.geteuid() == 0:
            assert found.home != var and any(str(found.home) in line for line in lines)
        with pytest.raises(EmbeddedError, match="throw-away servers are running"):
            embedded.start(var)
    assert not postgres.data_folder(found.home).exists()
    assert state.load(var) is None


def test_throwaway_servers_do_not_touch_durable_data(var: Path) -> None:
    var.mkdir()
    state.save(var, state.State(var, throwaway=False))
    with pytest.raises(EmbeddedError, match="holds durable data"):
        embedded.start(var, throwaway=True)


def test_nothing_runs_where_nothing_was_started(var: Path) -> None:
    assert embedded.running(var) is None
    embedded.stop(var)
    embedded.remove(var)
    assert not var.exists()


def test_a_damaged_state_is_reported(var: Path) -> None:
    var.mkdir()
    (var / state.NAME).write_text("{")
    with pytest.raises(EmbeddedError, match="damaged"):
        embedded.running(var)
    (var / state.NAME).unlink()


def test_a_database_without_its_passwords_is_not_touched(var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "choose_home", lambda var, identity, throwaway: var)
    postgres.data_folder(var).mkdir(parents=True)
    (postgres.data_folder(var) / "PG_VERSION").write_text("18\n")
    with pytest.raises(EmbeddedError, match="does not hold its passwords"):
        embedded.start(var)
    assert state.load(var) is None


def test_data_that_a_server_elsewhere_uses_are_not_touched(var: Path) -> None:
    """In another container, with the same volume: its process numbers mean nothing here."""
    var.mkdir()
    state.save(var, state.State(var, throwaway=False))
    postgres.data_folder(var).mkdir()
    note = postgres.data_folder(var) / "postmaster.pid"
    note.write_text("1\n")
    with locked(postgres.lock_file(var)), pytest.raises(EmbeddedError, match=r"postgres\.lock is locked"):
        embedded.start(var)
    assert note.exists()


def test_a_recycled_process_number_is_not_taken_for_a_server(var: Path) -> None:
    """After a reboot the numbers in these files may be anybody's: nothing is asked of it, and nothing is killed."""
    var.mkdir()
    saved = state.State(var, throwaway=False, owner=Mark.own())
    state.save(var, saved)
    postgres.data_folder(var).mkdir()
    valkey.data_folder(var).mkdir()
    (postgres.data_folder(var) / "postmaster.pid").write_text(f"{os.getpid()}\n" * 8)
    (valkey.data_folder(var) / "valkey.pid").write_text(f"{os.getpid()}\n")
    assert embedded.running(var) is None
    embedded.stop(var)
    postgres.clear_leftovers(postgres.data_folder(var), None)
    valkey.clear_leftovers(var, None)
    assert not (postgres.data_folder(var) / "postmaster.pid").exists()


def test_programs_that_do_not_exist_are_named(var: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RMHUB_POSTGRES_BIN", str(tmp_path / "nowhere"))
    with pytest.raises(EmbeddedError, match=r"nowhere: does not run(.|\n)*DATABASE_URL"):
        embedded.start(var)
    found = state.load(var)
    assert found is not None and found.owner is None  # nobody has to wait for us


def test_data_of_another_version_are_not_touched(var: Path, tmp_path: Path) -> None:
    postgres.data_folder(tmp_path).mkdir()
    (postgres.data_folder(tmp_path) / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedError, match=r"and the data in .* are of 9"):
        postgres.find_programs(tmp_path, None, print)


def test_a_copied_folder_does_not_share_its_original_substitute(var: Path, tmp_path: Path) -> None:
    home = tmp_path / "substitute"
    var.mkdir()
    make_home(home, var)
    make_home(home, var)
    with pytest.raises(EmbeddedError, match="is a copy of it"):
        make_home(home, tmp_path / "copy")
    var.rename(tmp_path / "moved")
    make_home(home, tmp_path / "moved")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has servers run as another user")
def test_root_copies_programs_that_the_servers_user_cannot_run(var: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = postgres._version
    monkeypatch.setattr(
        postgres,
        "_version",
        lambda folder, home, identity: original(folder, home, identity) if home in folder.parents else None,
    )
    with embedded.servers(var, throwaway=True) as servers:
        assert execute(servers.database_url, "SELECT 1") == 1
        found = state.load(var)
        assert found is not None
        command = processes.command(pids(var)[0])
        assert Path(command[0]).is_relative_to(found.home / "programs")


def test_a_port_that_is_taken_is_not_chosen(reachable: Path) -> None:
    found = state.load(reachable)
    assert found is not None
    assert state.choose(found.postgres_port) not in (0, found.postgres_port)
    free = state.choose(0)
    assert state.choose(free) == free
    assert state.choose(free, taken=free) != free


def test_urls() -> None:
    servers = Servers("postgresql://rmhub:pw@127.0.0.1:5432/rmhub", "redis://:pw@127.0.0.1:6379/0")
    assert embedded.database_url(servers.database_url, "a b") == "postgresql://rmhub:pw@127.0.0.1:5432/a%20b"


def test_status_command(reachable: Path, tmp_path: Path) -> None:
    def status(var: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-S", "-m", "rmhub.embedded", "status"],  # -S: without the project's packages
            cwd=ROOT,
            env={**os.environ, "RMHUB_VAR": str(var)},
            capture_output=True,
            text=True,
            check=False,
        )

    assert status(reachable).stdout == f"running in {reachable}\n"
    assert status(tmp_path).returncode == 1
    assert json.loads((reachable / state.NAME).read_text())["home"] is None
