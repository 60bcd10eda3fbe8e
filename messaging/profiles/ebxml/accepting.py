"""Decides and stores what was received: a group of arrivals, one transaction.

The verdicts are `protocol.acceptance`'s and the moves of our own messages `protocol.sender`'s; here is only what they
need to know, and what follows. Nothing is answered before the commit (invariant 1).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import F

from messaging import dispatch, storage
from messaging.choices import Direction, MessageState, SignalKind, SignalState
from messaging.engine import subscriptions
from messaging.engine.snapshots import INBOUND_FIELDS, OUTBOUND_FIELDS, acceptance_policy, inbound_state, writer_options
from messaging.entrance import received_payloads
from messaging.journal import events, incidents
from messaging.models import Message, MessageIdentity, Pair, Payload, Rejection, Signal
from messaging.models.bulk import bulk_insert, bulk_set
from messaging.profiles.ebxml import answering
from messaging.profiles.ebxml.arrivals import Batch, Item, Known
from messaging.profiles.ebxml.signals import error_signal, host
from messaging.profiles.repeatable import remembering
from messaging.profiles.repeatable.remembering import Key
from messaging.protocol.acceptance import Decision, InboundState, Verdict, decide, received_from
from messaging.protocol.codecs import ebxml
from messaging.protocol.envelope import Envelope, Semantics
from messaging.protocol.errors import Defect
from messaging.routing.services import forwarding, upstream
from messaging.routing.services.routing import Road
from partners.choices import Profile
from partners.terms import Terms
from rmhub import clock
from rmhub.ids import uuid7


def accept(items: Sequence[Item]) -> list[int]:
    """Processes a group and commits it; returns the HTTP status for each item, 204 always.

    Raises IntegrityError when another process stored one of the ids between our look and our insert; the caller runs
    the items one by one then, and the second look finds it.
    """
    with transaction.atomic(durable=True):
        batch = Batch(clock.now())
        normals = [item for item in items if item.pair_id is not None]
        targets = answering.targets(item.envelope.ref_to_message_id for item in items if item.pair_id is None)
        answered = {message.pair_id for found in targets.values() for message in found}
        arriving = [(item.road, item.envelope.message_id) for item in normals if item.road is not None]
        onward = forwarding.pair_ids(arriving)
        pairs = Pair.locked({item.pair_id for item in normals if item.pair_id} | answered | onward)
        batch.onward = forwarding.look_up(arriving, batch.now)
        _look_up(normals, batch)
        for item in items:
            if item.pair_id is not None:
                _accept_normal(item, pairs, batch)
            else:
                answering.take(item, targets, pairs, batch)
        _write(batch, pairs)
    if batch.wake:
        dispatch.wake(dispatch.SEND)
    if batch.deliveries:
        dispatch.wake(dispatch.DELIVER)
    return [204] * len(items)


def _look_up(normals: Sequence[Item], batch: Batch) -> None:
    """Which MessageIds are stored already. After the locks: a repeat on the same pair cannot slip in between."""
    if not normals:
        return
    found = MessageIdentity.objects.filter(
        scope_id__in={item.principal.party_id for item in normals},
        direction=Direction.IN,
        message_id__in={item.envelope.message_id for item in normals},
    ).values_list("scope_id", "message_id", "stored_id", "digest", "sequence_number")
    batch.known = {(scope, message_id): Known(pk, digest, number) for scope, message_id, pk, digest, number in found}
    keys = {
        Key(item.principal.party_id, item.envelope.message_id)
        for item in normals
        if remembering.has_others(item.principal.party_id, Profile.EBXML)
    }
    numbered = {key for key, known in batch.known.items() if not known.by_other_road}
    for key, one in remembering.stored_as_requests({key for key in keys if key not in numbered}).items():
        batch.known[key] = Known(one.message_pk, "", None, one)


def _accept_normal(item: Item, pairs: Mapping[uuid.UUID, Pair], batch: Batch) -> None:
    assert item.pair_id is not None
    pair = pairs[item.pair_id]
    key = (item.principal.party_id, item.envelope.message_id)
    stored = batch.known.get(key)
    received = received_from(
        item.envelope,
        known=stored is not None,
        same_octets=stored is None or _is_same(stored, item),
        known_number=stored.number if stored is not None else None,
        by_other_road=stored is not None and stored.by_other_road,
        at_most_once=item.agreed.semantics == Semantics.AT_MOST_ONCE,
    )
    decision = decide(inbound_state(pair), received, acceptance_policy(item.agreed))
    if decision.verdict is Verdict.ACCEPT and item.road is not None:
        decision = _admitted(item, item.road, pairs, decision, batch)
    if decision.verdict is Verdict.ACCEPT:
        _store(item, pair, pairs, decision, batch)
    elif decision.verdict is Verdict.DUPLICATE:
        _repeat(item, pair, decision, stored, batch)
    else:
        _reject(item, pair, decision, batch)


def _admitted(item: Item, road: Road, pairs: Mapping[uuid.UUID, Pair], decision: Decision, batch: Batch) -> Decision:
    """The decision about a new message for somebody else, once its way onward has been looked at."""
    assert item.pair_id is not None
    error = forwarding.refusal(
        road, item.envelope.message_id, pairs, batch.onward, batch.now, reliable=decision.acknowledge
    )
    if error is None:
        return decision
    return Decision(Verdict.REJECT, "way-onward", inbound_state(pairs[item.pair_id]), error=error)


def _is_same(stored: Known, item: Item) -> bool:
    if stored.other is not None:
        return stored.other.has(*(hashlib.sha256(payload.content).hexdigest() for payload in item.envelope.payloads))
    return stored.digest == item.digest


def _store(item: Item, pair: Pair, pairs: Mapping[uuid.UUID, Pair], decision: Decision, batch: Batch) -> None:
    envelope, now = item.envelope, batch.now
    slices = [(part.offset, len(part.content)) for part in envelope.payloads if part.offset is not None]
    message = Message(
        id=uuid7(),
        direction=Direction.IN,
        state=MessageState.RECEIVED,
        pair=pair,
        agreement_version_id=item.agreed.version_id,
        semantics=envelope.semantics,
        message_id=envelope.message_id,
        document_id=envelope.document_id,
        conversation_id=envelope.conversation_id,
        ref_to_message_id=envelope.ref_to_message_id,
        service=envelope.service,
        action=envelope.action,
        sequence_number=envelope.hop.sequence_number if decision.acknowledge else None,
        position=pair.next_position,
        content_type=item.content_type,
        wire_frame=storage.cut_frame(item.body, slices),
        digest=item.digest,
        size=sum(len(part.content) for part in envelope.payloads),
        created_at=now,
        completed_at=now,
    )
    pair.next_position += 1
    _count_on(pair, decision.state)
    pair.done += 1
    pair.last_success_at = now
    rows = received_payloads.rows_of(message, envelope.payloads, envelope.manifest)
    batch.messages.append(message)
    batch.payloads += rows
    once = decision.acknowledge or item.agreed.detect_repeats or item.agreed.semantics == Semantics.AT_MOST_ONCE
    lost = once and pair.resync_since is not None
    if item.road is None:
        contents = received_payloads.documents_of(envelope.payloads)
        batch.deliveries += subscriptions.deliveries_for(
            message, contents, item.agreed, now, came_by=item.came_by, memory_lost=lost
        )
    key = (item.principal.party_id, envelope.message_id)
    if once:
        batch.identities.append(
            MessageIdentity(
                scope_id=key[0],
                direction=Direction.IN,
                message_id=key[1],
                stored_id=message.pk,
                digest=item.digest,
                sequence_number=message.sequence_number,
                created_at=now,
            )
        )
        batch.known[key] = Known(message.pk, item.digest, message.sequence_number)
    if decision.acknowledge:
        ack = _acknowledgement(item, message, batch)
        if item.road is not None and item.road.confirms_through:
            ack.state, ack.due_at = SignalState.HELD, None
        batch.signals.append(ack)
        batch.new_acks[message.pk] = ack
        batch.wake = True
    data = {"agreement": item.agreed.tpa_id, "service": message.service, "action": message.action, "size": message.size}
    batch.events.append(events.event("message.received", now, pair=pair, message=message, data=data))
    if item.road is not None:
        _pass_on(message, rows, item.road, pairs, batch, memory_lost=lost)


def _count_on(pair: Pair, state: InboundState) -> None:
    pair.last_sequence = state.last_sequence or 0
    pair.last_message_id = state.last_message_id
    pair.takes_any_number = state.any_number


def _pass_on(
    message: Message,
    rows: list[Payload],
    road: Road,
    pairs: Mapping[uuid.UUID, Pair],
    batch: Batch,
    *,
    memory_lost: bool,
) -> None:
    assert road.pair_id is not None
    made = forwarding.forward(message, rows, road, pairs[road.pair_id], batch.now, memory_lost=memory_lost)
    batch.messages.append(made.message)
    batch.attempts += made.attempts
    batch.payloads += made.payloads
    if made.identity is not None:
        batch.identities.append(made.identity)
        batch.onward = batch.onward.with_taken(road.onward.own_party_id, message.message_id)
    batch.events += made.events
    batch.wake = True


def _acknowledgement(item: Item, message: Message | None, batch: Batch) -> Signal:
    """Our Acknowledgement, encoded once; repeats of the message send these octets again (wire-ebxml 1.5)."""
    signal_id = uuid7()
    envelope = ebxml.acknowledgement(
        item.envelope,
        message_id=f"ack-{signal_id.hex}@{host(item.agreed)}",
        timestamp=batch.now,
        error_uri=item.agreed.own_error_uri,
    )
    wire = ebxml.encode(envelope, writer_options(item.agreed))
    return Signal(
        id=signal_id,
        direction=Direction.OUT,
        kind=SignalKind.ACKNOWLEDGEMENT,
        state=SignalState.PENDING,
        pair_id=item.pair_id,
        about=message,
        agreement_version_id=item.agreed.version_id,
        message_id=envelope.message_id,
        ref_to_message_id=envelope.ref_to_message_id,
        content_type=wire.content_type,
        body=wire.join(()),
        owed=1,
        due_at=batch.now,
        created_at=batch.now,
    )


def _repeat(item: Item, pair: Pair, decision: Decision, stored: Known | None, batch: Batch) -> None:
    """Discarded, and acknowledged again if it is reliable (spec 1, 2.1.3 (4))."""
    pair.duplicates += 1
    if stored is not None and decision.state != inbound_state(pair):
        _follow_restart(item, pair, decision, stored, batch)
    if stored is None:
        # Known by its number alone: a person set the number that is expected, or the id is of another sender's memory.
        batch.signals.append(_acknowledgement(item, None, batch))
        batch.wake = True
        return
    message_pk = stored.message_pk
    batch.repeats[message_pk] = batch.repeats.get(message_pk, 0) + 1
    if decision.acknowledge:
        batch.wake = True
        if message_pk in batch.new_acks:
            batch.new_acks[message_pk].owed += 1
        else:
            batch.owed[message_pk] = batch.owed.get(message_pk, 0) + 1
            batch.asked[message_pk] = item
    data: dict[str, object] = {"rule": decision.rule}
    if decision.warning:
        data["warning"] = decision.warning
        detail = f"MessageId {item.envelope.message_id} came again with other content; the first was kept."
        _, opened = incidents.incident_open(
            pair=pair, cause=decision.warning, now=batch.now, detail=detail, message_pk=message_pk
        )
        batch.events += opened
    message = Message(pk=message_pk, message_id=item.envelope.message_id)
    batch.events.append(events.event("message.duplicate", batch.now, pair=pair, message=message, data=data))


def _follow_restart(item: Item, pair: Pair, decision: Decision, stored: Known, batch: Batch) -> None:
    """The sender counts on from this message; a further copy of it is an ordinary repeat."""
    _count_on(pair, decision.state)
    key = (item.principal.party_id, item.envelope.message_id)
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
    pair.rejected += 1
    error = decision.error
    assert error is not None, "whatever is refused earns an Error message"
    batch.signals.append(error_signal(item.envelope, error, item.agreed, batch.now, item.pair_id))
    batch.wake = True
    batch.rejections.append(
        Rejection(
            at=batch.now,
            remote_address=item.remote_address[:64],
            party_name=item.principal.party_name,
            reason=str(error.code)[:60],
            detail=error.description[:2000],
            http_status=204,
            tpa_id=item.agreed.tpa_id,
            message_id=item.envelope.message_id[:512],
            content_type=item.content_type[:255],
            size=len(item.body),
            sha256=item.digest,
            sample=item.body[:4096],
        )
    )
    data = {"message_id": item.envelope.message_id, "code": str(error.code), "detail": error.description}
    batch.events.append(events.event("message.rejected", batch.now, pair=pair, data=data))
    if decision.incident:
        _, opened = incidents.incident_open(pair=pair, cause=decision.incident, now=batch.now, detail=error.description)
        batch.events += opened


def answer_with_error(envelope: Envelope, defect: Defect, terms: Terms, now: datetime) -> None:
    """Stores an Error message about something that has no pair (an agreement that is not in force)."""
    with transaction.atomic():
        error_signal(envelope, defect, terms, now, None).save(force_insert=True)
    dispatch.wake(dispatch.SEND)


def _owe(batch: Batch, pairs: Mapping[uuid.UUID, Pair]) -> None:
    """Makes stored acknowledgements due once more for each repeat, with the same octets."""
    if not batch.owed:
        return
    ours = Signal.objects.filter(
        about_id__in=list(batch.owed), direction=Direction.OUT, kind=SignalKind.ACKNOWLEDGEMENT
    )
    signals = list(ours.order_by("pk").select_for_update())  # in the order in which outcomes are recorded
    held = [signal for signal in signals if signal.state == SignalState.HELD]
    for signal in signals:
        signal.owed += batch.owed.pop(signal.about_id)  # type: ignore[arg-type]
        # One that is on the wire becomes due again when its outcome is recorded.
        if signal.state not in (SignalState.SENDING, SignalState.HELD):
            signal.state = SignalState.PENDING
            signal.due_at = batch.now
            signal.attempts = 0
    if held:
        last = {key: item.envelope for key, item in batch.asked.items()}
        bulk_insert(upstream.answer_copies(held, last, pairs, batch.now))
    bulk_set(signals, ("owed", "state", "due_at", "attempts"))
    # What is left was never acknowledged: its first copy came as an unreliable message.
    missing = []
    for message_pk, copies in batch.owed.items():
        signal = _acknowledgement(batch.asked[message_pk], Message(pk=message_pk), batch)
        signal.owed = copies
        missing.append(signal)
    bulk_insert(missing)


def _write(batch: Batch, locked: Mapping[uuid.UUID, Pair]) -> None:
    pairs = list(locked.values())
    bulk_insert(batch.messages)
    bulk_insert(batch.identities)
    bulk_insert(batch.payloads)
    bulk_insert(batch.deliveries)
    bulk_insert(batch.signals)
    bulk_insert(batch.rejections)
    bulk_insert(batch.attempts)
    for message_pk, copies in batch.repeats.items():
        Message.objects.filter(pk=message_pk).update(copies=F("copies") + copies)
    _owe(batch, locked)
    upstream.onward_ended(batch.ended, batch.now)
    answered = list(batch.answered.values())
    bulk_set(answered, ("state", "completed_at", "cause", "cause_detail"))
    bulk_set([pair for pair in pairs if pair.direction == Direction.IN], (*INBOUND_FIELDS, "next_position"))
    bulk_set([pair for pair in pairs if pair.direction == Direction.OUT], (*OUTBOUND_FIELDS, "next_position"))
    events.write(batch.events)
