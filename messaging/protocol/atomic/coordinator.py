"""The coordinator of one atomic transaction (spec 5, WS-AT; protocols 5.4 and 5.6), sans-I/O.

`step(transaction, event)` is a pure function. `seats.TABLE` is every cell of a relationship, `phases.TABLE` every move
of the whole. Nobody is told Commit unless the step before wrote the commit record (`ActKind.DECIDE`, `Kind.DECIDED`),
and what is not known is aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from messaging.protocol.atomic import phases
from messaging.protocol.atomic.seats import Inbound, Order, cell, move
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
from messaging.protocol.atomic.words import FaultCode, Note, Protocol, Seat, Vote
from messaging.protocol.errors import IllegalTransition

__all__ = (
    "HEURISTIC_OUTCOME",
    "PEER_REFUSED",
    "Act",
    "ActKind",
    "Acts",
    "Event",
    "Kind",
    "Partaker",
    "Step",
    "Transaction",
    "step",
    "unknown",
)

OF_PARTICIPANTS = frozenset({Note.PREPARED, Note.READ_ONLY, Note.ABORTED, Note.COMMITTED, Note.REPLAY})
OF_INITIATORS: Mapping[Note, Kind] = {Note.COMMIT: Kind.COMMIT_ASKED, Note.ROLLBACK: Kind.ROLLBACK_ASKED}
_DEPRECATED = "Replay is deprecated in 2006/06; Prepared says the same."


def step(transaction: Transaction, event: Event) -> Step:
    """The transaction after `event`, and what has to be done.

    Raises IllegalTransition, with nothing changed, for what a person or a service may not do now (never for what the
    wire or a timer brings), and KeyError for a partaker that the transaction does not have: see `unknown`.
    """
    about = _ABOUT_PARTAKERS.get(event.kind)
    partaker = transaction.partaker(event.key)
    if partaker is None and event.key and event.kind is not Kind.ENLIST:
        raise KeyError(event.key)
    if about is None:
        return phases.moved(transaction, event)
    if partaker is None:
        raise KeyError("An event about a partaker names it.")
    return about(transaction, partaker, event)


def _received(transaction: Transaction, partaker: Partaker, event: Event) -> Step:
    note = event.note
    if note is not None and note in OF_INITIATORS and partaker.protocol is Protocol.COMPLETION:
        return phases.moved(transaction, replace(event, kind=OF_INITIATORS[note]))
    if note is None or not partaker.votes or note not in OF_PARTICIPANTS:
        return Step(transaction, (_not_yours(partaker.key, note),))
    if note in (Note.PREPARED, Note.REPLAY) and _still_to_commit(transaction, partaker):
        # [H] Presumed abort is for what is forgotten. This outcome is known, and a Rollback would contradict it.
        told: Step = Step(transaction, (Act(ActKind.SEND, partaker.key, note=Note.COMMIT),))
    else:
        told = _inbound(transaction, partaker, note)
    if note is Note.REPLAY and transaction.version != "2004/10":
        return Step(told.transaction, (Act(ActKind.REMARK, partaker.key, reason=_DEPRECATED), *told.acts))
    return told


def _still_to_commit(transaction: Transaction, partaker: Partaker) -> bool:
    return transaction.decided and partaker.seat is Seat.NONE and partaker.vote is Vote.PREPARED


def _not_yours(key: str, note: Note | None) -> Act:
    why = f"{note or 'This'} is not a message of a participant of this protocol."
    return Act(ActKind.FAULT, key, fault=FaultCode.INVALID_STATE, reason=why)


def _fault_received(transaction: Transaction, partaker: Partaker, event: Event) -> Step:
    if not partaker.votes or event.fault is None:
        return Step(transaction, (Act(ActKind.IGNORE, partaker.key, reason="An initiator's fault changes nothing."),))
    return _inbound(transaction, partaker, event.fault)


def _inbound(transaction: Transaction, partaker: Partaker, inbound: Inbound) -> Step:
    changed, acts, aborts = move(partaker, inbound)
    after = transaction.put(changed)
    further = phases.voted_against(after) if aborts else phases.advance(after)
    return Step(further.transaction, (*acts, *further.acts))


def _resend(transaction: Transaction, partaker: Partaker, event: Event) -> Step:
    if not partaker.votes:
        return Step(transaction, (Act(ActKind.IGNORE, partaker.key, reason="Nothing is awaited of it."),))
    return _inbound(transaction, partaker, Order.RESEND)


def _forgotten(transaction: Transaction, partaker: Partaker, event: Event) -> Step:
    """[H] The relationship ends without an answer. It may have done the opposite of the outcome: a person says so."""
    if not partaker.votes or cell(Order.GIVE_UP, partaker.seat).to is partaker.seat:
        why = "It is not told an outcome. Roll the transaction back instead, or wait for its answer."
        raise IllegalTransition(partaker.seat, event.kind, why)
    return _inbound(transaction, partaker, Order.GIVE_UP)


_ABOUT_PARTAKERS: Mapping[Kind, Callable[[Transaction, Partaker, Event], Step]] = {
    Kind.RECEIVED: _received,
    Kind.FAULT_RECEIVED: _fault_received,
    Kind.RESEND: _resend,
    Kind.FORGOTTEN: _forgotten,
}


def unknown(note: Note, protocol: Protocol | None = None, version: str = "2006/06") -> Acts:
    """The None column, for a message about something that is not there at all.

    `protocol` None: nobody knows which; it is answered like a durable participant, which must not be told
    UnknownTransaction (5.4). Nor may an initiator be told Aborted: it may have been committed and forgotten (5.3).
    """
    if note in OF_INITIATORS:
        why = "No such transaction is known here."
        return (Act(ActKind.FAULT, fault=FaultCode.UNKNOWN_TRANSACTION, reason=why),)
    if note not in OF_PARTICIPANTS:
        return (_not_yours("", note),)
    _, acts, _ = move(Partaker("", protocol or Protocol.DURABLE, Seat.NONE), note)
    acts = tuple(
        Act(ActKind.ANSWER, note=act.note, reason="Presumed abort.") if act.kind is ActKind.SEND else act
        for act in acts
    )
    if note is Note.REPLAY and version != "2004/10":
        return (Act(ActKind.REMARK, reason=_DEPRECATED), *acts)
    return acts
