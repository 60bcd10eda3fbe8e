"""When a pair behaves unlike itself: acknowledgements too slow, too much failing, a partner that went silent. Pure.

A pair is compared with its own past, in windows of five minutes. Usual is the median of the windows of the last 24
hours, or of the last 7 days where 24 hours have too few; how far a window may lie above it is measured by the median
absolute deviation (MAD), which a few bad hours do not move. Where too little is known nothing is said: no alarm, and no
all-clear either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

WINDOW = timedelta(minutes=5)
DAY, WEEK = timedelta(days=1), timedelta(days=7)
LOOK_BACK = timedelta(days=11)  # a week, and the pause that reaches into it

# How many windows make a past: two hours of traffic within a day, or one within a week.
WINDOWS_OF_A_DAY, WINDOWS_OF_A_WEEK = 24, 12
# A window counts with at least so many acknowledgements, or outcomes; an alarm needs so many failures.
MIN_ACKS, MIN_OUTCOMES, MIN_FAILURES = 5, 5, 3
# Limit = median + the largest of: six MADs scaled to standard deviations, a share of the median, an absolute least.
DEVIATIONS, MAD_TO_SIGMA = 6.0, 1.4826
ACK_SHARE, ACK_LEAST = 0.5, 0.25  # seconds
FAILURE_LEAST = 0.10
# Silent: longer than twice the longest pause of the past week, and this grace.
PAUSES, GRACE = 2, timedelta(minutes=10)
# Or: longer than this, while the same hours of a week ago and of four of the six days between were busy.
CALENDAR_LEAST, CALENDAR_DAYS, CALENDAR_WINDOWS = timedelta(minutes=30), 4, 3

ACK_SLOW, FAILURE_RATE, PARTNER_SILENT = "live_ack_slow", "live_failure_rate", "live_partner_silent"
CAUSES = (ACK_SLOW, FAILURE_RATE, PARTNER_SILENT)


@dataclass(frozen=True, slots=True)
class Window:
    """What happened on a pair in five minutes. `contacts`: what the partner sent, copies and refused ones included."""

    start: datetime
    delivered: int = 0
    failures: int = 0  # attempts that failed, messages given up, and messages refused
    contacts: int = 0
    acks: int = 0
    ack_seconds: float = 0.0

    @property
    def latency(self) -> float | None:
        """Mean seconds to an acknowledgement; None for too few."""
        return self.ack_seconds / self.acks if self.acks >= MIN_ACKS else None

    @property
    def failure_rate(self) -> float | None:
        """Share of what failed among what ended; None for too little."""
        # On a pair that receives, what was refused is a contact already.
        outcomes = max(self.delivered + self.failures, self.contacts)
        return self.failures / outcomes if outcomes >= MIN_OUTCOMES else None


@dataclass(frozen=True, slots=True)
class Range:
    """What is usual, and the limit above which it is not."""

    middle: float
    limit: float


@dataclass(frozen=True, slots=True)
class Usual:
    """A pair's past. None: too little is known. `contacts`: starts of the windows in which the partner was heard."""

    latency: Range | None = None
    failure_rate: Range | None = None
    longest_pause: timedelta | None = None
    contacts: tuple[datetime, ...] = ()
    known_since: datetime | None = None

    @property
    def silence_limit(self) -> timedelta | None:
        """A partner that was heard may be silent for so long."""
        return None if self.longest_pause is None else self.longest_pause * PAUSES + GRACE


UNKNOWN = Usual()


@dataclass(frozen=True, slots=True)
class Finding:
    """What is so with one pair now. `out`: True = out of range, False = within, None = nobody can tell."""

    cause: str
    out: bool | None
    sentence: str = ""


def usual(windows: Sequence[Window], before: datetime) -> Usual:
    """The past of a pair: its windows in order of time, those that began before `before` (not the one judged)."""
    past = [window for window in windows if window.start < before]
    week = [window for window in past if window.start >= before - WEEK]
    contacts = tuple(window.start for window in past if window.contacts)
    return Usual(
        latency=_range([(window.start, window.latency) for window in week], before, least=ACK_LEAST, share=ACK_SHARE),
        failure_rate=_range([(window.start, window.failure_rate) for window in week], before, least=FAILURE_LEAST),
        longest_pause=_longest_pause(contacts, before - WEEK),
        contacts=contacts,
        known_since=past[0].start if past else None,
    )


