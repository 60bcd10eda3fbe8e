"""Claims of transactional streams (spec 3): puts queued messages in flight, and sends again what nobody acknowledged.

A pair has a window of messages in flight, numbered in their order, and several of them on the wire at once
(`stream_concurrency`). The core (`protocol.streams.outgoing`) decides; `Pair.due_at` is when it has to be asked again.
`Message.due_at` is the end of a lease, the time of a transport recovery, and otherwise the end of the message's life.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from messaging import storage
from messaging.choices import MessageState
from messaging.claim import Claim, JobKind
from messaging.engine import preparing
from messaging.engine.pairs import queues
from messaging.journal import events
from messaging.models import Message, Pair, Payload
from messaging.models.bulk import bulk_set
from messaging.profile import of
from messaging.profiles.stream import in_flight, moving, writing
from messaging.profiles.stream.in_flight import Flight, Row
from messaging.protocol.errors import EncodeError
from messaging.protocol.messages import Happened, move_stream
from messaging.protocol.pair_state import Flow as PairFlow
from messaging.protocol.streams.outgoing import Act, Do, Event, Flow, Kind, Outgoing, room
from messaging.read_ahead import Octets, Unread
from partners import registry
from partners.choices import VersionState
from partners.terms import Terms

_SENT_FIELDS = (
    "state",
    "attempts",
    "due_at",
    "cause",
    "cause_detail",
    "first_sent_at",
    "tx_sequence_id",
    "sequence_number",
    "previous_number",
    "content_type",
    "wire_frame",
    "digest",
)


def promote(pairs: Sequence[Pair], heads: dict[uuid.UUID, Message], claim: Claim) -> list[Pair]:
    """Sends on those of these locked, due pairs that have a stream; returns the others (`Profile.promote`)."""
    versions = registry.current()
    terms = {pair_id: versions.version(head.agreement_version_id) for pair_id, head in heads.items()}
    next_up = {pair_id: found for pair_id, found in terms.items() if of(found).windowed}
    candidates = [pair for pair in pairs if pair.pk in next_up or pair.out_now]
    if not candidates:
        return list(pairs)
    found = in_flight.load(candidates, claim.now, next_up)
    ready: list[Flight] = []
    for pair_id, flight in found.items():
        heads.pop(pair_id, None)
        if flight.pair.flow != PairFlow.IDLE or _others_in_flight(flight):
            flight.pair.due_at = None
            flight.pair.save(update_fields=["due_at"])
        else:
            ready.append(flight)
    if ready:
        _send(ready, next_up, claim)
    return [pair for pair in pairs if pair.pk not in found]


def _others_in_flight(flight: Flight) -> bool:
    """Its agreement had the repeatable profile before: what is in flight under that comes to its end first."""
    if flight.rows or not flight.pair.out_now:
        return False
    open_states = (MessageState.SENDING, MessageState.RETRYING)
    return Message.objects.filter(pair=flight.pair, state__in=open_states).exists()


def _send(found: Sequence[Flight], next_up: Mapping[uuid.UUID, Terms], claim: Claim) -> None:
    share = max(1, claim.limit // len(found))
    again: dict[uuid.UUID, list[Act]] = {}
    wanted: dict[uuid.UUID, int] = {}
    for flight in found:
        acts = flight.advance(Event(kind=Kind.DUE, limit=share), claim.now)
        again[flight.pair.pk] = [act for act in acts if act.do is Do.TRANSMIT]
        left = room(flight.state, flight.policy, share - len(again[flight.pair.pk]))
        if flight.pair.pk in next_up and left > 0:
            wanted[flight.pair.pk] = left
    waiting = queues(wanted)
    repeated = _again(found, again)
    payloads = Payload.of_messages([*repeated, *(message.pk for queue in waiting.values() for message in queue)])
    found = [flight for flight in found if _is_read(flight, again[flight.pair.pk], repeated, payloads, claim)]
    sent: list[Message] = []
    for flight in found:
        for act in again[flight.pair.pk]:
            message = repeated[flight.rows[act.number].pk]
            sent += _transmit(flight, act, message, payloads[message.pk], claim)
        for message in moving.living(flight, waiting.get(flight.pair.pk, ()), claim.now):
            begun = _first_send(flight, message, payloads[message.pk], claim) if claim.carries(message) else []
            if not begun:
                break
            sent += begun
    bulk_set(sent, _SENT_FIELDS)
    claim.written += in_flight.finish(found, claim.now)


def _is_read(
    flight: Flight,
    acts: Iterable[Act],
    messages: Mapping[uuid.UUID, Message],
    payloads: Mapping[uuid.UUID, list[Payload]],
    claim: Claim,
) -> bool:
    """Whether all that goes out again is at hand, or is known not to be. If not, the flight stays as it is stored."""
    ready, after = True, len(claim.after)
    for act in acts:
        message = messages[flight.rows[act.number].pk]
        if any(payload.stored_as for payload in payloads[message.pk]):
            try:
                _octets(flight, act, copy.copy(message), payloads[message.pk], claim, is_first=False)
            except Unread:
                ready = False
            except (EncodeError, storage.PayloadMissing):
                pass  # `_transmit` finds the same, and stops the pair
    del claim.after[after:]  # what was read is claimed by `_transmit`, or kept for the next claim
    return ready


def _octets(
    flight: Flight, act: Act, message: Message, payloads: list[Payload], claim: Claim, *, is_first: bool
) -> Octets:
    terms = registry.current().version(message.agreement_version_id)
    position = writing.Position(
        source=flight.stream.source,
        tx_sequence_id=flight.state.tx_sequence_id,
        number=act.number,
        previous=act.previous,
        request_receipt=act.request_receipt,
    )

    def encode(one: Message) -> Octets:
        if not is_first:
            preparing.stored_octets(one, payloads)  # a copy that differs is worse than none
        return writing.prepare(one, payloads, terms, position)

    return claim.octets(message, payloads, encode, position)


def _again(found: Iterable[Flight], again: Mapping[uuid.UUID, list[Act]]) -> dict[uuid.UUID, Message]:
    keys = [flight.rows[act.number].pk for flight in found for act in again[flight.pair.pk]]
    return {message.pk: message for message in Message.objects.filter(pk__in=keys)} if keys else {}


def _first_send(flight: Flight, message: Message, payloads: list[Payload], claim: Claim) -> list[Message]:
    """Numbers and encodes the next message of the queue; nothing when the pair had to stop instead."""
    terms = registry.current().version(message.agreement_version_id)
    if flight.state.flow is Flow.SUSPENDED:
        return []
    if terms.state == VersionState.DISABLED:
        _stop(flight, message, "agreement_disabled", f"Agreement {terms.tpa_id} is disabled.", claim.now)
        return []
    before, told = flight.state, list(flight.acts)
    acts = flight.advance(Event(kind=Kind.START, count=1, expires=(message.expires_at,)), claim.now)
    sends = [act for act in acts if act.do is Do.TRANSMIT]
    if not sends:
        return []
    number = sends[0].number
    flight.rows[number] = Row(
        pk=message.pk,
        message_id=message.message_id,
        number=number,
        previous=sends[0].previous,
        state=message.state,
        due_at=None,
        expires_at=message.expires_at,
        attempts=0,
        cause="",
        detail="",
        version_id=message.agreement_version_id,
    )
    return _transmit(flight, sends[0], message, payloads, claim, before=(before, told))


def _transmit(
    flight: Flight,
    act: Act,
    message: Message,
    payloads: list[Payload],
    claim: Claim,
    *,
    before: tuple[Outgoing, list[Act]] | None = None,
) -> list[Message]:
    """One transmission under its number. `before`: what the flight was before a first send, which may not come off."""
    now, pair, row = claim.now, flight.pair, flight.rows[act.number]
    terms = registry.current().version(message.agreement_version_id)
    try:
        body = _octets(flight, act, message, payloads, claim, is_first=before is not None)
    except Unread:
        assert before  # what goes out again was looked at before (`_is_read`)
        flight.state, flight.acts = before
        del flight.rows[act.number]
        return []
    except (EncodeError, storage.PayloadMissing) as error:
        cause = error.cause
        if before:
            # No number is used up: the message never had bytes. A person cancels it or fixes the store.
            flight.state, flight.acts = before
            del flight.rows[act.number]
        else:
            flight.advance(Event(kind=Kind.TRANSPORT_FAILED, number=act.number, cause=cause), now)
        _stop(flight, message, cause, str(error)[:500], now)
        return []
    under_way = next(one for one in flight.state.flight if one.number == act.number)
    message.state = move_stream(message.state, Happened.TRANSMITTED)
    message.attempts += 1
    message.due_at = under_way.due_at
    message.first_sent_at = message.first_sent_at or now
    message.cause = message.cause_detail = ""
    row.state, row.due_at, row.attempts, row.previous = message.state, message.due_at, message.attempts, act.previous
    if message.attempts > 1:
        data = {"attempt": message.attempts, "cause": row.cause or flight.state.cause}
        claim.written.append(events.event("message.retrying", now, pair=pair, message=message, data=data))
    row.cause = row.detail = ""
    claim.transmit(
        JobKind.OWN,
        message,
        body,
        terms,
        last=flight.state.resend_index >= flight.policy.retries,
        **writing.fields(message),
    )
    return [message]


def _stop(flight: Flight, message: Message, cause: str, detail: str, now: datetime) -> None:
    flight.detail, flight.about = detail, message.pk
    flight.advance(Event(kind=Kind.SUSPEND, cause=cause), now)
