"""Values as XML Schema writes them, and as Python has them. Reading raises ValueError with a sentence for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

MAX_NUMBER = 999_999_999
_DATE_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:(Z)|([+-])(\d\d):(\d\d))?",
    re.ASCII,
)
_DURATION = re.compile(
    r"(-)?P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?", re.ASCII
)
_MICROSECOND = timedelta(microseconds=1)


def collapse(text: str) -> str:
    """Text without white space at its ends, and with one space for each other run of it."""
    return " ".join(text.split())


def read_date_time(text: str) -> datetime:
    """An xs:dateTime in UTC; one without a zone is meant so. Parts of a microsecond are cut off."""
    match = _DATE_TIME.fullmatch(collapse(text))
    if match is None:
        raise ValueError(f"{text!r} is not a time from the year 1 to 9999.")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, _utc, sign, hours, minutes = match.groups()[6:]
    microsecond = int((fraction or "0")[:6].ljust(6, "0"))
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0)) * (-1 if sign == "-" else 1)
    midnight = timedelta(days=1) if hour == 24 else timedelta()  # 24:00 is the first moment of the next day
    try:
        read = datetime(year, month, day, hour % 24, minute, second, microsecond, timezone(offset)) + midnight
        return read.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time from the year 1 to 9999.") from None


def write_date_time(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def read_duration(text: str) -> timedelta:
    """An xs:duration. A month counts as 30 days and a year as 365 (`has_months` tells)."""
    match = _DURATION.fullmatch(collapse(text))
    if match is None:
        raise ValueError(f"{text!r} is not a length of time.")
    sign, *numbers, fraction = match.groups()
    if sign:
        raise ValueError(f"{text!r} is less than no time.")
    try:
        years, months, days, hours, minutes, seconds = (int(number or 0) for number in numbers)
        microseconds = int((fraction or "0")[:6].ljust(6, "0"))
        return timedelta(
            days=365 * years + 30 * months + days,
            hours=hours,
            minutes=minutes,
            seconds=seconds,
            microseconds=microseconds,
        )
    except (OverflowError, ValueError):
        raise ValueError(f"{text[:40]!r} is longer than can be counted.") from None


def has_months(text: str) -> bool:
    """Whether the length of an xs:duration depends on the calendar."""
    return any(character in text.partition("T")[0] for character in "YM")


def write_duration(length: timedelta) -> str:
    """Days and seconds: what has the same length in every calendar."""
    days, rest = divmod(length, timedelta(days=1))
    seconds, microseconds = divmod(rest // _MICROSECOND, 1_000_000)
    fraction = f".{microseconds:06d}".rstrip("0") if microseconds else ""
    time = f"T{seconds}{fraction}S" if seconds or microseconds or not days else ""
    return f"P{days}D{time}" if days else f"P{time}"


def read_number(text: str) -> int:
    """A whole number from 0 to 999,999,999."""
    digits = collapse(text)
    if len(digits) > 30:
        raise ValueError(f"A number has {len(digits)} digits; {MAX_NUMBER:,} is the largest.")
    if not 0 <= int(digits) <= MAX_NUMBER:
        raise ValueError(f"{digits} is not between 0 and {MAX_NUMBER:,}.")
    return int(digits)


def read_boolean(text: str) -> bool:
    return collapse(text) in ("true", "1")


def write_boolean(value: bool) -> str:
    return "true" if value else "false"
