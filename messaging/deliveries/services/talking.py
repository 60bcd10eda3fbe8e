"""The second step of a delivery (the service is run, or the resolver asked), and the third: what came of it is written.

No transaction is open while others are talked to.

The exception is a callable, which runs inside the transaction that records it (spec 4; docs/decisions.md): what it does
with Django's database connection, the document history and the delivery's end are committed together or not at all.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db import Error, transaction

from messaging import storage, tracing
from messaging.applications import RESOLVERS, SERVICES, Document, Reply, Service, Transient
from messaging.choices import Consult, DeliveryState
from messaging.deliveries.services import calling, claiming, history, together
from messaging.deliveries.services.changes import Changes, hold, is_new, not_done
from messaging.deliveries.services.handing_over import absorbed
from messaging.deliveries.services.job import (
    Job,
    JobKind,
    Outcome,
    failure,
    guaranteed,
    is_checked,
    missing,
    properties,
    retry_policy,
    service_kind,
)
from messaging.engine import forgetting
from messaging.models import Delivery, Trigger
from messaging.models.bulk import bulk_set, read
from messaging.protocol.processing import (
    Answer,
    Decision,
    Doubt,
    Entry,
    Evidence,
    Status,
    conclude,
    decide,
    read_answer,
)
from messaging.protocol.service_ends import Ran
from messaging.tracing import Operation
from messaging.transports.base import printable
from partners.secrets import SecretUnreadable, decrypt
from rmhub import clock

log = logging.getLogger(__name__)

MAX_ANSWER = 64 * 1024  # bytes of what a resolver says
_NOT_NOW = frozenset({408, 425, 429})  # a resolver that says it may answer later; and 5xx


class _Overtaken(Exception):
    """Somebody else has the document in progress, or has ended it: rolled back, and decided again."""


class _Failed(Exception):
    """The callable itself raised what is the cause of this."""


def talk(job: Job) -> Outcome:
    """Runs what the job names and says what came of it. Never raises. Call outside of any transaction."""
    message = job.delivery.message
    with tracing.doing(Operation.DELIVER, message.pk, message.agreement_version_id) as span:
        outcome = _ran(job)
        if span is not None:
            said = {"delivery.id": job.delivery.public_id, "trigger": job.trigger.name, "service": job.kind.value}
            tracing.ended(span, outcome.cause, outcome.status, **said)
        log.log(
            logging.INFO if outcome.cause else logging.DEBUG,
            "handed over",
            extra={
                "action": "delivered" if not outcome.cause else "delivery_trouble",
                "delivery": job.delivery.public_id,
                "trigger": job.trigger.name,
                "kind": job.kind.value,
                "cause": outcome.cause,
                "status": outcome.status,
            },
        )
    return outcome


def _ran(job: Job) -> Outcome:
    try:
        return _RUN[job.kind](job)
    except Exception as error:
        # A mistake of ours. The service may have been run or not, and only one answer is safe.
        log.exception("hand-over broke", extra={"action": "talk_failed", "delivery": job.delivery.public_id})
        detail = printable(f"{type(error).__name__}: {error}")[:500]
        if job.kind is JobKind.RESOLVE:
            return Outcome(answer=Answer.FAILED, detail=detail)
        if job.kind in (JobKind.CALLABLE, JobKind.ATOMIC):  # rolled back, or will be: its claim does not count any more
            return Outcome(Ran.TRANSIENT, cause="internal_error", detail=detail)
        return Outcome(Ran.UNKNOWN, cause="service_outcome_unknown", detail=detail)


# --- callables ---

# Each holds a connection of this process as long as it works: one is left for everything else, beside that which is
# kept.
_rooms = threading.BoundedSemaphore(max(1, settings.DATABASES["default"]["OPTIONS"]["connections"] - 2))


def _call(job: Job) -> Outcome:
    with _rooms:
        return _called(job)


def _called(job: Job) -> Outcome:
    trigger = job.trigger
    service = SERVICES.get(trigger.callable_name)
    if service is None:
        return missing(trigger.callable_name)
    try:
        document = calling.load(trigger, job.delivery)
        forgetting.ensure_days(forgetting.HISTORY, [history.forget_on(trigger, clock.now())])
    except (storage.PayloadMissing, OSError, Error) as error:
        return calling.nothing_said(error)
    try:
        with transaction.atomic(durable=True):
            reply = _inside(job, service, document)
    except _Overtaken:
        return Outcome(again=True)
    except _Failed as failed:
        return failure(failed.__cause__ or failed)
    except Error as error:
        # The commit: nothing is left of what the service did. What its own rows break it breaks each time.
        return failure(error)
    return Outcome(Ran.OK, reply=reply, recorded=True)


def _inside(job: Job, service: Service, document: Document) -> Reply | None:
    """The transaction of a callable. While it is open, its delivery's row is locked: so nobody takes it for lost."""
    now = clock.now()
    trigger = job.trigger
    delivery = (
        Delivery.objects.select_for_update(of=("self",), no_key=True)
        .filter(pk=job.delivery.pk, claim=job.claim, state="running")
        .first()
    )
    if delivery is None:
        raise _Overtaken
    delivery.message = job.delivery.message
    if history.keeps(trigger, delivery):
        if job.overrides:
            history.take_over(trigger, delivery, job.worker, now)
            if history.overtaken(delivery):
                raise _Overtaken
        elif history.begin(trigger, [delivery], job.worker, now)[delivery.pk] is not Entry.ABSENT:
            raise _Overtaken
    try:
        reply = service(document)
        if trigger.answers and not isinstance(reply, Reply | None):
            raise TypeError(f"a service answers with a Reply or None, not with {_shown(reply)}")
    except Exception as error:
        raise _Failed from error
    changes = Changes(clock.now())
    delivery.http_status = delivery.answer = None
    changes.complete(trigger, delivery, reply if trigger.answers else None)
    changes.write()
    return reply


