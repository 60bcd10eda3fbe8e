"""Mermaid state diagrams and Markdown tables, as text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Protocol, TypeVar

Node = TypeVar("Node", bound=StrEnum)


def picture(
    start: Node,
    moves: Mapping[Node, Iterable[tuple[StrEnum, Node]]],
    ends: Iterable[Node] = (),
    *,
    loops: bool = True,
) -> str:
    """A Mermaid state diagram: one arrow for all events that lead from a state to another, in the tables' order."""
    lines = [f"[*] --> {start}"]
    order = list(moves)
    for state, row in moves.items():
        arrows: dict[Node, list[str]] = {}
        for event, target in row:
            arrows.setdefault(target, []).append(event)
        for target in sorted(arrows, key=order.index):
            if loops or target != state:
                lines.append(f"{state} --> {target} : {', '.join(arrows[target])}")
    lines += [f"{state} --> [*]" for state in order if state in set(ends)]
    body = "\n".join(f"    {line}" for line in lines)
    return f"```mermaid\nstateDiagram-v2\n{body}\n```"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    names = list(head)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


class Move(Protocol):
    """A move of one of the tables: where it may lead, and where that is said."""

    @property
    def targets(self) -> Collection[StrEnum]: ...
    @property
    def source(self) -> str: ...


def cell(move: Move | None, here: StrEnum) -> str:
    """Where a move leads from here; a dash for none."""
    if move is None:
        return "–"
    targets = [target for target in type(here) if target in move.targets]
    text = "stays" if targets == [here] else " or ".join(targets)
    return f"{text} ({move.source})" if move.source else text
