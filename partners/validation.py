"""Settings of an agreement version that contradict each other (`partners.rules`), and what they amount to in words.

Pure: the version and its agreement, parties, identifiers, endpoints and services
are loaded before (`selectors.version`). Times are whole seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from partners.choices import Profile, Semantics
from partners.fields import duration
from partners.models import AgreementVersion, Endpoint
from partners.rules import BY_PROFILE, RULES, Level
from partners.rules.rule import Reliability, give_up_seconds, resend_seconds
from partners.terms import resend_waits
from partners.transports import uri_fault

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
    """What happens to a message that nobody acknowledges, e.g.

    "Gives up after 2 h 5 m (1 send + 5 retries), then suspends the pair." or, of repeatable requests,
    "Repeats for up to 1 d, every 20 s to 10 m, then the message is in doubt.", or, of streams,
    "Sends all that is unacknowledged again after 30 s to 6 h; 10 resends without progress (13 h 46 m 30 s) suspend the
    pair. A message expires after 4 d." or, of transactions,
    "Sends what awaits an answer again after 5 s to 10 m, and never gives up by itself; 10 resends without an answer
    open an incident."
    """
    if terms.profile == Profile.WSAT:
        return _transaction_sentence(terms)
    if terms.profile == Profile.REPEATABLE:
        least, most = duration(terms.repeat_interval), duration(terms.repeat_interval_max)
        every = least if least == most else f"{least} to {most}"
        return f"Repeats for up to {duration(terms.partner_window)}, every {every}, then the message is in doubt."
    if terms.semantics != Semantics.ONCE_AND_ONLY_ONCE:
        return "Sends once and waits for no acknowledgement, so it neither repeats a message nor suspends the pair."
    if terms.profile == Profile.STREAM:
        return _stream_sentence(terms)
    retries = {0: ", no retries", 1: " + 1 retry"}.get(terms.retries, f" + {terms.retries} retries")
    return f"Gives up after {duration(give_up_seconds(terms))} (1 send{retries}), then suspends the pair."


def resend_words(schedule: str | tuple[int, ...]) -> str:
    """`3 × 30 s, 3 × 5 m, then every 6 h` of a resend schedule: its last wait repeats."""
    waits = resend_waits(schedule)
    runs = [(wait, sum(1 for _ in same)) for wait, same in groupby(waits)]
    *before, (last, _) = runs
    said = [duration(wait) if count == 1 else f"{count} × {duration(wait)}" for wait, count in before]
    return ", ".join([*said, f"then every {duration(last)}" if said else f"every {duration(last)}"])


def _transaction_sentence(terms: Reliability) -> str:
    least, most = duration(terms.repeat_interval), duration(terms.repeat_interval_max)
    resends = "1 resend" if terms.retries == 1 else f"{terms.retries} resends"
    return (
        f"Sends what awaits an answer again after {least if least == most else f'{least} to {most}'}, and never gives "
        f"up by itself; {resends} without an answer open{'s' * (terms.retries == 1)} an incident."
    )


def _stream_sentence(terms: Reliability) -> str:
    waits = resend_waits(terms.resend_schedule)[: terms.retries + 1]
    least, most = duration(min(waits)), duration(max(waits))
    resends = "1 resend" if terms.retries == 1 else f"{terms.retries} resends"
    said = (
        f"Sends all that is unacknowledged again after {least if least == most else f'{least} to {most}'}; "
        f"{resends} without progress ({duration(resend_seconds(terms))}) suspend{'s' * (terms.retries == 1)} the pair."
    )
    life = f" A message expires after {duration(terms.time_to_live)}." if terms.time_to_live else ""
    return said + life


def problems(version: AgreementVersion, *, rivals: Sequence[AgreementVersion] = ()) -> list[Problem]:
    """Everything wrong with the version, in the order of the table; errors and warnings.

    `rivals`: versions of other agreements in force on the same two endpoints (`selectors.rivals`).
    """
    found = [
        Problem(rule.field, rule.code, rule.said(version), rule.level)
        for rule in BY_PROFILE[version.profile].rules
        if rule.broken(version)
    ]
    found += _uri_problems("own_endpoint", "Our", version.own_endpoint)
    if version.partner_endpoint_id != version.own_endpoint_id:
        found += _uri_problems("partner_endpoint", "The partner's", version.partner_endpoint)
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
            sentence = (
                f"Agreement {rival} uses the same two endpoints with another profile "
                f"({rival.get_profile_display()}), and a pair of URIs has one profile: "
                "give this agreement an endpoint of its own on at least one side."
            )
            yield Problem("profile", "pair_of_other_profile", sentence, Level.ERROR)
            return


def _uri_problems(field: str, whose: str, endpoint: Endpoint) -> Iterator[Problem]:
    named = (
        ("messaging service URI", endpoint.uri, True),
        ("error URI", endpoint.error_uri, True),
        ("transport address", endpoint.address, False),
        ("transport address for errors", endpoint.error_address, False),
    )
    for name, uri, needed in named:
        fault = uri_fault(uri, endpoint.transport) if uri or needed else None
        if fault:
            code, sentence = fault
            yield Problem(field, code, f"{whose} endpoint's {name}: {sentence}", Level.ERROR)
