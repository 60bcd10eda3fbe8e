"""The sender of a stream: M25 to M32, M37 and M39, and what surrounds them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from messaging.protocol.errors import IllegalTransition
from messaging.protocol.streams.acceptance import Arrival, Incoming, decide
from messaging.protocol.streams.envelope import LAST_NUMBER, split_id
from messaging.protocol.streams.outgoing import (
    RESEND_SCHEDULE,
    Act,
    Do,
    Flow,
    InFlight,
    Kind,
    Outgoing,
    Place,
    expired,
    new_stream,
    refusal,
    room,
)

from .driver import POLICY, START, A, Sender


def test_m25_an_order_acknowledgement_is_cumulative() -> None:
    sender = Sender()
    sender.send(5)
    sender.acknowledged(3)
    assert sender.done == [("complete", 1), ("complete", 2), ("complete", 3)]
    assert sender.flight == [4, 5]
    assert sender.state.acked == 3


def test_m25_it_may_overtake_the_record_of_our_own_attempt() -> None:
    sender = Sender()
    sender.queue(2)
    sender.claim()
    sender.acknowledged(2)
    assert sender.done == [("complete", 1), ("complete", 2)]
    sender.handed_over(1, 2)  # the outcomes come too late to mean anything
    assert not sender.state.flight


def test_m26_a_stale_acknowledgement_of_another_stream_removes_nothing() -> None:
    sender = Sender(state=Outgoing(A + 1))
    sender.send(2)
    for sid in (A, A + 2):
        for number in (2, 8):  # 2 is one of its own numbers, too
            sender.acknowledged(number, sid)
    assert not sender.done
    assert sender.flight == [1, 2]


@pytest.mark.parametrize("number", [3, 4, LAST_NUMBER])
def test_m26_nor_does_one_of_a_number_that_was_never_given(number: int) -> None:
    sender = Sender()
    sender.send(2)
    sender.acknowledged(number)
    assert sender.flight == [1, 2]
    assert sender.state.acked == 0


def test_m27_when_all_is_acknowledged_a_new_stream_begins_with_number_one() -> None:
    sender = Sender()
    sender.send(3)
    sender.acknowledged(3)
    assert Act(Do.NEW_STREAM) in sender.acts
    assert split_id(sender.state.tx_sequence_id) == (1_000_000, 2)
    sender.send()
    assert sender.sent[-1] == (0, 1, 0)


def test_m27_not_while_messages_wait_behind_them() -> None:
    sender = Sender()
    sender.send(3)
    sender.queue(1)
    sender.acknowledged(3)
    assert sender.state.tx_sequence_id == A
    sender.claim()
    assert sender.sent[-1] == (0, 4, 3)


def test_m28_what_expired_after_its_send_is_bridged_and_never_sent_again() -> None:
    sender, receiver = Sender(), Incoming(A, 1)
    sender.send(1)
    sender.acknowledged(1)
    sender.state = replace(sender.state, tx_sequence_id=A, next_number=2, acked=1)  # in the same stream
    sender.send(2, 20, None)
    assert sender.sent[-2:] == [(0, 2, 1), (0, 3, 2)]
    first = decide(receiver, Arrival(A, 3, 2), START)  # 2 was lost on its way
    assert not first.accepted
    sender.pass_to_due()
    assert sender.done[-1] == ("expire", 2)
    assert sender.sent[-1] == (30, 3, 0)
    assert decide(first.state, Arrival(A, 3, 0), START).state.number == 3
    assert [number for _, number, _ in sender.sent].count(2) == 1


def test_m28_what_is_on_the_wire_keeps_its_place_until_that_ends() -> None:
    sender = Sender()
    sender.queue(2)
    sender.claim(5, None)
    sender.seconds = 6
    sender(Kind.EXPIRED, numbers=(1,))
    sender(Kind.DUE)
    assert sender.flight == [1, 2]
    sender.handed_over()
    sender(Kind.EXPIRED, numbers=(1,))
    assert sender.done == [("expire", 1)]
    assert sender.flight == [2]


def test_m29_what_expires_before_its_first_send_uses_no_number() -> None:
    sender = Sender()
    sender.send()
    sender.queue(2)
    sender(Kind.DISCARDED, count=1)
    sender.claim()
    assert sender.sent[-1] == (0, 2, 1)
    assert sender.state.queued == 0


def test_m29_a_life_ends_at_its_instant() -> None:
    assert not expired(None, START)
    assert not expired(START + timedelta(microseconds=1), START)
    assert expired(START, START)


def test_m31_without_an_acknowledgement_resends_follow_the_schedule() -> None:
    sender = Sender()
    sender.send(2)
    sender.sent.clear()
    for _ in range(11):
        sender.pass_to_due()
    seconds = [second for second, number, _ in sender.sent if number == 1]
    waits = [later - earlier for earlier, later in zip([0, *seconds], seconds, strict=False)]
    assert waits == [30, 30, 30, 300, 300, 300, 1800, 1800, 1800, 21_600, 21_600]
    assert list(RESEND_SCHEDULE) == waits[:10]
    # All that is unacknowledged, in order, the first one bridged to nothing.
    assert sender.sent[:2] == [(30, 1, 0), (30, 2, 1)]
    assert all(act.request_receipt for act in sender.acts if act.do is Do.TRANSMIT)


def test_m32_progress_puts_the_schedule_back_to_its_beginning() -> None:
    sender = Sender()
    sender.send(3)
    for _ in range(5):
        sender.pass_to_due()
    assert sender.state.resend_index == 5
    sender.seconds += 7
    sender.acknowledged(1)
    assert sender.due == sender.seconds + 30
    sender.pass_to_due()
    assert sender.sent[-2:] == [(sender.seconds, 2, 0), (sender.seconds, 3, 2)]
    sender.acknowledged(1)  # once more: that is no progress
    assert sender.state.resend_index == 1


def test_m37_the_window_holds_back_what_is_too_much() -> None:
    sender = Sender(policy=replace(POLICY, window=64, concurrency=100))
    sender.send(65)
    assert len(sender.flight) == 64
    assert sender.state.queued == 1
    assert room(sender.state, sender.policy) == 0
    sender.acknowledged(1)
    sender.claim()
    assert sender.flight[-1] == 65


def test_m37_no_more_are_on_the_wire_than_may_be() -> None:
    sender = Sender(policy=replace(POLICY, concurrency=3))
    sender.queue(8)
    sender.claim()
    assert [number for _, number, _ in sender.sent] == [1, 2, 3]
    sender.handed_over(2)
    assert Act(Do.WAKE) in sender.acts
    sender.claim()
    assert [number for _, number, _ in sender.sent] == [1, 2, 3, 4]


def test_m37_a_claim_takes_no_more_than_its_limit() -> None:
    sender = Sender()
    sender.send(5)
    sender.seconds = 30
    acts = sender(Kind.DUE, limit=2)
    assert [act.number for act in acts if act.do is Do.TRANSMIT] == [1, 2]
    assert room(sender.state, sender.policy, 2) == 0
    acts = sender(Kind.DUE, limit=2)
    assert [(act.number, act.previous) for act in acts if act.do is Do.TRANSMIT] == [(3, 2), (4, 3)]
    with pytest.raises(ValueError, match="cannot be put in flight"):
        sender(Kind.START, count=1)


def test_m39_a_new_stream_is_above_all_before_it_though_the_clock_was_set_back() -> None:
    used = new_stream(START).tx_sequence_id
    later = new_stream(START - timedelta(hours=1), used)
    assert later.tx_sequence_id > used
    sender = Sender(state=Outgoing(used))
    sender.send()
    sender(Kind.SUSPEND, cause="by_hand")
    sender.seconds = -3600
    sender(Kind.RESTART)
    assert sender.state.tx_sequence_id > used


def test_receipts_are_asked_for_at_the_start_at_half_windows_and_at_the_end_of_the_queue() -> None:
    sender = Sender(policy=replace(POLICY, window=8, concurrency=8))
    sender.queue(7)
    sender.claim()
    asking = [act.number for act in sender.acts if act.request_receipt]
    assert asking == [1, 4, 7]


def test_the_end_of_the_numbers_begins_a_new_stream_when_all_before_it_is_settled() -> None:
    sender = Sender(state=Outgoing(A, next_number=LAST_NUMBER, acked=LAST_NUMBER - 1))
    sender.queue(3)
    sender.claim()
    assert sender.sent == [(0, LAST_NUMBER, LAST_NUMBER - 1)]
    sender.handed_over()
    assert room(sender.state, sender.policy) == 0
    sender.acknowledged(LAST_NUMBER)
    assert sender.state.tx_sequence_id == A
    sender.claim()
    assert sender.acts[0] == Act(Do.NEW_STREAM)
    assert sender.state.tx_sequence_id == A + 1
    assert sender.sent[1:] == [(0, 1, 0), (0, 2, 1)]


# The wire goes wrong


def test_transport_recovery_comes_first_and_then_the_resend_timer() -> None:
    sender = Sender()
    sender.queue(1)
    sender.claim()
    tries = []
    for _ in range(4):
        sender(Kind.TRANSPORT_FAILED, number=1, cause="connect_refused")
        assert sender.state.cause == "connect_refused"
        sender.seconds = sender.due
        sender.claim()
        tries.append(sender.seconds)
    assert tries == [4, 8, 30, 34]  # two recoveries, the stream's timer, and recovery again
    assert sender.state.resend_index == 1


def test_failures_at_one_time_are_one_trouble() -> None:
    sender = Sender()
    sender.queue(8)
    sender.claim()
    for number in range(8, 0, -1):
        sender(Kind.TRANSPORT_FAILED, number=number, cause="connect_refused")
    assert sender.state.transport_attempts == 1
    assert sender.due == 4
    sender.pass_to_due()
    assert [number for second, number, _ in sender.sent if second == 4] == list(range(1, 9))


def test_a_pause_is_no_transport_recovery() -> None:
    sender = Sender()
    sender.queue(2)
    sender.claim()
    sender(Kind.NOT_TAKEN, number=2, retry_after=50)
    sender(Kind.TRANSPORT_FAILED, number=1, cause="connect_refused")
    assert sender.state.transport_attempts == 1
    assert sender.row(1).due_at == START + timedelta(seconds=4)


def test_nothing_new_overtakes_what_has_to_be_sent_again() -> None:
    sender = Sender()
    sender.queue(2)
    sender.claim()
    sender(Kind.TRANSPORT_FAILED, number=1, cause="connect_refused")
    sender.handed_over(2)
    sender.queue(1)
    assert sender.due == 4
    sender.claim()
    assert [number for _, number, _ in sender.sent] == [1, 2]


def test_a_worker_that_died_costs_no_waiting() -> None:
    sender = Sender()
    sender.queue(1)
    sender.claim()
    sender.seconds = 10
    sender(Kind.LEASE_OVER, number=1)
    assert Act(Do.WAKE) in sender.acts
    sender.claim()
    assert sender.sent == [(0, 1, 0), (10, 1, 0)]
    assert sender.row(1).attempts == 2


def test_what_was_not_taken_for_its_predecessors_sake_waits_as_long_as_it_is_told() -> None:
    sender = Sender()
    sender.queue(2)
    sender.claim()
    sender(Kind.NOT_TAKEN, number=2, retry_after=1)
    assert sender.due == 1
    assert sender.state.holding_since is None
    sender.handed_over(1)
    sender.pass_to_due()
    assert sender.sent[-1] == (1, 2, 1)


def test_a_receiver_that_lost_its_state_is_led_past_what_is_gone() -> None:
    sender, receiver = Sender(), Incoming()
    sender.send(3)
    sender.queue(1)
    sender.acknowledged(3)
    sender.claim()
    assert not decide(receiver, Arrival(A, *sender.sent[-1][1:]), START).accepted
    sender(Kind.NOT_TAKEN, number=4, retry_after=1)
    sender.pass_to_due()
    assert sender.sent[-1] == (1, 4, 0)
    assert decide(receiver, Arrival(A, 4, 0), START).accepted


def test_a_pause_for_the_first_in_flight_uses_no_retries() -> None:
    sender = Sender(policy=replace(POLICY, retries=0, transient_ceiling=100))
    sender.queue(1)
    sender.claim()
    for second in range(0, 90, 10):
        sender.seconds = second
        assert sender(Kind.NOT_TAKEN, number=1, retry_after=10, cause="not_taken_now") == ()
        sender.seconds += 10
        sender.claim()
    assert sender.state.flow is Flow.RUNNING
    assert sender.state.resend_index == 0
    assert sender(Kind.NOT_TAKEN, number=1, retry_after=11) == (Act(Do.ALERT),)
    sender.pass_to_due()
    assert sender.state.holding_since is None


def test_a_receiver_cannot_be_made_to_be_asked_without_a_break() -> None:
    sender = Sender()
    sender.queue(1)
    sender.claim()
    sender(Kind.NOT_TAKEN, number=1, retry_after=0)
    assert sender.due == 1


def test_a_slow_hand_over_does_not_use_up_the_wait() -> None:
    sender = Sender()
    sender.queue(1)
    sender.claim()
    sender.seconds = 40
    assert sender.due is None  # nobody could have acknowledged it
    sender.handed_over()
    assert sender.due == 70


def test_late_outcomes_change_nothing() -> None:
    sender = Sender()
    sender.send(1)
    before = sender.state
    for kind in (Kind.SENT, Kind.NOT_TAKEN, Kind.TRANSPORT_FAILED, Kind.LEASE_OVER):
        for number in (1, 7):
            assert sender(kind, number=number) == ()
            assert sender.state == before


# People, and other ends


def test_resends_without_progress_suspend_the_pair() -> None:
    sender = Sender(policy=replace(POLICY, retries=2))
    sender.send(2)
    for _ in range(2):
        sender.pass_to_due()
    assert sender.state.flow is Flow.RUNNING
    sender.pass_to_due()
    assert sender.state.flow is Flow.SUSPENDED
    assert sender.state.cause == "stream_unacknowledged"
    assert sender.due is None
    assert len(sender.sent) == 6
    sender.acknowledged(1)  # late, but it counts
    assert sender.done == [("complete", 1)]
    assert sender.state.flow is Flow.SUSPENDED
    sender(Kind.RESUME)
    sender.claim()
    assert sender.sent[-1] == (90, 2, 0)
    assert sender.state.resend_index == 0
    sender.handed_over()
    assert sender.due == 120


def test_retry_now_uses_the_next_retry_early() -> None:
    sender = Sender(policy=replace(POLICY, retries=1))
    sender.send()
    sender.seconds = 5
    sender(Kind.RETRY_NOW)
    sender.claim()
    assert sender.sent[-1] == (5, 1, 0)
    assert sender.state.resend_index == 1
    with pytest.raises(IllegalTransition, match="on the wire"):
        sender(Kind.RETRY_NOW)
    sender.handed_over()
    with pytest.raises(IllegalTransition, match="All retries are used"):
        sender(Kind.RETRY_NOW)


def test_a_skipped_message_is_bridged_at_once() -> None:
    sender = Sender()
    sender.send(3)
    sender(Kind.SUSPEND, cause="by_hand")
    sender.seconds = 3
    sender(Kind.SKIP, numbers=(2,))
    assert sender.done == [("drop", 2)]
    sender.claim()
    assert sender.sent[-2:] == [(3, 1, 0), (3, 3, 1)]
    assert sender.state.flow is Flow.RUNNING


def test_the_head_is_skipped_when_nothing_is_named() -> None:
    sender = Sender()
    sender.send(1)
    sender.queue(1)
    sender(Kind.SKIP)
    assert sender.done == [("drop", 1)]
    sender.claim()
    assert sender.sent[-1] == (0, 2, 0)


def test_a_refused_message_leaves_and_what_followed_is_bridged_at_once() -> None:
    sender = Sender()
    sender.send(4)
    sender.seconds = 2
    sender(Kind.DROPPED, numbers=(2,), bridge=True)
    sender.claim()
    assert sender.sent[4:] == [(2, 3, 1), (2, 4, 3)]
    assert sender.row(1).place is Place.WAITING


def test_a_message_refused_after_sequencing_leaves_the_others_alone() -> None:
    sender = Sender()
    sender.send(3)
    sender(Kind.DROPPED, numbers=(2,))
    assert sender.done == [("drop", 2)]
    assert [row.place for row in sender.state.flight] == [Place.WAITING] * 2
    assert Act(Do.WAKE) not in sender.acts


def test_a_restart_takes_everything_back_and_numbers_it_anew() -> None:
    sender = Sender()
    sender.send(3)
    sender.acknowledged(1)
    with pytest.raises(IllegalTransition, match="wait for its answer"):
        sender(Kind.RESTART)
    sender(Kind.SUSPEND, cause="by_hand")
    sender(Kind.RESTART)
    assert sender.done[1:] == [("requeue", 2), ("requeue", 3)]
    assert sender.state.queued == 2
    assert sender.state.tx_sequence_id > A
    sender.claim()
    assert sender.sent[-2:] == [(0, 1, 0), (0, 2, 1)]


@pytest.mark.parametrize("flow", list(Flow))
def test_m39_after_what_was_sent_is_forgotten_a_new_stream_is_above_all_before_it(flow: Flow) -> None:
    sender = Sender()
    sender.send(2)
    sender.queue(1)
    sender.claim()
    sender.state = replace(sender.state, flow=flow, cause="by_hand" if flow is Flow.SUSPENDED else "")
    used = sender.state.tx_sequence_id
    sender.seconds = 3600
    acts = sender(Kind.FORGOTTEN)
    assert [(act.do, act.number) for act in acts[:4]] == [
        (Do.NEW_STREAM, 0),
        (Do.REQUEUE, 1),
        (Do.REQUEUE, 2),
        (Do.REQUEUE, 3),
    ]
    assert split_id(sender.state.tx_sequence_id) > split_id(used)
    assert split_id(sender.state.tx_sequence_id)[0] == int(sender.now.timestamp())
    assert (sender.state.flow, sender.state.queued, sender.flight) == (flow, 3, [])


def test_a_closed_gate_holds_everything_but_answers() -> None:
    sender = Sender()
    sender.send(2)
    sender.state = replace(sender.state, open=False)
    sender.queue(1)
    sender.seconds = 40
    assert sender.due is None
    sender(Kind.DUE)
    assert len(sender.sent) == 2
    sender.acknowledged(2)
    assert sender.done == [("complete", 1), ("complete", 2)]
    sender.state = replace(sender.state, open=True)
    assert sender.due == 40


@pytest.mark.parametrize(
    ("kind", "state", "word"),
    [
        (Kind.RESUME, Outgoing(A), "not suspended"),
        (Kind.RETRY_NOW, Outgoing(A), "No message"),
        (Kind.SKIP, Outgoing(A), "No message"),
        (Kind.RETRY_NOW, Outgoing(A, flow=Flow.SUSPENDED), "resume it"),
        (Kind.SKIP, Outgoing(A, flight=(InFlight(1, 0, Place.ON_WIRE),)), "on the wire"),
        (Kind.SUSPEND, Outgoing(A, flow=Flow.SUSPENDED), "already"),
    ],
)
def test_what_people_cannot_do_has_words(kind: Kind, state: Outgoing, word: str) -> None:
    assert word in (refusal(state, kind, POLICY) or "")


def test_what_is_not_in_flight_cannot_be_skipped() -> None:
    sender = Sender()
    sender.send(2)
    with pytest.raises(IllegalTransition, match="not in flight"):
        sender(Kind.SKIP, numbers=(5,))
