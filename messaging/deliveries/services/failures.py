"""What it means that a callable did not do its work."""

from __future__ import annotations

import logging

from django.db import IntegrityError, OperationalError
from django.db.utils import InterfaceError

from messaging.applications import Transient
from messaging.deliveries.services.job import Outcome
from messaging.protocol.service_ends import Ran
from messaging.transports.base import printable

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
