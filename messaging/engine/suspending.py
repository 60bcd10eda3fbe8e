"""What happens when a pair gives up: the message fails, an incident opens, the From-Party is told (spec 1, 2.1.4.3)."""

from __future__ import annotations

from datetime import datetime

from messaging.engine.snapshots import apply_outbound, outbound_state, sender_policy
from messaging.journal import events, incidents
from messaging.models import Event, Message, Pair
from messaging.protocol.messages import Happened, move
from messaging.protocol.pair_state import Event as PairEvent
from messaging.protocol.pair_state import Flow, Kind
from messaging.protocol.sender import step
from messaging.routing.services import upstream
from partners.terms import Terms


def give_up(pair: Pair, message: Message | None, now: datetime) -> list[Event]:
    """Call with the pair's lock held, after the machine's GIVE_UP. Changes `message` in memory; returns the events."""
    written: list[Event] = []
    detail = pair.cause_detail
    pair.probing = False
    upstream.onward_stopped(pair, "The way onward is suspended", now)
    if message is not None and pair.in_flight_id == message.pk:
        message.state = move(message.state, Happened.GAVE_UP, reliable=True)
        message.cause, message.cause_detail = pair.cause, detail
        data = {"cause": pair.cause, "detail": detail, "attempts": message.attempts}
        written.append(events.event("message.failed", now, pair=pair, message=message, data=data))
    in_flight = message.pk if message is not None else None
    incident, opened = incidents.incident_open(
        pair=pair, cause=pair.cause, now=now, detail=detail, message_pk=in_flight
    )
    data = {"cause": pair.cause, "detail": detail, "queued": pair.queued, "incident": incident.public_id}
    written.append(events.event("pair.suspended", now, pair=pair, data=data))
    return written + opened


def stop(pair: Pair, message: Message, cause: str, detail: str, terms: Terms, now: datetime) -> list[Event]:
    """Suspends a pair of repeatable requests because of one of them; no change when it is suspended already.

    Call with the pair's lock held. The message keeps its state: what becomes of it is the caller's to say.
    """
    if pair.flow == Flow.SUSPENDED:
        return []
    moved = step(outbound_state(pair), PairEvent(Kind.SUSPEND, cause=cause), now, sender_policy(terms))
    apply_outbound(pair, moved.state, now)
    pair.cause_detail = detail[:2000]
    return give_up(pair, message, now)
