"""Endpoint references of ours, and which ones of peers this hub writes to.

A message may name any address; used are only those that lie where the agreement says that the partner is (the scheme,
host and port of its endpoint, or of one of its other servers), so that nobody makes the hub call a third party.

Writes messages of ours and puts them into the outbox, in the caller's transaction.

One message on its way in: what is known of it before the database is asked, and how it is stored and answered.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from messaging.entrance.refusals import Arrival
from messaging.models import Coordination, CoordinationMessage, Enlistment, Message
from messaging.profiles.wsat import outgoing
from messaging.protocol.atomic.words import FAULT, FaultCode, Protocol
from messaging.protocol.ws.messages import (
    MAX_ADDRESS,
    Body,
    EndpointReference,
    Fault,
    Violation,
    WsMessage,
    parameter,
    read_parameter,
)
from messaging.protocol.ws.names import Soap, Style, Version
from messaging.protocol.ws.rules import answerable, reply_targets
from messaging.protocol.ws.writing import compose, encode
from partners import registry
from partners.terms import Principal, Terms

ACTIVATION, REGISTRATION, COMPLETION = "activation", "registration", "completion"
COORDINATOR, PARTICIPANT, REQUESTER = "coordinator", "participant", "requester"
SERVICES = (ACTIVATION, REGISTRATION, COMPLETION, COORDINATOR, PARTICIPANT, REQUESTER)

# Names of our reference parameters, in the namespace `urn:rmhub:ws-tx`.
ENLISTMENT, TRANSACTION = "Enlistment", "Transaction"


def own_epr(
    terms: Terms, service: str, *, enlistment: Enlistment | None = None, coordination: Coordination | None = None
) -> EndpointReference:
    """One of our services under these terms, with what tells us later which relationship is meant."""
    parameters = []
    if coordination is not None:
        parameters.append(parameter(TRANSACTION, coordination.public_id))
    if enlistment is not None:
        parameters.append(parameter(ENLISTMENT, enlistment.public_id))
    return EndpointReference(f"{terms.own_uri.rstrip('/')}/{service}", tuple(parameters))


def service_of(enlistment: Enlistment) -> str:
    """Which of our services the other side of this relationship talks to."""
    if enlistment.superior:
        return PARTICIPANT
    return COMPLETION if enlistment.protocol == Protocol.COMPLETION else COORDINATOR


def coordinator_epr(enlistment: Enlistment, terms: Terms) -> EndpointReference:
    """What a RegisterResponse says: where this participant or initiator reaches its coordinator."""
    return own_epr(terms, service_of(enlistment), enlistment=enlistment)


def peer_epr(enlistment: Enlistment) -> EndpointReference | None:
    """The endpoint reference that the peer gave at registration; None when there is none (yet)."""
    if not enlistment.peer_address:
        return None
    return EndpointReference(enlistment.peer_address, tuple(enlistment.peer_parameters))


def terms_of(enlistment: Enlistment) -> Terms | None:
    """The agreement of a relationship; None for what this hub does itself."""
    if enlistment.agreement_version_id is None:
        return None
    return registry.current().version(enlistment.agreement_version_id)


def may_use(epr: EndpointReference, terms: Terms) -> str:
    """ "" when messages may go there, or the sentence that says why not."""
    if not epr.is_physical():
        return "An endpoint reference must have a physical http or https address: anonymous and none are not used."
    if len(epr.address) > MAX_ADDRESS:
        return f"An address of more than {MAX_ADDRESS} characters cannot be used."
    if not outgoing.may_go_to(terms, epr.address):
        return (
            f"{epr.address[:200]} does not have the scheme, host and port of the partner's services in agreement "
            f"{terms.tpa_id}, {' '.join((terms.partner_uri, *terms.other_servers))}."
        )
    return ""


def not_used(name: str, epr: EndpointReference | None, terms: Terms) -> str:
    """What to note when an endpoint that a message names is passed over; "" when there is none or it may be used."""
    if epr is None or not may_use(epr, terms):
        return ""
    return f"{name} {epr.address[:100]} is not used: it is not at the agreement's own server."


def first_usable(candidates: Iterable[EndpointReference], terms: Terms) -> EndpointReference | None:
    """The first of these that messages may go to."""
    return next((epr for epr in candidates if not may_use(epr, terms)), None)


def tell(
    *,
    coordination: Coordination | None,
    enlistment: Enlistment | None,
    terms: Terms,
    kind: str,
    to: EndpointReference,
    me: EndpointReference | None,
    now: datetime,
    body: Body | None = None,
    relates_to: str = "",
    identifier: str = "",
    awaits: bool = False,
    note: str = "",
) -> Message:
    """One message to a peer. `me`: our endpoint reference of the relationship, for its ReplyTo or From."""
    profile = Style(terms.addressing_profile)
    message_id = f"urn:uuid:{uuid.uuid4()}"
    written = compose(
        kind,
        version=Version(terms.coordination_version),
        soap=Soap(terms.soap_version),
        profile=profile,
        to=to,
        me=me,
        message_id=message_id,
        body=body,
        relates_to=relates_to,
    )
    fault = body if isinstance(body, Fault) else None
    return outgoing.send(
        coordination=coordination,
        enlistment=enlistment,
        terms=terms,
        kind=kind,
        to=to.address,
        body=encode(written, profile),
        message_id=message_id,
        now=now,
        relates_to=relates_to,
        awaits=awaits,
        identifier=identifier,
        fault_code=str(fault.code) if fault is not None and fault.code is not None else "",
        fault_reason=fault.reason if fault is not None else "",
        note=note,
    )


def tell_fault(
    *,
    coordination: Coordination | None,
    enlistment: Enlistment | None,
    terms: Terms,
    to: EndpointReference,
    code: FaultCode,
    reason: str,
    relates_to: str,
    now: datetime,
    identifier: str = "",
    note: str = "",
) -> Message:
    """A fault about the message with this MessageID; "" when it had none."""
    return tell(
        coordination=coordination,
        enlistment=enlistment,
        terms=terms,
        kind=FAULT,
        to=to,
        me=None if enlistment is None else own_epr(terms, service_of(enlistment), enlistment=enlistment),
        now=now,
        body=Fault(code, reason),
        relates_to=relates_to,
        identifier=identifier,
        note=note,
    )


class Rejected(Exception):
    """It is answered with an HTTP status only, and nothing of it is stored but a Rejection."""

    def __init__(self, status: int, reason: str, detail: str) -> None:
        super().__init__(f"{status} {reason}: {detail}")
        self.status = status
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Item:
    """`found`: every rule that it breaks, what keeps it from being processed first."""

    arrival: Arrival
    service: str
    principal: Principal
    terms: Terms
    message: WsMessage
    found: tuple[Violation, ...]
    now: datetime

    @property
    def fatal(self) -> Violation | None:
        return next((one for one in self.found if one.fatal), None)

    @property
    def remarks(self) -> str:
        """What is wrong with it and no reason to refuse it."""
        return " ".join(f"{one.sentence}." for one in self.found if not one.fatal)

    @property
    def enlistment_id(self) -> str:
        """The public id of the relationship that it is about, as the peer copied it from our endpoint reference."""
        return read_parameter(self.message.echoed, ENLISTMENT)

    @property
    def transaction_id(self) -> str:
        return read_parameter(self.message.echoed, TRANSACTION)


def keep(item: Item, coordination: Coordination | None, enlistment: Enlistment | None) -> CoordinationMessage:
    """Stores the message with its exact octets."""
    fault = item.message.body if isinstance(item.message.body, Fault) else None
    return outgoing.store_received(
        terms=item.terms,
        coordination=coordination,
        enlistment=enlistment,
        kind=item.message.kind,
        content_type=item.arrival.content_type,
        octets=item.arrival.body[:],
        now=item.now,
        message_id=item.message.addressing.message_id,
        relates_to=item.message.addressing.relates_to,
        fault_code=(fault.code.value if fault.code is not None else fault.name) if fault is not None else "",
        fault_reason=fault.reason if fault is not None else "",
        note=item.remarks[:255],
    )


def add_note(row: CoordinationMessage, text: str) -> None:
    """Adds to what is said about what was made of a message."""
    if text:
        row.note = f"{row.note} {text}".strip()[:255]
        row.save(update_fields=["note"])


def refuse_with_fault(
    item: Item, coordination: Coordination | None, enlistment: Enlistment | None, code: FaultCode, reason: str
) -> None:
    """Stores it and answers it with a fault, where it says where that goes. Raises Rejected where it does not."""
    registered: EndpointReference | None = peer_epr(enlistment) if enlistment is not None else None
    to = None
    if answerable(item.message.kind):
        to = first_usable(reply_targets(item.message, registered, fault=True), item.terms)
    if to is None:
        raise Rejected(400, "not_answerable", f"{code}: {reason}. There is nowhere to send a fault to.")
    row = keep(item, coordination, enlistment)
    add_note(row, not_used("FaultTo", item.message.addressing.fault_to, item.terms))
    add_note(row, f"Answered with {code}: {reason}")
    tell_fault(
        coordination=coordination,
        enlistment=enlistment,
        terms=item.terms,
        to=to,
        code=code,
        reason=reason,
        relates_to=item.message.addressing.message_id,
        now=item.now,
    )
