"""Decides and stores repeatable requests (spec 2): a group of arrivals, one transaction.

The verdicts are `protocol.memory`'s; here is only what they need to know, and what follows. A request is remembered,
stored and handed to its triggers by one commit, or not at all.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.db import transaction

from messaging import storage
from messaging.choices import Direction, MessageState, RequestState
from messaging.engine import memory as hub_memory
from messaging.engine import subscriptions
from messaging.engine.forgetting import day_of
from messaging.entrance.effects import Arrived, Effects, received_event
from messaging.models import (
    Delivery,
    MemoryEpoch,
    Message,
    MessageIdentity,
    Payload,
    RememberedRequest,
)
from messaging.models.bulk import bulk_insert, together
from messaging.profiles.repeatable import remembering
from messaging.profiles.repeatable.answers import window_detail
from messaging.profiles.repeatable.problems import PROBLEMS
from messaging.profiles.repeatable.remembering import Elsewhere, Key, Remembered
from messaging.protocol import selecting
from messaging.protocol.errors import Severity
from messaging.protocol.memory import Memory, Received, Refusal, Stored, Verdict, decide
from messaging.routing.services.routing import Road
from partners.choices import ExchangeMode
from partners.terms import Terms
from rmhub import clock
from rmhub.ids import uuid7

# So long the delivery of a synchronous request is left to the process that took the request; then a worker has it.
HAND_OVER = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Arrived):
    """One request under its agreement, read and checked as far as it goes alone.

    `first_sent` is None for one that comes with an Idempotency-Key, and both it and `content` mean nothing for one that
    is not `remembered`. `content`: its fingerprint (hex). `by_ebxml_too`: the partner may send the same id by ebXML.
    """

    terms: Terms
    pair_id: uuid.UUID
    request_id: str
    first_sent: datetime | None
    content: str
    client_id: str
    service: str
    action: str
    conversation_id: str
    ref_to_message_id: str
    document_id: str = ""
    remembered: bool = True
    by_ebxml_too: bool = False

    @property
    def key(self) -> Key:
        return Key(self.principal.party_id, self.request_id)

    @property
    def by_key(self) -> bool:
        return self.first_sent is None

    @property
    def synchronous(self) -> bool:
        return self.terms.exchange_mode == ExchangeMode.SYNCHRONOUS


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request. `code` and `status` name the problem of what was neither executed nor repeated.

    `known` is the memory of it, `received_at` when its first copy was stored; it was decided by `at` and `memory`.
    """

    verdict: Verdict
    at: datetime
    memory: Memory
    code: str = ""
    status: int | None = None
    known: Remembered | None = None
    received_at: datetime | None = None
    retry_after: int | None = None  # seconds, where that is known
    detail: str = ""


@dataclass(slots=True)
class _Batch(Effects):
    """What one transaction knows and writes of requests. `epoch`: since when this hub remembers. `alive`: deliveries
    that somebody works on. `stored_at`: when messages were stored.
    """

    epoch: MemoryEpoch = field(default_factory=hub_memory.current)
    known: dict[Key, Remembered] = field(default_factory=dict)
    elsewhere: dict[Key, Elsewhere] = field(default_factory=dict)
    alive: set[uuid.UUID] = field(default_factory=set)
    stored_at: dict[uuid.UUID, datetime] = field(default_factory=dict)
    requests: list[RememberedRequest] = field(default_factory=list)


def admit(items: Sequence[Item]) -> list[Outcome]:
    """Processes a group and commits it.

    Raises `hub_memory.MemoryChanged` when the memory has to be looked at first, and IntegrityError when another process
    stored one of the ids by ebXML between our look and our insert: the second look finds it.
    """
    with transaction.atomic(durable=True):
        arriving = [(item, item.request_id) for item in items]
        batch = _Batch.begin(clock.now(), {item.pair_id for item in items}, arriving)
        _look_up(items, batch)
        outcomes = [_admit(item, batch) for item in items]
        _write(batch)
    batch.wake_workers()
    return outcomes


