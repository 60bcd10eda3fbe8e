"""Final receipts that we owe: that the application took a document, or that it never will (protocols 3.1, 3.3).

What is refused on arrival is told by the transaction that refuses it. What was accepted is told when the last of its
deliveries has ended, where the agreement asks for final receipts: `owe` is called by whoever ends deliveries, in the
transaction that ends them.

Order acknowledgements: cumulative, delayed, coalesced (spec 3; protocols 3.2). Their timer is a column.

One is made by whichever transaction finds the stream's timer run out: a claim, or the acceptance of further messages,
which holds the stream's row anyhow and would otherwise be in the claim's way. Either way it leaves after the commit of
what it vouches for. It is sent like any signal; a lost one is not missed, for the next message earns another.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from messaging import dispatch
from messaging.choices import DeliveryState, Direction, SignalKind, SignalState
from messaging.claim import Claim
from messaging.models import IncomingStream, Message, Pair, Signal
from messaging.models.bulk import bulk_insert, bulk_set, read
from messaging.profile import of
from messaging.profiles.ebxml.signals import host
from messaging.protocol.codecs import stream
from messaging.protocol.codecs.stream import StreamReceipt
from messaging.protocol.streams import final
from messaging.protocol.streams.acceptance import Incoming
from messaging.protocol.streams.final import FinalClass, OrderAck, Reason, Timer, Timing, on_due, on_message
from partners import registry
from partners.terms import Terms
from rmhub.ids import uuid7

# How a delivery's end is told; what is not here has not ended.
_ENDED: Mapping[str, Reason] = {
    DeliveryState.COMPLETED: Reason.PROCESSED,
    DeliveryState.DUPLICATE: Reason.PROCESSED,
    DeliveryState.SETTLED: Reason.PROCESSED,
    DeliveryState.FAILED: Reason.REJECTED,
    DeliveryState.DISCARDED: Reason.RECEIVE_TIMEOUT,
}
# Of several deliveries of one document the first of these is what its sender is told.
_WORST = (Reason.REJECTED, Reason.RECEIVE_TIMEOUT, Reason.PROCESSED)


def owe(messages: Collection[uuid.UUID], now: datetime) -> None:
    """Deliveries of these messages have ended: stores the final receipts that are owed now, once for each message.

    Call last in the transaction that ends them, when their rows are written. Messages that came by another road, or
    whose agreement does not ask for final receipts, are passed over.
    """
    if not messages:
        return
    # Locked, or of two transactions that end the last two deliveries neither would see the other's.
    rows = read(Message, LOCK, [list(messages)])
    asked = {row.pk: row for row in rows if registry.current().version(row.agreement_version_id).final_receipt}
    if not asked:
        return
    found: dict[uuid.UUID, set[str]] = {}
    with connection.cursor() as cursor:
        cursor.execute(STATES, [list(asked)])
        for message_pk, state in cursor.fetchall():
            found.setdefault(message_pk, set()).add(state)
    told = set(Signal.objects.filter(about__in=asked, **_OURS).values_list("about_id", flat=True))
    signals = []
    for message_pk, row in asked.items():
        states = found.get(message_pk, set())
        if message_pk in told or not states <= _ENDED.keys():
            continue
        reasons = {_ENDED[state] for state in states} or {Reason.PROCESSED}
        reason = next(one for one in _WORST if one in reasons)
        terms = registry.current().version(row.agreement_version_id)
        answer = final.owed(reason, positive=True, negative=True)
        assert answer is not None, "asked for by the agreement"
        signals.append(receipt(answer, terms, now, about=row.message_id, pair_id=row.pair_id, message_pk=message_pk))
    bulk_insert(signals)
    if signals:
        dispatch.wake_on_commit(dispatch.SEND)


_OURS: dict[str, Any] = {"direction": Direction.OUT, "kind": SignalKind.FINAL}

LOCK = """
SELECT id, message_id, pair_id, agreement_version_id FROM messaging_message
WHERE id = ANY(%s) AND direction = 'in' AND tx_sequence_id IS NOT NULL ORDER BY id FOR NO KEY UPDATE
"""
STATES = "SELECT DISTINCT message_id, state FROM messaging_delivery WHERE message_id = ANY(%s)"


def dropped(message_pk: uuid.UUID, now: datetime) -> None:
    """A person has given up what a router was to pass on: a final receipt that waited for the next hop says so."""
    found = Signal.objects.filter(about=message_pk, state=SignalState.HELD, **_OURS)
    for held in found.order_by("pk").select_for_update():
        assert held.agreement_version_id is not None
        answer = final.owed(Reason.DELETED, positive=True, negative=True)
        assert answer is not None
        terms = registry.current().version(held.agreement_version_id)
        about = held.ref_to_message_id
        made = receipt(answer, terms, now, about=about, pair_id=held.pair_id, message_pk=message_pk)
        held.delete()
        made.save(force_insert=True)
        dispatch.wake_on_commit(dispatch.SEND)


def receipt(
    answer: FinalClass,
    terms: Terms,
    now: datetime,
    *,
    about: str,
    pair_id: uuid.UUID | None,
    message_pk: uuid.UUID | None,
    place: StreamReceipt | None = None,
    label: str = "",
) -> Signal:
    """A final receipt, due now, to the address that the agreement has for the partner's receipts; not written yet.

    `about`: the message's id; `message_pk`: its row, when it was stored. `place`: where in a stream it is; `label`: its
    label, when it is in none.
    """
    signal_id = uuid7()
    envelope = stream.final_receipt(
        about,
        answer.code,
        message_id=f"final-{signal_id.hex}@{host(terms)}",
        to=terms.partner_error_uri,
        source=str(terms.own_party_id),
        now=now,
        stream=place,
        label=label,
    )
    wire = stream.encode(envelope)
    return Signal(
        id=signal_id,
        direction=Direction.OUT,
        kind=SignalKind.FINAL,
        state=SignalState.PENDING,
        pair_id=pair_id,
        about_id=message_pk,
        agreement_version_id=terms.version_id,
        message_id=envelope.message_id,
        ref_to_message_id=about[:512],
        content_type=wire.content_type,
        body=wire.join(()),
        error_code="" if answer.positive else answer.name,
        error_description="" if answer.positive else answer.meaning,
        owed=1,
        due_at=now,
        created_at=now,
    )


TIMER_FIELDS = ("order_ack_due_at", "last_order_ack_at")


def claim(claim: Claim) -> None:
    """Makes the order acknowledgements whose time has come, at most `claim.limit`: signals that are due now.

    Call inside the claiming transaction, before signals are claimed. Streams that are being accepted right now are
    passed over.
    """
    rows = read(IncomingStream, DUE, [claim.now, claim.limit])
    if not rows:
        return
    found = read(Pair, "SELECT * FROM messaging_pair WHERE id = ANY(%s)", [[row.pair_id for row in rows]])
    pairs = {pair.pk: pair for pair in found}
    made = []
    for row in rows:
        signal = run_out(row, in_force(pairs[row.pair_id], row), claim.now)
        if signal is not None:
            made.append(signal)
    bulk_insert(made)
    bulk_set(rows, TIMER_FIELDS)


DUE = """
SELECT * FROM messaging_incomingstream WHERE order_ack_due_at <= %s AND order_ack_due_at IS NOT NULL
ORDER BY order_ack_due_at LIMIT %s FOR UPDATE SKIP LOCKED
"""


def start(row: IncomingStream, terms: Terms, now: datetime, *, requested: bool) -> None:
    """A message of the stream came, accepted or not (protocols 3.2). The row is locked; the caller saves it."""
    _set(row, on_message(_timer(row), now, _timing(terms), requested=requested))


def run_out(row: IncomingStream, terms: Terms | None, now: datetime) -> Signal | None:
    """The order acknowledgement that is due now, if one is. The row is locked; the caller saves both.

    `terms`: those in force; without any the session is closed: nothing is sent (M23).
    """
    incoming = Incoming(int(row.tx_sequence_id), row.number)
    due = on_due(_timer(row), now, incoming, open=terms is not None)
    _set(row, due.timer)
    if due.order_ack is None or terms is None:
        return None
    return _signal(row, due.order_ack, terms, now)


def in_force(pair: Pair, row: IncomingStream) -> Terms | None:
    """The terms under which the stream is acknowledged: those in force now of the agreement that it last came under."""
    known: Iterable[Terms] = registry.current().by_uri_pair(pair.sender_uri, pair.receiver_uri)
    found = [terms for terms in known if of(terms).windowed]
    if not found or row.agreement_version_id is None:
        return None
    agreement_id = registry.current().version(row.agreement_version_id).agreement_id
    return next((terms for terms in found if terms.agreement_id == agreement_id), found[0])


def _signal(row: IncomingStream, ack: OrderAck, terms: Terms, now: datetime) -> Signal:
    signal_id = uuid7()
    envelope = stream.order_ack(
        row.source,
        ack,
        message_id=f"ack-{signal_id.hex}@{host(terms)}",
        to=terms.partner_error_uri,
        source=str(terms.own_party_id),
        now=now,
    )
    wire = stream.encode(envelope)
    return Signal(
        id=signal_id,
        direction=Direction.OUT,
        kind=SignalKind.ACKNOWLEDGEMENT,
        state=SignalState.PENDING,
        pair_id=row.pair_id,
        agreement_version_id=terms.version_id,
        message_id=envelope.message_id,
        ref_to_message_id=stream.stream_id(row.source, ack.tx_sequence_id),
        content_type=wire.content_type,
        body=wire.join(()),
        owed=1,
        due_at=now,
        created_at=now,
    )


def _timing(terms: Terms) -> Timing:
    return Timing(
        order_ack_timeout=timedelta(milliseconds=terms.order_ack_timeout),
        max_order_ack_delay=timedelta(milliseconds=terms.max_order_ack_delay),
    )


def _timer(row: IncomingStream) -> Timer:
    return Timer(due_at=row.order_ack_due_at, last_sent_at=row.last_order_ack_at)


def _set(row: IncomingStream, timer: Timer) -> None:
    row.order_ack_due_at, row.last_order_ack_at = timer.due_at, timer.last_sent_at
