"""Decides and stores what was received: a group of arrivals, one transaction.

The verdicts are `protocol.acceptance`'s and the moves of our own messages `protocol.sender`'s; here is only what they
need to know (an `Item`, what is `Known` of it, the `Batch` that is written), and what follows. Nothing is answered
before the commit (invariant 1).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from messaging import dispatch
from messaging.choices import Direction, SignalKind, SignalState
from messaging.engine import handover, subscriptions
from messaging.engine.snapshots import INBOUND_FIELDS, OUTBOUND_FIELDS, acceptance_policy, inbound_state, writer_options
from messaging.entrance.effects import documents_of, payload_rows, received_event
from messaging.models import Message, MessageIdentity, Pair, Signal
from messaging.models.bulk import bulk_set, together
from messaging.profiles.acknowledging import Acknowledging, Item, Known, is_same, owe_again
from messaging.profiles.ebxml import answering
from messaging.profiles.ebxml.signals import error_signal, host, outgoing
from messaging.protocol.acceptance import Decision, InboundState, Verdict, decide, received_from
from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import Envelope, Semantics
from messaging.protocol.errors import Defect
from messaging.routing.services import upstream
from partners.choices import Profile
from partners.terms import Terms
from rmhub.ids import uuid7


@dataclass(slots=True)
class Batch(Acknowledging):
    """What one transaction writes of ebXML messages and answers.

    `answered`: messages of ours; `freed`: their pairs, whose next message may go; `ended`: what `upstream` has to be
    told.
    """

    answered: dict[uuid.UUID, Message] = field(default_factory=dict)
    freed: set[uuid.UUID] = field(default_factory=set)
    ended: list[tuple[uuid.UUID | None, str]] = field(default_factory=list)


def accept(items: Sequence[Item]) -> list[int]:
    """Processes a group and commits it; returns the HTTP status for each item, 204 always.

    Raises IntegrityError when another process stored one of the ids between our look and our insert; the caller runs
    the items one by one then, and the second look finds it.
    """
    seat = handover.seat()
    with transaction.atomic(durable=True):
        ours = answering.targets(item.envelope.ref_to_message_id for item in items if item.pair_id is None)
        batch = Batch.of_group(items, ours, Profile.EBXML, seat)
        for item in items:
            if item.pair_id is not None:
                _accept_normal(item, batch)
            else:
                answering.take(item, ours, batch)
        _write(batch)
    batch.wake_workers()
    return [204] * len(items)


def _accept_normal(item: Item, batch: Batch) -> None:
    assert item.pair_id is not None
    pair = batch.pairs[item.pair_id]
    stored = batch.known.get(item.key)
    received = received_from(
        item.envelope,
        known=stored is not None,
        same_octets=stored is None or is_same(stored, item),
        known_number=stored.number if stored is not None else None,
        by_other_road=stored is not None and stored.by_other_road,
        at_most_once=item.agreed.semantics == Semantics.AT_MOST_ONCE,
    )
    decision = decide(inbound_state(pair), received, acceptance_policy(item.agreed))
    if decision.verdict is Verdict.ACCEPT and item.road is not None:
        error = batch.blocked(item.road, item.envelope.message_id, reliable=decision.acknowledge)
        if error is not None:
            decision = Decision(Verdict.REJECT, "way-onward", inbound_state(pair), error=error)
    if decision.verdict is Verdict.ACCEPT:
        _store(item, pair, decision, batch)
    elif decision.verdict is Verdict.DUPLICATE:
        _repeat(item, pair, decision, stored, batch)
    else:
        _reject(item, pair, decision, batch)


def _store(item: Item, pair: Pair, decision: Decision, batch: Batch) -> None:
    envelope, now = item.envelope, batch.now
    number = envelope.hop.sequence_number if decision.acknowledge else None
    message = batch.message(item, pair, sequence_number=number)
    _count_on(pair, decision.state)
    rows = payload_rows(message, envelope.payloads, envelope.manifest)
    batch.store(message, rows, pair)
    once = decision.acknowledge or item.agreed.detect_repeats or item.agreed.semantics == Semantics.AT_MOST_ONCE
    lost = once and pair.resync_since is not None
    if item.road is None:
        contents = documents_of(envelope.payloads)
        batch.deliveries += subscriptions.deliveries_for(
            message, contents, item.agreed, now, came_by=item.came_by, memory_lost=lost
        )
    if once:
        batch.remember(item, message)
    if decision.acknowledge:
        ack = _acknowledgement(item, message, batch)
        if item.road is not None and item.road.confirms_through:
            ack.state, ack.due_at = SignalState.HELD, None
            batch.signals.append(ack)
        else:
            batch.owe(ack, item.agreed)
        batch.new_acks[message.pk] = ack
    batch.events.append(received_event(message, item.agreed, now, item.traceparent))
    if item.road is not None:
        batch.pass_on(message, rows, item.road, memory_lost=lost)


def _count_on(pair: Pair, state: InboundState) -> None:
    pair.last_sequence = state.last_sequence or 0
    pair.last_message_id = state.last_message_id
    pair.takes_any_number = state.any_number


def _acknowledgement(item: Item, message: Message | None, batch: Acknowledging) -> Signal:
    """Our Acknowledgement, encoded once; repeats of the message send these octets again (wire-ebxml 1.5)."""
    signal_id = uuid7()
    envelope = ebxml.acknowledgement(
        item.envelope,
        message_id=f"ack-{signal_id.hex}@{host(item.agreed)}",
        timestamp=batch.now,
        error_uri=item.agreed.own_error_uri,
    )
    wire = ebxml.encode(envelope, writer_options(item.agreed))
    return outgoing(
        SignalKind.ACKNOWLEDGEMENT,
        envelope,
        wire,
        item.agreed,
        batch.now,
        signal_id=signal_id,
        pair_id=item.pair_id,
        about=message,
    )


def _repeat(item: Item, pair: Pair, decision: Decision, stored: Known | None, batch: Batch) -> None:
    """Discarded, and acknowledged again if it is reliable (spec 1, 2.1.3 (4))."""
    pair.duplicates += 1
    if stored is not None and decision.state != inbound_state(pair):
        _follow_restart(item, pair, decision, stored, batch)
    if stored is None:
        # Known by its number alone: a person set the number that is expected, or the id is of another sender's memory.
        batch.owe(_acknowledgement(item, None, batch), item.agreed)
        return
    message_pk = stored.message_pk
    if decision.acknowledge:
        batch.owe_again(message_pk, item)
    data: dict[str, object] = {"rule": decision.rule}
    if decision.warning:
        data["warning"] = decision.warning
        batch.differs(pair, message_pk, item.envelope.message_id, decision.warning)
    batch.repeated(item, pair, message_pk, item.envelope.message_id, data)


def _follow_restart(item: Item, pair: Pair, decision: Decision, stored: Known, batch: Batch) -> None:
    """The sender counts on from this message; a further copy of it is an ordinary repeat."""
    _count_on(pair, decision.state)
    key = item.key
    batch.known[key] = Known(stored.message_pk, item.digest, pair.last_sequence)
    MessageIdentity.objects.update_or_create(
        scope_id=key[0],
        direction=Direction.IN,
        message_id=key[1],
        defaults={"sequence_number": pair.last_sequence, "digest": item.digest},
        create_defaults={
            "sequence_number": pair.last_sequence,
            "digest": item.digest,
            "stored_id": stored.message_pk,
            "created_at": batch.now,
        },
    )


def _reject(item: Item, pair: Pair, decision: Decision, batch: Batch) -> None:
    """Refused with an Error message; nothing of the pair's sequence moves."""
    error = decision.error
    assert error is not None, "whatever is refused earns an Error message"
    batch.owe(error_signal(item.envelope, error, item.agreed, batch.now, item.pair_id), item.agreed)
    code, message_id = str(error.code), item.envelope.message_id
    batch.reject(item, item.agreed, pair, message_id, reason=code, code=code, detail=error.description, status=204)
    if decision.incident:
        batch.incident(pair, decision.incident, error.description)


def answer_with_error(envelope: Envelope, defect: Defect, terms: Terms, now: datetime) -> None:
    """Stores an Error message about something that has no pair (an agreement that is not in force)."""
    with transaction.atomic():
        error_signal(envelope, defect, terms, now, None).save(force_insert=True)
    dispatch.wake(dispatch.SEND)


def _write(batch: Batch) -> None:
    with together():
        batch.insert()
        batch.count_copies()
        owe_again(batch, _acknowledgement)
    upstream.onward_ended(batch.ended, batch.now)
    with together():
        bulk_set(list(batch.answered.values()), ("state", "completed_at", "cause", "cause_detail"))
        if batch.freed - batch.continuation.heads_of([batch.pairs[pair_id] for pair_id in batch.freed]):
            batch.wake = True
        batch.events += batch.continuation.write()
        batch.finish((*INBOUND_FIELDS, "next_position"), (*OUTBOUND_FIELDS, "next_position"))
