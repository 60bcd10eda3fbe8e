"""Rows of a sequence diagram that say the same, put together when there are too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from messaging.messages.selectors.diagram_steps import Step


def fold(steps: Sequence[Step]) -> list[Step]:
    """The same rows with repeats together: failures of one message that are alike, and exchanges that went alike.

    A message whose attempts fail alike one after the other becomes one arrow for all of them, and what went through
    without trouble becomes one exchange for all that went so in a row.
    """
    shaped: list[tuple[object, list[Step]]] = []
    at: dict[str, int] = {}
    for step in steps:
        if step.kind == "wait" or not step.message or step.kind == "mark":
            if step.kind == "mark":
                shaped.append((("mark", len(shaped)), [step]))
                at.clear()  # nothing is folded across a line
            continue
        if step.message not in at:
            at[step.message] = len(shaped)
            shaped.append((None, []))
        shaped[at[step.message]][1].append(step)
    exchanges = [(key or _shape(rows), _alike(rows)) for key, rows in shaped]
    found: list[Step] = []
    for _, run in groupby(exchanges, key=lambda one: one[0]):
        alike = [rows for _, rows in run]
        found += alike[0] if len(alike) == 1 else _together(alike)
    return sorted(found, key=lambda step: (step.at, step.rank))


def _shape(rows: Sequence[Step]) -> object:
    return tuple((step.kind, step.source, step.target, step.outcome, step.result) for step in _alike(rows))


def _alike(rows: Sequence[Step]) -> list[Step]:
    """Attempts of one message that failed alike, as one."""
    found: list[Step] = []
    for step in rows:
        before = found[-1] if found else None
        same = before is not None and (before.kind, before.outcome, before.result, before.target) == (
            step.kind,
            step.outcome,
            step.result,
            step.target,
        )
        if before is None or not same or not step.failed:
            found.append(step)
            continue
        found[-1] = replace(
            before,
            repeated=before.repeated + 1,
            until=step.at,
            label=before.label.partition(" try ")[0] + f" try {before.number}–{step.number}",
        )
    return found


def _together(alike: Sequence[list[Step]]) -> list[Step]:
    found = []
    for place, step in enumerate(alike[0]):
        last = alike[-1][place]
        count = sum(rows[place].repeated for rows in alike)
        seconds = [rows[place].seconds for rows in alike]
        known = [value for value in seconds if value is not None]
        found.append(
            replace(
                step,
                repeated=count,
                until=last.until or last.at,
                seconds=sum(known) / len(known) if known else None,
                size=None,
            )
        )
    return found
