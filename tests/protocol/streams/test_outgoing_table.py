"""The sender's table as a whole: complete, true of what `step` does, and safe under any order of events."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from messaging.protocol.errors import IllegalTransition
from messaging.protocol.streams.outgoing import (
    TABLE,
    VERBS,
    Do,
    Event,
    Flow,
    Kind,
    Outgoing,
    Place,
    Policy,
    Step,
    next_due,
    refusal,
    room,
    step,
)

from .driver import START, A

bounded = settings(max_examples=250)
policies = st.builds(
    Policy,
    window=st.integers(1, 6),
    concurrency=st.integers(1, 4),
    resend_schedule=st.just((30.0, 60.0)),
    retries=st.integers(0, 3),
    transport_retries=st.integers(0, 2),
    transport_retry_interval=st.just(5.0),
    transient_ceiling=st.just(100.0),
)
numbers = st.integers(1, 12)
happenings = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([0, 1, 5, 31, 130])),
    st.tuples(st.just("claim"), st.integers(0, 4)),
    st.tuples(st.just("queue"), st.integers(1, 4)),
    st.tuples(
        st.sampled_from([Kind.SENT, Kind.NOT_TAKEN, Kind.TRANSPORT_FAILED, Kind.LEASE_OVER, Kind.ACKNOWLEDGED]), numbers
    ),
    st.tuples(st.sampled_from([Kind.EXPIRED, Kind.DROPPED, Kind.SKIP]), numbers),
    st.tuples(
        st.sampled_from([Kind.FORGOTTEN, Kind.SUSPEND, Kind.RESUME, Kind.RETRY_NOW, Kind.RESTART, Kind.DISCARDED]),
        st.just(1),
    ),
    st.tuples(st.just("gate"), st.integers(0, 1)),
)


def sound(state: Outgoing, policy: Policy, now: datetime) -> None:
    """What is true of every sender at every moment."""
    given_numbers = [row.number for row in state.flight]
    assert given_numbers == sorted(set(given_numbers))
    assert len(given_numbers) <= policy.window
    assert all(state.acked < number < state.next_number for number in given_numbers)
    assert sum(row.place is Place.ON_WIRE for row in state.flight) <= policy.concurrency
    assert all(row.previous < row.number for row in state.flight)
    assert all(row.due_at is not None for row in state.flight if row.place is not Place.WAITING)
    assert state.queued >= 0
    if state.flow is Flow.RUNNING and state.open and state.flight:
        # Something will happen by itself: a lease ends, or the pair is due.
        on_wire = any(row.place is Place.ON_WIRE for row in state.flight)
        assert on_wire or next_due(state, now, policy) is not None


@bounded
@given(policies, st.lists(happenings, max_size=60))
def test_no_order_of_events_breaks_a_promise(policy: Policy, events) -> None:
    state, now, used = Outgoing(A), START, {A}
    waiting = gone = 0

    def apply(event: Event) -> Step:
        nonlocal state, waiting, gone
        before = state
        done = step(state, event, now, policy)
        state = done.state
        assert state.flow in TABLE[before.flow][event.kind].targets
        sound(state, policy, now)
        ends = [act for act in done.acts if act.do in (Do.COMPLETE, Do.EXPIRE, Do.DROP)]
        gone += len(ends)
        if event.kind is Kind.ACKNOWLEDGED:
            completed = [act.number for act in done.acts if act.do is Do.COMPLETE]
            assert completed == [row.number for row in before.flight if row not in state.flight]
            assert all(number <= event.number for number in completed)
        for act in done.acts:
            if act.do is Do.NEW_STREAM:
                assert state.tx_sequence_id > max(used)
                used.add(state.tx_sequence_id)
        sending = [act for act in done.acts if act.do is Do.TRANSMIT]
        for act in sending:
            assert before.flow is Flow.RUNNING and state.open
            earlier = [row.number for row in state.flight if row.number < act.number]
            # What it claims to follow is the number before it, or what is still there before it.
            assert act.previous in {act.number - 1, earlier[-1] if earlier else 0}
            if not act.first:
                assert act.previous == (earlier[-1] if earlier else 0)
        assert [act.number for act in sending] == sorted(act.number for act in sending)
        return done

    for name, value in events:
        if name == "pass":
            now += timedelta(seconds=value)
        elif name == "queue":
            for _ in range(value):
                waiting += 1
                apply(Event(kind=Kind.QUEUED))
        elif name == "claim":
            done = apply(Event(kind=Kind.DUE, limit=value))
            assert len([act for act in done.acts if act.do is Do.TRANSMIT]) <= value
            count = room(state, policy, value)
            apply(Event(kind=Kind.START, count=count))
            assert room(state, policy, value) == 0 or count == value
        elif name == "gate":
            state = replace(state, open=bool(value))
        else:
            if name is Kind.DISCARDED:
                if not state.queued:
                    continue
                gone += 1
            event = Event(
                kind=name,
                number=value,
                numbers=(value,),
                tx_sequence_id=state.tx_sequence_id,
                count=1,
                bridge=value > 3,
            )
            with contextlib.suppress(IllegalTransition):
                apply(event)
        # No message is lost, and none is counted twice.
        assert waiting == state.queued + len(state.flight) + gone


def test_every_state_says_what_every_event_does() -> None:
    for flow, row in TABLE.items():
        for kind in Kind:
            state = Outgoing(A, flow=flow)
            assert kind in row or refusal(state, kind, Policy()) is not None
        assert all(move.targets for move in row.values())


def test_refused_verbs_are_those_that_raise() -> None:
    for flow in Flow:
        for kind in VERBS:
            state = Outgoing(A, flow=flow)
            try:
                step(state, Event(kind=kind), START, Policy())
            except IllegalTransition as error:
                assert str(error) == refusal(state, kind, Policy())
            else:
                assert refusal(state, kind, Policy()) is None
