"""The whole transaction: volatile before durable, the decision, the outcome, and the superior of a subordinate one.

`TABLE` says what each event does in each phase (protocols 5.4, the paragraph on order; 5.5 for what a superior says).
`TURNS` are the moves that the answers of participants bring about: votes, the outcome, the end (5.4 and 5.6).
[H] marks what no source says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from messaging.protocol.atomic.seats import Order, move
from messaging.protocol.atomic.transaction import (
    HEURISTIC_OUTCOME,
    PEER_REFUSED,
    Act,
    ActKind,
    Acts,
    Event,
    Kind,
    Partaker,
    Step,
    Transaction,
)
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Seat
from messaging.protocol.errors import IllegalTransition

Apply = Callable[[Transaction, Event], Step]


@dataclass(frozen=True, slots=True)
class Move:
    """One cell: how it is done, and where it may lead."""

    apply: Apply
    targets: frozenset[Phase]
    source: str


class Turn(StrEnum):
    """What the answers of participants add up to."""

    VOLATILE_VOTED = "every volatile vote is in"
    ALL_VOTED = "every vote is in"
    VOTED_AGAINST = "a participant cannot commit"
    ALL_ANSWERED = "everybody has answered"


def _ignore(key: str, reason: str) -> Acts:
    return (Act(ActKind.IGNORE, key, reason=reason),)


# What people, initiators and timers do


def _enlist(transaction: Transaction, event: Event) -> Step:
    why = _cannot_enlist(transaction, event)
    if why:
        return Step(transaction, (_cannot_register(event, why),))
    new = Partaker(event.key, event.protocol or Protocol.DURABLE, local=event.local)
    transaction = replace(transaction, partakers=(*transaction.partakers, new))
    if transaction.phase is Phase.PREPARING_VOLATILE and new.votes and new.protocol is Protocol.VOLATILE:
        return Step(*order(transaction, Order.PREPARE, lambda one: one.key == new.key))
    return Step(transaction)


def _cannot_enlist(transaction: Transaction, event: Event) -> str:
    if transaction.partaker(event.key) is not None:
        return "It takes part already."
    if transaction.subordinate and event.local:
        return "What this hub does itself cannot be prepared, and in this transaction another coordinator decides."
    if event.protocol is Protocol.COMPLETION:
        if transaction.subordinate:
            return "Another coordinator completes this transaction."
        if transaction.phase is not Phase.ACTIVE:
            return "The transaction is being completed."
    return ""


def _cannot_register(event: Event, why: str) -> Act:
    return Act(ActKind.FAULT, event.key, fault=FaultCode.CANNOT_REGISTER, reason=why)


def _too_late(transaction: Transaction, event: Event) -> Step:
    return Step(transaction, (_cannot_register(event, "Durable participants are being prepared, or it is decided."),))


def _start(transaction: Transaction, event: Event) -> Step:
    transaction = replace(transaction, phase=Phase.PREPARING_VOLATILE)
    transaction, acts = order(transaction, Order.PREPARE, lambda one: one.protocol is Protocol.VOLATILE)
    further = advance(transaction)
    return Step(further.transaction, (*acts, *further.acts))


def _abort(transaction: Transaction, event: Event) -> Step:
    return roll_back(transaction)


def _under_way(transaction: Transaction, event: Event) -> Step:
    return Step(transaction, _ignore(event.key, "It is under way."))


def _too_late_to_expire(transaction: Transaction, event: Event) -> Step:
    return Step(transaction, _ignore("", "Time does not change what is decided, or what a superior decides."))


def _tell(transaction: Transaction, event: Event) -> Step:
    """An initiator asks again, or too late: what became of it."""
    committed = transaction.phase in (Phase.COMMITTING, Phase.COMMITTED)
    if not event.key:
        return Step(transaction, _ignore("", f"It is {transaction.phase} already."))
    note = Note.COMMITTED if committed else Note.ABORTED
    return Step(transaction, (Act(ActKind.OUTCOME, event.key, note=note),))


def _refuse_rollback(transaction: Transaction, event: Event) -> Step:
    why = "The transaction is committed; it cannot be rolled back any more."
    if not event.key:
        raise IllegalTransition(transaction.phase, event.kind, why)
    return Step(transaction, (Act(ActKind.FAULT, event.key, fault=FaultCode.INVALID_STATE, reason=why),))


def _decided(transaction: Transaction, event: Event) -> Step:
    return commit(transaction)


# What a superior says (5.5), and what a person says in its place


def _vote_again(transaction: Transaction, event: Event) -> Step:
    return Step(transaction, (Act(ActKind.VOTE, note=Note.PREPARED, awaits=True),))


def _prepared_late(transaction: Transaction, event: Event) -> Step:
    """A repeated Prepare after the outcome. One that a person committed still waits for the superior's word."""
    if transaction.settled is Phase.COMMITTED:
        return _vote_again(transaction, event)
    if transaction.phase is Phase.COMMITTING:
        return _under_way(transaction, event)
    return Step(transaction, (Act(ActKind.VOTE, note=Note.ABORTED),))


