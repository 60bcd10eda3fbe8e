"""The life of a message: five tables, all complete."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from functools import partial

import pytest

from messaging.protocol.errors import IllegalTransition
from messaging.protocol.messages import (
    EBMS2,
    EBMS2_FINAL,
    RELIABLE,
    RELIABLE_FINAL,
    REPEATABLE,
    REPEATABLE_FINAL,
    STREAM,
    STREAM_FINAL,
    UNRELIABLE,
    UNRELIABLE_FINAL,
    Happened,
    State,
    move,
    move_ebms2,
    move_repeatable,
    move_stream,
)
from messaging.protocol.pair_state import Act, Event, Flow, Kind, PairState, SenderPolicy
from messaging.protocol.repeating import STEPS
from messaging.protocol.repeating import Act as RequestAct
from messaging.protocol.sender import step
from tests.protocol.tables import reachable

TABLES = pytest.mark.parametrize(
    ("table", "final", "moved"),
    [
        (RELIABLE, RELIABLE_FINAL, partial(move, reliable=True)),
        (UNRELIABLE, UNRELIABLE_FINAL, partial(move, reliable=False)),
        (REPEATABLE, REPEATABLE_FINAL, move_repeatable),
        (STREAM, STREAM_FINAL, move_stream),
        (EBMS2, EBMS2_FINAL, move_ebms2),
    ],
    ids=["reliable", "unreliable", "repeatable", "stream", "ebms2"],
)


@TABLES
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("happened", Happened)
def test_each_cell_moves_or_is_refused(table, final, moved, state: State, happened: Happened) -> None:
    """Of states that the table does not have, too: a finished best-effort message is asked about like any other."""
    target = table.get(state, {}).get(happened)
    if target is None:
        with pytest.raises(IllegalTransition) as caught:
            moved(state, happened)
        assert (caught.value.state, caught.value.event) == (state, happened)
    else:
        assert moved(state, happened) is target


@TABLES
def test_each_state_is_reached_and_each_open_one_can_end(table, final, moved) -> None:
    ways = {state: set(row.values()) for state, row in table.items()}
    assert reachable(State.QUEUED, ways) == set(table)
    assert {state for state, row in table.items() if not row} == final
    assert all(reachable(state, ways) & final for state in table)


def test_the_tables_together_have_every_state_and_every_happening() -> None:
    assert set(RELIABLE) | set(UNRELIABLE) | set(REPEATABLE) | set(STREAM) == set(State)
    rows = [row for table in (RELIABLE, UNRELIABLE, REPEATABLE, STREAM) for row in table.values()]
    assert {happened for row in rows for happened in row} == set(Happened)


# Where the message in flight may stand while its pair is in a flow. After transport recovery a pair waits as if its
# message had been sent (2.5.4), and the message says retrying.
STANDS: dict[Flow, set[State]] = {
    Flow.SENDING: {State.SENDING},
    Flow.AWAITING_ACK: {State.AWAITING_ACK, State.RETRYING},
    Flow.RESEND_WAIT: {State.RETRYING},
    Flow.HOLDING: {State.RETRYING},
    Flow.SUSPENDED: {State.FAILED},
}
FOLLOWS: dict[Act, set[Happened]] = {
    Act.TRANSMIT: {Happened.TRANSMITTED},
    Act.COMPLETE: {Happened.ACKNOWLEDGED},
    Act.DROP: {Happened.SKIPPED, Happened.CANCELLED},
    Act.REQUEUE: {Happened.REQUEUED},
    Act.GIVE_UP: {Happened.GAVE_UP},
}
LEADS_TO: dict[Flow, Happened] = {
    Flow.AWAITING_ACK: Happened.HANDED_OVER,
    Flow.RESEND_WAIT: Happened.WILL_RETRY,
    Flow.HOLDING: Happened.WILL_RETRY,
}


@pytest.mark.parametrize("flow", STANDS)
@pytest.mark.parametrize("kind", Kind)
def test_whatever_becomes_of_a_pair_its_message_can_follow(flow: Flow, kind: Kind) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    policy = SenderPolicy(timeout=30, retries=1, retry_interval=10, transport_retries=1)
    for retries, attempts in itertools.product((0, 1), repeat=2):
        pair = PairState(flow, in_flight="m", retries=retries, transport_attempts=attempts, last_sequence=1, due_at=now)
        try:
            result = step(pair, Event(kind), now, policy)
        except IllegalTransition:
            continue
        happened = {h for act in result.acts for h in FOLLOWS.get(act, ())}
        if not happened and result.state.flow is not flow:
            happened = {LEADS_TO[result.state.flow]} if flow is not Flow.SUSPENDED else {Happened.RESUMED}
            if kind is Kind.DUE or kind is Kind.TRANSPORT_FAILED:
                happened = {Happened.WILL_RETRY}
        for state, event in itertools.product(STANDS[flow], happened):
            target = move(state, event, reliable=True)
            assert target in STANDS.get(result.state.flow, set()) or result.state.in_flight == ""


def test_only_a_person_ends_a_reliable_message_without_delivery() -> None:
    ends = {
        (happened, target) for row in RELIABLE.values() for happened, target in row.items() if target in RELIABLE_FINAL
    }
    assert ends == {
        (Happened.ACKNOWLEDGED, State.DELIVERED),
        (Happened.SKIPPED, State.SKIPPED),
        (Happened.CANCELLED, State.CANCELLED),
    }


def test_an_unreliable_message_goes_out_once() -> None:
    sent = [state for state, row in UNRELIABLE.items() if Happened.TRANSMITTED in row]
    assert sent == [State.QUEUED]
    assert State.QUEUED not in {target for row in UNRELIABLE.values() for target in row.values()}


def test_a_request_can_follow_whatever_its_machine_decides_while_it_is_on_the_wire() -> None:
    follows = {
        RequestAct.COMPLETE: Happened.ACKNOWLEDGED,
        RequestAct.RETRY: Happened.WILL_RETRY,
        RequestAct.HOLD: Happened.WILL_RETRY,
        RequestAct.IN_DOUBT: Happened.DOUBTED,
        RequestAct.FAIL: Happened.GAVE_UP,
    }
    for act in {row.act for row in STEPS.values()} | {RequestAct.IN_DOUBT, RequestAct.FAIL}:
        assert follows[act] in REPEATABLE[State.SENDING]
    # Its window may end while it is between two repeats; and what is in doubt is never sent again by itself.
    assert {Happened.DOUBTED, Happened.GAVE_UP} <= set(REPEATABLE[State.RETRYING])
    assert Happened.TRANSMITTED not in REPEATABLE[State.IN_DOUBT]


def test_only_what_is_between_two_sends_of_a_stream_can_expire_or_be_dropped() -> None:
    """On the wire its outcome is waited for; after the order acknowledgement only the final receipt is open."""
    for happened in (Happened.SKIPPED, Happened.REQUEUED):
        rows = {state for state, row in STREAM.items() if happened in row}
        assert rows - {State.IN_DOUBT} == {State.AWAITING_ACK, State.RETRYING}
    doubted = {state for state, row in STREAM.items() if Happened.DOUBTED in row}
    assert doubted == {State.QUEUED, State.AWAITING_ACK, State.RETRYING, State.CONFIRMING}
    assert not {Happened.TRANSMITTED, Happened.REQUEUED} & set(STREAM[State.IN_DOUBT])


def test_a_state_that_is_none_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="received"):
        move("received", Happened.CANCELLED, reliable=True)
