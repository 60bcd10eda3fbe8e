"""A delivery whose outcome somebody waits for: the synchronous exchange of the repeatable profile (spec 2).

It is handed over at once, in the process that has the request: without a queue, whatever the trigger's concurrency and
order. Nothing is retried. When this process dies, the lease ends, and the ordinary workers go on with the delivery.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass

from django.db import InterfaceError, OperationalError, connection, transaction

from messaging import dispatch
from messaging.applications import Reply
from messaging.choices import DeliveryState, TriggerState
from messaging.deliveries.services import claiming
from messaging.deliveries.services import handing_over as deciding
from messaging.deliveries.services.changes import Changes
from messaging.deliveries.services.job import Job, Outcome
from messaging.deliveries.services.talking import record, talk
from messaging.engine.group import GroupCommit
from messaging.models import Delivery, Trigger
from messaging.models.bulk import read
from rmhub import clock

log = logging.getLogger(__name__)

GONE = "gone"
AGAIN_SECONDS = 0.5  # how often an outcome that the database does not take is offered again

_record: GroupCommit[tuple[Job, Outcome], Job | None] = GroupCommit(record)


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of it: the delivery's `DeliveryState`, or "gone" when it was not executed, and its request forgotten.

    waiting, running: not known yet, the workers go on with it (or somebody else has it). `reply`: what the service
    answered, when it did. `retry_after`: seconds, when the service named them.
    """

    state: str
    reply: Reply | None = None
    cause: str = ""
    detail: str = ""
    retry_after: int | None = None


class _NeedsTrigger(Exception):
    """What is to be written needs the trigger's row for itself."""


def run(delivery_id: uuid.UUID) -> Finished:
    """Hands over the delivery of a request and returns when it is over. Call outside of any transaction.

    One that is in progress elsewhere is left alone; one whose process has died is taken over, as a redelivery.

    Raises nothing of the service's: whatever it does, the outcome is recorded before this returns.
    """
    job, outcome = _claim(delivery_id)
    ordered = job is not None and job.trigger.ordered
    while job is not None:
        outcome = talk(job)
        job = _recorded(job, outcome)
    if ordered:
        dispatch.wake(dispatch.DELIVER)  # others of its pair have waited for it
    known = Delivery.objects.filter(pk=delivery_id).values_list("state", "cause", "cause_detail").first()
    state, cause, detail = known if known is not None else (GONE, outcome.cause, outcome.detail)
    return Finished(state, outcome.reply, cause, detail, outcome.retry_after)


def _recorded(job: Job, outcome: Outcome) -> Job | None:
    """What follows, once the database has taken the outcome: it is known here and nowhere else.

    It is offered for as long as the hand-over may have taken; then the lease decides, like after this process's death.
    """
    until = time.monotonic() + job.lease.total_seconds()
    while True:
        try:
            return _record.submit((job, outcome))
        except (OperationalError, InterfaceError) as error:
            if time.monotonic() > until:
                raise
            connection.close()
            log.warning(
                "the database does not take what came of a request; offered again until it does",
                extra={"action": "record_waits", "error": str(error)[:200]},
            )
            time.sleep(AGAIN_SECONDS)


def _claim(delivery_id: uuid.UUID) -> tuple[Job | None, Outcome]:
    """The job, or why there is none. Requests for one trigger hold each other up only where its row has to change."""
    try:
        return _claim_under(delivery_id, SHARED)
    except _NeedsTrigger:
        return _claim_under(delivery_id, EXCLUSIVE)


SHARED, EXCLUSIVE = "FOR SHARE", "FOR NO KEY UPDATE"


def _claim_under(delivery_id: uuid.UUID, lock: str) -> tuple[Job | None, Outcome]:
    changes = Changes(clock.now())
    with transaction.atomic(durable=True):
        trigger = next(iter(read(Trigger, f"{TRIGGER} {lock} OF t", [delivery_id])), None)
        delivery = next(iter(read(Delivery, ATTENDED, [delivery_id, changes.now])), None)
        if trigger is None or delivery is None:
            return None, Outcome()
        if delivery.state == DeliveryState.RUNNING:
            changes.lose(delivery, changes.now, *claiming.LEASE_OVER)
        jobs: list[Job] = []
        if trigger.state == TriggerState.ACTIVE:
            jobs = deciding.take(trigger, [delivery], changes, by_caller=True)
        else:
            detail = f"The trigger {trigger.name} is {trigger.get_state_display().lower()}."
            if not changes.forget_unexecuted(delivery, trigger.cause, detail):
                changes.wait(delivery, changes.now)  # it was taken in by another road, and is the workers' now
        if changes.troubles and lock == SHARED:
            raise _NeedsTrigger
        changes.write()
    return (jobs[0], Outcome()) if jobs else (None, Outcome(cause=delivery.cause, detail=delivery.cause_detail))


TRIGGER = "SELECT t.* FROM messaging_trigger t JOIN messaging_delivery d ON d.trigger_id = t.id WHERE d.id = %s"
# Waiting, or in the hands of a process that has died. A callable that still runs has its row locked.
ATTENDED = """
SELECT * FROM messaging_delivery WHERE id = %s AND attended
AND (state = 'waiting' OR state = 'running' AND due_at <= %s) FOR UPDATE SKIP LOCKED
"""
