"""Records the outcomes of transmissions: many at once, one transaction (third step after claim and talk)."""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import DatabaseError, InterfaceError, transaction

from messaging import dispatch, profile
from messaging.choices import MessageState, Outcome, SignalState
from messaging.claim import Job, JobKind
from messaging.engine import circuits, handover
from messaging.engine.continuing import Continuation
from messaging.engine.pairs import give_up, is_due
from messaging.engine.snapshots import OUTBOUND_FIELDS, apply_outbound, outbound_state, sender_policy
from messaging.journal import events, incidents
from messaging.models import Event, Message, Pair, Signal, Transmission
from messaging.models.bulk import bulk_set, read, together
from messaging.protocol.envelope import Semantics
from messaging.protocol.messages import Happened, move
from messaging.protocol.pair_state import Event as PairEvent
from messaging.protocol.pair_state import Flow, Kind
from messaging.protocol.sender import step
from messaging.transports import Receipt
from partners import registry
from rmhub import clock
from rmhub.metrics import TRANSMISSIONS

log = logging.getLogger(__name__)

_TRANSMISSION_FIELDS = ("outcome", "http_status", "cause", "detail", "response", "finished_at")


def record(outcomes: Sequence[tuple[Job, Receipt]]) -> list[bool]:
    """Writes what became of claimed transmissions and moves pairs, messages and signals on.

    An outcome that comes after its lease ran out, or after an acknowledgement overtook it, is noted at its
    transmission and moves nothing. Returns for each outcome whether it moved something.
    """
    now = clock.now()
    continuation = Continuation(handover.seat(), now)
    with transaction.atomic(durable=True):
        written: list[Event] = []
        timed, signals, once = (
            [outcome for outcome in outcomes if outcome[0].kind is kind]
            for kind in (JobKind.PAIR, JobKind.SIGNAL, JobKind.UNRELIABLE)
        )
        own = _by_profile(outcomes)
        heard = [job.pair_id for job, receipt in once if job.pair_id and receipt.response and _speaks(job).hears]
        # Pairs of all kinds at once, then all other rows, and incidents after those: claims hold rows of messages and
        # signals when they open an incident, so whoever has opened one must not wait for such a row any more.
        # A pair whose acknowledgement came first has moved on: of that one only the attempt is written.
        pairs = Pair.locked(
            (
                *(job.pair_id for speaks, mine in own.items() if speaks.pairs_first for job, _ in mine if job.pair_id),
                *heard,
            ),
            sending={job.transmission_id: job.pair_id for job, _ in timed if job.pair_id},
        )
        signal_moves = _record_signals(signals, now)
        plain_moves = _record_unreliable(once, pairs, now, written)
        recorded = [speaks.record(mine, pairs, now, written) for speaks, mine in own.items()]
        pair_moves = _record_pairs(timed, pairs, now, written)
        causes: dict[uuid.UUID, str] = {}
        for one in recorded:
            causes |= one.moved
            written += one.tell() if one.tell is not None else ()
        attempts = [_transmission(job, receipt, now, causes) for job, receipt in outcomes]
        bulk_set(attempts, _TRANSMISSION_FIELDS)
        written += circuits.record(outcomes, now)
        continuation.many_of(pairs.values())
        with together():
            written += continuation.write()
            events.write(written)
        if any(is_due(pair, now) for pair in pairs.values()):
            # Not only what moved here: a claim that came while we held the lock has passed it over (SKIP LOCKED).
            dispatch.wake_on_commit(dispatch.SEND)
    for job, receipt in outcomes:
        TRANSMISSIONS.labels(job.kind.value, "sent" if receipt.ok else "failed").inc()
    for event in written:
        if event.type == "circuit.closed":
            _tell(str(event.data["server"]))
    moved = pair_moves | signal_moves | plain_moves | causes.keys()
    return [job.transmission_id in moved for job, _ in outcomes]


def _by_profile(
    outcomes: Sequence[tuple[Job, Receipt]],
) -> dict[profile.Profile, list[tuple[Job, Receipt]]]:
    """Outcomes of messages that their profiles move; first those of profiles that lock messages before pairs."""
    found: dict[profile.Profile, list[tuple[Job, Receipt]]] = defaultdict(list)
    for job, receipt in outcomes:
        if job.kind is JobKind.OWN:
            found[_speaks(job)].append((job, receipt))
    return dict(sorted(found.items(), key=lambda one: one[0].pairs_first))


def _speaks(job: Job) -> profile.Profile:
    return profile.of(registry.current().version(job.version_id))


def _tell(server: str) -> None:
    """What said that the server cannot be reached is over. Housekeeping does it where this fails: all is recorded."""
    try:
        circuits.answered(server)
    except (DatabaseError, InterfaceError):
        log.warning(
            "incidents of a server are left to housekeeping", extra={"action": "answered_later", "server": server}
        )


def _transmission(job: Job, receipt: Receipt, now: datetime, causes: Mapping[uuid.UUID, str]) -> Transmission:
    return Transmission(
        pk=job.transmission_id,
        outcome=Outcome.SENT if receipt.ok else Outcome.FAILED,
        http_status=receipt.status,
        cause=causes.get(job.transmission_id, receipt.cause),
        detail=receipt.detail,
        response=receipt.response,
        finished_at=now,
    )


