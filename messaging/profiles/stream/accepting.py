"""Decides and stores what came in transactional streams: a group of arrivals, one transaction (spec 3).

The verdicts are `protocol.streams.acceptance`'s; here is only what they need to know, and what follows. Nothing is
answered, and no receipt leaves, before the commit (invariant 1). What the rules cannot take yet, because its
predecessor is on its way, is left undecided: the entrance holds it back (`holding`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from django.db import connection, transaction

from messaging import storage
from messaging.engine import handover
from messaging.models import IncomingStream
from messaging.models.bulk import read
from messaging.profiles.repeatable import remembering
from messaging.profiles.repeatable.remembering import Key as RequestKey
from messaging.profiles.stream import receipts, storing
from messaging.profiles.stream.arrivals import Item, Key, Position
from messaging.profiles.stream.storing import Batch, Known
from messaging.protocol.errors import Severity
from messaging.protocol.streams import final
from messaging.protocol.streams.acceptance import Decision, Incoming, Verdict, decide
from messaging.protocol.streams.final import Reason
from partners.choices import Profile
from rmhub import clock
from rmhub.ids import uuid7

RETRY_GAP = 1  # seconds after which a sender may try again what was not taken for want of its predecessor
MAX_LAST_SEQUENCE = 2**31 - 1  # what the pair's column holds; the stream's own holds every number


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one message. `status`: the HTTP status; None: undecided, for what it follows is not there yet.

    `retry_after`: when a message that is not taken now may come again, if that is known (seconds).
    """

    status: int | None
    position: Position | None = None  # where its stream is now
    retry_after: int | None = None


def accept(items: Sequence[Item]) -> list[Outcome]:
    """Processes a group and commits it; returns the outcome of each item.

    Raises IntegrityError when another process stored one of the ids under another pair between our look and our insert;
    the caller runs the items one by one then, and the second look finds it.
    """
    seat = handover.seat()
    with transaction.atomic(durable=True):
        arriving = [(item, item.envelope.message_id) for item in items]
        batch = Batch.begin(clock.now(), {item.pair_id for item in items}, arriving, seat)
        _look_up(items, batch)
        outcomes: list[Outcome | None] = [None] * len(items)
        for index in sorted(range(len(items)), key=lambda index: _order(items[index], index)):
            outcomes[index] = _accept(items[index], batch)
        storing.write(batch)
    batch.wake_workers()
    return [_with_position(outcome, item, batch) for outcome, item in zip(outcomes, items, strict=True)]


def position_of(key: Key) -> Position:
    """Where a stream is, by its row; (0, 0) before its first message."""
    row = IncomingStream.objects.filter(pair_id=key[0], source=key[1]).values_list("tx_sequence_id", "number").first()
    return (int(row[0]), row[1]) if row is not None else (0, 0)


def _order(item: Item, index: int) -> tuple[object, ...]:
    """Messages of one stream in the order of their numbers; the rest as they came."""
    position = item.envelope.position
    if position is None:
        return (item.pair_id, "", 0, 0, index)
    return (item.pair_id, position.source, position.tx_sequence_id, position.current, index)


def _with_position(outcome: Outcome | None, item: Item, batch: Batch) -> Outcome:
    assert outcome is not None
    row = batch.streams.get(item.stream) if item.envelope.position is not None else None
    return outcome if row is None else replace(outcome, position=(int(row.tx_sequence_id), row.number))


def _look_up(items: Sequence[Item], batch: Batch) -> None:
    """Streams and MessageIds that are known. After the locks of the pairs: a copy cannot slip in between."""
    keys = {item.stream for item in items if item.envelope.position is not None}
    if keys:
        # Locked, since whoever sends what is due moves their timers without the pair's lock.
        rows = read(IncomingStream, STREAMS, [[key[0] for key in keys], [key[1] for key in keys]])
        batch.streams = {(row.pair_id, row.source): row for row in rows}
    wanted = {(item.principal.party_id, item.envelope.message_id) for item in items}
    # First, for it holds them: a request that is released meanwhile (it was never received, then) waits, or is gone.
    requests = remembering.stored_as_requests(
        {RequestKey(*key) for key in wanted if remembering.has_others(key[0], Profile.STREAM)}
    )
    with connection.cursor() as cursor:
        cursor.execute(IDENTITIES, [[scope for scope, _ in wanted], [message_id for _, message_id in wanted]])
        for scope, message_id, stored, seen_at, number in cursor.fetchall():
            batch.known[scope, message_id] = Known(stored, seen_at, number is not None)
    for key, one in requests.items():
        batch.known.setdefault((key.sender_id, key.request_id), Known(one.message_pk, batch.now, numbered=False))
    for pair_id, quota in {item.pair_id: item.terms.inbound_quota for item in items}.items():
        if quota:
            batch.waiting[pair_id] = _waiting(pair_id, quota)


