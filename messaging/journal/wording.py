"""Counts and lengths of time as people say them, in the language of whoever reads."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from rmhub.language import number


def waits(count: int, *, alone: bool = False) -> str:
    """`3 documents wait behind it.`; `alone`: without what they wait behind. Nothing for none."""
    if not count:
        return ""
    if alone:
        return ngettext("{count} document waits.", "{count} documents wait.", count).format(count=number(count))
    said = ngettext("{count} document waits behind it.", "{count} documents wait behind it.", count)
    return said.format(count=number(count))


def documents(count: int) -> str:
    """`1 document`, `1,200 documents`."""
    return ngettext("{count} document", "{count} documents", count).format(count=number(count))


def times(count: int) -> str:
    """`once`, `3 times`."""
    return ngettext("once", "{count} times", count).format(count=count)


def lasting(since: datetime | None, now: datetime) -> str:
    """` for 3 h 12 m`, with its blank; nothing when it is not known since when."""
    return " " + _("for {time}").format(time=span((now - since).total_seconds())) if since is not None else ""


def due_in(at: datetime | None, now: datetime) -> str:
    """`in 45 s`, `at once`, `soon`."""
    if at is None:
        return _("soon")
    left = (at - now).total_seconds()
    return _("in {time}").format(time=span(left)) if left >= 1 else _("at once")


def span(seconds: float) -> str:
    """A length of time to two units: `3 h 12 m`, `45 s`, `2 d 4 h`."""
    rest = max(0, int(seconds))
    parts: list[tuple[int, str]] = []
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, rest = divmod(rest, unit)
        if count or parts:
            parts.append((count, name))
        if len(parts) == 2:
            break
    if parts and parts[0][1] in ("m", "h", "d") and len(parts) == 2 and parts[1][0] == 0:
        parts = parts[:1]
    written = {"d": _("{count} d"), "h": _("{count} h"), "m": _("{count} m"), "s": _("{count} s")}
    return " ".join(written[name].format(count=count) for count, name in parts or [(0, "s")])
