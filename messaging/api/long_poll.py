"""Answers that wait for something to happen: each waiter holds a thread of the web server, so there are few."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from messaging.api.reading import Param
from rmhub.postgresql.base import give_back

Found = TypeVar("Found")
MAX_WAIT = 30  # seconds
# Of the whole process. Beyond this many a caller is answered at once.
MAX_WAITERS = 4
_LOOK_EVERY = 0.25
_waiters = threading.BoundedSemaphore(MAX_WAITERS)


def wait_parameter(description: str) -> Param:
    """`wait`: seconds."""
    return Param("wait", description, "number", maximum=MAX_WAIT, default=0)


def looked(look: Callable[[Found | None], Found], enough: Callable[[Found], bool], wait: int) -> Found:
    """What `look` finds: at once, or as soon as it is `enough`, within `wait` seconds. It gets what it found last."""
    found = look(None)
    if enough(found) or not wait or not _waiters.acquire(blocking=False):
        return found
    try:
        until = time.monotonic() + wait
        while not enough(found) and time.monotonic() < until:
            give_back()
            time.sleep(_LOOK_EVERY)
            found = look(found)
        return found
    finally:
        _waiters.release()
