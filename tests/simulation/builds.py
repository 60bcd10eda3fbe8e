"""How a simulated hub is built: the right way, or with one thing wrong on purpose.

A wrong build shows that the simulation finds what it is there to find (`test_simulation.test_a_wrong_build_is_found`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from messaging.protocol.acceptance import (
    RULES,
    AcceptancePolicy,
    Decision,
    InboundState,
    Received,
    Verdict,
    decide,
)
from messaging.protocol.pair_state import Flow, PairState
from tests.simulation.workers import Handing


def _sequence_only(state: InboundState, received: Received, policy: AcceptancePolicy) -> Decision:
    """Spec 1, 5.2 to the letter: numbers decide, and MessageIds only where both numbers are 1."""
    for rule in RULES:
        if rule.name != "known-id" and rule.applies(state, received, policy):
            return replace(rule.decide(state, received), rule=rule.name)
    raise AssertionError("no rule applies")


def _same_number_is_a_repeat(state: InboundState, received: Received, policy: AcceptancePolicy) -> Decision:
    """Spec 1, 5.2 (2) to the letter: whoever comes with the last number is acknowledged, stored or not."""
    decision = decide(state, received, policy)
    if decision.rule == "number-taken-by-other-id":
        return Decision(Verdict.DUPLICATE, "repeat", state, acknowledge=True)
    return decision


@dataclass(frozen=True, slots=True)
class Build:
    """What a hub is made of. The defaults are the hub that we ship; every other value is a known mistake."""

    decide: Callable[[InboundState, Received, AcceptancePolicy], Decision] = decide
    acknowledges_before_commit: bool = False
    acknowledges_repeats: bool = True
    stores_in_two_transactions: bool = False
    remembers_ids_on_disk: bool = True
    sends_next_before_acknowledgement: bool = False
    encodes_once: bool = True
    leases_what_it_claims: bool = True
    checks_whose_outcome_it_is: bool = True
    checks_what_is_acknowledged: bool = True
    handing: Handing = Handing()  # noqa: RUF009  (frozen)
    number_after_skip: str = "starts at 1"  # or "goes on", "is used again"

    def may_start_next(self, pair: PairState) -> bool:
        """Whether a claim numbers and sends the head of the queue."""
        early = self.sends_next_before_acknowledgement and pair.flow is Flow.AWAITING_ACK and pair.queued > 0
        return early or pair.flow is Flow.IDLE


@dataclass(frozen=True, slots=True)
class Mistake:
    """A wrong build, and words of the failure that shows it. `unwatched`: invariants that the judge passes over."""

    build: Build
    shows_as: str
    unwatched: frozenset[str] = frozenset()


RIGHT = Build()
MISTAKES: dict[str, Mistake] = {
    "no MessageId check": Mistake(Build(decide=_sequence_only), "stored twice"),
    "ids in memory only": Mistake(Build(remembers_ids_on_disk=False), "stored twice"),
    "acknowledges before the commit": Mistake(Build(acknowledges_before_commit=True), "before it is stored"),
    "acknowledges new messages only": Mistake(Build(acknowledges_repeats=False), "are accounted for"),
    "message and acknowledgement in two transactions": Mistake(
        Build(stores_in_two_transactions=True), "are accounted for"
    ),
    "two in flight": Mistake(Build(sends_next_before_acknowledgement=True), "invariant 2"),
    "encodes again for a retry": Mistake(Build(encodes_once=False), "other octets"),
    "claims without a lease": Mistake(Build(leases_what_it_claims=False), "due"),
    "any outcome moves the pair": Mistake(Build(checks_whose_outcome_it_is=False), "in flight at once"),
    "any acknowledgement completes": Mistake(Build(checks_what_is_acknowledged=False), "not stored"),
    "the number goes on after a skip": Mistake(Build(number_after_skip="goes on"), "invariant 9"),
    "a skipped number is used again": Mistake(Build(number_after_skip="is used again"), "invariant 9"),
    # Why invariants 9 and 4 (E13) are what they are: without both, a message is acknowledged away.
    "a skipped number is used again, and its repeat acknowledged": Mistake(
        Build(number_after_skip="is used again", decide=_same_number_is_a_repeat),
        "before it is stored",
        unwatched=frozenset({"invariant 9"}),
    ),
}
