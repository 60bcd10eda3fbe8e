"""Puts a new outbound message into its pair's queue: the same for what applications submit and what is routed."""

from __future__ import annotations

from datetime import datetime

from messaging.models import Message, Pair
from messaging.profiles import is_repeatable
from messaging.protocol.envelope import Semantics
from messaging.protocol.sender import Event, Gate, Kind, step
from messaging.services import repeating
from messaging.services.snapshots import apply_outbound, outbound_state, sender_policy
from partners.terms import Terms

# Columns of the pair that `enqueue` changes.
PAIR_FIELDS = ("next_position", "queued", "due_at")


def enqueue(message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
    """Gives the message its place. Call with the pair's lock held; the caller saves both (`PAIR_FIELDS`)."""
    message.pair = pair
    message.created_at = now
    message.position = pair.next_position
    pair.next_position += 1
    if is_repeatable(terms):
        repeating.enqueue(pair, terms, now)
    elif message.semantics == Semantics.ONCE_AND_ONLY_ONCE:
        moved = step(outbound_state(pair), Event(Kind.QUEUED), now, sender_policy(terms))
        apply_outbound(pair, moved.state, now)
    else:
        message.due_at = now  # outside the pair's queue: no number, no lock while it is sent (spec 1, 2.2.1)


def is_due(pair: Pair, now: datetime) -> bool:
    """Whether a claim would find the pair."""
    return pair.due_at is not None and pair.due_at <= now and pair.gate == Gate.OPEN