STREAMS = """
SELECT s.* FROM unnest(%s::uuid[], %s::text[]) AS w(pair_id, source)
JOIN messaging_incomingstream s ON s.pair_id = w.pair_id AND s.source = w.source
ORDER BY s.id FOR UPDATE OF s
"""
IDENTITIES = """
SELECT i.scope_id, i.message_id, i.stored_id, i.created_at, i.sequence_number
FROM unnest(%s::uuid[], %s::text[]) AS w(scope_id, message_id)
JOIN messaging_messageidentity i ON i.scope_id = w.scope_id AND i.direction = 'in' AND i.message_id = w.message_id
"""
# At most as many as matter, from the queue of each trigger.
WAITING = """
SELECT count(*) FROM messaging_trigger t CROSS JOIN LATERAL (
    SELECT 1 FROM messaging_delivery d
    WHERE d.trigger_id = t.id AND d.pair_id = %s AND d.state IN ('waiting', 'running') LIMIT %s
) AS d
"""


def _waiting(pair_id: uuid.UUID, quota: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute(WAITING, [pair_id, quota])
        return int(cursor.fetchone()[0])


def _accept(item: Item, batch: Batch) -> Outcome:
    if item.envelope.position is None:
        return _outside_stream(item, batch)
    row = _row(item, batch)
    before = Incoming(int(row.tx_sequence_id), row.number, row.reject_count, row.last_access_at)
    decision = decide(before, item.place, batch.now)
    taken = decision.verdict in (Verdict.ACCEPT, Verdict.GAP)
    if decision.verdict is Verdict.MALFORMED:
        # Its numbers mean nothing: neither the stream nor its timer moves (M17).
        return _reject(item, decision.rule, "The numbers of the stream header are out of their range.", 400, batch)
    if decision.verdict is Verdict.GAP and item.may_wait and item.refused is None:
        return Outcome(None)
    batch.touched[item.stream] = item
    batch.streams[item.stream] = row
    if item.position.receipts_to:
        row.receipts_to = item.position.receipts_to[:500]
    row.agreement_version_id = item.terms.version_id
    row.last_access_at = batch.now
    receipts.start(row, item.terms, batch.now, requested=item.position.receipt_requested)
    if taken and item.refused is not None:
        return _refuse(item, item.refused, item.detail, batch)
    if decision.verdict is Verdict.ACCEPT and (blocked := _way_onward(item, batch)) is not None:
        return blocked
    _move(row, decision)
    if decision.verdict is Verdict.GAP:
        return _early(item, decision, before, batch)
    if decision.verdict is Verdict.ACCEPT:
        return _take(item, batch)
    return _passed(item, decision, batch)


def _row(item: Item, batch: Batch) -> IncomingStream:
    """The stream's row; one that is new is written only if something comes of its message."""
    known = batch.streams.get(item.stream)
    if known is not None:
        return known
    pair_id, source = item.stream
    batch.new_streams.add(item.stream)
    return IncomingStream(id=uuid7(), pair_id=pair_id, source=source, created_at=batch.now)


def _move(row: IncomingStream, decision: Decision) -> None:
    row.tx_sequence_id = Decimal(decision.state.tx_sequence_id)
    row.number = decision.state.number
    row.reject_count = decision.state.reject_count
    row.last_access_at = decision.state.last_access_at


def _take(item: Item, batch: Batch) -> Outcome:
    """The stream has moved past it: it is stored, unless it is one that is here already or there is no room for it."""
    pair = batch.pairs[item.pair_id]
    pair.last_sequence = min(item.position.current, MAX_LAST_SEQUENCE)
    pair.last_message_id = item.envelope.message_id
    known = batch.known.get((item.principal.party_id, item.envelope.message_id))
    if known is not None:
        if not known.numbered:
            storing.number(item, known, batch)
        return _repeat(item, known, "known-id", batch, compare=True)
    quota = item.terms.inbound_quota
    if quota and batch.waiting[item.pair_id] >= quota:
        detail = f"{batch.waiting[item.pair_id]:,} documents of {pair.code} wait here, and {quota:,} may."
        batch.incident(pair, "inbound_quota", detail)
        return _refuse(item, Reason.QUOTA, detail, batch)
    storing.store(item, pair, batch)
    return Outcome(202)


def _way_onward(item: Item, batch: Batch) -> Outcome | None:
    """The outcome of a new message for somebody else that cannot go on there; None when it can. No counter moves."""
    if item.road is None or (item.principal.party_id, item.envelope.message_id) in batch.known:
        return None
    error = batch.blocked(item.road, item.envelope.message_id, reliable=item.envelope.position is not None)
    if error is None:
        return None
    if error.severity is Severity.TRANSIENT:
        return _reject(item, "way-onward", error.description, 503, batch, retry_after=error.min_retry_secs)
    return _refuse(item, Reason.BAD_DESTINATION, error.description, batch)


def _early(item: Item, decision: Decision, before: Incoming, batch: Batch) -> Outcome:
    """Not taken now. A window may come so again and again: what is written down is the first since the stream moved."""
    if before.reject_count:
        batch.pairs[item.pair_id].rejected += 1
        return Outcome(503, retry_after=RETRY_GAP)
    detail = f"It follows number {item.position.previous}, and {before.number} is the last that is here."
    return _reject(item, decision.rule, detail, 503, batch, retry_after=RETRY_GAP)


def _passed(item: Item, decision: Decision, batch: Batch) -> Outcome:
    """Its number has been passed, or its stream is over: a repeat, or one that came too late (M07, M11)."""
    known = batch.known.get((item.principal.party_id, item.envelope.message_id))
    if known is not None or decision.verdict is Verdict.DUPLICATE:
        return _repeat(item, known, decision.rule, batch)
    detail = "Its sender has begun a new stream since, and this message was never received."
    return _reject(item, decision.rule, detail, 202, batch)


def _outside_stream(item: Item, batch: Batch) -> Outcome:
    """A message without a stream: once, as far as the history of such ids goes (M41)."""
    if item.refused is not None:
        return _refuse(item, item.refused, item.detail, batch)
    key = (item.principal.party_id, item.envelope.message_id)
    known = batch.known.get(key)
    if known is None and (blocked := _way_onward(item, batch)) is not None:
        return blocked
    if known is None:
        storing.store(item, batch.pairs[item.pair_id], batch)
        return Outcome(202)
    is_repeat = known.numbered or item.terms.detect_repeats or final.seen_before(known.seen_at, batch.now)
    known.seen_at = batch.now
    if is_repeat:
        batch.refreshed[key] = known
        return _repeat(item, known, "outside-stream", batch)
    storing.store(item, batch.pairs[item.pair_id], batch, again=known)
    return Outcome(202)


def _repeat(item: Item, known: Known | None, rule: str, batch: Batch, *, compare: bool = False) -> Outcome:
    """Discarded; the order acknowledgement that is on its way tells its sender (spec 3).

    `compare`: it came under a new number, so its content may be another.
    """
    pair = batch.pairs[item.pair_id]
    pair.duplicates += 1
    data: dict[str, object] = {"rule": rule, "message_id": item.envelope.message_id}
    if known is not None and compare and not _is_same(item, known, batch):
        cause = data["warning"] = "same_id_other_content"
        batch.differs(pair, known.message_pk, item.envelope.message_id, cause)
    if item.envelope.position is not None:
        data["sequence_number"] = item.position.current
    batch.repeated(item, pair, known.message_pk if known is not None else None, item.envelope.message_id, data)
    return Outcome(202)


def _is_same(item: Item, known: Known, batch: Batch) -> bool:
    came = [storage.digest(part.content) for part in item.envelope.payloads]
    if any(message.pk == known.message_pk for message in batch.messages):
        return came == [payload.sha256 for payload in batch.payloads if payload.message_id == known.message_pk]
    return remembering.stored_message(known.message_pk).has(*came)


def _refuse(item: Item, reason: Reason, detail: str, batch: Batch) -> Outcome:
    """It will never be taken, and its sender is told so by a final receipt (M33, M34)."""
    answer = storing.tell(item, reason, None, batch)
    return _reject(item, answer.name if answer is not None else reason, detail, 202, batch)


def _reject(
    item: Item, reason: str, detail: str, status: int, batch: Batch, *, retry_after: int | None = None
) -> Outcome:
    """Not stored as a message, and written down."""
    numbered: dict[str, object] = {}
    if item.envelope.position is not None:
        numbered["sequence_number"] = item.position.current
    batch.reject(
        item,
        item.terms,
        batch.pairs[item.pair_id],
        item.envelope.message_id,
        reason=f"stream_{reason.replace('-', '_')}",
        code=str(reason),
        detail=detail,
        status=status,
        **numbered,
    )
    return Outcome(status, retry_after=retry_after)
