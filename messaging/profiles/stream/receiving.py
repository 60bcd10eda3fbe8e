"""What partners send us in transactional streams, from the transport to the answer (spec 3, in [MC-MQSRM]'s form).

Authenticate, decode, find the agreement, hold back what came too early, store. The answer has a status only: that a
message is stored is said by an order acknowledgement, that it never will be by a final receipt.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from django.conf import settings
from django.db import IntegrityError

from messaging import storage
from messaging.choices import SignalKind
from messaging.engine import pairs
from messaging.engine.group import GroupCommit
from messaging.entrance.effects import keep_large
from messaging.entrance.refusals import Answer, Arrival, refuse
from messaging.profile import of
from messaging.profiles.stream import accepting, acknowledged
from messaging.profiles.stream.arrivals import Holding, Item, Position, Receipt
from messaging.protocol.codecs import stream
from messaging.protocol.codecs.ebxml import normalize_uri
from messaging.protocol.codecs.stream import StreamEnvelope, StreamKind
from messaging.protocol.envelope import Limits, Semantics
from messaging.protocol.errors import NotAMessage
from messaging.protocol.streams.acceptance import Incoming, may_follow
from messaging.protocol.streams.final import Reason
from messaging.routing.services import routing
from partners import registry
from partners.models import Agreement
from partners.terms import Principal, Terms

log = logging.getLogger(__name__)

_TRIES = 8


_group: GroupCommit[Item, accepting.Outcome] = GroupCommit(accepting.accept)
_receipts: GroupCommit[Receipt, int] = GroupCommit(acknowledged.take)
_holding = Holding()


def receive(arrival: Arrival, *, limits: Limits, principal: Principal) -> Answer:
    """Takes one message or receipt of this partner.

    202: stored, recognised, or refused with a final receipt to come; committed. 400: not a message. 403: a partner, but
    no agreement for it is in force. 404: to a URI that is not of an agreement with this partner. 413: larger than the
    agreement allows. 503: what it follows is not here. Each refusal leaves a `Rejection`.
    """
    known = registry.current()
    try:
        envelope = stream.decode(arrival.content_type, arrival.body, limits)
    except NotAMessage as error:
        return Answer(refuse(arrival, 400, error.reason, error.detail, principal=principal))
    if envelope.kind is not StreamKind.MESSAGE:
        if not isinstance(arrival.body, bytes):
            detail = f"{len(arrival.body)} bytes; receipts are small."
            return _refuse(arrival, 413, "message_too_large", detail, principal, envelope)
        return Answer(_receipts.submit(_receipt(arrival, envelope, principal)))
    found = [terms for terms in known.by_hop(principal.party_id) if of(terms).windowed]
    fitting = [terms for terms in found if normalize_uri(terms.own_uri) == normalize_uri(envelope.to)]
    if not fitting:
        status, reason, detail = _no_agreement(envelope, principal, found)
        return _refuse(arrival, status, reason, detail, principal, envelope)
    terms = _chosen(envelope, fitting)
    if len(arrival.body) > terms.max_message_bytes + limits.header_document:
        detail = f"{len(arrival.body)} bytes; agreement {terms.tpa_id} allows {terms.max_message_bytes} of payload."
        return _refuse(arrival, 413, "message_too_large", detail, principal, envelope)
    item = _item(arrival, envelope, principal, terms)
    if item.refused is None and not envelope.defects:
        keep_large(part.content for part in envelope.payloads)
    return _accepted(item)


def _accepted(item: Item) -> Answer:
    """Through the rules: at once, or when what it follows is accepted, or when its time is over."""
    if item.envelope.position is None or not settings.RMHUB_STREAM_HOLD_MS:
        return _answer(_submit(item))
    until = time.monotonic() + settings.RMHUB_STREAM_HOLD_MS / 1000
    at = (item.position.tx_sequence_id, item.position.current)
    may_wait = _wait(item, until, first=True)
    for left in reversed(range(_TRIES)):
        with _holding.taking(item.stream, at):
            outcome = _submit(replace(item, may_wait=may_wait))
            if outcome.position is not None:
                _holding.advanced(item.stream, outcome.position)
        if outcome.status is not None:
            return _answer(outcome)
        may_wait = left > 1 and _wait(item, until)
    raise AssertionError("the last try may not wait")


def _answer(outcome: accepting.Outcome) -> Answer:
    assert outcome.status is not None, "it may not wait any more"
    return Answer(outcome.status, outcome.retry_after)


def _submit(item: Item) -> accepting.Outcome:
    try:
        return _group.submit(item)
    except IntegrityError:
        # Another process stored the same MessageId between our look and our insert. It is committed now: look again.
        return _group.submit(item)


def _wait(item: Item, until: float, *, first: bool = False) -> bool:
    def is_ready(position: Position) -> bool:
        return not may_follow(Incoming(*position), item.place)

    at = (item.position.tx_sequence_id, item.position.current)
    return _holding.wait(
        item.stream,
        at,
        is_ready=is_ready,
        look=lambda: accepting.position_of(item.stream),
        until=until,
        first=first,
    )


def _item(arrival: Arrival, envelope: StreamEnvelope, principal: Principal, terms: Terms) -> Item:
    service, action = _destination(envelope, terms)
    road = routing.road_of_other_profile(
        [(party.context, party.value) for party in envelope.to_parties],
        service,
        envelope.message_id,
        [len(part.content) for part in envelope.payloads],
        terms,
    )
    # Of what is for somebody else, the agreement with this hop says only that it may bring it.
    refused, detail = _outside(envelope, terms, service, action) if road is None else (None, "")
    return Item(
        envelope=envelope,
        body=arrival.body,
        content_type=arrival.content_type,
        principal=principal,
        digest=storage.digest(arrival.body),
        terms=terms,
        pair_id=pairs.inbound_pair_id(terms),
        service=service,
        action=action,
        refused=refused,
        detail=detail,
        road=road,
        remote_address=arrival.remote_address,
        traceparent=arrival.traceparent,
    )


def _destination(envelope: StreamEnvelope, terms: Terms) -> tuple[str, str]:
    """What it says; without a word on it the only service and action that the agreement lets the partner send."""
    if envelope.service:
        return envelope.service, envelope.action
    ways = {(service, action) for service, action, way in terms.services if way in ("receive", "both")}
    if len(ways) == 1:
        service, action = next(iter(ways))
        return service, envelope.label or action if action == "*" else action
    return "", ""


def _outside(envelope: StreamEnvelope, terms: Terms, service: str, action: str) -> tuple[Reason | None, str]:
    """What a readable message for us breaks of its agreement: refused before its place in the stream is looked at."""
    if envelope.position is not None and terms.semantics != Semantics.ONCE_AND_ONLY_ONCE:
        return Reason.NOT_TRANSACTIONAL, f"Agreement {terms.tpa_id} is not for streams: its semantics say so."
    written, agreed = envelope.from_parties, terms.partner_identifiers
    if written and not any((party.context, party.value) in agreed for party in written):
        names = ", ".join(f"{party.context}:{party.value}" for party in written)[:500]
        return Reason.ACCESS_DENIED, f"From party {names} is not of agreement {terms.tpa_id}."
    if not service:
        return Reason.BAD_DESTINATION, f"It names no service, and agreement {terms.tpa_id} has more than one."
    if not terms.allows(service, action, "receive"):
        return Reason.BAD_DESTINATION, f"{service} / {action} is not in agreement {terms.tpa_id}."
    return None, ""


def _chosen(envelope: StreamEnvelope, fitting: list[Terms]) -> Terms:
    """Of several agreements under one URI the one that it names, else the first whose services it fits."""
    for terms in fitting:
        if terms.tpa_id == envelope.agreement_id:
            return terms
    for terms in fitting:
        if envelope.service and terms.allows(envelope.service, envelope.action, "receive"):
            return terms
    return fitting[0]


def _no_agreement(envelope: StreamEnvelope, principal: Principal, found: list[Terms]) -> tuple[int, str, str]:
    tpa_id = envelope.agreement_id
    if not found:
        return 403, "unknown_agreement", f"No agreement for streams with {principal.party_name} is in force."
    others = Agreement.objects.filter(tpa_id=tpa_id, partner=principal.party_id)
    if tpa_id and all(terms.tpa_id != tpa_id for terms in found) and others.exists():
        return 403, "unknown_agreement", f"Agreement {tpa_id} is not in force, or is not for streams."
    return 404, "unknown_uri", f"{envelope.to} is not ours in an agreement for streams with {principal.party_name}."


def _receipt(arrival: Arrival, envelope: StreamEnvelope, principal: Principal) -> Receipt:
    where = normalize_uri(envelope.to)
    terms = next(
        (
            terms
            for terms in registry.current().by_hop(principal.party_id)
            if of(terms).windowed and where in (normalize_uri(terms.own_error_uri), normalize_uri(terms.own_uri))
        ),
        None,
    )
    named, final = envelope.receipt, envelope.final
    return Receipt(
        kind=SignalKind.ACKNOWLEDGEMENT if envelope.kind is StreamKind.RECEIPT else SignalKind.FINAL,
        principal=principal,
        terms=terms,
        message_id=envelope.message_id,
        source=named.source if named is not None else "",
        tx_sequence_id=named.tx_sequence_id if named is not None else 0,
        number=named.last_ordinal if named is not None else 0,
        about=final.about if final is not None else "",
        message_class=envelope.message_class,
        content_type=arrival.content_type,
        body=arrival.body,
        digest=storage.digest(arrival.body),
        remote_address=arrival.remote_address,
        traceparent=arrival.traceparent,
    )


def _refuse(
    arrival: Arrival, status: int, reason: str, detail: str, principal: Principal, envelope: StreamEnvelope
) -> Answer:
    named = {"tpa_id": envelope.agreement_id, "message_id": envelope.message_id}
    return Answer(refuse(arrival, status, reason, detail, principal=principal, **named))


def reset() -> None:
    """Forgets where streams are (tests)."""
    _holding.reset()
