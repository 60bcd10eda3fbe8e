"""Runs the tables of the coordinator for one event, and makes rows and messages of what they say.

Call inside a transaction that holds the lock of the Coordination (`opening.locked`). Everything of one event is in one
commit: seats, the commit record, messages of ours, what the hub does itself. So a process that dies leaves all of it or
nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

from django.db import Error as DatabaseError
from django.db import transaction

from messaging import dispatch
from messaging.journal import events
from messaging.models import Coordination, Enlistment, Event
from messaging.profiles.wsat import delivering, in_doubt, messages, opening, outgoing
from messaging.profiles.wsat.opening import LocalWorkFailed
from messaging.protocol.atomic import coordinator
from messaging.protocol.atomic.coordinator import Act, ActKind, Kind, Partaker, Step, Transaction
from messaging.protocol.atomic.words import Note, Phase, Protocol, Seat, Vote
from messaging.protocol.ws.messages import WsMessage
from messaging.protocol.ws.rules import reply_targets
from partners.terms import Terms

log = logging.getLogger(__name__)

_ABORTS = frozenset({Phase.ABORTING, Phase.ABORTED})
_COMMITS = frozenset({Phase.COMMITTING, Phase.COMMITTED})
_TIMED = frozenset({Phase.ACTIVE, Phase.PREPARING_VOLATILE, Phase.PREPARING_DURABLE})
_SEAT_OF_SUPERIOR = {
    Phase.ACTIVE: Seat.ACTIVE,
    Phase.PREPARING_VOLATILE: Seat.PREPARING,
    Phase.PREPARING_DURABLE: Seat.PREPARING,
    Phase.DECIDING: Seat.PREPARING,
    Phase.PREPARED: Seat.PREPARED,
    Phase.COMMITTING: Seat.COMMITTING,
    Phase.ABORTING: Seat.ABORTING,
    Phase.COMMITTED: Seat.NONE,
    Phase.ABORTED: Seat.NONE,
}
_FROM_SUPERIOR = frozenset({Kind.SUPERIOR_PREPARE, Kind.SUPERIOR_COMMIT, Kind.SUPERIOR_ROLLBACK, Kind.SUPERIOR_FAULT})
_FROM_PEER = frozenset({Kind.RECEIVED, Kind.FAULT_RECEIVED})


Begun = tuple[list[Enlistment], Step]


@dataclass(frozen=True, slots=True)
class AtHand:
    """The message that the event is about: faults are answers to it. `enlistment`: whose it is, if that is known."""

    message: WsMessage
    terms: Terms
    enlistment: Enlistment | None = None


def advance(
    coordination: Coordination,
    event: coordinator.Event,
    now: datetime,
    written: list[Event],
    *,
    cause: str = "",
    detail: str = "",
    at_hand: AtHand | None = None,
    begun: Begun | None = None,
) -> Step:
    """Feeds one event to the transaction and does what follows. Events for webhooks are added to `written`.

    `cause` and `detail` are kept if the transaction aborts for it. `begun`: the rows, and what the tables say of the
    event, where somebody has asked them already. Raises IllegalTransition for verbs that its phase
    does not allow; then the caller's transaction must be rolled back.
    """
    moved = _moved(coordination, event, now, written, cause=cause, detail=detail, at_hand=at_hand, begun=begun)
    step = moved.step
    if any(act.kind is ActKind.DECIDE for act in step.acts):
        if delivering.runs_here(coordination):
            dispatch.wake_on_commit(dispatch.TRANSACTIONS)
        else:
            step = decide(coordination, now, written)
    _told(coordination, moved, now, written)
    return step


def loaded(coordination: Coordination, rows: list[Enlistment], at_hand: AtHand | None = None) -> Transaction:
    """The transaction as the tables know it."""
    superior = next((row for row in rows if row.superior), None)
    return Transaction(
        phase=Phase(coordination.phase),
        partakers=tuple(
            Partaker(
                key=row.pk.hex,
                protocol=Protocol(row.protocol),
                seat=Seat(row.seat),
                vote=Vote(row.vote) if row.vote else None,
                local=bool(row.local),
            )
            for row in rows
            if not row.superior
        ),
        subordinate=coordination.subordinate,
        decided=coordination.decided_at is not None,
        settled=_settled(superior),
        version=at_hand.terms.coordination_version if at_hand is not None else coordination.version,
    )


def _settled(superior: Enlistment | None) -> Phase | None:
    """What a person decided in place of the superior, until that one has agreed."""
    if superior is None or not superior.settled_as or superior.ended_at is not None:
        return None
    return Phase(superior.settled_as)


@dataclass(frozen=True, slots=True)
class _Moved:
    """One step that was written down. `doubts`, `relieved`: relationships of which there is doubt (with its cause and
    what to say), or no more; they are told last, for incidents are locked last.
    """

    step: Step
    doubts: list[tuple[Enlistment | None, str, str]]
    relieved: list[Enlistment]


def _told(coordination: Coordination, moved: _Moved, now: datetime, written: list[Event]) -> Step:
    for row in moved.relieved:
        in_doubt.cleared(coordination, row, now, written)
    for doubtful, cause, why in moved.doubts:
        in_doubt.doubt(coordination, doubtful, cause, why, now, written)
    return moved.step


def _moved(
    coordination: Coordination,
    event: coordinator.Event,
    now: datetime,
    written: list[Event],
    *,
    cause: str = "",
    detail: str = "",
    at_hand: AtHand | None = None,
    begun: Begun | None = None,
) -> _Moved:
    """Writes down what one event changes, but for what the hub decides upon it."""
    if begun is None:
        found = list(coordination.enlistments.order_by("id"))
        begun = found, coordinator.step(loaded(coordination, found, at_hand), event)
    rows, step = begun
    known = {row.pk.hex: row for row in rows}
    before = Phase(coordination.phase)
    after = step.transaction.phase
    aborts = after in _ABORTS and before not in _ABORTS
    superior = next((row for row in rows if row.superior), None)
    _move(coordination, known, superior, step.transaction, now)
    if aborts and not coordination.cause:
        coordination.cause, coordination.cause_detail = cause, detail
    coordination.save()

    doubts: list[tuple[Enlistment | None, str, str]] = []
    for act in step.acts:
        row = superior if act.key == "" else known.get(act.key)
        match act.kind:
            case ActKind.SEND | ActKind.VOTE:  # a vote goes to the superior
                assert row is not None and act.note is not None
                if why := _send(coordination, row, act.note, act.awaits, now):
                    doubts.append((row, in_doubt.ELSEWHERE, why))
            case ActKind.OUTCOME:
                assert row is not None and act.note is not None
                _send(coordination, row, act.note, False, now, relates_to=_asked(event, act, at_hand))
            case ActKind.FAULT:
                answer_with_fault(act, coordination, now, at_hand)
            case ActKind.STOP:
                if row is not None and _is_answered(event, act):
                    outgoing.answered(enlistment=row, now=now)
                elif row is not None:
                    outgoing.stop(enlistment=row, now=now)
            case ActKind.DOUBT:
                doubts.append((row, act.cause, act.reason))
            case _:
                pass  # FORGET, END: in the rows already; DECIDE: below; REMARK, IGNORE: for the note of the message

    if aborts:
        if superior is not None and not superior.peer_address:
            why = f"The transaction was rolled back before its superior had taken it. {coordination.cause_detail}"
            opening.cannot_create(coordination, superior, why.strip(), now)
        delivering.gave_up(coordination, now, written)
        data = opening.facts(coordination) | {"cause": coordination.cause, "detail": coordination.cause_detail}
        written.append(events.event("transaction.aborted", now, data=data))
    if after in _COMMITS and before not in _COMMITS:
        written.append(events.event("transaction.committed", now, data=opening.facts(coordination)))
    # The superior has spoken when its outcome is here, however long those below need for it.
    outcome_came = before is Phase.PREPARED and after is not before and event.kind in _FROM_SUPERIOR
    relieved = [row for row in rows if row.doubt and (row.seat == Seat.NONE or (row.superior and outcome_came))]
    return _Moved(step, doubts, relieved)


def decide(coordination: Coordination, now: datetime, written: list[Event]) -> Step:
    """All votes are in: what the hub does itself and the commit record are one commit, or the transaction aborts."""
    made: list[Event] = []
    try:
        with transaction.atomic():
            delivering.decide_locally(coordination, now, made)
            step = _told(coordination, _moved(coordination, coordinator.Event(Kind.DECIDED), now, made), now, made)
    except LocalWorkFailed as failure:
        cause, detail = failure.cause, failure.detail
    except DatabaseError as error:
        log.exception("cannot decide", extra={"action": "decide_failed", "coordination": str(coordination.pk)})
        cause, detail = "transaction_local_work", f"The commit record could not be written: {str(error)[:500]}"
    else:
        written.extend(made)
        return step
    coordination.refresh_from_db()
    moved = _moved(coordination, coordinator.Event(Kind.REFUSED), now, written, cause=cause, detail=detail)
    return _told(coordination, moved, now, written)


def remarks(step: Step) -> str:
    """What the tables say about a message that was ignored, or taken for something else."""
    said = [act.reason for act in step.acts if act.kind in (ActKind.REMARK, ActKind.IGNORE) and act.reason]
    return " ".join(said)[:255]


def _move(
    coordination: Coordination,
    known: dict[str, Enlistment],
    superior: Enlistment | None,
    after: Transaction,
    now: datetime,
) -> None:
    for partaker in after.partakers:
        row = known.get(partaker.key)
        if row is None:
            continue
        vote = partaker.vote.value if partaker.vote is not None else ""
        if (row.seat, row.vote) == (partaker.seat, vote):
            continue
        if vote and vote != row.vote:
            row.voted_at = now
        if partaker.seat is Seat.NONE and row.seat != Seat.NONE:
            row.ended_at = now
        row.seat, row.vote = partaker.seat.value, vote
        row.save(update_fields=["seat", "vote", "voted_at", "ended_at"])
    if after.decided and coordination.decided_at is None:
        coordination.decided_at = now
    moved = after.phase != coordination.phase
    if moved:
        coordination.phase = after.phase.value
        if after.phase in (Phase.COMMITTED, Phase.ABORTED):
            coordination.ended_at = now
    coordination.changed_at = now
    coordination.lock_version += 1
    if moved or coordination.phase != Phase.DECIDING:  # one that is held (`due.restored`) stays so
        coordination.due_at = _due(coordination, now)
    if superior is not None:
        _move_superior(superior, after, now)


def _move_superior(superior: Enlistment, after: Transaction, now: datetime) -> None:
    """What a person settled ends with the superior's own word, and only with that."""
    seat = _SEAT_OF_SUPERIOR[after.phase]
    over = after.settled is None and (seat is Seat.NONE or superior.settled_as != "")
    if superior.seat == seat and (superior.ended_at is not None or not over):
        return
    if seat is Seat.PREPARED and superior.seat != seat:
        superior.vote, superior.voted_at = Vote.PREPARED.value, now
    superior.seat = seat.value
    if over and superior.ended_at is None:
        superior.ended_at = now
    superior.save(update_fields=["seat", "vote", "voted_at", "ended_at"])


