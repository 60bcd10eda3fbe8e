"""What people decide about documents that no rule can decide about: processed already, process now, later, ask again.

Inbound it is a delivery that is in doubt, or on which the application's service failed (spec 4, step 3, note);
outbound a message whose outcome at the partner is unknown (spec 2). Every decision has an actor and a reason.
"""

from __future__ import annotations

from messaging.deliveries.services.settling import delivery_decisions, delivery_settle
from messaging.messages.services.settling import (
    MAX_REMIND,
    MIN_REMIND,
    Decision,
    MessageDecision,
    message_decisions,
    message_settle,
)

__all__ = [
    "MAX_REMIND",
    "MIN_REMIND",
    "Decision",
    "MessageDecision",
    "delivery_decisions",
    "delivery_settle",
    "message_decisions",
    "message_settle",
]
