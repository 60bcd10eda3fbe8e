"""The sender's tables as a whole: complete, without dead ends, and true of what `step` really does."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from messaging.protocol.envelope import MAX_SEQUENCE_NUMBER
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.pair_state import (
    GATES,
    Act,
    Event,
    Flow,
    Gate,
    GateVerb,
    Kind,
    PairState,
    SenderPolicy,
    Step,
    move_gate,
)
from messaging.protocol.sender import FINAL, REFUSALS, TABLE, allowed, next_sequence, step
from tests.protocol.tables import reachable

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WAITING = frozenset({Flow.SENDING, Flow.AWAITING_ACK, Flow.RESEND_WAIT, Flow.HOLDING})
RESTARTING = frozenset({Kind.SKIP, Kind.RESTART, Kind.FORGOTTEN})  # the next number is 1
PEOPLE = frozenset({Kind.RESUME, Kind.RETRY_NOW, Kind.SKIP, Kind.RESTART, Kind.SUSPEND})

bounded = settings(max_examples=500)
seconds = st.integers(0, 100_000)
policies = st.builds(
    SenderPolicy,
    timeout=st.integers(0, 3600),
    retries=st.integers(0, 4),
    retry_interval=st.integers(0, 3600),
    transport_retries=st.integers(0, 3),
    transport_retry_interval=st.integers(0, 60),
    transient_ceiling=st.integers(0, 90_000),
    lease=st.integers(1, 300),
)
events = st.builds(
    Event,
    kind=st.sampled_from(Kind),
    cause=st.sampled_from(["", "connect_refused", "ebms_error_unknown"]),
    min_retry_secs=st.none() | st.integers(0, 999_999_999),
    at_once=st.booleans(),
)


@st.composite
def moments(draw: st.DrawFn) -> tuple[PairState, SenderPolicy]:
    """A state that a pair with this policy can be in."""
    policy = draw(policies)
    flow = draw(st.sampled_from(Flow))
    has_message = flow in WAITING or (flow is Flow.SUSPENDED and draw(st.booleans()))
    queued = draw(st.integers(0, 3))
    due = flow in WAITING or (flow is Flow.IDLE and queued > 0)
    state = PairState(
        flow=flow,
        gate=draw(st.sampled_from(Gate)),
        in_flight="m" if has_message else "",
        retries=draw(st.integers(0, policy.retries)) if has_message else 0,
        transport_attempts=draw(st.integers(0, policy.transport_retries)) if has_message else 0,
        queued=queued,
        last_sequence=draw(st.integers(1 if has_message else 0, 5) | st.just(MAX_SEQUENCE_NUMBER)),
        due_at=NOW - timedelta(seconds=draw(seconds)) if due else None,
        holding_since=NOW - timedelta(seconds=draw(seconds)) if flow is Flow.HOLDING else None,
        cause="ack_timeout" if flow is Flow.SUSPENDED else draw(st.sampled_from(["", "connect_refused"])),
    )
    return state, policy


def is_sound(state: PairState, policy: SenderPolicy) -> None:
    """What is true of every pair at every moment."""
    if state.flow in WAITING:
        assert state.in_flight and state.due_at is not None
    if state.flow is Flow.IDLE:
        assert not state.in_flight and state.retries == state.transport_attempts == 0
        assert (state.due_at is not None) or not state.queued
    if state.flow is Flow.SUSPENDED:
        assert state.due_at is None
        assert state.cause
    assert 0 <= state.retries <= policy.retries
    assert 0 <= state.transport_attempts <= policy.transport_retries
    assert 0 <= state.last_sequence <= MAX_SEQUENCE_NUMBER
    assert state.queued >= 0


def stepped(state: PairState, event: Event, policy: SenderPolicy, now: datetime = NOW, key: str = "next") -> Step:
    """`step`, and what its caller does: the key of a message that is prepared goes into the state."""
    result = step(state, event, now, policy)
    if Act.PREPARE_NEXT in result.acts:
        return replace(result, state=replace(result.state, in_flight=key))
    return result


# --- the tables ---


def test_each_cell_is_decided_once() -> None:
    decided = {(flow, kind) for flow, row in TABLE.items() for kind in row}
    assert decided | set(REFUSALS) == {(flow, kind) for flow in Flow for kind in Kind}
    assert decided & set(REFUSALS) == set()
    assert all(allowed(flow) == frozenset(row) for flow, row in TABLE.items())


def test_only_verbs_of_people_are_refused() -> None:
    """Whatever the wire or a timer brings has its place in every state; nothing that comes in can raise."""
    assert {kind for _, kind in REFUSALS} <= PEOPLE
    assert all(text.endswith(".") for text in REFUSALS.values())


def test_each_state_is_reached_and_each_one_leads_back_to_idle() -> None:
    ways = {flow: {target for move in row.values() for target in move.targets} for flow, row in TABLE.items()}
    assert reachable(Flow.IDLE, ways) == set(Flow)
    assert all(reachable(flow, ways) & FINAL for flow in Flow)


def test_without_people_only_a_suspended_pair_stands_still() -> None:
    ways = {
        flow: {target for kind, move in row.items() if kind not in PEOPLE for target in move.targets}
        for flow, row in TABLE.items()
    }
    stuck = {flow for flow in Flow if not reachable(flow, ways) & FINAL}
    assert stuck == {Flow.SUSPENDED}


@pytest.mark.parametrize("flow", Flow)
def test_every_move_has_targets_that_exist(flow: Flow) -> None:
    for kind, move in TABLE[flow].items():
        assert move.targets, kind
        assert move.targets <= set(Flow)


@bounded
@given(moments(), events)
def test_a_move_leads_where_its_cell_says_to_a_sound_state(
    moment: tuple[PairState, SenderPolicy], event: Event
) -> None:
    state, policy = moment
    is_sound(state, policy)
    try:
        result = stepped(state, event, policy)
    except IllegalTransition as error:
        assert (error.state, error.event) == (state.flow, event.kind)
        assert event.kind in PEOPLE
        assert str(error).endswith(".")
        return
    cell = TABLE[state.flow][event.kind]
    if event.kind is Kind.DUE and state.gate is not Gate.OPEN:
        assert result == Step(state)
    else:
        assert result.state.flow in cell.targets
    is_sound(result.state, policy)
    assert result.state.gate is state.gate
    assert stepped(state, event, policy) == result, "a step is a pure function"


def test_every_target_is_really_reached() -> None:
    """A cell that names a target to which no state leads would be a lie in the diagram."""
    policy = SenderPolicy(timeout=30, retries=1, retry_interval=10, transport_retries=1)
    policies = (policy, replace(policy, probe=True))
    counters = list(itertools.product((0, 1), repeat=3))
    for flow, row in TABLE.items():
        states = [
            PairState(flow, in_flight=key, retries=retries, transport_attempts=attempts, queued=queued, due_at=NOW)
            for key in {"" if flow not in WAITING else "m", "" if flow is Flow.IDLE else "m"}
            for retries, attempts, queued in counters
        ]
        for kind, move in row.items():
            reached = set()
            for state, chosen in itertools.product(states, policies):
                with contextlib.suppress(IllegalTransition):
                    reached.add(stepped(state, Event(kind), chosen).state.flow)
            assert reached == move.targets, (flow, kind)


@bounded
@given(moments(), events)
def test_what_is_done_to_the_message_in_flight_fits_what_becomes_of_it(
    moment: tuple[PairState, SenderPolicy], event: Event
) -> None:
    state, policy = moment
    try:
        result = stepped(state, event, policy)
    except IllegalTransition:
        return
    acts, after = set(result.acts), result.state
    assert len(acts & {Act.PREPARE_NEXT, Act.TRANSMIT, Act.COMPLETE, Act.DROP, Act.REQUEUE}) <= 1
    if acts & {Act.COMPLETE, Act.DROP, Act.REQUEUE}:
        assert state.in_flight and not after.in_flight
    else:
        assert after.in_flight == (state.in_flight or ("next" if Act.PREPARE_NEXT in acts else ""))
    if acts & {Act.PREPARE_NEXT, Act.TRANSMIT}:
        assert after.flow is Flow.SENDING
        assert state.gate is Gate.OPEN
    assert (Act.PREPARE_NEXT in acts) is (state.flow is Flow.IDLE and after.flow is Flow.SENDING)
    assert (Act.GIVE_UP in acts) is (after.flow is Flow.SUSPENDED and state.flow is not Flow.SUSPENDED)
    expected = next_sequence(state.last_sequence) if Act.PREPARE_NEXT in acts else state.last_sequence
    assert after.last_sequence == (0 if event.kind in RESTARTING else expected)


@bounded
@given(moments(), st.sampled_from(sorted(PEOPLE)))
def test_a_refused_verb_changes_nothing(moment: tuple[PairState, SenderPolicy], kind: Kind) -> None:
    state, policy = moment
    before = replace(state)
    try:
        step(state, Event(kind), NOW, policy)
    except IllegalTransition:
        assert state == before
    else:
        assume(False)


# --- a pair's whole life ---


class PairLife(RuleBasedStateMachine):
    """A pair under any sequence of events, beside a plain list of its messages."""

    @initialize(policy=policies, last=st.sampled_from([0, 0, 7, MAX_SEQUENCE_NUMBER - 1, MAX_SEQUENCE_NUMBER]))
    def start(self, policy: SenderPolicy, last: int) -> None:
        self.policy = policy
        self.state = PairState(last_sequence=last)
        self.now = NOW
        self.queue: list[str] = []
        self.submitted = 0
        self.finished: list[str] = []
        self.numbers: list[int] = []
        self.expected = next_sequence(last)
        self.transmissions = 0  # of the message in flight, since it was prepared or resumed
        self.unbounded = False  # the partner asked for more (4.2)

    def _event(self, kind: Kind, **fields: object) -> None:
        head = self.queue[0] if self.queue else ""
        before = self.state
        try:
            result = stepped(before, Event(kind, **fields), self.policy, self.now, head)
        except IllegalTransition:
            assert kind in PEOPLE
            assert self.state == before
            return
        self.state = result.state
        for act in result.acts:
            match act:
                case Act.PREPARE_NEXT:
                    assert before.in_flight == "", "one message at a time is with the receiver"
                    assert self.state.last_sequence == self.expected
                    self.expected = next_sequence(self.expected)
                    self.queue.pop(0)
                    self.transmissions, self.unbounded = 1, False
                case Act.TRANSMIT:
                    self.transmissions += 1
                case Act.COMPLETE | Act.DROP:
                    self.finished.append(before.in_flight)
                case Act.REQUEUE:
                    self.queue.insert(0, before.in_flight)
        if kind in RESTARTING:
            self.expected = 1
        if kind in (Kind.RESUME, Kind.FORGOTTEN):
            self.transmissions, self.unbounded = 0, False
        if self.state.flow is Flow.HOLDING:
            self.unbounded = True

    @rule()
    def submit(self) -> None:
        self.submitted += 1
        self.queue.append(f"m{self.submitted}")
        self._event(Kind.QUEUED)

    @rule()
    def memory_is_lost(self) -> None:
        self._event(Kind.FORGOTTEN)

    @rule()
    def time_passes(self) -> None:
        self.now = max(self.now, self.state.due_at or self.now)
        self._event(Kind.DUE)

    @rule(ok=st.booleans(), at_once=st.booleans())
    def outcome(self, ok: bool, at_once: bool) -> None:
        self._event(Kind.SENT if ok else Kind.TRANSPORT_FAILED, cause="" if ok else "connect_refused", at_once=at_once)

    @rule()
    def acknowledged(self) -> None:
        self._event(Kind.ACKNOWLEDGED)

    @rule(min_retry_secs=st.none() | st.integers(0, 86_400))
    def transient_error(self, min_retry_secs: int | None) -> None:
        self._event(Kind.TRANSIENT_ERROR, min_retry_secs=min_retry_secs)

    @rule()
    def error(self) -> None:
        self._event(Kind.ERROR, cause="ebms_error_unknown")

    @rule(kind=st.sampled_from(sorted(PEOPLE)))
    def person(self, kind: Kind) -> None:
        self._event(kind)

    @rule(verb=st.sampled_from(GateVerb))
    def gate(self, verb: GateVerb) -> None:
        if verb in GATES[self.state.gate]:
            self.state = replace(self.state, gate=move_gate(self.state.gate, verb))

    @precondition(lambda self: self.state.flow in WAITING)
    @rule()
    def next_answer_comes_before_the_timer(self) -> None:
        self._event(Kind.ACKNOWLEDGED)
        assert self.state.flow is Flow.IDLE

    @invariant()
    def sound(self) -> None:
        if not hasattr(self, "state"):
            return
        is_sound(self.state, self.policy)
        assert self.state.queued == len(self.queue)
        in_flight = [self.state.in_flight] if self.state.in_flight else []
        everything = [f"m{number}" for number in range(1, self.submitted + 1)]
        assert self.finished + in_flight + self.queue == everything, "in order, and none lost"
        budget = (1 + self.policy.retries) * (1 + self.policy.transport_retries)
        assert self.transmissions <= budget or self.unbounded


PairLife.TestCase.settings = settings(max_examples=150, stateful_step_count=60)
test_the_life_of_a_pair = PairLife.TestCase


# --- the gate ---


@pytest.mark.parametrize("gate", Gate)
@pytest.mark.parametrize("verb", GateVerb)
def test_each_move_of_the_gate_is_made_or_refused(gate: Gate, verb: GateVerb) -> None:
    if verb in GATES[gate]:
        assert move_gate(gate, verb) is GATES[gate][verb]
        return
    with pytest.raises(IllegalTransition, match=f"A pair that is {gate} cannot be {verb}d\\."):
        move_gate(gate, verb)


def test_every_gate_is_reached_and_can_be_opened_again() -> None:
    ways = {gate: set(row.values()) for gate, row in GATES.items()}
    assert set(GATES) == set(Gate)
    assert all(reachable(gate, ways) == set(Gate) for gate in Gate)
    assert {verb for row in GATES.values() for verb in row} == set(GateVerb)
