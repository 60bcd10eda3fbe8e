"""New streams after the database became an older one (`engine.memory`).

A restored database has numbers before it that the partner has accepted already. Under them it would discard messages,
and acknowledge them. So every stream that goes out begins anew, and what was in flight is numbered again under its old
MessageIds, by which the partner finds repeats.
"""

from __future__ import annotations

from datetime import datetime

from messaging.choices import MessageState
from messaging.journal import events
from messaging.models import OutgoingStream, Pair
from messaging.models.bulk import bulk_set
from messaging.profiles.stream import flights, landing
from messaging.protocol.messages import Happened, move_stream
from messaging.protocol.streams.numbers import first_id
from messaging.protocol.streams.outgoing import Event, Kind


def begin_anew(now: datetime) -> int:
    """Gives every outgoing stream a new id; returns how many there are. Call inside a transaction."""
    streams = {found.pair_id: found for found in OutgoingStream.objects.all()}
    pairs = Pair.locked(streams)
    found = flights.load(pairs.values(), now)
    for flight in found.values():
        for row in flight.rows.values():
            if row.state == MessageState.SENDING:
                row.state = move_stream(row.state, Happened.WILL_RETRY)
        flight.advance(Event(kind=Kind.FORGOTTEN), now)
    events.write(landing.finish(found.values(), now))
    empty = [stream for pair_id, stream in streams.items() if pair_id not in found]
    for stream in empty:
        # Numeric columns come back as Decimal.
        stream.tx_sequence_id = first_id(now, int(stream.tx_sequence_id))
        stream.next_number, stream.acked_number, stream.resend_index = 1, 0, 0
        stream.started_at, stream.last_ack_at = now, None
    bulk_set(empty, landing.STREAM_FIELDS)
    return len(streams)
