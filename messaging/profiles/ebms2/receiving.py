"""What partners send us as ebXML 2.0, from transport to answer: authenticate, decode, check the agreement, store.

The answer has a signal in its body where the sender asks for that (SyncReply); otherwise it has a status only, and
signals are messages of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from django.db import IntegrityError, transaction

from messaging import dispatch, storage
from messaging.choices import SignalKind
from messaging.engine import pairs
from messaging.engine.group import GroupCommit
from messaging.entrance.effects import keep_large
from messaging.entrance.partner_views import status_of
from messaging.entrance.refusals import Answer, Arrival, refuse
from messaging.models import Signal
from messaging.profile import of
from messaging.profiles.acknowledging import Item
from messaging.profiles.ebms2 import accepting, asking, awaited, encrypted, signed
from messaging.profiles.ebxml.signals import error_signal, host, outgoing
from messaging.protocol.codecs import ebms2
from messaging.protocol.envelope import Ebms2, Ebms2Kind, Envelope, Limits, MessageStatus, MessageType
from messaging.protocol.errors import Defect, ErrorCode, NotAMessage
from messaging.routing.services import routing
from partners import registry
from partners.choices import Signatures
from partners.terms import Principal, Terms
from rmhub import clock
from rmhub.ids import uuid7

_group: GroupCommit[Item, Answer] = GroupCommit(accepting.accept)
_HEADER = "/Envelope/Header/MessageHeader"
_ANSWERS = (Ebms2Kind.STATUS_RESPONSE, Ebms2Kind.PONG)


def receive(arrival: Arrival, *, limits: Limits, principal: Principal, one_way: bool = False) -> Answer:
    """Takes one message or signal of this partner. Returns the HTTP status to answer with, and what goes with it.

    `one_way`: it came by mail or in a response, so that nothing can go back with the answer: whatever its SyncReply
    asks for, signals are messages of their own.

    200 with a signal, 204: stored, recognised or refused with an error message, and committed. 400: not a message.
    403: a partner without any agreement. 413: larger than the agreement allows. Whatever it returns but these two,
    nothing was stored as a message; each refusal leaves a `Rejection`.
    """
    try:
        envelope = ebms2.decode(arrival.content_type, arrival.body, limits)
    except NotAMessage as error:
        return Answer(refuse(arrival, 400, error.reason, error.detail, principal=principal))
    ebms = _ebms(envelope)
    if one_way:
        ebms = replace(ebms, sync_reply=False)
        envelope = replace(envelope, ebms=ebms)
    if ebms.kind is not Ebms2Kind.BUSINESS and not isinstance(arrival.body, bytes):
        detail = f"{len(arrival.body)} bytes; signals are small."
        return _refuse(arrival, 413, "message_too_large", detail, principal, envelope)
    terms, foreign = _terms(envelope, principal)
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
    if envelope.message_type is not MessageType.NORMAL:
        return _submit(item)
    if ebms.kind in _ANSWERS:
        asking.answered(item)
        return accepting.TAKEN
    if terms is None:
        return _unknown_agreement(arrival, envelope, principal, foreign)
    if ebms.kind is not Ebms2Kind.BUSINESS:
        return _service(item, terms)
    if len(arrival.body) > terms.max_message_bytes + limits.header_document:
        detail = f"{len(arrival.body)} bytes; agreement {terms.tpa_id} allows {terms.max_message_bytes} of payload."
        return _refuse(arrival, 413, "message_too_large", detail, principal, envelope)
    # What cannot be acknowledged as it has to be is not taken; its sender comes again.
    wants_proof = terms.signatures == Signatures.RECEIPTS and any(one.signed for one in ebms.ack_requests)
    if wants_proof and (why := signed.why_no_signature(terms, clock.now())):
        return _refuse(arrival, 503, "signing_impossible", why, principal, envelope)
    now = clock.now()
    came = envelope.payloads
    try:
        envelope, unread = encrypted.opened(envelope, terms, now)
    except encrypted.DecryptionImpossible as error:
        return _refuse(arrival, 503, "decryption_impossible", str(error), principal, envelope)
    road = routing.road_of_other_profile(
        [(party.context, party.value) for party in envelope.to_parties],
        envelope.service,
        envelope.message_id,
        [len(part.content) for part in envelope.payloads],
        terms,
    )
    item = signed.looked_at(replace(item, envelope=envelope), came, limits, now)
    defects = (*unread, *signed.defects(item), *envelope.defects)
    if wants_proof and len(envelope.payloads) > signed.MAX_DOCUMENTS:
        said = f"An acknowledgement is signed for {signed.MAX_DOCUMENTS} documents at most."
        defects = (*defects, Defect(ErrorCode.NOT_SUPPORTED, said, "/Envelope/Body/Manifest"))
    # What goes elsewhere has parties and a service of other agreements; its acknowledgement is ours.
    outside = outside_agreement(envelope, terms) if road is None else _unagreed_receipt(envelope, terms)
    defects = (*defects, *outside)
    item = replace(item, envelope=replace(envelope, defects=defects), pair_id=pairs.inbound_pair_id(terms), road=road)
    if item.envelope.fault is None:
        keep_large(part.content for part in envelope.payloads)
    answer = _submit(item)
    if awaited.is_asked_for(item) and answer.status in (200, 204):
        return awaited.response_to(item) or answer
    return answer


def take_response(arrival: Arrival, principal: Principal, limits: Limits) -> None:
    """Takes the partner's message that came in the response to one of ours. What it asks for goes by itself."""
    receive(arrival, limits=limits, principal=principal, one_way=True)


