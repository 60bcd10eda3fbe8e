"""Where everything of a transaction's sequence stands on the page: `selectors.sequence` as shapes for an
SVG. The hub's lifeline is the first; no script and no style attribute, as in `messages.pages.diagram`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from messaging.console import cells
from messaging.console.resource import Column, table
from messaging.templatetags.hub import clock_time
from messaging.transactions.selectors.sequence import Exchange, Step

_LEFT, _GAP, _RIGHT = 150, 230, 340
_TOP = 60
_ROW, _MARK = 38, 34
_NAME, _LABEL, _RESULT = 26, 36, 46  # characters


@dataclass(frozen=True, slots=True)
class Shape:
    """One row at `y`. `line`: x1, x2; `head`: points of the arrow's head; `cross`: two lines where it was lost.

    `source` and `target`: names of its ends. `new_day`: it is the first of that day.
    """

    step: Step
    y: int
    label: str
    label_x: int
    line: tuple[int, int]
    head: str
    cross: tuple[tuple[int, int, int, int], ...]
    box: tuple[int, int]
    source: str
    target: str
    result: str
    href: str
    new_day: date | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """All of it for `console/transactions/transaction.html`. `lanes`: x, name, what it is there for."""

    shapes: list[Shape]
    lanes: list[tuple[int, str, str]]
    width: int
    height: int
    bottom: int
    right: int
    result_x: int
    cut: bool

    @property
    def table(self) -> dict[str, Any]:
        """The same as a table."""
        said = "Messages of the transaction in the order of time"
        return table(said, _AS_TABLE, self.shapes, about=_step, name="sequence-table")


def _step(shape: Any) -> dict[str, str]:
    return {"data-kind": shape.step.kind, "data-outcome": shape.step.outcome}


def _message(shape: Any) -> SafeString:
    step = shape.step
    if shape.href:
        return cells.link(shape.href, step.label)
    by = format_html(' <span class="text-faint">by {}</span>', step.by) if step.by and step.by != "the hub" else ""
    return cells.joined(cells.span("strong", step.label), by)


_OUTCOMES = {"lost": "not taken", "unsent": "not sent", "open": "under way"}


def _outcome(shape: Any) -> SafeString:
    step = shape.step
    result = format_html(' <span class="text-soft wrap">{}</span>', step.result) if step.result else ""
    return cells.joined(_OUTCOMES.get(step.outcome, "arrived") if step.kind == "message" else "", result)


_AS_TABLE = (
    Column("Time", lambda shape: clock_time(shape.step.at), "nowrap", zoned=True),
    Column("From, to", lambda shape: f"{shape.source} → {shape.target}" if shape.source else "—"),
    Column("Message", _message),
    Column("Outcome", _outcome),
    Column("Attempts", lambda shape: shape.step.attempts or "—", "num"),
)


def draw(exchange: Exchange) -> Drawing:
    """The drawing of a transaction's messages and decisions."""
    places = {lane.key: _LEFT + number * _GAP for number, lane in enumerate(exchange.lanes)}
    names = {lane.key: lane.name for lane in exchange.lanes}
    right = max(places.values(), default=_LEFT)
    shapes: list[Shape] = []
    y, day = _TOP, None
    for step in exchange.steps:
        today = timezone.localtime(step.at).date()
        new_day, day = (today if today != day else None), today
        height = _MARK if step.kind == "mark" else _ROW
        shapes.append(_shape(step, places, names, right, (y, height), new_day))
        y += height
    return Drawing(
        shapes=shapes,
        lanes=[(places[lane.key], _cut(lane.name, _NAME), _cut(lane.detail, _NAME)) for lane in exchange.lanes],
        width=right + _RIGHT,
        height=y + 16,
        bottom=y + 6,
        right=right,
        result_x=right + 40,
        cut=exchange.cut,
    )


def _shape(
    step: Step, places: dict[str, int], names: dict[str, str], right: int, box: tuple[int, int], new_day: date | None
) -> Shape:
    y = box[0] + box[1] - 12
    if step.kind == "mark":
        label = step.label + (f" by {step.by}" if step.by and step.by != "the hub" else "")
        middle, line = (_LEFT + right) // 2, (_LEFT - 44, right + 30)
        result = _cut(step.result)
        return Shape(step, y, _cut(label, 60), middle, line, "", (), box, "", "", result, "", new_day)
    begin, end = places[step.source], places[step.target]
    way = 1 if end > begin else -1
    stop = end - 2 * way
    head = f"{stop},{y} {stop - 9 * way},{y - 4} {stop - 9 * way},{y + 4}"
    cross: tuple[tuple[int, int, int, int], ...] = ()
    if step.outcome == "lost":
        stop, head = begin + (end - begin) * 3 // 4, ""
        cross = ((stop - 5, y - 5, stop + 5, y + 5), (stop - 5, y + 5, stop + 5, y - 5))
    elif step.outcome == "unsent":
        stop, head = begin + (end - begin) // 4, ""
    elif step.outcome == "open":
        stop = begin + (end - begin) // 2
        head = f"{stop + 9 * way},{y} {stop},{y - 4} {stop},{y + 4}"
    label = step.label + (f" ×{step.attempts}" if step.attempts > 1 else "")
    # Close to the lane that is not the hub's: there it does not lie on other lifelines.
    far = max(begin, end)
    return Shape(
        step,
        y,
        _cut(label, _LABEL),
        far - _GAP // 2,
        (begin, stop),
        head,
        cross,
        box,
        names[step.source],
        names[step.target],
        _cut(step.result),
        reverse("console:message", args=[step.message]) if step.message else "",
        new_day,
    )


def _cut(text: str, most: int = _RESULT) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
