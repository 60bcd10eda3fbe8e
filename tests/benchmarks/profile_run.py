"""One steady run more, with py-spy looking on: which functions the CPU time of each process goes to."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.benchmarks import profiling
from tests.benchmarks.arena import Arena, Servers
from tests.benchmarks.hub_runs import Window, steady
from tests.benchmarks.machine import busiest


def profiled(
    arena: Arena, servers: Servers, roots: dict[str, int], *, pairs: int, window: Window, py_spy: Path, folder: Path
) -> dict[str, Any]:
    """The run with `profile`, by process, added to it. Its other figures are those of a watched run: lower than true.

    Raises RuntimeError when py-spy may not look into other processes.
    """
    ours = {name: pid for name, pid in roots.items() if not name.endswith(" beat")}
    with ThreadPoolExecutor(1) as pool:
        taken: list[Future[list[profiling.Profile]]] = []

        def look_on(driver: int) -> None:
            taken.append(pool.submit(_look_on, ours | {"driver": driver}))

        def _look_on(targets: dict[str, int]) -> list[profiling.Profile]:
            return profiling.take(py_spy, busiest(targets), max(1.0, window.measured - 2), folder)

        run = steady(arena, servers, roots, pairs=pairs, window=window, during=look_on)
        profiles = taken[0].result()
    run["profile"] = {
        profile.name: profiling.summary(profile, run["cpu_ms_by_process"][profile.name]) for profile in profiles
    }
    return run
