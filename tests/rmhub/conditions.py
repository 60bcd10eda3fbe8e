"""Waiting for what other processes do: on a condition, with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")


def eventually(condition: Callable[[], Value], within: float = 120.0) -> Value:
    """The first true value of the condition; AssertionError when there is none in time."""
    deadline = time.monotonic() + within
    pause = threading.Event()
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {within:g} s"
        pause.wait(0.01)
    return value


def alive(pid: int) -> bool:
    """Whether a process still runs; a zombie that nobody has reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
