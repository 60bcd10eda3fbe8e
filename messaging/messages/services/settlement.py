"""One decision of a person about a document: what may be decided, and what is checked before any row is read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from messaging.exceptions import InvalidSubmission
from messaging.journal.audit import Actor
from rmhub import clock

MIN_REMIND, MAX_REMIND = 60, 90 * 86_400  # seconds
LIGHT = ("later", "ask")  # what can be taken back, or decides nothing


class Decision(StrEnum):
    """What a person decides about a delivery."""

    DUPLICATE = "duplicate"  # the application has processed it
    RESUBMIT = "resubmit"  # it has not: process it now
    LATER = "later"
    ASK = "ask"  # the resolver once more


class MessageDecision(StrEnum):
    """What a person decides about an outbound message."""

    DELIVERED = "delivered"  # the partner has it
    RESUBMIT = "resubmit"  # the partner has not: send it as a new message
    LATER = "later"


@dataclass(frozen=True, slots=True)
class Settlement:
    """One decision with whatever goes into the records."""

    decision: str
    actor: Actor
    reason: str
    now: datetime
    remind_at: datetime | None


def settlement_of(
    known: type[Decision] | type[MessageDecision], decision: str, actor: Actor, reason: str, remind_in: int | None
) -> Settlement:
    """Checks what needs no row. Raises InvalidSubmission."""
    errors: dict[str, list[str]] = {}
    if decision not in set(known):
        errors["decision"] = [f"One of {', '.join(known)}."]
    if decision == "later" and (remind_in is None or not MIN_REMIND <= remind_in <= MAX_REMIND):
        errors["remind_in"] = [f"Seconds until it is shown again, from {MIN_REMIND} to {MAX_REMIND} (90 days)."]
    elif decision != "later" and remind_in is not None:
        errors["remind_in"] = ["Only the decision “later” takes a time: leave it out."]
    if errors:
        raise InvalidSubmission(errors)
    now = clock.now()
    remind_at = now + timedelta(seconds=remind_in) if remind_in is not None else None
    return Settlement(decision, actor, reason.strip(), now, remind_at)
