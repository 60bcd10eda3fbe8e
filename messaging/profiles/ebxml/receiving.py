"""What partners send us, from the transport to the answer: authenticate, decode, check the agreement, store.

`receive` answers with a status only: over HTTP every answer is bodyless (spec 1, 2.5.1), and an acknowledgement or
an error message is a transmission of its own.
"""

from __future__ import annotations

from dataclasses import replace

from django.db import IntegrityError

from messaging import storage
from messaging.engine import pairs
from messaging.engine.group import GroupCommit
from messaging.entrance.effects import keep_large
from messaging.entrance.refusals import Arrival, refuse
from messaging.profiles.acknowledging import Item
from messaging.profiles.ebxml import accepting
from messaging.protocol.codecs import ebxml
from messaging.protocol.codecs.ebxml import normalize_uri
from messaging.protocol.envelope import Envelope, Limits, MessageType
from messaging.protocol.errors import Defect, ErrorCode, NotAMessage
from messaging.routing.services import routing
from partners import registry
from partners.terms import Principal, Terms
from rmhub import clock

_group: GroupCommit[Item, int] = GroupCommit(accepting.accept)


def receive(arrival: Arrival, *, limits: Limits, principal: Principal) -> int:
    """Takes one message, acknowledgement or error message of this partner. Returns the HTTP status to answer with.

    204: stored, recognised or refused with an error message to come, and committed. 400: not a message.
    403: a partner without any agreement. 413: larger than the agreement allows.
    Whatever it returns but 204, nothing was stored as a message; each refusal leaves a `Rejection`.
    """
    known = registry.current()
    try:
        envelope = ebxml.decode(arrival.content_type, arrival.body, limits)
    except NotAMessage as error:
        return refuse(arrival, 400, error.reason, error.detail, principal=principal)
    terms = known.by_tpa_id(envelope.agreement_id)
    road = None
    if envelope.message_type is MessageType.NORMAL:
        road = routing.road(envelope, principal, terms)
        terms = road.hop if road is not None else terms
    foreign = ""
    if terms is not None and terms.hop_party_id != principal.party_id:
        # To its sender it is like one that does not exist: nobody learns which agreements others have.
        foreign = f"{principal.party_name} is not the partner of agreement {envelope.agreement_id}."
        terms = road = None
    item = Item(
        envelope=envelope,
        body=arrival.body,
        content_type=arrival.content_type,
        principal=principal,
        digest=storage.digest(arrival.body),
        terms=terms,
        remote_address=arrival.remote_address,
        traceparent=arrival.traceparent,
        came_by=arrival.came_by,
    )
    if envelope.message_type is MessageType.NORMAL:
        if terms is None:
            return _unknown_agreement(arrival, envelope, principal, foreign)
        if len(arrival.body) > terms.max_message_bytes + limits.header_document:
            detail = f"{len(arrival.body)} bytes; agreement {terms.tpa_id} allows {terms.max_message_bytes} of payload."
            return _refuse(arrival, 413, "message_too_large", detail, principal, envelope)
        item = replace(
            item,
            envelope=replace(
                envelope, defects=(*envelope.defects, *(() if road else outside_agreement(envelope, terms)))
            ),
            pair_id=pairs.inbound_pair_id(terms),
            road=road,
        )
        if not item.envelope.defects:
            keep_large(part.content for part in envelope.payloads)
    elif not isinstance(arrival.body, bytes):
        detail = f"{len(arrival.body)} bytes; acknowledgements and error messages are small."
        return _refuse(arrival, 413, "message_too_large", detail, principal, envelope)
    try:
        return _group.submit(item)
    except IntegrityError:
        # Another process stored the same MessageId between our look and our insert. It is committed now: look again.
        return _group.submit(item)


def outside_agreement(envelope: Envelope, terms: Terms) -> list[Defect]:
    """What a readable message breaks of its agreement; each earns an Error message (wire-ebxml 1.9)."""
    found: list[Defect] = []
    hop = envelope.hop
    unrecognized = ErrorCode.VALUE_NOT_RECOGNIZED
    where = "/ebXMLHeader/RoutingHeader[last()]"
    if normalize_uri(hop.receiver_uri) != normalize_uri(terms.own_uri):
        text = f"ReceiverURI {hop.receiver_uri} is not that of this agreement, {terms.own_uri}"
        found.append(Defect(unrecognized, text, f"{where}/ReceiverURI"))
    if normalize_uri(hop.sender_uri) != normalize_uri(terms.partner_uri):
        text = f"SenderURI {hop.sender_uri} is not that of this agreement, {terms.partner_uri}"
        found.append(Defect(unrecognized, text, f"{where}/SenderURI"))
    sides = (
        ("From", envelope.from_parties, terms.partner_identifiers),
        ("To", envelope.to_parties, terms.own_identifiers),
    )
    for side, written, agreed in sides:
        if written and not any((party.context, party.value) in agreed for party in written):
            names = ", ".join(f"{party.context}:{party.value}" for party in written)
            found.append(
                Defect(unrecognized, f"{side} party {names} is not of this agreement", f"/ebXMLHeader/Header/{side}")
            )
    if envelope.service and not terms.allows(envelope.service, envelope.action, "receive"):
        text = f"{envelope.service} / {envelope.action} is not in agreement {terms.tpa_id}"
        found.append(Defect(unrecognized, text, "/ebXMLHeader/Header/TPAInfo"))
    return found


def _unknown_agreement(arrival: Arrival, envelope: Envelope, principal: Principal, foreign: str) -> int:
    """A partner of ours names an agreement that is not in force: it is told so where another agreement says.

    `foreign`: for our people, that it is one with somebody else.
    """
    reason = "wrong_partner" if foreign else "unknown_agreement"
    detail = f"No agreement with TPAId {envelope.agreement_id!r} is in force."
    others = registry.current().by_hop(principal.party_id)
    if not others or not ebxml.may_answer_with_error(envelope):
        return _refuse(arrival, 403, reason, foreign or detail, principal, envelope)
    defect = Defect(ErrorCode.VALUE_NOT_RECOGNIZED, detail, "/ebXMLHeader/Header/TPAInfo/TPAId")
    accepting.answer_with_error(envelope, defect, others[0], clock.now())
    return _refuse(arrival, 204, reason, foreign or detail, principal, envelope)


def _refuse(arrival: Arrival, status: int, reason: str, detail: str, principal: Principal, envelope: Envelope) -> int:
    named = {"tpa_id": envelope.agreement_id, "message_id": envelope.message_id}
    return refuse(arrival, status, reason, detail, principal=principal, **named)
