"""When a process that has ended is started again."""

from __future__ import annotations

import collections

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
WINDOW = 60.0


class Restarts:
    """Counts the deaths of each process within the last minute. Knows no clock: the caller says what time it is."""

    def __init__(self, per_minute: int | None) -> None:
        """`per_minute`: how many deaths are borne; None = any number."""
        self._per_minute = per_minute
        self._deaths: dict[str, collections.deque[float]] = collections.defaultdict(collections.deque)

    def pause(self, name: str, now: float) -> float | None:
        """The seconds to wait before this process is started again: twice as long each time within a minute.

        None when it has died too often: it does not work, and to go on would only hide that.
        """
        deaths = self._deaths[name]
        deaths.append(now)
        while deaths[0] <= now - WINDOW:
            deaths.popleft()
        if self._per_minute is not None and len(deaths) > self._per_minute:
            return None
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(len(deaths) - 1, 10))
