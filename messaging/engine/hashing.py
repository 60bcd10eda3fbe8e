"""How many slow password checks run at once: strangers may ask for them, and each costs a tenth of a second or more.

Whoever waits for a check has a web thread in hand, so only so many may wait; the others come again without one
(`messaging.entrance.reading`), or are told to come again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

AT_ONCE = max(1, (os.cpu_count() or 2) // 2)

_slots = threading.BoundedSemaphore(AT_ONCE)
_lock = threading.Lock()
_inside = 0


class Busy(Exception):
    """As many checks wait as may."""


def most() -> int:
    """How many may be inside, waiting or checking: most web threads serve others whatever is guessed."""
    return max(2, settings.RMHUB_WEB_THREADS // 4)


@contextmanager
def queueing() -> Iterator[None]:
    """Holds a place among those who wait for a check. Raises Busy at once when there is none."""
    global _inside
    with _lock:
        if _inside >= most():
            raise Busy
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1


@contextmanager
def checking() -> Iterator[None]:
    """Waits for its turn to compute. Call within `queueing`."""
    with _slots:
        yield
