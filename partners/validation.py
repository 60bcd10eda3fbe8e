"""Settings of an agreement version that contradict each other (`partners.rules`), and what they amount to in words.

Pure: the version and its agreement, parties, identifiers, endpoints and services
are loaded before (`selectors.version`). Times are whole seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from django.utils.translation import gettext as _

from partners.fields import duration
from partners.models import AgreementVersion, Endpoint
from partners.rules import BY_PROFILE, RULES, Level
from partners.rules.ebxml import EBXML
from partners.rules.rule import Reliability, give_up_seconds
from partners.terms import resend_waits
from partners.transports import uri_fault
from rmhub.language import gettext_lazy

__all__ = [
    "RULES",
    "Level",
    "Problem",
    "duration",
    "errors_by_field",
    "give_up_seconds",
    "gives_up_sentence",
    "problems",
    "resend_words",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `sentence` says what to do; `code` is stable."""

    field: str
    code: str
    sentence: str
    level: Level


def gives_up_sentence(terms: Reliability) -> str:
    """What happens to a message that nobody acknowledges."""
    return BY_PROFILE.get(terms.profile, EBXML).gives_up(terms)  # a draft may name a profile that there is not


def resend_words(schedule: str | tuple[int, ...]) -> str:
    """`3 × 30 s, 3 × 5 m, then every 6 h` of a resend schedule: its last wait repeats."""
    waits = resend_waits(schedule)
    runs = [(wait, sum(1 for _ in same)) for wait, same in groupby(waits)]
    *before, (last, __) = runs
    said = [duration(wait) if count == 1 else f"{count} × {duration(wait)}" for wait, count in before]
    every = _("then every {time}") if said else _("every {time}")
    return ", ".join([*said, every.format(time=duration(last))])


def problems(version: AgreementVersion, *, rivals: Sequence[AgreementVersion] = ()) -> list[Problem]:
    """Everything wrong with the version, in the order of the table; errors and warnings.

    `rivals`: versions of other agreements in force on the same two endpoints (`selectors.rivals`).
    """
    found = [
        Problem(rule.field, rule.code, rule.said(version), rule.level)
        for rule in BY_PROFILE[version.profile].rules
        if rule.broken(version)
    ]
    found += _uri_problems("own_endpoint", _OURS, version.own_endpoint)
    if version.partner_endpoint_id != version.own_endpoint_id:
        found += _uri_problems("partner_endpoint", _THEIRS, version.partner_endpoint)
    found += _profile_problems(version, rivals)
    return found


def errors_by_field(found: list[Problem]) -> dict[str, list[str]]:
    """The sentences of those problems that block, in the shape of InvalidInput.errors."""
    errors: dict[str, list[str]] = {}
    for problem in found:
        if problem.level is Level.ERROR:
            errors.setdefault(problem.field, []).append(problem.sentence)
    return errors


def _profile_problems(version: AgreementVersion, rivals: Sequence[AgreementVersion]) -> Iterator[Problem]:
    """One pair of URIs is one pair of messaging services, and a pair speaks one profile."""
    for rival in rivals:
        if rival.profile != version.profile:
            sentence = _(
                "Agreement {agreement} uses the same two endpoints with another profile ({profile}), and a pair of "
                "URIs has one profile: give this agreement an endpoint of its own on at least one side."
            ).format(agreement=rival, profile=rival.get_profile_display())
            yield Problem("profile", "pair_of_other_profile", sentence, Level.ERROR)
            return


# What is wrong with a URI of an endpoint: the messaging service's, errors', and where bytes of both really go.
_OURS = (
    gettext_lazy("Our endpoint's messaging service URI: {sentence}"),
    gettext_lazy("Our endpoint's error URI: {sentence}"),
    gettext_lazy("Our endpoint's transport address: {sentence}"),
    gettext_lazy("Our endpoint's transport address for errors: {sentence}"),
)
_THEIRS = (
    gettext_lazy("The partner's endpoint's messaging service URI: {sentence}"),
    gettext_lazy("The partner's endpoint's error URI: {sentence}"),
    gettext_lazy("The partner's endpoint's transport address: {sentence}"),
    gettext_lazy("The partner's endpoint's transport address for errors: {sentence}"),
)


def _uri_problems(field: str, said: tuple[str, str, str, str], endpoint: Endpoint) -> Iterator[Problem]:
    named = (
        (said[0], endpoint.uri, True),
        (said[1], endpoint.error_uri, True),
        (said[2], endpoint.address, False),
        (said[3], endpoint.error_address, False),
    )
    for words, uri, needed in named:
        fault = uri_fault(uri, endpoint.transport) if uri or needed else None
        if fault:
            code, sentence = fault
            yield Problem(field, code, words.format(sentence=sentence), Level.ERROR)
