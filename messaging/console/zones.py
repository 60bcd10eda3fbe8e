"""In which time zone a person reads and writes times: UTC, the browser's own, or any other.

The browser says its zone in a cookie (a script writes it, so without JavaScript it is not known and UTC stands in).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest
from django.utils.translation import gettext as _

from messaging.console.preferences import preferences

LOCAL_COOKIE = "rmhub_zone"
_UTC_NAMES = ("UTC", "", "Etc/UTC")


@cache
def names() -> tuple[str, ...]:
    """All IANA names of zones that are places, in order."""
    return tuple(sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/")))


def zone_of(request: HttpRequest) -> tzinfo:
    """The zone of whoever looks; UTC without a session."""
    wish = preferences(request).zone
    return local_of(request) if wish == "local" else named(wish)


def local_of(request: HttpRequest) -> tzinfo:
    """The browser's own zone, as far as it said so."""
    return named(request.COOKIES.get(LOCAL_COOKIE, ""))


def named(name: str) -> tzinfo:
    """The zone of that IANA name; UTC for a name that there is not (any more)."""
    return UTC if name in _UTC_NAMES or name not in available() else ZoneInfo(name)


@cache
def available() -> frozenset[str]:
    """All names that this machine knows."""
    return frozenset(available_timezones())


def title(zone: tzinfo) -> str:
    """The zone's full name: `Europe/Berlin`."""
    return _("Coordinated Universal Time") if _is_utc(zone) else str(zone)


def label(zone: tzinfo, at: datetime) -> str:
    """What stands in the heads of tables: `UTC`, `CET`, or `UTC+05:30` for zones without a name of their own."""
    if _is_utc(zone):
        return "UTC"
    name = at.astimezone(zone).tzname() or ""
    return name if name[:1].isalpha() else f"UTC{offset(at, zone)}"


def offset(at: datetime, zone: tzinfo) -> str:
    """`+02:00`."""
    return at.astimezone(zone).isoformat(timespec="minutes")[-6:]


def needs_offset(at: datetime, zone: tzinfo, now: datetime) -> bool:
    """Whether a time must say its offset: the wall clock shows it twice, or the table's head is of another season."""
    wall = at.astimezone(zone)
    twice = wall.replace(fold=0).utcoffset() != wall.replace(fold=1).utcoffset()
    return twice or wall.utcoffset() != now.astimezone(zone).utcoffset()


def read_local(text: str, zone: tzinfo) -> datetime | None:
    """An instant from a form or an address: `2026-11-20`, `2026-11-20 14:00` in the zone, or with an offset of its own.

    None for everything else. A wall clock time that is skipped or comes twice has the offset before the change.
    """
    try:
        found = datetime.fromisoformat(text.strip())
        placed = found if found.tzinfo else found.replace(tzinfo=zone)
        at = placed.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return at if timedelta(days=1) < at - datetime(1900, 1, 1, tzinfo=UTC) and at.year < 9000 else None


def _is_utc(zone: tzinfo) -> bool:
    return str(zone) in _UTC_NAMES