def _superior_commits(transaction: Transaction, event: Event) -> Step:
    committing = commit(transaction)
    return Step(committing.transaction, (Act(ActKind.STOP), *committing.acts))


def _commit_unasked(transaction: Transaction, event: Event) -> Step:
    """Commit without a vote: nothing of ours is prepared, so nothing of ours can be committed."""
    fault = Act(ActKind.FAULT, fault=FaultCode.INVALID_STATE, reason="It has not voted Prepared; it is rolled back.")
    ended = roll_back(transaction, tell_superior=False)
    return Step(ended.transaction, (fault, *ended.acts))


def _commit_again(transaction: Transaction, event: Event) -> Step:
    if transaction.settled is not None:  # a person decided the same before
        transaction = replace(transaction, settled=None)
        first: Acts = (Act(ActKind.STOP),)
    else:
        first = ()
    if transaction.phase is Phase.COMMITTED:
        return Step(transaction, (*first, Act(ActKind.VOTE, note=Note.COMMITTED)))
    return Step(transaction, first or _ignore("", "It is under way."))


def _commit_of_aborted(transaction: Transaction, event: Event) -> Step:
    """T40. Where the outcome is forgotten the None column answers Committed; this row remembers that it is not."""
    if transaction.settled is None and transaction.phase is Phase.ABORTING:
        why = "It is being rolled back."
        return Step(transaction, (Act(ActKind.FAULT, fault=FaultCode.INVALID_STATE, reason=why),))
    return Step(transaction, _contradiction("It is rolled back here, and the superior commits."))


def _contradiction(why: str) -> Acts:
    return (
        Act(ActKind.STOP),
        Act(ActKind.FAULT, fault=FaultCode.INCONSISTENT, reason=why),
        Act(ActKind.DOUBT, cause=HEURISTIC_OUTCOME, reason=why),
    )


def _rollback_of_committed(transaction: Transaction, event: Event) -> Step:
    if transaction.settled is not None:
        return Step(transaction, _contradiction("It is committed here, and the superior rolls back."))
    if transaction.phase is Phase.COMMITTED:
        return Step(transaction, (Act(ActKind.VOTE, note=Note.ABORTED),))  # a repeat: the None column
    why = "The superior said Commit before."
    return Step(transaction, (Act(ActKind.FAULT, fault=FaultCode.INVALID_STATE, reason=why),))


def _rollback_again(transaction: Transaction, event: Event) -> Step:
    return Step(replace(transaction, settled=None), (Act(ActKind.VOTE, note=Note.ABORTED),))


def _superior_gone(transaction: Transaction, event: Event) -> Step:
    return roll_back(transaction, tell_superior=False)


def _superior_refuses(transaction: Transaction, event: Event) -> Step:
    if event.fault is FaultCode.UNKNOWN_TRANSACTION:  # T39
        return roll_back(transaction, tell_superior=False)
    why = "The superior answers with a fault, and only it knows the outcome."
    return Step(transaction, (Act(ActKind.DOUBT, cause=PEER_REFUSED, reason=why),))


def _fault_too_late(transaction: Transaction, event: Event) -> Step:
    if transaction.settled is Phase.COMMITTED and event.fault is FaultCode.UNKNOWN_TRANSACTION:
        why = "It is committed here, and the superior knows nothing of it: elsewhere it is rolled back."
        return Step(transaction, (Act(ActKind.STOP), Act(ActKind.DOUBT, cause=HEURISTIC_OUTCOME, reason=why)))
    return Step(transaction, _ignore("", "A fault does not change the outcome."))


def _settled(transaction: Transaction, event: Event) -> Step:
    """Rolled back, the superior is told so. Committed, it is asked on: its word shows whether that was right."""
    if event.outcome is Phase.COMMITTED:
        return commit(replace(transaction, settled=Phase.COMMITTED))
    return roll_back(replace(transaction, settled=Phase.ABORTED))


