"""The faults, each with its length. While one lasts, documents are handed over both ways all the time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.chaos.world import World

Happening = Callable[[World], "object"]


@dataclass(frozen=True, slots=True)
class Fault:
    """`seconds`: how long it lasts. `cuts`: it ends hand-overs that nobody can know the end of, so that documents may
    rightly be in doubt after it. `told`: the part that health of the first hub has to name while it lasts, "" = none.
    """

    name: str
    seconds: float
    happens: Callable[[World, float], None]
    cuts: bool = False
    told: str = ""


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def _postgres_killed(world: World, seconds: float) -> None:
    world.kill_postgres()
    world.until_postgres_answers()


def _postgres_away(world: World, seconds: float) -> None:
    world.database.shut()
    _wait(seconds)
    world.database.open()


def _postgres_full(world: World, seconds: float) -> None:
    with world.no_connection_left():
        _wait(seconds)


def _valkey_killed(world: World, seconds: float) -> None:
    world.kill_valkey()


def _valkey_away(world: World, seconds: float) -> None:
    world.broker.shut()
    _wait(seconds)
    world.broker.open()


def _store_full(world: World, seconds: float) -> None:
    with world.store_gone():
        _wait(seconds)


def _killed(*names: str) -> Callable[[World, float], None]:
    def happens(world: World, seconds: float) -> None:
        for name in names:
            world.supervisor.kill(name)
            _wait(seconds / len(names))
        world.until_processes_work()

    return happens


def _frozen(*names: str) -> Callable[[World, float], None]:
    def happens(world: World, seconds: float) -> None:
        with ExitStack() as stack:
            for name in names:
                stack.enter_context(_stopped(world, name))
            _wait(seconds)

    return happens


@contextmanager
def _stopped(world: World, name: str) -> Iterator[None]:
    world.signal(name, signal.SIGSTOP)
    try:
        yield
    finally:
        world.signal(name, signal.SIGCONT)


def _link_cut(world: World, seconds: float) -> None:
    """Each time that it is started again it is killed, and what it carries breaks off. Over when it is back."""
    for _ in range(max(1, int(seconds / 0.5))):
        world.supervisor.kill("link")
        _wait(0.5)
    world.until_link_listens()


def _link_slow(world: World, seconds: float) -> None:
    """Each way of each request takes most of a second."""
    for road in world.roads:
        road.delay = 0.7
    _wait(seconds)
    for road in world.roads:
        road.delay = 0.0


def _link_lies(world: World, seconds: float) -> None:
    for road in world.roads:
        road.lies = True
    _wait(seconds)
    for road in world.roads:
        road.lies = False


def _both_away(world: World, seconds: float) -> None:
    _valkey_away(world, seconds / 2)
    _postgres_away(world, seconds / 2)


SHORT = (
    Fault("Valkey, PostgreSQL away 3 s", 6, _both_away, told="database"),
    Fault("web, beat, worker killed", 3, _killed("a-web", "a-beat", "a-worker"), cuts=True),
)
FULL = (
    Fault("PostgreSQL killed", 0, _postgres_killed),
    Fault("PostgreSQL away 60 s", 60, _postgres_away, told="database"),
    Fault("no connection left 40 s", 40, _postgres_full, told="database"),
    Fault("Valkey killed", 0, _valkey_killed),
    Fault("Valkey away 60 s", 60, _valkey_away, told="broker"),
    Fault("webs and beats killed", 6, _killed("a-web", "a2-web", "b-web", "a-beat", "a2-beat", "b-beat")),
    Fault("workers killed", 6, _killed("a-worker", "b-worker", "a2-worker"), cuts=True),
    Fault("worker frozen 90 s", 90, _frozen("a2-worker"), cuts=True, told="workers"),
    Fault("web and beats frozen 10 s", 10, _frozen("a2-web", "a-beat", "a2-beat", "b-beat")),
    Fault("payload store full 15 s", 15, _store_full, told="store"),
    Fault("link cut 10 s", 10, _link_cut),
    Fault("link silent 10 s", 10, _frozen("link")),
    Fault("link slow 10 s", 10, _link_slow),
    Fault("link lying 10 s", 10, _link_lies),
)
