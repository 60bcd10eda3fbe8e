"""What has overtaken its predecessor waits for it: in memory, for a moment, and only so many."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

from messaging.profiles.stream.arrivals import Holding, Position
from tests.rmhub.conditions import eventually

KEY = (uuid.UUID(int=1), "guid")
WAIT = 120.0


class Waiter(threading.Thread):
    """Waits with message `number` of stream 1, which follows `previous`."""

    def __init__(self, holding: Holding, number: int, previous: int, *, look: Callable[[], Position] | None = None):
        super().__init__(daemon=True)
        self.holding, self.number, self.previous = holding, number, previous
        self.look = look or (lambda: (0, 0))
        self.seconds = WAIT
        self.ready: bool | None = None
        self.start()

    def run(self) -> None:
        self.ready = self.holding.wait(
            KEY,
            (1, self.number),
            is_ready=lambda position: position >= (1, self.previous),
            look=self.look,
            until=time.monotonic() + self.seconds,
        )

    def done(self) -> bool:
        self.join(WAIT)
        assert not self.is_alive()
        assert self.ready is not None
        return self.ready


def test_it_goes_on_when_its_predecessor_is_accepted() -> None:
    holding = Holding()
    waiter = Waiter(holding, 3, 2)
    eventually(lambda: holding.waiting() == 1)
    holding.advanced(KEY, (1, 1))
    assert waiter.ready is None, "1 is not what it waits for"
    holding.advanced(KEY, (1, 2))
    assert waiter.done() is True
    assert holding.waiting() == 0


def test_who_follows_right_behind_goes_on_too() -> None:
    """3, 4 and 5 become one group, and not three transactions one behind the other; 7 has to wait for 6."""
    holding = Holding()
    waiters = [Waiter(holding, number, number - 1) for number in (5, 7, 4, 3)]
    eventually(lambda: holding.waiting() == 4)
    holding.advanced(KEY, (1, 2))
    assert [waiters[index].done() for index in (0, 2, 3)] == [True] * 3
    assert holding.waiting() == 1
    holding.advanced(KEY, (1, 6))
    assert waiters[1].done() is True


def test_what_was_accepted_between_the_look_and_the_wait_is_not_missed() -> None:
    holding = Holding()
    holding.advanced(KEY, (1, 2))
    holding.advanced(KEY, (1, 1))  # a slower group says so later; streams never go back
    assert Waiter(holding, 3, 2).done() is True


def test_its_time_is_bounded() -> None:
    holding = Holding()
    assert holding.wait(KEY, (1, 3), is_ready=lambda _: False, look=lambda: (0, 0), until=time.monotonic()) is False
    until = time.monotonic() + 0.05
    assert holding.wait(KEY, (1, 3), is_ready=lambda _: False, look=lambda: (0, 0), until=until) is False
    assert time.monotonic() >= until


def test_only_so_many_wait_and_the_next_is_decided_at_once() -> None:
    holding = Holding(limit=2)
    waiters = [Waiter(holding, 3, 2), Waiter(holding, 4, 3)]
    eventually(lambda: holding.waiting() == 2)
    assert Waiter(holding, 5, 4).done() is False
    holding.advanced(KEY, (1, 2))
    assert [waiter.done() for waiter in waiters] == [True, True]
    assert Waiter(holding, 5, 1).done() is True, "there is room again"


def test_another_process_s_acceptance_is_seen_in_the_row() -> None:
    """One of those that wait for a stream looks, and wakes the others."""
    holding = Holding()
    looks: list[int] = []
    accepted = threading.Event()

    def look() -> Position:
        looks.append(1)
        return (1, 2) if accepted.is_set() else (1, 1)

    waiters = [Waiter(holding, number, 2, look=look) for number in (3, 4, 5)]
    eventually(lambda: len(looks) >= 2)
    assert holding.waiting() == 3
    accepted.set()
    assert [waiter.done() for waiter in waiters] == [True] * 3
