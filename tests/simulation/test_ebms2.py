"""ebXML Messaging 2.0: handed on once, in order, and an end that is true, seed after seed.

SIMULATION_SEEDS says how many (300), SIMULATION_FIRST where they start (1).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from messaging.protocol.ebms import acceptance, sending
from messaging.protocol.ebms.acceptance import Conversation, Decision, Received, Verdict
from messaging.protocol.ebms.sending import Policy, Reply, Step
from messaging.protocol.envelope import MessageOrder
from messaging.protocol.errors import ErrorCode, Severity
from messaging.protocol.repeating import ENDS, Act
from tests.simulation.ebms2 import Ebms2World
from tests.simulation.ebms2_rows import Broken, Build
from tests.simulation.workers import ACCIDENTS

FIRST = int(os.environ.get("SIMULATION_FIRST", "1"))
SEEDS = int(os.environ.get("SIMULATION_SEEDS", "300"))
ENOUGH = 300
SEEDS_TO_FIND_A_MISTAKE = 300


def test_no_seed_breaks_a_promise() -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        world = Ebms2World(seed)
        world.play()
        seen.update(world.seen)
        seen.update(world.workers.seen)
    # A simulation in which nothing goes wrong proves nothing. Here nothing completes an attempt but a signal.
    wanted = [*Reply, *(act for act in Act if act is not Act.COMPLETE), Severity.ERROR, Severity.WARNING]
    wanted += ["defect", "known-id", "expired", "without-order", "reset", "next", "early", "given up"]
    wanted += [cause for _, cause in ENDS.values()]
    wanted += ["refused: hold", "refused: fail", "retries used up", "expired in the queue", "forgotten"]
    wanted += ["said in the response", "said by itself", "settled by an acknowledgement", "settled by a person"]
    wanted += ["waits to begin anew", "asked for what is missing", "resumed", "skipped", "cancelled", "retry now"]
    wanted += ["overtaken", "lease over", "somebody else said 200", "stored, and an error of the server"]
    wanted += ["killed before the commit", "killed between the commit and the answer", *ACCIDENTS]
    wanted += ["killed between the signal and its record", "not sent any more"]
    if SEEDS >= ENOUGH:
        assert [name for name in wanted if not seen[name]] == []


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_kill_at_any_one_step_of_a_calm_run_hands_nothing_on_twice(seed: int) -> None:
    calm = Ebms2World(seed, kill_at=0)
    calm.play()
    assert calm.points > 0
    for point in range(1, calm.points + 1):
        Ebms2World(seed, kill_at=point).play()


# Wrong builds of the sender

Stepping = Callable[..., Step]


def _done_after(reply: Reply) -> Stepping:
    """This reply counts as an acknowledgement."""

    def step(state: sending.State, said: Reply, *rest: object) -> Step:
        done = sending.step(state, said, *rest)  # type: ignore[arg-type]
        return replace(done, act=Act.COMPLETE) if said is reply else done

    return step


def _not_sent_after(reply: Reply) -> Stepping:
    """After this reply the message counts as one that never left."""

    def step(state: sending.State, said: Reply, *rest: object) -> Step:
        return sending.step(state, Reply.NOT_SENT if said is reply else said, *rest)  # type: ignore[arg-type]

    return step


def _failed_where_it_is_in_doubt(state: sending.State) -> Step:
    return replace(sending.expire(state), act=Act.FAIL)


def _in_doubt_where_it_is_certain(state: sending.State) -> Step:
    return Step(state, Act.IN_DOUBT, cause="outcome_unknown")


def _without_time_to_live(
    state: sending.State, now: datetime, policy: Policy, time_to_live: datetime | None = None
) -> Step:
    return sending.begin(state, now, policy)


def _anew(state: sending.State, now: datetime, policy: Policy) -> Step:
    """Each attempt begins the time for which the id is remembered anew."""
    if state.attempts > policy.retries:
        return sending.wait_over(replace(state, expires=now + policy.persist), now, policy)
    return sending.begin(replace(state, expires=None), now, policy)


def _retries_without_end(state: sending.State, now: datetime, policy: Policy) -> Step:
    return sending.begin(replace(state, expires=now + timedelta(days=1)), now, policy)


def _at_once(last: int | None, under_way: Callable[[], bool]) -> MessageOrder | None:
    """Nothing waits for a beginning, nor a beginning for what was before it."""
    return sending.place(last, lambda: False)


def _without_reset(last: int | None, under_way: Callable[[], bool]) -> MessageOrder | None:
    """A conversation that begins anew has number 0, and does not say so."""
    found = sending.place(last, under_way)
    return replace(found, reset=False) if found is not None else None


def _error_is_final(code: ErrorCode | str) -> Act:
    """What is said of the agreement is said of the message."""
    return Act.FAIL


def _error_is_an_answer(code: ErrorCode | str) -> Act:
    return Act.COMPLETE


# Wrong builds of the receiver


def _without(rule: str) -> Callable[[Conversation, Received], Decision]:
    """The table lacks this row."""
    rules = [row for row in acceptance.RULES if row.name != rule]

    def decide(known: Conversation, received: Received) -> Decision:
        return next(row.decide(known, received) for row in rules if row.applies(known, received))

    return decide


def _time_before_id(known: Conversation, received: Received) -> Decision:
    """The end of its time is looked at before whether it is stored already."""
    return acceptance.decide(known, replace(received, known=received.known and not received.expired))


def _hands_on_what_is_early(known: Conversation, received: Received) -> Decision:
    found = acceptance.decide(known, received)
    return replace(found, verdict=Verdict.ACCEPT, conversation=known) if found.verdict is Verdict.HOLD else found


def _resets_on_a_gap(known: Conversation, received: Received) -> Decision:
    """Whatever is missing is given up as soon as something comes after it."""
    found = acceptance.decide(known, received)
    if found.verdict is not Verdict.HOLD:
        return found
    assert received.order is not None
    moved = Conversation(received.order.sequence_number)
    return Decision(Verdict.ACCEPT, moved, acknowledge=True, given_up=tuple(sorted(known.held)))


def _refuses_what_is_early(known: Conversation, received: Received) -> Decision:
    """It acknowledges what it does not keep."""
    found = acceptance.decide(known, received)
    return Decision(Verdict.DUPLICATE, known, acknowledge=True) if found.verdict is Verdict.HOLD else found


def _keeps_what_waits(known: Conversation) -> tuple[Conversation, tuple[int, ...]]:
    return known, ()


def _hands_on_all(known: Conversation) -> tuple[Conversation, tuple[int, ...]]:
    """When something that waits has its turn, all has."""
    if known.last is None or known.last + 1 not in known.held:
        return known, ()
    return Conversation(max(known.held)), tuple(sorted(known.held))


def _latest_first(known: Conversation) -> tuple[Conversation, tuple[int, ...]]:
    moved, turn = acceptance.released(known)
    return moved, turn[::-1]


TWICE = "is handed on twice"
LOST = "counts as delivered and"
UNTRUE = "and was handed on"
ORDER = "out of order"
NUMBER = "is refused for its number"
MISTAKES: dict[str, tuple[Build, str]] = {
    "acknowledges before it stores": (Build(stores_before_it_acknowledges=False), "is lost"),
    "forgets the id of what it acknowledged": (Build(remembers=timedelta(0)), TWICE),
    "forgets ids before the PersistDuration": (Build(remembers=timedelta(seconds=300)), TWICE),
    "does not look for repeats": (Build(decide=_without("known-id")), TWICE),
    "acknowledges repeats with other octets": (Build(keeps_acknowledgements=False), "is acknowledged with"),
    "refuses repeats after their TimeToLive": (Build(decide=_time_before_id), UNTRUE),
    "hands on what comes before its turn": (Build(decide=_hands_on_what_is_early), ORDER),
    "resets a conversation on a gap": (Build(decide=_resets_on_a_gap), NUMBER),
    "acknowledges what it drops because it is early": (Build(decide=_refuses_what_is_early), "is lost"),
    "takes no reset for a beginning": (Build(decide=_without("reset")), LOST),
    "never hands on what waited": (Build(released=_keeps_what_waits), LOST),
    "hands on all that waits with the next": (Build(released=_hands_on_all), NUMBER),
    "hands on what waited in the wrong order": (Build(released=_latest_first), ORDER),
    "drops what a reset gives up": (Build(hands_on_what_it_gives_up=False), "is lost"),
    "takes a lost response for an acknowledgement": (Build(step=_done_after(Reply.LOST)), LOST),
    "takes a status for an acknowledgement": (Build(step=_done_after(Reply.TAKEN)), LOST),
    "takes a lost response for a message that never left": (Build(step=_not_sent_after(Reply.LOST)), "never_sent"),
    "takes a busy partner for one that was not reached": (Build(step=_not_sent_after(Reply.BUSY)), "never_sent"),
    "says that it failed where it is in doubt": (Build(expire=_failed_where_it_is_in_doubt), UNTRUE),
    "says in doubt where it is certain": (Build(expire=_in_doubt_where_it_is_certain), "ends as outcome_unknown"),
    "repeats after the TimeToLive": (
        Build(begin=_without_time_to_live, looks_at_the_time_before_it_talks=False),
        "after its TimeToLive",
    ),
    "repeats after the PersistDuration": (
        Build(wait_over=_retries_without_end, looks_at_the_time_before_it_talks=False),
        "may have forgotten",
    ),
    "begins the PersistDuration anew with each attempt": (Build(wait_over=_anew), "may have forgotten"),
    "what was claimed in time goes out whenever": (
        Build(looks_at_the_time_before_it_talks=False),
        "after its TimeToLive",
    ),
    "a repeat has a MessageId of its own": (Build(repeats_under_the_same_id=False), TWICE),
    "ignores an error message": (Build(takes_errors=False), "its receiver has refused it"),
    "takes an error for an acknowledgement": (Build(refused=_error_is_an_answer), "is lost"),
    "takes an error about the agreement for the end of the message": (Build(refused=_error_is_final), UNTRUE),
    "goes on with its numbers after a failed message": (Build(begins_anew_after_what_failed=False), "waits for ever"),
    "begins anew while something is under way": (Build(place=_at_once), ORDER),
    "begins anew without saying so": (Build(place=_without_reset), NUMBER),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_build_is_found(name: str) -> None:
    build, shows_as = MISTAKES[name]
    for seed in range(1, 1 + SEEDS_TO_FIND_A_MISTAKE):
        try:
            Ebms2World(seed, build).play()
        except Broken as broken:
            if shows_as in str(broken):
                return
    pytest.fail(f"no run showed that a hub is built so: {name}")


def test_a_seed_is_always_the_same_run() -> None:
    worlds = [Ebms2World(seed) for seed in (7, 7, 8)]
    for world in worlds:
        world.play()
    told = [(world.now, world.count, world.seen) for world in worlds]
    assert told[0] == told[1]
    assert told[0] != told[2]
