"""Says when the retries of a pair run out: at half of them, at 70 and at 90 percent, before anybody has to be woken."""

from __future__ import annotations

from datetime import datetime

from messaging.journal import events
from messaging.models import Event, Pair

STEPS = (50, 70, 90)  # percent


def told(pair: Pair, before: int, most: int, now: datetime) -> list[Event]:
    """The event for the highest step that `pair.retries` has reached since it was `before`, of `most`; none otherwise.

    Costs nothing but where a retry was used just now.
    """
    if pair.retries <= before or not most:
        return []
    reached = [step for step in STEPS if before * 100 < step * most <= pair.retries * 100]
    if not reached:
        return []
    data = {"percent": reached[-1], "used": pair.retries, "of": most, "cause": pair.cause}
    return [events.event("pair.retry_budget", now, pair=pair, data=data)]
