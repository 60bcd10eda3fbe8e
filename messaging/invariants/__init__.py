"""Invariants of the design, proven on the rows of one hub's database in one snapshot (docs/invariants.md).

`RULES` is the whole table. What a constraint of the database holds is not repeated, and neither is what no row can
show: that nothing was answered before its commit, or that no transaction talks over the network.
"""

from __future__ import annotations

from messaging.invariants import acknowledgements, deliveries, messages, sequences, transactions
from messaging.invariants.rule import Finding, Rule, check, check_url, look

RULES: tuple[Rule, ...] = (
    *sequences.RULES,
    *messages.RULES,
    *acknowledgements.RULES,
    *deliveries.RULES,
    *transactions.RULES,
)

__all__ = ["RULES", "Finding", "Rule", "check", "check_url", "look"]
