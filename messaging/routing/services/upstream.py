"""What the previous hop a router is told of the way onward (spec 1, 4.1.3 and 4.2; wire-ebxml 1.8, ruling C9).

While the way is shut: a Transient Error. Where the route confirms through, the acknowledgement of a message is kept
back (a signal in state HELD) until the next hop has acknowledged, and goes out then; whatever keeps the next hop from
that is told as a Transient Error, and a person who gives the message up as an Error.

What a HELD acknowledgement `owed` is the copies that came and were answered by nothing yet. It changes only under the
lock of the onward pair, which whoever takes a copy holds as well.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from django.db import connection

from messaging import dispatch, profile
from messaging.choices import CircuitState, Direction, MessageState, SignalKind, SignalState
from messaging.engine import preparing
from messaging.models import Circuit, Message, Pair, Route, Signal
from messaging.models.bulk import bulk_insert, read
from messaging.profiles.ebxml.signals import error_signal
from messaging.profiles.stream import receipts
from messaging.protocol.envelope import Envelope, ErrorInfo
from messaging.protocol.errors import ErrorCode, NotAMessage, Severity
from messaging.protocol.pair_state import Flow, Gate
from messaging.storage import PayloadMissing
from messaging.transports.base import server_of
from partners import registry
from partners.terms import Terms

log = logging.getLogger(__name__)

# Of the message that went on: a person decided that it does not reach its receiver.
_GIVEN_UP = (MessageState.SKIPPED, MessageState.CANCELLED)
_DONE = (MessageState.DELIVERED, MessageState.SENT)
_STUCK = (MessageState.FAILED, MessageState.IN_DOUBT)
_DEFAULT_SECONDS = 60  # as models.Route has it


# --- whether the way onward is open ---


def transient(text: str, seconds: int) -> ErrorInfo:
    """A Transient Error with MinRetrySecs."""
    return ErrorInfo(ErrorCode.TRANSIENT_ERROR, Severity.TRANSIENT, f"{text}.", "", max(1, seconds))


def shut_servers(ways: Iterable[Terms], now: datetime) -> dict[str, datetime]:
    """The servers on these ways that are left alone at present, and until when. One query."""
    servers = {server(terms) for terms in ways}
    if not servers:
        return {}
    rows = Circuit.objects.filter(address__in=servers, state=CircuitState.OPEN, retry_at__gt=now)
    return {address: until for address, until in rows.values_list("address", "retry_at") if until is not None}


def blocked(terms: Terms, pair: Pair, shut: Mapping[str, datetime], now: datetime, seconds: int) -> ErrorInfo | None:
    """What the previous hop is told while the way onward is shut (4.1.3); None while it is open.

    `seconds`: what it is to wait where nobody knows how long that will be.
    """
    name = terms.hop_party_name
    if pair.gate != Gate.OPEN:
        return transient(f"The pair to {name} is {pair.gate}", seconds)
    if pair.flow == Flow.SUSPENDED:
        return transient(f"The pair to {name} is suspended", seconds)
    if pair.flow == Flow.HOLDING and pair.due_at is not None and pair.due_at > now:
        return transient(f"{name} has asked for a pause", _until(pair.due_at, now))
    until = shut.get(server(terms))
    if until is not None:
        return transient(f"{name} cannot be reached", _until(until, now))
    return None


def server(terms: Terms) -> str:
    """The server that messages of these terms are handed to; the key of its circuit."""
    return server_of(terms.partner_address, terms.server)


def _until(moment: datetime, now: datetime) -> int:
    return math.ceil((moment - now).total_seconds())


def _seconds(*ways: Terms) -> int:
    """MinRetrySecs of the routes that lead there: the least."""
    found = Route.objects.filter(onward__in=[terms.agreement_id for terms in ways]).order_by("min_retry_secs")
    return found.values_list("min_retry_secs", flat=True).first() or _DEFAULT_SECONDS


# --- copies of messages whose acknowledgements are kept back ---


def answer_copies(
    held: Sequence[Signal], copies: Mapping[uuid.UUID, Envelope], pairs: Mapping[uuid.UUID, Pair], now: datetime
) -> list[Signal]:
    """What copies get: nothing while the message is on its way, a Transient Error while the way is shut, an Error when
    the message was given up. Changes `held` (the caller saves them) and returns the new signals.

    `copies`: the last copy of each, by the received message. Call with the onward `pairs` locked.
    """
    found = Message.objects.filter(forwarded_from__in=[signal.about_id for signal in held], direction=Direction.OUT)
    onward = {message.forwarded_from_id: message for message in found.defer("wire_frame").order_by("id")}
    terms_of = registry.current().version
    shut = shut_servers([terms_of(message.agreement_version_id) for message in onward.values()], now)
    made: list[Signal] = []
    for signal in held:
        assert signal.about_id is not None
        message = onward.get(signal.about_id)
        if message is None or message.state in _DONE:
            release(signal, now)  # it has got there, and nobody knows of it any more
            continue
        error = _why_not(message, pairs.get(message.pair_id), shut, now)
        if error is not None and signal.about_id in copies:
            said = _about(copies[signal.about_id], signal, error, now)
            if said:
                made += said
                signal.owed = 0
    return made


def release(signal: Signal, now: datetime) -> None:
    """The acknowledgement goes out now, once for each copy that waits for it."""
    signal.state = SignalState.PENDING
    signal.due_at = now
    signal.owed = max(1, signal.owed)
    signal.attempts = 0


def _why_not(message: Message, pair: Pair | None, shut: Mapping[str, datetime], now: datetime) -> ErrorInfo | None:
    terms = registry.current().version(message.agreement_version_id)
    # Where several are in flight, what failed has failed for good; else the pair waits for a person.
    if message.state in _GIVEN_UP or (message.state == MessageState.FAILED and not profile.of(terms).numbered):
        return _given_up(message.state)
    if message.state in _STUCK:
        return transient(f"The message has not got to {terms.hop_party_name} yet", _seconds(terms))
    return blocked(terms, pair, shut, now, _seconds(terms)) if pair is not None else None


def _given_up(state: str) -> ErrorInfo:
    text = f"The message has not got to the next hop, and goes no further: {MessageState(state).label.lower()} there."
    return ErrorInfo(ErrorCode.DELIVERY_FAILURE, Severity.ERROR, text)


# --- what becomes of messages that went on ---

_RELEASE = """
UPDATE messaging_signal SET state = 'pending', due_at = %s, owed = greatest(owed, 1), attempts = 0
WHERE about_id = ANY(%s) AND direction = 'out' AND kind IN ('ack', 'final') AND state = 'held'
"""
_HELD = """
SELECT s.* FROM messaging_message o JOIN messaging_signal s ON s.about_id = o.forwarded_from_id
WHERE o.pair_id = %s AND o.direction = 'out' AND o.forwarded_from_id IS NOT NULL
AND o.standing IN ('open', 'confirming', 'failed', 'in_doubt')
AND s.direction = 'out' AND s.kind = 'ack' AND s.state = 'held' AND s.owed > 0
ORDER BY s.id FOR UPDATE OF s
"""


def onward_ended(ends: Iterable[tuple[uuid.UUID | None, str]], now: datetime) -> None:
    """Messages have got another state: (`forwarded_from`, state) of each. Call with the lock of their pair.

    Delivered: acknowledgements that were kept back for them go out. Skipped, cancelled, or failed for good: the
    previous hop is told, if it waits. No query unless one of them had come from a previous hop.
    """
    done: list[uuid.UUID] = []
    for came, state in ends:
        if came is None:
            continue
        if state in _DONE:
            done.append(came)
        elif state in (*_GIVEN_UP, MessageState.FAILED):
            _dropped(came, state, now)
    if not done:
        return
    with connection.cursor() as cursor:
        cursor.execute(_RELEASE, [now, done])
        released = cursor.rowcount
    if released:
        dispatch.wake_on_commit(dispatch.SEND)


def onward_stopped(pair: Pair, text: str, now: datetime, *, seconds: int | None = None) -> None:
    """The pair is suspended, or its receiver wants a pause of `seconds`: the previous hops that wait are told (4.1.3).

    Call with the pair's lock.
    """
    held = read(Signal, _HELD, [pair.pk])
    if not held:
        return
    if seconds is None:
        seconds = _seconds(*registry.current().by_uri_pair(pair.receiver_uri, pair.sender_uri))
    _tell(held, transient(text, seconds), now)


def _dropped(came: uuid.UUID, state: str, now: datetime) -> None:
    held = Signal.objects.filter(
        about=came,
        direction=Direction.OUT,
        kind=SignalKind.ACKNOWLEDGEMENT,
        state=SignalState.HELD,
    )
    _tell(list(held.order_by("pk").select_for_update()), _given_up(state), now)
    receipts.dropped(came, now)


def _tell(held: Collection[Signal], error: ErrorInfo, now: datetime) -> None:
    made: list[Signal] = []
    told: list[uuid.UUID] = []
    for signal in held:
        envelope = _received(signal)
        said = _about(envelope, signal, error, now) if envelope is not None else []
        if said:
            made += said
            told.append(signal.pk)
    if made:
        Signal.objects.filter(pk__in=told).update(owed=0)
        bulk_insert(made)
        dispatch.wake_on_commit(dispatch.SEND)


def _received(signal: Signal) -> Envelope | None:
    """The message that the acknowledgement is about; None when it cannot be read any more: its copies are answered."""
    assert signal.about_id is not None
    try:
        message, body = preparing.received(signal.about_id)
        came = profile.of(registry.current().version(message.agreement_version_id))
        envelope = came.decode(message.content_type, body)
        return envelope if isinstance(envelope, Envelope) else None
    except (PayloadMissing, NotAMessage):
        log.exception("a received message cannot be read", extra={"action": "hop_before_not_told"})
        return None


def _about(envelope: Envelope, held: Signal, error: ErrorInfo, now: datetime) -> list[Signal]:
    """What the previous hop is told; nothing of a trouble that passes, for which ebXML 2.0 has no words."""
    if envelope.ebms is not None and error.severity is Severity.TRANSIENT:
        return []
    assert held.agreement_version_id is not None
    terms = registry.current().version(held.agreement_version_id)
    made = error_signal(envelope, error, terms, now, held.pair_id)
    made.about_id = held.about_id
    return [made]
