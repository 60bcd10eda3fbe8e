"""What the acceptance of a group writes: messages with all that belongs to them, streams, receipts (spec 3).

`Batch` is filled item by item by `accepting`, which decides; `write` ends its transaction.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import connection

from messaging import storage
from messaging.choices import Direction, MessageState, SignalState
from messaging.engine import subscriptions
from messaging.engine.snapshots import INBOUND_FIELDS
from messaging.entrance.effects import Effects, documents_of, payload_rows, received_event
from messaging.models import (
    IncomingStream,
    Message,
    MessageIdentity,
    Pair,
)
from messaging.models.bulk import bulk_insert, bulk_set, together
from messaging.profiles.stream import receipts
from messaging.profiles.stream.arrivals import Item, Key
from messaging.protocol.codecs.stream import StreamReceipt
from messaging.protocol.envelope import Semantics
from messaging.protocol.streams import final
from messaging.protocol.streams.final import Reason
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
class Batch(Effects):
    """What one transaction knows and writes of streams. `waiting`: how many deliveries wait, of pairs with a quota.

    `touched`: streams that moved, or whose timer runs, with the last message of each; `refreshed`: ids outside of
    streams that were seen again.
    """

    streams: dict[Key, IncomingStream] = field(default_factory=dict)
    new_streams: set[Key] = field(default_factory=set)
    touched: dict[Key, Item] = field(default_factory=dict)
    known: dict[tuple[uuid.UUID, str], Known] = field(default_factory=dict)
    waiting: dict[uuid.UUID, int] = field(default_factory=dict)
    refreshed: dict[tuple[uuid.UUID, str], Known] = field(default_factory=dict)


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
    rows = payload_rows(message, envelope.payloads, envelope.manifest)
    batch.store(message, rows, pair)
    deliveries = []
    # Outside of streams repeats are discarded only where the agreement says so.
    lost = pair.resync_since is not None and (position is not None or item.terms.detect_repeats)
    if item.road is None:
        contents = documents_of(envelope.payloads)
        deliveries = subscriptions.deliveries_for(message, contents, item.terms, now, memory_lost=lost)
    batch.deliveries += deliveries
    if item.pair_id in batch.waiting:
        batch.waiting[item.pair_id] += len(deliveries)
    _remember(item, message, batch, again)
    batch.events.append(received_event(message, item.terms, now, item.traceparent))
    if item.road is not None:
        batch.pass_on(message, rows, item.road, memory_lost=lost)
        if position is not None and item.terms.final_receipt:
            tell(item, Reason.PROCESSED, message.pk, batch, held=True)  # until the next hop has acknowledged
    elif position is not None and not deliveries:
        tell(item, Reason.PROCESSED, message.pk, batch)


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


def tell(
    item: Item, reason: Reason, message_pk: uuid.UUID | None, batch: Batch, *, held: bool = False
) -> final.FinalClass | None:
    """A final receipt, where the agreement asks for one; `held`: it does not go yet."""
    asked = item.terms.final_receipt
    answer = final.owed(reason, positive=asked, negative=asked)
    if answer is None:
        return None
    made = receipts.receipt(
        answer,
        item.terms,
        batch.now,
        about=item.envelope.message_id,
        pair_id=item.pair_id,
        message_pk=message_pk,
        place=_place(item),
        label=item.envelope.label,
    )
    if held:
        made.state, made.due_at = SignalState.HELD, None
        batch.signals.append(made)
    else:
        batch.owe(made, item.terms)
    return answer


def _place(item: Item) -> StreamReceipt | None:
    position = item.envelope.position
    return None if position is None else StreamReceipt(position.source, position.tx_sequence_id, position.current)


def write(batch: Batch) -> None:
    for key, item in batch.touched.items():
        # What is due now is made here: under steady load a claim would find the row locked each time.
        due = receipts.run_out(batch.streams[key], item.terms, batch.now)
        if due is not None:
            batch.owe(due, item.terms)
    with together():
        batch.insert()
        batch.events += batch.continuation.write()
        bulk_insert([batch.streams[key] for key in batch.touched if key in batch.new_streams])
        bulk_set([batch.streams[key] for key in batch.touched if key not in batch.new_streams], _STREAM_FIELDS)
        _write_refreshed(batch)
        batch.count_copies()
        batch.finish((*INBOUND_FIELDS, "next_position"))


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
