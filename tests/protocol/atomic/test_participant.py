"""Every cell of the participant's table (protocols 5.5), and what a person's decision changes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messaging.protocol.atomic.participant import (
    REFUSALS,
    SETTLED,
    TABLE,
    Act,
    ActKind,
    Event,
    Kind,
    Taking,
    step,
    unknown,
)
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Seat
from messaging.protocol.errors import IllegalTransition

from .driver import ALL, D, V, said, taking

OUT = "stop, roll_back_work, Aborted, forget > none"
GONE = "roll_back_work, forget > none"
FAILED = "roll_back_work, Aborted, forget > none"
NO = "refused"
LATE_FAULT = ("ignore", GONE, GONE)
# Columns: None, Active, Preparing, PreparedSuccess, Committing, Aborting.
GRID = {
    Note.PREPARE: ("Aborted", "prepare_work > preparing", "ignore", "Prepared", "ignore", "Aborted, forget > none"),
    Note.COMMIT: (
        "Committed",
        "InvalidState, roll_back_work > aborting",
        "InvalidState, roll_back_work > aborting",
        "stop, commit_work > committing",
        "ignore",
        "InvalidState",
    ),
    Note.ROLLBACK: ("Aborted", OUT, OUT, OUT, "InvalidState", "Aborted, forget > none"),
    FaultCode.UNKNOWN_TRANSACTION: (
        *LATE_FAULT,
        "stop, roll_back_work, forget > none",
        "ignore",
        "forget > none",
    ),
    FaultCode.INVALID_STATE: (*LATE_FAULT, "doubt", "ignore", "forget > none"),
    FaultCode.INCONSISTENT: (*LATE_FAULT, "doubt", "ignore", "forget > none"),
    Kind.WORK_PREPARED: ("roll_back_work", NO, "force_write, Prepared > prepared", NO, NO, "roll_back_work"),
    Kind.WORK_READ_ONLY: ("ignore", NO, "ReadOnly, forget > none", NO, NO, "ignore"),
    Kind.WORK_FAILED: ("ignore", FAILED, FAILED, NO, "doubt", "ignore"),
    Kind.WORK_COMMITTED: ("ignore", NO, NO, NO, "Committed, forget > none", NO),
    Kind.WORK_ROLLED_BACK: ("ignore",) * 6,
    Kind.LEAVE_READ_ONLY: (NO, "ReadOnly, forget > none", NO, NO, NO, NO),
    Kind.LEAVE_ABORTED: (NO, FAILED, FAILED, NO, NO, NO),
    Kind.RESEND: ("ignore", "ignore", "ignore", "Prepared", "commit_work", "ignore"),
    Kind.RESTARTED: ("ignore", GONE, GONE, "Prepared", "commit_work", GONE),
    Kind.FORGOTTEN: (NO, NO, NO, NO, NO, "forget > none"),
}
VOLATILE = {
    (Kind.WORK_PREPARED, Seat.PREPARING): "Prepared > prepared",
    (Kind.RESTARTED, Seat.PREPARED): GONE,
    (Kind.RESTARTED, Seat.COMMITTING): GONE,
}
AFTER_COMMIT = {
    Note.PREPARE: "Prepared",
    Note.COMMIT: "stop, commit_work > committing",
    Note.ROLLBACK: "stop, InconsistentInternalState, doubt",
    FaultCode.UNKNOWN_TRANSACTION: "stop, doubt",
    FaultCode.INVALID_STATE: "ignore",
    FaultCode.INCONSISTENT: "ignore",
    Kind.RESEND: "Prepared",
    Kind.RESTARTED: "commit_work, Prepared",
    Kind.WORK_COMMITTED: "ignore",
    Kind.WORK_FAILED: "doubt",
    Kind.FORGOTTEN: "stop, forget > none",
}
AFTER_ROLLBACK = {
    Note.PREPARE: "Aborted",
    Note.COMMIT: "stop, InconsistentInternalState, doubt",
    Note.ROLLBACK: "Aborted, forget > none",
    FaultCode.UNKNOWN_TRANSACTION: "forget > none",
    FaultCode.INVALID_STATE: "ignore",
    FaultCode.INCONSISTENT: "ignore",
    Kind.RESEND: "ignore",
    Kind.RESTARTED: "roll_back_work, Aborted",
    Kind.WORK_COMMITTED: "ignore",
    Kind.WORK_FAILED: "ignore",
    Kind.FORGOTTEN: "stop, forget > none",
}


def _event(inbound: Note | FaultCode | Kind) -> Event:
    if isinstance(inbound, Note):
        return Event(Kind.RECEIVED, note=inbound)
    if isinstance(inbound, FaultCode):
        return Event(Kind.FAULT_RECEIVED, fault=inbound)
    return Event(inbound)


def _cells():
    for inbound, row in GRID.items():
        for seat, expected in zip(Seat, row, strict=True):
            for protocol in (D, V):
                own = VOLATILE.get((inbound, seat)) if protocol is V else None
                one = Taking(seat, protocol)
                yield pytest.param(one, inbound, own or expected, id=f"{inbound}-{seat}-{protocol}")
    for outcome, rows in ((Phase.COMMITTED, AFTER_COMMIT), (Phase.ABORTED, AFTER_ROLLBACK)):
        for inbound, expected in rows.items():
            one = Taking(Seat.PREPARED, settled=outcome)
            yield pytest.param(one, inbound, expected, id=f"{inbound}-settled-{outcome}")


@pytest.mark.parametrize(("before", "inbound", "expected"), list(_cells()))
def test_cell(before: Taking, inbound: Note | FaultCode | Kind, expected: str) -> None:
    event = _event(inbound)
    if expected == NO:
        with pytest.raises(IllegalTransition) as refused:
            step(before, event)
        assert str(refused.value) == REFUSALS[event.kind]
        return
    does, _, target = expected.partition(" > ")
    done = step(before, event)
    assert said(done.acts) == does
    assert done.taking.seat is ALL.get(target, before.seat)
    assert done.taking.settled is (before.settled if done.taking.seat is Seat.PREPARED else None)


def test_the_tables_have_every_cell_that_the_wire_and_timers_need() -> None:
    assert set(TABLE) == set(GRID)
    refusing = {kind for kind, row in GRID.items() if NO in row}
    assert refusing | {Kind.SETTLED} == set(REFUSALS)
    for inbound, row in TABLE.items():
        assert list(row) == [seat for seat, text in zip(Seat, GRID[inbound], strict=True) if text != NO]
    assert set(SETTLED) == set(AFTER_COMMIT) == set(AFTER_ROLLBACK)
    assert all(set(row) == {Phase.COMMITTED, Phase.ABORTED} for row in SETTLED.values())
    wire = {one for one in TABLE if isinstance(one, Note | FaultCode)} | {Kind.RESEND, Kind.RESTARTED}
    assert all(set(TABLE[one]) == set(Seat) for one in wire)
    for row in (*TABLE.values(), *SETTLED.values()):
        assert all(cell.source for cell in row.values())


def test_prepared_is_said_only_after_the_record_is_durable() -> None:
    acts = step(Taking(Seat.PREPARING), Event(Kind.WORK_PREPARED)).acts
    assert [act.kind for act in acts] == [ActKind.FORCE_WRITE, ActKind.SEND]
    sends = [
        (inbound, seat)
        for inbound, row in TABLE.items()
        for seat, cell in row.items()
        if any(act.note is Note.PREPARED for act in cell.acts)
    ]
    assert {seat for inbound, seat in sends if inbound is not Kind.WORK_PREPARED} == {Seat.PREPARED}


def test_no_answer_of_a_prepared_participant_but_the_outcome_lets_it_forget() -> None:
    """Invariant I8: who voted Prepared stays until told, or until a person decides."""
    for inbound, row in TABLE.items():
        if row.get(Seat.PREPARED) and row[Seat.PREPARED].to is not Seat.PREPARED:
            assert inbound in (Note.COMMIT, Note.ROLLBACK, FaultCode.UNKNOWN_TRANSACTION)


@pytest.mark.parametrize("fault", [one for one in FaultCode if one not in GRID])
def test_a_fault_without_a_row_of_its_own_says_that_the_coordinator_cannot_go_on(fault: FaultCode) -> None:
    for seat in Seat:
        same = taking(seat)
        same.fault(FaultCode.INVALID_STATE)
        ours = taking(seat)
        ours.fault(fault)
        assert (ours.log, ours.taking) == (same.log, same.taking)


@pytest.mark.parametrize("note", [note for note in Note if note not in GRID])
def test_messages_in_the_wrong_direction_change_nothing(note: Note) -> None:
    for seat in Seat:
        one = taking(seat)
        assert one.hear(note) == "InvalidState"
        assert one.seat is seat


@pytest.mark.parametrize("outcome", [Phase.COMMITTED, Phase.ABORTED])
def test_a_person_settles_only_what_is_in_doubt_and_only_once(outcome: Phase) -> None:
    for seat, settled in itertools.product(Seat, (None, Phase.ABORTED)):
        one = taking(seat, settled=settled if seat is Seat.PREPARED else None)
        if seat is Seat.PREPARED and settled is None:
            expected = {
                Phase.COMMITTED: "force_write, commit_work",
                Phase.ABORTED: "stop, force_write, roll_back_work, Aborted",
            }
            assert one.do(Kind.SETTLED, outcome) == expected[outcome]
            assert one.taking == Taking(Seat.PREPARED, settled=outcome)
            continue
        with pytest.raises(IllegalTransition):
            one.do(Kind.SETTLED, outcome)


def test_a_forgotten_participant_needs_no_row() -> None:
    assert said(unknown(Note.PREPARE)) == "Aborted"
    assert said(unknown(Note.COMMIT)) == "Committed"
    assert said(unknown(Note.ROLLBACK)) == "Aborted"
    assert said(unknown(Note.PREPARED)) == "InvalidState"


def test_only_a_vote_is_repeated_until_it_is_answered() -> None:
    awaited = {
        act.note
        for row in (*TABLE.values(), *SETTLED.values())
        for cell in row.values()
        for act in (*cell.acts, *(cell.volatile.acts if cell.volatile else ()))
        if act.awaits
    }
    assert awaited == {Note.PREPARED}


def test_an_empty_fault_changes_nothing() -> None:
    assert step(Taking(), Event(Kind.FAULT_RECEIVED)).acts == (Act(ActKind.IGNORE, reason="An empty fault."),)


happenings = st.one_of(
    st.builds(Event, st.just(Kind.RECEIVED), note=st.sampled_from([Note.PREPARE, Note.COMMIT, Note.ROLLBACK])),
    st.builds(Event, st.just(Kind.FAULT_RECEIVED), fault=st.sampled_from(list(FaultCode))),
    st.builds(Event, st.sampled_from([one for one in Kind if one not in (Kind.RECEIVED, Kind.FAULT_RECEIVED)])),
    st.builds(Event, st.just(Kind.SETTLED), outcome=st.sampled_from([Phase.COMMITTED, Phase.ABORTED])),
    st.sampled_from([Event(Kind.RECEIVED, note=Note.PREPARE), Event(Kind.WORK_PREPARED), Event(Kind.WORK_COMMITTED)]),
)


@settings(max_examples=150)
@given(st.lists(happenings, max_size=40), st.sampled_from([D, V]), st.sampled_from(["2004/10", "2006/06"]))
def test_whatever_happens_its_work_ends_one_way_and_it_votes_once_it_is_written(events, protocol, version) -> None:
    taking, written, work = Taking(protocol=protocol, version=version), False, set()
    for event in events:
        before = taking.seat
        try:
            done = step(taking, event)
        except IllegalTransition:
            continue
        taking = done.taking
        for act in done.acts:
            written = written or act.kind is ActKind.FORCE_WRITE
            if act.note in (Note.PREPARED, Note.REPLAY):
                assert written or protocol is V
            if act.kind in (ActKind.COMMIT_WORK, ActKind.ROLL_BACK_WORK) and before is not Seat.NONE:
                work.add(act.kind)
            if act.note is Note.COMMITTED:
                assert before in (Seat.NONE, Seat.COMMITTING)
        if before is Seat.NONE:
            assert taking.seat is Seat.NONE
        # A volatile one that restarts has lost its work, whatever it was told.
        if protocol is D:
            assert len(work) <= 1
