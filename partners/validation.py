"""Settings of an agreement version that contradict each other, as one table of rules.

Pure: the version and its agreement, parties, identifiers, endpoints and services
are loaded before (`selectors.version`). Times are whole seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from partners.addresses import normalise_uri, uri_fault
from partners.choices import Semantics
from partners.models import DAY, AgreementVersion, Endpoint

MAX_GIVE_UP = 400 * DAY


class Level(StrEnum):
    """Only errors keep a version from being activated."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `sentence` says what to do; `code` is stable."""

    field: str
    code: str
    sentence: str
    level: Level


class Reliability(Protocol):
    """What an AgreementVersion and its Terms have in common here."""

    @property
    def semantics(self) -> str: ...
    @property
    def timeout(self) -> int: ...
    @property
    def retries(self) -> int: ...
    @property
    def retry_interval(self) -> int: ...


def give_up_seconds(terms: Reliability) -> int:
    """From the first send to giving up: Timeout, then RetryInterval after each retry (spec 1, table 2-1)."""
    return terms.timeout + terms.retries * terms.retry_interval


def gives_up_sentence(terms: Reliability) -> str:
    """What happens to a message that nobody acknowledges, e.g.

    "Gives up after 2 h 5 m (1 send + 5 retries), then suspends the pair."
    """
    if terms.semantics != Semantics.ONCE_AND_ONLY_ONCE:
        return "Sends once and waits for no acknowledgement, so it neither repeats a message nor suspends the pair."
    retries = {0: ", no retries", 1: " + 1 retry"}.get(terms.retries, f" + {terms.retries} retries")
    return f"Gives up after {duration(give_up_seconds(terms))} (1 send{retries}), then suspends the pair."


