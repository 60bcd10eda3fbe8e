"""The form of a pair's settings: its rhythm, in the units in which people think, and its run-book."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from messaging.exceptions import InvalidSubmission
from messaging.models import Pair

UNITS = (("86400", "days"), ("3600", "hours"), ("60", "minutes"))
_SECONDS = {unit: int(unit) for unit, _ in UNITS}


@dataclass(frozen=True, slots=True)
class Length:
    """A length of time as a number and its unit (seconds in one, as text)."""

    number: str
    unit: str


@dataclass(frozen=True, slots=True)
class Fields:
    """What the form shows."""

    every: Length
    grace: Length
    runbook: str


def settings_fields(pair: Pair, given: Mapping[str, str] | None = None) -> Fields:
    """The pair's settings, or what was typed."""
    if given is not None:
        return Fields(
            Length(given.get("every", ""), given.get("every_unit", "3600")),
            Length(given.get("grace", ""), given.get("grace_unit", "60")),
            given.get("runbook", ""),
        )
    return Fields(_length(pair.expected_every, "3600"), _length(pair.silence_grace, "60"), pair.runbook)


def read_settings(given: Mapping[str, str]) -> dict[str, object]:
    """The arguments of `services.settings.pair_update`. Raises InvalidSubmission."""
    errors: dict[str, list[str]] = {}
    values: dict[str, object] = {"runbook": given.get("runbook", "")}
    for name, field in (("every", "expected_every"), ("grace", "silence_grace")):
        text, unit = given.get(name, "").strip(), given.get(f"{name}_unit", "")
        if not text:
            values[field] = 0
        elif text.isascii() and text.isdigit() and len(text) < 8 and unit in _SECONDS:
            values[field] = int(text) * _SECONDS[unit]
        else:
            errors[name] = ["A whole number and its unit; leave it empty for none."]
    if errors:
        raise InvalidSubmission(errors)
    return values


def _length(seconds: int, otherwise: str) -> Length:
    """In the largest unit in which it is a whole number."""
    if not seconds:
        return Length("", otherwise)
    unit = next((unit for unit, _ in UNITS if seconds % int(unit) == 0), "60")
    return Length(str(max(1, seconds // int(unit))), unit)