_K, _P = Kind, Phase
_VOTING = (_P.PREPARING_VOLATILE, _P.PREPARING_DURABLE)
_STARTED = frozenset({*_VOTING, _P.COMMITTED})
_ROLLED_BACK = frozenset({_P.ABORTING, _P.ABORTED})
_ABORTING, _COMMITTING = frozenset({_P.ABORTING}), frozenset({_P.COMMITTING})
_DONE = frozenset({_P.COMMITTING, _P.COMMITTED})


def _row(cells: Mapping[tuple[Phase, ...], tuple[Apply, frozenset[Phase] | None, str]]) -> Mapping[Phase, Move]:
    """None as targets: it stays where it is."""
    row = {}
    for phases, (apply, targets, source) in cells.items():
        for phase in phases:
            row[phase] = Move(apply, frozenset({phase}) if targets is None else targets, source)
    return {phase: row[phase] for phase in Phase if phase in row}


_UNDECIDED = (_P.ACTIVE, *_VOTING, _P.DECIDING)
_AFTER = (_P.COMMITTING, _P.ABORTING, _P.COMMITTED, _P.ABORTED)

# An event that is not in a row is refused: `REFUSALS` says why.
TABLE: Mapping[Kind, Mapping[Phase, Move]] = {
    _K.ENLIST: _row(
        {
            (_P.ACTIVE, _P.PREPARING_VOLATILE): (_enlist, None, "5.4"),
            (_P.PREPARING_DURABLE, _P.DECIDING, _P.PREPARED, *_AFTER): (_too_late, None, "5.3"),
        }
    ),
    _K.COMMIT_ASKED: _row(
        {
            (_P.ACTIVE,): (_start, _STARTED | {_P.DECIDING}, "5.4"),
            (*_VOTING, _P.DECIDING): (_under_way, None, "5.4"),
            _AFTER: (_tell, None, "5.4"),
        }
    ),
    _K.ROLLBACK_ASKED: _row(
        {
            (_P.ACTIVE, _P.DECIDING): (_abort, _ROLLED_BACK, "5.4"),
            _VOTING: (_abort, _ABORTING, "5.4"),
            (_P.COMMITTING, _P.COMMITTED): (_refuse_rollback, None, "5.4"),
            (_P.ABORTING, _P.ABORTED): (_tell, None, "5.4"),
        }
    ),
    _K.EXPIRED: _row(
        {
            (_P.ACTIVE, _P.DECIDING): (_abort, _ROLLED_BACK, "5.4"),
            _VOTING: (_abort, _ABORTING, "5.4"),
            (_P.PREPARED, *_AFTER): (_too_late_to_expire, None, "5.4"),
        }
    ),
    _K.DECIDED: _row({(_P.DECIDING,): (_decided, _DONE, "5.4")}),
    _K.REFUSED: _row({(_P.DECIDING,): (_abort, _ROLLED_BACK, "5.6")}),
    _K.SUPERIOR_PREPARE: _row(
        {
            (_P.ACTIVE,): (_start, _STARTED, "5.5"),
            _VOTING: (_under_way, None, "5.5"),
            (_P.PREPARED,): (_vote_again, None, "5.5"),
            _AFTER: (_prepared_late, None, "5.5"),
        }
    ),
    _K.SUPERIOR_COMMIT: _row(
        {
            (_P.ACTIVE,): (_commit_unasked, _ROLLED_BACK, "5.5"),
            _VOTING: (_commit_unasked, _ABORTING, "5.5"),
            (_P.PREPARED,): (_superior_commits, _COMMITTING, "5.5"),
            (_P.COMMITTING, _P.COMMITTED): (_commit_again, None, "5.5"),
            (_P.ABORTING, _P.ABORTED): (_commit_of_aborted, None, "5.5, 5.3"),
        }
    ),
    _K.SUPERIOR_ROLLBACK: _row(
        {
            (_P.ACTIVE,): (_abort, _ROLLED_BACK, "5.5"),
            (*_VOTING, _P.PREPARED): (_abort, _ABORTING, "5.5"),
            (_P.COMMITTING, _P.COMMITTED): (_rollback_of_committed, None, "5.5, 5.3"),
            (_P.ABORTING, _P.ABORTED): (_rollback_again, None, "5.5"),
        }
    ),
    _K.SUPERIOR_FAULT: _row(
        {
            (_P.ACTIVE,): (_superior_gone, _ROLLED_BACK, "5.5"),
            _VOTING: (_superior_gone, _ABORTING, "5.5"),
            (_P.PREPARED,): (_superior_refuses, _ABORTING | {_P.PREPARED}, "5.5"),
            _AFTER: (_fault_too_late, None, "5.5"),
        }
    ),
    _K.SETTLED: _row({(_P.PREPARED,): (_settled, _COMMITTING | _ABORTING, "[H]")}),
}

