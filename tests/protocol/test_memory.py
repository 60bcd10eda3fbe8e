"""How far back ids of repeatable requests are remembered, spec 2: window, memory start, forgetting, the clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from messaging.protocol.memory import (
    RULES,
    Decision,
    Memory,
    Received,
    Refusal,
    State,
    Stored,
    Verdict,
    decide,
    horizon,
    refusal,
    start_after_loss,
)
from tests.fixtures.acceptance_model import window as model_window

bounded = settings(max_examples=300)
T = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
MEMORY = Memory(window=2 * HOUR, skew=5 * MINUTE, memory_start=LONG_AGO, forgotten_through=LONG_AGO, heartbeat=LONG_AGO)
INSIDE, OUTSIDE, FUTURE = None, Refusal.OUTSIDE_MEMORY_WINDOW, Refusal.FIRST_SENT_IN_FUTURE


# --- the window ---


@pytest.mark.parametrize(
    ("memory", "age", "expected"),
    [
        pytest.param(MEMORY, 3 * HOUR, OUTSIDE, id="G05"),
        pytest.param(MEMORY, 2 * HOUR, INSIDE, id="G06-exactly"),
        pytest.param(MEMORY, 2 * HOUR + SECOND, OUTSIDE, id="G06-a-second-more"),
        pytest.param(replace(MEMORY, memory_start=T - HOUR), 90 * MINUTE, OUTSIDE, id="G07-before-memory-start"),
        pytest.param(replace(MEMORY, memory_start=T - HOUR), 30 * MINUTE, INSIDE, id="G07-after-memory-start"),
        pytest.param(replace(MEMORY, memory_start=T - HOUR), HOUR, INSIDE, id="G07-exactly"),
        pytest.param(MEMORY, -4 * MINUTE, INSIDE, id="G08-a-little-ahead"),
        pytest.param(MEMORY, -5 * MINUTE, INSIDE, id="G08-exactly"),
        pytest.param(MEMORY, -6 * MINUTE, FUTURE, id="G08-too-far-ahead"),
        pytest.param(
            replace(MEMORY, window=3 * HOUR, forgotten_through=T - 2 * HOUR), 150 * MINUTE, OUTSIDE, id="G09-forgotten"
        ),
        pytest.param(
            replace(MEMORY, window=3 * HOUR, forgotten_through=T - 2 * HOUR), 110 * MINUTE, INSIDE, id="G09-kept"
        ),
    ],
)
def test_what_lies_outside_the_memory(memory: Memory, age: timedelta, expected: Refusal | None) -> None:
    assert refusal(memory, T - age, T) is expected
    decision = decide(memory, Received(T - age, "f"), None, T)
    if expected is None:
        assert decision == Decision(Verdict.EXECUTE)
    else:
        assert decision == Decision(Verdict.REFUSE, expected.value, 412)


def test_g10_an_id_is_kept_by_its_first_instance_time() -> None:
    first_sent = T + 4 * MINUTE
    sweep = T + 2 * HOUR + MINUTE
    assert refusal(MEMORY, first_sent, sweep) is None, "a copy is admitted then"
    assert refusal(MEMORY, first_sent, sweep + 10 * MINUTE) is not None


_STATES = [(state, alive) for state in State for alive in (False, True)]


@pytest.mark.parametrize(("state", "alive"), _STATES)
@pytest.mark.parametrize(
    ("first_sent", "now"),
    [
        pytest.param(T - 119 * MINUTE, T + 2 * MINUTE, id="G11"),
        pytest.param(T - 3 * HOUR, T, id="G12"),
    ],
)
def test_outside_the_window_it_does_not_matter_what_is_still_stored(
    state: State, alive: bool, first_sent: datetime, now: datetime
) -> None:
    request = Received(first_sent, "f")
    kept, swept = (decide(MEMORY, request, stored, now) for stored in (Stored(state, alive, first_sent, "f"), None))
    assert kept == swept == Decision(Verdict.REFUSE, "outside-memory-window", 412)


def test_g26_after_a_loss_nothing_is_taken_that_may_have_been_taken_before() -> None:
    start = start_after_loss(T, T - HOUR, MEMORY.skew)
    lost = replace(MEMORY, memory_start=start)
    assert refusal(lost, T, T) is OUTSIDE
    assert refusal(lost, T + 5 * MINUTE, T + MINUTE) is OUTSIDE, "the latest that was accepted before"
    assert refusal(lost, T + 5 * MINUTE + SECOND, T + MINUTE) is INSIDE
    # The clock ran ahead before the loss, and was set right with it.
    assert start_after_loss(T, T + HOUR, MEMORY.skew) == start + HOUR


def test_x12_the_horizon_does_not_move_back_with_the_clock() -> None:
    seen = replace(MEMORY, heartbeat=T)
    assert horizon(seen, T - 10 * MINUTE) == horizon(seen, T) == T - 2 * HOUR
    assert refusal(seen, T - 2 * HOUR - SECOND, T - 10 * MINUTE) is OUTSIDE
    assert horizon(seen, T + MINUTE) == T - 2 * HOUR + MINUTE


def test_instants_are_compared_and_not_their_spelling() -> None:
    east = (T - 2 * HOUR).astimezone(timezone(9 * HOUR))
    assert refusal(MEMORY, east, T) is None
    assert decide(MEMORY, Received(east, "f"), Stored("answered", False, T - 2 * HOUR, "f"), T).verdict == "replay"


# --- what is remembered of an id ---

NOW = T + MINUTE
SAME = Received(T, "f")


@pytest.mark.parametrize(
    ("request_", "stored", "expected"),
    [
        pytest.param(SAME, None, Decision(Verdict.EXECUTE), id="G01"),
        pytest.param(SAME, Stored("answered", False, T, "f"), Decision(Verdict.REPLAY), id="G02"),
        pytest.param(SAME, Stored("accepted", False, T, "f"), Decision(Verdict.REPLAY), id="G30"),
        pytest.param(
            Received(T, "g"),
            Stored("answered", False, T, "f"),
            Decision(Verdict.REFUSE, "content-differs", 400),
            id="G13",
        ),
        pytest.param(
            Received(T + SECOND, "f"),
            Stored("answered", False, T, "f"),
            Decision(Verdict.REFUSE, "first-sent-differs", 400),
            id="G14",
        ),
        pytest.param(
            Received(T + SECOND, "g"),
            Stored("running", True, T, "f"),
            Decision(Verdict.REFUSE, "first-sent-differs", 400),
            id="G14-before-content",
        ),
        pytest.param(
            Received(T, "g"),
            Stored("running", True, T, "f"),
            Decision(Verdict.REFUSE, "content-differs", 400),
            id="G13-while-running",
        ),
        pytest.param(SAME, Stored("running", True, T, "f"), Decision(Verdict.BUSY, "in-work", 409), id="G18"),
        pytest.param(SAME, Stored("running", False, T, "f"), Decision(Verdict.DOUBT, "in-doubt", 412), id="G22"),
        pytest.param(
            SAME, Stored("in_doubt", False, T, "f"), Decision(Verdict.DOUBT, "in-doubt", 412), id="G22-doubted"
        ),
        pytest.param(
            SAME, Stored("in_doubt", True, T, "f"), Decision(Verdict.DOUBT, "in-doubt", 412), id="G22-no-lease-helps"
        ),
        pytest.param(
            SAME,
            Stored("forgotten", False, T, ""),
            Decision(Verdict.REFUSE, "forgotten-by-request", 412),
            id="G28",
        ),
    ],
)
def test_what_a_repeat_meets(request_: Received, stored: Stored | None, expected: Decision) -> None:
    assert decide(MEMORY, request_, stored, NOW) == expected


@pytest.mark.parametrize(
    ("content", "stored", "expected"),
    [
        ("f", None, Decision(Verdict.EXECUTE)),
        ("f", Stored("answered", False, T, "f"), Decision(Verdict.REPLAY)),
        pytest.param(
            "g", Stored("answered", False, T, "f"), Decision(Verdict.REFUSE, "content-differs", 422), id="G13-by-key"
        ),
        ("f", Stored("running", True, T, "f"), Decision(Verdict.BUSY, "in-work", 409)),
        ("f", Stored("running", False, T, "f"), Decision(Verdict.DOUBT, "in-doubt", 412)),
        ("g", Stored("forgotten", False, T, "f"), Decision(Verdict.REFUSE, "forgotten-by-request", 412)),
    ],
)
@pytest.mark.parametrize("now", [NOW, T + 30 * HOUR])
def test_a_key_has_no_window_and_no_first_instance_time(
    content: str, stored: Stored | None, expected: Decision, now: datetime
) -> None:
    assert decide(MEMORY, Received(None, content), stored, now, by_key=True) == expected


def test_who_gives_neither_time_nor_key_is_not_guessed_about() -> None:
    with pytest.raises(ValueError, match="identified by key"):
        decide(MEMORY, Received(None, "f"), None, T)
    with pytest.raises(ValueError, match="lost"):
        decide(MEMORY, SAME, Stored("lost", False, T, "f"), NOW)


def test_every_combination_has_one_meaning() -> None:
    """Nothing but an unseen id is executed; nothing but the same request is replayed."""
    for state, alive, time, content, key in product(State, (False, True), (T, T - MINUTE), "fg", (False, True)):
        decision = decide(MEMORY, Received(time, content), Stored(state, alive, T, "f"), NOW, by_key=key)
        assert decision.verdict is not Verdict.EXECUTE
        if decision.verdict is Verdict.REPLAY:
            assert content == "f" and (key or time == T) and state in (State.ANSWERED, State.ACCEPTED)
        assert (decision.status is None) is (decision.verdict is Verdict.REPLAY) is (decision.code == "")
    assert all(rule.source for rule in RULES)


# --- over time ---

_OFFSETS = st.integers(-8 * 3600, 8 * 3600).map(lambda seconds: timedelta(seconds=seconds))


@bounded
@given(
    _OFFSETS,
    st.integers(1, 4 * 3600).map(lambda seconds: timedelta(seconds=seconds)),
    st.integers(0, 600).map(lambda seconds: timedelta(seconds=seconds)),
    _OFFSETS,
    _OFFSETS,
)
@example(-2 * HOUR, 2 * HOUR, 5 * MINUTE, -3 * HOUR, -3 * HOUR)
@example(5 * MINUTE, 2 * HOUR, 5 * MINUTE, -3 * HOUR, -3 * HOUR)
@example(-HOUR, 2 * HOUR, 5 * MINUTE, -HOUR, -3 * HOUR)
@example(-HOUR, 2 * HOUR, 5 * MINUTE, -3 * HOUR, -HOUR)
def test_x15_the_window_is_that_of_the_model(
    first: timedelta, window: timedelta, skew: timedelta, start: timedelta, forgotten: timedelta
) -> None:
    memory = Memory(window, skew, T + start, T + forgotten, heartbeat=T)
    said = model_window(T, T + first, win=window, mem=T + start, forg=T + forgotten, skew=skew)
    assert (412 if refusal(memory, T + first, T) else 0) == said


@dataclass
class Receiver:
    """A receiver as the store keeps it: its memory, its rows, its clock; and how often each request was executed."""

    memory: Memory = field(default_factory=lambda: replace(MEMORY, heartbeat=T))
    now: datetime = T
    rows: dict[str, datetime] = field(default_factory=dict)
    executed: dict[tuple[str, datetime], int] = field(default_factory=dict)
    horizons: list[datetime] = field(default_factory=list)

    def receive(self, request_id: str, first_sent: datetime) -> Decision:
        known = self.rows.get(request_id)
        stored = Stored("answered", False, known, "f") if known else None
        decision = decide(self.memory, Received(first_sent, "f"), stored, self.now)
        if decision.verdict is Verdict.EXECUTE:
            self.rows[request_id] = first_sent
            self.executed[request_id, first_sent] = self.executed.get((request_id, first_sent), 0) + 1
        return decision

    def pass_time(self, step: timedelta) -> None:
        self.now += step
        self.memory = replace(self.memory, heartbeat=max(self.memory.heartbeat, self.now))

    def sweep(self) -> None:
        """Everything whose time has come is forgotten, and how far that went is remembered."""
        cut = self.memory.heartbeat - self.memory.window - self.memory.skew
        self.rows = {
            key: first
            for key, first in self.rows.items()
            if first + self.memory.window + self.memory.skew >= self.memory.heartbeat
        }
        self.memory = replace(self.memory, forgotten_through=max(self.memory.forgotten_through, cut))

    def lose(self) -> None:
        self.rows.clear()
        start = start_after_loss(self.now, self.memory.heartbeat, self.memory.skew)
        self.memory = replace(self.memory, memory_start=start, forgotten_through=LONG_AGO, heartbeat=self.now)

    def set_window(self, hours: int) -> None:
        self.memory = replace(self.memory, window=hours * HOUR)


_STEPS = st.one_of(
    st.tuples(st.just("receive"), st.sampled_from("abcd"), st.integers(-250, 10)),
    st.tuples(st.just("repeat"), st.integers(0, 20)),
    st.tuples(st.just("pass"), st.integers(-60, 200)),
    st.tuples(st.just("sweep")),
    st.tuples(st.just("lose")),
    st.tuples(st.just("window"), st.integers(1, 4)),
)


@bounded
@given(st.lists(_STEPS, max_size=40))
@example([("receive", "a", -110), ("window", 3), ("pass", 20), ("sweep",), ("window", 4), ("repeat", 0)])
@example([("receive", "a", 5), ("pass", -60), ("lose",), ("pass", 70), ("repeat", 0)])
@example([("receive", "a", 5), ("pass", 122), ("sweep",), ("repeat", 0)])
def test_x15_no_trace_executes_a_request_twice(steps: list[tuple]) -> None:
    """Copies come at any time, the clock jumps both ways, rows are swept, lost, and the window is changed."""
    receiver, copies = Receiver(), []
    for step in steps:
        before = receiver.memory
        if step[0] == "receive":
            copies.append((step[1], receiver.now + step[2] * MINUTE))
            receiver.receive(*copies[-1])
        elif step[0] == "repeat" and copies:
            receiver.receive(*copies[step[1] % len(copies)])
        elif step[0] == "pass":
            edge = horizon(receiver.memory, receiver.now)
            receiver.pass_time(step[1] * MINUTE)
            assert horizon(receiver.memory, receiver.now) >= edge
        elif step[0] == "sweep":
            receiver.sweep()
            assert horizon(receiver.memory, receiver.now) >= horizon(before, receiver.now)
        elif step[0] == "lose":
            receiver.lose()
        elif step[0] == "window":
            receiver.set_window(step[1])
        assert all(times == 1 for times in receiver.executed.values()), receiver.executed
