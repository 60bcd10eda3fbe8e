"""What every message needs and few rows say: kept in the memory of a process, and looked up once a second at most.

A change is seen by every other process within about a second; the process that made it forgets what it knew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

SECONDS = 1.0
T = TypeVar("T")


class Remembered(Generic[T]):
    """Decorates a function without parameters that reads the database: its answer is at most about a second old."""

    def __init__(self, load: Callable[[], T]) -> None:
        self.__doc__ = load.__doc__
        self._load = load
        self._known: tuple[float, T] | None = None

    def __call__(self) -> T:
        at = time.monotonic()
        known = self._known
        if known is None or at - known[0] > SECONDS:
            self._known = known = (at, self._load())
        return known[1]

    def forget(self) -> None:
        """Makes the next look one at the database (after a change in this process; tests)."""
        self._known = None