ROOT_ONLY = frozenset({_K.COMMIT_ASKED, _K.DECIDED, _K.REFUSED})
SUBORDINATE_ONLY = frozenset(
    {_K.SUPERIOR_PREPARE, _K.SUPERIOR_COMMIT, _K.SUPERIOR_ROLLBACK, _K.SUPERIOR_FAULT, _K.SETTLED}
)

# Why the cells that are missing above are refused, in words for a person.
REFUSALS: Mapping[Kind, str] = {
    _K.COMMIT_ASKED: "Another coordinator completes this transaction.",
    _K.ROLLBACK_ASKED: "It has voted Prepared; the coordinator above it decides. Settle it if that one cannot answer.",
    _K.DECIDED: "Not every vote is in, or the transaction is over.",
    _K.REFUSED: "Not every vote is in, or the transaction is over.",
    _K.SUPERIOR_PREPARE: "No other coordinator is above this transaction.",
    _K.SUPERIOR_COMMIT: "No other coordinator is above this transaction.",
    _K.SUPERIOR_ROLLBACK: "No other coordinator is above this transaction.",
    _K.SUPERIOR_FAULT: "No other coordinator is above this transaction.",
    _K.SETTLED: "Only a transaction that voted Prepared and waits for its coordinator can be settled by a person.",
}

# What answers of participants lead to, beside the events above.
TURNS: Mapping[Phase, Mapping[Turn, frozenset[Phase]]] = {
    _P.ACTIVE: {Turn.VOTED_AGAINST: _ROLLED_BACK},
    _P.PREPARING_VOLATILE: {
        Turn.VOLATILE_VOTED: frozenset({_P.PREPARING_DURABLE}),
        Turn.ALL_VOTED: frozenset({_P.DECIDING, _P.PREPARED, _P.COMMITTED}),
        Turn.VOTED_AGAINST: _ROLLED_BACK,
    },
    _P.PREPARING_DURABLE: {
        Turn.ALL_VOTED: frozenset({_P.DECIDING, _P.PREPARED, _P.COMMITTED}),
        Turn.VOTED_AGAINST: _ROLLED_BACK,
    },
    _P.DECIDING: {Turn.VOTED_AGAINST: _ABORTING},
    _P.COMMITTING: {Turn.ALL_ANSWERED: frozenset({_P.COMMITTED})},
    _P.ABORTING: {Turn.ALL_ANSWERED: frozenset({_P.ABORTED})},
}


def moved(transaction: Transaction, event: Event) -> Step:
    """The transaction after an event that is about it as a whole. Raises IllegalTransition when it is refused."""
    for_other = SUBORDINATE_ONLY if not transaction.subordinate else ROOT_ONLY
    cell = TABLE[event.kind].get(transaction.phase)
    if cell is None or event.kind in for_other:
        raise IllegalTransition(transaction.phase, event.kind, REFUSALS[event.kind])
    return cell.apply(transaction, event)


def voted_against(transaction: Transaction) -> Step:
    """A participant cannot commit, and nothing is decided yet."""
    if transaction.phase in TABLE[Kind.EXPIRED] and transaction.phase in _UNDECIDED:
        return roll_back(transaction)
    why = "A participant that voted Prepared cannot commit any more, and the outcome is not ours to change."
    return Step(transaction, (Act(ActKind.DOUBT, cause=PEER_REFUSED, reason=why),))


def order(transaction: Transaction, order: Order, which: Callable[[Partaker], bool]) -> tuple[Transaction, Acts]:
    acts: list[Act] = []
    for one in transaction.partakers:
        if one.votes and one.seat is not Seat.NONE and which(one):
            moved, following, _ = move(one, order)
            transaction = transaction.put(moved)
            acts += following
    return transaction, tuple(acts)


