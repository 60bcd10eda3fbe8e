"""Invariants 1 to 5, 7 and 9 under everything that a link, a crash and a person can do, seed after seed.

SIMULATION_SEEDS says how many (300), SIMULATION_FIRST where they start (1).
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from messaging.protocol.acceptance import AcceptancePolicy, Decision, InboundState, Received, decide
from messaging.protocol.messages import State
from tests.simulation.builds import MISTAKES, Build
from tests.simulation.judge import Broken
from tests.simulation.workers import ACCIDENTS
from tests.simulation.world import TRACE, World

FIRST = int(os.environ.get("SIMULATION_FIRST", "1"))
SEEDS = int(os.environ.get("SIMULATION_SEEDS", "300"))
ENOUGH = 300  # seeds after which everything that follows has happened, many times over
SEEDS_TO_FIND_A_MISTAKE = 100


def test_no_seed_breaks_a_promise():
    visited: Counter[str] = Counter()

    def counted(state: InboundState, received: Received, policy: AcceptancePolicy) -> Decision:
        decision = decide(state, received, policy)
        visited[decision.rule] += 1
        return decision

    for seed in range(FIRST, FIRST + SEEDS):
        world = World(seed, Build(decide=counted))
        world.play()
        for hub in world.hubs.values():
            visited.update(row.state for row in hub.rows.values())
            visited += hub.happened
            visited += hub.workers.seen
            visited["many attempts"] += any(row.attempts > 2 for row in hub.rows.values())
            visited["wrapped"] += any((row.number or 0) > 999_999_990 for row in hub.rows.values())
    # A simulation in which nothing goes wrong proves nothing.
    wanted = ["known-id", "restarted", "next", "first", "both-one", "strict-old-number", "number-taken-by-other-id"]
    wanted += [State.DELIVERED, State.SKIPPED, State.CANCELLED, "many attempts", "wrapped"]
    wanted += ["overtaken", "lease over", *ACCIDENTS]
    if SEEDS >= ENOUGH:
        assert [name for name in wanted if not visited[name]] == []


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_build_is_found(name: str):
    mistake = MISTAKES[name]
    for seed in range(1, 1 + SEEDS_TO_FIND_A_MISTAKE):
        try:
            World(seed, mistake.build, mistake.unwatched).play()
        except Broken as broken:
            assert mistake.shows_as in str(broken).splitlines()[0]
            return
    pytest.fail(f"{SEEDS_TO_FIND_A_MISTAKE} seeds did not show that a hub is built so: {name}")


def test_a_seed_is_always_the_same_run():
    runs = [World(seed) for seed in (7, 7, 8)]
    for world in runs:
        world.play()
    told = [(world.steps, world.last_steps(), world.now) for world in runs]
    assert told[0] == told[1]
    assert told[0] != told[2]


def test_a_failure_names_its_seed_and_tells_the_last_steps():
    world = World(1, MISTAKES["two in flight"].build)
    with pytest.raises(Broken) as caught:
        world.play()
    text = str(caught.value)
    assert text.startswith("invariant 2: ")
    assert "SIMULATION_FIRST=1 SIMULATION_SEEDS=1" in text
    steps = text.splitlines()[2:]
    assert 1 < len(steps) <= TRACE
    assert any("A transmits, not taken: attempt" in step for step in steps)
    with pytest.raises(Broken) as again:
        World(1, MISTAKES["two in flight"].build).play()
    assert str(again.value) == text
