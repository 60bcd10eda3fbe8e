"""What remembering ids costs, and forgetting a day of them (spec 2): bytes for each, looking one up, dropping the day.

    python -m tests.benchmarks.forgetting 1000000 10000000

Runs with the environment of a hub whose database has no requests, through the hub's own services, and prints one JSON
line for each size. Each day lies among the days of a week, for a look-up has to probe them all.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import django
from django.core.management import call_command
from django.db import connection

from rmhub.hubs import BASE, Hub
from tests.benchmarks.arena import Say, Servers, fresh_database

DAYS = 7
OTHERS = 10_000  # ids of each other day
SENDERS = 100
PROBES = 2000
FIRST = datetime(2026, 1, 5, tzinfo=UTC)

FILL = """
INSERT INTO messaging_rememberedrequest (sender_id, request_id, day, first_sent, content, state, message_id)
SELECT ('00000000-0000-7000-8000-' || lpad((n %% %(senders)s)::text, 12, '0'))::uuid, gen_random_uuid()::text,
       %(day)s::date, %(start)s::timestamptz + n * (interval '1 day' / %(count)s),
       decode(md5(n::text) || md5(n::text), 'hex'), 'accepted', gen_random_uuid()
FROM generate_series(0, %(count)s - 1) AS n
"""
SAMPLE = "SELECT sender_id, request_id FROM {} TABLESAMPLE BERNOULLI (%s) LIMIT %s"
SIZES = "SELECT pg_total_relation_size(%s::text::regclass), pg_relation_size(%s::text::regclass)"


def run(servers: Servers, var: Path, sizes: Sequence[int], say: Say) -> Iterator[dict[str, Any]]:
    """Measure in a database of its own, one size after the other. Raises RuntimeError with what was said."""
    hub = Hub("forgetting", fresh_database(servers, "bench_forgetting"), servers.redis_url, var / "forgetting", 0)
    shutil.rmtree(hub.var, ignore_errors=True)
    hub.var.mkdir(parents=True)
    say(f"remembering and forgetting days of {', '.join(f'{size:,}' for size in sizes)} ids")
    arguments = [sys.executable, "-m", "tests.benchmarks.forgetting", *map(str, sizes)]
    done = subprocess.run(arguments, env=hub.environment(), cwd=BASE, capture_output=True, text=True, check=False)
    yield from map(json.loads, done.stdout.splitlines())
    if done.returncode != 0:
        raise RuntimeError(f"forgetting failed:\n{(done.stdout + done.stderr).strip()[-4000:]}")


def main() -> None:
    django.setup()
    call_command("migrate", verbosity=0)
    for size in map(int, sys.argv[1:]):
        print(json.dumps(measure(size)), flush=True)


def measure(count: int) -> dict[str, Any]:
    """Fills a week whose oldest day holds `count` ids, looks ids up, forgets that day, and then the others."""
    from messaging.engine import forgetting
    from messaging.models import MemoryEpoch
    from messaging.profiles.repeatable import remembering

    start = {"memory_start": FIRST, "forgotten_through": FIRST, "heartbeat": FIRST}
    MemoryEpoch.objects.update_or_create(pk=1, defaults=start)
    days = [(FIRST + timedelta(days=number)) for number in range(DAYS)]
    with connection.cursor() as cursor:
        forgetting.ensure_days(forgetting.REQUESTS, [day.date() for day in days])
        began = time.perf_counter()
        for day in days:
            cursor.execute(
                FILL,
                {"senders": SENDERS, "day": day.date(), "start": day, "count": count if day is days[0] else OTHERS},
            )
        filled = time.perf_counter() - began
        cursor.execute("VACUUM ANALYZE messaging_rememberedrequest")
        table = f"{forgetting.REQUESTS}_{FIRST:%Y%m%d}"
        cursor.execute(SIZES, [table, table])
        total, heap = cursor.fetchone()
        cursor.execute(SAMPLE.format(table), [min(100.0, 400.0 * PROBES / count), PROBES])
        known = [remembering.Key(sender, request_id) for sender, request_id in cursor.fetchall()]
    os.sync()  # by the time that a day is forgotten its files have long been written
    random.Random(1).shuffle(known)
    unknown = [remembering.Key(key.sender_id, str(uuid.uuid4())) for key in known]
    found = spread(remembering.recall([key], FIRST.date()) for key in known)
    missed = spread(remembering.recall([key], FIRST.date()) for key in unknown)
    with looking_up(unknown) as waits:
        began = time.perf_counter()
        assert forgetting.forget_due(days[0] + timedelta(days=2)) == 1
        forgotten = time.perf_counter() - began
        assert forgetting.remove_forgotten() == 1
        removed = time.perf_counter() - began - forgotten
    assert not remembering.recall(known[:1], FIRST.date())
    forgetting.drop_due(days[-1] + timedelta(days=2))
    forgetting.reset()
    return {
        "ids": count,
        "filled_seconds": round(filled, 1),
        "bytes_per_id": round(total / count, 1),
        "heap_bytes_per_id": round(heap / count, 1),
        "look_up_known_us": found,
        "look_up_unknown_us": missed,
        "days_probed": DAYS,
        "forget_ms": round(forgotten * 1000, 1),
        "remove_ms": round(removed * 1000, 1),
        "others_longest_wait_ms": round(max(waits) * 1000, 1),
    }


@contextmanager
def looking_up(keys: Sequence[Any]) -> Iterator[list[float]]:
    """What each look-up takes that somebody else does meanwhile, in seconds."""
    from messaging.profiles.repeatable import remembering

    waits: list[float] = []
    stop, begun = threading.Event(), threading.Event()

    def look() -> None:
        while not stop.is_set():
            began = time.perf_counter()
            remembering.recall([keys[len(waits) % len(keys)]], FIRST.date())
            waits.append(time.perf_counter() - began)
            begun.set()
        connection.close()

    thread = threading.Thread(target=look)
    thread.start()
    begun.wait()
    waits.clear()
    try:
        yield waits
    finally:
        stop.set()
        thread.join()


def spread(calls: Iterator[object]) -> dict[str, float]:
    """p50 and p99 of what each call takes, in microseconds."""
    took = []
    while True:
        began = time.perf_counter()
        if next(calls, None) is None:
            break
        took.append((time.perf_counter() - began) * 1e6)
    took.sort()
    return {"p50": round(took[len(took) // 2]), "p99": round(took[int(len(took) * 0.99)])}


if __name__ == "__main__":
    main()
