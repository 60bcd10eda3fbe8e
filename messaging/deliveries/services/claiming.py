"""The first step of a delivery: what is due is decided and claimed, one transaction a trigger.

The trigger's row is locked first: it serialises the claims of all workers, so that its concurrency holds and no
document is taken twice. Then the deliveries, passing over locked ones. A hand-over that is lost (its lease ran out, or
its worker died) is a redelivery; what it had begun with is in the document history, and the decision goes by that.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction

from messaging import dispatch
from messaging.choices import DeliveryState, ServiceKind, TriggerState, WhenExhausted
from messaging.deliveries.services import together
from messaging.deliveries.services.changes import Changes
from messaging.deliveries.services.handing_over import load_messages, take
from messaging.deliveries.services.job import Job
from messaging.engine import leases
from messaging.models import Delivery, Trigger
from messaging.models.bulk import read
from messaging.protocol.processing import redelivered
from rmhub import clock

log = logging.getLogger(__name__)

# How often one claim looks again because what it found was settled without running a service.
ROUNDS = 20
# A callable that has taken its worker with it so often is not tried again by itself.
POISON = 5
_IN_PROCESS = (ServiceKind.CALLABLE, ServiceKind.ATOMIC)  # what they run may end the worker
LEASE_OVER = ("worker_lost", "No outcome was recorded before its lease ran out.")
_ARRIVAL_SECONDS = 1


def share() -> int:
    """How many threads of a worker one trigger takes at most: one is always left for the others."""
    return max(1, settings.RMHUB_DELIVER_THREADS - 1)


def claim_due(*, limit: int, worker: int = 0, share: int | None = None) -> list[Job]:
    """Claims up to `limit` due deliveries for this worker and commits; each has a lease from now on.

    Safe to run in many workers at once. `share`: how many of one trigger this worker takes at most; one that is failing
    gets one, so that a service that hangs does not hold all threads. Without a trigger it costs one tiny query.
    """
    now = clock.now()
    jobs: list[Job] = []
    due = _due_triggers(now)
    for number, trigger_id in enumerate(due):
        left = len(due) - number
        quota = -(-(limit - len(jobs)) // left)  # what is free is shared out evenly, rounded up
        if quota <= 0:
            break
        try:
            jobs += _claim_trigger(trigger_id, quota, worker, share, now)
        except Exception:
            # What is claimed already must be handed over, and the other triggers can do nothing for this one.
            log.exception("claim failed", extra={"action": "claim_failed", "trigger": str(trigger_id)})
    return jobs


def _due_triggers(now: datetime) -> list[uuid.UUID]:
    """Active triggers with something that is due or lost, those with the least in progress first."""
    with connection.cursor() as cursor:
        cursor.execute(DUE_TRIGGERS, {"now": now})
        return [row[0] for row in cursor.fetchall()]


DUE_TRIGGERS = """
SELECT t.id FROM messaging_trigger t
CROSS JOIN LATERAL (
    SELECT count(*) AS running, min(d.due_at) AS ends FROM messaging_delivery d
    WHERE d.trigger_id = t.id AND d.state = 'running'
) r
WHERE t.state = 'active' AND (
    r.ends <= %(now)s
    OR t.kind <> 'pull' AND r.running < t.concurrency AND (
        SELECT d.due_at FROM messaging_delivery d WHERE d.trigger_id = t.id AND d.state = 'waiting'
        ORDER BY d.due_at LIMIT 1
    ) <= %(now)s
)
ORDER BY r.running, t.id
"""


def _claim_trigger(trigger_id: uuid.UUID, quota: int, worker: int, share: int | None, now: datetime) -> list[Job]:
    with transaction.atomic(durable=True):
        trigger = _locked_active(trigger_id)
        if trigger is None:
            return []
        changes = Changes(now)
        lost = expire(trigger, changes)
        jobs: list[Job] = []
        if trigger.kind != ServiceKind.PULL and trigger.state == TriggerState.ACTIVE:
            free = min(quota, _free(trigger, worker, share))
            jobs = take_due(trigger, free, changes, worker=worker)
        changes.write()
    if trigger.kind == ServiceKind.ATOMIC:
        together.abandon_lost(lost)
    return jobs


def claim_next(ended: Sequence[Job], now: datetime) -> list[Job]:
    """Claims what comes after these, in the transaction that has written their outcomes: at most as many, for the
    worker that has ended them.

    Nothing where others have something due, too: a claim shares out what is free. Nothing while another has the
    trigger: then it is that one's turn. Whatever is wrong with what comes next, the outcomes stay written.
    """
    mine = {(job.trigger.pk, job.worker) for job in ended}
    if len(mine) != 1:
        return []
    ((trigger_id, worker),) = mine
    if _due_triggers(now) != [trigger_id]:
        return []
    changes = Changes(now)
    try:
        with transaction.atomic():
            trigger = _locked_active(trigger_id, wait=False)
            if trigger is None or trigger.kind == ServiceKind.PULL:
                return []
            free = min(len(ended), _free(trigger, worker, share()))
            jobs = take_due(trigger, free, changes, worker=worker, rounds=1)
            changes.write()
            return jobs
    except Exception:
        log.exception("claim failed", extra={"action": "claim_failed", "trigger": str(trigger_id)})
        return []


def _locked_active(trigger_id: uuid.UUID, *, wait: bool = True) -> Trigger | None:
    lock = "FOR NO KEY UPDATE" if wait else "FOR NO KEY UPDATE SKIP LOCKED"
    rows = read(Trigger, f"SELECT * FROM messaging_trigger WHERE id = %s AND state = 'active' {lock}", [trigger_id])  # noqa: S608
    return next(iter(rows), None)


def _free(trigger: Trigger, worker: int, share: int | None) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), count(*) FILTER (WHERE worker = %s) FROM messaging_delivery"
            " WHERE trigger_id = %s AND state = 'running'",
            [worker, trigger.pk],
        )
        running, mine = cursor.fetchone()
    free: int = trigger.concurrency - running
    if share is not None:
        free = min(free, (1 if trigger.failing_since is not None else share) - mine)
    return free


def take_due(
    trigger: Trigger,
    free: int,
    changes: Changes,
    *,
    worker: int = 0,
    lease: timedelta | None = None,
    taken_by: str = "",
    rounds: int = ROUNDS,
) -> list[Job]:
    """Takes up to `free` due deliveries of a trigger, whose row is locked, in the order that it keeps; see `take`."""
    jobs: list[Job] = []
    for _ in range(rounds):
        if free <= len(jobs) or trigger.state != TriggerState.ACTIVE:
            return jobs
        at_most = free - len(jobs)
        if trigger.ordered:
            # The first open delivery of each pair, where it waits and is due: one probe a pair, however long it is.
            found = read(Delivery, HEADS, [trigger.pk, trigger.pk, trigger.pk, changes.now, at_most])
        else:
            found = read(Delivery, WAITING, [trigger.pk, changes.now, at_most])
        if not found:
            return jobs
        jobs += take(trigger, found, changes, worker=worker, lease=lease, taken_by=taken_by)
        _arrived(trigger, changes.now)
        changes.write()
    if free > len(jobs):
        dispatch.wake_on_commit(dispatch.DELIVER)  # there is more; others may have their turn before
    return jobs


WAITING = """
SELECT * FROM messaging_delivery WHERE trigger_id = %s AND state = 'waiting' AND due_at <= %s
ORDER BY due_at, id LIMIT %s FOR UPDATE SKIP LOCKED
"""


HEADS = """
WITH RECURSIVE walk(pair_id) AS (
    (SELECT pair_id FROM messaging_delivery WHERE trigger_id = %s AND state IN ('waiting', 'running')
     ORDER BY pair_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.pair_id FROM messaging_delivery d
            WHERE d.trigger_id = %s AND d.state IN ('waiting', 'running') AND d.pair_id > walk.pair_id
            ORDER BY d.pair_id LIMIT 1)
    FROM walk WHERE walk.pair_id IS NOT NULL
)
SELECT d.* FROM messaging_delivery d WHERE d.id IN (
    SELECT head.id FROM walk CROSS JOIN LATERAL (
        SELECT h.id, h.state, h.due_at FROM messaging_delivery h
        WHERE h.trigger_id = %s AND h.pair_id = walk.pair_id AND h.state IN ('waiting', 'running')
        ORDER BY h.position, h.id LIMIT 1
    ) head
    WHERE walk.pair_id IS NOT NULL AND head.state = 'waiting' AND head.due_at <= %s
    ORDER BY head.due_at, head.id LIMIT %s
) AND d.state = 'waiting'
ORDER BY d.due_at, d.id FOR UPDATE OF d SKIP LOCKED
"""


def expire(trigger: Trigger, changes: Changes) -> list[uuid.UUID]:
    """Takes back what was handed over and is lost; call with the trigger's row locked. Returns the claims of those.

    A callable that runs has its delivery's row locked, so it is passed over however long it takes. What was handed over
    in an atomic transaction can only be rolled back now, as this claim does not count any more: it is NEW again.
    """
    lost = read(Delivery, LOST, [trigger.pk, changes.now])
    if not lost:
        return []
    load_messages(lost)
    claims = [delivery.claim for delivery in lost if delivery.claim is not None]
    for delivery in lost:
        if trigger.kind == ServiceKind.ATOMIC:
            delivery.redelivery_count = redelivered(delivery.redelivery_count)
            changes.put_back(delivery, delivery.created_at, *LEASE_OVER)
        else:
            changes.lose(delivery, delivery.created_at, *LEASE_OVER)
        if trigger.kind in _IN_PROCESS and delivery.redelivery_count >= POISON:
            detail = f"Handed over {delivery.redelivery_count} times, its worker was lost again: {delivery.public_id}."
            if trigger.when_exhausted == WhenExhausted.SUSPEND:
                changes.suspend(trigger, "worker_lost", detail)
            else:
                rolled_back = trigger.kind == ServiceKind.ATOMIC
                changes.fail(trigger, delivery, "worker_lost", detail, rolled_back=rolled_back)
    changes.write()
    log.warning(
        "hand-overs lost", extra={"action": "deliveries_lost", "trigger": trigger.name, "deliveries": len(lost)}
    )
    return claims


LOST = """
SELECT * FROM messaging_delivery WHERE trigger_id = %s AND state = 'running' AND due_at <= %s
ORDER BY due_at, id FOR UPDATE SKIP LOCKED
"""


def release_dead(now: datetime) -> int:
    """Ends at once the leases of what dead workers had in progress; returns how many that were. See `engine.leases`."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT worker FROM messaging_delivery WHERE state = 'running' AND worker <> 0")
        workers = {row[0] for row in cursor.fetchall()}
        dead = workers - leases.living() if workers else set()
        if not dead:
            return 0
        cursor.execute(RELEASE, [now, list(dead)])
        return int(cursor.rowcount)


RELEASE = """
UPDATE messaging_delivery SET due_at = %s WHERE id IN (
    SELECT id FROM messaging_delivery WHERE state = 'running' AND worker = ANY(%s) FOR UPDATE SKIP LOCKED
)
"""


def keeps(job: Job) -> bool:
    """Whether the hand-over is still the one that was claimed; then it has a new lease. Commits."""
    claimed = Delivery.objects.filter(pk=job.delivery.pk, claim=job.claim, state=DeliveryState.RUNNING)
    return bool(claimed.update(due_at=clock.now() + job.lease))


def _arrived(trigger: Trigger, now: datetime) -> None:
    """Notes, about once a second, that the trigger takes documents up."""
    last = trigger.last_arrival_at
    if last is None or (now - last).total_seconds() >= _ARRIVAL_SECONDS:
        trigger.last_arrival_at = now
        Trigger.objects.filter(pk=trigger.pk).update(last_arrival_at=now)
