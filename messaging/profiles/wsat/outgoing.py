"""The outbox of atomic transactions (spec 5): puts messages into it, and takes them out when they are answered.

All of it is called in the transaction that changes the coordination, with that row locked (`no_key`, for rows that name
it are made meanwhile). Locks come in the order coordination, messages, pair, incidents. The octets are written once; a
resend sends exactly them. What goes out and what becomes of it is `transmitting`'s.

What waits in the outbox of atomic transactions behind a pair that goes on.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils.translation import gettext as _

from messaging import dispatch, storage
from messaging.choices import Direction, IncidentState, MessageState
from messaging.claim import WITHHELD, Claim, JobKind, lease_seconds
from messaging.engine import handover, pairs
from messaging.engine.continuing import Continuation
from messaging.journal import events, incidents
from messaging.models import Coordination, CoordinationMessage, Enlistment, Event, Incident, Message, Pair
from messaging.models.bulk import bulk_insert, bulk_set, together, update_in_order
from messaging.protocol.atomic.words import Note
from messaging.protocol.codecs.entity_file import name_of
from messaging.protocol.envelope import Semantics
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.messages import Happened, move_atomic
from messaging.protocol.pair_state import Gate
from partners.choices import CoordinationVersion
from partners.terms import Terms
from rmhub.ids import uuid7

SILENT = "transaction_peer_silent"  # cause of the incident: what was asked is not answered
HELD = "transaction_pair_shut"  # the same for what cannot even be asked: it waits behind a pair that is shut
OPEN = (MessageState.QUEUED, MessageState.SENDING, MessageState.AWAITING_ACK, MessageState.RETRYING)
# What a person may take back.
CANCELLABLE = frozenset({MessageState.QUEUED.value, MessageState.AWAITING_ACK.value, MessageState.RETRYING.value})
# Notes and their faults are WS-AtomicTransaction's; all else is WS-Coordination's (spec 5).
NAMESPACES = {
    CoordinationVersion.V2004.value: (
        "http://schemas.xmlsoap.org/ws/2004/10/wsat",
        "http://schemas.xmlsoap.org/ws/2004/10/wscoor",
    ),
    CoordinationVersion.V2006.value: (
        "http://docs.oasis-open.org/ws-tx/wsat/2006/06",
        "http://docs.oasis-open.org/ws-tx/wscoor/2006/06",
    ),
}
_NOTES = frozenset(note.value for note in Note)
_NOT_NEEDED = "answer_not_needed"
_PORTS = {"http": 80, "https": 443}
_FINISHED = ("state", "due_at", "completed_at", "cause", "cause_detail")


class WrongAddress(ValueError):
    """An address that is not the agreement's: a message alone must not choose whom this hub calls."""


class Octets(Protocol):
    """A message as it goes over the wire; `soap_action`: value of the SOAPAction header, "" = none."""

    @property
    def content_type(self) -> str: ...
    @property
    def body(self) -> bytes: ...
    @property
    def soap_action(self) -> str: ...


def may_go_to(terms: Terms, address: str) -> bool:
    """Whether an absolute address of http or https has an origin (scheme, host, port) that the agreement names."""
    wanted = _origin(address)
    return wanted is not None and (is_at_partner(terms, address) or wanted in map(_origin, terms.other_servers))


def is_at_partner(terms: Terms, address: str) -> bool:
    """Whether it has the origin of the partner's own endpoint, for which our credential is."""
    return _origin(address) in (_origin(terms.partner_uri), _origin(terms.partner_address))


