"""The sender of one repeatable request, spec 2: what answers mean, when it is sent again, and when never again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise, permutations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from messaging.protocol.memory import Memory, Received, Stored, Verdict, decide
from messaging.protocol.repeating import (
    STEPS,
    Act,
    Policy,
    Reached,
    Reply,
    State,
    Step,
    begin,
    classify,
    deadline,
    delay,
    expire,
    step,
)
from messaging.protocol.service_ends import NOTHING_SENT

bounded = settings(max_examples=300)
T = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
POLICY = Policy(window=2 * HOUR, initial=20, maximum=600, lease=60)
BEGUN = State(attempts=1, first_sent=T)


# --- what an answer means ---


@pytest.mark.parametrize(
    ("statuses", "result", "reply"),
    [
        ((200, 201, 202, 204), "", Reply.LOST),
        ((200, 201, 202, 204), "accepted", Reply.DONE),
        ((200, 204), "rejected", Reply.LOST),
        *[((408, 409, 425, 429, 503), result, Reply.BUSY) for result in ("", "accepted", "rejected")],
        *[((500, 502, 504, 599), result, Reply.LOST) for result in ("", "rejected")],
        *[((412,), result, Reply.OUTSIDE_WINDOW) for result in ("", "accepted", "rejected")],
        ((400, 422), "", Reply.REFUSED),
        ((400, 402, 406, 410, 418, 422, 431), "rejected", Reply.REFUSED),
        *[((401, 403), result, Reply.ACCESS_REFUSED) for result in ("", "rejected")],
        *[((404, 405, 413, 415, 501), result, Reply.CONFIGURATION_WRONG) for result in ("", "rejected")],
        ((300, 301, 302, 304, 307, 308), "", Reply.CONFIGURATION_WRONG),
        ((402, 406, 407, 410, 418, 421, 431, 451), "", Reply.CONFIGURATION_WRONG),
        # The outcome of the one execution is an error: nothing that could be sent again.
        ((400, 401, 403, 404, 410, 422, 500, 502, 599), "accepted", Reply.ENDED_IN_ERROR),
        ((100, 199, 600, 999), "", Reply.LOST),
    ],
)
def test_what_an_answer_means(statuses: tuple[int, ...], result: str, reply: Reply) -> None:
    for status in statuses:
        assert classify(status, result, "http_4xx") is reply, status


@pytest.mark.parametrize("cause", sorted(NOTHING_SENT | {"window_over"}))
def test_without_a_connection_nothing_was_sent(cause: str) -> None:
    assert classify(None, "", cause) is Reply.NOT_SENT


@pytest.mark.parametrize("cause", ["read_timeout", "connection_reset", "worker_lost", "internal_error", ""])
def test_without_an_answer_it_may_have_been_executed(cause: str) -> None:
    assert classify(None, "", cause) is Reply.LOST


# --- one step ---


def test_the_first_attempt_fixes_the_first_instance_time() -> None:
    begun = begin(State(), T + timedelta(microseconds=987_654), POLICY)
    assert begun == Step(State(1, T), Act.SEND, T + timedelta(seconds=60, microseconds=987_654))
    assert begin(begun.state, T + HOUR, POLICY) == Step(State(2, T), Act.SEND, T + HOUR + 60 * SECOND)


@pytest.mark.parametrize(
    ("reply", "act", "reached", "cause"),
    [
        (Reply.DONE, Act.COMPLETE, Reached.NOWHERE, ""),
        (Reply.BUSY, Act.RETRY, Reached.SERVICE, ""),
        (Reply.LOST, Act.RETRY, Reached.SERVICE, ""),
        (Reply.NOT_SENT, Act.RETRY, Reached.NOWHERE, ""),
        pytest.param(Reply.OUTSIDE_WINDOW, Act.IN_DOUBT, Reached.NOWHERE, "outside_memory_window", id="G32"),
        (Reply.REFUSED, Act.FAIL, Reached.NOWHERE, "request_refused"),
        (Reply.ENDED_IN_ERROR, Act.FAIL, Reached.NOWHERE, "executed_with_error"),
        (Reply.ACCESS_REFUSED, Act.HOLD, Reached.LOG_IN, ""),
        (Reply.CONFIGURATION_WRONG, Act.HOLD, Reached.ENTRANCE, ""),
    ],
)
def test_what_follows_from_a_reply(reply: Reply, act: Act, reached: Reached, cause: str) -> None:
    done = step(BEGUN, reply, T + SECOND, POLICY, 1.0)
    assert (done.act, done.cause, done.state) == (act, cause, replace(BEGUN, reached=reached))
    assert done.due_at == (T + 21 * SECOND if act is Act.RETRY else None)
    assert set(STEPS) == set(Reply) and all(row.source for row in STEPS.values())


def test_a_refusal_after_a_lost_answer_does_not_say_that_nothing_was_executed() -> None:
    lost = step(BEGUN, Reply.LOST, T + SECOND, POLICY, 1.0).state
    refused = step(replace(lost, attempts=2), Reply.REFUSED, T + HOUR, POLICY, 1.0)
    assert (refused.act, refused.cause) == (Act.IN_DOUBT, "outcome_unknown")
    # What a step has made doubtful stays so.
    assert step(lost, Reply.NOT_SENT, T + HOUR, POLICY, 1.0).state.reached is Reached.SERVICE


def test_a_message_that_was_never_begun_has_no_reply() -> None:
    with pytest.raises(ValueError, match="never begun"):
        step(State(), Reply.DONE, T, POLICY, 1.0)


# --- the waits ---


def test_the_waits_double_up_to_the_longest() -> None:
    assert [delay(n, POLICY, 1.0) for n in range(1, 9)] == [20, 40, 80, 160, 320, 600, 600, 600]
    assert [delay(n, POLICY, 0.0) for n in range(1, 8)] == [10, 20, 40, 80, 160, 300, 300]
    assert delay(10_000, POLICY, 1.0) == 600


@bounded
@given(st.integers(0, 10**6), st.floats(0, 1), st.none() | st.floats(0, 10**6), st.floats(1, 10))
def test_a_wait_is_within_its_bounds(attempts: int, jitter: float, retry_after: float | None, factor: float) -> None:
    policy = replace(POLICY, factor=factor)
    wait = delay(attempts, policy, jitter, retry_after)
    full = delay(attempts, policy, 1.0)
    assert 20 <= full <= 600
    assert max(full / 2, retry_after or 0) <= wait <= max(full, retry_after or 0)


@pytest.mark.parametrize(("retry_after", "seconds"), [(None, 20), (5, 20), (20, 20), (300, 300), (0, 20)])
def test_a_longer_wish_of_the_receiver_is_followed(retry_after: float | None, seconds: float) -> None:
    assert step(BEGUN, Reply.BUSY, T, POLICY, 1.0, retry_after).due_at == T + seconds * SECOND


# --- the end of the window ---


@pytest.mark.parametrize("reply", [Reply.LOST, Reply.BUSY, Reply.NOT_SENT])
@pytest.mark.parametrize("reached", Reached)
def test_g31_what_would_be_too_late_is_never_sent_again(reply: Reply, reached: Reached) -> None:
    state = replace(BEGUN, reached=reached)
    latest = deadline(T, POLICY) - 20 * SECOND
    assert step(state, reply, latest, POLICY, 1.0).due_at == deadline(T, POLICY), "the limit itself is inside"
    late = step(state, reply, latest + timedelta(microseconds=1), POLICY, 1.0)
    assert late.due_at is None
    assert late == expire(replace(state, reached=reached if reply is Reply.NOT_SENT else Reached.SERVICE))


@pytest.mark.parametrize(
    ("replies", "act", "cause"),
    [
        ([], Act.FAIL, "never_sent"),
        ([Reply.NOT_SENT], Act.FAIL, "never_sent"),
        ([Reply.ACCESS_REFUSED], Act.FAIL, "access_refused"),
        ([Reply.ACCESS_REFUSED, Reply.NOT_SENT], Act.FAIL, "access_refused"),
        # Not only the log-in: what is said must be true of all.
        ([Reply.ACCESS_REFUSED, Reply.CONFIGURATION_WRONG, Reply.NOT_SENT], Act.FAIL, "turned_away"),
        ([Reply.ACCESS_REFUSED, Reply.LOST], Act.IN_DOUBT, "outcome_unknown"),
        ([Reply.CONFIGURATION_WRONG, Reply.BUSY], Act.IN_DOUBT, "outcome_unknown"),
    ],
)
def test_the_copy_that_reached_furthest_says_how_it_ends(replies: list[Reply], act: Act, cause: str) -> None:
    for order in permutations(replies):
        state = BEGUN
        for reply in order:
            state = step(state, reply, T + SECOND, POLICY, 1.0).state
        ended = expire(state)
        assert (ended.act, ended.cause) == (act, cause), order


@pytest.mark.parametrize("retry_after", [2 * HOUR.total_seconds(), 1e12, float("inf")])
def test_g31_nor_what_the_receiver_wishes_too_late(retry_after: float) -> None:
    assert step(BEGUN, Reply.BUSY, T + SECOND, POLICY, 1.0, retry_after).act is Act.IN_DOUBT


@pytest.mark.parametrize("reached", Reached)
def test_g31_an_attempt_that_comes_too_late_is_not_begun(reached: Reached) -> None:
    state = State(3, T, reached)
    assert begin(state, deadline(T, POLICY), POLICY).act is Act.SEND
    assert begin(state, deadline(T, POLICY) + timedelta(microseconds=1), POLICY) == expire(state)
    assert expire(state).act is (Act.IN_DOUBT if reached is Reached.SERVICE else Act.FAIL)


def test_the_repeats_may_stop_earlier_than_the_window() -> None:
    careful = replace(POLICY, skew=60 * SECOND)
    assert deadline(T, careful) == T + 2 * HOUR - 60 * SECOND == deadline(T, POLICY) - 60 * SECOND
    assert begin(State(1, T), T + 2 * HOUR, careful).act is Act.FAIL


# --- sender and receiver together ---

_FATES = st.sampled_from(["arrives", "arrives", "answer lost", "request lost", "no connection", "sender died", "late"])


@dataclass
class Exchange:
    """One message on its way; the receiver has spec 2's memory. `stray`: copies that are still in the network."""

    now: datetime = T
    state: State = field(default_factory=State)
    memory: Memory = field(default_factory=lambda: Memory(2 * HOUR, 5 * 60 * SECOND, T - HOUR, T - HOUR, T))
    row: datetime | None = None
    executed: int = 0
    sent: list[tuple[datetime, datetime]] = field(default_factory=list)
    stray: list[datetime] = field(default_factory=list)

    def arrive(self, first_sent: datetime) -> Reply:
        self.memory = replace(self.memory, heartbeat=max(self.memory.heartbeat, self.now))
        stored = Stored("answered", False, self.row, "f") if self.row else None
        decision = decide(self.memory, Received(first_sent, "f"), stored, self.now)
        if decision.verdict is Verdict.EXECUTE:
            self.executed, self.row = self.executed + 1, first_sent
        status = decision.status or 202
        return classify(status, "accepted" if status < 300 else "rejected", "")

    def forget(self) -> None:
        cut = self.now - self.memory.window - self.memory.skew
        if self.row is not None and self.row < cut:
            self.row = None
        self.memory = replace(self.memory, forgotten_through=max(self.memory.forgotten_through, cut))

    def attempt(self, fate: str, jitter: float) -> Step:
        begun = begin(self.state, self.now, POLICY)
        self.state = begun.state
        if begun.act is not Act.SEND:
            return begun
        assert self.state.first_sent is not None
        if fate != "no connection":
            self.sent.append((self.now, self.state.first_sent))
        reply = classify(None, "", "connect_refused" if fate == "no connection" else "read_timeout")
        if fate in ("arrives", "answer lost", "sender died"):
            answer = self.arrive(self.state.first_sent)
            reply = answer if fate == "arrives" else reply
        if fate == "late":
            self.stray.append(self.state.first_sent)
        done = step(self.state, reply, self.now, POLICY, jitter)
        self.state = done.state
        return done


