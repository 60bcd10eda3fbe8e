"""The phases of a transaction: every state that it can reach with one partaker of each sort, and every event there."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messaging.protocol.atomic.coordinator import ActKind, Event, Kind, Partaker, Step, Transaction, step
from messaging.protocol.atomic.phases import REFUSALS, ROOT_ONLY, SUBORDINATE_ONLY, TABLE, TURNS
from messaging.protocol.atomic.words import ENDED, FaultCode, Note, Phase, Protocol, Seat, Vote
from messaging.protocol.errors import IllegalTransition
from tests.protocol.tables import reachable

from .driver import C, D, V, said

bounded = settings(max_examples=100)
ABOUT_PARTAKERS = frozenset({Kind.RECEIVED, Kind.FAULT_RECEIVED, Kind.RESEND, Kind.FORGOTTEN})
WIRE = frozenset(
    {
        Kind.ENLIST,
        Kind.RECEIVED,
        Kind.FAULT_RECEIVED,
        Kind.EXPIRED,
        Kind.RESEND,
        Kind.SUPERIOR_PREPARE,
        Kind.SUPERIOR_COMMIT,
        Kind.SUPERIOR_ROLLBACK,
        Kind.SUPERIOR_FAULT,
    }
)
FAULTS = (FaultCode.INVALID_STATE, FaultCode.UNKNOWN_TRANSACTION, FaultCode.INCONSISTENT)
VOTING = (Phase.PREPARING_VOLATILE, Phase.PREPARING_DURABLE, Phase.DECIDING)
PROTOCOLS = {"d": D, "v": V, "own": D, "i": C}


def _events(subordinate: bool) -> list[Event]:
    """Everything that can be said to a transaction of these partakers."""
    keys = ("d", "v") if subordinate else tuple(PROTOCOLS)
    events = [Event(Kind.ENLIST, key, protocol=PROTOCOLS[key], local=key == "own") for key in keys]
    events += [Event(Kind.RECEIVED, key, note=note) for key in keys for note in Note]
    events += [Event(Kind.FAULT_RECEIVED, key, fault=fault) for key in keys for fault in FAULTS]
    events += [Event(kind, key) for key in keys for kind in (Kind.RESEND, Kind.FORGOTTEN)]
    events += [Event(Kind.SUPERIOR_FAULT, fault=fault) for fault in FAULTS]
    events += [Event(Kind.SETTLED, outcome=outcome) for outcome in (Phase.COMMITTED, Phase.ABORTED)]
    plain = set(Kind) - ABOUT_PARTAKERS - {Kind.ENLIST, Kind.SUPERIOR_FAULT, Kind.SETTLED}
    asked = [Event(kind, "i") for kind in (Kind.COMMIT_ASKED, Kind.ROLLBACK_ASKED) if not subordinate]
    return [*events, *asked, *(Event(kind) for kind in Kind if kind in plain)]


Edge = tuple[Transaction, Event, Step | None]


@cache
def walked(subordinate: bool) -> tuple[Edge, ...]:
    """Every state, with every event in it; None: it was refused."""
    events = _events(subordinate)
    start = Transaction(subordinate=subordinate)
    found, open_, edges = {start}, [start], []
    while open_:
        state = open_.pop()
        for event in events:
            done = _try(state, event)
            edges.append((state, event, done))
            if done is not None and done.transaction not in found:
                found.add(done.transaction)
                open_.append(done.transaction)
    return tuple(edges)


def _try(state: Transaction, event: Event) -> Step | None:
    try:
        return step(state, event)
    except (IllegalTransition, KeyError):
        return None


def _all() -> Iterator[Edge]:
    return itertools.chain(walked(subordinate=False), walked(subordinate=True))


def test_every_phase_is_reached_and_every_end_can_be() -> None:
    ways: dict[Phase, set[Phase]] = defaultdict(set)
    for state, _, done in _all():
        if done is not None:
            ways[state.phase].add(done.transaction.phase)
    assert set(ways) == set(Phase)
    for phase in Phase:
        assert reachable(phase, ways) & ENDED, phase


def test_the_table_says_where_each_event_leads_and_no_more() -> None:
    """Every target is reached, and nothing else is."""
    seen: dict[tuple[Kind, Phase], set[Phase]] = defaultdict(set)
    refused: dict[Kind, set[Phase]] = defaultdict(set)
    for state, event, done in _all():
        if event.kind in ABOUT_PARTAKERS:
            continue
        if done is None:
            refused[event.kind].add(state.phase)
        else:
            seen[event.kind, state.phase].add(done.transaction.phase)
    for kind, row in TABLE.items():
        for phase, move in row.items():
            assert seen[kind, phase] == set(move.targets), (kind, phase)
            assert move.source
    assert {key for key, targets in seen.items() if targets} == {(k, p) for k, row in TABLE.items() for p in row}
    assert set(refused) == set(REFUSALS)


def test_the_turns_are_what_answers_lead_to_and_no_more() -> None:
    seen: dict[Phase, set[Phase]] = defaultdict(set)
    for state, event, done in _all():
        asked = event.kind is Kind.RECEIVED and event.key == "i"
        if done is not None and event.kind in ABOUT_PARTAKERS and not asked:
            seen[state.phase].add(done.transaction.phase)
    for phase in Phase:
        told = {target for targets in TURNS.get(phase, {}).values() for target in targets}
        assert seen[phase] - {phase} == told, phase


def test_only_people_and_services_are_ever_refused() -> None:
    for state, event, done in _all():
        if done is None and state.partaker(event.key) is not None:
            assert event.kind not in WIRE, (state, event)
        if done is None and not event.key:
            both = SUBORDINATE_ONLY if not state.subordinate else ROOT_ONLY
            assert event.kind in both or event.kind not in WIRE, (state, event)


def test_nobody_is_told_commit_without_a_record_nor_two_outcomes() -> None:
    """Invariant I8, in every state that exists."""
    for state, _, done in _all():
        if done is None:
            continue
        after = done.transaction
        for act in done.acts:
            if act.kind is ActKind.SEND and act.note is Note.COMMIT:
                partaker = after.partaker(act.key)
                assert after.decided
                assert partaker is not None
                assert partaker.vote is Vote.PREPARED
            if act.note in (Note.ROLLBACK, Note.ABORTED) and act.key:
                voter = after.partaker(act.key)
                assert voter is not None
                assert not (after.decided and (act.kind is ActKind.OUTCOME or voter.vote is Vote.PREPARED))
            if act.kind is ActKind.OUTCOME and act.note is Note.COMMITTED:
                assert after.decided or after.phase is Phase.COMMITTED
        assert after.decided or not state.decided
        assert not (after.decided and after.phase in (Phase.ABORTING, Phase.ABORTED))


def test_the_record_is_asked_for_once_and_only_when_every_vote_is_in() -> None:
    for state, _, done in _all():
        if done is not None and any(act.kind is ActKind.DECIDE for act in done.acts):
            seats = {one.seat for one in done.transaction.partakers if one.votes}
            assert seats <= {Seat.NONE, Seat.PREPARED}
            assert (state.phase, done.transaction.phase) != (Phase.DECIDING, Phase.DECIDING)
        if done is not None and state.phase is not Phase.DECIDING and done.transaction.phase is Phase.DECIDING:
            assert done.acts[-1].kind is ActKind.DECIDE
            assert not done.transaction.subordinate


def test_no_durable_one_is_prepared_while_a_volatile_vote_is_missing() -> None:
    for _, _, done in _all():
        if done is None or done.transaction.phase not in (Phase.ACTIVE, Phase.PREPARING_VOLATILE):
            continue
        assert not any(one.protocol is D and one.seat is Seat.PREPARING for one in done.transaction.partakers)


def test_what_is_over_stays_as_it_is() -> None:
    for state, _, done in _all():
        if done is not None and state.phase in ENDED:
            assert done.transaction.phase is state.phase
            assert all(act.kind is not ActKind.END for act in done.acts)
            assert done.transaction.partakers == state.partakers


def test_an_end_is_said_exactly_when_it_is_reached_and_leaves_nobody_behind() -> None:
    for state, _, done in _all():
        if done is None:
            continue
        ends = sum(act.kind is ActKind.END for act in done.acts)
        assert ends == (done.transaction.phase in ENDED and state.phase not in ENDED)
        if ends:
            assert {one.seat for one in done.transaction.partakers} <= {Seat.NONE}
            assert done.acts[-1].kind is ActKind.END


def test_whoever_is_waited_for_was_asked() -> None:
    """A participant enters a seat in which its answer is awaited only with a message that is repeated."""
    awaited = {Seat.PREPARING: Note.PREPARE, Seat.COMMITTING: Note.COMMIT, Seat.ABORTING: Note.ROLLBACK}
    for state, _, done in _all():
        if done is None:
            continue
        for after in done.transaction.partakers:
            before = state.partaker(after.key)
            sent = {act.note for act in done.acts if act.awaits and act.key == after.key}
            if before is not None and before.seat is not after.seat and after.seat in awaited:
                assert sent == {awaited[after.seat]}
            if after.seat not in awaited:
                assert not sent


@pytest.mark.parametrize("kind", sorted(REFUSALS))
def test_a_refusal_says_why(kind: Kind) -> None:
    states = {
        state.phase: state for state, event, done in _all() if done is None and event.kind is kind and not event.key
    }
    assert states
    for state in states.values():
        outcome = Phase.COMMITTED if kind is Kind.SETTLED else None
        with pytest.raises(IllegalTransition) as refused:
            step(state, Event(kind, outcome=outcome))
        assert refused.value.why
        assert refused.value.state == state.phase


def test_a_refused_rollback_of_a_committed_transaction_says_so() -> None:
    done = Transaction(Phase.COMMITTED, decided=True)
    with pytest.raises(IllegalTransition, match="cannot be rolled back any more"):
        step(done, Event(Kind.ROLLBACK_ASKED))


ROLL = "stop d, Rollback d"
ROOT = {
    Kind.ENLIST: ("", "", *("CannotRegisterParticipant new",) * 6),
    Kind.COMMIT_ASKED: (
        "Prepare d",
        "ignore i",
        "ignore i",
        "ignore i",
        "outcome Committed i",
        "outcome Aborted i",
        "outcome Committed i",
        "outcome Aborted i",
    ),
    Kind.ROLLBACK_ASKED: (
        "Rollback d, outcome Aborted i",
        f"{ROLL}, outcome Aborted i",
        f"{ROLL}, outcome Aborted i",
        "Rollback d, outcome Aborted i",
        "InvalidState i",
        "outcome Aborted i",
        "InvalidState i",
        "outcome Aborted i",
    ),
    Kind.EXPIRED: (
        "Rollback d, outcome Aborted i",
        f"{ROLL}, outcome Aborted i",
        f"{ROLL}, outcome Aborted i",
        "Rollback d, outcome Aborted i",
        *("ignore",) * 4,
    ),
}
SUBORDINATE = {
    Kind.ENLIST: ("", "", *("CannotRegisterParticipant new",) * 6),
    Kind.EXPIRED: (
        "Rollback d, vote Aborted",
        f"{ROLL}, vote Aborted",
        f"{ROLL}, vote Aborted",
        *("ignore",) * 5,
    ),
    Kind.SUPERIOR_PREPARE: (
        "Prepare d",
        "ignore",
        "ignore",
        "vote Prepared",
        "ignore",
        "vote Aborted",
        "vote Aborted",
        "vote Aborted",
    ),
    Kind.SUPERIOR_COMMIT: (
        "InvalidState, Rollback d",
        f"InvalidState, {ROLL}",
        f"InvalidState, {ROLL}",
        "stop, Commit d",
        "ignore",
        "InvalidState",
        "vote Committed",
        "stop, InconsistentInternalState, doubt",
    ),
    Kind.SUPERIOR_ROLLBACK: (
        "Rollback d, vote Aborted",
        f"{ROLL}, vote Aborted",
        f"{ROLL}, vote Aborted",
        "stop, Rollback d, vote Aborted",
        "InvalidState",
        *("vote Aborted",) * 3,
    ),
    Kind.SUPERIOR_FAULT: ("Rollback d", ROLL, ROLL, "stop, Rollback d", *("ignore",) * 4),
}
SEATS = {
    Phase.ACTIVE: Seat.ACTIVE,
    Phase.PREPARING_VOLATILE: Seat.PREPARING,
    Phase.PREPARING_DURABLE: Seat.PREPARING,
    Phase.DECIDING: Seat.PREPARED,
    Phase.PREPARED: Seat.PREPARED,
    Phase.COMMITTING: Seat.COMMITTING,
    Phase.ABORTING: Seat.ABORTING,
    Phase.COMMITTED: Seat.NONE,
    Phase.ABORTED: Seat.NONE,
}


def _cells() -> Iterator[tuple[bool, Kind, Phase, str]]:
    for subordinate, grid, other in ((False, ROOT, Phase.PREPARED), (True, SUBORDINATE, Phase.DECIDING)):
        columns = [phase for phase in SEATS if phase is not other]
        for kind, row in grid.items():
            for phase, expected in zip(columns, row, strict=True):
                yield subordinate, kind, phase, expected


@pytest.mark.parametrize(("subordinate", "kind", "phase", "expected"), list(_cells()))
def test_cell(subordinate: bool, kind: Kind, phase: Phase, expected: str) -> None:
    """What a transaction does in each phase, with one participant and, at the root, an initiator."""
    seat = SEATS[phase]
    told = Seat.ACTIVE if phase in (Phase.ACTIVE, *VOTING) else Seat.NONE
    decided = phase in (Phase.COMMITTING, Phase.COMMITTED)
    vote = Vote.PREPARED if seat in (Seat.PREPARED, Seat.COMMITTING) or decided else None
    # In the volatile phase the one that is asked is volatile.
    rows = [Partaker("d", V if phase is Phase.PREPARING_VOLATILE else D, seat, vote)]
    if not subordinate:
        rows.append(Partaker("i", C, told))
    transaction = Transaction(phase, tuple(rows), subordinate=subordinate, decided=decided)
    key = {Kind.COMMIT_ASKED: "i", Kind.ROLLBACK_ASKED: "i", Kind.ENLIST: "new"}.get(kind, "")
    done = step(transaction, Event(kind, key, protocol=D, fault=FaultCode.UNKNOWN_TRANSACTION))
    assert said(done.acts) == expected


keys = st.sampled_from(["a", "b", "c", "v", "w", "i", "own"])


def _protocol(key: str) -> Protocol:
    return {"v": V, "w": V, "i": C}.get(key, D)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Up to 40 events, most of them such as a transaction really sees."""
    usual = st.one_of(
        st.builds(Event, st.just(Kind.RECEIVED), keys, note=st.sampled_from(list(Note))),
        st.builds(Event, st.just(Kind.RECEIVED), keys, note=st.just(Note.PREPARED)),
        st.builds(Event, st.just(Kind.FAULT_RECEIVED), keys, fault=st.sampled_from(list(FaultCode))),
        st.builds(Event, st.sampled_from([Kind.RESEND, Kind.FORGOTTEN]), keys),
        st.builds(Event, st.sampled_from([Kind.COMMIT_ASKED, Kind.COMMIT_ASKED, Kind.DECIDED, Kind.DECIDED])),
        st.builds(Event, st.sampled_from([Kind.ROLLBACK_ASKED, Kind.EXPIRED, Kind.REFUSED])),
        st.builds(Event, st.sampled_from(sorted(SUBORDINATE_ONLY - {Kind.SETTLED, Kind.SUPERIOR_FAULT}))),
        st.builds(Event, st.just(Kind.SUPERIOR_FAULT), fault=st.sampled_from(list(FaultCode))),
        st.builds(Event, st.just(Kind.SETTLED), outcome=st.sampled_from([Phase.COMMITTED, Phase.ABORTED])),
    )
    first = draw(st.lists(keys, unique=True, max_size=6))
    enlisted = [Event(Kind.ENLIST, key, protocol=_protocol(key), local=key == "own") for key in first]
    late = st.builds(lambda key: Event(Kind.ENLIST, key, protocol=_protocol(key), local=key == "own"), keys)
    return enlisted + draw(st.lists(st.one_of(usual, late), max_size=40))


