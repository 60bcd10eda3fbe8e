"""Notifications and their faults, from participants, initiators and superiors (protocols.md 5.4 and 5.5)."""

from __future__ import annotations

from django.db import transaction

from messaging.models import Coordination, CoordinationMessage, Enlistment, Event
from messaging.protocol.atomic import coordinator, participant
from messaging.protocol.atomic.coordinator import Act, ActKind, Kind
from messaging.protocol.atomic.words import FaultCode, Note
from messaging.protocol.ws.messages import Fault, Notification
from messaging.protocol.ws.rules import reply_targets
from messaging.services import events
from messaging.services.atomic import addresses, changes, composing, opening
from messaging.services.atomic.arriving import Item, Rejected, add_note, keep, refuse_with_fault
from rmhub.ids import BadPublicId, read_public_id

_OF_SUPERIOR = {
    Note.PREPARE: Kind.SUPERIOR_PREPARE,
    Note.COMMIT: Kind.SUPERIOR_COMMIT,
    Note.ROLLBACK: Kind.SUPERIOR_ROLLBACK,
}


def take(item: Item) -> None:
    """Stores one notification or fault and does what the tables say, in one transaction. Raises Rejected."""
    with transaction.atomic():
        coordination, enlistment = _whose(item)
        if (fatal := item.fatal) is not None:
            refuse_with_fault(item, coordination, enlistment, fatal.code, fatal.sentence)
            return
        if coordination is None or enlistment is None:
            _unknown(item)
            return
        row = keep(item, coordination, enlistment)
        event = _event(item, enlistment)
        if event is None:
            add_note(row, "A fault of no code of this protocol: nothing is done.")
            return
        written: list[Event] = []
        at_hand = changes.AtHand(item.message, addresses.terms_of(enlistment) or item.terms, enlistment)
        cause, detail = _cause(item, event)
        step = changes.advance(coordination, event, item.now, written, cause=cause, detail=detail, at_hand=at_hand)
        add_note(row, changes.remarks(step))
        events.write(written)


def _whose(item: Item) -> tuple[Coordination | None, Enlistment | None]:
    """The relationship that a message names, its transaction locked; (None, None) for one that is not known.

    Raises Rejected when it is that of another partner, of another transaction, or spoken to at another service (T58).
    """
    try:
        own = read_public_id("enl", item.enlistment_id)
    except BadPublicId:
        return None, None
    known = Enlistment.objects.filter(pk=own).values_list("coordination_id", "party_id").first()
    if known is None:
        return None, None
    if known[1] != item.principal.party_id:
        detail = f"{item.enlistment_id} is not a relationship of {item.principal.party_name}."
        raise Rejected(403, "wrong_partner", detail)
    coordination = opening.locked(known[0])
    enlistment = Enlistment.objects.get(pk=own)
    if item.transaction_id and item.transaction_id != coordination.public_id:
        detail = f"{item.enlistment_id} is not a relationship of transaction {item.transaction_id}."
        raise Rejected(403, "wrong_transaction", detail)
    if addresses.service_of(enlistment) != item.service:
        detail = f"{item.enlistment_id} talks to the service {addresses.service_of(enlistment)}, not {item.service}."
        raise Rejected(400, "wrong_service", detail)
    return coordination, enlistment


def _event(item: Item, enlistment: Enlistment) -> coordinator.Event | None:
    body = item.message.body
    if isinstance(body, Fault):
        if body.code is None:
            return None
        if enlistment.superior:
            return coordinator.Event(Kind.SUPERIOR_FAULT, fault=body.code)
        return coordinator.Event(Kind.FAULT_RECEIVED, key=enlistment.pk.hex, fault=body.code)
    assert isinstance(body, Notification), "the kind was checked"
    if enlistment.superior:
        return coordinator.Event(_OF_SUPERIOR[body.note])
    return coordinator.Event(Kind.RECEIVED, key=enlistment.pk.hex, note=body.note)


def _cause(item: Item, event: coordinator.Event) -> tuple[str, str]:
    """Why the transaction aborts, should this message make it."""
    who = item.principal.party_name
    if event.kind is Kind.SUPERIOR_ROLLBACK:
        return "transaction_superior_rolled_back", f"{who} said Rollback."
    if event.kind is Kind.SUPERIOR_FAULT:
        return "transaction_superior_refused", f"{who} answered with the fault {event.fault}."
    if event.kind is Kind.FAULT_RECEIVED:
        return "transaction_voted_no", f"{who} answered with the fault {event.fault}."
    if event.note is Note.ABORTED:
        return "transaction_voted_no", f"{who} said Aborted."
    if event.note is Note.ROLLBACK:
        return "transaction_rolled_back", f"{who} asked for it."
    return "transaction_invalid_message", f"{who} said {item.message.kind}, which its state did not allow."


def _unknown(item: Item) -> None:
    """Of a relationship that is not known (any more): the None column; the answer goes where the message says (T49)."""
    row = keep(item, None, None)
    body = item.message.body
    if not isinstance(body, Notification):
        add_note(row, "It is about nothing that is known here: nothing is done.")
        return
    if item.service == addresses.PARTICIPANT:
        for of_participant in participant.unknown(body.note):
            code = of_participant.fault
            if of_participant.kind is participant.ActKind.SEND and of_participant.note is not None:
                _answer(item, row, of_participant.note)
            elif of_participant.kind is participant.ActKind.FAULT and code is not None:
                _answer_fault(item, row, code, of_participant.reason)
            else:
                add_note(row, of_participant.reason)
        return
    for act in coordinator.unknown(body.note, None, item.terms.coordination_version):
        _do(item, row, act)


def _do(item: Item, row: CoordinationMessage, act: Act) -> None:
    if act.kind is ActKind.ANSWER and act.note is not None:
        _answer(item, row, act.note)
    elif act.kind is ActKind.FAULT and act.fault is not None:
        _answer_fault(item, row, act.fault, act.reason)
    else:
        add_note(row, act.reason)


def _answer(item: Item, row: CoordinationMessage, note: Note) -> None:
    to = addresses.first_usable(reply_targets(item.message, None), item.terms)
    if to is None:
        add_note(row, f"Nothing is known of it; it names no usable address for {note}.")
        return
    add_note(row, f"Nothing is known of it: answered with {note}.")
    composing.tell(
        coordination=None,
        enlistment=None,
        terms=item.terms,
        kind=note.value,
        to=to,
        me=addresses.own_epr(item.terms, item.service),
        relates_to=item.message.addressing.message_id,
        now=item.now,
    )


def _answer_fault(item: Item, row: CoordinationMessage, code: FaultCode, reason: str) -> None:
    to = addresses.first_usable(reply_targets(item.message, None, fault=True), item.terms)
    if to is None:
        add_note(row, f"{code}: {reason} It names no usable address for the fault.")
        return
    add_note(row, f"Answered with {code}: {reason}")
    composing.tell_fault(
        coordination=None,
        enlistment=None,
        terms=item.terms,
        to=to,
        code=code,
        reason=reason,
        relates_to=item.message.addressing.message_id,
        now=item.now,
    )
