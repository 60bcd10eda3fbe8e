"""Messages of atomic transactions as the rest of the hub sees them: none waits for another (spec 5)."""

from __future__ import annotations

from datetime import datetime

from messaging.models import Pair
from messaging.profile import Profile
from messaging.profiles.wsat import outgoing


class AtomicProfile(Profile):
    def let_go(self, pair: Pair, now: datetime) -> None:
        outgoing.let_go(pair, now)


PROFILE = AtomicProfile()
