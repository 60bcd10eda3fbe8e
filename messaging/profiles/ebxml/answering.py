"""Takes the partner's answers to our messages: acknowledgements and errors (spec 1, 2.1.3 (5), 2.1.4.2, 4.2)."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from messaging.choices import Direction, MessageState, SignalKind, SignalState
from messaging.engine.pairs import give_up
from messaging.engine.snapshots import apply_outbound, outbound_state, sender_policy
from messaging.journal import events, incidents
from messaging.models import Message, Pair, Signal
from messaging.models.bulk import read
from messaging.protocol.codecs.ebxml import normalize_uri
from messaging.protocol.envelope import Envelope, ErrorInfo, MessageType
from messaging.protocol.errors import ErrorCode, Severity
from messaging.protocol.messages import Happened, move
from messaging.protocol.pair_state import Act, Flow, Kind, Step
from messaging.protocol.pair_state import Event as PairEvent
from messaging.protocol.sender import step
from messaging.routing.services import upstream
from partners import registry
from rmhub.ids import uuid7

if TYPE_CHECKING:
    from messaging.profiles.acknowledging import Item
    from messaging.profiles.ebxml.accepting import Batch


# Where the message of a pair stands while it is in flight.
IN_FLIGHT: Mapping[str, MessageState] = {
    Flow.SENDING: MessageState.SENDING,
    Flow.AWAITING_ACK: MessageState.AWAITING_ACK,
    Flow.RESEND_WAIT: MessageState.RETRYING,
    Flow.HOLDING: MessageState.RETRYING,
    Flow.SUSPENDED: MessageState.FAILED,
}


def targets(references: Iterable[str]) -> dict[str, list[Message]]:
    """Our outbound messages by MessageId, which each party of ours gives once.

    Read before the locks, so only what never changes is used of them.
    """
    wanted = [reference for reference in references if reference]
    if not wanted:
        return {}
    found = read(
        Message,
        "SELECT id, message_id, document_id, pair_id, agreement_version_id, sequence_number, state, attempts,"
        " forwarded_from_id"
        " FROM messaging_message WHERE message_id = ANY(%s) AND direction = 'out'",
        [wanted],
    )
    known: dict[str, list[Message]] = defaultdict(list)
    for message in found:
        known[message.message_id].append(message)
    return known


def take(item: Item, known: Mapping[str, list[Message]], batch: Batch) -> None:
    """One acknowledgement or error message. Whatever it names, it is kept with its octets and never answered."""
    envelope = item.envelope
    candidates = known.get(envelope.ref_to_message_id, [])
    # The one that went to this partner, if any of them did.
    theirs = (found for found in candidates if batch.pairs[found.pair_id].partner_id == item.principal.party_id)
    message = next(theirs, candidates[0] if candidates else None)
    pair = batch.pairs[message.pair_id] if message is not None else None
    ignored = _why_ignored(item, message, pair)
    if not ignored and message is not None and pair is not None:
        message = batch.answered.get(message.pk, message)
        ignored = _apply(item, message, pair, batch)
    acknowledges = envelope.message_type is MessageType.ACKNOWLEDGEMENT
    kind = SignalKind.ACKNOWLEDGEMENT if acknowledges else SignalKind.ERROR
    about = envelope.ref_to_message_id
    batch.signals.append(row(item, message, pair, ignored, batch.now, kind=kind, about=about, error=envelope.error))


def _why_ignored(item: Item, message: Message | None, pair: Pair | None) -> str:
    """Why this answer moves nothing; "" when it may (wire-ebxml 1.5: it must come from the message's receiver)."""
    if message is None or pair is None:
        return "names no message of ours"
    if pair.partner_id != item.principal.party_id:
        return "comes from another partner than the one that the message went to"
    if normalize_uri(item.envelope.hop.sender_uri) != pair.receiver_uri:
        return "comes from another SenderURI than the ReceiverURI of the message"
    if pair.in_flight_id != message.pk:
        return f"the message is not in flight ({message.state})"
    if item.envelope.message_type is MessageType.ERROR and _severity(item.envelope) is Severity.WARNING:
        return "a warning"
    return ""


def _apply(item: Item, message: Message, pair: Pair, batch: Batch) -> str:
    """Moves the pair. Returns why it was ignored after all, or ""."""
    now = batch.now
    event = _event(item.envelope)
    if pair.flow == Flow.SUSPENDED and event.kind is not Kind.ACKNOWLEDGED:
        return "the pair is suspended already"
    policy = sender_policy(registry.current().version(message.agreement_version_id), probing=pair.probing)
    result = step(outbound_state(pair), event, now, policy)
    had_trouble = bool(pair.cause)
    # Not the row's state, which was read before the lock: the flow of the locked pair says where its message is.
    message.state = IN_FLIGHT[pair.flow]
    apply_outbound(pair, result.state, now)
    if Act.COMPLETE in result.acts:
        _complete(item, message, pair, had_trouble, batch)
    elif event.kind is not Kind.ACKNOWLEDGED:
        error = item.envelope.error
        assert error is not None
        pair.cause_detail = f"{error.code}: {error.description}"[:2000]
        _refused(message, pair, result, batch)
    if Act.WAKE in result.acts:
        batch.freed.add(pair.pk)
    return ""


def _complete(item: Item, message: Message, pair: Pair, had_trouble: bool, batch: Batch) -> None:
    now = batch.now
    message.state = move(message.state, Happened.ACKNOWLEDGED, reliable=True)
    message.completed_at = now
    message.cause = message.cause_detail = ""
    batch.answered[message.pk] = message
    batch.ended.append((message.forwarded_from_id, message.state))
    pair.transmission_id = None
    pair.probing = False
    pair.done += 1
    pair.last_success_at = now
    data = {"attempts": message.attempts}
    batch.events.append(
        events.event("message.delivered", now, pair=pair, message=message, data=data, traceparent=item.traceparent)
    )
    if had_trouble and pair.flow != Flow.SUSPENDED:
        batch.events += incidents.incidents_resolve_for_pair(
            pair=pair, now=now, by="system", resolution=f"Message {message.message_id} was acknowledged."
        )


def _refused(message: Message, pair: Pair, result: Step, batch: Batch) -> None:
    """An Error message: give up and report, or hold (4.2)."""
    pair.transmission_id = None
    if Act.GIVE_UP in result.acts:
        batch.events += give_up(pair, message, batch.now)
    else:
        message.state = move(message.state, Happened.WILL_RETRY, reliable=True)
        message.cause, message.cause_detail = pair.cause, pair.cause_detail
        assert pair.due_at is not None
        wait = math.ceil((pair.due_at - batch.now).total_seconds())
        upstream.onward_stopped(pair, "The next hop has asked for a pause", batch.now, seconds=wait)
        if Act.ALERT in result.acts:
            batch.incident(pair, "transient_ceiling", pair.cause_detail, message.pk)
    batch.answered[message.pk] = message


def _event(envelope: Envelope) -> PairEvent:
    if envelope.message_type is MessageType.ACKNOWLEDGEMENT:
        return PairEvent(Kind.ACKNOWLEDGED)
    error = envelope.error
    assert error is not None
    if error.severity is Severity.TRANSIENT:
        return PairEvent(Kind.TRANSIENT_ERROR, cause="transient_error", min_retry_secs=error.min_retry_secs)
    return PairEvent(Kind.ERROR, cause=cause_of(str(error.code)))


def cause_of(code: str) -> str:
    """The cause code for a partner's error code: `ebms_error_invalid_sequence_number` (docs/causes.md)."""
    known = set(map(str, ErrorCode)) - {ErrorCode.TRANSIENT_ERROR}
    name = code if code in known else "Unknown"
    return "ebms_error_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _severity(envelope: Envelope) -> Severity:
    return envelope.error.severity if envelope.error else Severity.WARNING


def row(
    item: Item,
    message: Message | None,
    pair: Pair | None,
    ignored: str,
    now: datetime,
    *,
    kind: SignalKind,
    about: str,
    error: ErrorInfo | None,
) -> Signal:
    """An answer of the partner as it is kept. `ignored`: why it moved nothing, "" when it did; `about`: the MessageId
    that it names.
    """
    envelope = item.envelope
    return Signal(
        id=uuid7(),
        direction=Direction.IN,
        kind=kind,
        state=SignalState.IGNORED if ignored else SignalState.MATCHED,
        pair=pair,
        about_id=message.pk if message is not None else None,
        agreement_version_id=item.terms.version_id if item.terms is not None else None,
        message_id=envelope.message_id,
        ref_to_message_id=about,
        content_type=item.content_type[:1000],
        body=item.body[:],
        error_code=str(error.code)[:60] if error else "",
        error_severity=str(error.severity) if error else "",
        error_description=error.description[:2000] if error else "",
        min_retry_secs=error.min_retry_secs if error else None,
        note=ignored,
        signed_by=item.signed_by or None,
        created_at=now,
    )
