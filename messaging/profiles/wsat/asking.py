"""Asks for the outcome of a transaction: by a client application, by a person, by the hub for a delivery of its own.

Transactions that applications begin through the API, and what applications and people may ask of any.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import connection, transaction
from django.utils.translation import gettext as _

from messaging import dispatch
from messaging.choices import Interface
from messaging.exceptions import (
    IdempotencyMismatch,
    InvalidSubmission,
    Stale,
    TooManyTransactions,
    WrongState,
)
from messaging.journal import audit, events
from messaging.journal.audit import Actor
from messaging.models import Coordination, Enlistment, Event
from messaging.models.base import existing
from messaging.profiles.wsat import changes, opening
from messaging.profiles.wsat.messages import coordinator_epr
from messaging.profiles.wsat.opening import context_of, coordination_open, is_full, locked
from messaging.profiles.wsat.registering import enlistment_create
from messaging.protocol.atomic import coordinator
from messaging.protocol.atomic.coordinator import Kind
from messaging.protocol.atomic.words import OPEN, Phase
from messaging.protocol.errors import EncodeError, IllegalTransition
from messaging.protocol.ws import messages
from messaging.protocol.ws.messages import CoordinationContext, EndpointReference
from partners import registry, visibility
from partners.choices import Profile
from partners.terms import Terms
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
                _("Its superior coordinator decides about this transaction: ask there."),
                state=coordination.phase,
                allowed=possible(coordination),
            )
        if coordination.phase in (Phase.ABORTING, Phase.ABORTED):
            raise WrongState(
                _("It is rolled back already: begin another transaction."),
                state=coordination.phase,
                allowed=possible(coordination),
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
            decided = _("Its superior coordinator decides: settle it if that is permanently gone.")
            raise WrongState(
                decided if coordination.phase == Phase.PREPARED else _("It is decided: it commits."),
                state=coordination.phase,
                allowed=possible(coordination),
            )
        _ask(coordination, Kind.ROLLBACK_ASKED, ROLLBACK, actor, reason, now, cause=cause or ROLLED_BACK)
    return coordination


def possible(coordination: Coordination) -> tuple[str, ...]:
    """What may be asked for at present: "commit", "rollback"."""
    if (coordination.phase == Phase.ACTIVE or held(coordination)) and not coordination.subordinate:
        return (COMMIT, ROLLBACK)
    if coordination.phase in OPEN and coordination.phase != Phase.PREPARED:
        return (ROLLBACK,)
    return ()


def held(coordination: Coordination) -> bool:
    """All votes are in, and nobody decides before a person says so (`due.restored`)."""
    return coordination.phase == Phase.DECIDING and coordination.due_at is None


def stale(coordination: Coordination, expected_version: int | None) -> None:
    """Raises Stale when the caller has looked at an older state of it."""
    if expected_version is not None and coordination.lock_version != expected_version:
        raise Stale(_("The transaction has changed meanwhile: look at it again."), version=coordination.lock_version)


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
        raise WrongState(str(illegal), state=coordination.phase, allowed=possible(coordination)) from None
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


@dataclass(frozen=True, slots=True)
class Begun:
    """`replayed`: the same request came before, and this is what it began."""

    coordination: Coordination
    replayed: bool


def transaction_begin(*, begun_by: str, idempotency_key: str, expires_ms: int | None, version: str) -> Begun:
    """Begins a transaction once for each key of a caller. Raises IdempotencyMismatch for another version under a known
    key, TooManyTransactions for a new key when too many of this caller are open. How long the repeat would live is not
    compared: the first one's time runs.
    """
    with transaction.atomic():
        # Two requests with one key at the same moment: the second one waits for what the first one begins.
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_number(begun_by, idempotency_key)])
        mine = Coordination.objects.filter(agreement_version__isnull=True, create_message_id=idempotency_key)
        known = mine.filter(begun_by=begun_by[:150]).first()
        if known is not None:
            if known.version != version:
                raise IdempotencyMismatch(
                    f"Transaction {known.public_id} was begun with this Idempotency-Key and version {known.version}."
                )
            return Begun(known, replayed=True)
        if is_full(begun_by=begun_by):
            raise TooManyTransactions(
                f"{begun_by} has begun {settings.RMHUB_TRANSACTIONS_OPEN:,} transactions that have not ended: commit "
                "or roll back some, or wait until their time is over."
            )
        made = coordination_open(
            terms=None,
            begun_by=begun_by,
            expires_ms=expires_ms,
            version=version,
            now=clock.now(),
            create_message_id=idempotency_key,
        )
    return Begun(made, replayed=False)


def context_for(coordination: Coordination, tpa_id: str) -> tuple[CoordinationContext, Terms]:
    """The context that a participant under this agreement registers with. Raises InvalidSubmission."""
    terms = registry.current().by_tpa_id(tpa_id)
    if terms is None or terms.profile != Profile.WSAT or not visibility.allows(terms.partner_id):
        raise InvalidSubmission({"agreement": [f"No agreement for atomic transactions {tpa_id!r} is in force."]})
    return context_of(coordination, terms), terms


@dataclass(frozen=True, slots=True)
class Enlisted:
    """A participant, and where it reaches us as its coordinator. `replayed`: it takes part already."""

    enlistment: Enlistment
    coordinator: EndpointReference
    replayed: bool


def participant_enlist(
    *,
    coordination_id: uuid.UUID,
    tpa_id: str,
    protocol: str,
    address: str,
    parameters: Sequence[str] = (),
    actor: Actor,
) -> Enlisted:
    """Enlists the participant at this endpoint reference under an agreement (of any version), once however often it is
    asked for, also when it has done its part meanwhile.

    Raises NotFound, InvalidSubmission, WrongState.
    """
    terms = registry.current().by_tpa_id(tpa_id)
    if terms is not None and not visibility.allows(terms.partner_id):
        raise InvalidSubmission({"agreement": [f"No agreement for atomic transactions {tpa_id!r} is in force."]})
    parameters = _serialised(parameters)
    with transaction.atomic():
        coordination = locked(coordination_id)
        if terms is not None:
            same = coordination.enlistments.filter(
                agreement_version__agreement_id=terms.agreement_id,
                protocol=protocol,
                peer_address=address,
                peer_parameters=list(parameters),
            )
            known = same.order_by("id").first()
            if known is not None:
                return Enlisted(known, coordinator_epr(known, terms), replayed=True)
        made, coordinator = enlistment_create(
            coordination_id=coordination_id,
            tpa_id=tpa_id,
            protocol=protocol,
            address=address,
            parameters=parameters,
            actor=actor,
        )
    return Enlisted(made, coordinator, replayed=False)


def _serialised(parameters: Sequence[str]) -> list[str]:
    """Reference parameters as they are compared and sent. Raises InvalidSubmission for what are none."""
    try:
        elements = [messages.parse(text) for text in parameters]
    except EncodeError as error:
        raise InvalidSubmission({"parameters": [f"Each is one XML element as text; {error}."]}) from None
    if problem := messages.parameter_problem(elements):
        raise InvalidSubmission({"parameters": [f"This cannot be used: {problem}."]})
    return [messages.serialise(element) for element in elements]


def allowed(coordination: Coordination) -> tuple[str, ...]:
    """What applications and people may ask for at present: "commit", "rollback".

    Only what was begun here is committed from here: a partner's initiator asks for itself, and the hub asks for the
    outcome of a document that it hands over; unless a restore made it wait for a person. Everything undecided can be
    rolled back.
    """
    begun_here = coordination.agreement_version_id is None and coordination.delivery_id is None
    begun_here = begun_here or held(coordination)
    return tuple(verb for verb in possible(coordination) if begun_here or verb != COMMIT)


def transaction_ask(
    *, coordination_id: uuid.UUID, verb: str, actor: Actor, expected_version: int | None = None, reason: str = ""
) -> Coordination:
    """`commit` or `rollback`, for an application or a person; returns the transaction as it is then.

    Raises NotFound, Stale, InvalidSubmission, WrongState.
    """
    if actor.interface == Interface.CONSOLE:
        audit.require_reason(reason)
    if verb == ROLLBACK:
        return coordination_rollback(
            coordination_id=coordination_id, actor=actor, expected_version=expected_version, reason=reason
        )
    known = existing(Coordination.objects, coordination_id)
    if COMMIT in possible(known) and COMMIT not in allowed(known):
        raise WrongState(why_not_commit(known), state=known.phase, allowed=allowed(known))
    return coordination_commit(
        coordination_id=coordination_id, actor=actor, expected_version=expected_version, reason=reason
    )


def why_not_commit(coordination: Coordination) -> str:
    """Why a transaction that was not begun here is not committed from here."""
    if coordination.delivery_id is not None:
        return _("It hands over a document: the hub asks for the outcome itself when the applications have answered.")
    return _("A partner began it, and asks for the outcome.")


def _number(*texts: str) -> int:
    digest = hashlib.sha256("\x00".join(("transaction", *texts)).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
