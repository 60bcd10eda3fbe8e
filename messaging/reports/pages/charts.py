"""Charts as SVG that the server draws: no script, no style attribute, colours by CSS classes so that themes work.

Every chart has a title and a description for screen readers, and beside it the same numbers as a table: what is drawn
is what the table says. Widths are those of a drawing 640 wide, which the page scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from messaging.journal.wording import span
from messaging.reports.pages import chart_scales as scales

WIDTH = 640
_LEFT, _RIGHT, _TOP = 52, 12, 12
_HEIGHT, _BASE = 220, 192
_LABEL = 190  # what horizontal bars leave for their names
_SEEN = 3.0  # a part that is not nothing is drawn at least so wide


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one part of each bar. `tone` is the CSS class of its colour."""

    label: str
    tone: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Bar:
    """One horizontal bar: `parts` are (label, tone, value, text)."""

    label: str
    parts: Sequence[tuple[str, str, float, str]]


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing and the table that says the same."""

    ident: str
    title: str
    svg: SafeString
    legend: Sequence[tuple[str, str]]
    head: Sequence[str]
    body: Sequence[Sequence[str]]


def lines(ident: str, title: str, times: Sequence[datetime], series: Sequence[Series]) -> Chart:
    """A line each through seconds in time, interrupted where there is no value.

    The scale is logarithmic: beside a p99 of minutes a p50 of milliseconds would lie flat on the axis.
    """
    known = [value for one in series for value in one.values if value is not None and value > 0]
    axis = scales.log_times(min(known, default=1.0), max(known, default=1.0))
    whole = math.log(axis[-1] / axis[0])

    def height(value: float) -> float:
        return (_BASE - _TOP) * math.log(min(max(value, axis[0]), axis[-1]) / axis[0]) / whole

    drawn = format_html_join("", "{}", ((_line(one, len(times), height),) for one in series))
    grid = _grid([(_BASE - height(value), scales.short(value, "s")) for value in axis])
    svg = _frame(ident, title, _in_words(series, "s"), [grid, drawn, _time_axis(times)])
    return Chart(ident, title, svg, [(one.tone, one.label) for one in series], *_time_table(times, series, "s"))


def columns(ident: str, title: str, times: Sequence[datetime], series: Sequence[Series]) -> Chart:
    """Bars in time, each the sum of its parts, the first part at the bottom."""
    sums = [sum(one.values[index] or 0 for one in series) for index in range(len(times))]
    axis = scales.ticks(max(sums, default=0))
    step = _step(len(times))
    width = max(step * 0.8, 0.6)
    shapes: list[tuple[str, str, str, str, str, str]] = []
    for index, at in enumerate(times):
        top = float(_BASE)
        for one in series:
            value = one.values[index] or 0
            if value:
                height = (_BASE - _TOP) * value / axis[-1]
                top -= height
                left = _LEFT + step * index + (step - width) / 2
                told = f"{scales.instant(at, hourly=_hourly(times))}: {scales.number(value)} {one.label}"
                shapes.append((one.tone, _px(left), _px(top), _px(width), _px(height), told))
    drawn = _rects(shapes)
    svg = _frame(ident, title, _in_words(series, ""), [_value_axis(axis), drawn, _time_axis(times)])
    return Chart(ident, title, svg, [(one.tone, one.label) for one in series], *_time_table(times, series, ""))


def pareto(ident: str, title: str, causes: Sequence[tuple[str, int, float]], *, counted: str = "") -> Chart:
    """Causes with their counts, the most frequent first, and a line through the cumulated shares (0 to 1)."""
    counted = counted or _("Count")
    greatest = max((count for _name, count, _share in causes), default=0) or 1
    room = WIDTH - _LABEL - 100
    parts: list[SafeString] = []
    points = []
    for index, (name, count, cumulative) in enumerate(causes):
        top = 8 + index * 24
        width = max(room * count / greatest, _SEEN if count else 0)
        parts.append(_name(name, top + 14))
        parts.append(
            _rects([("tone-main", _px(_LABEL), _px(top + 3), _px(width), "16", f"{name}: {scales.number(count)}")])
        )
        parts.append(_text("chart-value", _LABEL + room + 46, top + 15, scales.number(count), "end"))
        parts.append(_text("chart-soft", WIDTH - 2, top + 15, scales.share(cumulative), "end"))
        points.append((_LABEL + room * cumulative, top + 11.0))
    path = " ".join(f"{_px(x)},{_px(y)}" for x, y in points)
    dots = format_html_join(
        "", '<circle class="chart-dot" cx="{}" cy="{}" r="2.5"/>', ((_px(x), _px(y)) for x, y in points)
    )
    parts.append(format_html('<polyline class="chart-line tone-cumulative" points="{}"/>{}', path, dots))
    said = "; ".join(f"{name} {scales.number(count)}" for name, count, _share in causes[:5])
    svg = _frame(ident, title, said, parts, height=16 + 24 * max(1, len(causes)))
    body = [(name, scales.number(count), scales.share(cumulative)) for name, count, cumulative in causes]
    legend = [("tone-main", counted), ("tone-cumulative", _("Cumulative share"))]
    return Chart(ident, title, svg, legend, (_("Cause"), counted, _("Cumulated")), body)


def histogram(
    ident: str, title: str, buckets: Mapping[int, int], *, marks: Sequence[tuple[str, str, float]] = ()
) -> Chart:
    """Counts in buckets of powers of two (upper limit in seconds -> count), on a logarithmic scale both ways.

    `marks`: (label, tone, seconds) of upright lines, e.g. the window in force.
    """
    uppers = _powers(buckets, [mark[2] for mark in marks])
    counts = [buckets.get(upper, 0) for upper in uppers]
    greatest = max(counts, default=0)
    step = _step(len(uppers))
    shapes = []
    for index, (upper, count) in enumerate(zip(uppers, counts, strict=True)):
        height = (_BASE - _TOP - 8) * scales.log_height(count, greatest)
        told = f"{_below(upper)}: {scales.number(count)}"
        if count:
            left, top = _LEFT + step * index + step * 0.08, _BASE - height
            shapes.append(("tone-main", _px(left), _px(top), _px(step * 0.84), _px(height), told))
    axis = [
        (_BASE - (_BASE - _TOP - 8) * scales.log_height(value, greatest), scales.short(value, ""))
        for value in scales.log_ticks(greatest)
    ]
    every = max(1, math.ceil(len(uppers) / 10))
    labels = [
        _text("chart-label", _LEFT + step * (index + 1), _BASE + 15, scales.rough(upper), "middle")
        for index, upper in enumerate(uppers)
        if (index + 1) % every == 0 and _LEFT + step * (index + 1) < WIDTH - 20
    ]
    upright = [_upright(label, tone, _LEFT + step * _place(uppers, at)) for label, tone, at in marks if at > 0]
    said = ""
    if greatest:
        said = _("{count} in all; most of them below {limit}").format(
            count=scales.number(sum(counts)), limit=span(uppers[counts.index(greatest)])
        )
    told_marks = "".join(f"; {label} {span(at)}" for label, _tone, at in marks)
    svg = _frame(ident, title, said + told_marks, [_grid(axis), _rects(shapes), *labels, *upright])
    body = [(_below(upper), scales.number(count)) for upper, count in zip(uppers, counts, strict=True)]
    repeats = _("Repeats")
    legend = [("tone-main", repeats), *((f"{tone} swatch-mark", f"{label} {span(at)}") for label, tone, at in marks)]
    return Chart(ident, title, svg, legend, (_("Delay"), repeats), body)


def _below(upper: int) -> str:
    return _("below {limit}").format(limit=span(upper))


def heat_map(
    ident: str, title: str, rows: Sequence[tuple[str, Sequence[float | None]]], *, unit: str = "", what: str = ""
) -> Chart:
    """A square for each hour of each row (a day, or a day of the week): the darker, the more. None = no value."""
    greatest = max((value for _, values in rows for value in values if value is not None), default=0)
    step = (WIDTH - 76 - 4) / 24
    shapes = []
    labels = [
        _text("chart-label", 76 + step * hour + step / 2, 14, f"{hour:02d}", "middle") for hour in range(0, 24, 3)
    ]
    for index, (name, values) in enumerate(rows):
        top = 20 + index * 20
        labels.append(_text("chart-label", 70, top + 14, name, "end"))
        for hour, value in enumerate(values):
            told = f"{name} {hour:02d}:00: {scales.amount(value, unit)}"
            shapes.append((heat(value, greatest), _px(76 + step * hour), _px(top), _px(step - 2), "18", told))
    most = max(
        ((value, name, hour) for name, values in rows for hour, value in enumerate(values) if value is not None),
        default=None,
    )
    said = ""
    if most:
        said = _("most: {when} with {amount}").format(
            when=f"{most[1]} {most[2]:02d}:00", amount=scales.amount(most[0], unit)
        )
    svg = _frame(ident, title, said, [*labels, _rects(shapes)], height=26 + 20 * len(rows))
    legend = [(f"heat-{level}", text) for level, text in _shades(greatest, unit)]
    body = [(name, *(scales.amount(value, unit) for value in values)) for name, values in rows]
    return Chart(ident, title, svg, legend, (what or _("Day"), *(f"{hour:02d}" for hour in range(24))), body)


def heat(value: float | None, greatest: float) -> str:
    """The shade of a value: none, 0 for zero, 1 to 5."""
    if value is None:
        return "heat-none"
    if value <= 0 or greatest <= 0:
        return "heat-0"
    return f"heat-{min(5, 1 + int(5 * value / greatest * 0.999999))}"


def bars(ident: str, title: str, rows: Sequence[Bar], *, each: bool = False) -> Chart:
    """Horizontal bars of parts that follow each other; what is not nothing is always to be seen.

    `each`: the bars have different units, so that each is as long as its own greatest part allows, and the parts stand
    below each other for comparison (before, after).
    """
    room = WIDTH - _LABEL - 130
    parts: list[SafeString] = []
    top = 6.0
    for row in rows:
        if each:
            greatest = max((part[2] for part in row.parts), default=0) or 1
            parts.append(_name(row.label, top + 7 * len(row.parts) + 7))
            for label, tone, value, text in row.parts:
                width = max(room * value / greatest, _SEEN if value else 0)
                parts.append(_rects([(tone, _px(_LABEL), _px(top), _px(width), "13", f"{row.label}, {label}: {text}")]))
                parts.append(_text("chart-value", _LABEL + width + 6, top + 10.5, text, "start"))
                top += 15
            top += 9
            continue
        whole = sum(part[2] for part in row.parts)
        parts.append(_name(row.label, top + 14))
        left = float(_LABEL)
        widths = seen_widths([part[2] for part in row.parts], room + 40)
        for (label, tone, _value, text), width in zip(row.parts, widths, strict=True):
            if width:
                parts.append(_rects([(tone, _px(left), _px(top), _px(max(width - 1, 1)), "18", f"{label}: {text}")]))
            left += width
        parts.append(_text("chart-value", WIDTH - 2, top + 14, scales.number(whole), "end"))
        top += 28
    said = "; ".join(f"{row.label}: " + ", ".join(f"{part[0]} {part[3]}" for part in row.parts) for row in rows)
    svg = _frame(ident, title, said, parts, height=top + 4)
    legend = list(dict.fromkeys((part[1], part[0]) for row in rows for part in row.parts))
    names = list(dict.fromkeys(part[0] for row in rows for part in row.parts))
    body = []
    for row in rows:
        texts = {part[0]: part[3] for part in row.parts}
        body.append((row.label, *(texts.get(name, "—") for name in names)))
    return Chart(ident, title, svg, legend, ("", *names), body)


def seen_widths(values: Sequence[float], room: float) -> list[float]:
    """Widths in proportion to values that fill `room`, none that is not nothing below what the eye can see."""
    whole = sum(values)
    if whole <= 0:
        return [0.0 for _ in values]
    small = [0 < room * value / whole < _SEEN for value in values]
    left = room - _SEEN * sum(small)
    large = sum(value for value, is_small in zip(values, small, strict=True) if not is_small)
    return [
        _SEEN if is_small else (left * value / large if large else 0.0)
        for value, is_small in zip(values, small, strict=True)
    ]


def _line(one: Series, count: int, height: Callable[[float], float]) -> SafeString:
    """The parts of a line between gaps; a value with a gap on either side is a dot."""
    step = _step(count)
    pieces: list[list[str]] = [[]]
    for index, value in enumerate(one.values):
        if value is None:
            pieces.append([])
        else:
            x, y = _LEFT + step * (index + 0.5), _BASE - height(value)
            pieces[-1].append(f"{_px(x)},{_px(y)}")
    drawn = []
    for piece in pieces:
        if len(piece) == 1:
            x_text, y_text = piece[0].split(",")
            drawn.append(
                format_html('<circle class="chart-point {}" cx="{}" cy="{}" r="2"/>', one.tone, x_text, y_text)
            )
        elif piece:
            drawn.append(format_html('<polyline class="chart-line {}" points="{}"/>', one.tone, " ".join(piece)))
    return format_html_join("", "{}", ((part,) for part in drawn))


def _value_axis(axis: Sequence[float]) -> SafeString:
    return _grid([(_BASE - (_BASE - _TOP) * value / axis[-1], scales.short(value, "")) for value in axis])


def _grid(axis: Sequence[tuple[float, str]]) -> SafeString:
    return format_html_join(
        "",
        '<line class="chart-grid" x1="{}" x2="{}" y1="{}" y2="{}"/>{}',
        (
            (_LEFT, WIDTH - _RIGHT, _px(y), _px(y), _text("chart-label", _LEFT - 6, y + 4, text, "end"))
            for y, text in axis
        ),
    )


def _time_axis(times: Sequence[datetime]) -> SafeString:
    step = _step(len(times))
    found = []
    for index, text in scales.time_labels(times):
        x = _LEFT + step * index
        if x > WIDTH - 24:
            continue
        found.append((_px(x), _px(x), _BASE, _BASE + 4, _text("chart-label", x + 1, _BASE + 17, text, "start")))
    return format_html_join("", '<line class="chart-tick" x1="{}" x2="{}" y1="{}" y2="{}"/>{}', found)


def _px(value: float) -> str:
    """A coordinate to a tenth, without a needless fraction."""
    return f"{value:.1f}".removesuffix(".0")


def _upright(label: str, tone: str, x: float) -> SafeString:
    return format_html(
        '<line class="chart-mark {}" x1="{}" x2="{}" y1="{}" y2="{}"><title>{}</title></line>',
        *(tone, _px(x), _px(x), _TOP, _BASE, label),
    )


def _frame(ident: str, title: str, said: str, parts: Sequence[SafeString], *, height: float = _HEIGHT) -> SafeString:
    return format_html(
        '<svg class="report-chart" viewBox="0 0 {} {}" role="img" aria-labelledby="{}-t {}-d">'
        '<title id="{}-t">{}</title><desc id="{}-d">{}</desc>{}</svg>',
        *(WIDTH, _px(height), ident, ident, ident, title, ident, said or _("no value")),
        format_html_join("", "{}", ((part,) for part in parts)),
    )


def _rects(shapes: Sequence[tuple[str, str, str, str, str, str]]) -> SafeString:
    """(tone, x, y, width, height, what it says) each."""
    return format_html_join(
        "", '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>', shapes
    )


def _text(css: str, x: float, y: float, text: str, anchor: str) -> SafeString:
    return format_html('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>', css, _px(x), _px(y), anchor, text)


def _name(text: str, y: float) -> SafeString:
    cut = text if len(text) <= 30 else f"{text[:29]}…"
    return _text("chart-name", _LABEL - 8, y, cut, "end")


def _time_table(
    times: Sequence[datetime], series: Sequence[Series], unit: str
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    hourly = _hourly(times)
    body = [
        (scales.instant(at, hourly=hourly), *(scales.amount(one.values[index], unit) for one in series))
        for index, at in enumerate(times)
    ]
    return ((_("Hour (UTC)") if hourly else _("Day (UTC)")), *(one.label for one in series)), body


def _in_words(series: Sequence[Series], unit: str) -> str:
    """What a chart shows, for who does not see it: each line's least and greatest value."""
    said = []
    for one in series:
        known = [value for value in one.values if value is not None]
        if known:
            told = _("{label}: {least} to {most}")
            said.append(
                told.format(
                    label=one.label, least=scales.amount(min(known), unit), most=scales.amount(max(known), unit)
                )
            )
    return "; ".join(said)


