"""The application's response in the HTTP response to the message that it answers (SyncReply; signalsAndResponse and
responseOnly of a CPA 2.0).

Whoever asks waits at most `PATIENCE` for the application to submit its response, which then goes out at once: as the
first attempt of that message, so that all later ones are ordinary. One that comes later goes out by itself.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import transaction

from messaging import storage
from messaging.choices import Direction, MessageState
from messaging.claim import Claim, Job
from messaging.engine import preparing
from messaging.engine.continuing import PREPARED_FIELDS, send_once
from messaging.engine.recording import record
from messaging.engine.snapshots import REPEATABLE_FIELDS
from messaging.entrance.refusals import Answer
from messaging.journal import events
from messaging.models import Message, Pair, Payload
from messaging.models.bulk import bulk_insert, bulk_set
from messaging.profiles.acknowledging import Item
from messaging.profiles.ebms2 import sending
from messaging.profiles.ebms2.writing import HEADERS, is_response
from messaging.profiles.repeatable.repeating import FIRST_FIELDS, set_timer
from messaging.protocol.envelope import Semantics
from messaging.protocol.errors import EncodeError
from messaging.protocol.pair_state import Flow, Gate
from messaging.read_ahead import Unread
from messaging.transports import Receipt
from partners import registry
from partners.choices import RESPONSES
from partners.terms import Terms
from rmhub import clock

PATIENCE = 20.0  # seconds; less than any partner waits for a response
# So long a response is left to whoever waits for it, which looks much more often; then a worker sends it.
GRACE = timedelta(seconds=2)
_LOOK = 0.1  # seconds
# Each holds a thread of the web server; whoever finds no seat gets its response later.
_seats = threading.BoundedSemaphore(4)
_HANDED_OVER = Receipt(ok=True, status=200, detail="In the response to the message that it answers.", in_response=True)
_ENDED = (MessageState.SKIPPED, MessageState.CANCELLED, MessageState.FAILED, MessageState.IN_DOUBT)


def is_asked_for(item: Item) -> bool:
    """Whether the sender of a message waits for the application's response to it."""
    ebms = item.envelope.ebms
    return ebms is not None and ebms.sync_reply and item.agreed.sync_reply in RESPONSES and item.road is None


def response_to(item: Item, pause: Callable[[float], None] = time.sleep) -> Answer | None:
    """The HTTP response with the application's; None where that is not there in time. Call outside of transactions."""
    mine = Message.objects.filter(
        pair=item.pair_id, direction=Direction.IN, message_id=item.envelope.message_id
    ).exists()
    if not mine or not _seats.acquire(blocking=False):
        return None
    try:
        waited = 0.0
        while (found := _look(item)) is None and waited < PATIENCE:
            pause(_LOOK)
            waited += _LOOK
        return found
    finally:
        _seats.release()


def _look(item: Item) -> Answer | None:
    ours = Message.objects.filter(
        direction=Direction.OUT,
        ref_to_message_id=item.envelope.message_id,
        pair__partner=item.agreed.partner_id,
        agreement_version__agreement=item.agreed.agreement_id,
    )
    # What came to its end without delivery does not go out again by itself, and may have a successor.
    message = ours.exclude(state__in=_ENDED).defer("wire_frame").order_by("id").first()
    if message is None or message.state == MessageState.QUEUED:
        return None if message is None else _sent(message.pk, message.pair_id)
    return _again(message.pk)


def _again(pk: uuid.UUID) -> Answer | None:
    """What has gone out already, for a copy of the message that it answers: the same octets."""
    message = Message.objects.get(pk=pk)
    if message.wire_frame is None:
        return None
    try:
        body = preparing.stored_body(message, list(Payload.objects.filter(message=pk).order_by("number")))
    except storage.PayloadMissing:
        return None
    return Answer(200, content_type=message.content_type, body=body, headers=HEADERS)


def _sent(pk: uuid.UUID, pair_id: uuid.UUID) -> Answer | None:
    """Claims the first attempt of the response, and hands that to who waits; None when it cannot go out now."""
    job = _claimed(pk, pair_id)
    if job is None:
        return None
    # Nobody learns whether it arrived: what has to be acknowledged and is not goes out again.
    record([(job, _HANDED_OVER)])
    body = job.parcel.body if isinstance(job.parcel.body, bytes) else b"".join(job.parcel.body)
    return Answer(200, content_type=job.parcel.content_type, body=body, headers=HEADERS)


def _claimed(pk: uuid.UUID, pair_id: uuid.UUID) -> Job | None:
    claim = Claim(clock.now(), 1)
    with transaction.atomic(durable=True):
        pair = Pair.locked([pair_id])[pair_id]
        message = Message.objects.select_for_update().filter(pk=pk, state=MessageState.QUEUED).first()
        if message is None or pair.gate != Gate.OPEN or pair.flow == Flow.SUSPENDED:
            return None
        _take(pair, message, claim)
        bulk_insert(claim.transmissions)
        events.write(claim.written)
    for call in claim.after:
        call()
    return next(iter(claim.jobs), None)


def _take(pair: Pair, message: Message, claim: Claim) -> None:
    payloads = list(Payload.objects.filter(message=message).order_by("number"))
    terms = registry.current().version(message.agreement_version_id)
    if message.semantics == Semantics.ONCE_AND_ONLY_ONCE:
        sending.first_send(pair, message, payloads, claim)
        set_timer(pair, terms, claim.now)
        bulk_set([message], FIRST_FIELDS)
        bulk_set([pair], REPEATABLE_FIELDS)
        return
    try:
        send_once(message, payloads, terms, claim)
    except (Unread, EncodeError, storage.PayloadMissing):
        return  # a worker reads it, or says what is wrong
    bulk_set([message], PREPARED_FIELDS)


def left_to_whoever_waits(message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
    """Puts off a worker's first look at a response. Call with the pair locked; the caller saves both."""
    if not is_response(message, terms):
        return
    if message.semantics != Semantics.ONCE_AND_ONLY_ONCE:
        message.due_at = now + GRACE
    elif pair.due_at == now:  # by this message alone: what waited before it does not wait longer
        pair.due_at = now + GRACE
