"""Where everything of a sequence diagram stands on the page, of a message, a pair or a transaction: rows as shapes for
an SVG.

No script and no style attribute: lines, polygons and words with classes, so that it prints and obeys the page's policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from django.http import QueryDict
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from messaging.console import cells
from messaging.console.resource import Column, table
from messaging.journal.wording import span
from messaging.messages.selectors.history import Step
from messaging.messages.selectors.timeline import Diagram
from messaging.templatetags.hub import clock_time, octets
from messaging.templatetags.hub import took as exactly
from rmhub.language import gettext_lazy, number

_FIRST = 150  # where the first lifeline stands
_ROW, _HEIGHTS = 38, {"wait": 26, "mark": 34}
_NAME = 26  # characters


@dataclass(frozen=True, slots=True)
class Sheet:
    """How much room a kind of diagram has: `gap` between two lifelines, `top` above the rows, `right` of the last one.

    `label`, `mark` and `result`: characters; `line`: how far a mark's line goes beyond the first and last lifeline;
    `result_at`: where results begin, behind the last one.
    """

    gap: int
    top: int
    right: int
    label: int
    mark: int
    result: int
    line: tuple[int, int]
    result_at: int


OF_PAIRS = Sheet(gap=250, top=46, right=310, label=40, mark=40, result=44, line=(54, 50), result_at=62)
OF_TRANSACTIONS = Sheet(gap=230, top=60, right=340, label=36, mark=60, result=46, line=(44, 30), result_at=40)
LANES = ("app", "hub", "partner")
_SCOPES = {
    "document": gettext_lazy("This document"),
    "hour": gettext_lazy("Last hour"),
    "day": gettext_lazy("Last day"),
}
_TITLES = {
    "document": gettext_lazy("Sequence diagram: this document"),
    "hour": gettext_lazy("Sequence diagram: last hour"),
    "day": gettext_lazy("Sequence diagram: last day"),
}
_ENDS = {"app": gettext_lazy("app"), "hub": gettext_lazy("hub"), "partner": gettext_lazy("partner")}
_OUTCOMES = {
    "arrived": gettext_lazy("arrived"),
    "lost": gettext_lazy("lost"),
    "refused": gettext_lazy("refused"),
    "open": gettext_lazy("open"),
    "unknown": gettext_lazy("unknown"),
    "unsent": gettext_lazy("unsent"),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """One row at `y`. `line`: x1, x2; `head`: points of the arrow's head; `cross`: two lines where it was lost; `bar`:
    where it was refused. `day`: it is the first of that day. `href`: the page of what it shows.
    `source` and `target`: names of its ends.
    """

    step: Step
    y: int
    label: str
    label_x: int
    line: tuple[int, int]
    box: tuple[int, int]
    day: date | None
    result: str = ""
    head: str = ""
    cross: tuple[tuple[int, int, int, int], ...] = ()
    bar: tuple[int, int, int] | None = None
    href: str = ""
    source: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """What `console/parts/diagram_svg.html` shows. `lanes`: x, name, what it is there for."""

    shapes: list[Shape]
    lanes: list[tuple[int, str, str]]
    width: int
    height: int
    bottom: int
    life: int
    result_x: int


def about(shape: Any) -> dict[str, str]:
    """Attributes of a shape's row in the table that says the same."""
    return {"data-kind": shape.step.kind, "data-outcome": shape.step.outcome}


def _what(shape: Any) -> SafeString:
    step = shape.step
    said = _("waits {time}").format(time=step.label) if step.kind == "wait" else step.label
    return cells.joined(
        cells.link(shape.href, step.label) if shape.href else said,
        f" ×{step.repeated}" if step.repeated > 1 else "",
        format_html(' <span class="text-faint">{}</span>', _("by {who}").format(who=step.by)) if step.by else "",
    )


def _outcome(shape: Any) -> SafeString:
    step = shape.step
    result = format_html(' <span class="text-soft">{}</span>', step.result) if step.result else ""
    return cells.joined(_OUTCOMES.get(step.outcome, step.outcome) if step.is_arrow else "", result)


def _ends(shape: Any) -> str:
    step = shape.step
    return f"{_ENDS.get(step.source, step.source)} → {_ENDS.get(step.target, step.target)}" if step.is_arrow else "—"


_AS_TABLE = (
    Column(gettext_lazy("Time"), lambda shape: clock_time(shape.step.at), "nowrap"),
    Column(gettext_lazy("From, to"), _ends, "nowrap"),
    Column(gettext_lazy("What"), _what),
    Column(gettext_lazy("Outcome"), _outcome),
    Column(
        gettext_lazy("Took"),
        lambda one: "—" if one.step.seconds is None else exactly(one.step.seconds),
        "num nowrap",
    ),
    Column(gettext_lazy("Size"), lambda shape: octets(shape.step.size) if shape.step.size else "—", "num nowrap"),
)


def wants_failed(query: QueryDict) -> bool:
    """Whether the URL asks for what failed only."""
    return query.get("failed", "") in ("1", "true")


