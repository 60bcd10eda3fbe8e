"""Messages of atomic transactions as the rest of the hub sees them: none waits for another (spec 5)."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from messaging.bench import Bench, Found
from messaging.claim import Claim, Due, Job, Recorded
from messaging.exceptions import OutsideAgreement, WrongState
from messaging.journal import events
from messaging.models import CoordinationMessage, Event, Message, Pair
from messaging.profile import Acted, Errors
from messaging.profiles.ebxml.profile import EbxmlProfile
from messaging.profiles.refusals import refused
from messaging.profiles.wsat import due as transactions
from messaging.profiles.wsat import outgoing, transmitting
from messaging.protocol.atomic import coordinator
from messaging.protocol.atomic.coordinator import ActKind, Partaker, Transaction, step
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Request, Seat
from messaging.protocol.errors import EncodeError
from messaging.protocol.pair_state import Flow, Kind
from messaging.protocol.ws.messages import Create, EndpointReference, Unreadable, WsMessage, parameter
from messaging.protocol.ws.names import Soap, Style, Version, coordination_type
from messaging.protocol.ws.reading import decode
from messaging.protocol.ws.rules import check
from messaging.protocol.ws.writing import compose, encode
from messaging.transports import Receipt
from partners.terms import Terms
from rmhub.language import gettext_lazy

_MOST = 64 * 1024
_EXPIRES = 60_000  # ms


class AtomicBench(Bench):
    """What can be tried: the codec and the tables. There is no document to send."""

    def round_trip(self, terms: Terms, now: datetime) -> Found:
        try:
            return _written(terms)
        except ValueError as error:
            return Found(str(error), "failed")

    def repeat(self, terms: Terms, now: datetime) -> Found:
        took = (Partaker("a", Protocol.DURABLE, Seat.PREPARING), Partaker("b", Protocol.DURABLE, Seat.PREPARING))
        begun = Transaction(Phase.PREPARING_DURABLE, took, version=terms.coordination_version)
        vote = coordinator.Event(coordinator.Kind.RECEIVED, key="a", note=Note.PREPARED)
        once = step(begun, vote)
        twice = step(once.transaction, vote)
        if twice.transaction != once.transaction or any(act.kind is ActKind.DECIDE for act in twice.acts):
            return Found("A vote that comes twice would be counted twice.", "failed")
        return Found("A vote that comes once more changes nothing: the others are still waited for.")

    def order(self, terms: Terms, now: datetime) -> Found:
        took = (Partaker("a", Protocol.DURABLE, Seat.PREPARING),)
        begun = Transaction(Phase.PREPARING_DURABLE, took, version=terms.coordination_version)
        early = step(begun, coordinator.Event(coordinator.Kind.RECEIVED, key="a", note=Note.COMMITTED))
        faults = [act.fault for act in early.acts if act.kind is ActKind.FAULT]
        if faults != [FaultCode.INVALID_STATE] or early.transaction.decided:
            return Found("A Committed that comes before the decision would be taken.", "failed")
        return Found(
            "A Committed that comes before the decision is answered with InvalidState, and all is rolled back."
        )


def _written(terms: Terms) -> Found:
    """A request and a vote as they would go out, read again as the partner would. Raises ValueError."""
    to = EndpointReference(f"{terms.partner_address}/registration")
    me = EndpointReference(f"{terms.own_uri}/requester", (parameter("Enlistment", "test"),))
    version = Version(terms.coordination_version)
    kinds = (Request.CREATE.value, Note.PREPARED.value)
    octets = b""
    for kind in kinds:
        body = Create(coordination_type(version), _EXPIRES) if kind == Request.CREATE else None
        meant = compose(
            kind,
            version=version,
            soap=Soap(terms.soap_version),
            profile=Style(terms.addressing_profile),
            to=to,
            me=me,
            message_id=f"urn:uuid:{uuid.uuid4()}",
            body=body,
        )
        octets = _read_again(meant, terms)
    facts = {"bytes": len(octets), "sha256": hashlib.sha256(octets).hexdigest()}
    written = f"WS-Coordination {terms.coordination_version}, SOAP {terms.soap_version}"
    said = f"{' and '.join(kinds)} were written as they would be sent ({written}), and read again as they were meant."
    return Found(said, facts=facts)


def _read_again(meant: WsMessage, terms: Terms) -> bytes:
    profile = Style(terms.addressing_profile)
    try:
        octets = encode(meant, profile)
        read = decode(octets.content_type, octets.body, max_bytes=_MOST, soap_action=octets.soap_action)
    except (EncodeError, Unreadable) as error:
        raise ValueError(f"{meant.kind} of this agreement has no valid form: {error}") from None
    told = (read.kind, read.version, read.soap, read.addressing, read.body)
    if told != (meant.kind, meant.version, meant.soap, meant.addressing, meant.body):
        raise ValueError(f"Read again, {meant.kind} says something else: version, headers or body are not the same.")
    if problems := [found.sentence for found in check(read, strict=True, profile=profile) if found.fatal]:
        raise ValueError(f"A strict partner would refuse {meant.kind}: {' '.join(problems)}")
    return octets.body


class AtomicProfile(EbxmlProfile):
    numbered = False
    carries_documents = False
    pairs_first = False
    bench = AtomicBench()
    verbs = frozenset({Kind.RETRY_NOW})  # they wait for nobody, and have no numbers
    without_number = gettext_lazy("Messages of transactions have no sequence numbers, so none is expected.")

    def fields_of(self, messages: Mapping[uuid.UUID, tuple[Message, Terms]]) -> dict[uuid.UUID, dict[str, Any]]:
        facts = CoordinationMessage.objects.in_bulk(list(messages))
        return {key: outgoing.fields_of(message, facts[key], terms) for key, (message, terms) in messages.items()}

    def moves(self, message: Message) -> bool:
        return True

    def send_due(self, due: Due, claim: Claim) -> None:
        transmitting.send(due, claim)

    def record(
        self,
        outcomes: Sequence[tuple[Job, Receipt]],
        pairs: Mapping[uuid.UUID, Pair],
        now: datetime,
        written: list[Event],
    ) -> Recorded:
        return transmitting.record(outcomes, now)

    def restored(self, now: datetime) -> None:
        transactions.restored(now)

    def let_go(self, pair: Pair, now: datetime) -> None:
        outgoing.let_go(pair, now)

    def refusal(self, pair: Pair, kind: Kind) -> str | None:
        if kind is Kind.RETRY_NOW:
            return None
        if kind is Kind.RESUME:
            return None if pair.flow == Flow.SUSPENDED else refused(Flow.IDLE, kind)
        if kind is Kind.SKIP:
            return _(
                "Messages of transactions do not wait for each other: cancel one by itself, or settle its participant."
            )
        return _("Messages of transactions have no sequence numbers, so there is nothing to restart.")

    def act(self, pair: Pair, kind: Kind, terms: Terms | None, reason: str, now: datetime) -> Acted:
        if kind is not Kind.RESUME and not outgoing.let_go(pair, now):
            text = _("Nothing waits on this pair: all its messages are answered, or on the wire.")
            raise WrongState(text, state=pair.flow)
        return Acted()

    def cancel(self, pair: Pair, message: Message, terms: Terms, reason: str, now: datetime) -> list[Event]:
        written = outgoing.cancel(message, now)
        return [events.event("message.cancelled", now, pair=pair, message=message, data={"reason": reason}), *written]

    def cancellable_states(self, semantics: str) -> frozenset[str]:
        """Nobody takes back what is on the wire, although an answer may end it there."""
        return outgoing.CANCELLABLE

    def check_submission(
        self, errors: Errors, terms: Terms, *, payloads: int, semantics: str, message_id: str, time_to_live: int | None
    ) -> None:
        raise OutsideAgreement(
            _(
                "Agreement {agreement} is one of atomic transactions, which carry no documents: submit the document "
                "under another agreement."
            ).format(agreement=terms.tpa_id)
        )


PROFILE = AtomicProfile()
