"""What a person decides about a document, and outbound messages whose outcome at the partner is unknown (spec 2):
delivered, send anew, later.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.db import transaction
from django.utils.translation import gettext as _

from messaging.choices import Direction, MessageState
from messaging.exceptions import InvalidSubmission, NotFound, WrongState
from messaging.journal import audit, events
from messaging.journal.audit import HEAVY_REASON, MIN_REASON, Actor
from messaging.messages.services.submitting import message_submit_again
from messaging.models import Event, Message, Pair, StatusInquiry
from messaging.models.base import existing
from messaging.profiles.repeatable import repeating
from messaging.protocol.messages import Happened, move_repeatable
from messaging.routing.services import upstream
from rmhub import clock
from rmhub.ids import public_id
from rmhub.language import inside

_EVIDENCE = 5  # answers of the partner that a decision's audit entry keeps
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
        errors["decision"] = [_("One of {known}.").format(known=", ".join(known))]
    if decision == "later" and (remind_in is None or not MIN_REMIND <= remind_in <= MAX_REMIND):
        said = _("Seconds until it is shown again, from {least} to {most} (90 days).")
        errors["remind_in"] = [said.format(least=MIN_REMIND, most=MAX_REMIND)]
    elif decision != "later" and remind_in is not None:
        errors["remind_in"] = [_("Only the decision “later” takes a time: leave it out.")]
    if errors:
        raise InvalidSubmission(errors)
    now = clock.now()
    remind_at = now + timedelta(seconds=remind_in) if remind_in is not None else None
    return Settlement(decision, actor, reason.strip(), now, remind_at)


def message_settle(
    *, message_id: uuid.UUID, decision: str, actor: Actor, reason: str, remind_in: int | None = None
) -> Message:
    """Settles an outbound message that is in doubt; returns it as it is then. `decision` is a `MessageDecision`.

    delivered: the partner has it. resubmit: the same document as a new message with a new id; the old one counts as
    skipped. later: shown again in `remind_in` seconds. Raises NotFound, InvalidSubmission, WrongState, and what
    `message_submit` raises.
    """
    settlement = settlement_of(MessageDecision, decision, actor, reason, remind_in)
    audit.require_reason(reason, at_least=MIN_REASON if decision in LIGHT else HEAVY_REASON)
    with transaction.atomic():
        known = Message.objects.filter(pk=message_id, direction=Direction.OUT).only("pair_id").first()
        if known is None:
            raise NotFound(_("There is no outbound message {message}.").format(message=public_id("msg", message_id)))
        pair = Pair.objects.select_for_update().get(pk=known.pair_id)
        # It may be finished long ago, and purged in this very moment.
        message = existing(Message.objects.select_for_update(), message_id)
        possible = message_decisions(message)
        if decision not in possible:
            code = "already_settled" if message.state in _SETTLED_MESSAGES else ""
            raise WrongState(
                _("This message is {state}, not in doubt: there is nothing to settle.").format(
                    state=inside(message.get_state_display())
                ),
                state=message.state,
                allowed=possible,
                code=code,
            )
        before: dict[str, object] = {"state": message.state, "cause": message.cause, "evidence": _evidence(message)}
        more = _MESSAGE[MessageDecision(decision)](message, pair, settlement)
        after: dict[str, object] = {"state": message.state, "decision": decision, **more}
        audit.record(actor, f"message.settle_{decision}", message, reason=reason, before=before, after=after)
        written: list[Event] = []
        if message.state != MessageState.IN_DOUBT:
            data = {"decision": decision, "reason": reason, "actor": actor.name, **more}
            written.append(events.event("message.settled", settlement.now, pair=pair, message=message, data=data))
            said = f"The last message was settled: {settlement.reason}"
            written += repeating.settle(pair, now=settlement.now, by=actor.name, resolution=said)
        events.write(written)
    return message


def _evidence(message: Message) -> list[dict[str, object]]:
    """What the person could know of the partner's side when they decided, the newest first."""
    asked = StatusInquiry.objects.filter(message=message).order_by("-id")[:_EVIDENCE]
    return [
        {"inquiry": one.public_id, "answer": one.answer, "at": one.asked_at.isoformat(), "by": one.actor}
        for one in asked.defer("response")
    ]


def message_decisions(message: Message) -> tuple[str, ...]:
    """Which of `MessageDecision` the message's state takes right now."""
    in_doubt = message.direction == Direction.OUT and message.state == MessageState.IN_DOUBT
    return tuple(one.value for one in MessageDecision) if in_doubt else ()


def _delivered(message: Message, pair: Pair, settlement: Settlement) -> dict[str, object]:
    _end(message, Happened.ACKNOWLEDGED, settlement)
    upstream.onward_ended([(message.forwarded_from_id, message.state)], settlement.now)
    pair.done += 1
    pair.save(update_fields=["done"])
    return {}


def _send_anew(message: Message, pair: Pair, settlement: Settlement) -> dict[str, object]:
    _end(message, Happened.SKIPPED, settlement)
    submission = message_submit_again(message, state=MessageState.IN_DOUBT, submitted_by=settlement.actor.name)
    if message.forwarded_from_id is not None:
        # Its end is what the previous hop may be waiting for.
        Message.objects.filter(pk=submission.message.pk).update(forwarded_from=message.forwarded_from_id)
    return {"resubmitted_as": submission.message.public_id}


def _remind(message: Message, pair: Pair, settlement: Settlement) -> dict[str, object]:
    message.remind_at = settlement.remind_at
    message.save(update_fields=["remind_at"])
    assert settlement.remind_at is not None
    return {"remind_at": settlement.remind_at.isoformat()}


_MESSAGE: Mapping[MessageDecision, Callable[[Message, Pair, Settlement], dict[str, object]]] = {
    MessageDecision.DELIVERED: _delivered,
    MessageDecision.RESUBMIT: _send_anew,
    MessageDecision.LATER: _remind,
}
_SETTLED_MESSAGES = (MessageState.DELIVERED, MessageState.SKIPPED)


def _end(message: Message, happened: Happened, settlement: Settlement) -> None:
    message.state = move_repeatable(message.state, happened)
    message.completed_at = settlement.now
    message.due_at = message.remind_at = None
    message.save(update_fields=["state", "completed_at", "due_at", "remind_at"])
