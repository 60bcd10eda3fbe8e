"""A document for several services in one atomic transaction (spec 5): all of them process it, or none does.

A trigger of the kind "atomic" opens a coordination for each hand-over of a document, and posts the document to each of
its members with the context in headers. A member's application registers as a participant before it answers 2xx. Then
the hub asks for the commit, and the votes decide: `profiles.wsat.delivering` ends the delivery in the transaction of
the commit record, or gives it back when the coordination aborts.

The claim of the delivery is what holds both together. Whatever takes the delivery back takes its claim, and a
coordination whose claim does not count any more cannot commit: so a hand-over that is lost is never in doubt.
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db import transaction

from messaging.choices import DeliveryState, ServiceKind
from messaging.deliveries.services import calling, history
from messaging.deliveries.services.job import Job, Outcome
from messaging.engine import forgetting
from messaging.exceptions import WrongState
from messaging.models import Coordination, Delivery, Trigger
from messaging.profiles.wsat import asking, opening, registering
from messaging.profiles.wsat.delivering import CALLABLE, DOCUMENT_HISTORY
from messaging.protocol.atomic.words import ENDED, Protocol
from messaging.protocol.service_ends import Ran
from messaging.protocol.ws.names import Version
from messaging.protocol.ws.writing import write_context
from partners import registry
from partners.terms import Terms
from rmhub import clock

log = logging.getLogger(__name__)

CONTEXT, REGISTRATION = "RM-Coordination-Context", "RM-Coordination-Registration"
IDENTIFIER = "RM-Coordination-Identifier"


def hand_over(job: Job) -> Outcome:
    """The talk step of an atomic trigger: opens the transaction, posts to every member, asks for the commit.

    The outcome is `recorded` when the votes decide from here on; else it says what went wrong, and which coordination
    is to be abandoned once that is recorded.
    """
    members = members_of(job.trigger)
    terms, wrong = _terms_of(members)
    if wrong is not None:
        return wrong
    now = clock.now()
    forgetting.ensure_days(forgetting.HISTORY, [history.forget_on(job.trigger, now)])
    coordination = _open(job, members, now)
    try:
        for member in members:
            if member.kind != ServiceKind.HTTP:
                continue
            outcome = _post(job, member, terms[member.pk], coordination)
            if outcome is not None:
                return outcome
        asking.coordination_commit(coordination_id=coordination.pk)
    except WrongState:
        pass  # a participant has aborted it already: its delivery is given back
    except Exception:
        abandon(coordination.pk, "internal_error", "The hand-over broke off.")
        raise
    else:
        # The votes decide now, whatever becomes of this process. Only the coordination's time runs on.
        Delivery.objects.filter(pk=job.delivery.pk, claim=job.claim, state=DeliveryState.RUNNING).update(worker=0)
    return Outcome(recorded=True)


def members_of(trigger: Trigger) -> list[Trigger]:
    """The triggers whose services take part, HTTP services first: a callable is run when all of them have voted."""
    found = Trigger.objects.filter(member_of=trigger).select_related("atomic_agreement").order_by("name")
    return sorted(found, key=lambda member: member.kind != ServiceKind.HTTP)


def _terms_of(members: Sequence[Trigger]) -> tuple[dict[uuid.UUID, Terms], Outcome | None]:
    """Under which terms each HTTP member takes part; or why nobody can be asked before a person changes something."""
    if not members:
        return {}, _misconfigured("no_members", "No service is a member of this trigger: add one.")
    found = {}
    for member in members:
        if member.kind == ServiceKind.HTTP:
            agreement = member.atomic_agreement
            terms = registry.current().by_tpa_id(agreement.tpa_id) if agreement is not None else None
            if terms is None:
                detail = f"The agreement {agreement} of the member {member.name} is not in force."
                return {}, _misconfigured("member_agreement", detail)
            found[member.pk] = terms
    return found, None


def _misconfigured(cause: str, detail: str) -> Outcome:
    return Outcome(Ran.TRANSIENT, cause=cause, detail=detail, misconfigured=True)


def _open(job: Job, members: Sequence[Trigger], now: datetime) -> Coordination:
    """The coordination of this hand-over, in which the hub itself takes part with its history and its callables."""
    with transaction.atomic():
        opened = opening.coordination_open(
            terms=None,
            begun_by=job.trigger.name,
            expires_ms=job.trigger.timeout * 1000,
            now=now,
            delivery=job.delivery,
            claim=job.claim,
        )
        coordination = opening.locked(opened.pk)
        _enlist(coordination, DOCUMENT_HISTORY, job.trigger, now)
        for member in members:
            if member.kind == ServiceKind.CALLABLE:
                _enlist(coordination, f"{CALLABLE}{member.callable_name}"[:80], member, now)
    return coordination


def _enlist(coordination: Coordination, what: str, trigger: Trigger, now: datetime) -> None:
    registering.enlist(
        coordination=coordination,
        protocol=Protocol.DURABLE,
        peer=None,
        terms=None,
        trigger=trigger,
        local=what,
        now=now,
    )


def _post(job: Job, member: Trigger, terms: Terms, coordination: Coordination) -> Outcome | None:
    """Hands the document to one member. None: it has taken it, and its application is enlisted."""
    now = clock.now()
    assert coordination.expires_at is not None
    left = (coordination.expires_at - now).total_seconds()
    if left <= 0:
        detail = f"The time of the transaction was over before {member.name} had its turn."
        return Outcome(Ran.TRANSIENT, cause="transaction_expired", detail=detail, abandons=coordination.pk)
    context = opening.context_of(coordination, terms, now)
    octets = write_context(context, Version(terms.coordination_version))
    more = [
        (CONTEXT, base64.b64encode(octets).decode()),
        (REGISTRATION, context.registration.address),
        (IDENTIFIER, coordination.identifier),
    ]
    outcome = calling.hand_to(member, job.delivery, timeout=min(member.timeout, left), more=more)
    if outcome.ran is Ran.OK:
        if registering.enlisted(coordination.pk, terms.agreement_id):
            return None
        said = "answered without taking part in the transaction: it must register before it answers 2xx."
        return Outcome(
            Ran.ERROR,
            status=outcome.status,
            cause="member_not_enlisted",
            detail=f"{member.name} {said}",
            kept=outcome.kept,
            abandons=coordination.pk,
        )
    return Outcome(
        # What an answer that was lost would have said does not matter: the transaction is rolled back.
        Ran.TRANSIENT if outcome.ran is Ran.UNKNOWN else outcome.ran,
        status=outcome.status,
        cause=outcome.cause,
        detail=f"{member.name}: {outcome.detail}",
        kept=outcome.kept,
        retry_after=outcome.retry_after,
        misconfigured=outcome.misconfigured,
        abandons=coordination.pk,
    )


def abandon(coordination_id: uuid.UUID, cause: str, detail: str) -> None:
    """Rolls back a coordination that nobody goes on with. Never raises: it ends by its Expires at the latest."""
    try:
        asking.coordination_rollback(coordination_id=coordination_id, reason=detail, cause=cause)
    except WrongState:
        pass  # it has ended already
    except Exception:
        log.exception("not rolled back", extra={"action": "abandon_failed", "coordination": str(coordination_id)})


def abandon_lost(claims: Iterable[uuid.UUID]) -> int:
    """Rolls back what belongs to hand-overs that were lost; call when they are taken back. Returns how many."""
    wanted = list(claims)
    if not wanted:
        return 0
    found = Coordination.objects.filter(claim__in=wanted, decided_at=None).exclude(phase__in=ENDED)
    lost = list(found.values_list("pk", flat=True))
    for coordination_id in lost:
        abandon(coordination_id, "worker_lost", "The hand-over that it belongs to was lost.")
    return len(lost)
