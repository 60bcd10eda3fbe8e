"""What is handed over, and what comes back: shared by the three steps claim, talk and record."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from django.db import IntegrityError, OperationalError
from django.db.utils import InterfaceError

from messaging.applications import Reply, Transient
from messaging.choices import Consult, ResolverFailure, RetryUntil, ServiceKind, WhenExhausted
from messaging.models import Delivery, Trigger
from messaging.protocol.envelope import Semantics
from messaging.protocol.processing import Answer, Decision, Properties
from messaging.protocol.service_ends import Ran, RetryPolicy
from messaging.transports.base import printable

# How much longer than everything that is said may take a hand-over is left alone before it counts as lost.
LEASE_MARGIN = timedelta(seconds=30)
MAX_WAIT = 86_400  # seconds: no Retry-After counts for more


class JobKind(StrEnum):
    HTTP = "http"
    CALLABLE = "callable"
    ATOMIC = "atomic"  # several services in one transaction
    LEASED = "leased"  # a consumer of a pull queue has it: nothing to say to anybody
    RESOLVE = "resolve"  # the resolver is asked first


@dataclass(frozen=True, slots=True)
class Job:
    """One delivery that is claimed. Trigger and delivery (with its message) are as they were then: only to be read.

    `claim` tells which hand-over an outcome belongs to. `by_caller`: whoever sent the request waits for the outcome in
    this very process, so nothing is retried. `overrides`: a resolver or a person said NEW, whatever the history has.
    """

    kind: JobKind
    trigger: Trigger
    delivery: Delivery
    claim: uuid.UUID
    decision: Decision
    lease: timedelta
    worker: int = 0
    by_caller: bool = False
    overrides: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a job: `ran` of a service, `answer` of a resolver.

    `cause`: code of docs/causes.md for what is no success. `kept`: what the service said, cut, for people.
    `retry_after`: seconds. `misconfigured`: nothing was said to anybody, and nothing will be before a person changes
    the trigger. `recorded`: a callable's transaction has recorded it, or the atomic transaction that it is handed over
    in will. `again`: somebody else has the document in progress, so it has to be decided again. `abandons`: the
    coordination that nobody goes on with; to be rolled back when the outcome is recorded.
    """

    ran: Ran | None = None
    answer: Answer | None = None
    status: int | None = None
    cause: str = ""
    detail: str = ""
    kept: bytes = b""
    reply: Reply | None = None
    retry_after: int | None = None
    misconfigured: bool = False
    recorded: bool = False
    again: bool = False
    abandons: uuid.UUID | None = None


def service_kind(trigger: Trigger) -> JobKind:
    """How the trigger's documents are handed over."""
    return {
        ServiceKind.HTTP.value: JobKind.HTTP,
        ServiceKind.CALLABLE.value: JobKind.CALLABLE,
        ServiceKind.PULL.value: JobKind.LEASED,
        ServiceKind.ATOMIC.value: JobKind.ATOMIC,
    }[trigger.kind]


def lease_of(trigger: Trigger) -> timedelta:
    """How long a hand-over may take before it counts as lost."""
    if trigger.kind == ServiceKind.PULL:
        return timedelta(seconds=trigger.lease_seconds)
    return timedelta(seconds=trigger.timeout) + LEASE_MARGIN


def properties(trigger: Trigger) -> Properties:
    """The trigger's exactly-once properties, as the decision takes them."""
    return Properties(
        detect_duplicates=trigger.detect_duplicates,
        use_history=trigger.use_history,
        has_resolver=trigger.resolver != Consult.NONE,
        resolver_failure_suspends=trigger.resolver_failure == ResolverFailure.SUSPEND,
        retry_suspends=trigger.when_exhausted == WhenExhausted.SUSPEND,
    )


def retry_policy(trigger: Trigger) -> RetryPolicy:
    """What the trigger does about trouble, as the decision takes it."""
    return RetryPolicy(
        until_success=trigger.retry_until == RetryUntil.SUCCESS,
        max_retries=trigger.max_retries,
        interval=trigger.retry_interval,
        suspends=trigger.when_exhausted == WhenExhausted.SUSPEND,
        suspend_on_error=trigger.ordered and trigger.suspend_on_error,
    )


def guaranteed(delivery: Delivery) -> bool:
    """Whether its sender wants the document processed once. A volatile one is executed as often as it comes.

    The firing of a join always is: it stands for all its documents, of which some may be guaranteed.
    """
    return delivery.join_id is not None or delivery.message.semantics != Semantics.BEST_EFFORT


def is_checked(trigger: Trigger, delivery: Delivery) -> bool:
    """Whether duplicates of the document are detected at all."""
    return trigger.detect_duplicates and guaranteed(delivery)


log = logging.getLogger(__name__)


def missing(name: str) -> Outcome:
    """No application registers a service of this name."""
    detail = f"No installed application registers a service {name!r}."
    return Outcome(Ran.TRANSIENT, cause="callable_missing", detail=detail, misconfigured=True)


def failure(error: BaseException) -> Outcome:
    """What it means that a callable raised this. All that it did is rolled back."""
    detail = printable(f"{type(error).__name__}: {error}")[:500]
    if isinstance(error, Transient):
        return Outcome(Ran.TRANSIENT, cause="service_not_now", detail=detail, retry_after=error.retry_after)
    if isinstance(error, OperationalError | InterfaceError) and not isinstance(error, IntegrityError):
        # The database's trouble, and not the document's: a deadlock, a lost connection.
        return Outcome(Ran.TRANSIENT, cause="service_not_now", detail=detail)
    log.warning("callable failed", exc_info=error, extra={"action": "callable_failed"})
    return Outcome(Ran.ERROR, cause="service_error", detail=detail)
