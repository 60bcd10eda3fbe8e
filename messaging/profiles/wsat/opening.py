"""Opens transactions, and says what their CoordinationContext is (spec 5; protocols.md 5.2).

What goes wrong in transactions, as those that call the services see it.

This hub as participant: transactions that another coordinator decides (interposition; protocols.md 5.2, T11).

CreateCoordinationContext with a CurrentContext makes a subordinate transaction: it has the same Identifier and a
registration service here, and this hub registers once with the superior. Whoever asked gets the context when the
superior has taken the registration. The superior is the asking partner's own: nobody makes this hub take part in a
transaction of somebody else.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from messaging.engine import pairs
from messaging.engine.preparing import stored_body
from messaging.journal import events
from messaging.models import Coordination, CoordinationMessage, Delivery, Enlistment
from messaging.models.base import existing
from messaging.profiles.wsat import messages, outgoing
from messaging.protocol.atomic.words import ENDED, FaultCode, Note, Phase, Protocol, Request, Seat
from messaging.protocol.ws.messages import CoordinationContext, Create, Created, EndpointReference, Register, WsMessage
from messaging.protocol.ws.names import Version, coordination_type
from messaging.protocol.ws.reading import decode
from messaging.protocol.ws.rules import reply_targets
from partners import registry
from partners.choices import Profile
from partners.models import AgreementVersion
from partners.terms import Terms
from rmhub import clock
from rmhub.ids import uuid7


def coordination_open(
    *,
    terms: Terms | None,
    begun_by: str = "",
    expires_ms: int | None = None,
    version: str = "2006/06",
    now: datetime | None = None,
    delivery: Delivery | None = None,
    claim: uuid.UUID | None = None,
    create_message_id: str = "",
    identifier: str = "",
    subordinate: bool = False,
) -> Coordination:
    """A new transaction, active. It ends after `expires_ms`, or the hub's maximum if that is less or nothing is said.

    `terms`: whose partner asked for it. `identifier`: that of the superior's context, for a subordinate one.
    """
    now = now or clock.now()
    most = settings.RMHUB_TRANSACTION_SECONDS * 1000
    life = timedelta(milliseconds=most if expires_ms is None else min(expires_ms, most))
    own = uuid7()
    with transaction.atomic():
        coordination = Coordination.objects.create(
            id=own,
            identifier=identifier or f"urn:uuid:{own}",
            version=version,
            phase=Phase.ACTIVE,
            subordinate=subordinate,
            agreement_version_id=terms.version_id if terms is not None else None,
            begun_by=begun_by[:150],
            create_message_id=create_message_id,
            delivery=delivery,
            claim=claim,
            expires_at=now + life,
            due_at=now + life,
            created_at=now,
            changed_at=now,
        )
        events.write([events.event("transaction.begun", now, data=facts(coordination))])
    return coordination


def is_full(*, partner_id: uuid.UUID | None = None, begun_by: str = "") -> bool:
    """Whether a partner, or a user of the API (`begun_by`), has begun so many transactions that have not ended that it
    must not begin another one (RMHUB_TRANSACTIONS_OPEN). Those of deliveries are nobody's: deliveries bound them.

    Nothing is locked: what begins at the same moment may go beyond it, by as much as is served at once.
    """
    if partner_id is not None:
        versions = AgreementVersion.objects.filter(agreement__partner=partner_id, profile=Profile.WSAT)
        # Looked up beforehand: the planner thinks of a partner as anybody, who began a share of everything.
        mine = Coordination.objects.filter(agreement_version__in=list(versions.values_list("pk", flat=True)))
    else:
        here = Coordination.objects.filter(agreement_version__isnull=True, delivery__isnull=True)
        mine = here.filter(begun_by=begun_by[:150])
    most: int = settings.RMHUB_TRANSACTIONS_OPEN
    return mine.exclude(phase__in=sorted(ENDED)).order_by()[:most].count() >= most


def locked(coordination_id: uuid.UUID) -> Coordination:
    """The transaction, locked until the commit. Raises NotFound.

    Rows that only refer to it are inserted by others meanwhile (an incident, a message), so its key is not locked.
    """
    return existing(Coordination.objects.select_for_update(no_key=True), coordination_id)


def context_of(coordination: Coordination, terms: Terms, now: datetime | None = None) -> CoordinationContext:
    """What a participant under these terms needs to register. Its Expires is what is left, at least 1 ms."""
    now = now or clock.now()
    left = None
    if coordination.expires_at is not None:
        left = max(1, int((coordination.expires_at - now).total_seconds() * 1000))
    return CoordinationContext(
        identifier=coordination.identifier,
        registration=messages.own_epr(terms, messages.REGISTRATION, coordination=coordination),
        coordination_type=coordination_type(Version(terms.coordination_version)),
        expires_ms=left,
    )


def facts(coordination: Coordination) -> dict[str, object]:
    """What events say about a transaction."""
    return {
        "transaction": coordination.public_id,
        "identifier": coordination.identifier,
        "phase": coordination.phase,
    }


class Refused(Exception):
    """A request of a peer that is answered with a fault: `code` and a sentence."""

    def __init__(self, code: FaultCode, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class LocalWorkFailed(Exception):
    """What this hub does itself in a transaction did not work: the outcome is abort. `cause` is a code of `causes`."""

    def __init__(self, cause: str, detail: str = "") -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause
        self.detail = detail


def subordinate(message: WsMessage, body: Create, terms: Terms, now: datetime) -> Coordination:
    """Opens the subordinate transaction and registers it with its superior. Raises Refused."""
    current = body.current
    assert current is not None
    if why := messages.may_use(current.registration, terms):
        raise Refused(FaultCode.INVALID_PARAMETERS, f"The RegistrationService of CurrentContext: {why}")
    lives = [ms for ms in (body.expires_ms, current.expires_ms) if ms is not None]
    coordination = coordination_open(
        terms=terms,
        begun_by=terms.hop_party_name,
        expires_ms=min(lives) if lives else None,
        version=terms.coordination_version,
        now=now,
        create_message_id=message.addressing.message_id,
        identifier=current.identifier,
        subordinate=True,
    )
    superior = Enlistment.objects.create(
        coordination=coordination,
        protocol=Protocol.DURABLE,
        superior=True,
        party_id=terms.hop_party_id,
        agreement_version_id=terms.version_id,
        pair_id=pairs.outbound_pair_id(terms),
        seat=Seat.ACTIVE,
        created_at=now,
    )
    messages.tell(
        coordination=coordination,
        enlistment=superior,
        terms=terms,
        kind=Request.REGISTER,
        to=current.registration,
        me=messages.own_epr(terms, messages.REQUESTER, enlistment=superior),
        body=Register(Protocol.DURABLE, messages.own_epr(terms, messages.PARTICIPANT, enlistment=superior)),
        awaits=True,
        now=now,
    )
    return coordination


def is_registered(coordination: Coordination, superior: Enlistment, where: EndpointReference, now: datetime) -> None:
    """The superior has taken us: where it is reached from now on, and the context for whoever asked for it.

    A Prepare or Rollback may have overtaken this reply: then the vote is still to be said. Whoever asked for the
    context of what is rolled back has a fault already.
    """
    superior.peer_address, superior.peer_parameters = where.address, list(where.parameters)
    superior.save(update_fields=["peer_address", "peer_parameters"])
    if coordination.phase not in (Phase.ABORTING, Phase.ABORTED):
        answer_created(coordination, now)
    vote, terms = _vote_owed(coordination, superior), messages.terms_of(superior)
    if vote is not None and terms is not None:
        messages.tell(
            coordination=coordination,
            enlistment=superior,
            terms=terms,
            kind=vote.value,
            to=where,
            me=messages.own_epr(terms, messages.PARTICIPANT, enlistment=superior),
            awaits=vote is Note.PREPARED,
            now=now,
        )


def _vote_owed(coordination: Coordination, superior: Enlistment) -> Note | None:
    """What the superior would have been told by now, had we known where it is; None while nothing is to be said."""
    if coordination.phase in (Phase.ABORTING, Phase.ABORTED):
        return Note.ABORTED
    if coordination.phase == Phase.PREPARED or (superior.settled_as and superior.ended_at is None):
        return Note.PREPARED
    if coordination.phase == Phase.COMMITTED:
        return Note.READ_ONLY if coordination.decided_at is None else Note.COMMITTED
    return None


def answer_created(coordination: Coordination, now: datetime) -> None:
    """CreateCoordinationContextResponse, to the ReplyTo of the request that opened this transaction."""
    found = _request(coordination)
    if found is None:
        return
    message, terms = found
    to = messages.first_usable(reply_targets(message, None), terms)
    if to is not None:
        tell_created(coordination, terms, to, message.addressing.message_id, now)


def tell_created(
    coordination: Coordination, terms: Terms, to: EndpointReference, message_id: str, now: datetime
) -> None:
    """The same, to whoever asked with the message `message_id`."""
    messages.tell(
        coordination=coordination,
        enlistment=None,
        terms=terms,
        kind=Request.CREATED,
        to=to,
        me=None,
        body=Created(context_of(coordination, terms, now)),
        relates_to=message_id,
        now=now,
    )


def cannot_create(coordination: Coordination, superior: Enlistment, reason: str, now: datetime) -> None:
    """It came to nothing before the superior had taken us: whoever asked for it is told."""
    outgoing.stop(enlistment=superior, now=now)
    found = _request(coordination)
    if found is None:
        return
    message, terms = found
    to = messages.first_usable(reply_targets(message, None, fault=True), terms)
    if to is not None:
        messages.tell_fault(
            coordination=coordination,
            enlistment=None,
            terms=terms,
            to=to,
            code=FaultCode.CANNOT_CREATE,
            reason=reason,
            relates_to=message.addressing.message_id,
            now=now,
        )


def _request(coordination: Coordination) -> tuple[WsMessage, Terms] | None:
    """The CreateCoordinationContext of this transaction as it was stored, and its agreement."""
    row = (
        CoordinationMessage.objects.filter(coordination=coordination, kind=Request.CREATE)
        .select_related("message")
        .first()
    )
    if row is None or coordination.agreement_version_id is None:
        return None
    octets = stored_body(row.message, [])
    message = decode(
        row.message.content_type, octets, max_bytes=max(len(octets), settings.RMHUB_TRANSACTION_MESSAGE_BYTES)
    )
    return message, registry.current().version(coordination.agreement_version_id)
