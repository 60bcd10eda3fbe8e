"""Lengths of time that follow from the settings of an agreement version, and how a sentence names them."""

from __future__ import annotations

from partners.fields import duration
from partners.models import AgreementVersion
from partners.terms import Reliability, resend_waits


def give_up_seconds(terms: Reliability) -> int:
    """From the first send to giving up: Timeout, then RetryInterval after each retry (spec 1, table 2-1)."""
    return terms.timeout + terms.retries * terms.retry_interval


def resend_seconds(terms: Reliability) -> int:
    """From the first send of a stream's message to the pair's suspension, if nothing of it is ever acknowledged."""
    waits = resend_waits(terms.resend_schedule)
    return sum(waits[: terms.retries + 1]) + waits[-1] * max(0, terms.retries + 1 - len(waits))


def durations(version: AgreementVersion) -> dict[str, str]:
    """Lengths of time that the sentences name."""
    return {
        "give_up": duration(give_up_seconds(version)),
        "recovery": duration(version.transport_retries * version.transport_retry_interval),
        "window": duration(version.memory_window),
        "partner_window": duration(version.partner_window),
        "exchange": duration(exchange(version)),
        "one_repeat": duration(one_repeat(version)),
        "repeat": duration(version.repeat_interval),
        "longest": duration(version.repeat_interval_max),
        "skew": duration(version.clock_skew),
        "resends": duration(resends(version)),
        "first_wait": duration(first_wait(version)),
        "life": duration(version.time_to_live),
        "timeout": duration(version.timeout),
        "final": duration(version.final_receipt_within),
    }


def exchange(version: AgreementVersion) -> int:
    """The longest that one attempt may take."""
    return version.partner_endpoint.connect_timeout + version.partner_endpoint.read_timeout


def one_repeat(version: AgreementVersion) -> int:
    """The least partner window in which an attempt that got no answer can be repeated."""
    return exchange(version) + version.repeat_interval


def schedule_fault(version: AgreementVersion) -> str:
    """Why the resend schedule cannot be read; "" when it can."""
    try:
        resend_waits(version.resend_schedule)
    except ValueError as error:
        return str(error)
    return ""


def first_wait(version: AgreementVersion) -> int:
    """0 for a schedule that cannot be read; a rule of its own says so."""
    return 0 if schedule_fault(version) else resend_waits(version.resend_schedule)[0]


def resends(version: AgreementVersion) -> int:
    """`resend_seconds`; 0 for a schedule that cannot be read."""
    return 0 if schedule_fault(version) else resend_seconds(version)
