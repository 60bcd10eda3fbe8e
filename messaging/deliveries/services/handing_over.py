"""Decides about deliveries whose turn it is, and hands over what is NEW (spec 4)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from datetime import timedelta

from django.db import DatabaseError, connection, transaction
from django.db.utils import InterfaceError

from messaging.choices import DeliveryState, JoinType, ServiceKind, TriggerState
from messaging.deliveries.services import history, joining
from messaging.deliveries.services.changes import Changes, is_new
from messaging.deliveries.services.job import Job, JobKind, guaranteed, is_checked, lease_of, properties, service_kind
from messaging.models import Delivery, Message, Trigger
from messaging.protocol.processing import Decision, Entry, decide

log = logging.getLogger(__name__)
_JOINS = (JoinType.ALL.value, JoinType.ONLY_ONE.value)


def take(
    trigger: Trigger,
    deliveries: Sequence[Delivery],
    changes: Changes,
    *,
    worker: int = 0,
    lease: timedelta | None = None,
    taken_by: str = "",
    by_caller: bool = False,
) -> list[Job]:
    """Decides about waiting deliveries, whose rows and whose trigger's row are locked, and hands over what is NEW.

    Returns a job for each that is in work now, with a lease of `lease` (default: the trigger's): its service is run, or
    its resolver asked first; for a pull queue the job is LEASED, and nothing has to be said to anybody. What is a
    duplicate, in doubt, or absorbed by a join is settled here; a history that is unreachable may suspend the trigger.
    """
    if trigger.join_type in _JOINS and len(deliveries) > 1:
        # One by one: when a join has taken a document, a copy of it is a duplicate.
        return [
            job
            for delivery in deliveries
            if trigger.state == TriggerState.ACTIVE
            for job in take(
                trigger, [delivery], changes, worker=worker, lease=lease, taken_by=taken_by, by_caller=by_caller
            )
        ]
    until = changes.now + (lease or lease_of(trigger))
    load_messages(deliveries)
    entries, overridden = _consult(trigger, deliveries, changes, worker)
    jobs: list[Job] = []
    for delivery in deliveries:
        override = delivery.pk in overridden
        decision = decide(
            properties(trigger),
            guaranteed=guaranteed(delivery),
            redelivery_count=delivery.redelivery_count,
            entry=entries.get(delivery.pk),
            operator_override=override,
            memory_lost=delivery.memory_lost,
        )
        if decision.suspend:
            _cannot_decide(trigger, delivery, decision, changes, by_caller)
            if by_caller:
                continue
            break
        if not decision.ask_resolver and not is_new(decision):
            _settle(trigger, delivery, decision, changes)
            continue
        changes.decided(delivery, decision)
        if is_new(decision):
            if absorbed(trigger, delivery, changes):
                continue
            delivery.executions += 1
        kind = JobKind.RESOLVE if decision.ask_resolver else service_kind(trigger)
        claim = uuid.uuid4()
        changes.hand_over(delivery, claim, until, worker, taken_by)
        jobs.append(
            Job(
                kind=kind,
                trigger=trigger,
                delivery=delivery,
                claim=claim,
                decision=decision,
                lease=until - changes.now,
                worker=worker,
                by_caller=by_caller,
                overrides=override,
            )
        )
    return jobs


def absorbed(trigger: Trigger, delivery: Delivery, changes: Changes) -> bool:
    """Whether a join takes the document, which is NEW: it is not to be run by itself then."""
    if trigger.join_type not in _JOINS or delivery.join_id is not None:
        return False
    if not joining.take_part(trigger, delivery, changes.now, changes.events):
        return False
    changes.leave(delivery)
    return True


def load_messages(deliveries: Sequence[Delivery]) -> None:
    """Gives each delivery its message, without the octets. One query."""
    wanted = {delivery.message_id for delivery in deliveries}
    found = Message.objects.defer("wire_frame").in_bulk(list(wanted))
    for delivery in deliveries:
        delivery.message = found[delivery.message_id]


def _consult(
    trigger: Trigger, deliveries: Sequence[Delivery], changes: Changes, worker: int
) -> tuple[dict[uuid.UUID, Entry], set[uuid.UUID]]:
    """What the history says of those that it is asked about, and those for which an operator's word counts instead.

    Where it has nothing the documents are entered as started, except for callables, which do that in their transaction.
    """
    checked = [delivery for delivery in deliveries if is_checked(trigger, delivery)] if trigger.use_history else []
    entries = {delivery.pk: Entry.UNUSABLE_ID for delivery in checked if not delivery.document_id}
    usable = [delivery for delivery in checked if delivery.document_id]
    # What a person said before a loss of memory may have been followed since.
    told = [delivery for delivery in deliveries if delivery.resubmission_of_id is not None and not delivery.memory_lost]
    overridden = {delivery.pk for delivery in told if delivery.redelivery_count == 0}
    try:
        with transaction.atomic():
            # A later hand-over of a resubmission: the operator's word still counts when certainly none has begun.
            resubmitted = [delivery for delivery in told if delivery in usable]
            overridden |= {delivery.pk for delivery in resubmitted if history.begun_by(delivery) != delivery.pk}
            # A copy of which the resolver said NEW since: the person's word was about the same document.
            overridden -= {delivery.pk for delivery in resubmitted if history.overtaken(delivery)}
            undecided = [delivery for delivery in usable if delivery.pk not in overridden]
            if trigger.kind == ServiceKind.CALLABLE:
                return entries | _look(trigger, undecided), overridden
            for delivery in resubmitted:
                if delivery.pk in overridden:
                    history.take_over(trigger, delivery, worker, changes.now)
            return entries | history.begin(trigger, undecided, worker, changes.now), overridden
    except DatabaseError as error:
        if isinstance(error, InterfaceError) or not connection.is_usable():
            raise  # it is not the history: nothing can be claimed at all
        log.exception("history unreachable", extra={"action": "history_unreachable", "trigger": trigger.name})
        unknown = {delivery.pk for delivery in usable}
        return entries | dict.fromkeys(unknown, Entry.UNREACHABLE), overridden - unknown


def _look(trigger: Trigger, deliveries: Sequence[Delivery]) -> dict[uuid.UUID, Entry]:
    """For callables, which enter their document themselves: of two copies in work the second is in the first's way."""
    entries = history.look(trigger, deliveries)
    rows = Delivery.objects.filter(trigger=trigger, state=DeliveryState.RUNNING)
    in_work = set(rows.values_list("sender_id", "document_id"))
    for delivery in deliveries:
        key = (delivery.sender_id, delivery.document_id)
        if key in in_work:
            entries[delivery.pk] = Entry.STARTED
        elif entries[delivery.pk] is Entry.ABSENT:
            in_work.add(key)
    return entries


def _cannot_decide(trigger: Trigger, delivery: Delivery, decision: Decision, changes: Changes, by_caller: bool) -> None:
    detail = decision.evidence[-1].detail
    if by_caller and changes.forget_unexecuted(delivery, "history_unavailable", detail):
        return
    changes.decided(delivery, decision)
    changes.wait(delivery, delivery.created_at)
    if not by_caller:
        changes.suspend(trigger, "history_unavailable", detail)


def _settle(trigger: Trigger, delivery: Delivery, decision: Decision, changes: Changes) -> None:
    if decision.group:
        changes.doubt(trigger, delivery, decision)
    else:
        changes.duplicate(trigger, delivery, decision)