# --- resolvers ---


def _resolve(job: Job) -> Outcome:
    trigger = job.trigger
    try:
        document = calling.load(trigger, job.delivery)
    except (storage.PayloadMissing, OSError, Error) as error:
        return Outcome(answer=Answer.TRANSIENT, cause="resolver_unavailable", detail=printable(str(error))[:500])
    if trigger.resolver == Consult.HTTP:
        return _ask_http(job, document)
    return _ask_callable(trigger.resolver_callable, document)


def _ask_http(job: Job, document: Document) -> Outcome:
    trigger = job.trigger
    try:
        secret = decrypt(bytes(trigger.secret_encrypted))
    except SecretUnreadable as error:
        return Outcome(answer=Answer.TRANSIENT, cause="secret_unreadable", detail=str(error), misconfigured=True)
    answered = calling.post(
        trigger.resolver_url,
        [("Content-Type", "application/json"), ("Accept", "application/json")],
        calling.question(document),
        key=job.delivery.public_id,
        secret=secret,
        timeout=trigger.timeout,
        keep=MAX_ANSWER,
    )
    status = answered.status
    if status is None:
        return _not_now(answered.detail)
    if status in _NOT_NOW or status >= 500:
        return _not_now(f"The resolver answered HTTP {status}.")
    if status != 200:
        return Outcome(answer=Answer.FAILED, status=status, detail=f"The resolver answered HTTP {status}.")
    said: object = None
    with suppress(ValueError, RecursionError):
        said = json.loads(answered.body) if answered.complete else None
    if not isinstance(said, dict):
        return Outcome(answer=Answer.NONSENSE, status=status, detail=f"It said {_shown(answered.body)}.")
    answer = read_answer(said.get("status"))
    message = said.get("message")
    detail = printable(message)[:500] if isinstance(message, str) else ""
    if answer is Answer.NONSENSE:
        detail = f"It said {_shown(answered.body)}."
    return Outcome(answer=answer, status=status, detail=detail)


def _ask_callable(name: str, document: Document) -> Outcome:
    resolver = RESOLVERS.get(name)
    if resolver is None:
        detail = f"No installed application registers a resolver {name!r}."
        return Outcome(answer=Answer.TRANSIENT, cause="callable_missing", detail=detail, misconfigured=True)
    try:
        said = resolver(document)
    except Transient as error:
        return _not_now(printable(str(error))[:500])
    except Exception as error:
        log.warning("resolver failed", exc_info=True, extra={"action": "resolver_failed", "resolver": name})
        return Outcome(answer=Answer.FAILED, detail=printable(f"{type(error).__name__}: {error}")[:500])
    answer = read_answer(said)
    return Outcome(answer=answer, detail=f"It said {_shown(said)}." if answer is Answer.NONSENSE else "")


def _not_now(detail: str) -> Outcome:
    return Outcome(answer=Answer.TRANSIENT, cause="resolver_unavailable", detail=detail)


def _shown(said: object) -> str:
    return printable(repr(said))[:80]


_RUN = {
    JobKind.HTTP: calling.hand_over,
    JobKind.CALLABLE: _call,
    JobKind.ATOMIC: together.hand_over,
    JobKind.RESOLVE: _resolve,
}


