"""What the acceptance of a group writes: messages with all that belongs to them, streams, receipts (spec 3).

`Batch` is filled item by item by `accepting`, which decides; `write` ends its transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import connection
from django.db.models import F

from messaging import storage
from messaging.choices import Direction, MessageState, SignalState
from messaging.engine import subscriptions
from messaging.engine.pairs import PAIR_FIELDS
from messaging.engine.snapshots import INBOUND_FIELDS
from messaging.entrance import received_payloads
from messaging.journal import events
from messaging.models import (
    Delivery,
    Event,
    IncomingStream,
    Message,
    MessageIdentity,
    Pair,
    Payload,
    Rejection,
    Signal,
    Transmission,
)
from messaging.models.bulk import bulk_insert, bulk_set
from messaging.profiles.stream import receipts
from messaging.profiles.stream.arrivals import Item, Key
from messaging.protocol.codecs.stream import StreamReceipt
from messaging.protocol.envelope import Semantics
from messaging.protocol.streams import final
from messaging.protocol.streams.final import Reason
from messaging.routing.services import forwarding
from messaging.routing.services.routing import Road
from rmhub.ids import uuid7

_STREAM_FIELDS = (
    "tx_sequence_id",
    "number",
    "reject_count",
    "last_access_at",
    "receipts_to",
    "agreement_version_id",
    *receipts.TIMER_FIELDS,
)


@dataclass(slots=True)
class Known:
    """A MessageId that is stored. `numbered`: it came with a number, so it is never taken again."""

    message_pk: uuid.UUID
    seen_at: datetime
    numbered: bool


@dataclass(slots=True)
class Batch:
    """What one transaction knows and will write; filled item by item."""

    now: datetime
    pairs: dict[uuid.UUID, Pair]
    streams: dict[Key, IncomingStream] = field(default_factory=dict)
    new_streams: set[Key] = field(default_factory=set)
    touched: dict[Key, Item] = field(default_factory=dict)
    known: dict[tuple[uuid.UUID, str], Known] = field(default_factory=dict)
    waiting: dict[uuid.UUID, int] = field(default_factory=dict)  # deliveries that wait, of pairs with a quota
    messages: list[Message] = field(default_factory=list)
    payloads: list[Payload] = field(default_factory=list)
    identities: list[MessageIdentity] = field(default_factory=list)
    refreshed: dict[tuple[uuid.UUID, str], Known] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    attempts: list[Transmission] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    copies: dict[uuid.UUID, int] = field(default_factory=dict)
    onward: forwarding.Onward = field(default_factory=forwarding.Onward)
    went_on: bool = False


def store(item: Item, pair: Pair, batch: Batch, *, again: Known | None = None) -> None:
    """`again`: the id is there from a message that was forgotten since; it belongs to this one now."""
    envelope, now, position = item.envelope, batch.now, item.envelope.position
    slices = [(part.offset, len(part.content)) for part in envelope.payloads if part.offset is not None]
    message = Message(
        id=uuid7(),
        direction=Direction.IN,
        state=MessageState.RECEIVED,
        pair=pair,
        agreement_version_id=item.terms.version_id,
        semantics=Semantics.ONCE_AND_ONLY_ONCE if position is not None else Semantics.BEST_EFFORT,
        message_id=envelope.message_id,
        document_id=envelope.document_id,
        conversation_id=envelope.conversation_id or envelope.message_id,
        ref_to_message_id=envelope.ref_to_message_id,
        service=item.service,
        action=item.action,
        sequence_number=position.current if position is not None else None,
        tx_sequence_id=Decimal(position.tx_sequence_id) if position is not None else None,
        previous_number=position.previous if position is not None else None,
        position=pair.next_position,
        content_type=item.content_type,
        wire_frame=storage.cut_frame(item.body, slices),
        digest=item.digest,
        size=sum(len(part.content) for part in envelope.payloads),
        created_at=now,
        completed_at=now,
    )
    pair.next_position += 1
    pair.done += 1
    pair.last_success_at = now
    rows = received_payloads.rows_of(message, envelope.payloads, envelope.manifest)
    batch.messages.append(message)
    batch.payloads += rows
    deliveries = []
    # Outside of streams repeats are discarded only where the agreement says so.
    lost = pair.resync_since is not None and (position is not None or item.terms.detect_repeats)
    if item.road is None:
        contents = received_payloads.documents_of(envelope.payloads)
        deliveries = subscriptions.deliveries_for(message, contents, item.terms, now, memory_lost=lost)
    batch.deliveries += deliveries
    if item.pair_id in batch.waiting:
        batch.waiting[item.pair_id] += len(deliveries)
    _remember(item, message, batch, again)
    data = {"agreement": item.terms.tpa_id, "service": message.service, "action": message.action, "size": message.size}
    batch.events.append(events.event("message.received", now, pair=pair, message=message, data=data))
    if item.road is not None:
        _pass_on(item, message, rows, item.road, batch, memory_lost=lost)
    elif position is not None and not deliveries:
        tell(item, Reason.PROCESSED, message.pk, batch)


def _pass_on(item: Item, message: Message, rows: list[Payload], road: Road, batch: Batch, *, memory_lost: bool) -> None:
    """To the next hop. Its final receipt, where one is agreed, waits for that hop's acknowledgement."""
    assert road.pair_id is not None
    onward = batch.pairs[road.pair_id]
    made = forwarding.forward(message, rows, road, onward, batch.now, memory_lost=memory_lost)
    batch.messages.append(made.message)
    batch.attempts += made.attempts
    batch.payloads += made.payloads
    if made.identity is not None:
        batch.identities.append(made.identity)
        batch.onward = batch.onward.with_taken(road.onward.own_party_id, message.message_id)
    batch.events += made.events
    batch.went_on = True
    if message.tx_sequence_id is not None and item.terms.final_receipt:
        tell(item, Reason.PROCESSED, message.pk, batch)
        batch.signals[-1].state, batch.signals[-1].due_at = SignalState.HELD, None


