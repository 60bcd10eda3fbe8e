"""Which verbs of people a pair takes now, and what stands in the way of the others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from messaging.choices import Direction
from messaging.models import Pair
from messaging.profile import (
    carries_requests,
    carries_stream,
    carries_transactions,
    request_refusal,
    stream_refusal,
    terms_in_force,
    transaction_refusal,
)
from messaging.protocol.pair_state import Flow, Gate, Kind
from messaging.protocol.sender import REFUSALS, allowed
from partners.terms import Terms

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


def is_numbered(pair: Pair, terms: Terms | None) -> bool:
    """Return whether its messages have the sequence numbers of spec 1."""
    return not any(carries(pair, terms) for carries in (carries_requests, carries_stream, carries_transactions))


def refusal(pair: Pair, kind: Kind, terms: Terms | None) -> str:
    """Return why people cannot do this to an outbound pair now; "" when they can."""
    if carries_transactions(pair, terms):
        return transaction_refusal(pair, kind) or ""
    if carries_stream(pair, terms):
        return stream_refusal(pair, kind) or ""
    if carries_requests(pair, terms):
        return request_refusal(pair, kind) or ""
    flow = Flow(pair.flow)
    if kind not in allowed(flow):
        return REFUSALS.get((flow, kind), "Not possible in this state.")
    if kind is Kind.SKIP and not pair.in_flight_id:
        return "No message is in flight; one that waits in the queue is cancelled on its own page."
    return ""


def allowed_verbs(pair: Pair) -> tuple[str, ...]:
    """Return which verbs the pair's state takes right now (for `allowed_actions` of problems)."""
    terms = terms_in_force(pair)
    marked = ("clear-resync",) if pair.resync_since is not None else ()
    if pair.direction != Direction.OUT:
        return (*(("expect-sequence",) if is_numbered(pair, terms) else ()), *marked)
    found = [slug for slug, kind in _KINDS.items() if not refusal(pair, kind, terms)]
    if pair.gate != Gate.DISABLED:
        found.append("pause" if pair.gate == Gate.OPEN else "release")
    return (*found, *marked)


def verb_states(pair: Pair, terms: Terms | None) -> list[VerbState]:
    """Return every verb of the pair's direction, each with the reason if it cannot be used now.

    What ends a loss of memory is among them only where there was one.
    """
    found = [VerbState("clear-resync")] if pair.resync_since is not None else []
    numbered = is_numbered(pair, terms)
    if pair.direction == Direction.IN:
        return [*found, VerbState("expect-sequence")] if numbered else found
    # While an attempt is on the wire the pair is due when its lease is over.
    until = pair.due_at if numbered and pair.flow == Flow.SENDING else None
    for slug, kind in _KINDS.items():
        # Messages of transactions wait for nobody, and they and requests have no numbers.
        if carries_transactions(pair, terms) and kind is not Kind.RETRY_NOW:
            continue
        if carries_requests(pair, terms) and kind is Kind.RESTART:
            continue
        why = refusal(pair, kind, terms)
        used = pair.flow == Flow.AWAITING_ACK and terms is not None and pair.retries >= terms.retries
        if kind is Kind.RETRY_NOW and numbered and used and not why:
            why = "All retries are used; the pair suspends when this wait is over. Resume gives it a new budget."
        found.append(VerbState(slug, why, until if why else None))
    if pair.gate == Gate.PAUSED:
        return [*found, VerbState("release")]
    return [*found, VerbState("pause", "" if pair.gate == Gate.OPEN else "The pair is disabled.")]