def send(
    *,
    coordination: Coordination | None,
    enlistment: Enlistment | None,
    terms: Terms,
    kind: str,
    to: str,
    body: Octets,
    message_id: str,
    now: datetime,
    relates_to: str = "",
    awaits: bool = False,
    service: str = "",
    identifier: str = "",
    fault_code: str = "",
    fault_reason: str = "",
    note: str = "",
) -> Message:
    """Puts one message into the outbox, due at once. `message_id`: the wsa:MessageID in `body`.

    `awaits`: it is sent again until `answered` or `stop`. While one of this kind for this enlistment is open, that one
    becomes due instead, with the octets that it has. Where an enlistment registered it is written for even when the
    agreement does not name that place any more: it waits there until it does (`transmitting`). Raises WrongAddress.
    """
    registered = enlistment is not None and to == enlistment.peer_address
    if not registered and not may_go_to(terms, to):
        raise WrongAddress(
            f"{to} is not at {terms.partner_uri} (scheme, host, port), and {terms.tpa_id} names no other place."
        )
    if awaits and enlistment is not None and (open_one := again(enlistment=enlistment, kind=kind, now=now)) is not None:
        return open_one
    message = Message(
        direction=Direction.OUT,
        state=MessageState.QUEUED,
        pair_id=pairs.outbound_pair_id(terms),
        message_id=message_id,
        ref_to_message_id=relates_to,
        due_at=now,
        **_stored(terms, kind, body.content_type, body.body, now, service, identifier, coordination, message_id),
    )
    facts = CoordinationMessage(
        message=message,
        coordination=coordination,
        enlistment=enlistment,
        kind=kind,
        address=to,
        relates_to=relates_to,
        awaits=awaits,
        soap_action=body.soap_action,
        fault_code=fault_code,
        fault_reason=fault_reason,
        note=note[:255],
        at=now,
    )
    continuation = Continuation(handover.seat(), now)
    plain = continuation.takes(terms) and continuation.claim.carries(message) and may_go_to(terms, to)
    if plain and Pair.objects.filter(pk=message.pair_id, gate=Gate.OPEN).exists():
        transmit(message, facts, body.body, terms, continuation.claim)
    else:
        dispatch.wake_on_commit(dispatch.SEND)
    with together():
        bulk_insert([message])
        bulk_insert([facts])
        continuation.write()
    return message


def transmit(message: Message, facts: CoordinationMessage, body: bytes, terms: Terms, claim: Claim) -> None:
    """Claims the next attempt of a message, whose octets these are; the caller writes it."""
    message.state = move_atomic(message.state, Happened.TRANSMITTED, awaits=facts.awaits)
    message.attempts += 1
    message.first_sent_at = message.first_sent_at or claim.now
    message.due_at = claim.now + timedelta(seconds=lease_seconds(terms))
    claim.transmit(JobKind.OWN, message, body, terms, address=facts.address, **fields_of(message, facts, terms))


def fields_of(message: Message, facts: CoordinationMessage, terms: Terms) -> dict[str, Any]:
    """Fields of the Parcel of such a message, beside those that come of its agreement."""
    headers = (("SOAPAction", facts.soap_action),) if facts.soap_action else ()
    # What we show the partner's own server is for no other one, whoever named it.
    withheld = {} if is_at_partner(terms, facts.address) else WITHHELD
    return {"name": name_of("message", message.message_id), "headers": headers, **withheld}


def again(*, enlistment: Enlistment, kind: str, now: datetime) -> Message | None:
    """The open message of this kind that awaits an answer, made due at once; None when there is none.

    One that is on the wire right now keeps its lease.
    """
    asked = _awaited(Q(coordinating__enlistment=enlistment, coordinating__kind=kind))
    message = asked.last()
    if message is not None and message.state != MessageState.SENDING:
        message.due_at = now
        message.save(update_fields=["due_at"])
        dispatch.wake_on_commit(dispatch.SEND)
    return message


def answered(
    *,
    now: datetime,
    enlistment: Enlistment | None = None,
    kinds: Collection[str] = (),
    relates_to: str = "",
) -> int:
    """What was asked is answered: by the other side of `enlistment` (of these `kinds`; () = all), or the one message
    whose wsa:MessageID is `relates_to`. Returns how many messages that ends.
    """
    if enlistment is None and not relates_to:
        raise ValueError("whose messages are answered: name an enlistment, or the MessageID that the answer relates to")
    which = Q(message_id=relates_to) if relates_to else Q()
    if enlistment is not None:
        which &= Q(coordinating__enlistment=enlistment)
    return _end(_chosen(which, kinds), Happened.ACKNOWLEDGED, "", now)


