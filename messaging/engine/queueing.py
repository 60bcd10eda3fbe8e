"""Puts a new outbound message into its pair's queue: the same for what applications submit and what is routed."""

from __future__ import annotations

from datetime import datetime, timedelta

from messaging.engine.snapshots import apply_outbound, outbound_state, sender_policy
from messaging.models import Message, Pair
from messaging.profile import is_repeatable, is_stream
from messaging.profiles.repeatable import repeating
from messaging.protocol.envelope import Semantics
from messaging.protocol.pair_state import Event, Flow, Gate, Kind
from messaging.protocol.sender import step
from partners.terms import Terms

# Columns of the pair that `enqueue` changes.
PAIR_FIELDS = ("next_position", "queued", "due_at")
# Streams: so long what came free is waited for, so that one claim serves several (`streams.flights`).
SOON = timedelta(milliseconds=20)


def enqueue(message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
    """Gives the message its place. Call with the pair's lock held; the caller saves both (`PAIR_FIELDS`)."""
    message.pair = pair
    message.created_at = now
    message.position = pair.next_position
    pair.next_position += 1
    if is_repeatable(terms):
        repeating.enqueue(pair, terms, now)
    elif is_stream(terms):
        _into_stream(message, pair, terms, now)
    elif message.semantics == Semantics.ONCE_AND_ONLY_ONCE:
        moved = step(outbound_state(pair), Event(Kind.QUEUED), now, sender_policy(terms))
        apply_outbound(pair, moved.state, now)
    else:
        message.due_at = now  # outside the pair's queue: no number, no lock while it is sent (spec 1, 2.2.1)


def _into_stream(message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
    """Its life begins here (TimeToReachQueue). A claim finds out whether it may go out at once."""
    if message.expires_at is None and terms.time_to_live:
        message.expires_at = now + timedelta(seconds=terms.time_to_live)
    pair.queued += 1
    if pair.flow != Flow.IDLE or pair.out_now >= terms.max_in_flight:
        return
    if pair.due_at is None or pair.due_at > now + SOON:
        pair.due_at = now


def is_due(pair: Pair, now: datetime) -> bool:
    """Whether a claim would find the pair."""
    return pair.due_at is not None and pair.due_at <= now and pair.gate == Gate.OPEN
