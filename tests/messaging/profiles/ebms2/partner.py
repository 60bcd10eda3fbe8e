"""The partner at the other end of ebXML 2.0: it speaks through the real codec.

`ebms2_side` makes the partner of a new agreement. `Ebms2Side.message`, `.acknowledgement`, `.error` ... build what it
sends, and `.send` brings it to our entrance. `answering(...)` is what its server says to one of ours in the response.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any
from unittest import mock

from messaging.entrance import authentication
from messaging.entrance.refusals import Answer, Arrival, turn_away
from messaging.profiles.acknowledging import Item
from messaging.profiles.ebms2 import receiving
from messaging.protocol.codecs import ebms2
from messaging.protocol.envelope import (
    DEFAULT_LIMITS,
    AckRequest,
    DocumentReference,
    Ebms2,
    Envelope,
    ErrorInfo,
    MessageOrder,
    MessageType,
    PartyId,
    PayloadPart,
)
from messaging.protocol.errors import ErrorCode, Severity
from messaging.transports import Parcel, Receipt
from rmhub import clock
from tests.messaging import factories
from tests.messaging.factories import ACTION, ORDER, SERVICE

_count = itertools.count(1)
RELIABLE = Ebms2(duplicate_elimination=True, ack_requests=(AckRequest(),))


class Ebms2Side(factories.PartnerSide):
    """The partner of one ebXML 2.0 agreement."""

    __slots__ = ()

    def envelope(
        self, message_id: str = "", *, content: bytes = ORDER, ebms: Ebms2 = RELIABLE, **changes: Any
    ) -> Envelope:
        """A business message; `changes` are fields of the Envelope."""
        key = next(_count)
        content_id = f"p{key}@partner.example"
        made = Envelope(
            message_type=MessageType.NORMAL,
            message_id=message_id or f"m{key}@partner.example",
            timestamp=clock.now(),
            from_parties=_ids(self.terms.partner_identifiers),
            to_parties=_ids(self.terms.own_identifiers),
            agreement_id=self.terms.tpa_id,
            conversation_id=f"conv{key}@partner.example",
            service=SERVICE,
            action=ACTION,
            semantics=ebms.semantics,
            routing=(),
            manifest=(DocumentReference("", f"cid:{content_id}"),),
            payloads=(PayloadPart(content_id, "application/xml", content),),
            version=ebms2.VERSION,
            ebms=ebms,
        )
        return replace(made, **changes)

    def business(self, message_id: str = "", **changes: Any) -> Arrival:
        """A business message as it comes in."""
        return self.arrival(self.envelope(message_id, **changes))

    def ordered(
        self, number: int, message_id: str = "", *, conversation: str = "conv", reset: bool | None = None
    ) -> Arrival:
        """A message with this number in its conversation; number 0 resets it unless told otherwise."""
        order = MessageOrder(number, reset=number == 0 if reset is None else reset)
        ebms = replace(RELIABLE, order=order)
        return self.business(message_id, ebms=ebms, conversation_id=conversation)

    def acknowledging(self, octets: Parcel | Arrival) -> Envelope:
        """Its acknowledgement of a message of ours."""
        now = clock.now()
        return ebms2.acknowledgement(
            decoded(octets), message_id=f"a{next(_count)}@partner.example", timestamp=now, received=now
        )

    def refusing(
        self, octets: Parcel, code: str = ErrorCode.DELIVERY_FAILURE, severity: Severity = Severity.ERROR
    ) -> Envelope:
        """Its error message about a message of ours."""
        error = ErrorInfo(code, severity, "Not today.")
        return ebms2.error_message(
            decoded(octets), (error,), message_id=f"e{next(_count)}@partner.example", timestamp=clock.now()
        )

    @staticmethod
    def fault() -> ErrorInfo:
        """Something that it finds wrong."""
        return ErrorInfo(ErrorCode.INCONSISTENT, Severity.ERROR, "Not that.")

    @staticmethod
    def reliable() -> Ebms2:
        """What makes a message reliable."""
        return RELIABLE

    @staticmethod
    def signed() -> AckRequest:
        """It wants a signed acknowledgement."""
        return AckRequest(signed=True)

    def arrival(self, envelope: Envelope) -> Arrival:
        wire = ebms2.encode(envelope)
        body = wire.join([payload.content[:] for payload in envelope.payloads])
        return Arrival(wire.content_type, body, self.presented, "192.0.2.7")

    def bring(self, arrival: Arrival | Envelope) -> Answer:
        """Brings it to our entrance. Returns what that answers."""
        if isinstance(arrival, Envelope):
            arrival = self.arrival(arrival)
        entered = authentication.enter(arrival.presented, arrival.remote_address)
        if entered.principal is None:
            return turn_away(arrival, entered)
        return receiving.receive(arrival, limits=DEFAULT_LIMITS, principal=entered.principal)


def ebms2_side(**terms: Any) -> Ebms2Side:
    """The partner of a new agreement with these terms (seconds)."""
    side = factories.partner_side(profile="ebms2", **{"retries": 3, "retry_interval": 300, **terms})
    return Ebms2Side(side.terms, side.presented)


def responding(envelope: Envelope) -> Receipt:
    """The response of the partner's server that has a signal in its body."""
    wire = ebms2.encode(envelope)
    head = (("Content-Type", wire.content_type),)
    return Receipt(ok=True, status=200, response=b"HTTP 200\r\n\r\n" + wire.join(()), headers=head)


def decoded(octets: Parcel | Arrival | Answer) -> Envelope:
    """What is on the wire, read by our own reader."""
    body = octets.body if isinstance(octets.body, bytes) else b"".join(octets.body)
    return ebms2.decode(octets.content_type, body)


def items(partner: Ebms2Side, *arrivals: Arrival) -> list[Item]:
    """What the receiving service hands over for these, to be processed as one group."""
    collected: list[Item] = []

    def keep(item: Item) -> Answer:
        collected.append(item)
        return Answer(204)

    with mock.patch.object(receiving._group, "submit", keep):
        for arrival in arrivals:
            partner.bring(arrival)
    return collected


def _ids(identifiers: tuple[tuple[str, str], ...]) -> tuple[PartyId, ...]:
    return tuple(PartyId(value, context) for context, value in identifiers)
