"""One pair over a slow link: one message at a time (ebXML) against a transactional stream, at several delays.

Two real hubs with a delaying link between them. A backlog is handed in while the pair is paused; then the pair is
released, and what is acknowledged within some seconds is counted.

    python -m tests.benchmarks.streams prepare '{...}'        (sets a hub up)
    python -m tests.benchmarks.streams carry PROFILE DELAY BACKLOG WARM SECONDS

run with the environment of a hub; `carry` prints one JSON line when its window begins and one when it has ended.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

from rmhub.hubs import BASE, Hub, free_ports, link_process
from tests.benchmarks.arena import RECEIVER, SENDER, Arena, Say, Servers, fresh_database, redis_database, supervised
from tests.benchmarks.hub_runs import Window, contradictions
from tests.benchmarks.machine import costs, look
from tests.benchmarks.prepare import ACTION, SECRET, SERVICE

DELAYS = (0, 20, 100)  # milliseconds each way
PROFILES = ("ebxml", "stream")
WINDOW, CONCURRENCY = 256, 64
STREAM = {
    "semantics": "OnceAndOnlyOnce",
    "max_in_flight": WINDOW,
    "stream_concurrency": CONCURRENCY,
    "detect_repeats": False,
    "retries": 5,
}
EBXML = {"timeout": 120, "retries": 3, "retry_interval": 120}
# Nothing may run dry, and nothing is handed in while it is measured.
BACKLOG = {"ebxml": 80, "stream": 800}  # messages for each second that is measured
BODY = (b"UNB+UNOA:1+A+B+240101:0000+1'\r\n" * 133)[:4096]
DRAIN_SECONDS = 60.0
ACTOR = "bench"


def run(servers: Servers, var: Path, window: Window, delays: Sequence[int], say: Say) -> Iterator[dict[str, Any]]:
    """Measure each delay with each profile. Raises RuntimeError with what was said when a hub cannot be set up."""
    arena, links = build(servers, var, delays, say)
    with ExitStack() as stack:
        stack.enter_context(supervised(links))
        roots = stack.enter_context(arena.running())
        connection = stack.enter_context(psycopg.connect(servers.database_url, autocommit=True))
        for profile in PROFILES:
            _carry(arena, profile, delays[0], 20, Window(0.0, 1.0))  # connections, caches, workers that are up
        for delay in delays:
            for profile in PROFILES:
                watched = {**roots, **servers.roots}
                backlog = round(BACKLOG[profile] * (window.warm + window.measured))
                run = _measured(arena, connection, watched, profile, delay, backlog, window)
                say(f"{profile}, {delay} ms each way: {run['messages_per_second']:g} messages/s")
                yield run


def build(servers: Servers, var: Path, delays: Sequence[int], say: Say) -> tuple[Arena, list[Any]]:
    """Two empty hubs with an agreement of each profile for each delay, and a link for each delay."""
    ports = free_ports(2 + 2 * len(delays))
    links, ways = [], {}
    for number, delay in enumerate(delays):
        to_receiver, to_sender = ports[2 + 2 * number : 4 + 2 * number]
        routes = {to_receiver: ports[1], to_sender: ports[0]}
        links.append(link_process(routes, drop=0, duplicate=0, delay_ms=delay, seed=1, name=f"link {delay} ms"))
        ways[delay] = (to_sender, to_receiver)
    hubs = []
    for number, (name, port) in enumerate(zip((SENDER, RECEIVER), ports[:2], strict=True), start=1):
        folder = var / f"stream-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        settings = {"RMHUB_LOG_LEVEL": "WARNING", "RMHUB_SEND_THREADS": str(2 * CONCURRENCY)}
        database = fresh_database(servers, f"bench_stream_{name}")
        broker = redis_database(servers.redis_url, number)
        hubs.append(Hub(name, database, broker, folder, port, threads=2 * CONCURRENCY, settings=settings))
    say(f"setting up two hubs with a link of {', '.join(map(str, delays))} ms each way")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_prepare, hubs, reversed(hubs), (ways, ways)))
    return Arena(hubs[0], hubs[1], {hub.name: f"bench_stream_{hub.name}" for hub in hubs}), links


def _prepare(hub: Hub, other: Hub, ways: dict[int, tuple[int, int]]) -> None:
    plan = {
        "own": [hub.name, hub.url],
        "partner": [other.name, other.url],
        # Where the partner is reached: through the link, at a port for each delay.
        "ways": {delay: ports[other.name == RECEIVER] for delay, ports in ways.items()},
    }
    argv = [sys.executable, "-m", "tests.benchmarks.streams", "prepare", json.dumps(plan)]
    done = subprocess.run(argv, env=hub.environment(), cwd=BASE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"setting up the {hub.name} failed:\n{(done.stdout + done.stderr).strip()[-4000:]}")


def _carry(arena: Arena, profile: str, delay: int, backlog: int, window: Window) -> subprocess.Popen[str]:
    words = (profile, str(delay), str(backlog), str(window.warm), str(window.measured))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.streams", "carry", *words],
        env=arena.sender.environment("carry"),
        cwd=BASE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if not window.warm:
        process.communicate()
    return process


def _measured(
    arena: Arena,
    connection: psycopg.Connection[Any],
    watched: dict[str, int],
    profile: str,
    delay: int,
    backlog: int,
    window: Window,
) -> dict[str, Any]:
    with _carry(arena, profile, delay, backlog, window) as process:
        _line(process)
        before = look(connection, watched, list(arena.databases.values()))
        ended = _line(process)
        after = look(connection, watched, list(arena.databases.values()))
        process.wait()
    seconds = ended["end"] - ended["begin"]
    return {
        "profile": profile,
        "delay_ms": delay,
        "window": WINDOW if profile == "stream" else 1,
        "concurrency": CONCURRENCY if profile == "stream" else 1,
        "seconds": round(seconds, 3),
        "messages": ended["delivered"],
        "messages_per_second": round(ended["delivered"] / seconds, 1),
        "ran_dry": ended["left"] == 0,
        "drained": ended["drained"],
        **costs(before, after, ended["delivered"]),
        "check": _check(arena, tpa_id(profile, delay)),
        "contradictions": contradictions(arena.sender, arena.receiver),
    }


def _line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("the benchmark's application ended early; its error is above")
    found: dict[str, Any] = json.loads(line)
    return found


def _check(arena: Arena, tpa: str) -> dict[str, int]:
    """Whether what was measured was right: everything once, and in the order in which it was handed in."""
    sql = (
        "SELECT m.message_id FROM messaging_message m JOIN partners_agreementversion v ON v.id = m.agreement_version_id"
        " JOIN partners_agreement a ON a.id = v.agreement_id WHERE a.tpa_id = %s AND m.direction = %s"
        " AND m.state IN ('delivered', 'received') ORDER BY m.position"
    )
    rows = []
    for hub, direction in ((arena.sender, "out"), (arena.receiver, "in")):
        with psycopg.connect(hub.database_url) as connection:
            rows.append([key for (key,) in connection.execute(sql, [tpa, direction]).fetchall()])
    sent, received = rows
    return {
        "delivered": len(sent),
        "received": len(received),
        "received_twice": len(received) - len(set(received)),
        "out_of_order": sum(one != other for one, other in zip(sent, received, strict=False)),
    }


# --- inside a hub


def tpa_id(profile: str, delay: int) -> str:
    return f"tpa:bench:{profile}:{delay}"


def prepare(plan: dict[str, Any]) -> None:
    """Two parties, and for each delay an agreement of each profile that leads through that delay's link."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from messaging.engine import pairs
    from partners import registry, services
    from partners.choices import CredentialKind

    own_name, own_url = plan["own"]
    partner_name, partner_url = plan["partner"]
    own = services.party_create(name=own_name, is_own=True, identifiers=[("DUNS", _duns(own_name))])
    partner = services.party_create(name=partner_name, identifiers=[("DUNS", _duns(partner_name))])
    basic = CredentialKind.BASIC
    services.credential_issue(party=partner, kind=basic, username=partner_name, secret=SECRET)
    services.credential_store_outbound(party=partner, kind=basic, username=own_name, secret=SECRET)
    for delay, port in plan["ways"].items():
        for profile in PROFILES:
            name = f"{profile}-{delay}"
            path = f"/ebxml/msh/{name}" if profile == "ebxml" else f"/stream/{name}"
            address = f"http://127.0.0.1:{port}{path}"
            agreement = services.agreement_create(
                tpa_id=tpa_id(profile, int(delay)),
                own_party=own,
                partner=partner,
                own_endpoint=services.endpoint_create(party=own, name=name, uri=own_url + path),
                partner_endpoint=services.endpoint_create(
                    party=partner, name=name, uri=partner_url + path, address=address
                ),
                services=[(SERVICE, "*", "both")],
                profile=profile,
                **(EBXML if profile == "ebxml" else STREAM),
            )
            services.version_activate(version=agreement.versions.get())
    registry.reset()
    pairs.ensure_pairs()


