"""Outbound messages whose outcome at the partner is unknown (spec 2): delivered, send anew, later."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from django.db import transaction

from messaging import storage
from messaging.choices import Direction, MessageState
from messaging.exceptions import NotFound, WrongState
from messaging.journal import audit, events
from messaging.journal.audit import HEAVY_REASON, MIN_REASON, Actor
from messaging.messages.services.settlement import LIGHT, MessageDecision, Settlement, settlement_of
from messaging.messages.services.submitting import NewPayload, message_submit
from messaging.models import Event, Message, Pair, Payload, StatusInquiry
from messaging.profiles.repeatable import repeating
from messaging.protocol.messages import Happened, move_repeatable
from messaging.protocol.pair_state import Flow
from messaging.routing.services import upstream
from rmhub.ids import public_id

_EVIDENCE = 5  # answers of the partner that a decision's audit entry keeps


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
            raise NotFound(f"There is no outbound message {public_id('msg', message_id)}.")
        pair = Pair.objects.select_for_update().get(pk=known.pair_id)
        message = Message.objects.select_for_update().filter(pk=message_id).first()
        if message is None:  # finished long ago, and purged in this very moment
            raise NotFound(f"There is no outbound message {public_id('msg', message_id)}.")
        possible = message_decisions(message)
        if decision not in possible:
            code = "already_settled" if message.state in _SETTLED_MESSAGES else ""
            raise WrongState(
                f"This message is {message.get_state_display().lower()}, not in doubt: there is nothing to settle.",
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
            written += _resolve_for_pair(pair, settlement)
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
    submission = message_submit(
        agreement=message.agreement_version.agreement.tpa_id,
        service=message.service,
        action=message.action,
        payloads=[
            NewPayload(_content(row), row.content_type, row.filename, row.label)
            for row in Payload.objects.filter(message=message).order_by("number")
        ],
        conversation_id=message.conversation_id,
        ref_to_message_id=message.ref_to_message_id,
        semantics=message.semantics,
        submitted_by=settlement.actor.name,
        resubmission_of=message,
    )
    if message.forwarded_from_id is not None:
        # Its end is what the hop before may be waiting for.
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


def _content(row: Payload) -> bytes:
    try:
        return storage.load(row.content, row.stored_as)
    except storage.PayloadMissing as error:
        raise WrongState(
            "The document's file is not in the store folder: restore it from the backup, or have the application "
            "submit the document anew.",
            state=MessageState.IN_DOUBT,
            code="payload_missing",
        ) from error


def _resolve_for_pair(pair: Pair, settlement: Settlement) -> list[Event]:
    """The incident ends with the last message in doubt; that of a suspended pair when somebody resumes the pair."""
    if pair.flow == Flow.SUSPENDED:
        return []
    resolution = f"The last message was settled: {settlement.reason}"
    return repeating.settle(pair, now=settlement.now, by=settlement.actor.name, resolution=resolution)
