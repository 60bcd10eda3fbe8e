"""Writes messages of ours and puts them into the outbox, in the caller's transaction."""

from __future__ import annotations

import uuid
from datetime import datetime

from messaging.models import Coordination, Enlistment, Message
from messaging.profiles.wsat import addresses, outgoing
from messaging.protocol.atomic.words import FAULT, FaultCode
from messaging.protocol.ws.epr import EndpointReference
from messaging.protocol.ws.messages import Body, Fault
from messaging.protocol.ws.names import Profile, Soap, Version
from messaging.protocol.ws.writing import compose, encode
from partners.terms import Terms


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
    profile = Profile(terms.addressing_profile)
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
        me=None
        if enlistment is None
        else addresses.own_epr(terms, addresses.service_of(enlistment), enlistment=enlistment),
        now=now,
        body=Fault(code, reason),
        relates_to=relates_to,
        identifier=identifier,
        note=note,
    )
