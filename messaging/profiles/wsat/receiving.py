"""What peers send to our coordination services, from the transport to the answer (spec 5).

Authenticate, decode, find the agreement, check the addressing; then one database transaction stores the message, moves
the transaction and puts what follows into the outbox. The answer has a status only: replies, faults and notifications
go out over connections of their own (spec 5: "connections initiated by the sender").
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

from django.conf import settings
from django.db import IntegrityError

from messaging.engine import handover
from messaging.entrance.refusals import Answer, Arrival, refuse
from messaging.models import Delivery, Enlistment, Trigger
from messaging.profiles.wsat import messages, notified, requested
from messaging.profiles.wsat.messages import Item, Rejected
from messaging.protocol.atomic.words import FAULT, Note, Request
from messaging.protocol.codecs.ebxml import normalize_uri
from messaging.protocol.ws.messages import EndpointReference, Register, Unreadable, WsMessage, read_parameter
from messaging.protocol.ws.names import Style
from messaging.protocol.ws.reading import decode
from messaging.protocol.ws.rules import check
from partners import registry
from partners.choices import Profile
from partners.terms import Principal, Terms
from rmhub import clock
from rmhub.ids import BadPublicId, read_public_id

log = logging.getLogger(__name__)

# What each of our services takes.
KINDS: dict[str, frozenset[str]] = {
    messages.ACTIVATION: frozenset({Request.CREATE}),
    messages.REGISTRATION: frozenset({Request.REGISTER}),
    messages.COMPLETION: frozenset({Note.COMMIT, Note.ROLLBACK, FAULT}),
    messages.COORDINATOR: frozenset({Note.PREPARED, Note.READ_ONLY, Note.ABORTED, Note.COMMITTED, Note.REPLAY, FAULT}),
    messages.PARTICIPANT: frozenset({Note.PREPARE, Note.COMMIT, Note.ROLLBACK, FAULT}),
    messages.REQUESTER: frozenset({Request.CREATED, Request.REGISTERED, FAULT}),
}


def receive(arrival: Arrival, *, service: str, soap_action: str = "", principal: Principal) -> Answer:
    """Takes one message of this partner to our service of this name (`messages.SERVICES`).

    `soap_action`: the header of SOAP 1.1.

    202: stored and processed, ignored or answered with a fault to come; committed. 400: not a message of SOAP, not one
    for this service, or one that breaks the rules and names nobody to tell. 403: a partner without an agreement for
    transactions, or one that speaks about the relationship of another. 404: no such service. 413, 415: too large, not
    SOAP. Each refusal leaves a `Rejection`.
    """
    if service not in KINDS:
        detail = f"There is no service /ws-tx/{service[:100]}: only {', '.join(KINDS)}."
        return Answer(refuse(arrival, 404, "unknown_service", detail, principal=principal))
    try:
        most = settings.RMHUB_TRANSACTION_MESSAGE_BYTES
        message = decode(arrival.content_type, arrival.body[:], max_bytes=most, soap_action=soap_action)
    except Unreadable as error:
        return Answer(refuse(arrival, error.status, error.reason, error.detail, principal=principal))
    terms = agreement_of(principal, message)
    if terms is None:
        detail = f"No agreement for atomic transactions with {principal.party_name} is in force."
        named = {"message_id": message.addressing.message_id}
        return Answer(refuse(arrival, 403, "no_agreement", detail, principal=principal, **named))
    item = Item(
        arrival=arrival,
        service=service,
        principal=principal,
        terms=terms,
        message=message,
        found=check(message, strict=terms.addressing_strict, profile=Style(terms.addressing_profile)),
        now=clock.now(),
    )
    try:
        if message.kind not in KINDS[service] and item.fatal is None:
            raise Rejected(400, "wrong_service", f"{message.kind} is not for the service {service}.")
        _handle(item)
    except Rejected as rejected:
        named = {"tpa_id": terms.tpa_id, "message_id": message.addressing.message_id}
        return Answer(refuse(arrival, rejected.status, rejected.reason, rejected.detail, principal=principal, **named))
    return Answer(202)


def _handle(item: Item) -> None:
    requests = (Request.CREATE, Request.REGISTER, Request.CREATED, Request.REGISTERED)
    is_request = item.message.kind in requests or item.service == messages.REQUESTER
    take = requested.take if is_request else notified.take
    handover.seat()  # looks before the transaction who takes what this leads to
    try:
        take(item)
    except IntegrityError:
        # Another process stored the same request between our look and our insert. It is committed now: look again.
        take(item)


def agreement_of(principal: Principal, message: WsMessage) -> Terms | None:
    """The agreement that a message of this party is under.

    One about a relationship that is known is under the agreement of that relationship: as it is in force, else as it
    was at registration. Others begin one. Of several agreements it is the one at whose services wsa:To lies, with the
    message's version, where the partner's services lie at the addresses that the message gives for itself; then the
    one that a member of the atomic trigger names whose document the transaction hands over.
    """
    ours = [terms for terms in registry.current().by_hop(principal.party_id) if terms.profile == Profile.WSAT]
    if (own := _of_relationship(principal, message)) is not None:
        return next((terms for terms in ours if terms.agreement_id == own.agreement_id), own)
    if len(ours) < 2:
        return next(iter(ours), None)
    to = normalize_uri(message.addressing.to)
    found = _narrowed(ours, lambda terms: to.startswith(_folder(terms.own_uri)))
    found = _narrowed(found, lambda terms: terms.coordination_version == message.version)
    named = _own_address(message)
    if named is not None:
        found = _narrowed(found, lambda terms: not messages.may_use(named, terms))
    if len(found) > 1:
        members = _of_members(message)
        found = _narrowed(found, lambda terms: terms.agreement_id in members)
    if named is not None:
        there = normalize_uri(named.address)
        found = _narrowed(found, lambda terms: f"{there}/".startswith(_folder(terms.partner_uri)))
    return found[0]


def _narrowed(candidates: list[Terms], belongs: Callable[[Terms], bool]) -> list[Terms]:
    """Those to which it belongs; all of them when it belongs to none."""
    return [terms for terms in candidates if belongs(terms)] or candidates


def _folder(uri: str) -> str:
    return normalize_uri(uri).rstrip("/") + "/"


def _of_relationship(principal: Principal, message: WsMessage) -> Terms | None:
    """The agreement of the party's relationship that a message names by our reference parameter."""
    try:
        key = read_public_id("enl", read_parameter(message.echoed, messages.ENLISTMENT))
    except BadPublicId:
        return None
    row = Enlistment.objects.filter(pk=key, party=principal.party_id).only("agreement_version").first()
    return messages.terms_of(row) if row is not None else None


def _own_address(message: WsMessage) -> EndpointReference | None:
    """Where a request says that its sender is: the participant's endpoint reference, else ReplyTo."""
    if isinstance(message.body, Register):
        return message.body.participant
    return message.addressing.reply_to


def _of_members(message: WsMessage) -> set[uuid.UUID]:
    """The agreements of those members to whom the transaction that a Register names hands its document."""
    try:
        key = read_public_id("txn", read_parameter(message.echoed, messages.TRANSACTION))
    except BadPublicId:
        return set()
    wholes = Delivery.objects.filter(coordinations=key).values("trigger")
    named = Trigger.objects.filter(member_of__in=wholes, atomic_agreement__isnull=False)
    return {one for one in named.values_list("atomic_agreement", flat=True) if one is not None}