def _submit(item: Item) -> Answer:
    try:
        return _group.submit(item)
    except IntegrityError:
        # Another process stored the same MessageId between our look and our insert. It is committed now: look again.
        return _group.submit(item)


def _terms(envelope: Envelope, principal: Principal) -> tuple[Terms | None, str]:
    """The agreement that it names, or the one with who brought it on a road that leads elsewhere. Beside it, for our
    people, why one that exists does not count.
    """
    known = registry.current()
    named = known.by_tpa_id(envelope.agreement_id)
    if named is not None and named.hop_party_id == principal.party_id and of(named).acknowledged_singly:
        return named, ""
    hops = [one for one in known.by_hop(principal.party_id) if of(one).acknowledged_singly]
    to = [(party.context, party.value) for party in envelope.to_parties]
    if len(hops) == 1 and to and not any(one in hops[0].own_identifiers for one in to):
        return hops[0], ""
    if named is None:
        return None, ""
    # To its sender it is like one that does not exist: nobody learns which agreements others have.
    if named.hop_party_id != principal.party_id:
        return None, f"{principal.party_name} is not the partner of agreement {envelope.agreement_id}."
    return None, f"Agreement {envelope.agreement_id} has another wire profile."


def outside_agreement(envelope: Envelope, terms: Terms) -> list[Defect]:
    """What a readable message breaks of its agreement; each earns an error (4.2.3.4)."""
    found = _unagreed_receipt(envelope, terms)
    sides = (
        ("From", envelope.from_parties, terms.partner_identifiers),
        ("To", envelope.to_parties, terms.own_identifiers),
    )
    for side, written, agreed in sides:
        if written and not any((party.context, party.value) in agreed for party in written):
            names = ", ".join(f"{party.context}:{party.value}" for party in written)
            text = f"{side} party {names} is not of this agreement"
            found.append(Defect(ErrorCode.VALUE_NOT_RECOGNIZED, text, f"{_HEADER}/{side}"))
    roles = (("From", _ebms(envelope).from_role, terms.partner_role), ("To", _ebms(envelope).to_role, terms.own_role))
    for side, role, ours in roles:
        if role and ours and role != ours:
            text = f"{side} has the role {role}; agreed is {ours}"
            found.append(Defect(ErrorCode.VALUE_NOT_RECOGNIZED, text, f"{_HEADER}/{side}/Role"))
    if not terms.allows(envelope.service, envelope.action, "receive"):
        text = f"{envelope.service} / {envelope.action} is not in agreement {terms.tpa_id}"
        found.append(Defect(ErrorCode.VALUE_NOT_RECOGNIZED, text, f"{_HEADER}/Action"))
    return found


