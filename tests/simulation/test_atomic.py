"""Atomic transactions: everywhere or nowhere, and an end, seed after seed.

SIMULATION_SEEDS says how many (150), SIMULATION_FIRST where they start (1).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from messaging.protocol.atomic import coordinator, participant
from messaging.protocol.atomic.coordinator import Act, ActKind, Event, Kind, Partaker, Step, Transaction
from messaging.protocol.atomic.participant import Taking
from messaging.protocol.atomic.words import FaultCode, Note, Phase, Protocol, Seat
from tests.simulation.atomic import AtomicWorld, Broken
from tests.simulation.atomic_nodes import Build
from tests.simulation.workers import ACCIDENTS

FIRST = int(os.environ.get("SIMULATION_FIRST", "1"))
SEEDS = int(os.environ.get("SIMULATION_SEEDS", "150"))
ENOUGH = 2000
SEEDS_TO_FIND_A_MISTAKE = 2500


def test_no_seed_breaks_a_promise() -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        world = AtomicWorld(seed)
        world.play()
        seen.update(world.seen)
        seen.update(world.root.workers.seen)
    # A simulation in which nothing goes wrong proves nothing.
    wanted = ["rows", "log", "committed", "aborted", "crash", "again", "vote again", "none column"]
    rare = [*ActKind, *Note, FaultCode.UNKNOWN_TRANSACTION, FaultCode.CANNOT_REGISTER, FaultCode.INCONSISTENT]
    rare += ["overtaken", *ACCIDENTS]
    rare += ["recovered", "contradiction", "agreement", "forgotten", "person committed"]
    rare += ["person aborted", "outcome Committed", "outcome Aborted", "outcome UnknownTransaction"]
    assert [name for name in (*wanted, *(rare if SEEDS >= ENOUGH else ())) if not seen[name]] == []


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_crash_at_any_one_step_of_a_calm_run_changes_nothing(seed: int) -> None:
    """Between any two acts of anybody: what is not written is gone, and it is everywhere or nowhere all the same."""
    calm = AtomicWorld(seed, crash_at=0)
    calm.play()
    assert calm.points > 5
    for point in range(1, calm.points + 1):
        AtomicWorld(seed, crash_at=point).play()


# Wrong builds: each is one sentence of the protocol, disregarded.


def _presumed_commit(note: Note, protocol: Protocol | None = None, version: str = "2006/06") -> coordinator.Acts:
    if note is Note.PREPARED:
        return (Act(ActKind.ANSWER, note=Note.COMMIT),)
    return coordinator.unknown(note, protocol, version)


def _everybody_is_volatile(note: Note, protocol: Protocol | None = None, version: str = "2006/06") -> coordinator.Acts:
    return coordinator.unknown(note, Protocol.VOLATILE, version)


def _initiator_told_aborted(note: Note, protocol: Protocol | None = None, version: str = "2006/06") -> coordinator.Acts:
    """5.4 to the letter: "user commit" in None is Aborted, also when it was committed and forgotten."""
    if note is Note.COMMIT:
        return (Act(ActKind.ANSWER, note=Note.ABORTED),)
    return coordinator.unknown(note, protocol, version)


def _loses_the_record(records: Mapping[str, Sequence[Partaker]]) -> dict[str, Step]:
    return {}


def _commit_is_news(note: Note) -> participant.Acts:
    if note is Note.COMMIT:
        return (participant.Act(participant.ActKind.SEND, note=Note.ABORTED),)
    return participant.unknown(note)


def _rolls_back_for_good(note: Note) -> participant.Acts:
    return () if note is Note.ROLLBACK else participant.unknown(note)


def _expires_after_the_decision(transaction: Transaction, event: Event) -> Step:
    if event.kind is Kind.EXPIRED and transaction.phase is Phase.COMMITTING:
        rows = tuple(
            replace(one, seat=Seat.ABORTING) if one.seat is Seat.COMMITTING else one for one in transaction.partakers
        )
        acts = tuple(Act(ActKind.SEND, one.key, note=Note.ROLLBACK) for one in rows if one.seat is Seat.ABORTING)
        return Step(replace(transaction, phase=Phase.ABORTING, partakers=rows), acts)
    return coordinator.step(transaction, event)


def _prepares_all_at_once(transaction: Transaction, event: Event) -> Step:
    done = coordinator.step(transaction, event)
    if transaction.phase is not Phase.ACTIVE or done.transaction.phase is not Phase.PREPARING_VOLATILE:
        return done
    early = [one for one in done.transaction.partakers if one.protocol is Protocol.DURABLE and one.votes]
    acts = tuple(Act(ActKind.SEND, one.key, note=Note.PREPARE) for one in early)
    return Step(done.transaction, (*done.acts, *acts))


def _late_votes_are_presumed_aborted(transaction: Transaction, event: Event) -> Step:
    """The None column for who is forgotten, although the transaction is known as committed."""
    partaker = transaction.partaker(event.key)
    if event.kind is Kind.RECEIVED and event.note is Note.PREPARED and partaker and partaker.seat is Seat.NONE:
        return Step(transaction, (Act(ActKind.SEND, event.key, note=Note.ROLLBACK),))
    return coordinator.step(transaction, event)


def _one_vote_is_enough(transaction: Transaction, event: Event) -> Step:
    done = coordinator.step(transaction, event)
    voted = event.kind is Kind.RECEIVED and event.note is Note.PREPARED
    if voted and done.transaction.phase is Phase.PREPARING_DURABLE and not transaction.subordinate:
        return Step(replace(done.transaction, phase=Phase.DECIDING), (*done.acts, Act(ActKind.DECIDE)))
    return done


def _subordinate_decides(transaction: Transaction, event: Event) -> Step:
    done = coordinator.step(transaction, event)
    if transaction.subordinate and done.transaction.phase is Phase.PREPARED is not transaction.phase:
        further = coordinator.step(done.transaction, Event(Kind.SUPERIOR_COMMIT))
        return Step(further.transaction, (*done.acts, *further.acts))
    return done


def _never_asks_again(transaction: Transaction, event: Event) -> Step:
    if event.kind is Kind.RESEND:
        return Step(transaction)
    return coordinator.step(transaction, event)


def _votes_before_it_writes(taking: Taking, event: participant.Event) -> participant.Step:
    done = participant.step(taking, event)
    if event.kind is participant.Kind.WORK_PREPARED:
        return participant.Step(done.taking, tuple(reversed(done.acts)))
    return done


def _settled_and_silent(taking: Taking, event: participant.Event) -> participant.Step:
    """What a person decided is never held against the coordinator's word."""
    if taking.settled is not None and event.note in (Note.COMMIT, Note.ROLLBACK):
        told = Note.COMMITTED if event.note is Note.COMMIT else Note.ABORTED
        acts = (
            participant.Act(participant.ActKind.SEND, note=told),
            participant.Act(participant.ActKind.FORGET),
        )
        return participant.Step(Taking(Seat.NONE), acts)
    return participant.step(taking, event)


