"""The arithmetic of service levels: error budgets, and whether one is used up too fast. Pure.

Burn rates are those of Google's SRE Workbook, chapter 5 ("Alerting on SLOs": multiwindow, multi-burn-rate alerts). A
rate of 1 uses up the month's budget at the end of the month.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

# Fewer documents say nothing: one late document of two is no trend.
FEWEST = 10
FEWEST_MISSES = 2
# A target of 90 % cannot burn 14.4 times as fast as it may: so many misses are too many for any target.
MOST_MISSES = 0.9


@dataclass(frozen=True, slots=True)
class Tally:
    """Documents whose limit is past: how many there were, and how many of them missed it."""

    decided: int = 0
    missed: int = 0

    @property
    def share(self) -> float:
        return self.missed / self.decided if self.decided else 0.0


@dataclass(frozen=True, slots=True)
class Window:
    """A pair of windows: misses burn the budget in both at `factor` times the pace that it allows."""

    long: timedelta
    short: timedelta
    factor: float


WINDOWS = (
    Window(timedelta(hours=1), timedelta(minutes=5), 14.4),  # 2 % of the month's budget in an hour
    Window(timedelta(hours=6), timedelta(minutes=30), 6),  # 5 % of it in six hours
)
# An incident is over when the last half hour was no trouble: what comes and goes within minutes stays one.
CALM = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Burn:
    """The budget is used up too fast: in which windows, and how many times as fast as it may."""

    window: Window
    tally: Tally
    rate: float


def hundredths(percent: float) -> int:
    """Return 99.95 as 9995, so that budgets are exact."""
    return round(percent * 100)


def allowed(expected: int, percent: float) -> int:
    """Return how many of so many documents may miss a target."""
    return expected * (10_000 - hundredths(percent)) // 10_000


def burning(
    percent: float,
    within: Callable[[timedelta], Tally],
    *,
    since: bool = False,
) -> Burn | None:
    """Return how the budget burns; None when it does not. `within(length)`: what was decided in the time up to now.

    `since`: it burned already, so that it takes half an hour without trouble to be over.
    """
    budget = (10_000 - hundredths(percent)) / 10_000
    for window in WINDOWS:
        most = min(window.factor * budget, MOST_MISSES)
        long = within(window.long)
        if long.decided < FEWEST or long.missed < FEWEST_MISSES or long.share < most:
            continue
        short = within(max(window.short, CALM) if since else window.short)
        # Without a document nothing speaks against what the long window says.
        if not short.decided or short.share >= most:
            return Burn(window, long, long.share / budget)
    return None


def used_up_at(now: datetime, left: int, burn: Burn) -> datetime:
    """Return when the first miss too many comes, if misses go on as in the long window."""
    return now + burn.window.long * ((left + 1) / burn.tally.missed)
