"""One relationship, seen by the coordinator: what each thing that reaches it does in each seat.

`TABLE` is protocols 5.4, cell by cell, with a row for each fault and each order of the transaction. [H] marks what
neither spec 5 nor the tables of WS-AtomicTransaction say. `received` and `ordered` apply it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from messaging.protocol.atomic.transaction import (
    HEURISTIC_OUTCOME,
    PEER_REFUSED,
    Act,
    ActKind,
    Acts,
    Partaker,
)
from messaging.protocol.atomic.words import FaultCode, Note, Protocol, Seat, Vote


class Order(StrEnum):
    """What the transaction, a timer or a person wants of a relationship."""

    PREPARE = "prepare"
    COMMIT = "commit"
    ROLL_BACK = "roll back"
    RESEND = "resend"
    GIVE_UP = "give up"


class Do(StrEnum):
    """What a cell does."""

    IGNORE = "ignore"
    VOTE = "record vote"
    SEND_PREPARE = "send Prepare"
    SEND_COMMIT = "send Commit"
    SEND_ROLLBACK = "send Rollback"
    INVALID_STATE = "InvalidState"
    UNKNOWN_TRANSACTION = "UnknownTransaction"
    STOP = "stop resends"
    DOUBT = "in doubt"
    FORGET = "forget"


Inbound = Note | FaultCode | Order


@dataclass(frozen=True, slots=True)
class Cell:
    """What is done, in this order, and the seat after it.

    `aborts`: the whole transaction is rolled back then, and this partaker with it unless it is forgotten already.
    `volatile`: what is done instead for a participant of Volatile2PC.
    """

    does: tuple[Do, ...]
    to: Seat
    source: str
    aborts: bool = False
    vote: Vote | None = None
    why: str = ""
    volatile: Cell | None = None


_NONE, _ACTIVE, _PREPARING, _PREPARED, _COMMITTING, _ABORTING = Seat
_T, _H = "5.4", "[H]"

_NOTHING = "Nothing that it could mean is known of this transaction any more."
_AGAIN = "It is known already."


def _ignore(seat: Seat, why: str, source: str = _T) -> Cell:
    return Cell((Do.IGNORE,), seat, source, why=why)


def _out(vote: Vote | None, *, aborts: bool = False, source: str = _T, doubt: bool = False) -> Cell:
    """The participant is out: it has nothing to commit, or cannot."""
    does = (Do.STOP, Do.DOUBT, Do.FORGET) if doubt else (Do.STOP, Do.FORGET)
    return Cell(does, _NONE, source, aborts=aborts, vote=vote, why="It did what it was not told to." if doubt else "")


def _wrong(seat: Seat, *, aborts: bool = False) -> Cell:
    """Illegal in this seat. While nothing is decided the transaction is rolled back for it (5.3)."""
    return Cell((Do.INVALID_STATE,), seat, _T, aborts=aborts, why=f"Not to be said by a participant that is {seat}.")


def _doubt(seat: Seat, why: str) -> Cell:
    """[H] It stays until a person has looked at it; the outcome is not told again meanwhile."""
    return Cell((Do.STOP, Do.DOUBT), seat, _H, why=why)


def _refused(aborts: Cell) -> dict[Seat, Cell]:
    """[H] A participant answers with a fault that says it does not know what we are talking about."""
    return {
        _NONE: _ignore(_NONE, _NOTHING, _H),
        _ACTIVE: aborts,
        _PREPARING: aborts,
        _PREPARED: Cell((), _PREPARED, _H, aborts=True, why="It voted Prepared and knows nothing of it any more."),
        _COMMITTING: _doubt(_COMMITTING, "It refuses Commit, although it voted Prepared."),
        _ABORTING: _doubt(_ABORTING, "It refuses Rollback."),
    }


def _keep(source: str = _T) -> dict[Seat, Cell]:
    return {seat: Cell((), seat, source) for seat in Seat}


# Every row has every seat.
TABLE: Mapping[Inbound, Mapping[Seat, Cell]] = {
    Note.PREPARED: {
        _NONE: Cell(
            (Do.SEND_ROLLBACK,),
            _NONE,
            "5.4, 5.6",
            why="Presumed abort.",
            volatile=Cell((Do.UNKNOWN_TRANSACTION,), _NONE, "5.4, 5.3", why=_NOTHING),
        ),
        _ACTIVE: _wrong(_ACTIVE, aborts=True),
        _PREPARING: Cell((Do.STOP, Do.VOTE), _PREPARED, _T, vote=Vote.PREPARED),
        _PREPARED: _ignore(_PREPARED, _AGAIN),
        _COMMITTING: Cell((Do.SEND_COMMIT,), _COMMITTING, _T),
        _ABORTING: Cell(
            (Do.STOP, Do.SEND_ROLLBACK, Do.FORGET),
            _NONE,
            _T,
            volatile=Cell((Do.STOP, Do.UNKNOWN_TRANSACTION, Do.FORGET), _NONE, _T, why="It is rolled back."),
        ),
    },
    Note.READ_ONLY: {
        _NONE: _ignore(_NONE, _NOTHING),
        _ACTIVE: _out(Vote.READ_ONLY),
        _PREPARING: _out(Vote.READ_ONLY),
        _PREPARED: _wrong(_PREPARED),
        _COMMITTING: _wrong(_COMMITTING),
        _ABORTING: _out(None),
    },
    Note.ABORTED: {
        _NONE: _ignore(_NONE, _NOTHING),
        _ACTIVE: _out(Vote.ABORTED, aborts=True),
        _PREPARING: _out(Vote.ABORTED, aborts=True),
        _PREPARED: _wrong(_PREPARED),
        _COMMITTING: _wrong(_COMMITTING),
        _ABORTING: _out(None),
    },
    Note.COMMITTED: {
        _NONE: _ignore(_NONE, _NOTHING),
        _ACTIVE: _wrong(_ACTIVE, aborts=True),
        _PREPARING: _wrong(_PREPARING, aborts=True),
        _PREPARED: _wrong(_PREPARED),
        _COMMITTING: _out(None),
        _ABORTING: _wrong(_ABORTING),
    },
    Note.REPLAY: {
        _NONE: Cell(
            (Do.SEND_ROLLBACK,),
            _NONE,
            "5.4, 5.6",
            why="Presumed abort.",
            volatile=Cell((Do.INVALID_STATE,), _NONE, _T, why=_NOTHING),
        ),
        _ACTIVE: Cell((), _ACTIVE, _T, aborts=True),
        _PREPARING: Cell((), _PREPARING, _T, aborts=True),
        _PREPARED: _ignore(_PREPARED, "It is told the outcome when there is one."),
        _COMMITTING: Cell((Do.SEND_COMMIT,), _COMMITTING, _T),
        _ABORTING: Cell((Do.SEND_ROLLBACK,), _ABORTING, _T),
    },
    FaultCode.INVALID_STATE: _refused(_out(None, aborts=True, source=_H)),
    FaultCode.UNKNOWN_TRANSACTION: {
        **_refused(_out(None, aborts=True, source=_H)),
        # It has forgotten what it is to roll back: that is what we want.
        _ABORTING: _out(None, source=_H),
    },
    FaultCode.INCONSISTENT: {
        **_refused(_out(None, aborts=True, source=_H, doubt=True)),
        _NONE: Cell((Do.DOUBT,), _NONE, "5.3", why="It did the opposite of the outcome."),
        _PREPARED: Cell((Do.DOUBT,), _PREPARED, "5.3", aborts=True, why="It did what it was not told to."),
        _COMMITTING: replace(_doubt(_COMMITTING, "It rolled back what it was told to commit."), source="5.3"),
        _ABORTING: replace(_doubt(_ABORTING, "It committed what it was told to roll back."), source="5.3"),
    },
    Order.PREPARE: {**_keep(), _ACTIVE: Cell((Do.SEND_PREPARE,), _PREPARING, _T)},
    Order.COMMIT: {**_keep(), _PREPARED: Cell((Do.SEND_COMMIT,), _COMMITTING, _T)},
    Order.ROLL_BACK: {
        **_keep(),
        _ACTIVE: Cell((Do.SEND_ROLLBACK,), _ABORTING, _T),
        _PREPARING: Cell((Do.STOP, Do.SEND_ROLLBACK), _ABORTING, _T),
        _PREPARED: Cell((Do.SEND_ROLLBACK,), _ABORTING, _T),
        _COMMITTING: _ignore(_COMMITTING, "It is decided: Commit."),
    },
    Order.RESEND: {
        **{seat: _ignore(seat, "Nothing is awaited of it.") for seat in Seat},
        _PREPARING: Cell((Do.SEND_PREPARE,), _PREPARING, _T),
        _COMMITTING: Cell((Do.SEND_COMMIT,), _COMMITTING, _T),
        # Presumed abort would let us be silent. Told again, an unprepared participant frees its locks sooner.
        _ABORTING: Cell((Do.SEND_ROLLBACK,), _ABORTING, _H),
    },
    Order.GIVE_UP: {
        **{seat: _ignore(seat, "Nothing is awaited of it.", _H) for seat in Seat},
        _COMMITTING: Cell((Do.STOP, Do.FORGET), _NONE, _H),
        _ABORTING: Cell((Do.STOP, Do.FORGET), _NONE, _H),
    },
}

_SENDS = {Do.SEND_PREPARE: Note.PREPARE, Do.SEND_COMMIT: Note.COMMIT, Do.SEND_ROLLBACK: Note.ROLLBACK}
_FAULTS = {Do.INVALID_STATE: FaultCode.INVALID_STATE, Do.UNKNOWN_TRANSACTION: FaultCode.UNKNOWN_TRANSACTION}
_KNOWN_FAULTS = frozenset({FaultCode.INVALID_STATE, FaultCode.UNKNOWN_TRANSACTION, FaultCode.INCONSISTENT})
_PLAIN = {Do.STOP: ActKind.STOP, Do.FORGET: ActKind.FORGET, Do.IGNORE: ActKind.IGNORE}


def as_row(inbound: Inbound) -> Inbound:
    """The row that an inbound message has. Faults without a row of their own say that the peer cannot go on, too."""
    if isinstance(inbound, FaultCode) and inbound not in _KNOWN_FAULTS:
        return FaultCode.INVALID_STATE
    return inbound


def cell(inbound: Inbound, seat: Seat, protocol: Protocol | None = None) -> Cell:
    """The cell for a participant of `protocol`; None = nobody knows which: it may be a durable one.

    Raises KeyError for a notification that participants do not send (Prepare, Commit, Rollback).
    """
    found = TABLE[as_row(inbound)][seat]
    return found.volatile if found.volatile is not None and protocol is Protocol.VOLATILE else found


def after(found: Cell) -> Seat:
    """The seat once all that the cell brings about is done: who rolls the transaction back is rolled back with it."""
    return Seat.ABORTING if found.aborts and found.to is not Seat.NONE else found.to


def move(partaker: Partaker, inbound: Inbound) -> tuple[Partaker, Acts, bool]:
    """The partaker after `inbound`, what follows, and True when the whole transaction is to be rolled back."""
    found = cell(inbound, partaker.seat, partaker.protocol)
    acts = tuple(_act(do, partaker.key, found, inbound) for do in found.does if do is not Do.VOTE)
    return replace(partaker, seat=found.to, vote=found.vote or partaker.vote), acts, found.aborts


def _act(do: Do, key: str, found: Cell, inbound: Inbound) -> Act:
    if do in _SENDS:
        return Act(ActKind.SEND, key, note=_SENDS[do], awaits=found.to is not Seat.NONE)
    if do in _FAULTS:
        return Act(ActKind.FAULT, key, fault=_FAULTS[do], reason=found.why)
    if do is Do.DOUBT:
        cause = HEURISTIC_OUTCOME if inbound is FaultCode.INCONSISTENT else PEER_REFUSED
        return Act(ActKind.DOUBT, key, cause=cause, reason=found.why)
    return Act(_PLAIN[do], key, reason=found.why if do is Do.IGNORE else "")
