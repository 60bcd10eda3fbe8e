"""The second step of a delivery: the service is run, or the resolver asked. No transaction is open meanwhile.

The exception is a callable, which runs inside the transaction that records it (spec 4; docs/decisions.md): what it does
with Django's database connection, the document history and the delivery's end are committed together or not at all.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress

from django.db import Error, transaction

from messaging import storage
from messaging.applications import RESOLVERS, SERVICES, Document, Reply, Service, Transient
from messaging.choices import Consult
from messaging.deliveries.services import calling, documents, history, together
from messaging.deliveries.services.changes import Changes
from messaging.deliveries.services.job import Job, JobKind, Outcome, failure, missing
from messaging.engine import forgetting
from messaging.models import Delivery
from messaging.protocol.processing import Answer, Entry, read_answer
from messaging.protocol.service_ends import Ran
from messaging.transports.base import printable
from partners.secrets import SecretUnreadable, decrypt
from rmhub import clock

log = logging.getLogger(__name__)

MAX_ANSWER = 64 * 1024  # bytes of what a resolver says
_NOT_NOW = frozenset({408, 425, 429})  # a resolver that says it may answer later; and 5xx


class _Overtaken(Exception):
    """Somebody else has the document in work, or has ended it: rolled back, and decided again."""


class _Failed(Exception):
    """The callable itself raised what is the cause of this."""


def talk(job: Job) -> Outcome:
    """Runs what the job names and says what came of it. Never raises. Call outside of any transaction."""
    try:
        outcome = _RUN[job.kind](job)
    except Exception as error:
        # A mistake of ours. The service may have been run or not, and only one answer is safe.
        log.exception("hand-over broke", extra={"action": "talk_failed", "delivery": job.delivery.public_id})
        detail = printable(f"{type(error).__name__}: {error}")[:500]
        if job.kind is JobKind.RESOLVE:
            return Outcome(answer=Answer.FAILED, detail=detail)
        if job.kind in (JobKind.CALLABLE, JobKind.ATOMIC):  # rolled back, or will be: its claim does not count any more
            return Outcome(Ran.TRANSIENT, cause="internal_error", detail=detail)
        return Outcome(Ran.UNKNOWN, cause="service_outcome_unknown", detail=detail)
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


# --- callables ---


def _call(job: Job) -> Outcome:
    trigger = job.trigger
    service = SERVICES.get(trigger.callable_name)
    if service is None:
        return missing(trigger.callable_name)
    try:
        document = documents.load(trigger, job.delivery)
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
        document = documents.load(trigger, job.delivery)
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
        documents.question(document),
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
