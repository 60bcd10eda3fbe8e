"""Where everything of a sequence diagram stands on the page: rows of `selectors.diagram` as shapes for an SVG.

No script and no style attribute: lines, polygons and words with classes, so that it prints and obeys the page's policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Any

from django.http import QueryDict
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from messaging.console import cells
from messaging.console.resource import Column, table
from messaging.journal.wording import span
from messaging.messages.selectors.diagram import Diagram
from messaging.messages.selectors.diagram_steps import Step
from messaging.templatetags.hub import clock_time, octets
from messaging.templatetags.hub import took as exactly

WIDTH = 960
LANES = {"app": 150, "hub": 400, "partner": 650}
_TOP = 46
_ROW, _WAIT, _MARK = 38, 26, 34
_SCOPE_WORDS = {"document": "This document", "hour": "Last hour", "day": "Last day"}
_LABEL = 40  # characters between two lanes
_RESULT = 44  # and beside them


@dataclass(frozen=True, slots=True)
class Shape:
    """One row at `y`. `line`: x1, x2; `head`: points of the arrow's head; `cross`: two lines where it was lost; `bar`:
    where it was refused. `href`: the page of what it shows; `says`: all of it in words.
    """

    step: Step
    y: int
    label: str
    label_x: int = 0
    line: tuple[int, int] = (0, 0)
    head: str = ""
    cross: tuple[tuple[int, int, int, int], ...] = ()
    bar: tuple[int, int, int] | None = None
    day: date | None = None
    href: str = ""
    says: str = ""
    result: str = ""
    box: tuple[int, int] = (0, _ROW)

    @property
    def dashed(self) -> bool:
        return self.step.kind == "answer"


@dataclass(frozen=True, slots=True)
class Drawing:
    """All of a diagram for `console/parts/diagram.html`."""

    shapes: list[Shape]
    width: int
    height: int
    bottom: int
    lanes: list[tuple[int, str]]
    failed_only: bool
    cut: bool
    folded: bool
    scope: str
    scopes: list[tuple[str, str, str]] = field(default_factory=list)  # (name, words, query)
    failed_query: str = ""
    title: str = ""
    arrows: int = 0

    @property
    def table(self) -> dict[str, Any]:
        """The same as a table."""
        return table(f"{self.title}, as a table", _AS_TABLE, self.shapes, about=_step, name="diagram-table")


def _step(shape: Any) -> dict[str, str]:
    return {"data-kind": shape.step.kind, "data-outcome": shape.step.outcome}


def _what(shape: Any) -> SafeString:
    step = shape.step
    waits = "waits " if step.kind == "wait" and not shape.href else ""
    return cells.joined(
        cells.link(shape.href, step.label) if shape.href else f"{waits}{step.label}",
        f" ×{step.repeated}" if step.repeated > 1 else "",
        format_html(' <span class="text-faint">by {}</span>', step.by) if step.by else "",
    )


def _outcome(shape: Any) -> SafeString:
    step = shape.step
    result = format_html(' <span class="text-soft">{}</span>', step.result) if step.result else ""
    return cells.joined(step.outcome if step.is_arrow else "", result)


_AS_TABLE = (
    Column("Time", lambda shape: clock_time(shape.step.at), "nowrap"),
    Column("From, to", lambda one: f"{one.step.source} → {one.step.target}" if one.step.is_arrow else "—", "nowrap"),
    Column("What", _what),
    Column("Outcome", _outcome),
    Column("Took", lambda one: "—" if one.step.seconds is None else exactly(one.step.seconds), "num nowrap"),
    Column("Size", lambda shape: octets(shape.step.size) if shape.step.size else "—", "num nowrap"),
)


def wants_failed(query: QueryDict) -> bool:
    """Whether the URL asks for what failed only."""
    return query.get("failed", "") in ("1", "true")


def draw(diagram: Diagram, query: QueryDict) -> Drawing:
    """The drawing. `query`: the page's parameters, which its links keep."""
    shapes: list[Shape] = []
    y, day = _TOP, None
    for step in diagram.steps:
        today = timezone.localtime(step.at).date()
        new_day, day = (today if today != day else None), today
        height = {"wait": _WAIT, "mark": _MARK}.get(step.kind, _ROW)
        shapes.append(_shape(step, y + height - 12, new_day, (y, height)))
        y += height
    what = _SCOPE_WORDS[diagram.scope].lower() if diagram.about is None else "this document"
    return Drawing(
        shapes=shapes,
        width=WIDTH,
        height=y + 16,
        bottom=y + 6,
        lanes=[(LANES[key], _cut(name, 26)) for key, name in zip(LANES, diagram.lanes, strict=True)],
        failed_only=diagram.failed_only,
        cut=diagram.cut,
        folded=diagram.folded,
        scope=diagram.scope,
        scopes=[(name, _SCOPE_WORDS[name], _with(query, scope=name)) for name in diagram.scopes],
        failed_query=_with(query, failed="" if diagram.failed_only else "1"),
        title=f"Sequence diagram: {what}{', failures only' if diagram.failed_only else ''}",
        arrows=sum(step.is_arrow for step in diagram.steps),
    )


