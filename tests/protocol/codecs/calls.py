"""Counts what a function does, where a test would else judge seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def counting() -> Iterator[list[str]]:
    """The calls of functions within, those of C code too."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            calls.append(event)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)
