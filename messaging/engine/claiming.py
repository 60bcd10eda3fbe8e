"""Claims what is due, in one transaction over many pairs. The second step, talking, is `messaging.engine`'s.

Three kinds of work are the engine's own: pairs (reliable messages, one in flight each), messages that are sent once,
and signals (our acknowledgements and error messages). Of all other messages their profile says what is due
(`messaging.profile`). The third step, `recording`, takes the outcomes.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import transaction

from messaging import profile, storage
from messaging.choices import MessageState, Outcome, SignalState
from messaging.claim import Claim, Due, Job, JobKind, parcel
from messaging.engine import circuits, preparing
from messaging.engine.continuing import PREPARED_FIELDS, STATE_FIELDS, begin, heads, send_once, transmit
from messaging.engine.pairs import give_up
from messaging.engine.snapshots import OUTBOUND_FIELDS, apply_outbound, outbound_state, sender_policy
from messaging.journal import events
from messaging.models import Event, Message, Pair, Payload, Signal, Transmission
from messaging.models.bulk import bulk_insert, bulk_set, read, together
from messaging.protocol.envelope import Semantics
from messaging.protocol.errors import EncodeError
from messaging.protocol.messages import Happened, move
from messaging.protocol.pair_state import Act, Flow, Gate, Kind, Step
from messaging.protocol.pair_state import Event as PairEvent
from messaging.protocol.sender import step
from messaging.read_ahead import Octets, Reader, Unread
from partners import registry
from partners.choices import VersionState
from partners.terms import Terms
from rmhub import clock

__all__ = ["Claim", "Job", "JobKind", "claim_due", "parcel"]


def claim_due(
    *, limit: int, worker: int = 0, passed_over: Collection[uuid.UUID] = (), reader: Reader | None = None
) -> list[Job]:
    """Claims up to `limit` due transmissions of each kind for this worker and commits; each has a lease from now on.

    Safe to run in many workers at once: rows that another one holds are passed over (SKIP LOCKED). Nothing is claimed
    for the pairs in `passed_over`: enough that goes their way waits for a thread already. `reader`: reads what lies in
    the store, between two claims; None = this call reads it, and claims again.
    """
    reader = reader or Reader()
    jobs = _claim(limit, worker, [*passed_over, *reader.pairs()], reader)
    while reader.read():
        jobs += _claim(limit, worker, passed_over, reader)
    return jobs


def _claim(limit: int, worker: int, passed_over: Collection[uuid.UUID], reader: Reader) -> list[Job]:
    claim = Claim(clock.now(), limit, list(passed_over), reader=reader)
    with transaction.atomic(durable=True):
        _claim_pairs(claim)
        for speaks in profile.every():
            speaks.owe(claim)
        _claim_signals(claim)
        _claim_messages(claim)
        for transmission in claim.transmissions:
            transmission.worker = worker
        with together():
            bulk_insert(claim.transmissions)
            events.write(claim.written)
    for call in claim.after:
        call()
    return claim.jobs


def _claim_pairs(claim: Claim) -> None:
    # SKIP LOCKED: a pair that an acknowledgement or a person holds right now is looked at again at the next wake-up.
    pairs = read(
        Pair,
        "SELECT * FROM messaging_pair WHERE due_at <= %s AND due_at IS NOT NULL AND gate = 'open'"  # noqa: S608
        f" AND direction = 'out'{claim.but('id')} ORDER BY due_at LIMIT %s FOR UPDATE SKIP LOCKED",
        claim.parameters,
    )
    if not pairs:
        return
    messages = heads([pair.pk for pair in pairs if pair.flow == Flow.IDLE])
    for speaks in profile.every():
        pairs = speaks.promote(pairs, messages, claim)
    if not pairs:
        return
    busy = {pair.in_flight_id for pair in pairs if pair.in_flight_id}
    if busy:
        in_flight = {message.pk: message for message in Message.objects.filter(pk__in=busy)}
        messages |= {pair.pk: in_flight[pair.in_flight_id] for pair in pairs if pair.in_flight_id}
    payloads = Payload.of_messages(message.pk for message in messages.values())
    moved: list[Pair] = []
    changed: list[Message] = []
    lost: list[uuid.UUID] = []
    for pair in pairs:
        message = messages.get(pair.pk)
        under_way = [pair.transmission_id] if pair.flow == Flow.SENDING and pair.transmission_id else []
        try:
            _advance(pair, message, payloads, claim)
        except Unread:
            continue
        moved.append(pair)
        lost += under_way
        if message is not None:
            changed.append(message)
    _mark_lost(claim.now, pk__in=lost)
    with together():
        bulk_set(moved, OUTBOUND_FIELDS)
        # Octets are written once; a resend touches the state only.
        bulk_set([message for message in changed if message.attempts == 1], PREPARED_FIELDS)
        bulk_set([message for message in changed if message.attempts != 1], STATE_FIELDS)


def _advance(pair: Pair, message: Message | None, payloads: dict[uuid.UUID, list[Payload]], claim: Claim) -> None:
    """One due pair: the timer's event through the machine, and what the machine asks for. Raises Unread."""
    now, written = claim.now, claim.written
    state = outbound_state(pair)
    if message is None:
        # Nothing waits although the count says so: the queue is the truth.
        apply_outbound(pair, replace(state, queued=0, due_at=None), now)
        return
    if pair.out_now:
        # Its agreement had the repeatable profile before: what is in flight under that comes to its end first.
        apply_outbound(pair, replace(state, due_at=None), now)
        return
    terms = registry.current().version(message.agreement_version_id)
    policy = sender_policy(terms, probing=pair.probing)
    if pair.flow == Flow.IDLE and terms.state == VersionState.DISABLED:
        moved = step(state, PairEvent(Kind.SUSPEND, cause="agreement_disabled"), now, policy)
        _finish(pair, message, moved, now, written)
        return
    if pair.flow == Flow.IDLE and pair.queued:
        try:
            body = begin(pair, message, payloads[message.pk], terms, claim)
        except (EncodeError, storage.PayloadMissing) as error:
            # No number is used up: the message never had bytes. A person cancels it or fixes the store.
            moved = step(state, PairEvent(Kind.SUSPEND, cause=error.cause), now, policy)
            pair.cause_detail = str(error)[:500]
            _finish(pair, message, moved, now, written)
            return
        _transmit(pair, message, body, terms, claim)
        return
    moved = step(state, PairEvent(Kind.DUE), now, policy)
    if Act.TRANSMIT in moved.acts:
        try:
            parts = payloads[message.pk]
            body = claim.octets(message, parts, lambda one: preparing.stored_octets(one, parts))
        except (EncodeError, storage.PayloadMissing) as error:
            moved = step(state, PairEvent(Kind.SUSPEND, cause=error.cause), now, policy)
            pair.cause_detail = str(error)[:500]
            _finish(pair, message, moved, now, written)
            return
    else:
        _finish(pair, message, moved, now, written)
        return
    used = pair.retries
    apply_outbound(pair, moved.state, now)
    written += circuits.told(pair, used, policy.retries, now)
    _transmit(pair, message, body, terms, claim)


