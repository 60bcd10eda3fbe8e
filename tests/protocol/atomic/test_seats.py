"""Every cell of the coordinator's table (protocols 5.4), as the machine does it."""

from __future__ import annotations

import itertools

import pytest

from messaging.protocol.atomic import seats
from messaging.protocol.atomic.coordinator import Event, Kind, step, unknown
from messaging.protocol.atomic.seats import TABLE, Do, Order
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Seat, Vote
from messaging.protocol.errors import IllegalTransition

from .driver import ALL, D, V, awaiting, said, sitting

# Columns: None, Active, Preparing, PreparedSuccess, Committing, Aborting. What `p` is told or what is done about it;
# then its seat, where it changes. `!`: the whole transaction is rolled back.
FAULT_OUT = "stop, forget > none !"
GRID = {
    Note.PREPARED: (
        "Rollback",
        "InvalidState, Rollback > aborting !",
        "stop > prepared",
        "ignore",
        "Commit",
        "stop, Rollback, forget > none",
    ),
    Note.READ_ONLY: (
        "ignore",
        "stop, forget > none",
        "stop, forget > none",
        "InvalidState",
        "InvalidState",
        "stop, forget > none",
    ),
    Note.ABORTED: ("ignore", FAULT_OUT, FAULT_OUT, "InvalidState", "InvalidState", "stop, forget > none"),
    Note.COMMITTED: (
        "ignore",
        "InvalidState, Rollback > aborting !",
        "InvalidState, stop, Rollback > aborting !",
        "InvalidState",
        "stop, forget > none",
        "InvalidState",
    ),
    Note.REPLAY: (
        "Rollback",
        "Rollback > aborting !",
        "stop, Rollback > aborting !",
        "ignore",
        "Commit",
        "Rollback",
    ),
    FaultCode.INVALID_STATE: (
        "ignore",
        FAULT_OUT,
        FAULT_OUT,
        "Rollback > aborting !",
        "stop, doubt",
        "stop, doubt",
    ),
    FaultCode.UNKNOWN_TRANSACTION: (
        "ignore",
        FAULT_OUT,
        FAULT_OUT,
        "Rollback > aborting !",
        "stop, doubt",
        "stop, forget > none",
    ),
    FaultCode.INCONSISTENT: (
        "doubt",
        "stop, doubt, forget > none !",
        "stop, doubt, forget > none !",
        "doubt, Rollback > aborting !",
        "stop, doubt",
        "stop, doubt",
    ),
    Kind.RESEND: ("ignore", "ignore", "Prepare", "ignore", "Commit", "Rollback"),
    Kind.FORGOTTEN: ("refused", "refused", "refused", "refused", "stop, forget > none", "stop, forget > none"),
}
# Where a volatile participant is told something else (5.4, 5.3).
VOLATILE = {
    (Note.PREPARED, Seat.NONE): "UnknownTransaction",
    (Note.PREPARED, Seat.ABORTING): "stop, UnknownTransaction, forget > none",
    (Note.REPLAY, Seat.NONE): "InvalidState",
}


def _event(inbound: Note | FaultCode | Kind) -> Event:
    if isinstance(inbound, Note):
        return Event(Kind.RECEIVED, "p", note=inbound)
    if isinstance(inbound, FaultCode):
        return Event(Kind.FAULT_RECEIVED, "p", fault=inbound)
    return Event(inbound, "p")


def _cells():
    for inbound, row in GRID.items():
        for seat, expected in zip(Seat, row, strict=True):
            for protocol in (D, V):
                own = VOLATILE.get((inbound, seat)) if protocol is V else None
                yield pytest.param(inbound, seat, protocol, own or expected, id=f"{inbound}-{seat}-{protocol}")


