"""Which parameters of an ebXML agreement are tried in the replay, and which of them is proposed. Pure and small."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

FEWEST = 20  # acknowledged messages below which nothing is proposed
RETRIES = (1, 2, 3, 5, 8, 10)
LONGEST = 86_400  # seconds: no proposal waits longer than a day for anything
LEAST_TIMEOUT = 2  # seconds: shorter ones would follow the noise of one quiet month


class Choice(NamedTuple):
    """Seconds and a count, as an agreement has them."""

    timeout: int
    retries: int
    retry_interval: int

    @property
    def gives_up_after(self) -> int:
        """Seconds of silence until the pair is suspended (spec 1, table 2-1)."""
        return self.timeout + self.retries * self.retry_interval


class Score(NamedTuple):
    """What the replay of all messages under a choice gives. `mean_micros` is None when no message arrives."""

    choice: Choice
    attempts: int
    needless: int
    given_up: int
    mean_micros: float | None


def in_force(measured: Mapping[str, Any]) -> Choice:
    return Choice(measured["timeout"], measured["retries"], measured["retry_interval"])


def choices(measured: Mapping[str, Any]) -> set[Choice]:
    """What is in force and, when enough was measured, combinations of these, in whole seconds, rounded up:

    Timeout: one and a half times p99.9 of the latencies, twice p99, the longest and a quarter, what is in force.
    Silence to be survived: what is agreed now, twice and four times that, the longest outage and a quarter; never less
    than now. Retries: `RETRIES`, and what is in force. RetryInterval follows from the three, and is not shorter than
    Timeout. `measured`: the terms in force, `answered`, and p99, p999, longest, longest_outage in seconds.
    """
    now = in_force(measured)
    if measured["answered"] < FEWEST:
        return {now}
    waits = (measured["p999"] * 1.5, measured["p99"] * 2, measured["longest"] * 1.25)
    timeouts = {now.timeout} | {min(max(math.ceil(wait), LEAST_TIMEOUT), LONGEST) for wait in waits}
    agreed = now.gives_up_after
    silences = {
        max(agreed, min(math.ceil(silence), LONGEST))
        for silence in (agreed, agreed * 2, agreed * 4, measured["longest_outage"] * 1.25)
    }
    found = {now}
    for timeout, silence, retries in itertools.product(timeouts, silences, {*RETRIES, now.retries} - {0}):
        interval = max(math.ceil((silence - timeout) / retries), timeout)
        if interval <= max(LONGEST, now.retry_interval):
            found.add(Choice(timeout, retries, interval))
    return found


def chosen(measured: Mapping[str, Any], scores: Sequence[Score]) -> list[tuple[Choice, str, Score]]:
    """The option `in_force` and, when enough was measured, `proposed`, each with its score.

    Proposed: of the choices that give up no more messages than what is in force, those with the fewest needless
    repeats; of these, the lowest mean time, then the fewest attempts. What is in force stays where nothing is better;
    else what gives up after about the time that is agreed now goes first.
    """
    now = in_force(measured)
    ours = next(score for score in scores if score.choice == now)
    found = [(now, "in_force", ours)]
    if measured["answered"] < FEWEST:
        return found

    def order(score: Score) -> tuple[Any, ...]:
        mean = math.inf if score.mean_micros is None else score.mean_micros
        change = abs(score.choice.gives_up_after - now.gives_up_after)
        return score.needless, mean, score.attempts, score.choice != now, change, *score.choice

    best = min((score for score in scores if score.given_up <= ours.given_up), key=order)
    return [*found, (best.choice, "proposed", best)]
