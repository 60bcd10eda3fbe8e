"""Streams: exactly once, in order, and an end, whatever a link, a crash and a person do, seed after seed.

SIMULATION_SEEDS says how many (200), SIMULATION_FIRST where they start (1).
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from datetime import datetime

import pytest

from messaging.protocol.streams.acceptance import Arrival, Decision, Incoming, Verdict, decide
from messaging.protocol.streams.outgoing import Act, Do, Event, Kind, Outgoing, Policy, Step, step
from tests.simulation.streams import Broken, Build, StreamWorld
from tests.simulation.workers import ACCIDENTS

FIRST = int(os.environ.get("SIMULATION_FIRST", "1"))
SEEDS = int(os.environ.get("SIMULATION_SEEDS", "200"))
ENOUGH = 200
SEEDS_TO_FIND_A_MISTAKE = 150


def test_no_seed_breaks_a_promise() -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        world = StreamWorld(seed)
        world.play()
        seen.update(world.seen)
        seen.update(world.workers.seen)
    # A simulation in which nothing goes wrong proves nothing.
    wanted = [*Do, Verdict.ACCEPT, Verdict.DUPLICATE, Verdict.GAP, Verdict.OLD, "same-stream", "new-stream"]
    wanted += ["repeat by id", "delivered", "in_doubt", "dropped", "failed", Kind.SKIP, Kind.RESTART, Kind.RESUME]
    wanted += ["overtaken", *ACCIDENTS]
    wanted.remove(Do.ALERT)  # after a day of pauses
    if SEEDS >= ENOUGH:
        assert [name for name in wanted if not seen[name]] == []


def _moves_always(state: Incoming, arrival: Arrival, now: datetime) -> Decision:
    """Spec 3's last paragraph, read literally (M13)."""
    decision = decide(state, arrival, now)
    return replace(decision, state=Incoming(arrival.tx_sequence_id, arrival.number))


def _takes_what_comes(state: Incoming, arrival: Arrival, now: datetime) -> Decision:
    if (arrival.tx_sequence_id, arrival.number) > (state.tx_sequence_id, state.number):
        return Decision(Verdict.ACCEPT, "any", Incoming(arrival.tx_sequence_id, arrival.number))
    return decide(state, arrival, now)


def _believes_any_stream(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """An acknowledgement of another stream counts (M26)."""
    return step(state, replace(event, tx_sequence_id=state.tx_sequence_id), now, policy)


def _never_bridges(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    done = step(state, event, now, policy)
    acts = tuple(replace(act, previous=act.number - 1) if act.do is Do.TRANSMIT else act for act in done.acts)
    return Step(done.state, acts)


def _bridges_too_far(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    done = step(state, event, now, policy)
    acts = tuple(replace(act, previous=0) if act.do is Do.TRANSMIT else act for act in done.acts)
    return Step(done.state, acts)


def _starts_again_too_early(state: Outgoing, event: Event, now: datetime, policy: Policy) -> Step:
    """A new stream while something of the old one is not acknowledged."""
    done = step(state, event, now, policy)
    if event.kind is Kind.ACKNOWLEDGED and len(done.state.flight) == 1:
        number = done.state.flight[0].number
        fresh = replace(
            done.state, tx_sequence_id=state.tx_sequence_id + 1, next_number=1, acked=0, flight=(), queued=state.queued
        )
        return Step(fresh, (*done.acts, Act(Do.NEW_STREAM), Act(Do.COMPLETE, number)))
    return done


MISTAKES = {
    "the state moves without acceptance": (Build(decide=_moves_always), "accepted twice"),
    "gaps are accepted": (Build(decide=_takes_what_comes), "acknowledged and not there"),
    "stale acknowledgements count": (Build(step=_believes_any_stream), "acknowledged and not there"),
    "gaps are never bridged": (Build(step=_never_bridges), "never ends"),
    "everything follows nothing": (Build(step=_bridges_too_far), "acknowledged and not there"),
    "the outcome of an attempt that is over counts": (Build(checks_whose_outcome_it_is=False), "of another attempt"),
    "a new stream begins too early": (Build(step=_starts_again_too_early), "acknowledged and not there"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_build_is_found(name: str) -> None:
    build, shows_as = MISTAKES[name]
    for seed in range(1, 1 + SEEDS_TO_FIND_A_MISTAKE):
        try:
            StreamWorld(seed, build).play()
        except Broken as broken:
            if shows_as in str(broken):
                return
    pytest.fail(f"{SEEDS_TO_FIND_A_MISTAKE} seeds did not show that a hub is built so: {name}")


def test_a_seed_is_always_the_same_run() -> None:
    worlds = [StreamWorld(seed) for seed in (7, 7, 8)]
    for world in worlds:
        world.play()
    told = [(world.now, world.inbox, world.seen) for world in worlds]
    assert told[0] == told[1]
    assert told[0] != told[2]
