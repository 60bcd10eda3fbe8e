"""The application that hands documents in, in a process of its own: keeps a backlog on every pair, or sends at a pace.

    python -m tests.benchmarks.driver --pairs 100 --depth 8          (runs until its standard input ends)
    python -m tests.benchmarks.driver --pairs 10 --every 0.1 --count 100

Runs with the environment of the sending hub and submits through the hub's own service, one commit a message. Prints
one JSON line when it begins and one when it has ended.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import django

from tests.benchmarks.prepare import ACTION, SERVICE, tpa_id

BODY = (b"UNB+UNOA:1+A+B+240101:0000+1'\r\n" * 133)[:4096]
LOOK_SECONDS = 0.25


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, required=True)
    parser.add_argument("--depth", type=int, default=8, help="messages that every pair is filled up to")
    parser.add_argument("--most", type=int, default=1_000_000, help="messages that wait on all pairs together")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--every", type=float, default=0.0, help="seconds between messages; no backlog then")
    parser.add_argument("--count", type=int, default=0)
    options = parser.parse_args()
    # It stands for the applications: each of its threads keeps a connection, and so does the one that looks.
    os.environ["RMHUB_DB_CONNECTIONS"] = str(options.threads + 1)
    django.setup()
    if options.every:
        result = paced(options.pairs, options.every, options.count)
    else:
        result = backlog(options.pairs, options.depth, options.most, options.threads)
    print(json.dumps(result), flush=True)


def submit(number: int) -> None:
    """One message of 4 KiB on the pair of this number (from 1)."""
    from messaging.messages.services.submitting import NewPayload, message_submit

    message_submit(
        agreement=tpa_id(number),
        service=SERVICE,
        action=ACTION,
        payloads=[NewPayload(BODY, "application/edifact", "orders.edi")],
        submitted_by="bench",
    )


def waiting(pairs: int) -> dict[int, int]:
    """How many messages each pair has that are not acknowledged."""
    from django.db.models import Q

    from messaging.choices import Direction
    from messaging.models import Pair

    busy = Pair.objects.filter(Q(queued__gt=0) | Q(in_flight__isnull=False), direction=Direction.OUT)
    rows = busy.values_list("receiver_uri", "queued", "in_flight_id")
    found = {int(uri.rpartition("/p")[2]): queued + (in_flight is not None) for uri, queued, in_flight in rows}
    return {number: found.get(number, 0) for number in range(1, pairs + 1)}


def paced(pairs: int, every: float, count: int) -> dict[str, float]:
    """One message every so many seconds, round the pairs: nothing ever waits for another one."""
    submit(1)  # connections and caches
    print(json.dumps({"began": time.time()}), flush=True)
    due = time.monotonic()
    for turn in range(count):
        due += every
        time.sleep(max(0.0, due - time.monotonic()))
        submit(turn % pairs + 1)
    return {"submitted": count + 1, "ended": time.time()}


def backlog(pairs: int, depth: int, most: int, threads: int) -> dict[str, float]:
    """Fills every pair up to `depth`, and all together up to `most`, again and again, until the standard input ends.

    `starved` counts how often a pair was found without a message: then it is this driver that is measured.
    """
    stop = threading.Event()
    counts: dict[str, float] = {"submitted": 0, "looks": 0, "starved": 0}

    def unless_stopped(number: int) -> bool:
        if stop.is_set():
            return False
        submit(number)
        return True

    # The service keeps a connection for each thread; one looks, so that looking costs next to nothing.
    with ThreadPoolExecutor(min(threads, pairs)) as pool:
        while not stop.is_set():
            looked = time.monotonic()
            now = waiting(pairs)
            # The emptiest first, one each in turn, so that no pair waits for another one's filling.
            wanted = [number for level in range(depth) for number, count in now.items() if count <= level]
            if (room := max(0, most - sum(now.values()))) < len(wanted):
                at = int(counts["submitted"]) % pairs  # others each time
                wanted = [*wanted[at:], *wanted[:at]][:room]
            counts["submitted"] += sum(pool.map(unless_stopped, wanted))
            if not counts["looks"]:
                print(json.dumps({"began": time.time()}), flush=True)
                threading.Thread(target=_end_of_input, args=(stop,), daemon=True).start()
            else:
                counts["starved"] += sum(1 for count in now.values() if count == 0)
            counts["looks"] += 1
            stop.wait(max(0.0, LOOK_SECONDS - (time.monotonic() - looked)))
    return {**counts, "ended": time.time()}


def _end_of_input(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


if __name__ == "__main__":
    main()
