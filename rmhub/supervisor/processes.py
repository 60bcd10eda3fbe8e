"""What to run, and one run of it: its lines with its name in front, and when it is started again."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

Output = Callable[[str, str], None]
"""Takes the name of a process and one line that it printed, without the line's end."""

COLOURS = (36, 32, 33, 35, 34, 31)  # ANSI: cyan, green, yellow, magenta, blue, red
LONGEST = 64 * 1024


class Lines:
    """Cuts the bytes of one process into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that are complete with this chunk; a line that never ends is cut so that memory stays bounded."""
        *complete, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST:
            complete.append(self._rest)
            self._rest = b""
        return [_text(line) for line in complete]

    def flush(self) -> list[str]:
        """What the process printed last without a line's end, if anything."""
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest else []


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")


class Console:
    """Prints lines as ``name | line``; names are coloured on a terminal and nowhere else (files, pipes, CI)."""

    def __init__(self, names: Iterable[str], stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        distinct = list(dict.fromkeys(names))
        self._width = max((len(name) for name in distinct), default=0)
        self._colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(distinct)}
        self._terminal = self._stream.isatty()

    def __call__(self, name: str, line: str) -> None:
        """Print one line. A reader that has gone away (``| head``) must not take the processes down with it."""
        label = f"{name:<{self._width}} |"
        if self._terminal:
            label = f"\x1b[{self._colours.get(name, 37)}m{label}\x1b[0m"
        try:
            self._stream.write(f"{label} {line}\n")
            self._stream.flush()
        except (BrokenPipeError, ValueError):
            pass


FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
WINDOW = 60.0


class Restarts:
    """Counts the deaths of each process within the last minute. Knows no clock: the caller says what time it is."""

    def __init__(self, per_minute: int | None) -> None:
        """`per_minute`: how many deaths are borne; None = any number."""
        self._per_minute = per_minute
        self._deaths: dict[str, collections.deque[float]] = collections.defaultdict(collections.deque)

    def pause(self, name: str, now: float) -> float | None:
        """The seconds to wait before this process is started again: twice as long each time within a minute.

        None when it has died too often: it does not work, and to go on would only hide that.
        """
        deaths = self._deaths[name]
        deaths.append(now)
        while deaths[0] <= now - WINDOW:
            deaths.popleft()
        if self._per_minute is not None and len(deaths) > self._per_minute:
            return None
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(len(deaths) - 1, 10))


PRELUDE = Path(__file__).with_name("child.py")


@dataclass(frozen=True)
class Process:
    """A program that the supervisor keeps running.

    The defaults are those of an ordinary server process: no restart, and when it ends everything ends.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    """The complete environment; None means the supervisor's own."""
    ready: Callable[[], bool] | None = None
    """Asked again and again until it says True (False or OSError: not yet); the next process starts only then.
    None: ready as soon as it runs."""
    restart: bool = False
    """Start it again when it ends. Before it was ready for the first time it is never restarted: it does not work."""
    once: bool = False
    """It does one thing (a migration) and has to end with exit code 0 before the next process starts."""
    final_codes: frozenset[int] = frozenset()
    """Exit codes that mean it was stopped on purpose: not restarted, everything stops."""
    ready_within: float = 60.0
    stop_signal: int = signal.SIGTERM
    grace: float = 10.0
    """Seconds between the stop signal and the kill."""
    cwd: Path | None = None
    identity: tuple[int, int] | None = None
    """User and group to run as, when the supervisor is root."""
    log: Path | None = None
    """Write its output to this file, unchanged, instead of handing the lines to the supervisor's output."""
    lock: Path | None = None
    """A file that stays locked as long as the process, or one that it started, lives; it does not start while somebody
    else holds that lock. Works where process numbers do not: between containers that share a volume."""
    before: Callable[[], None] | None = None
    """Called before every start."""

    def is_ready(self) -> bool:
        """Whether it says that it is ready."""
        if self.ready is None:
            return True
        try:
            return self.ready()
        except OSError:
            return False  # nobody answers yet


@dataclass
class Child:
    """One run of a process. Only the supervisor's own thread changes it."""

    process: Process
    popen: subprocess.Popen[bytes]
    death: int | None
    """A descriptor that becomes readable when the leader ends; None on a kernel without it (before 5.3)."""
    settled: bool = False
    """It was ready once, so its death is handled by the rules and not by start()."""
    code: int | None = None
    silent: bool = False
    """It has closed its output, or the output goes to a file: there is nothing to read any more."""
    lines: Lines = field(default_factory=Lines)
    begun: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        """The leader's number, which is the session's number too."""
        return self.popen.pid

    @property
    def pipe(self) -> int | None:
        """The descriptor to read its output from; None when that goes to a file."""
        return None if self.popen.stdout is None else self.popen.stdout.fileno()

    def read(self) -> list[str]:
        """What it has printed since the last call, up to a quarter of a megabyte, as lines; never waits."""
        lines: list[str] = []
        for _ in range(4):
            if self.pipe is None or self.silent:
                break
            try:
                chunk = os.read(self.pipe, 65536)
            except BlockingIOError:
                break
            self.silent = not chunk
            lines += self.lines.feed(chunk)
        return lines

    def has_ended(self) -> bool:
        """Whether the leader has ended. It stays a zombie, so that its number stays taken until ``reap``."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True  # SIGCHLD is ignored in this process: the kernel reaps

    def reap(self) -> list[str]:
        """Take the exit code, close everything, and return the last lines."""
        lines = []
        while more := self.read():
            lines += more
        lines += self.lines.flush()
        code = self.popen.wait()
        if self.popen.stdout is not None:
            self.popen.stdout.close()
        if self.death is not None:
            os.close(self.death)
        self.code = 128 - code if code < 0 else code
        return lines


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Lock a file; yields the descriptor, and a process that inherits it keeps the lock.

    Raises OSError, without waiting, when somebody else has it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OSError(f"{path} is locked: somebody else is using what it protects") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def spawn(process: Process) -> Child:
    """Start a process as the leader of a new session; it dies with the calling THREAD, at the latest.

    (The kernel sends the parent-death signal when the thread that forked ends, so call this from one that stays.)
    A program that does not exist shows as exit code 127. Raises OSError when no process can be started, a file cannot
    be opened, the lock is held, or ``before`` says so.
    """
    if process.before is not None:
        process.before()
    user, group = map(str, process.identity) if process.identity else ("-", "-")
    environment = dict(os.environ if process.env is None else process.env)
    # a Python child would keep its lines for itself until it has a few kilobytes of them
    environment.setdefault("PYTHONUNBUFFERED", "1")
    prelude = [sys.executable, "-I", "-S", str(PRELUDE), str(os.getpid()), str(int(process.stop_signal)), user, group]
    with contextlib.ExitStack() as stack:
        target = subprocess.PIPE
        if process.log is not None:
            target = os.open(process.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            stack.callback(os.close, target)
        inherited = []
        if process.lock is not None:
            inherited.append(stack.enter_context(locked(process.lock)))
        popen = subprocess.Popen(
            [*prelude, *process.argv],
            env=environment,
            cwd=process.cwd,
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=inherited,
        )
    if popen.stdout is not None:
        os.set_blocking(popen.stdout.fileno(), False)
    try:
        death: int | None = os.pidfd_open(popen.pid)
    except OSError:
        death = None
    return Child(process, popen, death)
