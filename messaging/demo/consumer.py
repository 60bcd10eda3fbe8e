"""The demo's application as a consumer of pull queues: leases documents by the hub's API, and says when it is done.

It keeps no record of what it holds: what it had leased when it was killed comes again when the lease is over, or is in
doubt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from rmhub_client import Client, NoAnswer, Problem, Taken

AT_ONCE = 4  # documents leased together
IDLE = 0.5  # seconds between two looks into an empty queue


def consume(hub: Client, trigger: str, effect: Callable[[Taken], None], stop: threading.Event) -> None:
    """Leases, has the effect, completes; until `stop` is set. `effect` runs in several threads at once."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="consumer") as pool:
        while not stop.is_set():
            try:
                taken = hub.lease(trigger, limit=AT_ONCE)
            except (NoAnswer, Problem, ValueError):
                taken = []
            if not taken:
                stop.wait(IDLE)
            for _ in pool.map(lambda one: _process(hub, one, effect), taken):
                pass


def _process(hub: Client, taken: Taken, effect: Callable[[Taken], None]) -> None:
    effect(taken)
    with suppress(NoAnswer, Problem):  # the lease is over: the hub decides without us
        hub.complete(taken)