def _finish(pair: Pair, message: Message, moved: Step, now: datetime, written: list[Event]) -> None:
    """A step that sends nothing: the lease ran out, or the pair gives up."""
    apply_outbound(pair, moved.state, now)
    if Act.GIVE_UP in moved.acts:
        pair.transmission_id = None
        written += give_up(pair, message, now)
    elif pair.flow in (Flow.RESEND_WAIT, Flow.AWAITING_ACK):
        message.state = move(message.state, Happened.WILL_RETRY, reliable=True)


def _transmit(pair: Pair, message: Message, body: Octets, terms: Terms, claim: Claim) -> None:
    transmit(pair, message, body, terms, claim)
    if message.attempts > 1:
        data = {"attempt": message.attempts, "retries": pair.retries, "cause": pair.cause}
        claim.written.append(events.event("message.retrying", claim.now, pair=pair, message=message, data=data))


def _mark_lost(now: datetime, **where: list[uuid.UUID]) -> None:
    """Transmissions whose lease ran out; `where` names them by one field."""
    if any(where.values()):
        Transmission.objects.filter(**where, outcome=Outcome.ON_THE_WIRE).update(
            outcome=Outcome.LOST,
            cause="worker_lost",
            detail="No outcome was recorded before the lease ran out.",
            finished_at=now,
        )


