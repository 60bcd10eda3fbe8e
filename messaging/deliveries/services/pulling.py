"""Pull queues: consumers lease documents and say what became of them (spec 4; protocols 4.3).

A lease is a hand-over like any other: begun in the document history before the consumer gets the document. One that
runs out is a redelivery, so that the resolver is asked or the document is in doubt; one that is given back is not.
A consumer shows the claim that it got with the document; it is good for that lease and no other.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic

from django.db import transaction

from messaging.choices import DeliveryState, ServiceKind, TriggerState
from messaging.deliveries.services import claiming
from messaging.deliveries.services.changes import Changes
from messaging.deliveries.services.job import Job, JobKind, Outcome, lease_of
from messaging.deliveries.services.talking import record, talk
from messaging.exceptions import InvalidSubmission, NotFound, WrongState
from messaging.models import Delivery, Trigger
from messaging.models.base import existing
from messaging.protocol.processing import Decision
from messaging.protocol.service_ends import Ran
from messaging.transports.base import printable
from rmhub import clock
from rmhub.ids import public_id

MIN_LEASE, MAX_LEASE = 5, 86_400  # seconds
MAX_DOCUMENTS = 64  # in one lease, as many as a trigger can have in progress
MAX_DELAY = 30 * 86_400  # seconds
MAX_DETAIL = 2000
# Documents in a row that turn out to be duplicates or in doubt, before a consumer hears that there is nothing for it.
_ROUNDS = 200
_OVER = "lease_over"


@dataclass(frozen=True, slots=True)
class Leased:
    """A document that a consumer has until `until`. It shows `claim` with whatever it says about it.

    `delivery` comes with its message; the firing of a join stands for all its documents (`handing_over.parts`).
    """

    delivery: Delivery
    claim: uuid.UUID
    until: datetime


def lease(trigger_id: uuid.UUID, *, limit: int, consumer: str, seconds: int | None = None) -> list[Leased]:
    """Up to `limit` documents of a pull queue, in the order that its trigger keeps; fewer when there are no more.

    `consumer` is who takes them, `seconds` how long (default: the trigger's lease). All consumers together have as many
    as the trigger's concurrency says. Asks the resolver where the history leaves it to it, so this may take a while;
    call outside of any transaction. Raises InvalidSubmission, NotFound, WrongState.
    """
    _check_lease(limit, seconds)
    jobs = _claim(trigger_id, limit, consumer, timedelta(seconds=seconds) if seconds is not None else None)
    leased = [job for job in jobs if job.kind is JobKind.LEASED]
    leased += _ask_resolver([job for job in jobs if job.kind is JobKind.RESOLVE])
    in_order = {job.delivery.pk: number for number, job in enumerate(jobs)}
    leased.sort(key=lambda job: in_order[job.delivery.pk])
    return [_leased(job) for job in leased]


def complete(delivery_id: uuid.UUID, claim: uuid.UUID) -> Delivery:
    """The consumer has processed the document. Saying it again changes nothing. Raises NotFound, WrongState."""
    return _end(delivery_id, claim, DeliveryState.COMPLETED, Outcome(Ran.OK))


def fail(delivery_id: uuid.UUID, claim: uuid.UUID, detail: str) -> Delivery:
    """The consumer ended with an error: the document counts as processed (spec 4), and a person has to look at it.

    Saying it again changes nothing. Raises InvalidSubmission, NotFound, WrongState.
    """
    if not detail.strip():
        raise InvalidSubmission({"detail": ["Say what went wrong: it is what people will read."]})
    outcome = Outcome(Ran.ERROR, cause="service_error", detail=printable(detail)[:MAX_DETAIL])
    return _end(delivery_id, claim, DeliveryState.FAILED, outcome)


def release(delivery_id: uuid.UUID, claim: uuid.UUID, delay: int = 0) -> Delivery:
    """The consumer gives the document back and has done nothing with it: the next lease finds it new.

    It waits `delay` seconds before that, in an ordered queue with all that come after it. Raises InvalidSubmission,
    NotFound, WrongState.
    """
    if not 0 <= delay <= MAX_DELAY:
        raise InvalidSubmission({"delay": [f"From 0 to {MAX_DELAY} seconds, please."]})
    with transaction.atomic(durable=True):
        delivery = _leased_row(delivery_id, claim)
        changes = Changes(clock.now())
        said = f"Given back by {delivery.taken_by}."
        changes.put_back(delivery, changes.now + timedelta(seconds=delay), "", said)
        changes.write()
    return delivery


def extend(delivery_id: uuid.UUID, claim: uuid.UUID, seconds: int) -> Delivery:
    """The lease ends `seconds` from now (`due_at`). Raises InvalidSubmission, NotFound, WrongState."""
    _check_lease(1, seconds)
    with transaction.atomic(durable=True):
        delivery = _leased_row(delivery_id, claim)
        delivery.due_at = clock.now() + timedelta(seconds=seconds)
        delivery.version += 1
        delivery.save(update_fields=["due_at", "version"])
    return delivery


# --- leasing ---


def _check_lease(limit: int, seconds: int | None) -> None:
    errors = {}
    if not 1 <= limit <= MAX_DOCUMENTS:
        errors["limit"] = [f"From 1 to {MAX_DOCUMENTS} documents, please."]
    if seconds is not None and not MIN_LEASE <= seconds <= MAX_LEASE:
        errors["seconds"] = [f"From {MIN_LEASE} to {MAX_LEASE} seconds, please."]
    if errors:
        raise InvalidSubmission(errors)


def _claim(trigger_id: uuid.UUID, limit: int, consumer: str, seconds: timedelta | None) -> list[Job]:
    with transaction.atomic(durable=True):
        trigger = existing(Trigger.objects.select_for_update(no_key=True, of=("self",)), trigger_id)
        _require_queue(trigger)
        if trigger.state != TriggerState.ACTIVE:
            raise WrongState(
                f"{trigger.name} is {trigger.get_state_display().lower()}: nothing can be leased from it now.",
                state=trigger.state,
            )
        changes = Changes(clock.now())
        claiming.expire(trigger, changes)
        in_work = Delivery.objects.filter(trigger=trigger, state=DeliveryState.RUNNING).count()
        jobs = claiming.take_due(
            trigger,
            min(limit, trigger.concurrency - in_work),
            changes,
            lease=seconds or lease_of(trigger),
            taken_by=printable(consumer)[:150],
            rounds=_ROUNDS,
        )
        changes.write()
    return jobs


def _ask_resolver(jobs: Sequence[Job]) -> list[Job]:
    """Those that the resolver says are new. When it is slow, the rest waits on and is asked about later.

    A trigger that is suspended meanwhile hands nothing more out.
    """
    leased: list[Job] = []
    began = monotonic()
    for number, job in enumerate(jobs):
        if monotonic() - began > job.trigger.timeout:
            _put_back(jobs[number:])
            break
        outcome = talk(job)
        follower = record([(job, outcome)])[0]
        if follower is not None:
            leased.append(follower)
        elif Trigger.objects.filter(pk=job.trigger.pk).exclude(state=TriggerState.ACTIVE).exists():
            _put_back(jobs[number + 1 :])
            break
    return leased


def _put_back(jobs: Sequence[Job]) -> None:
    """Nobody was asked or told anything: they wait as they did before."""
    if jobs:
        record([(job, Outcome(again=True)) for job in jobs])


def _leased(job: Job) -> Leased:
    assert job.delivery.due_at is not None
    return Leased(job.delivery, job.claim, job.delivery.due_at)


# --- what a consumer says ---


def _end(delivery_id: uuid.UUID, claim: uuid.UUID, state: DeliveryState, outcome: Outcome) -> Delivery:
    delivery = _looked_up(delivery_id)
    if delivery.state == state and delivery.claim == claim:
        return delivery
    _require_lease(delivery, claim)
    job = Job(JobKind.LEASED, delivery.trigger, delivery, claim, _NOTHING_TO_DECIDE, lease_of(delivery.trigger))
    record([(job, outcome)])
    delivery = _looked_up(delivery_id)
    if delivery.state != state or delivery.claim != claim:
        raise _over(delivery)  # its lease ran out in this very moment
    return delivery


_NOTHING_TO_DECIDE = Decision(None, ask_resolver=False, suspend=False, evidence=())


def _looked_up(delivery_id: uuid.UUID) -> Delivery:
    delivery = Delivery.objects.select_related("trigger", "message").filter(pk=delivery_id).first()
    if delivery is None:
        raise _unknown(delivery_id)
    _require_queue(delivery.trigger)
    return delivery


def _leased_row(delivery_id: uuid.UUID, claim: uuid.UUID) -> Delivery:
    rows = Delivery.objects.select_related("trigger").select_for_update(of=("self",))
    delivery = rows.filter(pk=delivery_id).first()
    if delivery is None:
        raise _unknown(delivery_id)
    _require_queue(delivery.trigger)
    _require_lease(delivery, claim)
    return delivery


def _require_queue(trigger: Trigger) -> None:
    if trigger.kind != ServiceKind.PULL:
        raise WrongState(
            f"{trigger.name} is not a pull queue: the hub itself brings its documents to the application.",
            state=trigger.state,
            code="not_a_pull_queue",
        )


def _require_lease(delivery: Delivery, claim: uuid.UUID) -> None:
    if delivery.state != DeliveryState.RUNNING or delivery.claim != claim:
        raise _over(delivery)


def _over(delivery: Delivery) -> WrongState:
    return WrongState(
        f"This lease is over, and the delivery is {delivery.get_state_display().lower()} now: what you say of it does"
        " not count any more. Lease documents for longer, or extend the lease in time.",
        state=delivery.state,
        code=_OVER,
    )


def _unknown(delivery_id: uuid.UUID) -> NotFound:
    return NotFound(f"There is no delivery {public_id('del', delivery_id)}.")
