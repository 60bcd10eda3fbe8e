"""The life of a delivery: one document on its way to one trigger. `MOVES` is every move that exists."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from messaging.protocol.errors import IllegalTransition


class DeliveryState(StrEnum):
    """Where one document on its way to one trigger stands."""

    WAITING = "waiting"
    RUNNING = "running"
    JOINED = "joined"
    COMPLETED = "completed"
    FAILED = "failed"
    DUPLICATE = "duplicate"
    IN_DOUBT = "in_doubt"
    DISCARDED = "discarded"
    SETTLED = "settled"


_D = DeliveryState

MOVES: Mapping[DeliveryState, frozenset[DeliveryState]] = {
    _D.WAITING: frozenset({_D.RUNNING, _D.DUPLICATE, _D.IN_DOUBT, _D.JOINED, _D.DISCARDED, _D.FAILED}),
    _D.RUNNING: frozenset({_D.WAITING, _D.COMPLETED, _D.FAILED, _D.DUPLICATE, _D.IN_DOUBT, _D.JOINED, _D.DISCARDED}),
    _D.JOINED: frozenset({_D.COMPLETED, _D.DISCARDED}),
    # Final for the machine: a person settles it, or has the resolver asked again.
    _D.IN_DOUBT: frozenset({_D.SETTLED, _D.WAITING}),
    _D.FAILED: frozenset({_D.SETTLED}),
    _D.COMPLETED: frozenset(),
    _D.DUPLICATE: frozenset(),  # "Duplicate documents cannot be resubmitted" (spec 4)
    _D.DISCARDED: frozenset(),
    _D.SETTLED: frozenset(),
}
FINAL: frozenset[DeliveryState] = frozenset(state for state, targets in MOVES.items() if not targets)


def move(state: str, target: str) -> DeliveryState:
    """`target`, when a delivery that is `state` may become it. Raises IllegalTransition for a move not in `MOVES`."""
    goal = DeliveryState(target)
    if goal not in MOVES[DeliveryState(state)]:
        raise IllegalTransition(str(state), str(target), f"A delivery that is {state} cannot become {target}.")
    return goal