def duration(seconds: int) -> str:
    """`7500` as `2 h 5 m`: exact, units that are zero left out."""
    parts = []
    for unit, name in ((DAY, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, seconds = divmod(seconds, unit)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts) or "0 s"


def problems(version: AgreementVersion) -> list[Problem]:
    """Everything wrong with the version, in the order of the table; errors and warnings."""
    found = [
        Problem(rule.field, rule.code, rule.sentence.format(v=version, **_durations(version)), rule.level)
        for rule in RULES
        if rule.broken(version)
    ]
    found += _uri_problems("own_endpoint", "Our", version.own_endpoint)
    if version.partner_endpoint_id != version.own_endpoint_id:
        found += _uri_problems("partner_endpoint", "The partner's", version.partner_endpoint)
    return found


def errors_by_field(found: list[Problem]) -> dict[str, list[str]]:
    """The sentences of those problems that block, in the shape of InvalidInput.errors."""
    errors: dict[str, list[str]] = {}
    for problem in found:
        if problem.level is Level.ERROR:
            errors.setdefault(problem.field, []).append(problem.sentence)
    return errors


def _durations(version: AgreementVersion) -> dict[str, str]:
    return {
        "give_up": duration(give_up_seconds(version)),
        "recovery": duration(version.transport_retries * version.transport_retry_interval),
        "window": duration(version.memory_window),
    }


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


def _reliable(version: AgreementVersion) -> bool:
    return version.semantics == Semantics.ONCE_AND_ONLY_ONCE


def _remembers(version: AgreementVersion) -> bool:
    return version.semantics != Semantics.BEST_EFFORT or version.detect_repeats


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: `broken` says whether it applies; `sentence` is formatted with the version as `v`."""

    field: str
    code: str
    level: Level
    broken: Callable[[AgreementVersion], bool]
    sentence: str


RULES: tuple[Rule, ...] = (
    Rule(
        "own_party",
        "own_party_not_ours",
        Level.ERROR,
        lambda v: not v.agreement.own_party.is_own,
        "{v.agreement.own_party} is not marked as ours: mark it so, or make the agreement for a party that is.",
    ),
    Rule(
        "own_party",
        "own_party_unidentified",
        Level.ERROR,
        lambda v: not v.agreement.own_party.identifiers.all(),
        "{v.agreement.own_party} has no party identifier to write into messages: give it one, such as its DUNS number.",
    ),
    Rule(
        "partner",
        "partner_unidentified",
        Level.ERROR,
        lambda v: not v.agreement.partner.identifiers.all(),
        "{v.agreement.partner} has no party identifier to write into messages: give it one, such as its DUNS number.",
    ),
    Rule(
        "partner_endpoint",
        "endpoints_same",
        Level.ERROR,
        lambda v: v.own_endpoint_id == v.partner_endpoint_id,
        "Our endpoint and the partner's are the same one: choose an endpoint of {v.agreement.partner}.",
    ),
    Rule(
        "own_endpoint",
        "own_endpoint_of_other_party",
        Level.ERROR,
        lambda v: v.own_endpoint.party_id != v.agreement.own_party_id,
        "Our endpoint belongs to {v.own_endpoint.party}: choose one of {v.agreement.own_party}.",
    ),
    Rule(
        "partner_endpoint",
        "partner_endpoint_of_other_party",
        Level.ERROR,
        lambda v: v.partner_endpoint.party_id != v.agreement.partner_id,
        "The partner's endpoint belongs to {v.partner_endpoint.party}: choose one of {v.agreement.partner}.",
    ),
    Rule(
        "partner_endpoint",
        "uris_same",
        Level.ERROR,
        lambda v: (
            v.own_endpoint_id != v.partner_endpoint_id
            and normalise_uri(v.own_endpoint.uri) == normalise_uri(v.partner_endpoint.uri)
        ),
        "Both endpoints have the URI {v.own_endpoint.uri}, so that sender and receiver could not be told apart: "
        "correct the wrong one.",
    ),
    Rule(
        "services",
        "services_missing",
        Level.ERROR,
        lambda v: not v.services.all(),
        "The agreement allows no service and action, so that every message would be refused: add at least one.",
    ),
    Rule(
        "timeout",
        "timeout_zero",
        Level.ERROR,
        lambda v: v.timeout == 0,
        "Timeout is 0 s, so that no answer could ever be in time: set it to at least 1 s.",
    ),
    Rule(
        "retry_interval",
        "retry_interval_zero",
        Level.ERROR,
        lambda v: _reliable(v) and v.retries > 0 and v.retry_interval == 0,
        "RetryInterval is 0 s with Retries {v.retries}: all retries would be sent at once. "
        "Set RetryInterval to at least 1 s, or Retries to 0.",
    ),
    Rule(
        "retries",
        "retries_without_acknowledgement",
        Level.ERROR,
        lambda v: not _reliable(v) and v.retries > 0,
        "{v.semantics} messages are not acknowledged, so there is nothing to retry on: "
        "set Retries to 0, or the semantics to OnceAndOnlyOnce.",
    ),
    Rule(
        "retries",
        "give_up_too_late",
        Level.ERROR,
        lambda v: give_up_seconds(v) > MAX_GIVE_UP,
        "A message would be given up only after {give_up}, and 400 days are the most: "
        "lower Timeout, Retries or RetryInterval.",
    ),
    Rule(
        "memory_window",
        "memory_window_short",
        Level.ERROR,
        lambda v: _remembers(v) and v.memory_window < give_up_seconds(v),
        "The memory window of {window} is shorter than the {give_up} for which a message may be repeated, "
        "so that a late repeat would not be recognised: set it to at least {give_up}.",
    ),
    Rule(
        "transient_ceiling",
        "transient_ceiling_short",
        Level.ERROR,
        lambda v: _reliable(v) and v.transient_ceiling < v.retry_interval,
        "The transient error ceiling of {v.transient_ceiling} s is shorter than RetryInterval ({v.retry_interval} s), "
        "so that the first transient error would open an incident: raise the ceiling or lower RetryInterval.",
    ),
    Rule(
        "transport_retries",
        "transport_recovery_long",
        Level.WARNING,
        lambda v: v.transport_retries * v.transport_retry_interval > v.timeout > 0,
        "Transport recovery takes up to {recovery}, longer than Timeout ({v.timeout} s): "
        "lower its retries or their interval, or raise Timeout.",
    ),
    Rule(
        "timeout",
        "network_timeouts_long",
        Level.WARNING,
        lambda v: v.partner_endpoint.connect_timeout + v.partner_endpoint.read_timeout > 10 * v.timeout > 0,
        "The partner endpoint's connect and read timeouts add up to more than ten times Timeout ({v.timeout} s): "
        "lower them, or raise Timeout.",
    ),
    Rule(
        "strict_sequence",
        "strict_sequence_unused",
        Level.WARNING,
        lambda v: not _reliable(v) and v.strict_sequence,
        "{v.semantics} messages have no sequence numbers, so that the strict sequence has no effect: switch it off.",
    ),
)
