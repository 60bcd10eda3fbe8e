"""What waits in the outbox of atomic transactions behind a pair that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from messaging import dispatch
from messaging.choices import Direction, MessageState
from messaging.models import Message, Pair
from messaging.models.bulk import update_in_order

# What is on the wire keeps its lease.
_WAITING = (MessageState.QUEUED, MessageState.AWAITING_ACK, MessageState.RETRYING)


def let_go(pair: Pair, now: datetime, states: Sequence[MessageState] = _WAITING) -> int:
    """The pair goes on, or a person wants what waits to go out now: due at once. Returns how many messages that is.

    Call with its lock held. Messages that somebody holds right now are passed over: whoever holds a message may be
    waiting for the pair.
    """
    waiting = Message.objects.filter(pair=pair, direction=Direction.OUT, due_at__isnull=False, state__in=states)
    moved = update_in_order(waiting, skip_locked=True, due_at=now)
    if moved:
        dispatch.wake_on_commit(dispatch.SEND)
    return moved
