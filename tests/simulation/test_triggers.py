"""Documents and one trigger: processed once where that is promised, in order, and never in doubt for nothing.

SIMULATION_SEEDS says how many (300), SIMULATION_FIRST where they start (1).
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from messaging.protocol import processing, service_ends
from messaging.protocol.processing import Answer, Decision, DeliveryState, Entry, Evidence, Properties, Status
from messaging.protocol.service_ends import Next, Ran
from tests.simulation.triggers import Broken, Build, TriggerWorld

FIRST = int(os.environ.get("SIMULATION_FIRST", "1"))
SEEDS = int(os.environ.get("SIMULATION_SEEDS", "300"))
ENOUGH = 300
SEEDS_TO_FIND_A_MISTAKE = 3000


def test_no_seed_breaks_a_promise() -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        world = TriggerWorld(seed)
        world.play()
        seen.update(world.seen)
    # A simulation in which nothing goes wrong proves nothing.
    wanted = [
        *Status,
        *Ran,
        *Next,
        "ask",
        "suspend",
        "resolver",
        "history down",
        "late outcome",
        "killed after the claim",
    ]
    wanted += ["killed between the service and the record", "killed in a callable's transaction"]
    wanted += ["restored", "in doubt after a restore"]
    wanted += ["killed between the resolver and the record", DeliveryState.SETTLED, DeliveryState.FAILED]
    if SEEDS >= ENOUGH:
        assert [name for name in wanted if not seen[name]] == []


@pytest.mark.parametrize("seed", range(1, 25))
def test_a_kill_at_any_one_step_of_a_calm_run_processes_nothing_twice(seed: int) -> None:
    calm = TriggerWorld(seed, kill_at=0)
    calm.play()
    assert calm.points > 0
    for point in range(1, calm.points + 1):
        TriggerWorld(seed, kill_at=point).play()


# Wrong builds: each is one sentence of the specification, disregarded.


def _new(step: str) -> Decision:
    return Decision(Status.NEW, ask_resolver=False, suspend=False, evidence=(Evidence(step, "wrong"),))


def _taken_for_new(*entries: Entry) -> Any:
    """What the history says is passed over, when it says this."""

    def decide(properties: Properties, *, entry: Entry | None, **asked: Any) -> Decision:
        return _new("history") if entry in entries else processing.decide(properties, entry=entry, **asked)

    return decide


def _counts_nothing(properties: Properties, *, redelivery_count: int, **asked: Any) -> Decision:
    return processing.decide(properties, redelivery_count=0, **asked)


def _undefined_is_new(properties: Properties, *, redelivery_count: int, **asked: Any) -> Decision:
    """Also when this hub has handed it over itself since."""
    return processing.decide(properties, redelivery_count=min(redelivery_count, 0), **asked)


def _asks_nobody(properties: Properties, **asked: Any) -> Decision:
    found = processing.decide(properties, **asked)
    return _new("resolver") if found.ask_resolver else found


def _taken_at_its_word(*answers: Answer) -> Any:
    """These answers of a resolver count as NEW."""

    def conclude(properties: Properties, decision: Decision, answer: Answer, detail: str = "") -> Decision:
        return processing.conclude(properties, decision, Answer.NEW if answer in answers else answer, detail)

    return conclude


def _doubt_is_duplicate(properties: Properties, decision: Decision, answer: Answer, detail: str = "") -> Decision:
    unsure = answer not in (Answer.NEW, Answer.DUPLICATE)
    return processing.conclude(properties, decision, Answer.DUPLICATE if unsure else answer, detail)


def _ends_as(taken_for: dict[Ran, Ran]) -> Any:
    def after(ran: Ran, **known: Any) -> Next:
        return service_ends.after(taken_for.get(ran, ran), **known)

    return after


def _retries_for_ever(ran: Ran, **known: Any) -> Next:
    return service_ends.after(ran, **known | {"policy": replace(known["policy"], max_retries=99)})


def _lost_is_completed(ran: Ran, **known: Any) -> Next:
    return Next.COMPLETE if ran is Ran.UNKNOWN else service_ends.after(ran, **known)


TWICE, NEVER = "is processed twice", "was never processed"
MISTAKES: dict[str, tuple[Build, str]] = {
    "begun is new": (Build(decide=_taken_for_new(Entry.STARTED)), TWICE),
    "completed is new": (Build(decide=_taken_for_new(Entry.COMPLETED)), TWICE),
    "a history that cannot be read has nothing": (Build(decide=_taken_for_new(Entry.UNREACHABLE)), TWICE),
    "redeliveries are not looked at": (Build(decide=_counts_nothing), TWICE),
    "lost hand-overs are not counted": (Build(redelivered=lambda count: count), TWICE),
    "what was undefined stays undefined": (Build(decide=_undefined_is_new), TWICE),
    "the resolver is not asked": (Build(decide=_asks_nobody), TWICE),
    "a resolver's duplicate is new": (Build(conclude=_taken_at_its_word(Answer.DUPLICATE)), TWICE),
    "what a resolver cannot say is new": (
        Build(conclude=_taken_at_its_word(Answer.TRANSIENT, Answer.FAILED, Answer.NONSENSE, Answer.IN_DOUBT)),
        TWICE,
    ),
    "what a resolver cannot say is a duplicate": (Build(conclude=_doubt_is_duplicate), NEVER),
    "the history is written after the service": (Build(begins_before_the_service=False), TWICE),
    "what is completed is not kept": (Build(records_what_is_completed=False), TWICE),
    "what did not happen stays begun": (Build(releases_what_did_not_happen=False), "in doubt for no reason"),
    "a lost answer means that nothing happened": (Build(after=_ends_as({Ran.UNKNOWN: Ran.TRANSIENT})), TWICE),
    "a lost answer means that it happened": (Build(after=_lost_is_completed), NEVER),
    "an error is tried again": (Build(after=_ends_as({Ran.ERROR: Ran.TRANSIENT})), TWICE),
    "retries never end": (Build(after=_retries_for_ever), "times"),
    "a late outcome moves whatever is in progress": (Build(checks_whose_outcome_it_is=False), "another hand-over"),
    "a claim has hardly a lease": (Build(leases_what_it_claims=False), "twice"),
    "any document that is due goes first": (Build(keeps_order=False), "is processed before"),
    "a callable's work and its end are two commits": (Build(commits_a_callable_once=False), TWICE),
    "a person's new document is not begun": (Build(takes_over_for_a_person=False), TWICE),
    "a copy that overtook it is not looked for": (Build(looks_whether_a_copy_overtook_it=False), TWICE),
    "after a restore all is new": (
        Build(marks_what_waits_after_a_restore=False, marks_what_comes_after_a_restore=False),
        TWICE,
    ),
    "after a restore what waits is new": (Build(marks_what_waits_after_a_restore=False), TWICE),
    "after a restore what comes is new": (Build(marks_what_comes_after_a_restore=False), TWICE),
    "what a person said before a restore is still true": (Build(a_persons_word_outlives_a_restore=True), TWICE),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_build_is_found(name: str) -> None:
    build, shows_as = MISTAKES[name]
    for seed in range(1, SEEDS_TO_FIND_A_MISTAKE + 1):
        try:
            TriggerWorld(seed, build).play()
        except Broken as broken:
            if shows_as in str(broken):
                return
    pytest.fail(f"{SEEDS_TO_FIND_A_MISTAKE} seeds did not show that a hub is built so: {name}")


def test_a_seed_is_always_the_same_run() -> None:
    worlds = [TriggerWorld(seed) for seed in (7, 7, 8)]
    for world in worlds:
        world.play()
    told = [(world.now, world.count, world.seen) for world in worlds]
    assert told[0] == told[1]
    assert told[0] != told[2]
