"""ebXML messages as the rest of the hub sees them: numbered, one in flight at a time (spec 1)."""

from __future__ import annotations

from datetime import datetime

from messaging.engine.snapshots import apply_outbound, outbound_state, sender_policy
from messaging.models import Message, Pair
from messaging.profile import Profile
from messaging.protocol.envelope import Semantics
from messaging.protocol.pair_state import Event, Kind
from messaging.protocol.sender import step
from partners.terms import Terms


class EbxmlProfile(Profile):
    def enqueue(self, message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
        if message.semantics == Semantics.ONCE_AND_ONLY_ONCE:
            moved = step(outbound_state(pair), Event(Kind.QUEUED), now, sender_policy(terms))
            apply_outbound(pair, moved.state, now)
        else:
            message.due_at = now  # outside the pair's queue: no number, no lock while it is sent (spec 1, 2.2.1)


PROFILE = EbxmlProfile()