def _claim_signals(claim: Claim) -> None:
    now = claim.now
    signals = read(
        Signal,
        f"SELECT * FROM messaging_signal WHERE due_at <= %s AND due_at IS NOT NULL{claim.but('pair_id')}"  # noqa: S608
        " ORDER BY due_at LIMIT %s FOR UPDATE SKIP LOCKED",
        claim.parameters,
    )
    _mark_lost(now, signal_id__in=[signal.pk for signal in signals if signal.state == SignalState.SENDING])
    for signal in signals:
        terms = registry.current().version(signal.agreement_version_id)  # type: ignore[arg-type]
        preparing.answer(signal, terms, claim)
    bulk_set(signals, ("state", "attempts", "due_at"))


def _claim_messages(claim: Claim) -> None:
    """Messages that no pair times: those that are sent once, and what their profiles send or end.

    What goes out again in a stream is its pair's to time, until its life is over.
    """
    messages = read(
        Message,
        f"SELECT * FROM messaging_message WHERE due_at <= %s AND due_at IS NOT NULL{claim.but('pair_id')}"  # noqa: S608
        " AND (state <> 'retrying' OR tx_sequence_id IS NULL OR expires_at <= %s)"
        " ORDER BY due_at LIMIT %s FOR UPDATE SKIP LOCKED",
        [*claim.parameters[:-1], claim.now, claim.limit],
    )
    if not messages:
        return
    _mark_lost(claim.now, message_id__in=[message.pk for message in messages if message.state == MessageState.SENDING])
    versions = registry.current()
    once: list[Message] = []
    own: dict[profile.Profile, list[Message]] = {speaks: [] for speaks in profile.every()}
    for message in messages:
        speaks = profile.of(versions.version(message.agreement_version_id))
        (own[speaks] if speaks.moves(message) else once).append(message)
    due = Due(messages)
    moved: list[Message] = []
    for message in once:
        with suppress(Unread):
            _send_once(message, due.payloads, due.pairs[message.pair_id].gate, claim)
            moved.append(message)
    bulk_set(moved, PREPARED_FIELDS)
    for speaks, mine in own.items():
        if mine:
            speaks.send_due(due.of(mine), claim)


def _send_once(message: Message, payloads: dict[uuid.UUID, list[Payload]], gate: str, claim: Claim) -> None:
    now, written = claim.now, claim.written
    terms = registry.current().version(message.agreement_version_id)
    if message.state == MessageState.SENDING:
        # The outcome of its one transmission is unknown, and it may not go out twice (spec 1, 3.1.2 and 3.1.3).
        _fail(message, "worker_lost", "The worker died while it was sent; it may have arrived.", now, written)
        return
    if gate != Gate.OPEN:
        message.due_at = now + timedelta(seconds=10)  # looked at again soon; release makes it due at once
        return
    if terms.state == VersionState.DISABLED:
        message.state = move(message.state, Happened.TRANSMITTED, reliable=False)
        _fail(message, "agreement_disabled", f"Agreement {terms.tpa_id} is disabled.", now, written)
        return
    try:
        send_once(message, payloads[message.pk], terms, claim)
    except (EncodeError, storage.PayloadMissing) as error:
        message.state = move(message.state, Happened.TRANSMITTED, reliable=False)
        _fail(message, error.cause, str(error)[:500], now, written)


def _fail(message: Message, cause: str, detail: str, now: datetime, written: list[Event]) -> None:
    message.state = move(message.state, Happened.GAVE_UP, reliable=False)
    message.cause, message.cause_detail = cause, detail
    message.due_at, message.completed_at = None, now
    # What was sent as BestEffort may be lost without a word (3.1.3); what we never sent is another matter.
    if cause != "worker_lost" or message.semantics == Semantics.AT_MOST_ONCE:
        data = {"cause": cause, "detail": detail}
        written.append(events.event("message.failed", now, pair=message.pair_id, message=message, data=data))
