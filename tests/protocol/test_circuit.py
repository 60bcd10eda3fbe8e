"""The circuit of a server: every cell of its table, and what holds whatever happens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging import causes
from messaging.protocol.circuit import (
    POLICY,
    SILENT,
    TABLE,
    UNREACHABLE,
    UNTOUCHED,
    Circuit,
    Policy,
    Seen,
    State,
    Verdict,
    seen,
    step,
    take_probe,
    verdict,
    wait,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
EARLIER = NOW - timedelta(seconds=90)
SILENT_SINCE = NOW - timedelta(seconds=3)
COUNTING = Circuit(failures=2, silent_since=SILENT_SINCE)
OPEN = Circuit(State.OPEN, failures=7, silent_since=EARLIER, opened_at=EARLIER, retry_at=NOW, waits=3)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_every_state_has_a_cell_for_all_that_can_happen() -> None:
    assert set(TABLE) == set(State)
    assert all(set(row) == set(Seen) for row in TABLE.values())


@pytest.mark.parametrize(
    ("circuit", "what", "expected"),
    [
        (UNTOUCHED, Seen.REACHED, UNTOUCHED),
        (UNTOUCHED, Seen.UNREACHABLE, Circuit(failures=1, silent_since=NOW)),
        (COUNTING, Seen.REACHED, UNTOUCHED),
        (COUNTING, Seen.UNREACHABLE, Circuit(State.OPEN, 3, SILENT_SINCE, NOW, after(3), 1)),
        (COUNTING, Seen.PROBE_FAILED, Circuit(State.OPEN, 3, SILENT_SINCE, NOW, after(3), 1)),
        (COUNTING, Seen.PROBE_WITHOUT_WORD, COUNTING),
        (COUNTING, Seen.RESET, UNTOUCHED),
        (OPEN, Seen.REACHED, UNTOUCHED),
        (OPEN, Seen.UNREACHABLE, OPEN),
        (OPEN, Seen.PROBE_FAILED, Circuit(State.OPEN, 8, EARLIER, EARLIER, after(22.5), 4)),
        (take_probe(OPEN, NOW, 55), Seen.PROBE_WITHOUT_WORD, OPEN),
        (OPEN, Seen.RESET, Circuit(State.OPEN, 7, EARLIER, EARLIER, NOW, 0)),
    ],
)
def test_every_cell(circuit: Circuit, what: Seen, expected: Circuit) -> None:
    assert step(circuit, what, NOW) == expected


def test_any_number_of_failures_within_three_seconds_is_no_reason_to_stop_everybody() -> None:
    """A link that loses one request in five loses three in a row every few seconds."""
    circuit = UNTOUCHED
    for tenths in range(30):
        circuit = step(circuit, Seen.UNREACHABLE, after(tenths / 10))
    assert (circuit.state, circuit.failures) == (State.CLOSED, 30)
    assert step(circuit, Seen.UNREACHABLE, after(3)).state is State.OPEN


def test_one_failure_long_ago_is_not_enough_either() -> None:
    circuit = step(UNTOUCHED, Seen.UNREACHABLE, EARLIER)
    assert step(circuit, Seen.UNREACHABLE, NOW).state is State.CLOSED


def test_an_attempt_has_waited_since_it_began() -> None:
    circuit = UNTOUCHED
    for _ in range(3):
        assert circuit.state is State.CLOSED
        circuit = step(circuit, Seen.UNREACHABLE, NOW, began=after(-5))
    assert (circuit.state, circuit.silent_since, circuit.opened_at) == (State.OPEN, after(-5), NOW)


def test_a_server_is_left_alone_for_longer_each_time_and_never_longer_than_agreed() -> None:
    assert [wait(timedelta(seconds=away)).total_seconds() for away in (0, 12, 20, 90, 240)] == [3, 3, 5, 22.5, 60]
    assert wait(timedelta(days=10_000)) == timedelta(seconds=POLICY.longest)


@given(st.floats(0, 86400))
def test_whoever_comes_back_is_found_after_a_quarter_of_the_outage_at_most(away: float) -> None:
    circuit = COUNTING
    back, circuit = after(away), step(circuit, Seen.UNREACHABLE, NOW)
    while circuit.retry_at is not None and circuit.retry_at < back:
        circuit = step(circuit, Seen.PROBE_FAILED, circuit.retry_at)
    assert circuit.retry_at is not None
    assert (circuit.retry_at - back).total_seconds() <= max(3, away / 4) + 1e-3


def test_after_a_reset_the_waits_begin_anew() -> None:
    again = step(step(OPEN, Seen.RESET, NOW), Seen.PROBE_FAILED, NOW)
    assert (again.retry_at, again.opened_at) == (after(3), EARLIER)


def test_while_it_is_open_one_attempt_is_let_through_at_its_time() -> None:
    opened = step(COUNTING, Seen.UNREACHABLE, NOW)
    assert [verdict(opened, after(seconds)) for seconds in (0, 2.9, 3, 60)] == [
        Verdict.FAIL,
        Verdict.FAIL,
        Verdict.PROBE,
        Verdict.PROBE,
    ]
    probing = take_probe(opened, after(3), lease=57)
    assert [verdict(probing, after(seconds)) for seconds in (5, 59, 60)] == [
        Verdict.FAIL,
        Verdict.FAIL,
        Verdict.PROBE,  # nothing was heard of the probe: its worker died
    ]


def test_an_answer_is_an_answer() -> None:
    """503 with Retry-After is about one message; streams use it to say "not in this order"."""
    assert {seen(ok=False, status=status, cause="http_5xx") for status in (301, 401, 404, 429, 500, 502, 503, 504)} == {
        Seen.REACHED
    }
    assert seen(ok=True, status=204, cause="") is Seen.REACHED
    assert seen(ok=True, status=None, cause="") is Seen.REACHED  # mail and files have no status
    assert seen(ok=False, status=None, cause="login_refused") is Seen.REACHED


@pytest.mark.parametrize("cause", sorted(UNREACHABLE))
def test_no_connection_and_no_answer_count(cause: str) -> None:
    assert seen(ok=False, status=None, cause=cause) is Seen.UNREACHABLE


@pytest.mark.parametrize("cause", ["", *sorted(SILENT)])
def test_what_never_got_there_says_nothing(cause: str) -> None:
    assert seen(ok=False, status=None, cause=cause) is None


def test_people_are_told_what_each_cause_means() -> None:
    assert set(causes.CAUSES) | {"not_begun", "window_over"} >= UNREACHABLE | SILENT
    assert not UNREACHABLE & SILENT


EVENTS = st.lists(st.tuples(st.sampled_from(Seen), st.floats(0, 120)), max_size=60)
POLICIES = st.builds(
    Policy,
    failures=st.integers(1, 6),
    silence=st.floats(0, 30),
    first_wait=st.floats(0.5, 20),
    longest=st.floats(20, 100),
)


@given(EVENTS, POLICIES)
def test_whatever_happens(happened: list[tuple[Seen, float]], policy: Policy) -> None:
    circuit, now, failures = UNTOUCHED, NOW, 0
    since: datetime | None = None
    for what, seconds in happened:
        now += timedelta(seconds=seconds)
        before, circuit = circuit, step(circuit, what, now, policy)
        failed = what in (Seen.UNREACHABLE, Seen.PROBE_FAILED)
        failures = failures + 1 if failed else 0 if what in (Seen.REACHED, Seen.RESET) else failures
        if not failures:
            since = None
        elif failed:
            since = since or now
        # Open means: enough failures in a row, since when, and until when, which is never far away.
        if circuit.state is State.OPEN:
            assert circuit.failures >= policy.failures
            assert circuit.opened_at is not None and circuit.opened_at <= now
            assert circuit.silent_since is not None
            assert circuit.opened_at - circuit.silent_since >= timedelta(seconds=policy.silence)
            assert circuit.retry_at is not None
            assert circuit.retry_at - now <= timedelta(seconds=max(policy.longest, policy.first_wait))
            assert verdict(circuit, max(now, circuit.retry_at)) is Verdict.PROBE
        else:
            assert (
                failures < policy.failures or (since and now - since < timedelta(seconds=policy.silence)) or not failed
            )
            assert circuit == Circuit(failures=failures, silent_since=since)
            assert verdict(circuit, now) is Verdict.SEND
        # Only failures open it, only an answer closes it, and a straggler moves nothing.
        if (before.state, circuit.state) == (State.CLOSED, State.OPEN):
            assert failed
        if (before.state, circuit.state) == (State.OPEN, State.CLOSED):
            assert what is Seen.REACHED
        if before.state is State.OPEN and what is Seen.UNREACHABLE:
            assert circuit is before
