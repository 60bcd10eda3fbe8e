"""One message on its way in: what is known of it before the database is asked, and how it is stored and answered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from messaging.entrance.refusals import Arrival
from messaging.models import Coordination, CoordinationMessage, Enlistment
from messaging.profiles.wsat import addresses, composing, outgoing
from messaging.protocol.atomic.words import FaultCode
from messaging.protocol.ws.epr import EndpointReference, read_parameter
from messaging.protocol.ws.messages import Fault, Violation, WsMessage
from messaging.protocol.ws.rules import answerable, reply_targets
from partners.terms import Principal, Terms


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
        return read_parameter(self.message.echoed, addresses.ENLISTMENT)

    @property
    def transaction_id(self) -> str:
        return read_parameter(self.message.echoed, addresses.TRANSACTION)


def keep(item: Item, coordination: Coordination | None, enlistment: Enlistment | None) -> CoordinationMessage:
    """Stores the message with its exact octets."""
    fault = item.message.body if isinstance(item.message.body, Fault) else None
    return outgoing.store_received(
        terms=item.terms,
        coordination=coordination,
        enlistment=enlistment,
        kind=item.message.kind,
        content_type=item.arrival.content_type,
        octets=item.arrival.body,
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
    registered: EndpointReference | None = addresses.peer_epr(enlistment) if enlistment is not None else None
    to = None
    if answerable(item.message.kind):
        to = addresses.first_usable(reply_targets(item.message, registered, fault=True), item.terms)
    if to is None:
        raise Rejected(400, "not_answerable", f"{code}: {reason}. There is nowhere to send a fault to.")
    row = keep(item, coordination, enlistment)
    add_note(row, addresses.not_used("FaultTo", item.message.addressing.fault_to, item.terms))
    add_note(row, f"Answered with {code}: {reason}")
    composing.tell_fault(
        coordination=coordination,
        enlistment=enlistment,
        terms=item.terms,
        to=to,
        code=code,
        reason=reason,
        relates_to=item.message.addressing.message_id,
        now=item.now,
    )
