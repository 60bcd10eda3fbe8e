"""Notifications and their faults, from participants, initiators and superiors (protocols.md 5.4 and 5.5)."""

from __future__ import annotations

import uuid

from django.db import transaction

from messaging.choices import Direction
from messaging.engine import pairs
from messaging.journal import events, incidents
from messaging.models import Coordination, CoordinationMessage, Enlistment, Event, Pair
from messaging.pairs.services import resync
from messaging.profiles.wsat import changes, messages, opening, outgoing
from messaging.profiles.wsat.messages import Item, Rejected, add_note, keep, refuse_with_fault
from messaging.protocol.atomic import coordinator, participant
from messaging.protocol.atomic.coordinator import Act, ActKind, Kind
from messaging.protocol.atomic.words import FaultCode, Note
from messaging.protocol.ws.messages import EndpointReference, Fault, Notification, parameter
from messaging.protocol.ws.rules import reply_targets
from rmhub.ids import BadPublicId, floor_id, public_id, read_public_id

_OF_SUPERIOR = {
    Note.PREPARE: Kind.SUPERIOR_PREPARE,
    Note.COMMIT: Kind.SUPERIOR_COMMIT,
    Note.ROLLBACK: Kind.SUPERIOR_ROLLBACK,
}
_COPY = (
    "It does not say which relationship it is about: copy the reference parameters of the endpoint reference that the "
    "hub gave, each once and as they are."
)


def take(item: Item) -> None:
    """Stores one notification or fault and does what the tables say, in one transaction. Raises Rejected."""
    with transaction.atomic():
        own = _named(item)
        coordination, enlistment = _whose(item, own) if own is not None else (None, None)
        if (fatal := item.fatal) is not None:
            refuse_with_fault(item, coordination, enlistment, fatal.code, fatal.sentence)
            return
        if own is None:
            _nameless(item)
            return
        if coordination is None or enlistment is None:
            _unknown(item, own)
            return
        row = keep(item, coordination, enlistment)
        if isinstance(item.message.body, Fault) and (stale := _answered_before(item, enlistment)):
            add_note(row, stale)
            return
        event = _event(item, enlistment)
        if event is None:
            add_note(row, "A fault of no code of this protocol: nothing is done.")
            return
        written: list[Event] = []
        at_hand = changes.AtHand(item.message, messages.terms_of(enlistment) or item.terms, enlistment)
        cause, detail = _cause(item, event)
        step = changes.advance(coordination, event, item.now, written, cause=cause, detail=detail, at_hand=at_hand)
        add_note(row, changes.unused_fault_to(step, at_hand))
        add_note(row, changes.remarks(step))
        events.write(written)


def _named(item: Item) -> uuid.UUID | None:
    """Which relationship it says that it is about; None when it says none, several, or what no such id can be."""
    try:
        return read_public_id("enl", item.enlistment_id)
    except BadPublicId:
        return None


def _nameless(item: Item) -> None:
    """It does not say what it is about. That is no transaction that was forgotten: no outcome is told for it."""
    row = keep(item, None, None)
    if isinstance(item.message.body, Notification):
        _answer_fault(item, row, FaultCode.INVALID_PARAMETERS, _COPY)
    else:
        add_note(row, "A fault that does not say what it is about: nothing is done.")


def _whose(item: Item, own: uuid.UUID) -> tuple[Coordination | None, Enlistment | None]:
    """The relationship that a message names, its transaction locked; (None, None) for one that is not known.

    Raises Rejected when it is that of another partner, of another transaction, or spoken to at another service (T58).
    """
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
    if messages.service_of(enlistment) != item.service:
        detail = f"{item.enlistment_id} talks to the service {messages.service_of(enlistment)}, not {item.service}."
        raise Rejected(400, "wrong_service", detail)
    return coordination, enlistment


def _answered_before(item: Item, enlistment: Enlistment) -> str:
    """What to note about a fault that names a notification of ours of which no answer is awaited (any more); else "".

    It says nothing about what is asked now: a late InvalidState to an old Prepare must not end the resends of Commit.
    """
    relates_to = item.message.addressing.relates_to
    if not relates_to:
        return ""
    about = (
        CoordinationMessage.objects.filter(
            coordination=enlistment.coordination_id,
            message__message_id=relates_to,
            message__direction=Direction.OUT,
            kind__in=[note.value for note in Note],
        )
        .select_related("message")
        .defer("message__wire_frame")
        .first()
    )
    if about is None:
        return ""
    awaited = about.awaits and about.message.state in outgoing.OPEN
    if awaited and about.enlistment_id == enlistment.pk:
        return ""
    return f"A fault about {about.kind}, of which no answer is awaited from there: nothing is done."


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


