"""Where the time goes: py-spy samples the processes from outside while they work, and this adds the samples up.

Only the thread that holds the interpreter's lock is counted: on a machine with more threads than processors, the others
are waiting for something whatever they look like. What the kernel does for a system call happens without that lock, so
a process's CPU time from /proc is spread over the samples in proportion.
"""

from __future__ import annotations

import collections
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RATE = 200
FRAME = re.compile(r"^(?P<function>.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)$")
# The first that matches names the part, from the innermost frame outwards: so a time in psycopg below Django's ORM is
# the database's driver, and the time in the ORM itself is the ORM.
PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("psycopg and libpq", ("psycopg", "psycopg_binary", "psycopg_c")),
    ("Django ORM", ("django/db/",)),
    ("Django, the rest", ("django/",)),
    ("lxml and our codecs", ("lxml/", "messaging/protocol/codecs/")),
    ("protocol core", ("messaging/protocol/",)),
    ("services", ("messaging/", "partners/", "rmhub/")),
    ("urllib3 and http.client", ("urllib3/", "http/client.py", "http/", "email/", "requests/")),
    ("sockets", ("socket.py", "ssl.py", "selectors.py")),
    ("Celery, kombu, redis", ("celery/", "kombu/", "redis/", "vine/", "amqp/", "billiard/")),
    ("logging", ("logging/",)),
    ("web server", ("granian/", "gunicorn/")),
    ("threading", ("threading.py", "concurrent/", "queue.py")),
)


@dataclass(frozen=True)
class Profile:
    """The samples of one process: whole stacks, outermost frame first, with how often each was seen."""

    name: str
    stacks: Mapping[tuple[str, ...], int]
    raw: str

    @property
    def samples(self) -> int:
        """How many samples found the interpreter at work."""
        return sum(self.stacks.values())


def take(py_spy: Path, targets: Mapping[str, int], seconds: float, folder: Path) -> list[Profile]:
    """Profiles all targets (name -> pid) at once. Raises RuntimeError with what py-spy said when it may not look."""
    folder.mkdir(parents=True, exist_ok=True)
    running = []
    for name, pid in targets.items():
        file = folder / f"{name.replace(' ', '-')}.raw.txt"
        argv = [
            *(str(py_spy), "record", "--pid", str(pid), "--format", "raw", "--output", str(file)),
            *("--rate", str(RATE), "--duration", str(max(1, round(seconds))), "--nonblocking", "--gil"),
        ]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        running.append((name, file, process))
    found = []
    for name, file, process in running:
        said, _ = process.communicate(timeout=seconds + 60)
        if not file.exists():
            raise RuntimeError(f"py-spy could not look into {name}: {said.strip()[-500:]}")
        found.append(parse(name, file.read_text(encoding="utf-8", errors="replace")))
    return found


def parse(name: str, text: str) -> Profile:
    """py-spy's raw format: `outermost;...;innermost count`, a line a stack."""
    stacks: collections.Counter[tuple[str, ...]] = collections.Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if stack and count.isdigit():
            stacks[tuple(stack.split(";"))] += int(count)
    return Profile(name, stacks, text)


def summary(profile: Profile, cpu_ms_per_message: float, top: int = 40) -> dict[str, Any]:
    """Shares by part, and functions by the time in themselves and in all that they call, in ms of CPU a message."""
    own: collections.Counter[str] = collections.Counter()
    within: collections.Counter[str] = collections.Counter()
    parts: collections.Counter[str] = collections.Counter()
    for stack, count in profile.stacks.items():
        frames = [_short(frame) for frame in stack]
        own[frames[-1]] += count
        for frame in set(frames):
            within[frame] += count
        parts[_part(stack)] += count
    scale = cpu_ms_per_message / profile.samples if profile.samples else 0.0
    return {
        "samples": profile.samples,
        "cpu_ms_per_message": cpu_ms_per_message,
        "by_part": _scaled(parts.most_common(), scale),
        "by_function_itself": _scaled(own.most_common(top), scale),
        "by_function_with_callees": _scaled(within.most_common(top), scale),
    }


def _scaled(counts: Iterable[tuple[str, int]], scale: float) -> dict[str, float]:
    return {name: round(count * scale, 4) for name, count in counts}


def _part(stack: tuple[str, ...]) -> str:
    for frame in reversed(stack):
        found = FRAME.match(frame)
        path = found["file"] if found else frame
        for part, marks in PARTS:
            if any(mark in path for mark in marks):
                return part
    return "other"


def _short(frame: str) -> str:
    """`function (package/module.py)` without the line: lines of one function belong together."""
    found = FRAME.match(frame)
    if found is None:
        return frame
    path = re.sub(r"^.*/site-packages/|^.*/lib/python[\d.]+/", "", found["file"])
    return f"{found['function']} ({path})"
