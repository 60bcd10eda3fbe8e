"""PostgreSQL servers that stand in for each other: a primary, its standbys, and a server made of a base backup.

Made of the programs and settings of the embedded servers; each has a folder and a port of its own, and no restart.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg

from rmhub.embedded import postgres, processes
from rmhub.embedded.identity import make_private, servers_identity, write_private
from rmhub.embedded.state import State
from rmhub.hubs import free_ports
from rmhub.supervisor import Supervisor
from tests.rmhub.conditions import eventually

# The tests' other servers forget what a crash of the machine may take; what is replicated must at least be waited for.
WAITS = {"synchronous_commit": "on"}


@dataclass
class Server:
    """One PostgreSQL. `settings`: beside those of the embedded servers."""

    state: State
    programs: postgres.Programs
    settings: dict[str, str] = field(default_factory=dict)
    _running: Supervisor | None = None

    @property
    def data(self) -> Path:
        return postgres.data_folder(self.state.home)

    @property
    def port(self) -> int:
        return self.state.postgres_port

    def url(self, database: str = "rmhub") -> str:
        """For the hub's role, which is no superuser."""
        return postgres.database_url(self.state.servers.database_url, database)

    def start(self) -> None:
        """Raises StartFailed."""
        process = postgres.process(self.state, self.programs, servers_identity(), self.state.home / "log")
        options = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        # A standby never says that it is "ready", but takes connections.
        process = replace(process, argv=[*process.argv, *options], restart=False, ready=self.answers, ready_within=600)
        self._running = Supervisor([process], output=lambda name, line: None, name=f"postgres-{self.port}")
        self._running.start()

    def kill(self) -> None:
        """Signal 9 for all of its processes, as if its machine had lost power."""
        assert self._running is not None
        self._running.kill("postgres")
        assert eventually(lambda: self._running and self._running.wait(0) is not None)
        self.stop()

    def stop(self) -> None:
        if self._running is not None:
            self._running.stop()
        self._running = None

    def answers(self) -> bool:
        try:
            return bool(self.ask("SELECT 1"))
        except psycopg.OperationalError:
            return False

    def ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Runs one statement as the superuser. Raises psycopg.Error."""
        with psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="postgres",
            password=self.state.superuser_password,
            dbname="postgres",
            autocommit=True,
            connect_timeout=10,
        ) as connection:
            cursor = connection.execute(statement, values or None)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def set(self, name: str, value: str) -> None:
        """Changes a setting while it runs."""
        self.ask(f"ALTER SYSTEM SET {name} = '{value}'")
        self.ask("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """A standby takes over."""
        assert self.ask("SELECT pg_promote(true, 600)") == [(True,)]

    def recover(self, port: int, settings: Mapping[str, str]) -> None:
        """Starts on a base backup, at the address of the server that is gone, and replays what was archived."""
        self.state.postgres_port = port
        write_private(self.data / "recovery.signal", "", servers_identity())
        self.settings |= settings
        self.start()
        eventually(lambda: self.ask("SELECT pg_is_in_recovery()") == [(False,)])

    def base_backup(self, home: Path, *options: str) -> Server:
        """Another server with a copy of these data, not started."""
        _make_home(home)
        state = replace(self.state, home=home, postgres_port=free_ports(1)[0])
        identity = servers_identity()
        make_private(postgres.data_folder(home), identity)
        said = processes.run(
            [
                *(self.programs.folder / "pg_basebackup", "--pgdata", postgres.data_folder(home), "--checkpoint=fast"),
                *("--host=127.0.0.1", f"--port={self.port}", "--username=postgres", "--no-password", *options),
            ],
            identity=identity,
            env={**postgres.environment(home), "PGPASSWORD": self.state.superuser_password},
            cwd=home,
        )
        assert said.returncode == 0, said.stdout
        return Server(state, self.programs, dict(WAITS))


def _make_home(home: Path) -> None:
    home.mkdir()
    home.chmod(0o711)  # whatever the umask says


@contextmanager
def primary(settings: Callable[[Path], Mapping[str, str]] = lambda folder: {}) -> Iterator[tuple[Server, Path]]:
    """A server that runs, and a folder for others beside it; `settings` are told that folder."""
    folder = Path(tempfile.mkdtemp(prefix="rmhub-clusters-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o711)  # the servers run as another user when we are root
        home, identity = folder / "first", servers_identity()
        _make_home(home)
        state = State(home, throwaway=True, postgres_port=free_ports(1)[0])
        programs = postgres.find_programs(folder, identity, lambda line: None)
        postgres.create_cluster(state, programs, identity)
        server = Server(state, programs, {**WAITS, **settings(folder)})
        server.start()
        stack.callback(server.stop)
        yield server, folder


@contextmanager
def standby_of(server: Server, folder: Path, *, synchronous: bool) -> Iterator[Server]:
    """A standby that streams; `synchronous`: every commit of the primary waits for it."""
    second = server.base_backup(folder / "second", "--write-recovery-conf", "--wal-method=stream")
    second.start()
    try:
        if synchronous:
            server.set("synchronous_standby_names", "*")
        wanted = "sync" if synchronous else "async"
        eventually(lambda: server.ask("SELECT sync_state FROM pg_stat_replication") == [(wanted,)])
        yield second
    finally:
        with suppress(psycopg.Error):
            server.set("synchronous_standby_names", "")  # or whatever writes there yet waits for ever
        second.stop()


def either(first: Server, second: Server, database: str) -> str:
    """The URL of a database that is on whichever of the two takes writes."""
    hosts = ",".join(f"127.0.0.1:{one.port}" for one in (first, second))
    name = f"rmhub:{first.state.postgres_password}"
    return f"postgresql://{name}@{hosts}/{database}?target_session_attrs=read-write"
