"""Hand-overs in every world that has them: one thing goes wrong at each step in turn, and wrong builds are found.

docs/architecture.md names the steps for each row of its table of failures.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import ROOT
from tests.simulation import atomic_nodes, builds, ebms2_rows, requests, streams
from tests.simulation.atomic import AtomicWorld
from tests.simulation.ebms2 import Ebms2World
from tests.simulation.requests import RequestWorld
from tests.simulation.streams import StreamWorld
from tests.simulation.workers import MISTAKES, Fault, Handing, Workers
from tests.simulation.world import World

SEEDS_TO_FIND_A_MISTAKE = 200
# Moments of arrival: twice, after the worker has missed it, after its lease, and when the attempt is forgotten.
DELAYS = ((), (0, 0), (0, 4), (2,), (4, 4), (8,), (30,), (0, 70), (30, 70))
# Others see a process that is gone at once, or when it was silent for too long.
DEATHS = tuple(itertools.product(((), (0,), (1,), (0, 1)), (True, False)))


def _pairs(seed: int = 1, handing: Handing = Handing(), fault: Fault | None = None) -> Any:  # noqa: B008
    return World(seed, builds.Build(handing=handing), fault=fault)


def _requests(seed: int = 1, handing: Handing = Handing(), fault: Fault | None = None) -> Any:  # noqa: B008
    return RequestWorld(seed, requests.Build(handing=handing), fault=fault)


def _streams(seed: int = 1, handing: Handing = Handing(), fault: Fault | None = None) -> Any:  # noqa: B008
    return StreamWorld(seed, streams.Build(handing=handing), fault)


def _transactions(seed: int = 1, handing: Handing = Handing(), fault: Fault | None = None) -> Any:  # noqa: B008
    return AtomicWorld(seed, atomic_nodes.Build(handing=handing), fault=fault)


def _ebms2(seed: int = 1, handing: Handing = Handing(), fault: Fault | None = None) -> Any:  # noqa: B008
    return Ebms2World(seed, ebms2_rows.Build(handing=handing), fault=fault)


Make = Callable[..., Any]
WORLDS: dict[str, Make] = {
    "pairs": _pairs,
    "requests": _requests,
    "streams": _streams,
    "transactions": _transactions,
    "ebms2": _ebms2,
}


def workers_of(world: Any) -> Workers:
    if isinstance(world, AtomicWorld):
        return world.root.workers
    return world.hubs["A"].workers if isinstance(world, World) else world.workers


def most_attempts(world: Any) -> int:
    """The most that any message of the first hub needed."""
    if isinstance(world, World):
        return max(row.attempts for row in world.hubs["A"].rows.values())
    if isinstance(world, RequestWorld):
        return max(message.core.attempts for message in world.messages.values())
    if isinstance(world, Ebms2World):
        return max(message.attempts for message in world.messages.values())
    if isinstance(world, AtomicWorld):
        return max(row.attempts for row in world.root.outbox)
    return max(document.attempts for document in world.documents)


def played(make: Make, fault: Fault) -> Any:
    """One calm run but for this fault; its judge sees that all promises are kept and that all comes to an end."""
    world = make(fault=fault)
    world.play()
    assert not workers_of(world).attempts, "an attempt has no outcome for ever"
    return world


@pytest.fixture(params=WORLDS)
def make(request: pytest.FixtureRequest) -> Make:
    return WORLDS[request.param]


def _deaths(steps: int) -> Iterator[Fault]:
    for step, (ends, seen) in itertools.product(range(1, steps + 1), DEATHS):
        yield Fault(step=step, ends=ends, seen=seen)


def test_whoever_dies_at_any_step_nothing_is_lost_or_doubled(make: Make) -> None:
    """The process that has committed and not yet handed over, the worker it is for, the other, or both."""
    calm = workers_of(played(make, Fault()))
    assert calm.hand_overs and calm.steps > 10
    for fault in _deaths(calm.steps):
        world = played(make, fault)
        assert workers_of(world).seen["killed"] == len(fault.ends)
        # What follows a gap in a stream is not taken, and goes again meanwhile.
        assert most_attempts(world) <= 2 or make is _streams


@pytest.mark.parametrize("seconds", [10.0, 100.0])
def test_a_machine_that_stands_still_at_any_step_loses_nothing(seconds: float, make: Make) -> None:
    """Longer than any lease, too: whoever goes on first renews what all of them have in hand."""
    calm = workers_of(played(make, Fault()))
    for step in range(1, calm.steps + 1):
        world = played(make, Fault(step=step, stands=seconds))
        assert workers_of(world).seen["suspended"] == 1
        assert most_attempts(world) == 1 or make is _streams, step


def test_a_hand_over_that_is_lost_doubled_or_late_uses_up_no_attempt(make: Make) -> None:
    calm = workers_of(played(make, Fault()))
    found = 0
    for number, delays in itertools.product(range(1, calm.hand_overs + 1), DELAYS):
        world = played(make, Fault(hand_over=number, delays=delays))
        assert most_attempts(world) == 1 or make is _streams, (number, delays)
        found += workers_of(world).seen["missing"]
    assert found


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_build_is_found(name: str, make: Make) -> None:
    handing, shows_as = MISTAKES[name]
    for seed in range(1, 1 + SEEDS_TO_FIND_A_MISTAKE):
        try:
            make(seed, handing).play()
        except AssertionError as broken:
            assert shows_as in str(broken).splitlines()[0]
            return
    pytest.fail(f"{SEEDS_TO_FIND_A_MISTAKE} seeds did not show that a hub is built so: {name}")


def test_the_table_of_failures_names_tests_that_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("| shown by |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(test_\w+)`", row) for row in table.splitlines()[2:]]
    written = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(rows) > 8
    assert [row for row in rows if not row] == []
    assert [name for name in itertools.chain(*rows) if f"def {name}(" not in written] == []
