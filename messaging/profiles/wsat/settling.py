"""What people decide about a relationship that is in doubt: heuristic outcomes (spec 5; protocols.md 5.3 and 5.5).

Every decision may contradict what the other side does; then data differs between the two, and nothing but people can
fix it. So each takes a reason, leaves an audit entry, and says beforehand what it can break.
"""

from __future__ import annotations

import uuid
from datetime import datetime

from django.db import transaction
from django.utils.translation import gettext as _

from messaging.exceptions import InvalidSubmission, WrongState
from messaging.journal import audit, events
from messaging.journal.audit import HEAVY_REASON, Actor
from messaging.models import Coordination, Enlistment, Event
from messaging.models.base import existing
from messaging.profiles.wsat import asking, changes, in_doubt, opening
from messaging.protocol.atomic import coordinator
from messaging.protocol.atomic.coordinator import Kind
from messaging.protocol.atomic.words import Phase, Seat
from rmhub import clock
from rmhub.language import gettext_lazy

COMMIT, ROLLBACK, FORGET = "commit", "rollback", "forget"
SETTLED = "transaction_settled"

WARNINGS = {
    COMMIT: gettext_lazy(
        "The superior coordinator has not said what the outcome is. If it rolls back, what is committed here stays "
        "committed while everybody else undid their part: compare the data of both sides afterwards."
    ),
    ROLLBACK: gettext_lazy(
        "The superior coordinator has not said what the outcome is. If it commits, what is rolled back here is missing "
        "while everybody else kept their part: compare the data of both sides afterwards."
    ),
    FORGET: gettext_lazy(
        "This participant is not asked any more. If it never learned the outcome, it keeps what it has locked, or "
        "decides for itself: make sure on its side that the outcome shown here was carried out."
    ),
}
_SEEN = gettext_lazy(
    "A contradiction of outcomes is marked as dealt with. Nothing is sent: the data of both sides stays as it is."
)
_OUTCOMES = {COMMIT: Phase.COMMITTED, ROLLBACK: Phase.ABORTED}


def settlements(enlistment: Enlistment) -> tuple[str, ...]:
    """The outcomes that a person may decide now."""
    if enlistment.superior:
        if enlistment.coordination.phase == Phase.PREPARED and not enlistment.settled_as:
            return (COMMIT, ROLLBACK)
        return (FORGET,) if enlistment.doubt else ()
    if enlistment.local:
        return ()
    if enlistment.seat in (Seat.COMMITTING, Seat.ABORTING):
        return (FORGET,)
    return (FORGET,) if enlistment.seat == Seat.NONE and enlistment.doubt else ()


def _awaited(enlistment: Enlistment) -> bool:
    """True for a participant of ours that was told an outcome and owes an answer."""
    return not enlistment.superior and enlistment.seat in (Seat.COMMITTING, Seat.ABORTING)


def warning(enlistment: Enlistment, outcome: str) -> str:
    """What that decision can break, for people."""
    if outcome == FORGET and not _awaited(enlistment):
        return _SEEN
    return WARNINGS[outcome]


def enlistment_settle(
    *,
    enlistment_id: uuid.UUID,
    outcome: str,
    actor: Actor,
    reason: str,
    expected_version: int | None = None,
) -> Enlistment:
    """Settles one relationship; returns it as it is then. `outcome` is one of `settlements`.

    commit, rollback: this hub is the participant, voted Prepared, and its superior is gone. forget: a participant of
    ours that was told the outcome never answers; or what was in doubt has been looked at. Raises NotFound, Stale,
    InvalidSubmission, WrongState.
    """
    audit.require_reason(reason, at_least=HEAVY_REASON)
    if outcome not in WARNINGS:
        raise InvalidSubmission({"outcome": [_("Choose one of {names}.").format(names=", ".join(WARNINGS))]})
    known = existing(Enlistment.objects.only("coordination_id"), enlistment_id)
    now = clock.now()
    with transaction.atomic():
        coordination = opening.locked(known.coordination_id)
        asking.stale(coordination, expected_version)
        enlistment = Enlistment.objects.get(pk=enlistment_id)
        enlistment.coordination = coordination
        possible = settlements(enlistment)
        if outcome not in possible:
            raise WrongState(
                _("That cannot be decided about a participant that is {seat} in a transaction that is {phase}.").format(
                    seat=enlistment.seat, phase=coordination.phase
                ),
                state=enlistment.seat,
                allowed=possible,
            )
        before: dict[str, object] = {
            "phase": coordination.phase,
            "seat": enlistment.seat,
            "doubt": enlistment.doubt,
            "doubt_detail": enlistment.doubt_detail,
        }
        written: list[Event] = []
        _decided(coordination, enlistment, outcome, actor, reason, now, written)
        enlistment = Enlistment.objects.get(pk=enlistment_id)
        data = opening.facts(coordination) | {
            "participant": enlistment.public_id,
            "outcome": outcome,
            "actor": actor.name,
            "reason": reason,
        }
        written.append(events.event("transaction.settled", now, data=data))
        enlistment.coordination = coordination
        in_doubt.cleared(
            coordination, enlistment, now, written, by=actor.name, resolution=f"Settled as {outcome}: {reason}"
        )
        after: dict[str, object] = {"phase": coordination.phase, "seat": enlistment.seat, "outcome": outcome}
        audit.record(
            actor,
            f"transaction.settle_{outcome}",
            coordination,
            reason=reason,
            before=before | {"participant": enlistment.public_id},
            after=after,
        )
        events.write(written)
    return enlistment


def _decided(
    coordination: Coordination,
    enlistment: Enlistment,
    outcome: str,
    actor: Actor,
    reason: str,
    now: datetime,
    written: list[Event],
) -> None:
    if outcome == FORGET and not _awaited(enlistment):
        return  # it has only been looked at
    marked = enlistment.settled_as == ""
    if marked:
        enlistment.settled_as = _OUTCOMES[outcome].value if outcome != FORGET else FORGET
        enlistment.settled_by, enlistment.settled_at = actor.name[:150], now
        enlistment.settled_reason = reason
    if outcome == FORGET:
        enlistment.save()
        happened = coordinator.Event(Kind.FORGOTTEN, key=enlistment.pk.hex)
        changes.advance(coordination, happened, now, written)
        return
    # The tables are told first: what is settled already they would take for a second decision.
    happened = coordinator.Event(Kind.SETTLED, outcome=_OUTCOMES[outcome])
    changes.advance(coordination, happened, now, written, cause=SETTLED, detail=reason)
    Enlistment.objects.filter(pk=enlistment.pk).update(
        settled_as=enlistment.settled_as,
        settled_by=enlistment.settled_by,
        settled_at=now,
        settled_reason=reason,
    )