def _shape(step: Step, y: int, day: date | None, box: tuple[int, int]) -> Shape:
    if step.kind == "wait":
        return Shape(step, y, step.label, LANES["hub"], says=f"Waits {step.label}.", day=day, box=box)
    if step.kind == "mark":
        label = step.label + (f" by {step.by}" if step.by else "")
        said = f"{label}{f': {step.result}' if step.result else ''}."
        return Shape(step, y, _cut(label, _LABEL), LANES["hub"], says=said, day=day, result=_cut(step.result), box=box)
    begin, end = LANES[step.source], LANES[step.target]
    way = 1 if end > begin else -1
    stop = end - 2 * way
    cross: tuple[tuple[int, int, int, int], ...] = ()
    bar: tuple[int, int, int] | None = None
    head = f"{stop},{y} {stop - 9 * way},{y - 4} {stop - 9 * way},{y + 4}"
    if step.outcome in ("lost", "unknown"):
        stop = begin + (end - begin) * 3 // 4
        head = ""
        cross = ((stop - 5, y - 5, stop + 5, y + 5), (stop - 5, y + 5, stop + 5, y - 5))
        if step.outcome == "unknown":
            cross = ()
    elif step.outcome == "refused":
        # Half an arrow's head: it came, and was not taken.
        head = f"{stop},{y} {stop - 9 * way},{y - 5} {stop - 9 * way},{y}"
        bar = (end - 12 * way, y - 7, y + 7)
    elif step.outcome == "open":
        stop = begin + (end - begin) // 2
        head = f"{stop + 9 * way},{y} {stop},{y - 4} {stop},{y + 4}"
    return Shape(
        step,
        y,
        _cut(step.label + (f" ×{step.repeated}" if step.repeated > 1 else ""), _LABEL),
        (begin + end) // 2,
        (begin, stop),
        head,
        cross,
        bar,
        day,
        _href(step),
        _says(step),
        _cut(_result(step)),
        box,
    )


def _href(step: Step) -> str:
    """Where it is looked at closely: an attempt's octets, the partner's answer, the application's delivery."""
    if step.transmission:
        return reverse("console:transmission", args=[step.transmission])
    if step.signal:
        return reverse("console:signal", args=[step.signal])
    if step.delivery:
        return reverse("console:delivery", args=[step.delivery])
    return reverse("console:message", args=[step.message]) if step.message else ""


def _result(step: Step) -> str:
    parts = [step.result]
    if step.repeated > 1 and step.failed:
        parts.append(f"×{step.repeated} same failure")
    if step.seconds is not None:
        parts.append(took(step.seconds))
    return " · ".join(part for part in parts if part)


def took(seconds: float) -> str:
    """`84 ms`, `1.2 s`, `3 m`."""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    return f"{seconds:.1f} s" if seconds < 60 else span(seconds)


def _says(step: Step) -> str:
    fate = {"lost": "lost", "refused": "refused", "open": "under way", "unknown": "outcome not known"}
    parts = [f"{step.source} to {step.target}: {step.label}", fate.get(step.outcome, ""), _result(step)]
    return ", ".join(part for part in parts if part)


def _cut(text: str, most: int = _RESULT) -> str:
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