def _hourly(times: Sequence[datetime]) -> bool:
    return len(times) < 2 or (times[1] - times[0]).total_seconds() < 86_400


def _step(count: int) -> float:
    return (WIDTH - _LEFT - _RIGHT) / max(1, count)


def _powers(buckets: Mapping[int, int], marks: Sequence[float]) -> list[int]:
    """Upper limits without a hole, from the least to the greatest that has a count or a mark."""
    known = sorted(buckets) or [1]
    last = max([known[-1], *(2 ** math.ceil(math.log2(at)) for at in marks if at > 0)])
    found = [known[0]]
    while found[-1] < last:
        found.append(max(1, found[-1]) * 2)
    return found


def _place(uppers: Sequence[int], seconds: float) -> float:
    """Where a length of time is, in buckets from the left edge: limits are powers of two, so it goes by logarithms."""
    return min(float(len(uppers)), max(0.0, 1 + math.log2(seconds) - math.log2(max(1, uppers[0]))))


def _shades(greatest: float, unit: str) -> list[tuple[str, str]]:
    if greatest <= 0:
        return [("0", "0")]
    bounds = [greatest * level / 5 for level in range(1, 6)]
    return [
        ("0", "0"),
        *(
            (str(level + 1), _("to {limit}").format(limit=scales.amount(_tidy(bound), unit)))
            for level, bound in enumerate(bounds)
        ),
    ]


def _tidy(bound: float) -> float:
    return float(math.floor(bound)) if bound >= 10 else round(bound, 3)
