"""What a profile knows of an agreement's settings, the rows of its table of rules, and the times that they speak of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any, ClassVar

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from partners.choices import Semantics
from partners.fields import Seconds, duration
from partners.models import AgreementVersion
from partners.terms import Terms, resend_waits
from rmhub.language import gettext_lazy

Reliability = Terms | AgreementVersion  # both say how a message is repeated
SENT_ONCE = gettext_lazy(
    "Sends once and waits for no acknowledgement, so it neither repeats a message nor suspends the pair."
)


class Level(StrEnum):
    """Only errors keep a version from being activated."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: `broken` says whether it applies. `sentence` is formatted with what `Words` has of the version."""

    field: str
    code: str
    level: Level
    broken: Callable[[AgreementVersion], bool]
    sentence: str

    def said(self, version: AgreementVersion) -> str:
        """Return the sentence about this version."""
        return self.sentence.format_map(Words(version))


def gives_up_after_retries(terms: Reliability) -> str:
    """Say it as "Gives up after 2 h 5 m (1 send + 5 retries), then suspends the pair." """
    if terms.semantics != Semantics.ONCE_AND_ONLY_ONCE:
        return str(SENT_ONCE)
    said = ngettext(
        "Gives up after {time} (1 send + {count} retry), then suspends the pair.",
        "Gives up after {time} (1 send + {count} retries), then suspends the pair.",
        terms.retries,
    )
    if not terms.retries:
        said = _("Gives up after {time} (1 send, no retries), then suspends the pair.")
    return said.format(time=duration(give_up_seconds(terms)), count=terms.retries)


@dataclass(frozen=True, slots=True)
class Settings:
    """A profile's table. `names`: the settings that it has beside those of all profiles; `defaults`: where those of the
    model do not fit; `rules`: what contradicts what; `gives_up`: what happens to a message that nobody acknowledges.
    """

    names: frozenset[str]
    rules: tuple[Rule, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    gives_up: Callable[[Reliability], str] = gives_up_after_retries


class Words(dict[str, Any]):
    """What a sentence can say of a version: its settings, lengths of time among them as people write them or, with
    `_seconds` at the end of their name, as a number; what several settings amount to; and what stands beside it.
    """

    _BESIDE: ClassVar[Mapping[str, str]] = {
        "own_party": "agreement.own_party",
        "partner": "agreement.partner",
        "own_endpoint_party": "own_endpoint.party",
        "partner_endpoint_party": "partner_endpoint.party",
        "own_uri": "own_endpoint.uri",
        "own_transport": "own_endpoint.transport",
        "partner_transport": "partner_endpoint.transport",
    }

    def __init__(self, version: AgreementVersion) -> None:
        super().__init__()
        self._version = version
        fields = version._meta.concrete_fields
        self._lengths = {"transport_recovery", *(one.name for one in fields if isinstance(one, Seconds))}

    def __missing__(self, name: str) -> Any:
        if name in _AMOUNTS:
            return duration(_AMOUNTS[name](self._version))
        value = attrgetter(self._BESIDE.get(name, name.removesuffix("_seconds")))(self._version)
        return duration(value) if name in self._lengths else value


def give_up_seconds(terms: Reliability) -> int:
    """From the first send to giving up: Timeout, then RetryInterval after each retry (spec 1, table 2-1)."""
    return terms.timeout + terms.retries * terms.retry_interval


def resend_seconds(terms: Reliability) -> int:
    """From the first send of a stream's message to the pair's suspension, if nothing of it is ever acknowledged."""
    waits = resend_waits(terms.resend_schedule)
    return sum(waits[: terms.retries + 1]) + waits[-1] * max(0, terms.retries + 1 - len(waits))


def between(least: int, most: int) -> str:
    """Return `5 s to 10 m`, or `5 s` when both are the same."""
    if least == most:
        return duration(least)
    return _("{least} to {most}").format(least=duration(least), most=duration(most))


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


# Lengths of time that follow from several settings.
_AMOUNTS: Mapping[str, Callable[[AgreementVersion], int]] = {
    "give_up": give_up_seconds,
    "exchange": exchange,
    "one_repeat": one_repeat,
    "resends": resends,
    "first_wait": first_wait,
}