def judge_latency(known: Usual, window: Window) -> Finding:
    """Whether acknowledgements of this window took too long."""
    value, usually = window.latency, known.latency
    if value is None or usually is None:
        return Finding(ACK_SLOW, None)
    return Finding(
        ACK_SLOW,
        value > usually.limit,
        f"{window.acks} acknowledgements took {value:.2f} s on average in the five minutes from "
        f"{window.start:%Y-%m-%d %H:%M} UTC; usual is {usually.middle:.2f} s, and at most {usually.limit:.2f} s.",
    )


def judge_failures(known: Usual, window: Window) -> Finding:
    """Whether too much of this window failed."""
    value, usually = window.failure_rate, known.failure_rate
    if value is None or usually is None:
        return Finding(FAILURE_RATE, None)
    return Finding(
        FAILURE_RATE,
        value > usually.limit and window.failures >= MIN_FAILURES,
        f"{window.failures} failures, {value:.0%} of what ended, in the five minutes from "
        f"{window.start:%Y-%m-%d %H:%M} UTC; usual are {usually.middle:.1%}, and at most {usually.limit:.1%}.",
    )


def judge_silence(known: Usual, last: datetime | None, now: datetime) -> Finding:
    """Whether a partner that is heard in a rhythm has been silent for too long at `now`; `last`: when it was heard."""
    limit = known.silence_limit
    if last is None or limit is None:
        return Finding(PARTNER_SILENT, None)
    silent = now - last
    said = f"Nothing since {last:%Y-%m-%d %H:%M} UTC"
    if silent > limit:
        pause = _words(known.longest_pause or limit)
        return Finding(PARTNER_SILENT, True, f"{said}; the longest pause of the past week was {pause}.")
    if silent >= CALENDAR_LEAST and _busy_hours(known, last, now):
        return Finding(
            PARTNER_SILENT, True, f"{said}; at these hours a week ago, and on most days since, messages came."
        )
    return Finding(PARTNER_SILENT, False)


def _range(
    values: Sequence[tuple[datetime, float | None]], before: datetime, *, least: float, share: float = 0.0
) -> Range | None:
    """Median and limit of what is known: of the last day if that is enough, else of the week; None for too little."""
    known = [(start, value) for start, value in values if value is not None]
    day = [value for start, value in known if start >= before - DAY]
    chosen = day if len(day) >= WINDOWS_OF_A_DAY else [value for _, value in known]
    if len(chosen) < WINDOWS_OF_A_WEEK:
        return None
    middle = median(chosen)
    deviation = median(abs(value - middle) for value in chosen)
    return Range(middle, middle + max(DEVIATIONS * MAD_TO_SIGMA * deviation, share * middle, least))


def _longest_pause(starts: Sequence[datetime], since: datetime) -> timedelta | None:
    """The longest of those that ended since; None for too few contacts since then."""
    if sum(start >= since for start in starts) < WINDOWS_OF_A_WEEK:
        return None
    return max(later - earlier for earlier, later in pairwise(starts) if later >= since)


def _busy_hours(known: Usual, last: datetime, now: datetime) -> bool:
    """Whether the hours of this silence are ones at which the partner is heard: a week ago, and on most days since.

    A week ago tells weekends apart; the days between tell a single busy evening from a habit.
    """
    if known.known_since is None or known.known_since > last - WEEK:
        return False

    def busy(days: int) -> bool:
        begin, end = last - DAY * days, now - DAY * days
        return bisect_left(known.contacts, end) - bisect_left(known.contacts, begin) >= CALENDAR_WINDOWS

    return busy(7) and sum(busy(days) for days in range(1, 7)) >= CALENDAR_DAYS


def _words(span: timedelta) -> str:
    minutes = int(span.total_seconds() // 60)
    return f"{minutes} minutes" if minutes < 120 else f"{minutes / 60:.0f} hours"
