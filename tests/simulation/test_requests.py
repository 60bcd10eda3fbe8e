"""Repeatable requests: executed once, answered alike, and an end that is true, seed after seed.

SIMULATION_SEEDS says how many (300), SIMULATION_FIRST where they start (1).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from messaging.protocol import memory, repeating
from messaging.protocol.memory import Decision, Memory, Received, Refusal, Stored, Verdict
from messaging.protocol.repeating import ENDS, Act, Policy, Reached, Reply, Step
from tests.simulation.requests import SKEW, START, WINDOW, Broken, Build, RequestWorld
from tests.simulation.workers import ACCIDENTS, Fault

FIRST = int(os.environ.get("SIMULATION_FIRST", "1"))
SEEDS = int(os.environ.get("SIMULATION_SEEDS", "300"))
ENOUGH = 300
SEEDS_TO_FIND_A_MISTAKE = 1500


def test_no_seed_breaks_a_promise() -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        world = RequestWorld(seed)
        world.play()
        seen.update(world.seen)
        seen.update(world.workers.seen)
    # A simulation in which nothing goes wrong proves nothing.
    wanted = [*Reply, *(act for act in Act if act not in (Act.SEND, Act.AWAIT)), *Refusal]
    wanted += ["in-doubt", "in-work", "content-differs", "forgotten-by-request", Verdict.REPLAY, Verdict.EXECUTE]
    wanted += ["overtaken", "lease over", *ACCIDENTS]
    wanted += [cause for _, cause in ENDS.values()]
    wanted += ["restored", "window", "clock", "swept", "killed between the service and the record"]
    if SEEDS >= ENOUGH:
        assert [name for name in wanted if not seen[name]] == []


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_kill_at_any_one_step_of_a_calm_run_executes_nothing_twice(seed: int) -> None:
    calm = RequestWorld(seed, kill_at=0)
    calm.play()
    assert calm.points > 0
    for point in range(1, calm.points + 1):
        RequestWorld(seed, kill_at=point).play()


# Wrong builds: each is one sentence of the specification, disregarded.


def _no_window(known: Memory, request: Received, stored: Stored | None, now: datetime) -> Decision:
    ever = replace(known, window=timedelta(days=9), memory_start=START - timedelta(9), forgotten_through=START)
    return memory.decide(replace(ever, forgotten_through=ever.memory_start), request, stored, now)


def _instead(verdict: Verdict, code: str = "") -> Any:
    """EXECUTE instead of this verdict."""

    def decide(known: Memory, request: Received, stored: Stored | None, now: datetime) -> Decision:
        found = memory.decide(known, request, stored, now)
        return Decision(Verdict.EXECUTE) if found.verdict is verdict and found.code == code else found

    return decide


def _content_is_not_compared(known: Memory, request: Received, stored: Stored | None, now: datetime) -> Decision:
    return memory.decide(known, replace(request, fingerprint=stored.fingerprint) if stored else request, stored, now)


def _a_new_time_for_each_copy(state: repeating.State, now: datetime, policy: Policy) -> Step:
    return repeating.begin(replace(state, first_sent=None), now, policy)


def _no_deadline(state: repeating.State, now: datetime, policy: Policy) -> Step:
    return repeating.begin(state, now, replace(policy, window=timedelta(days=1)))


def _for_ever(state: repeating.State, reply: Reply, now: datetime, policy: Policy, *rest: float) -> Step:
    return repeating.step(state, reply, now, replace(policy, window=timedelta(days=1)), *rest)


def _certain_of(*replies: Reply) -> Any:
    """After these the message counts as not executed."""

    def step(state: repeating.State, reply: Reply, now: datetime, policy: Policy, *rest: float) -> Step:
        return repeating.step(state, Reply.NOT_SENT if reply in replies else reply, now, policy, *rest)

    return step


def _the_last_word_counts(state: repeating.State, reply: Reply, now: datetime, policy: Policy, *rest: float) -> Step:
    """A refusal of the last copy is taken for the outcome of all."""
    known = replace(state, reached=Reached.NOWHERE) if reply is Reply.REFUSED else state
    return repeating.step(known, reply, now, policy, *rest)


def _nobody_answers(state: repeating.State, reply: Reply, now: datetime, policy: Policy, *rest: float) -> Step:
    """A refused log-in counts like a connection that never came up."""
    done = repeating.step(state, reply, now, policy, *rest)
    return replace(done, state=state) if reply is Reply.ACCESS_REFUSED else done


def _the_last_one_says_why(state: repeating.State, reply: Reply, now: datetime, policy: Policy, *rest: float) -> Step:
    """Of several refusals the last counts."""
    done = repeating.step(state, reply, now, policy, *rest)
    if reply is not Reply.ACCESS_REFUSED or state.reached is Reached.SERVICE:
        return done
    return replace(done, state=replace(done.state, reached=Reached.LOG_IN))


def _outside_is_failed(state: repeating.State, reply: Reply, now: datetime, policy: Policy, *rest: float) -> Step:
    done = repeating.step(state, reply, now, policy, *rest)
    return replace(done, act=Act.FAIL) if reply is Reply.OUTSIDE_WINDOW else done


TWICE = "is executed twice"
FAILED = "failed ("
MISTAKES: dict[str, tuple[Build, str]] = {
    "the window is not looked at": (Build(decide=_no_window), "twice"),
    "an id whose lease is over is executed again": (Build(decide=_instead(Verdict.DOUBT, "in-doubt")), TWICE),
    "an id that is in progress is executed beside it": (Build(decide=_instead(Verdict.BUSY, "in-work")), TWICE),
    "an answered id is executed again": (Build(decide=_instead(Verdict.REPLAY)), TWICE),
    "contents are not compared": (Build(decide=_content_is_not_compared), "another document"),
    "what a restore loses is not noticed": (Build(start_after_loss=lambda now, seen, skew: START), TWICE),
    "after a restore senders' clocks are right": (
        Build(start_after_loss=lambda now, seen, skew: max(now, seen)),
        TWICE,
    ),
    "the service is run before the id is committed": (Build(admits_first=False), TWICE),
    "what happened is released like what did not": (Build(releases_only_what_did_not_happen=False), TWICE),
    "a repeat gets an answer of its own": (Build(keeps_answers=False), "its sender is told"),
    "a forgotten id is forgotten": (Build(keeps_forgotten_ids=False), TWICE),
    "a longer window brings swept ids back": (Build(keeps_how_far_it_forgot=False), "twice"),
    "the horizon goes back with the clock": (Build(keeps_its_heartbeat=False), "taken after all"),
    "ids are swept by their arrival": (Build(sweeps_by_first_instance=False), TWICE),
    "a repeat has an id of its own": (Build(repeats_under_the_same_id=False), TWICE),
    "a repeat has a first-instance time of its own": (
        Build(begin=_a_new_time_for_each_copy),
        "another first-instance time",
    ),
    "repeats go on after the window": (
        Build(begin=_no_deadline, step=_for_ever, looks_at_the_window_before_it_talks=False),
        "may have forgotten",
    ),
    "a lost answer means that nothing happened": (Build(step=_certain_of(Reply.LOST, Reply.BUSY)), FAILED),
    "who refuses the log-in was not reached": (Build(step=_nobody_answers), "never_sent and was answered"),
    "the last refusal speaks for those before it": (Build(step=_the_last_one_says_why), "access_refused and was"),
    "a refused copy speaks for those before it": (Build(step=_the_last_word_counts), FAILED),
    "what was claimed in time goes out whenever": (
        Build(looks_at_the_window_before_it_talks=False),
        "may have forgotten",
    ),
    "the outcome of an attempt that is over counts": (Build(checks_whose_outcome_it_is=False), "of another attempt"),
    "what is outside of the window has failed": (Build(step=_outside_is_failed), FAILED),
}


def _runs(build: Build) -> Iterator[RequestWorld]:
    """Storms first, then a machine that stands still for a whole window at each step, then more storms."""
    yield from (RequestWorld(seed, build) for seed in range(1, 101))
    longer = (WINDOW + SKEW).total_seconds()
    yield from (RequestWorld(1, build, fault=Fault(step=step, stands=longer)) for step in range(1, 40))
    yield from (RequestWorld(seed, build) for seed in range(101, SEEDS_TO_FIND_A_MISTAKE + 1))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_build_is_found(name: str) -> None:
    build, shows_as = MISTAKES[name]
    for world in _runs(build):
        try:
            world.play()
        except Broken as broken:
            if shows_as in str(broken):
                return
    pytest.fail(f"no run showed that a hub is built so: {name}")


def test_a_seed_is_always_the_same_run() -> None:
    worlds = [RequestWorld(seed) for seed in (7, 7, 8)]
    for world in worlds:
        world.play()
    told = [(world.now, world.count, world.seen) for world in worlds]
    assert told[0] == told[1]
    assert told[0] != told[2]