NOT_ATOMIC = ("not everywhere", "committed and is aborted", "aborted and is committed")
MISTAKES: dict[str, tuple[Build, tuple[str, ...]]] = {
    "Commit goes out before the record is written": (Build(record_first=False), ("there is no record",)),
    "the prepared record is not kept": (Build(keeps_votes=False), NOT_ATOMIC),
    "Prepared goes out before its record is written": (Build(take=_votes_before_it_writes), NOT_ATOMIC),
    "a participant gives up waiting for the outcome": (Build(waits_for_outcome=False), NOT_ATOMIC),
    "commit is presumed": (Build(unknown=_presumed_commit), (*NOT_ATOMIC, "there is no record")),
    "a restart forgets the commit record": (Build(recover=_loses_the_record), (*NOT_ATOMIC, "never ends")),
    "Commit to who has forgotten is answered Aborted": (Build(forgotten=_commit_is_news), ("never ends",)),
    "Rollback to who has forgotten is not answered": (Build(forgotten=_rolls_back_for_good), ("never ends",)),
    "durable ones are told UnknownTransaction": (Build(unknown=_everybody_is_volatile), ("UnknownTransaction",)),
    "an initiator of a forgotten transaction is told Aborted": (
        Build(unknown=_initiator_told_aborted),
        ("the initiator",),
    ),
    "Expires rolls back what is decided": (
        Build(step=_expires_after_the_decision),
        (*NOT_ATOMIC, "Commit and Rollback"),
    ),
    "durable ones are prepared with the volatile ones": (Build(step=_prepares_all_at_once), ("have not voted",)),
    "a late vote is presumed aborted, although it is known": (
        Build(step=_late_votes_are_presumed_aborted),
        ("Commit and Rollback",),
    ),
    "the first vote decides": (Build(step=_one_vote_is_enough), (*NOT_ATOMIC, "never ends")),
    "a subordinate commits when its own have voted": (Build(step=_subordinate_decides), ("its superior has not",)),
    "nothing is sent again": (Build(step=_never_asks_again), ("never ends",)),
    "the outcome of an attempt that is over counts": (
        Build(checks_whose_outcome_it_is=False),
        ("of another attempt",),
    ),
    "a person's decision is not held against the outcome": (Build(take=_settled_and_silent), ("nobody knows",)),
}


def _runs(build: Build) -> Iterator[AtomicWorld]:
    """Storms first, then one crash at each place, then more storms."""
    yield from (AtomicWorld(seed, build) for seed in range(1, 101))
    yield from (AtomicWorld(seed, build, crash_at=point) for seed in range(1, 6) for point in range(1, 80))
    yield from (AtomicWorld(seed, build) for seed in range(101, SEEDS_TO_FIND_A_MISTAKE + 1))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_build_is_found(name: str) -> None:
    build, shows_as = MISTAKES[name]
    for world in _runs(build):
        try:
            world.play()
        except Broken as broken:
            if any(text in str(broken) for text in shows_as):
                return
    pytest.fail(f"no run showed that a hub is built so: {name}")


def test_a_seed_is_always_the_same_run() -> None:
    worlds = [AtomicWorld(seed) for seed in (7, 7, 8)]
    for world in worlds:
        world.play()
    told = [(world.now, world.count, world.seen) for world in worlds]
    assert told[0] == told[1]
    assert told[0] != told[2]
