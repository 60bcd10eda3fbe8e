"""What a transaction means for the delivery that it belongs to: the hub's own share of an atomic delivery.

The commit record, the document history, the delivery's end and what callables did are one commit (protocols 6.4): the
hub is the last resource, and needs no vote. An abort releases what was begun, so that the next hand-over is NEW.
Call both with the coordination's row locked; trigger and delivery are locked here, in that order.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from messaging import dispatch, storage
from messaging.applications import SERVICES
from messaging.causes import CAUSES
from messaging.causes.transactions import PREFIX
from messaging.choices import DeliveryState, ServiceKind
from messaging.deliveries.services import calling
from messaging.deliveries.services.calling import nothing_said
from messaging.deliveries.services.changes import Changes, not_done
from messaging.deliveries.services.job import Outcome, failure, missing
from messaging.models import Coordination, Delivery, Enlistment, Event, Trigger
from messaging.profiles.wsat.opening import LocalWorkFailed
from messaging.protocol.service_ends import Ran

# What of this hub takes part in an atomic delivery (`Enlistment.local`); after the second one comes its name.
DOCUMENT_HISTORY, CALLABLE = "document history", "callable "
TAKEN_BACK = "delivery_taken_back"
# Outcomes that nothing but a person's change can better, and those that are errors of a service.
_MISCONFIGURED = frozenset({"callable_missing"})
_ERRORS = frozenset({"service_error"})
_TOUCH = timedelta(seconds=1)


def runs_here(coordination: Coordination) -> bool:
    """Whether a worker has to decide, because callables take part: no web process runs an application's code."""
    return _callables(coordination).exists()


def decide_locally(coordination: Coordination, now: datetime, written: list[Event]) -> None:
    """Every vote is in: runs callables, and completes the delivery and its history. Adds events to `written`.

    Raises LocalWorkFailed; then nothing of it may stay, and the transaction aborts.
    """
    if coordination.delivery_id is None:
        return
    delivery = _locked(coordination)
    if delivery is None:
        raise LocalWorkFailed(TAKEN_BACK, "The delivery was taken back: its lease was over, or a person settled it.")
    for enlistment in _callables(coordination):
        member = enlistment.trigger
        if member is None or member.kind != ServiceKind.CALLABLE:
            raise LocalWorkFailed("member_changed", f"{enlistment.local} is not a member any more.")
        _run(member, delivery)
    changes = Changes(now)
    delivery.http_status = delivery.answer = None
    changes.complete(delivery.trigger, delivery)
    written += changes.events
    changes.events.clear()
    changes.write()
    _note_success(delivery, now)
    dispatch.wake_on_commit(dispatch.DELIVER)  # others of its pair may have waited for it


def gave_up(coordination: Coordination, now: datetime, written: list[Event]) -> None:
    """The coordination aborts, for its `cause`: its delivery goes on as its trigger says. Adds events to `written`.

    Nothing happens when the delivery was taken back already.
    """
    if coordination.delivery_id is None:
        return
    trigger = (
        Trigger.objects.select_for_update(of=("self",), no_key=True).filter(deliveries=coordination.delivery_id).first()
    )
    delivery = _locked(coordination)
    if trigger is None or delivery is None:
        return
    changes = Changes(now)
    not_done(trigger, delivery, _outcome(coordination), changes, in_transaction=True)
    written += changes.events
    changes.events.clear()
    changes.write()
    if trigger.failing_since is None:
        trigger.failing_since = now
        trigger.save(update_fields=["failing_since"])
    dispatch.wake_on_commit(dispatch.DELIVER)


def _outcome(coordination: Coordination) -> Outcome:
    cause = coordination.cause
    return Outcome(
        Ran.ERROR if cause in _ERRORS else Ran.TRANSIENT,
        cause=cause if cause in CAUSES else f"{PREFIX}{cause}",
        detail=coordination.cause_detail,
        misconfigured=cause in _MISCONFIGURED,
    )


def _callables(coordination: Coordination) -> QuerySet[Enlistment]:
    found = Enlistment.objects.filter(coordination=coordination, local__startswith=CALLABLE)
    return found.select_related("trigger").order_by("id")


def _locked(coordination: Coordination) -> Delivery | None:
    """The delivery, while it is in work for this very hand-over."""
    if coordination.delivery_id is None:
        return None
    return (
        Delivery.objects.select_for_update(of=("self",), no_key=True)
        .select_related("trigger", "message")
        .defer("message__wire_frame")
        .filter(pk=coordination.delivery_id, claim=coordination.claim, state=DeliveryState.RUNNING)
        .first()
    )


def _note_success(delivery: Delivery, now: datetime) -> None:
    """Notes that the trigger succeeds, about once a second. Somebody who has its row may wait for the delivery's."""
    rows = Trigger.objects.select_for_update(no_key=True, skip_locked=True).only("pk")
    stale = Q(last_success_at=None) | Q(last_success_at__lte=now - _TOUCH) | Q(failing_since__isnull=False)
    for trigger in rows.filter(stale, pk=delivery.trigger_id):
        Trigger.objects.filter(pk=trigger.pk).update(last_success_at=now, failing_since=None)


def _run(member: Trigger, delivery: Delivery) -> None:
    """Runs the callable of a member in the present transaction."""
    service = SERVICES.get(member.callable_name)
    if service is None:
        raise _failed(member, missing(member.callable_name))
    try:
        document = calling.load(member, delivery)
    except storage.PayloadMissing as error:
        raise _failed(member, nothing_said(error)) from error
    try:
        service(document)
    except Exception as error:
        raise _failed(member, failure(error)) from error


def _failed(member: Trigger, outcome: Outcome) -> LocalWorkFailed:
    return LocalWorkFailed(outcome.cause, f"{member.name}: {outcome.detail}")
