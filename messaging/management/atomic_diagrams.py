"""The part of docs/state-machines.md about atomic transactions, from the tables in `messaging/protocol/atomic`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from messaging.management.drawing import cell, picture, table
from messaging.protocol.atomic import participant, phases, seats
from messaging.protocol.atomic.words import ENDED, FaultCode, Note, Phase, Seat
from messaging.protocol.messages import ASKING, ASKING_FINAL, TELLING, TELLING_FINAL, State

SEATS_HEAD = """## A participant of an atomic transaction, seen by its coordinator

Spec 5 and WS-AtomicTransaction (`atomic.seats.TABLE`). The small words are orders of the transaction, of a timer, or of
a person who gives up; the others are messages and faults of the participant. Sources: 5.3 to 5.6 of the protocol notes;
[H] is this hub's own.
"""
SEAT_CELLS = """What each does in each seat, and where that leads. "Rolls back": the whole transaction, this participant
with it. What a participant of Volatile2PC is told instead follows after "volatile". A transaction that is over, and one
that nobody knows, are in `none`; a late vote in one that is known as committed is answered Commit.
"""
PHASES_HEAD = """## An atomic transaction

`atomic.phases.TABLE` and `TURNS`. It is decided from `committing` on: the commit record is written between `deciding`
and there. `prepared` is the place of a subordinate transaction that has voted and waits for its superior.
"""
PHASE_CELLS = "What each event does in each phase. Stays: only participants change, if anything. A dash: refused."
REFUSED = "Why:"
PARTICIPANT_HEAD = """## A participant of an atomic transaction, seen by itself

`atomic.participant.TABLE`: what it does with messages and faults of its coordinator, and with what its own program, a
timer or a person says.
"""
PARTICIPANT_CELLS = "What each does in each seat, and where that leads. A dash: refused."
SETTLED_HEAD = "Once a person has decided for one that is `prepared` (`atomic.participant.SETTLED`):"
ASKING_HEAD = """## A message of an atomic transaction

One that is answered by another message: Prepare, Commit, Rollback, Prepared and requests (`messages.ASKING`).
"""
TELLING_HEAD = "One that nobody answers: replies, faults, and what ends a relationship (`messages.TELLING`)."


def blocks() -> list[str]:
    """Texts, pictures and tables, in their order."""
    return [
        SEATS_HEAD,
        picture(Seat.ACTIVE, _seat_moves(), {Seat.NONE}, loops=False),
        SEAT_CELLS,
        table(
            ["what", *Seat], ([what, *(_seat_cell(row[at], at) for at in Seat)] for what, row in seats.TABLE.items())
        ),
        PHASES_HEAD,
        picture(Phase.ACTIVE, _phase_moves(), ENDED, loops=False),
        PHASE_CELLS,
        table(
            ["event", *Phase], ([kind, *(cell(row.get(at), at) for at in Phase)] for kind, row in phases.TABLE.items())
        ),
        REFUSED,
        table(["event", "why"], ([kind, why] for kind, why in phases.REFUSALS.items())),
        PARTICIPANT_HEAD,
        picture(Seat.ACTIVE, _own_moves(), {Seat.NONE}, loops=False),
        PARTICIPANT_CELLS,
        table(
            ["what", *Seat],
            ([what, *(_own_cell(row.get(at), at) for at in Seat)] for what, row in participant.TABLE.items()),
        ),
        REFUSED,
        table(["event", "why"], ([kind, why] for kind, why in participant.REFUSALS.items())),
        SETTLED_HEAD,
        table(
            ["what", "committed by a person", "rolled back by a person"],
            (
                [what, *(_own_cell(row[outcome], Seat.PREPARED) for outcome in (Phase.COMMITTED, Phase.ABORTED))]
                for what, row in participant.SETTLED.items()
            ),
        ),
        ASKING_HEAD,
        picture(State.QUEUED, {state: list(row.items()) for state, row in ASKING.items()}, ASKING_FINAL, loops=False),
        TELLING_HEAD,
        picture(State.QUEUED, {state: list(row.items()) for state, row in TELLING.items()}, TELLING_FINAL, loops=False),
    ]


def _seat_moves() -> Mapping[Seat, list[tuple[StrEnum, Seat]]]:
    return {at: [(what, seats.after(row[at])) for what, row in seats.TABLE.items()] for at in Seat}


def _seat_cell(cell: seats.Cell, at: Seat) -> str:
    does = [*cell.does, *(("rolls back",) if cell.aborts else ())]
    text = ", ".join(does) or "–"
    if seats.after(cell) not in (at, Seat.NONE):
        text = f"{text} → {seats.after(cell)}"
    if cell.volatile is not None:
        text = f"{text}; volatile: {', '.join(cell.volatile.does)}"
    return text if text == "–" else f"{text} ({cell.source})"


def _phase_moves() -> Mapping[Phase, list[tuple[StrEnum, Phase]]]:
    moves: dict[Phase, list[tuple[StrEnum, Phase]]] = {phase: [] for phase in Phase}
    for kind, row in phases.TABLE.items():
        for phase, move in row.items():
            moves[phase] += [(kind, target) for target in Phase if target in move.targets]
    for phase, turns in phases.TURNS.items():
        for turn, targets in turns.items():
            moves[phase] += [(turn, target) for target in Phase if target in targets]
    return moves


def _own_moves() -> Mapping[Seat, list[tuple[StrEnum, Seat]]]:
    return {at: [(what, row[at].to) for what, row in participant.TABLE.items() if at in row] for at in Seat}


def _own_cell(cell: participant.Cell | None, at: Seat) -> str:
    if cell is None:
        return "–"
    text = ", ".join(_own_act(act) for act in cell.acts)
    if cell.to not in (at, Seat.NONE):
        text = f"{text} → {cell.to}"
    if cell.volatile is not None:
        text = f"{text}; volatile: {', '.join(_own_act(act) for act in cell.volatile.acts)}"
    return f"{text} ({cell.source})"


def _own_act(act: participant.Act) -> str:
    said: Note | FaultCode | None = act.note or act.fault
    return f"send {said}" if act.note else str(said or act.kind.replace("_", " "))
