"""Garbage collection for processes that have loaded all they need and then serve for months."""

from __future__ import annotations

import contextlib
import ctypes
import gc


def settle() -> None:
    """Call once a server process is loaded.

    Django's and our own classes never become garbage: out of the collector's sight they cost nothing any more. And a
    collection every 700 objects is once a message; reference counts free nearly everything anyway.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def release() -> None:
    """Gives the system back what a large body has taken: else the C library keeps it until the process ends."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)