def _unagreed_receipt(envelope: Envelope, terms: Terms) -> list[Defect]:
    if terms.signatures == Signatures.RECEIPTS or not any(one.signed for one in _ebms(envelope).ack_requests):
        return []
    text = f"signed acknowledgements are not of agreement {terms.tpa_id}"
    return [Defect(ErrorCode.NOT_SUPPORTED, text, "/Envelope/Header/AckRequested")]


def _unknown_agreement(arrival: Arrival, envelope: Envelope, principal: Principal, foreign: str) -> Answer:
    """A partner of ours names an agreement that is not in force: it is told so where another agreement says."""
    reason = "wrong_partner" if foreign else "unknown_agreement"
    detail = f"No agreement with CPAId {envelope.agreement_id!r} is in force."
    others = registry.current().by_hop(principal.party_id)
    speaking = [one for one in others if of(one).acknowledged_singly]
    if not speaking:
        return _refuse(arrival, 403, reason, foreign or detail, principal, envelope)
    _refuse(arrival, 204, reason, foreign or detail, principal, envelope)
    defect = Defect(ErrorCode.VALUE_NOT_RECOGNIZED, detail, f"{_HEADER}/CPAId")
    signal = error_signal(envelope, defect, speaking[0], clock.now(), None)
    return _told(envelope, signal)


def _service(item: Item, terms: Terms) -> Answer:
    """Ping and StatusRequest: what a messaging service answers by itself (7 and 8)."""
    fault = item.envelope.fault or next(iter(_of_parties(item.envelope, terms)), None)
    now = clock.now()
    if fault is not None:
        return _told(item.envelope, error_signal(item.envelope, fault, terms, now, None))
    signal_id = uuid7()
    make, kind = _SERVICES[_ebms(item.envelope).kind]
    answer = make(item, f"{kind}-{signal_id.hex}@{host(terms)}")
    signal = outgoing(kind, answer, ebms2.encode(answer), terms, now, signal_id=signal_id, pair_id=None)
    return _told(item.envelope, signal)


def _of_parties(envelope: Envelope, terms: Terms) -> list[Defect]:
    return [one for one in outside_agreement(envelope, terms) if not one.location.endswith("Action")]


def _pong(item: Item, message_id: str) -> Envelope:
    return ebms2.pong(item.envelope, message_id=message_id, timestamp=clock.now())


def _status(item: Item, message_id: str) -> Envelope:
    asked = _ebms(item.envelope).status
    assert asked is not None
    found = status_of(asked.ref_to_message_id, item.principal)
    word = MessageStatus[found.answer.name]
    return ebms2.status_response(
        item.envelope, word, message_id=message_id, timestamp=clock.now(), received=found.received_at
    )


_SERVICES: dict[Ebms2Kind, tuple[Callable[[Item, str], Envelope], SignalKind]] = {
    Ebms2Kind.PING: (_pong, SignalKind.PONG),
    Ebms2Kind.STATUS_REQUEST: (_status, SignalKind.STATUS),
}


def _told(envelope: Envelope, signal: Signal) -> Answer:
    """Commits a signal that belongs to no message in the store: in the response, or due by itself."""
    sync = _ebms(envelope).sync_reply
    if sync:
        accepting.said_in_response(signal, clock.now())
    with transaction.atomic():
        signal.save(force_insert=True)
    if sync:
        return accepting.in_response(signal)
    dispatch.wake(dispatch.SEND)
    return accepting.TAKEN


def _ebms(envelope: Envelope) -> Ebms2:
    assert envelope.ebms is not None
    return envelope.ebms


def _refuse(
    arrival: Arrival, status: int, reason: str, detail: str, principal: Principal, envelope: Envelope
) -> Answer:
    named = {"tpa_id": envelope.agreement_id, "message_id": envelope.message_id}
    return Answer(refuse(arrival, status, reason, detail, principal=principal, **named))