def _leave(transaction: Transaction, outcome: Note) -> tuple[Transaction, Acts]:
    """Initiators are told, and what this hub does itself is done or undone in the transaction at hand."""
    acts: list[Act] = []
    for one in transaction.partakers:
        if one.seat is Seat.NONE or one.votes:
            continue
        told = one.protocol is Protocol.COMPLETION
        acts.append(Act(ActKind.OUTCOME, one.key, note=outcome) if told else Act(ActKind.FORGET, one.key))
        transaction = transaction.put(replace(one, seat=Seat.NONE))
    return transaction, tuple(acts)


def roll_back(transaction: Transaction, *, tell_superior: bool = True) -> Step:
    """Rollback to the rest, Aborted to the initiators and to the superior. Nothing has to be logged (5.6)."""
    first: Acts = (Act(ActKind.STOP),) if transaction.phase is Phase.PREPARED else ()
    transaction, rollbacks = order(transaction, Order.ROLL_BACK, lambda one: True)
    transaction, told = _leave(transaction, Note.ABORTED)
    last: Acts = (Act(ActKind.VOTE, note=Note.ABORTED),) if transaction.subordinate and tell_superior else ()
    ended = finish(replace(transaction, phase=Phase.ABORTING))
    return Step(ended.transaction, (*first, *rollbacks, *told, *last, *ended.acts))


def finish(transaction: Transaction) -> Step:
    """The end, when nobody's answer to the outcome is missing."""
    if any(one.votes and one.seat is not Seat.NONE for one in transaction.partakers):
        return Step(transaction)
    if transaction.phase is Phase.ABORTING:
        return Step(replace(transaction, phase=Phase.ABORTED), (Act(ActKind.END),))
    if transaction.phase is not Phase.COMMITTING:
        return Step(transaction)
    told = transaction.subordinate and transaction.settled is None
    vote: Acts = (Act(ActKind.VOTE, note=Note.COMMITTED),) if told else ()
    return Step(replace(transaction, phase=Phase.COMMITTED), (*vote, Act(ActKind.END)))


def advance(transaction: Transaction) -> Step:
    """Goes on as far as the votes allow: all volatile ones before the first durable Prepare."""
    acts: Acts = ()
    if transaction.phase is Phase.PREPARING_VOLATILE and not _owes(transaction, Protocol.VOLATILE):
        transaction = replace(transaction, phase=Phase.PREPARING_DURABLE)
        transaction, acts = order(transaction, Order.PREPARE, lambda one: one.protocol is Protocol.DURABLE)
    if transaction.phase is Phase.PREPARING_DURABLE and not _owes(transaction):
        voted = _all_voted(transaction)
        return Step(voted.transaction, (*acts, *voted.acts))
    ended = finish(transaction)
    return Step(ended.transaction, (*acts, *ended.acts))


def _owes(transaction: Transaction, protocol: Protocol | None = None) -> bool:
    """True while a vote is missing; with a protocol, one of its participants'."""
    return any(
        one.votes and one.seat in (Seat.ACTIVE, Seat.PREPARING) and protocol in (None, one.protocol)
        for one in transaction.partakers
    )


def _all_voted(transaction: Transaction) -> Step:
    has_voters = any(one.votes and one.seat is Seat.PREPARED for one in transaction.partakers)
    if transaction.subordinate:
        if has_voters:
            vote = Act(ActKind.VOTE, note=Note.PREPARED, awaits=True)
            return Step(replace(transaction, phase=Phase.PREPARED), (vote,))
        ended = replace(transaction, phase=Phase.COMMITTED)
        return Step(ended, (Act(ActKind.VOTE, note=Note.READ_ONLY), Act(ActKind.END)))
    if has_voters or any(one.local and one.seat is not Seat.NONE for one in transaction.partakers):
        return Step(replace(transaction, phase=Phase.DECIDING), (Act(ActKind.DECIDE),))
    # Everybody was read-only: no second phase, and no commit record.
    transaction, told = _leave(replace(transaction, phase=Phase.COMMITTED), Note.COMMITTED)
    return Step(transaction, (*told, Act(ActKind.END)))


def commit(transaction: Transaction) -> Step:
    """The record is there. Initiators may hear of it before the participants have answered."""
    transaction = replace(transaction, phase=Phase.COMMITTING, decided=True)
    transaction, commits = order(transaction, Order.COMMIT, lambda one: True)
    transaction, told = _leave(transaction, Note.COMMITTED)
    ended = finish(transaction)
    return Step(ended.transaction, (*commits, *told, *ended.acts))
