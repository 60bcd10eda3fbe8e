"""The application that hands documents in, in a process of its own: keeps a backlog on every pair, or sends at a pace.

    python -m tests.benchmarks.driver --pairs 100 --depth 8          (runs until its standard input ends)
    python -m tests.benchmarks.driver --pairs 10 --every 0.1 --count 100

Runs with the environment of the sending hub and submits through the hub's own service, one commit a message. Prints
one JSON line when it begins and one when it has ended.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time

import django

BODY = (b"UNB+UNOA:1+A+B+240101:0000+1'\r\n" * 133)[:4096]
LOOK_SECONDS = 0.2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, required=True)
    parser.add_argument("--depth", type=int, default=8, help="messages that are kept waiting on every pair")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--every", type=float, default=0.0, help="seconds between messages; no backlog then")
    parser.add_argument("--count", type=int, default=0)
    options = parser.parse_args()
    django.setup()
    if options.every:
        result = paced(options.pairs, options.every, options.count)
    else:
        result = backlog(options.pairs, options.depth, options.threads)
    print(json.dumps(result), flush=True)


def submit(number: int) -> None:
    """One message of 4 KiB on the pair of this number (from 1)."""
    from messaging.demo.seeding import EDI, tpa_id
    from messaging.services.submitting import NewPayload, message_submit

    message_submit(
        agreement=tpa_id(number),
        service=EDI,
        action="Send",
        payloads=[NewPayload(BODY, "application/edifact", "orders.edi")],
        submitted_by="bench",
    )


def waiting(pairs: int) -> dict[int, int]:
    """How many messages each pair has that are not acknowledged, by the pair's number."""
    from messaging.choices import Direction
    from messaging.models import Pair

    rows = Pair.objects.filter(direction=Direction.OUT).values_list("receiver_uri", "queued", "in_flight_id")
    found = {int(uri.rpartition("/")[2]): queued + (in_flight is not None) for uri, queued, in_flight in rows}
    return {number: found[number] for number in range(1, pairs + 1)}


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


def backlog(pairs: int, depth: int, threads: int) -> dict[str, float]:
    """Fills every pair up to `depth` again and again. `starved` counts looks at a pair that had run out of messages."""
    from django.db import connection

    stop = threading.Event()
    threads = min(threads, pairs)
    totals = {"submitted": 0, "looks": 0, "starved": 0}
    lock = threading.Lock()
    began = threading.Barrier(threads + 1)

    def run(first: int) -> None:
        own = range(first + 1, pairs + 1, threads)
        submitted = looks = starved = 0
        filled = False
        try:
            while not stop.is_set():
                began_at = time.monotonic()
                now = waiting(pairs)
                if filled:
                    looks += len(own)
                    starved += sum(1 for number in own if now[number] == 0)
                # The emptiest first, one each in turn, so that no pair waits for another one's filling.
                for level in range(depth):
                    for number in own:
                        if now[number] <= level and not stop.is_set():
                            submit(number)
                            submitted += 1
                if not filled:
                    filled = True
                    began.wait()
                stop.wait(max(0.0, LOOK_SECONDS - (time.monotonic() - began_at)))
        finally:
            connection.close()
            with lock:
                totals["submitted"] += submitted
                totals["looks"] += looks
                totals["starved"] += starved

    workers = [threading.Thread(target=run, args=(first,)) for first in range(threads)]
    for worker in workers:
        worker.start()
    began.wait()
    print(json.dumps({"began": time.time()}), flush=True)
    sys.stdin.read()
    stop.set()
    for worker in workers:
        worker.join()
    return {**totals, "ended": time.time()}


if __name__ == "__main__":
    main()