def _record_pairs(
    outcomes: Sequence[tuple[Job, Receipt]], locked: Mapping[uuid.UUID, Pair], now: datetime, written: list[Event]
) -> set[uuid.UUID]:
    if not outcomes:
        return set()
    pairs: dict[uuid.UUID, Pair] = {}
    moved: set[uuid.UUID] = set()
    messages: list[Message] = []
    for job, receipt in outcomes:
        assert job.pair_id is not None
        pair = locked.get(job.pair_id)
        if pair is None or pair.transmission_id != job.transmission_id or pair.flow != Flow.SENDING:
            continue
        pairs[pair.pk] = pair
        moved.add(job.transmission_id)
        policy = sender_policy(registry.current().version(job.version_id), probing=pair.probing)
        kind = Kind.SENT if receipt.ok else Kind.TRANSPORT_FAILED
        result = step(outbound_state(pair), PairEvent(kind, cause=receipt.cause), now, policy)
        apply_outbound(pair, result.state, now)
        pair.cause_detail = receipt.detail
        if pair.flow == Flow.SUSPENDED:
            # The message that the pair was resumed with, to see whether it gets through.
            assert job.message_id is not None
            message = Message.objects.defer("wire_frame").get(pk=job.message_id)
            written += give_up(pair, message, now)
            messages.append(message)
            continue
        # While its pair is SENDING the message is, too: both are claimed and moved under the pair's lock.
        message = Message(pk=job.message_id, state=MessageState.SENDING)
        happened = Happened.HANDED_OVER if receipt.ok else Happened.WILL_RETRY
        message.state = move(message.state, happened, reliable=True)
        message.cause, message.cause_detail = receipt.cause, receipt.detail
        messages.append(message)
        if not receipt.ok and receipt.permanent:
            # It is tried again all the same, but a person should see it at once.
            _, opened = incidents.incident_open(
                pair=pair, cause=receipt.cause, now=now, detail=receipt.detail, message_pk=job.message_id
            )
            written += opened
    with together():
        bulk_set(list(pairs.values()), OUTBOUND_FIELDS)
        bulk_set(messages, ("state", "cause", "cause_detail"))
    return moved


def _record_signals(outcomes: Sequence[tuple[Job, Receipt]], now: datetime) -> set[uuid.UUID]:
    if not outcomes:
        return set()
    ids = sorted({job.signal_id for job, _ in outcomes if job.signal_id})
    rows = read(
        Signal,
        "SELECT id, state, owed, sends, attempts, last_sent_at, note, due_at FROM messaging_signal"
        " WHERE id = ANY(%s) ORDER BY id FOR UPDATE",
        [ids],
    )
    signals = {signal.pk: signal for signal in rows}
    moved: set[uuid.UUID] = set()
    for job, receipt in outcomes:
        signal = signals.get(job.signal_id) if job.signal_id else None
        if signal is None or signal.state != SignalState.SENDING or signal.sends + signal.attempts != job.number:
            continue
        moved.add(job.transmission_id)
        if receipt.ok:
            signal.sends += 1
            signal.owed = max(0, signal.owed - 1)
            signal.attempts = 0
            signal.last_sent_at = now
            signal.note = ""
            # Every receipt earned an acknowledgement of its own (2.1.3 (4)): the next copy goes out at once.
            signal.state = SignalState.PENDING if signal.owed else SignalState.SENT
            signal.due_at = now if signal.owed else None
        elif (terms := registry.current().version(job.version_id)).recovers(signal.attempts - 1):
            # Transport recovery like that of a message (spec 1, 2.5.4); above it there is none.
            signal.state = SignalState.PENDING
            signal.note = receipt.detail[:255]
            signal.due_at = now + timedelta(seconds=terms.transport_retry_interval)
        else:
            # Nothing is lost: a sender that misses it repeats the message, and that makes it due again.
            signal.state = SignalState.FAILED
            signal.note = receipt.detail[:255]
            signal.owed = signal.attempts = 0
            signal.due_at = None
        if signal.due_at is not None and signal.due_at <= now:
            dispatch.wake_on_commit(dispatch.SEND)
    bulk_set(list(signals.values()), ("state", "sends", "owed", "attempts", "last_sent_at", "note", "due_at"))
    return moved


def _record_unreliable(
    outcomes: Sequence[tuple[Job, Receipt]], pairs: Mapping[uuid.UUID, Pair], now: datetime, written: list[Event]
) -> set[uuid.UUID]:
    if not outcomes:
        return set()
    messages = Message.of_ids((job.message_id for job, _ in outcomes if job.message_id), lock=True)
    moved: set[uuid.UUID] = set()
    for job, receipt in outcomes:
        message = messages.get(job.message_id) if job.message_id else None
        if message is None or message.state != MessageState.SENDING:
            continue
        moved.add(job.transmission_id)
        happened = Happened.HANDED_OVER if receipt.ok else Happened.GAVE_UP
        message.state = move(message.state, happened, reliable=False)
        message.cause, message.cause_detail = receipt.cause, receipt.detail
        message.due_at, message.completed_at = None, now
        pair_id: uuid.UUID = message.pair_id
        if receipt.ok:
            written.append(events.event("message.sent", now, pair=pair_id, message=message))
        elif message.semantics == Semantics.AT_MOST_ONCE:
            # AtMostOnce: the sending party can detect it (3.1.2). BestEffort: it can not (3.1.3); our screens show it.
            data = {"cause": receipt.cause, "detail": receipt.detail}
            written.append(events.event("message.failed", now, pair=pair_id, message=message, data=data))
        if receipt.response and _speaks(job).hears:
            _speaks(job).hear(message, receipt, pairs[pair_id], now, written)
    bulk_set(list(messages.values()), ("state", "cause", "cause_detail", "due_at", "completed_at"))
    return moved
