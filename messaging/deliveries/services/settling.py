"""What people decide about documents that no rule can decide about: processed already, process now, later, ask again.

Inbound it is a delivery that is in doubt, or on which the application's service failed (spec 4, step 3, note), here;
outbound a message whose outcome at the partner is unknown (spec 2; `messages.services.settling`, offered here, too).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from messaging import dispatch
from messaging.choices import Consult, DeliveryState, ServiceKind, TriggerState
from messaging.deliveries.services import history
from messaging.exceptions import Stale, WrongState
from messaging.journal import audit, events, incidents
from messaging.journal.audit import HEAVY_REASON, MIN_REASON, Actor
from messaging.messages.services.settling import (
    LIGHT,
    MAX_REMIND,
    MIN_REMIND,
    Decision,
    MessageDecision,
    Settlement,
    message_decisions,
    message_settle,
    settlement_of,
)
from messaging.models import Delivery, DocumentCompleted, DocumentStarted, Event, Trigger
from messaging.models.base import existing
from messaging.models.delivery import OPEN_STATES
from messaging.profiles.repeatable import remembering
from messaging.profiles.stream import receipts
from messaging.protocol.errors import IllegalTransition
from messaging.protocol.processing import Doubt, move, redelivered
from rmhub.ids import uuid7
from rmhub.language import inside

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

BY_PERSON = "operator"  # the outcome in the document history


def delivery_settle(
    *,
    delivery_id: uuid.UUID,
    decision: str,
    actor: Actor,
    reason: str,
    expected_version: int | None = None,
    remind_in: int | None = None,
) -> Delivery:
    """Settles a delivery that is in doubt or failed; returns it as it is then. `decision` is a `Decision`.

    duplicate: the history says completed, and later copies are duplicates (X07). resubmit: a new delivery, at the
    original's place in the order, that is processed whatever the history says; once only (X08, W36). later: shown again
    in `remind_in` seconds. ask: decided again, so that the resolver is asked. Raises NotFound, Stale,
    InvalidSubmission, WrongState (W37: a duplicate is not resubmitted).
    """
    settlement = settlement_of(Decision, decision, actor, reason, remind_in)
    audit.require_reason(reason, at_least=MIN_REASON if decision in LIGHT else HEAVY_REASON)
    with transaction.atomic():
        delivery, trigger = _locked(delivery_id, expected_version)
        possible = delivery_decisions(delivery, trigger)
        if decision not in possible:
            code = "already_settled" if delivery.state == DeliveryState.SETTLED else ""
            raise WrongState(_why_not(delivery, trigger, decision), state=delivery.state, allowed=possible, code=code)
        # The evidence as it is while the person decides: the row goes on to another decision when it is asked again.
        before: dict[str, object] = {"state": delivery.state, "doubt": delivery.doubt, "evidence": delivery.evidence}
        more = _DELIVERY[Decision(decision)](delivery, trigger, settlement)
        delivery.version += 1
        delivery.save()
        after: dict[str, object] = {"state": delivery.state, "decision": decision, **more}
        audit.record(
            actor,
            f"delivery.{_VERBS[Decision(decision)]}",
            delivery,
            reason=reason,
            before=before,
            after=after,
        )
        written = []
        if delivery.state == DeliveryState.SETTLED:
            data: dict[str, object] = {"delivery": delivery.public_id, "trigger": trigger.public_id}
            if delivery.document_id:
                data["document_id"] = delivery.document_id
            data |= {"name": trigger.name, "decision": decision, "reason": reason, "actor": actor.name, **more}
            written.append(
                events.event(
                    "delivery.settled", settlement.now, pair=delivery.pair_id, message=delivery.message, data=data
                )
            )
            receipts.owe([delivery.message_id], settlement.now)
        events.write(written + _resolve_if_last(trigger, settlement))
    return delivery


def delivery_decisions(delivery: Delivery, trigger: Trigger) -> tuple[str, ...]:
    """Which of `Decision` the delivery's state takes right now (for screens and `allowed_actions`)."""
    if delivery.state not in (DeliveryState.IN_DOUBT, DeliveryState.FAILED):
        return ()
    found = [Decision.DUPLICATE]
    runnable = trigger.state != TriggerState.DISABLED
    if runnable:
        found.append(Decision.RESUBMIT)
    found.append(Decision.LATER)
    # What does not fit its schema does so however often a resolver is asked.
    askable = delivery.state == DeliveryState.IN_DOUBT and delivery.doubt != Doubt.MISFIT
    if runnable and askable and trigger.resolver != Consult.NONE:
        found.append(Decision.ASK)
    return tuple(one.value for one in found)


