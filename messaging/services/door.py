"""Slows down those who guess at the partners' entrance.

Checking a wrong password costs a slow hash, so an address may be wrong only so often. Beyond that, credentials that
were checked before still pass at once (partners behind the same proxy go on), and nothing else is looked at.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

FAILURES = 10
SECONDS = 60.0
_MAX_ADDRESSES = 10_000

_failures: OrderedDict[str, tuple[float, int]] = OrderedDict()
_lock = threading.Lock()


def is_patient_with(address: str) -> bool:
    """Whether a credential from this address may still cost a slow hash."""
    with _lock:
        since, count = _failures.get(address, (0.0, 0))
    return count < FAILURES or time.monotonic() - since > SECONDS


def failed(address: str) -> None:
    """Counts a wrong credential from this address; the count ends a minute after its first."""
    now = time.monotonic()
    with _lock:
        since, count = _failures.pop(address, (now, 0))
        if now - since > SECONDS:
            since, count = now, 0
        _failures[address] = (since, count + 1)
        while len(_failures) > _MAX_ADDRESSES:
            _failures.popitem(last=False)


def reset() -> None:
    """Forgets all failures (tests)."""
    with _lock:
        _failures.clear()
