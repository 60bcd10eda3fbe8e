"""Counts and lengths of time as people say them."""

from __future__ import annotations

from datetime import datetime


def waits(count: int, *, alone: bool = False) -> str:
    """`3 documents wait behind it.`; `alone`: without what they wait behind. Nothing for none."""
    if not count:
        return ""
    return f"{documents(count)} wait{'s' if count == 1 else ''}{'' if alone else ' behind it'}."


def documents(count: int) -> str:
    """`1 document`, `1,200 documents`."""
    return f"{count:,} document{'' if count == 1 else 's'}"


def times(count: int) -> str:
    """`once`, `3 times`."""
    return "once" if count == 1 else f"{count} times"


def lasting(since: datetime | None, now: datetime) -> str:
    """` for 3 h 12 m`, with its blank; nothing when it is not known since when."""
    return f" for {span((now - since).total_seconds())}" if since is not None else ""


def due_in(at: datetime | None, now: datetime) -> str:
    """`in 45 s`, `at once`, `soon`."""
    if at is None:
        return "soon"
    left = (at - now).total_seconds()
    return f"in {span(left)}" if left >= 1 else "at once"


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
    return " ".join(f"{count} {name}" for count, name in parts) or "0 s"
