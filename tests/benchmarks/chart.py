"""The chart: messages per second and CPU per message, ours beside the peer's, and the limits. Plain SVG, no script."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, PANEL, GAP, TOP, LEFT, RIGHT = 1180, 250, 58, 64, 74, 24
INK, GREY, LINE, OURS, PEER, LIMIT = "#1f2933", "#616e7c", "#d9dee4", "#1f6feb", "#c2571a", "#7b8794"
# Processes in the order in which they are stacked; told apart by their labels as well as by colour.
STACK = (
    ("driver", "#8b949e"),
    ("senders", "#8b949e"),
    ("sender web", "#79b8ff"),
    ("sender worker", "#1f6feb"),
    ("sender beat", "#0b3d91"),
    ("receiver web", "#7ee2a8"),
    ("peer web", "#7ee2a8"),
    ("receiver worker", "#1a7f37"),
    ("receiver beat", "#0b4a20"),
    ("postgres", "#d29922"),
    ("valkey", "#cf222e"),
)


def svg(found: Mapping[str, Any], title: str) -> str:
    """The whole picture. Parts that were not measured are left out of it."""
    groups = [(_plural(row["pairs"], "pair"), OURS, row) for row in found["ours"]]
    groups += [("peer, " + _plural(row["senders"], "sender"), PEER, row) for row in found["peer"]]
    return bars(groups, _limit_rows(found), title)


def bars(
    groups: Sequence[tuple[str, str, Mapping[str, Any]]], limits: Sequence[tuple[str, str, float]], title: str
) -> str:
    """Speed and cost of each group (its name, its colour, its figures), and limits below them."""
    parts: list[str] = []
    top = TOP
    if groups:
        parts += _throughput(groups, top)
        parts += _cpu(groups, top + PANEL + GAP)
        top += 2 * (PANEL + GAP)
    if limits:
        parts += _limits(limits, top)
        top += 50 + 30 * len(limits)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 16}" width="{WIDTH}" height="{top + 16}"'
        f' font-family="system-ui, sans-serif" font-size="13" fill="{INK}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{top + 16}" fill="#ffffff"/>',
        _text(LEFT, 24, title, size=14),
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _throughput(groups: Sequence[tuple[str, str, Mapping[str, Any]]], top: float) -> list[str]:
    largest = max(max(row["messages_per_second"]["runs"], default=0) for _, _, row in groups)
    axis, scale = _axis("acknowledged messages per second (bars: medians, dots: every run)", largest, top)
    parts = axis
    for x, width, (name, colour, row) in _columns(groups):
        median = row["messages_per_second"]["median"] or 0
        y = scale(median)
        parts.append(_rect(x, y, width, top + PANEL - y, colour))
        for value in row["messages_per_second"]["runs"]:
            parts.append(
                f'<circle cx="{x + width / 2:.1f}" cy="{scale(value):.1f}" r="3.5" fill="#ffffff" stroke="{INK}"/>'
            )
        parts += [
            _text(x + width + 5, y + 5, f"{median:g}"),
            _text(x + width / 2, top + PANEL + 17, name, anchor="middle"),
        ]
    return parts


def _cpu(groups: Sequence[tuple[str, str, Mapping[str, Any]]], top: float) -> list[str]:
    largest = max(sum(filter(None, row["cpu_ms_by_process"].values())) for _, _, row in groups)
    parts, scale = _axis("CPU milliseconds per message, by process", largest, top)
    for x, width, (name, _, row) in _columns(groups):
        total = 0.0
        for process, colour in STACK:
            value = row["cpu_ms_by_process"].get(process)
            if not value:
                continue
            y, below = scale(total + value), scale(total)
            parts.append(_rect(x, y, width, below - y, colour, f"{process}: {value:g} ms"))
            if below - y > 12:
                parts.append(_text(x + width + 5, (y + below) / 2 + 4, f"{process} {value:.1f}", size=11, colour=GREY))
            total += value
        parts += [
            _text(x + width / 2, scale(total) - 5, f"{total:.1f}", anchor="middle"),
            _text(x + width / 2, top + PANEL + 17, name, anchor="middle"),
        ]
    return parts


def _limit_rows(found: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    rows = [
        ("posts, " + _plural(row["connections"], "connection"), LIMIT, row["per_second"]["median"] or 0)
        for row in found["posts"]
    ]
    rows += [
        ("commits, " + _plural(row["connections"], "connection"), LIMIT, row["per_second"]["median"] or 0)
        for row in found["commits"]
    ]
    if not rows:
        return []
    if found["ours"]:
        best = max(found["ours"], key=lambda row: row["messages_per_second"]["median"] or 0)
        rows.append(("our hubs, " + _plural(best["pairs"], "pair"), OURS, best["messages_per_second"]["median"] or 0))
    if found["peer"]:
        best = max(found["peer"], key=lambda row: row["messages_per_second"]["median"] or 0)
        rows.append(
            ("the peer, " + _plural(best["senders"], "sender"), PEER, best["messages_per_second"]["median"] or 0)
        )
    return rows


def _limits(rows: Sequence[tuple[str, str, float]], top: float) -> list[str]:
    """Bars on a logarithmic scale from 1 a second: the limits are a hundred times what messages can reach."""
    left, room = LEFT + 170, WIDTH - LEFT - 170 - RIGHT - 70
    decades = math.ceil(math.log10(max(max(value for _, _, value in rows), 10)))
    parts = [_text(LEFT, top - 8, "beside the limits of this machine, per second (logarithmic)", size=14)]
    bottom = top + 30 * len(rows) + 8
    for decade in range(decades + 1):
        x = left + room * decade / decades
        parts += [
            _line(x, top, x, bottom),
            _text(x, bottom + 15, f"{10**decade:,}", anchor="middle", colour=GREY, size=11),
        ]
    for at, (name, colour, value) in enumerate(rows):
        y = top + 8 + 30 * at
        width = room * math.log10(max(value, 1)) / decades
        parts += [
            _text(left - 8, y + 15, name, anchor="end"),
            _rect(left, y, width, 20, colour),
            _text(left + width + 6, y + 15, f"{value:,.0f}"),
        ]
    return parts


def _axis(title: str, largest: float, top: float) -> tuple[list[str], Callable[[float], float]]:
    step = _step(largest)
    ceiling = step * math.ceil(max(largest * 1.08, step) / step)

    def scale(value: float) -> float:
        return top + PANEL * (1 - value / ceiling)

    parts = [_text(LEFT, top - 8, title, size=14)]
    for tick in range(round(ceiling / step) + 1):
        y = scale(tick * step)
        parts += [
            _line(LEFT, y, WIDTH - RIGHT, y),
            _text(LEFT - 8, y + 4, f"{tick * step:g}", anchor="end", colour=GREY),
        ]
    return parts, scale


def _step(largest: float) -> float:
    """1, 2 or 5 times a power of ten, so that there are three to eight lines."""
    power: float = 10.0 ** math.floor(math.log10(max(largest, 0.1) / 4))
    return next((factor * power for factor in (1, 2, 5, 10) if largest / (factor * power) <= 7), 10 * power)


def _columns(groups: Sequence[Any]) -> list[tuple[float, float, Any]]:
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    width = min(56.0, room * 0.32)
    return [(LEFT + room * at + (room - width) / 2 - room * 0.2, width, group) for at, group in enumerate(groups)]


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = INK, size: int = 13) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{escape(text)}</text>'
    )


def _rect(x: float, y: float, width: float, height: float, colour: str, title: str = "") -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    size = f'width="{width:.1f}" height="{max(height, 0.5):.1f}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="{colour}">{inside}</rect>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{LINE}"/>'
