"""Sessions of processes, and the guard who ends them when their supervisor was killed with signal 9.

A supervised process leads a session of its own, and everything that it starts is in it.

    python -I -S guard.py PARENT        (started by the supervisor, which writes on its standard input)

The parent-death signal reaches the processes that the supervisor started, but not the ones that those started, and a
process may take its time or ignore it. The guard outlives the supervisor: when its standard input ends it asks all
sessions that it was told of to stop, and kills what is left of them after their grace period.

It reads lines of the form ``+ SESSION SIGNAL GRACE`` and ``- SESSION``. It is run by its path, like ``child.py``.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterable

GONE = frozenset((b"Z", b"X", b"x"))


def members(sessions: Collection[int]) -> dict[int, int]:
    """The live processes of these sessions, leaders included: pid -> session.

    A zombie counts as gone: in a container the first process may never reap it, and it holds nothing but its number.
    Sessions rather than process groups, because a grandchild may make itself a group of its own.
    """
    found: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as stat:
                content = stat.read()
        except OSError:
            continue  # it ended while we looked
        # the second field is the program's name in brackets, which may itself contain spaces and brackets
        fields = content[content.rindex(b")") + 2 :].split()
        session = int(fields[3])
        if session in sessions and fields[0] not in GONE:
            found[int(entry)] = session
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to each; one that has ended meanwhile is as good as signalled."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill(sessions: Collection[int], patience: float = 5.0) -> list[int]:
    """Kill all members of these sessions, and those that they start meanwhile; return the pids that were killed.

    It looks again until nobody is left, because a process can fork between the look and the signal. What is still
    there after ``patience`` seconds sits in the kernel (a dead network disk) and cannot be killed by anybody.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + patience
    while sessions and (left := members(sessions)) and time.monotonic() < deadline:
        send(left, signal.SIGKILL)
        killed.update(left)
        time.sleep(0.005)
    return sorted(killed)


def follow(parent: int) -> dict[int, tuple[int, float]]:
    """Keep the list of sessions until the supervisor is gone; return those that it left: signal and grace of each."""
    watched: dict[int, tuple[int, float]] = {}
    rest = b""
    # The end of the input tells of the supervisor's death at once, unless a fork of it holds the other end open;
    # then the change of parent tells, within a second.
    while os.getppid() == parent:
        if not select.select([0], [], [], 1.0)[0]:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            sign, session, *how = line.decode().split()
            if sign == "+":
                watched[int(session)] = (int(how[0]), float(how[1]))
            else:
                watched.pop(int(session), None)
    return watched


def end(watched: dict[int, tuple[int, float]]) -> None:
    """Ask each session's leader to stop, and kill what is left when it has stopped or its grace is over."""
    begun = time.monotonic()
    for pid, session in members(watched).items():
        if pid == session:
            send([pid], watched[session][0])
    while watched and (left := members(watched)):
        # a session without its leader has had its clean stop: what is still there is an orphan
        over = {
            session
            for session, (_, grace) in watched.items()
            if session not in left or time.monotonic() >= begun + grace
        }
        kill(over)
        watched = {session: how for session, how in watched.items() if session not in over}
        time.sleep(0.05)


if __name__ == "__main__":
    # a Ctrl-C or a hang-up is the supervisor's business; the guard ends when the supervisor has
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    end(follow(int(sys.argv[1])))
