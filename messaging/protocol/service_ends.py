"""What the end of a trigger's service leads to: spec 4 and protocols 4.5. Each row of `AFTER` names its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Ran(StrEnum):
    """How a service ended."""

    OK = "ok"
    TRANSIENT = "transient"  # certain not to have happened: it may simply be run again
    ERROR = "error"
    UNKNOWN = "unknown"  # it may have happened or not


DEFAULT_RETRY_STATUSES = frozenset({408, 425, 429, 503})
# Causes of a failed transmission (docs/causes.md) that came up before the first byte of the request went out.
NOTHING_SENT = frozenset(
    {
        "dns_error",
        "connect_refused",
        "connect_timeout",
        "tls_handshake",
        "cert_expired",
        "cert_untrusted",
        "proxy_error",
        "circuit_open",
        "not_begun",
    }
)
# The credential is not accepted; said before anything is executed (protocols 2.4).
ACCESS_REFUSED = frozenset({401, 403})
# A gateway speaks: what became of the request behind it is not known.
_GATEWAY = frozenset({502, 504})


def from_http(status: int | None, cause: str, retry_statuses: frozenset[int]) -> Ran:
    """How a service that is called by HTTP ended. `status` None: no answer came, for `cause`.

    `retry_statuses`: those by which the service says that it has not processed the document and may later.
    """
    if status is None:
        return Ran.TRANSIENT if cause in NOTHING_SENT else Ran.UNKNOWN
    if 200 <= status < 300:
        return Ran.OK
    if status in retry_statuses:
        return Ran.TRANSIENT
    return Ran.UNKNOWN if status in _GATEWAY else Ran.ERROR


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What a trigger does about trouble (protocols 4.5). `interval`: seconds between attempts.

    `suspends`: on retry failure, suspend and retry later; else it counts as an error of the service.
    """

    until_success: bool
    max_retries: int
    interval: float
    suspends: bool
    suspend_on_error: bool


class Next(StrEnum):
    """What to do after a service has ended."""

    COMPLETE = "complete"  # history: completed
    RETRY = "retry"  # history: started is released; again after the interval
    REDELIVER = "redeliver"  # history: started stays; redelivery count + 1; decided again
    FAIL = "fail"  # history: completed; the next document goes on
    FAIL_AND_SUSPEND = "fail_and_suspend"
    SUSPEND = "suspend"  # history: started is released; the document keeps its place


AfterApplies = Callable[[Ran, int, bool, RetryPolicy], bool]


@dataclass(frozen=True, slots=True)
class AfterRule:
    """One row: when it applies (outcome, retries used, duplicates detected, policy) and what it leads to."""

    source: str
    applies: AfterApplies
    leads_to: Next


AFTER: tuple[AfterRule, ...] = (
    AfterRule("spec 4, overview", lambda ran, used, detect, p: ran is Ran.OK, Next.COMPLETE),
    # Three steps find out whether it happened, with what the first attempt has left in the history.
    AfterRule("spec 4, > 0", lambda ran, used, detect, p: ran is Ran.UNKNOWN and detect, Next.REDELIVER),
    AfterRule(
        "protocols 4.5; W27, W35",
        lambda ran, used, detect, p: ran is not Ran.ERROR and (p.until_success or used < p.max_retries),
        Next.RETRY,
    ),
    AfterRule("protocols 4.5; W28", lambda ran, used, detect, p: ran is not Ran.ERROR and p.suspends, Next.SUSPEND),
    # Retries that are used up without suspension are an error of the service (4.5, "Throw exception").
    AfterRule("protocols 4.5; W34", lambda ran, used, detect, p: p.suspend_on_error, Next.FAIL_AND_SUSPEND),
    AfterRule("protocols 4.5; W27, W33", lambda ran, used, detect, p: True, Next.FAIL),
)


def after(ran: Ran, *, retries_used: int, detect_duplicates: bool, policy: RetryPolicy) -> Next:
    """What a service's end leads to: the first row of `AFTER` that applies.

    `retries_used`: since the document was last handed over, not counting the first execution.
    `detect_duplicates`: this document is checked (the trigger detects duplicates, and the document is guaranteed).
    """
    for rule in AFTER:
        if rule.applies(ran, retries_used, detect_duplicates, policy):
            return rule.leads_to
    raise AssertionError("the last rule always applies")
