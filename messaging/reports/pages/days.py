"""Days of a form's range, UTC, both included; empty = open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from messaging.exceptions import InvalidSubmission


@dataclass(frozen=True, slots=True)
class Days:
    """`begin` is inclusive, `end` exclusive."""

    begin: datetime | None
    end: datetime | None

    @property
    def first(self) -> str:
        """What stands in the field of the first day."""
        return self.begin.astimezone(UTC).date().isoformat() if self.begin else ""

    @property
    def last(self) -> str:
        """What stands in the field of the last day."""
        return (self.end.astimezone(UTC) - timedelta(microseconds=1)).date().isoformat() if self.end else ""


def read_days(given: Mapping[str, str]) -> Days:
    """The fields `from` and `to`. Raises InvalidSubmission."""
    errors: dict[str, list[str]] = {}
    first, last = _day(given, "from", errors), _day(given, "to", errors)
    if not errors and first and last and last < first:
        errors["to"] = ["It is before the first day."]
    if errors:
        raise InvalidSubmission(errors)
    begin = datetime.combine(first, time(), UTC) if first else None
    end = datetime.combine(last, time(), UTC) + timedelta(days=1) if last else None
    return Days(begin, end)


def _day(given: Mapping[str, str], name: str, errors: dict[str, list[str]]) -> date | None:
    text = given.get(name, "").strip()
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or not 1900 <= day.year <= 9000:
        errors[name] = ["Give a day as YYYY-MM-DD, or leave it empty."]
        return None
    return day
