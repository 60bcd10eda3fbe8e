"""Which messages of a stream are new: M01 to M18 of the conformance list, and what holds for any trace (X15)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from messaging.protocol.streams.acceptance import RULES, Arrival, Incoming, Verdict, decide, may_follow
from messaging.protocol.streams.envelope import LAST_ID, LAST_NUMBER, first_id, next_id, split_id, tx_sequence_id
from tests.fixtures.acceptance_model import In, mq

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)
A, B, C = (tx_sequence_id(1_000_000, ordinal) for ordinal in (1, 2, 3))

bounded = settings(max_examples=250)


@pytest.mark.parametrize(
    ("before", "arrivals", "verdicts", "after", "rejects"),
    [
        pytest.param((0, 0), [(A, 1, 0)], ["accept"], (A, 1), 0, id="M01"),
        pytest.param((A, 1), [(A, 2, 1)], ["accept"], (A, 2), 0, id="M02"),
        pytest.param((A, 2), [(A, 2, 1)] * 2, ["duplicate"] * 2, (A, 2), 2, id="M03"),
        pytest.param((A, 2), [(A, 1, 0)], ["duplicate"], (A, 2), 1, id="M04"),
        pytest.param((A, 2), [(A, 4, 3)], ["gap"], (A, 2), 1, id="M05"),
        pytest.param((A, 4), [(A, 3, 2)], ["duplicate"], (A, 4), 1, id="M07"),
        pytest.param((A, 4), [(A, 7, 1)], ["accept"], (A, 7), 0, id="M08"),
        pytest.param((A, 4), [(B, 1, 0)], ["accept"], (B, 1), 0, id="M09"),
        pytest.param((A, 4), [(B, 2, 1)], ["gap"], (A, 4), 1, id="M10"),
        pytest.param((B, 1), [(A, 5, 4)], ["old"], (B, 1), 1, id="M11"),
        pytest.param((B, 1), [(C, 4, 0)], ["accept"], (C, 4), 0, id="M12"),
        pytest.param((A, 5), [(A, 3, 2), (A, 4, 3)], ["duplicate"] * 2, (A, 5), 2, id="M13"),
        pytest.param((0, 0), [(A, 3, 0)], ["accept"], (A, 3), 0, id="M15"),
        pytest.param((0, 0), [(A, 3, 2)], ["gap"], (0, 0), 1, id="M16"),
    ],
)
def test_acceptance(before, arrivals, verdicts, after, rejects) -> None:
    state = Incoming(*before)
    seen = []
    for arrival in arrivals:
        decision = decide(state, Arrival(*arrival), NOW)
        seen.append(decision.verdict)
        state = decision.state
    assert seen == verdicts
    assert (state.tx_sequence_id, state.number) == after
    assert state.reject_count == rejects


def test_m06_an_acceptance_that_bridges_a_gap_forgets_the_rejects() -> None:
    state = Incoming(A, 2)
    for _ in range(3):
        state = decide(state, Arrival(A, 4, 3), EARLIER).state
    assert state.reject_count == 3
    decision = decide(state, Arrival(A, 4, 2), NOW)
    assert decision.accepted
    assert decision.state == Incoming(A, 4, 0, NOW)


def test_m14_a_later_time_stamp_wins_over_any_ordinal() -> None:
    later, earlier = tx_sequence_id(5, 1), tx_sequence_id(4, 9)
    assert later > earlier
    assert split_id(later) == (5, 1)
    assert decide(Incoming(earlier, 7), Arrival(later, 1, 0), NOW).accepted
    assert decide(Incoming(later, 1), Arrival(earlier, 8, 7), NOW).verdict is Verdict.OLD


@pytest.mark.parametrize(
    ("sid", "number", "previous"),
    [
        (A, 0, 0),
        (A, 0, -1),
        (A, 5, 5),
        (A, 5, 6),
        (A, 5, -1),
        (A, LAST_NUMBER + 1, 4),
        (B, 0, 0),
        (0, 1, 0),
        (-1, 1, 0),
        (LAST_ID + 1, 1, 0),
    ],
)
def test_m17_numbers_that_cannot_be_are_malformed_and_move_nothing(sid, number, previous) -> None:
    decision = decide(Incoming(A, 4), Arrival(sid, number, previous), NOW)
    assert decision.verdict is Verdict.MALFORMED
    assert (decision.state.tx_sequence_id, decision.state.number) == (A, 4)


@pytest.mark.parametrize("arrival", [(A, 2, 1), (A, 9, 8), (B, 9, 8), (A - 1, 1, 0), (A, 0, 0)])
def test_m18_whatever_is_rejected_is_counted_and_leaves_its_time(arrival) -> None:
    decision = decide(Incoming(A, 4, 6, EARLIER), Arrival(*arrival), NOW)
    assert not decision.accepted
    assert decision.state == Incoming(A, 4, 7, NOW)


def test_only_what_may_still_become_acceptable_is_worth_waiting_for() -> None:
    state = Incoming(B, 4)
    early = [(B, 6, 5), (C, 2, 1)]
    others = [(B, 5, 4), (B, 4, 3), (A, 9, 8), (C, 1, 0), (B, 0, 0)]
    assert all(may_follow(state, Arrival(*arrival)) for arrival in early)
    assert not any(may_follow(state, Arrival(*arrival)) for arrival in others)


def test_every_rule_names_its_source_and_only_the_specs_two_accept() -> None:
    assert [rule.name for rule in RULES if rule.verdict is Verdict.ACCEPT] == ["same-stream", "new-stream"]
    assert all(rule.source for rule in RULES)


def test_ids_grow_whatever_the_clock_does() -> None:
    start = first_id(NOW)
    assert split_id(start) == (int(NOW.timestamp()), 1)
    assert next_id(start) == start + 1
    assert first_id(NOW - timedelta(hours=1), start) > start
    assert first_id(NOW + timedelta(hours=1), start) > next_id(start)
    assert next_id(tx_sequence_id(7, 0xFFFF_FFFF)) == tx_sequence_id(8, 0)
    for wrong in (lambda: next_id(LAST_ID), lambda: first_id(datetime(2026, 1, 1)), lambda: split_id(-1)):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(ValueError):
        tx_sequence_id(2**32, 1)


_ARRIVALS = st.lists(
    st.tuples(st.sampled_from([A, B, C]), st.integers(1, 6) | st.sampled_from(["next"]), st.integers(0, 5)),
    max_size=60,
)


@bounded
@given(_ARRIVALS)
@example([(A, 5, 0), (A, 3, 2), (A, 4, 3)])
def test_x15_streams_are_judged_as_the_model_does(arrivals) -> None:
    state, model = Incoming(), In()
    for sid, wish, back in arrivals:
        number = state.number + 1 if wish == "next" else wish
        previous = max(0, number - 1 - back)  # a previous that is no smaller than its number is M17's
        decision = decide(state, Arrival(sid, number, previous), NOW)
        event(decision.rule)
        assert decision.accepted is mq(model, sid, number, previous), decision.rule
        state = decision.state
        assert (state.tx_sequence_id, state.number, state.reject_count) == (model.sid, model.sn, model.rej)


@bounded
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 8), st.integers(0, 8)), max_size=80))
def test_no_number_is_ever_accepted_twice_and_none_after_a_later_one(arrivals) -> None:
    state, accepted = Incoming(), []
    for arrival in arrivals:
        decision = decide(state, Arrival(*arrival), NOW)
        if decision.accepted:
            accepted.append(arrival[:2])
        state = decision.state
    assert accepted == sorted(set(accepted))