@bounded
@given(
    st.lists(st.tuples(_FATES, st.floats(0, 1), st.integers(0, 7200)), min_size=60, max_size=60),
    st.integers(0, 300 * 60),
)
@example([("answer lost", 1.0, 7200)] * 60, 0)
@example([("no connection", 1.0, 0)] * 60, 0)
@example([("late", 1.0, 0)] + [("no connection", 1.0, 7200)] * 59, 125 * 60)
def test_any_trace_ends_once_or_with_a_person(fates: list[tuple[str, float, int]], stray_after: int) -> None:
    """`stray_after`: seconds until copies that the network kept come out of it, long after the sender's end too."""
    exchange = Exchange()
    for fate, jitter, idle in fates:
        done = exchange.attempt(fate, jitter)
        if done.act is not Act.RETRY:
            break
        assert done.due_at is not None and done.due_at > exchange.now
        exchange.now = done.due_at + idle * SECOND  # a hub that was down comes late
        exchange.forget()
    assert done.act is not Act.RETRY, "the window ends every message"
    before = exchange.executed
    exchange.now = max(exchange.now, T + stray_after * SECOND)
    exchange.forget()
    for first_sent in exchange.stray:
        exchange.arrive(first_sent)
    assert exchange.executed <= 1
    if done.act is Act.COMPLETE:
        assert before == exchange.executed == 1
    elif done.act is Act.FAIL:
        assert (before, exchange.sent, done.cause) == (0, [], "never_sent")
    else:
        assert done.act is Act.IN_DOUBT
    assert len({first_sent for _, first_sent in exchange.sent}) <= 1, "every copy carries the same time"
    assert all(when <= deadline(first_sent, POLICY) for when, first_sent in exchange.sent)
    assert all(one < other for (one, _), (other, _) in pairwise(exchange.sent))