def _duplicate(delivery: Delivery, trigger: Trigger, settlement: Settlement) -> dict[str, object]:
    was_in_doubt = delivery.state == DeliveryState.IN_DOUBT
    begun = _begun(delivery)
    # A copy whose original is still in progress leaves the history to the original.
    if _is_open(delivery, trigger) and not _in_work_elsewhere(begun, delivery):
        history.complete(delivery, trigger, BY_PERSON, settlement.now)
    if was_in_doubt and delivery.attended:
        # What the application answered is lost; the sender learns that its request was executed.
        remembering.answered(delivery, None, settlement.now)
    _settled(delivery, settlement, "processed", "duplicate")
    return {}


def _is_open(delivery: Delivery, trigger: Trigger) -> bool:
    """Whether the history waits for this decision: a document that failed is in it, unless it was rolled back."""
    return delivery.state == DeliveryState.IN_DOUBT or trigger.kind == ServiceKind.ATOMIC


def _resubmit(delivery: Delivery, trigger: Trigger, settlement: Settlement) -> dict[str, object]:
    _refuse_second_run(delivery, _begun(delivery))
    if _is_open(delivery, trigger) and history.keeps(trigger, delivery):
        # Stays begun, for the original, until the new delivery takes it over: a copy that comes first is in doubt too.
        history.take_over(trigger, delivery, 0, settlement.now)
    made = Delivery(
        id=uuid7(),
        trigger=trigger,
        message_id=delivery.message_id,
        pair_id=delivery.pair_id,
        sender_id=delivery.sender_id,
        position=delivery.position,
        document_id=delivery.document_id,
        document_id_from=delivery.document_id_from,
        due_at=settlement.now,
        attended=delivery.attended and delivery.state == DeliveryState.IN_DOUBT,
        resubmission_of=delivery,
        join_id=delivery.join_id,
        created_at=settlement.now,
    )
    _settled(delivery, settlement, "not_processed", "new")
    made.save(force_insert=True)
    dispatch.wake_on_commit(dispatch.DELIVER)
    return {"resubmitted_as": made.public_id}


def _later(delivery: Delivery, trigger: Trigger, settlement: Settlement) -> dict[str, object]:
    delivery.remind_at = settlement.remind_at
    assert settlement.remind_at is not None
    return {"remind_at": settlement.remind_at.isoformat()}


def _ask(delivery: Delivery, trigger: Trigger, settlement: Settlement) -> dict[str, object]:
    delivery.state = _moved(delivery, DeliveryState.WAITING)
    delivery.redelivery_count = redelivered(delivery.redelivery_count)
    delivery.retries = 0
    delivery.due_at = settlement.now
    delivery.doubt = delivery.verdict = ""
    delivery.completed_at = delivery.remind_at = delivery.claim = None
    dispatch.wake_on_commit(dispatch.DELIVER)
    return {"redelivery_count": delivery.redelivery_count}


_DELIVERY: Mapping[Decision, Callable[[Delivery, Trigger, Settlement], dict[str, object]]] = {
    Decision.DUPLICATE: _duplicate,
    Decision.RESUBMIT: _resubmit,
    Decision.LATER: _later,
    Decision.ASK: _ask,
}
_VERBS: Mapping[Decision, str] = {
    Decision.DUPLICATE: "mark_processed",
    Decision.RESUBMIT: "resubmit",
    Decision.LATER: "remind",
    Decision.ASK: "ask_resolver",
}


def _settled(delivery: Delivery, settlement: Settlement, finding: str, verdict: str) -> None:
    delivery.state = _moved(delivery, DeliveryState.SETTLED)
    delivery.decision = settlement.decision
    delivery.decided_by = settlement.actor.name[:150]
    delivery.decided_at = settlement.now
    delivery.completed_at = delivery.completed_at or settlement.now
    delivery.remind_at = delivery.due_at = None
    step = {
        "step": "operator",
        "finding": finding,
        "verdict": verdict,
        "detail": settlement.reason,
        "at": settlement.now.isoformat(),
        "by": settlement.actor.name,
    }
    delivery.evidence = [*delivery.evidence, step]


