"""What can be asked of any table of states."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

State = TypeVar("State", bound=Hashable)


def reachable(start: State, ways: Mapping[State, Iterable[State]]) -> set[State]:
    """All states that can be reached from `start`, itself included."""
    found, open_ = {start}, [start]
    while open_:
        for target in ways[open_.pop()]:
            if target not in found:
                found.add(target)
                open_.append(target)
    return found
