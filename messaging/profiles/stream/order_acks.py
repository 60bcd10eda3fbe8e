"""Order acknowledgements: cumulative, delayed, coalesced (spec 3; protocols 3.2). Their timer is a column.

One is made by whichever transaction finds the stream's timer run out: a claim, or the acceptance of further messages,
which holds the stream's row anyhow and would otherwise be in the claim's way. Either way it leaves after the commit of
what it vouches for. It is sent like any signal; a lost one is not missed, for the next message earns another.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from messaging.choices import Direction, SignalKind, SignalState
from messaging.engine.parcels import Claim
from messaging.models import IncomingStream, Pair, Signal
from messaging.models.bulk import bulk_insert, bulk_set
from messaging.profile import is_stream
from messaging.profiles.ebxml.error_messages import host
from messaging.protocol.codecs import stream
from messaging.protocol.streams.acceptance import Incoming
from messaging.protocol.streams.order_ack import OrderAck, Timer, Timing, on_due, on_message
from partners import registry
from partners.terms import Terms
from rmhub.ids import uuid7

TIMER_FIELDS = ("order_ack_due_at", "last_order_ack_at")


def claim(claim: Claim) -> None:
    """Makes the order acknowledgements whose time has come, at most `claim.limit`: signals that are due now.

    Call inside the claiming transaction, before signals are claimed. Streams that are being accepted right now are
    passed over.
    """
    rows = list(IncomingStream.objects.raw(DUE, [claim.now, claim.limit]))
    if not rows:
        return
    pairs = Pair.objects.in_bulk({row.pair_id for row in rows})
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
    found = [terms for terms in known if is_stream(terms)]
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
