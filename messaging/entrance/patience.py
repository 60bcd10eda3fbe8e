"""How often somebody may be wrong in a while: counted by address and name, and more generously by address alone.

By both, so that one caller's mistake behind a common proxy costs no other; by address, so that nobody tries name after
name. Counted in this process.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from rmhub.front.environ import bucket

_MAX_KEYS = 20_000

Key = tuple[str, str]


class Patience:
    """`of_name` misses of a name from an address within `seconds`, and `of_address` of all names together.

    `told` is called with the address, the name ("" where it is all of them) and the count, once for each time that
    there is no patience left.
    """

    def __init__(self, *, of_name: int, of_address: int, seconds: float, told: Callable[[str, str, int], None]) -> None:
        self._limits = (of_name, of_address)
        self._seconds = seconds
        self._told = told
        self._misses: OrderedDict[Key, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._turns = [threading.Lock() for _ in range(256)]

    def turn(self, address: str, name: str) -> threading.Lock:
        """Hold this while a try is looked at: those of one name from one address go one after the other."""
        return self._turns[hash((bucket(address), name)) % len(self._turns)]

    def may_try(self, address: str, name: str) -> bool:
        """Counts one more try, unless there were too many: before it is looked at, so that no guess overtakes it."""
        now = time.monotonic()
        keys = _keys(address, name)
        with self._lock:
            counts = [self._count(key, now) for key in keys]
            if any(count >= limit for (_, count), limit in zip(counts, self._limits, strict=True)):
                return False
            for key, (since, count) in zip(keys, counts, strict=True):
                self._misses.pop(key, None)
                self._misses[key] = (since, count + 1)
            while len(self._misses) > _MAX_KEYS:
                self._misses.popitem(last=False)
        for key, (_, count), limit in zip(keys, counts, self._limits, strict=True):
            if count + 1 >= limit:
                self._told(*key, limit)
                break
        return True

    def right(self, address: str, name: str) -> None:
        """Takes back what a try has counted that was right."""
        with self._lock:
            for key in _keys(address, name):
                since, count = self._misses.get(key, (0.0, 0))
                if count:
                    self._misses[key] = (since, count - 1)

    def reset(self) -> None:
        """Forgets all (tests)."""
        with self._lock:
            self._misses.clear()

    def _count(self, key: Key, now: float) -> tuple[float, int]:
        """Since when, and how many; the count ends `seconds` after its first."""
        since, count = self._misses.get(key, (now, 0))
        return (since, count) if now - since <= self._seconds else (now, 0)


def _keys(address: str, name: str) -> tuple[Key, Key]:
    counted = bucket(address)
    return (counted, name), (counted, "")
