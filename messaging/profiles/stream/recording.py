"""What became of transmissions of a stream: the third step, after claim and talk.

That the partner took the bytes says nothing about their place in the stream; its order acknowledgement does.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

from messaging import dispatch
from messaging.choices import MessageState
from messaging.engine.parcels import Job
from messaging.journal import incidents
from messaging.models import Event, Pair
from messaging.profiles.stream import flights, landing
from messaging.profiles.stream.flights import Flight, Row
from messaging.protocol.pair_state import Gate
from messaging.protocol.streams.outgoing import Event as StreamEvent
from messaging.protocol.streams.outgoing import Kind
from messaging.transports import Receipt


def record(
    outcomes: Sequence[tuple[Job, Receipt]], pairs: Mapping[uuid.UUID, Pair], now: datetime, written: list[Event]
) -> dict[uuid.UUID, str]:
    """Moves messages and their locked pairs. Returns the transmissions that moved something, each with its cause.

    An outcome that comes after its lease ran out, or after an order acknowledgement overtook it, moves nothing.
    """
    if not outcomes:
        return {}
    wanted = {job.pair_id for job, _ in outcomes}
    found = flights.load((pair for pair in pairs.values() if pair.pk in wanted), now)
    for loaded in found.values():
        loaded.patient = True
    rows = {row.pk: (flight, row) for flight in found.values() for row in flight.rows.values()}
    moved: dict[uuid.UUID, str] = {}
    troubles: list[tuple[Pair, Job, Receipt]] = []
    for job, receipt in outcomes:
        flight, row = rows.get(job.message_id, (None, None)) if job.message_id else (None, None)
        if flight is None or row is None or row.state != MessageState.SENDING or row.attempts != job.number:
            continue
        moved[job.transmission_id] = _record(flight, row, receipt, now)
        if receipt.permanent:
            troubles.append((flight.pair, job, receipt))
    written += landing.finish(found.values(), now)
    for pair, job, receipt in troubles:
        # It is tried again all the same, but a person should see it at once.
        _, opened = incidents.incident_open(
            pair=pair, cause=receipt.cause, now=now, detail=receipt.detail, message_pk=job.message_id
        )
        written += opened
    if any(pair.due_at is not None and pair.due_at <= now and pair.gate == Gate.OPEN for pair in pairs.values()):
        # Not only what moved here: a claim that came while we held the lock has passed this pair over (SKIP LOCKED).
        dispatch.wake_on_commit(dispatch.SEND)
    return moved


def _record(flight: Flight, row: Row, receipt: Receipt, now: datetime) -> str:
    """One outcome that counts. Returns the transmission's cause code."""
    if receipt.ok:
        row.cause = row.detail = ""
        flight.advance(StreamEvent(kind=Kind.SENT, number=row.number), now)
        return ""
    # 503 with a time: what comes before it is not there yet. Without one it may be a proxy with nothing behind it.
    patience = receipt.status == 429 or (receipt.status == 503 and receipt.retry_after is not None)
    kind, cause = (Kind.NOT_TAKEN, "not_taken_now") if patience else (Kind.TRANSPORT_FAILED, receipt.cause)
    row.cause, row.detail, flight.detail = cause, receipt.detail, receipt.detail
    flight.advance(StreamEvent(kind=kind, number=row.number, cause=cause, retry_after=receipt.retry_after), now)
    if flight.pair.probing and kind is Kind.TRANSPORT_FAILED:
        flight.advance(StreamEvent(kind=Kind.SUSPEND, cause=cause), now)
    return cause
