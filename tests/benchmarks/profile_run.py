"""One steady run more, with py-spy looking on: which functions and which statements the time goes to."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.benchmarks import database_profile, profiling
from tests.benchmarks.arena import Arena, Servers
from tests.benchmarks.hub_runs import Window, steady
from tests.benchmarks.machine import busiest


def profiled(
    arena: Arena, servers: Servers, roots: dict[str, int], *, pairs: int, window: Window, py_spy: Path, folder: Path
) -> dict[str, Any]:
    """The run with `profile` (by process) and `database_profile` added to it.

    Being watched costs time, so its other figures are worse than those of the runs that count.

    Raises RuntimeError when py-spy may not look into other processes.
    """
    ours = {name: pid for name, pid in roots.items() if not name.endswith(" beat")}
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        taken: list[Future[list[profiling.Profile]]] = []
        watched: list[Future[dict[str, Any]]] = []

        def look_on(driver: int) -> None:
            names = list(arena.databases.values())
            watched.append(pool.submit(database_profile.watch, servers.database_url, names, stop))
            taken.append(pool.submit(_look_on, ours | {"driver": driver}))

        def _look_on(targets: dict[str, int]) -> list[profiling.Profile]:
            try:
                return profiling.take(py_spy, busiest(targets), max(1.0, window.measured - 2), folder)
            finally:
                stop.set()

        try:
            run = steady(arena, servers, roots, pairs=pairs, window=window, during=look_on)
        finally:
            stop.set()
        profiles = taken[0].result()
        run["database_profile"] = watched[0].result()
    run["profile"] = {
        profile.name: profiling.summary(profile, run["cpu_ms_by_process"][profile.name]) for profile in profiles
    }
    return run