def _due(coordination: Coordination, now: datetime) -> datetime | None:
    if coordination.phase == Phase.DECIDING:
        return now
    return coordination.expires_at if coordination.phase in _TIMED else None


def _send(
    coordination: Coordination, row: Enlistment, note: Note, awaits: bool, now: datetime, relates_to: str = ""
) -> str:
    """A notification to where the peer said at registration. One that awaits an answer still goes out instead.

    Returns "", or why it has to wait in the outbox: the partner has moved meanwhile, and its agreement names another
    place. It goes out when the agreement's endpoint is corrected.
    """
    terms, to = messages.terms_of(row), messages.peer_epr(row)
    if terms is None or to is None:
        return ""  # the superior that has not told us yet where it is: presumed abort ends it there
    messages.tell(
        coordination=coordination,
        enlistment=row,
        terms=terms,
        kind=note.value,
        to=to,
        me=messages.own_epr(terms, messages.service_of(row), enlistment=row),
        now=now,
        relates_to=relates_to,
        awaits=awaits,
    )
    why = messages.may_use(to, terms)
    return f"{note} waits: {why} It goes out when the partner's endpoint is corrected." if why else ""


def answer_with_fault(act: Act, coordination: Coordination | None, now: datetime, at_hand: AtHand | None) -> None:
    """A fault goes to FaultTo, else to the registered endpoint (spec 5), of those whose address may be used.

    Whoever stored the message notes a FaultTo that is passed over (`unused_fault_to`).
    """
    if at_hand is None or act.fault is None:
        return
    row = at_hand.enlistment
    registered = messages.peer_epr(row) if row is not None else None
    to = messages.first_usable(reply_targets(at_hand.message, registered, fault=True), at_hand.terms)
    if to is None:
        return
    messages.tell_fault(
        coordination=coordination,
        enlistment=row,
        terms=at_hand.terms,
        to=to,
        code=act.fault,
        reason=act.reason,
        relates_to=at_hand.message.addressing.message_id,
        now=now,
    )


def unused_fault_to(step: Step, at_hand: AtHand) -> str:
    """What to note when a step answers with a fault and passes over the FaultTo of the message; "" otherwise."""
    if not any(act.kind is ActKind.FAULT for act in step.acts):
        return ""
    return messages.not_used("FaultTo", at_hand.message.addressing.fault_to, at_hand.terms)


def _asked(event: coordinator.Event, act: Act, at_hand: AtHand | None) -> str:
    """The MessageID of an initiator's Commit or Rollback that this outcome answers at once."""
    if at_hand is None or event.key != act.key:
        return ""
    return at_hand.message.addressing.message_id


def _is_answered(event: coordinator.Event, act: Act) -> bool:
    return (act.key == event.key and event.kind in _FROM_PEER) or (act.key == "" and event.kind in _FROM_SUPERIOR)
