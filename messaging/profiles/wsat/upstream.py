"""This hub as participant: transactions that another coordinator decides (interposition; protocols.md 5.2, T11).

CreateCoordinationContext with a CurrentContext makes a subordinate transaction: it has the same Identifier and a
registration service here, and this hub registers once with the superior. Whoever asked gets the context when the
superior has taken the registration. The superior is the asking partner's own: nobody makes this hub take part in a
transaction of somebody else.
"""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from messaging.engine import pairs
from messaging.engine.preparing import stored_body
from messaging.models import Coordination, CoordinationMessage, Enlistment
from messaging.profiles.wsat import addresses, composing, opening, outgoing
from messaging.profiles.wsat.problems import Refused
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Request, Seat
from messaging.protocol.ws.epr import EndpointReference
from messaging.protocol.ws.messages import Create, Created, Register, WsMessage
from messaging.protocol.ws.reading import decode
from messaging.protocol.ws.rules import reply_targets
from partners import registry
from partners.terms import Terms


def subordinate(message: WsMessage, body: Create, terms: Terms, now: datetime) -> Coordination:
    """Opens the subordinate transaction and registers it with its superior. Raises Refused."""
    current = body.current
    assert current is not None
    if why := addresses.may_use(current.registration, terms):
        raise Refused(FaultCode.INVALID_PARAMETERS, f"The RegistrationService of CurrentContext: {why}")
    lives = [ms for ms in (body.expires_ms, current.expires_ms) if ms is not None]
    coordination = opening.coordination_open(
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
    composing.tell(
        coordination=coordination,
        enlistment=superior,
        terms=terms,
        kind=Request.REGISTER,
        to=current.registration,
        me=addresses.own_epr(terms, addresses.REQUESTER, enlistment=superior),
        body=Register(Protocol.DURABLE, addresses.own_epr(terms, addresses.PARTICIPANT, enlistment=superior)),
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
    vote, terms = _vote_owed(coordination, superior), addresses.terms_of(superior)
    if vote is not None and terms is not None:
        composing.tell(
            coordination=coordination,
            enlistment=superior,
            terms=terms,
            kind=vote.value,
            to=where,
            me=addresses.own_epr(terms, addresses.PARTICIPANT, enlistment=superior),
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
    to = addresses.first_usable(reply_targets(message, None), terms)
    if to is not None:
        composing.tell(
            coordination=coordination,
            enlistment=None,
            terms=terms,
            kind=Request.CREATED,
            to=to,
            me=None,
            body=Created(opening.context_of(coordination, terms, now)),
            relates_to=message.addressing.message_id,
            now=now,
        )


def cannot_create(coordination: Coordination, superior: Enlistment, reason: str, now: datetime) -> None:
    """It came to nothing before the superior had taken us: whoever asked for it is told."""
    outgoing.stop(enlistment=superior, now=now)
    found = _request(coordination)
    if found is None:
        return
    message, terms = found
    to = addresses.first_usable(reply_targets(message, None, fault=True), terms)
    if to is not None:
        composing.tell_fault(
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