@bounded
@given(histories(), st.booleans(), st.sampled_from(["2004/10", "2006/06"]))
def test_whatever_happens_one_outcome_is_told_and_only_after_the_record(
    events: list[Event], subordinate: bool, version: str
) -> None:
    transaction = Transaction(subordinate=subordinate, version=version)
    told: dict[str, set[Note]] = defaultdict(set)
    outcomes: set[Note] = set()
    forgotten: set[str] = set()
    for event in events:
        done = _try(transaction, event)
        if done is None:
            continue
        for act in done.acts:
            if act.kind is ActKind.SEND and act.note in (Note.COMMIT, Note.ROLLBACK):
                voter = done.transaction.partaker(act.key)
                if voter is not None and voter.vote is Vote.PREPARED:
                    told[act.key].add(act.note)
                assert act.note is not Note.COMMIT or done.transaction.decided
            if act.kind is ActKind.OUTCOME and act.note is not None:
                outcomes.add(act.note)
            if act.kind is ActKind.FORGET:
                assert act.key not in forgotten
                forgotten.add(act.key)
        if transaction.phase in ENDED:
            assert done.transaction.phase is transaction.phase
        transaction = done.transaction
    assert len(outcomes) <= 1
    assert all(len(notes) <= 1 for notes in told.values())
    assert all(
        (one.seat is Seat.NONE) == (one.key in forgotten) for one in transaction.partakers if one.protocol is not C
    )


def test_a_transaction_is_its_partakers() -> None:
    one = Transaction(partakers=(Partaker("a", D), Partaker("own", D, local=True)))
    assert one.partaker("a") == Partaker("a", D)
    assert one.partaker("b") is None
