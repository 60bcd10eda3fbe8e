"""Takes what a partner says about messages of our streams: order acknowledgements and final receipts (spec 3).

An order acknowledgement is cumulative: everything up to its number is stored there. A final receipt is about one
message: the partner's application took it, or it will never be taken.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from django.db import transaction

from messaging import dispatch
from messaging.choices import Direction, MessageState, SignalKind, SignalState
from messaging.engine import handover
from messaging.engine.continuing import Continuation
from messaging.engine.pairs import is_due
from messaging.journal import events, incidents
from messaging.models import Event, Message, Pair, Signal
from messaging.models.bulk import bulk_insert, bulk_set, together
from messaging.profiles.ebxml import answering
from messaging.profiles.repeatable import repeating
from messaging.profiles.stream import in_flight
from messaging.profiles.stream.arrivals import Receipt
from messaging.profiles.stream.in_flight import Ending, Flight
from messaging.protocol.messages import Happened, State, move_stream
from messaging.protocol.streams.final import Consequence, class_of, consequence
from messaging.protocol.streams.outgoing import Act, Do, Kind
from messaging.protocol.streams.outgoing import Event as StreamEvent
from messaging.routing.services import upstream
from rmhub import clock
from rmhub.ids import uuid7

_ENDED = ("state", "cause", "cause_detail", "due_at", "completed_at", "remind_at")


@dataclass(slots=True)
class _Group:
    """One transaction as it fills up. `about`: what final receipts name, by MessageId."""

    now: datetime
    pairs: dict[uuid.UUID, Pair]
    about: Mapping[str, list[Message]]
    flights: dict[uuid.UUID, Flight] = field(default_factory=dict)
    signals: list[Signal] = field(default_factory=list)
    written: list[Event] = field(default_factory=list)


def take(items: Sequence[Receipt]) -> list[int]:
    """A group of receipts in one transaction. Every one is kept with its octets, and answered 202 whatever it fits.

    Raises what the database raises.
    """
    now = clock.now()
    continuation = Continuation(handover.seat(), now)
    with transaction.atomic(durable=True):
        about = answering.targets(item.about for item in items)
        wanted = [pair_id for item in items if (pair_id := _pair_id(item)) is not None]
        wanted += [message.pair_id for found in about.values() for message in found]
        group = _Group(now, Pair.locked(wanted), about)
        group.flights = in_flight.load(
            (pair for pair in group.pairs.values() if pair.direction == Direction.OUT and not pair.in_flight_id), now
        )
        finals = []
        for item in items:
            if item.kind == SignalKind.ACKNOWLEDGEMENT:
                _order_ack(item, group)
            else:
                finals.append(item)
        group.written += in_flight.finish(group.flights.values(), now)
        if finals:
            _final_receipts(finals, group)
        bulk_insert(group.signals)
        continuation.many_of(group.pairs.values())
        with together():
            events.write(group.written + continuation.write())
        if any(is_due(pair, now) for pair in group.pairs.values()):
            dispatch.wake_on_commit(dispatch.SEND)
    return [202] * len(items)


def _pair_id(item: Receipt) -> uuid.UUID | None:
    """The pair whose stream an order acknowledgement names: our GUID of a stream is that of its pair."""
    if item.kind != SignalKind.ACKNOWLEDGEMENT:
        return None
    try:
        return uuid.UUID(item.source)
    except ValueError:
        return None


def _order_ack(item: Receipt, group: _Group) -> None:
    pair_id = _pair_id(item)
    pair = group.pairs.get(pair_id) if pair_id is not None else None
    ignored = _not_theirs(item, pair)
    if not ignored and pair is not None:
        flight = group.flights.get(pair.pk)
        event = StreamEvent(kind=Kind.ACKNOWLEDGED, tx_sequence_id=item.tx_sequence_id, number=item.number)
        acts: tuple[Act, ...] = ()
        if flight is not None:
            flight.traceparent = item.traceparent
            acts = flight.advance(event, group.now)
        if not any(act.do is Do.COMPLETE for act in acts) and not _late(item, pair, group):
            ignored = _stale(item, flight)
    group.signals.append(_row(item, pair, None, ignored, group.now))


def _not_theirs(item: Receipt, pair: Pair | None) -> str:
    if pair is None or pair.direction != Direction.OUT:
        return "names no stream of ours"
    if pair.partner_id != item.principal.party_id:
        return "comes from another partner than the one that the stream leads to"
    if item.terms is None:
        return "came to an address of no agreement with this partner"
    return ""


def _stale(item: Receipt, flight: Flight | None) -> str:
    if flight is None:
        return "nothing of the stream is in flight"
    if item.tx_sequence_id != flight.state.tx_sequence_id:
        return "is about another stream of the pair"
    if item.number >= flight.state.next_number:
        return f"number {item.number} was never given"
    return f"says nothing new: {flight.state.acked} is acknowledged already"


def _late(item: Receipt, pair: Pair, group: _Group) -> bool:
    """The last number that the partner has accepted may be that of a message in doubt: then it was received."""
    message = (
        Message.objects.filter(
            pair=pair,
            state=MessageState.IN_DOUBT,
            direction=Direction.OUT,
            tx_sequence_id=Decimal(item.tx_sequence_id),
            sequence_number=item.number,
            cause="expired_unconfirmed",
        )
        .select_for_update()
        .first()
    )
    if message is None:
        return False
    _end(message, Consequence(State.DELIVERED), "", pair, group)
    group.written += repeating.settle(
        pair, now=group.now, by="system", resolution=f"The partner acknowledged number {item.number}."
    )
    return True


def _final_receipts(items: Iterable[Receipt], group: _Group) -> None:
    """After the order acknowledgements of the group: a message may have got both."""
    keys = [message.pk for found in group.about.values() for message in found]
    messages = Message.of_ids(keys, lock=True)
    ended: list[tuple[Message, Pair]] = []
    for item in items:
        candidates = [messages[found.pk] for found in group.about.get(item.about, ()) if found.pk in messages]
        theirs = [m for m in candidates if group.pairs[m.pair_id].partner_id == item.principal.party_id]
        message = next(iter(theirs or candidates), None)
        pair = group.pairs[message.pair_id] if message is not None else None
        ignored = "names no message of ours" if message is None else _not_theirs(item, pair)
        if not ignored and message is not None and pair is not None:
            ignored = _final_receipt(item, message, pair, group)
            if not ignored:
                ended.append((message, pair))
        group.signals.append(_row(item, pair, message, ignored, group.now))
    group.written += in_flight.finish(group.flights.values(), group.now)
    for message, pair in ended:
        settled = f"The partner's final receipt for {message.message_id} came."
        group.written += repeating.settle(pair, now=group.now, by="system", resolution=settled)
        if message.state == MessageState.FAILED:
            _, opened = incidents.incident_open(
                pair=pair, cause=message.cause, now=group.now, detail=message.cause_detail, message_pk=message.pk
            )
            group.written += opened


def _final_receipt(item: Receipt, message: Message, pair: Pair, group: _Group) -> str:
    """Why it changes nothing; "" when it did."""
    if message.tx_sequence_id is None:
        return "the message went under no stream"
    found = consequence(item.message_class, message.state)
    if found is None:
        return f"the message is {message.get_state_display().lower()}"
    known = class_of(item.message_class)
    said = f"The partner's final receipt says: {known.meaning} (0x{known.code:04X})." if known is not None else ""
    flight = group.flights.get(pair.pk)
    number = message.sequence_number
    if flight is not None and number in {under_way.number for under_way in flight.state.flight}:
        delivered = found.state is State.DELIVERED
        ending = Ending(
            Happened.ACKNOWLEDGED if delivered else Happened.GAVE_UP,
            "message.delivered" if delivered else "message.failed",
            found.cause,
            said,
        )
        flight.end(ending, group.now, number, bridge=found.bridge)
        message.state, message.cause, message.cause_detail = found.state, found.cause, said
    else:
        _end(message, found, said, pair, group)
    return ""


def _end(message: Message, found: Consequence, said: str, pair: Pair, group: _Group) -> None:
    """Ends a message that is in flight no more."""
    was_delivered = message.state == MessageState.DELIVERED
    delivered = found.state is State.DELIVERED
    message.state = move_stream(message.state, Happened.ACKNOWLEDGED if delivered else Happened.GAVE_UP)
    message.cause, message.cause_detail = found.cause, "" if delivered else said
    message.due_at = message.remind_at = None
    message.completed_at = group.now
    bulk_set([message], _ENDED)
    upstream.onward_ended([(message.forwarded_from_id, message.state)], group.now)
    pair.done += delivered - was_delivered
    bulk_set([pair], ("done",))
    data: dict[str, object] = {"attempts": message.attempts}
    if not delivered:
        data |= {"cause": message.cause, "detail": said}
    kind = "message.delivered" if delivered else "message.failed"
    group.written.append(events.event(kind, group.now, pair=pair, message=message, data=data))


def _row(item: Receipt, pair: Pair | None, about: Message | None, ignored: str, now: datetime) -> Signal:
    return Signal(
        id=uuid7(),
        direction=Direction.IN,
        kind=item.kind,
        state=SignalState.IGNORED if ignored else SignalState.MATCHED,
        pair=pair,
        about=about,
        agreement_version_id=item.terms.version_id if item.terms is not None else None,
        message_id=item.message_id[:512],
        ref_to_message_id=item.about[:512],
        content_type=item.content_type,
        body=item.body[:],
        note=ignored[:255],
        created_at=now,
    )
