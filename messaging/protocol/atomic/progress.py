"""How the answers of participants carry a transaction on: votes, the outcome, the end (protocols 5.4 and 5.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from messaging.protocol.atomic.seats import Order, move
from messaging.protocol.atomic.transaction import Act, ActKind, Acts, Partaker, Step, Transaction
from messaging.protocol.atomic.words import Note, Phase, Protocol, Seat


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
