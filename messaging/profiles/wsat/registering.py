"""Enlistments: who takes part in a transaction (spec 5, Register; protocols.md 5.2 to 5.4)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime

from django.conf import settings
from django.db import transaction

from messaging.engine import pairs
from messaging.exceptions import InvalidSubmission, WrongState
from messaging.journal import audit, events
from messaging.journal.audit import Actor
from messaging.models import Coordination, Enlistment, Event, Trigger
from messaging.profiles.wsat import changes, messages, opening
from messaging.profiles.wsat.opening import Refused
from messaging.protocol.atomic import coordinator
from messaging.protocol.atomic.coordinator import ActKind, Kind
from messaging.protocol.atomic.words import FaultCode, Protocol, Seat
from messaging.protocol.ws.messages import EndpointReference
from partners import registry
from partners.choices import Profile
from partners.terms import Terms
from rmhub import clock
from rmhub.ids import uuid7


def enlist(
    *,
    coordination: Coordination,
    protocol: Protocol,
    peer: EndpointReference | None,
    terms: Terms | None,
    trigger: Trigger | None = None,
    local: str = "",
    register_message_id: str = "",
    now: datetime | None = None,
    before_others: Callable[[Enlistment], None] | None = None,
) -> Enlistment:
    """One more participant, or initiator (Completion), of a transaction whose lock the caller holds.

    `local`: work of this hub itself; it has no peer. `before_others`: puts the answer into the outbox, ahead of a
    Prepare that this registration causes. Raises Refused with what a peer is told: CannotRegisterParticipant once
    durable participants are asked to prepare or the transaction is over, for an initiator of a hand-over and when
    RMHUB_TRANSACTION_PARTICIPANTS have registered; InvalidParameters for an address that this hub must not use.
    """
    now = now or clock.now()
    if not local:
        if peer is None or terms is None:
            raise Refused(FaultCode.INVALID_PARAMETERS, "A participant needs an endpoint reference and an agreement.")
        if why := messages.may_use(peer, terms):
            raise Refused(FaultCode.INVALID_PARAMETERS, why)
    rows = list(coordination.enlistments.order_by("id"))
    if why := _cannot(coordination, protocol, rows, terms, local):
        raise Refused(FaultCode.CANNOT_REGISTER, why)
    own = uuid7()
    event = coordinator.Event(Kind.ENLIST, key=own.hex, protocol=protocol, local=bool(local))
    step = coordinator.step(changes.loaded(coordination, rows), event)
    for act in step.acts:
        if act.kind is ActKind.FAULT and act.fault is not None:
            raise Refused(act.fault, act.reason)
    partaker = step.transaction.partaker(own.hex)
    assert partaker is not None, "it was enlisted"
    row = Enlistment.objects.create(
        id=own,
        coordination=coordination,
        protocol=protocol.value,
        local=local[:80],
        party_id=terms.hop_party_id if terms is not None else None,
        agreement_version_id=terms.version_id if terms is not None else None,
        pair_id=pairs.outbound_pair_id(terms) if terms is not None else None,
        trigger=trigger,
        peer_address=peer.address if peer is not None else "",
        peer_parameters=list(peer.parameters) if peer is not None else [],
        register_message_id=register_message_id,
        seat=partaker.seat.value,
        created_at=now,
    )
    if before_others is not None:
        before_others(row)
    written: list[Event] = []
    changes.advance(coordination, event, now, written, begun=([*rows, row], step))
    events.write(written)
    return row


def _cannot(
    coordination: Coordination, protocol: Protocol, rows: Sequence[Enlistment], terms: Terms | None, local: str
) -> str:
    """ "" when one more may register as far as its state is not concerned, or the sentence that says why not.

    Those that have left count: every message to the transaction has to read their rows too.
    """
    if protocol is Protocol.COMPLETION and coordination.delivery_id is not None:
        return (
            "This transaction hands over a document: the hub asks for the outcome itself when every application has "
            "answered. Register for Durable2PC or Volatile2PC."
        )
    if protocol is Protocol.COMPLETION and not local and not _began(coordination, terms):
        return (
            "Completion is for the creator of this transaction, which is not you: register for Durable2PC or "
            "Volatile2PC."
        )
    most = settings.RMHUB_TRANSACTION_PARTICIPANTS
    if not local and sum(1 for row in rows if not row.local and not row.superior) >= most:
        return f"{most} have registered in this transaction, as many as this hub takes: begin another one."
    return ""


def _began(coordination: Coordination, terms: Terms | None) -> bool:
    """Whether the partner of these terms created the transaction; one that the API began is no partner's."""
    version = coordination.agreement_version
    return version is not None and terms is not None and version.agreement.partner_id == terms.partner_id


def enlisted(coordination_id: uuid.UUID, agreement_id: uuid.UUID) -> bool:
    """Whether somebody takes part under this agreement, and has not left."""
    return (
        Enlistment.objects.filter(coordination_id=coordination_id, agreement_version__agreement_id=agreement_id)
        .exclude(protocol=Protocol.COMPLETION)
        .exclude(superior=True)
        .exclude(seat=Seat.NONE, vote="")
        .exists()
    )


def enlistment_create(
    *,
    coordination_id: uuid.UUID,
    tpa_id: str,
    protocol: str,
    address: str,
    parameters: Sequence[str] = (),
    actor: Actor,
) -> tuple[Enlistment, EndpointReference]:
    """A participant that a client application enlists; returns it, and where it reaches us as its coordinator.

    Raises NotFound, InvalidSubmission, WrongState.
    """
    terms = registry.current().by_tpa_id(tpa_id)
    if terms is None or terms.profile != Profile.WSAT:
        raise InvalidSubmission({"agreement": [f"No agreement for atomic transactions {tpa_id!r} is in force."]})
    if protocol not in (Protocol.DURABLE, Protocol.VOLATILE):
        raise InvalidSubmission({"protocol": [f"Choose {Protocol.DURABLE} or {Protocol.VOLATILE}."]})
    peer = EndpointReference(address, tuple(parameters))
    if why := messages.may_use(peer, terms):
        raise InvalidSubmission({"address": [why]})
    with transaction.atomic():
        coordination = opening.locked(coordination_id)
        try:
            row = enlist(coordination=coordination, protocol=Protocol(protocol), peer=peer, terms=terms)
        except Refused as refused:
            raise WrongState(refused.reason, state=coordination.phase) from None
        after: dict[str, object] = {"participant": row.public_id, "protocol": protocol, "address": address}
        audit.record(actor, "transaction.enlist", coordination, after=after)
    return row, messages.coordinator_epr(row, terms)
