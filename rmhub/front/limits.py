"""How slowly and how much: the pace that is asked of a sender, and budgets of bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """What is asked of whoever sends a body, or takes an answer. Seconds, and bytes a second."""

    grace: float = 10.0  # nothing need have come by then
    rate: float = 8192.0  # from then on, on average
    longest: float = 1800.0  # whatever the rate

    def until(self, began: float, size: int) -> float:
        """The moment by which more than `size` bytes must have moved, on the clock of `began`."""
        return began + min(self.longest, self.grace + size / self.rate)


class Full(Exception):
    """No room, and none came in time."""


class Budget:
    """Bytes that may be held at once. Whoever finds too few left waits in line; used on one event loop only."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, amount: int, seconds: float) -> int:
        """Waits until there is room and returns what was taken. Raises Full after `seconds`.

        Never more than the whole budget is taken: what is larger than that is worked on alone.
        """
        amount = min(amount, self.size)
        if not self._line and amount <= self.free:
            self.free -= amount
            return amount
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (amount, turn)
        self._line.append(place)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give(amount)
            elif place in self._line:
                self._line.remove(place)
                self._serve()  # the next may need less
            if isinstance(error, TimeoutError):
                raise Full from None
            raise
        return amount

    def give(self, amount: int) -> None:
        """Returns what was taken."""
        self.free += amount
        self._serve()

    def _serve(self) -> None:
        while self._line and self._line[0][0] <= self.free:
            amount, turn = self._line.popleft()
            if turn.cancelled():
                continue
            self.free -= amount
            turn.set_result(None)
