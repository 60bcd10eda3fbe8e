"""How a simulated hub is built: the right way, or with one thing wrong on purpose.

A wrong build shows that the simulation finds what it is there to find
(`test_simulation.test_a_wrong_build_is_found`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from messaging.protocol.acceptance import (
    RULES,
    AcceptancePolicy,
    Decision,
    InboundState,
    Received,
    Rule,
    Verdict,
    decide,
)
from messaging.protocol.sender import Flow, PairState


def _decide_by(rules: tuple[Rule, ...], state: InboundState, received: Received, policy: AcceptancePolicy) -> Decision:
    for rule in rules:
        if rule.applies(state, received, policy):
            return replace(rule.decide(state, received), rule=rule.name)
    raise AssertionError("no rule applies")


def _without(name: str) -> tuple[Rule, ...]:
    rules = tuple(rule for rule in RULES if rule.name != name)
    assert len(rules) == len(RULES) - 1, name
    return rules


def _sequence_only(state: InboundState, received: Received, policy: AcceptancePolicy) -> Decision:
    """Spec 1, 5.2 to the letter: numbers decide, MessageIds only when both are 1."""
    return _decide_by(_without("known-id"), state, received, policy)


def _same_number_is_a_repeat(state: InboundState, received: Received, policy: AcceptancePolicy) -> Decision:
    """Spec 1, 5.2 (2) to the letter: whoever comes with the last number is acknowledged, stored or not."""
    decision = decide(state, received, policy)
    if decision.rule == "number-taken-by-other-id":
        return Decision(Verdict.DUPLICATE, "repeat", state, acknowledge=True)
    return decision


def _gaps_are_fine(state: InboundState, received: Received, policy: AcceptancePolicy) -> Decision:
    """Whatever is not known is taken."""
    decision = decide(state, received, policy)
    if decision.verdict is Verdict.REJECT:
        return Decision(
            Verdict.ACCEPT, "any", InboundState(received.sequence, received.message_id), acknowledge=True
        )
    return decision


@dataclass(frozen=True, slots=True)
class Build:
    """What a hub is made of. The defaults are the hub that we ship; each other value is a known mistake."""

    decide: type(decide) = decide
    acknowledges_before_commit: bool = False
    acknowledges_repeats: bool = True
    stores_in_two_transactions: bool = False
    remembers_ids_in_memory_only: bool = False
    sends_next_before_acknowledgement: bool = False
    encodes_at_every_send: bool = False
    checks_whose_outcome_it_is: bool = True
    checks_what_is_acknowledged: bool = True
    number_after_skip: str = "restarts"  # or "goes on", "is used again"

    def may_start_next(self, pair: PairState) -> bool:
        """Whether a claim numbers and sends the head of the queue."""
        return pair.flow is Flow.IDLE or (
            self.sends_next_before_acknowledgement and pair.flow is Flow.AWAITING_ACK and pair.queued > 0
        )


RIGHT = Build()
WRONG: dict[str, Build] = {
    "no MessageId check": Build(decide=_sequence_only),
    "acknowledges before the commit": Build(acknowledges_before_commit=True),
    "acknowledges new messages only": Build(acknowledges_repeats=False),
    "id and message in two transactions": Build(stores_in_two_transactions=True),
    "ids remembered in memory only": Build(remembers_ids_in_memory_only=True, decide=_sequence_only),
    "two in flight": Build(sends_next_before_acknowledgement=True),
    "encodes again for a retry": Build(encodes_at_every_send=True),
    "any outcome moves the pair": Build(checks_whose_outcome_it_is=False),
    "any acknowledgement completes": Build(checks_what_is_acknowledged=False),
    "the number goes on after a skip": Build(number_after_skip="goes on"),
    "a skipped number is used again": Build(number_after_skip="is used again"),
    "a skipped number is used again, and 5.2 (2) to the letter": Build(
        number_after_skip="is used again", decide=_same_number_is_a_repeat
    ),
    "gaps are accepted": Build(decide=_gaps_are_fine),
}
