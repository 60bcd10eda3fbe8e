"""Other processes of this machine: are they who we think they are, and how they are ended.

A number alone says nothing: after a crash or a reboot it may belong to somebody else's process. So a process is known
by its number with its start time, or by a command line that names our own data folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmhub.supervisor.processes import PRELUDE


class EmbeddedError(Exception):
    """The embedded servers cannot be had; the message tells an operator why and what to do."""


Identity = tuple[int, int]
"""A user and a group."""


@dataclass(frozen=True)
class Mark:
    """One particular process, told from all that had or will have its number."""

    pid: int
    started: int
    """Clock ticks since the boot."""
    boot: str

    @classmethod
    def own(cls) -> Mark:
        """This process."""
        return cls(os.getpid(), _started(os.getpid()) or 0, _boot())

    def is_alive(self) -> bool:
        """Whether exactly this process still runs."""
        return self.boot == _boot() and self.started == _started(self.pid)

    def is_running(self) -> bool:
        """Whether it is alive and nobody has stopped it (SIGSTOP, a debugger)."""
        return self.is_alive() and (_fields(self.pid) or [b"T"])[0] not in (b"T", b"t")


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _fields(pid: int) -> list[bytes] | None:
    """What the system says of a process, from its state on (proc(5), stat); None when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None


def _started(pid: int) -> int | None:
    fields = _fields(pid)
    return None if fields is None or fields[0] in (b"Z", b"X") else int(fields[19])


def command(pid: int) -> list[str]:
    """The command line of a process; empty when there is no such process (or it is a zombie)."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return []


def matching(is_ours: Callable[[list[str]], bool], identity: Identity | None) -> list[int]:
    """The live processes of this user (None: our own) with such a command line."""
    user = os.geteuid() if identity is None else identity[0]
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == user and is_ours(command(int(entry.name))):
                found.append(int(entry.name))
        except OSError:
            continue  # it ended while we looked
    return found


def end(pids: Iterable[int], number: int, grace: float) -> list[int]:
    """Send a signal to processes that are not our children, wait, and kill those that are left after the grace.

    Returns the pids that had to be killed. What a kill does not end within five seconds is left alone: it sits in the
    kernel.
    """
    marks = [Mark(pid, started, _boot()) for pid in pids if (started := _started(pid)) is not None]
    _signal(marks, number)
    late = _wait(marks, grace)
    _signal(late, signal.SIGKILL)
    _wait(late, 5.0)
    return [mark.pid for mark in late]


def _signal(marks: Iterable[Mark], number: int) -> None:
    for mark in marks:
        if mark.is_alive():
            try:
                os.kill(mark.pid, number)
            except ProcessLookupError:
                continue


def _wait(marks: list[Mark], seconds: float) -> list[Mark]:
    deadline = time.monotonic() + seconds
    while (left := [mark for mark in marks if mark.is_alive()]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def run(
    argv: Sequence[str | Path],
    *,
    identity: Identity | None,
    env: Mapping[str, str],
    cwd: Path,
    text: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end as this user (None: ourselves), with its output; it dies with us."""
    user, group = map(str, identity) if identity else ("-", "-")
    prelude = [sys.executable, "-I", "-S", str(PRELUDE), str(os.getpid()), str(int(signal.SIGKILL)), user, group]
    return subprocess.run(
        [*prelude, *map(str, argv)],
        env=env,
        cwd=cwd,
        input=text or "",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        start_new_session=True,
    )
