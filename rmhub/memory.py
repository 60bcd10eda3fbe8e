"""Garbage collection for processes that have loaded all they need and then serve for months."""

from __future__ import annotations

import gc


def settle() -> None:
    """Call once a server process is loaded.

    Django's and our own classes never become garbage: out of the collector's sight they cost nothing any more. And a
    collection every 700 objects is once a message; reference counts free nearly everything anyway.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
