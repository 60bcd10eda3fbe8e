"""The sender of one ebXML 2.0 message: retries, and the end of its time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messaging.protocol.codecs.ebms2_lexical import MAX_ORDER
from messaging.protocol.ebms.sending import (
    NO_ANSWER,
    OF_THE_AGREEMENT,
    STEPS,
    Policy,
    Reply,
    State,
    begin,
    classify,
    expire,
    place,
    refused,
    step,
    wait_over,
)
from messaging.protocol.envelope import MessageOrder
from messaging.protocol.errors import ErrorCode
from messaging.protocol.repeating import ENDS, Act, Reached

NOW = datetime(2026, 7, 1, 9, tzinfo=UTC)
POLICY = Policy(retries=3, retry_interval=300, persist=timedelta(days=1), lease=55)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("status", "cause", "reply"),
    [
        (None, "connect_refused", Reply.NOT_SENT),
        (None, "window_over", Reply.NOT_SENT),
        (None, "read_timeout", Reply.LOST),
        (200, "", Reply.TAKEN),
        (204, "", Reply.TAKEN),
        (302, "http_3xx", Reply.TURNED_AWAY),
        (400, "http_4xx", Reply.TURNED_AWAY),
        (401, "http_401_403", Reply.ACCESS_REFUSED),
        (403, "http_401_403", Reply.ACCESS_REFUSED),
        (404, "http_404", Reply.TURNED_AWAY),
        (408, "http_4xx", Reply.BUSY),
        (429, "http_429", Reply.BUSY),
        (500, "http_5xx", Reply.LOST),
        (503, "http_5xx", Reply.BUSY),
    ],
)
def test_what_a_status_means(status: int | None, cause: str, reply: Reply) -> None:
    assert classify(status, cause) is reply


def test_the_first_attempt_fixes_the_end_of_its_time() -> None:
    begun = begin(State(), NOW, POLICY)
    assert (begun.act, begun.due_at) == (Act.SEND, NOW + timedelta(seconds=55))
    assert begun.state == State(1, NOW + timedelta(days=1))
    soon = NOW + timedelta(minutes=5)
    assert begin(State(), NOW, POLICY, time_to_live=soon).state.expires == soon


@pytest.mark.parametrize("reply", Reply)
def test_each_reply_waits_for_the_retry_interval_or_stops_the_pair(reply: Reply) -> None:
    following = step(State(1, NOW + timedelta(days=1)), reply, NOW, POLICY)
    assert following.act is STEPS[reply].act
    assert following.due_at == (None if following.act is Act.HOLD else NOW + timedelta(seconds=300))


def test_a_longer_wait_that_the_partner_asks_for_counts_and_a_shorter_one_does_not() -> None:
    known = State(1, NOW + timedelta(days=1))
    assert step(known, Reply.BUSY, NOW, POLICY, 900).due_at == NOW + timedelta(seconds=900)
    assert step(known, Reply.BUSY, NOW, POLICY, 5).due_at == NOW + timedelta(seconds=300)


def test_no_wait_is_longer_than_its_time() -> None:
    ends = NOW + timedelta(seconds=10)
    due_at = step(State(1, ends), Reply.TAKEN, NOW, POLICY).due_at
    assert due_at is not None and ends < due_at < ends + SECOND, "a second later means that its pair was shut"


def test_it_goes_out_once_and_as_often_again_as_agreed_and_then_stops_the_pair() -> None:
    known = begin(State(), NOW, POLICY).state
    acts = []
    for _ in range(4):
        following = wait_over(known, NOW, POLICY)
        acts.append(following.act)
        known = following.state
    assert acts == [Act.SEND, Act.SEND, Act.SEND, Act.HOLD]
    assert following.cause == NO_ANSWER


@pytest.mark.parametrize("reached", Reached)
def test_after_its_time_it_never_goes_out_and_its_end_says_how_far_it_got(reached: Reached) -> None:
    known = State(1, NOW, reached)
    late = NOW + SECOND
    for following in (begin(known, late, POLICY), wait_over(known, late, POLICY), expire(known)):
        assert (following.act, following.cause) == ENDS[reached]


def test_what_was_never_begun_has_no_reply() -> None:
    with pytest.raises(ValueError, match="never begun"):
        step(State(), Reply.TAKEN, NOW, POLICY)


@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_about_the_agreement_stops_the_pair_and_any_other_only_its_message(code: ErrorCode) -> None:
    assert refused(code) is (Act.HOLD if code in OF_THE_AGREEMENT else Act.FAIL)
    assert refused("SomethingOfTheirOwn") is Act.FAIL


@given(st.lists(st.sampled_from(list(Reply)), max_size=12), st.integers(0, 5), st.integers(1, 3600))
def test_whatever_comes_no_attempt_is_later_than_its_time_or_more_than_agreed(
    replies: list[Reply], retries: int, interval: int
) -> None:
    policy = Policy(retries=retries, retry_interval=interval, persist=timedelta(hours=2), lease=55)
    now, known = NOW, begin(State(), NOW, policy).state
    sent = 1
    for reply in replies:
        following = step(known, reply, now, policy)
        known = following.state
        if following.due_at is None:
            break
        now = following.due_at
        again = wait_over(known, now, policy)
        if again.act is not Act.SEND:
            break
        sent += 1
        known = again.state
        assert known.expires is not None
        assert now <= known.expires
    assert sent <= 1 + retries


@pytest.mark.parametrize(
    ("last", "under_way", "expected"),
    [
        (None, False, MessageOrder(0, reset=True)),
        (None, True, None),
        (0, True, None),
        (0, False, MessageOrder(1)),
        (1, True, MessageOrder(2)),
        (MAX_ORDER - 1, True, MessageOrder(MAX_ORDER)),
        (MAX_ORDER, True, None),
        (MAX_ORDER, False, MessageOrder(0, reset=True)),
    ],
)
def test_nothing_overtakes_the_beginning_of_a_conversation(
    last: int | None, under_way: bool, expected: MessageOrder | None
) -> None:
    assert place(last, lambda: under_way) == expected