def _look_up(items: Sequence[Item], batch: _Batch) -> None:
    """What is remembered of the ids. After the locks: a copy cannot slip in between."""
    keys = {item.key for item in items if item.remembered}
    remembering.lock(keys)
    # Whatever is still there counts, also where the agreement's window is over: an id is never used twice.
    batch.known = remembering.recall(keys, day_of(batch.epoch.forgotten_through))
    running = [one.delivery_id for one in batch.known.values() if one.state == RequestState.RUNNING and one.delivery_id]
    if running:
        batch.alive = remembering.in_work(running, batch.now)
    batch.elsewhere = remembering.stored_by_ebxml(
        {item.key for item in items if item.remembered and item.by_ebxml_too} - set(batch.known)
    )
    named = {one.message_pk for one in batch.known.values() if one.message_pk is not None}
    named |= {one.message_pk for one in batch.elsewhere.values()}
    batch.stored_at = remembering.stored_at(named)


def _admit(item: Item, batch: _Batch) -> Outcome:
    memory = hub_memory.memory(batch.epoch, item.terms)
    outcome = Outcome(Verdict.EXECUTE, batch.now, memory)
    if not item.remembered:
        return _execute(item, outcome, batch)
    known = batch.known.get(item.key)
    stored = None
    if known is not None:
        lease_alive = known.delivery_id in batch.alive
        stored = Stored(known.state, lease_alive, known.first_sent, known.content)
    decision = decide(memory, Received(item.first_sent, item.content), stored, batch.now, item.by_key)
    received_at = batch.stored_at.get(known.message_pk) if known is not None and known.message_pk else None
    outcome = replace(
        outcome,
        verdict=decision.verdict,
        code=decision.code,
        status=decision.status,
        known=known,
        received_at=received_at,
    )
    if decision.verdict is Verdict.REFUSE:
        return _refuse(item, outcome, batch)
    if decision.verdict is not Verdict.EXECUTE:
        assert known is not None
        return _repeat(item, outcome, known, batch)
    elsewhere = batch.elsewhere.get(item.key)
    if elsewhere is not None:
        return _known_by_ebxml(item, elsewhere, outcome, batch)
    return _execute(item, outcome, batch)


def _execute(item: Item, outcome: Outcome, batch: _Batch) -> Outcome:
    if item.road is not None and (shut := _way_onward(item, item.road, outcome, batch)) is not None:
        return shut
    now, pair = batch.now, batch.pairs[item.pair_id]
    message = Message(
        id=uuid7(),
        direction=Direction.IN,
        state=MessageState.RECEIVED,
        pair=pair,
        agreement_version_id=item.terms.version_id,
        semantics=item.terms.semantics,
        message_id=item.request_id,
        document_id=item.document_id,
        conversation_id=item.conversation_id or item.request_id,
        ref_to_message_id=item.ref_to_message_id,
        service=item.service,
        action=item.action,
        position=pair.next_position,
        content_type=item.content_type,
        wire_frame=storage.cut_frame(item.body, [(0, len(item.body))]),
        digest=item.digest,
        size=len(item.body),
        created_at=now,
        first_sent_at=item.first_sent or now,
        completed_at=now,
    )
    deliveries = []
    # A first-instance time after the start of memory says that it is none from before; a key says nothing.
    lost = pair.resync_since is not None and item.remembered and item.by_key
    if item.road is None:
        contents = ((item.body[: selecting.MAX_BYTES + 1], item.content_type),)
        deliveries = subscriptions.deliveries_for(
            message, lambda: contents, item.terms, now, answering=_answering(item), memory_lost=lost
        )
    attended = next((delivery for delivery in deliveries if delivery.attended), None)
    if item.synchronous:
        if attended is None:
            return _refuse(item, replace(outcome, verdict=Verdict.REFUSE, code="no-application", status=503), batch)
        # Only this one: the others follow when the request is answered (`remembering.answered`), for until then it may
        # be released as if it had never come.
        attended.due_at = now + HAND_OVER
        batch.alive.add(attended.pk)
        deliveries = [attended]
    batch.deliveries += deliveries
    kept = storage.keep(item.body)
    payload = Payload(
        message=message,
        number=1,
        content_id="body",
        content_type=(item.content_type or "application/octet-stream")[:255],
        size=kept.size,
        sha256=kept.sha256,
        content=kept.content,
        stored_as=kept.stored_as,
    )
    batch.store(message, [payload], pair)
    if not item.synchronous:
        batch.events.append(received_event(message, item.terms, now, item.traceparent))
    if item.road is not None:
        batch.pass_on(message, [payload], item.road, memory_lost=lost)
    known = None
    # One that its caller waits for is remembered in any case: its answer comes by way of the memory.
    if item.remembered or item.synchronous:
        state = RequestState.RUNNING if item.synchronous else RequestState.ACCEPTED
        known = _remember(item, state, message.pk, attended, batch)
    if item.remembered and item.by_ebxml_too:
        batch.identities.append(
            MessageIdentity(
                scope_id=item.principal.party_id,
                direction=Direction.IN,
                message_id=item.request_id,
                stored_id=message.pk,
                created_at=now,
            )
        )
    return replace(outcome, known=known, received_at=now)


