"""CreateCoordinationContext and Register, and the replies to our own Register (spec 5, WS-Coordination)."""

from __future__ import annotations

from django.conf import settings
from django.db import transaction

from messaging.choices import Direction, MessageState
from messaging.engine.preparing import stored_body
from messaging.journal import events
from messaging.models import Coordination, CoordinationMessage, Enlistment, Event
from messaging.profiles.wsat import changes, messages, opening, outgoing, registering
from messaging.profiles.wsat.messages import Item, Rejected, add_note, keep, refuse_with_fault
from messaging.profiles.wsat.opening import Refused
from messaging.protocol.atomic import coordinator
from messaging.protocol.atomic.coordinator import Kind
from messaging.protocol.atomic.words import FaultCode, Phase, Request
from messaging.protocol.ws.messages import Create, EndpointReference, Fault, Octets, Register, Registered
from rmhub.ids import BadPublicId, read_public_id

SUPERIOR_REFUSED = "transaction_superior_refused"


def take(item: Item) -> None:
    """Stores one request or reply and does what it asks for, in one transaction. Raises Rejected.

    A request that comes again (its MessageID) is answered with the very octets of the first answer (T57).
    """
    with transaction.atomic():
        if item.service == messages.REQUESTER:
            _replied(item)
            return
        if (fatal := item.fatal) is not None:
            refuse_with_fault(item, None, None, fatal.code, fatal.sentence)
            return
        body = item.message.body
        try:
            to = _reply_to(item)
            if isinstance(body, Create):
                _create(item, body, to)
            elif isinstance(body, Register):
                _register(item, body, to)
            else:
                raise AssertionError(f"the kind was checked: {item.message.kind}")
        except Refused as refused:
            refuse_with_fault(item, _named(item), None, refused.code, refused.reason)


def _reply_to(item: Item) -> EndpointReference:
    """Where the reply goes. Raises Refused."""
    if item.message.version != item.terms.coordination_version:
        raise Refused(
            FaultCode.INVALID_PARAMETERS,
            f"The message is of version {item.message.version}, agreement {item.terms.tpa_id} of "
            f"{item.terms.coordination_version}.",
        )
    reply_to = item.message.addressing.reply_to
    assert reply_to is not None, "the rules ask for it"
    if why := messages.may_use(reply_to, item.terms):
        raise Refused(FaultCode.INVALID_PARAMETERS, f"wsa:ReplyTo: {why}")
    return reply_to


def _create(item: Item, body: Create, to: EndpointReference) -> None:
    terms, message_id = item.terms, item.message.addressing.message_id
    before = Coordination.objects.filter(
        agreement_version__agreement_id=terms.agreement_id, create_message_id=message_id
    ).first()
    if before is not None:
        add_note(keep(item, before, None), _once_more(before, None, message_id, item))
        return
    if opening.is_full(partner_id=terms.partner_id):
        raise Refused(
            FaultCode.CANNOT_CREATE,
            f"{settings.RMHUB_TRANSACTIONS_OPEN} transactions of yours have not ended yet, and this hub takes no more "
            "at once: end some, or wait until their time is over.",
        )
    # A refusal must leave nothing behind of what it was about to make.
    with transaction.atomic():
        if body.current is not None:
            coordination = opening.subordinate(item.message, body, terms, item.now)
        else:
            coordination = opening.coordination_open(
                terms=terms,
                begun_by=terms.hop_party_name,
                expires_ms=body.expires_ms,
                version=terms.coordination_version,
                now=item.now,
                create_message_id=message_id,
            )
        keep(item, coordination, None)
    if body.current is not None:
        return  # the reply waits for the superior's RegisterResponse
    opening.tell_created(coordination, terms, to, message_id, item.now)


def _register(item: Item, body: Register, to: EndpointReference) -> None:
    terms, message_id = item.terms, item.message.addressing.message_id
    coordination = _transaction(item)
    before = Enlistment.objects.filter(
        coordination=coordination, party_id=item.principal.party_id, register_message_id=message_id
    ).first()
    if before is not None:
        add_note(keep(item, coordination, before), _once_more(coordination, before, message_id, item))
        return
    assert body.protocol is not None, "the rules ask for one that is known"

    def answer(enlistment: Enlistment) -> None:
        keep(item, coordination, enlistment)
        enlistment.register_reply = messages.tell(
            coordination=coordination,
            enlistment=enlistment,
            terms=terms,
            kind=Request.REGISTERED,
            to=to,
            me=None,
            body=Registered(messages.coordinator_epr(enlistment, terms)),
            relates_to=message_id,
            now=item.now,
        )
        enlistment.save(update_fields=["register_reply"])

    with transaction.atomic():
        registering.enlist(
            coordination=coordination,
            protocol=body.protocol,
            peer=body.participant,
            terms=terms,
            register_message_id=message_id,
            now=item.now,
            before_others=answer,
        )


