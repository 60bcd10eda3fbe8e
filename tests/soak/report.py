"""Whether anything grew during a soak, the table, and the charts."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from tests.soak.run import LASTING, Sample, Soak

CONNECTIONS = 2 * 12  # two machines, each of which may have as many as a hub
# How much more there may be in the last third than in the one before, by part, and what is always allowed (MiB).
GROWTH, ALLOWED = 0.15, 16.0
WIDTH, HEIGHT, LEFT, TOP, GAP = 900, 150, 70, 40, 60
INK, GREY, LINE = "#1f2933", "#616e7c", "#d9dee4"
COLOURS = ("#1f6feb", "#1a7f37", "#d29922", "#cf222e", "#8250df", "#0b3d91")


def grown(samples: Sequence[Sample]) -> list[str]:
    """What did not stay as it was, in words: memory of each process and the store; connections above their number."""
    found = [
        f"{name} grew from {then:.0f} to {now:.0f} MiB"
        for name, then, now in _thirds(samples)
        if now > then * (1 + GROWTH) + ALLOWED
    ]
    most = max(max(sample.connections.values()) for sample in samples)
    if most > CONNECTIONS:
        found.append(f"a hub had {most} connections; at most {CONNECTIONS} are allowed")
    return found


def _thirds(samples: Sequence[Sample]) -> list[tuple[str, float, float]]:
    """(what, MiB in the second third, MiB in the last): the first third fills caches and the store."""
    third = max(1, len(samples) // 3)
    then, now = samples[third : 2 * third] or samples[:1], samples[-third:]

    def median(part: Sequence[Sample], value: Callable[[Sample], float]) -> float:
        return statistics.median(map(value, part))

    parts: list[tuple[str, Callable[[Sample], float]]] = [
        *((name, lambda sample, name=name: sample.memory[name]) for name in LASTING),  # type: ignore[misc]
        ("store", lambda sample: sample.store),
    ]
    return [(name, median(then, value), median(now, value)) for name, value in parts]


def text(found: Soak) -> str:
    """Markdown."""
    first, last = found.samples[0], found.samples[-1]
    seconds = last.at - first.at
    applied = last.applied - first.applied
    most = max(max(sample.connections.values()) for sample in found.samples)
    lines = [
        f"{found.seconds / 60:g} minutes at {found.rate:.1f} documents/s: {found.handed_over:,} documents handed over,"
        f" {applied / seconds if seconds else 0:.1f} a second applied by the receiving application.",
        f"Meanwhile {found.faults['killed']} processes were killed and {found.faults['restarted']} restarted, and the"
        f" archive ran {found.archived} times and took {found.forgotten:,} messages out of the"
        f" stores. At most {most} connections to a hub's database.",
        f"An idle hub used {found.idle[0]:g} % of a CPU before, and {found.idle[1]:g} % after.",
        "",
        "| | second third, MiB | last third, MiB |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {then:.1f} | {now:.1f} |" for name, then, now in _thirds(found.samples)),
        "",
    ]
    lines += [f"- BROKEN: {one}" for one in found.broken] or [
        "Every document was applied once, and no invariant broken."
    ]
    lines += [f"- GREW: {one}" for one in grown(found.samples)] or ["Nothing grew."]
    return "\n".join(lines) + "\n"


def svg(samples: Sequence[Sample]) -> str:
    """Memory, store, connections and CPU over time, each a panel."""
    panels: list[tuple[str, dict[str, list[float]]]] = [
        ("memory by process, MiB", {name: [one.memory[name] for one in samples] for name in LASTING}),
        ("store of both hubs, MiB", {"store": [one.store for one in samples]}),
        ("connections", {hub: [one.connections[hub] for one in samples] for hub in samples[0].connections}),
        ("CPU of both hubs, percent of one", {"CPU": _rates([(one.at, one.cpu * 100) for one in samples])}),
        ("documents applied a second", {"documents": _rates([(one.at, one.applied) for one in samples])}),
    ]
    height = TOP + len(panels) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' font-family="system-ui, sans-serif" font-size="12" fill="{INK}" role="img">',
        "<title>A soak: what two hubs used over time</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    times = [sample.at / 60 for sample in samples]
    for number, (title, lines) in enumerate(panels):
        parts += _panel(title, times, lines, TOP + number * (HEIGHT + GAP))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _rates(points: Sequence[tuple[float, float]]) -> list[float]:
    """What came a second, since the point before; 0 when less was there (a process began anew)."""
    steps = [max(0.0, (after[1] - before[1]) / (after[0] - before[0])) for before, after in itertools.pairwise(points)]
    return [steps[0] if steps else 0.0, *steps]


def _panel(title: str, times: Sequence[float], lines: dict[str, list[float]], top: float) -> list[str]:
    largest = max(max(max(values) for values in lines.values()) * 1.1, 1.0)
    room = WIDTH - LEFT - 130
    span = max(times[-1], 1e-9)
    parts = [_text(LEFT, top - 8, title, size=13)]
    for tick in (0.0, 0.5, 1.0):
        y = top + HEIGHT * (1 - tick)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + room}" y2="{y:.1f}" stroke="{LINE}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{largest * tick:.3g}", anchor="end", colour=GREY))
    for at in (0.0, 0.5, 1.0):
        parts.append(_text(LEFT + room * at, top + HEIGHT + 16, f"{span * at:.0f} min", anchor="middle", colour=GREY))
    for number, (name, values) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(
            f"{LEFT + room * at / span:.1f},{top + HEIGHT * (1 - value / largest):.1f}"
            for at, value in zip(times, values, strict=True)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(_text(LEFT + room + 10, top + 12 + 16 * number, name, colour=colour))
    return parts


def _text(x: float, y: float, text: str, *, anchor: str = "start", colour: str = INK, size: int = 12) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}" font-size="{size}">{escape(text)}</text>'
