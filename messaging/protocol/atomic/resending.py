"""When a message of a transaction that nobody has answered goes out again (spec 5, WS-AT; protocols.md 5.5)."""

from __future__ import annotations

GROWTH = 1.4


def wait(attempt: int, first: float, most: float) -> float:
    """Seconds from attempt number `attempt` (1, 2 ...) to the next: `first`, then `GROWTH` times as long each time, up
    to `most`. Raises ValueError for an attempt before the first, or when no time would pass.
    """
    if attempt < 1 or first <= 0:
        raise ValueError(f"attempt {attempt} with a first wait of {first} s: both begin at 1")
    most = max(first, most)
    seconds = float(first)
    for _ in range(attempt - 1):
        seconds *= GROWTH
        if seconds >= most:
            return float(most)
    return min(seconds, float(most))


def patience(retries: int, first: float, most: float) -> float:
    """Seconds from the first attempt until the last of `retries` repeats has had its time to be answered: whoever has
    not answered by then counts as silent. Raises ValueError like `wait`.
    """
    return sum(wait(attempt, first, most) for attempt in range(1, retries + 2))
