"""The partner at the other end, for tests of the messaging services: it speaks through the real codec.

`partner_side` makes the partner of a new agreement, with a credential for our entrance; `PartnerSide.message`,
`.acknowledgement` and `.error` build what it sends, and `.send` brings it to our entrance. `link` is where our own
transmissions end instead of on HTTP, `submit` hands in a document, and `work` does what a worker does with all that is
due. So one exchange is: submit(partner); work(); partner.send(partner.acknowledgement(wire.last)).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from messaging import transports
from messaging.engine import pairs
from messaging.engine.claiming import Job, claim_due
from messaging.engine.recording import record
from messaging.entrance import authentication
from messaging.entrance.refusals import Arrival, turn_away
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import Message, Pair
from messaging.profiles.ebxml.receiving import receive
from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import (
    DEFAULT_LIMITS,
    DocumentReference,
    Envelope,
    ErrorInfo,
    MessageType,
    PartyId,
    PayloadPart,
    RoutingHeader,
    Semantics,
)
from messaging.protocol.errors import ErrorCode, Severity
from messaging.transports import Parcel, Receipt
from messaging.transports.http import status_cause as http_cause
from partners import registry
from partners.models import AgreementVersion
from partners.terms import Presented, Terms
from rmhub import clock
from tests.partners.factories import basic, make_agreement, make_credential

SERVICE, ACTION = "urn:orders", "NewOrder"  # covered by tests.partners.factories.ANY_SERVICE
ORDER = b"<Order/>"
TAKEN = Receipt(ok=True, status=204)
REFUSED = Receipt(ok=False, cause="connect_refused", detail="Connection refused.")
LOST = Receipt(ok=False, cause="read_timeout", detail="No answer in time.")

_count = itertools.count(1)


def brought(arrival: Arrival) -> int:
    """What the entrance answers to whoever shows this credential."""
    entered = authentication.enter(arrival.presented, arrival.remote_address)
    if entered.principal is None:
        return turn_away(arrival, entered).status
    return receive(arrival, limits=DEFAULT_LIMITS, principal=entered.principal)


@dataclass(frozen=True, slots=True)
class PartnerSide:
    """The partner of one agreement. Its builders return Arrivals; `send` hands one to our entrance."""

    terms: Terms
    presented: Presented

    def message(
        self,
        number: int | None,
        message_id: str = "",
        *,
        content: bytes = ORDER,
        semantics: Semantics = Semantics.ONCE_AND_ONLY_ONCE,
        **changes: Any,
    ) -> Arrival:
        """A Normal message with this SequenceNumber (None: without). `changes` are fields of the Envelope."""
        key = next(_count)
        content_id = f"p1.{key}@partner.example"
        envelope = Envelope(
            message_type=MessageType.NORMAL,
            message_id=message_id or f"m{key}@partner.example",
            timestamp=clock.now(),
            from_parties=_party_ids(self.terms.partner_identifiers),
            to_parties=_party_ids(self.terms.own_identifiers),
            agreement_id=self.terms.tpa_id,
            conversation_id=f"conv{key}@partner.example",
            service=SERVICE,
            action=ACTION,
            semantics=semantics,
            routing=(
                RoutingHeader(
                    self.terms.partner_uri, self.terms.own_uri, self.terms.partner_error_uri, clock.now(), number
                ),
            ),
            manifest=(DocumentReference("Order", f"cid:{content_id}"),),
            payloads=(PayloadPart(content_id, "application/xml", content),),
        )
        return self.arrival(replace(envelope, **changes))

    def acknowledgement(self, parcel: Parcel | Arrival, **changes: Any) -> Arrival:
        """Its Acknowledgement of a message that we sent. `changes` are fields of the Envelope."""
        answer = ebxml.acknowledgement(
            decoded(parcel),
            message_id=f"a{next(_count)}@partner.example",
            timestamp=clock.now(),
            error_uri=self.terms.partner_error_uri,
        )
        return self.arrival(replace(answer, **changes))

    def error(
        self,
        parcel: Parcel,
        code: str = ErrorCode.UNKNOWN,
        *,
        min_retry_secs: int | None = None,
        severity: Severity | None = None,
        description: str = "Not today.",
    ) -> Arrival:
        """Its Error message about a message that we sent; TransientError has the severity of that name."""
        severity = severity or (Severity.TRANSIENT if code == ErrorCode.TRANSIENT_ERROR else Severity.ERROR)
        answer = ebxml.error_message(
            decoded(parcel),
            ErrorInfo(code, severity, description, min_retry_secs=min_retry_secs),
            message_id=f"e{next(_count)}@partner.example",
            timestamp=clock.now(),
            error_uri=self.terms.partner_error_uri,
        )
        return self.arrival(answer)

    def arrival(self, envelope: Envelope) -> Arrival:
        """Any envelope as it comes in from this partner, with its credential."""
        wire = ebxml.encode(envelope)
        body = wire.join([payload.content for payload in envelope.payloads])
        return Arrival(wire.content_type, body, self.presented, "192.0.2.7")

    def send(self, arrival: Arrival) -> int:
        """Brings it to our entrance. Returns the HTTP status."""
        return brought(arrival)

    @property
    def inbound(self) -> Pair:
        """The pair on which it sends to us, as it is now in the database."""
        return Pair.objects.get(pk=pairs.inbound_pair_id(self.terms))

    @property
    def outbound(self) -> Pair:
        """The pair on which we send to it, as it is now in the database."""
        return Pair.objects.get(pk=pairs.outbound_pair_id(self.terms))


def partner_side(version: AgreementVersion | None = None, **terms: Any) -> PartnerSide:
    """The partner of `version`, or of a new agreement with these terms (seconds), with a Basic credential.

    `profile="repeatable"` makes one of spec 2; its answers to us are `answered(...)`, the builders are ebXML's only.
    """
    version = version or make_agreement(**terms)
    credential, password = make_credential(version.agreement.partner)
    return PartnerSide(
        registry.current().version(version.pk), Presented(authorization=basic(credential.username, password))
    )


def submit(partner: PartnerSide, content: bytes = ORDER, **fields: Any) -> Message:
    """Hands in one document for the partner. `fields` go to `message_submit`."""
    payloads = [NewPayload(content, "application/xml", label="Order")]
    submission = message_submit(
        agreement=partner.terms.tpa_id, service=SERVICE, action=ACTION, payloads=payloads, **fields
    )
    return submission.message


def answered(status: int = 202, result: str = "accepted", body: bytes = b"", **headers: str) -> Receipt:
    """What a partner of the repeatable profile answers to a request of ours; `headers` as in `Retry_After="30"`."""
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    if result:
        named = (("Repeatability-Result", result), *named)
    ok = 200 <= status < 300
    retry_after = headers.get("Retry_After", "")
    return Receipt(
        ok=ok,
        status=status,
        cause="" if ok else http_cause(status),
        detail="" if ok else f"The partner answered HTTP {status}.",
        response=f"HTTP {status}\r\n\r\n".encode() + body,
        retry_after=int(retry_after) if retry_after.isdigit() else None,
        headers=named,
    )


def decoded(octets: Parcel | Arrival) -> Envelope:
    """What is on the wire, read by our own reader."""
    body = octets.body if isinstance(octets.body, bytes) else b"".join(octets.body)
    return ebxml.decode(octets.content_type, body)


@dataclass(slots=True)
class Link:
    """Where our transmissions end: every parcel in its order, answered by `answer` (a Receipt, or a function)."""

    answer: Receipt | Callable[[Parcel], Receipt] = TAKEN
    parcels: list[Parcel] = field(default_factory=list)

    def __call__(self, parcel: Parcel) -> Receipt:
        self.parcels.append(parcel)
        return self.answer(parcel) if callable(self.answer) else self.answer

    @property
    def last(self) -> Parcel:
        return self.parcels[-1]

    def of(self, message_type: MessageType) -> list[Parcel]:
        """The parcels with a message of this type."""
        return [parcel for parcel in self.parcels if decoded(parcel).message_type is message_type]


@contextmanager
def link(answer: Receipt | Callable[[Parcel], Receipt] = TAKEN, *, name: str = "http") -> Iterator[Link]:
    """Puts a Link in the place of the transport `name`."""
    before, made = transports.BY_NAME[name], Link(answer)
    transports.BY_NAME[name] = made
    try:
        yield made
    finally:
        transports.BY_NAME[name] = before


def work(*, limit: int = 64) -> list[Job]:
    """What a worker does with all that is due right now: claim, talk, record. Returns the jobs."""
    jobs = claim_due(limit=limit)
    record([(job, transports.send(job.transport, job.parcel)) for job in jobs])
    return jobs


def _party_ids(identifiers: tuple[tuple[str, str], ...]) -> tuple[PartyId, ...]:
    return tuple(PartyId(value, context) for context, value in identifiers)
