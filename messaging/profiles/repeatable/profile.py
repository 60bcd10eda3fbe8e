"""Repeatable requests as the rest of the hub sees them: several in flight, each with its answer (spec 2)."""

from __future__ import annotations

from datetime import datetime

from messaging.models import Message, Pair
from messaging.profile import Profile
from messaging.profiles.repeatable import repeating
from partners.terms import Terms


class RepeatableProfile(Profile):
    def enqueue(self, message: Message, pair: Pair, terms: Terms, now: datetime) -> None:
        repeating.enqueue(pair, terms, now)

    def let_go(self, pair: Pair, now: datetime) -> None:
        if pair.out_now:
            repeating.let_go(pair, now)


PROFILE = RepeatableProfile()
