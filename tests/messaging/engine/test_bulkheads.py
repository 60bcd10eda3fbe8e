"""Who gets the next thread: no bulkhead has more than its share, none starves, and no thread idles for nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging.engine.bulkheads import Bulkheads, Pace


@dataclass
class Hub:
    """Bulkheads, and the jobs that have a thread."""

    bulkheads: Bulkheads[str]
    busy: list[tuple[str, str]] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)

    def come(self, bulkhead: str, *jobs: str) -> None:
        for job in jobs:
            self.bulkheads.put(bulkhead, job, 0.0)
        self.begin()

    def begin(self) -> None:
        for one in self.bulkheads.begin():
            self.busy.append((one.bulkhead, one.job))
            self.begun.append(one.job)

    def end(self, bulkhead: str, reached: bool | None = True) -> None:
        self.busy.remove(next(entry for entry in self.busy if entry[0] == bulkhead))
        self.bulkheads.end(bulkhead, reached)
        self.begin()


def jobs(bulkhead: str, count: int) -> list[str]:
    return [f"{bulkhead}{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("threads", "first", "most"), [(1, 1, 1), (2, 1, 1), (4, 1, 3), (8, 1, 7), (16, 1, 14), (64, 4, 56)]
)
def test_a_lane_begins_with_a_sixteenth_and_never_has_more_than_seven_eighths(
    threads: int, first: int, most: int
) -> None:
    bulkheads: Bulkheads[str] = Bulkheads(threads)
    assert (bulkheads.first, bulkheads.most) == (first, most)


def test_a_dead_server_holds_a_sixteenth_of_the_threads() -> None:
    hub = Hub(Bulkheads(64))
    hub.come("dead", *jobs("d", 50))
    assert len(hub.busy) == 4
    hub.come("other", *jobs("o", 3))
    assert [job for job in hub.begun if job[0] == "o"] == ["o0", "o1", "o2"]
    for _ in range(10):
        hub.end("dead", reached=False)
        assert hub.bulkheads.running("dead") == 4


def test_a_server_that_answers_earns_threads_and_one_that_stops_loses_them() -> None:
    hub = Hub(Bulkheads(16))
    hub.come("a", *jobs("a", 200))
    held = []
    for _ in range(15):
        hub.end("a")
        held.append(hub.bulkheads.running("a"))
    assert held == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 14, 14]
    assert hub.bulkheads.free == 2, "what the others may need is there"
    hub.end("a", reached=False)
    assert hub.bulkheads.share("a") == 1
    for _ in range(13):
        hub.end("a", reached=False)
    assert hub.bulkheads.running("a") == 1


def test_a_lane_that_has_rested_starts_anew() -> None:
    hub = Hub(Bulkheads(16))
    hub.come("a", *jobs("a", 20))
    while hub.busy:
        hub.end("a")
    hub.bulkheads.forget()
    assert hub.bulkheads.share("a") == 14, "it was in use"
    hub.come("a", "a20")
    hub.bulkheads.forget()
    assert hub.bulkheads.share("a") == 14, "it still is"
    hub.end("a")
    hub.bulkheads.forget()
    hub.bulkheads.forget()
    assert hub.bulkheads.share("a") == 1


def test_an_attempt_that_was_not_made_says_nothing() -> None:
    hub = Hub(Bulkheads(16))
    hub.come("a", *jobs("a", 20))
    hub.end("a")
    hub.end("a", reached=None)
    assert hub.bulkheads.share("a") == 2


def test_jobs_of_a_lane_begin_in_their_order_and_bulkheads_take_turns() -> None:
    hub = Hub(Bulkheads(1))
    hub.come("x", "x0")
    hub.come("a", "a0", "a1", "a2")
    hub.come("b", "b0", "b1")
    while hub.busy:
        hub.end(hub.busy[0][0])
    assert hub.begun == ["x0", "a0", "b0", "a1", "b1", "a2"]


def test_bulkheads_in_which_enough_waits_are_named() -> None:
    hub = Hub(Bulkheads(64))
    hub.come("a", *jobs("a", 35))
    hub.come("b", *jobs("b", 36))
    assert hub.bulkheads.crowded() == {"b"}
    assert hub.bulkheads.waiting_in(["b"]) == jobs("b", 36)[4:]


def test_a_server_is_busy_when_jobs_wait_although_it_has_all_that_it_may_have() -> None:
    hub = Hub(Bulkheads(16))
    hub.come("dead", *jobs("d", 8))
    assert not hub.bulkheads.is_busy(), "who waits for a server that does not answer must not slow the others down"
    hub.come("a", *jobs("a", 60))
    for _ in range(15):
        hub.end("a")
    assert hub.bulkheads.is_busy()


def test_what_is_dropped_is_not_begun() -> None:
    hub = Hub(Bulkheads(3))
    hub.come("a", *jobs("a", 3))
    hub.come("b", *jobs("b", 2))
    assert sorted(hub.bulkheads.drop(lambda job: job in ("a1", "b1"))) == ["a1", "b1"]
    assert hub.bulkheads.waiting == 1
    hub.end("a")
    hub.end("b")
    assert hub.begun == ["a0", "b0", "a2"]


def test_shared_threads_are_for_everybody() -> None:
    hub = Hub(Bulkheads(4, shared=True))
    hub.come("", *jobs("a", 9))
    assert len(hub.busy) == 4


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.sampled_from("abcd"), st.integers(1, 9)),
        st.tuples(st.just("end"), st.integers(0, 30), st.sampled_from((True, False, None))),
    ),
    max_size=80,
)


@given(st.integers(1, 20), MOVES)
def test_whatever_comes(threads: int, moves: list[tuple[str, object, object]]) -> None:
    hub = Hub(Bulkheads(threads))
    bulkheads, come = hub.bulkheads, 0
    for kind, which, what in moves:
        if kind == "come":
            hub.come(str(which), *(f"{which}{come + number}" for number in range(int(str(what)))))
            come += int(str(what))
        elif hub.busy:
            hub.end(hub.busy[int(str(which)) % len(hub.busy)][0], what)  # type: ignore[arg-type]
        assert bulkheads.free == threads - len(hub.busy) >= 0
        for bulkhead in "abcd":
            assert bulkheads.running(bulkhead) == sum(entry[0] == bulkhead for entry in hub.busy) <= bulkheads.most
            assert bulkheads.first <= bulkheads.share(bulkhead) <= bulkheads.most
            # Nobody waits for nothing: a free thread, and room in the bulkhead, are taken.
            if bulkheads.waiting_in([bulkhead]) and bulkheads.free:
                assert bulkheads.running(bulkhead) >= bulkheads.share(bulkhead)
        for bulkhead in "abcd":
            order = [int(job[1:]) for job in hub.begun if job[0] == bulkhead]
            assert order == sorted(order)
    while hub.busy:
        hub.end(hub.busy[0][0])
    assert bulkheads.waiting == 0, "and in the end everybody had a turn"
    assert len(hub.begun) == come


def test_the_pace_is_that_of_this_second_or_the_one_before() -> None:
    pace = Pace()
    assert pace.of(10.0) == 0
    for at in (10.1, 10.5, 10.9, 11.2):
        pace.count(at)
    assert (pace.of(11.5), pace.of(12.1), pace.of(13.0), pace.of(20.0)) == (3, 1, 0, 0)