def stop(
    *,
    now: datetime,
    enlistment: Enlistment | None = None,
    coordination: Coordination | None = None,
    kinds: Collection[str] = (),
    note: str = "",
) -> int:
    """No answer is needed any more to what was asked (of these `kinds`; () = all). Returns how many messages that ends.

    What nobody answers (Committed, Aborted, faults) still goes out.
    """
    if enlistment is None and coordination is None:
        raise ValueError("whose messages are stopped: name an enlistment or a coordination")
    which = Q(coordinating__enlistment=enlistment) if enlistment is not None else Q()
    if coordination is not None:
        which &= Q(coordinating__coordination=coordination)
    return _end(_chosen(which, kinds), Happened.CANCELLED, note, now)


def store_received(
    *,
    terms: Terms,
    coordination: Coordination | None,
    enlistment: Enlistment | None,
    kind: str,
    content_type: str,
    octets: bytes,
    now: datetime,
    message_id: str = "",
    relates_to: str = "",
    service: str = "",
    identifier: str = "",
    fault_code: str = "",
    fault_reason: str = "",
    note: str = "",
) -> CoordinationMessage:
    """Stores an incoming message with its exact octets. One without a MessageID gets one, and the note says so."""
    if not message_id:
        message_id = f"urn:uuid:{uuid7()}"
        note = f"{note} It carried no MessageID; this one is the hub's own.".strip()
    pair_id = pairs.inbound_pair_id(terms)
    message = Message(
        direction=Direction.IN,
        state=MessageState.RECEIVED,
        pair_id=pair_id,
        message_id=message_id[:512],
        ref_to_message_id=relates_to[:512],
        completed_at=now,
        **_stored(terms, kind, content_type[:1000], octets, now, service, identifier, coordination, message_id),
    )
    message.save(force_insert=True)
    # The row of a busy partner's pair is not held until the commit: these are counters only.
    transaction.on_commit(lambda: _count_received(pair_id, now))
    return CoordinationMessage.objects.create(
        message=message,
        coordination=coordination,
        enlistment=enlistment,
        kind=kind[:40],
        relates_to=relates_to[:512],
        fault_code=fault_code[:60],
        fault_reason=fault_reason,
        note=note[:255],
        at=now,
    )


def cancel(message: Message, now: datetime) -> list[Event]:
    """A person takes it back. Call with it locked; saves it. Raises IllegalTransition for one on the wire or done."""
    facts = CoordinationMessage.objects.filter(message=message).first()
    awaits = facts is not None and facts.awaits
    if message.state == MessageState.SENDING:
        # An answer may end it there; a person waits for the outcome, as everywhere else.
        raise IllegalTransition(message.state, Happened.CANCELLED, _("It is on the wire; wait for its outcome."))
    message.state = move_atomic(message.state, Happened.CANCELLED, awaits=awaits)
    message.due_at, message.completed_at = None, now
    message.save(update_fields=["state", "due_at", "completed_at"])
    return _no_longer_silent([(facts.coordination_id, message.pair_id)], now) if facts is not None else []


def cancel_warning(message: Message) -> str:
    """What cancelling a message of a transaction can break, for people; "" for any other message."""
    facts = CoordinationMessage.objects.filter(message=message).first()
    if facts is None:
        return ""
    if not facts.awaits:
        return f"{facts.kind} is not sent any more: the other side may go on asking for it."
    return (
        f"{facts.kind} is not sent again, and the transaction stays open without its answer: the other side may keep "
        "what it holds for it, and its outcome there may differ from the one here. Settle the participant instead when "
        "it is permanently gone."
    )


# --- below: how it is done ---


def _stored(
    terms: Terms,
    kind: str,
    content_type: str,
    octets: bytes,
    now: datetime,
    service: str,
    identifier: str,
    coordination: Coordination | None,
    message_id: str,
) -> dict[str, object]:
    """The columns that messages of both directions have in common."""
    identifier = identifier or (coordination.identifier if coordination is not None else message_id)
    return {
        "agreement_version_id": terms.version_id,
        "semantics": Semantics.BEST_EFFORT.value,
        "conversation_id": identifier[:512],
        "service": (service or _namespace(terms, kind))[:255],
        "action": kind[:255],
        "position": 0,
        "content_type": content_type,
        "wire_frame": storage.pack_frame([octets]),
        "digest": hashlib.sha256(octets).hexdigest(),
        "size": len(octets),
        "created_at": now,
    }


