"""Decides and stores what was received as ebXML 2.0: a group of arrivals, one transaction.

The verdicts are `protocol.ebms.acceptance`'s; here is only what they need to know, and what follows. Nothing is
answered before the commit (invariant 1), neither in the response nor by a message of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from messaging.choices import Direction, MessageState, SignalKind, SignalState
from messaging.engine import handover, subscriptions
from messaging.engine.snapshots import INBOUND_FIELDS, REPEATABLE_FIELDS
from messaging.engine.subscriptions import Documents
from messaging.entrance.effects import documents_of, payload_rows, received_event
from messaging.entrance.refusals import Answer
from messaging.journal import events
from messaging.models import Message, OrderedConversation, Pair, Signal
from messaging.models.bulk import bulk_insert, bulk_set, read, together
from messaging.pairs.services.resync import CAUSE
from messaging.profiles.acknowledging import Acknowledging, Item, Known, is_same, owe_again
from messaging.profiles.ebms2 import answered, signed
from messaging.profiles.ebms2.answered import Said
from messaging.profiles.ebms2.writing import HEADERS
from messaging.profiles.ebxml import answering
from messaging.profiles.ebxml.signals import error_signal, host, outgoing
from messaging.profiles.repeatable.repeating import MESSAGE_FIELDS
from messaging.protocol.codecs import ebms2
from messaging.protocol.ebms.acceptance import Conversation, Decision, Received, Verdict, decide, released
from messaging.protocol.envelope import Ebms2, ErrorInfo, Semantics
from messaging.protocol.errors import Severity
from partners import registry
from partners.choices import Profile, SyncReply
from partners.terms import Terms
from partners.transports import Transport
from rmhub.ids import uuid7

Key = tuple[uuid.UUID, str]  # pair and ConversationId
TAKEN = Answer(204)


@dataclass(slots=True)
class Waiting:
    """A message that waits for its turn. `documents`: what it holds; `terms`: what it came under; `came_by`: the
    transport, None = not known any more. `stored`: by an earlier transaction.
    """

    message: Message
    terms: Terms
    documents: Documents
    came_by: Transport | None
    traceparent: str = ""
    stored: bool = False


@dataclass(slots=True)
class Batch(Acknowledging):
    """What one transaction writes of ebXML 2.0 messages. `conversations`: those with an order that it touches, and
    what `waits` in them, by number. `turned`: those of them that have come to their turn, and were stored before.
    """

    conversations: dict[Key, OrderedConversation] = field(default_factory=dict)
    waits: dict[Key, dict[int, Waiting]] = field(default_factory=dict)
    turned: list[Message] = field(default_factory=list)


def accept(items: Sequence[Item]) -> list[Answer]:
    """Processes a group and commits it; returns the outcome of each item.

    Raises IntegrityError when another process stored one of the ids between our look and our insert; the caller runs
    the items one by one then, and the second look finds it.
    """
    seat = handover.seat()
    with transaction.atomic(durable=True):
        ours = answering.targets(name for item in items for name in answered.references(item.envelope))
        batch = Batch.of_group(items, ours, Profile.EBMS2, seat)
        said = Said(batch.now, batch.pairs, _locked(ours))
        answered.read_frames(message for found in said.messages.values() for message in found)
        ordered = {_conversation(item) for item in items if item.pair_id is not None and _has_order(item)}
        _look_up_conversations(ordered, batch)
        outcomes = []
        for item in items:
            if any(answered.references(item.envelope)):
                answered.take(item, said)
            outcomes.append(_accept(item, batch) if item.pair_id is not None else TAKEN)
        _write(batch, said)
    batch.wake_workers()
    return outcomes


def _locked(ours: dict[str, list[Message]]) -> dict[str, list[Message]]:
    """Our messages that are spoken of, locked after their pairs."""
    rows = Message.of_ids((message.pk for found in ours.values() for message in found), lock=True)
    return {name: [rows[one.pk] for one in found if one.pk in rows] for name, found in ours.items()}


def hand_on(pair: Pair, now: datetime) -> int:
    """Hands on all that waits for its turn on a pair, each conversation in its order, without what is missing before
    it: that is refused if it still comes. Call with the pair locked; returns how many messages.
    """
    batch = Batch.begin(now, {pair.pk}, [], handover.seat())
    late = OrderedConversation.objects.filter(pair=pair, gap_since__isnull=False)
    _look_up_conversations({(pair.pk, name) for name in late.values_list("conversation_id", flat=True)}, batch)
    count = 0
    for key, waits in batch.waits.items():
        for number in sorted(waits):
            _turn(waits[number], batch.pairs[pair.pk], batch)
        count += len(waits)
        _move(key, Conversation(max(waits)), batch)
    _write(batch, Said(now, batch.pairs, {}))
    transaction.on_commit(batch.wake_workers)
    return count


def _look_up_conversations(keys: Collection[Key], batch: Batch) -> None:
    """Where ordered conversations are, and what waits in them. After the locks of their pairs."""
    if not keys:
        return
    pairs, names = [key[0] for key in keys], [key[1] for key in keys]
    for found in read(OrderedConversation, CONVERSATIONS, [pairs, names]):
        batch.conversations[found.pair_id, found.conversation_id] = found
    for message in read(Message, WAITING, [pairs, names]):
        assert message.order_number is not None
        terms = registry.current().version(message.agreement_version_id)
        kept = Waiting(message, terms, subscriptions.stored(message), None, stored=True)
        batch.waits.setdefault((message.pair_id, message.conversation_id), {})[message.order_number] = kept


CONVERSATIONS = """
SELECT c.* FROM unnest(%s::uuid[], %s::text[]) AS w(pair_id, conversation_id)
JOIN messaging_orderedconversation c ON c.pair_id = w.pair_id AND c.conversation_id = w.conversation_id
"""
# By the index of what has not come to its end (`standing`).
WAITING = """
SELECT m.* FROM unnest(%s::uuid[], %s::text[]) AS w(pair_id, conversation_id)
JOIN messaging_message m ON m.pair_id = w.pair_id AND m.standing = 'held' AND m.conversation_id = w.conversation_id
"""


def _has_order(item: Item) -> bool:
    """Whether the order of its conversation counts here: what is for somebody else is passed on as it comes."""
    return _ebms(item).order is not None and item.road is None


def _ebms(item: Item) -> Ebms2:
    assert item.envelope.ebms is not None
    return item.envelope.ebms


def _conversation(item: Item) -> Key:
    assert item.pair_id is not None
    return item.pair_id, item.envelope.conversation_id


def _accept(item: Item, batch: Batch) -> Answer:
    assert item.pair_id is not None
    pair, ebms, terms = batch.pairs[item.pair_id], _ebms(item), item.agreed
    stored = batch.known.get(item.key)
    once = ebms.duplicate_elimination or terms.detect_repeats or terms.semantics != Semantics.BEST_EFFORT
    fault = item.envelope.fault
    if fault is not None and once and stored is not None and _is_copy(stored, item):
        fault = None  # it was in order when it first came, whatever its certificate is by now
    received = Received(
        acknowledge=bool(ebms.ack_requests),
        once=once,
        known=stored is not None,
        same_content=stored is None or is_same(stored, item),
        expired=ebms.time_to_live is not None and ebms.time_to_live < batch.now,
        defect=ErrorInfo(fault.code, fault.severity, fault.description, fault.location) if fault else None,
        order=ebms.order if _has_order(item) else None,
    )
    known = _known(item, batch)
    decision = decide(known, received)
    if decision.verdict is Verdict.ACCEPT and item.road is not None:
        error = batch.blocked(item.road, item.envelope.message_id, reliable=decision.acknowledge)
        if error is not None:
            decision = Decision(Verdict.REJECT, known, rule="way-onward", error=error)
    if decision.verdict is Verdict.REJECT:
        return _reject(item, pair, decision, batch)
    if decision.verdict is Verdict.DUPLICATE:
        return _repeat(item, pair, decision, stored, batch)
    return _take(item, pair, decision, received, batch)


def _is_copy(stored: Known, item: Item) -> bool:
    """Whether it is what came first: the same octets, and the Content-Type, which says what they mean."""
    came = Message.objects.filter(pk=stored.message_pk, digest=item.digest, content_type=item.content_type)
    return came.exists()


def _known(item: Item, batch: Batch) -> Conversation:
    if not _has_order(item):
        return Conversation()
    row = batch.conversations.get(_conversation(item))
    held = frozenset(batch.waits.get(_conversation(item), ()))
    if row is not None:
        return Conversation(row.number, held, row.restarts)
    # After a loss of memory it may have begun in the time that is forgotten.
    forgotten = batch.pairs[_conversation(item)[0]].resync_since is not None
    return Conversation(held=held, any_number=forgotten)


def _take(item: Item, pair: Pair, decision: Decision, received: Received, batch: Batch) -> Answer:
    """Stores the message; hands on what has its turn now, before it what has none any more."""
    if _has_order(item):
        key = _conversation(item)
        waits = batch.waits.setdefault(key, {})
        for number in decision.given_up:
            _turn(waits.pop(number), pair, batch)
        message, kept = _store(item, pair, received, batch, held=decision.verdict is Verdict.HOLD)
        moved, turns = released(decision.conversation)
        if decision.verdict is Verdict.HOLD:
            assert message.order_number is not None
            waits[message.order_number] = kept
        for number in turns:
            _turn(waits.pop(number), pair, batch)
        _move(key, moved, batch)
    else:
        message, _ = _store(item, pair, received, batch, held=False)
    if decision.incident:
        said = f"Conversation {item.envelope.conversation_id} began anew while {len(decision.given_up)} waited."
        batch.incident(pair, decision.incident, said, message.pk)
    if not decision.acknowledge:
        return TAKEN
    ack = _acknowledgement(item, message, batch)
    batch.new_acks[message.pk] = ack
    if item.road is not None and item.road.confirms_through:
        ack.state, ack.due_at = SignalState.HELD, None
        batch.signals.append(ack)
        return TAKEN
    return _say(item, ack, batch)


def _move(key: Key, moved: Conversation, batch: Batch) -> None:
    row = batch.conversations.get(key)
    if row is None:
        row = batch.conversations[key] = OrderedConversation(pair_id=key[0], conversation_id=key[1])
    still = row.gap_since if row.number == moved.last else None  # the same number is missing as before
    row.number, row.restarts, row.changed_at = moved.last, moved.any_number, batch.now
    row.gap_since = (still or batch.now) if moved.held else None


def _store(item: Item, pair: Pair, received: Received, batch: Batch, *, held: bool) -> tuple[Message, Waiting]:
    envelope, now = item.envelope, batch.now
    message = batch.message(
        item,
        pair,
        state=MessageState.HELD if held else MessageState.RECEIVED,
        completed_at=None if held else now,
        order_number=received.order.sequence_number if received.order is not None else None,
    )
    rows = payload_rows(message, envelope.payloads, envelope.manifest)
    batch.store(message, rows, pair)
    kept = Waiting(message, item.agreed, documents_of(envelope.payloads), item.came_by, item.traceparent)
    lost = received.once and pair.resync_since is not None
    if received.once:
        batch.remember(item, message)
    if held:
        message.cause = CAUSE if lost else ""
        data: dict[str, object] = {"order_number": message.order_number}
        batch.events.append(
            events.event("message.held", now, pair=pair, message=message, data=data, traceparent=item.traceparent)
        )
    elif item.road is None:
        _hand_on(kept, batch, memory_lost=lost)
    else:
        batch.events.append(received_event(message, item.agreed, now, item.traceparent))
        batch.pass_on(message, rows, item.road, memory_lost=lost)
    return message, kept


def _turn(waiting: Waiting, pair: Pair, batch: Batch) -> None:
    """What waited has its turn: at the end of its pair, so that ordered triggers get it in this order."""
    message = waiting.message
    # It may be a repeat if it came while that was so, whatever has been cleared since.
    lost = message.cause == CAUSE or pair.resync_since is not None
    message.state, message.cause, message.completed_at = MessageState.RECEIVED, "", batch.now
    message.position = pair.next_position
    pair.next_position += 1
    if waiting.stored:
        batch.turned.append(message)
    _hand_on(waiting, batch, memory_lost=lost)


def _hand_on(waiting: Waiting, batch: Batch, *, memory_lost: bool) -> None:
    batch.deliveries += subscriptions.deliveries_for(
        waiting.message,
        waiting.documents,
        waiting.terms,
        batch.now,
        came_by=waiting.came_by,
        memory_lost=memory_lost,
    )
    batch.events.append(received_event(waiting.message, waiting.terms, batch.now, waiting.traceparent))


def _acknowledgement(item: Item, message: Message | None, batch: Acknowledging) -> Signal:
    """Our acknowledgement, encoded once; repeats of the message get these octets again (6.5.3)."""
    signal_id = uuid7()
    envelope = ebms2.acknowledgement(
        item.envelope,
        message_id=f"ack-{signal_id.hex}@{host(item.agreed)}",
        timestamp=batch.now,
        received=batch.now,
        digests=item.digests,
    )
    signs = any(one.signed for one in _ebms(item).ack_requests)
    return outgoing(
        SignalKind.ACKNOWLEDGEMENT,
        envelope,
        signed.encode(envelope, item.agreed, batch.now) if signs else ebms2.encode(envelope),
        item.agreed,
        batch.now,
        signal_id=signal_id,
        pair_id=item.pair_id,
        about=message,
    )


def _say(item: Item, signal: Signal, batch: Batch) -> Answer:
    """A signal that is not written yet: in the response, if its receiver asks for that (SyncReply), or by itself."""
    if not _says_at_once(item):
        batch.owe(signal, item.agreed)
        return TAKEN
    said_in_response(signal, batch.now)
    batch.signals.append(signal)
    return in_response(signal)


def _says_at_once(item: Item) -> bool:
    """Whether signals about it go into the response: its sender asks for that, and did not agree to other things."""
    return _ebms(item).sync_reply and item.agreed.sync_reply != SyncReply.RESPONSE


def in_response(signal: Signal) -> Answer:
    """The answer that has this signal in its body."""
    return Answer(200, content_type=signal.content_type, body=bytes(signal.body), headers=HEADERS)


def said_in_response(signal: Signal, now: datetime) -> None:
    """The signal goes out in a response. One that gets lost there is asked for again, by a copy of the message."""
    signal.state, signal.due_at, signal.owed = SignalState.SENT, None, 0
    signal.sends += 1
    signal.last_sent_at = now


def _repeat(item: Item, pair: Pair, decision: Decision, stored: Known | None, batch: Batch) -> Answer:
    """Discarded, and acknowledged again with the same octets, if it asks for that (6.5.3)."""
    assert stored is not None, "it is known by its id"
    pair.duplicates += 1
    data: dict[str, object] = {"rule": decision.rule}
    if decision.warning:
        data["warning"] = decision.warning
        batch.differs(pair, stored.message_pk, item.envelope.message_id, decision.warning)
    batch.repeated(item, pair, stored.message_pk, item.envelope.message_id, data)
    if not decision.acknowledge:
        return TAKEN
    ack = batch.new_acks.get(stored.message_pk)
    ours = Signal.objects.filter(about=stored.message_pk, direction=Direction.OUT, kind=SignalKind.ACKNOWLEDGEMENT)
    if ack is None and (decision.warning or item.unsigned) and not ours.exists():
        return TAKEN  # an acknowledgement made of this copy would be proof of what is not stored
    if not _says_at_once(item):
        batch.owe_again(stored.message_pk, item)
        return TAKEN
    if ack is None:
        ack = ours.select_for_update().first()
        if ack is None:
            # It first came as a message that asks for none.
            ack = batch.new_acks[stored.message_pk] = _acknowledgement(item, Message(pk=stored.message_pk), batch)
            return _say(item, ack, batch)
        if ack.state == SignalState.HELD:
            return TAKEN  # a router that confirms through: it is not received where it goes
        Signal.objects.filter(pk=ack.pk).update(sends=ack.sends + 1, last_sent_at=batch.now)
    return in_response(ack)


def _reject(item: Item, pair: Pair, decision: Decision, batch: Batch) -> Answer:
    """Refused with an ErrorList; nothing of the conversation moves."""
    error = decision.error
    assert error is not None, "whatever is refused earns an error"
    code, message_id = str(error.code), item.envelope.message_id
    later = error.severity is Severity.TRANSIENT  # which has no words here, but a status (wire-ebxml 3.2)
    status = 503 if later else 204
    batch.reject(item, item.agreed, pair, message_id, reason=code, code=code, detail=error.description, status=status)
    if later:
        return Answer(503, error.min_retry_secs)
    if decision.incident:
        batch.incident(pair, decision.incident, error.description)
    return _say(item, error_signal(item.envelope, error, item.agreed, batch.now, item.pair_id), batch)


def _write(batch: Batch, said: Said) -> None:
    new = [row for row in batch.conversations.values() if row.pk is None]
    with together():
        batch.insert()
        batch.count_copies()
        owe_again(batch, _acknowledgement)
        bulk_insert(said.signals)
        bulk_insert(new)
        bulk_set([row for row in batch.conversations.values() if row not in new], _CONVERSATION_FIELDS)
        bulk_set(batch.turned, ("state", "cause", "completed_at", "position"))
        bulk_set(list(said.moved.values()), MESSAGE_FIELDS)
    moved = list({message.pair_id: batch.pairs[message.pair_id] for message in said.moved.values()}.values())
    batch.continuation.many_of(moved)
    batch.wake = batch.wake or any(pair.due_at is not None for pair in moved)
    with together():
        batch.events += said.written + batch.continuation.write()
        batch.finish((*INBOUND_FIELDS, "next_position"), ("next_position", *REPEATABLE_FIELDS))


_CONVERSATION_FIELDS = ("number", "restarts", "gap_since", "changed_at")