# --- The third step of a delivery: what came of many hand-overs, in one transaction.
#
# An outcome counts only for the hand-over that it belongs to: one that comes after its lease ran out moves nothing.

UNKNOWN = "service_outcome_unknown"
_TOUCH = timedelta(seconds=1)
_AGAIN = timedelta(seconds=1)


def record(outcomes: Sequence[tuple[Job, Outcome]], *, more: bool = False) -> list[Job | None]:
    """Writes what came of claimed deliveries. Returns for each the job that follows at once: a resolver said NEW; or,
    with `more`, it went well and this comes next.
    """
    now = clock.now()
    forgetting.ensure_days(forgetting.HISTORY, {history.forget_on(job.trigger, now) for job, _ in outcomes})
    followers: list[Job | None] = []
    with transaction.atomic(durable=True):
        triggers = _locked_triggers(outcomes, now)
        deliveries = _locked_deliveries([job.delivery.pk for job, outcome in outcomes if not outcome.recorded])
        changes = Changes(now)
        for job, outcome in outcomes:
            delivery = deliveries.get(job.delivery.pk)
            if delivery is None or delivery.state != DeliveryState.RUNNING or delivery.claim != job.claim:
                followers.append(None)
                continue
            delivery.message = job.delivery.message
            followers.append(_apply(job, outcome, delivery, triggers.get(job.trigger.pk), changes))
        changes.write()
        _note_health(triggers, outcomes, now)
        if more:
            _follow(outcomes, followers, now)
    for _, outcome in outcomes:
        if outcome.abandons is not None:
            together.abandon(outcome.abandons, outcome.cause, outcome.detail)
    return followers


def _follow(outcomes: Sequence[tuple[Job, Outcome]], followers: list[Job | None], now: datetime) -> None:
    """Claims what is due next for those that have ended something well, so that nobody has to look for it."""
    ended = [
        number
        for number, (job, outcome) in enumerate(outcomes)
        if followers[number] is None and outcome.ran is Ran.OK and not job.by_caller
    ]
    following = claiming.claim_next([outcomes[number][0] for number in ended], now)
    for number, job in zip(ended, following, strict=False):
        followers[number] = job


def _locked_triggers(outcomes: Sequence[tuple[Job, Outcome]], now: datetime) -> dict[uuid.UUID, Trigger]:
    """Rows of triggers that may get an incident or be suspended; and about once a second those that succeed."""
    fine = {job.trigger.pk for job, outcome in outcomes if outcome.ran is Ran.OK}
    troubled = {job.trigger.pk for job, outcome in outcomes if outcome.ran is not Ran.OK}
    rows = read(Trigger, TRIGGERS, [list(troubled), list(fine), now - _TOUCH])
    return {trigger.pk: trigger for trigger in rows}


TRIGGERS = """
SELECT * FROM messaging_trigger WHERE id = ANY(%s)
OR id = ANY(%s) AND (last_success_at IS NULL OR last_success_at <= %s OR failing_since IS NOT NULL)
ORDER BY id FOR NO KEY UPDATE
"""


def _locked_deliveries(ids: list[uuid.UUID]) -> dict[uuid.UUID, Delivery]:
    if not ids:
        return {}
    rows = read(Delivery, "SELECT * FROM messaging_delivery WHERE id = ANY(%s) ORDER BY id FOR UPDATE", [ids])
    return {delivery.pk: delivery for delivery in rows}


def _note_health(triggers: dict[uuid.UUID, Trigger], outcomes: Sequence[tuple[Job, Outcome]], now: datetime) -> None:
    changed = {}
    for job, outcome in outcomes:
        trigger = triggers.get(job.trigger.pk)
        if trigger is None or outcome.ran is None:
            continue
        if outcome.ran is Ran.OK:
            trigger.last_success_at, trigger.failing_since = now, None
        else:
            trigger.failing_since = trigger.failing_since or now
        changed[trigger.pk] = trigger
    bulk_set(list(changed.values()), ("last_success_at", "failing_since"))