@pytest.mark.parametrize(("inbound", "seat", "protocol", "expected"), list(_cells()))
def test_cell(inbound: Note | FaultCode | Kind, seat: Seat, protocol: Protocol, expected: str) -> None:
    coordinator = sitting(seat, protocol, version="2004/10")
    before = coordinator.transaction
    if expected == "refused":
        with pytest.raises(IllegalTransition):
            step(before, _event(inbound))
        return
    aborts = expected.endswith(" !")
    does, _, target = expected.removesuffix(" !").partition(" > ")
    coordinator.feed(_event(inbound))
    assert said(coordinator.acts, "p") == does
    assert coordinator.seat("p") is ALL.get(target, seat)
    assert (coordinator.phase is not before.phase) is aborts
    if aborts:
        assert coordinator.phase is Phase.ABORTING
        assert coordinator.seat("q") is Seat.ABORTING
        assert "Rollback q" in coordinator.log[-1]
    else:
        assert coordinator.transaction.partaker("q") == before.partaker("q")
    assert coordinator.transaction.decided is before.decided


def test_the_table_has_every_cell_and_no_other_row() -> None:
    notes = {note for note in GRID if isinstance(note, Note)}
    faults = {fault for fault in GRID if isinstance(fault, FaultCode)}
    assert set(TABLE) == notes | faults | set(Order)
    for inbound, row in TABLE.items():
        assert list(row) == list(Seat), inbound
        for cell in row.values():
            assert cell.source
            assert cell.volatile is None or cell.volatile.source


@pytest.mark.parametrize("seat", Seat)
@pytest.mark.parametrize("order", [Order.PREPARE, Order.COMMIT, Order.ROLL_BACK])
def test_an_order_reaches_only_those_that_can_take_it(order: Order, seat: Seat) -> None:
    """User commit, the decision, user rollback and Expires (5.4, the last two rows)."""
    told = {
        (Order.PREPARE, Seat.ACTIVE): ((Do.SEND_PREPARE,), Seat.PREPARING),
        (Order.COMMIT, Seat.PREPARED): ((Do.SEND_COMMIT,), Seat.COMMITTING),
        (Order.ROLL_BACK, Seat.ACTIVE): ((Do.SEND_ROLLBACK,), Seat.ABORTING),
        (Order.ROLL_BACK, Seat.PREPARING): ((Do.STOP, Do.SEND_ROLLBACK), Seat.ABORTING),
        (Order.ROLL_BACK, Seat.PREPARED): ((Do.SEND_ROLLBACK,), Seat.ABORTING),
        (Order.ROLL_BACK, Seat.COMMITTING): ((Do.IGNORE,), Seat.COMMITTING),
    }
    cell = seats.cell(order, seat)
    assert (cell.does, cell.to) == told.get((order, seat), ((), seat))


def test_only_a_participant_that_prepares_in_a_decided_transaction_is_told_commit() -> None:
    """No cell sends Commit to a seat from which Commit was not promised."""
    commits = {
        (inbound, seat) for inbound, row in TABLE.items() for seat, cell in row.items() if Do.SEND_COMMIT in cell.does
    }
    assert {seat for inbound, seat in commits if inbound is not Order.COMMIT} == {Seat.COMMITTING}
    assert {seat for inbound, seat in commits if inbound is Order.COMMIT} == {Seat.PREPARED}
    assert all(
        cell.to is not Seat.COMMITTING
        for inbound in set(TABLE) - {Order.COMMIT}
        for seat, cell in TABLE[inbound].items()
        if seat is not Seat.COMMITTING
    )


def test_what_awaits_an_answer_is_what_its_seat_says() -> None:
    for inbound, seat in itertools.product(GRID, Seat):
        coordinator = sitting(seat)
        try:
            coordinator.feed(_event(inbound))
        except IllegalTransition:
            continue
        waits = {Seat.PREPARING: "Prepare p", Seat.COMMITTING: "Commit p", Seat.ABORTING: "Rollback p"}
        for line in awaiting(coordinator.acts):
            if line.endswith(" p"):
                assert line == waits[coordinator.seat("p")]


