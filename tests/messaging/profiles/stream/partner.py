"""The partner at the other end of a stream, for tests of both sides: it speaks through the real codec.

`stream_side` makes the partner of a new agreement, with a credential for our entrance. `StreamSide.message` builds what
it sends, `.send` brings it to our entrance and returns the answer; `receipts` reads what we send it.

What became of what a partner has sent in a stream; and ways past the entrance, for tests of the receiving side.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from django.test import Client

from messaging.choices import Direction, SignalKind
from messaging.engine import pairs
from messaging.entrance import authentication
from messaging.entrance.refusals import Answer, Arrival, turn_away
from messaging.models import IncomingStream, Message, Pair, Signal
from messaging.profiles.stream import accepting, receiving
from messaging.profiles.stream.receiving import receive
from messaging.protocol.codecs import stream
from messaging.protocol.codecs.stream import StreamEnvelope, StreamKind, StreamPosition
from messaging.protocol.envelope import DEFAULT_LIMITS, PartyId, PayloadPart
from messaging.protocol.streams.envelope import tx_sequence_id
from messaging.transports import Parcel
from partners import registry
from partners.models import AgreementVersion
from partners.terms import Presented, Terms
from rmhub import clock
from tests.messaging.factories import ACTION, ORDER, SERVICE
from tests.partners.factories import basic, make_agreement, make_credential

GUID = "2744e4e1-2b48-43e8-b441-42745f280d53"
A, B, C = (tx_sequence_id(1_141_651_000 + n, 1) for n in range(3))

_count = itertools.count(1)


def brought(arrival: Arrival) -> Answer:
    """What the entrance answers to whoever shows this credential."""
    entered = authentication.enter(arrival.presented, arrival.remote_address)
    if entered.principal is None:
        return turn_away(arrival, entered)
    return receive(arrival, limits=DEFAULT_LIMITS, principal=entered.principal)


@dataclass(frozen=True, slots=True)
class StreamSide:
    """The partner of one agreement. Its builders return Arrivals; `send` hands one to our entrance."""

    terms: Terms
    presented: Presented
    source: str = GUID

    def message(
        self,
        number: int | None,
        message_id: str = "",
        *,
        sid: int = A,
        previous: int | None = None,
        content: bytes = ORDER,
        requested: bool = False,
        receipts_to: str = "",
        **changes: Any,
    ) -> Arrival:
        """A message with this TxSequenceNumber (None: outside of any stream). `changes` are fields of the envelope."""
        key = next(_count)
        position = None
        if number is not None:
            position = StreamPosition(
                source=self.source,
                tx_sequence_id=sid,
                current=number,
                previous=number - 1 if previous is None else previous,
                start=number == 1,
                receipts_to=(receipts_to or self.terms.partner_error_uri) if number == 1 else "",
                receipt_requested=requested,
            )
        envelope = StreamEnvelope(
            kind=StreamKind.MESSAGE,
            message_id=message_id or f"m{key}@partner.example",
            to=self.terms.own_uri,
            sent_at=clock.now(),
            source=self.source,
            position=position,
            agreement_id=self.terms.tpa_id,
            conversation_id=f"conv{key}@partner.example",
            service=SERVICE,
            action=ACTION,
            from_parties=_party_ids(self.terms.partner_identifiers),
            to_parties=_party_ids(self.terms.own_identifiers),
            payloads=(PayloadPart(f"p1.{key}@partner.example", "application/xml", content),),
        )
        return self.arrival(replace(envelope, **changes))

    def arrival(self, envelope: StreamEnvelope) -> Arrival:
        """Any envelope as it comes in from this partner, with its credential."""
        wire = stream.encode(envelope)
        body = wire.join([payload.content for payload in envelope.payloads])
        return Arrival(wire.content_type, body, self.presented, "192.0.2.7")

    def send(self, arrival: Arrival) -> Answer:
        """Brings it to our entrance."""
        return brought(arrival)

    @property
    def inbound(self) -> Pair:
        """The pair on which it sends to us, as it is now in the database."""
        return Pair.objects.get(pk=pairs.inbound_pair_id(self.terms))

    @property
    def outbound(self) -> Pair:
        """The pair on which we send to it, as it is now in the database."""
        return Pair.objects.get(pk=pairs.outbound_pair_id(self.terms))

    @property
    def row(self) -> IncomingStream:
        """What is kept of its stream."""
        return IncomingStream.objects.get(pair=self.inbound, source=self.source)

    @property
    def state(self) -> tuple[int, int, int]:
        """(IncomingTxSequenceID, IncomingTxSequenceNumber, TxMessageRejectCount)."""
        row = self.row
        return int(row.tx_sequence_id), row.number, row.reject_count


def stream_side(version: AgreementVersion | None = None, *, source: str = GUID, **terms: Any) -> StreamSide:
    """The partner of `version`, or of a new agreement with these terms, with a Basic credential."""
    version = version or make_agreement(**{"profile": "stream", **terms})
    credential, password = make_credential(version.agreement.partner)
    return StreamSide(
        registry.current().version(version.pk), Presented(authorization=basic(credential.username, password)), source
    )


def decoded(octets: Parcel | Arrival) -> StreamEnvelope:
    """What is on the wire, read by our own reader."""
    return stream.decode(octets.content_type, octets.body)


def _party_ids(identifiers: tuple[tuple[str, str], ...]) -> tuple[PartyId, ...]:
    return tuple(PartyId(value, context) for context, value in identifiers)


TAKEN, GAP = Answer(202), Answer(503, 1)


def ids() -> list[str]:
    """What is stored, in the order in which documents are delivered."""
    return list(
        Message.objects.filter(direction=Direction.IN).order_by("position").values_list("message_id", flat=True)
    )


def finals() -> list[tuple[str, str]]:
    """The final receipts that we have made: what they are about, and what they say ("" = taken)."""
    found = Signal.objects.filter(direction=Direction.OUT, kind=SignalKind.FINAL).order_by("id")
    return list(found.values_list("ref_to_message_id", "error_code"))


def items(partner: StreamSide, *arrivals: Arrival) -> list[accepting.Item]:
    """What the entrance hands over for these, to be processed as one group."""
    collected: list[accepting.Item] = []

    def keep(item: accepting.Item) -> accepting.Outcome:
        collected.append(item)
        return accepting.Outcome(202)

    with mock.patch.object(receiving._group, "submit", keep):
        for arrival in arrivals:
            partner.send(arrival)
    return collected


def post(arrival: Arrival, path: str = "/stream/orders", **environ: Any) -> Any:
    """POSTs it as its sender would."""
    if arrival.presented.authorization:
        environ.setdefault("HTTP_AUTHORIZATION", arrival.presented.authorization)
    return Client().generic("POST", path, arrival.body, arrival.content_type, **environ)
