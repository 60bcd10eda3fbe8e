"""One hub between a partner's requests and an application: what comes in over HTTP, and what goes on over HTTP.

A partner sends repeatable requests of 4 KiB, each stored, remembered and answered with 202. Meanwhile their trigger is
suspended, so that a backlog of deliveries grows; then it is resumed, and the documents that the application has
processed within some seconds are counted.

    python -m tests.benchmarks.applications prepare URL
    python -m tests.benchmarks.applications suspend|resume

run with the environment of the hub.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

from rmhub.hubs import BASE, Hub, free_ports
from tests.benchmarks.arena import Say, Servers, fresh_database, redis_database, supervised
from tests.benchmarks.hub_runs import Window, contradictions
from tests.benchmarks.limits import bare_server, load
from tests.benchmarks.machine import costs, look, spread
from tests.benchmarks.prepare import ACTION, SECRET, SERVICE

NAME = "applications"
TPA_ID = "tpa:bench:requests"
CONNECTIONS = 16
CONCURRENCY = 64
DATABASE = "bench_applications"


def run(servers: Servers, var: Path, window: Window, rounds: int, say: Say) -> Iterator[dict[str, Any]]:
    """Measure requests and deliveries in turn. Raises RuntimeError with what was said when the hub cannot be set up."""
    folder = var / NAME
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    port, application = free_ports(2)
    settings = {"RMHUB_LOG_LEVEL": "WARNING"}
    database = fresh_database(servers, DATABASE)
    hub = Hub(NAME, database, redis_database(servers.redis_url, 4), folder, port, settings=settings)
    _inside(hub, "prepare", f"http://127.0.0.1:{application}/orders")
    with ExitStack() as stack:
        server = stack.enter_context(supervised([bare_server(var, application)]))
        hub_roots = stack.enter_context(supervised(hub.processes(prefix=f"{NAME} ", restart=False)))
        connection = stack.enter_context(psycopg.connect(servers.database_url, autocommit=True))
        roots = {**hub_roots, **servers.roots}
        _post(hub, 1.0)  # connections, caches
        for number in range(1, rounds + 1):
            requests = _requests(hub, connection, roots, window)
            say(f"round {number} of {rounds}: {requests['messages_per_second']:g} requests/s answered")
            yield requests
            deliveries = _deliveries(hub, connection, {**roots, **server}, window)
            say(f"round {number} of {rounds}: {deliveries['messages_per_second']:g} documents/s processed")
            yield deliveries


def _requests(hub: Hub, connection: psycopg.Connection[Any], roots: dict[str, int], window: Window) -> dict[str, Any]:
    _inside(hub, "suspend")
    _post(hub, window.warm)
    before = look(connection, roots, [DATABASE])
    found = _post(hub, window.measured)
    after = look(connection, roots, [DATABASE])
    return {
        "kind": "requests",
        "connections": CONNECTIONS,
        "messages": found["requests"],
        "messages_per_second": round(found["requests"] / found["seconds"], 1),
        "latency": spread(found["latencies_ms"]),
        **costs(before, after, found["requests"]),
        "contradictions": contradictions(hub),
    }


def _deliveries(hub: Hub, connection: psycopg.Connection[Any], roots: dict[str, int], window: Window) -> dict[str, Any]:
    _inside(hub, "resume")
    time.sleep(window.warm / 2)
    before = look(connection, roots, [DATABASE])
    begun = _completed(hub)
    deadline = before.at + window.measured
    while (left := deadline - time.time()) > 0 and _waiting(hub):
        time.sleep(min(0.25, left))
    after = look(connection, roots, [DATABASE])
    count, ran_dry = _completed(hub) - begun, not _waiting(hub)
    _inside(hub, "suspend")
    return {
        "kind": "deliveries",
        "concurrency": CONCURRENCY,
        "messages": count,
        "messages_per_second": round(count / (after.at - before.at), 1),
        "ran_dry": ran_dry,
        **costs(before, after, count),
        "contradictions": contradictions(hub),
    }


def _completed(hub: Hub) -> int:
    return _count(hub, "SELECT count(*) FROM messaging_delivery WHERE state = 'completed'")


def _waiting(hub: Hub) -> int:
    return _count(hub, "SELECT count(*) FROM (SELECT FROM messaging_delivery WHERE state = 'waiting' LIMIT 1) AS d")


def _count(hub: Hub, sql: str) -> int:
    with psycopg.connect(hub.database_url, autocommit=True) as connection:
        row = connection.execute(sql).fetchone()
    return int(row[0]) if row else 0


def _post(hub: Hub, seconds: float) -> dict[str, Any]:
    credential = "Basic " + base64.b64encode(f"partner:{SECRET}".encode()).decode()
    return load(hub.port, CONNECTIONS, seconds, f"/exchange/{TPA_ID}/", credential)


def _inside(hub: Hub, *words: str) -> None:
    argv = [sys.executable, "-m", "tests.benchmarks.applications", *words]
    done = subprocess.run(argv, env=hub.environment(), cwd=BASE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{words[0]} failed:\n{(done.stdout + done.stderr).strip()[-4000:]}")


# --- inside the hub


def prepare(url: str) -> None:
    """One partner whose requests an application takes at this address."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from messaging.choices import ServiceKind
    from messaging.deliveries.services import triggering
    from messaging.engine import pairs
    from messaging.journal.audit import Actor
    from partners import registry, services
    from partners.choices import CredentialKind, Profile

    own = services.party_create(name="hub", is_own=True, identifiers=[("DUNS", "000000001")])
    partner = services.party_create(name="partner", identifiers=[("DUNS", "000000002")])
    services.credential_issue(party=partner, kind=CredentialKind.BASIC, username="partner", secret=SECRET)
    agreement = services.agreement_create(
        tpa_id=TPA_ID,
        own_party=own,
        partner=partner,
        own_endpoint=services.endpoint_create(party=own, name="requests", uri="http://127.0.0.1/exchange"),
        partner_endpoint=services.endpoint_create(party=partner, name="requests", uri="http://127.0.0.1:1/exchange"),
        services=[(SERVICE, "*", "both")],
        profile=Profile.REPEATABLE,
    )
    services.version_activate(version=agreement.versions.get())
    registry.reset()
    pairs.ensure_pairs()
    triggering.trigger_create(
        actor=Actor("bench"),
        reason="It is measured.",
        name="orders",
        kind=ServiceKind.HTTP,
        url=url,
        documents=[{"service": SERVICE, "action": ACTION}],
        ordered=False,
        concurrency=CONCURRENCY,
    )


def turn(verb: str) -> None:
    """Suspends or resumes the trigger, unless it is so already."""
    from messaging.deliveries.services import triggering
    from messaging.exceptions import WrongState
    from messaging.journal.audit import Actor
    from messaging.models import Trigger

    change = triggering.trigger_suspend if verb == "suspend" else triggering.trigger_resume
    try:
        change(trigger_id=Trigger.objects.get().pk, actor=Actor("bench"), reason="It is measured.")
    except WrongState:
        return


if __name__ == "__main__":
    import django

    django.setup()
    if sys.argv[1] == "prepare":
        prepare(sys.argv[2])
    else:
        turn(sys.argv[1])
