"""Transactional streams as the rest of the hub sees them: a window of numbered messages in flight (spec 3)."""

from __future__ import annotations

from datetime import datetime, timedelta

from messaging.models import Message, Pair
from messaging.profile import Profile
from messaging.profiles.stream.landing import SOON
from messaging.protocol.pair_state import Flow
from partners.terms import Terms


class StreamProfile(Profile):
    def enqueue(self, message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
        """Its life begins here (TimeToReachQueue). A claim finds out whether it may go out at once."""
        if message.expires_at is None and terms.time_to_live:
            message.expires_at = now + timedelta(seconds=terms.time_to_live)
        pair.queued += 1
        if pair.flow != Flow.IDLE or pair.out_now >= terms.max_in_flight:
            return
        if pair.due_at is None or pair.due_at > now + SOON:
            pair.due_at = now


PROFILE = StreamProfile()