def shown(diagram: Diagram, query: QueryDict) -> dict[str, Any]:
    """What `console/parts/diagram.html` shows. `query`: the page's parameters, which its links keep."""
    lanes = {key: (name, "") for key, name in zip(LANES, diagram.lanes, strict=True)}
    drawing = draw(OF_PAIRS, lanes, diagram.steps)
    title = _TITLES[diagram.scope if diagram.about is None else "document"]
    if diagram.failed_only:
        title = _("{title}, failures only").format(title=title)
    caption = _("{title}, as a table").format(title=title)
    return {
        "diagram": diagram,
        "drawing": drawing,
        "diagram_table": table(caption, _AS_TABLE, drawing.shapes, about=about, name="diagram-table"),
        "scopes": [(name, _SCOPES[name], _with(query, scope=name)) for name in diagram.scopes],
        "failed_query": _with(query, failed="" if diagram.failed_only else "1"),
        "title": title,
    }


def draw(sheet: Sheet, lanes: Mapping[str, tuple[str, str]], steps: Iterable[Step]) -> Drawing:
    """The drawing. `lanes`: key -> name, and what it is there for, from left to right."""
    places = {key: _FIRST + place * sheet.gap for place, key in enumerate(lanes)}
    last = max(places.values())
    shapes: list[Shape] = []
    y, day = sheet.top, None
    for step in steps:
        today = timezone.localtime(step.at).date()
        new_day, day = (today if today != day else None), today
        height = _HEIGHTS.get(step.kind, _ROW)
        drawn = shape(sheet, places, step, new_day, (y, height))
        shapes.append(replace(drawn, source=lanes[step.source][0], target=lanes[step.target][0]))
        y += height
    return Drawing(
        shapes=shapes,
        lanes=[(places[key], _cut(name, _NAME), _cut(what, _NAME)) for key, (name, what) in lanes.items()],
        width=last + sheet.right,
        height=y + 16,
        bottom=y + 6,
        life=sheet.top - 16,
        result_x=last + sheet.result_at,
    )


def shape(sheet: Sheet, places: Mapping[str, int], step: Step, day: date | None, box: tuple[int, int]) -> Shape:
    """One row, in a box that begins at a height and has one."""
    y, last = sum(box) - 12, max(places.values())
    if step.kind == "wait":
        return Shape(step, y, step.label, places["hub"], (0, 0), box, day)
    if step.kind == "mark":
        label = _("{label} by {who}").format(label=step.label, who=step.by) if step.by else step.label
        line = (_FIRST - sheet.line[0], last + sheet.line[1])
        middle = (_FIRST + last) // 2
        return Shape(step, y, _cut(label, sheet.mark), middle, line, box, day, _cut(step.result, sheet.result))
    begin, end = places[step.source], places[step.target]
    way = 1 if end > begin else -1
    stop = end - 2 * way
    head = f"{stop},{y} {stop - 9 * way},{y - 4} {stop - 9 * way},{y + 4}"
    cross: tuple[tuple[int, int, int, int], ...] = ()
    bar: tuple[int, int, int] | None = None
    if step.outcome in ("lost", "unknown"):
        stop, head = begin + (end - begin) * 3 // 4, ""
        if step.outcome == "lost":
            cross = ((stop - 5, y - 5, stop + 5, y + 5), (stop - 5, y + 5, stop + 5, y - 5))
    elif step.outcome == "refused":
        # Half an arrow's head: it came, and was not taken.
        head = f"{stop},{y} {stop - 9 * way},{y - 5} {stop - 9 * way},{y}"
        bar = (end - 12 * way, y - 7, y + 7)
    elif step.outcome == "unsent":
        stop, head = begin + (end - begin) // 4, ""
    elif step.outcome == "open":
        stop = begin + (end - begin) // 2
        head = f"{stop + 9 * way},{y} {stop},{y - 4} {stop},{y + 4}"
    # Close to the lane that is not the hub's: there it does not lie on other lifelines.
    label_x = max(begin, end) - sheet.gap // 2 if begin != end else begin
    if cross and abs(end - begin) <= sheet.gap:
        label_x = (begin + stop) // 2  # not on the cross
    label = _cut(step.label + (f" ×{step.repeated}" if step.repeated > 1 else ""), sheet.label)
    result = _cut(_result(step), sheet.result)
    return Shape(step, y, label, label_x, (begin, stop), box, day, result, head, cross, bar, _href(step))


def _href(step: Step) -> str:
    """Where it is looked at closely: an attempt's octets, the partner's answer, the application's delivery."""
    for page in ("transmission", "signal", "delivery", "message"):
        if getattr(step, page):
            return reverse(f"console:{page}", args=[getattr(step, page)])
    return ""


def _result(step: Step) -> str:
    parts = [step.result]
    if step.until is not None and step.failed:
        parts.append(_("×{count} same failure").format(count=step.repeated))
    if step.seconds is not None:
        parts.append(took(step.seconds))
    return " · ".join(str(part) for part in parts if part)


def took(seconds: float) -> str:
    """`84 ms`, `1.2 s`, `3 m`."""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    return f"{number(round(seconds, 1), 1)} s" if seconds < 60 else span(seconds)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _with(query: QueryDict, **changes: str) -> str:
    """The query string with these parameters; an empty value takes one away."""
    values = query.copy()
    for name, value in changes.items():
        if value:
            values[name] = value
        else:
            values.pop(name, None)
    return "?" + values.urlencode()
