"""What a profile knows of an agreement's settings, the rows of its table of rules, and the times that they speak of."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from partners.choices import Semantics
from partners.fields import duration
from partners.models import AgreementVersion
from partners.terms import Terms, resend_waits

Reliability = Terms | AgreementVersion  # both say how a message is repeated
SENT_ONCE = "Sends once and waits for no acknowledgement, so it neither repeats a message nor suspends the pair."


class Level(StrEnum):
    """Only errors keep a version from being activated."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: `broken` says whether it applies. `sentence` is formatted with the version as `v` and `durations`; what
    is to be written as a length of time has the format `span`.
    """

    field: str
    code: str
    level: Level
    broken: Callable[[AgreementVersion], bool]
    sentence: str

    def said(self, version: AgreementVersion) -> str:
        """Return the sentence about this version."""
        return _Sentences().vformat(self.sentence, (), {"v": version, **durations(version)})


def gives_up_after_retries(terms: Reliability) -> str:
    """Say it as "Gives up after 2 h 5 m (1 send + 5 retries), then suspends the pair." """
    if terms.semantics != Semantics.ONCE_AND_ONLY_ONCE:
        return SENT_ONCE
    retries = {0: ", no retries", 1: " + 1 retry"}.get(terms.retries, f" + {terms.retries} retries")
    return f"Gives up after {duration(give_up_seconds(terms))} (1 send{retries}), then suspends the pair."


@dataclass(frozen=True, slots=True)
class Settings:
    """A profile's table. `names`: the settings that it has beside those of all profiles; `defaults`: where those of the
    model do not fit; `rules`: what contradicts what; `gives_up`: what happens to a message that nobody acknowledges.
    """

    names: frozenset[str]
    rules: tuple[Rule, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    gives_up: Callable[[Reliability], str] = gives_up_after_retries


class _Sentences(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        return duration(value) if format_spec == "span" else super().format_field(value, format_spec)


def durations(version: AgreementVersion) -> dict[str, int]:
    """Return the lengths of time that follow from several settings, in seconds."""
    return {
        "give_up": give_up_seconds(version),
        "exchange": exchange(version),
        "one_repeat": one_repeat(version),
        "resends": resends(version),
        "first_wait": first_wait(version),
    }


def give_up_seconds(terms: Reliability) -> int:
    """From the first send to giving up: Timeout, then RetryInterval after each retry (spec 1, table 2-1)."""
    return terms.timeout + terms.retries * terms.retry_interval


def resend_seconds(terms: Reliability) -> int:
    """From the first send of a stream's message to the pair's suspension, if nothing of it is ever acknowledged."""
    waits = resend_waits(terms.resend_schedule)
    return sum(waits[: terms.retries + 1]) + waits[-1] * max(0, terms.retries + 1 - len(waits))


def between(least: int, most: int) -> str:
    """Return `5 s to 10 m`, or `5 s` when both are the same."""
    return duration(least) if least == most else f"{duration(least)} to {duration(most)}"


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