def _transaction(item: Item) -> Coordination:
    """The transaction that a Register is for, locked. Raises Refused."""
    named = _named(item)
    if named is None:
        why = "It names no transaction that is known here: copy the reference parameters of the RegistrationService."
        raise Refused(FaultCode.CANNOT_REGISTER, why)
    return opening.locked(named.pk)


def _named(item: Item) -> Coordination | None:
    """The transaction that a request names by our reference parameter."""
    try:
        return Coordination.objects.filter(pk=read_public_id("txn", item.transaction_id)).first()
    except BadPublicId:
        return None


def _once_more(coordination: Coordination, enlistment: Enlistment | None, message_id: str, item: Item) -> str:
    """The first answer, the same octets, unless there is none yet, it is on its way still, or the partner has moved.
    Returns what to note at the request.
    """
    first = (
        CoordinationMessage.objects.filter(
            coordination=coordination, relates_to=message_id, message__direction=Direction.OUT
        )
        .select_related("message")
        .order_by("at", "message_id")
        .first()
    )
    if first is None:
        return "It came before: its answer is to come."
    if first.message.state in (MessageState.QUEUED, MessageState.SENDING, MessageState.RETRYING):
        return "It came before: the first answer is on its way."
    try:
        outgoing.send(
            coordination=coordination,
            enlistment=enlistment,
            terms=item.terms,
            kind=first.kind,
            to=first.address,
            body=Octets(first.message.content_type, stored_body(first.message, []), first.soap_action),
            message_id=first.message.message_id,
            relates_to=message_id,
            fault_code=first.fault_code,
            fault_reason=first.fault_reason,
            now=item.now,
        )
    except outgoing.WrongAddress:
        place = first.address[:100]
        return f"It came before: answered to {place}, which is not at the agreement's own server any more; not again."
    return "It came before: the first answer is sent again."


def _replied(item: Item) -> None:
    """A reply or fault to a Register of ours (`upstream`). Others are nothing that this hub asked for."""
    superior = _asked(item)
    if superior is None:
        add_note(keep(item, None, None), "It answers nothing that this hub has asked: nothing is done.")
        return
    if superior.party_id != item.principal.party_id:
        detail = f"{item.principal.party_name} was not asked: {superior.public_id} is not a relationship with it."
        raise Rejected(403, "wrong_partner", detail)
    coordination = opening.locked(superior.coordination_id)
    superior.refresh_from_db()
    row = keep(item, coordination, superior)
    rolled_back = coordination.phase in (Phase.ABORTING, Phase.ABORTED)
    if superior.peer_address or (rolled_back and not isinstance(item.message.body, Registered)):
        add_note(row, "It is answered already: nothing is done.")
        return
    body, terms = item.message.body, messages.terms_of(superior) or item.terms
    why = ""
    if isinstance(body, Fault):
        why = f"The superior answered Register with {body.code or body.name}: {body.reason}"
    elif item.fatal is not None:
        why = f"The superior's answer cannot be used: {item.fatal.sentence}."
    elif isinstance(body, Registered):
        why = messages.may_use(body.coordinator, terms)
    else:
        why = f"The superior answered Register with {item.message.kind}."
    outgoing.answered(enlistment=superior, kinds=(Request.REGISTER,), now=item.now)
    if not why and isinstance(body, Registered):
        opening.is_registered(coordination, superior, body.coordinator, item.now)
        return
    add_note(row, why)
    if rolled_back:
        return
    written: list[Event] = []
    happened = coordinator.Event(Kind.SUPERIOR_FAULT, fault=FaultCode.CANNOT_REGISTER)
    changes.advance(coordination, happened, item.now, written, cause=SUPERIOR_REFUSED, detail=why)
    events.write(written)


def _asked(item: Item) -> Enlistment | None:
    """The superior whose answer this is: by our reference parameter, else by the MessageID that it relates to."""
    superiors = Enlistment.objects.filter(superior=True)
    try:
        return superiors.filter(pk=read_public_id("enl", item.enlistment_id)).first()
    except BadPublicId:
        pass
    relates_to = item.message.addressing.relates_to
    if not relates_to:
        return None
    return superiors.filter(
        messages__kind=Request.REGISTER,
        messages__message__message_id=relates_to,
        messages__message__direction=Direction.OUT,
    ).first()
