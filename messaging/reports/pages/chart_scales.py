"""Scales, ticks and texts of charts: what numbers, lengths of time and instants look like on an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from django.utils import dateformat
from django.utils.formats import get_format
from django.utils.translation import gettext as _

from messaging.journal.wording import span
from messaging.templatetags.hub import octets, took
from rmhub import language

# Ends and steps of a logarithmic axis of seconds, as people read time.
_LOG_TIMES = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 86_400.0 * 4, 86_400.0 * 40)


def number(value: float | int | None) -> str:
    """`1,234`, `0.25`; a dash for nothing."""
    if value is None:
        return "—"
    if isinstance(value, int) or float(value).is_integer():
        return language.number(int(value))
    return decimals(value, 2) if abs(value) >= 0.01 else pointed(f"{value:.2g}")


def decimals(value: float, places: int) -> str:
    """Rounded to so many places, as the language writes it: `1,234.50`."""
    return language.number(round(value, places), places)


def pointed(text: str) -> str:
    """A number that is written with a point, with the sign that the language has for it."""
    return text.replace(".", str(get_format("DECIMAL_SEPARATOR")))


def share(value: float | None) -> str:
    """Of 0 to 1, as `12.3 %`. What is not quite nothing, or not quite all, never looks as if it were."""
    if value is None:
        return "—"
    if 0 < value < 0.001:
        return pointed("< 0.1 %")
    if 0.999 < value < 1:
        return pointed("> 99.9 %")
    return pointed(f"{100 * value:.1f} %" if value not in (0, 1) else f"{100 * value:.0f} %")


def seconds(value: float | None) -> str:
    """`84 ms`, `1.24 s`, `3 h 12 m`."""
    return "—" if value is None else took(float(value))


def amount(value: float | None, unit: str) -> str:
    """A value with its unit: s, bytes, share, or a plain number."""
    if value is None:
        return "—"
    if unit == "s":
        return span(value) if isinstance(value, int) else seconds(value)
    if unit == "bytes":
        return octets(int(value))
    return share(value) if unit == "share" else number(value)


def short(value: float, unit: str) -> str:
    """The same for an axis, as short as can be: `200 ms`, `5 m`, `1.2 M`, `50 %`."""
    if unit == "s":
        if value == 0:
            return "0"
        if value < 1:
            return pointed(f"{value * 1000:g} ms")
        return pointed(f"{value:g} s") if value < 60 else span(value)
    if unit == "share":
        return pointed(f"{100 * value:g} %")
    for limit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return pointed(f"{value / limit:g} {name}")
    return pointed(f"{value:g}")


def rough(value: float) -> str:
    """A length of time for a narrow place, in one unit: `64 s`, `17 m`, `4.6 h`, `12 d`."""
    units = (
        (120, 1, _("{count} s")),
        (7200, 60, _("{count} m")),
        (172_800, 3600, _("{count} h")),
        (math.inf, 86_400, _("{count} d")),
    )
    unit, said = next((unit, said) for limit, unit, said in units if value < limit)
    count = value / unit
    return said.format(count=f"{count:.0f}" if count >= 10 else pointed(f"{count:.1f}".removesuffix(".0")))


def ticks(greatest: float, wanted: int = 4) -> list[float]:
    """Round values from 0 to at least `greatest`, about `wanted` of them beside 0."""
    if greatest <= 0:
        return [0.0, 1.0]
    step = _round_step(greatest, wanted)
    count = max(1, math.ceil(round(greatest / step, 9)))
    return [round(step * index, 9) for index in range(count + 1)]


def _round_step(greatest: float, wanted: int) -> float:
    power = 10.0 ** math.floor(math.log10(greatest / wanted))
    found = next(power * factor for factor in (1, 2, 5, 10) if greatest / (power * factor) <= wanted + 1)
    return max(1.0, found)


def log_height(value: float, greatest: float) -> float:
    """0 to 1 on a logarithmic scale where one is to be seen: 0 for nothing, 1 for the greatest."""
    return math.log2(1 + value) / math.log2(1 + greatest) if value > 0 and greatest > 0 else 0.0


def log_ticks(greatest: float) -> list[float]:
    """0, 1, 10, 100 ... up to the greatest."""
    found = [0.0, 1.0]
    while found[-1] * 10 <= greatest:
        found.append(found[-1] * 10)
    return found


def log_times(least: float, greatest: float) -> list[float]:
    """Seconds that people count in, about ten times each other, from at most `least` to at least `greatest`."""
    first = max((at for at, one in enumerate(_LOG_TIMES) if one <= least), default=0)
    last = min((at for at, one in enumerate(_LOG_TIMES) if one >= greatest), default=len(_LOG_TIMES) - 1)
    return list(_LOG_TIMES[first : max(last, first + 1) + 1])


def time_labels(times: Sequence[datetime], wanted: int = 9) -> list[tuple[int, str]]:
    """(index, text) of the buckets that get a label on the time axis: round hours, midnights, or days."""
    if not times:
        return []
    hourly = len(times) > 1 and (times[1] - times[0]).total_seconds() < 86_400
    days = (times[-1] - times[0]).total_seconds() / 86_400
    if hourly and days <= 2.5:
        every = next(hours for hours in (1, 2, 3, 6, 12) if len(times) / hours <= wanted or hours == 12)
        marked = [index for index, at in enumerate(times) if at.astimezone(UTC).hour % every == 0]
        return [(index, _hour(times[index])) for index in marked]
    midnights = [index for index, at in enumerate(times) if at.astimezone(UTC).hour == 0]
    every = max(1, math.ceil(len(midnights) / wanted))
    return [(index, day(times[index])) for index in midnights[::every]]


def _hour(at: datetime) -> str:
    moment = at.astimezone(UTC)
    return day(at) if moment.hour == 0 else f"{moment:%H:%M}"


def day(at: datetime) -> str:
    """`7 Nov`."""
    # Translators: how a day is written, in the letters of Django's filter `date`: 7 Nov.
    return dateformat.format(at.astimezone(UTC), _("j M"))


def month(at: datetime) -> str:
    """`November 2026`."""
    # Translators: how a month is written, in the letters of Django's filter `date`: November 2026.
    return dateformat.format(at, _("F Y"))


def instant(at: datetime, *, hourly: bool) -> str:
    """A bucket's name in tables: `2026-11-07 13:00`, or the day."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}" if hourly else f"{at.astimezone(UTC):%Y-%m-%d}"