def _moved(delivery: Delivery, target: DeliveryState) -> DeliveryState:
    try:
        move(delivery.state, target)
    except IllegalTransition as error:
        raise WrongState(str(error), state=delivery.state) from error
    return target


def _begun(delivery: Delivery) -> DocumentStarted | None:
    if not delivery.document_id:
        return None
    return (
        DocumentStarted.objects.select_for_update()
        .filter(trigger=delivery.trigger_id, sender=delivery.sender_id, document_id=delivery.document_id)
        .first()
    )


def _in_work_elsewhere(begun: DocumentStarted | None, delivery: Delivery) -> bool:
    """Whether another copy of the document, or its resubmission, is on its way to the trigger."""
    if begun is None or begun.delivery_id == delivery.pk:
        return False
    copies = Q(pk=begun.delivery_id) | Q(resubmission_of=begun.delivery_id)
    return Delivery.objects.filter(copies, state__in=OPEN_STATES).exists()


def _refuse_second_run(delivery: Delivery, begun: DocumentStarted | None) -> None:
    """Of several copies of one document that are in doubt, one is resubmitted."""
    if _in_work_elsewhere(begun, delivery):
        raise WrongState(
            _("Another copy of this document is being processed by the trigger: wait for its end."),
            state=delivery.state,
            code="copy_in_work",
        )
    ended = DocumentCompleted.objects.filter(
        trigger=delivery.trigger_id, sender=delivery.sender_id, document_id=delivery.document_id
    )
    if delivery.document_id and ended.exclude(delivery_id=delivery.pk).exclude(outcome=history.ERROR).exists():
        raise WrongState(
            _("Another copy of this document has been processed meanwhile: mark this one as processed already."),
            state=delivery.state,
            code="copy_completed",
        )


def _locked(delivery_id: uuid.UUID, expected_version: int | None) -> tuple[Delivery, Trigger]:
    """Trigger first, like the engine, which takes deliveries under their trigger's lock."""
    known = existing(Delivery.objects.only("trigger"), delivery_id)
    trigger = Trigger.objects.select_for_update(of=("self",), no_key=True).get(pk=known.trigger_id)
    delivery = existing(Delivery.objects.select_for_update(of=("self",), no_key=True), delivery_id)
    if expected_version is not None and delivery.version != expected_version:
        raise Stale(
            _("This delivery changed since you looked at it; it is {state} now. Look again before you decide.").format(
                state=inside(delivery.get_state_display())
            ),
            version=delivery.version,
        )
    return delivery, trigger


def _why_not(delivery: Delivery, trigger: Trigger, decision: str) -> str:
    if delivery.state == DeliveryState.SETTLED:
        said = {
            "duplicate": _("This delivery was marked as processed already by {who}: it is settled once only."),
            "resubmit": _("This delivery was resubmitted by {who}: it is settled once only."),
        }.get(delivery.decision, _("This delivery was settled by {who}: it is settled once only."))
        return said.format(who=delivery.decided_by)
    if delivery.state == DeliveryState.DUPLICATE:
        return _(
            "This is a duplicate: the trigger has processed the document before. Duplicates cannot be resubmitted."
        )
    if delivery.state not in (DeliveryState.IN_DOUBT, DeliveryState.FAILED):
        word = inside(delivery.get_state_display())
        return _("This delivery is {state}: there is nothing to settle.").format(state=word)
    if trigger.state == TriggerState.DISABLED:
        return _("{trigger} is disabled and processes nothing: enable it first.").format(trigger=trigger.name)
    if decision == Decision.ASK and trigger.resolver == Consult.NONE:
        return _("{trigger} has no resolver to ask: look into the application and decide.").format(trigger=trigger.name)
    return _("The application's service has answered: a resolver has nothing to say about it. Mark it, or resubmit it.")


def _resolve_if_last(trigger: Trigger, settlement: Settlement) -> list[Event]:
    """The incidents of what no longer is: the last document in doubt, or the last failed one, is settled."""
    gone = [
        cause
        for cause, state in (("documents_in_doubt", DeliveryState.IN_DOUBT), ("documents_failed", DeliveryState.FAILED))
        if not Delivery.objects.filter(trigger=trigger, state=state).exists()
    ]
    if not gone:
        return []
    return incidents.incidents_resolve_for_trigger(
        trigger=trigger,
        now=settlement.now,
        by=settlement.actor.name,
        resolution=f"The last document was settled: {settlement.reason}",
        causes=gone,
    )
