"""Starting and stopping the servers of one var folder, whoever asks and however often."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rmhub.embedded import postgres, processes, valkey
from rmhub.embedded.identity import (
    OWN_USER,
    SHARED_USER,
    check_owner,
    choose_home,
    is_shared,
    make_home,
    make_var,
    servers_identity,
)
from rmhub.embedded.processes import EmbeddedError, Identity, Mark
from rmhub.embedded.state import Servers, State, choose, forget, load, locked, save
from rmhub.supervisor import StartFailed, Supervisor

Log = Callable[[str], None]

PATIENCE = 60.0
LARGEST_LOG = 10 * 1024 * 1024

_owned: dict[tuple[int, Path], Supervisor] = {}
"""What this process runs. The key has our pid, because a fork has this table too but none of the children."""


def running(var: Path) -> Servers | None:
    """The servers of this folder, if both answer right now. Changes nothing and waits for nobody.

    Raises EmbeddedError when the state cannot be read.
    """
    state = load(_absolute(var))
    return state.servers if state is not None and _answer(state) else None


def start(
    var: Path,
    *,
    throwaway: bool = False,
    own: bool = False,
    log: Log = lambda line: None,
    ended: Callable[[int], None] | None = None,
) -> Servers:
    """Have the servers running; start them if they are not, on the data that are there.

    They belong to this process then, are restarted when they crash, and end with it, however it ends. ``throwaway``
    servers are faster, do not survive a crash of the machine, and lose their data when they are stopped.
    ``own`` is for whoever runs for long: it does not make do with the servers of another process.
    ``ended`` is called when they are gone although this process has not stopped them.

    Raises EmbeddedError when they cannot be started.
    """
    return _start(_absolute(var), throwaway=throwaway, own=own, log=log, ended=ended)[0]


def stop(var: Path) -> None:
    """Stop the servers of this folder, whichever process started them. Nothing happens when none run."""
    var = _absolute(var)
    if not var.is_dir():
        return
    with locked(var):
        state = load(var)
        if state is None:
            return
        supervisor = _owned.pop((os.getpid(), var), None)
        if supervisor is not None:
            supervisor.stop()
        # Not by telling the owner: both exit with 0 when they are asked to stop, and that is final for it.
        pids = (postgres.server_pid(postgres.data_folder(state.home)), valkey.server_pid(state.home))
        for pid, number in zip(pids, (signal.SIGINT, signal.SIGTERM), strict=True):
            processes.end([] if pid is None else [pid], number, PATIENCE)
        _release(var, state)


@contextlib.contextmanager
def servers(
    var: Path,
    *,
    throwaway: bool = False,
    own: bool = False,
    log: Log = lambda line: None,
    ended: Callable[[int], None] | None = None,
) -> Iterator[Servers]:
    """Have the servers running inside the ``with``; afterwards stop those that were started for it, and no others."""
    var = _absolute(var)
    found, supervisor = _start(var, throwaway=throwaway, own=own, log=log, ended=ended)
    try:
        yield found
    finally:
        if supervisor is not None:
            with locked(var):
                supervisor.stop()
                state = load(var)
                if _owned.get((os.getpid(), var)) is supervisor:
                    del _owned[os.getpid(), var]
                    # somebody else may have stopped these, and a third one started others
                    if state is not None and state.owner == Mark.own():
                        _release(var, state)


def remove(var: Path) -> None:
    """Stop the servers and delete their data, programs, logs and passwords: also those outside ``var``."""
    var = _absolute(var)
    if not var.is_dir():
        return
    stop(var)
    with locked(var):
        state = load(var)
        if state is not None:
            _wipe(var, state)
    for name in ("postgres.log", "postgres.log.1", "valkey.log", "valkey.log.1"):
        (var / "log" / name).unlink(missing_ok=True)


def _absolute(var: Path) -> Path:
    # resolved, because command lines and the substitute's name are compared with it
    return Path(var).resolve()


def _answer(state: State) -> bool:
    """Whether both answer, and will go on: without their owner they are about to end."""
    kept = state.owner is not None and state.owner.is_alive()
    return kept and postgres.answers(state) and valkey.answers(state)


def _start(
    var: Path, *, throwaway: bool, own: bool, log: Log, ended: Callable[[int], None] | None
) -> tuple[Servers, Supervisor | None]:
    """The servers, and their supervisor when they were started by this very call."""
    make_var(var)
    deadline = time.monotonic() + PATIENCE
    while True:
        with locked(var):
            state = load(var)
            if state is not None and _answer(state):
                if state.throwaway != throwaway:
                    kind = "throw-away" if state.throwaway else "durable"
                    raise EmbeddedError(f"{kind} servers are running in {var}: stop them first")
                if own and state.owner is not None and state.owner != Mark.own():
                    command = " ".join(" ".join(processes.command(state.owner.pid)).split())[:80]
                    raise EmbeddedError(
                        f"the servers in {var} belong to process {state.owner.pid} ({command}) and end with it: "
                        "end that first, or name another folder in RMHUB_VAR"
                    )
                return state.servers, None
            if state is None or state.owner is None or not _is_kept(state.owner, var):
                return _start_locked(var, state, throwaway=throwaway, log=log, ended=ended)
            owner = state.owner
        # Its owner restarts what crashed, and has the lock while it stops. To start a second server on the data
        # meanwhile would take them away from it.
        if time.monotonic() > deadline:
            raise EmbeddedError(f"the servers in {var} belong to process {owner.pid}, which runs, but do not answer")
        time.sleep(0.05)


def _is_kept(owner: Mark, var: Path) -> bool:
    """Whether the owner still keeps its servers running."""
    if owner != Mark.own():
        return owner.is_alive()
    supervisor = _owned.get((os.getpid(), var))
    return supervisor is not None and supervisor.wait(0) is None


def _start_locked(
    var: Path, state: State | None, *, throwaway: bool, log: Log, ended: Callable[[int], None] | None
) -> tuple[Servers, Supervisor]:
    if (gone := _owned.pop((os.getpid(), var), None)) is not None:
        gone.stop()
    identity = servers_identity()
    if is_shared(identity) and not throwaway:
        log(
            f"PostgreSQL and Valkey run as {SHARED_USER}, a user that other programs share: "
            f"`useradd --system {OWN_USER}` gives them one of their own"
        )
    if state is not None and state.throwaway:
        _clear(state, identity)
        _wipe(var, state)
        state = None
    elif state is not None and throwaway:
        raise EmbeddedError(f"{var} holds durable data: throw-away servers need a folder of their own")
    if state is None:
        state = State(choose_home(var, identity, throwaway=throwaway), throwaway)
        if postgres.data_version(state.home) is not None:
            raise EmbeddedError(
                f"{state.home} holds a database, but {var} does not hold its passwords: restore embedded.json from a "
                "backup, or remove the database"
            )
    if state.home != var:
        log(f"user {identity[0] if identity else '?'} cannot reach {var}: the servers' data are in {state.home}")
    _clear(state, identity)
    try:
        supervisor = _launch(var, state, identity, log, ended)
    except BaseException:
        # or others would wait for us to get them running
        state.owner = None
        save(var, state)
        raise
    return state.servers, supervisor


def _launch(
    var: Path, state: State, identity: Identity | None, log: Log, ended: Callable[[int], None] | None
) -> Supervisor:
    try:
        make_home(state.home, var)
        check_owner(postgres.data_folder(state.home), identity)
        logs = [_log_file(var, name) for name in ("postgres.log", "valkey.log")]
        programs = postgres.find_programs(state.home, identity, log)
        program = valkey.find_program(state.home, identity, log)
        state.postgres_port = choose(state.postgres_port)
        state.valkey_port = choose(state.valkey_port, taken=state.postgres_port)
        state.owner = Mark.own()
        # before the data: with the data but without the passwords there would be no way in
        save(var, state)
        if postgres.data_version(state.home) is None:
            log(f"making a database in {postgres.data_folder(state.home)}")
            postgres.create_cluster(state, programs, identity)
        valkey.write_configuration(state, identity)
    except OSError as error:
        raise EmbeddedError(f"the servers cannot be prepared: {error}") from error
    supervisor = Supervisor(
        [
            postgres.process(state, programs, identity, logs[0]),
            valkey.process(state, program, identity, logs[1]),
        ],
        output=lambda _, line: log(line),
        name="embedded",
        # However often they are killed: the hub waits for them, and goes on when they are back.
        restarts_per_minute=None,
        ended=ended,
    )
    try:
        supervisor.start()
    except StartFailed as failure:
        said = "".join(f"\n{file}:\n{_tail(file)}" for file in logs)
        raise EmbeddedError(f"the servers did not start: {failure}{said}") from failure
    _owned[os.getpid(), var] = supervisor
    log(f"PostgreSQL {programs.version} on 127.0.0.1:{state.postgres_port}, Valkey on 127.0.0.1:{state.valkey_port}")
    return supervisor


def _clear(state: State, identity: Identity | None) -> None:
    """End servers that a killed owner has left; there are some only if something prevented their end."""
    if not state.home.is_dir():
        return
    try:
        postgres.clear_leftovers(postgres.data_folder(state.home), identity)
        valkey.clear_leftovers(state.home, identity)
    except OSError as error:
        raise EmbeddedError(f"the servers cannot be started: {error}") from error


def _release(var: Path, state: State) -> None:
    state.owner = None
    if state.throwaway:
        _wipe(var, state)
    else:
        save(var, state)


def _wipe(var: Path, state: State) -> None:
    """Delete the data and all that was made for the servers."""
    if state.home != var:
        shutil.rmtree(state.home, ignore_errors=True)
    for folder in (postgres.data_folder(var), var / "postgres.new", valkey.data_folder(var), var / "programs"):
        shutil.rmtree(folder, ignore_errors=True)
    for lock in ("postgres.lock", "valkey.lock"):
        (var / lock).unlink(missing_ok=True)
    forget(var)


def _log_file(var: Path, name: str) -> Path:
    """The path of a server's log; the old one is put aside when it has grown large."""
    folder = var / "log"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / name
    if path.exists() and path.stat().st_size > LARGEST_LOG:
        path.replace(path.with_name(name + ".1"))
    return path


def _tail(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    return "\n".join(lines[-15:])