def _way_onward(item: Item, road: Road, outcome: Outcome, batch: _Batch) -> Outcome | None:
    """What a new request for somebody else gets while it cannot go on: it is not remembered (spec 1, 4.1.3)."""
    error = batch.blocked(road, item.request_id)
    if error is None:
        return None
    code = "way-onward-shut" if error.severity is Severity.TRANSIENT else "not-routed"
    refused = replace(outcome, verdict=Verdict.REFUSE, code=code, status=PROBLEMS[code].status)
    return _refuse(item, replace(refused, retry_after=error.min_retry_secs, detail=error.description), batch)


def _answering(item: Item) -> uuid.UUID | None:
    """The trigger whose service answers a synchronous request: the first one that wants it and answers."""
    if not item.synchronous:
        return None
    wanting = subscriptions.matching(item.terms, item.service, item.action)
    return next((subscription.trigger_id for subscription in wanting if subscription.answers), None)


def _remember(
    item: Item, state: RequestState, message_pk: uuid.UUID, delivery: Delivery | None, batch: _Batch
) -> Remembered:
    first_sent = item.first_sent or batch.now
    row = RememberedRequest(
        sender_id=item.principal.party_id,
        request_id=item.request_id,
        day=day_of(first_sent),
        first_sent=first_sent,
        content=bytes.fromhex(item.content),
        state=state,
        message_id=message_pk,
        delivery_id=delivery.pk if delivery else None,
        client_id=item.client_id,
    )
    batch.requests.append(row)
    known = Remembered(item.key, row.day, first_sent, item.content, state, message_pk, row.delivery_id)
    batch.known[item.key] = known
    batch.stored_at.setdefault(message_pk, batch.now)
    return known


def _repeat(item: Item, outcome: Outcome, known: Remembered, batch: _Batch) -> Outcome:
    """A further copy: counted, and answered like the first (or told that the first is not done)."""
    pair = batch.pairs[item.pair_id]
    pair.duplicates += 1
    batch.repeated(item, pair, known.message_pk, item.request_id, {"rule": outcome.verdict.value})
    return outcome


def _known_by_ebxml(item: Item, first: Elsewhere, outcome: Outcome, batch: _Batch) -> Outcome:
    """The same message came by ebXML before: it is delivered already, and only acknowledged here (conformance X01)."""
    if not first.has(item.digest):
        refused = replace(outcome, verdict=Verdict.REFUSE, code="content-differs", status=422 if item.by_key else 400)
        return _refuse(item, refused, batch)
    known = _remember(item, RequestState.ACCEPTED, first.message_pk, None, batch)
    received_at = batch.stored_at.get(first.message_pk)
    return _repeat(item, replace(outcome, verdict=Verdict.REPLAY, known=known, received_at=received_at), known, batch)


def _refuse(item: Item, outcome: Outcome, batch: _Batch) -> Outcome:
    """Nothing of it is stored but the refusal; a wrong time is a matter for people, too (conformance X13)."""
    pair, problem = batch.pairs[item.pair_id], PROBLEMS[outcome.code]
    detail = outcome.detail or problem.meaning
    if outcome.code in tuple(Refusal):
        assert item.first_sent is not None
        detail = window_detail(outcome.code, outcome.memory, item.first_sent, batch.now)
        batch.incident(pair, "clock_differs", f"{item.request_id}: {detail}")
    batch.reject(
        item,
        item.terms,
        pair,
        item.request_id,
        reason=problem.reason,
        code=outcome.code,
        detail=detail,
        status=outcome.status or problem.status,
    )
    return outcome


def _write(batch: _Batch) -> None:
    with together():
        batch.insert()
        bulk_insert(batch.requests)
        batch.count_copies()
        batch.finish(("next_position", "done", "duplicates", "rejected", "last_success_at"))
