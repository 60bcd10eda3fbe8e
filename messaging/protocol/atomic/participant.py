"""A participant of one atomic transaction (spec 5, WS-AT; protocols 5.5 and 5.6), sans-I/O.

`step(taking, event)` is a pure function; `TABLE` is every cell, `SETTLED` what changes once a person has decided in
place of a coordinator that could not be reached. [H] marks what no source says. The prepared record is durable before
Prepared is sent, and it stays until the outcome is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from messaging.protocol.atomic.transaction import HEURISTIC_OUTCOME, PEER_REFUSED
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Seat
from messaging.protocol.errors import IllegalTransition

COMMIT_FAILED = "transaction_commit_failed"  # what was promised cannot be done now


@dataclass(frozen=True, slots=True)
class Taking:
    """One enlistment, seen by the participant. This is the record that `ActKind.FORCE_WRITE` keeps.

    `settled`: a person decided while PREPARED, COMMITTED or ABORTED. `version` of WS-Coordination.
    """

    seat: Seat = Seat.ACTIVE
    protocol: Protocol = Protocol.DURABLE
    version: str = "2006/06"
    settled: Phase | None = None


class Kind(StrEnum):
    """What can happen to a participant."""

    RECEIVED = "received"
    FAULT_RECEIVED = "fault_received"
    WORK_PREPARED = "work_prepared"
    WORK_READ_ONLY = "work_read_only"
    WORK_FAILED = "work_failed"
    WORK_COMMITTED = "work_committed"
    WORK_ROLLED_BACK = "work_rolled_back"
    LEAVE_READ_ONLY = "leave_read_only"
    LEAVE_ABORTED = "leave_aborted"
    RESEND = "resend"
    RESTARTED = "restarted"
    SETTLED = "settled"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `outcome`: of SETTLED, COMMITTED or ABORTED."""

    kind: Kind
    note: Note | None = None
    fault: FaultCode | None = None
    outcome: Phase | None = None


class ActKind(StrEnum):
    """What the caller has to do after a step.

    The effect of COMMIT_WORK, or of ROLL_BACK_WORK, and the end of the record are one write, unless a person has
    settled it: a record that outlives its effect would be settled, or told, the other way.
    """

    PREPARE_WORK = "prepare_work"
    COMMIT_WORK = "commit_work"
    ROLL_BACK_WORK = "roll_back_work"
    FORCE_WRITE = "force_write"  # the record is durable before the acts that follow
    SEND = "send"
    FAULT = "fault"  # answer the message at hand with `fault`
    FORGET = "forget"
    STOP = "stop"  # what awaits an answer of the coordinator needs none any more
    DOUBT = "doubt"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Act:
    """One thing to do. `awaits`: sent again and again until a STOP."""

    kind: ActKind
    note: Note | None = None
    fault: FaultCode | None = None
    reason: str = ""
    cause: str = ""
    awaits: bool = False