@pytest.mark.parametrize("fault", [one for one in FaultCode if one not in GRID])
def test_a_fault_without_a_row_of_its_own_says_that_the_peer_cannot_go_on(fault: FaultCode) -> None:
    for seat in Seat:
        ours, same = sitting(seat), sitting(seat)
        assert ours.fault("p", fault) == same.fault("p", FaultCode.INVALID_STATE)
        assert ours.transaction == same.transaction


@pytest.mark.parametrize("note", [Note.PREPARE, Note.COMMIT, Note.ROLLBACK])
def test_messages_in_the_wrong_direction_change_nothing(note: Note) -> None:
    for seat in Seat:
        coordinator = sitting(seat)
        before = coordinator.transaction
        assert coordinator.hear("p", note) == "InvalidState p"
        assert coordinator.transaction == before


def test_a_replay_of_2006_06_is_remarked_upon_and_treated_alike() -> None:
    for seat in Seat:
        old, new = sitting(seat, version="2004/10"), sitting(seat)
        assert new.hear("p", Note.REPLAY) == f"remark p, {old.hear('p', Note.REPLAY)}"
        assert new.transaction.partakers == old.transaction.partakers


def test_a_partaker_that_is_not_there_is_a_question_for_the_none_column() -> None:
    coordinator = sitting(Seat.ACTIVE)
    with pytest.raises(KeyError):
        coordinator.hear("nobody", Note.PREPARED)


@pytest.mark.parametrize(
    ("note", "protocol", "answer"),
    [
        (Note.PREPARED, D, "answer Rollback"),
        (Note.PREPARED, None, "answer Rollback"),
        (Note.PREPARED, V, "UnknownTransaction"),
        (Note.READ_ONLY, D, "ignore"),
        (Note.ABORTED, D, "ignore"),
        (Note.COMMITTED, D, "ignore"),
        (Note.COMMITTED, V, "ignore"),
        (Note.REPLAY, D, "answer Rollback"),
        (Note.REPLAY, None, "answer Rollback"),
        (Note.REPLAY, V, "InvalidState"),
        (Note.COMMIT, None, "UnknownTransaction"),
        (Note.ROLLBACK, None, "UnknownTransaction"),
        (Note.PREPARE, None, "InvalidState"),
    ],
)
def test_the_none_column_of_what_is_not_there(note: Note, protocol: Protocol | None, answer: str) -> None:
    assert said(unknown(note, protocol, "2004/10")) == answer
    expected = f"remark, {answer}" if note is Note.REPLAY else answer
    assert said(unknown(note, protocol)) == expected


def test_a_known_outcome_is_told_although_the_relationship_is_over() -> None:
    """Presumed abort is for what is forgotten: here Rollback would contradict the commit record."""
    coordinator = sitting(Seat.COMMITTING)
    coordinator.hear("p", Note.COMMITTED)
    assert coordinator.seat("p") is Seat.NONE
    assert coordinator.hear("p", Note.PREPARED) == "Commit p"
    assert awaiting(coordinator.acts) == []
    assert coordinator.transaction.partaker("p").vote is Vote.PREPARED  # type: ignore[union-attr]
    coordinator.hear("q", Note.COMMITTED)
    assert coordinator.phase is Phase.COMMITTED
    assert coordinator.hear("q", Note.PREPARED) == "Commit q"
    assert coordinator.hear("q", Note.REPLAY) == "remark q, Commit q"
    assert coordinator.hear("q", Note.COMMITTED) == "ignore q"


def test_the_transaction_is_rolled_back_for_exactly_these() -> None:
    expected = {
        (inbound, seat)
        for inbound, row in GRID.items()
        for seat, text in zip(Seat, row, strict=True)
        if text.endswith(" !")
    }
    assert {(inbound, seat) for inbound, row in TABLE.items() for seat, cell in row.items() if cell.aborts} == expected
    assert all(seat in (Seat.ACTIVE, Seat.PREPARING, Seat.PREPARED) for _, seat in expected)
