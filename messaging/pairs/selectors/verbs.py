"""Which verbs of people a pair takes now, and what stands in the way of the others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from messaging import profile
from messaging.choices import Direction
from messaging.models import Pair
from messaging.profile import terms_in_force
from messaging.protocol.pair_state import Flow, Gate, Kind
from partners.terms import Terms
from rmhub.language import gettext_lazy

NOTHING_WAITS = gettext_lazy("Nothing waits for its turn.")
_KINDS = {
    "resume": Kind.RESUME,
    "retry-now": Kind.RETRY_NOW,
    "skip-head": Kind.SKIP,
    "restart-sequence": Kind.RESTART,
}


@dataclass(frozen=True, slots=True)
class VerbState:
    """Whether a verb can be used now. `why_not`: what stands in its way; `until`: when that is over at the latest."""

    slug: str
    why_not: str = ""
    until: datetime | None = None

    @property
    def enabled(self) -> bool:
        return not self.why_not


def allowed_verbs(pair: Pair) -> tuple[str, ...]:
    """Return which verbs the pair's state takes right now (for `allowed_actions` of problems)."""
    speaks = profile.carried(pair, terms_in_force(pair))
    marked = ("clear-resync",) if pair.resync_since is not None else ()
    if pair.direction != Direction.OUT:
        waits = ("hand-on",) if speaks.held(pair) else ()
        return (*(("expect-sequence",) if speaks.numbered else ()), *waits, *marked)
    found = [slug for slug, kind in _KINDS.items() if speaks.refusal(pair, kind) is None]
    if pair.gate != Gate.DISABLED:
        found.append("pause" if pair.gate == Gate.OPEN else "release")
    return (*found, *marked)


def verb_states(pair: Pair, terms: Terms | None) -> list[VerbState]:
    """Return every verb of the pair's direction, each with the reason if it cannot be used now.

    What ends a loss of memory is among them only where there was one.
    """
    found = [VerbState("clear-resync")] if pair.resync_since is not None else []
    speaks = profile.carried(pair, terms)
    if pair.direction == Direction.IN:
        if terms is not None and terms.message_order:
            found.append(VerbState("hand-on", "" if speaks.held(pair) else str(NOTHING_WAITS)))
        return [*found, VerbState("expect-sequence")] if speaks.numbered else found
    # While an attempt is on the wire the pair is due when its lease is over.
    until = pair.due_at if speaks.numbered and pair.flow == Flow.SENDING else None
    for slug, kind in _KINDS.items():
        if kind not in speaks.verbs:
            continue
        why = speaks.refusal(pair, kind) or ""
        used = pair.flow == Flow.AWAITING_ACK and terms is not None and pair.retries >= terms.retries
        if kind is Kind.RETRY_NOW and speaks.numbered and used and not why:
            why = _("All retries are used; the pair suspends when this wait is over. Resume gives it a new budget.")
        found.append(VerbState(slug, why, until if why else None))
    if pair.gate == Gate.PAUSED:
        return [*found, VerbState("release")]
    return [*found, VerbState("pause", "" if pair.gate == Gate.OPEN else _("The pair is disabled."))]
