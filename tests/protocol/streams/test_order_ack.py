"""When order acknowledgements are sent: M19 to M24, with instants in milliseconds."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from messaging.protocol.streams.acceptance import Incoming
from messaging.protocol.streams.envelope import tx_sequence_id
from messaging.protocol.streams.final import OrderAck, Timer, Timing, on_due, on_message

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
TIMING = Timing()
A = tx_sequence_id(1_000_000, 1)


def at(milliseconds: float) -> datetime:
    return START + timedelta(milliseconds=milliseconds)


def due_after(timer: Timer) -> float | None:
    return None if timer.due_at is None else (timer.due_at - START) / timedelta(milliseconds=1)


def acknowledgements(messages: list[float], until: float, step: float = 10) -> list[float]:
    """When acknowledgements go out for messages at these moments, looked at every `step` milliseconds."""
    timer, sent, number = Timer(), [], 0
    arrivals = sorted(messages)
    for tick in range(int(until / step) + 1):
        now = tick * step
        while arrivals and arrivals[0] <= now:
            arrivals.pop(0)
            number += 1
            timer = on_message(timer, at(now), TIMING)
        due = on_due(timer, at(now), Incoming(A, number))
        timer = due.timer
        if due.order_ack is not None:
            sent.append(now)
    return sent


def test_m19_one_message_is_acknowledged_after_half_a_second() -> None:
    assert acknowledgements([0], 5_000) == [500]


def test_m20_a_steady_stream_is_acknowledged_at_intervals_of_at_most_ten_and_a_half_seconds() -> None:
    sent = acknowledgements([200.0 * n for n in range(151)], 42_000)
    assert 3 <= len(sent) <= 5
    assert max(later - earlier for earlier, later in itertools.pairwise(sent)) <= 10_500
    assert sent[-1] >= 30_000  # what came last too


def test_m21_a_message_restarts_the_timer_while_the_last_acknowledgement_is_young() -> None:
    timer = Timer(due_at=at(3_100), last_sent_at=START)
    assert due_after(on_message(timer, at(3_000), TIMING)) == 3_500


def test_m22_a_message_leaves_the_timer_alone_when_the_last_acknowledgement_is_old() -> None:
    timer = Timer(due_at=at(11_100), last_sent_at=START)
    assert due_after(on_message(timer, at(11_000), TIMING)) == 11_100
    assert due_after(on_message(Timer(due_at=at(11_100)), at(11_000), TIMING)) == 11_100  # there was none


def test_m22_a_timer_that_has_run_out_is_not_put_off() -> None:
    timer = Timer(due_at=at(3_000), last_sent_at=START)
    assert on_message(timer, at(3_001), TIMING) == timer
    assert on_message(timer, at(3_001), TIMING, requested=True) == timer


def test_m23_nothing_is_sent_without_a_way_and_the_next_message_starts_again() -> None:
    timer = on_message(Timer(), START, TIMING)
    closed = on_due(timer, at(500), Incoming(A, 1), open=False)
    assert closed.order_ack is None
    assert closed.timer == Timer()
    timer = on_message(closed.timer, at(90_000), TIMING)
    assert on_due(timer, at(90_500), Incoming(A, 1)).order_ack == OrderAck(A, 1)


def test_m24_it_says_what_is_accepted() -> None:
    timer = on_message(Timer(), START, TIMING)
    due = on_due(timer, at(600), Incoming(A, 8, reject_count=2))
    assert due.order_ack == OrderAck(A, 8)
    assert due.order_ack.previous == 7
    assert due.timer == Timer(None, at(600))


def test_m24_while_nothing_is_accepted_there_is_nothing_to_say() -> None:
    timer = on_message(Timer(), START, TIMING)
    due = on_due(timer, at(500), Incoming())
    assert due.order_ack is None
    assert due.timer == Timer()


def test_a_receipt_that_is_asked_for_is_due_at_once() -> None:
    timer = on_message(Timer(last_sent_at=START), at(100), TIMING, requested=True)
    assert due_after(timer) == 100
    timer = on_message(on_message(Timer(), START, TIMING), at(100), TIMING, requested=True)
    assert due_after(timer) == 100


def test_before_its_time_nothing_happens() -> None:
    timer = on_message(Timer(), START, TIMING)
    due = on_due(timer, at(499), Incoming(A, 1))
    assert due.timer == timer
    assert due.order_ack is None


@settings(max_examples=100)
@given(st.lists(st.integers(0, 30_000), min_size=1, max_size=60))
def test_no_message_waits_for_its_acknowledgement_for_longer_than_the_delay(moments: list[int]) -> None:
    sent = acknowledgements([float(moment) for moment in moments], 45_000, step=50)
    for moment in moments:
        assert any(moment <= answered <= moment + 10_600 for answered in sent)
