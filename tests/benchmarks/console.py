"""How long the console takes to answer, with ten million messages and five thousand pairs in the store.

    make bench-console            (ARGS="--messages 1000000 --pairs 500" for a smaller one; --keep seeds only once)

One web server with its usual threads, one caller, no other load: each address is asked for `ROUNDS` times with other
rows, places and words each time, after one request that warms up. Time to the first byte of the answer, as the caller
sees it. Budgets: lists 300 ms, details 250 ms (95th percentile). Then Chromium looks at every kind of page (`paint`).
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import psycopg

from rmhub import embedded
from rmhub.hubs import BASE, Hub, free_ports
from tests.benchmarks import paint
from tests.benchmarks.arena import supervised
from tests.benchmarks.machine import facts as machine_facts
from tests.scorecard.stage import seed

ROUNDS = 40
LIST_MS, DETAIL_MS = 300, 250
DATABASE = "bench_console"


@dataclass(frozen=True, slots=True)
class Subject:
    """One kind of page: its name, its budget in milliseconds, and addresses of it."""

    name: str
    budget: int
    paths: list[str]


@dataclass(frozen=True, slots=True)
class Figures:
    """Milliseconds of one subject."""

    name: str
    budget: int
    p50: float
    p95: float
    worst: float
    size: int

    @property
    def kept(self) -> bool:
        return self.p95 < self.budget


class Visitor:
    """A person with a session, on one connection that is kept."""

    def __init__(self, port: int, name: str, password: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._cookies: dict[str, str] = {}
        _, page = self.get("/login/")
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token is not None
        form = urlencode({"username": name, "password": password, "csrfmiddlewaretoken": token[1]})
        self._connection.request(
            "POST",
            "/login/",
            form,
            {"Content-Type": "application/x-www-form-urlencoded", "Cookie": self._cookie(), "Referer": "/login/"},
        )
        answer = self._connection.getresponse()
        answer.read()
        self._keep(answer)
        assert "sessionid" in " ".join(self._cookies), answer.status

    def get(self, path: str) -> tuple[float, str]:
        """(milliseconds to the first byte, the page). Raises RuntimeError when it is refused."""
        began = time.perf_counter()
        self._connection.request("GET", path, headers={"Cookie": self._cookie(), "Accept-Encoding": "gzip"})
        answer = self._connection.getresponse()
        took = (time.perf_counter() - began) * 1000
        body = answer.read()
        self._keep(answer)
        if answer.status not in (200, 302, 303):
            raise RuntimeError(f"{path}: {answer.status} {answer.headers.get('Location', '')}")
        return took, body.decode("utf-8", "replace")

    def _cookie(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self._cookies.items())

    def _keep(self, answer: http.client.HTTPResponse) -> None:
        for header in answer.headers.get_all("Set-Cookie") or ():
            name, _, rest = header.partition("=")
            self._cookies[name] = rest.partition(";")[0]


def subjects(database_url: str, rounds: int) -> Iterator[Subject]:
    """What is asked for, from what is in the store."""
    chance = random.Random(1)
    with psycopg.connect(database_url) as connection:

        def column(sql: str, *values: object) -> list[Any]:
            return [row[0] for row in connection.execute(sql, values).fetchall()]

        codes = column("SELECT code FROM messaging_pair")
        partners = column("SELECT name FROM partners_party WHERE NOT is_own")
        newest = column("SELECT id FROM messaging_message WHERE state = 'delivered' ORDER BY id DESC LIMIT 20000")
        anywhere = column("SELECT id FROM messaging_message TABLESAMPLE SYSTEM (0.05) LIMIT 5000")
        ids = column("SELECT message_id FROM messaging_message TABLESAMPLE SYSTEM (0.05) LIMIT 5000")
        attempts = column("SELECT id FROM messaging_transmission ORDER BY id DESC LIMIT 5000")
        valued = column(
            "SELECT attributes FROM messaging_message TABLESAMPLE SYSTEM (0.1) WHERE attributes IS NOT NULL"
        )
        incidents = column("SELECT number FROM messaging_incident")
    now = datetime.now(UTC)

    def times(make: Callable[[], str]) -> list[str]:
        return [make() for _ in range(rounds + 1)]

    def window() -> str:
        at = now - timedelta(minutes=chance.randrange(60 * 24 * 89))
        return urlencode({"since": f"{at:%Y-%m-%dT%H:%M}", "before": f"{at + timedelta(hours=1):%Y-%m-%dT%H:%M}"})

    yield Subject("Dashboard", LIST_MS, ["/"] * (rounds + 1))
    yield Subject("Pairs", LIST_MS, ["/pairs/?view=all"] * (rounds + 1))
    yield Subject("Pairs, suspended", LIST_MS, ["/pairs/?view=all&state=suspended"] * (rounds + 1))
    yield Subject(
        "Pairs by a part of the code", LIST_MS, times(lambda: f"/pairs/?view=all&q={quote(chance.choice(codes)[3:9])}")
    )
    yield Subject("A pair", DETAIL_MS, times(lambda: f"/pairs/{quote(chance.choice(codes))}/"))
    yield Subject("Messages, newest", LIST_MS, ["/messages/?view=all"] * (rounds + 1))
    yield Subject("Messages, an hour somewhere", LIST_MS, times(lambda: f"/messages/?view=all&{window()}"))
    yield Subject(
        "Messages of a partner, an hour",
        LIST_MS,
        times(
            lambda: "/messages/?view=all&" + urlencode({"q": f'partner:"{chance.choice(partners)}"'}) + "&" + window()
        ),
    )
    yield Subject(
        "Messages, failed, an hour",
        LIST_MS,
        times(lambda: f"/messages/?view=all&state=failed&{window()}"),
    )
    yield Subject(
        "Messages of a pair",
        LIST_MS,
        times(lambda: "/messages/?view=all&" + urlencode({"pair": chance.choice(codes)})),
    )
    yield Subject(
        "Messages by the beginning of an id",
        LIST_MS,
        times(lambda: "/messages/?view=all&" + urlencode({"q": chance.choice(ids)[:12]})),
    )
    yield Subject("Messages that do not exist", LIST_MS, times(lambda: f"/messages/?view=all&q=no-{chance.random()}"))
    yield from _by_attributes(times, valued, chance, partners, window)
    yield Subject("A new message", DETAIL_MS, times(lambda: f"/messages/msg_{chance.choice(newest).hex}/"))
    yield Subject("Any message", DETAIL_MS, times(lambda: f"/messages/msg_{chance.choice(anywhere).hex}/"))
    yield Subject("Search for a MessageId", DETAIL_MS, times(lambda: "/go?" + urlencode({"q": chance.choice(ids)})))
    yield Subject("An attempt", DETAIL_MS, times(lambda: f"/transmissions/att_{chance.choice(attempts).hex}/"))
    yield Subject("Payload", DETAIL_MS, times(lambda: f"/messages/msg_{chance.choice(newest).hex}/payloads/1/"))
    yield Subject("In doubt", LIST_MS, ["/in-doubt/"] * (rounds + 1))
    yield Subject("Incidents", LIST_MS, ["/incidents/?view=all"] * (rounds + 1))
    yield Subject("An incident", DETAIL_MS, times(lambda: f"/incidents/INC-{chance.choice(incidents)}/"))
    yield Subject("Deliveries", LIST_MS, ["/deliveries/?view=all"] * (rounds + 1))
    yield Subject("Partners", LIST_MS, ["/partners/"] * (rounds + 1))
    yield Subject("Agreements", LIST_MS, ["/agreements/"] * (rounds + 1))
    yield Subject("Audit log", LIST_MS, ["/audit/?view=all"] * (rounds + 1))


def _by_attributes(
    times: Callable[[Callable[[], str]], list[str]],
    valued: list[dict[str, str]],
    chance: random.Random,
    partners: list[str],
    window: Callable[[], str],
) -> Iterator[Subject]:
    """Searches by what every invoice has: a number of its own, one of a thousand customers, one of three currencies."""

    def term(name: str, more: str = "") -> str:
        return urlencode({"q": f"{name}:{chance.choice(valued)[name]}{more}"})

    def within(name: str) -> str:
        return "/messages/?view=all&" + term(name, f' partner:"{chance.choice(partners)}"') + "&" + window()

    def value() -> str:
        return urlencode({"q": chance.choice(valued)["invoice"]})

    yield Subject("Search for invoice:4711", DETAIL_MS, times(lambda: "/go?" + term("invoice")))
    yield Subject("Search for 4711", DETAIL_MS, times(lambda: "/go?" + value()))
    yield Subject("Messages with invoice:4711", LIST_MS, times(lambda: "/messages/?view=all&" + term("invoice")))
    yield Subject("Messages with 4711", LIST_MS, times(lambda: "/messages/?view=all&" + value()))
    yield Subject("Messages of a customer", LIST_MS, times(lambda: "/messages/?view=all&" + term("customer")))
    yield Subject("Messages of a customer and a partner, an hour", LIST_MS, times(lambda: within("customer")))
    yield Subject("Messages in a currency", LIST_MS, times(lambda: "/messages/?view=all&" + term("currency")))
    yield Subject("Messages in a currency of a partner, an hour", LIST_MS, times(lambda: within("currency")))
    yield Subject(
        "Messages with an invoice that is not there",
        LIST_MS,
        times(lambda: f"/messages/?view=all&q=invoice:no-{chance.random()}"),
    )


def measure(visitor: Visitor, subject: Subject) -> Figures:
    """Asks for all its addresses; the first one only warms up."""
    taken, size = [], 0
    for path in subject.paths:
        took, page = visitor.get(path)
        taken.append(took)
        size = max(size, len(page))
    taken = sorted(taken[1:])
    p95 = taken[min(len(taken) - 1, int(len(taken) * 0.95))]
    return Figures(subject.name, subject.budget, statistics.median(taken), p95, taken[-1], size)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--pairs", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--keep", action="store_true", help="leave the store, and use the one that is there")
    chosen = parser.parse_args()
    var = BASE / "var" / "bench-console"
    var.mkdir(parents=True, exist_ok=True)
    with embedded.servers(var / "servers", log=print) as servers:
        kept = var / "facts.json"
        fresh = not (chosen.keep and kept.exists())
        if fresh:
            # The store of another run says that this run's database has lost its memory.
            shutil.rmtree(var / "store", ignore_errors=True)
            embedded.drop_database(servers.database_url, DATABASE)
            url = embedded.create_database(servers.database_url, DATABASE)
        else:
            url = json.loads(kept.read_text())["database_url"]
        settings = {"RMHUB_LOG_LEVEL": "ERROR", "RMHUB_RATE_READ": "0"}
        hub = Hub("console", url, servers.redis_url, var, free_ports(1)[0], settings=settings)
        if fresh:
            facts = seed(hub, chosen.messages, var / "world", print, pairs=chosen.pairs)
            kept.write_text(json.dumps({**facts, "database_url": url}))
            print("vacuum")
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("VACUUM (ANALYZE) messaging_message")
        else:
            print("reading what was kept, so that it is in the machine's memory as what has just been written")
            read_all(url)
        facts = json.loads(kept.read_text())
        for step in (("migrate", "--verbosity", "0"), ("collectstatic", "--noinput", "--verbosity", "0")):
            subprocess.run(hub.manage(*step), env=hub.environment(), cwd=BASE, check=True)
        with supervised([hub.processes(restart=False)[0]]):
            visitor = Visitor(hub.port, "admin", facts["password"])
            found = [measure(visitor, subject) for subject in subjects(url, chosen.rounds)]
            painted = paint.paints(hub.url, facts["password"])
        space = on_disk(url, chosen.messages)
        if not chosen.keep:
            embedded.drop_database(servers.database_url, DATABASE)
            kept.unlink()
    print(f"\n{chosen.messages:,} messages, {chosen.pairs:,} pairs; {space}; {machine_facts()}\n")
    print(table(found))
    missed = [one.name for one in found if not one.kept]
    print(
        f"\n{len(found) - len(missed)} of {len(found)} within their budget"
        + (f"; not: {', '.join(missed)}" if missed else "")
    )
    if not painted:
        print("\nThere is no Chromium on this machine (RMHUB_CHROMIUM names one): first paints were not measured.")
        return 1 if missed else 0
    print("\n" + paint.table(painted))
    late = [one.name for one in painted if not one.kept]
    print(
        f"\n{len(painted) - len(late)} of {len(painted)} kinds of pages are painted within {paint.PAINT_MS} ms,"
        f" with at most {paint.SCRIPT_KB} kB of script" + (f"; not: {', '.join(late)}" if late else "")
    )
    return 1 if missed or late else 0


def read_all(database_url: str) -> None:
    """Reads every table that takes more than a few megabytes from its first row to its last."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("SET enable_indexscan = off; SET enable_indexonlyscan = off")
        found = connection.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND starts_with(relname, 'messaging_')"
            " AND pg_relation_size(oid) > 8_000_000"
        )
        for (table,) in found.fetchall():
            connection.execute(f"SELECT count(*) FROM {table}")


def on_disk(database_url: str, messages: int) -> str:
    """What the store takes, and of that a message's row with its indexes."""
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT pg_database_size(current_database()), pg_total_relation_size('messaging_message'),"
            " pg_relation_size('message_by_attribute')"
        ).fetchone()
    assert row is not None
    return (
        f"{row[0] / 1e9:.2f} GB of database, {row[1] / messages:.0f} bytes a message with its indexes"
        f" ({row[2] / messages:.0f} of them for attributes)"
    )


def table(found: list[Figures]) -> str:
    """Markdown."""
    head = ["| page | p50 ms | p95 ms | worst ms | budget ms | page kB |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    rows = [
        f"| {one.name} | {one.p50:.0f} | {one.p95:.0f} | {one.worst:.0f} | {one.budget} | {one.size / 1000:.0f} |"
        for one in found
    ]
    return "\n".join(itertools.chain(head, rows))


if __name__ == "__main__":
    sys.exit(main())
