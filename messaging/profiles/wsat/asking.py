"""Asks for the outcome of a transaction: by a client application, by a person, by the hub for a delivery of its own."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.db import transaction

from messaging import dispatch
from messaging.exceptions import Stale, WrongState
from messaging.journal import audit, events
from messaging.journal.audit import Actor
from messaging.models import Coordination, Event
from messaging.profiles.wsat import changes, opening
from messaging.protocol.atomic import coordinator
from messaging.protocol.atomic.coordinator import Kind
from messaging.protocol.atomic.words import OPEN, Phase
from messaging.protocol.errors import IllegalTransition
from rmhub import clock

COMMIT, ROLLBACK = "commit", "rollback"
ROLLED_BACK = "transaction_rolled_back"


def coordination_commit(
    *,
    coordination_id: uuid.UUID,
    actor: Actor | None = None,
    expected_version: int | None = None,
    reason: str = "",
) -> Coordination:
    """Begins with phase one, or ends at once where nobody has to be asked; returns the transaction as it is then.

    The outcome comes with the votes. Asked again it changes nothing. Raises NotFound, Stale, WrongState (it aborts
    or is aborted; its superior decides).
    """
    now = clock.now()
    with transaction.atomic():
        coordination = _locked(coordination_id, expected_version)
        if coordination.subordinate:
            raise WrongState(
                "Its superior coordinator decides about this transaction: ask there.",
                state=coordination.phase,
                allowed=allowed(coordination),
            )
        if coordination.phase in (Phase.ABORTING, Phase.ABORTED):
            raise WrongState(
                "It is rolled back already: begin another transaction.",
                state=coordination.phase,
                allowed=allowed(coordination),
            )
        if coordination.phase == Phase.ACTIVE:
            _ask(coordination, Kind.COMMIT_ASKED, COMMIT, actor, reason, now)
        elif held(coordination):
            _go_on(coordination, actor, reason, now)
    return coordination


def coordination_rollback(
    *,
    coordination_id: uuid.UUID,
    actor: Actor | None = None,
    expected_version: int | None = None,
    reason: str = "",
    cause: str = "",
) -> Coordination:
    """Rolls it back; returns it as it is then. `cause` and `reason` are kept with it. A person gives a reason.

    Asked again it changes nothing. Raises NotFound, Stale, InvalidSubmission, WrongState (it is decided).
    """
    if actor is not None:
        audit.require_reason(reason)
    now = clock.now()
    with transaction.atomic():
        coordination = _locked(coordination_id, expected_version)
        if coordination.phase in (Phase.ABORTING, Phase.ABORTED):
            return coordination
        if coordination.phase not in OPEN or coordination.phase == Phase.PREPARED:
            decided = "Its superior coordinator decides: settle it if that is gone for good."
            raise WrongState(
                decided if coordination.phase == Phase.PREPARED else "It is decided: it commits.",
                state=coordination.phase,
                allowed=allowed(coordination),
            )
        _ask(coordination, Kind.ROLLBACK_ASKED, ROLLBACK, actor, reason, now, cause=cause or ROLLED_BACK)
    return coordination


def allowed(coordination: Coordination) -> tuple[str, ...]:
    """What may be asked for at present: "commit", "rollback"."""
    if (coordination.phase == Phase.ACTIVE or held(coordination)) and not coordination.subordinate:
        return (COMMIT, ROLLBACK)
    if coordination.phase in OPEN and coordination.phase != Phase.PREPARED:
        return (ROLLBACK,)
    return ()


def held(coordination: Coordination) -> bool:
    """All votes are in, and nobody decides before a person says so (`keeping.restored`)."""
    return coordination.phase == Phase.DECIDING and coordination.due_at is None


def stale(coordination: Coordination, expected_version: int | None) -> None:
    """Raises Stale when the caller has looked at an older state of it."""
    if expected_version is not None and coordination.lock_version != expected_version:
        raise Stale("The transaction has changed meanwhile: look at it again.", version=coordination.lock_version)


def _locked(coordination_id: uuid.UUID, expected_version: int | None) -> Coordination:
    coordination = opening.locked(coordination_id)
    stale(coordination, expected_version)
    return coordination


def _ask(
    coordination: Coordination,
    kind: Kind,
    verb: str,
    actor: Actor | None,
    reason: str,
    now: datetime,
    cause: str = "",
) -> None:
    before: dict[str, object] = {"phase": coordination.phase}
    written: list[Event] = []
    try:
        changes.advance(coordination, coordinator.Event(kind), now, written, cause=cause, detail=reason)
    except IllegalTransition as illegal:
        raise WrongState(str(illegal), state=coordination.phase, allowed=allowed(coordination)) from None
    if actor is not None:
        audit.record(
            actor,
            f"transaction.{verb}",
            coordination,
            reason=reason,
            before=before,
            after={"phase": coordination.phase},
        )
    events.write(written)


def _go_on(coordination: Coordination, actor: Actor | None, reason: str, now: datetime) -> None:
    """A worker decides about it now."""
    coordination.due_at = coordination.changed_at = now
    coordination.lock_version += 1
    coordination.save(update_fields=["due_at", "changed_at", "lock_version"])
    dispatch.wake_on_commit(dispatch.TRANSACTIONS)
    if actor is not None:
        phase: dict[str, object] = {"phase": coordination.phase}
        audit.record(actor, f"transaction.{COMMIT}", coordination, reason=reason, before=phase, after=phase)
