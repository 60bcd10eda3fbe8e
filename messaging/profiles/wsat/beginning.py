"""Transactions that applications begin through the API, and what applications and people may ask of any."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import connection, transaction

from messaging.choices import Interface
from messaging.exceptions import (
    IdempotencyMismatch,
    InvalidSubmission,
    NotFound,
    TooManyTransactions,
    WrongState,
)
from messaging.journal import audit
from messaging.journal.audit import Actor
from messaging.models import Coordination, Enlistment
from messaging.profiles.wsat import asking
from messaging.profiles.wsat.addresses import coordinator_epr
from messaging.profiles.wsat.opening import context_of, coordination_open, is_full, locked
from messaging.profiles.wsat.registering import enlistment_create
from messaging.protocol.errors import EncodeError
from messaging.protocol.ws import epr
from messaging.protocol.ws.epr import EndpointReference
from messaging.protocol.ws.messages import CoordinationContext
from partners import registry, visibility
from partners.choices import Profile
from partners.terms import Terms
from rmhub import clock


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
        elements = [epr.parse(text) for text in parameters]
    except EncodeError as error:
        raise InvalidSubmission({"parameters": [f"Each is one XML element as text; {error}."]}) from None
    if problem := epr.parameter_problem(elements):
        raise InvalidSubmission({"parameters": [f"This cannot be used: {problem}."]})
    return [epr.serialise(element) for element in elements]


def allowed(coordination: Coordination) -> tuple[str, ...]:
    """What applications and people may ask for at present: "commit", "rollback".

    Only what was begun here is committed from here: a partner's initiator asks for itself, and the hub asks for the
    outcome of a document that it hands over; unless a restore made it wait for a person. Everything undecided can be
    rolled back.
    """
    begun_here = coordination.agreement_version_id is None and coordination.delivery_id is None
    begun_here = begun_here or asking.held(coordination)
    return tuple(verb for verb in asking.allowed(coordination) if begun_here or verb != asking.COMMIT)


def transaction_ask(
    *, coordination_id: uuid.UUID, verb: str, actor: Actor, expected_version: int | None = None, reason: str = ""
) -> Coordination:
    """`commit` or `rollback`, for an application or a person; returns the transaction as it is then.

    Raises NotFound, Stale, InvalidSubmission, WrongState.
    """
    if actor.interface == Interface.CONSOLE:
        audit.require_reason(reason)
    if verb == asking.ROLLBACK:
        return asking.coordination_rollback(
            coordination_id=coordination_id, actor=actor, expected_version=expected_version, reason=reason
        )
    known = Coordination.objects.filter(pk=coordination_id).first()
    if known is None:
        raise NotFound("There is no such transaction.")
    if asking.COMMIT in asking.allowed(known) and asking.COMMIT not in allowed(known):
        raise WrongState(why_not_commit(known), state=known.phase, allowed=allowed(known))
    return asking.coordination_commit(
        coordination_id=coordination_id, actor=actor, expected_version=expected_version, reason=reason
    )


def why_not_commit(coordination: Coordination) -> str:
    """Why a transaction that was not begun here is not committed from here."""
    if coordination.delivery_id is not None:
        return "It hands over a document: the hub asks for the outcome itself when the applications have answered."
    return "A partner began it, and asks for the outcome."


def _number(*texts: str) -> int:
    digest = hashlib.sha256("\x00".join(("transaction", *texts)).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