def _remember(item: Item, message: Message, batch: Batch, again: Known | None) -> None:
    key = (item.principal.party_id, item.envelope.message_id)
    known = Known(message.pk, batch.now, numbered=message.sequence_number is not None)
    batch.known[key] = known
    if again is not None:
        batch.refreshed[key] = known
        return
    batch.identities.append(
        # Without a digest: other roads compare payloads, since the octets of a resend may differ (X17).
        MessageIdentity(
            scope_id=key[0],
            direction=Direction.IN,
            message_id=key[1],
            stored_id=message.pk,
            sequence_number=message.sequence_number,
            created_at=batch.now,
        )
    )


def number(item: Item, known: Known, batch: Batch) -> None:
    """A message that came by a road without numbers has one now: whoever might still release it (a request that was
    never executed) finds that it is acknowledged.
    """
    known.numbered = True
    found: dict[str, Any] = {"sequence_number": item.position.current}
    MessageIdentity.objects.update_or_create(
        scope_id=item.principal.party_id,
        direction=Direction.IN,
        message_id=item.envelope.message_id,
        defaults=found,
        create_defaults={**found, "stored_id": known.message_pk, "created_at": batch.now},
    )


def tell(item: Item, reason: Reason, message_pk: uuid.UUID | None, batch: Batch) -> final.FinalClass | None:
    asked = item.terms.final_receipt
    answer = final.owed(reason, positive=asked, negative=asked)
    if answer is not None:
        batch.signals.append(
            receipts.receipt(
                answer,
                item.terms,
                batch.now,
                about=item.envelope.message_id,
                pair_id=item.pair_id,
                message_pk=message_pk,
                place=_place(item),
                label=item.envelope.label,
            )
        )
    return answer


def _place(item: Item) -> StreamReceipt | None:
    position = item.envelope.position
    return None if position is None else StreamReceipt(position.source, position.tx_sequence_id, position.current)


def write(batch: Batch) -> None:
    for key, item in batch.touched.items():
        # What is due now is made here: under steady load a claim would find the row locked each time.
        due = receipts.run_out(batch.streams[key], item.terms, batch.now)
        if due is not None:
            batch.signals.append(due)
    bulk_insert(batch.messages)
    bulk_insert(batch.identities)
    bulk_insert(batch.payloads)
    bulk_insert(batch.deliveries)
    bulk_insert(batch.signals)
    bulk_insert(batch.rejections)
    bulk_insert(batch.attempts)
    _write_streams(batch.touched.keys(), batch)
    _write_refreshed(batch)
    for message_pk, copies in batch.copies.items():
        Message.objects.filter(pk=message_pk).update(copies=F("copies") + copies)
    pairs = batch.pairs.values()
    bulk_set([pair for pair in pairs if pair.direction == Direction.IN], (*INBOUND_FIELDS, "next_position"))
    bulk_set([pair for pair in pairs if pair.direction == Direction.OUT], PAIR_FIELDS)
    events.write(batch.events)


def _write_streams(keys: Collection[Key], batch: Batch) -> None:
    bulk_insert([batch.streams[key] for key in keys if key in batch.new_streams])
    bulk_set([batch.streams[key] for key in keys if key not in batch.new_streams], _STREAM_FIELDS)


def _write_refreshed(batch: Batch) -> None:
    """When ids outside of streams were last seen, and which message they belong to now."""
    if not batch.refreshed:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            REFRESH,
            [
                [scope for scope, _ in batch.refreshed],
                [message_id for _, message_id in batch.refreshed],
                [known.message_pk for known in batch.refreshed.values()],
                [known.seen_at for known in batch.refreshed.values()],
            ],
        )


REFRESH = """
UPDATE messaging_messageidentity i SET stored_id = v.stored_id, created_at = v.seen_at
FROM unnest(%s::uuid[], %s::text[], %s::uuid[], %s::timestamptz[]) AS v(scope_id, message_id, stored_id, seen_at)
WHERE i.scope_id = v.scope_id AND i.direction = 'in' AND i.message_id = v.message_id
"""