Acts = tuple[Act, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """The participant after an event, and what follows from it, in the order in which it has to be done."""

    taking: Taking
    acts: Acts = ()


Inbound = Note | FaultCode | Kind


@dataclass(frozen=True, slots=True)
class Cell:
    """What is done, in this order, and the seat after it. `volatile`: what a Volatile2PC participant does instead."""

    acts: Acts
    to: Seat
    source: str
    volatile: Cell | None = None


_NONE, _ACTIVE, _PREPARING, _PREPARED, _COMMITTING, _ABORTING = Seat
_T, _H = "5.5", "[H]"

_WRITE, _UNDO = Act(ActKind.FORCE_WRITE), Act(ActKind.ROLL_BACK_WORK)
_FORGET, _STOP = Act(ActKind.FORGET), Act(ActKind.STOP)
_COMMIT_WORK, _PREPARE_WORK = Act(ActKind.COMMIT_WORK), Act(ActKind.PREPARE_WORK)


def _send(note: Note) -> Act:
    return Act(ActKind.SEND, note=note, awaits=note in (Note.PREPARED, Note.REPLAY))


def _fault(reason: str, fault: FaultCode = FaultCode.INVALID_STATE) -> Act:
    return Act(ActKind.FAULT, fault=fault, reason=reason)


def _ignore(seat: Seat, why: str, source: str = _T) -> Cell:
    return Cell((Act(ActKind.IGNORE, reason=why),), seat, source)


_UNDER_WAY = "It is under way."
_LATE = "It comes too late to change anything."
_REFUSED_HERE = Act(ActKind.DOUBT, cause=PEER_REFUSED, reason="The coordinator answers Prepared with a fault.")
_CANNOT_COMMIT = Act(ActKind.DOUBT, cause=COMMIT_FAILED, reason="It promised to commit, and it cannot do so now.")
_UNPREPARED = Cell((_fault("It has not voted Prepared; it rolls back."), _UNDO), _ABORTING, _T)
_ROLLED_BACK = Cell((_STOP, _UNDO, _send(Note.ABORTED), _FORGET), _NONE, _T)
_ABORTED = Cell((_send(Note.ABORTED), _FORGET), _NONE, _T)
_GONE = Cell((_UNDO, _FORGET), _NONE, _T)
_FAILED = Cell((_UNDO, _send(Note.ABORTED), _FORGET), _NONE, "5.5, 5.6")


def _faults(prepared: Cell) -> dict[Seat, Cell]:
    return {
        _NONE: _ignore(_NONE, _LATE),
        _ACTIVE: _GONE,
        _PREPARING: _GONE,
        _PREPARED: prepared,
        _COMMITTING: _ignore(_COMMITTING, "The coordinator said Commit before."),
        _ABORTING: Cell((_FORGET,), _NONE, _T),
    }


# A seat that is not in a row refuses: `REFUSALS` says why. What the wire or a timer brings has a cell everywhere.
TABLE: Mapping[Inbound, Mapping[Seat, Cell]] = {
    Note.PREPARE: {
        _NONE: Cell((_send(Note.ABORTED),), _NONE, _T),
        _ACTIVE: Cell((_PREPARE_WORK,), _PREPARING, _T),
        _PREPARING: _ignore(_PREPARING, _UNDER_WAY),
        _PREPARED: Cell((_send(Note.PREPARED),), _PREPARED, _T),
        _COMMITTING: _ignore(_COMMITTING, _UNDER_WAY),
        _ABORTING: _ABORTED,
    },
    Note.COMMIT: {
        _NONE: Cell((_send(Note.COMMITTED),), _NONE, _T),
        _ACTIVE: _UNPREPARED,
        _PREPARING: _UNPREPARED,
        _PREPARED: Cell((_STOP, _COMMIT_WORK), _COMMITTING, _T),
        _COMMITTING: _ignore(_COMMITTING, _UNDER_WAY),
        _ABORTING: Cell((_fault("It rolls back."),), _ABORTING, _T),
    },
    Note.ROLLBACK: {
        _NONE: Cell((_send(Note.ABORTED),), _NONE, _T),
        _ACTIVE: _ROLLED_BACK,
        _PREPARING: _ROLLED_BACK,
        _PREPARED: _ROLLED_BACK,
        _COMMITTING: Cell((_fault("The coordinator said Commit before."),), _COMMITTING, _T),
        _ABORTING: _ABORTED,
    },
    FaultCode.UNKNOWN_TRANSACTION: _faults(Cell((_STOP, _UNDO, _FORGET), _NONE, _T)),
    FaultCode.INVALID_STATE: _faults(Cell((_REFUSED_HERE,), _PREPARED, _H)),
    FaultCode.INCONSISTENT: _faults(Cell((_REFUSED_HERE,), _PREPARED, _H)),
    Kind.WORK_PREPARED: {
        _NONE: Cell((_UNDO,), _NONE, _H),
        _PREPARING: Cell(
            (_WRITE, _send(Note.PREPARED)), _PREPARED, _T, volatile=Cell((_send(Note.PREPARED),), _PREPARED, _T)
        ),
        _ABORTING: Cell((_UNDO,), _ABORTING, _H),
    },
    Kind.WORK_READ_ONLY: {
        _NONE: _ignore(_NONE, _LATE, _H),
        _PREPARING: Cell((_send(Note.READ_ONLY), _FORGET), _NONE, _T),
        _ABORTING: _ignore(_ABORTING, _LATE, _H),
    },
    Kind.WORK_FAILED: {
        _NONE: _ignore(_NONE, _LATE, _H),
        _ACTIVE: _FAILED,
        _PREPARING: _FAILED,
        _COMMITTING: Cell((_CANNOT_COMMIT,), _COMMITTING, _H),
        _ABORTING: _ignore(_ABORTING, _LATE, _H),
    },
    Kind.WORK_COMMITTED: {
        _NONE: _ignore(_NONE, _LATE, _H),
        _COMMITTING: Cell((_send(Note.COMMITTED), _FORGET), _NONE, _T),
    },
    # A participant that rolls back for a Commit which came too early waits for its coordinator: forgotten, it would
    # answer the next one with Committed.
    Kind.WORK_ROLLED_BACK: {seat: _ignore(seat, "Nobody waits for it.", _H) for seat in Seat},
    Kind.LEAVE_READ_ONLY: {_ACTIVE: Cell((_send(Note.READ_ONLY), _FORGET), _NONE, _T)},
    Kind.LEAVE_ABORTED: {_ACTIVE: _FAILED, _PREPARING: _FAILED},
    Kind.RESEND: {
        **{seat: _ignore(seat, "It owes no vote.") for seat in Seat},
        _PREPARED: Cell((_send(Note.PREPARED),), _PREPARED, _T),
        _COMMITTING: Cell((_COMMIT_WORK,), _COMMITTING, _H),
    },
    Kind.RESTARTED: {
        _NONE: _ignore(_NONE, "Nothing was kept.", "5.6"),
        _ACTIVE: replace(_GONE, source="5.6"),
        _PREPARING: replace(_GONE, source="5.6"),
        _PREPARED: Cell((_send(Note.PREPARED),), _PREPARED, "5.6", volatile=replace(_GONE, source="5.6")),
        _COMMITTING: Cell((_COMMIT_WORK,), _COMMITTING, "5.6", volatile=replace(_GONE, source="5.6")),
        _ABORTING: replace(_GONE, source="5.6"),
    },
    Kind.FORGOTTEN: {_ABORTING: Cell((_FORGET,), _NONE, _H)},
}


def _contradiction(why: str, *, answered: bool = True) -> Acts:
    fault = (_fault(why, FaultCode.INCONSISTENT),) if answered else ()
    return (_STOP, *fault, Act(ActKind.DOUBT, cause=HEURISTIC_OUTCOME, reason=why))


_WHY_COMMIT = "It is rolled back here, and the coordinator commits."
_WHY_ROLLBACK = "It is committed here, and the coordinator rolls back."
_WHY_UNKNOWN = "It is committed here, and the coordinator knows nothing of it: elsewhere it is rolled back."
_AGREES = "A person decided before."

# In seat PREPARED, after a person decided. Rolled back, the coordinator is told so. Committed, it is asked on: what it
# says shows whether that was right.
SETTLED: Mapping[Inbound, Mapping[Phase, Cell]] = {
    Note.PREPARE: {
        Phase.COMMITTED: Cell((_send(Note.PREPARED),), _PREPARED, _H),
        Phase.ABORTED: Cell((_send(Note.ABORTED),), _PREPARED, _H),
    },
    Note.COMMIT: {
        Phase.COMMITTED: Cell((_STOP, _COMMIT_WORK), _COMMITTING, _H),  # it may not be done yet
        Phase.ABORTED: Cell(_contradiction(_WHY_COMMIT), _PREPARED, "5.3"),
    },
    Note.ROLLBACK: {
        Phase.COMMITTED: Cell(_contradiction(_WHY_ROLLBACK), _PREPARED, "5.3"),
        Phase.ABORTED: Cell((_send(Note.ABORTED), _FORGET), _NONE, _H),
    },
    FaultCode.UNKNOWN_TRANSACTION: {
        Phase.COMMITTED: Cell(_contradiction(_WHY_UNKNOWN, answered=False), _PREPARED, _H),
        Phase.ABORTED: Cell((_FORGET,), _NONE, _H),
    },
    FaultCode.INVALID_STATE: {phase: _ignore(_PREPARED, _AGREES, _H) for phase in (Phase.COMMITTED, Phase.ABORTED)},
    FaultCode.INCONSISTENT: {phase: _ignore(_PREPARED, _AGREES, _H) for phase in (Phase.COMMITTED, Phase.ABORTED)},
    Kind.RESEND: {
        Phase.COMMITTED: Cell((_send(Note.PREPARED),), _PREPARED, _H),
        Phase.ABORTED: _ignore(_PREPARED, _AGREES, _H),
    },
    Kind.RESTARTED: {
        Phase.COMMITTED: Cell((_COMMIT_WORK, _send(Note.PREPARED)), _PREPARED, _H),
        Phase.ABORTED: Cell((_UNDO, _send(Note.ABORTED)), _PREPARED, _H),
    },
    Kind.WORK_COMMITTED: {phase: _ignore(_PREPARED, _AGREES, _H) for phase in (Phase.COMMITTED, Phase.ABORTED)},
    Kind.WORK_FAILED: {
        Phase.COMMITTED: Cell((_CANNOT_COMMIT,), _PREPARED, _H),
        Phase.ABORTED: _ignore(_PREPARED, _AGREES, _H),
    },
    Kind.FORGOTTEN: {phase: Cell((_STOP, _FORGET), _NONE, _H) for phase in (Phase.COMMITTED, Phase.ABORTED)},
}

REFUSALS: Mapping[Kind, str] = {
    Kind.WORK_PREPARED: "Nobody asked it to prepare, or it has voted.",
    Kind.WORK_READ_ONLY: "Nobody asked it to prepare, or it has voted.",
    Kind.WORK_FAILED: "It has voted Prepared: only the coordinator, or a person, decides.",
    Kind.WORK_COMMITTED: "Nobody told it to commit.",
    Kind.LEAVE_READ_ONLY: "It was asked to prepare already; it answers that.",
    Kind.LEAVE_ABORTED: "It has voted, or the outcome is known.",
    Kind.SETTLED: "Only a participant that voted Prepared and waits for the outcome can be settled, and only once.",
    Kind.FORGOTTEN: "It waits for the outcome. Settle it first.",
}
_COMMIT_HERE, _ROLL_BACK_HERE = (_WRITE, _COMMIT_WORK), (_STOP, _WRITE, _UNDO, _send(Note.ABORTED))


def step(taking: Taking, event: Event) -> Step:
    """The participant after `event`, and what has to be done.

    Raises IllegalTransition, with nothing changed, for what its own program or a person may not do now; never for what
    the wire or a timer brings.
    """
    if event.kind is Kind.SETTLED:
        return _settle(taking, event)
    inbound = _inbound(event)
    if inbound is None:
        fault = _fault(f"{event.note} is not a message to a participant.")
        return Step(taking, (fault if event.kind is Kind.RECEIVED else Act(ActKind.IGNORE, reason="An empty fault."),))
    cell = _cell(taking, inbound)
    if cell is None:
        raise IllegalTransition(taking.seat, event.kind, REFUSALS[event.kind])
    acts = cell.acts
    if event.kind is Kind.RESTARTED and taking.version == "2004/10" and taking.settled is None:
        acts = tuple(_send(Note.REPLAY) if act.note is Note.PREPARED else act for act in acts)
    return Step(replace(taking, seat=cell.to, settled=taking.settled if cell.to is Seat.PREPARED else None), acts)


def _inbound(event: Event) -> Inbound | None:
    if event.kind is Kind.RECEIVED:
        return event.note if event.note in TABLE else None
    if event.kind is Kind.FAULT_RECEIVED:
        # A fault without a row of its own says that the coordinator cannot go on, too.
        return event.fault if event.fault is None or event.fault in TABLE else FaultCode.INVALID_STATE
    return event.kind


def _cell(taking: Taking, inbound: Inbound) -> Cell | None:
    if taking.seat is Seat.PREPARED and taking.settled is not None and inbound in SETTLED:
        return SETTLED[inbound][taking.settled]
    found = TABLE[inbound].get(taking.seat)
    if found is not None and found.volatile is not None and taking.protocol is Protocol.VOLATILE:
        return found.volatile
    return found


def _settle(taking: Taking, event: Event) -> Step:
    if taking.seat is not Seat.PREPARED or taking.settled is not None or event.outcome is None:
        raise IllegalTransition(taking.seat, event.kind, REFUSALS[event.kind])
    acts = _COMMIT_HERE if event.outcome is Phase.COMMITTED else _ROLL_BACK_HERE
    return Step(replace(taking, settled=event.outcome), acts)


def unknown(note: Note) -> Acts:
    """The None column: a message about an enlistment that is not there (5.5)."""
    return step(Taking(Seat.NONE), Event(Kind.RECEIVED, note=note)).acts