def _duns(name: str) -> str:
    return f"{sum(name.encode()):09d}"


def carry(profile: str, delay: int, backlog: int, warm: float, seconds: float) -> None:
    """Hands a backlog in behind a closed gate, opens it, and counts what is acknowledged in the window."""
    from messaging.engine import pairs
    from messaging.journal.audit import Actor
    from messaging.messages.services.submitting import NewPayload, message_submit
    from messaging.models import Message, Pair
    from messaging.pairs.services import operating
    from partners import registry

    terms = registry.current().by_tpa_id(tpa_id(profile, delay))
    assert terms is not None
    pair_id = pairs.outbound_pair_id(terms)
    actor = Actor(ACTOR)
    if Pair.objects.get(pk=pair_id).gate == "open":
        operating.pair_pause(pair_id=pair_id, actor=actor, reason="A backlog is handed in.")

    def submit(number: int) -> None:
        message_submit(
            agreement=terms.tpa_id,
            service=SERVICE,
            action=ACTION,
            payloads=[NewPayload(BODY, "application/edifact", "orders.edi")],
            submitted_by=ACTOR,
        )

    waiting = Pair.objects.get(pk=pair_id).queued
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(submit, range(max(0, backlog - waiting))))
    operating.pair_release(pair_id=pair_id, actor=actor, reason="The backlog is there.")
    time.sleep(warm)
    begin = time.time()
    print(json.dumps({"begin": begin}), flush=True)
    time.sleep(seconds)
    end = time.time()
    left = Pair.objects.get(pk=pair_id).queued
    print(json.dumps(_counted(Message, pair_id, begin, end) | {"left": left, **_drained(pair_id, actor)}), flush=True)


def _counted(model: Any, pair_id: Any, begin: float, end: float) -> dict[str, Any]:
    from datetime import UTC, datetime

    times = [datetime.fromtimestamp(at, UTC) for at in (begin, end)]
    found = model.objects.filter(pair=pair_id, state="delivered", completed_at__gte=times[0], completed_at__lt=times[1])
    return {"begin": begin, "end": end, "delivered": found.count()}


def _drained(pair_id: Any, actor: Any) -> dict[str, bool]:
    """Nothing of this pair may be under way when the next one is measured."""
    from messaging.models import Pair
    from messaging.pairs.services import operating

    operating.pair_pause(pair_id=pair_id, actor=actor, reason="Measured.")
    deadline = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < deadline:
        pair = Pair.objects.get(pk=pair_id)
        if pair.in_flight_id is None and not pair.out_now:
            return {"drained": True}
        time.sleep(0.1)
    return {"drained": False}


def main() -> None:
    import django

    django.setup()
    if sys.argv[1] == "prepare":
        prepare(json.loads(sys.argv[2]))
    else:
        profile, delay, backlog, warm, seconds = sys.argv[2:]
        carry(profile, int(delay), int(backlog), float(warm), float(seconds))


if __name__ == "__main__":
    main()