def _unknown(item: Item, own: uuid.UUID) -> None:
    """Of a relationship that is not known (any more): the None column; the answer goes where the message says (T49)."""
    row = keep(item, None, None)
    body = item.message.body
    if not isinstance(body, Notification):
        add_note(row, "It is about nothing that is known here: nothing is done.")
        return
    presumed = (Note.COMMIT,) if item.service == messages.PARTICIPANT else (Note.PREPARED, Note.REPLAY)
    if body.note in presumed and _left_to_a_person(item, row, own):
        return
    if item.service == messages.PARTICIPANT:
        for of_participant in participant.unknown(body.note):
            code = of_participant.fault
            if of_participant.kind is participant.ActKind.SEND and of_participant.note is not None:
                _answer(item, row, own, of_participant.note)
            elif of_participant.kind is participant.ActKind.FAULT and code is not None:
                _answer_fault(item, row, code, of_participant.reason)
            else:
                add_note(row, of_participant.reason)
        return
    for act in coordinator.unknown(body.note, None, item.terms.coordination_version):
        _do(item, row, own, act)


def _left_to_a_person(item: Item, row: CoordinationMessage, own: uuid.UUID) -> bool:
    """Opens an incident instead of an answer when the relationship began in the time that a restore took away.

    The None column answers Prepared with Rollback, and Commit with Committed. Only somebody who has lost no memory may
    presume that: others may have been told, or have done, the opposite. Returns whether it was so.
    """
    marked = Pair.objects.filter(pk=pairs.outbound_pair_id(item.terms), resync_since__isnull=False)
    pair = marked.select_for_update(no_key=True).first()
    if pair is None or pair.resync_since is None or own >= floor_id(pair.resync_since):
        return False
    if pair.resync_from is not None and own < floor_id(pair.resync_from):
        return False
    add_note(
        row, "Begun after the backup that was restored: there is no answer until the resync of its pair is cleared."
    )
    detail = (
        f"{item.principal.party_name} said {item.message.kind} about {item.enlistment_id}, which is not known here."
    )
    _, opened = incidents.incident_open(
        pair=pair, cause=resync.TRANSACTION, detail=detail, now=item.now, message_pk=row.pk
    )
    events.write(opened)
    return True


def _do(item: Item, row: CoordinationMessage, own: uuid.UUID, act: Act) -> None:
    if act.kind is ActKind.ANSWER and act.note is not None:
        _answer(item, row, own, act.note)
    elif act.kind is ActKind.FAULT and act.fault is not None:
        _answer_fault(item, row, act.fault, act.reason)
    else:
        add_note(row, act.reason)


def _answer(item: Item, row: CoordinationMessage, own: uuid.UUID, note: Note) -> None:
    """What is said next about it has to name it too, so our endpoint reference keeps its parameter."""
    to = messages.first_usable(reply_targets(item.message, None), item.terms)
    if to is None:
        add_note(row, f"Nothing is known of it; it names no usable address for {note}.")
        return
    add_note(row, f"Nothing is known of it: answered with {note}.")
    messages.tell(
        coordination=None,
        enlistment=None,
        terms=item.terms,
        kind=note.value,
        to=to,
        me=EndpointReference(
            messages.own_epr(item.terms, item.service).address,
            (parameter(messages.ENLISTMENT, public_id("enl", own)),),
        ),
        relates_to=item.message.addressing.message_id,
        now=item.now,
    )


def _answer_fault(item: Item, row: CoordinationMessage, code: FaultCode, reason: str) -> None:
    to = messages.first_usable(reply_targets(item.message, None, fault=True), item.terms)
    add_note(row, messages.not_used("FaultTo", item.message.addressing.fault_to, item.terms))
    if to is None:
        add_note(row, f"{code}: {reason} It names no usable address for the fault.")
        return
    add_note(row, f"Answered with {code}: {reason}")
    messages.tell_fault(
        coordination=None,
        enlistment=None,
        terms=item.terms,
        to=to,
        code=code,
        reason=reason,
        relates_to=item.message.addressing.message_id,
        now=item.now,
    )
