"""Final acknowledgements: M33 to M36, and the short memory for messages outside of a stream (M41)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from messaging.protocol.messages import STREAM, Happened, State, move_stream
from messaging.protocol.streams.acceptance import Arrival, Incoming, decide
from messaging.protocol.streams.final import (
    ACK_RECEIVE,
    CLASSES,
    HISTORY_LIFE,
    OWING,
    UNCONFIRMED,
    Consequence,
    Reason,
    advances,
    class_of,
    confirmation_due,
    consequence,
    owed,
    seen_before,
)
from messaging.protocol.streams.outgoing import Kind

from .driver import START, A, Sender

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_m33_refused_before_sequencing_leaves_the_counters_and_is_bridged_by_the_sender() -> None:
    sender, receiver = Sender(), Incoming(A, 1)
    sender.send(3)
    assert not advances(Reason.NOT_TRANSACTIONAL)  # so 2 is never judged
    stuck = decide(receiver, Arrival(A, 3, 2), START)
    assert not stuck.accepted
    answer = owed(Reason.NOT_TRANSACTIONAL, positive=False, negative=False)
    assert answer is not None and answer.code == 0x8009
    outcome = consequence(answer.code, State.AWAITING_ACK)
    assert outcome == Consequence(State.FAILED, "final_not_transactional_q", bridge=True)
    sender.acknowledged(1)
    sender(Kind.DROPPED, numbers=(2,), bridge=outcome.bridge)
    sender.claim()
    assert sender.sent[-1] == (0, 3, 0)
    assert decide(stuck.state, Arrival(A, 3, 0), START).accepted


def test_m34_refused_after_sequencing_counts_as_received_and_never_comes_again() -> None:
    assert advances(Reason.QUOTA)
    accepted = decide(Incoming(A, 1), Arrival(A, 2, 1), START)
    assert accepted.accepted
    assert not decide(accepted.state, Arrival(A, 2, 1), START).accepted
    answer = owed(Reason.QUOTA, positive=False, negative=False)
    assert answer is not None and answer.code == 0x8003
    for state in (State.AWAITING_ACK, State.DELIVERED, State.CONFIRMING):
        assert consequence(0x8003, state) == Consequence(State.FAILED, "final_q_exceed_quota")


def test_m33_what_is_in_flight_no_more_leaves_nothing_to_bridge() -> None:
    for state in (State.CONFIRMING, State.IN_DOUBT):
        assert consequence(0x8009, state) == Consequence(State.FAILED, "final_not_transactional_q")


@pytest.mark.parametrize("state", [State.SENDING, State.AWAITING_ACK, State.RETRYING, State.CONFIRMING, State.IN_DOUBT])
def test_m35_taken_by_the_application_is_the_end(state: State) -> None:
    assert consequence(ACK_RECEIVE, state) == Consequence(State.DELIVERED)


@pytest.mark.parametrize("state", STREAM)
@pytest.mark.parametrize("code", [*CLASSES, 0x80FE])
def test_what_a_final_acknowledgement_changes_is_a_move_of_the_table(code: int, state: State) -> None:
    outcome = consequence(code, state)
    if outcome is not None:
        happened = Happened.ACKNOWLEDGED if outcome.state is State.DELIVERED else Happened.GAVE_UP
        assert move_stream(state, happened) is outcome.state


@pytest.mark.parametrize("state", [State.DELIVERED, State.SKIPPED, State.CANCELLED, State.QUEUED, State.FAILED])
def test_m35_what_has_ended_stays_as_it_is(state: State) -> None:
    assert consequence(ACK_RECEIVE, state) is None
    assert consequence(0x8000, state) is None


def test_m36_without_an_answer_in_time_a_message_is_unconfirmed() -> None:
    assert confirmation_due(NOW, timedelta(hours=1)) == NOW + timedelta(hours=1)
    assert UNCONFIRMED == "unconfirmed"
    # The answer may still come, and settles it.
    assert consequence(0xC002, State.IN_DOUBT) == Consequence(State.FAILED, "final_receive_timeout")


def test_positive_and_negative_are_told_to_those_who_asked() -> None:
    for reason in Reason:
        told = {
            (positive, negative): owed(reason, positive=positive, negative=negative)
            for positive in (True, False)
            for negative in (True, False)
        }
        always = not advances(reason) or reason is Reason.QUOTA
        assert (told[False, False] is not None) is always, reason
        assert told[True, True] is not None
        if reason is Reason.PROCESSED:
            assert told[True, False] is not None and told[False, True] is None
        elif not always:
            assert told[False, True] is not None and told[True, False] is None


def test_the_tables_agree_with_each_other() -> None:
    for row in OWING.values():
        answer = CLASSES[row.code]
        assert answer.sequenced is row.advances
        assert row.source
    assert [code for code, row in CLASSES.items() if row.positive] == [ACK_RECEIVE]
    assert len({row.name for row in CLASSES.values()}) == len(CLASSES)


def test_unknown_classes_count_by_their_sign() -> None:
    other = class_of(0x80FE)
    assert other is not None and not other.positive
    assert consequence(0x80FE, State.AWAITING_ACK) == Consequence(State.FAILED, "final_other", bridge=True)
    assert class_of(0x00FF) is None
    assert consequence(0x0002, State.AWAITING_ACK) is None
    with pytest.raises(ValueError):
        consequence(ACK_RECEIVE, "nowhere")


def test_m41_a_repeat_within_the_half_hour_is_discarded_and_refreshes_the_entry() -> None:
    assert not seen_before(None, NOW)
    first = NOW
    again = NOW + timedelta(minutes=29)
    assert seen_before(first, again)
    assert seen_before(again, again + HISTORY_LIFE)  # refreshed: counted from the repeat
    assert not seen_before(first, first + HISTORY_LIFE + timedelta(microseconds=1))
