"""This hub as participant: transactions that another coordinator decides (interposition; protocols.md 5.2, T11).

CreateCoordinationContext with a CurrentContext makes a subordinate transaction: it has the same Identifier and a
registration service here, and this hub registers once with the superior. Whoever asked gets the context when the
superior has taken the registration.
"""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from messaging.models import Coordination, CoordinationMessage, Enlistment
from messaging.protocol.atomic.words import FaultCode, Protocol, Request, Seat
from messaging.protocol.ws.epr import EndpointReference
from messaging.protocol.ws.messages import Create, Created, Register, WsMessage
from messaging.protocol.ws.reading import decode
from messaging.protocol.ws.rules import reply_targets
from messaging.services import pairs
from messaging.services.atomic import addresses, composing, opening, outgoing
from messaging.services.atomic.problems import Refused
from messaging.services.preparing import stored_body
from partners import registry
from partners.terms import Terms


def subordinate(message: WsMessage, body: Create, terms: Terms, now: datetime) -> Coordination:
    """Opens the subordinate transaction and registers it with its superior. Raises Refused."""
    current = body.current
    assert current is not None
    above = addresses.agreement_for(current.registration, terms)
    if above is None:
        raise Refused(
            FaultCode.INVALID_PARAMETERS,
            f"The RegistrationService of CurrentContext, {current.registration.address[:200]}, does not have the "
            "scheme, host and port of a partner with an agreement for atomic transactions.",
        )
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
        party_id=above.hop_party_id,
        agreement_version_id=above.version_id,
        pair_id=pairs.outbound_pair_id(above),
        seat=Seat.ACTIVE,
        created_at=now,
    )
    composing.tell(
        coordination=coordination,
        enlistment=superior,
        terms=above,
        kind=Request.REGISTER,
        to=current.registration,
        me=addresses.own_epr(above, addresses.REQUESTER, enlistment=superior),
        body=Register(Protocol.DURABLE, addresses.own_epr(above, addresses.PARTICIPANT, enlistment=superior)),
        awaits=True,
        now=now,
    )
    return coordination


def is_registered(coordination: Coordination, superior: Enlistment, where: EndpointReference, now: datetime) -> None:
    """The superior has taken us: where it is reached from now on, and the context for whoever asked for it."""
    superior.peer_address, superior.peer_parameters = where.address, list(where.parameters)
    superior.save(update_fields=["peer_address", "peer_parameters"])
    answer_created(coordination, now)


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