def _apply(job: Job, outcome: Outcome, delivery: Delivery, trigger: Trigger | None, changes: Changes) -> Job | None:
    """`trigger` is its locked row: there whenever the outcome is not a plain success."""
    if outcome.again:
        changes.wait(delivery, delivery.created_at)
        return None
    if outcome.answer is not None:
        assert trigger is not None
        return _resolved(job, outcome, delivery, trigger, changes)
    assert outcome.ran is not None
    delivery.http_status, delivery.answer = outcome.status, outcome.kept or None
    if job.by_caller:
        _for_caller(job, outcome, delivery, changes)
        return None
    if outcome.ran is Ran.OK:
        changes.complete(job.trigger, delivery, outcome.reply)
        return None
    assert trigger is not None
    not_done(trigger, delivery, outcome, changes, claimed=job.trigger, in_transaction=job.kind is JobKind.ATOMIC)
    return None


def _for_caller(job: Job, outcome: Outcome, delivery: Delivery, changes: Changes) -> None:
    """Somebody waits: no retry, no suspension. What certainly did not happen is as if it had never been asked for."""
    cause, detail = outcome.cause, outcome.detail
    if outcome.ran is Ran.OK:
        changes.complete(job.trigger, delivery, outcome.reply)
    elif outcome.ran is Ran.TRANSIENT or job.kind is JobKind.CALLABLE:
        # What a callable that failed has done is rolled back.
        if not changes.forget_unexecuted(delivery, cause, detail):
            changes.put_back(delivery, changes.now, cause, detail)  # it was taken in by another road: the workers' now
    elif outcome.ran is Ran.ERROR:
        changes.fail(job.trigger, delivery, cause, detail, outcome.reply)
    else:
        changes.lose(delivery, changes.now, cause, detail)
        if job.trigger.resolver == Consult.NONE or not is_checked(job.trigger, delivery):
            changes.doubt(job.trigger, delivery, _lost_answer(job, delivery))


def _lost_answer(job: Job, delivery: Delivery) -> Decision:
    """The decision about a request whose answer was lost, taken at once: its caller must not get it executed twice."""
    trigger = job.trigger
    decision = decide(
        properties(trigger),
        guaranteed=guaranteed(delivery),
        redelivery_count=delivery.redelivery_count,
        entry=Entry.STARTED if delivery.document_id else Entry.UNUSABLE_ID,
    )
    if decision.status is Status.IN_DOUBT:
        return decision
    detail = "Duplicates are not detected here, but the sender of a request must not get it executed twice."
    evidence = Evidence("redelivery", "redelivered", Status.IN_DOUBT.value, detail)
    return Decision(Status.IN_DOUBT, ask_resolver=False, suspend=False, evidence=(evidence,), group=Doubt.REDELIVERED)


def _resolved(job: Job, outcome: Outcome, delivery: Delivery, trigger: Trigger, changes: Changes) -> Job | None:
    assert outcome.answer is not None
    decision = conclude(properties(trigger), job.decision, outcome.answer, outcome.detail)
    if decision.suspend:
        changes.decided(delivery, decision)
        delivery.cause, delivery.cause_detail = outcome.cause, outcome.detail
        changes.wait(delivery, delivery.created_at)
        if not job.by_caller:
            changes.suspend(trigger, outcome.cause, outcome.detail)
    elif is_new(decision):
        changes.decided(delivery, decision)
        return _run_after_all(job, decision, delivery, trigger, changes)
    elif decision.status is Status.IN_DOUBT:
        changes.doubt(job.trigger, delivery, decision)
    else:
        changes.duplicate(job.trigger, delivery, decision)
    return None


def _run_after_all(job: Job, decision: Decision, delivery: Delivery, trigger: Trigger, changes: Changes) -> Job | None:
    """The resolver said NEW: the document is handed over under the same claim, unless its retries are used up.

    When a copy has got ahead since it was asked, what it said is no longer true: then the document is decided again.
    """
    if history.keeps(job.trigger, delivery) and history.overtaken(delivery):
        changes.wait(delivery, changes.now + _AGAIN)
        return None
    policy = retry_policy(trigger)
    if delivery.cause == UNKNOWN and not policy.until_success and delivery.retries > policy.max_retries:
        detail = f"{delivery.cause_detail} The resolver says each time that it was not processed."
        if policy.suspends:
            hold(delivery, trigger, UNKNOWN, detail, changes)
        else:
            changes.fail(job.trigger, delivery, UNKNOWN, detail)
        return None
    if absorbed(trigger, delivery, changes):
        return None
    kind = service_kind(job.trigger)
    if kind is not JobKind.CALLABLE and history.keeps(job.trigger, delivery):
        history.take_over(job.trigger, delivery, job.worker, changes.now)
    delivery.executions += 1
    changes.hand_over(delivery, job.claim, changes.now + job.lease, job.worker, delivery.taken_by)
    return replace(job, kind=kind, delivery=delivery, decision=decision, overrides=True)