def _namespace(terms: Terms, kind: str) -> str:
    atomic, coordination = NAMESPACES[terms.coordination_version]
    return atomic if kind in _NOTES else coordination


def _origin(address: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; None when it is no absolute http or https address, or names a user or a fragment."""
    try:
        parts: SplitResult = urlsplit(address)
        scheme, port = parts.scheme.lower(), parts.port
    except ValueError:
        return None
    if scheme not in _PORTS or not parts.hostname or parts.username is not None or parts.fragment:
        return None
    return scheme, parts.hostname.lower().rstrip("."), port or _PORTS[scheme]


def _awaited(which: Q) -> QuerySet[Message]:
    """Open messages that await an answer, locked, without their octets."""
    found = Message.objects.filter(which, coordinating__awaits=True, state__in=OPEN, direction=Direction.OUT)
    return found.order_by("pk").select_for_update(of=("self",)).defer("wire_frame")


def _chosen(which: Q, kinds: Collection[str]) -> QuerySet[Message]:
    return _awaited(which & Q(coordinating__kind__in=list(kinds)) if kinds else which)


def _end(found: QuerySet[Message], happened: Happened, note: str, now: datetime) -> int:
    messages = list(found.select_related("coordinating"))
    for message in messages:
        never_sent = message.state == MessageState.QUEUED
        end = Happened.CANCELLED if never_sent else happened
        message.state = move_atomic(message.state, end, awaits=True)
        message.due_at, message.completed_at = None, now
        message.cause = _NOT_NEEDED if end is Happened.CANCELLED else ""
        message.cause_detail = note or ("Its answer came before it was sent." if never_sent and not note else "")
    bulk_set(messages, _FINISHED)
    written = _no_longer_silent({(message.coordinating.coordination_id, message.pair_id) for message in messages}, now)
    events.write(written)
    return len(messages)


def _no_longer_silent(
    whose: Collection[tuple[uuid.UUID | None, uuid.UUID]] | Sequence[tuple[uuid.UUID | None, uuid.UUID]], now: datetime
) -> list[Event]:
    """Resolves the incidents about these coordinations and pairs where nothing awaits an answer any more."""
    written: list[Event] = []
    for coordination_id, pair_id in sorted(whose, key=str):
        same = Incident.objects.filter(coordination=coordination_id, pair_id=pair_id, cause__in=(SILENT, HELD))
        if not same.exclude(state=IncidentState.RESOLVED).exists():
            continue
        open_ones = CoordinationMessage.objects.filter(
            coordination=coordination_id, awaits=True, message__pair_id=pair_id, message__state__in=OPEN
        )
        if open_ones.exists():
            continue
        written += incidents.incidents_resolve_for_coordination(
            coordination_id=coordination_id,
            pair_id=pair_id,
            now=now,
            by="system",
            resolution="Nothing of this transaction awaits an answer of this partner any more.",
            causes=(SILENT, HELD),
        )
    return written


def _count_received(pair_id: uuid.UUID, now: datetime) -> None:
    Pair.objects.filter(pk=pair_id).update(done=F("done") + 1, last_success_at=now)


# What is on the wire keeps its lease.
_WAITING = (MessageState.QUEUED, MessageState.AWAITING_ACK, MessageState.RETRYING)


def let_go(pair: Pair, now: datetime, states: Sequence[MessageState] = _WAITING) -> int:
    """The pair goes on, or a person wants what waits to go out now: due at once. Returns how many messages that is.

    Call with its lock held. Messages that somebody holds right now are passed over: whoever holds a message may be
    waiting for the pair.
    """
    waiting = Message.objects.filter(pair=pair, direction=Direction.OUT, due_at__isnull=False, state__in=states)
    moved = update_in_order(waiting, skip_locked=True, due_at=now)
    if moved:
        dispatch.wake_on_commit(dispatch.SEND)
    return moved
