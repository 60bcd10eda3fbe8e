"""Group commit: company is taken along, nobody waits for it, and everybody gets the result that is theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from messaging.engine.group import GroupCommit
from tests.rmhub.conditions import eventually

WAIT = 120.0


class Worker(threading.Thread):
    """Submits one item and keeps what comes back."""

    def __init__(self, group: GroupCommit[int, int], item: int) -> None:
        super().__init__(daemon=True)
        self.group, self.item = group, item
        self.result: int | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.group.submit(self.item)
        except BaseException as error:
            self.error = error

    def done(self) -> Worker:
        self.join(WAIT)
        assert not self.is_alive()
        return self


class Gated:
    """A process function whose first group waits at a gate, so that company gathers behind it."""

    def __init__(self, process: Callable[[list[int]], list[int]]) -> None:
        self.process = process
        self.groups: list[list[int]] = []
        self.inside = threading.Event()
        self.gate = threading.Event()

    def __call__(self, items: list[int]) -> list[int]:
        self.groups.append(items)
        if len(self.groups) == 1:
            self.inside.set()
            assert self.gate.wait(WAIT)
        return self.process(items)


def gather(group: GroupCommit[int, int], gated: Gated, items: list[int]) -> list[Worker]:
    """The first item is being processed; the others wait behind it, in this order."""
    workers = []
    for number, item in enumerate(items):
        worker = Worker(group, item)
        worker.start()
        workers.append(worker)
        if number == 0:
            assert gated.inside.wait(WAIT)
        else:
            eventually(lambda number=number: len(group._waiting) == number)
    return workers


def test_a_single_caller_is_its_own_group_at_once() -> None:
    groups: list[list[int]] = []

    def process(items: list[int]) -> list[int]:
        groups.append(items)
        return [item * 10 for item in items]

    group = GroupCommit(process)
    assert [group.submit(1), group.submit(2)] == [10, 20]
    assert groups == [[1], [2]]


def test_those_who_come_meanwhile_are_one_group_in_their_order_with_their_own_results() -> None:
    gated = Gated(lambda items: [item * 10 for item in items])
    group = GroupCommit(gated)
    workers = gather(group, gated, [5, 4, 3, 2, 1])
    gated.gate.set()
    assert [worker.done().result for worker in workers] == [50, 40, 30, 20, 10]
    assert gated.groups == [[5], [4, 3, 2, 1]]


def test_a_group_has_a_limit_and_nobody_is_forgotten_behind_it() -> None:
    gated = Gated(lambda items: items)
    group = GroupCommit(gated, limit=2)
    workers = gather(group, gated, [0, 1, 2, 3, 4, 5])
    gated.gate.set()
    assert [worker.done().result for worker in workers] == [0, 1, 2, 3, 4, 5]
    assert gated.groups == [[0], [1, 2], [3, 4], [5]]


def test_a_poisonous_item_takes_no_other_along() -> None:
    def process(items: list[int]) -> list[int]:
        if 13 in items:
            raise ValueError("thirteen")
        return items

    gated = Gated(process)
    group = GroupCommit(gated)
    workers = gather(group, gated, [1, 2, 13, 3])
    gated.gate.set()
    done = [worker.done() for worker in workers]
    assert [worker.result for worker in done] == [1, 2, None, 3]
    assert isinstance(done[2].error, ValueError)
    assert [worker.error for worker in done if worker.item != 13] == [None] * 3
    assert gated.groups == [[1], [2, 13, 3], [2], [13], [3]], "one by one, in their order"


def test_the_error_of_the_first_reaches_it_and_the_next_group_goes_on() -> None:
    def process(items: list[int]) -> list[int]:
        if 1 in items:
            raise ValueError("one")
        return items

    gated = Gated(process)
    group = GroupCommit(gated)
    workers = gather(group, gated, [1, 2])
    gated.gate.set()
    with pytest.raises(ValueError, match="one"):
        raise workers[0].done().error  # type: ignore[misc]
    assert workers[1].done().result == 2
    assert group.submit(3) == 3


def test_what_ends_a_thread_reaches_all_of_its_group_and_stalls_nobody() -> None:
    """KeyboardInterrupt or SystemExit in the leader: nobody may take a missing commit for a result."""

    def process(items: list[int]) -> list[int]:
        if 1 in items:
            raise SystemExit
        return items

    gated = Gated(process)
    group = GroupCommit(gated, limit=3)
    workers = gather(group, gated, [0, 2, 1, 3, 4])
    gated.gate.set()
    done = [worker.done() for worker in workers]
    assert [type(worker.error) for worker in done] == [type(None), SystemExit, SystemExit, SystemExit, type(None)]
    assert done[4].result == 4
    assert group.submit(5) == 5


def test_many_threads_each_get_their_own_result_once() -> None:
    seen: list[int] = []
    running = threading.Lock()

    def process(items: list[int]) -> list[int]:
        assert running.acquire(blocking=False), "two groups at once"
        try:
            seen.extend(items)
            if any(item % 7 == 0 for item in items):
                raise ValueError(str(items))
            return [item * 10 for item in items]
        finally:
            running.release()

    group = GroupCommit(process, limit=8)
    results: dict[int, object] = {}

    def run(first: int) -> None:
        for item in range(first, first + 50):
            try:
                results[item] = group.submit(item)
            except ValueError:
                results[item] = "refused"

    threads = [threading.Thread(target=run, args=(first,), daemon=True) for first in range(0, 800, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert results == {item: "refused" if item % 7 == 0 else item * 10 for item in range(800)}
    assert not group._waiting
