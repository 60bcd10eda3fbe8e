"""How it goes with one partner, in one sentence and a few numbers: its pairs, what waits, incidents, what ends soon."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Q, Sum

from messaging.choices import Direction, IncidentState
from messaging.models import Incident, Pair
from messaging.onboarding.selectors import certificates
from messaging.onboarding.selectors.certificates import Held
from messaging.pairs.selectors import pairs

_TROUBLE = ("suspended", "holding", "retrying", "resync", "silent", "paused")
_WORDS = {"holding": "on hold", "resync": "to be compared after a loss of memory"}


@dataclass(frozen=True, slots=True)
class PartnerHealth:
    """`state`: the worst state word of its pairs, "none" without any. `states`: word -> how many pairs."""

    state: str
    sentence: str
    states: dict[str, int]
    waiting: int
    last_success_at: datetime | None
    incidents: int
    ending: tuple[Held, ...]


def of_partner(party_id: uuid.UUID) -> PartnerHealth:
    """Four queries, however many pairs it has."""
    rows = pairs.pairs(partner_id=party_id).order_by().values("state").annotate(count=Count("pk"))
    states = {row["state"]: row["count"] for row in rows}
    sums = Pair.objects.filter(partner=party_id).aggregate(
        last=Max("last_success_at"), queued=Sum("queued", filter=Q(direction=Direction.OUT))
    )
    waiting = sums["queued"] or 0
    incidents = Incident.objects.filter(pair__partner=party_id).exclude(state=IncidentState.RESOLVED).count()
    state = next((name for name in pairs.STATE_NAMES if name in states), "none")
    return PartnerHealth(
        state,
        _sentence(states, waiting, incidents),
        states,
        waiting,
        sums["last"],
        incidents,
        tuple(certificates.certificates(within_days=certificates.SOON, party_id=party_id)),
    )


def _sentence(states: dict[str, int], waiting: int, incidents: int) -> str:
    if not states:
        return "No pair yet: it appears when an agreement is active."
    total = sum(states.values())
    trouble = [f"{states[name]} {_WORDS.get(name, name)}" for name in _TROUBLE if states.get(name)]
    if not trouble:
        if states.get("disabled") == total:
            return "All pairs are disabled: no agreement is in force."
        return f"All {total} pairs flow." if total > 1 else "The pair flows."
    said = f"{', '.join(trouble)} of {total} {'pairs' if total > 1 else 'pair'}; "
    said += f"{waiting:,} document{'s' * (waiting != 1)} wait{'s' * (waiting == 1)}"
    return f"{said}; {incidents} incident{'s' * (incidents != 1)}." if incidents else f"{said}."
